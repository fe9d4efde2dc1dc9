# plant: src/train/checkpoint_ranges.c test=checkpoint_ranges
# ctest: timeout=60
# The last piece of a file is one byte short.
s/: file->bytes;$/: file->bytes - 1;/
