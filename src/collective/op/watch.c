/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits for peers: polls, sleeps, and notices if they died or stalled, or if time is up. All waits of operations use
 * tti_comm_wait, so deadlines, deaths and reports are decided only here.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/comm/show.h"
#include "collective/comm/stats.h"
#include "collective/comm/trace.h"
#include "collective/message/message_parts.h"
#include "collective/op/pending.h"
#include "collective/op/queue.h"
#include <stdio.h>
#include <string.h>

#define MS INT64_C(1000000)

enum {
    POLL_MS = 10,           /* how often a waiting rank asks if the others live, and what they wait for */
    POLL_OFTEN_MS = 250,    /* for so long, a new wait sleeps at most POLL_MS at a time */
    SLEEP_MS = 25,          /* the longest sleep when processes may die */
    SLEEP_THREADS_MS = 50,  /* threads are marked by their own process: only deadlines are due */
    UNREACHED_MS = 1800000, /* how long a stream may take to come to an op, at least */
    PATIENCE_US = 1000,     /* yields before sleeping, and more for each rank that needs its turn */
    PATIENCE_PER_RANK_US = 20
};

struct watch {
    tutti_comm *comm;
    const struct tti_waitable *waitable;
    struct tti_wait_state *wait_state;
    int64_t now_ns;
    int64_t before_ns;  /* when it looked before, and has polled since; 0: it has not */
    int64_t counted_ns; /* until when this wait is in the statistics; 0: the clock was not read yet */
    int64_t skew_ns;    /* time spent waiting for ranks that had not entered yet */
};

static double seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

/* Returns the rank that this wait is for in the end. */
static int blamed(const struct watch *watch)
{
    struct tti_waits waits = tti_comm_waits(watch->comm);
    int peer = *watch->waitable->waiting_for;
    return peer < 0 || watch->waitable->kind == TTI_LEAVE ? peer : tti_waits_blame(&waits, watch->comm->rank, peer);
}

/* Notes when that rank was last seen to move. */
static void observe(struct watch *watch)
{
    struct tti_wait_record record;
    int peer = blamed(watch);
    if (peer < 0) return;
    uint64_t mark = watch->comm->peers->read_wait(watch->comm, peer, &record) ^ (uint64_t)peer << 20;
    if (mark == watch->wait_state->peer_mark && watch->wait_state->peer_moved_ns != 0) return;
    watch->wait_state->peer_mark = mark;
    watch->wait_state->peer_moved_ns = watch->now_ns;
}

/* Writes a call such as "recv with tag 3 at cli_train.c:12", "#7 all_reduce(4 f32, sum) at cli_train.c:12". */
static void describe_call(const struct watch *watch, char text[TTI_WAIT_WHAT])
{
    const struct tti_waitable *waitable = watch->waitable;
    char number[24] = "", detail[64] = "", what[240];
    if (waitable->op != NULL) {
        snprintf(number, sizeof number, "#%llu ", (unsigned long long)watch->comm->sequence);
        tti_call_describe(&waitable->op->call, what, sizeof what);
    } else {
        char site[112];
        if (waitable->detail != NULL) waitable->detail(waitable->object, detail, sizeof detail);
        tti_site_describe(waitable->site, site, sizeof site);
        snprintf(what, sizeof what, "%s%s%s", tti_kind_name(waitable->kind), detail, site);
    }
    snprintf(text, TTI_WAIT_WHAT, "%s%.*s", number, (int)(TTI_WAIT_WHAT - 1 - strlen(number)), what);
}

/* Describes what a rank does, and those that it waits for: "; rank 1 waits in recv with tag 3 at cli_train.c:12 for
 * rank 2; rank 2's last call was …". */
static void describe_chain(const tutti_comm *comm, int rank, char *text, size_t bytes)
{
    struct tti_waits waits = tti_comm_waits(comm);
    struct tti_wait_record record;
    char doing[256];
    int last = tti_waits_blame(&waits, comm->rank, rank);
    tti_waits_describe(&waits, comm->rank, rank, text, bytes);
    comm->peers->read_wait(comm, last, &record);
    if (record.doing == TTI_WAITS) return;
    size_t used = strlen(text);
    comm->peers->describe(comm, last, doing, sizeof doing);
    snprintf(text + used, bytes - used, "; %s", doing);
}

