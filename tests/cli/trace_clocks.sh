#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60
# The clocks of two hosts are compared when they join: in their traces the same operation is at the same time, though one
# clock is ahead by a thousand seconds. The hosts are processes in time namespaces, in a network of their own.
source "$(dirname "$0")/run.bash"
unshare -n -T --monotonic 1000 true 2>/dev/null || { echo "skip: namespaces of time may not be made"; exit 77; }

tool key key
cat >host <<'END'
node=$1 clock=$2
exec unshare -T --monotonic "$clock" env TUTTI_TRACE="$PWD/$node.json" "$TUTTI" run --nnodes 2 --node-rank "$node" \
    --master-addr 127.0.0.1 --key-file key --transport tcp "$BUILD/examples/collectives"
END
export TUTTI BUILD
timeout 50 unshare -n bash -c 'ip link set lo up; bash host 1 1000 >/dev/null & bash host 0 0 >/dev/null && wait $!'
check 'status' 0 $?

# began FILE: when its first all_reduce did, in microseconds
began() {
    grep -m 1 '"name":"all_reduce".*"ph":"X"' "$1" | sed 's/.*"ts":\([0-9.]*\).*/\1/'
}
apart=$(awk -v a="$(began 0.json)" -v b="$(began 1.json)" 'BEGIN { d = (a - b) / 1e6; print (d < 0 ? -d : d) }')
check "the same operation is at the same time in both (apart: $apart s)" 1 "$(awk -v d="$apart" 'BEGIN { print d < 100 }')"
check 'both traces have it' 2 "$(cat 0.json 1.json | grep -c -m 2 '"name":"all_reduce"')"
finish
