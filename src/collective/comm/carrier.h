/* SPDX-License-Identifier: Apache-2.0
 *
 * Which provider carries out an op on a stream: for statistics, traces and texts.
 */
#ifndef TTI_COLLECTIVE_CARRIER_H
#define TTI_COLLECTIVE_CARRIER_H

#include "collective/comm/call.h"
#include <stdbool.h>

enum tti_carrier { TTI_ON_HOST, TTI_ON_STAGING, TTI_ON_CUDA, TTI_ON_NCCL, TTI_CARRIERS };

extern const char *const tti_carrier_names[TTI_CARRIERS]; /* "host", "staged", "cuda", "nccl" */

/* Returns true for sums and products that this carrier does not do in canonical order. */
static inline bool tti_carrier_reorders(enum tti_carrier carrier, unsigned reduction)
{
    return carrier == TTI_ON_NCCL && reduction != TTI_NO_REDUCTION && reduction != TUTTI_MIN && reduction != TUTTI_MAX;
}

#endif
