/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Comms and meshes that are made while one rank's memory runs out, at every place where it can: all ranks get the same error,
 * at once, and where the comm they come from is whole, nothing is lost and the next one can be made. And collectives and
 * messages over tcp: no rank waits for what another had no memory to say or to hear, nor for one that was lost meanwhile.
 * (Over memory: test_limits.c.)
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "collective/comm/comm.h"
#include "fault.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { ALLOCATIONS_MOST = 200, PATIENCE_MS = 20000 };

static long allowed;
static int victim;
static bool meshes, over_tcp;

/* ---- Comms and meshes ------------------------------------------------------------------------------------------ */

struct made {
    tutti_comm *comm;
    tutti_mesh *mesh;
};

static tutti_status make(tutti_comm *comm, struct made *made)
{
    static const char *const names[] = {"data"};
    int size = tutti_size(comm);
    *made = (struct made){0};
    tutti_within(comm, PATIENCE_MS);
    if (!meshes) return tutti_comm_split(comm, 0, 0, &made->comm);
    tutti_status status = tutti_mesh_create(comm, names, &size, 1, &made->mesh);
    return status == TUTTI_OK ? tutti_mesh_comm(made->mesh, "data", &made->comm) : status;
}

static void unmake(struct made *made)
{
    if (made->mesh == NULL) CHECK(tutti_comm_free(made->comm) == TUTTI_OK);
    tutti_mesh_free(made->mesh);
}

/* Blocks of the arena, when all that can be given back was. */
static size_t blocks_of(tutti_comm *comm)
{
    fault_meet(comm); /* all have freed theirs */
    tti_retired_clear(comm->world);
    return comm->world->arena->used;
}

/* Where the comm breaks, the rank leaves at once. Over tcp it may have had no memory to say why, either, or say it when the
 * others have ended already, so there nothing more is tried. */
static void make_with_failures(tutti_comm *comm, struct fault_rank *self)
{
    struct made made;
    CHECK(make(comm, &made) == TUTTI_OK); /* what is made only once */
    unmake(&made);
    size_t before = blocks_of(comm);
    if (tutti_rank(comm) == victim) tti_alloc_fail_after(allowed);
    FAULT_CALL(self, comm, make(comm, &made));
    tti_alloc_fail_after(-1);
    unmake(&made);
    if (tti_comm_is_broken(comm) || over_tcp) return;
    size_t after = blocks_of(comm);
    CHECK_THAT(after == before, "rank %d had %zu blocks and has %zu", tutti_rank(comm), before, after);
    CHECK(make(comm, &made) == TUTTI_OK);
    unmake(&made);
}

static bool run(const char *setting)
{
    struct fault_world world = {.size = 2, .processes = true, .body = make_with_failures, .settings = {setting}};
    check_title("%s, rank %d has %ld allocations, %s", meshes ? "mesh" : "split", victim, allowed, setting);
    fault_run(&world);
    const struct fault_rank *ranks = fault_shared->ranks;
    const struct fault_step *first = &ranks[victim].steps[0], *second = &ranks[1 - victim].steps[0];
    fault_time("making a comm without memory", first->ended_ns - first->began_ns, 1000);
    fault_time("making a comm without memory", second->ended_ns - second->began_ns, 1000);
    if (first->status == TUTTI_OK && second->status == TUTTI_OK) return true;
    CHECK_THAT(first->status == TUTTI_ERR_MEMORY && fault_has(first, "memory"), "%s: %s",
               tutti_status_name(first->status), first->error.text);
    CHECK_THAT(second->status == first->status || over_tcp, "%s: %s", tutti_status_name(second->status),
               second->error.text);
    return false;
}

static void test_making(void)
{
    for (int tcp = 0; tcp < 2; tcp++)
        for (int kind = 0; kind < 2; kind++)
            for (victim = 0; victim < 2; victim++) {
                const char *setting = tcp ? "TUTTI_TRANSPORT=tcp" : "TUTTI_TRANSPORT=shm";
                meshes = kind == 1;
                over_tcp = tcp == 1;
                for (allowed = 0; allowed < ALLOCATIONS_MOST && !run(setting); allowed++) continue;
                printf("%s, %s: rank %d needs %ld allocations\n", setting, meshes ? "mesh" : "split", victim, allowed);
                CHECK(allowed > 0 && allowed < ALLOCATIONS_MOST);
            }
}

/* ---- Over tcp -------------------------------------------------------------------------------------------------- */

enum { COUNT = 60000 }; /* of what is not sent before it is received */

static int the_op;

