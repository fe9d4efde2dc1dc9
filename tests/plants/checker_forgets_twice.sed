# plant: src/train/pipeline_check.c test=pipeline
# ctest: timeout=60
# The check of a table does not see a step that is done twice.
s/if (\*place != 0 && before.part == step.part)/if (*place < 0 \&\& before.part == step.part)/
s/^    if (\*place != 0)$/    if (*place < 0)/
