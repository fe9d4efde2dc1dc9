/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/message.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/comm.h"
#include "collective/copy.h"
#include <string.h>

enum { PIECE_BYTES = 1 << 20, KILL_MS = 1000 };
enum { STARTING, ANNOUNCED, MOVING, CLOSING, DONE }; /* all but the first and last: of a large message, on both sides */

struct tti_early {
    struct tti_early *next;
    uint64_t bytes;
    int32_t tag;
    uint8_t type;
    unsigned char data[];
};

struct tti_mailbox *tti_mailboxes_create(int size)
{
    struct tti_mailbox *mailboxes = tti_calloc((size_t)size, sizeof *mailboxes);
    for (int i = 0; mailboxes != NULL && i < size; i++) mailboxes[i].last = &mailboxes[i].first;
    return mailboxes;
}

void tti_mailboxes_free(struct tti_mailbox *mailboxes, int size)
{
    for (int i = 0; mailboxes != NULL && i < size; i++) {
        while (mailboxes[i].first != NULL) {
            struct tti_early *next = mailboxes[i].first->next;
            tti_free(mailboxes[i].first);
            mailboxes[i].first = next;
        }
    }
    tti_free(mailboxes);
}

/* ---- Channels -------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t *channel_word(const tutti_comm *comm, int from, int to)
{
    return &comm->channels[(size_t)to * (size_t)comm->size + (size_t)from];
}

static tutti_status open_to(tutti_comm *comm, int peer)
{
    struct tti_channel_end *end = &comm->mailboxes[peer].to;
    if (end->channel != NULL) return TUTTI_OK;
    tutti_error error = {0};
    end->channel = tti_arena_alloc(&comm->world->arena, sizeof *end->channel, &error);
    if (end->channel == NULL)
        return tti_comm_refuse(comm, TTI_SEND, error.status, "no channel from rank %d to rank %d: %s", comm->rank, peer,
                               error.text);
    uint64_t offset = (uint64_t)((char *)end->channel - comm->world->arena.mapping.base);
    atomic_store_explicit(channel_word(comm, comm->rank, peer), offset + 1, memory_order_release);
    tti_comm_ring(comm, false);
    return TUTTI_OK;
}

/* Whether the peer has made its channel to us yet. */
static bool open_from(tutti_comm *comm, int peer)
{
    struct tti_channel_end *end = &comm->mailboxes[peer].from;
    if (end->channel != NULL) return true;
    uint64_t word = atomic_load_explicit(channel_word(comm, peer, comm->rank), memory_order_acquire);
    if (word == 0) return false;
    int process = tti_info_of(comm, peer)->process;
    end->channel = tti_world_translate(comm->world, process, word - 1, sizeof *end->channel);
    return end->channel != NULL;
}

static bool peer_left(const tutti_comm *comm, int peer)
{
    return atomic_load_explicit(&tti_info_of(comm, peer)->state, memory_order_acquire) == TTI_RANK_LEFT;
}

bool tti_send_is_full(tutti_comm *comm, int peer)
{
    struct tti_channel_end *end = &comm->mailboxes[peer].to;
    return end->channel != NULL && tti_channel_reserve(end) == NULL;
}

/* ---- Sending --------------------------------------------------------------------------------------------------- */

static tutti_status wait_for_peer(struct tti_send *send)
{
    send->waiting_for = send->peer;
    if (!send->left) return TUTTI_IN_PROGRESS;
    char site[112];
    tti_site_describe(&send->comm->site, site, sizeof site);
    return tti_comm_break(send->comm, TTI_SEND, TUTTI_ERR_MISMATCH, send->peer,
                          "rank %d sends %llu bytes with tag %d%s to rank %d, which has left", send->comm->rank,
                          (unsigned long long)send->bytes, send->tag, site, send->peer);
}

static tutti_status put(struct tti_send *send, enum tti_cell_kind kind, const void *data, size_t length, uint64_t bytes)
{
    struct tti_cell *cell = tti_channel_reserve(send->end);
    if (cell == NULL) return wait_for_peer(send);
    bool moves = tti_move(length);
    cell->bytes = bytes;
    cell->tag = send->tag;
    cell->type = (uint8_t)send->type;
    cell->kind = (uint8_t)kind;
    if (moves && length > 0) memcpy(cell->data, data, length);
    tti_moved();
    tti_channel_commit(send->end);
    tti_comm_ring(send->comm, false);
    return TUTTI_OK;
}

