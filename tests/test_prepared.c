/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * What is said about prepared ops: names, sites and deadlines, when they are prepared and when they are started.
 */
#define TUTTI_NO_CALL_SITES
#include "fault.h"

#include <string.h>

/* What was said when it was prepared is told at every start, and its deadline holds. */
static void prepared_says(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *differ = NULL, *late = NULL;
    tutti_op op;
    float x = 1, y;
    bool first = tutti_rank(comm) == 0;
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &differ) == TUTTI_OK && tutti_comm_duplicate(comm, &late) == TUTTI_OK);
    tutti_at(tutti_named(differ, "loss"), "here.c", 7);
    CHECK(tutti_all_reduce_start(tutti_prepared(differ), &x, &y, 1, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
    CHECK(tutti_start(op) == TUTTI_OK && tutti_wait(op) == TUTTI_OK && y == (float)tutti_size(comm));
    tutti_status status = first ? tutti_start(op) : tutti_barrier(differ);
    if (first && status == TUTTI_OK) status = tutti_wait(op);
    CHECK(status == TUTTI_ERR_MISMATCH && strstr(tutti_comm_error(differ)->text, "\"loss\" at here.c:7") != NULL);
    CHECK(tutti_drop(op) == TUTTI_OK);
    CHECK(tutti_barrier_start(tutti_prepared(tutti_within(late, 50)), &op) == TUTTI_OK);
    if (first) CHECK(tutti_start(op) == TUTTI_OK && tutti_wait(op) == TUTTI_ERR_TIMEOUT);
    CHECK(tutti_drop(op) == TUTTI_OK && tutti_barrier(comm) == TUTTI_OK);
    CHECK(tutti_comm_free(differ) == TUTTI_OK && tutti_comm_free(late) == TUTTI_OK);
}

/* Unless something else is said when it is started, of collectives and of messages alike. */
static void start_says(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    for (int message = 0; message < 2; message++) {
        tutti_comm *late = NULL;
        tutti_op op;
        float x = 0;
        CHECK(tutti_comm_duplicate(comm, &late) == TUTTI_OK);
        tutti_prepared(late);
        CHECK((message ? tutti_recv_start(late, &x, 1, TUTTI_F32, 1, 3, NULL, &op) : tutti_barrier_start(late, &op)) ==
              TUTTI_OK);
        if (tutti_rank(comm) == 0) {
            tutti_within(tutti_named(late, "now"), 50);
            CHECK(tutti_start(op) == TUTTI_OK && tutti_wait_for(op, 20000) == TUTTI_ERR_TIMEOUT);
            const tutti_error *error = tutti_comm_error(late);
            CHECK(error != NULL && strstr(error->text, "\"now\"") != NULL);
        }
        CHECK(tutti_drop(op) == TUTTI_OK && tutti_barrier(comm) == TUTTI_OK && tutti_comm_free(late) == TUTTI_OK);
    }
}

static bool over_tcp;

static void run_all(bool processes)
{
    fault_run_body("what is said of a prepared op", prepared_says, 2, processes, over_tcp);
    fault_run_body("what is said when it is started", start_says, 2, processes, over_tcp);
}

int main(void)
{
    fault_begin(55);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
