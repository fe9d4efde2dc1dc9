/* SPDX-License-Identifier: Apache-2.0
 *
 * The safetensors format: 8 bytes with the length of the header, the header as JSON, the tensors' bytes in the order of
 * their offsets, without gaps. Here all tensors are f32.
 */
#ifndef TTI_TRAIN_SAFETENSORS_H
#define TTI_TRAIN_SAFETENSORS_H

#include "train/file.h"

#include <tutti/train.h>

struct tti_safetensor {
    char *name;
    int dimensions;
    int64_t shape[TUTTI_DIMENSIONS_MAX];
    uint64_t begin, end; /* places in the file, in bytes */
};

struct tti_safetensors {
    size_t count;
    struct tti_safetensor *tensors; /* in the order of their places in the file */
};

enum { TTI_SAFETENSORS_PREFIX = 8, TTI_SAFETENSORS_HEADER_MOST = 100 << 20 };

/* Reads a header. `path` is for messages; `file_bytes` is the length of the whole file. ERR_DAMAGED if the header
 * cannot be right. */
tutti_status tti_safetensors_parse(const char *header, size_t header_bytes, uint64_t file_bytes, const char *path,
                                   struct tti_safetensors *tensors, tutti_error *error);
tutti_status tti_safetensors_read(int fd, const char *path, struct tti_safetensors *tensors, tutti_error *error);
void tti_safetensors_free(struct tti_safetensors *tensors);
const struct tti_safetensor *tti_safetensors_find(const struct tti_safetensors *tensors, const char *name);

/* Returns the bytes before the values of `count` tensors, a multiple of 8, which the caller frees; NULL: no memory. */
char *tti_safetensors_header(const tutti_checkpoint_tensor *tensors, size_t count, size_t *bytes);

size_t tti_tensor_elements(int dimensions, const int64_t *shape);
/* Writes "(768, 50257)"; returns `text`. */
enum { TTI_SHAPE_TEXT = 96 };
const char *tti_shape_text(int dimensions, const int64_t *shape, char text[TTI_SHAPE_TEXT]);

#endif
