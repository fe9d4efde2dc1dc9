/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Messages: which receive gets which message, compared with a serial reference of the rules; any source, any tag,
 * probes, groups, floods, and messages to the own rank.
 */
#include "collective/comm/comm.h"
#include "collective/message/message.h"
#include "messages.h"
#include <tutti/experimental.h>

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, TAGS = 3, PER_PAIR = 10, RECEIVES = 24, LONGEST = 200000, LIMIT_MS = 45000 };

static uint64_t seed = 20240611;

/* ---- Random traffic -------------------------------------------------------------------------------------------- */
/* All ranks make the same script from the same seed: what every rank sends to every other, and what it receives. */

struct planned {
    int tag;
    size_t bytes;
};

struct wanted {
    int source, tag; /* or any */
};

struct script {
    struct planned sends[RANKS][RANKS][PER_PAIR]; /* from, to, in this order */
    struct wanted receives[RANKS][RECEIVES];
};

static size_t some_bytes(uint64_t *state)
{
    static const size_t sizes[] = {8, 9, 64, 1000, 4096, 4097, 30000, 65536, 65537, LONGEST};
    return sizes[fault_random(state) % (sizeof sizes / sizeof *sizes)];
}

static void write_script(struct script *script, bool any_source, uint64_t number)
{
    uint64_t state = seed + number;
    for (int from = 0; from < RANKS; from++)
        for (int to = 0; to < RANKS; to++)
            for (int i = 0; i < PER_PAIR; i++)
                script->sends[from][to][i] = (struct planned){.tag = (int)(fault_random(&state) % TAGS),
                                                              .bytes = some_bytes(&state)};
    for (int to = 0; to < RANKS; to++)
        for (int i = 0; i < RECEIVES; i++) {
            bool anyone = any_source && fault_random(&state) % 2 == 0;
            int source = (int)(fault_random(&state) % RANKS), tag = (int)(fault_random(&state) % (TAGS + 1));
            script->receives[to][i] = (struct wanted){.source = anyone ? TUTTI_ANY_SOURCE : source,
                                                      .tag = tag == TAGS ? TUTTI_ANY_TAG : tag};
        }
}

/* One rank's side of it. Receives beyond those of the script take what is left, one at a time. */
struct traffic {
    tutti_comm *comm;
    int rank;
    const struct script *script;
    struct tti_send sends[RANKS * PER_PAIR];
    struct tti_recv receives[RECEIVES + RANKS * PER_PAIR];
    int sent, posted;
    char *out[RANKS * PER_PAIR], *in[RECEIVES + RANKS * PER_PAIR];
};

static void post_send(struct traffic *traffic, int index)
{
    int to = (index + traffic->rank) % RANKS, i = index / RANKS; /* in turn, the next rank first */
    struct planned planned = traffic->script->sends[traffic->rank][to][i];
    char *data = traffic->out[index] = message_alloc(traffic->comm, planned.bytes);
    message_fill(data, traffic->rank, to, i, planned.bytes);
    traffic->sends[index] = (struct tti_send){.letter = {.comm = traffic->comm,
                                                         .site = &traffic->comm->caller.site,
                                                         .type = TUTTI_U8,
                                                         .peer = to,
                                                         .tag = planned.tag,
                                                         .bytes = planned.bytes},
                                              .in = data};
    CHECK(tti_send_post(&traffic->sends[index]) >= 0);
    traffic->sent++;
}

static void post_recv(struct traffic *traffic, int source, int tag)
{
    int index = traffic->posted++;
    traffic->in[index] = message_alloc(traffic->comm, LONGEST);
    traffic->receives[index] = (struct tti_recv){.letter = {.comm = traffic->comm,
                                                            .site = &traffic->comm->caller.site,
                                                            .type = TUTTI_U8,
                                                            .peer = source,
                                                            .tag = tag},
                                                 .out = traffic->in[index],
                                                 .capacity = LONGEST};
    CHECK(tti_recv_post(&traffic->receives[index]) >= 0);
}

