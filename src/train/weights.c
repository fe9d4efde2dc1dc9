/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashes of all weights, and whether all ranks have the same.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "collective/api/inside.h"
#include "train/file.h"

#include <tutti/train.h>

uint64_t tutti_weights_hash(const tutti_parameter *parameters, size_t count)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < count; i++) hash = tti_hash(parameters[i].value, parameters[i].count * sizeof(float), hash);
    return hash;
}

tutti_status tutti_weights_compare(tutti_comm *comm, uint64_t hash, int *odd)
{
    if (comm == NULL) return TUTTI_ERR_ARGUMENT;
    int size = tutti_size(comm), first = -1;
    uint64_t *hashes = tti_calloc((size_t)size, sizeof *hashes);
    if (hashes == NULL) return TUTTI_ERR_MEMORY;
    tutti_status status = tutti_all_gather(tti_inside(comm, "weights_compare", "hash"), &hash, hashes, 1, TUTTI_U64);
    for (int r = size - 1; status == TUTTI_OK && r > 0; r--)
        if (hashes[r] != hashes[0]) first = r;
    tti_free(hashes);
    if (status == TUTTI_OK && odd != NULL) *odd = first;
    return status == TUTTI_OK && first >= 0 ? TUTTI_ERR_MISMATCH : status;
}
