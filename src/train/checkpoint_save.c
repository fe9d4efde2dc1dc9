/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing checkpoints.
 *
 * Invariant: a folder named step-… is whole. Everything is written into a folder of another name and brought to the
 * disk; then one rename, which either happens or does not, gives it its name (and swaps it with an older one of the
 * same step). Whatever stops us before leaves a folder .saving-…, which the next save removes.
 */
#include "train/checkpoint.h"

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

struct save {
    const char *folder;
    uint64_t step;
    char target[PATH_MAX], working[PATH_MAX];
    const struct tti_checkpoint_content *content;
    json_t *files, *texts;
};

/* ---- Files ----------------------------------------------------------------------------------------------------- */

static tutti_status no_memory(tutti_error *error, const struct save *save)
{
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%.300s: no memory to save it", save->target);
}

static tutti_status add_row(const struct save *save, json_t *rows, const char *name, uint64_t bytes, uint64_t hash,
                            tutti_error *error)
{
    char hex[TTI_HEX];
    json_t *row = json_pack("{s:s, s:I, s:s}", "name", name, "bytes", (json_int_t)bytes, "hash", tti_hex(hash, hex));
    return json_array_append_new(rows, row) == 0 ? TUTTI_OK : no_memory(error, save);
}

static tutti_status save_group(struct save *save, const tutti_checkpoint_tensor *tensors, size_t count,
                               tutti_error *error)
{
    char path[NAME_ROOM], name[128];
    struct tti_writer writer;
    uint64_t hash = 0;
    (void)snprintf(name, sizeof name, "%s.safetensors", tensors[0].group);
    (void)snprintf(path, sizeof path, "%s/%s", save->working, name);
    tutti_status status = tti_writer_open(&writer, path, error);
    if (status == TUTTI_OK) status = tti_safetensors_write(&writer, tensors, count, error);
    if (status == TUTTI_OK) status = tti_writer_finish(&writer, &hash, error);
    if (status == TUTTI_OK) status = add_row(save, save->files, name, writer.bytes, hash, error);
    tti_writer_abandon(&writer);
    return status;
}

static tutti_status save_groups(struct save *save, tutti_error *error)
{
    const tutti_checkpoint_tensor *tensors = save->content->tensors;
    const size_t count = save->content->tensor_count;
    for (size_t from = 0, to; from < count; from = to) {
        for (to = from; to < count && strcmp(tensors[to].group, tensors[from].group) == 0; to++) {}
        TTI_TRY(save_group(save, tensors + from, to - from, error));
    }
    return TUTTI_OK;
}

/* One small file in one go. */
static tutti_status save_text(struct save *save, const char *name, const char *text, uint64_t *hash, tutti_error *error)
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

static tutti_status save_texts(struct save *save, tutti_error *error)
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

static json_t *make_index(const struct save *save)
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

static tutti_status save_index(struct save *save, tutti_error *error)
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

/* What an earlier save left. Two savers cannot meet here: the folder is locked. */
static void remove_leftovers(const char *folder)
{
    static const char prefix[] = ".saving-";
    DIR *entries = opendir(folder);
    if (entries == NULL) return;
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        char path[NAME_ROOM + 256];
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0) continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        (void)tti_folder_remove(path);
    }
    (void)closedir(entries);
}

static tutti_status commit(const struct save *save, tutti_error *error)
{
    TTI_TRY(tti_folder_sync(save->working, error));
    if (renameat2(AT_FDCWD, save->working, AT_FDCWD, save->target, RENAME_NOREPLACE) != 0) {
        bool there = errno == EEXIST;
        if (!there && errno == EINVAL) there = access(save->target, F_OK) == 0; /* no RENAME_NOREPLACE here */
        int swapped = there ? renameat2(AT_FDCWD, save->working, AT_FDCWD, save->target, RENAME_EXCHANGE)
                            : rename(save->working, save->target);
        if (swapped != 0)
            return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "%.300s cannot be given its name", save->target);
        if (there) (void)tti_folder_remove(save->working); /* now the older one */
    }
    return tti_folder_sync(save->folder, error);
}

/* Loses its name first: what has its name is whole, also when we are stopped here. */
static bool remove_one(const struct save *save, uint64_t step)
{
    char path[PATH_MAX];
    tti_checkpoint_name(save->folder, step, path);
    return rename(path, save->working) == 0 && tti_folder_remove(save->working);
}

/* Of those before this step, the last keep - 1 stay. A folder that cannot be removed is said and left. */
static void remove_old(const struct save *save, int keep)
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

static tutti_status save_locked(struct save *save, int keep, tutti_error *error)
{
    remove_leftovers(save->folder);
    if (mkdir(save->working, 0777) != 0)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "the folder %.300s cannot be made", save->working);
    save->files = json_array();
    save->texts = json_array();
    tutti_status status = save_groups(save, error);
    if (status == TUTTI_OK) status = save_texts(save, error);
    if (status == TUTTI_OK) status = save_index(save, error);
    if (status == TUTTI_OK) status = commit(save, error);
    json_decref(save->files);
    json_decref(save->texts);
    if (status == TUTTI_OK)
        remove_old(save, keep);
    else
        (void)tti_folder_remove(save->working);
    return status;
}

tutti_status tti_checkpoint_save(const char *folder, uint64_t step, int keep,
                                 const struct tti_checkpoint_content *content, tutti_error *error)
{
    struct save save = {.folder = folder, .step = step, .content = content};
    int lock = -1;
    if (folder == NULL || folder[0] == '\0')
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a checkpoint needs a folder");
    if (strlen(folder) > PATH_MAX - 128)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s is too long a path", folder);
    if (step > INT64_MAX) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "step %" PRIu64 " is too large", step);
    TTI_TRY(tti_checkpoint_check(content, error));
    tti_checkpoint_name(folder, step, save.target);
    (void)snprintf(save.working, sizeof save.working, "%s/.saving-%08" PRIu64, folder, step);
    TTI_TRY(tti_checkpoint_folder(folder, error));
    if (!content->locked) TTI_TRY(tti_checkpoint_lock(folder, &lock, error));
    tutti_status status = save_locked(&save, keep, error);
    if (lock >= 0) (void)close(lock);
    return status;
}

tutti_status tutti_checkpoint_save(const char *folder, uint64_t step, int keep, const tutti_note *notes,
                                   size_t note_count, const tutti_checkpoint_tensor *tensors, size_t tensor_count,
                                   tutti_error *error)
{
    struct tti_checkpoint_content content = {
        .notes = notes, .note_count = note_count, .tensors = tensors, .tensor_count = tensor_count};
    return tti_checkpoint_save(folder, step, keep, &content, error);
}