static int ended(const struct traffic *traffic, int source)
{
    int count = 0;
    for (int i = 0; i < traffic->posted; i++) {
        const struct tti_recv *recv = &traffic->receives[i];
        if (recv->letter.status == TUTTI_OK && (source == TUTTI_ANY_SOURCE || recv->source == source)) count++;
    }
    return count;
}

static bool progress_until(struct traffic *traffic, bool (*reached)(const struct traffic *traffic, int argument),
                           int argument)
{
    int64_t until = fault_now_ns() + LIMIT_MS * INT64_C(1000000);
    while (!reached(traffic, argument)) {
        if (tti_messages_progress(traffic->comm) != TUTTI_OK || fault_now_ns() > until) return false;
        sched_yield();
    }
    return true;
}

static bool last_has_ended(const struct traffic *traffic, int argument)
{
    (void)argument;
    return traffic->receives[traffic->posted - 1].letter.status != TUTTI_IN_PROGRESS;
}

static bool all_are_sent(const struct traffic *traffic, int argument)
{
    for (int i = 0; i < argument; i++)
        if (traffic->sends[i].letter.status == TUTTI_IN_PROGRESS) return false;
    return true;
}

static bool has_all(const struct traffic *traffic, int source)
{
    return ended(traffic, source) == PER_PAIR * (source == TUTTI_ANY_SOURCE ? RANKS : 1);
}

/* What the receives of the script leave is taken one by one: of each source in turn, or of any. */
static bool take_rest(struct traffic *traffic, bool any_source)
{
    for (int source = 0; source < (any_source ? 1 : RANKS); source++) {
        int from = any_source ? TUTTI_ANY_SOURCE : source;
        while (!has_all(traffic, from)) {
            if (traffic->posted == RECEIVES + RANKS * PER_PAIR) return false;
            post_recv(traffic, from, TUTTI_ANY_TAG);
            /* the receives of the script may get the last ones; then this one stays */
            int64_t until = fault_now_ns() + LIMIT_MS * INT64_C(1000000);
            while (!last_has_ended(traffic, 0) && !has_all(traffic, from)) {
                if (tti_messages_progress(traffic->comm) != TUTTI_OK || fault_now_ns() > until) return false;
                sched_yield();
            }
        }
    }
    return true;
}

/* Which message of its source a receive got: told from the first byte, checked in all. -1: none it could be. */
static int message_of(const struct traffic *traffic, int index)
{
    const struct tti_recv *recv = &traffic->receives[index];
    for (int i = 0; i < PER_PAIR; i++) {
        struct planned planned = traffic->script->sends[recv->source][traffic->rank][i];
        if (planned.bytes != recv->letter.bytes || planned.tag != recv->got) continue;
        if (recv->out[0] != message_byte(recv->source, traffic->rank, i, 0)) continue;
        return message_is(recv->out, recv->source, traffic->rank, i, planned.bytes) ? i : -1;
    }
    return -1;
}

static bool fits(const struct tti_recv *recv, int source, int tag)
{
    const struct tti_letter *letter = &recv->letter;
    return (letter->peer == source || letter->peer == TUTTI_ANY_SOURCE) &&
           (letter->tag == tag || letter->tag == TUTTI_ANY_TAG);
}

/* Where no receive is from any source, the rules leave no choice: each receive, in the order of posting, has the first
 * message of its source that fits and is left. */
static void check_reference(const struct traffic *traffic)
{
    bool gone[RANKS][PER_PAIR] = {{false}};
    for (int r = 0; r < traffic->posted; r++) {
        const struct tti_recv *recv = &traffic->receives[r];
        int source = recv->letter.peer, expected = -1;
        for (int i = 0; i < PER_PAIR && expected < 0; i++)
            if (!gone[source][i] && fits(recv, source, traffic->script->sends[source][traffic->rank][i].tag))
                expected = i;
        if (expected >= 0) gone[source][expected] = true;
        int got = recv->letter.status == TUTTI_OK ? message_of(traffic, r) : -1;
        CHECK_THAT(got == expected, "rank %d, receive %d from %d tag %d: message %d instead of %d", traffic->rank, r,
                   source, recv->letter.tag, got, expected);
    }
}

