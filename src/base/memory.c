/* SPDX-License-Identifier: Apache-2.0
 *
 * Mappings. This file has everything that depends on the system's virtual memory.
 *
 * Memfds are sealed against growing and shrinking: no process that has one can make another's access raise SIGBUS.
 */
#include "base/memory.h"

#include "base/alloc.h"
#include "base/round.h"
#include "base/status.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14; older headers lack it */
#endif

/* The most bytes that one call commits. A signal makes the kernel undo the whole call: small pieces keep their
 * progress. */
#define PIECE_BYTES ((size_t)16 << 20)
/* Smaller commits do not check the memory left. */
#define UNCHECKED_BYTES ((size_t)1 << 20)

static const struct tti_mapping empty = {NULL, 0, -1};

const char *tti_bytes_text(uint64_t bytes, char text[TTI_BYTES_TEXT])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++) value /= 1024;
    snprintf(text, TTI_BYTES_TEXT, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

tutti_status tti_memory_check(size_t bytes, size_t *left, tutti_error *error)
{
    size_t now = tti_memory_left();
    size_t usable = now - now / 32;
    if (bytes > usable) {
        char wanted[TTI_BYTES_TEXT], had[TTI_BYTES_TEXT];
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%s of memory cannot be had: the system has %s left",
                             tti_bytes_text(bytes, wanted), tti_bytes_text(usable, had));
    }
    if (left != NULL) *left = usable - bytes;
    return TUTTI_OK;
}

/* MS_ASYNC starts nothing: the system only checks that the memory is mapped. */
bool tti_memory_is_mapped(const void *first, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)first & ~(page - 1),
              before = (uintptr_t)first - begin;
    return bytes == 0 || msync((void *)begin, bytes + before, MS_ASYNC) == 0 || errno != ENOMEM;
}

/* ---- Reserving address space ----------------------------------------------------------------------------------- */

/* Names the limit that made the system refuse to reserve `bytes`, as far as it can be known. */
static tutti_status reserve_failed(size_t bytes, bool shared, int why, tutti_error *error)
{
    char wanted[TTI_BYTES_TEXT], had[TTI_BYTES_TEXT];
    struct rlimit space = {RLIM_INFINITY, RLIM_INFINITY}, data = {RLIM_INFINITY, RLIM_INFINITY};
    tti_bytes_text(bytes, wanted);
    if (why != ENOMEM)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, why, "%s of address space could not be reserved", wanted);
    getrlimit(RLIMIT_AS, &space);
    getrlimit(RLIMIT_DATA, &data);
    if (space.rlim_cur != RLIM_INFINITY)
        return tti_error_set(error, TUTTI_ERR_LIMIT, why,
                             "%s of address space could not be reserved: the limit is %s in all; raise it (ulimit -v) "
                             "or lower the option arena_bytes",
                             wanted, tti_bytes_text(space.rlim_cur, had));
    if (!shared && data.rlim_cur != RLIM_INFINITY)
        return tti_error_set(error, TUTTI_ERR_LIMIT, why,
                             "%s of address space could not be reserved: the limit on data is %s; raise it (ulimit -d) "
                             "or lower the option arena_bytes",
                             wanted, tti_bytes_text(data.rlim_cur, had));
    return tti_error_set(error, TUTTI_ERR_LIMIT, why,
                         "%s of address space could not be reserved: it is used up, or vm.max_map_count or "
                         "vm.overcommit_memory forbids it; lower the option arena_bytes",
                         wanted);
}

/* Checks the limit: a file larger than RLIMIT_FSIZE would end the process by SIGXFSZ instead of an error. */
static tutti_status check_file_size(size_t bytes, tutti_error *error)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes)
        return TUTTI_OK;
    char wanted[TTI_BYTES_TEXT], had[TTI_BYTES_TEXT];
    return tti_error_set(
        error, TUTTI_ERR_LIMIT, EFBIG,
        "shared memory of %s could not be made: the limit on file sizes is %s; raise it (ulimit -f) or "
        "lower the option arena_bytes",
        tti_bytes_text(bytes, wanted), tti_bytes_text(limit.rlim_cur, had));
}

