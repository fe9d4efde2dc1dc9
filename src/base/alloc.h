/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's own small allocations. All go through here so that tests can make the n-th one fail.
 */
#ifndef TTI_BASE_ALLOC_H
#define TTI_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

void *tti_calloc(size_t count, size_t bytes);
void *tti_malloc(size_t count, size_t bytes); /* not zeroed: for memory of which little will be used */
/* Allocates zeroed memory, aligned to 64 bytes; large blocks lie in large pages if the system has them. */
void *tti_calloc_aligned(size_t bytes);
void *tti_malloc_aligned(size_t bytes); /* aligned to whole lines; not zeroed */
void tti_free(void *pointer);

/* Asked before every allocation, here and when memory is mapped: false makes it fail. */
bool tti_alloc_allowed(void);

/* Lets `count` more allocations succeed and fails all after them; -1 (the start) lets all succeed. */
void tti_alloc_fail_after(long count);
/* Does the same, but only one allocation fails. */
void tti_alloc_fail_once(long count);

#endif
