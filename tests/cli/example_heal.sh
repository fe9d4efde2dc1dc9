#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 labels=asan,tsan
# examples/heal.c goes on without a rank that is killed, under tutti run --keep-going, whichever it is; without the flag the job ends.
# What the launcher knows holds for all: each survivor's failing op gives the same lost ranks and next epoch, and half of the ranks go
# on without the others.
source "$(dirname "$0")/run.bash"
program=$BUILD/examples/heal
matches 'threads' '^step 5: 3 ranks, epoch 0$' "$(TUTTI_RANKS=3 "$program" 2>&1)"
for transport in shm tcp; do
    for victim in 0 2; do
        tool run -n 4 --keep-going --no-prefix --transport $transport "$program" $victim 3
        check "status, rank $victim, $transport" 0 "$STATUS"
        matches "before, rank $victim, $transport" '^step 2: 4 ranks, epoch 0$' "$OUT"
        matches "after, rank $victim, $transport" '^step 5: 3 ranks, epoch 1$' "$OUT"
        matches "said, rank $victim, $transport" "^tutti run: rank $victim \\(pid [0-9]+\\) was killed by signal 9 .*; the others go on" "$ERR"
    done
done
tool run -n 4 --no-prefix "$program" 2 3
check 'without the flag' 137 "$STATUS"

cat >lost.c <<'C'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>
/* lost HOW COUNT: the first COUNT ranks end at once; the others say what they know, before they agree on anything. */
static int work(tutti_comm *world, int argc, char **argv)
{
    int ranks[16], count = -1;
    tutti_comm *next = NULL;
    if (argc != 3) return 2;
    int whole = tutti_barrier(world) == TUTTI_OK; /* or one that came through it has ended by now */
    if (tutti_rank(world) < atoi(argv[2])) raise(atoi(argv[1]));
    while (whole && tutti_barrier(tutti_within(world, 300)) == TUTTI_OK) {}
    int epoch = (int)tutti_comm_error(world)->next_epoch;
    if (atoi(argv[1]) == SIGKILL) {
        if (tutti_comm_lost(world, ranks, 16, &count) != TUTTI_OK) return tutti_explain(world, stderr);
        printf("epoch %d lost", epoch);
        for (int i = 0; i < count; i++) printf(" %d", ranks[i]);
        printf("\n");
    }
    if (tutti_comm_shrink(tutti_within(world, 500), &next) != TUTTI_OK) return tutti_explain(world, stderr);
    while (tutti_size(next) > tutti_size(world) - atoi(argv[2])) {
        tutti_comm *before = next;
        tutti_comm_revoke(before);
        if (tutti_comm_shrink(before, &next) != TUTTI_OK) return tutti_explain(before, stderr);
        tutti_comm_free(before);
    }
    if (tutti_rank(next) == 0) printf("%d go on\n", tutti_size(next));
    return tutti_barrier(next) == TUTTI_OK && tutti_comm_free(next) == TUTTI_OK ? 0 : 1;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
if [ -z "$SANITIZE" ]; then
    compile lost
    for transport in shm tcp; do
        for counts in '2 1' '4 2' '6 2'; do
            read -r ranks killed <<<"$counts"
            tool run -n "$ranks" --keep-going --transport $transport --no-prefix ./lost 9 "$killed"
            check "killed, $counts, $transport: status" 0 "$STATUS"
            check "killed, $counts, $transport: told" $((ranks - killed)) "$(grep -c '^epoch 1 lost.* [01]' <<<"$OUT")"
            check "killed, $counts, $transport: the same" 1 "$(grep '^epoch' <<<"$OUT" | sort -u | wc -l)"
            matches "killed, $counts, $transport: goes on" "^$((ranks - killed)) go on" "$OUT"
        done
        tool run -n 2 --keep-going --transport $transport --no-prefix ./lost 19 1
        # 137: the launcher has seen the end of the one that it killed after that of the other, which goes on at once
        matches "stopped, $transport: status" '^(0|137)$' "$STATUS"
        matches "stopped, $transport: goes on" '^1 go on' "$OUT"
        matches "stopped, $transport: said" 'rank 0 did not come to comm_shrink within 500 ms: its process (was killed|is ended)' "$ERR"
    done
fi

tool run -n 2 --keep-going bash -c 'kill -9 $$'
check 'all are killed' 137 "$STATUS"
tool run -n 2 --keep-going bash -c 'exit 3'
check 'a status is a failure' 3 "$STATUS"
# shellcheck disable=SC2016
tool run -n 2 --keep-going bash -c '[ "$TUTTI_RANK" = 0 ] || exit 3; exec sleep 200'
check 'a status is a failure of the job, and ends the others' 3 "$STATUS"
make_shell
for victim in 0 3; do
    TUTTI_HOST_PROCESSES=2 tool run --hosts 127.0.0.1,127.0.0.2 --ssh ./shell -n 2 --keep-going --no-prefix "$program" $victim 3
    check "several hosts, rank $victim: status" 0 "$STATUS"
    matches "several hosts, rank $victim: goes on" '^step 5: 3 ranks, epoch 1$' "$OUT"
done
finish