static void call_with_failures(tutti_comm *comm, struct fault_rank *self)
{
    struct fault_buffers buffers;
    if (!fault_buffers_make(&buffers, comm, COUNT, true)) return;
    fault_meet(comm);
    if (tutti_rank(comm) == victim) tti_alloc_fail_after(allowed);
    tutti_within(comm, PATIENCE_MS);
    tutti_status status = FAULT_CALL(self, comm, fault_op(the_op, &buffers));
    tti_alloc_fail_after(-1);
    CHECK(fault_inputs_intact(&buffers) && (status != TUTTI_OK || fault_op_right(the_op, &buffers)));
    fault_buffers_free(&buffers);
}

static bool run_op(void)
{
    struct fault_world world = {
        .size = 2, .processes = true, .body = call_with_failures, .settings = {"TUTTI_TRANSPORT=tcp"}};
    check_title("%s over tcp, rank %d has %ld allocations", fault_op_name(the_op), victim, allowed);
    fault_run(&world);
    const struct fault_step *own = &fault_shared->ranks[victim].steps[0];
    const struct fault_step *other = &fault_shared->ranks[1 - victim].steps[0];
    fault_time("an operation over tcp without memory", own->ended_ns - own->began_ns, 1000);
    fault_time("an operation over tcp without memory", other->ended_ns - other->began_ns, 1000);
    if (own->status == TUTTI_OK) return other->status == TUTTI_OK;
    return !CHECK_THAT(own->status == TUTTI_ERR_MEMORY && fault_has(own, "memory"), "%s: %s",
                       tutti_status_name(own->status), own->error.text);
}

static void test_operations(void)
{
    for (the_op = 0; the_op < FAULT_OPS; the_op++) {
        victim = the_op % 2;
        for (allowed = 0; allowed < ALLOCATIONS_MOST && !run_op(); allowed++) continue;
        CHECK(allowed < ALLOCATIONS_MOST);
    }
}

/* From a rank of which nothing is known so far. */
static void receive_from_any(tutti_comm *comm, struct fault_rank *self)
{
    float value = 1;
    fault_meet(comm);
    if (tutti_rank(comm) == 0) {
        fault_await_mark(1, 1);
        CHECK(tutti_send(comm, &value, 1, TUTTI_F32, 1, 0) == TUTTI_OK);
        return;
    }
    tti_alloc_fail_after(0);
    atomic_store(&self->mark, 1);
    tutti_within(comm, PATIENCE_MS);
    FAULT_CALL(self, comm, tutti_recv(comm, &value, 1, TUTTI_F32, TUTTI_ANY_SOURCE, 0, NULL));
    tti_alloc_fail_after(-1);
}

static void test_any(void)
{
    struct fault_world world = {.size = 2, .processes = true, .body = receive_from_any};
    world.settings[0] = "TUTTI_TRANSPORT=tcp";
    check_title("a message over tcp comes, and there is no memory for it");
    fault_run(&world);
    const struct fault_step *step = &fault_shared->ranks[1].steps[0];
    CHECK_THAT(step->status == TUTTI_ERR_MEMORY && fault_has(step, "no memory for messages of rank 0"), "%s: %s",
               tutti_status_name(step->status), step->error.text);
}

/* ---- A rank that is lost meanwhile ----------------------------------------------------------------------------- */

static void outlive(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *other = NULL;
    CHECK(tutti_comm_duplicate(comm, &other) == TUTTI_OK && tutti_barrier(comm) == TUTTI_OK);
    fault_meet(comm);
    while (tutti_rank(comm) == 1) pause();
    tti_alloc_fail_after(0);
    atomic_store(&self->mark, 1);
    FAULT_CALL(self, comm, tutti_barrier(tutti_within(comm, PATIENCE_MS)));
    FAULT_CALL(self, other, tutti_barrier(tutti_within(other, PATIENCE_MS)));
    tti_alloc_fail_after(-1);
    CHECK(tutti_comm_free(other) == TUTTI_OK);
}

static void kill_one(struct fault_world *world)
{
    fault_await_mark(0, 1);
    fault_expect_end(1);
    kill(world->pids[1], SIGKILL);
}

static void test_lost(void)
{
    struct fault_world world = {.size = 2, .processes = true, .body = outlive, .meanwhile = kill_one};
    world.settings[0] = "TUTTI_TRANSPORT=tcp";
    check_title("rank 1 is lost, rank 0 has no memory to note it");
    fault_run(&world);
    for (int i = 0; i < 2; i++) {
        const struct fault_step *step = &fault_shared->ranks[0].steps[i];
        CHECK_THAT(step->status == TUTTI_ERR_PEER_LOST && step->error.peer == 1, "%s about rank %d: %s",
                   tutti_status_name(step->status), step->error.peer, step->error.text);
        fault_time("a rank that is lost without memory to note it", step->ended_ns - step->began_ns, 200);
    }
}

int main(void)
{
    fault_begin(55);
    test_operations();
    test_any();
    test_lost();
    test_making();
    return fault_end();
}
