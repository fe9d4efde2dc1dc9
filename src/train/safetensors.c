/* SPDX-License-Identifier: Apache-2.0 */
#include "train/safetensors.h"

#include "base/alloc.h"
#include "base/status.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

size_t tti_tensor_elements(int dimensions, const int64_t *shape)
{
    size_t elements = 1;
    for (int i = 0; i < dimensions; i++) elements *= (size_t)shape[i];
    return elements;
}

const char *tti_shape_text(int dimensions, const int64_t *shape, char text[TTI_SHAPE_TEXT])
{
    int used = snprintf(text, TTI_SHAPE_TEXT, "(");
    for (int i = 0; i < dimensions; i++)
        used += snprintf(text + used, TTI_SHAPE_TEXT - (size_t)used, "%s%" PRId64, i == 0 ? "" : ", ", shape[i]);
    (void)snprintf(text + used, TTI_SHAPE_TEXT - (size_t)used, ")");
    return text;
}

/* ---- Reading --------------------------------------------------------------------------------------------------- */

static tutti_status damaged(tutti_error *error, const char *path, const char *name, const char *what)
{
    return tti_error_set(error, TUTTI_ERR_DAMAGED, 0, "%.240s: tensor \"%.64s\": %s", path, name, what);
}

static tutti_status parse_shape(const json_t *shape, const char *path, struct tti_safetensor *tensor,
                                tutti_error *error)
{
    size_t dimensions = json_array_size(shape);
    if (!json_is_array(shape) || dimensions > TUTTI_DIMENSIONS_MAX)
        return damaged(error, path, tensor->name, "its shape is no list of at most 4 numbers");
    tensor->dimensions = (int)dimensions;
    int64_t elements = 1;
    for (size_t i = 0; i < dimensions; i++) {
        const json_t *size = json_array_get(shape, i);
        tensor->shape[i] = json_integer_value(size);
        if (!json_is_integer(size) || tensor->shape[i] < 0)
            return damaged(error, path, tensor->name, "its shape is no list of at most 4 numbers");
        if (__builtin_mul_overflow(elements, tensor->shape[i], &elements) || elements > INT64_MAX / 8)
            return damaged(error, path, tensor->name, "its shape is too large");
    }
    return TUTTI_OK;
}

static tutti_status parse_offsets(const json_t *offsets, const char *path, uint64_t data_start,
                                  struct tti_safetensor *tensor, tutti_error *error)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return damaged(error, path, tensor->name, "its offsets are not two numbers");
    int64_t from = json_integer_value(begin), to = json_integer_value(end);
    uint64_t bytes = tti_tensor_elements(tensor->dimensions, tensor->shape) * sizeof(float);
    if (from < 0 || to < from || (uint64_t)(to - from) != bytes)
        return damaged(error, path, tensor->name, "its offsets do not fit its shape");
    tensor->begin = data_start + (uint64_t)from;
    tensor->end = data_start + (uint64_t)to;
    return TUTTI_OK;
}

