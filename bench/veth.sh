#!/usr/bin/env bash
# A 64 MiB broadcast between two network namespaces, beside what one plain stream reaches there. Needs root.
#     bench/veth.sh [ROUNDS]        after make
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-15}
near=tutti-near-$$ far=tutti-far-$$ folder=$(mktemp -d)
clean() {
    ip netns del $near 2>/dev/null || true
    ip netns del $far 2>/dev/null || true
    rm -rf "$folder"
}
trap clean EXIT
ip netns add $near
ip netns add $far
ip link add t$$a netns $near type veth peer name t$$b netns $far
ip -n $near addr add 10.91.0.1/24 dev t$$a
ip -n $far addr add 10.91.0.2/24 dev t$$b
ip -n $near link set lo up
ip -n $far link set lo up
ip -n $near link set t$$a up
ip -n $far link set t$$b up
build/tutti key "$folder/key"
part() { # namespace, node, core
    TUTTI_KEY_FILE=$folder/key ip netns exec "$1" taskset -c "$3" build/tutti run --nnodes 2 --node-rank "$2" --nproc-per-node 1 \
        --master-addr 10.91.0.1 --master-port 29555 build/bench_stream 10.91.0.2 "$rounds"
}
part $far 1 1 &
part $near 0 0
wait
