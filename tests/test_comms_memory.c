/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Memory of comms: that of freed ones is used again, what their ops use is not given back, and where there is none for another
 * comm, nobody gets it.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "collective/comm/comm.h"
#include "fault.h"

#include <pthread.h>
#include <string.h>

static int count_of(tutti_comm *comm, bool mine)
{
    int32_t in = mine, out = -1;
    CHECK(tutti_all_reduce(comm, &in, &out, 1, TUTTI_I32, TUTTI_SUM) == TUTTI_OK);
    return out;
}

static size_t blocks_in_use(tutti_comm *comm)
{
    struct tti_arena *arena = comm->world->arena;
    pthread_mutex_lock(&arena->lock);
    size_t used = arena->used;
    pthread_mutex_unlock(&arena->lock);
    return used;
}

/* The memory of freed comms is used again, and that of their messages. */
static void many_times(tutti_comm *comm, struct fault_rank *self)
{
    int to = (tutti_rank(comm) + 1) % tutti_size(comm), in = 0, out = 0;
    size_t before = blocks_in_use(comm);
    (void)self;
    for (int i = 0; i < (SANITIZED ? 50 : 500); i++) {
        tutti_comm *made;
        if (!CHECK(tutti_comm_duplicate(comm, &made) == TUTTI_OK)) return;
        if (i % 50 == 0) CHECK(count_of(made, true) == tutti_size(comm));
        if (i % 3 != 0)
            CHECK(tutti_sendrecv(made, &in, 1, to, 0, &out, 1, TUTTI_ANY_SOURCE, 0, TUTTI_I32, NULL) == TUTTI_OK);
        CHECK(tutti_comm_free(made) == TUTTI_OK);
    }
    size_t now = blocks_in_use(comm); /* what others have not freed yet is still there */
    CHECK_THAT(now < before + 30, "%zu blocks of the arena, now %zu", before, now);
}

/* ---- Memory in use ------------------------------------------------------------------------------------------------ */

enum { COUNT = 1000, LARGE = 1 << 18 };

static float *make(tutti_comm *comm, size_t count)
{
    float *x = tutti_alloc(comm, count * sizeof *x);
    CHECK(x != NULL);
    for (size_t i = 0; x != NULL && i < count; i++) x[i] = 1;
    return x;
}

static void check_in_use(tutti_comm *comm, void *memory, const char *op)
{
    const tutti_error *error;
    CHECK(tutti_free(comm, memory) == TUTTI_ERR_ARGUMENT);
    error = tutti_comm_error(comm);
    CHECK_THAT(error != NULL && strstr(error->text, op) != NULL && strstr(error->text, "in flight") != NULL, "%s",
               error == NULL ? "" : error->text);
}

/* Memory that an op uses, on this comm or another one, is not given back before that has ended. */
static void freed_in_flight(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm);
    tutti_comm *twin;
    float *x = make(comm, COUNT), *y = make(comm, LARGE), *z = make(comm, 1), *mine = make(comm, 1), one = 1;
    tutti_op ops[3];
    CHECK(tutti_comm_duplicate(comm, &twin) == TUTTI_OK);
    if (rank > 0) fault_await_mark(0, 1);
    CHECK(tutti_recv_start(comm, z, 1, TUTTI_F32, (rank + 1) % size, 3, NULL, &ops[0]) == TUTTI_OK);
    CHECK(tutti_all_reduce_start(comm, x, x, COUNT, TUTTI_F32, TUTTI_SUM, &ops[1]) == TUTTI_OK);
    CHECK(tutti_all_reduce_start(twin, y, y, LARGE, TUTTI_F32, TUTTI_SUM, &ops[2]) == TUTTI_OK);
    if (rank == 0) {
        check_in_use(comm, x, "all_reduce(");
        check_in_use(comm, y, "all_reduce(");
        check_in_use(comm, z, "recv");
        CHECK(tutti_free(comm, mine) == TUTTI_OK);
        self->mark = 1;
    }
    CHECK(tutti_send(comm, &one, 1, TUTTI_F32, (rank + size - 1) % size, 3) == TUTTI_OK);
    CHECK(tutti_wait_all(ops, 3) == TUTTI_OK && x[COUNT - 1] == (float)size && y[LARGE - 1] == (float)size);
    CHECK(tutti_free(comm, x) == TUTTI_OK && tutti_free(comm, y) == TUTTI_OK && tutti_free(comm, z) == TUTTI_OK);
    CHECK(tutti_comm_free(twin) == TUTTI_OK);
}