/* In general: every message once, none before an earlier one of its source that the receive could have had, and no
 * earlier receive that it fits is left without. */
static void check_rules(const struct traffic *traffic)
{
    int owner[RANKS][PER_PAIR];
    memset(owner, -1, sizeof owner);
    for (int r = 0; r < traffic->posted; r++) {
        const struct tti_recv *recv = &traffic->receives[r];
        if (recv->letter.status != TUTTI_OK) continue;
        int message = message_of(traffic, r);
        if (!CHECK_THAT(message >= 0 && fits(recv, recv->source, recv->got), "rank %d, receive %d", traffic->rank, r))
            continue;
        CHECK_THAT(owner[recv->source][message] < 0, "message %d of rank %d came twice", message, recv->source);
        owner[recv->source][message] = r;
    }
    for (int source = 0; source < RANKS; source++)
        for (int i = 0; i < PER_PAIR; i++) {
            int r = owner[source][i];
            if (!CHECK_THAT(r >= 0, "message %d of rank %d to rank %d got lost", i, source, traffic->rank)) continue;
            const struct planned *planned = traffic->script->sends[source][traffic->rank];
            for (int before = 0; before < i; before++)
                CHECK_THAT(!fits(&traffic->receives[r], source, planned[before].tag) || owner[source][before] < r,
                           "message %d of rank %d was overtaken by %d", before, source, i);
            for (int earlier = 0; earlier < r; earlier++)
                CHECK_THAT(!fits(&traffic->receives[earlier], source, planned[i].tag) ||
                               traffic->receives[earlier].letter.status == TUTTI_OK,
                           "message %d of rank %d passed receive %d by", i, source, earlier);
        }
}

static bool any_source;
static uint64_t round_number;

static void exchange_at_random(tutti_comm *comm, struct fault_rank *self)
{
    struct script *script = malloc(sizeof *script);
    struct traffic *traffic = calloc(1, sizeof *traffic);
    if (!CHECK(script != NULL && traffic != NULL)) return;
    traffic->comm = comm;
    traffic->rank = tutti_rank(comm);
    traffic->script = script;
    write_script(script, any_source, round_number);
    uint64_t state = seed + round_number * 100 + (uint64_t)traffic->rank;
    while (traffic->sent < RANKS * PER_PAIR || traffic->posted < RECEIVES) {
        int what = (int)(fault_random(&state) % 8);
        if (what < 3 && traffic->sent < RANKS * PER_PAIR) post_send(traffic, traffic->sent);
        if (what >= 3 && what < 6 && traffic->posted < RECEIVES)
            post_recv(traffic, script->receives[traffic->rank][traffic->posted].source,
                      script->receives[traffic->rank][traffic->posted].tag);
        if (what == 6) CHECK(tti_messages_progress(comm) == TUTTI_OK);
        if (what == 7) sched_yield();
    }
    bool good = CHECK_THAT(take_rest(traffic, any_source), "rank %d got %d messages", traffic->rank,
                           ended(traffic, TUTTI_ANY_SOURCE));
    good = good && CHECK_THAT(progress_until(traffic, all_are_sent, RANKS * PER_PAIR), "a send did not end");
    if (good) {
        if (!any_source) check_reference(traffic);
        check_rules(traffic);
    }
    for (int i = 0; i < traffic->posted; i++) {
        struct tti_letter *letter = &traffic->receives[i].letter;
        if (letter->status != TUTTI_IN_PROGRESS) continue;
        CHECK(tti_letter_cancel(letter, true) && letter->status == TUTTI_ERR_CANCELLED &&
              !tti_letter_cancel(letter, true));
    }
    CHECK_THAT(!good || tti_messages_pending(comm) == 0, "%d are pending", tti_messages_pending(comm));
    FAULT_CALL(self, comm, tutti_barrier(comm));
    for (int i = 0; i < traffic->sent; i++) message_free(comm, traffic->out[i]);
    for (int i = 0; i < traffic->posted; i++) message_free(comm, traffic->in[i]);
    free(traffic);
    free(script);
}

