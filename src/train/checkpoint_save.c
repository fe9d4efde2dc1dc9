/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes checkpoints.
 *
 * Invariant: a folder named step-… is complete. Everything is written into a folder of another name and brought to the
 * disk; then one rename, which either happens or does not, gives it its name (and swaps it with an older one of the
 * same step). If the process ends before that, a folder .saving-… remains, which the next save removes.
 */
#include "train/checkpoint.h"
#include "train/checkpoint_ranges.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_ROOM = PATH_MAX + 128 };

/* ---- Files ----------------------------------------------------------------------------------------------------- */

static tutti_status no_memory(tutti_error *error, const struct tti_saving *save)
{
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%.300s: no memory to save it", save->target);
}

static tutti_status add_row(const struct tti_saving *save, json_t *rows, const char *name, uint64_t bytes,
                            uint64_t hash, tutti_error *error)
{
    char hex[TTI_HEX];
    json_t *row = json_pack("{s:s, s:I, s:s}", "name", name, "bytes", (json_int_t)bytes, "hash", tti_hex(hash, hex));
    return json_array_append_new(rows, row) == 0 ? TUTTI_OK : no_memory(error, save);
}

/* Makes an empty file of a group: ranks write ranges of it. */
static tutti_status make_file(const struct tti_saving *save, const struct tti_range_file *file, tutti_error *error)
{
    char path[NAME_ROOM];
    (void)snprintf(path, sizeof path, "%s/%s", save->working, file->name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "%.300s cannot be made", path);
    (void)close(fd);
    return TUTTI_OK;
}

/* Adds a file's name, bytes and hashes of its parts to the index. */
static tutti_status add_file(const struct tti_saving *save, const struct tti_range_file *file, const uint64_t *hashes,
                             tutti_error *error)
{
    char hex[TTI_HEX];
    json_t *list = json_array();
    bool made = list != NULL;
    for (size_t i = 0; i < file->parts && made; i++)
        made = json_array_append_new(list, json_string(tti_hex(hashes[file->first_part + i], hex))) == 0;
    json_t *row = json_pack("{s:s, s:I, s:o}", "name", file->name, "bytes", (json_int_t)file->bytes, "hashes", list);
    return made && json_array_append_new(save->files, row) == 0 ? TUTTI_OK : no_memory(error, save);
}

/* Writes one small file at once. */
static tutti_status save_text(struct tti_saving *save, const char *name, const char *text, uint64_t *hash,
                              tutti_error *error)
{
    char path[NAME_ROOM];
    struct tti_writer writer;
    (void)snprintf(path, sizeof path, "%s/%s", save->working, name);
    tutti_status status = tti_writer_open(&writer, path, error);
    if (status == TUTTI_OK) status = tti_writer_put(&writer, text, strlen(text), error);
    if (status == TUTTI_OK) status = tti_writer_put(&writer, "\n", 1, error);
    if (status == TUTTI_OK) status = tti_writer_finish(&writer, hash, error);
    tti_writer_abandon(&writer);
    return status;
}

static tutti_status save_texts(struct tti_saving *save, tutti_error *error)
{
    for (size_t i = 0; i < save->content->text_count; i++) {
        const struct tti_checkpoint_text *text = &save->content->texts[i];
        uint64_t hash = 0;
        TTI_TRY(save_text(save, text->name, text->text, &hash, error));
        TTI_TRY(add_row(save, save->texts, text->name, strlen(text->text) + 1, hash, error));
    }
    return TUTTI_OK;
}

