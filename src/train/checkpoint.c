/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads checkpoints: finds them, checks them, fills in tensors.
 */
#include "train/checkpoint.h"
#include "train/checkpoint_ranges.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Names ----------------------------------------------------------------------------------------------------- */

const char *tti_hex(uint64_t value, char text[TTI_HEX])
{
    (void)snprintf(text, TTI_HEX, "%016" PRIx64, value);
    return text;
}

void tti_checkpoint_name(const char *folder, uint64_t step, char path[PATH_MAX])
{
    (void)snprintf(path, PATH_MAX, "%s/step-%08" PRIu64, folder, step);
}

/* Returns true if the name is exactly what tti_checkpoint_name makes. */
static bool step_of_name(const char *name, uint64_t *step)
{
    char again[PATH_MAX];
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return false;
    *step = strtoull(name + 5, NULL, 10);
    tti_checkpoint_name(".", *step, again);
    return strcmp(again + 2, name) == 0;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

tutti_status tti_checkpoint_steps(const char *folder, uint64_t **steps, size_t *count, tutti_error *error)
{
    size_t room = 0;
    *steps = NULL;
    *count = 0;
    DIR *entries = opendir(folder);
    if (entries == NULL)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "the folder %.300s cannot be opened", folder);
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        uint64_t step;
        if (!step_of_name(entry->d_name, &step)) continue;
        if (*count == room) {
            room = room == 0 ? 16 : 2 * room;
            uint64_t *more = realloc(*steps, room * sizeof *more);
            if (more == NULL) {
                (void)closedir(entries);
                free(*steps);
                return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a list of %zu checkpoints", room);
            }
            *steps = more;
        }
        (*steps)[(*count)++] = step;
    }
    (void)closedir(entries);
    if (*count > 0) qsort(*steps, *count, sizeof **steps, ascending);
    return TUTTI_OK;
}

/* ---- The index ------------------------------------------------------------------------------------------------- */

bool tti_index_checksum(const json_t *index, char text[TTI_HEX])
{
    char *printed = json_dumps(index, JSON_COMPACT | JSON_SORT_KEYS);
    if (printed == NULL) return false;
    (void)tti_hex(tti_hash(printed, strlen(printed), 0), text);
    free(printed);
    return true;
}

static json_t *refuse_index(tutti_error *error, json_t *json, const char *path, const char *why)
{
    json_decref(json);
    (void)tti_error_set(error, TUTTI_ERR_DAMAGED, 0, "%.300s: %s", path, why);
    return NULL;
}

json_t *tti_index_parse(const char *text, size_t bytes, const char *path, tutti_error *error)
{
    json_t *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    json_t *index = json_object_get(json, "index");
    const char *checksum = json_string_value(json_object_get(json, "checksum"));
    char right[TTI_HEX];
    if (!json_is_object(index) || checksum == NULL) return refuse_index(error, json, path, "it is not an index");
    if (!tti_index_checksum(index, right) || strcmp(checksum, right) != 0)
        return refuse_index(error, json, path, "its checksum is wrong");
    const char *format = json_string_value(json_object_get(index, "format"));
    if (format == NULL || strcmp(format, TTI_CHECKPOINT_FORMAT) != 0)
        return refuse_index(error, json, path, "it is not the index of a checkpoint");
    const json_int_t version = json_integer_value(json_object_get(index, "version"));
    if (version != 1 && version != TTI_CHECKPOINT_VERSION) /* version 1 has one hash for a whole file */
        return refuse_index(error, json, path, "its version is neither 1 nor 2, those that this library knows");
    const json_t *step = json_object_get(index, "step");
    if (!json_is_integer(step) || json_integer_value(step) < 0)
        return refuse_index(error, json, path, "its step is not a whole number of 0 or more");
    json_incref(index);
    json_decref(json);
    return index;
}

