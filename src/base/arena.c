/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocator over one mapping.
 *
 * Every byte of the arena belongs to exactly one block. Blocks lie in one list in address order, and no two neighbours
 * are free. A free block is also in the bin of its size, an allocated one in the table by its offset.
 *
 * Memory is committed by granules. Invariant: a granule that is not committed is zero and lies in no allocated block;
 * so an allocation only has to zero its part of the granules that were committed before. Only granules that lie wholly
 * in one free block are given back.
 */
#include "base/memory.h"

#include "base/alloc.h"
#include "base/round.h"
#include "base/status.h"
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static_assert(sizeof(void *) == 8,
              "addresses of 64 bits: arenas reserve as much as the machine has, for every process");

#define GRANULE_BYTES ((size_t)64 << 10)
#define GRANULES_MAX ((size_t)1 << 24)  /* keeps the bit set below 2 MiB */
#define KEPT_BYTES ((size_t)1 << 20)    /* a freed block larger than this is given back to the system */
#define DEFAULT_LOW ((size_t)64 << 20)  /* the smallest default size of an arena */
#define ADDRESS_SPACE ((size_t)1 << 46) /* half of the least that a process has */
#define ALLOWANCE_BYTES ((size_t)64 << 20)
#define LINE_BYTES ((size_t)64)

enum { BUCKETS_FIRST = 64, BIN_TRIES = 64 };

enum block_state { BLOCK_FREE, BLOCK_USED, BLOCK_QUARANTINED, BLOCK_ABANDONED /* quarantined, then freed */ };

struct tti_arena_block {
    size_t offset, bytes;
    enum block_state state;
    struct tti_arena_block *before, *after; /* neighbours in address order */
    struct tti_arena_block *next, *last;    /* in its bin; for allocated blocks `next` is in its chain of the table */
};

static size_t bin_of(size_t bytes)
{
    size_t bin = 0;
    while (bytes >>= 1) bin++;
    return bin;
}

/* ---- Bins: free blocks by size --------------------------------------------------------------------------------- */

static void bin_insert(struct tti_arena *arena, struct tti_arena_block *block)
{
    struct tti_arena_block **bin = &arena->bins[bin_of(block->bytes)];
    block->state = BLOCK_FREE;
    block->last = NULL;
    block->next = *bin;
    if (*bin != NULL) (*bin)->last = block;
    *bin = block;
}

static void bin_remove(struct tti_arena *arena, struct tti_arena_block *block)
{
    if (block->last != NULL)
        block->last->next = block->next;
    else
        arena->bins[bin_of(block->bytes)] = block->next;
    if (block->next != NULL) block->next->last = block->last;
    block->next = block->last = NULL;
}

static bool fits(const struct tti_arena_block *block, size_t bytes, size_t align)
{
    size_t waste = tti_round_up(block->offset, align) - block->offset;
    return block->bytes >= waste && block->bytes - waste >= bytes;
}

/* Returns the first block that fits among the first `tries` of each bin, smallest bin first. */
static struct tti_arena_block *find_fit(const struct tti_arena *arena, size_t bytes, size_t align, size_t tries)
{
    for (size_t bin = bin_of(bytes); bin < TTI_ARENA_BINS; bin++) {
        size_t left = tries;
        for (struct tti_arena_block *block = arena->bins[bin]; block != NULL && left > 0; block = block->next, left--)
            if (fits(block, bytes, align)) return block;
    }
    return NULL;
}

static size_t largest_free(const struct tti_arena *arena)
{
    size_t largest = 0;
    for (size_t bin = TTI_ARENA_BINS; bin-- > 0 && largest == 0;)
        for (const struct tti_arena_block *block = arena->bins[bin]; block != NULL; block = block->next)
            if (block->bytes > largest) largest = block->bytes;
    return largest;
}

/* ---- Table: allocated blocks by offset ------------------------------------------------------------------------- */

static struct tti_arena_block **chain_of(const struct tti_arena *arena, size_t offset)
{
    uint64_t hash = (uint64_t)(offset / LINE_BYTES) * 0x9E3779B97F4A7C15u;
    return &arena->table[(hash >> 32) & (arena->buckets - 1)];
}

