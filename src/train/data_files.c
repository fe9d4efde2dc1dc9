/* SPDX-License-Identifier: Apache-2.0
 *
 * Files as tokens: the bytes of a file or of all files of a folder, one after the other by name, or ids of 16 or 32
 * bits in the machine's byte order. All files are mapped, not read.
 */
#include "train/data.h"

#include "base/alloc.h"
#include "base/status.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- One file -------------------------------------------------------------------------------------------------- */

static tutti_status map_open(int fd, const char *path, struct tti_file *file, tutti_error *error)
{
    struct stat about;
    if (fstat(fd, &about) != 0)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "data: %.300s cannot be examined", path);
    if (S_ISDIR(about.st_mode))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "data: %.300s is a folder; one file is needed", path);
    if (!S_ISREG(about.st_mode))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "data: %.300s is neither a file nor a folder", path);
    if (about.st_size == 0) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "data: %.300s is empty", path);
    void *bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "data: %.300s cannot be mapped", path);
    *file = (struct tti_file){
        .bytes = bytes, .count = (size_t)about.st_size, .device = about.st_dev, .number = about.st_ino};
    file->path = tti_alloc_allowed() ? strdup(path) : NULL;
    if (file->path != NULL) return TUTTI_OK;
    tti_file_unmap(file);
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "data: no memory for the name of %.300s", path);
}

tutti_status tti_file_map(const char *path, struct tti_file *file, tutti_error *error)
{
    *file = (struct tti_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "data: %.300s cannot be read", path);
    tutti_status status = map_open(fd, path, file, error);
    (void)close(fd);
    return status;
}

void tti_file_unmap(struct tti_file *file)
{
    if (file->bytes != NULL) (void)munmap((void *)(uintptr_t)file->bytes, file->count);
    free(file->path);
    *file = (struct tti_file){0};
}

/* Checks that the file is still as long as it was: touching bytes that a file has lost would kill the process. Called
 * before a stretch is read; a file that shrinks in just that moment is not noticed in time. */
static tutti_status check_length(const struct tti_file *file, tutti_error *error)
{
    struct stat about;
    if (stat(file->path, &about) != 0 || about.st_dev != file->device || about.st_ino != file->number)
        return TUTTI_OK; /* the name is gone, or is another file's; the mapped file stays */
    if ((size_t)about.st_size >= file->count) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_DAMAGED, 0,
                         "data: %.300s has shrunk from %zu to %zu bytes while it was read; data must stay as they are "
                         "until training has ended",
                         file->path, file->count, (size_t)about.st_size);
}

/* ---- Bytes ----------------------------------------------------------------------------------------------------- */

struct bytes {
    size_t count, room;
    struct tti_file *files; /* [count] */
    size_t *starts;         /* [count] the first token of each file */
};

static void bytes_free(struct bytes *bytes)
{
    if (bytes == NULL) return;
    for (size_t i = 0; i < bytes->count; i++) tti_file_unmap(&bytes->files[i]);
    free(bytes->files);
    free(bytes->starts);
    tti_free(bytes);
}

static void bytes_close(struct tti_source *source)
{
    bytes_free(source->state);
}

static tutti_status bytes_read(const struct tti_source *source, size_t at, size_t count, int32_t *tokens,
                               tutti_error *error)
{
    const struct bytes *bytes = source->state;
    size_t low = 0, high = bytes->count; /* `low` becomes the file that holds `at` */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (bytes->starts[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    for (size_t done = 0; done < count; low++) {
        const struct tti_file *file = &bytes->files[low];
        size_t from = at + done - bytes->starts[low], left = file->count - from;
        size_t part = left < count - done ? left : count - done;
        TTI_TRY(check_length(file, error));
        for (size_t i = 0; i < part; i++) tokens[done + i] = file->bytes[from + i];
        done += part;
    }
    return TUTTI_OK;
}

static tutti_status add_file(struct bytes *bytes, const char *path, size_t *length, tutti_error *error)
{
    if (bytes->count == bytes->room) {
        size_t room = bytes->room == 0 ? 16 : 2 * bytes->room;
        struct tti_file *files = realloc(bytes->files, room * sizeof *files);
        if (files != NULL) bytes->files = files;
        size_t *starts = realloc(bytes->starts, room * sizeof *starts);
        if (starts != NULL) bytes->starts = starts;
        if (files == NULL || starts == NULL)
            return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "data: no memory for a list of %zu files", room);
        bytes->room = room;
    }
    TTI_TRY(tti_file_map(path, &bytes->files[bytes->count], error));
    bytes->starts[bytes->count] = *length;
    *length += bytes->files[bytes->count].count;
    bytes->count++;
    return TUTTI_OK;
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* alphasort is not used, since it follows the locale */
}

static tutti_status add_folder(struct bytes *bytes, const char *path, size_t *length, tutti_error *error);

/* Adds an entry of a folder. Empty files have no tokens; links are not followed, so that nothing is read twice. */
static tutti_status add_entry(struct bytes *bytes, const char *path, size_t *length, tutti_error *error)
{
    struct stat about;
    if (lstat(path, &about) != 0)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "data: %.300s cannot be examined", path);
    if (S_ISDIR(about.st_mode)) return add_folder(bytes, path, length, error);
    if (!S_ISREG(about.st_mode) || about.st_size == 0) return TUTTI_OK;
    return add_file(bytes, path, length, error);
}

