/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance_layout.h"

#include <string.h>

static void expect_copy(struct conf_layout *layout, size_t target, int from, size_t source, size_t count)
{
    layout->block[layout->blocks++] = (struct conf_block){target, source, count, from, 0};
}

static void expect_reduced(struct conf_layout *layout, size_t source, size_t count, int last)
{
    layout->block[layout->blocks++] = (struct conf_block){0, source, count, -1, last};
}

/* What rank `from` sends to rank `to` in a v-form: nothing in a quarter of all cases. */
static size_t uneven(const struct conf_case *one, int from, int to)
{
    uint64_t hash = conf_hash(one->seed, (uint64_t)(from * 64 + to + 1));
    if (one->count == 0 || hash % 4 == 0) return 0;
    return (size_t)(hash / 4 % (2 * one->count)) + 1;
}

/* Packed in rank order (not given), or with gaps, or with gaps and in reverse. Returns the span. */
static size_t place_blocks(const struct conf_case *one, int size, uint64_t salt, const size_t *counts, size_t *offsets,
                           bool *given)
{
    uint64_t how = conf_hash(one->seed, 7777) % 3;
    size_t at = 0;
    *given = how != 0;
    for (int i = 0; i < size; i++) {
        int block = how == 2 ? size - 1 - i : i;
        if (how != 0) at += (size_t)(conf_hash(one->seed, salt * 100 + (uint64_t)i) % 4);
        offsets[block] = at;
        at += counts[block];
    }
    return at;
}

static void layout_equal(const struct conf_case *one, int size, int rank, struct conf_layout *layout)
{
    size_t count = one->count, all = count * (size_t)size, own = (size_t)rank * count;
    bool root = rank == one->root;
    layout->in_count = layout->out_count = count;
    layout->own = own;
    layout->inside = CONF_SAME;
    switch (one->kind) {
    case TTI_ALL_REDUCE: expect_reduced(layout, 0, count, size - 1); break;
    case TTI_REDUCE:
        layout->out_used = root;
        if (root) expect_reduced(layout, 0, count, size - 1);
        break;
    case TTI_SCAN: expect_reduced(layout, 0, count, rank); break;
    case TTI_EXSCAN:
        if (rank > 0) expect_reduced(layout, 0, count, rank - 1);
        break;
    case TTI_BROADCAST:
        layout->in_used = root;
        expect_copy(layout, 0, one->root, 0, count);
        break;
    case TTI_ALL_GATHER:
    case TTI_GATHER:
        layout->out_used = root || one->kind == TTI_ALL_GATHER;
        layout->out_count = all;
        layout->inside = layout->out_used ? CONF_IN_INSIDE : CONF_APART;
        for (int from = 0; from < size && layout->out_used; from++)
            expect_copy(layout, (size_t)from * count, from, 0, count);
        break;
    case TTI_SCATTER:
        layout->in_used = root;
        layout->in_count = all;
        layout->inside = root ? CONF_OUT_INSIDE : CONF_APART;
        expect_copy(layout, 0, one->root, own, count);
        break;
    case TTI_REDUCE_SCATTER:
        layout->in_count = all;
        layout->inside = CONF_OUT_INSIDE;
        expect_reduced(layout, own, count, size - 1);
        break;
    default: /* TTI_ALL_TO_ALL */
        layout->in_count = layout->out_count = all;
        for (int from = 0; from < size; from++) expect_copy(layout, (size_t)from * count, from, own, count);
        break;
    }
}

static void layout_gather_v(const struct conf_case *one, int size, int rank, struct conf_layout *layout)
{
    bool everyone = one->kind == TTI_ALL_GATHER_V;
    layout->out_used = everyone || rank == one->root;
    for (int from = 0; from < size; from++) layout->out_counts[from] = uneven(one, from, 0);
    layout->out_count = place_blocks(one, size, everyone ? (uint64_t)rank : 0, layout->out_counts, layout->out_offsets,
                                     &layout->out_given);
    layout->in_count = layout->out_counts[rank];
    layout->own = layout->out_offsets[rank];
    layout->inside = layout->out_used ? CONF_IN_INSIDE : CONF_APART;
    for (int from = 0; from < size && layout->out_used; from++)
        expect_copy(layout, layout->out_offsets[from], from, 0, layout->out_counts[from]);
}