static void test_random_traffic(void)
{
    int rounds = SANITIZED ? 1 : 5;
    for (int layout = 0; layout < MESSAGE_LAYOUTS; layout++)
        for (int round = 0; round < 2 * rounds; round++) {
            char what[64];
            any_source = round % 2 == 1;
            round_number++;
            snprintf(what, sizeof what, "random traffic %d%s", (int)round_number, any_source ? " with any source" : "");
            message_run(layout, RANKS, exchange_at_random, what);
            for (int rank = 0; rank < RANKS; rank++)
                CHECK(fault_shared->ranks[rank].steps[0].done && fault_shared->ranks[rank].steps[0].status == TUTTI_OK);
        }
}

/* ---- Any source, fairly ---------------------------------------------------------------------------------------- */

static void receive_in_turn(tutti_comm *comm, struct fault_rank *self)
{
    enum { EACH = 8 }; /* as many as fit into a channel */
    int rank = tutti_rank(comm), others = tutti_size(comm) - 1;
    for (int i = 0; rank > 0 && i < EACH; i++) CHECK(tutti_send(comm, &rank, 1, TUTTI_I32, 0, i) == TUTTI_OK);
    FAULT_CALL(self, comm, tutti_barrier(comm));
    for (int round = 0; rank == 0 && round < EACH; round++) {
        unsigned seen = 0;
        for (int i = 0; i < others; i++) {
            int who = 0;
            tutti_message message = {0};
            CHECK(tutti_recv_message(comm, &who, 1, TUTTI_I32, TUTTI_ANY_SOURCE, TUTTI_ANY_TAG, &message) == TUTTI_OK);
            CHECK_THAT(message.source == who && message.count == 1 && message.type == TUTTI_I32, "%d", message.source);
            CHECK_THAT(message.tag == round, "the message with tag %d of rank %d in round %d", message.tag, who, round);
            seen |= 1u << who;
        }
        CHECK_THAT(seen == (2u << others) - 2, "round %d: %x", round, seen);
    }
}

static void test_fairness(void)
{
    for (int layout = 0; layout < MESSAGE_FRAMES; layout += 3)
        message_run(layout, 5, receive_in_turn, "any source, in turn");
}

/* ---- Groups ---------------------------------------------------------------------------------------------------- */

static size_t group_bytes;

/* Everyone sends to everyone, itself included, twice, before it receives anything; as a ring first. */
static void exchange_in_groups(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm), next = (rank + 1) % size, last = (rank + size - 1) % size;
    size_t all = group_bytes * (size_t)size * 2, got[2 * FAULT_RANKS];
    char *out = message_alloc(comm, all), *in = message_alloc(comm, all);
    for (int to = 0; to < 2 * size; to++)
        message_fill(out + (size_t)to * group_bytes, rank, to % size, to / size, group_bytes);
    CHECK(tutti_group_begin(comm) == TUTTI_OK);
    CHECK(tutti_send(comm, out + (size_t)next * group_bytes, group_bytes, TUTTI_U8, next, 0) == TUTTI_OK);
    CHECK(tutti_recv(comm, in, group_bytes, TUTTI_U8, last, 0, got) == TUTTI_OK);
    FAULT_CALL(self, comm, tutti_group_end(comm));
    CHECK(got[0] == group_bytes);
    CHECK(message_is(in, last, rank, 0, group_bytes));

    memset(in, 0, all);
    CHECK(tutti_group_begin(comm) == TUTTI_OK);
    for (int k = 0; k < 2 * size; k++) /* both of them to the same rank with the same tag */
        CHECK(tutti_send(comm, out + (size_t)k * group_bytes, group_bytes, TUTTI_U8, k % size, 7) == TUTTI_OK);
    for (int k = 0; k < 2 * size; k++)
        CHECK(tutti_recv(comm, in + (size_t)k * group_bytes, group_bytes, TUTTI_U8, k % size,
                         rank % 2 == 0 ? 7 : TUTTI_ANY_TAG, &got[k]) == TUTTI_OK);
    FAULT_CALL(self, comm, tutti_group_end(comm));
    for (int k = 0; k < 2 * size; k++) {
        CHECK(got[k] == group_bytes);
        CHECK(message_is(in + (size_t)k * group_bytes, k % size, rank, k / size, group_bytes));
    }
    FAULT_CALL(self, comm, tutti_barrier(comm));
    message_free(comm, out);
    message_free(comm, in);
}

