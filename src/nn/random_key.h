/* SPDX-License-Identifier: Apache-2.0
 *
 * Counter-based random numbers: a key of (seed, name), a counter of (index, step). The streams are in nn_kernels.h.
 */
#ifndef TTI_NN_RANDOM_KEY_H
#define TTI_NN_RANDOM_KEY_H

#include <stdint.h>

void tti_random_key(uint64_t seed, const char *name, uint32_t key[2]);

#endif
