#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 labels=asan
# examples/mesh.c, a model and a layer of one's own, learns with the same weights on every mesh, saves, and goes on on others.
source "$(dirname "$0")/run.bash"
program=$BUILD/examples/mesh
for _ in $(seq 40); do echo 'the quick brown fox jumps over the lazy dog 0123456789'; done >text

OUT=$("$program" text 2>&1)
if grep -q 'OpenBLAS' <<<"$OUT"; then
    echo "skipped: $OUT"
    exit 77
fi
matches 'it learns' '^step 40: loss [012]\.' "$OUT"
while read -r ranks mesh zero table; do
    check "$mesh, zero $zero, $table" "$OUT" "$(TUTTI_RANKS=$ranks "$program" text "$mesh" "$zero" "$table" 2>&1)"
done <<END
3 data=3 3
4 tensor=4 0
8 data=2,pipe=2,tensor=2 1 zb-h1
8 data=2,pipe=2,tensor=2 3 interleaved
8 shard=2,pipe=4,data=1 2 1f1b
END
check 'processes, which save' "$OUT" "$("$TUTTI" run -n 4 --no-prefix "$program" text pipe=2,tensor=2 0 zb-v saved 2>&1)"
went_on=$(TUTTI_RANKS=2 "$program" text data=2 1 '' saved 2>&1)
matches 'it goes on' '^step 80: loss' "$went_on"
check 'saved twice' 2 "$(find saved -maxdepth 1 -name 'step-*' | wc -l)"
check 'no config of a gpt' 0 "$(find saved/step-00000040 -name config.json | wc -l)"
tool ckpt ls saved
matches 'a checkpoint lists' 'step-00000080' "$OUT"
tool sample saved
matches 'no gpt' 'holds no model of tokens, but "sloped"' "$ERR"
tool train gpt --data text --save saved --resume --context 16
matches 'of another model' 'is of another model: model is sloped there, gpt here' "$ERR"
finish