/* Writes "rank 0 waits in … for rank 1", and what that rank does. If the wait is for any rank, it says what two others
 * do. */
static void describe_wait(const struct watch *watch, const char *waits, char *text, size_t bytes)
{
    const tutti_comm *comm = watch->comm;
    int peer = *watch->waitable->waiting_for, others = peer >= 0 || watch->waitable->kind < TTI_LEAVE ? 0 : 2;
    char what[TTI_WAIT_WHAT], whom[32] = "";
    describe_call(watch, what);
    if (others > 0) snprintf(whom, sizeof whom, " for any rank");
    if (peer >= 0) snprintf(whom, sizeof whom, " for rank %d", peer);
    snprintf(text, bytes, "rank %d %s in %s%s", comm->rank, waits, what, whom);
    size_t used = strlen(text);
    if (peer >= 0) {
        struct tti_waits records = tti_comm_waits(comm);
        describe_chain(comm, peer, text + used, bytes - used);
        used = strlen(text);
        tti_waits_describe_others(&records, comm->rank, peer, text + used, bytes - used);
    }
    for (int rank = 0; rank < comm->size && others > 0; rank++) {
        if (rank == comm->rank) continue;
        used = strlen(text);
        describe_chain(comm, rank, text + used, (bytes - used) / (size_t)others--);
    }
}

static void describe_stall(const struct watch *watch, char *text, size_t bytes)
{
    char waited[48];
    int64_t now = watch->now_ns, moved = watch->wait_state->peer_moved_ns;
    snprintf(waited, sizeof waited, "has waited %.1f s", seconds(now - watch->wait_state->since_ns));
    describe_wait(watch, waited, text, bytes);
    size_t used = strlen(text);
    if (*watch->waitable->waiting_for >= 0)
        snprintf(text + used, bytes - used, ", and rank %d has not moved for %.1f s", blamed(watch),
                 seconds(now - moved));
}

/* `own`: the deadline is that of the call, set by tutti_within. */
static const char *what_to_do(enum tti_kind kind, bool own)
{
    switch (kind) {
    case TTI_LEAVE: return "";
    case TTI_SEND: return "; is there a receive for it? ranks that send to each other use tutti_sendrecv or a group";
    case TTI_RECV:
    case TTI_PROBE: return "; is there a send for it, with its tag?";
    case TTI_SENDRECV:
    case TTI_GROUP: return "; are there such messages on the other side, with their tags?";
    default:
        return own ? "; all ranks of the comm have to call it, in that time"
                   : "; all ranks of the comm have to call it; for ranks that need longer set TUTTI_DEADLINE_MS";
    }
}

static tutti_status time_out(struct watch *watch, int64_t deadline_ms)
{
    const struct tti_waitable *waitable = watch->waitable;
    char text[400], advice[400] = "";
    describe_stall(watch, text, sizeof text);
    if (waitable->advise != NULL) waitable->advise(waitable->object, advice, sizeof advice);
    return tti_comm_break(watch->comm, waitable->kind, TUTTI_ERR_TIMEOUT, blamed(watch),
                          "%s: its deadline of %lld ms passed%s", text, (long long)deadline_ms,
                          advice[0] != '\0' ? advice : what_to_do(waitable->kind, waitable->deadline_ms != 0));
}

/* Fails if the deadline of another op of the comm has passed: one behind the op that waits or beside it may have less
 * time. */
