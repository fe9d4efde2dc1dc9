/* SPDX-License-Identifier: Apache-2.0
 *
 * send, recv and sendrecv: checking arguments.
 */
#define TUTTI_NO_CALL_SITES
#include "base/status.h"
#include "collective/api.h"
#include "collective/message.h"

static tutti_status check(tutti_comm *comm, enum tti_kind kind, const struct tti_buffer *buffer, tutti_type type,
                          const char *who, int peer, int tag)
{
    TTI_TRY(tti_api_check_rank(comm, kind, who, peer));
    TTI_TRY(tti_api_check_buffer(comm, kind, buffer));
    (void)type;
    if (tag >= 0) return TUTTI_OK;
    return tti_comm_refuse(comm, kind, TUTTI_ERR_ARGUMENT, "%s: tag %d is negative; tags are 0 or larger",
                           tti_kind_name(kind), tag);
}

static tutti_status end(tutti_comm *comm, tutti_status status)
{
    tti_api_end(comm);
    return status;
}

tutti_status tutti_send(tutti_comm *comm, const void *in, size_t count, tutti_type type, int peer, int tag)
{
    TTI_TRY(tti_api_begin(comm, TTI_SEND));
    TTI_TRY(tti_api_check_type(comm, TTI_SEND, type));
    struct tti_buffer buffer = {"in", in, 0, true};
    TTI_TRY(tti_api_bytes(comm, TTI_SEND, count, tutti_type_bytes(type), 1, &buffer.bytes));
    TTI_TRY(check(comm, TTI_SEND, &buffer, type, "peer", peer, tag));
    if (peer == comm->rank && (buffer.bytes > (uint64_t)comm->tuning.eager || tti_send_is_full(comm, peer)))
        return tti_comm_refuse(comm, TTI_SEND, TUTTI_ERR_ARGUMENT,
                               "send: %llu bytes to the own rank would wait for a receive that cannot start; use "
                               "sendrecv",
                               (unsigned long long)buffer.bytes);
    struct tti_send send = {.comm = comm, .in = in, .bytes = buffer.bytes, .type = type, .peer = peer, .tag = tag};
    return end(comm, tti_send_run(&send, comm->next_deadline_ms));
}

tutti_status tutti_recv(tutti_comm *comm, void *out, size_t count, tutti_type type, int peer, int tag, size_t *received)
{
    TTI_TRY(tti_api_begin(comm, TTI_RECV));
    TTI_TRY(tti_api_check_type(comm, TTI_RECV, type));
    struct tti_buffer buffer = {"out", out, 0, true};
    TTI_TRY(tti_api_bytes(comm, TTI_RECV, count, tutti_type_bytes(type), 1, &buffer.bytes));
    TTI_TRY(check(comm, TTI_RECV, &buffer, type, "peer", peer, tag));
    struct tti_recv recv = {.comm = comm, .out = out, .capacity = buffer.bytes, .type = type, .peer = peer, .tag = tag};
    tutti_status status = end(comm, tti_recv_run(&recv, comm->next_deadline_ms));
    if (status == TUTTI_OK && received != NULL) *received = recv.bytes / tutti_type_bytes(type);
    return status;
}

tutti_status tutti_sendrecv(tutti_comm *comm, const void *in, size_t in_count, int to, int in_tag, void *out,
                            size_t out_count, int from, int out_tag, tutti_type type, size_t *received)
{
    TTI_TRY(tti_api_begin(comm, TTI_SENDRECV));
    TTI_TRY(tti_api_check_type(comm, TTI_SENDRECV, type));
    struct tti_buffer input = {"in", in, 0, true}, output = {"out", out, 0, true};
    TTI_TRY(tti_api_bytes(comm, TTI_SENDRECV, in_count, tutti_type_bytes(type), 1, &input.bytes));
    TTI_TRY(tti_api_bytes(comm, TTI_SENDRECV, out_count, tutti_type_bytes(type), 1, &output.bytes));
    TTI_TRY(check(comm, TTI_SENDRECV, &input, type, "peer `to`", to, in_tag));
    TTI_TRY(check(comm, TTI_SENDRECV, &output, type, "peer `from`", from, out_tag));
    TTI_TRY(tti_api_check_overlap(comm, TTI_SENDRECV, &input, &output, false));
    struct tti_send send = {.comm = comm, .in = in, .bytes = input.bytes, .type = type, .peer = to, .tag = in_tag};
    struct tti_recv recv = {
        .comm = comm, .out = out, .capacity = output.bytes, .type = type, .peer = from, .tag = out_tag};
    tutti_status status = end(comm, tti_sendrecv_run(&send, &recv, comm->next_deadline_ms));
    if (status == TUTTI_OK && received != NULL) *received = recv.bytes / tutti_type_bytes(type);
    return status;
}