static tutti_status memfd_failed(int why, tutti_error *error)
{
    if (why != EMFILE && why != ENFILE)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, why, "shared memory could not be made: memfd_create failed");
    struct rlimit limit = {0, 0};
    getrlimit(RLIMIT_NOFILE, &limit);
    return tti_error_set(error, TUTTI_ERR_LIMIT, why,
                         "shared memory could not be made: no file descriptor is left of %llu; raise the limit "
                         "(ulimit -n)",
                         (unsigned long long)limit.rlim_cur);
}

static tutti_status make_memfd(size_t bytes, int *fd, tutti_error *error)
{
    TTI_TRY(check_file_size(bytes, error));
    int made = memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0) return memfd_failed(errno, error);
    if (ftruncate(made, (off_t)bytes) != 0 ||
        fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        char wanted[TTI_BYTES_TEXT];
        tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "shared memory of %s could not be made",
                      tti_bytes_text(bytes, wanted));
        close(made);
        return TUTTI_ERR_SYSTEM;
    }
    *fd = made;
    return TUTTI_OK;
}

/* Large pages need mappings whose addresses and offsets are equal modulo their size. Returns a place for one, reserved
 * until it is mapped over; NULL (anywhere) if there is none, or if it would not matter. */
static void *reserve_aligned(size_t bytes, int *flags)
{
    if (bytes < TTI_LARGE_PAGE || bytes > PTRDIFF_MAX - TTI_LARGE_PAGE) return NULL;
    int nothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *room = mmap(NULL, bytes + TTI_LARGE_PAGE, PROT_NONE, nothing, -1, 0);
    if (room == MAP_FAILED) return NULL;
    char *base = (char *)tti_round_up((uintptr_t)room, TTI_LARGE_PAGE);
    if (base > room) munmap(room, (size_t)(base - room));
    munmap(base + bytes, TTI_LARGE_PAGE - (size_t)(base - room));
    *flags |= MAP_FIXED;
    return base;
}

void tti_mapping_enlarge_pages(const struct tti_mapping *mapping, size_t offset, size_t bytes)
{
    size_t first = tti_round_up(offset, TTI_LARGE_PAGE), end = (offset + bytes) & ~(TTI_LARGE_PAGE - 1);
    if (mapping->fd >= 0 && first < end) madvise(mapping->base + first, end - first, MADV_COLLAPSE);
}

static tutti_status map(struct tti_mapping *mapping, size_t bytes, int fd, tutti_error *error)
{
    int flags = fd >= 0 ? MAP_SHARED | MAP_NORESERVE : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *room = fd >= 0 ? reserve_aligned(bytes, &flags) : NULL; /* the system itself aligns private memory */
    void *base = mmap(room, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base == MAP_FAILED) {
        int why = errno;
        if (room != NULL) munmap(room, bytes);
        return reserve_failed(bytes, fd >= 0, why, error);
    }
    if (fd < 0) madvise(base, bytes, MADV_HUGEPAGE); /* a wish: if it fails, only speed changes */
    *mapping = (struct tti_mapping){base, bytes, fd};
    return TUTTI_OK;
}

static tutti_status create(struct tti_mapping *mapping, size_t bytes, bool shared, tutti_error *error)
{
    int fd = -1;
    if (bytes == 0 || bytes > PTRDIFF_MAX)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a mapping of %zu bytes cannot be made", bytes);
    if (!tti_alloc_allowed()) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for a mapping ran out");
    if (shared) TTI_TRY(make_memfd(bytes, &fd, error));
    tutti_status status = map(mapping, bytes, fd, error);
    if (status != TUTTI_OK && fd >= 0) close(fd);
    return status;
}

tutti_status tti_mapping_create(struct tti_mapping *mapping, size_t bytes, bool shared, bool commit, tutti_error *error)
{
    *mapping = empty;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes <= PTRDIFF_MAX) bytes = tti_round_up(bytes, page);
    if (commit && bytes >= UNCHECKED_BYTES && bytes <= PTRDIFF_MAX) TTI_TRY(tti_memory_check(bytes, NULL, error));
    TTI_TRY(create(mapping, bytes, shared, error));
    if (!commit) return TUTTI_OK;
    tutti_status status = tti_mapping_commit(mapping, 0, bytes, error);
    if (status != TUTTI_OK) tti_mapping_destroy(mapping);
    return status;
}