static void test_groups(void)
{
    static const size_t sizes[] = {8, 4096, 5000, 300000, 3000001};
    for (int layout = 0; layout < MESSAGE_LAYOUTS; layout++)
        for (size_t k = 0; k < (SANITIZED ? 4 : 5); k++) {
            char what[64];
            group_bytes = sizes[k];
            snprintf(what, sizeof what, "groups of %zu bytes", sizes[k]);
            message_run(layout, 2 + (int)k % 3, exchange_in_groups, what);
            for (int rank = 0; rank < 2 + (int)k % 3; rank++)
                for (int step = 0; step < 3; step++)
                    CHECK_THAT(fault_shared->ranks[rank].steps[step].status == TUTTI_OK, "rank %d: %s", rank,
                               fault_shared->ranks[rank].steps[step].error.text);
        }
}

/* ---- Many small ones ------------------------------------------------------------------------------------------- */

/* Everyone sends many more than a channel holds to the next rank before it receives any; and one of another tag, sent
 * last, is received first. */
static void flood(tutti_comm *comm, struct fault_rank *self)
{
    enum { MANY = 200, COUNT = 200 };
    int rank = tutti_rank(comm), size = tutti_size(comm), next = (rank + 1) % size, last = (rank + size - 1) % size;
    int32_t x[COUNT] = {0}, y[COUNT];
    for (int i = 0; i < MANY; i++) {
        x[0] = rank * MANY + i;
        CHECK(tutti_send(comm, x, COUNT, TUTTI_I32, next, 1) == TUTTI_OK);
    }
    x[0] = -rank;
    FAULT_CALL(self, comm, tutti_send(comm, x, COUNT, TUTTI_I32, next, 2));
    CHECK(tutti_recv(comm, y, COUNT, TUTTI_I32, last, 2, NULL) == TUTTI_OK && y[0] == -last);
    for (int i = 0; i < MANY; i++) {
        CHECK(tutti_recv(comm, y, COUNT, TUTTI_I32, i % 2 == 0 ? last : TUTTI_ANY_SOURCE, 1, NULL) == TUTTI_OK);
        CHECK_THAT(y[0] == last * MANY + i, "%d instead of %d", y[0], last * MANY + i);
    }
    FAULT_CALL(self, comm, tutti_barrier(comm));
}

static void test_floods(void)
{
    for (int layout = 0; layout < MESSAGE_LAYOUTS; layout += 3)
        for (int size = 1; size <= 3; size++) {
            message_run(layout, size, flood, "a flood of small messages");
            for (int rank = 0; rank < size; rank++) CHECK(fault_shared->ranks[rank].steps[1].status == TUTTI_OK);
        }
}

/* ---- Probes ---------------------------------------------------------------------------------------------------- */

static size_t probe_count;

static void send_when_asked(tutti_comm *comm, int tag)
{
    float *x = (float *)(void *)message_alloc(comm, probe_count * sizeof *x);
    for (size_t i = 0; i < probe_count; i++) x[i] = (float)(i % 1000);
    int32_t go = 0;
    CHECK(tutti_recv(comm, &go, 1, TUTTI_I32, 0, 9, NULL) == TUTTI_OK);
    CHECK(tutti_send(comm, x, probe_count, TUTTI_F32, 0, tag) == TUTTI_OK);
    message_free(comm, x);
}

