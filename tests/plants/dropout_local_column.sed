# plant: src/nn/layer_elements.c test=tensor
# ctest: timeout=60
# Dropout of cut rows counts columns from this rank's first.
s/^\( *const int64_t column = .*\)(int64_t)span.lo;/\1(int64_t)(span.lo - tti_grain_share(call->model, section, width->first).lo);/
