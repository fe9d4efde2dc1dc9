#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120 labels=asan,tsan waits
# tutti run --max-restarts: lost ranks are started again, and the world is rebuilt, whoever dies, how, and where; what cannot be
# meant is said.
source "$(dirname "$0")/run.bash"
heal=$BUILD/examples/heal bench=$BUILD/bench_rebuild
rounds=6
[ -z "$SANITIZE" ] || rounds=3

# The example, with the rank that gathers the others and with another one.
for victim in 0 2; do
    for transport in shm tcp; do
        which="rank $victim, $transport"
        tool run -n 4 --max-restarts 1 --transport $transport --no-prefix "$heal" $victim 3
        check "status, $which" 0 "$STATUS"
        matches "before, $which" '^step 2: 4 ranks, epoch 0$' "$OUT"
        matches "after, $which" '^step 5: 4 ranks, epoch 1$' "$OUT"
        check "steps, $which" 6 "$(grep -c ^step <<<"$OUT")"
        matches "said, $which" "^tutti run: rank $victim \\(pid [0-9]+\\) was killed by signal 9 .*started again \\(restart 1 of 1\\)" "$ERR"
    done
done

# heals RANKS HOW WHERE AT_ONCE [VICTIM], over $transport
heals() {
    tool run -n "$1" --max-restarts 1000 --transport $transport --no-prefix "$bench" $rounds "$2" "$3" "$4" 3 "${@:5}"
    check "status: $*, $transport" 0 "$STATUS"
    matches "healed: $*, $transport" "^$1 ranks, $rounds rounds of $4 x $2 in $3${5:+ from rank $5}, epoch [0-9]+" "$OUT"
    [ "$STATUS" = 0 ] || tail -3 <<<"$ERR"
}
for transport in shm tcp; do
    # One may stop when the world is whole again, or all but a new one: a deadline finds that.
    TUTTI_DEADLINE_MS=10000 heals 4 mixed mixed 1
    for where in all_reduce broadcast all_gather reduce_scatter all_to_all send agree rebuild; do heals 3 kill $where 1; done
    for how in abort segv exit; do
        for where in all_reduce broadcast all_gather reduce_scatter all_to_all send; do rounds=2 heals 3 $how $where 1; done
    done
    if [ -z "$SANITIZE" ]; then
        ways=(abort segv exit kill) turn=0
        for where in reduce gather scatter scan exscan all_gather_v gather_v scatter_v reduce_scatter_v all_to_all_v; do
            rounds=3 heals 3 ${ways[turn++ % 4]} $where 1
        done
    fi
    # One that stops for a moment while the world is rebuilt, and goes on: nobody is lost, unless a sanitizer makes it late.
    if [ -z "$SANITIZE" ]; then
        TUTTI_DEADLINE_MS=10000 heals 3 cont rebuild 1
        check "stopped for a moment in a rebuild, $transport: nobody is started again" 0 "$(grep -c 'started again' <<<"$ERR")"
    fi
    for where in agree rebuild; do TUTTI_DEADLINE_MS=10000 heals 3 mixed $where 1; done
    heals 8 kill barrier 2
    for where in barrier rebuild; do heals 3 kill $where 1 0; done # the one that coordinates, each time
    [ -n "$SANITIZE" ] || heals 3 stop all_reduce 1

    # Ranks that are threads share their process's fate.
    TUTTI_RANKS=2 tool run -n 3 --max-restarts 1 --transport $transport --no-prefix "$heal" 3 3
    check "threads, $transport: status" 0 "$STATUS"
    matches "threads, $transport: after" '^step 5: 6 ranks, epoch 1$' "$OUT"
done

