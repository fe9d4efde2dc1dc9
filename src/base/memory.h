/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapped memory: control segments and arenas.
 *
 * Invariant: a byte handed out is committed (its page exists), so that touching it can never raise SIGBUS; what cannot
 * be committed is an error when it is asked for. Shared mappings are memfds: no names, nothing to clean up, and the
 * size of /dev/shm does not matter.
 */
#ifndef TTI_BASE_MEMORY_H
#define TTI_BASE_MEMORY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

/* One mapping. fd is -1 for memory of this process alone. */
struct tti_mapping {
    char *base;
    size_t bytes;
    int fd;
};

/* New zeroed memory: `shared` makes a memfd (close-on-exec) that others can map. With `commit` all of it is committed
 * now, else none. On failure *mapping is empty ({NULL, 0, -1}) and *error says which limit or call it was. */
tutti_status tti_mapping_create(struct tti_mapping *mapping, size_t bytes, bool shared, bool commit,
                                tutti_error *error);
/* Maps a memfd that came from another process; takes over `fd` (also on failure: it is closed). */
tutti_status tti_mapping_open(struct tti_mapping *mapping, int fd, size_t bytes, tutti_error *error);
#define TTI_LARGE_PAGE ((size_t)2 << 20)
/* Asks for large pages under a committed part of a shared mapping: a wish, which only speed depends on. */
void tti_mapping_enlarge_pages(const struct tti_mapping *mapping, size_t offset, size_t bytes);
/* The memfd can be closed while the mapping stays. */
void tti_mapping_close_fd(struct tti_mapping *mapping);
void tti_mapping_destroy(struct tti_mapping *mapping); /* an empty mapping is ignored */
/* ERR_LIMIT, with the limit's name, unless private memory of so many bytes could be mapped now. Nothing is kept. */
tutti_status tti_mapping_try(size_t bytes, tutti_error *error);

/* Commits a part that is not committed yet, or gives one back to the system, after which it is zero (false: it stays
 * as it was). Whole pages, and with a memfd only while that is open. A commit that fails half way is undone. */
tutti_status tti_mapping_commit(const struct tti_mapping *mapping, size_t offset, size_t bytes, tutti_error *error);
bool tti_mapping_decommit(const struct tti_mapping *mapping, size_t offset, size_t bytes);

/* Bytes that can be committed now before the system runs out: MemAvailable, and what the control groups of this
 * process leave. SIZE_MAX where neither can be read. Takes some hundred microseconds. */
size_t tti_memory_left(void);
/* All memory and swap that this machine has. */
uint64_t tti_memory_total(void);
/* ERR_MEMORY unless `bytes` more can be committed, with a little to spare: asking beforehand is what keeps an absurd
 * request from ending in the out-of-memory killer. *left (may be NULL) gets what remains after them. */
tutti_status tti_memory_check(size_t bytes, size_t *left, tutti_error *error);

/* Whether all these bytes are memory of this process, be it used or not. Takes less than a microsecond. */
bool tti_memory_is_mapped(const void *first, size_t bytes);

enum { TTI_BYTES_TEXT = 24 };
/* "1.5 GiB", for sentences; returns `text`. */
const char *tti_bytes_text(uint64_t bytes, char text[TTI_BYTES_TEXT]);

enum { TTI_ARENA_BINS = 64 };

/* An allocator over one mapping; its book-keeping is private to this process. Thread-safe. */
struct tti_arena {
    struct tti_mapping mapping;
    pthread_mutex_t lock;
    struct tti_arena_block *blocks;               /* all of the arena, in address order */
    struct tti_arena_block *bins[TTI_ARENA_BINS]; /* free blocks of 2^i bytes or more, less than 2^(i+1) */
    struct tti_arena_block **table;               /* allocated blocks by offset, chained */
    size_t buckets, used;                         /* of the table: a power of two; blocks in it */
    uint64_t *committed;                          /* one bit per granule */
    size_t granule;                               /* bytes committed at a time: a power of two, 64 KiB or more */
    size_t allowance;                             /* may be committed before the memory left is looked at again */
    atomic_uint holders;                          /* see tti_arena_hold */
};

/* The size an arena gets unless one is asked for: as much as the machine has memory, or less, down to 64 MiB, where
 * `arenas` of that size would not fit into the address space this process may use. */
size_t tti_arena_default_bytes(int arenas);

/* Reserves address space only. bytes 0: tti_arena_default_bytes(1), or less, down to 64 MiB, where that is refused. */
tutti_status tti_arena_create(struct tti_arena *arena, size_t bytes, bool shared, tutti_error *error);
void tti_arena_destroy(struct tti_arena *arena);
/* One for several holders: the worlds of a process, one after the other, have the same. The last that lets go destroys it. */
tutti_status tti_arena_new(size_t bytes, bool shared, struct tti_arena **arena, tutti_error *error);
struct tti_arena *tti_arena_hold(struct tti_arena *arena);
void tti_arena_release(struct tti_arena *arena); /* NULL is ignored */
/* Committed, zeroed, aligned to 64 bytes (from a page on: to a page). NULL with *error set when it cannot be had. */
void *tti_arena_alloc(struct tti_arena *arena, size_t bytes, tutti_error *error);
/* The same, but from a page on it begins `shift` bytes, a multiple of 64, after one, unless there is no room for that. */
void *tti_arena_alloc_shifted(struct tti_arena *arena, size_t bytes, size_t shift, tutti_error *error);
/* Bytes that it was given with; 0: it was not. */
size_t tti_arena_bytes(struct tti_arena *arena, const void *pointer);
/* ERR_ARGUMENT when `pointer` was not given by this arena or was freed already. */
tutti_status tti_arena_free(struct tti_arena *arena, void *pointer, tutti_error *error);
/* The block stays allocated for ever: someone may still write to it. Unknown pointers are ignored. */
void tti_arena_quarantine(struct tti_arena *arena, const void *pointer);
static inline bool tti_arena_contains(const struct tti_arena *arena, const void *pointer, size_t bytes)
{
    uintptr_t first = (uintptr_t)arena->mapping.base, at = (uintptr_t)pointer;
    if (arena->mapping.base == NULL || at < first) return false;
    size_t offset = at - first;
    return offset <= arena->mapping.bytes && bytes <= arena->mapping.bytes - offset;
}

#endif
