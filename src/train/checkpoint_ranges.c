/* SPDX-License-Identifier: Apache-2.0 */
#include "train/checkpoint_ranges.h"

#include "base/status.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Plans ----------------------------------------------------------------------------------------------------- */

static uint64_t tensor_bytes(const tutti_checkpoint_tensor *tensor)
{
    return tti_tensor_elements(tensor->dimensions, tensor->shape) * sizeof(float);
}

static tutti_status plan_file(struct tti_range_plan *plan, const tutti_checkpoint_tensor *tensors, size_t count,
                              tutti_error *error)
{
    struct tti_range_file *file = &plan->files[plan->file_count];
    *file = (struct tti_range_file){.tensors = tensors, .count = count, .first_part = plan->parts};
    (void)snprintf(file->name, sizeof file->name, "%s.safetensors", tensors[0].group);
    file->header = tti_safetensors_header(tensors, count, &file->header_bytes);
    if (file->header == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%s: no memory for its header", file->name);
    file->bytes = file->header_bytes;
    for (size_t i = 0; i < count; i++) file->bytes += tensor_bytes(&tensors[i]);
    file->parts = (size_t)((file->bytes + TTI_PART_BYTES - 1) / TTI_PART_BYTES);
    plan->parts += file->parts;
    plan->file_count++;
    return TUTTI_OK;
}

tutti_status tti_range_plan_make(const struct tti_checkpoint_content *content, struct tti_range_plan *plan,
                                 tutti_error *error)
{
    const tutti_checkpoint_tensor *tensors = content->tensors;
    *plan = (struct tti_range_plan){0};
    for (size_t from = 0, to; from < content->tensor_count; from = to) {
        for (to = from; to < content->tensor_count && strcmp(tensors[to].group, tensors[from].group) == 0; to++) {}
        tutti_status status = plan_file(plan, tensors + from, to - from, error);
        if (status == TUTTI_OK) continue;
        tti_range_plan_free(plan);
        return status;
    }
    return TUTTI_OK;
}

void tti_range_plan_free(struct tti_range_plan *plan)
{
    for (size_t i = 0; i < plan->file_count; i++) free(plan->files[i].header);
    *plan = (struct tti_range_plan){0};
}

size_t tti_range_rounds(const struct tti_range_plan *plan, int size)
{
    return (plan->parts + (size_t)size - 1) / (size_t)size;
}

struct tti_range_piece tti_range_piece(const struct tti_range_plan *plan, int rank, int size, size_t round,
                                       size_t piece)
{
    const size_t part = round * (size_t)size + (size_t)rank;
    const struct tti_range_file *file = plan->files;
    if (part >= plan->parts) return (struct tti_range_piece){0};
    while (part >= file->first_part + file->parts) file++;
    const uint64_t from = (uint64_t)(part - file->first_part) * TTI_PART_BYTES + (uint64_t)piece * TTI_PIECE_BYTES;
    if (from >= file->bytes) return (struct tti_range_piece){0};
    const uint64_t to = from + TTI_PIECE_BYTES < file->bytes ? from + TTI_PIECE_BYTES : file->bytes;
    return (struct tti_range_piece){file, part, from, to};
}

void tti_range_walk(const struct tti_range_piece *piece, tti_range_run *run, void *context)
{
    uint64_t begin = piece->file->header_bytes;
    for (size_t i = 0; i < piece->file->count && begin < piece->to; i++) {
        const uint64_t end = begin + tensor_bytes(&piece->file->tensors[i]);
        const uint64_t lo = begin > piece->from ? begin : piece->from, hi = end < piece->to ? end : piece->to;
        if (lo < hi)
            run(context, &piece->file->tensors[i], (size_t)(lo - begin) / sizeof(float),
                (size_t)(hi - lo) / sizeof(float), (size_t)(lo - piece->from));
        begin = end;
    }
}

void tti_range_header(const struct tti_range_piece *piece, char *bytes)
{
    const uint64_t end = piece->file->header_bytes < piece->to ? piece->file->header_bytes : piece->to;
    if (piece->from < end) memcpy(bytes, piece->file->header + piece->from, (size_t)(end - piece->from));
}

/* ---- Writing --------------------------------------------------------------------------------------------------- */

static tutti_status close_file(struct tti_range_writer *writer, tutti_error *error)
{
    if (writer->file == NULL) return TUTTI_OK;
    int failed = fsync(writer->fd) == 0 ? 0 : errno;
    if (close(writer->fd) != 0 && failed == 0) failed = errno;
    const char *name = writer->file->name;
    writer->file = NULL;
    if (failed == 0) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_SYSTEM, failed, "%.300s/%s cannot be brought to the disk", writer->folder,
                         name);
}

static tutti_status open_file(struct tti_range_writer *writer, const struct tti_range_file *file, tutti_error *error)
{
    char path[PATH_MAX + 160];
    if (writer->file == file) return TUTTI_OK;
    TTI_TRY(close_file(writer, error));
    (void)snprintf(path, sizeof path, "%s/%s", writer->folder, file->name);
    writer->fd = open(path, O_WRONLY | O_CLOEXEC);
    if (writer->fd < 0) return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "%.300s cannot be written to", path);
    writer->file = file;
    return TUTTI_OK;
}

tutti_status tti_range_put(struct tti_range_writer *writer, const struct tti_range_piece *piece, const char *bytes,
                           tutti_error *error)
{
    const size_t count = (size_t)(piece->to - piece->from);
    TTI_TRY(open_file(writer, piece->file, error));
    writer->hashes[piece->part] = tti_hash(bytes, count, writer->hashes[piece->part]);
    for (size_t done = 0; done < count;) {
        ssize_t more = pwrite(writer->fd, bytes + done, count - done, (off_t)(piece->from + done));
        if (more < 0 && errno == EINTR) continue;
        if (more < 0)
            return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "%.300s/%s cannot be written after %llu bytes",
                                 writer->folder, piece->file->name, (unsigned long long)(piece->from + done));
        done += (size_t)more;
    }
    /* a wish; it may fail */
    (void)sync_file_range(writer->fd, (off_t)piece->from, (off_t)count, SYNC_FILE_RANGE_WRITE);
    return TUTTI_OK;
}

tutti_status tti_range_close(struct tti_range_writer *writer, tutti_error *error)
{
    return close_file(writer, error);
}
