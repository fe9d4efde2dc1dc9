/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for peers: polling, sleeping, and noticing that they died, stalled or that time is up. All waits of
 * operations come through tti_comm_wait, so deadlines, deaths and reports are decided here and nowhere else.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/comm.h"
#include <stdio.h>

#define MS INT64_C(1000000)

enum {
    LOOK_MS = 10,          /* how often a waiting rank asks whether the others live */
    SLEEP_MS = 25,         /* the longest sleep when processes may die */
    SLEEP_THREADS_MS = 50, /* threads are marked by their own process: only deadlines are due */
    PATIENCE_US = 1000,    /* yields before sleeping, and more for each rank that needs its turn */
    PATIENCE_PER_RANK_US = 20,
    LOOK_RANKS = 32 /* up to here it pays to look which ranks share this core */
};

struct watch {
    tutti_comm *comm;
    const struct tti_waitable *waitable;
    struct tti_vigil *vigil;
    int64_t now_ns;
};

static uint64_t newest_entry(const tutti_comm *comm, int rank)
{
    uint64_t newest = 0;
    for (uint64_t i = 0; i < TTI_WINDOW; i++) {
        uint64_t entry = atomic_load_explicit(&comm->posts[rank].slots[i].entry, memory_order_acquire);
        if (entry != 0 && (newest == 0 || (int32_t)((entry >> 32) - (newest >> 32)) > 0)) newest = entry;
    }
    return newest;
}

void tti_comm_describe_rank(const tutti_comm *comm, int rank, char *text, size_t bytes)
{
    uint64_t entry = newest_entry(comm, rank);
    if (entry == 0) {
        snprintf(text, bytes, "rank %d has made no call yet", rank);
        return;
    }
    char call[160];
    struct tti_call copy = *tti_call_of(comm, rank, entry >> 32);
    tti_call_describe(&copy, call, sizeof call);
    snprintf(text, bytes, "rank %d's last call was #%llu %s", rank, (unsigned long long)(entry >> 32), call);
}

static double seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

/* Remembers when the awaited peer was last seen to move. */
static void observe(struct watch *watch)
{
    int peer = *watch->waitable->waiting_for;
    if (peer < 0) return;
    const struct tti_post *post = &watch->comm->posts[peer];
    uint64_t mark = newest_entry(watch->comm, peer) ^ atomic_load_explicit(&post->progress, memory_order_relaxed) ^
                    (uint64_t)peer << 20;
    if (mark == watch->vigil->peer_mark && watch->vigil->peer_moved_ns != 0) return;
    watch->vigil->peer_mark = mark;
    watch->vigil->peer_moved_ns = watch->now_ns;
}

static void describe_stall(const struct watch *watch, char *text, size_t bytes)
{
    int peer = *watch->waitable->waiting_for;
    int64_t now = watch->now_ns;
    char doing[192] = "", waited[64];
    snprintf(waited, sizeof waited, "%.1f s", seconds(now - watch->vigil->since_ns));
    if (peer < 0) {
        snprintf(text, bytes, "rank %d has waited %s in %s", watch->comm->rank, waited,
                 tti_kind_name(watch->waitable->kind));
        return;
    }
    tti_comm_describe_rank(watch->comm, peer, doing, sizeof doing);
    snprintf(text, bytes, "rank %d has waited %s in %s for rank %d; %s, and it has not moved for %.1f s",
             watch->comm->rank, waited, tti_kind_name(watch->waitable->kind), peer, doing,
             seconds(now - watch->vigil->peer_moved_ns));
}

static tutti_status time_out(struct watch *watch, int64_t deadline_ms)
{
    char text[400];
    describe_stall(watch, text, sizeof text);
    return tti_comm_break(watch->comm, watch->waitable->kind, TUTTI_ERR_TIMEOUT, *watch->waitable->waiting_for,
                          "%s: its deadline of %lld ms passed", text, (long long)deadline_ms);
}

/* A peer that left will not come any more. Its goodbye is an entry that the executor compares; this is for the case that
 * it had run ahead and found no free slot for one. Messages see to it themselves (message.c). */