static json_t *make_notes(const struct tti_checkpoint_content *content)
{
    json_t *list = json_object();
    for (size_t i = 0; i < content->note_count; i++)
        if (json_object_set_new(list, content->notes[i].name, tti_note_json(content->notes[i].value)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *make_index(const struct tti_saving *save)
{
    char checksum[TTI_HEX];
    json_t *index = json_pack("{s:s, s:i, s:I, s:o, s:O, s:O}", "format", TTI_CHECKPOINT_FORMAT, "version",
                              TTI_CHECKPOINT_VERSION, "step", (json_int_t)save->step, "notes",
                              make_notes(save->content), "files", save->files, "texts", save->texts);
    if (index == NULL || !tti_index_checksum(index, checksum)) {
        json_decref(index);
        return NULL;
    }
    return json_pack("{s:s, s:o}", "checksum", checksum, "index", index);
}

static tutti_status save_index(struct tti_saving *save, tutti_error *error)
{
    uint64_t hash = 0;
    json_t *index = make_index(save);
    char *text = index == NULL ? NULL : json_dumps(index, JSON_INDENT(2));
    json_decref(index);
    if (text == NULL) return no_memory(error, save);
    tutti_status status = TUTTI_OK;
    if (strlen(text) >= TTI_INDEX_MOST)
        status = tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s: its notes take more than %d bytes", save->target,
                               TTI_INDEX_MOST);
    if (status == TUTTI_OK) status = save_text(save, "index.json", text, &hash, error);
    free(text);
    return status;
}

/* ---- Folders --------------------------------------------------------------------------------------------------- */

/* Removes the folders that earlier saves left. Two savers cannot meet here, since the folder is locked. */
static void remove_leftovers(const char *folder)
{
    static const char prefix[] = TTI_SAVING_PREFIX;
    DIR *entries = opendir(folder);
    if (entries == NULL) return;
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        char path[NAME_ROOM + 256];
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0) continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (unlink(path) != 0) (void)tti_folder_remove(path);
    }
    (void)closedir(entries);
}

static tutti_status commit(const struct tti_saving *save, tutti_error *error)
{
    TTI_TRY(tti_folder_sync(save->working, error));
    if (renameat2(AT_FDCWD, save->working, AT_FDCWD, save->target, RENAME_NOREPLACE) != 0) {
        bool there = errno == EEXIST;
        if (!there && errno == EINVAL) there = access(save->target, F_OK) == 0; /* there is no RENAME_NOREPLACE here */
        int swapped = there ? renameat2(AT_FDCWD, save->working, AT_FDCWD, save->target, RENAME_EXCHANGE)
                            : rename(save->working, save->target);
        if (swapped != 0)
            return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "%.300s cannot be given its name", save->target);
        if (there) (void)tti_folder_remove(save->working); /* `working` is the older one now */
    }
    return tti_folder_sync(save->folder, error);
}

/* Removes a checkpoint. It loses its name first, so that a folder with such a name is complete even if the process ends
 * here. */
static bool remove_one(const struct tti_saving *save, uint64_t step)
{
    char path[PATH_MAX];
    tti_checkpoint_name(save->folder, step, path);
    return rename(path, save->working) == 0 && tti_folder_remove(save->working);
}

/* Removes all but the last keep - 1 checkpoints before this step. A folder that cannot be removed is logged and
 * left. */
static void remove_old(const struct tti_saving *save, int keep)
{
    uint64_t *steps = NULL;
    size_t count = 0, older = 0;
    tutti_error error;
    if (keep <= 0 || tti_checkpoint_steps(save->folder, &steps, &count, &error) != TUTTI_OK) return;
    while (older < count && steps[older] < save->step) older++;
    for (size_t i = 0; i + (size_t)keep - 1 < older; i++) {
        if (!remove_one(save, steps[i]))
            tti_log(TUTTI_WARN, "the old checkpoint of step %" PRIu64 " in %s cannot be removed: %m", steps[i],
                    save->folder);
    }
    free(steps);
}

tutti_status tti_checkpoint_folder(const char *folder, tutti_error *error)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "the folder %.300s cannot be made", folder);
    if (access(folder, W_OK | X_OK) == 0) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "nothing can be saved into the folder %.300s", folder);
}

tutti_status tti_checkpoint_lock(const char *folder, int *lock, tutti_error *error)
{
    *lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0) return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "the folder %.300s cannot be opened", folder);
    if (flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return TUTTI_OK;
    (void)close(*lock);
    *lock = -1;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "another run saves into %.300s; give each a folder of its own, or wait for its end", folder);
}

tutti_status tti_saving_make(const char *folder, uint64_t step, const struct tti_checkpoint_content *content,
                             struct tti_saving *saving, tutti_error *error)
{
    *saving = (struct tti_saving){.folder = folder, .step = step, .content = content, .lock = -1};
    if (folder == NULL || folder[0] == '\0')
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a checkpoint needs a folder");
    if (strlen(folder) > PATH_MAX - 128)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s is too long a path", folder);
    if (step > INT64_MAX) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "step %" PRIu64 " is too large", step);
    TTI_TRY(tti_checkpoint_check(content, error));
    tti_checkpoint_name(folder, step, saving->target);
    (void)snprintf(saving->working, sizeof saving->working, "%s/" TTI_SAVING_PREFIX "%08" PRIu64, folder, step);
    saving->plan = tti_calloc(1, sizeof *saving->plan);
    if (saving->plan == NULL) return no_memory(error, saving);
    return tti_range_plan_make(content, saving->plan, error);
}

