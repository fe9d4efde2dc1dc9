/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers by posts: ranks that share memory see each other there, sleep on their bells, and leave.
 */
#include "collective/peers/posts.h"

#include "base/clock.h"
#include "base/sim.h"
#include "collective/peers/net.h"
#include <stdio.h>
#include <string.h>

#define MS INT64_C(1000000)
enum {
    LOOK_RANKS = 32,  /* up to so many ranks it pays to check which of them share this core */
    SILENT_MS = 1000, /* a rank that has shown no wait for so long is taken for stopped or busy */
    ATTEMPTS = 1000   /* to read a record that changes */
};

/* ---- Seeing others --------------------------------------------------------------------------------------------- */

static uint64_t newest_entry(const tutti_comm *comm, int rank)
{
    uint64_t newest = 0;
    for (uint64_t i = 0; i < comm->memory->window; i++) {
        uint64_t entry = atomic_load_explicit(&tti_slot_of(comm, rank, i)->entry, memory_order_acquire);
        if (entry != 0 && (newest == 0 || (int32_t)((entry >> 32) - (newest >> 32)) > 0)) newest = entry;
    }
    return newest;
}

static void describe(const tutti_comm *comm, int rank, char *text, size_t bytes)
{
    char call[160];
    uint64_t entry = newest_entry(comm, rank);
    const char *stopped = tti_world_is_stopped(comm->world, tti_member(comm, rank)) ? "; its process is stopped" : "";
    if (entry == 0) {
        snprintf(text, bytes, "rank %d has called no collective on this comm yet%s", rank, stopped);
        return;
    }
    struct tti_call copy = *tti_call_of(comm, rank, entry >> 32);
    tti_call_describe(&copy, call, sizeof call);
    snprintf(text, bytes, "rank %d's last call was #%llu %s%s", rank, (unsigned long long)(entry >> 32), call, stopped);
}

static int find_lost(const tutti_comm *comm, int first, bool polls, char *who, size_t bytes)
{
    if (polls) tti_world_check_alive(comm->world);
    if (atomic_load_explicit(&comm->world->segment->lost_count, memory_order_acquire) == 0) return -1;
    for (int rank = first; rank < comm->size; rank++) {
        const struct tti_rank_info *info = tti_info_of(comm, rank);
        if (atomic_load_explicit(&info->state, memory_order_acquire) != TTI_RANK_LOST) continue;
        snprintf(who, bytes, "pid %d", (int)info->pid);
        return rank;
    }
    return -1;
}

/* A rank says goodbye by an entry that others compare. This word is for a rank that had run ahead and found no free
 * slot for one, and for one that left the world and ended without freeing this comm. */
static enum tti_presence presence(const tutti_comm *comm, int rank)
{
    uint32_t left = atomic_load_explicit(&comm->memory->posts[rank].left, memory_order_acquire);
    uint32_t state = atomic_load_explicit(&tti_info_of(comm, rank)->state, memory_order_acquire);
    if (left == TTI_HAS_LEFT || state == TTI_RANK_GONE) return TTI_PEER_LEFT;
    if (state == TTI_RANK_LOST) return TTI_PEER_LOST;
    return left == TTI_STAYS ? TTI_PEER_HERE : TTI_PEER_LEAVING;
}

/* Other ranks' leaving is seen by itself: a goodbye is an entry. */
static int find_absent(const tutti_comm *comm, int awaited)
{
    uint32_t left = atomic_load_explicit(&comm->memory->posts[awaited].left, memory_order_acquire);
    return left >= TTI_CALLS_NO_MORE || presence(comm, awaited) == TTI_PEER_LEFT ? awaited : -1;
}

/* ---- Who waits for whom ---------------------------------------------------------------------------------------- */

/* Each word is stored after the version became odd, and loaded before it is compared: so a record that was read in
 * between is whole. */
static void publish_wait(struct tti_post *post, const struct tti_wait_record *record)
{
    uint64_t words[TTI_WAIT_WORDS];
    uint32_t version = atomic_load_explicit(&post->wait_version, memory_order_relaxed);
    memcpy(words, record, sizeof words);
    atomic_store_explicit(&post->wait_version, version + 1, memory_order_relaxed);
    for (int i = 0; i < TTI_WAIT_WORDS; i++) atomic_store_explicit(&post->wait[i], words[i], memory_order_release);
    atomic_store_explicit(&post->wait_version, version + 2, memory_order_seq_cst);
}

