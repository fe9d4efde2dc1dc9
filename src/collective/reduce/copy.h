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
 * than either if the data are a little larger than the caches. */
enum tti_store { TTI_CACHED, TTI_MIXED, TTI_STREAMED };

/* Returns the store for copies whose buffers are `footprint` bytes in all, more than the `fits` that the caches hold:
 * half goes past them as long as the other half may stay. */
static inline enum tti_store tti_store_past(uint64_t footprint, uint64_t fits)
{
    return footprint - footprint / 3 < fits ? TTI_MIXED : TTI_STREAMED;
}

void tti_copy(void *dst, const void *src, size_t bytes, enum tti_store store);

/* Copies to memory that another core reads next, and has read before. How fast its lines come back depends on where the
 * cores are, which changes while programs run, as hosts move the cores of their guests: so it is measured on one copy
 * out of several. Each caller has one of these.
 *   FAST   where cores share a cache: the less memory is written in turn, the faster
 *   PLAIN  where they do not
 *   SLOW   where whole pages are there sooner if they go past the caches */
enum tti_pace { TTI_FAST, TTI_PLAIN, TTI_SLOW };
struct tti_staged_copy {
    uint32_t turn;
    uint32_t worse; /* timed copies in a row that were slower than their pace allows */
    enum tti_pace pace;
};
/* `from`: the size from which data may go past the caches. Smaller data arrive later that way, whatever the caches; in
 * bursts, when many copies are under way at once, their throughput counts. */
enum { TTI_ACROSS_FROM = 4096, TTI_ACROSS_FROM_IN_BURSTS = 1024 };
enum tti_pace tti_staged_copy_pace(const struct tti_staged_copy *staged_copy); /* for the next copy */
void tti_copy_across(struct tti_staged_copy *staged_copy, void *dst, const void *src, size_t bytes, size_t from);

/* Copies to several targets, each of which may be src itself (which is left as it is) but not overlap it otherwise. */
void tti_copy_to_all(void *const *dsts, int dst_count, const void *src, size_t bytes, enum tti_store store);

/* Does the same, in turns: for the first `here` targets lines stay in the caches, for the others they go past them. */
void tti_copy_apart(void *const *dsts, int here, int dst_count, const void *src, size_t bytes);

/* Returns true if lines at the same place of all these buffers fit into a first-level cache together. Its sets are
 * chosen by the last bits of addresses: buffers that lie a large power of two apart push each other's lines out. */
bool tti_lie_apart(const void *const *some, int count, void *const *others, int other_count);

/* Does tti_copy with TTI_STREAMED if more such copies follow: the caller ends them with tti_stream_end. */
void tti_stream_some(void *dst, const void *src, size_t bytes);
void tti_stream_end(void);

/* Exchanges the contents of two places that do not overlap. */
void tti_swap(void *one, void *other, size_t bytes);

#endif
