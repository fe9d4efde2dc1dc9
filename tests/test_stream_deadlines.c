/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan waits
 *
 * Deadlines of collectives on streams: they count from when the stream comes to the call, and end it on all ranks. By the provider that
 * TUTTI_DEVICE_PROVIDER names: `test_stream_deadlines cuda` on a GPU for each rank; without arguments on device `host`.
 */
#include "stream_place.h"

#include <pthread.h>

enum { COUNT = 1000, SHORT_MS = 1800, LATE_MS = 2500 };

/* The deadline is the call's own, or that of all calls (TUTTI_DEADLINE_MS); the call is started. */
static struct how {
    bool own, starts;
} * how;

static tutti_status call(tutti_comm *comm, struct place *place, int64_t deadline_ms, tutti_op *op)
{
    if (how->own) tutti_within(comm, deadline_ms);
    tutti_on(comm, place->stream);
    return how->starts ? tutti_all_reduce_start(comm, place->x, place->y, COUNT, TUTTI_I32, TUTTI_SUM, op)
                       : tutti_all_reduce(comm, place->x, place->y, COUNT, TUTTI_I32, TUTTI_SUM);
}

static void open_and_meet(tutti_comm *comm, struct place *place)
{
    open_place_for(comm, place, TUTTI_MEMORY_SHARED, COUNT);
    fill(place, place->in, COUNT, 1);
    CHECK(tutti_all_reduce(tutti_on(comm, place->stream), place->x, place->y, COUNT, TUTTI_I32, TUTTI_SUM) == TUTTI_OK);
    GOOD(place, tutti_stream_sync(place->stream, LONG_MS, &place->error));
    fault_meet(comm);
}

static void *let_go_later(void *argument)
{
    struct held *held = argument;
    fault_sleep_ms(LATE_MS);
    tti_word_store(held->word, held->value);
    return NULL;
}

/* All streams come long after the deadline would have passed, had it counted from the call. */
static void late(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op op;
    pthread_t thread;
    (void)self;
    open_and_meet(comm, &place);
    struct held held = hold_stream(&place);
    CHECK(pthread_create(&thread, NULL, let_go_later, &held) == 0);
    tutti_status status = call(comm, &place, SHORT_MS, &op);
    if (status == TUTTI_OK && how->starts) status = tutti_wait_for(op, LONG_MS);
    CHECK(pthread_join(thread, NULL) == 0);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
    CHECK(count_wrong(&place, place.out, COUNT, tutti_size(comm)) == 0);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    let_go(&place, &held);
    close_place(&place);
}

/* Rank 1's stream does not come: the others, whose streams have, end it on all. */
static void expires(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    struct held held = {0};
    tutti_op op;
    (void)self;
    open_and_meet(comm, &place);
    if (tutti_rank(comm) == 1) held = hold_stream(&place);
    tutti_status status = call(comm, &place, SHORT_MS, &op);
    if (status == TUTTI_OK && how->starts) status = tutti_wait_for(op, LONG_MS);
    for (int i = 0; i < 1000 && status == TUTTI_OK; i++) {
        status = tutti_barrier(comm);
        fault_sleep_ms(10);
    }
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_ERR_TIMEOUT && strstr(error->text, "deadline of 1800 ms passed") != NULL, "%s: %s",
               tutti_status_name(status), error == NULL ? "" : error->text);
    if (strcmp(tutti_comm_provider(comm, NULL), "cuda") == 0 && error != NULL)
        CHECK_THAT(error->peer == 1 && strstr(error->text, " for rank 1") != NULL, "%s", error->text);
    fault_meet(comm);
    if (held.word != NULL) let_go(&place, &held);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    close_place(&place);
}

/* Rank 1 does not make the call: the others are told so, by name. */
static void never_comes(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op op;
    tutti_status status = TUTTI_ERR_TIMEOUT;
    (void)self;
    open_and_meet(comm, &place);
    if (tutti_rank(comm) != 1) {
        status = call(comm, &place, SHORT_MS, &op);
        if (status == TUTTI_OK && how->starts) status = tutti_wait_for(op, LONG_MS);
        const tutti_error *error = tutti_comm_error(comm);
        CHECK_THAT(status == TUTTI_ERR_TIMEOUT && error != NULL && error->peer == 1 &&
                       strstr(error->text, "for rank 1") != NULL,
                   "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
    }
    fault_meet(comm);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    close_place(&place);
}

static void run(const char *title, fault_body *body, bool processes)
{
    bool own = !processes;
    for (int i = 0; i < 2; i++) {
        struct fault_world world = {.size = 3,
                                    .processes = processes,
                                    .keeps_files = strcmp(device_name, "host") != 0,
                                    .body = body,
                                    .settings = {own ? NULL : "TUTTI_DEADLINE_MS=1800", "TUTTI_FENCE_MS=300"}};
        *how = (struct how){.own = own, .starts = i == 1};
        check_title("%s, %s, %s, %s", title, processes ? "processes" : "threads",
                    own ? "the call's own" : "of all calls", how->starts ? "started" : "blocking");
        CHECK(fault_run(&world));
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) device_name = argv[1];
    fault_begin(170);
    how = (struct how *)(void *)fault_shared->scratch;
    for (int processes = 0; processes < 2; processes++) {
        run("late", late, processes);
        run("expires", expires, processes);
        run("never comes", never_comes, processes);
    }
    return fault_end();
}
