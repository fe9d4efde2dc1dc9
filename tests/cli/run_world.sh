#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120 waits
# One world of ranks that several launchers have started: by hand, over a remote shell, between network namespaces, and by
# another launcher than `tutti run`.
source "$(dirname "$0")/run.bash"
cat >hello.c <<'END'
#include <stdio.h>
#include <tutti/tutti.h>
static int work(tutti_comm *world, int argc, char **argv)
{
    int x = tutti_rank(world);
    (void)argc, (void)argv;
    if (tutti_all_reduce(world, &x, &x, 1, TUTTI_I32, TUTTI_SUM) != TUTTI_OK) return tutti_explain(world, stderr);
    printf("rank %d of %d: %d\n", tutti_rank(world), tutti_size(world), x);
    return 0;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
END
compile hello
make_shell
export TUTTI_JOIN_TIMEOUT_MS=60s
four=$'rank 0 of 4: 6\nrank 1 of 4: 6\nrank 2 of 4: 6\nrank 3 of 4: 6'
ranks() { sed 's/^\[[0-9]*\] //' "$@" | sort; }

is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
port=$((20000 + RANDOM % 10000))
until is_free $port; do port=$((port + 1)); done
"$TUTTI" key key >/dev/null
check 'a key' 0 $?

# node RANK SIZE FLAG...: one host's launcher, in the background
node() {
    local rank=$1 size=$2
    shift 2
    timeout 240 "$TUTTI" run --nnodes 2 --node-rank "$rank" --nproc-per-node "$size" --master-addr 127.0.0.1 --master-port $port \
        --key-file key "$@" ./hello >"node.$rank" 2>&1 &
}
node 0 2
node 1 2
wait
check 'two launchers, by hand' "$four" "$(ranks node.0 node.1)"
node 0 2 --transport tcp
node 1 2 --transport tcp
wait
check 'and all by tcp' "$four" "$(ranks node.0 node.1)"
node 0 2 --join-timeout-ms 6s
node 1 3 --join-timeout-ms 6s
wait
matches 'launchers that disagree on the size' 'told another number of ranks' "$(cat node.0)"
matches 'both say what it may be' 'do all ranks have the same job name and number of ranks' "$(cat node.1)"
check 'none of them goes on' 0 "$(grep -c 'of [46]: ' <(cat node.0 node.1))"
node 0 1 --join-timeout-ms 3s
node 1 1 --join-timeout-ms 3s --master-addr localhost
wait
matches 'launchers that write the address in different ways' 'another name for this one' "$(cat node.0)"
matches 'the other says what to do' 'MASTER_ADDR .* needs it written in the same way' "$(cat node.1)"

"$TUTTI" key other >/dev/null
node 0 1 --join-timeout-ms 6s
node 1 1 --key-file other
wait
matches 'a wrong key is told to its rank' 'wrong key, compare TUTTI_KEY_FILE: rank 1 on .* \(127.0.0.1:' "$(cat node.1)"
matches 'rank 0 says so at once' 'warn.*a connection from 127.0.0.1:[0-9]*, as rank 1, has another key' "$(cat node.0)"
matches 'and when it gives up' 'rank 1 of job .* has not come .*; a connection from .* has another key' "$(cat node.0)"

tool run --hosts 127.0.0.1,b:1,c:1 -n 2 --ssh ./shell ./hello
check 'over a remote shell' "$four" "$(ranks out.txt)"
TUTTI_RANKS=2 tool run --hosts 127.0.0.1,b --ssh ./shell --transport tcp ./hello
check 'with two threads each' "$four" "$(ranks out.txt)"
tool run --hosts 127.0.0.1,b --ssh ./shell --interface none0 ./hello
check 'an interface that is not there' 1 $((STATUS != 0))
matches 'is named' 'none0' "$ERR"

TUTTI_RNAKS=2 tool run -n 4 --no-prefix ./hello
check 'a misspelt option: the job runs' "$four" "$(sort out.txt)"
check 'it is said once' 'tutti warn: TUTTI_RNAKS is set, but is no option; did you mean TUTTI_RANKS?' "$ERR"

if command -v mpiexec.hydra >/dev/null; then
    TUTTI_KEY_FILE=$DIR/key timeout 240 "$HYDRA" -launcher ssh -launcher-exec "$DIR/shell" -hosts 127.0.0.2,127.0.0.3 \
        -n 4 -ppn 2 ./hello >out.txt 2>err.txt
    check 'MPICH on two hosts' "$four" "$(ranks out.txt)"
    timeout 240 "$HYDRA" -launcher ssh -launcher-exec "$DIR/shell" -hosts 127.0.0.2,127.0.0.3 -n 2 ./hello >out.txt 2>&1
    check 'without a key' 1 $(($? != 0))
    matches 'the command that makes one is said' 'tutti key FILE' "$(cat out.txt)"
fi

# ---- Network namespaces: hosts that reach each other by tcp only
near=tutti$$a far=tutti$$b
if ip netns add $near 2>/dev/null && ip netns add $far 2>/dev/null && ip netns exec $near true 2>/dev/null &&
    ip link add t$$a netns $near type veth peer name t$$b netns $far 2>/dev/null; then
    trap 'ip netns del $near; ip netns del $far; rm -rf "$DIR"' EXIT
    ip -n $near address add 10.213.7.1/24 dev t$$a && ip -n $near link set t$$a up && ip -n $near link set lo up
    ip -n $far address add 10.213.7.2/24 dev t$$b && ip -n $far link set t$$b up && ip -n $far link set lo up
    printf '#!/usr/bin/env bash\nexec ip netns exec "$1" bash -c "$2"\n' >enter
    chmod +x enter
    tool run --hosts $near,$far -n 2 --ssh ./enter --master-addr 10.213.7.1 ./hello
    check 'between network namespaces' "$four" "$(ranks out.txt)"
    [ $STATUS = 0 ] || echo "$ERR"
else
    ip netns del $near 2>/dev/null
    ip netns del $far 2>/dev/null
    echo 'not tested: network namespaces (they cannot be made here)'
fi
finish
