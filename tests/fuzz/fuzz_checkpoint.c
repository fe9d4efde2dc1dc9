/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz: runs=60000 */
/* Headers and indexes of checkpoints: any bytes are judged, and the tensors of a header that is taken lie within the file,
 * one behind the other. */
#include "train/checkpoint.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(bool holds)
{
    if (!holds) abort();
}

static void check_header(const char *text, size_t bytes, uint64_t data_bytes)
{
    struct tti_safetensors tensors;
    tutti_error error = {0};
    uint64_t at = TTI_SAFETENSORS_PREFIX + bytes, file_bytes = at + data_bytes;
    tutti_status status = tti_safetensors_parse(text, bytes, file_bytes, "file", &tensors, &error);
    must(status == TUTTI_OK || (error.status == status && error.text[0] != '\0'));
    if (status != TUTTI_OK) return;
    for (size_t i = 0; i < tensors.count; i++) {
        const struct tti_safetensor *tensor = &tensors.tensors[i];
        must(tensor->begin == at && tensor->end >= at && tensor->dimensions <= TUTTI_DIMENSIONS_MAX);
        must(tensor->end - tensor->begin == sizeof(float) * tti_tensor_elements(tensor->dimensions, tensor->shape));
        at = tensor->end;
    }
    must(at == file_bytes);
    tti_safetensors_free(&tensors);
}

/* Without the right checksum nothing is taken. */
static void check_index(const char *text, size_t bytes)
{
    tutti_error error = {0};
    json_t *json = tti_index_parse(text, bytes, "file", &error);
    must(json != NULL || error.text[0] != 0);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char tensor[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[%.*s],\"data_offsets\":[0,%u]}}";
    char text[5000];
    if (bytes < 2 || bytes > 4096) return 0;
    unsigned size = data[0];
    check_header((const char *)data + 1, bytes - 1, size);
    check_index((const char *)data + 1, bytes - 1);
    int length = snprintf(text, sizeof text, tensor, (int)(bytes - 1), (const char *)data + 1, size);
    check_header(text, (size_t)length, size);
    return 0;
}
