/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include "base/round.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LINE_BYTES = 64, LARGE_PAGE_BYTES = 2 << 20 };

static atomic_long allowed = -1; /* allocations that still succeed; -1: no limit */
static atomic_bool once;         /* only the next failure: after it there is no limit any more */

/* A value that another thread sets in between stays: a limit that it has just removed must not come back. */
bool tti_alloc_allowed(void)
{
    long before = atomic_load_explicit(&allowed, memory_order_relaxed);
    while (before >= 0) {
        long after = before > 0 ? before - 1 : atomic_load_explicit(&once, memory_order_relaxed) ? -1 : 0;
        if (atomic_compare_exchange_weak_explicit(&allowed, &before, after, memory_order_relaxed, memory_order_relaxed))
            return before > 0;
    }
    return true;
}

void tti_alloc_fail_after(long count)
{
    atomic_store_explicit(&once, false, memory_order_relaxed);
    atomic_store_explicit(&allowed, count, memory_order_relaxed);
}

void tti_alloc_fail_once(long count)
{
    atomic_store_explicit(&once, true, memory_order_relaxed);
    atomic_store_explicit(&allowed, count, memory_order_relaxed);
}

void *tti_calloc(size_t count, size_t bytes)
{
    return tti_alloc_allowed() ? calloc(count, bytes) : NULL;
}

void *tti_malloc(size_t count, size_t bytes)
{
    if (bytes != 0 && count > SIZE_MAX / bytes) return NULL;
    return tti_alloc_allowed() ? malloc(count * bytes) : NULL;
}

void *tti_malloc_aligned(size_t bytes)
{
    if (!tti_alloc_allowed() || bytes > SIZE_MAX - LINE_BYTES) return NULL;
    return aligned_alloc(LINE_BYTES, tti_round_up(bytes == 0 ? 1 : bytes, LINE_BYTES));
}

void *tti_calloc_aligned(size_t bytes)
{
    if (!tti_alloc_allowed()) return NULL;
    size_t alignment = bytes >= 2 * LARGE_PAGE_BYTES ? LARGE_PAGE_BYTES : LINE_BYTES;
    if (bytes > SIZE_MAX - alignment) return NULL;
    size_t rounded = tti_round_up(bytes, alignment);
    void *pointer = aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
    if (pointer == NULL) return NULL;
    if (alignment == LARGE_PAGE_BYTES) madvise(pointer, rounded, MADV_HUGEPAGE);
    memset(pointer, 0, rounded);
    return pointer;
}

void tti_free(void *pointer)
{
    free(pointer);
}
