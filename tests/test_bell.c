/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=90 labels=asan,tsan serial
 *
 * Service threads that sleep are woken by whoever brings something: a request between two ranks of which nobody waits in a call
 * is answered at once, also when its rank waits for something else meanwhile. In naps that grow it would take milliseconds.
 */
#define TUTTI_NO_CALL_SITES
#include "fault.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 64, REQUEST = 1, ANSWER, ROUNDS = 15, REST_MS = 100 };
/* In naps the middle one of so many takes about 4 ms. */
enum { MEDIAN_MOST_US = SANITIZED_THREADS ? 3000 : 1500 };

static bool over_tcp;

/* One rank's part in the requests of one comm, on which only its callbacks make calls. */
struct side {
    tutti_comm *comm;
    int peer;
    char in[BYTES], out[BYTES];
    _Atomic int heard;
    int64_t heard_ns;
};

static void say(struct side *side, int tag)
{
    tutti_op op;
    CHECK(tutti_send_start(side->comm, side->out, BYTES, TUTTI_U8, side->peer, tag, &op) == TUTTI_OK);
    CHECK(tutti_drop(op) == TUTTI_OK);
}

static void listen(struct side *side, tutti_ended *ended)
{
    tutti_op op;
    CHECK(tutti_recv_start(side->comm, side->in, BYTES, TUTTI_U8, side->peer, TUTTI_ANY_TAG, NULL, &op) == TUTTI_OK);
    CHECK(tutti_when_ended(op, ended, side) == TUTTI_OK && tutti_drop(op) == TUTTI_OK);
}

static void answer(void *context, tutti_status status, const tutti_error *error)
{
    struct side *side = context;
    CHECK_THAT(status == TUTTI_OK, "%s", error == NULL ? "" : error->text);
    memcpy(side->out, side->in, BYTES);
    if (atomic_fetch_add(&side->heard, 1) + 1 < ROUNDS) listen(side, answer);
    say(side, ANSWER);
}

static void was_answered(void *context, tutti_status status, const tutti_error *error)
{
    struct side *side = context;
    CHECK_THAT(status == TUTTI_OK, "%s", error == NULL ? "" : error->text);
    CHECK(memcmp(side->in, side->out, BYTES) == 0);
    side->heard_ns = fault_now_ns();
    atomic_fetch_add(&side->heard, 1);
}

static bool await_heard(struct side *side, int times)
{
    int64_t until = fault_now_ns() + FAULT_SLACK_MS * INT64_C(1000000);
    while (atomic_load(&side->heard) < times && fault_now_ns() < until) fault_sleep_ms(1);
    return CHECK_THAT(atomic_load(&side->heard) == times, "%d of %d", atomic_load(&side->heard), times);
}

static int64_t ask(struct side *side, int round)
{
    memset(side->out, round, BYTES);
    listen(side, was_answered);
    fault_sleep_ms(REST_MS); /* all service threads sleep */
    int64_t began = fault_now_ns();
    say(side, REQUEST);
    return await_heard(side, round + 1) ? side->heard_ns - began : INT64_MAX;
}

static int compare(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return (one > other) - (one < other);
}

static void ask_all(struct side *side)
{
    int64_t times[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) times[i] = ask(side, i);
    qsort(times, ROUNDS, sizeof *times, compare);
    int64_t median_us = times[ROUNDS / 2] / 1000;
    CHECK_THAT(median_us < MEDIAN_MOST_US, "the middle one of %d answers took %lld us", ROUNDS, (long long)median_us);
}

/* The last rank asks, the first one answers. */
static void take_part(tutti_comm *comm, void (*meanwhile)(tutti_comm *comm))
{
    struct side side = {.peer = tutti_size(comm) - 1};
    int last = tutti_size(comm) - 1;
    if (tutti_rank(comm) == last) side.peer = 0;
    CHECK(tutti_comm_duplicate(comm, &side.comm) == TUTTI_OK);
    if (tutti_rank(comm) == 0) listen(&side, answer);
    fault_meet(comm);
    if (tutti_rank(comm) == last) ask_all(&side);
    if (meanwhile != NULL) meanwhile(comm);
    fault_meet(comm);
    if (tutti_rank(comm) == 0) await_heard(&side, ROUNDS);
    CHECK(tutti_comm_free(side.comm) == TUTTI_OK);
}

static void idle(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    take_part(comm, NULL);
}

/* Who answers waits meanwhile for an op of another comm, which the service thread leaves to it. */
static void wait_elsewhere(tutti_comm *comm)
{
    int x = 1;
    tutti_op op;
    CHECK(tutti_all_reduce_start(comm, &x, &x, 1, TUTTI_I32, TUTTI_SUM, &op) == TUTTI_OK);
    CHECK(tutti_wait(op) == TUTTI_OK && x == tutti_size(comm));
}

static void elsewhere(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    take_part(comm, wait_elsewhere);
}

/* And in a blocking call, for which no service thread is needed. */
static void meet_elsewhere(tutti_comm *comm)
{
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

static void in_call(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    take_part(comm, meet_elsewhere);
}

static void run_all(bool processes)
{
    fault_run_body("nobody waits", idle, 2, processes, over_tcp);
    fault_run_body("waits for an op of another comm", elsewhere, 2, processes, over_tcp);
    fault_run_body("is in a call of another comm", in_call, 3, processes, over_tcp);
}

int main(void)
{
    fault_begin(85);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
