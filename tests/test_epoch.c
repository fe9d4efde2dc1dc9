/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * Epochs: a rank that has gone on to the next one refuses what was made before, ops, handles and comms, with both numbers; and
 * what others have registered in another epoch is never read: posts, the memory of comms and channels, places of buffers, frames.
 */
#define TUTTI_NO_CALL_SITES
#include "collective/comm/epoch.h"
#include "collective/message/message_parts.h"
#include "collective/peers/net.h"
#include "collective/peers/posts.h"
#include "fault.h"

#include <string.h>

enum { OTHER = 5, TAG = 3, LARGE = 1 << 20 };

static bool over_tcp;

static bool tells(const tutti_comm *comm, const char *one, const char *other)
{
    const tutti_error *error = tutti_comm_error(comm);
    if (error == NULL) return CHECK_THAT(false, "there is no error");
    return CHECK_THAT(error->status == TUTTI_ERR_EPOCH && strstr(error->text, one) != NULL &&
                          strstr(error->text, other) != NULL,
                      "%s: %s", tutti_status_name(error->status), error->text);
}

/* ---- What a rank made itself ---------------------------------------------------------------------------------------- */

static void never(void *context, tutti_status status, const tutti_error *error)
{
    (void)context, (void)status, (void)error;
    CHECK(false);
}

static void refuse_all(tutti_comm *comm)
{
    int x = 0;
    tutti_op op;
    tutti_comm *made;
    for (int i = 0; i < 2; i++) { /* it stays so */
        CHECK(tutti_send(comm, &x, 1, TUTTI_I32, 0, TAG) == TUTTI_ERR_EPOCH);
        tells(comm, "epoch 0", "epoch 1");
        CHECK(tutti_recv_start(comm, &x, 1, TUTTI_I32, 0, TAG, NULL, &op) == TUTTI_ERR_EPOCH);
        if (comm->traits.tolerant) continue;
        CHECK(tutti_all_reduce(comm, &x, &x, 1, TUTTI_I32, TUTTI_SUM) == TUTTI_ERR_EPOCH);
        tells(comm, "epoch 0", "epoch 1");
        CHECK(tutti_barrier_start(comm, &op) == TUTTI_ERR_EPOCH);
        CHECK(tutti_comm_duplicate(comm, &made) == TUTTI_ERR_EPOCH && made == NULL);
    }
}

static void raised(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *made = NULL, *tolerant = NULL;
    int x = 0, y = 0, rank = tutti_rank(comm);
    tutti_op ended, prepared, receives, barrier, waits;
    CHECK(tutti_comm_duplicate(comm, &made) == TUTTI_OK && tutti_comm_tolerant(comm, &tolerant) == TUTTI_OK);
    CHECK(tutti_epoch(comm) == 0 && tutti_epoch(made) == 0 && tutti_epoch(NULL) == 0);
    CHECK(tutti_barrier_start(comm, &ended) == TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK); /* behind it */
    CHECK(tutti_all_reduce_start(tutti_prepared(made), &x, &x, 1, TUTTI_I32, TUTTI_SUM, &prepared) == TUTTI_OK);
    fault_meet(comm);
    if (rank == 0) { /* others do not come to them */
        CHECK(tutti_recv_start(tolerant, &y, 1, TUTTI_I32, TUTTI_ANY_SOURCE, TAG, NULL, &receives) == TUTTI_OK);
        CHECK(tutti_barrier_start(made, &barrier) == TUTTI_OK);
        CHECK(tutti_recv_start(comm, &y, 1, TUTTI_I32, 1, TAG, NULL, &waits) == TUTTI_OK);
    }
    fault_meet(comm);
    tti_epoch_raise(comm, (uint32_t)tutti_epoch(comm) + 1);
    if (rank == 0) {
        CHECK(tutti_wait(receives) == TUTTI_ERR_EPOCH);
        tells(tolerant, "epoch 0", "epoch 1");
        tutti_status status;
        while ((status = tutti_test(waits)) == TUTTI_IN_PROGRESS) {} /* until nobody can touch its buffer any more */
        CHECK(tutti_wait(barrier) == TUTTI_ERR_EPOCH && status == TUTTI_ERR_EPOCH);
        CHECK(tutti_wait(waits) == TUTTI_ERR_HANDLE);
    }
    CHECK(tutti_when_ended(ended, never, NULL) == TUTTI_ERR_EPOCH);
    CHECK(tutti_wait(ended) == TUTTI_ERR_EPOCH && tutti_wait(ended) == TUTTI_ERR_HANDLE);
    CHECK(tutti_start(prepared) == TUTTI_ERR_EPOCH && tutti_drop(prepared) == TUTTI_OK);
    refuse_all(comm);
    refuse_all(made);
    refuse_all(tolerant);
    self->mark = 1;
    fault_meet(comm);
    CHECK(tutti_comm_free(made) == TUTTI_OK && tutti_comm_free(tolerant) == TUTTI_OK);
}

