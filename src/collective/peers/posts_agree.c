/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreement of ranks that share memory, also on a comm that is broken, and while more of them die.
 *
 * Agreements of a comm are numbered. A rank takes part in number n by writing what it gives, and then n, into its post.
 * It waits until every other rank has done so, has left, or is lost, and then decides n in the area by
 * compare-and-swap, unless another has. Nobody coordinates, so it does not matter who dies.
 *
 * Invariants. A rank that is lost writes nothing any more: when all others are seen to have come or to be gone, who has
 * taken part in n is final, and every rank reads the same from the posts. A rank comes to n + 1 only after n was
 * decided; so the values of n stay until all who took part have read them: two places each are enough. A decision that
 * failed is the last one of its comm.
 */
#include "base/clock.h"
#include "base/log.h"
#include "collective/peers/posts.h"
#include <stdio.h>

#define MS INT64_C(1000000)
enum { LOOK_MS = 5, SLEEP_MS = 5, PATIENCE_US = 200, KILL_MS = 1000 };

/* ---- Who is lost --------------------------------------------------------------------------------------------------- */

void tti_posts_settle_lost(tutti_comm *comm)
{
    if (!comm->traits.all_threads) tti_world_check_alive(comm->world);
    for (int rank = 0; rank < comm->size; rank++)
        if (comm->peers->presence(comm, rank) == TTI_PEER_LOST)
            atomic_store_explicit(&comm->memory->posts[rank].lost, 1, memory_order_relaxed);
}

static uint32_t number_at(const tutti_comm *comm, int rank)
{
    return (uint32_t)(atomic_load_explicit(&comm->memory->posts[rank].agreed, memory_order_acquire) >> 32);
}

bool tti_posts_was_lost(tutti_comm *comm, int rank)
{
    uint32_t number = number_at(comm, comm->rank);
    if (atomic_load_explicit(&comm->area->broken, memory_order_acquire) == TTI_BROKEN &&
        atomic_load_explicit(&comm->memory->posts[rank].lost, memory_order_relaxed) != 0)
        return true;
    return number_at(comm, rank) < number && comm->peers->presence(comm, rank) == TTI_PEER_LOST;
}

/* ---- Decisions ----------------------------------------------------------------------------------------------------- */

enum outcome { AGREED, LATE, DIFFERS };

/* Returns a decision as it lies in the area: number, rank that it is about, outcome. */
static uint64_t decision(uint32_t number, int peer, enum outcome outcome)
{
    return (uint64_t)number << 32 | (uint64_t)peer << 8 | (uint64_t)outcome;
}

static uint32_t number_of(uint64_t decided)
{
    return (uint32_t)(decided >> 32);
}

static enum outcome outcome_of(uint64_t decided)
{
    return (enum outcome)(decided & 0xff);
}

struct agreeing {
    tutti_comm *comm;
    struct tti_agreement *call;
    uint32_t number;
    int awaited; /* a rank that has not come but may */
    int64_t began_ns;
    bool reported;
};

static uint64_t read_decided(const struct agreeing *agreeing)
{
    return atomic_load_explicit(&agreeing->comm->area->decided, memory_order_acquire);
}

/* Stores a decision, unless there is one: the first stands. */
static void decide(const struct agreeing *agreeing, int peer, enum outcome outcome)
{
    struct tti_area *area = agreeing->comm->area;
    uint64_t before = atomic_load_explicit(&area->decided, memory_order_acquire);
    if (number_of(before) >= agreeing->number) return;
    atomic_compare_exchange_strong_explicit(&area->decided, &before, decision(agreeing->number, peer, outcome),
                                            memory_order_acq_rel, memory_order_acquire);
    tti_comm_ring(agreeing->comm, true);
}

static tutti_status take(const struct agreeing *agreeing, uint64_t decided)
{
    const tutti_comm *comm = agreeing->comm;
    struct tti_agreement *call = agreeing->call;
    bool fails = number_of(decided) <= agreeing->number && outcome_of(decided) != AGREED;
    call->peer = fails ? (int)(decided >> 8 & 0xffffff) : -1;
    call->differs = fails && outcome_of(decided) == DIFFERS;
    if (fails) return call->differs ? TUTTI_ERR_MISMATCH : TUTTI_ERR_TIMEOUT;
    for (int rank = 0; rank < comm->size; rank++) {
        const struct tti_post *post = &comm->memory->posts[rank];
        call->present[rank] = number_at(comm, rank) >= agreeing->number;
        call->values[rank] = atomic_load_explicit(&post->given[agreeing->number & 1], memory_order_relaxed);
    }
    return TUTTI_OK;
}

/* Returns true if the rank will not come any more. */
static bool is_gone(const tutti_comm *comm, int rank)
{
    enum tti_presence presence = comm->peers->presence(comm, rank);
    return presence == TTI_PEER_LOST || presence == TTI_PEER_LEFT;
}

/* Returns the first rank from `first` on that has not come but may, or -1. */
static int find_awaited(const struct agreeing *agreeing, int first)
{
    for (int rank = first; rank < agreeing->comm->size; rank++)
        if (number_at(agreeing->comm, rank) < agreeing->number && !is_gone(agreeing->comm, rank)) return rank;
    return -1;
}