/* Returns false if the record changes all the time, or its rank died while it changed it. */
static bool copy_wait(const struct tti_post *post, struct tti_wait_record *record)
{
    uint64_t words[TTI_WAIT_WORDS];
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        uint32_t version = atomic_load_explicit(&post->wait_version, memory_order_acquire);
        for (int i = 0; i < TTI_WAIT_WORDS; i++) words[i] = atomic_load_explicit(&post->wait[i], memory_order_acquire);
        if (version % 2 != 0 || atomic_load_explicit(&post->wait_version, memory_order_relaxed) != version) continue;
        memcpy(record, words, sizeof *record);
        return true;
    }
    return false;
}

static uint64_t read_wait(const tutti_comm *comm, int rank, struct tti_wait_record *record)
{
    const struct tti_post *post = &comm->memory->posts[rank];
    *record = (struct tti_wait_record){0};
    bool silent = !copy_wait(post, record) || tti_now_ns() - record->seen_ns > SILENT_MS * MS;
    record->rank = rank;
    if (silent) record->doing = TTI_RUNS;
    if (presence(comm, rank) == TTI_PEER_LEFT) record->doing = TTI_GONE;
    return atomic_load_explicit(&post->progress, memory_order_relaxed) ^ record->number;
}

/* Returns true if the awaited rank has polled since this rank shows its wait, and so has seen all that came before. A
 * rank that waits for anyone has nothing to be seen. */
static bool was_seen(const tutti_comm *comm, int awaited)
{
    struct tti_wait_record record;
    if (awaited == TTI_ANYONE) return true;
    read_wait(comm, awaited, &record);
    return record.seen_ns > comm->memory->since_ns;
}

static void show_wait(tutti_comm *comm, const struct tti_wait_record *now, uint64_t stand)
{
    struct tti_posts *posts = comm->memory;
    struct tti_waits waits = tti_comm_waits(comm);
    bool same = now != NULL && tti_wait_renew(&posts->own, now, stand);
    if (same)
        tti_wait_poll(&posts->own,
                      was_seen(comm, now->awaited) ? tti_waits_digest(&waits, comm->rank, now->awaited) : 0);
    if (now == NULL) posts->own.record.doing = TTI_RUNS;
    publish_wait(&posts->posts[comm->rank], &posts->own.record);
    if (!same) posts->since_ns = tti_now_ns();
}

/* ---- Waking ---------------------------------------------------------------------------------------------------- */

/* Wakes a rank that sleeps in its transport: by a frame, a simulated one directly. */
static void nudge(tutti_comm *comm, int place)
{
    struct tti_transport *endpoint = comm->memory->posts[place].endpoint;
    if (place == comm->memory->place) return;
    if (tti_sim != NULL) {
        endpoint->ops->wake(endpoint);
        return;
    }
    tti_net_lock(comm->lanes->net);
    tti_lane_say(comm->lanes, tti_rank_here(comm, place), (struct tti_frame_head){.kind = TTI_FRAME_NUDGE}, NULL);
    tti_net_unlock(comm->lanes->net);
}

/* Returns true if the rank's service thread sleeps, and only to the first that asks, however much comes before the
 * thread runs. */
static bool is_dozing(struct tti_post *post)
{
    return atomic_load_explicit(&post->dozes, memory_order_relaxed) != 0 &&
           atomic_exchange_explicit(&post->dozes, 0, memory_order_acq_rel) != 0;
}

/* Wakes the rank's service thread if it sleeps. */
static void rouse(const tutti_comm *comm, int rank)
{
    struct tti_rank_info *ranks = comm->world->segment->ranks;
    if (!is_dozing(&comm->memory->posts[rank])) return;
    tti_bell_ring(&ranks[atomic_load_explicit(&tti_info_of(comm, rank)->served_at, memory_order_relaxed)].bell, true);
}

/* Returns true if a thread that waits there has to be woken when this rank publishes. */
static bool is_awaited(const tutti_comm *comm, int place, bool everyone)
{
    int waiting_for = atomic_load_explicit(&comm->memory->posts[place].waiting_for, memory_order_acquire);
    return waiting_for != 0 && (everyone || waiting_for == -1 || waiting_for == comm->rank + 1);
}

static void nudge_sleepers(tutti_comm *comm)
{
    for (int place = 0; place < comm->memory->count; place++) {
        bool dozes = place != comm->memory->place && is_dozing(&comm->memory->posts[place]);
        if (dozes || is_awaited(comm, place, false)) nudge(comm, place);
    }
}

