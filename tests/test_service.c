/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan waits
 *
 * Threads that serve ops which nobody waits for: ranks that are threads of one process have several where there are cores to
 * spare, and one where there are not. They take ops to their end by themselves, are there from the first op on, and go with
 * the last comm.
 */
#include "collective/op/queue.h"
#include "fault.h"

#include <dirent.h>
#include <sys/resource.h>

enum { RANKS = 4, OPS = 20, COUNT = 3000, WAIT_MS = 20000 };

static int threads_here(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    while (folder != NULL && readdir(folder) != NULL) count++;
    if (folder != NULL) closedir(folder);
    return count - 2; /* . and .. */
}

/* Whether every element becomes this without a further call. */
static bool becomes(const _Atomic int32_t *x, int32_t wanted)
{
    int64_t end_ns = fault_now_ns() + (int64_t)WAIT_MS * 1000000;
    for (int i = 0; i < COUNT; i++)
        while (atomic_load_explicit(&x[i], memory_order_acquire) != wanted) {
            if (fault_now_ns() > end_ns) return false;
            sched_yield();
        }
    return true;
}

static void drop_all(tutti_comm *comm, struct fault_rank *self)
{
    int32_t *x = tutti_alloc(comm, OPS * COUNT * sizeof *x);
    for (int i = 0; i < OPS * COUNT; i++) x[i] = 1;
    fault_meet(comm);
    int before = threads_here();
    fault_meet(comm);
    for (int op = 0; op < OPS; op++) {
        tutti_op handle;
        int32_t *at = x + (size_t)op * COUNT;
        CHECK(tutti_all_reduce_start(comm, at, at, COUNT, TUTTI_I32, TUTTI_SUM, &handle) == TUTTI_OK);
        CHECK(tutti_drop(handle) == TUTTI_OK);
    }
    if (SANITIZED_THREADS) CHECK(tutti_barrier(comm) == TUTTI_OK); /* to look before it has ended is a race */
    for (int op = 0; op < OPS; op++) CHECK(becomes((_Atomic int32_t *)x + (size_t)op * COUNT, RANKS));
    self->numbers[0] = threads_here() - before;
    CHECK(tutti_barrier(comm) == TUTTI_OK); /* until here all threads are there */
    CHECK(tutti_free(comm, x) == TUTTI_OK);
}

static void test_threads(int threads, int more)
{
    struct fault_world world = {.size = RANKS, .body = drop_all};
    check_title("%d threads at most", threads);
    tti_service_threads = threads;
    fault_run(&world);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK_THAT(fault_shared->ranks[rank].numbers[0] == more, "rank %d saw %d more threads, not %d", rank,
                   (int)fault_shared->ranks[rank].numbers[0], more);
}

/* An op whose peer comes late is looked at ever less often: 1000 times a second would be more than 1% of a core. */
static long turns_here(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw;
}

static void wait_idly(tutti_comm *comm, struct fault_rank *self)
{
    enum { IDLE_MS = 1000, TURNS_MOST = 500 /* a second */ };
    float x = 1;
    tutti_op op;
    if (tutti_rank(comm) == 1) CHECK(fault_await_mark(0, 1));
    CHECK(tutti_all_reduce_start(comm, &x, &x, 1, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
    if (tutti_rank(comm) == 0) {
        long before = turns_here();
        int64_t began = fault_now_ns();
        fault_sleep_ms(IDLE_MS);
        long turns = turns_here() - before;
        double seconds = (double)(fault_now_ns() - began) / 1e9;
        CHECK_THAT(turns > 0 && (double)turns < TURNS_MOST * seconds, "%ld turns in %g s", turns, seconds);
        self->mark = 1;
    }
    CHECK(tutti_wait(op) == TUTTI_OK && x == 2);
}

int main(void)
{
    fault_begin(55);
    for (int tcp = 0; tcp < 2; tcp++)
        fault_run_body("an op waits for its peer, nobody for the op", wait_idly, 2, true, tcp != 0);
    test_threads(1, 1);
    test_threads(3, 3);
    test_threads(100, RANKS);
    return fault_end();
}
