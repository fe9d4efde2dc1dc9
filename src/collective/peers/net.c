/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/peers/net.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/sim.h"
#include "base/status.h"
#include "world/cluster.h"
#include <assert.h>
#include <string.h>
#include <unistd.h>

enum { STRAY_BYTES = 64 << 20, CLOSE_MS = 2000 };

/* ---- The lock -------------------------------------------------------------------------------------------------- */

/* Returns an address that is different for each task. */
static const void *self(void)
{
    static _Thread_local char here;
    return tti_sim == NULL ? &here : tti_sim_self();
}

static bool try_lock(struct tti_net *net)
{
    if (atomic_load_explicit(&net->owner, memory_order_relaxed) != self()) {
        if (atomic_load_explicit(&net->lock, memory_order_relaxed) != 0 ||
            atomic_exchange_explicit(&net->lock, 1, memory_order_acquire) != 0)
            return false;
        atomic_store_explicit(&net->owner, self(), memory_order_relaxed);
    }
    net->depth++;
    return true;
}

void tti_net_lock(struct tti_net *net)
{
    while (!try_lock(net)) tti_wait_turn();
}

void tti_net_unlock(struct tti_net *net)
{
    if (--net->depth > 0) return;
    atomic_store_explicit(&net->owner, NULL, memory_order_relaxed);
    tti_unlock(&net->lock);
}

/* Returns the comm's number of a rank of the world; -1: it is not in the comm. */
static int rank_in(const struct tti_lanes *lanes, int peer)
{
    return lanes->rank_of == NULL ? peer : lanes->rank_of[peer];
}

static struct tti_lanes *find_lanes(const struct tti_net *net, uint32_t id, uint32_t epoch, int peer)
{
    for (struct tti_lanes *lanes = net->lanes; lanes != NULL; lanes = lanes->next)
        if (lanes->id == id && lanes->comm->traits.era.made == epoch && rank_in(lanes, peer) >= 0) return lanes;
    return NULL;
}

/* Warns once: a rank that sends such frames does not stop at one. */
static void warn(struct tti_net *net, int peer, const struct tti_frame_head *head)
{
    if (!net->warned)
        tti_log(TUTTI_WARN,
                "rank %d drops what rank %d sends on a comm that it has not made (number %u, kind %d, %llu bytes): a "
                "frame of at most %d bytes is kept, of %d bytes in all; do all ranks use the same version?",
                net->rank, peer, head->comm, head->kind, (unsigned long long)head->bytes, TTI_LINK_WINDOW, STRAY_BYTES);
    net->warned = true;
}

/* Returns true if the frame's comm was made before the world was rebuilt: it is not read, whatever comm has that number
 * now. */
static bool is_old(struct tti_net *net, int peer, const struct tti_frame_head *head)
{
    if (head->epoch >= net->epoch) return false;
    if (!net->warned_of_epoch)
        tti_log(TUTTI_INFO, "rank %d, in epoch %u, drops what rank %d sends on a comm of epoch %u", net->rank,
                net->epoch, peer, head->epoch);
    net->warned_of_epoch = true;
    return true;
}

static uint64_t charge_of(const struct tti_aside *stray)
{
    return stray->head.bytes < TTI_LINK_CHARGE ? TTI_LINK_CHARGE : stray->head.bytes;
}

static enum tti_match match_stray(struct tti_net *net, int peer, const struct tti_frame_head *head)
{
    if (head->bytes <= TTI_LINK_WINDOW && net->stray_bytes + head->bytes + TTI_LINK_CHARGE <= STRAY_BYTES)
        return TTI_PUT_ASIDE;
    warn(net, peer, head);
    return TTI_DROP;
}

static enum tti_match match(struct tti_lanes *lanes, int rank, const struct tti_frame_head *head,
                            struct tti_taking *taking)
{
    if (head->kind == TTI_FRAME_DATA) return tti_lane_match(lanes, rank, head, taking);
    if (!tti_frame_is_message(head)) return head->bytes > TTI_NET_SAID ? TTI_DROP : TTI_PUT_ASIDE;
    if (head->bytes == 0 || lanes->comm->messages == NULL) return TTI_DROP;
    return lanes->sink->match(lanes->comm, rank, head, taking);
}

static struct tti_coming *coming_from(struct tti_net *net, int peer)
{
    struct tti_coming *coming = tti_table_get(&net->coming, peer);
    if (coming != NULL) return coming;
    coming = tti_calloc(1, sizeof *coming);
    if (coming == NULL || tti_table_set(&net->coming, peer, coming)) return coming;
    tti_free(coming);
    return NULL;
}

