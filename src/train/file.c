/* SPDX-License-Identifier: Apache-2.0 */
#include "train/file.h"

#include "base/alloc.h"
#include "base/status.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wconversion"
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

enum { START_BYTES = 8 << 20 }; /* the disk is told to begin this often, so that it works while data are hashed */

uint64_t tti_hash(const void *bytes, size_t count, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, count, seed);
}

/* ---- Writing --------------------------------------------------------------------------------------------------- */

tutti_status tti_writer_open(struct tti_writer *writer, const char *path, tutti_error *error)
{
    *writer = (struct tti_writer){.fd = -1};
    (void)snprintf(writer->path, sizeof writer->path, "%s", path);
    writer->hash = XXH3_createState();
    if (writer->hash == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%.300s: no memory to write it", path);
    (void)XXH3_64bits_reset(writer->hash);
    writer->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (writer->fd < 0) return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "%.300s cannot be made", path);
    return TUTTI_OK;
}

static tutti_status write_all(struct tti_writer *writer, const char *bytes, size_t count, tutti_error *error)
{
    while (count > 0) {
        ssize_t done = write(writer->fd, bytes, count);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0)
            return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "%.300s cannot be written after %llu bytes",
                                 writer->path, (unsigned long long)writer->bytes);
        bytes += done;
        count -= (size_t)done;
        writer->bytes += (uint64_t)done;
    }
    return TUTTI_OK;
}

tutti_status tti_writer_put(struct tti_writer *writer, const void *bytes, size_t count, tutti_error *error)
{
    const char *from = bytes;
    while (count > 0) {
        size_t part = count < TTI_FILE_STEP ? count : TTI_FILE_STEP;
        (void)XXH3_64bits_update(writer->hash, from, part);
        TTI_TRY(write_all(writer, from, part, error));
        from += part;
        count -= part;
        if (writer->bytes - writer->started < START_BYTES) continue;
        (void)sync_file_range(writer->fd, (off_t)writer->started, (off_t)(writer->bytes - writer->started),
                              SYNC_FILE_RANGE_WRITE); /* a wish; it may fail */
        writer->started = writer->bytes;
    }
    return TUTTI_OK;
}

tutti_status tti_writer_finish(struct tti_writer *writer, uint64_t *hash, tutti_error *error)
{
    if (fsync(writer->fd) != 0)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "%.300s cannot be brought to the disk", writer->path);
    int fd = writer->fd;
    writer->fd = -1;
    if (close(fd) != 0) return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "%.300s cannot be closed", writer->path);
    *hash = XXH3_64bits_digest(writer->hash);
    return TUTTI_OK;
}

void tti_writer_abandon(struct tti_writer *writer)
{
    if (writer->fd >= 0) (void)close(writer->fd);
    writer->fd = -1;
    (void)XXH3_freeState(writer->hash);
    writer->hash = NULL;
}

/* ---- Reading --------------------------------------------------------------------------------------------------- */

tutti_status tti_file_open(const char *path, int *fd, uint64_t *bytes, tutti_error *error)
{
    struct stat about;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* otherwise a pipe would wait for its writer */
    if (*fd < 0) return tti_error_set(error, TUTTI_ERR_DAMAGED, errno, "%.300s cannot be read", path);
    if (fstat(*fd, &about) == 0 && S_ISREG(about.st_mode)) {
        *bytes = (uint64_t)about.st_size;
        return TUTTI_OK;
    }
    (void)close(*fd);
    *fd = -1;
    return tti_error_set(error, TUTTI_ERR_DAMAGED, 0, "%.300s is not a file", path);
}

tutti_status tti_file_read(int fd, const char *path, uint64_t at, size_t count, void *to, tutti_error *error)
{
    char *next = to;
    while (count > 0) {
        ssize_t done = pread(fd, next, count, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "%.300s cannot be read", path);
        if (done == 0)
            return tti_error_set(error, TUTTI_ERR_DAMAGED, 0, "%.300s ends after %llu bytes", path,
                                 (unsigned long long)at);
        next += done;
        at += (uint64_t)done;
        count -= (size_t)done;
    }
    return TUTTI_OK;
}

static tutti_status hash_parts(int fd, const char *path, uint64_t bytes, char *buffer, XXH3_state_t *state,
                               tutti_error *error)
{
    for (uint64_t at = 0; at < bytes;) {
        size_t part = bytes - at < TTI_FILE_STEP ? (size_t)(bytes - at) : TTI_FILE_STEP;
        TTI_TRY(tti_file_read(fd, path, at, part, buffer, error));
        (void)XXH3_64bits_update(state, buffer, part);
        at += part;
    }
    return TUTTI_OK;
}

tutti_status tti_file_hash(int fd, const char *path, uint64_t *bytes, uint64_t *hash, tutti_error *error)
{
    struct stat about;
    if (fstat(fd, &about) != 0) return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "%.300s cannot be examined", path);
    *bytes = (uint64_t)about.st_size;
    char *buffer = tti_calloc(1, TTI_FILE_STEP);
    XXH3_state_t *state = XXH3_createState();
    tutti_status status = TUTTI_ERR_MEMORY;
    if (buffer == NULL || state == NULL) {
        (void)tti_error_set(error, status, 0, "%.300s: no memory to read it", path);
    } else {
        (void)XXH3_64bits_reset(state);
        status = hash_parts(fd, path, *bytes, buffer, state, error);
        *hash = XXH3_64bits_digest(state);
    }
    (void)XXH3_freeState(state);
    tti_free(buffer);
    return status;
}

/* ---- Folders --------------------------------------------------------------------------------------------------- */

tutti_status tti_folder_sync(const char *path, tutti_error *error)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "the folder %.300s cannot be opened", path);
    int failed = fsync(fd) == 0 ? 0 : errno;
    (void)close(fd);
    if (failed == 0 || failed == EINVAL) return TUTTI_OK; /* EINVAL: this file system does not support it */
    return tti_error_set(error, TUTTI_ERR_SYSTEM, failed, "the folder %.300s cannot be brought to the disk", path);
}

/* Removes a folder. If it is a link, only the link is removed: its target may belong to somebody else. */
bool tti_folder_remove(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP)) return unlink(path) == 0;
    if (fd < 0) return errno == ENOENT;
    DIR *folder = fdopendir(fd);
    if (folder == NULL) {
        (void)close(fd);
        return false;
    }
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    (void)closedir(folder);
    return rmdir(path) == 0;
}
