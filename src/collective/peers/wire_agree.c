/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreement of ranks that exchange frames over a transport, also on a broken comm: feeds the state machine of
 * world/agree.h with the frames that come, and with the ranks that the transport knows to be lost or to have left.
 *
 * A second machine decides which ranks were lost when the comm broke, where no launcher says it. It needs no call: it
 * begins when the comm breaks or another rank tells of it, and goes on by what comes. Who asks for the lost ranks waits
 * for it, and goes by what it knows itself if ranks that compute do not answer for SETTLE_MS.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "collective/peers/net.h"
#include "world/agree.h"
#include "world/cluster.h"

#define MS INT64_C(1000000)
enum {
    SLEEP_MS = 2,
    GRACE_MS = 1000,   /* a rank waits for the coordinator so much longer than twice its deadline */
    CONFIRM_MS = 1000, /* time for the launcher to report the end of a process whose connections have ended */
    SETTLE_MS = 3000,  /* time for the ranks that are left to decide who was lost */
    DECIDE_MS = 3000   /* the same over several hosts, besides a heartbeat: a silent host ends its ranks first */
};

static void send_frame(void *context, int to, const void *message, size_t bytes)
{
    struct tti_lanes *lanes = context;
    struct tti_frame_head head = {.kind = TTI_FRAME_AGREE, .bytes = bytes};
    if (!tti_lane_say(lanes, to, head, message)) lanes->no_memory = true;
}

/* ---- What the launcher knows ---------------------------------------------------------------------------------------- */

/* Returns the rank's entry; NULL: no launcher tells this host when that rank ends. */
static const struct tti_cluster_rank *watched(const tutti_comm *comm, int rank)
{
    const struct tti_cluster *cluster = comm->lanes->net->cluster;
    const struct tti_cluster_rank *found = cluster == NULL ? NULL : &cluster->ranks[tti_member(comm, rank)];
    return found != NULL && tti_board_counts(&cluster->board, found->process) ? found : NULL;
}

static const struct tti_board *board_of(const tutti_comm *comm)
{
    return &((const struct tti_cluster *)comm->lanes->net->cluster)->board;
}

static bool has_ended(const tutti_comm *comm, int rank)
{
    const struct tti_cluster_rank *found = watched(comm, rank);
    return found != NULL && tti_board_has_ended(board_of(comm), found->process, found->life);
}

static bool all_watched(const tutti_comm *comm)
{
    for (int rank = 0; rank < comm->size; rank++)
        if (watched(comm, rank) == NULL) return false;
    return true;
}

/* Returns true if a launcher decides for all ranks which of them continue, and ends the others. */
static bool all_ruled(const tutti_comm *comm)
{
    for (int rank = 0; rank < comm->size; rank++) {
        const struct tti_cluster_rank *found = watched(comm, rank);
        if (found == NULL || !tti_board_decides(board_of(comm), found->process)) return false;
    }
    return true;
}

/* ---- The machine --------------------------------------------------------------------------------------------------- */

/* Returns the machine, with the lock held. NULL: no memory, or there are too many ranks. If no launcher ends silent
 * ranks, these may live, and consider the others lost: so the larger part decides. */
static struct tti_agree *machine_of(struct tti_lanes *lanes)
{
    const tutti_comm *comm = lanes->comm;
    if (lanes->agree == NULL && tti_agree_bytes(comm->size) <= TTI_NET_SAID)
        lanes->agree = tti_agree_create(comm->rank, comm->size, !all_ruled(comm), send_frame, lanes);
    return lanes->agree;
}

void tti_lanes_hear_agree(struct tti_lanes *lanes, int peer, const struct tti_aside *aside)
{
    struct tti_agree *agree = machine_of(lanes);
    if (agree != NULL) tti_agree_hear(agree, peer, aside->data, (size_t)aside->head.bytes);
}

/* ---- Who was lost when the comm broke ---- */

static void send_settle(void *context, int to, const void *message, size_t bytes)
{
    struct tti_lanes *lanes = context;
    struct tti_frame_head head = {.kind = TTI_FRAME_SETTLE, .bytes = bytes};
    if (!tti_lane_say(lanes, to, head, message)) lanes->no_memory = true;
}

void tti_lanes_note_gone(struct tti_lanes *lanes, int rank)
{
    const tutti_comm *comm = lanes->comm;
    if (lanes->settling == NULL || rank == comm->rank) return;
    enum tti_presence presence = comm->peers->presence(comm, rank);
    if (presence == TTI_PEER_LOST || presence == TTI_PEER_LEFT)
        tti_agree_gone(lanes->settling, rank, presence == TTI_PEER_LOST);
}