/* A frame is lost for lack of memory, and this rank may be waiting for it: notes that. */
static void no_memory(struct tti_lanes *lanes, int rank, const struct tti_frame_head *head)
{
    if (!tti_frame_is_message(head))
        lanes->no_memory = true;
    else if (lanes->comm->messages != NULL)
        lanes->sink->no_memory(lanes->comm, rank);
}

static void *begin(void *context, int peer, const struct tti_frame_head *head, void **cookie)
{
    struct tti_net *net = context;
    struct tti_lanes *lanes = find_lanes(net, head->comm, head->epoch, peer);
    struct tti_coming *coming = coming_from(net, peer);
    struct tti_taking taking = {0};
    enum tti_match what = TTI_DROP;
    *cookie = NULL;
    assert(coming == NULL ||
           (coming->receive == NULL && coming->aside == NULL)); /* the frames of a peer come one after the other */
    if (is_old(net, peer, head)) return NULL;
    if (coming != NULL)
        what = lanes == NULL ? match_stray(net, peer, head) : match(lanes, rank_in(lanes, peer), head, &taking);
    if (what == TTI_GIVE_TO) {
        enum tti_purpose purpose = head->kind == TTI_FRAME_DATA ? TTI_COLLECTIVES : TTI_LETTERS;
        *coming = (struct tti_coming){lanes, purpose, taking.receive, NULL};
        return taking.target;
    }
    if (what == TTI_PUT_ASIDE) coming->aside = tti_aside_new(peer, head);
    if (what == TTI_PUT_ASIDE && coming->aside != NULL) return coming->aside->data;
    if ((what == TTI_PUT_ASIDE || coming == NULL) && lanes != NULL) no_memory(lanes, rank_in(lanes, peer), head);
    return NULL;
}

/* Hands on a frame that was put aside and has come; takes it over. */
static void sort(struct tti_lanes *lanes, struct tti_aside *aside)
{
    int rank = rank_in(lanes, aside->peer);
    if (aside->head.kind == TTI_FRAME_DATA) {
        tti_lane_came(lanes, rank, aside);
    } else if (tti_frame_is_message(&aside->head) && lanes->comm->messages != NULL) {
        lanes->sink->hear(lanes->comm, rank, &aside->head, aside);
    } else {
        if (!tti_frame_is_message(&aside->head)) tti_lane_hear(lanes, rank, aside);
        tti_free(aside);
    }
}

/* Hands on the frames that came for a comm before it was made here. */
void tti_net_take_strays(struct tti_net *net, struct tti_lanes *lanes)
{
    TTI_LIST_EACH(link, &net->strays)
    {
        struct tti_aside *aside = TTI_LIST_OF(link, struct tti_aside, on);
        if (find_lanes(net, aside->head.comm, aside->head.epoch, aside->peer) != lanes) continue;
        tti_list_remove(link);
        net->stray_bytes -= charge_of(aside);
        sort(lanes, aside);
    }
}

/* Returns true if this rank had a comm of that number with this peer, and has freed it. */
static bool is_freed(const struct tti_net *net, uint32_t id)
{
    for (const struct tti_making *making = net->making; making != NULL; making = making->next)
        if (making->id == id) return false;
    return id < net->next_id;
}

/* Takes a frame for a comm that is not made here yet, or that was freed here and whose asker had no dealings with this
 * rank before. */
static void take_stray(struct tti_net *net, struct tti_aside *aside)
{
    const struct tti_frame_head *head = &aside->head;
    if (is_freed(net, head->comm)) {
        struct tti_frame_head answer = {.comm = head->comm, .kind = TTI_FRAME_LEAVE, .epoch = head->epoch};
        if (head->kind == TTI_FRAME_ASK) tti_net_say(net, aside->peer, answer, NULL);
        tti_free(aside);
        return;
    }
    net->stray_bytes += charge_of(aside);
    tti_list_append(&net->strays, &aside->on);
}

/* Wakes the service thread, which sleeps on the transport and does not see what another thread has just taken from
 * it. */
static void rouse(struct tti_net *net, const struct tti_lanes *lanes)
{
    uint64_t one = 1;
    if (!atomic_load_explicit(&lanes->dozes, memory_order_acquire)) return;
    if (tti_sim == NULL)
        (void)!write(atomic_load_explicit(&net->doze_fd, memory_order_relaxed), &one, sizeof one);
    else
        net->transport->ops->wake(net->transport);
}

