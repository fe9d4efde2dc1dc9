/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>

static atomic_long allowed = -1; /* -1: no limit */

bool tti_alloc_allowed(void)
{
    if (atomic_load_explicit(&allowed, memory_order_relaxed) < 0) return true;
    long before = atomic_fetch_sub_explicit(&allowed, 1, memory_order_relaxed);
    if (before > 0) return true;
    atomic_store_explicit(&allowed, 0, memory_order_relaxed);
    return false;
}

void tti_alloc_fail_after(long count)
{
    atomic_store_explicit(&allowed, count, memory_order_relaxed);
}

void *tti_calloc(size_t count, size_t bytes)
{
    return tti_alloc_allowed() ? calloc(count, bytes) : NULL;
}

void tti_free(void *pointer)
{
    free(pointer);
}