static void begin_settling(struct tti_lanes *lanes)
{
    const tutti_comm *comm = lanes->comm;
    bool can = tti_agree_bytes(comm->size) <= TTI_NET_SAID && !comm->traits.tolerant && !all_watched(comm);
    if (lanes->settling != NULL || !can) return;
    lanes->settling = tti_agree_create(comm->rank, comm->size, true, send_settle, lanes);
    for (int rank = 0; rank < comm->size && lanes->settling != NULL; rank++) tti_lanes_note_gone(lanes, rank);
    if (lanes->settling != NULL) (void)tti_agree_start(lanes->settling, TTI_COMM_LOST, 0);
}

void tti_lanes_begin_settling(struct tti_lanes *lanes)
{
    tutti_status why = lanes->comm->area->failure.status;
    if (why == TUTTI_ERR_PEER_LOST || why == TUTTI_ERR_CANCELLED) begin_settling(lanes);
}

void tti_lanes_hear_settle(struct tti_lanes *lanes, int peer, const struct tti_aside *aside)
{
    begin_settling(lanes);
    if (lanes->settling != NULL) tti_agree_hear(lanes->settling, peer, aside->data, (size_t)aside->head.bytes);
}

/* Returns true if a later agreement has said who was lost. */
static bool has_agreed(const struct tti_lanes *lanes)
{
    struct tti_agree_result last;
    return lanes->agree != NULL && tti_agree_result(lanes->agree, 1, &last);
}

/* Returns true if the ranks have decided, and this one is among them. */
static bool has_settled(const struct tti_lanes *lanes)
{
    struct tti_agree_result result;
    return lanes->settling != NULL && tti_agree_result(lanes->settling, 1, &result) && result.outcome == TTI_AGREED;
}

static bool is_settling(struct tti_lanes *lanes)
{
    struct tti_agree_result result;
    tti_net_lock(lanes->net);
    bool is = lanes->settling != NULL && !tti_agree_result(lanes->settling, 1, &result) && !has_agreed(lanes);
    tti_net_unlock(lanes->net);
    return is;
}

static void await_settling(struct tti_lanes *lanes)
{
    struct tti_net *net = lanes->net;
    int64_t until_ns = tti_now_ns() + SETTLE_MS * MS;
    while (is_settling(lanes) && tti_now_ns() < until_ns)
        if (!tti_net_pump(net)) net->transport->ops->sleep(net->transport, SLEEP_MS * MS);
    tti_net_pump(net); /* what this rank tells the others of the outcome */
}

/* ---- Who is lost --------------------------------------------------------------------------------------------------- */

/* Returns true once the launchers have said who was lost in this comm's epoch, or will not say it. */
static bool is_settled(tutti_comm *comm, int cause)
{
    const tutti_options *options = &comm->world->options;
    uint32_t ends;
    if (cause >= 0 && !has_ended(comm, cause)) return false;
    tutti_status status = tti_board_settle(options->board, options->job, comm->traits.era.made, &ends);
    if (status == TUTTI_OK) comm->lanes->lost_ends = (uint64_t)ends + 1;
    return status != TUTTI_IN_PROGRESS;
}

/* Settles which ranks were lost. Each rank hears of a loss by itself. If launchers know who has ended, all ranks use
 * the answer that the first one that asked was given: the processes that had ended by then. */
void tti_lanes_settle_lost(tutti_comm *comm)
{
    struct tti_lanes *lanes = comm->lanes;
    const tutti_error *failure = &comm->area->failure;
    if (lanes->lost_asked || atomic_load_explicit(&comm->area->broken, memory_order_acquire) != TTI_BROKEN) return;
    if (!all_watched(comm)) {
        lanes->lost_asked = true;
        await_settling(lanes);
        return;
    }
    if (!comm->traits.of_epoch) return;
    bool waits = tti_board_is_linked(board_of(comm)) && all_ruled(comm);
    int64_t longest_ms = waits ? DECIDE_MS + comm->world->options.heartbeat_ms : CONFIRM_MS;
    int64_t until_ns = tti_now_ns() + longest_ms * MS;
    lanes->lost_asked = true;
    int cause = failure->status == TUTTI_ERR_PEER_LOST ? failure->peer : -1;
    while (!is_settled(comm, cause)) {
        if (tti_now_ns() >= until_ns || tti_board_excluded(board_of(comm))) {
            lanes->lost_asked = false; /* asks again later: the process, or a child of it, may run on */
            return;
        }
        tti_wait_turn();
    }
}