static void end(void *context, int peer, const struct tti_frame_head *head, void *cookie)
{
    struct tti_net *net = context;
    struct tti_lanes *lanes = find_lanes(net, head->comm, head->epoch, peer);
    if (lanes != NULL) rouse(net, lanes);
    struct tti_coming *coming = tti_table_get(&net->coming, peer);
    (void)cookie;
    if (coming == NULL) return;
    struct tti_coming now = *coming;
    *coming = (struct tti_coming){0};
    if (now.aside == NULL && now.receive == NULL && head->epoch < net->epoch) return;
    if (lanes == NULL) {
        if (now.aside != NULL) take_stray(net, now.aside);
    } else if (now.aside != NULL) {
        sort(lanes, now.aside);
    } else if (now.receive != NULL && head->kind == TTI_FRAME_DATA) {
        tti_lane_arrived(tti_lane_at(lanes, rank_in(lanes, peer)), now.receive);
    } else if (tti_frame_is_message(head) && lanes->comm->messages != NULL) {
        if (now.receive != NULL)
            lanes->sink->arrived(lanes->comm, rank_in(lanes, peer), head, now.receive);
        else
            lanes->sink->hear(lanes->comm, rank_in(lanes, peer), head, NULL);
    }
}

/* If there is no memory to note that a rank is lost, breaks all comms that have it. */
static void break_all(struct tti_net *net, int peer, const char *text)
{
    for (struct tti_lanes *lanes = net->lanes; lanes != NULL; lanes = lanes->next) {
        int rank = rank_in(lanes, peer);
        tutti_error failure = {.peer = rank};
        tti_error_set(&failure, TUTTI_ERR_PEER_LOST, 0, "rank %d was lost without leaving: %s", rank, text);
        if (rank >= 0) tti_comm_store_failure(lanes->comm, &failure);
    }
}

void tti_net_lose(struct tti_net *net, int peer, const char *text)
{
    size_t bytes = strlen(text) + 1;
    if (tti_table_get(&net->lost, peer) != NULL) return;
    char *why = tti_calloc(1, bytes);
    if (why != NULL) memcpy(why, text, bytes);
    if (why != NULL && tti_table_set(&net->lost, peer, why)) return;
    tti_free(why);
    break_all(net, peer, text);
}

static void lose(void *context, int peer, bool closed, int system_errno, const char *text)
{
    struct tti_net *net = context;
    (void)system_errno;
    struct tti_coming *coming = tti_table_get(&net->coming, peer);
    if (coming != NULL) tti_free(coming->aside);
    if (coming != NULL) *coming = (struct tti_coming){0}; /* the rest of the frame will not come */
    for (struct tti_lanes *lanes = net->lanes; lanes != NULL; lanes = lanes->next) {
        int rank = rank_in(lanes, peer);
        if (rank < 0) continue;
        rouse(net, lanes);
        struct tti_lane *lane = closed ? tti_lane_to(lanes, rank) : NULL;
        if (lane != NULL) lane->left = true;
    }
    if (!closed || !tti_table_set(&net->closed, peer, net)) tti_net_lose(net, peer, text);
    for (struct tti_lanes *lanes = net->lanes; lanes != NULL; lanes = lanes->next)
        if (rank_in(lanes, peer) >= 0) tti_lanes_note_gone(lanes, rank_in(lanes, peer));
}

bool tti_net_move(struct tti_net *net, int awaited)
{
    return net->depth == 1 && net->transport->ops->progress(net->transport, awaited);
}

bool tti_net_pump(struct tti_net *net)
{
    if (!try_lock(net)) return false;
    bool moved = tti_net_move(net, TTI_ANYBODY);
    tti_net_unlock(net);
    return moved;
}

/* ---- Numbers of comms ------------------------------------------------------------------------------------------ */

uint32_t tti_net_propose(struct tti_net *net)
{
    tti_net_lock(net);
    uint32_t id = net->next_id++;
    tti_net_unlock(net);
    return id;
}

bool tti_net_take_id(struct tti_net *net, uint32_t proposed, struct tti_making *making)
{
    tti_net_lock(net);
    bool takes = making->id == proposed || making->id >= net->next_id;
    if (takes) {
        if (making->id >= net->next_id) net->next_id = making->id + 1;
        making->next = net->making;
        net->making = making;
    }
    tti_net_unlock(net);
    return takes;
}