static tutti_status announce(struct tti_send *send)
{
    struct tti_channel *channel = send->end->channel;
    struct tti_place place = tti_place_of(send->comm, send->in, send->bytes);
    if (send->comm->world->options.direct == 0) place.reach = TTI_NOWHERE;
    channel->source_reach = place.reach;
    channel->source_process = place.process;
    channel->source_value = place.value;
    TTI_TRY(put(send, TTI_CELL_LARGE, NULL, 0, send->bytes));
    send->end->large++;
    send->state = ANNOUNCED;
    return TUTTI_OK;
}

static uint64_t half_of(uint64_t bytes)
{
    return bytes / 2 / 64 * 64;
}

static void copy_pieces(tutti_comm *comm, char *target, const char *source, uint64_t bytes)
{
    uint64_t footprint = 4 * bytes, fits = (uint64_t)comm->tuning.stream; /* half of the message, in two buffers */
    enum tti_store store = footprint < fits ? TTI_CACHED : footprint / 4 < fits ? TTI_MIXED : TTI_STREAMED;
    bool moves = tti_move(bytes);
    for (uint64_t done = 0; moves && done < bytes && !tti_comm_is_broken(comm); done += PIECE_BYTES)
        tti_copy(target + done, source + done, bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES, store);
    tti_moved();
}

static tutti_status send_share(struct tti_send *send)
{
    struct tti_channel *channel = send->end->channel;
    if (channel->way == TTI_WAY_PARTS) {
        while (send->done < send->bytes) {
            uint64_t rest = send->bytes - send->done, length = rest < TTI_CELL_BYTES ? rest : TTI_CELL_BYTES;
            TTI_TRY(put(send, TTI_CELL_PART, send->in + send->done, length, length));
            send->done += length;
        }
    } else if (channel->way == TTI_WAY_HALVES) {
        struct tti_place place = {channel->target_reach, channel->target_process, channel->target_value};
        char *target = tti_place_resolve(send->comm, send->peer, place);
        uint64_t half = half_of(send->bytes);
        copy_pieces(send->comm, target + half, send->in + half, send->bytes - half);
        if (tti_comm_is_broken(send->comm)) return TUTTI_IN_PROGRESS; /* may have stopped half way */
    }
    atomic_store_explicit(&channel->sent, send->end->large, memory_order_release);
    tti_comm_ring(send->comm, false);
    send->state = CLOSING;
    return TUTTI_OK;
}

static tutti_status send_progress(void *object)
{
    struct tti_send *send = object;
    send->left = peer_left(send->comm, send->peer); /* before looking: what it did it did before leaving */
    if (send->state == STARTING && send->bytes <= (uint64_t)send->comm->tuning.eager) {
        TTI_TRY(put(send, TTI_CELL_EAGER, send->in, send->bytes, send->bytes));
        send->state = DONE;
    }
    if (send->state == DONE) return TUTTI_OK;
    if (send->state == STARTING) TTI_TRY(announce(send));
    struct tti_channel *channel = send->end->channel;
    if (send->state == ANNOUNCED) {
        if (atomic_load_explicit(&channel->accepted, memory_order_acquire) != send->end->large)
            return wait_for_peer(send);
        send->state = MOVING;
    }
    if (send->state == MOVING) TTI_TRY(send_share(send));
    bool done = channel->way == TTI_WAY_PARTS ||
                atomic_load_explicit(&channel->received, memory_order_acquire) == send->end->large;
    if (!done) return wait_for_peer(send);
    if (channel->way != TTI_WAY_PARTS && tti_comm_is_broken(send->comm)) return TUTTI_IN_PROGRESS; /* likewise */
    send->state = DONE;
    return TUTTI_OK;
}

/* ---- Receiving ------------------------------------------------------------------------------------------------- */

static tutti_status fits(struct tti_recv *recv, uint64_t bytes, uint8_t type)
{
    size_t element = tutti_type_bytes(recv->type);
    char site[112];
    if (type != (uint8_t)recv->type) {
        tti_site_describe(&recv->comm->site, site, sizeof site);
        return tti_comm_break(recv->comm, TTI_RECV, TUTTI_ERR_MISMATCH, recv->peer,
                              "rank %d receives %s with tag %d%s from rank %d, which sent %s", recv->comm->rank,
                              tutti_type_name(recv->type), recv->tag, site, recv->peer,
                              tutti_type_name((tutti_type)type));
    }
    if (bytes > recv->capacity)
        return tti_comm_refuse(recv->comm, TTI_RECV, TUTTI_ERR_TRUNCATED,
                               "rank %d's message with tag %d has %llu elements, the buffer of rank %d only %llu; it "
                               "can still be received with a larger one",
                               recv->peer, recv->tag, (unsigned long long)(bytes / element), recv->comm->rank,
                               (unsigned long long)(recv->capacity / element));
    recv->bytes = bytes;
    return TUTTI_OK;
}