static void probe_then_receive(tutti_comm *comm, int source, int tag)
{
    tutti_message message = {0}, came = {0};
    CHECK(tutti_probe(comm, source, tag, &message) == TUTTI_OK);
    CHECK_THAT(message.source == 1 && message.tag == 4 && message.type == TUTTI_F32 && message.count == probe_count,
               "rank %d, tag %d, %zu", message.source, message.tag, message.count);
    CHECK(tutti_try_probe(comm, source, tag, &came) == TUTTI_OK && memcmp(&came, &message, sizeof came) == 0);
    float *x = (float *)(void *)message_alloc(comm, probe_count * sizeof *x);
    came = (tutti_message){0};
    CHECK(tutti_recv_message(comm, x, message.count, message.type, message.source, message.tag, &came) == TUTTI_OK);
    CHECK(came.source == 1 && came.tag == 4 && came.count == probe_count);
    CHECK(probe_count == 0 || x[probe_count - 1] == (float)((probe_count - 1) % 1000));
    CHECK(tutti_try_probe(comm, source, tag, &came) == TUTTI_IN_PROGRESS);
    message_free(comm, x);
}

static void probe(tutti_comm *comm, struct fault_rank *self)
{
    static const struct wanted all[] = {{1, 4}, {TUTTI_ANY_SOURCE, 4}, {1, TUTTI_ANY_TAG}, {-100, -101}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int32_t go = 1;
        tutti_message message;
        if (tutti_rank(comm) == 1) send_when_asked(comm, 4);
        if (tutti_rank(comm) != 0) continue;
        CHECK(tutti_try_probe(comm, all[i].source, all[i].tag, &message) == TUTTI_IN_PROGRESS);
        CHECK(tutti_send(comm, &go, 1, TUTTI_I32, 1, 9) == TUTTI_OK);
        probe_then_receive(comm, all[i].source, all[i].tag);
    }
    CHECK(tti_messages_pending(comm) == 0);
    FAULT_CALL(self, comm, tutti_barrier(comm));
}

static void test_probes(void)
{
    static const size_t counts[] = {0, 5, 1024, 100000};
    for (int layout = 0; layout < MESSAGE_LAYOUTS; layout++)
        for (size_t k = 0; k < 4; k++) {
            probe_count = counts[k];
            message_run(layout, 2 + (int)k % 2, probe, "probes");
            CHECK(fault_shared->ranks[0].steps[0].status == TUTTI_OK);
        }
}

/* ---- To the own rank ------------------------------------------------------------------------------------------- */