void tti_net_made(struct tti_net *net, struct tti_making *making)
{
    tti_net_lock(net);
    struct tti_making **link = &net->making;
    while (*link != NULL && *link != making) link = &(*link)->next;
    if (*link != NULL) *link = making->next;
    tti_net_unlock(net);
}

/* ---- Making and freeing ---------------------------------------------------------------------------------------- */

tutti_status tti_net_create(struct tti_transport *transport, struct tti_net **net, tutti_error *error)
{
    struct tti_net *made = tti_calloc(1, sizeof *made);
    struct tti_table closed = TTI_TABLE(transport->size);
    bool prepares = transport->size <= TTI_TABLE_DIRECT; /* a larger table may have to grow all the same */
    /* a rank that leaves must not look lost for lack of memory */
    if (made == NULL || (prepares && !tti_table_prepare(&closed))) {
        tti_free(made);
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for what rank %d exchanges with others",
                             transport->rank);
    }
    made->transport = transport;
    made->rank = transport->rank;
    made->size = transport->size;
    made->lost = made->coming = TTI_TABLE(transport->size);
    made->closed = closed;
    tti_list_init(&made->strays);
    made->references = 1;
    transport->sink = (struct tti_sink){.context = made, .begin = begin, .end = end, .lost = lose};
    *net = made;
    return TUTTI_OK;
}

struct tti_kept {
    void *memory;
    struct tti_kept *next;
};

bool tti_net_copy(struct tti_transport *transport, int peer, struct tti_outgoing *outgoing, void **copy)
{
    uint64_t bytes = outgoing->head.bytes;
    *copy = NULL;
    if (tti_sim != NULL && tti_sim_setup_of()->sizes_only && bytes > TTI_SIM_SMALL_BYTES) return true;
    *copy = tti_malloc(1, bytes);
    if (*copy == NULL) return false;
    memcpy(*copy, outgoing->data, bytes);
    transport->ops->keep(transport, peer, outgoing, *copy);
    return true;
}

void tti_net_keep(struct tti_net *net, void *memory)
{
    struct tti_kept *kept = memory == NULL ? NULL : tti_calloc(1, sizeof *kept);
    if (kept == NULL) return; /* a leak is better than memory that is used after it was freed */
    *kept = (struct tti_kept){.memory = memory, .next = net->kept};
    net->kept = kept;
}

static void free_kept(struct tti_net *net)
{
    while (net->kept != NULL) {
        struct tti_kept *next = net->kept->next;
        tti_free(net->kept->memory);
        tti_free(net->kept);
        net->kept = next;
    }
}

bool tti_net_is_excluded(const struct tti_net *net)
{
    const struct tti_cluster *cluster = net->cluster;
    return cluster != NULL && tti_board_excluded(&cluster->board);
}

static int64_t parting_ns(const struct tti_net *net)
{
    return tti_net_is_excluded(net) ? -1 : (int64_t)CLOSE_MS * 1000000;
}

void tti_net_part(struct tti_net *net)
{
    tti_net_lock(net);
    net->transport->ops->part(net->transport, parting_ns(net));
    for (struct tti_lanes *lanes = net->lanes; lanes != NULL; lanes = lanes->next) {
        int rank = lanes->comm->rank;
        tutti_error failure = {.peer = rank};
        tti_error_set(&failure, TUTTI_ERR_MISMATCH, 0, "rank %d has left the world, and this comm with it", rank);
        tti_comm_store_failure(lanes->comm, &failure);
    }
    tti_net_unlock(net);
}

void tti_net_release(struct tti_net *net)
{
    tti_net_lock(net);
    int left = --net->references;
    tti_net_unlock(net);
    if (left > 0) return;
    net->transport->ops->close(net->transport, parting_ns(net));
    free_kept(net);
    TTI_LIST_EACH(link, &net->strays) tti_free(TTI_LIST_OF(link, struct tti_aside, on));
    TTI_TABLE_EACH(place, &net->lost) tti_free(net->lost.values[place]);
    tti_table_free(&net->lost);
    tti_table_free(&net->closed);
    TTI_TABLE_EACH(place, &net->coming)
    {
        tti_free(((struct tti_coming *)net->coming.values[place])->aside);
        tti_free(net->coming.values[place]);
    }
    tti_table_free(&net->coming);
    if (net->release != NULL) net->release(net->cluster);
    tti_free(net);
}
