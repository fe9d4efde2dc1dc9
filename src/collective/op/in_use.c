/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/in_use.h"

#include "collective/op/many.h"
#include "collective/op/pending.h"
#include "collective/op/queue.h"
#include <stdio.h>

struct search {
    const tutti_comm *comm; /* the comm that was searched already */
    uintptr_t begin;
    size_t bytes;
    char *text;
    size_t text_bytes;
};

static bool holds(const struct search *search, const void *buffer, uint64_t bytes)
{
    return bytes > 0 && (uintptr_t)buffer - search->begin < search->bytes;
}

static bool op_uses(const struct search *search, const struct tti_op *op)
{
    bool uses = holds(search, op->in, op->in_bytes) || holds(search, op->out, op->out_bytes);
    for (size_t i = 0; op->many != NULL && i < op->many->count; i++) {
        const tutti_piece *piece = &op->many->pieces[i];
        uses = uses || holds(search, piece->in, piece->count) || holds(search, piece->out, piece->count);
    }
    return uses;
}

static bool pending_uses(const struct search *search, const struct tti_pending *pending)
{
    bool uses = false;
    for (int i = 0; i < pending->count; i++) {
        const struct tti_message_request *request = &pending->requests[i];
        uses = uses || (request->sends ? holds(search, request->send.in, request->send.letter.bytes)
                                       : holds(search, request->recv.out, request->recv.capacity));
    }
    return uses;
}

static bool find_pending(const struct search *search, const tutti_comm *comm)
{
    TTI_LIST_EACH(link, &comm->queue.pending)
    {
        struct tti_pending *pending = tti_pending_on(link);
        char site[112];
        if (!pending_uses(search, pending)) continue;
        tti_site_describe(tti_pending_site(pending), site, sizeof site);
        snprintf(search->text, search->text_bytes, "%s%s", tti_kind_name(pending->kind), site);
        return true;
    }
    return false;
}

/* To be called with the right to take the comm's ops forward; others may start one meanwhile. */
static bool find_op(const struct search *search, tutti_comm *comm)
{
    struct tti_call call;
    tti_lock(&comm->queue.lock);
    const struct tti_started *started = comm->queue.first;
    while (started != NULL && !op_uses(search, &started->op)) started = started->next;
    if (started != NULL) call = started->op.call;
    tti_unlock(&comm->queue.lock);
    if (started == NULL) return find_pending(search, comm);
    tti_call_describe(&call, search->text, search->text_bytes);
    return true;
}

static bool find_elsewhere(tutti_comm *comm, void *context)
{
    const struct search *search = context;
    if (comm == search->comm || !tti_queue_try_for_ops(comm)) return false;
    bool found = find_op(search, comm);
    tti_queue_give_back(comm);
    return found;
}

bool tti_is_in_use(tutti_comm *comm, const void *memory, size_t bytes, char *text, size_t text_bytes)
{
    struct search search = {comm, (uintptr_t)memory, bytes, text, text_bytes};
    tti_queue_hold(comm);
    bool found = false;
    if (comm->queue.held) {
        tti_queue_drive(comm); /* an op that has ended uses its buffers no more */
        found = find_op(&search, comm);
    }
    tti_queue_let_go(comm, TUTTI_OK);
    return found || tti_service_find(find_elsewhere, &search);
}
