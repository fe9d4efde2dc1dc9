# plant: src/nn/layer_attention.c test=tensor
# ctest: timeout=60
# Dropout of attention counts heads from this rank's first.
s/(call->first_sample + sample) \* heads + first + here)/(call->first_sample + sample) * heads + 0 * first + here)/