static void talk_to_self(tutti_comm *comm, struct fault_rank *self)
{
    enum { LARGE = 300000 };
    int rank = tutti_rank(comm);
    char *x = message_alloc(comm, LARGE), *y = message_alloc(comm, LARGE);
    message_fill(x, rank, rank, 1, LARGE);
    memset(y, 0, LARGE);
    CHECK(tutti_sendrecv(comm, x, LARGE, rank, 1, y, LARGE, rank, 1, TUTTI_U8, NULL) == TUTTI_OK);
    CHECK(message_is(y, rank, rank, 1, LARGE));
    memset(y, 0, LARGE);
    for (int order = 0; order < 2; order++) {
        tutti_message message = {0};
        CHECK(tutti_group_begin(comm) == TUTTI_OK);
        if (order == 0) CHECK(tutti_send(comm, x, LARGE, TUTTI_U8, rank, 3) == TUTTI_OK);
        CHECK(tutti_recv_message(comm, y, LARGE, TUTTI_U8, TUTTI_ANY_SOURCE, TUTTI_ANY_TAG, &message) == TUTTI_OK);
        if (order == 1) CHECK(tutti_send(comm, x, LARGE, TUTTI_U8, rank, 3) == TUTTI_OK);
        CHECK(tutti_group_end(comm) == TUTTI_OK && message.source == rank && message.tag == 3);
        CHECK(message_is(y, rank, rank, 1, LARGE));
    }
    /* what can never end is refused */
    CHECK(tutti_send(comm, x, LARGE, TUTTI_U8, rank, 1) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_comm_error(comm)->text, "own rank") != NULL);
    CHECK(tutti_recv(comm, y, LARGE, TUTTI_U8, rank, 1, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK_THAT(strstr(tutti_comm_error(comm)->text, "would wait for ever") != NULL, "%s", tutti_comm_error(comm)->text);
    CHECK(tutti_group_begin(comm) == TUTTI_OK);
    CHECK(tutti_send(comm, x, 1, TUTTI_U8, rank, 5) == TUTTI_OK);
    CHECK(tutti_send(comm, x, LARGE, TUTTI_U8, rank, 6) == TUTTI_OK);
    CHECK(tutti_recv(comm, y, 1, TUTTI_U8, rank, 5, NULL) == TUTTI_OK);
    CHECK(tutti_group_end(comm) == TUTTI_ERR_ARGUMENT);
    CHECK_THAT(strstr(tutti_comm_error(comm)->text, "call 2 of the group, send to rank") != NULL, "%s",
               tutti_comm_error(comm)->text);
    CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_send(comm, NULL, 1, TUTTI_U8, rank, 5) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_send(comm, x, 1, TUTTI_U8, rank, -5) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_group_end(comm) == TUTTI_ERR_ARGUMENT && strstr(tutti_comm_error(comm)->text, "NULL") != NULL);
    CHECK(tti_messages_pending(comm) == 0);
    FAULT_CALL(self, comm, tutti_barrier(comm));
    message_free(comm, x);
    message_free(comm, y);
}

static void test_self(void)
{
    for (int layout = 0; layout < MESSAGE_LAYOUTS; layout++) {
        message_run(layout, 1 + layout % 2, talk_to_self, "messages to the own rank");
        CHECK(fault_shared->ranks[0].steps[0].status == TUTTI_OK);
    }
}

/* ---- Switch-over sizes that change while messages are on their way ------------------------------------------------- */

/* The first is more than its channel holds, and has begun to go; the second waits behind it. */
static void change_sizes(tutti_comm *comm, struct fault_rank *self)
{
    enum { BYTES = 14694 };
    int rank = tutti_rank(comm);
    char *memory[2] = {message_alloc(comm, BYTES), message_alloc(comm, BYTES)};
    tutti_op ops[2];
    tutti_tuning tuning;
    tutti_tuning_get(comm, &tuning);
    for (int i = 0; i < 2; i++) {
        message_fill(memory[i], 0, 1, rank == 0 ? i : 9, BYTES);
        if (rank == 0) CHECK(tutti_send_start(comm, memory[i], BYTES, TUTTI_U8, 1, 7, &ops[i]) == TUTTI_OK);
    }
    tuning.eager = 64;
    CHECK(tutti_tuning_set(comm, &tuning) == TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        if (rank == 1) CHECK(tutti_recv(comm, memory[i], BYTES, TUTTI_U8, 0, 7, NULL) == TUTTI_OK);
        if (rank == 0) CHECK(tutti_wait(ops[i]) == TUTTI_OK);
        CHECK(message_is(memory[i], 0, 1, i, BYTES));
    }
    FAULT_CALL(self, comm, tutti_barrier(comm));
    for (int i = 0; i < 2; i++) message_free(comm, memory[i]);
}

static void test_changed_sizes(void)
{
    for (int layout = 0; layout < MESSAGE_LAYOUTS; layout++) {
        message_run(layout, 2, change_sizes, "switch-over sizes change under way");
        CHECK(fault_shared->ranks[0].steps[0].status == TUTTI_OK && fault_shared->ranks[1].steps[0].status == TUTTI_OK);
    }
}

int main(void)
{
    fault_begin(115);
    test_random_traffic();
    test_fairness();
    test_groups();
    test_floods();
    test_probes();
    test_self();
    test_changed_sizes();
    return fault_end();
}