static tutti_status check_others(struct watch *watch)
{
    tutti_comm *comm = watch->comm;
    bool alone = !watch->waitable->started && !watch->waitable->drives;
    struct tti_started *late = alone ? NULL : tti_queue_overdue(comm, watch->now_ns);
    if (late == NULL) return TUTTI_OK;
    enum tti_kind kind = tti_started_kind(late);
    char text[320], site[112];
    describe_stall(watch, text, sizeof text);
    tti_site_describe(tti_started_site(late), site, sizeof site);
    return tti_comm_break(comm, kind, TUTTI_ERR_TIMEOUT, blamed(watch),
                          "%s; %s%s is in flight too: its deadline of %lld ms passed", text, tti_kind_name(kind), site,
                          (long long)late->op.deadline_ms);
}

/* Fails if the awaited peer has left and so will not come, or if it needs another rank that has left. Messages check
 * this themselves (message.c). */
static tutti_status check_left(struct watch *watch)
{
    tutti_comm *comm = watch->comm;
    int awaited = *watch->waitable->waiting_for;
    if (awaited < 0 || watch->waitable->kind >= TTI_LEAVE) return TUTTI_OK;
    int peer = comm->peers->find_absent(comm, awaited);
    if (peer < 0) return TUTTI_OK;
    tutti_status status = watch->waitable->progress(watch->waitable->object);
    if (status < 0) return status;
    if (status != TUTTI_IN_PROGRESS || *watch->waitable->waiting_for != awaited) return TUTTI_OK;
    char doing[192], site[112];
    comm->peers->describe(comm, peer, doing, sizeof doing);
    tti_site_describe(watch->waitable->site, site, sizeof site);
    return tti_comm_break(comm, watch->waitable->kind, TUTTI_ERR_MISMATCH, peer,
                          "rank %d called %s%s, but rank %d has left; %s", comm->rank,
                          tti_kind_name(watch->waitable->kind), site, peer, doing);
}

/* Fills in what the others are told about this wait, as it is after a poll. Called with the lock of messages held. */
static uint64_t fill_record(const struct watch *watch, struct tti_wait_record *now)
{
    const struct tti_waitable *waitable = watch->waitable;
    const struct tti_op *op = waitable->op;
    bool blocks = !waitable->started && !waitable->drives, unmet = waitable->kind < TTI_LEAVE;
    int peer = *waitable->waiting_for;
    uint64_t stand = 0;
    if (op != NULL)
        stand = tti_mix(tti_mix(op->awaited, op->comm->sequence), (uint64_t)op->walk.rounds << 32 | op->walk.step);
    else if (waitable->unmet != NULL)
        unmet = waitable->unmet(waitable->object, &stand);
    *now = (struct tti_wait_record){.seen_ns = watch->before_ns,
                                    .rank = watch->comm->rank,
                                    .awaited = peer < 0 ? TTI_ANYONE : peer,
                                    .doing = TTI_WAITS,
                                    .sure = blocks && unmet && peer != watch->comm->rank};
    describe_call(watch, now->what);
    return stand;
}

/* Shows what this rank waits in, and finds out if that can ever end. A message beside collectives leaves showing to
 * these, since others wait for them. A message that nobody waits for is not shown. */
static tutti_status check_waits(struct watch *watch)
{
    tutti_comm *comm = watch->comm;
    struct tti_waits waits = tti_comm_waits(comm);
    struct tti_wait_record now;
    enum tti_kind kind = watch->waitable->kind;
    bool beside = kind > TTI_LEAVE && watch->waitable->drives && tti_queue_has_collectives(comm);
    if (kind == TTI_LEAVE || beside || watch->waitable->passing) return TUTTI_OK;
    tti_messages_lock(comm);
    uint64_t stand = fill_record(watch, &now);
    comm->peers->show_wait(comm, &now, stand);
    const struct tti_messages *messages = comm->messages;
    atomic_store_explicit(&comm->counts.messaged, messages->sent.bytes + messages->received.bytes,
                          memory_order_relaxed);
    tti_messages_unlock(comm);
    tti_show_wait(comm, &now, watch->wait_state->since_ns, blamed(watch));
    if (now.sure == 0 || !tti_waits_forever(&waits, comm->rank)) return TUTTI_OK;
    char text[400];
    describe_wait(watch, "waits", text, sizeof text);
    return tti_comm_break(comm, kind, TUTTI_ERR_MISMATCH, now.awaited, "%s: none of them can go on%s", text,
                          kind < TTI_LEAVE ? "; is a message missing, or sent or received too late?"
                                           : what_to_do(kind, false));
}

