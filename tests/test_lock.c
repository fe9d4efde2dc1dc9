/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * The lock that is held for moments: one thread at a time has it, and whoever waits for it lets the holder run where both have
 * one core.
 */
#include "base/wait.h"
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { THREADS = 4, TURNS = 20000, HELD_TURNS = 200, PATIENCE_S = 30 };

static struct {
    _Atomic uint32_t lock;
    long count;     /* under the lock */
    int turns;      /* of each thread */
    bool gives_way; /* the holder loses its core while it has the lock */
} shared;

static void *count(void *unused)
{
    for (int i = 0; i < shared.turns; i++) {
        tti_lock(&shared.lock);
        long before = shared.count;
        if (shared.gives_way) sched_yield();
        shared.count = before + 1;
        tti_unlock(&shared.lock);
    }
    return unused;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void run(int turns, bool gives_way)
{
    pthread_t threads[THREADS];
    shared.count = 0;
    shared.turns = turns;
    shared.gives_way = gives_way;
    double began = now_s();
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, count, NULL) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK_THAT(shared.count == (long)THREADS * turns, "%ld, not %ld", shared.count, (long)THREADS * turns);
    CHECK_THAT(now_s() - began < PATIENCE_S, "it took %.1f s", now_s() - began);
    CHECK(atomic_load(&shared.lock) == 0);
}

/* All threads that are made from now on have the core of this one. */
static void stay_on_one_core(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((unsigned)sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

int main(void)
{
    check_title("threads on any core");
    run(TURNS, false);
    run(HELD_TURNS, true);
    check_title("threads on one core");
    stay_on_one_core();
    run(TURNS, false);
    run(HELD_TURNS, true);
    return check_end();
}