/* A table that cannot grow still works, with longer chains. */
static void table_grow(struct tti_arena *arena)
{
    struct tti_arena_block **old = arena->table,
                           **larger = tti_calloc(arena->buckets * 2, sizeof(struct tti_arena_block *));
    size_t buckets = arena->buckets;
    if (larger == NULL) return;
    arena->table = larger;
    arena->buckets = buckets * 2;
    for (size_t i = 0; i < buckets; i++)
        for (struct tti_arena_block *block = old[i], *next; block != NULL; block = next) {
            struct tti_arena_block **chain = chain_of(arena, block->offset);
            next = block->next;
            block->next = *chain;
            *chain = block;
        }
    tti_free(old);
}

static void table_insert(struct tti_arena *arena, struct tti_arena_block *block)
{
    if (arena->used >= arena->buckets) table_grow(arena);
    struct tti_arena_block **chain = chain_of(arena, block->offset);
    block->state = BLOCK_USED;
    block->next = *chain;
    *chain = block;
    arena->used++;
}

/* Returns the link that leads to the block at `offset`; it holds NULL if there is none. */
static struct tti_arena_block **table_find(const struct tti_arena *arena, size_t offset)
{
    struct tti_arena_block **link = chain_of(arena, offset);
    while (*link != NULL && (*link)->offset != offset) link = &(*link)->next;
    return link;
}

/* ---- Granules -------------------------------------------------------------------------------------------------- */

static bool is_committed(const struct tti_arena *arena, size_t granule)
{
    return (arena->committed[granule / 64] >> (granule % 64)) & 1;
}

static void set_committed(struct tti_arena *arena, size_t first, size_t end, bool committed)
{
    for (size_t granule = first; granule < end; granule++) {
        uint64_t bit = (uint64_t)1 << (granule % 64);
        if (committed)
            arena->committed[granule / 64] |= bit;
        else
            arena->committed[granule / 64] &= ~bit;
    }
}

/* Returns the end of the run of granules from `first` on, below `end`, that are in the same state. */
static size_t run_end(const struct tti_arena *arena, size_t first, size_t end)
{
    bool committed = is_committed(arena, first);
    while (first < end && is_committed(arena, first) == committed) first++;
    return first;
}

/* Takes memory from the allowance. Asking the system takes longer than a small allocation may; so one answer is used
 * for some time. */
static tutti_status take_allowance(struct tti_arena *arena, size_t bytes, tutti_error *error)
{
    if (bytes > arena->allowance) {
        size_t left;
        TTI_TRY(tti_memory_check(bytes, &left, error));
        arena->allowance = bytes + (left / 16 < ALLOWANCE_BYTES ? left / 16 : ALLOWANCE_BYTES);
    }
    arena->allowance -= bytes;
    return TUTTI_OK;
}

static size_t uncommitted_bytes(const struct tti_arena *arena, size_t first, size_t end)
{
    size_t granules = 0;
    for (size_t granule = first; granule < end; granule++) granules += !is_committed(arena, granule);
    return granules * arena->granule;
}

/* Gives back the granules of [offset, offset + bytes) that lie wholly in `block`, which is free. */
static void decommit(struct tti_arena *arena, const struct tti_arena_block *block, size_t offset, size_t bytes)
{
    size_t granule = arena->granule;
    size_t first = offset / granule, end = (offset + bytes + granule - 1) / granule;
    if (first * granule < block->offset) first++;
    if (end * granule > block->offset + block->bytes) end--;
    for (size_t run; first < end; first = run) {
        run = run_end(arena, first, end);
        if (!is_committed(arena, first)) continue;
        if (tti_mapping_decommit(&arena->mapping, first * granule, (run - first) * granule))
            set_committed(arena, first, run, false);
    }
}

/* Commits granules that are not committed, and zeroes the others. After a failure more may be committed than before,
 * all of it free. */
static tutti_status commit(struct tti_arena *arena, size_t offset, size_t bytes, tutti_error *error)
{
    size_t granule = arena->granule;
    size_t first = offset / granule, end = (offset + bytes + granule - 1) / granule;
    size_t missing = uncommitted_bytes(arena, first, end);
    if (missing > 0) TTI_TRY(take_allowance(arena, missing, error));
    for (size_t run; first < end; first = run) {
        run = run_end(arena, first, end);
        size_t from = first * granule, to = run * granule;
        if (to > arena->mapping.bytes) to = arena->mapping.bytes; /* the last granule may be a partial one */
        if (!is_committed(arena, first)) {
            TTI_TRY(tti_mapping_commit(&arena->mapping, from, to - from, error));
            set_committed(arena, first, run, true);
            continue;
        }
        if (from < offset) from = offset;
        if (to > offset + bytes) to = offset + bytes;
        memset(arena->mapping.base + from, 0, to - from);
    }
    return TUTTI_OK;
}