static int64_t deadline_of(const tutti_comm *comm, const struct tti_waitable *waitable)
{
    int64_t deadline_ms = waitable->deadline_ms != 0 ? waitable->deadline_ms : comm->world->options.deadline_ms;
    bool counts = waitable->reached == NULL || atomic_load_explicit(waitable->reached, memory_order_relaxed);
    return counts || deadline_ms > UNREACHED_MS ? deadline_ms : UNREACHED_MS;
}

static void report(struct watch *watch)
{
    const tutti_comm *comm = watch->comm;
    char text[400], numbers[200];
    describe_stall(watch, text, sizeof text);
    tti_comm_numbers(comm, blamed(watch), numbers, sizeof numbers);
    if (numbers[0] == '\0')
        tti_log(TUTTI_WARN, "%s", text);
    else
        tti_log(TUTTI_WARN, "%s; in a comm of %d: %s", text, comm->size, numbers);
    watch->wait_state->reported = true;
}

/* Watches a tolerant wait: an error found here ends only the messages that it concerns (message_tolerant.c). */
static void look_tolerantly(struct watch *watch)
{
    tutti_comm *comm = watch->comm;
    struct tti_wait_state *wait_state = watch->wait_state;
    int64_t now = watch->now_ns;
    if (wait_state->since_ns == 0) wait_state->since_ns = now;
    if (now - wait_state->polled_ns >= POLL_MS * MS) {
        wait_state->polled_ns = now;
        observe(watch);
        char who[160];
        comm->peers->find_lost(comm, 0, !comm->traits.all_threads, who, sizeof who); /* records who is lost */
        tti_queue_expire(comm, now);
    }
    if (wait_state->reported || watch->waitable->passing) return;
    if (now - wait_state->since_ns >= comm->world->options.stall_report_ms * MS) report(watch);
}

static tutti_status polls(struct watch *watch)
{
    tutti_comm *comm = watch->comm;
    struct tti_wait_state *wait_state = watch->wait_state;
    int64_t now = watch->now_ns;
    if (comm->traits.tolerant) {
        look_tolerantly(watch);
        return TUTTI_OK;
    }
    if (watch->waitable->drives) TTI_TRY(tti_queue_poll(comm, now));
    if (wait_state->since_ns == 0) wait_state->since_ns = now;
    if (now - wait_state->polled_ns >= POLL_MS * MS) {
        watch->before_ns = wait_state->polled_ns;
        wait_state->polled_ns = now;
        observe(watch);
        TTI_TRY(tti_comm_health(comm, watch->waitable->kind, !comm->traits.all_threads));
        TTI_TRY(check_left(watch));
        TTI_TRY(check_waits(watch));
    }
    int64_t waited = now - wait_state->since_ns, deadline_ms = deadline_of(comm, watch->waitable);
    if (waited >= deadline_ms * MS) return time_out(watch, deadline_ms);
    if (wait_state->polled_ns == now) TTI_TRY(check_others(watch));
    if (!wait_state->reported && waited >= comm->world->options.stall_report_ms * MS) report(watch);
    return TUTTI_OK;
}

tutti_status tti_comm_check_wait(tutti_comm *comm, const struct tti_waitable *waitable, int64_t now_ns)
{
    struct watch watch = {.comm = comm, .waitable = waitable, .wait_state = waitable->wait_state, .now_ns = now_ns};
    return polls(&watch);
}