static tutti_status parse_tensor(const char *name, const json_t *about, const char *path, uint64_t data_start,
                                 struct tti_safetensor *tensor, tutti_error *error)
{
    const char *type = json_string_value(json_object_get(about, "dtype"));
    tensor->name = strdup(name);
    if (tensor->name == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%.300s: no memory", path);
    if (type == NULL || strcmp(type, "F32") != 0) return damaged(error, path, name, "its type is not F32");
    TTI_TRY(parse_shape(json_object_get(about, "shape"), path, tensor, error));
    return parse_offsets(json_object_get(about, "data_offsets"), path, data_start, tensor, error);
}

static int by_place(const void *a, const void *b)
{
    const struct tti_safetensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static tutti_status check_places(struct tti_safetensors *tensors, const char *path, uint64_t data_start,
                                 uint64_t file_bytes, tutti_error *error)
{
    uint64_t at = data_start;
    if (tensors->count > 0) qsort(tensors->tensors, tensors->count, sizeof *tensors->tensors, by_place);
    for (size_t i = 0; i < tensors->count; i++) {
        if (tensors->tensors[i].begin != at)
            return damaged(error, path, tensors->tensors[i].name, "it does not begin where the one before it ends");
        at = tensors->tensors[i].end;
    }
    if (at == file_bytes) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_DAMAGED, 0,
                         "%.300s has %" PRIu64 " bytes; by its header it should have %" PRIu64, path, file_bytes, at);
}

static tutti_status parse_tensors(const json_t *header, const char *path, uint64_t data_start, uint64_t file_bytes,
                                  struct tti_safetensors *tensors, tutti_error *error)
{
    const char *name;
    json_t *about;
    tensors->tensors = tti_calloc(json_object_size(header) + 1, sizeof *tensors->tensors);
    if (tensors->tensors == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%.300s: no memory", path);
    json_object_foreach((json_t *)(uintptr_t)header, name, about)
    {
        if (strcmp(name, "__metadata__") == 0) continue;
        TTI_TRY(parse_tensor(name, about, path, data_start, &tensors->tensors[tensors->count++], error));
    }
    return check_places(tensors, path, data_start, file_bytes, error);
}

tutti_status tti_safetensors_parse(const char *header, size_t header_bytes, uint64_t file_bytes, const char *path,
                                   struct tti_safetensors *tensors, tutti_error *error)
{
    json_error_t why;
    *tensors = (struct tti_safetensors){0};
    json_t *json = json_loadb(header, header_bytes, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(json)) {
        json_decref(json);
        return tti_error_set(error, TUTTI_ERR_DAMAGED, 0, "%.300s: its header is no JSON object", path);
    }
    tutti_status status = parse_tensors(json, path, TTI_SAFETENSORS_PREFIX + header_bytes, file_bytes, tensors, error);
    json_decref(json);
    if (status != TUTTI_OK) tti_safetensors_free(tensors);
    return status;
}

tutti_status tti_safetensors_read(int fd, const char *path, struct tti_safetensors *tensors, tutti_error *error)
{
    struct stat about;
    unsigned char prefix[TTI_SAFETENSORS_PREFIX];
    uint64_t bytes = 0;
    *tensors = (struct tti_safetensors){0};
    if (fstat(fd, &about) != 0) return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "%.300s", path);
    TTI_TRY(tti_file_read(fd, path, 0, sizeof prefix, prefix, error));
    for (int i = TTI_SAFETENSORS_PREFIX; i-- > 0;) bytes = bytes << 8 | prefix[i];
    if (bytes > TTI_SAFETENSORS_HEADER_MOST || bytes + sizeof prefix > (uint64_t)about.st_size)
        return tti_error_set(error, TUTTI_ERR_DAMAGED, 0, "%.300s: its header cannot have %" PRIu64 " bytes", path,
                             bytes);
    char *header = tti_calloc(1, (size_t)bytes + 1);
    if (header == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%.300s: no memory for its header", path);
    tutti_status status = tti_file_read(fd, path, sizeof prefix, (size_t)bytes, header, error);
    if (status == TUTTI_OK)
        status = tti_safetensors_parse(header, (size_t)bytes, (uint64_t)about.st_size, path, tensors, error);
    tti_free(header);
    return status;
}

void tti_safetensors_free(struct tti_safetensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++) free(tensors->tensors[i].name);
    tti_free(tensors->tensors);
    *tensors = (struct tti_safetensors){0};
}

const struct tti_safetensor *tti_safetensors_find(const struct tti_safetensors *tensors, const char *name)
{
    for (size_t i = 0; i < tensors->count; i++)
        if (strcmp(tensors->tensors[i].name, name) == 0) return &tensors->tensors[i];
    return NULL;
}

/* ---- Writing --------------------------------------------------------------------------------------------------- */

static json_t *describe(const tutti_checkpoint_tensor *tensor, uint64_t *offset)
{
    uint64_t bytes = tti_tensor_elements(tensor->dimensions, tensor->shape) * sizeof(float), begin = *offset;
    json_t *shape = json_array();
    for (int i = 0; i < tensor->dimensions; i++) json_array_append_new(shape, json_integer(tensor->shape[i]));
    *offset += bytes;
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)*offset);
}

/* Returns the header as text, or NULL if memory ran out. */
static char *make_header(const tutti_checkpoint_tensor *tensors, size_t count)
{
    json_t *header = json_object();
    uint64_t offset = 0;
    bool whole = header != NULL && json_object_set_new(header, "__metadata__", json_pack("{s:s}", "format", "pt")) == 0;
    for (size_t i = 0; whole && i < count; i++)
        whole = json_object_set_new(header, tensors[i].name, describe(&tensors[i], &offset)) == 0;
    char *text = whole ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    return text;
}

char *tti_safetensors_header(const tutti_checkpoint_tensor *tensors, size_t count, size_t *bytes)
{
    char *text = make_header(tensors, count);
    if (text == NULL) return NULL;
    const size_t length = strlen(text), padding = (8 - length % 8) % 8; /* so that the tensors are aligned */
    char *header = malloc(TTI_SAFETENSORS_PREFIX + length + padding);
    *bytes = TTI_SAFETENSORS_PREFIX + length + padding;
    if (header != NULL) {
        for (int i = 0; i < TTI_SAFETENSORS_PREFIX; i++) header[i] = (char)((length + padding) >> 8 * i & 0xff);
        memcpy(header + TTI_SAFETENSORS_PREFIX, text, length);
        memset(header + TTI_SAFETENSORS_PREFIX + length, ' ', padding);
    }
    free(text);
    return header;
}