static tutti_status take_early(struct tti_recv *recv)
{
    for (struct tti_early **link = &recv->mailbox->first; *link != NULL; link = &(*link)->next) {
        struct tti_early *early = *link;
        if (early->tag != recv->tag) continue;
        TTI_TRY(fits(recv, early->bytes, early->type));
        if (early->bytes > 0) memcpy(recv->out, early->data, early->bytes);
        *link = early->next;
        if (recv->mailbox->last == &early->next) recv->mailbox->last = link;
        tti_free(early);
        recv->state = DONE;
        return TUTTI_OK;
    }
    return TUTTI_IN_PROGRESS;
}

static tutti_status keep_early(struct tti_recv *recv, const struct tti_cell *cell)
{
    struct tti_early *early = tti_calloc(1, sizeof *early + cell->bytes);
    if (early == NULL)
        return tti_comm_break(recv->comm, TTI_RECV, TUTTI_ERR_MEMORY, recv->comm->rank,
                              "rank %d has no memory for a message of rank %d that came early", recv->comm->rank,
                              recv->peer);
    early->bytes = cell->bytes;
    early->tag = cell->tag;
    early->type = cell->type;
    memcpy(early->data, cell->data, cell->bytes);
    *recv->mailbox->last = early;
    recv->mailbox->last = &early->next;
    return TUTTI_OK;
}

static enum tti_large_way way_of(tutti_comm *comm, int peer, struct tti_place source, struct tti_place target)
{
    if (source.reach == TTI_NOWHERE || comm->world->options.direct == 0) return TTI_WAY_PARTS;
    bool reach = tti_place_resolve(comm, peer, source) != NULL;
    bool same = tti_info_of(comm, peer)->pid == tti_info_of(comm, comm->rank)->pid;
    if (reach && (same || target.reach == TTI_ARENA)) return TTI_WAY_HALVES;
    return reach || comm->can_attach ? TTI_WAY_FETCH : TTI_WAY_PARTS;
}

static void accept_large(struct tti_recv *recv)
{
    struct tti_channel_end *end = &recv->mailbox->from;
    struct tti_channel *channel = end->channel;
    struct tti_place source = {channel->source_reach, channel->source_process, channel->source_value};
    struct tti_place target = tti_place_of(recv->comm, recv->out, recv->bytes);
    recv->way = (int)way_of(recv->comm, recv->peer, source, target);
    channel->way = (uint32_t)recv->way;
    channel->target_reach = target.reach;
    channel->target_process = target.process;
    channel->target_value = target.value;
    end->large++;
    tti_channel_take(end);
    atomic_store_explicit(&channel->accepted, end->large, memory_order_release);
    tti_comm_ring(recv->comm, false);
    recv->state = MOVING;
}

static tutti_status take_cells(struct tti_recv *recv)
{
    struct tti_channel_end *end = &recv->mailbox->from;
    struct tti_cell *cell;
    while ((cell = tti_channel_peek(end)) != NULL) {
        if (cell->tag == recv->tag) {
            TTI_TRY(fits(recv, cell->bytes, cell->type));
            if (cell->kind == TTI_CELL_LARGE) {
                accept_large(recv);
                return TUTTI_OK;
            }
            if (cell->bytes > 0) memcpy(recv->out, cell->data, cell->bytes);
            tti_channel_take(end);
            tti_comm_ring(recv->comm, false);
            recv->state = DONE;
            return TUTTI_OK;
        }
        if (cell->kind == TTI_CELL_LARGE) return TUTTI_IN_PROGRESS; /* nothing can follow it before it is accepted */
        TTI_TRY(keep_early(recv, cell));
        tti_channel_take(end);
        tti_comm_ring(recv->comm, false);
    }
    return TUTTI_IN_PROGRESS;
}

static tutti_status find_message(struct tti_recv *recv)
{
    recv->waiting_for = recv->peer;
    bool left = peer_left(recv->comm, recv->peer); /* before looking: what it sent it sent before leaving */
    tutti_status status = TUTTI_IN_PROGRESS;
    if (open_from(recv->comm, recv->peer)) status = take_cells(recv);
    if (status != TUTTI_IN_PROGRESS || !left) return status;
    char site[112];
    tti_site_describe(&recv->comm->site, site, sizeof site);
    return tti_comm_break(recv->comm, TTI_RECV, TUTTI_ERR_MISMATCH, recv->peer,
                          "rank %d receives with tag %d%s from rank %d, which has left and sent no such message",
                          recv->comm->rank, recv->tag, site, recv->peer);
}

