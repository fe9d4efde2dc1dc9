/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * A rank that ends is noticed on every comm that it was of, not only where somebody waited for it first, and by ranks that
 * only look for its messages.
 */
#include "fault.h"

#include <pthread.h>
#include <unistd.h>

enum { VICTIM = 1, LIMIT_MS = 1000, GIVE_UP_MS = 20000, MARK_FREED = 1 };

static bool over_tcp, as_processes, dies;
static int looks_for;

static void end_victim(void)
{
    if (as_processes) _exit(3);
    pthread_exit(NULL);
}

static void expect_victim(struct fault_world *world)
{
    if (dies && world->processes) fault_expect_end(VICTIM);
}

static void run(const char *title, fault_body *body)
{
    struct fault_world world = {.size = 3, .processes = as_processes, .body = body, .meanwhile = expect_victim};
    check_title("%s, %s%s", title, as_processes ? "processes" : "threads", over_tcp ? " over tcp" : "");
    if (over_tcp) world.settings[0] = "TUTTI_TRANSPORT=tcp";
    fault_run(&world);
}

static void check_step(int rank, tutti_status status, int peer)
{
    const struct fault_step *step = &fault_shared->ranks[rank].steps[0];
    CHECK_THAT(step->done && step->status == status && step->error.peer == peer, "rank %d: %s about rank %d: %s", rank,
               tutti_status_name(step->status), step->error.peer, step->error.text);
    fault_time("until the error", step->ended_ns - step->began_ns, LIMIT_MS);
}

/* ---- By who only looks ----------------------------------------------------------------------------------------- */

static tutti_status look_in_vain(tutti_comm *comm)
{
    int64_t until = fault_now_ns() + GIVE_UP_MS * INT64_C(1000000);
    tutti_status status = TUTTI_IN_PROGRESS;
    tutti_message message;
    while (status == TUTTI_IN_PROGRESS && fault_now_ns() < until)
        status = tutti_try_probe(comm, looks_for, TUTTI_ANY_TAG, &message);
    return status;
}

/* Ranks that have left are no reason to break the comm: one may look for several in turn. */
static bool is_whole(tutti_comm *comm)
{
    int32_t in = 7, out = 0;
    return tutti_sendrecv(comm, &in, 1, 0, 1, &out, 1, 0, 1, TUTTI_I32, NULL) == TUTTI_OK && out == in;
}

static void look(tutti_comm *comm, struct fault_rank *self)
{
    fault_meet(comm);
    if (tutti_rank(comm) == VICTIM && dies) end_victim();
    if (tutti_rank(comm) != 0) return;
    FAULT_CALL(self, comm, look_in_vain(comm));
    CHECK(is_whole(comm) == !dies);
}

static void test_looking(void)
{
    for (int turn = 0; turn < 4; turn++) {
        dies = turn % 2;
        looks_for = turn / 2 ? TUTTI_ANY_SOURCE : VICTIM;
        run(dies ? "looking for messages, a rank dies" : "looking for messages, the others leave", look);
        check_step(0, dies ? TUTTI_ERR_PEER_LOST : TUTTI_ERR_MISMATCH, dies || turn == 0 ? VICTIM : -1);
    }
}

/* ---- On another comm ------------------------------------------------------------------------------------------- */

static tutti_comm *duplicates[3]; /* that of a thread which ended is never freed */

/* The first is told on the world, and frees the duplicate; the last one notices there. */
static void notice_elsewhere(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *duplicate;
    CHECK(tutti_comm_duplicate(comm, &duplicate) == TUTTI_OK && tutti_barrier(duplicate) == TUTTI_OK);
    duplicates[tutti_rank(comm)] = duplicate;
    fault_meet(comm);
    if (tutti_rank(comm) == VICTIM) end_victim();
    if (tutti_rank(comm) == 0) {
        FAULT_CALL(self, comm, tutti_barrier(comm));
    } else if (fault_await_mark(0, MARK_FREED)) {
        FAULT_CALL(self, duplicate, tutti_barrier(duplicate));
    }
    tutti_comm_free(duplicate);
    atomic_store(&self->mark, MARK_FREED);
}

static void test_elsewhere(void)
{
    dies = true;
    run("a rank dies, and another frees a comm of both", notice_elsewhere);
    check_step(0, TUTTI_ERR_PEER_LOST, VICTIM);
    check_step(2, TUTTI_ERR_PEER_LOST, VICTIM);
}

static void run_all(bool processes)
{
    as_processes = processes;
    test_looking();
    test_elsewhere();
}

int main(void)
{
    fault_begin(60);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
