/* SPDX-License-Identifier: Apache-2.0 */
#define TUTTI_NO_CALL_SITES
#include "actor/collective_calls.h"

#include "actor/actors.h"
#include "base/clock.h"

const char *tti_collective_check(const tutti_collective_call *calls, size_t count)
{
    if (calls == NULL || count == 0) return "there are no calls";
    for (size_t i = 0; i < count; i++)
        if (calls[i].kind < 0 || calls[i].kind >= TUTTI_DO_COLLECTIVES) return "there is no such collective";
    return NULL;
}

/* Makes one of the v-forms. */
static tutti_status make_v(tutti_comm *comm, const tutti_collective_call *c)
{
    switch (c->kind) {
    case TUTTI_DO_ALL_GATHER_V: return tutti_all_gather_v(comm, c->in, c->out, c->counts, c->offsets, c->type);
    case TUTTI_DO_GATHER_V:
        return tutti_gather_v(comm, c->in, c->count, c->out, c->counts, c->offsets, c->type, c->root);
    case TUTTI_DO_SCATTER_V:
        return tutti_scatter_v(comm, c->in, c->counts, c->offsets, c->out, c->count, c->type, c->root);
    case TUTTI_DO_REDUCE_SCATTER_V:
        return tutti_reduce_scatter_v(comm, c->in, c->out, c->counts, c->type, c->reduction);
    case TUTTI_DO_ALL_TO_ALL_V:
        return tutti_all_to_all_v(comm, c->in, c->counts, c->offsets, c->out, c->out_counts, c->out_offsets, c->type);
    default: return TUTTI_ERR_ARGUMENT;
    }
}

static tutti_status make(tutti_comm *comm, const tutti_collective_call *call)
{
    const void *in = call->in;
    void *out = call->out;
    const size_t count = call->count;
    switch (call->kind) {
    case TUTTI_DO_BARRIER: return tutti_barrier(comm);
    case TUTTI_DO_ALL_REDUCE: return tutti_all_reduce(comm, in, out, count, call->type, call->reduction);
    case TUTTI_DO_REDUCE: return tutti_reduce(comm, in, out, count, call->type, call->reduction, call->root);
    case TUTTI_DO_BROADCAST: return tutti_broadcast(comm, in, out, count, call->type, call->root);
    case TUTTI_DO_ALL_GATHER: return tutti_all_gather(comm, in, out, count, call->type);
    case TUTTI_DO_REDUCE_SCATTER: return tutti_reduce_scatter(comm, in, out, count, call->type, call->reduction);
    case TUTTI_DO_ALL_TO_ALL: return tutti_all_to_all(comm, in, out, count, call->type);
    case TUTTI_DO_GATHER: return tutti_gather(comm, in, out, count, call->type, call->root);
    case TUTTI_DO_SCATTER: return tutti_scatter(comm, in, out, count, call->type, call->root);
    case TUTTI_DO_SCAN: return tutti_scan(comm, in, out, count, call->type, call->reduction);
    case TUTTI_DO_EXSCAN: return tutti_exscan(comm, in, out, count, call->type, call->reduction);
    case TUTTI_DO_SEND: return tutti_send(comm, in, count, call->type, call->peer, call->tag);
    case TUTTI_DO_RECV: return tutti_recv(comm, out, count, call->type, call->peer, call->tag, NULL);
    default: return make_v(comm, call);
    }
}

tutti_status tti_collective_make(tutti_comm *comm, tutti_stream *stream, const tutti_collective_call *calls,
                                 size_t count, int64_t deadline_ms)
{
    tutti_status first = count > 1 ? tutti_group_begin(comm) : TUTTI_OK;
    for (size_t i = 0; i < count && first == TUTTI_OK; i++) {
        (void)tutti_within(comm, deadline_ms);
        first = make(stream == NULL ? comm : tutti_on(comm, stream), &calls[i]);
    }
    if (count == 1) return first;
    tutti_status ended = tutti_group_end(comm); /* called after a refused call, too: it starts nothing then */
    return first == TUTTI_OK ? ended : first;
}

int64_t tti_until_ns(const tutti_actors *actors, int64_t deadline_ms)
{
    return tti_now_ns() + (deadline_ms > 0 ? deadline_ms : actors->options.deadline_ms) * TTI_MS;
}

int64_t tti_left_ms(int64_t until_ns)
{
    const int64_t left = (until_ns - tti_now_ns()) / TTI_MS;
    return left > 0 ? left : 1;
}
