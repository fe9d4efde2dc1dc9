/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan waits
 *
 * Joins that cannot be: bad arguments and options, ranks that disagree on the world's size, a rank that is taken twice.
 */
#include "fault.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { JOIN_MS = 800 };

static void check_stillborn(tutti_comm *comm, tutti_status status)
{
    float x = 0, y = 0;
    CHECK(tutti_barrier(comm) == status && tutti_all_reduce(comm, &x, &y, 1, TUTTI_F32, TUTTI_SUM) == status);
    CHECK(tutti_send(comm, &x, 1, TUTTI_F32, 0, 0) == status && tutti_alloc(comm, 8) == NULL);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK(error != NULL && error->status == status && strcmp(error->operation, "join") == 0);
    FILE *sink = fopen("/dev/null", "w");
    CHECK(sink != NULL && tutti_explain(comm, sink) == 1);
    if (sink != NULL) fclose(sink);
}

static void test_bad_joins(void)
{
    char longest[600];
    char alone[2][32];
    for (int i = 0; i < 2; i++) snprintf(alone[i], sizeof alone[i], "alone-%d-%d", i, (int)getpid());
    memset(longest, 'j', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const struct {
        const char *job;
        int rank, size;
        tutti_status status;
        const char *word;
    } joins[] = {
        {NULL, 0, 2, TUTTI_ERR_ARGUMENT, "no name"},   {"", 0, 2, TUTTI_ERR_ARGUMENT, "no name"},
        {longest, 0, 2, TUTTI_ERR_ARGUMENT, "longer"}, {"bad", 0, 0, TUTTI_ERR_ARGUMENT, "0"},
        {"bad", 0, -5, TUTTI_ERR_ARGUMENT, "-5"},      {"bad", 0, 65537, TUTTI_ERR_ARGUMENT, "65537"},
        {"bad", -1, 2, TUTTI_ERR_RANK, "rank -1"},     {"bad", 2, 2, TUTTI_ERR_RANK, "rank 2"},
        {"bad", 1, 1, TUTTI_ERR_RANK, "rank 1"},       {longest, 0, 1, TUTTI_ERR_ARGUMENT, "longer"},
        {alone[0], 1, 2, TUTTI_ERR_JOIN, "rank 0"},    {alone[1], 0, 2, TUTTI_ERR_JOIN, "rank 1"},
    };
    tutti_options options = fault_join_options(JOIN_MS);
    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++) {
        tutti_comm *comm = NULL;
        check_title("joining %.20s as rank %d of %d", joins[i].job == NULL ? "NULL" : joins[i].job, joins[i].rank,
                    joins[i].size);
        int64_t began = fault_now_ns();
        tutti_status status = tutti_join_as(joins[i].job, joins[i].rank, joins[i].size, &options, &comm);
        if (joins[i].status == TUTTI_ERR_JOIN)
            fault_time("nobody else joins, limit 800 ms", fault_now_ns() - began, 800);
        const tutti_error *error = tutti_comm_error(comm);
        CHECK_THAT(status == joins[i].status, "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
        if (!CHECK(error != NULL)) continue;
        CHECK_THAT(strstr(error->text, joins[i].word) != NULL, "%s", error->text);
        if (joins[i].status == TUTTI_ERR_JOIN)
            CHECK_THAT(error->peer == 1 - joins[i].rank, "about rank %d: %s", error->peer, error->text);
        check_stillborn(comm, joins[i].status);
        CHECK(tutti_leave(comm) == TUTTI_OK);
    }
}

/* Not by tutti_options_init: what is in there may be anything. */
static void test_bad_options(void)
{
    tutti_options options = fault_join_options(JOIN_MS);
    static const size_t sizes[] = {0, sizeof options - 8, sizeof options + 8};
    check_title("options of another size");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tutti_comm *comm = NULL;
        memset(&options, 0x55, sizeof options);
        options.struct_size = sizes[i];
        CHECK(tutti_join_as("options", 0, 1, &options, &comm) == TUTTI_ERR_OPTION);
        const tutti_error *error = tutti_comm_error(comm);
        CHECK_THAT(error != NULL && strstr(error->text, "tutti_options_init") != NULL, "%s",
                   error == NULL ? "" : error->text);
        CHECK(tutti_leave(comm) == TUTTI_OK);
    }
}

struct joiner {
    int rank, size;
    const char *job;
    tutti_status status;
    tutti_error error;
    int64_t took_ns;
};

static void *join_and_leave(void *argument)
{
    struct joiner *joiner = argument;
    tutti_comm *comm = NULL;
    tutti_options options = fault_join_options(JOIN_MS);
    int64_t began = fault_now_ns();
    joiner->status = tutti_join_as(joiner->job, joiner->rank, joiner->size, &options, &comm);
    joiner->took_ns = fault_now_ns() - began;
    const tutti_error *error = tutti_comm_error(comm);
    if (error != NULL) joiner->error = *error;
    CHECK(tutti_leave(comm) == TUTTI_OK);
    return NULL;
}

static void join_all(struct joiner *joiners, int count)
{
    pthread_t threads[4];
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, join_and_leave, &joiners[i]);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

static void test_disagreement(void)
{
    char job[64];
    snprintf(job, sizeof job, "disagree-%d", (int)getpid());
    check_title("ranks disagree on the size");
    struct joiner sizes[2] = {{.rank = 0, .size = 2, .job = job}, {.rank = 1, .size = 3, .job = job}};
    join_all(sizes, 2);
    for (int i = 0; i < 2; i++) {
        CHECK_THAT(sizes[i].status == TUTTI_ERR_JOIN, "%s: %s", tutti_status_name(sizes[i].status),
                   sizes[i].error.text);
        CHECK_THAT(strstr(sizes[i].error.text, "rank 1") != NULL && strstr(sizes[i].error.text, "3 ranks") != NULL &&
                       strstr(sizes[i].error.text, "2") != NULL,
                   "%s", sizes[i].error.text);
        fault_time("ranks disagree, limit 800 ms", sizes[i].took_ns, 800);
    }
    for (int twice = 0; twice < 2; twice++) {
        check_title("rank %d is taken twice", twice);
        snprintf(job, sizeof job, "twice-%d-%d", twice, (int)getpid());
        struct joiner ranks[3] = {{.rank = twice, .size = 3, .job = job},
                                  {.rank = twice, .size = 3, .job = job},
                                  {.rank = twice == 0 ? 2 : 0, .size = 3, .job = job}};
        join_all(ranks, 3);
        char words[64];
        snprintf(words, sizeof words, "rank %d", twice);
        for (int i = 0; i < 3; i++) {
            CHECK_THAT(ranks[i].status == TUTTI_ERR_JOIN, "%d: %s: %s", i, tutti_status_name(ranks[i].status),
                       ranks[i].error.text);
            CHECK_THAT(strstr(ranks[i].error.text, words) != NULL, "%d: %s", i, ranks[i].error.text);
            CHECK_THAT(twice == 0 || strstr(ranks[i].error.text, "a number of its own") != NULL, "%d: %s", i,
                       ranks[i].error.text);
            fault_time("a rank taken twice, limit 800 ms", ranks[i].took_ns, 800);
        }
    }
}

int main(void)
{
    fault_begin(110);
    test_bad_joins();
    test_bad_options();
    test_disagreement();
    return fault_end();
}
