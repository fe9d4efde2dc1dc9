#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan
# --log-dir and --tee.
source "$(dirname "$0")/run.bash"
script='echo out $RANK; printf "err %d" $RANK >&2'

tool run -n 2 --log-dir logs sh -c "$script"
check 'status' 0 $STATUS
check 'nothing on the terminal' '' "$OUT$ERR"
check 'stdout of a rank, as it came' 'out 1' "$(cat logs/rank-1.out)"
check 'stderr of a rank, as it came' 5 "$(wc -c <logs/rank-0.err)"
check 'four files' 4 "$(ls logs | wc -l)"

tool run -n 2 --log-dir=logs --tee sh -c "$script; echo more"
check '--tee prints' $'[0] more\n[0] out 0\n[1] more\n[1] out 1' "$(sort <<<"$OUT")"
check '--tee prints stderr' $'[0] err 0\n[1] err 1' "$(sort <<<"$ERR")"
check '--tee writes, over what was there' $'out 0\nmore' "$(cat logs/rank-0.out)"
check '--tee writes bytes as they came' 5 "$(wc -c <logs/rank-1.err)"

tool run -n 1 --log-dir one --tee sh -c "$script"
check 'one rank' 'out 0' "$OUT"
check 'one rank, file' 'out 0' "$(cat one/rank-0.out)"

tool run -n 2 --tee true
check '--tee alone' 2 $STATUS
matches '--tee alone' 'needs --log-dir' "$ERR"

tool run -n 2 --log-dir missing/deep true
check 'a folder that cannot be made' 2 $STATUS
matches 'is named' 'missing/deep' "$ERR"

touch file
tool run -n 2 --log-dir file true
check 'a file is no folder' 2 $STATUS
matches 'is named' 'file/rank-0.out' "$ERR"

[ -w /dev/full ] && {
    "$TUTTI" run -n 2 echo x >/dev/full 2>err.txt
    check 'a full disk' 1 $?
    matches 'is said' 'cannot write to stdout: No space left' "$(cat err.txt)"
}
finish
