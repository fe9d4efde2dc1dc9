#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=150
# Trainers as actors under tutti run --max-restarts: a rank is killed among many steps that one rank has asked for. Those that were not
# done are answered with the loss, the trainers are restored by their actors, and the rest is asked for again: with the weights of an
# undisturbed run, on several layouts, whichever rank is killed, the one that asks and the one that leads too.
source "$(dirname "$0")/run.bash"
[ -z "$SANITIZE" ] || { echo 'skip: programs that are linked here with a library under a sanitizer do not start'; exit 77; }

cat >trainers.c <<'C'
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train.h>
#include <unistd.h>
enum { STEPS = 12 };
struct run {
    tutti_comm *comm, *own;
    tutti_trainer *trainer;
    tutti_actors *actors;
    uint64_t step; /* after which it goes on */
};
static int victim, when, asker; /* rank 0 asks its own actor, and does not wait for what is behind the first failure */
static const char *mesh;
static int zero;
static int fail(struct run *run, const char *what)
{
    const tutti_error *error = run->actors == NULL ? NULL : tutti_actors_error(run->actors);
    fprintf(stderr, "%s: %s\n", what, error == NULL ? "" : error->text);
    (void)tutti_explain(run->comm, stderr);
    return 1;
}
static void watch(void *context, tutti_train_phase moment, uint64_t step)
{
    const tutti_comm *world = context;
    if (tutti_rank(world) != victim || tutti_epoch(world) > 0) return;
    if (moment == (when < 0 ? TUTTI_TRAIN_AT_GRADIENTS : TUTTI_TRAIN_AT_UPDATE) && step == (uint64_t)abs(when)) raise(SIGKILL);
}
static tutti_status create(struct run *run)
{
    tutti_train_options options;
    tutti_error error = {0};
    tutti_train_options_init(&options);
    options.data = "markov:order=1,states=11,length=4000";
    options.layers = 2;
    options.heads = 2;
    options.width = 16;
    options.context = 8;
    options.batch = 8;
    options.width_grains = 2;
    options.steps = STEPS;
    options.mesh = mesh;
    options.zero = zero;
    tutti_status status = tutti_trainer_create(run->own, &options, &run->trainer, &error);
    if (status != TUTTI_OK) fprintf(stderr, "create: %s\n", error.text);
    return status;
}
/* The world again, and the trainer with the state that all still have; begins anew where another rank is lost meanwhile. */
static int go_on(struct run *run, const tutti_comm *world)
{
    tutti_comm *before = run->comm, *own = run->own, *next;
    if (tutti_comm_rebuild(before, &next) != TUTTI_OK) return fail(run, "rebuild");
    run->comm = next;
    if (tutti_actors_renew(run->actors, next) != TUTTI_OK) return fail(run, "renew");
    if (tutti_trainer_actor_restore(run->actors, "trainer", next, NULL) != TUTTI_ERR_ARGUMENT) return fail(run, "the actors' comm");
    if (tutti_comm_duplicate(next, &run->own) != TUTTI_OK) return fail(run, "duplicate");
    if (tutti_trainer_actor_restore(run->actors, "trainer", run->own, &run->step) != TUTTI_OK) return fail(run, "restore");
    tutti_comm_free(own);
    if (before != world) tutti_comm_free(before);
    return 0;
}
static tutti_train_step steps[STEPS];
static tutti_op ops[STEPS];
static int asked, answered;
/* Waits for steps: all, or until one has failed. Returns how many were not done; those are the last ones. */
static int await_steps(const struct run *run, int failed)
{
    for (; answered < asked && (failed == 0 || asker > 0); answered++) {
        tutti_status status = tutti_wait(ops[answered]);
        if (status != TUTTI_OK && failed++ == 0) printf("step %d: %s\n", (int)run->step + answered + 1, tutti_status_name(status));
        if (status == TUTTI_OK && (failed > 0 || steps[answered].step != run->step + (uint64_t)answered + 1)) return -1;
    }
    return failed;
}
/* Asks for all steps that are left at once. */
static int ask(struct run *run)
{
    asked = STEPS - (int)run->step, answered = 0;
    for (int i = 0; i < asked; i++)
        if (tutti_trainer_ask_start(run->actors, "trainer", TUTTI_TRAIN_STEP, &steps[i], 60000, &ops[i]) != TUTTI_OK) return -1;
    return await_steps(run, 0);
}
/* What lay in the own actor's mailbox when the trainer was restored was answered with the loss. */
static int await_rest(void)
{
    for (; answered < asked; answered++)
        if (tutti_wait(ops[answered]) == TUTTI_OK) return fprintf(stderr, "a step from before was made\n"), 1;
    return 0;
}
static int begin(struct run *run)
{
    tutti_train_about about;
    if (tutti_actors_create(run->comm, &(tutti_actors_options){.struct_size = sizeof(tutti_actors_options), .threads = 1}, &run->actors) != TUTTI_OK)
        return fail(run, "actors");
    if (tutti_comm_duplicate(run->comm, &run->own) != TUTTI_OK || create(run) != TUTTI_OK) return fail(run, "trainer");
    tutti_trainer_describe(run->trainer, &about);
    run->step = about.step;
    tutti_trainer_watch(run->trainer, watch, run->comm);
    return tutti_trainer_actor(run->trainer, run->actors, "trainer") == TUTTI_OK ? 0 : fail(run, "actor");
}
static int work(tutti_comm *world, int argc, char **argv)
{
    struct run run = {.comm = world};
    (void)argc;
    victim = atoi(argv[1]), when = atoi(argv[2]), mesh = argv[3], zero = atoi(argv[4]), asker = atoi(argv[5]);
    if (begin(&run) != 0) return 1;
    for (;;) { /* all wait for the one that asks */
        if (tutti_barrier(run.comm) == TUTTI_OK) {
            const int failed = tutti_rank(world) == asker ? ask(&run) : 0;
            if (failed < 0) return fail(&run, "ask");
            if (failed == 0 && tutti_barrier(run.comm) == TUTTI_OK) break;
        }
        if (go_on(&run, world) != 0 || await_rest() != 0) return 1;
        if (tutti_rank(world) == 0) printf("on after step %d\n", (int)run.step);
    }
    if (tutti_actors_free(run.actors) != TUTTI_OK) return fail(&run, "free");
    const uint64_t hash = tutti_trainer_hash(run.trainer);
    if (tutti_rank(world) == 0) printf("weights %016" PRIx64 "\n", hash);
    tutti_trainer_free(run.trainer);
    tutti_comm_free(run.own);
    return run.comm != world && tutti_comm_free(run.comm) != TUTTI_OK;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
compile trainers

tool run -n 4 --no-prefix ./trainers -1 0 '' 0 1
if [ "$STATUS" != 0 ] && grep -q 'OpenBLAS' <<<"$ERR"; then
    echo "skipped: $ERR"
    exit 77
fi
wanted=$(grep ^weights <<<"$OUT")
check 'undisturbed' 0 "$STATUS"
# killed VICTIM STEP MESH ZERO [TRANSPORT [ASKER]]: STEP below 0 is before its update
killed() {
    tool run -n 4 --max-restarts 1 --transport "${5:-auto}" --no-prefix ./trainers "${@:1:4}" "${6:-1}"
    check "$*: status" 0 "$STATUS"
    check "$*: weights" "$wanted" "$(grep ^weights <<<"$OUT")"
    [ "$1" = 1 ] || matches "$*: answered" '^step [4-7]: TUTTI_ERR_(PEER_LOST|EPOCH|CANCELLED)$' "$OUT"
    [ "$1" = 0 ] || matches "$*: goes on" '^on after step [3-6]$' "$OUT"
    [ "$STATUS" = 0 ] || head -8 <<<"$ERR"
}
killed 2 6 '' 0
killed 0 -6 '' 0
killed 1 6 '' 0 tcp
killed 3 -6 '' 1
killed 0 6 'data=2,shard=2' 3
killed 2 -6 'pipe=2,tensor=2' 1
killed 0 6 'data=2,pipe=2' 2 tcp
killed 2 6 '' 1 auto 0
killed 3 -6 'data=2,shard=2' 2 tcp 0
finish
