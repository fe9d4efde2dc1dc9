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

# heals RANKS HOW WHERE AT_ONCE, over $transport
heals() {
    tool run -n "$1" --max-restarts 1000 --transport $transport --no-prefix "$bench" $rounds "$2" "$3" "$4" 3
    check "status: $*, $transport" 0 "$STATUS"
    matches "healed: $*, $transport" "^$1 ranks, $rounds rounds of $4 x $2 in $3, epoch [0-9]+" "$OUT"
    [ "$STATUS" = 0 ] || tail -3 <<<"$ERR"
}
for transport in shm tcp; do
    # One may stop when the world is whole again, or all but a new one: a deadline finds that.
    TUTTI_DEADLINE_MS=10000 heals 4 mixed mixed 1
    for where in all_reduce broadcast all_gather reduce_scatter all_to_all send agree rebuild; do heals 3 kill $where 1; done
    for how in abort segv exit; do heals 3 $how all_reduce 1; done
    for where in agree rebuild; do TUTTI_DEADLINE_MS=10000 heals 3 mixed $where 1; done
    heals 8 kill barrier 2
    [ -n "$SANITIZE" ] || heals 3 stop all_reduce 1

    # Ranks that are threads share their process's fate.
    TUTTI_RANKS=2 tool run -n 3 --max-restarts 1 --transport $transport --no-prefix "$heal" 3 3
    check "threads, $transport: status" 0 "$STATUS"
    matches "threads, $transport: after" '^step 5: 6 ranks, epoch 1$' "$OUT"
done

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

