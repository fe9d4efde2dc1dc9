/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms that start an operation: the blocking form's checks, then a handle instead of a wait (tti_queue_run).
 */
#define TUTTI_NO_CALL_SITES
#include "base/status.h"
#include "collective/api/api.h"
#include "collective/message/message.h"

static tutti_status begin(tutti_comm *comm, enum tti_kind kind, tutti_op *op)
{
    TTI_TRY(tti_api_begin(comm, kind));
    if (op == NULL)
        return tti_comm_refuse(comm, kind, TUTTI_ERR_ARGUMENT, "%s: `op` is NULL; the handle has to go somewhere",
                               tti_kind_name(kind));
    op->id = 0;
    comm->caller.starting = op;
    return TUTTI_OK;
}

static tutti_status end(tutti_comm *comm, tutti_status status)
{
    comm->caller.starting = NULL;
    return status;
}

tutti_status tutti_barrier_start(tutti_comm *comm, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_BARRIER, op));
    return end(comm, tutti_barrier(comm));
}

tutti_status tutti_all_reduce_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                    tutti_reduction reduction, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_ALL_REDUCE, op));
    return end(comm, tutti_all_reduce(comm, in, out, count, type, reduction));
}

tutti_status tutti_reduce_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                tutti_reduction reduction, int root, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_REDUCE, op));
    return end(comm, tutti_reduce(comm, in, out, count, type, reduction, root));
}

tutti_status tutti_broadcast_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type, int root,
                                   tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_BROADCAST, op));
    return end(comm, tutti_broadcast(comm, in, out, count, type, root));
}

tutti_status tutti_all_gather_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                    tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_ALL_GATHER, op));
    return end(comm, tutti_all_gather(comm, in, out, count, type));
}

tutti_status tutti_gather_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type, int root,
                                tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_GATHER, op));
    return end(comm, tutti_gather(comm, in, out, count, type, root));
}

tutti_status tutti_scatter_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type, int root,
                                 tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_SCATTER, op));
    return end(comm, tutti_scatter(comm, in, out, count, type, root));
}

tutti_status tutti_reduce_scatter_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                        tutti_reduction reduction, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_REDUCE_SCATTER, op));
    return end(comm, tutti_reduce_scatter(comm, in, out, count, type, reduction));
}

tutti_status tutti_all_to_all_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                    tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_ALL_TO_ALL, op));
    return end(comm, tutti_all_to_all(comm, in, out, count, type));
}

tutti_status tutti_all_gather_v_start(tutti_comm *comm, const void *in, void *out, const size_t *counts,
                                      const size_t *offsets, tutti_type type, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_ALL_GATHER_V, op));
    return end(comm, tutti_all_gather_v(comm, in, out, counts, offsets, type));
}

tutti_status tutti_gather_v_start(tutti_comm *comm, const void *in, size_t count, void *out, const size_t *counts,
                                  const size_t *offsets, tutti_type type, int root, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_GATHER_V, op));
    return end(comm, tutti_gather_v(comm, in, count, out, counts, offsets, type, root));
}

tutti_status tutti_scatter_v_start(tutti_comm *comm, const void *in, const size_t *counts, const size_t *offsets,
                                   void *out, size_t count, tutti_type type, int root, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_SCATTER_V, op));
    return end(comm, tutti_scatter_v(comm, in, counts, offsets, out, count, type, root));
}

tutti_status tutti_reduce_scatter_v_start(tutti_comm *comm, const void *in, void *out, const size_t *counts,
                                          tutti_type type, tutti_reduction reduction, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_REDUCE_SCATTER_V, op));
    return end(comm, tutti_reduce_scatter_v(comm, in, out, counts, type, reduction));
}

tutti_status tutti_all_to_all_v_start(tutti_comm *comm, const void *in, const size_t *in_counts,
                                      const size_t *in_offsets, void *out, const size_t *out_counts,
                                      const size_t *out_offsets, tutti_type type, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_ALL_TO_ALL_V, op));
    return end(comm, tutti_all_to_all_v(comm, in, in_counts, in_offsets, out, out_counts, out_offsets, type));
}

tutti_status tutti_scan_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                              tutti_reduction reduction, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_SCAN, op));
    return end(comm, tutti_scan(comm, in, out, count, type, reduction));
}

tutti_status tutti_exscan_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                tutti_reduction reduction, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_EXSCAN, op));
    return end(comm, tutti_exscan(comm, in, out, count, type, reduction));
}

tutti_status tutti_all_reduce_many_start(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                         tutti_type type, tutti_reduction reduction, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_ALL_REDUCE_MANY, op));
    return end(comm, tutti_all_reduce_many(comm, pieces, piece_count, type, reduction));
}

tutti_status tutti_broadcast_many_start(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                        tutti_type type, int root, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_BROADCAST_MANY, op));
    return end(comm, tutti_broadcast_many(comm, pieces, piece_count, type, root));
}

tutti_status tutti_all_gather_many_start(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                         tutti_type type, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_ALL_GATHER_MANY, op));
    return end(comm, tutti_all_gather_many(comm, pieces, piece_count, type));
}

tutti_status tutti_reduce_scatter_many_start(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                             tutti_type type, tutti_reduction reduction, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_REDUCE_SCATTER_MANY, op));
    return end(comm, tutti_reduce_scatter_many(comm, pieces, piece_count, type, reduction));
}

tutti_status tutti_send_start(tutti_comm *comm, const void *in, size_t count, tutti_type type, int peer, int tag,
                              tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_SEND, op));
    return end(comm, tutti_send(comm, in, count, type, peer, tag));
}

tutti_status tutti_recv_start(tutti_comm *comm, void *out, size_t count, tutti_type type, int peer, int tag,
                              tutti_message *message, tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_RECV, op));
    return end(comm, tutti_recv_message(comm, out, count, type, peer, tag, message));
}

tutti_status tutti_sendrecv_start(tutti_comm *comm, const void *in, size_t in_count, int to, int in_tag, void *out,
                                  size_t out_count, int from, int out_tag, tutti_type type, size_t *received,
                                  tutti_op *op)
{
    TTI_TRY(begin(comm, TTI_SENDRECV, op));
    return end(comm, tutti_sendrecv(comm, in, in_count, to, in_tag, out, out_count, from, out_tag, type, received));
}

tutti_status tutti_group_end_start(tutti_comm *comm, tutti_op *op)
{
    tutti_status status = begin(comm, TTI_GROUP, op);
    if (status == TUTTI_OK) return end(comm, tutti_group_end(comm));
    if (comm != NULL) tti_group_close(comm); /* it has ended in any case */
    return status;
}

tutti_comm *tutti_prepared(tutti_comm *comm)
{
    if (comm != NULL) comm->caller.preparing = true;
    return comm;
}