/* ---- Creating -------------------------------------------------------------------------------------------------- */

/* Returns the address space that RLIMIT_AS leaves, with a reserve for everything else that the process will map. */
static size_t space_left(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur >= ADDRESS_SPACE) return ADDRESS_SPACE;
    size_t used = 0;
    FILE *statm = fopen("/proc/self/statm", "re");
    if (statm != NULL) {
        if (fscanf(statm, "%zu", &used) != 1) used = 0;
        fclose(statm);
    }
    used *= (size_t)sysconf(_SC_PAGESIZE);
    return limit.rlim_cur > used ? (limit.rlim_cur - used) / 4 * 3 : 0;
}

size_t tti_arena_default_bytes(int arenas)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    size_t bytes = pages > 0 ? (size_t)pages * (size_t)sysconf(_SC_PAGESIZE) : DEFAULT_LOW;
    size_t most = space_left() / (size_t)(arenas > 0 ? arenas : 1);
    struct rlimit file; /* shared arenas are files */
    if (getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur < most) most = (size_t)file.rlim_cur;
    if (bytes <= most) return tti_round_up(bytes, GRANULE_BYTES);
    bytes = (size_t)1 << bin_of(most > 0 ? most : 1);
    return bytes > DEFAULT_LOW ? bytes : DEFAULT_LOW;
}

static tutti_status reserve(struct tti_mapping *mapping, size_t bytes, bool shared, tutti_error *error)
{
    if (bytes != 0) return tti_mapping_create(mapping, tti_round_up(bytes, GRANULE_BYTES), shared, false, error);
    bytes = tti_arena_default_bytes(1);
    for (;;) {
        tutti_status status = tti_mapping_create(mapping, bytes, shared, false, error);
        if (status != TUTTI_ERR_LIMIT || bytes <= DEFAULT_LOW) return status;
        bytes = (size_t)1 << bin_of(bytes - 1);
    }
}

