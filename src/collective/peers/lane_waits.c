/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank waits for which, between ranks that exchange frames: questions, answers, and the records that they give.
 * net.h explains them.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "collective/peers/net.h"
#include <string.h>

#define MS INT64_C(1000000)
enum {
    ASK_MS = 500,    /* how often a question is repeated */
    SILENT_MS = 3000 /* a rank that has not answered, or asked, for so long does not wait any more */
};
_Static_assert(TTI_NET_CHAIN * sizeof(struct tti_wait_record) <= TTI_NET_SAID, "an answer is one frame");

/* ---- What is known --------------------------------------------------------------------------------------------- */

/* Gets what a rank has said of its wait. `itself`: only if it has answered in this rank's present wait, so that its
 * answer came after all that it had sent. */
static void get_heard(const struct tti_lanes *lanes, int rank, bool itself, struct tti_wait_record *record)
{
    const struct tti_heard *heard = tti_table_get(&lanes->waits.heard, rank);
    const struct tti_lane *lane = tti_lane_at(lanes, rank);
    bool counts = heard != NULL && (!itself || heard->answers == lanes->waits.own.record.number);
    *record = counts ? heard->record : (struct tti_wait_record){.doing = TTI_RUNS};
    record->rank = rank;
    if (tti_now_ns() - record->seen_ns > SILENT_MS * MS) record->doing = TTI_RUNS;
    if (lane != NULL && lane->left) record->doing = TTI_GONE; /* that was its last frame */
}

void tti_lanes_read_wait(const struct tti_lanes *lanes, int rank, struct tti_wait_record *record)
{
    if (rank == lanes->comm->rank)
        *record = lanes->waits.own.record;
    else
        get_heard(lanes, rank, false, record);
}

static void get_answer(const void *context, int rank, struct tti_wait_record *record)
{
    get_heard(context, rank, true, record);
}

/* ---- Asking ---------------------------------------------------------------------------------------------------- */

static void ask(struct tti_lanes *lanes, int peer)
{
    uint64_t wait = lanes->waits.own.record.number;
    struct tti_lane *lane = tti_lane_to(lanes, peer);
    int64_t now = tti_now_ns();
    if (lane == NULL || (lane->asked_in == wait && now - lane->asked_ns < ASK_MS * MS)) return;
    if (lane->left || !tti_lane_ask(lanes, peer, wait)) return;
    lane->asked_in = wait;
    lane->asked_ns = now;
}

static void ask_awaited(struct tti_lanes *lanes)
{
    int awaited = lanes->waits.own.record.awaited, size = lanes->comm->size;
    for (int rank = 0; rank < size; rank++) {
        bool asks = rank == awaited || (awaited == TTI_ANYONE && size <= TTI_NET_CHAIN);
        if (asks && rank != lanes->comm->rank) ask(lanes, rank);
    }
}

void tti_lane_hear_ask(struct tti_lane *lane, const struct tti_frame_head *head)
{
    if (head->value == 0) return;
    lane->asks_in = head->value;
    lane->asks_ns = tti_now_ns();
    lane->answered = 0;
}

/* ---- Answering ------------------------------------------------------------------------------------------------- */

/* Collects this rank's record and those behind it, as far as they are known, up to the first rank that does not
 * wait. */
static int collect_chain(const struct tti_lanes *lanes, struct tti_wait_record chain[TTI_NET_CHAIN])
{
    int count = 0, me = lanes->comm->rank, next = me;
    do {
        tti_lanes_read_wait(lanes, next, &chain[count]);
        next = chain[count].awaited;
        chain[count].seen_ns = 0; /* of another clock */
    } while (chain[count++].doing == TTI_WAITS && next != me && next != TTI_ANYONE && count < lanes->comm->size &&
             count < TTI_NET_CHAIN && tti_table_get(&lanes->waits.heard, next) != NULL);
    return count;
}

/* Answers the peers that ask and have not been told this yet. The end of the wait is told only to those that were told
 * of the wait. */
static void answer_all(struct tti_lanes *lanes)
{
    struct tti_wait_record chain[TTI_NET_CHAIN];
    size_t bytes = (size_t)collect_chain(lanes, chain) * sizeof *chain;
    uint64_t hash = tti_hash_bytes(TTI_HASH_START, chain, bytes) | 1;
    TTI_TABLE_EACH(place, &lanes->peers)
    {
        struct tti_lane *lane = lanes->peers.values[place];
        if (tti_now_ns() - lane->asks_ns > SILENT_MS * MS) lane->asks_in = 0;
        if (lane->asks_in == 0 || lane->answered == hash) continue;
        if (chain[0].doing == TTI_RUNS && lane->answered == 0) continue;
        struct tti_frame_head head = {.kind = TTI_FRAME_WAITS, .value = lane->asks_in, .bytes = bytes};
        if (tti_lane_say(lanes, lane->peer, head, chain)) lane->answered = hash;
    }
}

/* A wait that has changed since the last poll is not worth a frame: it may end as soon. */
void tti_lanes_show_wait(struct tti_lanes *lanes, const struct tti_wait_record *now, uint64_t stand)
{
    struct tti_own_wait *own = &lanes->waits.own;
    struct tti_waits answers = {.size = lanes->comm->size, .context = lanes, .get = get_answer};
    struct tti_wait_record record = now == NULL ? own->record : *now;
    if (lanes->differs.peer >= 0) record.sure = 0; /* the difference says more */
    if (now == NULL) {
        own->record.doing = TTI_RUNS;
    } else {
        if (!tti_wait_renew(own, &record, stand)) return;
        ask_awaited(lanes);
        tti_wait_poll(own, tti_waits_digest(&answers, lanes->comm->rank, record.awaited));
    }
    if (!tti_comm_is_broken(lanes->comm)) answer_all(lanes);
}

/* ---- Hearing --------------------------------------------------------------------------------------------------- */

static bool is_sound(const struct tti_lanes *lanes, const struct tti_wait_record *record)
{
    int size = lanes->comm->size;
    return record->rank >= 0 && record->rank < size && record->awaited >= TTI_ANYONE && record->awaited < size &&
           record->doing <= TTI_GONE && memchr(record->what, '\0', sizeof record->what) != NULL;
}

/* A record that a rank sends of itself is newer than all that it sent before; one that others pass on may not be. */
static void note(struct tti_lanes *lanes, const struct tti_wait_record *record, uint64_t answers)
{
    struct tti_heard *heard = tti_table_get(&lanes->waits.heard, record->rank);
    if (heard == NULL) {
        heard = tti_calloc(1, sizeof *heard);
        if (heard == NULL || !tti_table_set(&lanes->waits.heard, record->rank, heard)) {
            tti_free(heard); /* it will be told again */
            return;
        }
    }
    bool itself = heard->answers == lanes->waits.own.record.number;
    if (answers == 0 && (record->number < heard->record.number || (record->number == heard->record.number && itself)))
        return;
    *heard = (struct tti_heard){*record, answers};
    heard->record.seen_ns = tti_now_ns();
}

void tti_lanes_hear_waits(struct tti_lanes *lanes, int peer, const struct tti_aside *aside)
{
    struct tti_wait_record record;
    for (size_t i = 0; (i + 1) * sizeof record <= aside->head.bytes; i++) {
        memcpy(&record, aside->data + i * sizeof record, sizeof record);
        if (!is_sound(lanes, &record) || (i == 0) != (record.rank == peer)) return;
        if (record.rank != lanes->comm->rank) note(lanes, &record, i == 0 ? aside->head.value : 0);
    }
}