tutti_status tti_saving_open(struct tti_saving *saving, tutti_error *error)
{
    TTI_TRY(tti_checkpoint_folder(saving->folder, error));
    if (!saving->content->locked) TTI_TRY(tti_checkpoint_lock(saving->folder, &saving->lock, error));
    remove_leftovers(saving->folder);
    if (mkdir(saving->working, 0777) != 0)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "the folder %.300s cannot be made", saving->working);
    saving->open = true;
    saving->files = json_array();
    saving->texts = json_array();
    for (size_t i = 0; i < saving->plan->file_count; i++) TTI_TRY(make_file(saving, &saving->plan->files[i], error));
    return save_texts(saving, error);
}

tutti_status tti_saving_commit(struct tti_saving *saving, const uint64_t *hashes, int keep, tutti_error *error)
{
    for (size_t i = 0; i < saving->plan->file_count; i++)
        TTI_TRY(add_file(saving, &saving->plan->files[i], hashes, error));
    TTI_TRY(save_index(saving, error));
    TTI_TRY(commit(saving, error));
    saving->open = false;
    remove_old(saving, keep);
    return TUTTI_OK;
}

void tti_saving_end(struct tti_saving *saving)
{
    json_decref(saving->files);
    json_decref(saving->texts);
    if (saving->open) (void)tti_folder_remove(saving->working);
    if (saving->lock >= 0) (void)close(saving->lock);
    if (saving->plan != NULL) tti_range_plan_free(saving->plan);
    tti_free(saving->plan);
}

/* ---- All of it by one ------------------------------------------------------------------------------------------ */

static void copy_run(void *context, const tutti_checkpoint_tensor *tensor, size_t first, size_t count, size_t at)
{
    memcpy((char *)context + at, tensor->values + first, count * sizeof(float));
}

static tutti_status write_all(const struct tti_saving *saving, uint64_t *hashes, char *bytes, tutti_error *error)
{
    struct tti_range_writer writer = {.folder = saving->working, .hashes = hashes};
    tutti_status status = TUTTI_OK;
    for (size_t i = 0; status == TUTTI_OK && i < saving->plan->parts * TTI_PART_PIECES; i++) {
        const struct tti_range_piece piece = tti_range_piece(saving->plan, 0, 1, i / TTI_PART_PIECES,
                                                             i % TTI_PART_PIECES);
        if (piece.file == NULL) continue;
        tti_range_header(&piece, bytes);
        tti_range_walk(&piece, copy_run, bytes);
        status = tti_range_put(&writer, &piece, bytes, error);
    }
    tutti_error unused;
    tutti_status closed = tti_range_close(&writer, status == TUTTI_OK ? error : &unused);
    return status == TUTTI_OK ? closed : status;
}

static tutti_status save_alone(struct tti_saving *saving, int keep, tutti_error *error)
{
    TTI_TRY(tti_saving_open(saving, error));
    uint64_t *hashes = tti_calloc(saving->plan->parts + 1, sizeof *hashes);
    char *bytes = tti_calloc(1, TTI_PIECE_BYTES);
    tutti_status status = hashes == NULL || bytes == NULL ? no_memory(error, saving) : TUTTI_OK;
    if (status == TUTTI_OK) status = write_all(saving, hashes, bytes, error);
    if (status == TUTTI_OK) status = tti_saving_commit(saving, hashes, keep, error);
    tti_free(hashes);
    tti_free(bytes);
    return status;
}

tutti_status tutti_checkpoint_save(const char *folder, uint64_t step, int keep, const tutti_note *notes,
                                   size_t note_count, const tutti_checkpoint_tensor *tensors, size_t tensor_count,
                                   tutti_error *error)
{
    struct tti_checkpoint_content content = {
        .notes = notes, .note_count = note_count, .tensors = tensors, .tensor_count = tensor_count};
    struct tti_saving saving;
    tutti_status status = tti_saving_make(folder, step, &content, &saving, error);
    if (status == TUTTI_OK) status = save_alone(&saving, keep, error);
    tti_saving_end(&saving);
    return status;
}