tutti_status tti_mapping_try(size_t bytes, tutti_error *error)
{
    struct tti_mapping mapping = empty;
    TTI_TRY(create(&mapping, bytes, false, error));
    tti_mapping_destroy(&mapping);
    return TUTTI_OK;
}

/* Checks memory that came from another process, as far as that is possible. */
static tutti_status check_memfd(int fd, size_t bytes, tutti_error *error)
{
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &file) != 0)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "another rank's memory could not be mapped");
    if (bytes == 0 || file.st_size < 0 || (uint64_t)file.st_size < bytes || seals < 0 || !(seals & F_SEAL_SHRINK))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "another rank's memory could not be mapped: it is not sealed memory of %zu bytes", bytes);
    return TUTTI_OK;
}

tutti_status tti_mapping_open(struct tti_mapping *mapping, int fd, size_t bytes, tutti_error *error)
{
    *mapping = empty;
    tutti_status status = check_memfd(fd, bytes, error);
    if (status == TUTTI_OK && !tti_alloc_allowed())
        status = tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for a mapping ran out");
    if (status == TUTTI_OK) status = map(mapping, bytes, fd, error);
    if (status != TUTTI_OK) close(fd);
    return status;
}

void tti_mapping_close_fd(struct tti_mapping *mapping)
{
    if (mapping->base == NULL || mapping->fd < 0) return;
    close(mapping->fd);
    mapping->fd = -1;
}

void tti_mapping_destroy(struct tti_mapping *mapping)
{
    if (mapping->base == NULL) return; /* includes a mapping that was only zeroed, whose fd 0 is not its own */
    munmap(mapping->base, mapping->bytes);
    tti_mapping_close_fd(mapping);
    *mapping = empty;
}

/* ---- Committing ------------------------------------------------------------------------------------------------ */

/* For kernels that cannot populate: a page exists once it was written to. No other thread uses these bytes yet. */
static void touch(char *first, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < bytes; at += page) {
        volatile char *byte = first + at;
        *byte = *byte;
    }
}

/* Commits a piece; returns 0 or an errno. */
static int commit_piece(const struct tti_mapping *mapping, size_t offset, size_t bytes)
{
    if (mapping->fd >= 0) return fallocate(mapping->fd, 0, (off_t)offset, (off_t)bytes) == 0 ? 0 : errno;
    if (madvise(mapping->base + offset, bytes, MADV_POPULATE_WRITE) == 0) return 0;
    if (errno != EINVAL) return errno;
    touch(mapping->base + offset, bytes);
    return 0;
}

tutti_status tti_mapping_commit(const struct tti_mapping *mapping, size_t offset, size_t bytes, tutti_error *error)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), piece = PIECE_BYTES;
    int why = tti_alloc_allowed() ? 0 : ENOMEM;
    size_t done = 0;
    while (why == 0 && done < bytes) {
        size_t now = bytes - done < piece ? bytes - done : piece;
        why = commit_piece(mapping, offset + done, now);
        if (why == 0) {
            done += now;
        } else if (why == EINTR) { /* signals come faster than pieces end: take smaller pieces */
            if (piece > page) piece /= 2;
            why = 0;
        }
    }
    if (why == 0) return TUTTI_OK;
    if (done > 0) tti_mapping_decommit(mapping, offset, done);
    char wanted[TTI_BYTES_TEXT];
    return tti_error_set(error, TUTTI_ERR_MEMORY, why, "%s of memory could not be had", tti_bytes_text(bytes, wanted));
}

bool tti_mapping_decommit(const struct tti_mapping *mapping, size_t offset, size_t bytes)
{
    if (mapping->fd < 0) return madvise(mapping->base + offset, bytes, MADV_DONTNEED) == 0;
    int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    while (fallocate(mapping->fd, hole, (off_t)offset, (off_t)bytes) != 0)
        if (errno != EINTR) return false;
    return true;
}