static tutti_status read_index(tutti_checkpoint *checkpoint, tutti_error *error)
{
    char path[PATH_MAX + 16];
    uint64_t bytes = 0;
    int fd;
    (void)snprintf(path, sizeof path, "%s/index.json", checkpoint->path);
    TTI_TRY(tti_file_open(path, &fd, &bytes, error));
    tutti_status status = TUTTI_OK;
    char *text = NULL;
    if (bytes > TTI_INDEX_MOST)
        status = tti_error_set(error, TUTTI_ERR_DAMAGED, 0, "%.300s is too large for an index", path);
    if (status == TUTTI_OK) text = tti_calloc(1, (size_t)bytes + 1);
    if (status == TUTTI_OK && text == NULL)
        status = tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%.300s: no memory", path);
    if (status == TUTTI_OK) status = tti_file_read(fd, path, 0, (size_t)bytes, text, error);
    if (status == TUTTI_OK) {
        checkpoint->index = tti_index_parse(text, (size_t)bytes, path, error);
        if (checkpoint->index == NULL) status = error->status;
    }
    (void)close(fd);
    tti_free(text);
    return status;
}

/* Reads a file's row of the index. Names come from a file, so only plain ones are accepted: nothing outside the
 * folder. */
static tutti_status read_row(tutti_checkpoint *checkpoint, const json_t *row, struct tti_checkpoint_file *file,
                             tutti_error *error)
{
    static const char suffix[] = ".safetensors";
    const char *name = json_string_value(json_object_get(row, "name"));
    const bool hashed = json_is_array(json_object_get(row, "hashes")) || json_is_string(json_object_get(row, "hash"));
    size_t length = name == NULL ? 0 : strlen(name), tail = sizeof suffix - 1;
    bool plain = length > tail && length - tail < sizeof file->group && strchr(name, '/') == NULL && name[0] != '.' &&
                 strcmp(name + length - tail, suffix) == 0;
    if (!plain || !hashed)
        return tti_error_set(error, TUTTI_ERR_DAMAGED, 0, "%.300s/index.json: a file's row is not understood",
                             checkpoint->path);
    memcpy(file->group, name, length - tail);
    file->group[length - tail] = '\0';
    file->bytes = (uint64_t)json_integer_value(json_object_get(row, "bytes"));
    file->row = row;
    size_t folder = strlen(checkpoint->path);
    if (folder + 1 + length >= sizeof file->path)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s is too long a path", checkpoint->path);
    memcpy(file->path, checkpoint->path, folder);
    file->path[folder] = '/';
    memcpy(file->path + folder + 1, name, length + 1);
    return TUTTI_OK;
}

static tutti_status open_file(struct tti_checkpoint_file *file, tutti_error *error)
{
    uint64_t bytes = 0;
    TTI_TRY(tti_file_open(file->path, &file->fd, &bytes, error));
    if (bytes == file->bytes) return tti_safetensors_read(file->fd, file->path, &file->tensors, error);
    return tti_error_set(error, TUTTI_ERR_DAMAGED, 0,
                         "%.300s does not have the %" PRIu64 " bytes that it was saved with", file->path, file->bytes);
}

static tutti_status open_files(tutti_checkpoint *checkpoint, tutti_error *error)
{
    const json_t *files = json_object_get(checkpoint->index, "files"), *row;
    size_t i;
    if (json_array_size(files) > TTI_CHECKPOINT_FILES)
        return tti_error_set(error, TUTTI_ERR_DAMAGED, 0, "%.300s/index.json: too many files", checkpoint->path);
    json_array_foreach(files, i, row)
    {
        struct tti_checkpoint_file *file = &checkpoint->files[checkpoint->file_count++];
        file->fd = -1;
        TTI_TRY(read_row(checkpoint, row, file, error));
        TTI_TRY(open_file(file, error));
    }
    return TUTTI_OK;
}

static tutti_status verify_file(int fd, const char *path, uint64_t wanted, tutti_error *error)
{
    uint64_t bytes = 0, hash = 0;
    TTI_TRY(tti_file_hash(fd, path, &bytes, &hash, error));
    if (hash == wanted) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_DAMAGED, 0, "%.300s: its bytes are not those that were saved", path);
}

