#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 waits
# Ranks that end before they join: those that wait for them are told at once, and who it was; a job in which nobody joins is
# none of the library's business.
source "$(dirname "$0")/run.bash"
cat >join.c <<'END'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
/* join.c WORLDS [RANK STATUS]: that rank ends so, or by a signal where that is negative, in place of its last join */
static int join_and_leave(void)
{
    tutti_comm *world;
    if (tutti_join(&world) != TUTTI_OK || tutti_barrier(world) != TUTTI_OK) {
        tutti_explain(world, stderr);
        tutti_leave(world);
        return 9;
    }
    tutti_leave(world);
    return 0;
}
int main(int argc, char **argv)
{
    const char *rank = getenv("RANK");
    int status = 0;
    for (int left = atoi(argv[1]); left > 0 && status == 0; left--) {
        if (left == 1 && argc > 3 && strcmp(rank, argv[2]) == 0) {
            int end = atoi(argv[3]);
            if (end < 0) raise(-end);
            return end;
        }
        status = join_and_leave();
    }
    if (status == 0) printf("joined\n");
    return status;
}
END
compile join
make_shell
export TUTTI_JOIN_TIMEOUT_MS=100s # who waits for that long says something else

# told RANK HOW OTHERS: what each of the others says; absent: and of nobody else
told() {
    local rank
    for rank in $3; do
        matches "rank $rank is told: $WHAT" "^\[$rank\]   rank $1 \(process [0-9]+\) $2 before joining job .* all of its [0-9]+ ranks; " "$ERR"
    done
}
absent() {
    told "$@"
    check "nobody else is named: $WHAT" 0 "$(grep 'before joining' <<<"$ERR" | grep -vc "   rank $1 ")"
}

# ends WHAT EXIT-STATUS RANK HOW OTHERS FLAG-OR-WORD...: a job in which that rank ends
ends() {
    WHAT=$1 expected=$2 rank=$3 how=$4 others=$5
    shift 5
    tool run "$@"
    check "$WHAT" "$expected" $STATUS
    absent "$rank" "$how" "$others"
}

for transport in shm tcp; do
    zero='ended with status 0'
    ends "status 0, $transport" 9 2 "$zero" '0 1 3' -n 4 --grace-ms 100s --transport $transport ./join 1 2 0
    ends "rank 0, $transport" 9 0 "$zero" '1 2' -n 3 --grace-ms 100s --transport $transport ./join 1 0 0
    ends "status 3, $transport" 3 1 'ended with status 3' '0 2' -n 3 --grace-ms 100s --transport $transport ./join 1 1 3
    ends "a signal, $transport" 137 1 'was killed by signal 9' 0 -n 2 --grace-ms 100s --transport $transport ./join 1 1 -9
    ends "the next world, $transport" 9 1 "$zero" '0 2' -n 3 --grace-ms 100s --transport $transport ./join 2 1 0
done
WHAT='another host'
tool run --hosts 127.0.0.1,b -n 2 --ssh ./shell --grace-ms 100s ./join 1 3 0
check "$WHAT" 9 $STATUS
told 3 'ended with status 0' '0 2' # rank 1 may come after rank 0 has ended, and is told that
matches 'all are told something' '^\[1\] .* before joining job' "$ERR"

tool run -n 3 ./join 0
check 'nobody joins' 0 $STATUS
check 'nor says anything' '' "$ERR"
tool run -n 3 ./join 2
check 'twice' 0 $STATUS
printf '#!/bin/sh\nuntil [ -f gone ]; do sleep 0.02; done\nsleep 0.1\nexec ./join 1\n' >later
chmod +x later
for start in './later &' 'exec setsid ./later'; do # by a group's leader: it forks, and ends
    rm -f first gone
    timeout -k 1 240 "$TUTTI" run -n 3 sh -c "[ \$RANK = 1 ] || exec ./join 1; echo \$\$ >first; $start" >out.txt 2>&1 &
    launcher=$!
    within 100 lines_in first 1 && within 100 gone first && touch gone
    wait $launcher
    check "one that a rank left running joins in its place: $start" 0 $?
done
finish
