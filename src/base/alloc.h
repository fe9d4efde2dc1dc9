/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's own small allocations. All go through here so that tests can make the n-th one fail.
 */
#ifndef TTI_BASE_ALLOC_H
#define TTI_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

void *tti_calloc(size_t count, size_t bytes);
void *tti_malloc(size_t count, size_t bytes); /* not zeroed: for much of which little will be used */
/* Aligned to 64 bytes, zeroed; large ones lie in large pages where the system has them. */
void *tti_calloc_aligned(size_t bytes);
void *tti_malloc_aligned(size_t bytes); /* to whole lines; not zeroed */
void tti_free(void *pointer);

/* Asked before every allocation, here and where memory is mapped: false means "pretend it failed". */
bool tti_alloc_allowed(void);

/* Lets `count` more allocations succeed and fails all after them; -1 (the start) lets all succeed. */
void tti_alloc_fail_after(long count);
/* The same, but only one fails. */
void tti_alloc_fail_once(long count);

#endif