static tutti_status add_folder(struct bytes *bytes, const char *path, size_t *length, tutti_error *error)
{
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, visible, by_bytes);
    if (count < 0) return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "data: the folder %.300s cannot be read", path);
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < count; i++) {
        char inner[PATH_MAX];
        int used = snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        free(entries[i]);
        if (status != TUTTI_OK) continue;
        status = used < (int)sizeof inner
                     ? add_entry(bytes, inner, length, error)
                     : tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "data: a path below %.300s is too long", path);
    }
    free(entries);
    return status;
}

tutti_status tti_source_bytes(const char *text, struct tti_source *source, tutti_error *error)
{
    struct stat about;
    if (stat(text, &about) != 0)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "data: %.300s cannot be opened", text);
    struct bytes *bytes = tti_calloc(1, sizeof *bytes);
    if (bytes == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "data: no memory");
    size_t length = 0;
    tutti_status status = S_ISDIR(about.st_mode) ? add_folder(bytes, text, &length, error)
                                                 : add_file(bytes, text, &length, error);
    if (status == TUTTI_OK && length == 0)
        status = tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                               "data: the folder %.300s holds no bytes (names that begin with a dot are passed over)",
                               text);
    if (status != TUTTI_OK) {
        bytes_free(bytes);
        return status;
    }
    *source = (struct tti_source){
        .length = length, .vocabulary = 256, .entropy = NAN, .read = bytes_read, .close = bytes_close, .state = bytes};
    return TUTTI_OK;
}

/* ---- Token ids ------------------------------------------------------------------------------------------------- */

static void ids_close(struct tti_source *source)
{
    tti_file_unmap(source->state);
    tti_free(source->state);
}

static tutti_status u16_read(const struct tti_source *source, size_t at, size_t count, int32_t *tokens,
                             tutti_error *error)
{
    const struct tti_file *file = source->state;
    TTI_TRY(check_length(file, error));
    for (size_t i = 0; i < count; i++) {
        uint16_t id;
        memcpy(&id, file->bytes + (at + i) * sizeof id, sizeof id);
        tokens[i] = id;
    }
    return TUTTI_OK;
}

static tutti_status u32_read(const struct tti_source *source, size_t at, size_t count, int32_t *tokens,
                             tutti_error *error)
{
    const struct tti_file *file = source->state;
    TTI_TRY(check_length(file, error));
    for (size_t i = 0; i < count; i++) {
        uint32_t id;
        memcpy(&id, file->bytes + (at + i) * sizeof id, sizeof id);
        tokens[i] = (int32_t)id; /* negative if it is no token; this is found when the source is opened */
    }
    return TUTTI_OK;
}

/* Finds the vocabulary: the largest id plus one. */
static tutti_status measure(struct tti_source *source, const char *path, tutti_error *error)
{
    enum { STRETCH = 4096 };
    int32_t tokens[STRETCH], largest = 0;
    for (size_t at = 0; at < source->length; at += STRETCH) {
        size_t count = source->length - at < STRETCH ? source->length - at : STRETCH;
        TTI_TRY(source->read(source, at, count, tokens, error));
        for (size_t i = 0; i < count; i++) {
            if (tokens[i] < 0)
                return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "data: %.300s: token %zu is %u, too large for an id",
                                     path, at + i, (unsigned)tokens[i]);
            if (tokens[i] > largest) largest = tokens[i];
        }
    }
    source->vocabulary = (size_t)largest + 1;
    return TUTTI_OK;
}

static tutti_status open_ids(const char *path, size_t bytes_each, struct tti_source *source, tutti_error *error)
{
    struct tti_file *file = tti_calloc(1, sizeof *file);
    if (file == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "data: no memory");
    *source = (struct tti_source){.entropy = NAN, .close = ids_close, .state = file};
    source->read = bytes_each == 2 ? u16_read : u32_read;
    tutti_status status = tti_file_map(path, file, error);
    if (status == TUTTI_OK && file->count % bytes_each != 0)
        status = tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "data: %.300s has %zu bytes, no multiple of %zu", path,
                               file->count, bytes_each);
    source->length = file->count / bytes_each;
    if (status == TUTTI_OK) status = measure(source, path, error);
    if (status != TUTTI_OK) {
        ids_close(source);
        *source = (struct tti_source){0};
    }
    return status;
}

tutti_status tti_source_u16(const char *text, struct tti_source *source, tutti_error *error)
{
    return open_ids(text, 2, source, error);
}

tutti_status tti_source_u32(const char *text, struct tti_source *source, tutti_error *error)
{
    return open_ids(text, 4, source, error);
}