/* The others are told, and by whom. */
static void by_another(tutti_comm *comm, struct fault_rank *self)
{
    int x = 0;
    (void)self;
    fault_meet(comm);
    if (tutti_rank(comm) == 1)
        tti_epoch_raise(comm, (uint32_t)tutti_epoch(comm) + 1);
    else
        CHECK(tutti_recv(comm, &x, 1, TUTTI_I32, TUTTI_ANY_SOURCE, TAG, NULL) == TUTTI_ERR_EPOCH);
    if (tutti_rank(comm) != 1) tells(comm, "rank 1 has gone on to epoch 1", "epoch 0");
    CHECK(tutti_barrier(comm) == TUTTI_ERR_EPOCH && tutti_barrier(comm) == TUTTI_ERR_EPOCH);
    fault_meet(comm);
}

/* ---- What others have registered ------------------------------------------------------------------------------------ */

/* This rank's side of the comm as if it had been made after a rebuild, and the others' before. */
static void move_on(tutti_comm *comm)
{
    comm->traits.era.made = OTHER;
    comm->signature = OTHER;
    atomic_store(&comm->memory->posts[comm->rank].epoch, OTHER);
    atomic_store(&comm->traits.era.rank->now, OTHER);
}

static void move_back(tutti_comm *comm)
{
    comm->traits.era.made = 0;
    atomic_store(&comm->traits.era.rank->now, 0);
}

static void old_post(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *made = NULL;
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &made) == TUTTI_OK);
    if (tutti_rank(comm) == 0) move_on(made);
    CHECK(tutti_barrier(made) == TUTTI_ERR_EPOCH);
    tells(made, "epoch 0", "epoch 5");
    fault_meet(comm);
    if (tutti_rank(comm) == 0) move_back(made);
    CHECK(tutti_comm_free(made) == TUTTI_OK);
}

static void old_channel(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *made = NULL, *tolerant = NULL;
    int x = 7, y = 0, rank = tutti_rank(comm), last = tutti_size(comm) - 1;
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &made) == TUTTI_OK && tutti_comm_tolerant(comm, &tolerant) == TUTTI_OK);
    if (rank == 1) CHECK(tutti_send(made, &x, 1, TUTTI_I32, 0, TAG) == TUTTI_OK);
    if (rank == 1) CHECK(tutti_send(tolerant, &x, 1, TUTTI_I32, 0, TAG) == TUTTI_OK);
    fault_meet(comm);
    if (rank == 0) {
        made->traits.era.made = tolerant->traits.era.made = OTHER;
        CHECK(tutti_recv(made, &y, 1, TUTTI_I32, 1, TAG, NULL) == TUTTI_ERR_EPOCH && y == 0);
        tells(made, "epoch 0", "epoch 5");
        CHECK(tutti_recv(tolerant, &y, 1, TUTTI_I32, 1, TAG, NULL) == TUTTI_ERR_EPOCH && y == 0);
        tells(tolerant, "epoch 0", "epoch 5");
        tolerant->traits.era.made = made->traits.era.made = 0;
    }
    fault_meet(comm);
    if (rank == last) CHECK(tutti_send(tolerant, &x, 1, TUTTI_I32, 0, TAG) == TUTTI_OK);
    if (rank == 0) CHECK(tutti_recv(tolerant, &y, 1, TUTTI_I32, last, TAG, NULL) == TUTTI_OK && y == 7);
    CHECK(tutti_comm_free(made) == TUTTI_OK && tutti_comm_free(tolerant) == TUTTI_OK);
}

static void old_buffer(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *made = NULL;
    static _Thread_local char data[LARGE];
    int rank = tutti_rank(comm), x = 0;
    tutti_op op;
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &made) == TUTTI_OK);
    if (rank == 1) CHECK(tutti_send(made, &rank, 1, TUTTI_I32, 0, TAG) == TUTTI_OK);
    if (rank == 0) CHECK(tutti_recv(made, &x, 1, TUTTI_I32, 1, TAG, NULL) == TUTTI_OK); /* the channel is known */
    memset(data, rank, sizeof data);
    if (rank == 1) CHECK(tutti_send_start(made, data, LARGE, TUTTI_U8, 0, TAG, &op) == TUTTI_OK);
    fault_meet(comm);
    if (rank == 0) {
        made->traits.era.made = OTHER;
        CHECK(tutti_recv(made, data, LARGE, TUTTI_U8, 1, TAG, NULL) == TUTTI_ERR_EPOCH);
        tells(made, "a buffer of rank 1 is of epoch 0", "epoch 5");
        made->traits.era.made = 0;
        bool untouched = true;
        for (int i = 0; i < LARGE; i++) untouched = untouched && data[i] == 0;
        CHECK(untouched);
    }
    if (rank == 1) CHECK(tutti_wait(op) == TUTTI_ERR_EPOCH);
    fault_meet(comm);
    CHECK(tutti_comm_free(made) == TUTTI_OK);
}

