/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies between memory that this rank can reach.
 */
#ifndef TTI_COLLECTIVE_COPY_H
#define TTI_COLLECTIVE_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How stores are made. Mixed: one half stays in the caches, the other goes past them at the same time, which is faster
 * than either where all of it is a little larger than the caches. */
enum tti_store { TTI_CACHED, TTI_MIXED, TTI_STREAMED };

/* Of copies whose buffers are `footprint` bytes in all, more than the `fits` that the caches hold: half goes past them as
 * long as the other half may stay. */
static inline enum tti_store tti_store_past(uint64_t footprint, uint64_t fits)
{
    return footprint - footprint / 3 < fits ? TTI_MIXED : TTI_STREAMED;
}

void tti_copy(void *dst, const void *src, size_t bytes, enum tti_store store);

/* Copies to memory that another core reads next, and has read before. How fast lines come back that it has had depends on
 * where the cores are, which changes while programs run, as hosts move the cores of their guests: so it is found by timing
 * one copy in some. One of these for each caller.
 *   FAST   where cores share a cache: the less memory is written in turn, the faster
 *   PLAIN  where they do not
 *   SLOW   where whole pages are there sooner if they go past the caches */
enum tti_pace { TTI_FAST, TTI_PLAIN, TTI_SLOW };
struct tti_staged_copy {
    uint32_t turn;
    uint32_t worse; /* timed copies in a row that were slower than their pace */
    enum tti_pace pace;
};
/* `from`: how many bytes may go past the caches. Fewer arrive later that way, whatever the caches; in bursts, where many copies
 * are on their way at once, it is how fast they go that counts. */
enum { TTI_ACROSS_FROM = 4096, TTI_ACROSS_FROM_IN_BURSTS = 1024 };
enum tti_pace tti_staged_copy_pace(const struct tti_staged_copy *staged_copy); /* of the next copy */
void tti_copy_across(struct tti_staged_copy *staged_copy, void *dst, const void *src, size_t bytes, size_t from);

/* To several, each of which may be src itself (nothing to do there) but not overlap it otherwise. */
void tti_copy_to_all(void *const *dsts, int dst_count, const void *src, size_t bytes, enum tti_store store);

/* The same, in turns: for the first `here` targets lines stay in the caches, for the others they go past them. */
void tti_copy_apart(void *const *dsts, int here, int dst_count, const void *src, size_t bytes);

/* Whether lines at the same place of all these buffers can be in a first cache together, whose sets go by the last bits of
 * addresses: buffers that lie a large power of two apart push each other's out. */
bool tti_lie_apart(const void *const *some, int count, void *const *others, int other_count);

/* tti_copy with TTI_STREAMED, where more of it follows: the caller ends with tti_stream_end. */
void tti_stream_some(void *dst, const void *src, size_t bytes);
void tti_stream_end(void);

/* Exchanges what lies in two places that do not overlap. */
void tti_swap(void *one, void *other, size_t bytes);

#endif
