# plant: src/world/agree.c seeds=400
# Who hears the outcome does not tell it to the others, also when they ask.
s/say_all(agree, COMMIT, agree->number, &agree->last, true);/if (agree->last.ballot == agree->rank) &/
s/if (message->number + 1 == agree->number && message->type != COMMIT)/if (false)/
