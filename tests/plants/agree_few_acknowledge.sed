# plant: src/world/agree.c seeds=400
# An outcome is final though most of those that took part were given up before they had acknowledged it.
s/if (agree->by_majority && agree->accepted.outcome == TTI_AGREED && !is_majority(agree, agree->acknowledged))/if (false)/
