# plant: src/train/trainer_step.c test=trainer_gradient
# ctest: timeout=60
# The output layer's gradient of the tied weight is added twice.
s/t->tie.owns) tti_tie_add(&t->tie, t->ddp);/t->tie.owns) tti_tie_add(\&t->tie, t->ddp), tti_tie_add(\&t->tie, t->ddp);/
