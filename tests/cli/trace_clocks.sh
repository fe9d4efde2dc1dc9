#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60
# The clocks of two hosts are compared when they join: in their traces a barrier ends nowhere before all have begun it, though
# one clock is ahead by a thousand seconds. The hosts are processes in time namespaces, in a network of their own.
source "$(dirname "$0")/run.bash"
unshare -n -T --monotonic 1000 true 2>/dev/null || { echo "skip: namespaces of time may not be made"; exit 77; }

cat >meet.c <<'END'
#include <stdio.h>
#include <tutti/tutti.h>
static int work(tutti_comm *world, int argc, char **argv)
{
    (void)argc, (void)argv;
    for (int i = 0; i < 100; i++)
        if (tutti_barrier(world) != TUTTI_OK) return tutti_explain(world, stderr);
    return 0;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
END
compile meet
tool key key
cat >host <<'END'
node=$1 clock=$2 transport=$3
exec unshare -T --monotonic "$clock" env TUTTI_TRACE="$PWD/$node.json" TUTTI_HOST_PROCESSES=$((transport == 2 ? 2 : 0)) \
    "$TUTTI" run --nnodes 2 --node-rank "$node" -n 2 --master-addr 127.0.0.1 --key-file key \
    --transport $([ $transport = 1 ] && echo tcp || echo auto) ./meet
END
export TUTTI

# inverted FILE...: by how many us a barrier at most ended on one rank before another one began it
inverted() {
    cat "$@" | grep '"name":"barrier".*"cat":"operation"' |
        sed 's/.*"ts":\([0-9.]*\),"dur":\([0-9.]*\).*"sequence":\([0-9]*\).*/\3 \1 \2/' |
        awk '!($1 in end) { begin[$1] = $2; end[$1] = $2 + $3 }
             $2 > begin[$1] { begin[$1] = $2 } $2 + $3 < end[$1] { end[$1] = $2 + $3 }
             END { for (i in end) { n++; d = begin[i] - end[i]; if (d > most) most = d }; print n == 100 ? most + 0 : "none" }'
}
for transport in 1 2; do
    rm -f ./*.json
    timeout 50 unshare -n bash -c \
        'ip link set lo up; bash host 1 1000 $0 >/dev/null & bash host 0 0 $0 >/dev/null && wait $!' $transport
    check 'status' 0 $?
    for node in 0 1; do check "processes of host $node go by one clock" 0 "$(inverted $node.json)"; done
    apart=$(inverted 0.json 1.json)
    check "both hosts do, nearly ($apart us)" 1 "$(awk -v d="$apart" 'BEGIN { print d < 20000 }')"
done
finish
