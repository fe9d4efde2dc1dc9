#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [DEVICE [SEEDS [PARTS]]]: the tests of a GPU, from the folder that scripts/test_gpu.sh makes. Each part has PART_SECONDS
# (240); all run, or those whose names the pattern PARTS matches, and the last lines say which have failed. A call takes 8
# minutes at most: where parts are left it ends with status 3, and the next one with the same arguments goes on with them.
set -u
cd "$(dirname "$0")" || exit 1
device=${1:-cuda:0} seeds=${2:-1:150} parts=${3:-.}
failed=() seconds=${PART_SECONDS:-240} limit=480 ran=0 left=0
touch done.parts # the names of those that were run

part() # name, command…
{
    local name=$1 start=$SECONDS rc=0
    shift
    [[ $name =~ $parts ]] || return 0
    grep -qxF "$name" done.parts && return 0
    if [ $ran -gt 0 ] && [ $((SECONDS + seconds + 10)) -gt $limit ]; then
        left=$((left + 1))
        return 0
    fi
    printf '== %s\n' "$name"
    timeout -k 5 "$seconds" "$@" || rc=$?
    echo "$name" >> done.parts
    ran=$((ran + 1))
    [ $rc = 0 ] || failed+=("$name ($rc)")
    printf '== %s: %s (%d s)\n' "$name" "$([ $rc = 0 ] && echo passed || echo "FAILED, status $rc")" $((SECONDS - start))
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

./tutti doctor | grep -E ' (version|gpu|library) ' | grep -E 'version|gpu|CUDA|NVRTC|NCCL'
part 'devices' ./test_device "$device"
part 'streams' ./test_device_streams "$device"
part 'devices as actors' ./test_device_actor "$device"
part 'random programs' ./test_device_programs "$device" "$seeds"
part 'what only GPUs have' ./test_device_cuda "$device"
export -f kernels
export device TUTTI_CACHE=$PWD/cache
part 'kernels' bash -c kernels
part 'speed of kernels' ./bench_gpu_kernels "$device"
part 'collectives' ./test_conformance_streams "$device"
part 'ranks that are killed, and GPUs that fail' ./test_gpu_faults "$device" 50 20
part 'prepared ops, groups, buffers that go' ./test_stream_ops "$device"
part 'messages' ./test_stream_messages "$device"
part "memory of the program's own, streams that are captured" ./test_stream_memory "$device"
part '64 ranks, 1,000 ops on two streams each' ./test_streams_many "$device" 64 1000
part 'what is given up' ./test_stream_ops "$device" given_up
for provider in cuda staged; do
    part "deadlines, $provider" env TUTTI_DEVICE_PROVIDER=$provider ./test_stream_deadlines "$device"
done
for nccl in results cost shared kills header; do
    part "NCCL as a provider: $nccl" ./nccl.sh 50 $nccl
done
for ranks in 2 4 8; do
    part "all_reduce of $ranks threads" env TUTTI_RANKS=$ranks ./bench_gpu "$device"
    part "all_reduce of $ranks processes" ./tutti run -n $ranks ./bench_gpu "$device"
done
part 'staged all_reduce of 2 threads' env TUTTI_RANKS=2 ./bench_gpu "$device" staged
part 'staged all_reduce of 2 processes' ./tutti run -n 2 ./bench_gpu "$device" staged
for header in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/local/cuda/include; do
    if [ -e "$header/cuda.h" ] && command -v gcc > /dev/null; then
        for ours in cuda nvrtc; do
            [ ! -e "$header/$ours.h" ] || part "our declarations and $header/$ours.h" \
                gcc -std=gnu17 -fsyntax-only -I include -I src -I "$header" tests/${ours}_header.c
        done
        break
    fi
done
printf '%s\n' "${failed[@]}" | sed '/^$/d' >> failed.parts
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