/* Checks one part of a file against its hash, through a buffer of TTI_PIECE_BYTES. */
static tutti_status verify_part(const struct tti_checkpoint_file *file, uint64_t from, const char *wanted, char *buffer,
                                tutti_error *error)
{
    uint64_t hash = 0;
    for (int i = 0; i < TTI_PART_PIECES && from + (uint64_t)i * TTI_PIECE_BYTES < file->bytes; i++) {
        const uint64_t at = from + (uint64_t)i * TTI_PIECE_BYTES, left = file->bytes - at;
        const size_t count = left < TTI_PIECE_BYTES ? (size_t)left : TTI_PIECE_BYTES;
        TTI_TRY(tti_file_read(file->fd, file->path, at, count, buffer, error));
        hash = tti_hash(buffer, count, hash);
    }
    if (wanted != NULL && hash == strtoull(wanted, NULL, 16)) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_DAMAGED, 0,
                         "%.300s: its bytes are not those that were saved (in the 64 MiB from byte %llu on)",
                         file->path, (unsigned long long)from);
}

static tutti_status verify_parts(const struct tti_checkpoint_file *file, tutti_error *error)
{
    const json_t *hashes = json_object_get(file->row, "hashes");
    const size_t parts = (size_t)((file->bytes + TTI_PART_BYTES - 1) / TTI_PART_BYTES);
    if (hashes == NULL) /* version 1 */
        return verify_file(file->fd, file->path,
                           strtoull(json_string_value(json_object_get(file->row, "hash")), NULL, 16), error);
    if (json_array_size(hashes) != parts)
        return tti_error_set(error, TUTTI_ERR_DAMAGED, 0,
                             "%.300s: the index has not one hash for each of its %zu parts", file->path, parts);
    char *buffer = tti_calloc(1, TTI_PIECE_BYTES);
    if (buffer == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%.300s: no memory to read it", file->path);
    tutti_status status = TUTTI_OK;
    for (size_t i = 0; status == TUTTI_OK && i < parts; i++)
        status = verify_part(file, (uint64_t)i * TTI_PART_BYTES, json_string_value(json_array_get(hashes, i)), buffer,
                             error);
    tti_free(buffer);
    return status;
}

static tutti_status verify_text(const tutti_checkpoint *checkpoint, const json_t *row, tutti_error *error)
{
    const char *name = json_string_value(json_object_get(row, "name"));
    const char *hash = json_string_value(json_object_get(row, "hash"));
    char path[PATH_MAX + 256];
    if (name == NULL || hash == NULL || strchr(name, '/') != NULL || name[0] == '.' || strlen(name) > 200)
        return tti_error_set(error, TUTTI_ERR_DAMAGED, 0, "%.300s/index.json: a text's row is not understood",
                             checkpoint->path);
    (void)snprintf(path, sizeof path, "%s/%s", checkpoint->path, name);
    uint64_t bytes = 0;
    int fd;
    TTI_TRY(tti_file_open(path, &fd, &bytes, error));
    tutti_status status = verify_file(fd, path, strtoull(hash, NULL, 16), error);
    (void)close(fd);
    return status;
}

static tutti_status verify_files(const tutti_checkpoint *checkpoint, tutti_error *error)
{
    const json_t *row;
    size_t i;
    for (i = 0; i < checkpoint->file_count; i++) TTI_TRY(verify_parts(&checkpoint->files[i], error));
    json_array_foreach(json_object_get(checkpoint->index, "texts"), i, row)
        TTI_TRY(verify_text(checkpoint, row, error));
    return TUTTI_OK;
}

static tutti_status open_one(const char *path, bool verify, tutti_checkpoint **checkpoint, tutti_error *error)
{
    tutti_checkpoint *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%.300s: no memory", path);
    (void)snprintf(made->path, sizeof made->path, "%s", path);
    tutti_status status = read_index(made, error);
    if (status == TUTTI_OK) made->step = (uint64_t)json_integer_value(json_object_get(made->index, "step"));
    if (status == TUTTI_OK) status = open_files(made, error);
    if (status == TUTTI_OK && verify) status = verify_files(made, error);
    if (status != TUTTI_OK)
        tutti_checkpoint_free(made);
    else
        *checkpoint = made;
    return status;
}

/* Opens the newest checkpoint that is complete. */
static tutti_status open_newest(const char *folder, bool verify, tutti_checkpoint **checkpoint, tutti_error *error)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    TTI_TRY(tti_checkpoint_steps(folder, &steps, &count, error));
    tutti_status status = TUTTI_ERR_ARGUMENT;
    if (count == 0) (void)tti_error_set(error, status, 0, "there is no checkpoint in %.300s", folder);
    for (size_t i = count; i > 0 && status != TUTTI_OK; i--) {
        char path[PATH_MAX];
        tti_checkpoint_name(folder, steps[i - 1], path);
        status = open_one(path, verify, checkpoint, error);
        if (status == TUTTI_ERR_MEMORY) break;
        if (status != TUTTI_OK)
            tti_log(TUTTI_WARN, "checkpoint %s is damaged%s: %s", path, i > 1 ? ", the one before it is tried" : "",
                    error->text);
    }
    free(steps);
    return status;
}

