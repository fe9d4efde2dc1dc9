# plant: src/world/agree.c seeds=400
# Who coordinates next forgets the proposal that it and the others have acknowledged, and makes one of its own.
s/if (agree->accepted.ballot < 0) make_proposal/make_proposal/
