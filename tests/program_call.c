/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of random programs: blocking, started or prepared.
 */
#include "check_program.h"

#include <string.h>

static tutti_status start_equal(tutti_comm *comm, const struct program_piece *piece, tutti_op *op)
{
    const struct conf_case *one = &piece->one;
    const void *in = piece->in_pointer;
    void *out = piece->out_pointer;
    size_t n = one->count;
    tutti_reduction reduction = conf_reduction(one->column, piece->rank);
    switch (one->kind) {
    case TTI_BARRIER: return tutti_barrier_start(comm, op);
    case TTI_ALL_REDUCE: return tutti_all_reduce_start(comm, in, out, n, one->type, reduction, op);
    case TTI_REDUCE: return tutti_reduce_start(comm, in, out, n, one->type, reduction, one->root, op);
    case TTI_BROADCAST: return tutti_broadcast_start(comm, in, out, n, one->type, one->root, op);
    case TTI_ALL_GATHER: return tutti_all_gather_start(comm, in, out, n, one->type, op);
    case TTI_GATHER: return tutti_gather_start(comm, in, out, n, one->type, one->root, op);
    case TTI_SCATTER: return tutti_scatter_start(comm, in, out, n, one->type, one->root, op);
    case TTI_REDUCE_SCATTER: return tutti_reduce_scatter_start(comm, in, out, n, one->type, reduction, op);
    case TTI_ALL_TO_ALL: return tutti_all_to_all_start(comm, in, out, n, one->type, op);
    case TTI_SCAN: return tutti_scan_start(comm, in, out, n, one->type, reduction, op);
    case TTI_EXSCAN: return tutti_exscan_start(comm, in, out, n, one->type, reduction, op);
    default: return TUTTI_ERR_UNSUPPORTED;
    }
}

/* Counts and offsets are the caller's again at once: those of `piece` are overwritten. */
static tutti_status start_v(tutti_comm *comm, struct program_piece *piece, tutti_op *op)
{
    const struct conf_case *one = &piece->one;
    struct conf_layout copy = piece->layout, *l = &copy;
    const void *in = piece->in_pointer;
    void *out = piece->out_pointer;
    const size_t *in_offsets = l->in_given ? l->in_offsets : NULL, *out_offsets = l->out_given ? l->out_offsets : NULL;
    bool root = piece->rank == one->root;
    tutti_reduction reduction = conf_reduction(one->column, piece->rank);
    tutti_status status;
    switch (one->kind) {
    case TTI_ALL_GATHER_V:
        status = tutti_all_gather_v_start(comm, in, out, l->out_counts, out_offsets, one->type, op);
        break;
    case TTI_GATHER_V:
        status = tutti_gather_v_start(comm, in, l->in_count, out, root ? l->out_counts : NULL,
                                      root ? out_offsets : NULL, one->type, one->root, op);
        break;
    case TTI_SCATTER_V:
        status = tutti_scatter_v_start(comm, in, root ? l->in_counts : NULL, root ? in_offsets : NULL, out,
                                       l->out_count, one->type, one->root, op);
        break;
    case TTI_REDUCE_SCATTER_V:
        status = tutti_reduce_scatter_v_start(comm, in, out, l->in_counts, one->type, reduction, op);
        break;
    case TTI_ALL_TO_ALL_V:
        status = tutti_all_to_all_v_start(comm, in, l->in_counts, in_offsets, out, l->out_counts, out_offsets,
                                          one->type, op);
        break;
    default: return start_equal(comm, piece, op);
    }
    memset(&copy, 0xee, sizeof copy);
    return status;
}

/* `op` NULL: blocking. */
static tutti_status call_many(struct program_live *live, tutti_op *op)
{
    const struct program_item *item = live->item;
    struct conf_case one = live->piece_count > 0 ? live->pieces[0].one : item->one;
    tutti_reduction reduction = conf_reduction(one.column, live->rank);
    tutti_piece pieces[PROGRAM_PIECES];
    size_t n = (size_t)live->piece_count;
    tutti_comm *comm = live->comm;
    for (size_t i = 0; i < n; i++)
        pieces[i] = (tutti_piece){live->pieces[i].in_pointer, live->pieces[i].out_pointer, live->pieces[i].one.count};
    switch (one.kind) {
    case TTI_ALL_REDUCE:
        return op == NULL ? tutti_all_reduce_many(comm, pieces, n, one.type, reduction)
                          : tutti_all_reduce_many_start(comm, pieces, n, one.type, reduction, op);
    case TTI_BROADCAST:
        return op == NULL ? tutti_broadcast_many(comm, pieces, n, one.type, one.root)
                          : tutti_broadcast_many_start(comm, pieces, n, one.type, one.root, op);
    case TTI_ALL_GATHER:
        return op == NULL ? tutti_all_gather_many(comm, pieces, n, one.type)
                          : tutti_all_gather_many_start(comm, pieces, n, one.type, op);
    default:
        return op == NULL ? tutti_reduce_scatter_many(comm, pieces, n, one.type, reduction)
                          : tutti_reduce_scatter_many_start(comm, pieces, n, one.type, reduction, op);
    }
}

tutti_status program_call(struct program_live *live, tutti_op *op)
{
    struct program_piece *piece = &live->pieces[0];
    if (live->item->content == CONTENT_MANY) return call_many(live, op);
    if (op != NULL) return start_v(live->comm, piece, op);
    if (piece->one.kind == TTI_BARRIER) return tutti_barrier(live->comm);
    return conf_call(live->comm, &piece->one, &piece->layout, piece->in_pointer, piece->out_pointer);
}
