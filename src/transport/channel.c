/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/channel.h"

struct tti_cell *tti_channel_reserve(struct tti_channel_end *end)
{
    if (end->next - end->taken >= TTI_CELLS)
        end->taken = atomic_load_explicit(&end->channel->taken, memory_order_acquire);
    if (end->next - end->taken >= TTI_CELLS) return NULL;
    return &end->channel->cells[end->next % TTI_CELLS];
}

void tti_channel_commit(struct tti_channel_end *end)
{
    struct tti_cell *cell = &end->channel->cells[end->next % TTI_CELLS];
    end->next++;
    atomic_store_explicit(&cell->number, end->next, memory_order_release);
}

struct tti_cell *tti_channel_peek(struct tti_channel_end *end)
{
    struct tti_cell *cell = &end->channel->cells[end->next % TTI_CELLS];
    return atomic_load_explicit(&cell->number, memory_order_acquire) == end->next + 1 ? cell : NULL;
}

void tti_channel_take(struct tti_channel_end *end)
{
    end->next++;
    atomic_store_explicit(&end->channel->taken, end->next, memory_order_release);
}
