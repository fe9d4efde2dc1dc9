/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashes of parts of the weights.
 */
#ifndef TTI_TRAIN_WEIGHTS_H
#define TTI_TRAIN_WEIGHTS_H

#include <tutti/train.h>

/* Returns the contribution to tutti_weights_hash of a part of parameter number `index`, whole blocks from its element
 * `first` on; the hash of all is the XOR of those of all parts. */
uint64_t tti_part_hash(const tutti_parameter *part, size_t index, size_t first);

/* More places than a width grain has, and whole blocks: the distance between the places of two grains. */
#define TTI_GRAIN_PLACES ((size_t)1 << 48)

#endif