tutti_status tutti_checkpoint_open(const char *path, bool verify, tutti_checkpoint **checkpoint, tutti_error *error)
{
    char index[PATH_MAX];
    uint64_t step;
    tutti_error unused;
    if (error == NULL) error = &unused;
    if (path == NULL || path[0] == '\0' || checkpoint == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a checkpoint to open needs a path and a place to go");
    const char *slash = strrchr(path, '/');
    bool one = step_of_name(slash == NULL ? path : slash + 1, &step);
    if (snprintf(index, sizeof index, "%s/index.json", path) >= (int)sizeof index)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s is too long a path", path);
    if (one || access(index, F_OK) == 0) return open_one(path, verify, checkpoint, error);
    return open_newest(path, verify, checkpoint, error);
}

void tutti_checkpoint_free(tutti_checkpoint *checkpoint)
{
    if (checkpoint == NULL) return;
    for (size_t i = 0; i < checkpoint->file_count; i++) {
        if (checkpoint->files[i].fd >= 0) (void)close(checkpoint->files[i].fd);
        tti_safetensors_free(&checkpoint->files[i].tensors);
    }
    json_decref(checkpoint->index);
    tti_free(checkpoint);
}

/* ---- What is in it --------------------------------------------------------------------------------------------- */

const char *tutti_checkpoint_path(const tutti_checkpoint *checkpoint)
{
    return checkpoint->path;
}

uint64_t tutti_checkpoint_step(const tutti_checkpoint *checkpoint)
{
    return checkpoint->step;
}

uint64_t tutti_checkpoint_bytes(const tutti_checkpoint *checkpoint)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < checkpoint->file_count; i++) bytes += checkpoint->files[i].bytes;
    return bytes;
}

const char *tutti_checkpoint_note(const tutti_checkpoint *checkpoint, const char *name)
{
    return json_string_value(json_object_get(json_object_get(checkpoint->index, "notes"), name));
}

const struct tti_checkpoint_file *tti_checkpoint_group(const tutti_checkpoint *checkpoint, const char *group)
{
    for (size_t i = 0; i < checkpoint->file_count; i++)
        if (strcmp(checkpoint->files[i].group, group) == 0) return &checkpoint->files[i];
    return NULL;
}

/* Returns the first tensor of the file that was not asked for; there is one. */
static const char *find_extra(const struct tti_checkpoint_file *file, const tutti_checkpoint_tensor *tensors,
                              size_t count)
{
    for (size_t i = 0; i < file->tensors.count; i++) {
        size_t j = 0;
        while (j < count && (strcmp(tensors[j].group, file->group) != 0 ||
                             strcmp(tensors[j].name, file->tensors.tensors[i].name) != 0))
            j++;
        if (j == count) return file->tensors.tensors[i].name;
    }
    return "?";
}

