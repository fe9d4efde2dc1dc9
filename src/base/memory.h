/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapped memory: control segments and arenas.
 *
 * Invariant: a byte that is handed out is committed (its page exists), so that touching it can never raise SIGBUS; a
 * request that cannot be committed is an error. Shared mappings are memfds: they have no names, nothing is left to
 * remove, and the size of /dev/shm does not matter.
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

/* Makes new zeroed memory: `shared` makes a memfd (close-on-exec) that others can map. With `commit` all of it is
 * committed now, else none. After a failure *mapping is empty ({NULL, 0, -1}) and *error names the limit or call. */
tutti_status tti_mapping_create(struct tti_mapping *mapping, size_t bytes, bool shared, bool commit,
                                tutti_error *error);
/* Maps a memfd that came from another process; takes over `fd` (after a failure, too: it is closed then). */
tutti_status tti_mapping_open(struct tti_mapping *mapping, int fd, size_t bytes, tutti_error *error);
#define TTI_LARGE_PAGE ((size_t)2 << 20)
/* Asks for large pages under a committed part of a shared mapping: a wish that only affects speed. */
void tti_mapping_enlarge_pages(const struct tti_mapping *mapping, size_t offset, size_t bytes);
/* Closes the memfd; the mapping stays. */
void tti_mapping_close_fd(struct tti_mapping *mapping);
void tti_mapping_destroy(struct tti_mapping *mapping); /* does nothing for an empty mapping */
/* Returns ERR_LIMIT, with the limit's name, unless private memory of so many bytes could be mapped now. Nothing is
 * kept. */
tutti_status tti_mapping_try(size_t bytes, tutti_error *error);

/* Commits a part that is not committed yet, or gives one back to the system, after which it is zero (false: it stays as
 * it was). Whole pages, and with a memfd only while that is open. A commit that fails half way is undone. */
tutti_status tti_mapping_commit(const struct tti_mapping *mapping, size_t offset, size_t bytes, tutti_error *error);
bool tti_mapping_decommit(const struct tti_mapping *mapping, size_t offset, size_t bytes);

/* Returns the bytes that can be committed now before the system runs out: MemAvailable, and what the control groups of
 * this process leave. SIZE_MAX if neither can be read. Takes some hundred microseconds. */
size_t tti_memory_left(void);
/* Returns all memory and swap that this machine has. */
uint64_t tti_memory_total(void);
/* Returns ERR_MEMORY unless `bytes` more can be committed, with a little to spare: the check keeps an absurd request
 * from ending in the out-of-memory killer. *left (may be NULL) gets what remains after them. */
tutti_status tti_memory_check(size_t bytes, size_t *left, tutti_error *error);

/* Returns true if all these bytes are memory of this process, used or not. Takes less than a microsecond. */
bool tti_memory_is_mapped(const void *first, size_t bytes);

enum { TTI_BYTES_TEXT = 24 };
/* Writes "1.5 GiB", for sentences; returns `text`. */
const char *tti_bytes_text(uint64_t bytes, char text[TTI_BYTES_TEXT]);

enum { TTI_ARENA_BINS = 64 };

/* An allocator over one mapping; its records are private to this process. Thread-safe. */
struct tti_arena {
    struct tti_mapping mapping;
    pthread_mutex_t lock;
    struct tti_arena_block *blocks;               /* all blocks, in address order */
    struct tti_arena_block *bins[TTI_ARENA_BINS]; /* free blocks of 2^i bytes or more, less than 2^(i+1) */
    struct tti_arena_block **table;               /* allocated blocks by offset, chained */
    size_t buckets, used;                         /* the size of the table, a power of two; and the blocks in it */
    uint64_t *committed;                          /* one bit per granule */
    size_t granule;                               /* bytes committed at a time: a power of two, 64 KiB or more */
    size_t allowance;    /* bytes that may be committed before the memory left is checked again */
    atomic_uint holders; /* see tti_arena_hold */
};

/* Returns the default size of an arena: as much as the machine has memory, or less, down to 64 MiB, if `arenas` of that
 * size would not fit into the address space that this process may use. */
size_t tti_arena_default_bytes(int arenas);

/* Makes an arena; it reserves address space only. bytes 0: tti_arena_default_bytes(1), or less, down to 64 MiB, if that
 * is refused. */
tutti_status tti_arena_create(struct tti_arena *arena, size_t bytes, bool shared, tutti_error *error);
void tti_arena_destroy(struct tti_arena *arena);
/* Makes an arena with several holders: the worlds of a process, one after the other, have the same. The last holder
 * that releases it destroys it. */
tutti_status tti_arena_new(size_t bytes, bool shared, struct tti_arena **arena, tutti_error *error);
struct tti_arena *tti_arena_hold(struct tti_arena *arena);
void tti_arena_release(struct tti_arena *arena); /* NULL is ignored */
/* Returns committed, zeroed memory, aligned to 64 bytes (from a page on: to a page). NULL with *error set if there is
 * none. */
void *tti_arena_alloc(struct tti_arena *arena, size_t bytes, tutti_error *error);
/* Does the same, but from a page on the memory begins `shift` bytes, a multiple of 64, after a page, unless there is no
 * room for that. */
void *tti_arena_alloc_shifted(struct tti_arena *arena, size_t bytes, size_t shift, tutti_error *error);
/* Returns the bytes of an allocation of this arena; 0: it is none. */
size_t tti_arena_bytes(struct tti_arena *arena, const void *pointer);
/* Frees an allocation. ERR_ARGUMENT if `pointer` is no allocation of this arena or was freed already. */
tutti_status tti_arena_free(struct tti_arena *arena, void *pointer, tutti_error *error);
/* Keeps the block allocated for ever, since another process may still write to it. Unknown pointers are ignored. */
void tti_arena_quarantine(struct tti_arena *arena, const void *pointer);
static inline bool tti_arena_contains(const struct tti_arena *arena, const void *pointer, size_t bytes)
{
    uintptr_t first = (uintptr_t)arena->mapping.base, at = (uintptr_t)pointer;
    if (arena->mapping.base == NULL || at < first) return false;
    size_t offset = at - first;
    return offset <= arena->mapping.bytes && bytes <= arena->mapping.bytes - offset;
}

#endif