# What was made from the old world is made again: of the same ranks after a rebuild, of those that are left after a shrink.
cat >renew.c <<'C'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/experimental.h>
#include <tutti/tutti.h>
static int fail(const tutti_comm *comm, const char *what) { return fprintf(stderr, "%s: ", what), tutti_explain(comm, stderr), 1; }
static long sum_of(tutti_comm *comm, long x) { return tutti_all_reduce(comm, &x, &x, 1, TUTTI_I64, TUTTI_SUM) == TUTTI_OK ? x : -1; }
static int work(tutti_comm *world, int argc, char **argv)
{
    int rank = tutti_rank(world), victim = atoi(argv[argc - 1]), fresh = tutti_epoch(world) > 0;
    tutti_comm *next = world, *parity = NULL, *tolerant = NULL, *again, *along, *none;
    tutti_mesh *mesh = NULL, *mesh_again;
    if (!fresh) {
        if (tutti_comm_split(world, rank % 2, -rank, &parity) != TUTTI_OK) return fail(world, "split");
        if (tutti_comm_tolerant(parity, &tolerant) != TUTTI_OK) return fail(parity, "tolerant");
        if (tutti_mesh_create(world, (const char *[]){"a", "b"}, (int[]){2, 2}, 2, &mesh) != TUTTI_OK) return fail(world, "mesh");
        tutti_barrier(world);
        if (rank == victim) raise(SIGKILL);
        while (tutti_barrier(world) == TUTTI_OK) {}
        if (tutti_comm_renew(world, world, &again) == TUTTI_OK) return fail(world, "renew on a broken world");
        tutti_status status = tutti_comm_rebuild(world, &next);
        if (status == TUTTI_ERR_UNSUPPORTED) status = tutti_comm_shrink(world, &next);
        if (status != TUTTI_OK) return fail(world, "next");
        if (tutti_comm_renew(world, next, &again) != TUTTI_ERR_ARGUMENT) return fail(next, "a world is not renewed");
        if (tutti_comm_renew(parity, next, NULL) != TUTTI_ERR_ARGUMENT) return fail(next, "no place");
    }
    if (tutti_comm_renew(NULL, next, &none) != TUTTI_OK || none != NULL) return fail(next, "of none");
    if (tutti_comm_renew(parity, next, &again) != TUTTI_OK || again == NULL) return fail(next, "renew");
    int left = tutti_size(next) == 4 ? 2 : rank % 2 == victim % 2 ? 1 : 2;
    if (tutti_size(again) != left || (left == 2 && (tutti_rank(again) != (rank < 2) || sum_of(again, rank) != 2 + 2 * (rank % 2))))
        return fail(again, "its ranks");
    if (tutti_comm_renew(tolerant, again, &none) != TUTTI_OK || none == NULL || tutti_barrier(none) != TUTTI_ERR_UNSUPPORTED)
        return fail(again, "tolerant again");
    tutti_status status = tutti_mesh_renew(mesh, next, &mesh_again);
    if (tutti_size(next) < 4) {
        if (status != TUTTI_ERR_ARGUMENT) return fail(next, "a mesh of three");
        if (tutti_rank(next) == 0) printf("%s\n", tutti_comm_error(next)->text);
    } else {
        if (status != TUTTI_OK || tutti_mesh_comm(mesh_again, "b", &along) != TUTTI_OK) return fail(next, "mesh again");
        if (tutti_mesh_coordinate(mesh_again, "a") != rank / 2 || sum_of(along, rank) != 1 + 4 * (rank / 2)) return fail(along, "along");
        tutti_mesh_free(mesh_again);
    }
    if (tutti_comm_renew(tutti_rank(next) == 0 ? again : NULL, next, &along) != TUTTI_OK) return fail(next, "of one epoch");
    tutti_comm *low, *middle, *both; /* rank 1, which gives none, is in one with rank 0 and in one with rank 2 */
    int place = tutti_rank(next);
    if (tutti_comm_split(next, place < 2, 0, &low) != TUTTI_OK) return fail(next, "low");
    if (tutti_comm_split(next, place == 1 || place == 2, 0, &middle) != TUTTI_OK) return fail(next, "middle");
    if (tutti_comm_renew(place == 0 ? low : place == 2 ? middle : NULL, next, &both) != TUTTI_ERR_MISMATCH) return fail(next, "two comms");
    if (tutti_barrier(next) != TUTTI_OK) return fail(next, "the end");
    printf("renewed\n");
    tutti_comm_free(middle);
    tutti_comm_free(low);
    tutti_comm_free(along);
    tutti_comm_free(none);
    tutti_comm_free(again);
    tutti_comm_free(tolerant);
    tutti_comm_free(parity);
    tutti_mesh_free(mesh);
    return next != world && tutti_comm_free(next) != TUTTI_OK;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
if [ -z "$SANITIZE" ]; then
    compile renew
    for transport in shm tcp; do
        for victim in 0 1; do
            tool run -n 4 --max-restarts 1 --transport $transport --no-prefix ./renew $victim
            check "renew, rank $victim, $transport" '0 4' "$STATUS $(grep -c '^renewed' <<<"$OUT")"
            [ "$STATUS" = 0 ] || head -5 <<<"$ERR"
            tool run -n 4 --keep-going --transport $transport --no-prefix ./renew $victim
            check "renew without rank $victim, $transport" '0 3' "$STATUS $(grep -c '^renewed' <<<"$OUT")"
            matches "a mesh without rank $victim, $transport" 'a 2 x b 2 is not 3, the number of ranks' "$OUT"
            [ "$STATUS" = 0 ] || head -5 <<<"$ERR"
        done
    done
fi

# Actors: what was asked a rank that dies ends once, with its loss; after the rebuild it is reached again, and the others' actors still
# have their state.
cat >actors.c <<'C'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/actor.h>
#include <tutti/tutti.h>
enum { LARGE = 100000 };
static tutti_status count(tutti_actor *self, void *state, tutti_request *request)
{
    (void)self;
    int *seen = state;
    if (request->bytes == 1) return tutti_request_keep(request) != 0 ? TUTTI_OK : TUTTI_ERR_ACTOR; /* never answered */
    ++*seen;
    static char answer[LARGE];
    memcpy(answer, seen, sizeof *seen);
    return tutti_request_answer(request, answer, request->bytes);
}
static int fail(const tutti_comm *comm, const char *what) { return fprintf(stderr, "%s: ", what), tutti_explain(comm, stderr), 1; }
/* Asks all ranks, with a large payload; each one's count is what is expected. */
static int ask_all(tutti_actors *actors, tutti_comm *comm, const int *expected)
{
    static char data[LARGE], answer[LARGE];
    for (int rank = 0; rank < tutti_size(comm); rank++) {
        int seen = 0;
        if (tutti_actor_ask(actors, rank, "count", data, LARGE, answer, LARGE, NULL, 20000) != TUTTI_OK) {
            fprintf(stderr, "rank %d asks rank %d: %s\n", tutti_rank(comm), rank, tutti_actors_error(actors)->text);
            return 1;
        }
        memcpy(&seen, answer, sizeof seen);
        if (seen < expected[rank]) return fprintf(stderr, "rank %d has seen %d, not %d\n", rank, seen, expected[rank]), 1;
    }
    return tutti_barrier(comm) != TUTTI_OK;
}
static int work(tutti_comm *world, int argc, char **argv)
{
    int rank = tutti_rank(world), victim = atoi(argv[argc - 1]), state = 0, none[8] = {0}, expected[8];
    tutti_actors *actors;
    tutti_comm *next = world;
    if (tutti_actors_create(world, NULL, &actors) != TUTTI_OK) return fail(world, "create");
    if (tutti_actor_create(actors, &(tutti_actor_options){.struct_size = sizeof(tutti_actor_options), .name = "count",
                                                          .handle = count, .context = &state}) != TUTTI_OK)
        return fail(world, "actor");
    if (tutti_epoch(world) == 0) {
        tutti_op lost, other;
        char answer[8];
        int living = (victim + 1) % tutti_size(world);
        if (tutti_barrier(world) != TUTTI_OK || ask_all(actors, world, none) != 0) return fail(world, "before");
        if (tutti_actor_ask_start(actors, victim, "count", "x", 1, answer, 8, NULL, 60000, &lost) != TUTTI_OK ||
            tutti_actor_ask_start(actors, living, "count", "x", 1, answer, 8, NULL, 60000, &other) != TUTTI_OK)
            return fail(world, "kept");
        tutti_barrier(world); /* of which some do not see the end, since the victim dies right behind it */
        if (rank == victim) raise(SIGKILL);
        tutti_status ended = tutti_wait(lost);
        if (ended != TUTTI_ERR_PEER_LOST && ended != TUTTI_ERR_EPOCH) return fail(world, tutti_status_name(ended));
        while (tutti_barrier(world) == TUTTI_OK) {}
        if (tutti_actors_renew(actors, world) == TUTTI_OK) return fail(world, "renewed on a broken world");
        if (tutti_comm_rebuild(world, &next) != TUTTI_OK) return fail(world, "rebuild");
        if (tutti_actors_renew(actors, next) != TUTTI_OK) return fail(next, "renew");
        if (tutti_actors_renew(actors, next) != TUTTI_ERR_ARGUMENT) return fail(next, "renewed twice");
        ended = rank == living ? TUTTI_ERR_EPOCH : tutti_wait(other);
        if (ended != TUTTI_ERR_EPOCH) return fail(next, tutti_status_name(ended));
    }
    if (tutti_barrier(next) != TUTTI_OK) return fail(next, "after");
    for (int i = 0; i < tutti_size(next); i++) expected[i] = i == victim ? 1 : tutti_size(next) + 1;
    if (ask_all(actors, next, expected) != 0) return fail(next, "again");
    printf("reached %d\n", tutti_size(next));
    if (tutti_actors_free(actors) != TUTTI_OK) return fail(next, "free");
    return next != world && tutti_comm_free(next) != TUTTI_OK;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
if [ -z "$SANITIZE" ]; then
    compile actors
    for transport in shm tcp; do
        for victim in 0 1; do
            tool run -n 3 --max-restarts 1 --transport $transport --no-prefix ./actors $victim
            check "actors, rank $victim, $transport" '0 3' "$STATUS $(grep -c '^reached 3' <<<"$OUT")"
            check "actors, rank $victim, $transport: errors" '' "$(grep '^tutti error' <<<"$ERR")"
            [ "$STATUS" = 0 ] || head -5 <<<"$ERR"
        done
    done
fi

tool run -n 2 --max-restarts 3 bash -c 'exit 3'
check 'before joining: status' 3 "$STATUS"
matches 'before joining: said' 'not started again: not all ranks had joined' "$ERR"
refused 'max-restarts' run --max-restarts x true
finish