static tutti_status check_tensor(const struct tti_checkpoint_file *file, const tutti_checkpoint_tensor *tensor,
                                 const struct tti_safetensor **found, tutti_error *error)
{
    char has[TTI_SHAPE_TEXT], wants[TTI_SHAPE_TEXT];
    *found = tti_safetensors_find(&file->tensors, tensor->name);
    if (*found == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.240s is of another model: it has no tensor \"%.64s\"",
                             file->path, tensor->name);
    bool same = (*found)->dimensions == tensor->dimensions;
    for (int i = 0; same && i < tensor->dimensions; i++) same = (*found)->shape[i] == tensor->shape[i];
    if (same) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "%.200s is of another model: its tensor \"%.64s\" is %s, the model's is %s", file->path,
                         tensor->name, tti_shape_text((*found)->dimensions, (*found)->shape, has),
                         tti_shape_text(tensor->dimensions, tensor->shape, wants));
}

static bool is_whole(const tutti_checkpoint_tensor *tensor)
{
    return tensor->group != NULL && tensor->name != NULL && tensor->dimensions >= 0 &&
           tensor->dimensions <= TUTTI_DIMENSIONS_MAX;
}

tutti_status tti_checkpoint_has(const tutti_checkpoint *checkpoint, const tutti_checkpoint_tensor *tensors,
                                size_t count, tutti_error *error)
{
    for (size_t i = 0; i < count; i++)
        if (!is_whole(&tensors[i]))
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                                 "tensor %zu to load has no group or name, or more than 4 dimensions", i);
    for (size_t i = 0; i < count; i++) {
        const struct tti_checkpoint_file *file = tti_checkpoint_group(checkpoint, tensors[i].group);
        const struct tti_safetensor *found;
        if (file == NULL)
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s has no %s.safetensors", checkpoint->path,
                                 tensors[i].group);
        TTI_TRY(check_tensor(file, &tensors[i], &found, error));
        size_t of_group = 0;
        for (size_t j = 0; j < count; j++) of_group += strcmp(tensors[j].group, file->group) == 0;
        if (of_group < file->tensors.count)
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                                 "%.240s is of another model: it has %zu tensors, such as \"%.64s\", the model has %zu",
                                 file->path, file->tensors.count, find_extra(file, tensors, count), of_group);
    }
    return TUTTI_OK;
}

tutti_status tti_checkpoint_read(const tutti_checkpoint *checkpoint, const tutti_checkpoint_tensor *tensor,
                                 size_t first, size_t count, float *to, tutti_error *error)
{
    const struct tti_checkpoint_file *file = tti_checkpoint_group(checkpoint, tensor->group);
    const struct tti_safetensor *found = tti_safetensors_find(&file->tensors, tensor->name);
    return tti_file_read(file->fd, file->path, found->begin + first * sizeof(float), count * sizeof(float), to, error);
}

/* Checks everything before it changes the first value. */
tutti_status tutti_checkpoint_load(const tutti_checkpoint *checkpoint, const tutti_checkpoint_tensor *tensors,
                                   size_t tensor_count, tutti_error *error)
{
    for (size_t i = 0; i < tensor_count; i++)
        if (tensors[i].values == NULL)
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "tensor %zu to load has no values to go to", i);
    TTI_TRY(tti_checkpoint_has(checkpoint, tensors, tensor_count, error));
    for (size_t i = 0; i < tensor_count; i++) {
        const size_t count = tti_tensor_elements(tensors[i].dimensions, tensors[i].shape);
        TTI_TRY(tti_checkpoint_read(checkpoint, &tensors[i], 0, count, tensors[i].values, error));
    }
    return TUTTI_OK;
}

tutti_status tutti_checkpoint_list(const char *folder, void (*each)(void *context, const char *path), void *context,
                                   tutti_error *error)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    if (folder == NULL || folder[0] == '\0' || each == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a list of checkpoints needs a folder, and whom to tell");
    TTI_TRY(tti_checkpoint_steps(folder, &steps, &count, error));
    for (size_t i = 0; i < count; i++) {
        char path[PATH_MAX];
        tti_checkpoint_name(folder, steps[i], path);
        each(context, path);
    }
    free(steps);
    return TUTTI_OK;
}
