#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120 waits
# What was made from a world that lost ranks is made again: comms, tolerant ones, meshes, actors; on one host, on several, and where a
# whole host is lost. Hosts are addresses of this one; the remote shell is a script that runs its command here.
source "$(dirname "$0")/run.bash"
[ -z "$SANITIZE" ] || { echo 'skip: programs that are linked here with a library under a sanitizer do not start'; exit 77; }
make_shell
hosts=(run --host-processes 2 --ssh ./shell --no-prefix -n 2 --max-restarts 1)
two=("${hosts[@]}" --hosts '127.0.0.1,127.0.0.2')
three=("${hosts[@]}" --hosts '127.0.0.1,127.0.0.2,127.0.0.3' --spare 1)

# Who is lost: rank `victim`, which kills itself; or, where the second word is "host", all ranks of its host, whose launcher is killed.
cat >lost.h <<'C'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int victim, host_too;
static void read_words(int argc, char **argv) { victim = atoi(argv[argc - 2]), host_too = strcmp(argv[argc - 1], "host") == 0; }
static int is_lost(int rank) { return host_too ? rank / 2 == victim / 2 : rank == victim; }
/* The parent of a rank is its launcher's guard. */
static int launcher(void)
{
    char path[64];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)getppid());
    FILE *file = fopen(path, "r");
    if (file == NULL || fscanf(file, "%*d (%*[^)]) %*c %d", &parent) != 1) abort();
    fclose(file);
    return parent;
}
static void die(int rank)
{
    if (!host_too) raise(SIGKILL);
    if (rank == victim) kill(launcher(), SIGKILL);
    for (;;) pause();
}
C