/* ---- Without memory -------------------------------------------------------------------------------------------- */

/* The same on all ranks, told over a comm that is whole. */
static bool all_are(tutti_comm *comm, bool mine)
{
    return count_of(comm, mine) == tutti_size(comm);
}

static size_t blocks_kept(tutti_comm *comm)
{
    fault_meet(comm); /* all have freed what they had */
    tti_retired_clear(comm->world);
    return blocks_in_use(comm);
}

enum made { MADE, NOT_MADE, BROKEN };

/* One rank's allocations fail while a comm is made: all or nobody gets it, and the one it comes from is whole, unless memory
 * was missing for the exchanges themselves. Counts the errors that say what there was no memory for. */
static enum made make_with(tutti_comm *comm, int victim, long allowed, int *explained)
{
    tutti_comm *from = NULL, *made = NULL;
    bool mine = tutti_rank(comm) == victim,
         over_tcp = comm->lanes != NULL; /* there it takes memory to tell the others */
    CHECK(tutti_comm_duplicate(comm, &from) == TUTTI_OK);
    CHECK(tutti_comm_duplicate(from, &made) == TUTTI_OK); /* what stays for the next time is there now */
    CHECK(tutti_comm_free(made) == TUTTI_OK);
    fault_meet(comm);
    if (mine) (over_tcp ? tti_alloc_fail_once : tti_alloc_fail_after)(allowed);
    tutti_status status = tutti_comm_duplicate(from, &made);
    if (mine) tti_alloc_fail_after(-1);
    const tutti_error *error = tutti_comm_error(from);
    CHECK_THAT(status == TUTTI_OK || (status == TUTTI_ERR_MEMORY && strstr(error->text, "memory") != NULL), "%s: %s",
               tutti_status_name(status), error == NULL ? "" : error->text);
    CHECK((status == TUTTI_OK) == (made != NULL));
    *explained += status != TUTTI_OK && strstr(error->text, "ranks: no memory for ") != NULL;
    bool whole = all_are(comm, tutti_barrier(from) == TUTTI_OK);
    if (whole) CHECK(all_are(comm, status == TUTTI_OK) || all_are(comm, status == TUTTI_ERR_MEMORY));
    CHECK(tutti_comm_free(made) == TUTTI_OK && tutti_comm_free(from) == TUTTI_OK);
    return status == TUTTI_OK ? MADE : whole ? NOT_MADE : BROKEN;
}

static void run_out_of_memory(tutti_comm *comm, struct fault_rank *self)
{
    /* more than it takes; and more than ranks that wait long take to ask each other */
    enum { MOST = 30, PLENTY = 1 << 20 };
    (void)self;
    for (int victim = 0; victim < tutti_size(comm); victim += tutti_size(comm) - 1) {
        int count[BROKEN + 1] = {0}, explained = 0;
        CHECK(make_with(comm, victim, PLENTY, &explained) == MADE);
        size_t before = blocks_kept(comm);
        for (long allowed = 0; allowed <= MOST; allowed++) {
            enum made last = make_with(comm, victim, allowed, &explained);
            count[last]++;
            size_t now = blocks_kept(comm);
            CHECK_THAT(last == BROKEN || now == before, "%ld allocations of rank %d: %zu blocks of the arena, now %zu",
                       allowed, victim, before, now);
            before = now;
        }
        CHECK(make_with(comm, victim, PLENTY, &explained) == MADE);
        CHECK(tutti_rank(comm) != victim || explained > 0);
        CHECK_THAT(count[NOT_MADE] > 3 && count[BROKEN] >= 3, "%d, %d", count[NOT_MADE], count[BROKEN]);
    }
}

int main(void)
{
    static const char over_tcp[] = "TUTTI_TRANSPORT=tcp", hosts_of_2[] = "TUTTI_HOST_PROCESSES=2";
    fault_begin(115);
    for (int i = 0; i < 4; i++) {
        bool processes = i % 2;
        const char *tcp = i / 2 == 0 ? NULL : over_tcp;
        fault_run_set("many times", many_times, 2, processes, tcp);
        fault_run_set("freed in flight", freed_in_flight, 2, processes, tcp);
        if (processes) fault_run_set("out of memory", run_out_of_memory, 3, true, tcp);
    }
    fault_run_set("many times", many_times, 3, true, hosts_of_2);
    fault_run_set("out of memory", run_out_of_memory, 5, true, hosts_of_2);
    return fault_end();
}
