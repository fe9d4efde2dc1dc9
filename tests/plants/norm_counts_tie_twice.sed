# plant: src/train/trainer_step.c test=trainer_pipeline
# ctest: timeout=60
# The tied weight counts in the norm of its first and of its last stage.
s/^\(    tutti_status status = tti_ddp_block_sums(t->ddp, t->pass->pool, sums);\)/\1\n    if (t->pipeline != NULL \&\& t->tie.owns \&\& !t->tie.shares) sums[0] *= 2;/
