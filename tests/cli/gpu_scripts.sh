#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 waits
# The scripts that are carried to a machine with a GPU (scripts/gpu), on a libcuda made of threads: parts that pass, one that
# fails, and a call that has no time for all of them; damaged files among compiled kernels, and a folder that cannot be written.
source "$(dirname "$0")/fake_nccl.bash"
fake_kernels
unset TUTTI_CACHE
export TUTTI_CUDA_PATH=$PWD/fake FAKE_CUDA_GPUS=1
mkdir carry
cp "$SRC"/scripts/gpu/*.sh carry/
for program in tutti examples/gpu tests/test_stream_heal tests/test_device_actor; do ln -s "$(realpath "$BUILD")/$program" carry/; done
cd carry || exit 1

parts() { # command...: leaves OUT and STATUS
    OUT=$(timeout 200 "$@" 2>&1)
    STATUS=$?
}
parts ./run.sh cuda:0 1:1 'example|garbage|started again, auto|actors'
check "all parts ($(grep -E 'NOT so|FAILED' <<<"$OUT"))" 0 $STATUS
matches 'all parts' '^all passed on cuda:0$' "$OUT"
check 'parts' 5 "$(grep -c '^== .*: passed' <<<"$OUT")"
matches 'a damaged file' '^one byte, replaced: as it must be$' "$OUT"
matches 'no folder' '^/proc/tutti, told: as it must be$' "$OUT"

CALL_SECONDS=1 parts ./run.sh cuda:0 1:1 example
check 'no time: status' 3 $STATUS
matches 'no time' '^1 parts are left' "$OUT"
CALL_SECONDS=100 parts ./run.sh cuda:0 1:1 example
check 'the next call: status' 0 $STATUS
check 'the next call' 1 "$(grep -c '^== .*: passed' <<<"$OUT")"

ln -sf /bin/false gpu
parts ./run.sh cuda:0 1:1 'example|garbage'
check 'a part fails: status' 1 $STATUS
matches 'a part fails' '^FAILED: the example, threads \(1\)$' "$OUT"
matches 'kernels are not there' '^files are there: NOT so' "$OUT"
finish