static void layout_scatter_v(const struct conf_case *one, int size, int rank, struct conf_layout *layout)
{
    bool reduces = one->kind == TTI_REDUCE_SCATTER_V;
    struct conf_case packed = *one;
    layout->in_used = reduces || rank == one->root;
    for (int to = 0; to < size; to++) layout->in_counts[to] = uneven(one, 0, to);
    while (reduces && conf_hash(packed.seed, 7777) % 3 != 0) packed.seed++; /* it has no offsets */
    layout->in_count = place_blocks(&packed, size, 0, layout->in_counts, layout->in_offsets, &layout->in_given);
    layout->out_count = layout->in_counts[rank];
    layout->own = layout->in_offsets[rank];
    layout->inside = layout->in_used ? CONF_OUT_INSIDE : CONF_APART;
    if (reduces)
        expect_reduced(layout, layout->own, layout->out_count, size - 1);
    else
        expect_copy(layout, 0, one->root, layout->own, layout->out_count);
}

static void layout_all_to_all_v(const struct conf_case *one, int size, int rank, struct conf_layout *layout)
{
    for (int peer = 0; peer < size; peer++) {
        layout->in_counts[peer] = uneven(one, rank, peer);
        layout->out_counts[peer] = uneven(one, peer, rank);
    }
    layout->in_count = place_blocks(one, size, (uint64_t)rank, layout->in_counts, layout->in_offsets,
                                    &layout->in_given);
    layout->out_count = place_blocks(one, size, (uint64_t)(rank + 50), layout->out_counts, layout->out_offsets,
                                     &layout->out_given);
    for (int from = 0; from < size; from++) {
        size_t counts[CONF_RANKS_MOST], offsets[CONF_RANKS_MOST];
        bool given;
        for (int to = 0; to < size; to++) counts[to] = uneven(one, from, to);
        place_blocks(one, size, (uint64_t)from, counts, offsets, &given);
        expect_copy(layout, layout->out_offsets[from], from, offsets[rank], counts[rank]);
    }
}

/* TTI_SENDRECV: everyone sends `root` ranks on. TTI_SEND: ranks that add up to `root` are partners. */
static void layout_message(const struct conf_case *one, int size, int rank, struct conf_layout *layout)
{
    bool pairs = one->kind == TTI_SEND;
    layout->to = pairs ? (one->root - rank + size) % size : (rank + one->root) % size;
    layout->from = pairs ? layout->to : (rank - one->root + size) % size;
    layout->in_count = one->count == 0 ? 0 : one->count - (size_t)(conf_hash(one->seed, (uint64_t)rank) % 2);
    size_t comes = one->count == 0 ? 0 : one->count - (size_t)(conf_hash(one->seed, (uint64_t)layout->from) % 2);
    layout->out_count = one->count;
    expect_copy(layout, 0, layout->from, 0, comes);
}

void conf_layout_of(const struct conf_case *one, int size, int rank, struct conf_layout *layout)
{
    memset(layout, 0, sizeof *layout);
    layout->in_used = layout->out_used = true;
    layout->inside = CONF_APART;
    switch (one->kind) {
    case TTI_BARRIER: layout->in_used = layout->out_used = false; break;
    case TTI_ALL_GATHER_V:
    case TTI_GATHER_V: layout_gather_v(one, size, rank, layout); break;
    case TTI_SCATTER_V:
    case TTI_REDUCE_SCATTER_V: layout_scatter_v(one, size, rank, layout); break;
    case TTI_ALL_TO_ALL_V: layout_all_to_all_v(one, size, rank, layout); break;
    case TTI_SEND:
    case TTI_SENDRECV: layout_message(one, size, rank, layout); break;
    default: layout_equal(one, size, rank, layout); break;
    }
}
