/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of one rank. A body runs on all of them at once, the caller included, and ends on all before the call
 * returns. The result of a body must not depend on the thread that runs it: work is cut by shapes, never by threads,
 * except in fast mode.
 */
#ifndef TTI_NN_POOL_H
#define TTI_NN_POOL_H

#include <stdatomic.h>
#include <stdint.h>
#include <tutti/tutti.h>

struct tti_pool;

typedef void tti_pool_body(void *context, int thread, int threads);

/* Makes a pool; with threads 1 it starts none. */
tutti_status tti_pool_create(int threads, struct tti_pool **pool, tutti_error *error);
void tti_pool_destroy(struct tti_pool *pool); /* NULL is ignored */
int tti_pool_everyone(void);                  /* returns the threads of all pools of the process, with their callers */
void tti_pool_run(struct tti_pool *pool, tti_pool_body *body, void *context);

/* For bodies that take items from a common list: returns the next number, from 0. Starts again with every run. */
int64_t tti_pool_take(struct tti_pool *pool);

#endif