static tutti_status take_parts(struct tti_recv *recv)
{
    struct tti_channel_end *end = &recv->mailbox->from;
    while (recv->done < recv->bytes) {
        struct tti_cell *cell = tti_channel_peek(end);
        if (cell == NULL) return TUTTI_IN_PROGRESS;
        memcpy(recv->out + recv->done, cell->data, cell->bytes);
        recv->done += cell->bytes;
        tti_channel_take(end);
        tti_comm_ring(recv->comm, false);
    }
    return TUTTI_OK;
}

static tutti_status recv_share(struct tti_recv *recv)
{
    tutti_comm *comm = recv->comm;
    struct tti_channel *channel = recv->mailbox->from.channel;
    if (recv->way == TTI_WAY_PARTS) { /* the sender may be at its next message already: its place is not ours to read */
        TTI_TRY(take_parts(recv));
    } else {
        struct tti_place source = {channel->source_reach, channel->source_process, channel->source_value};
        uint64_t bytes = recv->way == TTI_WAY_HALVES ? half_of(recv->bytes) : recv->bytes;
        char *address = tti_place_resolve(comm, recv->peer, source);
        if (address != NULL)
            copy_pieces(comm, recv->out, address, bytes);
        else
            TTI_TRY(tti_place_fetch(comm, TTI_RECV, recv->peer, source, 0, recv->out, bytes));
    }
    if (tti_comm_is_broken(comm)) return TUTTI_IN_PROGRESS;
    atomic_store_explicit(&channel->received, recv->mailbox->from.large, memory_order_release);
    tti_comm_ring(comm, false);
    recv->state = recv->way == TTI_WAY_HALVES ? CLOSING : DONE;
    return TUTTI_OK;
}

static tutti_status recv_progress(void *object)
{
    struct tti_recv *recv = object;
    if (recv->state == STARTING) {
        tutti_status early = take_early(recv);
        if (early != TUTTI_IN_PROGRESS) return early;
        TTI_TRY(find_message(recv));
    }
    if (recv->state == MOVING) TTI_TRY(recv_share(recv));
    if (recv->state == CLOSING) { /* the sender has its half to copy */
        struct tti_channel_end *end = &recv->mailbox->from;
        if (atomic_load_explicit(&end->channel->sent, memory_order_acquire) < end->large) return TUTTI_IN_PROGRESS;
        if (tti_comm_is_broken(recv->comm)) return TUTTI_IN_PROGRESS; /* so it may have stopped half way */
        recv->state = DONE;
    }
    return TUTTI_OK;
}

/* ---- From start to end ----------------------------------------------------------------------------------------- */

static bool is_here(const tutti_comm *comm, int peer)
{
    return atomic_load_explicit(&tti_info_of(comm, peer)->state, memory_order_acquire) == TTI_RANK_JOINED;
}

/* A side that failed says first that it touches the message no more, then waits until the other cannot touch its buffer
 * either. A failed sendrecv says both before it waits for anything. One that accepts a message from now on sees the
 * broken comm before it touches anything: the side that failed fences for everyone after the break. */
static void stop_recv(struct tti_recv *recv)
{
    struct tti_channel_end *end = &recv->mailbox->from;
    tti_fence_rare();
    if (recv->state != MOVING && recv->state != CLOSING) return;
    atomic_store_explicit(&end->channel->received, end->large, memory_order_release);
    tti_comm_ring(recv->comm, true);
}

static void stop_send(struct tti_send *send)
{
    tti_fence_rare();
    if (send->state == STARTING || send->state == DONE) return;
    atomic_store_explicit(&send->end->channel->sent, send->end->large, memory_order_release);
    tti_comm_ring(send->comm, true);
}

static void fence_recv(struct tti_recv *recv)
{
    tutti_comm *comm = recv->comm;
    struct tti_channel_end *end = &recv->mailbox->from;
    if ((recv->state != MOVING && recv->state != CLOSING) || recv->way != TTI_WAY_HALVES) return;
    int64_t until = tti_now_ns() + comm->world->options.fence_ms * 1000000;
    /* not "!=": the sender may have gone on to its next message and failed there */
    while (atomic_load_explicit(&end->channel->sent, memory_order_acquire) < end->large) {
        tti_world_check_alive(comm->world);
        if (!is_here(comm, recv->peer)) return;
        if (tti_now_ns() >= until) {
            if (!tti_world_kill(comm->world, tti_member(comm, recv->peer), KILL_MS))
                tti_comm_quarantine(comm, TTI_RECV, recv->peer, NULL, recv->out);
            return;
        }
        tti_wait_turn();
    }
}