/* Of a collective that moves data from buffer to buffer, through memory: its calls are the same, its places are not. */
static void old_place(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *made = NULL;
    int rank = tutti_rank(comm);
    char *data = tutti_alloc(comm, LARGE);
    bool untouched = true;
    (void)self;
    CHECK(data != NULL && tutti_comm_duplicate(comm, &made) == TUTTI_OK);
    for (int i = 0; i < LARGE; i++) data[i] = (char)rank;
    fault_meet(comm);
    if (rank == 0) made->traits.era.made = OTHER;
    CHECK(tutti_broadcast(made, data, data, LARGE, TUTTI_U8, 1) == TUTTI_ERR_EPOCH);
    tells(made, "epoch 0", "epoch 5");
    fault_meet(comm);
    if (rank == 0) made->traits.era.made = 0;
    for (int i = 0; i < LARGE; i++) untouched = untouched && data[i] == (char)rank;
    CHECK(untouched);
    CHECK(tutti_comm_free(made) == TUTTI_OK && tutti_free(comm, data) == TUTTI_OK);
}

static void old_area(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *made = comm;
    (void)self;
    if (tutti_rank(comm) == 1) comm->traits.era.made = OTHER;
    CHECK(tutti_comm_duplicate(comm, &made) == TUTTI_ERR_EPOCH && made == NULL);
    if (tutti_rank(comm) == 1) tells(comm, "epoch 0", "epoch 5");
    if (tutti_rank(comm) == 1) comm->traits.era.made = 0;
    CHECK(tutti_comm_duplicate(comm, &made) == TUTTI_OK && tutti_comm_free(made) == TUTTI_OK);
}

/* Rank 1 sends before it knows that rank 0 has gone on. */
static void old_frame(tutti_comm *comm, struct fault_rank *self)
{
    int x = 1;
    fault_meet(comm);
    if (tutti_rank(comm) == 0) {
        struct tti_net *net = comm->lanes->net;
        tti_net_lock(net); /* nothing is taken from the transport meanwhile */
        net->epoch = OTHER;
        tti_net_unlock(net);
        self->mark = 1;
        int64_t until = fault_now_ns() + FAULT_SLACK_MS * INT64_C(1000000);
        while (!net->warned_of_epoch && fault_now_ns() < until) tti_net_pump(net);
        CHECK(net->warned_of_epoch && comm->messages->early == 0);
        net->epoch = 0;
        self->mark = 2;
        CHECK(tutti_recv(comm, &x, 1, TUTTI_I32, 1, TAG, NULL) == TUTTI_OK && x == 2); /* the next one */
    } else if (tutti_rank(comm) == 1) {
        fault_await_mark(0, 1);
        CHECK(tutti_send(comm, &x, 1, TUTTI_I32, 0, TAG) == TUTTI_OK);
        fault_await_mark(0, 2);
        CHECK(tutti_send(comm, &(int){2}, 1, TUTTI_I32, 0, TAG) == TUTTI_OK);
    }
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

static void run_all(bool processes)
{
    fault_run_body("a rank goes on", raised, 3, processes, over_tcp);
    fault_run_body("another rank goes on", by_another, 3, processes, over_tcp);
    if (over_tcp) fault_run_body("a frame of an older epoch", old_frame, 2, processes, true);
    if (over_tcp) return;
    fault_run_body("a post of an older epoch", old_post, 2, processes, false);
    fault_run_body("a channel of an older epoch", old_channel, 3, processes, false);
    fault_run_body("a buffer of an older epoch", old_buffer, 2, processes, false);
    fault_run_body("a place of an older epoch", old_place, 3, processes, false);
    fault_run_body("memory of an older epoch", old_area, 2, processes, false);
}

int main(void)
{
    fault_begin(55);
    fault_everywhere(run_all, &over_tcp);
    fault_run_set("a place of an older epoch on a host", old_place, 4, true, "TUTTI_HOST_PROCESSES=2");
    return fault_end();
}