bool tti_lanes_was_lost(const struct tti_lanes *lanes, int rank)
{
    if (has_agreed(lanes)) return tti_agree_was_lost(lanes->agree, rank);
    const struct tti_cluster_rank *found = lanes->lost_ends == 0 ? NULL : watched(lanes->comm, rank);
    if (found != NULL)
        return tti_board_was_lost(board_of(lanes->comm), found->process, found->life, (uint32_t)(lanes->lost_ends - 1));
    if (has_settled(lanes)) return tti_agree_was_lost(lanes->settling, rank);
    return tti_comm_is_broken(lanes->comm) && tti_table_get(&lanes->net->lost, tti_member(lanes->comm, rank)) != NULL;
}

/* ---- One agreement ------------------------------------------------------------------------------------------------- */

struct agreeing {
    tutti_comm *comm;
    struct tti_agreement *call;
    struct tti_agree *agree;
    uint32_t number;
    int64_t began_ns;
    bool reported;
    bool led;     /* this rank has coordinated */
    bool ruled;   /* a launcher decides who goes on */
    bool accused; /* the launcher was asked to end ranks that seem lost, and live as far as it knows */
};

/* Returns true if a rank of another host that does not answer may live, and consider this one lost: only the launcher
 * knows. */
static bool may_live(const struct agreeing *agreeing, int rank)
{
    const struct tti_cluster_rank *found = agreeing->ruled ? watched(agreeing->comm, rank) : NULL;
    return found != NULL && !tti_board_is_here(board_of(agreeing->comm), found->process) &&
           !has_ended(agreeing->comm, rank);
}

/* Asks the launcher to end a rank. */
static void accuse(const struct agreeing *agreeing, int rank, const char *why)
{
    const tutti_comm *comm = agreeing->comm;
    const tutti_options *options = &comm->world->options;
    struct tti_board now = *board_of(comm);
    const struct tti_cluster_rank *found = watched(comm, rank);
    now.generation = tti_board_generation(&now); /* others may have been started again since this world was joined */
    if (tti_board_has_ended(&now, found->process, found->life)) return; /* its connections will tell */
    bool ends = tti_board_end(options->board, options->job, &now, found->process);
    tti_log(TUTTI_WARN, "rank %d: rank %d %s: %s", comm->rank, rank, why,
            ends ? "its process is ended" : "its launcher, which is to end it, does not answer");
}

/* With the lock held: tells the machine who is gone. */
static void note_gone(struct agreeing *agreeing)
{
    const tutti_comm *comm = agreeing->comm;
    bool accuses = !agreeing->accused && tti_now_ns() - agreeing->began_ns >= CONFIRM_MS * MS;
    agreeing->accused |= accuses;
    for (int rank = 0; rank < comm->size; rank++) {
        enum tti_presence presence = rank == comm->rank ? TTI_PEER_HERE : comm->peers->presence(comm, rank);
        if (presence != TTI_PEER_LOST && presence != TTI_PEER_LEFT) continue;
        if (presence == TTI_PEER_LEFT || !may_live(agreeing, rank))
            tti_agree_gone(agreeing->agree, rank, presence == TTI_PEER_LOST);
        else if (accuses)
            accuse(agreeing, rank, "does not answer any more");
    }
}

static tutti_status take(const struct agreeing *agreeing, const struct tti_agree_result *result)
{
    struct tti_agreement *call = agreeing->call;
    call->peer = result->peer;
    switch (result->outcome) {
    case TTI_AGREE_LATE: return TUTTI_ERR_TIMEOUT;
    case TTI_AGREE_DIFFERS: call->differs = true; return TUTTI_ERR_MISMATCH;
    case TTI_AGREE_EXCLUDED: return TUTTI_ERR_EXCLUDED;
    case TTI_AGREED: break;
    }
    for (int rank = 0; rank < agreeing->comm->size; rank++) {
        call->values[rank] = result->values[rank];
        call->present[rank] = tti_agree_was_present(agreeing->agree, rank);
    }
    return TUTTI_OK;
}

static void report(struct agreeing *agreeing, int64_t waited_ns)
{
    int awaited = tti_agree_awaited(agreeing->agree);
    if (agreeing->reported || awaited < 0) return;
    agreeing->reported = true;
    tti_log(TUTTI_WARN, "rank %d waits in %s since %.1f s for rank %d", agreeing->comm->rank,
            tti_kind_name(agreeing->call->kind), (double)waited_ns / 1e9, awaited);
}

/* Gives up on ranks that do not come. A launcher that decides who continues is asked to end them, which is then
 * noticed; without one they count as gone. */
