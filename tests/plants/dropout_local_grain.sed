# plant: src/nn/layer_elements.c test=trainer_gradient
# ctest: timeout=60
# Dropout counts samples from the grain's first.
s/call->first_sample \* call->model->shape.rows + call->first_row/0 * call->model->shape.rows + call->first_row/
