# plant: src/nn/pass_forward.c test=trainer_gradient
# ctest: timeout=60
# Dropout counts samples from this pass's first.
s/\.first_sample = batch->first_sample + item->first,/.first_sample = item->first,/
