#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [DEVICE [SEEDS [PARTS]]]: the tests of a GPU, from the folder that scripts/test_gpu.sh makes. What measures runs alone, the
# rest side by side. Each part has a limit of its own; all run, or those whose names the pattern PARTS matches, and the last lines
# say which have failed. A call takes CALL_SECONDS (480) at most: where parts are left it ends with status 3, and the next one with
# the same arguments goes on with them. Two calls of 580 seconds do everything.
set -u
cd "$(dirname "$0")" || exit 1
device=${1:-cuda:0} seeds=${2:-1:150} parts=${3:-.}
limit=${CALL_SECONDS:-480} ran=0 left=0
touch done.parts failed.parts # the names of those that were run, and of those that have failed

# True if the part is to run now.
is_due() # seconds, name
{
    [[ $2 =~ $parts ]] || return 1
    grep -qxF "$2" done.parts && return 1
    if [ $ran -gt 0 ] && [ $((SECONDS + $1 + 10)) -gt "$limit" ]; then
        left=$((left + 1))
        return 1
    fi
    ran=$((ran + 1))
}

run() # seconds, name, command…
{
    local name=$2 start=$SECONDS rc=0
    printf '== %s\n' "$name"
    timeout -k 5 "$1" "${@:3}" < /dev/null || rc=$?
    echo "$name" >> done.parts
    [ $rc = 0 ] || echo "$name ($rc)" >> failed.parts
    printf '== %s: %s (%d s)\n' "$name" "$([ $rc = 0 ] && echo passed || echo "FAILED, status $rc")" $((SECONDS - start))
}

# Runs a part alone.
part() # seconds, name, command…
{
    if is_due "$1" "$2"; then run "$@"; fi
}

# Runs a part side by side with others, until `wait`; what it says comes at its end.
beside() # seconds, name, command…
{
    if is_due "$1" "$2"; then { printf '%s\n' "$(run "$@" 2>&1)"; } & fi
}

# Kernels are compiled by several processes at once, one for each type.
kernels()
{
    local type rc=0 pids=() types=(f64 f32 f16 bf16 f8e4m3 f8e5m2 i8 u8 i16 u16 i32 u32 i64 u64 bool move)
    for type in "${types[@]}"; do
        ./test_gpu_kernels "$device" "$type" > "kernels.$type" 2>&1 &
        pids+=($!)
    done
    for type in "${types[@]}"; do
        wait "${pids[0]}" || rc=1
        pids=("${pids[@]:1}")
        printf '%s: %s\n' "$type" "$(tail -n 4 "kernels.$type")"
    done
    return $rc
}
export -f kernels
export device TUTTI_CACHE=$PWD/cache

./tutti doctor | grep -E ' (version|gpu|library) ' | grep -E 'version|gpu|CUDA|NVRTC|NCCL'
part 240 'kernels' bash -c kernels
for ranks in 2 4 8; do
    part 60 "all_reduce of $ranks threads" env TUTTI_RANKS=$ranks ./bench_gpu "$device"
    part 60 "all_reduce of $ranks processes" ./tutti run -n $ranks ./bench_gpu "$device"
done
part 60 'staged all_reduce of 2 threads' env TUTTI_RANKS=2 ./bench_gpu "$device" staged
part 60 'staged all_reduce of 2 processes' ./tutti run -n 2 ./bench_gpu "$device" staged
part 90 "NCCL as a provider: cost" ./nccl.sh 50 cost
part 130 "NCCL as a provider: shared" ./nccl.sh 50 shared
part 120 '64 ranks, 1,000 ops on two streams each' ./test_streams_many "$device" 64 1000
part 60 'speed of kernels' ./bench_gpu_kernels "$device"
part 150 'all operations, measured' ./tutti bench --ranks 4 --device "$device" -b 1M -e 64M -f 64

beside 60 'devices' ./test_device "$device"
beside 60 'streams' ./test_device_streams "$device"
beside 60 'devices as actors' ./test_device_actor "$device"
beside 120 'random programs' ./test_device_programs "$device" "$seeds"
beside 60 'what is given up' ./test_stream_ops "$device" given_up
for provider in cuda staged; do
    beside 90 "deadlines, $provider" env TUTTI_DEVICE_PROVIDER=$provider ./test_stream_deadlines "$device"
done
beside 60 'staged in rounds' ./test_staged_rounds "$device"
beside 120 'garbage among compiled kernels, a folder for them that cannot be written' ./cache.sh "$device"
beside 30 'the example, threads' env TUTTI_RANKS=4 ./gpu "$device"
beside 30 'the example, processes' ./tutti run -n 4 ./gpu "$device"
for provider in auto staged; do
    beside 120 "devices that are opened again, $provider" env TUTTI_DEVICE_PROVIDER=$provider ./test_stream_reopen "$device"
done
for header in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/local/cuda/include; do
    if [ -e "$header/cuda.h" ] && command -v gcc > /dev/null; then
        for ours in cuda nvrtc; do
            [ ! -e "$header/$ours.h" ] || beside 30 "our declarations and $header/$ours.h" \
                gcc -std=gnu17 -fsyntax-only -I include -I src -I "$header" tests/${ours}_header.c
        done
        break
    fi
done
beside 60 "NCCL as a provider: header" ./nccl.sh 50 header
wait
beside 200 'collectives' ./test_conformance_streams "$device"
beside 150 "NCCL as a provider: results" ./nccl.sh 50 results
beside 180 "NCCL as a provider: conformance" ./nccl.sh 50 conformance
beside 90 'prepared ops, groups, buffers that go' ./test_stream_ops "$device"
beside 90 'messages' ./test_stream_messages "$device"
beside 120 "memory of the program's own, streams that are captured" ./test_stream_memory "$device"
wait
part 120 'what only GPUs have' ./test_device_cuda "$device"
for provider in auto staged; do part 120 "ranks that are started again, $provider" ./heal.sh "$device" $provider; done
part 300 'ranks that are killed, and GPUs that fail' ./test_gpu_faults "$device" 50 20
part 240 "NCCL as a provider: kills" ./nccl.sh 50 kills
if [ $left -gt 0 ]; then
    echo "$left parts are left after $SECONDS s: run it again"
    exit 3
fi
mapfile -t failed < failed.parts
rm -f done.parts failed.parts
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "all passed on $device"