static void give_up(struct agreeing *agreeing)
{
    char why[96];
    if (!agreeing->ruled) {
        tti_agree_expire(agreeing->agree, true);
        return;
    }
    snprintf(why, sizeof why, "did not come to %s within %lld ms", tti_kind_name(agreeing->call->kind),
             (long long)agreeing->call->deadline_ms);
    for (int rank = 0; rank < agreeing->comm->size; rank++)
        if (tti_agree_awaits(agreeing->agree, rank)) accuse(agreeing, rank, why);
}

/* Checks the deadline. The coordinator acts when its time is up; the others give it more. */
static tutti_status check_time(struct agreeing *agreeing)
{
    struct tti_agreement *call = agreeing->call;
    bool leads = tti_agree_leads(agreeing->agree);
    if (leads && !agreeing->led && call->kills) agreeing->began_ns = tti_now_ns(); /* they had waited for another one */
    agreeing->led = leads;
    struct tti_lanes *lanes = agreeing->comm->lanes;
    int64_t waited_ns = tti_now_ns() - agreeing->began_ns;
    int awaited = tti_agree_awaited(agreeing->agree);
    bool late = waited_ns >= (2 * call->deadline_ms + GRACE_MS) * MS;
    if (waited_ns >= agreeing->comm->world->options.stall_report_ms * MS) report(agreeing, waited_ns);
    if (waited_ns < call->deadline_ms * MS) return TUTTI_IN_PROGRESS;
    if (call->kills && (late || leads)) {
        give_up(agreeing);
        agreeing->began_ns = tti_now_ns(); /* the others have as much time again */
    }
    if (!call->kills && leads) tti_agree_expire(agreeing->agree, false);
    if (!late || call->kills) return TUTTI_IN_PROGRESS;
    lanes->agree_late = true;
    lanes->agree_late_for = call->peer = awaited;
    return TUTTI_ERR_TIMEOUT;
}

static tutti_status poll(struct agreeing *agreeing)
{
    struct tti_net *net = agreeing->comm->lanes->net;
    struct tti_agree_result result;
    tti_net_lock(net);
    note_gone(agreeing);
    tutti_status status = TUTTI_IN_PROGRESS;
    if (tti_agree_result(agreeing->agree, agreeing->number, &result))
        status = take(agreeing, &result);
    else if (agreeing->comm->lanes->no_memory)
        status = TUTTI_ERR_MEMORY;
    else if (agreeing->ruled && tti_board_excluded(board_of(agreeing->comm)))
        status = TUTTI_ERR_EXCLUDED;
    else
        status = check_time(agreeing);
    tti_net_unlock(net);
    return status;
}

static tutti_status await(struct agreeing *agreeing)
{
    struct tti_net *net = agreeing->comm->lanes->net;
    for (;;) {
        tutti_status status = poll(agreeing);
        if (status != TUTTI_IN_PROGRESS) {
            tti_net_pump(net); /* what this rank tells the others of the outcome */
            return status;
        }
        if (!tti_net_pump(net)) net->transport->ops->sleep(net->transport, SLEEP_MS * MS);
    }
}

/* Begins an agreement, with the lock held. Returns IN_PROGRESS once it has begun. */
static tutti_status begin(struct agreeing *agreeing)
{
    struct tti_lanes *lanes = agreeing->comm->lanes;
    struct tti_agree_result result;
    agreeing->agree = machine_of(lanes);
    if (agreeing->agree == NULL) return TUTTI_ERR_MEMORY;
    agreeing->call->peer = lanes->agree_late_for;
    if (lanes->agree_late) return TUTTI_ERR_TIMEOUT;
    if (tti_agree_result(agreeing->agree, UINT32_MAX, &result)) return take(agreeing, &result);
    agreeing->number = tti_agree_start(agreeing->agree, agreeing->call->kind, agreeing->call->mine);
    return TUTTI_IN_PROGRESS;
}

tutti_status tti_wire_agree(tutti_comm *comm, struct tti_agreement *agreement)
{
    struct agreeing agreeing = {.comm = comm, .call = agreement, .began_ns = tti_now_ns(), .ruled = all_ruled(comm)};
    tti_net_lock(comm->lanes->net);
    tutti_status status = begin(&agreeing);
    tti_net_unlock(comm->lanes->net);
    if (status == TUTTI_IN_PROGRESS) status = await(&agreeing);
    if (status == TUTTI_ERR_MEMORY)
        tti_comm_refuse(comm, agreement->kind, status,
                        "%s: rank %d has no memory to agree with %d ranks; messages hold at most %d bytes",
                        tti_kind_name(agreement->kind), comm->rank, comm->size, TTI_NET_SAID);
    return status;
}