static tutti_status check_left(struct watch *watch)
{
    tutti_comm *comm = watch->comm;
    int peer = *watch->waitable->waiting_for;
    if (peer < 0 || watch->waitable->kind >= TTI_LEAVE) return TUTTI_OK;
    if (atomic_load_explicit(&tti_info_of(comm, peer)->state, memory_order_acquire) != TTI_RANK_LEFT) return TUTTI_OK;
    tutti_status status = watch->waitable->progress(watch->waitable->object);
    if (status != TUTTI_IN_PROGRESS || *watch->waitable->waiting_for != peer) return TUTTI_OK;
    char doing[192], site[112];
    tti_comm_describe_rank(comm, peer, doing, sizeof doing);
    tti_site_describe(watch->waitable->site, site, sizeof site);
    return tti_comm_break(comm, watch->waitable->kind, TUTTI_ERR_MISMATCH, peer,
                          "rank %d called %s%s, but rank %d has left; %s", comm->rank,
                          tti_kind_name(watch->waitable->kind), site, peer, doing);
}

/* This rank waits for a message of a peer that itself sleeps, in a collective, until this rank enters: neither will ever
 * go on. Certain, not a guess: the peer announced its sleep after it had looked for an entry that this rank, busy here,
 * has not made. */
static tutti_status check_crossed(struct watch *watch)
{
    tutti_comm *comm = watch->comm;
    int peer = *watch->waitable->waiting_for;
    if (peer < 0 || peer == comm->rank || watch->waitable->kind < TTI_LEAVE) return TUTTI_OK;
    uint64_t entry = newest_entry(comm, peer);
    if (entry == 0 || (int32_t)((uint32_t)(entry >> 32) - (uint32_t)comm->sequence) <= 0) return TUTTI_OK;
    if (atomic_load_explicit(&comm->posts[peer].waiting_for, memory_order_acquire) != comm->rank + 1) return TUTTI_OK;
    tutti_status status = watch->waitable->progress(watch->waitable->object);
    if (status != TUTTI_IN_PROGRESS || *watch->waitable->waiting_for != peer) return status;
    char doing[192], site[112];
    tti_comm_describe_rank(comm, peer, doing, sizeof doing);
    tti_site_describe(watch->waitable->site, site, sizeof site);
    return tti_comm_break(comm, watch->waitable->kind, TUTTI_ERR_MISMATCH, peer,
                          "rank %d waits in %s%s for rank %d, which waits for rank %d in a collective; %s", comm->rank,
                          tti_kind_name(watch->waitable->kind), site, peer, comm->rank, doing);
}

static int64_t deadline_of(const tutti_comm *comm, const struct tti_waitable *waitable)
{
    return waitable->deadline_ms != 0 ? waitable->deadline_ms : comm->world->options.deadline_ms;
}

static tutti_status look(struct watch *watch)
{
    tutti_comm *comm = watch->comm;
    struct tti_vigil *vigil = watch->vigil;
    int64_t now = watch->now_ns;
    if (vigil->since_ns == 0) vigil->since_ns = now;
    if (now - vigil->looked_ns >= LOOK_MS * MS) {
        vigil->looked_ns = now;
        observe(watch);
        TTI_TRY(tti_comm_health(comm, watch->waitable->kind, !comm->all_threads));
        TTI_TRY(check_left(watch));
        tutti_status crossed = check_crossed(watch);
        if (crossed < 0) return crossed;
    }
    int64_t waited = now - vigil->since_ns, deadline_ms = deadline_of(comm, watch->waitable);
    if (waited >= deadline_ms * MS) return time_out(watch, deadline_ms);
    if (!vigil->reported && waited >= comm->world->options.stall_report_ms * MS) {
        char text[400];
        describe_stall(watch, text, sizeof text);
        tti_log(TUTTI_WARN, "%s", text);
        vigil->reported = true;
    }
    return TUTTI_OK;
}

tutti_status tti_comm_look(tutti_comm *comm, const struct tti_waitable *waitable, int64_t now_ns)
{
    struct watch watch = {.comm = comm, .waitable = waitable, .vigil = waitable->vigil, .now_ns = now_ns};
    return look(&watch);
}

/* How long to sleep before something must be looked at again. */
static int64_t sleep_ns(const struct watch *watch, int64_t until_ns)
{
    int64_t longest = (watch->comm->all_threads ? SLEEP_THREADS_MS : SLEEP_MS) * MS;
    int64_t left = watch->vigil->since_ns + deadline_of(watch->comm, watch->waitable) * MS - watch->now_ns;
    if (left < longest) longest = left > MS ? left : MS;
    if (until_ns - watch->now_ns < longest) longest = until_ns - watch->now_ns;
    return longest;
}