# What was made from the old world is made again: of the same ranks after a rebuild, of those that are left after a shrink.
cat >renew.c <<'C'
#include "lost.h"
#include <tutti/experimental.h>
#include <tutti/tutti.h>
static int fail(const tutti_comm *comm, const char *what) { return fprintf(stderr, "%s: ", what), tutti_explain(comm, stderr), 1; }
static long sum_of(tutti_comm *comm, long x) { return tutti_all_reduce(comm, &x, &x, 1, TUTTI_I64, TUTTI_SUM) == TUTTI_OK ? x : -1; }
static int work(tutti_comm *world, int argc, char **argv)
{
    int rank = tutti_rank(world), fresh = tutti_epoch(world) > 0;
    tutti_comm *next = world, *parity = NULL, *pair = NULL, *tolerant = NULL, *again, *pair_again, *along, *none;
    tutti_mesh *mesh = NULL, *mesh_again;
    read_words(argc, argv);
    if (fresh && !is_lost(rank)) return fail(world, "only who was lost is new");
    if (!fresh) {
        if (tutti_comm_split(world, rank % 2, -rank, &parity) != TUTTI_OK) return fail(world, "split");
        if (tutti_comm_split(world, rank / 2, 0, &pair) != TUTTI_OK) return fail(world, "pair");
        if (tutti_comm_tolerant(parity, &tolerant) != TUTTI_OK) return fail(parity, "tolerant");
        if (tutti_mesh_create(world, (const char *[]){"a", "b"}, (int[]){2, 2}, 2, &mesh) != TUTTI_OK) return fail(world, "mesh");
        tutti_barrier(world);
        if (is_lost(rank)) die(rank);
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
    if (tutti_comm_renew(pair, next, &pair_again) != TUTTI_OK) return fail(next, "renew a pair");
    int of_lost = host_too && is_lost(rank); /* nobody that is left had a pair of both */
    if ((pair_again == NULL) != of_lost) return fail(next, "a pair of lost ranks");
    if (!of_lost && tutti_size(pair_again) == 2 && sum_of(pair_again, rank) != 1 + 4 * (rank / 2)) return fail(pair_again, "pair");
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
    tutti_comm_free(pair_again);
    tutti_comm_free(pair);
    tutti_comm_free(parity);
    tutti_mesh_free(mesh);
    return next != world && tutti_comm_free(next) != TUTTI_OK;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
    compile renew
# goes_on PROGRAM RANKS WORD ARGUMENT...: a run of the tool, in which all ranks that are left say the word
goes_on() {
    local what="$1: ${*:4}" ranks=$2 word=$3
    shift 3
    tool "$@"
    check "$what" "0 $ranks" "$STATUS $(grep -c "^$word" <<<"$OUT")"
    [ "$STATUS" = 0 ] || head -5 <<<"$ERR"
}
for victim in 0 1; do
    for transport in shm tcp; do
        goes_on renew 4 renewed run -n 4 --max-restarts 1 --transport $transport --no-prefix ./renew $victim rank
        goes_on renew 3 renewed run -n 4 --keep-going --transport $transport --no-prefix ./renew $victim rank
        matches "a mesh without rank $victim, $transport" 'a 2 x b 2 is not 3, the number of ranks' "$OUT"
    done
done
for victim in 0 3; do
    goes_on renew 4 renewed "${two[@]}" ./renew $victim rank
    goes_on renew 4 renewed "${three[@]}" ./renew $victim host
done

# Actors: what was asked a rank that dies ends once, with its loss; after the rebuild it is reached again, and the others' actors still
# have their state. Collectives that were asked for end, too, those behind them with the reason, until their actor is renewed.
cat >actors.c <<'C'
#include "lost.h"
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
static tutti_status sum_start(tutti_actors *actors, long *x, tutti_op *op)
{
    tutti_collective_call call = {.kind = TUTTI_DO_ALL_REDUCE, .in = x, .out = x, .count = 1, .type = TUTTI_I64, .reduction = TUTTI_SUM};
    return tutti_collective_do_start(actors, "sums", &call, 1, 60000, op);
}
/* Starts sums until one is refused, as those are that come behind the loss. */
static int sums_end(tutti_actors *actors)
{
    enum { MANY = 4 };
    long x[MANY] = {0};
    tutti_op ops[MANY];
    int failed = 0;
    for (int i = 0; i < MANY; i++)
        if (sum_start(actors, &x[i], &ops[i]) != TUTTI_OK) return 1;
    for (int i = 0; i < MANY; i++) failed += tutti_wait(ops[i]) != TUTTI_OK;
    return failed == MANY ? 0 : fprintf(stderr, "%d of %d sums failed\n", failed, MANY), failed != MANY;
}
static int work(tutti_comm *world, int argc, char **argv)
{
    int rank = tutti_rank(world), state = 0, none[8] = {0}, expected[8];
    tutti_op summed;
    long sum = rank;
    tutti_actors *actors;
    tutti_comm *next = world;
    read_words(argc, argv);
    if (tutti_actors_create(world, NULL, &actors) != TUTTI_OK) return fail(world, "create");
    if (tutti_actor_create(actors, &(tutti_actor_options){.struct_size = sizeof(tutti_actor_options), .name = "count",
                                                          .handle = count, .context = &state}) != TUTTI_OK)
        return fail(world, "actor");
    if (tutti_collective_actor(actors, world, "sums") != TUTTI_OK) return fail(world, "collective actor");
    if (tutti_epoch(world) == 0) {
        tutti_op lost, other;
        char answer[8];
        int living = (victim + 2) % tutti_size(world);
        if (tutti_barrier(world) != TUTTI_OK || ask_all(actors, world, none) != 0) return fail(world, "before");
        if (tutti_actor_ask_start(actors, victim, "count", "x", 1, answer, 8, NULL, 60000, &lost) != TUTTI_OK ||
            tutti_actor_ask_start(actors, living, "count", "x", 1, answer, 8, NULL, 60000, &other) != TUTTI_OK)
            return fail(world, "kept");
        tutti_barrier(world); /* of which some do not see the end, since the victim dies right behind it */
        if (is_lost(rank)) die(rank);
        tutti_status ended = tutti_wait(lost);
        if (ended != TUTTI_ERR_PEER_LOST && ended != TUTTI_ERR_EPOCH) return fail(world, tutti_status_name(ended));
        while (tutti_barrier(world) == TUTTI_OK) {}
        if (sums_end(actors) != 0) return fail(world, "sums");
        if (tutti_actors_renew(actors, world) == TUTTI_OK) return fail(world, "renewed on a broken world");
        if (tutti_comm_rebuild(world, &next) != TUTTI_OK) return fail(world, "rebuild");
        if (tutti_actors_renew(actors, next) != TUTTI_OK) return fail(next, "renew");
        if (tutti_actors_renew(actors, next) != TUTTI_ERR_ARGUMENT) return fail(next, "renewed twice");
        if (tutti_collective_renew(actors, next, "count") != TUTTI_ERR_ARGUMENT) return fail(next, "it makes no collectives");
        if (sums_end(actors) != 0) return fail(next, "sums before they are renewed");
        if (tutti_collective_renew(actors, next, "sums") != TUTTI_OK) return fail(next, "renew sums");
        ended = rank == living ? TUTTI_ERR_EPOCH : tutti_wait(other);
        if (ended != TUTTI_ERR_EPOCH) return fail(next, tutti_status_name(ended));
    }
    if (tutti_barrier(next) != TUTTI_OK) return fail(next, "after");
    if (sum_start(actors, &sum, &summed) != TUTTI_OK || tutti_wait(summed) != TUTTI_OK || sum != tutti_size(next) * (tutti_size(next) - 1) / 2)
        return fprintf(stderr, "a sum of %ld: %s\n", sum, tutti_actors_error(actors) == NULL ? "" : tutti_actors_error(actors)->text), 1;
    for (int i = 0; i < tutti_size(next); i++) expected[i] = is_lost(i) ? 1 : tutti_size(next) + 1;
    if (ask_all(actors, next, expected) != 0) return fail(next, "again");
    printf("reached %d\n", tutti_size(next));
    if (tutti_actors_free(actors) != TUTTI_OK) return fail(next, "free");
    return next != world && tutti_comm_free(next) != TUTTI_OK;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
    compile actors
no_errors() { check "$1" '' "$(grep '^tutti error' <<<"$ERR")"; }
for victim in 0 1; do
    for transport in shm tcp; do
        goes_on actors 3 'reached 3' run -n 3 --max-restarts 1 --transport $transport --no-prefix ./actors $victim rank
        no_errors "actors, rank $victim, $transport: errors"
    done
done
for victim in 0 3; do
    goes_on actors 4 'reached 4' "${two[@]}" ./actors $victim rank
    no_errors "actors, rank $victim of two hosts: errors"
    goes_on actors 4 'reached 4' "${three[@]}" ./actors $victim host
    no_errors "actors, the host of rank $victim: errors"
done
finish
