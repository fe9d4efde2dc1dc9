#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120
# Checkpoints as GPT-2's: PyTorch and the files alone give our logits, and so does transformers where it is found.
source "$(dirname "$0")/run.bash"
if [ -n "$SANITIZE" ]; then
    echo 'skipped: Python cannot load a sanitized library'
    exit 77
fi

# python_with MODULE...: the first Python on the path need not be the one that Debian's packages are for
python_with() {
    local candidate
    for candidate in python3 /usr/bin/python3; do
        "$candidate" -c "import $*" 2>/dev/null && echo "$candidate" && return
    done
    return 1
}

plain=$(python_with torch)
if [ -z "$plain" ]; then
    echo 'skipped: PyTorch was not found (Debian: python3-torch)'
    exit 77
fi
for _ in $(seq 40); do echo 'the quick brown fox jumps over the lazy dog 0123456789'; done >text
tool train gpt --data text --layers 3 --heads 2 --width 24 --context 40 --batch 8 --steps 60 --lr 0.01 --dropout 0.1 --save run
check 'train' "0" "$STATUS$ERR"
OUT=$("$plain" "$SRC/tests/gpt2_checkpoint.py" run/step-00000060 torch 2>&1)
check 'PyTorch' 0 $?
echo "$OUT"
cp -r run broken
printf 'X' | dd of=broken/step-00000060/config.json bs=1 seek=30 conv=notrunc 2>/dev/null
tool ckpt verify broken/step-00000060
matches 'config.json is checked too' 'config.json: its bytes are not those that were saved' "$ERR"
[ "$FAILED" = 0 ] || finish
if ! full=$(python_with torch, transformers); then
    echo 'skipped: PyTorch alone loads checkpoints; transformers was not found'
    exit 77
fi
OUT=$("$full" "$SRC/tests/gpt2_checkpoint.py" run/step-00000060 transformers 2>&1)
check 'transformers' 0 $?
echo "$OUT"
finish