/* Returns a rank that has come with another call, or -1. While the number is not decided no rank has gone on from
 * it. */
static int find_differing(const struct agreeing *agreeing)
{
    const tutti_comm *comm = agreeing->comm;
    uint64_t own = atomic_load_explicit(&comm->memory->posts[comm->rank].agreed, memory_order_relaxed);
    for (int rank = 0; rank < comm->size; rank++) {
        uint64_t agreed = atomic_load_explicit(&comm->memory->posts[rank].agreed, memory_order_acquire);
        if (agreed >> 32 == agreeing->number && agreed != own) return rank;
    }
    return -1;
}

static tutti_status poll(struct agreeing *agreeing)
{
    uint64_t decided = read_decided(agreeing);
    if (number_of(decided) < agreeing->number && outcome_of(decided) == AGREED) {
        agreeing->awaited = find_awaited(agreeing, 0);
        if (agreeing->awaited >= 0) return TUTTI_IN_PROGRESS;
        int other = find_differing(agreeing);
        decide(agreeing, other < 0 ? 0 : other, other < 0 ? AGREED : DIFFERS);
        decided = read_decided(agreeing);
    }
    return take(agreeing, decided);
}

/* ---- Waiting ------------------------------------------------------------------------------------------------------- */

/* Kills the ranks that have not come in time if that is wanted and possible; else all are told that it is too late. */
static void expire(struct agreeing *agreeing)
{
    tutti_comm *comm = agreeing->comm;
    for (int rank = find_awaited(agreeing, 0); rank >= 0; rank = find_awaited(agreeing, rank + 1)) {
        if (agreeing->call->kills && tti_world_kill(comm->world, tti_member(comm, rank), KILL_MS)) {
            tti_log(TUTTI_WARN, "rank %d: rank %d did not come to %s within %lld ms: its process was killed",
                    comm->rank, rank, tti_kind_name(agreeing->call->kind), (long long)agreeing->call->deadline_ms);
            continue;
        }
        decide(agreeing, rank, LATE);
        return;
    }
}

static void report(struct agreeing *agreeing, int64_t waited_ns)
{
    char doing[192];
    if (agreeing->reported || agreeing->awaited < 0) return;
    agreeing->reported = true;
    agreeing->comm->peers->describe(agreeing->comm, agreeing->awaited, doing, sizeof doing);
    tti_log(TUTTI_WARN, "rank %d waits in %s since %.1f s for rank %d; %s", agreeing->comm->rank,
            tti_kind_name(agreeing->call->kind), (double)waited_ns / 1e9, agreeing->awaited, doing);
}

static void polls(struct agreeing *agreeing, int64_t now_ns)
{
    tutti_comm *comm = agreeing->comm;
    int64_t waited_ns = now_ns - agreeing->began_ns;
    if (!comm->traits.all_threads) tti_world_check_alive(comm->world);
    if (waited_ns >= comm->world->options.stall_report_ms * MS) report(agreeing, waited_ns);
    if (waited_ns >= agreeing->call->deadline_ms * MS) expire(agreeing);
}

static void sleep_once(struct agreeing *agreeing)
{
    tutti_comm *comm = agreeing->comm;
    struct tti_post *post = &comm->memory->posts[comm->rank];
    uint32_t seen = atomic_load_explicit(&post->bell, memory_order_relaxed);
    tti_posts_announce(comm, -1);
    if (poll(agreeing) == TUTTI_IN_PROGRESS)
        tti_bell_sleep(&post->bell, seen, SLEEP_MS * MS, comm->traits.shared_bells);
    tti_posts_awake(comm);
}

static tutti_status await(struct agreeing *agreeing)
{
    struct tti_wait wait;
    int64_t polled_ns = agreeing->began_ns;
    tti_wait_begin(&wait, agreeing->comm->traits.crowded, PATIENCE_US * INT64_C(1000));
    for (;;) {
        tutti_status status = poll(agreeing);
        if (status != TUTTI_IN_PROGRESS) return status;
        if (!tti_wait_pause(&wait, true)) sleep_once(agreeing);
        int64_t now_ns = tti_now_ns();
        if (now_ns - polled_ns < LOOK_MS * MS) continue;
        polled_ns = now_ns;
        polls(agreeing, now_ns);
    }
}

tutti_status tti_posts_agree(tutti_comm *comm, struct tti_agreement *agreement)
{
    struct tti_post *post = &comm->memory->posts[comm->rank];
    struct agreeing agreeing = {.comm = comm,
                                .call = agreement,
                                .number = number_at(comm, comm->rank) + 1,
                                .awaited = -1,
                                .began_ns = tti_now_ns()};
    uint64_t decided = read_decided(&agreeing);
    if (outcome_of(decided) != AGREED) return take(&agreeing, decided);
    atomic_store_explicit(&post->given[agreeing.number & 1], agreement->mine, memory_order_relaxed);
    atomic_store_explicit(&post->agreed, (uint64_t)agreeing.number << 32 | agreement->kind, memory_order_release);
    tti_comm_ring(comm, true);
    return await(&agreeing);
}