/* Returns how long to sleep before something must be checked again. */
static int64_t sleep_ns(const struct watch *watch, int64_t until_ns)
{
    int64_t longest = (watch->comm->traits.all_threads ? SLEEP_THREADS_MS : SLEEP_MS) * MS;
    if (watch->now_ns - watch->wait_state->since_ns < POLL_OFTEN_MS * MS) longest = POLL_MS * MS;
    int64_t left = watch->wait_state->since_ns + deadline_of(watch->comm, watch->waitable) * MS - watch->now_ns;
    if (left < longest) longest = left > MS ? left : MS;
    if (until_ns - watch->now_ns < longest) longest = until_ns - watch->now_ns;
    return longest;
}

/* Counts the time since the clock was last read as time spent waiting for the rank that is waited for now. */
static void count(struct watch *watch, int64_t now_ns)
{
    const struct tti_waitable *waitable = watch->waitable;
    int64_t waited = now_ns - watch->counted_ns;
    bool first = watch->counted_ns == 0;
    watch->counted_ns = now_ns;
    if (first || waited <= 0) return;
    tti_stats_waited(watch->comm, *waitable->waiting_for, waited);
    if (waitable->awaited != NULL && (uint32_t)*waitable->awaited == 0) watch->skew_ns += waited;
}

static tutti_status wait_on(struct watch *watch, int64_t until_ns)
{
    tutti_comm *comm = watch->comm;
    const struct tti_waitable *waitable = watch->waitable;
    bool own = waitable->wait_state == NULL, traced = tti_traced(comm) && waitable->kind < TTI_LEAVE;
    struct tti_wait wait;
    int64_t patience = (PATIENCE_US + (int64_t)comm->size * PATIENCE_PER_RANK_US) * 1000;
    uint64_t sequence = comm->sequence;
    tti_wait_begin(&wait, comm->traits.crowded, patience);
    for (;;) {
        bool slept = !tti_wait_pause(&wait, comm->traits.crowded && comm->peers->gives_way(comm, waitable));
        watch->now_ns = wait.now_ns;
        if (wait.now_ns != watch->counted_ns) count(watch, wait.now_ns);
        if (traced) tti_trace_poll(comm, wait.rounds);
        tutti_status status = slept ? comm->peers->sleep(comm, waitable, wait.now_ns - wait.started_ns,
                                                         sleep_ns(watch, until_ns))
                                    : waitable->progress(waitable->object);
        if (slept) { /* checks after a sleep use the time after it */
            wait.now_ns = tti_now_ns();
            count(watch, wait.now_ns);
        }
        if (status != TUTTI_IN_PROGRESS) return status;
        if (tti_comm_is_broken(comm)) return tti_comm_health(comm, waitable->kind, false);
        if (comm->sequence != sequence) { /* a round of pieces is over: the next one may be short */
            sequence = comm->sequence;
            tti_wait_begin(&wait, comm->traits.crowded, patience);
            continue;
        }
        if (!tti_wait_slow(&wait)) {
            if (slept && wait.now_ns >= until_ns)
                return TUTTI_IN_PROGRESS; /* simulated time stands still until it sleeps */
            continue;
        }
        watch->now_ns = wait.now_ns;
        if (own) watch->wait_state->since_ns = wait.started_ns;
        TTI_TRY(polls(watch));
        if (watch->now_ns >= until_ns) return TUTTI_IN_PROGRESS;
    }
}

tutti_status tti_comm_wait_until(tutti_comm *comm, const struct tti_waitable *waitable, int64_t until_ns)
{
    tutti_status status = waitable->progress(waitable->object);
    if (status != TUTTI_IN_PROGRESS) return status;
    struct tti_wait_state own = {0};
    struct watch watch = {
        .comm = comm, .waitable = waitable, .wait_state = waitable->wait_state != NULL ? waitable->wait_state : &own};
    status = wait_on(&watch, until_ns);
    if (watch.counted_ns != 0) tti_stats_wait_ended(comm, watch.skew_ns);
    if (watch.wait_state->polled_ns == 0) return status;
    comm->peers->show_wait(comm, NULL, 0);
    tti_show_wait_ended(comm);
    return status;
}

tutti_status tti_comm_wait(tutti_comm *comm, const struct tti_waitable *waitable)
{
    return tti_comm_wait_until(comm, waitable, INT64_MAX);
}