static tutti_status build_index(struct tti_arena *arena, tutti_error *error)
{
    size_t bytes = arena->mapping.bytes;
    for (arena->granule = GRANULE_BYTES; bytes / arena->granule > GRANULES_MAX;) arena->granule *= 2;
    size_t granules = (bytes + arena->granule - 1) / arena->granule;
    struct tti_arena_block *all = tti_calloc(1, sizeof *all);
    arena->blocks = all;
    arena->buckets = BUCKETS_FIRST;
    arena->table = tti_calloc(arena->buckets, sizeof(struct tti_arena_block *));
    arena->committed = tti_calloc((granules + 63) / 64, sizeof *arena->committed);
    if (all == NULL || arena->table == NULL || arena->committed == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for an arena's index ran out");
    all->bytes = bytes;
    bin_insert(arena, all);
    return TUTTI_OK;
}

tutti_status tti_arena_create(struct tti_arena *arena, size_t bytes, bool shared, tutti_error *error)
{
    memset(arena, 0, sizeof *arena);
    if (bytes > PTRDIFF_MAX) return tti_error_set(error, TUTTI_ERR_LIMIT, 0, "no arena can have %zu bytes", bytes);
    TTI_TRY(reserve(&arena->mapping, bytes, shared, error));
    int why = pthread_mutex_init(&arena->lock, NULL);
    if (why != 0) {
        tti_mapping_destroy(&arena->mapping);
        return tti_error_set(error, TUTTI_ERR_SYSTEM, why, "a lock could not be made");
    }
    tutti_status status = build_index(arena, error);
    if (status != TUTTI_OK) tti_arena_destroy(arena);
    return status;
}

void tti_arena_destroy(struct tti_arena *arena)
{
    if (arena->mapping.base == NULL) return;
    for (struct tti_arena_block *block = arena->blocks, *after; block != NULL; block = after) {
        after = block->after;
        tti_free(block);
    }
    tti_free(arena->table);
    tti_free(arena->committed);
    pthread_mutex_destroy(&arena->lock);
    tti_mapping_destroy(&arena->mapping);
    memset(arena, 0, sizeof *arena);
}

tutti_status tti_arena_new(size_t bytes, bool shared, struct tti_arena **arena, tutti_error *error)
{
    struct tti_arena *made = tti_calloc(1, sizeof *made);
    *arena = NULL;
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for an arena's lists ran out");
    tutti_status status = tti_arena_create(made, bytes, shared, error);
    if (status != TUTTI_OK) {
        tti_free(made);
        return status;
    }
    atomic_store_explicit(&made->holders, 1, memory_order_relaxed);
    *arena = made;
    return TUTTI_OK;
}

struct tti_arena *tti_arena_hold(struct tti_arena *arena)
{
    atomic_fetch_add_explicit(&arena->holders, 1, memory_order_relaxed);
    return arena;
}

void tti_arena_release(struct tti_arena *arena)
{
    if (arena == NULL || atomic_fetch_sub_explicit(&arena->holders, 1, memory_order_acq_rel) > 1) return;
    tti_arena_destroy(arena);
    tti_free(arena);
}

/* ---- Allocating and freeing ------------------------------------------------------------------------------------ */

/* Inserts `fresh` after `block`, with the block's bytes from `offset` on. */
static void split(struct tti_arena_block *block, size_t offset, struct tti_arena_block *fresh)
{
    fresh->offset = offset;
    fresh->bytes = block->offset + block->bytes - offset;
    block->bytes = offset - block->offset;
    fresh->before = block;
    fresh->after = block->after;
    if (block->after != NULL) block->after->before = fresh;
    block->after = fresh;
}

/* Takes [offset, offset + bytes) out of a free block. It happens completely, or memory ran out and nothing has
 * changed. */
static struct tti_arena_block *carve(struct tti_arena *arena, struct tti_arena_block *block, size_t offset,
                                     size_t bytes)
{
    bool has_front = offset > block->offset, has_tail = offset + bytes < block->offset + block->bytes;
    struct tti_arena_block *middle = has_front ? tti_calloc(1, sizeof *middle) : NULL;
    struct tti_arena_block *tail = has_tail ? tti_calloc(1, sizeof *tail) : NULL;
    if ((has_front && middle == NULL) || (has_tail && tail == NULL)) {
        tti_free(middle);
        tti_free(tail);
        return NULL;
    }
    bin_remove(arena, block);
    if (has_front) {
        split(block, offset, middle);
        bin_insert(arena, block);
        block = middle;
    }
    if (has_tail) {
        split(block, offset + bytes, tail);
        bin_insert(arena, tail);
    }
    return block;
}

static tutti_status exhausted(const struct tti_arena *arena, size_t bytes, tutti_error *error)
{
    char wanted[TTI_BYTES_TEXT], all[TTI_BYTES_TEXT], largest[TTI_BYTES_TEXT];
    TTI_TRY(tti_memory_check(bytes, NULL, error)); /* if memory is short, a larger arena would be of no use */
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0,
                         "%s do not fit into the arena of %s, whose largest free block has %s; raise the option "
                         "arena_bytes",
                         tti_bytes_text(bytes, wanted), tti_bytes_text(arena->mapping.bytes, all),
                         tti_bytes_text(largest_free(arena), largest));
}

/* Takes a block. The bytes before it, from the aligned place on, are committed with it, since they may be in its first
 * large page, and stay free. */
static struct tti_arena_block *take(struct tti_arena *arena, size_t bytes, size_t align, size_t shift,
                                    tutti_error *error)
{
    struct tti_arena_block *block = find_fit(arena, bytes + shift, align, BIN_TRIES);
    if (block == NULL) block = find_fit(arena, bytes + shift, align, SIZE_MAX);
    if (block == NULL) {
        exhausted(arena, bytes, error);
        return NULL;
    }
    size_t offset = tti_round_up(block->offset, align);
    if (commit(arena, offset, shift + bytes, error) != TUTTI_OK) {
        if (bytes > KEPT_BYTES) decommit(arena, block, offset, shift + bytes);
        return NULL;
    }
    block = carve(arena, block, offset + shift, bytes);
    if (block == NULL)
        tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for an arena's index ran out");
    else
        table_insert(arena, block);
    return block;
}

void *tti_arena_alloc(struct tti_arena *arena, size_t bytes, tutti_error *error)
{
    return tti_arena_alloc_shifted(arena, bytes, 0, error);
}

