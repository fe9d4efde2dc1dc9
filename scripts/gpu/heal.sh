#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# heal.sh DEVICE [PROVIDER…]: one of four ranks that share a GPU writes to an illegal address or is killed, between calls on
# streams; it is started again, or the others go on without it, and eight steps end well in the next epoch. By each PROVIDER
# (auto, staged); from the folder that scripts/test_gpu.sh makes.
set -u
cd "$(dirname "$0")" || exit 1
device=$1 rc=0
shift

heals() # provider, poison or kill, the launcher's options, ranks afterwards
{
    local out start=$SECONDS why='' options
    read -ra options <<< "$3"
    out=$(TUTTI_LOG=error TUTTI_DEVICE_PROVIDER=$1 timeout -k 5 60 ./tutti run -n 4 "${options[@]}" --no-prefix \
        ./test_stream_heal "$device" 2 3 "$2" 2>&1)
    [ "$(grep -c '^step ' <<< "$out")" = 8 ] || why="not eight steps"
    grep -q '^step 2: 4 ranks, epoch 0$' <<< "$out" || why="step 2 is not there"
    grep -q "^step 7: $4 ranks, epoch 1\$" <<< "$out" || why="step 7 is not there"
    if [ "$2" = poison ]; then
        grep -qE "$device has failed: .*700" <<< "$out" || why="the failure was not told"
    fi
    printf '%s, %s, %s: %s (%d s)\n' "$1" "$2" "$3" "${why:-healed}" $((SECONDS - start))
    [ -z "$why" ] && return
    printf '%s\n' "$out"
    rc=1
}

[ $# -gt 0 ] || set -- auto staged
for provider; do
    for how in poison kill; do
        heals "$provider" $how '--max-restarts 1' 4
        heals "$provider" $how --keep-going 3
    done
done
exit $rc
