/* SPDX-License-Identifier: Apache-2.0
 *
 * A run is announced by its number in `round`; helpers that see a new number run the body and count themselves in
 * `ended`. Both sides spin shortly, since runs follow each other closely, and then sleep on a bell. A run always ends
 * if its body ends: helpers wait for nothing else.
 */
#include "nn/pool.h"

#include "base/alloc.h"
#include "base/status.h"
#include "base/task.h"
#include "base/wait.h"
#include <stdalign.h>

enum { PATIENCE_NS = 200000 };
#define SLEEP_NS INT64_C(1000000000) /* the longest sleep; then it checks again */

static atomic_int everyone;

struct helper {
    struct tti_task task;
    struct tti_pool *pool;
    int thread;
};

struct tti_pool {
    int threads, started;
    bool crowded;
    tti_pool_body *body; /* NULL: helpers end */
    void *context;
    alignas(64) tti_bell round;
    alignas(64) tti_bell ended; /* counts helpers that have ended the round */
    alignas(64) atomic_llong taken;
    struct helper helpers[];
};

static void wait_while(tti_bell *bell, uint32_t seen, bool crowded)
{
    struct tti_wait wait;
    tti_wait_begin(&wait, crowded, PATIENCE_NS);
    while (atomic_load_explicit(bell, memory_order_acquire) == seen)
        if (!tti_wait_pause(&wait, crowded)) tti_bell_sleep(bell, seen, SLEEP_NS, false);
}

static void *help(void *argument)
{
    struct helper *helper = argument;
    struct tti_pool *pool = helper->pool;
    for (uint32_t round = 0;; round++) {
        wait_while(&pool->round, round, pool->crowded);
        if (pool->body == NULL) return NULL;
        pool->body(pool->context, helper->thread, pool->threads);
        tti_bell_ring(&pool->ended, false);
    }
}

static void start_round(struct tti_pool *pool, tti_pool_body *body, void *context)
{
    pool->body = body;
    pool->context = context;
    atomic_store_explicit(&pool->taken, 0, memory_order_relaxed);
    tti_bell_ring(&pool->round, false);
}

tutti_status tti_pool_create(int threads, struct tti_pool **out, tutti_error *error)
{
    struct tti_pool *pool = tti_calloc_aligned(sizeof *pool + (size_t)threads * sizeof *pool->helpers);
    if (pool == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a pool of %d threads", threads);
    uint64_t cores[TTI_CORE_WORDS];
    tti_cores_mine(cores);
    pool->crowded = threads > tti_cores_count(cores);
    pool->threads = threads;
    atomic_fetch_add_explicit(&everyone, threads, memory_order_relaxed);
    for (; pool->started < threads - 1; pool->started++) {
        struct helper *helper = &pool->helpers[pool->started];
        *helper = (struct helper){.pool = pool, .thread = pool->started + 1};
        tutti_status status = tti_task_start(&helper->task, help, helper, error);
        if (status == TUTTI_OK) continue;
        tti_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return TUTTI_OK;
}

void tti_pool_destroy(struct tti_pool *pool)
{
    if (pool == NULL) return;
    start_round(pool, NULL, NULL);
    for (int i = 0; i < pool->started; i++) tti_task_join(&pool->helpers[i].task);
    atomic_fetch_sub_explicit(&everyone, pool->threads, memory_order_relaxed);
    tti_free(pool);
}

int tti_pool_everyone(void)
{
    return atomic_load_explicit(&everyone, memory_order_relaxed);
}

void tti_pool_run(struct tti_pool *pool, tti_pool_body *body, void *context)
{
    if (pool->threads == 1) {
        atomic_store_explicit(&pool->taken, 0, memory_order_relaxed);
        body(context, 0, 1);
        return;
    }
    uint32_t helpers = (uint32_t)pool->started;
    atomic_store_explicit(&pool->ended, 0, memory_order_relaxed);
    start_round(pool, body, context);
    body(context, 0, pool->threads);
    for (uint32_t ended; (ended = atomic_load_explicit(&pool->ended, memory_order_acquire)) < helpers;)
        wait_while(&pool->ended, ended, pool->crowded);
}

int64_t tti_pool_take(struct tti_pool *pool)
{
    return atomic_fetch_add_explicit(&pool->taken, 1, memory_order_relaxed);
}
