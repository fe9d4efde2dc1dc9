#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=200 waits
# A rank whose device has failed, or that is killed, in the midst of calls on streams: it is started again, or the others go on
# without it, and calls on streams go on in the next epoch; devices as actors, and worlds with devices. On device host and on GPUs (a
# libcuda made of threads).
source "$(dirname "$0")/fake_nccl.bash"
fake_kernels
export TUTTI_LOG=error

# heals DEVICE PROVIDER HOW VICTIM OPTION RANKS_AFTER
heals() {
    local which="$*"
    TUTTI_DEVICE_PROVIDER=$2 tool run -n 4 $5 --no-prefix "$BUILD/tests/test_stream_heal" "$1" "$4" 3 "$3"
    [ "$6" = 3 ] || check "status, $which" 0 "$STATUS"
    matches "before, $which" '^step 2: 4 ranks, epoch 0$' "$OUT"
    matches "after, $which" "^step 7: $6 ranks, epoch 1\$" "$OUT"
    check "steps, $which" 8 "$(grep -c ^step <<<"$OUT")"
    [ "$3" = kill ] || matches "said, $which" "(host|cuda:0) has failed: .*700" "$ERR"
    grep -q '^step 7' <<<"$OUT" || tail -8 <<<"$ERR"
}
for how in poison kill; do
    for victim in 0 2; do
        for provider in auto cuda staged; do
            heals host $provider $how $victim '--max-restarts 1' 4
            heals host $provider $how $victim '--keep-going' 3
        done
    done
done
export TUTTI_CUDA_PATH=$PWD/fake
for how in poison kill; do
    for provider in auto staged; do
        heals cuda:0 $provider $how 0 '--max-restarts 1' 4
        heals cuda:0 $provider $how 2 '--max-restarts 1' 4
        heals cuda:0 $provider $how 1 '--keep-going' 3
    done
done

# The same where the device is an actor: the work that waits is answered, the actor ends, and so does the process.
for device in host cuda:0; do
    for victim in 0 2; do
        tool run -n 4 --max-restarts 1 --no-prefix "$BUILD/tests/test_actor_heal" $device $victim 3
        which="device actor, $device, rank $victim"
        check "status, $which" 0 "$STATUS"
        matches "answered, $which" '^poisoned: TUTTI_ERR_DEVICE$' "$OUT"
        check "all answered, $which" '' "$(grep wrong <<<"$OUT")"
        matches "the actor ends, $which" "^rank $victim ends: TUTTI_ERR_(DEVICE|ACTOR): .*" "$ERR"
        matches "started again, $which" "rank $victim .* exited with status 1 and is started again \\(restart 1 of 1\\)" "$ERR"
        matches "after, $which" '^step 7: 4 ranks, epoch 1$' "$OUT"
        check "steps, $which" 8 "$(grep -c ^step <<<"$OUT")"
        [ "$STATUS" = 0 ] || tail -8 <<<"$ERR"
    done
done

# Worlds of one process, each rank with a device and a stream: of one GPU, and of several.
for devices in cuda:0 cuda:0,cuda:1 cuda:0,cuda:1,cuda:2,cuda:3; do
    OUT=$(timeout 120 "$BUILD/tests/test_world_actor" $devices 2>&1)
    STATUS=$?
    check "a world on $devices ($(tail -n 3 <<<"$OUT"))" 0 $STATUS
done
finish