void tti_comm_ring_sleepers(tutti_comm *comm, bool everyone)
{
    if (comm->lanes != NULL) {
        nudge_sleepers(comm);
        return;
    }
    for (int rank = 0; rank < comm->size; rank++) {
        if (everyone || rank != comm->rank) rouse(comm, rank);
        if (is_awaited(comm, rank, everyone)) tti_bell_ring(&comm->memory->posts[rank].bell, comm->traits.shared_bells);
    }
}

void tti_comm_wake(tutti_comm *comm, int rank)
{
    tti_fence_frequent(atomic_load_explicit(&comm->area->full_fences, memory_order_relaxed) != 0);
    if (atomic_load_explicit(&comm->area->sleepers, memory_order_relaxed) == 0) return;
    struct tti_post *post = &comm->memory->posts[rank];
    if (atomic_load_explicit(&post->waiting_for, memory_order_acquire) != 0)
        tti_bell_ring(&post->bell, comm->traits.shared_bells);
    rouse(comm, rank);
}

/* ---- Sleeping -------------------------------------------------------------------------------------------------- */

/* Shows the transport in which a simulated rank sleeps, so that others can wake it. */
static void show_endpoint(tutti_comm *comm)
{
    if (tti_sim != NULL && comm->lanes != NULL)
        comm->memory->posts[comm->memory->place].endpoint = comm->lanes->net->transport;
}

/* To sleep: announce, fence for everyone, poll once more, sleep. Either a publisher's ring sees the sleeper, or this
 * poll sees what was published. */
void tti_posts_announce(tutti_comm *comm, int waiting_for)
{
    struct tti_posts *memory = comm->memory;
    struct tti_post *post = &memory->posts[memory->place];
    show_endpoint(comm);
    atomic_store_explicit(&post->waiting_for, waiting_for < 0 ? -1 : waiting_for + 1, memory_order_seq_cst);
    atomic_fetch_add_explicit(&memory->area->sleepers, 1, memory_order_seq_cst);
    tti_fence_rare();
}

void tti_posts_awake(tutti_comm *comm)
{
    atomic_fetch_sub_explicit(&comm->memory->area->sleepers, 1, memory_order_relaxed);
    atomic_store_explicit(&comm->memory->posts[comm->memory->place].waiting_for, 0, memory_order_relaxed);
}

static tutti_status sleep_once(tutti_comm *comm, const struct tti_waitable *waitable, int64_t waited_ns,
                               int64_t timeout_ns)
{
    (void)waited_ns;
    struct tti_post *post = &comm->memory->posts[comm->rank];
    uint32_t seen = atomic_load_explicit(&post->bell, memory_order_relaxed);
    int peer = *waitable->waiting_for;
    tti_posts_announce(comm, waitable->drives ? -1 : peer);
    int before = *waitable->waiting_for;
    tutti_status status = waitable->progress(waitable->object);
    /* a poll that moved on to another peer must announce that one first */
    if (status == TUTTI_IN_PROGRESS && before == *waitable->waiting_for && !tti_comm_is_broken(comm))
        tti_bell_sleep(&post->bell, seen, timeout_ns, comm->traits.shared_bells);
    tti_posts_awake(comm);
    return status;
}

static bool is_behind(const tutti_comm *comm, const struct tti_waitable *waitable, int rank, int core)
{
    const struct tti_post *post = &comm->memory->posts[rank];
    if (rank == comm->rank || atomic_load_explicit(&post->core, memory_order_relaxed) != core) return false;
    if (waitable->awaited == NULL) return rank == *waitable->waiting_for;
    uint64_t progress = atomic_load_explicit(&post->progress, memory_order_relaxed);
    uint64_t done = atomic_load_explicit(&post->done, memory_order_relaxed);
    return (int64_t)(progress - *waitable->awaited) < 0 && (int64_t)(done - *waitable->awaited) < 0;
}

/* Returns true if a rank that is behind can only go on when it gets this core. */
static bool gives_way(const tutti_comm *comm, const struct tti_waitable *waitable)
{
    if (comm->size > LOOK_RANKS) return true;
    int core = tti_core_now();
    for (int rank = 0; rank < comm->size; rank++)
        if (is_behind(comm, waitable, rank, core)) return true;
    return false;
}