/* Only a receiver of this process reads the buffer where it lies. */
static void fence_send(struct tti_send *send)
{
    tutti_comm *comm = send->comm;
    struct tti_channel *channel = send->end->channel;
    bool same = tti_info_of(comm, send->peer)->pid == tti_info_of(comm, comm->rank)->pid;
    if (send->state == STARTING || send->state == DONE || !same) return;
    if (atomic_load_explicit(&channel->accepted, memory_order_acquire) != send->end->large) return;
    int64_t until = tti_now_ns() + comm->world->options.fence_ms * 1000000;
    while (atomic_load_explicit(&channel->received, memory_order_acquire) != send->end->large) {
        if (!is_here(comm, send->peer)) return;
        if (tti_now_ns() >= until) {
            tti_comm_quarantine(comm, TTI_SEND, send->peer, send->in, NULL);
            return;
        }
        tti_wait_turn();
    }
}

static void prepare_send(struct tti_send *send)
{
    send->end = &send->comm->mailboxes[send->peer].to;
    send->state = STARTING;
    send->waiting_for = send->peer;
}

static void prepare_recv(struct tti_recv *recv)
{
    recv->mailbox = &recv->comm->mailboxes[recv->peer];
    recv->state = STARTING;
    recv->waiting_for = recv->peer;
}

tutti_status tti_send_run(struct tti_send *send, int64_t deadline_ms)
{
    TTI_TRY(open_to(send->comm, send->peer));
    prepare_send(send);
    struct tti_waitable waitable = {.progress = send_progress,
                                    .object = send,
                                    .waiting_for = &send->waiting_for,
                                    .site = &send->comm->site,
                                    .deadline_ms = deadline_ms};
    tutti_status status = tti_comm_wait(send->comm, &waitable);
    if (status == TUTTI_OK) return TUTTI_OK;
    stop_send(send);
    fence_send(send);
    return status;
}

tutti_status tti_recv_run(struct tti_recv *recv, int64_t deadline_ms)
{
    prepare_recv(recv);
    struct tti_waitable waitable = {.progress = recv_progress,
                                    .object = recv,
                                    .waiting_for = &recv->waiting_for,
                                    .site = &recv->comm->site,
                                    .deadline_ms = deadline_ms};
    tutti_status status = tti_comm_wait(recv->comm, &waitable);
    if (status == TUTTI_OK) return TUTTI_OK;
    stop_recv(recv);
    fence_recv(recv);
    return status;
}

struct both {
    struct tti_send *send;
    struct tti_recv *recv;
    tutti_status send_status, recv_status;
    int waiting_for;
};

static tutti_status both_progress(void *object)
{
    struct both *both = object;
    if (both->send_status == TUTTI_IN_PROGRESS) both->send_status = send_progress(both->send);
    if (both->recv_status == TUTTI_IN_PROGRESS) both->recv_status = recv_progress(both->recv);
    if (both->send_status < 0) return both->send_status;
    if (both->recv_status < 0 && both->send_status == TUTTI_OK) return both->recv_status;
    bool waits = both->send_status == TUTTI_IN_PROGRESS || both->recv_status == TUTTI_IN_PROGRESS;
    if (both->send_status == TUTTI_OK)
        both->waiting_for = both->recv->waiting_for;
    else if (both->recv_status != TUTTI_IN_PROGRESS)
        both->waiting_for = both->send->waiting_for;
    else
        both->waiting_for = both->send->peer == both->recv->peer ? both->send->peer : -1;
    return waits ? TUTTI_IN_PROGRESS : TUTTI_OK;
}

tutti_status tti_sendrecv_run(struct tti_send *send, struct tti_recv *recv, int64_t deadline_ms)
{
    TTI_TRY(open_to(send->comm, send->peer));
    prepare_send(send);
    prepare_recv(recv);
    struct both both = {.send = send,
                        .recv = recv,
                        .send_status = TUTTI_IN_PROGRESS,
                        .recv_status = TUTTI_IN_PROGRESS,
                        .waiting_for = send->peer};
    struct tti_waitable waitable = {.progress = both_progress,
                                    .object = &both,
                                    .waiting_for = &both.waiting_for,
                                    .site = &send->comm->site,
                                    .deadline_ms = deadline_ms};
    tutti_status status = tti_comm_wait(send->comm, &waitable);
    if (status == TUTTI_OK) return TUTTI_OK;
    stop_send(send);
    stop_recv(recv);
    fence_send(send);
    fence_recv(recv);
    return status;
}