/* Announce, fence for everyone, poll once more, sleep: either a publisher's ring sees the sleeper, or this poll sees what
 * it published. */
static tutti_status sleep_once(struct watch *watch, int64_t until_ns)
{
    tutti_comm *comm = watch->comm;
    struct tti_post *post = &comm->posts[comm->rank];
    uint32_t seen = atomic_load_explicit(&post->bell, memory_order_relaxed);
    int peer = *watch->waitable->waiting_for;
    int announced = peer < 0 ? -1 : peer + 1;
    if (peer >= 0 && watch->waitable->awaited == NULL) announced |= TTI_IN_MESSAGE;
    atomic_store_explicit(&post->waiting_for, announced, memory_order_seq_cst);
    atomic_fetch_add_explicit(&comm->area->sleepers, 1, memory_order_seq_cst);
    tti_fence_rare();
    int before = *watch->waitable->waiting_for;
    tutti_status status = watch->waitable->progress(watch->waitable->object);
    /* a poll that moved on to another peer must announce that one first */
    if (status == TUTTI_IN_PROGRESS && before == *watch->waitable->waiting_for && !tti_comm_is_broken(comm))
        tti_bell_sleep(&post->bell, seen, sleep_ns(watch, until_ns), comm->shared_bells);
    atomic_fetch_sub_explicit(&comm->area->sleepers, 1, memory_order_relaxed);
    atomic_store_explicit(&post->waiting_for, 0, memory_order_relaxed);
    return status;
}

static bool is_behind(const tutti_comm *comm, const struct tti_waitable *waitable, int rank, int core)
{
    const struct tti_post *post = &comm->posts[rank];
    if (rank == comm->rank || atomic_load_explicit(&post->core, memory_order_relaxed) != core) return false;
    if (waitable->awaited == NULL) return rank == *waitable->waiting_for;
    return (int64_t)(atomic_load_explicit(&post->progress, memory_order_relaxed) - *waitable->awaited) < 0;
}

/* Whether a rank that is behind can only go on when it gets this core. */
static bool must_give_way(const tutti_comm *comm, const struct tti_waitable *waitable)
{
    if (!comm->crowded) return false;
    if (comm->size > LOOK_RANKS) return true;
    int core = tti_core_now();
    for (int rank = 0; rank < comm->size; rank++)
        if (is_behind(comm, waitable, rank, core)) return true;
    return false;
}

tutti_status tti_comm_wait_until(tutti_comm *comm, const struct tti_waitable *waitable, int64_t until_ns)
{
    tutti_status status = waitable->progress(waitable->object);
    if (status != TUTTI_IN_PROGRESS) return status;
    struct tti_vigil own = {0};
    struct watch watch = {
        .comm = comm, .waitable = waitable, .vigil = waitable->vigil != NULL ? waitable->vigil : &own};
    struct tti_wait wait;
    int64_t patience = (PATIENCE_US + (int64_t)comm->size * PATIENCE_PER_RANK_US) * 1000;
    tti_wait_begin(&wait, comm->crowded, patience);
    for (;;) {
        bool slept = !tti_wait_pause(&wait, must_give_way(comm, waitable));
        watch.now_ns = wait.now_ns;
        status = slept ? sleep_once(&watch, until_ns) : waitable->progress(waitable->object);
        if (status != TUTTI_IN_PROGRESS) return status;
        if (tti_comm_is_broken(comm)) return tti_comm_health(comm, waitable->kind, false);
        if (slept) wait.now_ns = tti_now_ns(); /* what is looked at after a sleep goes by the time after it */
        if (!tti_wait_slow(&wait)) continue;
        watch.now_ns = wait.now_ns;
        if (watch.vigil == &own) own.since_ns = wait.started_ns;
        TTI_TRY(look(&watch));
        if (watch.now_ns >= until_ns) return TUTTI_IN_PROGRESS;
    }
}

tutti_status tti_comm_wait(tutti_comm *comm, const struct tti_waitable *waitable)
{
    return tti_comm_wait_until(comm, waitable, INT64_MAX);
}