bool tti_posts_doze(tutti_comm *comm, bool dozes)
{
    struct tti_posts *memory = comm->memory;
    if (dozes) show_endpoint(comm);
    uint32_t before = atomic_exchange_explicit(&memory->posts[memory->place].dozes, dozes, memory_order_seq_cst);
    if (dozes)
        atomic_fetch_add_explicit(&memory->area->sleepers, 1, memory_order_seq_cst);
    else
        atomic_fetch_sub_explicit(&memory->area->sleepers, 1, memory_order_relaxed);
    return !dozes && before == 0;
}

static void wake(tutti_comm *comm)
{
    tti_bell_ring(&comm->memory->posts[comm->rank].bell, comm->traits.shared_bells);
}

/* ---- Leaving --------------------------------------------------------------------------------------------------- */

/* Returns true if no peer needs the slot's old contents any more. They are needed if this rank has run ahead; peers see
 * then that it has left by another word. */
static bool is_slot_free(const tutti_comm *comm)
{
    const struct tti_posts *memory = comm->memory;
    if (comm->sequence < memory->window || memory->all_entered + memory->window > comm->sequence) return true;
    uint32_t needed = (uint32_t)(comm->sequence - memory->window + 1);
    for (int peer = 0; peer < comm->size; peer++) {
        uint64_t progress = atomic_load_explicit(&memory->posts[peer].progress, memory_order_acquire);
        if (peer != comm->rank && (int32_t)((uint32_t)(progress >> 32) - needed) < 0) return false;
    }
    return true;
}

/* Leaving is a call like any other: a peer that calls something else instead sees the difference. It waits for nobody:
 * what others may still read of this rank lies in memory that they have mapped. */
static void say_goodbye(tutti_comm *comm)
{
    if (atomic_load_explicit(&comm->memory->posts[comm->rank].left, memory_order_relaxed) >= TTI_CALLS_NO_MORE) return;
    comm->sequence++;
    struct tti_op *op = tti_op_fill(comm, TTI_LEAVE, NULL, 0, NULL, 0, 0, TUTTI_TYPE_COUNT, -1);
    comm->signature = tti_call_signature(comm->signature, tti_call_digest(&op->call));
    struct tti_slot *slot = tti_slot_of(comm, comm->rank, comm->sequence);
    /* A rank that failed has published that, for good: going on from there would look like leaving in order. */
    bool broken = tti_comm_is_broken(comm);
    if (!broken && is_slot_free(comm)) {
        *tti_call_of(comm, comm->rank, comm->sequence) = op->call;
        atomic_store_explicit(&comm->memory->posts[comm->rank].progress, comm->sequence << 32, memory_order_release);
        atomic_store_explicit(&slot->entry, comm->sequence << 32 | comm->signature, memory_order_release);
    }
    atomic_store_explicit(&comm->memory->posts[comm->rank].left, TTI_CALLS_NO_MORE, memory_order_release);
    if (!broken) tti_leave_compare(comm, &op->call);
}

static void leave(tutti_comm *comm)
{
    say_goodbye(comm);
    if (comm->members == NULL) tti_world_mark(comm->world, comm->rank, TTI_RANK_LEFT);
    atomic_store_explicit(&comm->memory->posts[comm->rank].left, TTI_HAS_LEFT, memory_order_release);
}

static void notify(tutti_comm *comm, enum tti_news news)
{
    switch (news) {
    case TTI_NEWS_BROKE: break; /* all see it in shared memory */
    case TTI_NEWS_EPOCH: break;
    case TTI_NEWS_STARTS_NO_MORE:
        atomic_store_explicit(&comm->memory->posts[comm->rank].left, TTI_STARTS_NO_MORE, memory_order_release);
        break;
    case TTI_NEWS_CALLS_NO_MORE: say_goodbye(comm); break;
    case TTI_NEWS_LEFT: leave(comm); break;
    }
    tti_comm_ring(comm, true);
}

static void shut(tutti_comm *comm)
{
    if (comm->memory->given) tti_retired_leave(comm->world, &comm->area->retired, comm->memory->owned);
}

static const struct tti_decision_ops decisions = {
    .settle_lost = tti_posts_settle_lost,
    .was_lost = tti_posts_was_lost,
    .agree = tti_posts_agree,
};

const struct tti_peers_ops tti_peers_posts = {
    .name = "posts",
    .find_lost = find_lost,
    .presence = presence,
    .find_absent = find_absent,
    .describe = describe,
    .show_wait = show_wait,
    .read_wait = read_wait,
    .sleep = sleep_once,
    .wake = wake,
    .doze = tti_posts_doze,
    .gives_way = gives_way,
    .notify = notify,
    .decisions = &decisions,
    .close = shut,
};