void *tti_arena_alloc_shifted(struct tti_arena *arena, size_t bytes, size_t shift, tutti_error *error)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    pthread_mutex_lock(&arena->lock);
    if (bytes > arena->mapping.bytes) {
        exhausted(arena, bytes, error);
        pthread_mutex_unlock(&arena->lock);
        return NULL;
    }
    size_t align = bytes >= page ? page : LINE_BYTES, needed = tti_round_up(bytes > 0 ? bytes : 1, align);
    size_t wanted = bytes >= TTI_LARGE_PAGE ? TTI_LARGE_PAGE : align;
    if (bytes < page || find_fit(arena, needed + shift, wanted, BIN_TRIES) == NULL) shift = 0;
    if (find_fit(arena, needed + shift, wanted, BIN_TRIES) != NULL) align = wanted;
    struct tti_arena_block *block = take(arena, needed, align, shift, error);
    pthread_mutex_unlock(&arena->lock);
    if (block == NULL) return NULL;
    size_t begin = block->offset & ~(align - 1);
    if (align == TTI_LARGE_PAGE) tti_mapping_enlarge_pages(&arena->mapping, begin, block->offset + needed - begin);
    return arena->mapping.base + block->offset;
}

/* The block takes over the bytes of the next one, which is in no bin any more. */
static void absorb(struct tti_arena_block *block, struct tti_arena_block *gone)
{
    block->bytes += gone->bytes;
    block->after = gone->after;
    if (gone->after != NULL) gone->after->before = block;
    tti_free(gone);
}

static void release(struct tti_arena *arena, struct tti_arena_block *block)
{
    size_t offset = block->offset, bytes = block->bytes;
    struct tti_arena_block *before = block->before, *after = block->after;
    if (after != NULL && after->state == BLOCK_FREE) {
        bin_remove(arena, after);
        absorb(block, after);
    }
    if (before != NULL && before->state == BLOCK_FREE) {
        bin_remove(arena, before);
        absorb(before, block);
        block = before;
    }
    bin_insert(arena, block);
    if (bytes > KEPT_BYTES) decommit(arena, block, offset, bytes);
}

static tutti_status free_locked(struct tti_arena *arena, size_t offset)
{
    struct tti_arena_block **link = table_find(arena, offset), *block = *link;
    if (block == NULL || block->state == BLOCK_ABANDONED) return TUTTI_ERR_ARGUMENT;
    if (block->state == BLOCK_QUARANTINED) {
        block->state = BLOCK_ABANDONED;
        return TUTTI_OK;
    }
    *link = block->next;
    arena->used--;
    release(arena, block);
    return TUTTI_OK;
}

tutti_status tti_arena_free(struct tti_arena *arena, void *pointer, tutti_error *error)
{
    if (pointer == NULL) return TUTTI_OK;
    tutti_status status = TUTTI_ERR_ARGUMENT;
    if (tti_arena_contains(arena, pointer, 1)) {
        pthread_mutex_lock(&arena->lock);
        status = free_locked(arena, (size_t)((char *)pointer - arena->mapping.base));
        pthread_mutex_unlock(&arena->lock);
    }
    if (status == TUTTI_OK) return TUTTI_OK;
    return tti_error_set(error, status, 0, "%p was not given by this world's allocator, or was freed already", pointer);
}

size_t tti_arena_bytes(struct tti_arena *arena, const void *pointer)
{
    if (!tti_arena_contains(arena, pointer, 1)) return 0;
    pthread_mutex_lock(&arena->lock);
    const struct tti_arena_block *block = *table_find(arena, (size_t)((const char *)pointer - arena->mapping.base));
    size_t bytes = block == NULL || block->state == BLOCK_ABANDONED ? 0 : block->bytes;
    pthread_mutex_unlock(&arena->lock);
    return bytes;
}

/* This is rare, so a walk over all blocks is good enough; and a buffer may start anywhere in a block. */
void tti_arena_quarantine(struct tti_arena *arena, const void *pointer)
{
    if (!tti_arena_contains(arena, pointer, 1)) return;
    size_t offset = (size_t)((const char *)pointer - arena->mapping.base);
    pthread_mutex_lock(&arena->lock);
    struct tti_arena_block *block = arena->blocks;
    while (offset - block->offset >= block->bytes) block = block->after;
    if (block->state == BLOCK_USED) block->state = BLOCK_QUARANTINED;
    pthread_mutex_unlock(&arena->lock);
}
