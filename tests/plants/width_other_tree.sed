# plant: src/nn/width.c test=tensor
# ctest: timeout=60
# Sums over width grains are in an order that depends on the grains of a rank.
s/sum->leaf(sum->call, from, sum->first/sum->leaf(sum->call, from * 3 % tutti_call_grains(sum->call), sum->first/
