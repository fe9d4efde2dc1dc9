# plant: src/train/checkpoint_ranges.c test=checkpoint_ranges
# ctest: timeout=60
# Parts go to the ranks as if there were one rank less.
s/round \* (size_t)size + (size_t)rank;/round * (size_t)(size > 1 ? size - 1 : 1) + (size_t)rank;/
