/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/channel.h"

void tti_ring_cells(struct tti_ring *ring, struct tti_channel *channel)
{
    *ring = (struct tti_ring){.slots = (char *)&channel->cells,
                              .stride = sizeof *channel->cells.heads,
                              .count = TTI_CELLS,
                              .taken = &channel->cells_taken};
}

void tti_ring_answers(struct tti_ring *ring, struct tti_channel *channel)
{
    *ring = (struct tti_ring){.slots = (char *)channel->answers,
                              .stride = sizeof *channel->answers,
                              .count = TTI_ANSWERS,
                              .taken = &channel->answers_taken};
}
