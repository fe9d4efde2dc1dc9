/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the content to be saved. Content that could not be read again is refused before anything is written.
 */
#include "base/alloc.h"
#include "base/status.h"
#include "train/checkpoint.h"
#include <string.h>

/* ---- Texts ----------------------------------------------------------------------------------------------------- */

static bool is_text(const char *text)
{
    json_t *string = text == NULL ? NULL : json_string(text);
    json_decref(string);
    return string != NULL;
}

/* Names of files may have any bytes, but JSON is UTF-8. */
json_t *tti_note_json(const char *value)
{
    static const char digits[] = "0123456789abcdef";
    json_t *string = json_string(value);
    if (string != NULL || value == NULL) return string;
    char *plain = tti_calloc(strlen(value) + 1, 4), *to = plain;
    for (const char *c = value; plain != NULL && *c != '\0'; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte < 0x80) {
            *to++ = *c;
            continue;
        }
        *to++ = '\\';
        *to++ = 'x';
        *to++ = digits[byte >> 4];
        *to++ = digits[byte & 15];
    }
    string = plain == NULL ? NULL : json_string(plain);
    tti_free(plain);
    return string;
}

bool tti_note_is(const char *note, const char *value)
{
    json_t *string = tti_note_json(value);
    bool same = string != NULL && strcmp(json_string_value(string), note) == 0;
    json_decref(string);
    return same;
}

/* ---- Tensors --------------------------------------------------------------------------------------------------- */

static tutti_status refuse(tutti_error *error, const tutti_checkpoint_tensor *tensor, const char *what)
{
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a checkpoint: tensor \"%.64s\" of group \"%.64s\": %s",
                         is_text(tensor->name) ? tensor->name : "?", is_text(tensor->group) ? tensor->group : "?",
                         what);
}

static bool is_group(const char *group)
{
    return is_text(group) && group[0] != '\0' && group[0] != '.' && strchr(group, '/') == NULL &&
           strlen(group) < sizeof((struct tti_checkpoint_file *)NULL)->group;
}

static bool has_shape(const tutti_checkpoint_tensor *tensor)
{
    int64_t elements = 1;
    if (tensor->dimensions < 0 || tensor->dimensions > TUTTI_DIMENSIONS_MAX) return false;
    for (int i = 0; i < tensor->dimensions; i++)
        if (tensor->shape[i] < 0 || __builtin_mul_overflow(elements, tensor->shape[i], &elements)) return false;
    return elements <= INT64_MAX / 8;
}

static tutti_status check_tensor(const tutti_checkpoint_tensor *tensor, bool elsewhere, tutti_error *error)
{
    if (!is_group(tensor->group))
        return refuse(error, tensor, "a group is the name of a file: UTF-8 of less than 64 bytes, no / and no . first");
    if (!is_text(tensor->name) || strcmp(tensor->name, "__metadata__") == 0)
        return refuse(error, tensor, "a name is UTF-8, and not __metadata__");
    if (!has_shape(tensor)) return refuse(error, tensor, "a shape is up to 4 sizes of 0 or more");
    if (tensor->values == NULL && !elsewhere && tti_tensor_elements(tensor->dimensions, tensor->shape) > 0)
        return refuse(error, tensor, "its values are NULL");
    return TUTTI_OK;
}

/* Checks one tensor's place. `groups`: the names in each group seen so far. */
static tutti_status check_place(const tutti_checkpoint_tensor *tensors, size_t at, json_t *groups, tutti_error *error)
{
    const tutti_checkpoint_tensor *tensor = &tensors[at];
    bool begins = at == 0 || strcmp(tensors[at - 1].group, tensor->group) != 0;
    json_t *names = json_object_get(groups, tensor->group);
    if (begins && names != NULL)
        return refuse(error, tensor, "another group stands between it and those of its group; put them together");
    if (begins && json_object_size(groups) == TTI_CHECKPOINT_FILES)
        return refuse(error, tensor, "a checkpoint has 8 groups at most");
    if (begins && (json_object_set_new(groups, tensor->group, json_object()) != 0 ||
                   (names = json_object_get(groups, tensor->group)) == NULL))
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to check a checkpoint's names");
    if (json_object_get(names, tensor->name) != NULL) return refuse(error, tensor, "there are two of this name");
    if (json_object_set_new(names, tensor->name, json_true()) == 0) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to check a checkpoint's names");
}

static tutti_status check_notes(const struct tti_checkpoint_content *content, tutti_error *error)
{
    for (size_t i = 0; i < content->note_count; i++) {
        if (is_text(content->notes[i].name) && content->notes[i].value != NULL) continue;
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "a checkpoint: note %zu has no value, or its name is not UTF-8", i);
    }
    return TUTTI_OK;
}

tutti_status tti_checkpoint_check(const struct tti_checkpoint_content *content, tutti_error *error)
{
    if ((content->notes == NULL && content->note_count > 0) || (content->tensors == NULL && content->tensor_count > 0))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a checkpoint: the list of notes or tensors is NULL");
    json_t *groups = json_object();
    tutti_status status = check_notes(content, error);
    if (groups == NULL) status = tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to check a checkpoint's names");
    for (size_t i = 0; status == TUTTI_OK && i < content->tensor_count; i++) {
        status = check_tensor(&content->tensors[i], content->elsewhere, error);
        if (status == TUTTI_OK) status = check_place(content->tensors, i, groups, error);
    }
    json_decref(groups);
    return status;
}
