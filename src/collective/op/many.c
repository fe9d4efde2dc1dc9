/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/many.h"
#include "collective/engine/engine.h"

#include "base/sim.h"
#include "collective/comm/trace.h"
#include <string.h>

/* Up to these sizes two copies take less time than one more operation: in shared memory for each rank that is met, by
 * messages. */
enum { SMALL_SHARED = 4 << 10, SMALL_SHARED_MOST = 32 << 10, SMALL_MESSAGES = 64 << 10 };

/* ---- Rounds ---------------------------------------------------------------------------------------------------- */

static bool has_blocks(enum tti_kind kind)
{
    return kind == TTI_ALL_GATHER || kind == TTI_REDUCE_SCATTER;
}

/* Returns the bytes of the larger one of a piece's buffers. */
static uint64_t bytes_of(const struct tti_op *op, const tutti_piece *piece)
{
    uint64_t blocks = has_blocks(op->shape.kind) ? (uint64_t)op->shape.size : 1;
    return piece->count * op->shape.element * blocks;
}

static bool is_small(const struct tti_op *op, const tutti_piece *piece)
{
    uint64_t met = SMALL_SHARED * (uint64_t)(op->shape.size - 1), most = SMALL_MESSAGES;
    if (op->comm->lanes == NULL) most = met < SMALL_SHARED_MOST ? met : SMALL_SHARED_MOST;
    return bytes_of(op, piece) <= most;
}

/* Chooses as many of the remaining small pieces as fit. */
static bool choose_small(struct tti_op *op)
{
    struct tti_many *many = op->many;
    uint64_t bytes = 0;
    size_t used = 0, i = many->first = many->small;
    many->elements = 0;
    for (; i < many->count; i++) {
        const tutti_piece *piece = &many->pieces[i];
        uint64_t more = bytes_of(op, piece);
        if (more == 0 || !is_small(op, piece)) continue;
        if (bytes + more > TTI_PACK_BYTES) break;
        bytes += more;
        many->elements += piece->count;
        many->alone = used++ == 0 ? i : TTI_PACKED;
    }
    many->small = many->last = i;
    return used > 0;
}

static bool choose(struct tti_op *op)
{
    struct tti_many *many = op->many;
    if (many->small < many->count && choose_small(op)) return true;
    while (many->large < many->count && is_small(op, &many->pieces[many->large])) many->large++;
    if (many->large == many->count) return false;
    many->alone = many->large++;
    return true;
}

bool tti_many_packs(const struct tti_op *op)
{
    size_t used = 0;
    for (size_t i = 0; i < op->many->count && used < 2; i++)
        used += op->many->pieces[i].count > 0 && is_small(op, &op->many->pieces[i]);
    return used == 2;
}

const tutti_piece *tti_many_first(const struct tti_op *op)
{
    const tutti_piece *piece = &op->many->pieces[op->many->first];
    while (piece->count == 0 || !is_small(op, piece)) piece++;
    return piece;
}

/* ---- Packing --------------------------------------------------------------------------------------------------- */

/* Returns a block of the pack, which holds in place what the operation works on: one block of all pieces, or one for
 * each rank. */
static char *block_of(const struct tti_op *op, uint64_t block)
{
    return op->comm->engine->pack + block * op->many->elements * op->shape.element;
}

static uint64_t own_block(const struct tti_op *op)
{
    return has_blocks(op->shape.kind) ? (uint64_t)op->shape.rank : 0;
}

/* Copies block `at` of the pieces to or from `block` of the pack. */
static void copy_block(struct tti_op *op, char *block, uint64_t at, bool unpacks)
{
    const struct tti_many *many = op->many;
    for (size_t i = many->first; i < many->last; i++) {
        const tutti_piece *piece = &many->pieces[i];
        size_t bytes = piece->count * op->shape.element;
        if (bytes == 0 || !is_small(op, piece)) continue;
        if (unpacks)
            memcpy((char *)piece->out + at * bytes, block, bytes);
        else
            memcpy(block, (const char *)piece->in + at * bytes, bytes);
        block += bytes;
    }
}

/* Copies all blocks, or this rank's own one, which is then all that the pieces have. */
static void copy_blocks(struct tti_op *op, bool all, bool unpacks)
{
    uint64_t blocks = all ? (uint64_t)op->shape.size : 1;
    if (tti_move(2 * blocks * op->many->elements * op->shape.element))
        for (uint64_t at = 0; at < blocks; at++) copy_block(op, block_of(op, all ? at : own_block(op)), at, unpacks);
    tti_moved();
}

static void pack(struct tti_op *op)
{
    if (op->shape.kind == TTI_BROADCAST && op->shape.rank != op->shape.root) return;
    copy_blocks(op, op->shape.kind == TTI_REDUCE_SCATTER, false);
}

static void unpack(struct tti_op *op)
{
    copy_blocks(op, op->shape.kind == TTI_ALL_GATHER, true);
}

/* ---- One round ------------------------------------------------------------------------------------------------- */

static bool is_in_place(const struct tti_op *op, const tutti_piece *piece)
{
    uintptr_t in = (uintptr_t)piece->in, out = (uintptr_t)piece->out;
    uint64_t own = own_block(op) * piece->count * op->shape.element;
    return op->shape.kind == TTI_REDUCE_SCATTER ? out == in + own : in == out + own;
}

static void set_buffers(struct tti_op *op, const tutti_piece *buffers)
{
    enum tti_kind kind = op->shape.kind;
    uint64_t block = buffers->count * op->shape.element, all = bytes_of(op, buffers);
    bool reads = kind != TTI_BROADCAST || op->shape.rank == op->shape.root;
    op->in = buffers->in;
    op->out = buffers->out;
    op->in_bytes = !reads ? 0 : kind == TTI_REDUCE_SCATTER ? all : block;
    op->out_bytes = kind == TTI_ALL_GATHER ? all : block;
    op->shape.count = buffers->count;
    op->in_place = op->in_bytes > 0 && op->out_bytes > 0 && is_in_place(op, buffers);
}

static void set_up(struct tti_op *op)
{
    const struct tti_many *many = op->many;
    if (many->alone != TTI_PACKED) {
        set_buffers(op, &many->pieces[many->alone]);
        return;
    }
    pack(op);
    char *own = block_of(op, own_block(op)), *all = block_of(op, 0);
    set_buffers(op, &(tutti_piece){.in = op->shape.kind == TTI_ALL_GATHER ? own : all,
                                   .out = op->shape.kind == TTI_REDUCE_SCATTER ? own : all,
                                   .count = many->elements});
}

void tti_many_begin(struct tti_op *op)
{
    struct tti_many *many = op->many;
    many->small = many->large = 0;
    many->ended = false;
    if (choose(op))
        set_up(op);
    else
        set_buffers(op, &(tutti_piece){0}); /* there is nothing to move, but the ranks meet */
    many->ended = op->shape.count == 0;
}

bool tti_many_next(struct tti_op *op)
{
    struct tti_many *many = op->many;
    if (many->ended) return false;
    if (many->alone == TTI_PACKED) unpack(op);
    if (choose(op)) {
        tti_trace_end(op, TUTTI_OK, false);
        tti_op_rewind(op);
        set_up(op);
        return true;
    }
    many->ended = true;
    op->in_bytes = many->in_bytes; /* as when the op was started */
    op->out_bytes = many->out_bytes;
    return false;
}
