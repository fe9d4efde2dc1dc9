# plant: src/nn/layer_embedding.c test=tensor
# ctest: timeout=60
# Rows of tokens that another rank has are filled with +0.0, which changes −0.0.
s/tti_fill_nothing(call->out + r \* width, (size_t)width);/memset(call->out + r * width, 0, (size_t)width * sizeof(float));/
