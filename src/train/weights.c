/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashes of all weights, and the check that all ranks have the same. A hash is the XOR of the hashes of blocks, so that
 * ranks which have parts of the weights compute it together.
 */
#define TUTTI_NO_CALL_SITES
#include "train/weights.h"
#include "base/alloc.h"
#include "base/hash.h"
#include "collective/api/inside.h"
#include "train/blocks.h"
#include "train/file.h"

#include <string.h>
#include <tutti/train.h>

/* Hashes each block (blocks.h), keyed by the parameter's name (without a name: its number) and the block's place in
 * it. */
uint64_t tti_part_hash(const tutti_parameter *part, size_t index, size_t first)
{
    const char *name = part->name;
    const uint64_t key = name == NULL ? tti_stir(index) : tti_hash(name, strlen(name), 0);
    uint64_t all = 0;
    for (size_t at = 0; at < part->count; at += TTI_BLOCK) {
        size_t left = part->count - at, count = left < TTI_BLOCK ? left : TTI_BLOCK;
        all ^= tti_hash(part->value + at, count * sizeof(float), tti_stir(key + (first + at) / TTI_BLOCK));
    }
    return all;
}

uint64_t tutti_weights_hash(const tutti_parameter *parameters, size_t count)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < count; i++) hash ^= tti_part_hash(&parameters[i], i, 0);
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