# A thread that does not rebuild but leaves, when the other one of its process waits for it: that one is told, and the job ends.
cat >sibling.c <<'C'
#include <signal.h>
#include <tutti/tutti.h>
#include <unistd.h>
static int work(tutti_comm *world, int argc, char **argv)
{
    tutti_comm *next;
    (void)argc, (void)argv;
    if (tutti_barrier(world) == TUTTI_OK && tutti_rank(world) == 0) raise(SIGKILL);
    while (tutti_barrier(world) == TUTTI_OK) {}
    if (tutti_rank(world) == 2) return usleep(100000), 1; /* before or after the other one has begun to wait */
    return tutti_comm_rebuild(world, &next) == TUTTI_OK ? 0 : tutti_explain(world, stderr);
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
if [ -z "$SANITIZE" ]; then
    compile sibling
    for transport in shm tcp; do
        TUTTI_RANKS=2 tool run -n 2 --max-restarts 3 --transport $transport --no-prefix ./sibling
        check "a thread that leaves, $transport: status" 1 "$STATUS"
        matches "a thread that leaves, $transport: the other is told" 'comm_rebuild: rank 2 has left, and a world is rebuilt with all' "$ERR"
    done
fi

# The budget, programs that do not rebuild, worlds that are whole, and launchers that start nothing again.
cat >bad.c <<'C'
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>
static int work(tutti_comm *world, int argc, char **argv)
{
    tutti_comm *next = NULL;
    const char *what = argv[argc - 1];
    if (strcmp(what, "whole") == 0) {
        tutti_status status = tutti_comm_rebuild(world, &next);
        fprintf(stderr, "%s: %s\n", tutti_status_name(status), tutti_comm_error(world)->text);
        return tutti_barrier(world) == TUTTI_OK && next == NULL ? 0 : 1;
    }
    if (tutti_rank(world) == 1 && strcmp(what, "done") == 0) return 0;
    if (tutti_rank(world) == 2 && (tutti_epoch(world) == 0 || strcmp(what, "always") == 0)) raise(SIGKILL);
    while (tutti_barrier(world) == TUTTI_OK) {}
    if (strcmp(what, "never") == 0) return tutti_explain(world, stderr);
    while (tutti_comm_rebuild(world, &next) == TUTTI_OK) {
        while (tutti_barrier(next) == TUTTI_OK) {}
        world = next;
    }
    return tutti_explain(world, stderr);
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
if [ -z "$SANITIZE" ]; then
    compile bad
    tool run -n 3 --max-restarts 2 --no-prefix ./bad always
    check 'used up: status' 137 "$STATUS"
    matches 'used up: said by the launcher' 'rank 2 .* is not started again: all restarts are used up' "$ERR"
    check 'used up: told to all' 2 "$(grep -c 'rank 2 .* was killed by signal 9 and is not started again' <<<"$(grep -v '^tutti run' <<<"$ERR")")"
    tool run -n 3 --max-restarts 2 --no-prefix ./bad never
    check 'never rebuilds: fails' 1 "$((STATUS != 0))"
    matches 'never rebuilds: said' 'is for programs that call tutti_comm_rebuild' "$ERR"
    for transport in shm tcp; do
        tool run -n 3 --max-restarts 2 --transport $transport --no-prefix ./bad whole
        check "whole, $transport: status" 0 "$STATUS"
        check "whole, $transport: said" 3 "$(grep -c 'ERR_ARGUMENT: .*this comm is whole' <<<"$ERR")"
    done
    tool run -n 3 --no-prefix ./bad whole
    check 'no restarts: said' 3 "$(grep -c 'ERR_UNSUPPORTED: .*tutti_comm_shrink' <<<"$ERR")"
    matches 'threads alone: said' 'ERR_UNSUPPORTED: .*tutti_comm_shrink' "$(TUTTI_RANKS=3 ./bad whole 2>&1)"
    tool run -n 3 --max-restarts 2 --no-prefix ./bad 'done'
    check 'has left: fails' 1 "$((STATUS != 0))"
    matches 'has left: said' 'rank 1 .*(has left|ended with status 0)' "$ERR"
fi

tool run -n 2 --max-restarts 3 bash -c 'exit 3'
check 'before joining: status' 3 "$STATUS"
matches 'before joining: said' 'not started again: not all ranks had joined' "$ERR"
refused 'max-restarts' run --max-restarts x true
finish
