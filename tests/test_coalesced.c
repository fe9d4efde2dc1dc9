/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Many pieces in one call: the same bits as a call for each, in place and not, blocking, started and prepared, over shared
 * memory, tcp and sim; differences between ranks and bad arguments are named; deadlines, cancels and drops end it.
 */
#define TUTTI_NO_CALL_SITES
#include "fault.h"

#include <stdlib.h>
#include <string.h>

enum { PIECES = 40, ROOM = 1 << 17, KINDS = 4 }; /* ROOM: elements of all pieces and one rank */
enum { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER };

/* ---- The same bits ----------------------------------------------------------------------------------------------- */

/* Pieces of one call, and where one call for each puts its results. */
struct list {
    tutti_comm *comm;
    int kind, rank, size;
    tutti_type type;
    tutti_reduction reduction;
    int root;
    size_t count;
    tutti_piece pieces[PIECES];
    char *in, *out, *expected, *copy; /* size * ROOM elements of at most 4 bytes */
};

/* Empty, tiny, small, large and very large ones, in no order; of a seed the same on all ranks. */
static size_t some_count(uint64_t *random, size_t size)
{
    switch (fault_random(random) % 8) {
    case 0: return 0;
    case 1: return 40000 / size;
    case 2: return 3000 + fault_random(random) % 3000;
    default: return 1 + fault_random(random) % 300;
    }
}

/* `in_place`: pieces of which every second one is. */
static void fill(struct list *list, uint64_t seed, bool in_place)
{
    uint64_t random = seed, values = seed * 77 + (uint64_t)list->rank;
    size_t element = tutti_type_bytes(list->type), at = 0, n = (size_t)list->size, bytes = n * ROOM * element;
    for (size_t i = 0; i < bytes; i += 8) { /* floats of any type that are no NaN and not too small */
        uint64_t eight = (fault_random(&values) & UINT64_C(0x3f3f3f3f3f3f3f3f)) | UINT64_C(0x2020202020202020);
        memcpy(list->in + i, &eight, 8);
    }
    memset(list->out, 1, bytes);
    memcpy(list->copy, list->in, bytes);
    memset(list->expected, 1, bytes);
    list->count = 1 + fault_random(&random) % PIECES;
    for (size_t i = 0; i < list->count; i++) {
        size_t count = some_count(&random, n);
        if (at + count > ROOM) count = 0;
        char *in = list->in + at * n * element, *out = list->out + at * n * element;
        list->pieces[i] = (tutti_piece){in, out, count};
        size_t own = (size_t)list->rank * count * element;
        if (in_place && i % 2 == 0) { /* within `in` */
            list->pieces[i].out = list->kind == REDUCE_SCATTER ? in + own : in;
            if (list->kind == ALL_GATHER) list->pieces[i].in = in + own;
        }
        at += count;
    }
}

/* The same with one call for each piece, from the copy to `expected`, or within the copy. */
static tutti_status one_by_one(struct list *list)
{
    tutti_status bad = TUTTI_OK;
    for (size_t i = 0; i < list->count; i++) {
        const tutti_piece *piece = &list->pieces[i];
        const char *in = list->copy + ((const char *)piece->in - list->in);
        char *out = (char *)piece->out, *end = list->out + (size_t)list->size * ROOM * 4;
        bool apart = out >= list->out && out < end;
        out = apart ? list->expected + (out - list->out) : list->copy + (out - list->in);
        if (list->kind == ALL_REDUCE)
            bad |= tutti_all_reduce(list->comm, in, out, piece->count, list->type, list->reduction);
        if (list->kind == BROADCAST) bad |= tutti_broadcast(list->comm, in, out, piece->count, list->type, list->root);
        if (list->kind == ALL_GATHER) bad |= tutti_all_gather(list->comm, in, out, piece->count, list->type);
        if (list->kind == REDUCE_SCATTER)
            bad |= tutti_reduce_scatter(list->comm, in, out, piece->count, list->type, list->reduction);
    }
    return bad;
}

static tutti_status together(struct list *list)
{
    switch (list->kind) {
    case ALL_REDUCE: return tutti_all_reduce_many(list->comm, list->pieces, list->count, list->type, list->reduction);
    case BROADCAST: return tutti_broadcast_many(list->comm, list->pieces, list->count, list->type, list->root);
    case ALL_GATHER: return tutti_all_gather_many(list->comm, list->pieces, list->count, list->type);
    default: return tutti_reduce_scatter_many(list->comm, list->pieces, list->count, list->type, list->reduction);
    }
}

static tutti_status start(struct list *list, tutti_op *op)
{
    tutti_comm *comm = list->comm;
    switch (list->kind) {
    case ALL_REDUCE:
        return tutti_all_reduce_many_start(comm, list->pieces, list->count, list->type, list->reduction, op);
    case BROADCAST: return tutti_broadcast_many_start(comm, list->pieces, list->count, list->type, list->root, op);
    case ALL_GATHER: return tutti_all_gather_many_start(comm, list->pieces, list->count, list->type, op);
    default: return tutti_reduce_scatter_many_start(comm, list->pieces, list->count, list->type, list->reduction, op);
    }
}

/* All of both buffers: what is not to be written stays. */
static bool is_same(const struct list *list)
{
    size_t bytes = (size_t)list->size * ROOM * tutti_type_bytes(list->type);
    return memcmp(list->in, list->copy, bytes) == 0 && memcmp(list->out, list->expected, bytes) == 0;
}

static bool make_list(struct list *list, tutti_comm *comm, bool shared)
{
    size_t bytes = (size_t)tutti_size(comm) * ROOM * 4;
    *list = (struct list){.comm = comm, .rank = tutti_rank(comm), .size = tutti_size(comm)};
    list->in = shared ? tutti_alloc(comm, bytes) : malloc(bytes);
    list->out = malloc(bytes);
    list->expected = malloc(bytes);
    list->copy = malloc(bytes);
    return list->in != NULL && list->out != NULL && list->expected != NULL && list->copy != NULL;
}

static void free_list(struct list *list, bool shared)
{
    if (shared)
        tutti_free(list->comm, list->in);
    else
        free(list->in);
    free(list->out);
    free(list->expected);
    free(list->copy);
}

static void choose(struct list *list, int kind, uint64_t seed)
{
    static const tutti_type types[] = {TUTTI_F32, TUTTI_BF16, TUTTI_I32, TUTTI_F8E4M3};
    static const tutti_reduction reductions[] = {TUTTI_SUM, TUTTI_AVG, TUTTI_MAX, TUTTI_SUM};
    list->kind = kind;
    list->type = types[seed % 4];
    list->reduction = reductions[seed % 4];
    list->root = (int)seed % list->size;
}

/* Blocking, then started, then prepared and started twice, then several at once. Returns how many went wrong. */
static int every_form(struct list *list, uint64_t seed, bool in_place)
{
    int wrong = 0;
    tutti_op op;
    for (int form = 0; form < 3; form++) {
        fill(list, seed, in_place);
        wrong += one_by_one(list) != TUTTI_OK;
        tutti_status status = form == 0 ? together(list) : TUTTI_OK;
        if (form == 2) tutti_prepared(list->comm);
        if (form > 0) status = start(list, &op);
        tutti_piece first = list->pieces[0];
        list->pieces[0] = (tutti_piece){NULL, NULL, 7}; /* the list is the caller's again */
        if (form == 2 && status == TUTTI_OK) status = tutti_start(op);
        if (form > 0 && status == TUTTI_OK) status = tutti_wait(op);
        list->pieces[0] = first;
        wrong += status != TUTTI_OK || !is_same(list);
        if (form == 2 && !in_place && status == TUTTI_OK) wrong += tutti_start(op) != TUTTI_OK || tutti_wait(op) != 0;
        if (form == 2) wrong += !is_same(list) || tutti_drop(op) != TUTTI_OK;
    }
    return wrong;
}

static int same_bits(tutti_comm *comm, bool shared, uint64_t seeds)
{
    struct list list;
    int wrong = 0;
    if (!make_list(&list, comm, shared)) return 1;
    for (uint64_t seed = 1; seed <= seeds && wrong == 0; seed++) {
        for (int kind = 0; kind < KINDS && wrong == 0; kind++) {
            choose(&list, kind, seed);
            wrong += every_form(&list, seed * 10 + (uint64_t)kind, seed % 2 == 0);
            if (wrong != 0)
                printf("kind %d, seed %d, rank %d of %d: %d wrong\n", kind, (int)seed, list.rank, list.size, wrong);
        }
    }
    free_list(&list, shared);
    return wrong;
}

static void same_bits_private(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    CHECK(same_bits(comm, false, 4) == 0);
}

static void same_bits_shared(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    CHECK(same_bits(comm, true, 4) == 0);
}

/* Nothing at all, pieces of nothing, one piece; many in flight that nobody waits for in order. */
static void odd_lists(tutti_comm *comm, struct fault_rank *self)
{
    enum { FLIGHT = 20 };
    float x[FLIGHT][3] = {{0}}, size = (float)tutti_size(comm);
    tutti_piece nothing[2] = {{NULL, NULL, 0}, {x, x, 0}}, one = {x[0], x[0], 3};
    tutti_op ops[FLIGHT];
    (void)self;
    x[0][2] = 2;
    CHECK(tutti_all_reduce_many(comm, NULL, 0, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_all_gather_many(comm, nothing, 2, TUTTI_F32) == TUTTI_OK);
    CHECK(tutti_broadcast_many_start(comm, nothing, 0, TUTTI_F32, 0, &ops[0]) == TUTTI_OK);
    CHECK(tutti_wait(ops[0]) == TUTTI_OK);
    CHECK(tutti_all_reduce_many(comm, &one, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK && x[0][2] == 2 * size);
    for (int i = 0; i < FLIGHT; i++) {
        tutti_piece pieces[3] = {{&x[i][0], &x[i][0], 1}, {&x[i][1], &x[i][1], 1}, {&x[i][2], &x[i][2], 1}};
        x[i][0] = x[i][1] = x[i][2] = (float)i;
        CHECK(tutti_all_reduce_many_start(comm, pieces, 3, TUTTI_F32, TUTTI_SUM, &ops[i]) == TUTTI_OK);
    }
    CHECK(tutti_drop(ops[3]) == TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    for (int i = 0; i < FLIGHT; i++) CHECK(x[i][0] == size * (float)i && x[i][2] == size * (float)i);
    for (int i = 0; i < FLIGHT; i++) CHECK(tutti_test(ops[i]) == (i == 3 ? TUTTI_ERR_HANDLE : TUTTI_OK));
}

/* ---- Refused ----------------------------------------------------------------------------------------------------- */

static void refused(tutti_comm *comm, tutti_status status, tutti_status expected, const char *words)
{
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == expected && error != NULL && strstr(error->text, words) != NULL, "%s: %s",
               tutti_status_name(status), error == NULL ? "" : error->text);
}

static void bad_arguments(tutti_comm *comm, struct fault_rank *self)
{
    float x[400] = {0};
    tutti_piece two[2] = {{x, x, 10}, {NULL, x + 20, 5}},
                over[3] = {{x + 50, x + 50, 5}, {x, x + 300, 10}, {x + 9, x + 9, 2}};
    tutti_piece huge[2] = {{x, x, 1}, {x + 5, x + 5, SIZE_MAX / 4}}, part = {x, x + 2, 4};
    tutti_piece read_twice[2] = {{x, x + 100, 10}, {x + 5, x + 200, 10}},
                written_twice[2] = {{x, x + 40, 10}, {x + 20, x + 45, 9}};
    /* a short one that is read within a long one hides nothing of that; in place the larger buffer counts */
    tutti_piece read_within[3] = {{x, x + 100, 50}, {x + 5, x + 200, 5}, {x + 300, x + 20, 5}},
                gathered[2] = {{x + 10 * tutti_rank(comm), x, 10}, {x + 15 - 10 * tutti_rank(comm), x + 100, 5}},
                scattered[2] = {{x, x + 10 * tutti_rank(comm), 10}, {x + 100, x + 15 - 10 * tutti_rank(comm), 5}};
    tutti_op op;
    (void)self;
#define MANY(list, count, type, reduction) tutti_all_reduce_many(comm, list, count, type, reduction)
    refused(comm, MANY(NULL, 3, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_ARGUMENT, "`pieces` is NULL, but there are 3");
    refused(comm, MANY(two, 2, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_ARGUMENT,
            "piece 1 of 2: all_reduce_many: `in` is NULL");
    refused(comm, MANY(huge, 2, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_COUNT, "piece 1 of 2");
    refused(comm, MANY(&part, 1, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_OVERLAP, "piece 0 of 1");
    refused(comm, MANY(over, 3, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_OVERLAP, "pieces 1 and 2 overlap");
    refused(comm, MANY(written_twice, 2, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_OVERLAP, "pieces 0 and 1 overlap");
    refused(comm, MANY(read_within, 3, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_OVERLAP, "pieces 0 and 2 overlap");
    refused(comm, tutti_all_gather_many(comm, gathered, 2, TUTTI_F32), TUTTI_ERR_OVERLAP, "pieces 0 and 1 overlap");
    refused(comm, tutti_reduce_scatter_many(comm, scattered, 2, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_OVERLAP,
            "pieces 0 and 1 overlap");
    refused(comm, MANY(two, 1, (tutti_type)99, TUTTI_SUM), TUTTI_ERR_TYPE, "type 99");
    refused(comm, MANY(two, 1, TUTTI_F32, TUTTI_XOR), TUTTI_ERR_TYPE, "all_reduce_many");
    refused(comm, MANY(two, 1, TUTTI_F32, (tutti_reduction)-1), TUTTI_ERR_ARGUMENT, "all_reduce_many");
    refused(comm, tutti_broadcast_many(comm, two, 1, TUTTI_F32, 9), TUTTI_ERR_RANK, "root 9");
    CHECK(tutti_all_reduce_many(NULL, two, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_ERR_ARGUMENT);
    refused(comm, tutti_all_reduce_many_start(comm, two, 1, TUTTI_F32, TUTTI_SUM, NULL), TUTTI_ERR_ARGUMENT, "`op`");
    refused(comm, tutti_all_reduce_many_start(comm, two, 2, TUTTI_F32, TUTTI_SUM, &op), TUTTI_ERR_ARGUMENT, "piece 1");
    CHECK(MANY(read_twice, 2, TUTTI_F32, TUTTI_SUM) == TUTTI_OK); /* and the comm is whole */
#undef MANY
}

/* ---- Ranks that differ --------------------------------------------------------------------------------------------- */

static int difference;

static void mismatch(tutti_comm *comm, struct fault_rank *self)
{
    float x[100] = {0};
    tutti_piece pieces[30];
    size_t count = 30;
    bool other = tutti_rank(comm) == 1;
    (void)self;
    for (size_t i = 0; i < 30; i++) pieces[i] = (tutti_piece){x + 3 * i, x + 3 * i, 2};
    if (other && difference == 0) count = 29;
    if (other && difference == 1) pieces[17].count = 1;
    if (other && difference == 2) pieces[3].count = 1, pieces[4].count = 3; /* as many elements in all */
    tutti_status status = other && difference == 3 ? tutti_all_reduce(comm, x, x, 60, TUTTI_F32, TUTTI_SUM)
                                                   : tutti_all_reduce_many(comm, pieces, count, TUTTI_F32, TUTTI_SUM);
    static const char *const words[][2] = {{"(30 pieces, 60 f32, sum)", "(29 pieces, 58 f32, sum)"},
                                           {"(30 pieces, 59 f32, sum)", "is among those of pieces 15 to 19"},
                                           {"(30 pieces, 60 f32, sum)", "is among those of pieces 0 to 4"},
                                           {"all_reduce_many(30 pieces, 60 f32, sum)", "all_reduce(60 f32, sum)"}};
    /* a rank that has all it needs may have ended: it hears of it at its next call */
    if (status == TUTTI_OK) status = tutti_barrier(comm);
    const tutti_error *error = tutti_comm_error(comm);
    bool says = error != NULL && strstr(error->text, words[difference][0]) && strstr(error->text, words[difference][1]);
    CHECK_THAT(status == TUTTI_ERR_MISMATCH && says, "%s: %s", tutti_status_name(status), error ? error->text : "");
}

/* ---- Ends ---------------------------------------------------------------------------------------------------------- */

enum { LONG = 20000 };

static tutti_piece *long_list(tutti_comm *comm, size_t *count)
{
    float *x = tutti_alloc(comm, 12 * LONG * sizeof *x);
    tutti_piece *pieces = calloc(110, sizeof *pieces);
    *count = 0;
    for (size_t i = 0; i < 10; i++) pieces[(*count)++] = (tutti_piece){x + i * LONG, x + i * LONG, LONG};
    for (size_t i = 0; i < 100; i++)
        pieces[(*count)++] = (tutti_piece){x + 10 * LONG + i * 400, x + 10 * LONG + i * 400, 400};
    return pieces;
}

static void ends_late(tutti_comm *comm, struct fault_rank *self)
{
    size_t count;
    tutti_piece *pieces = long_list(comm, &count);
    tutti_op op;
    CHECK(tutti_all_reduce_many(comm, pieces, count, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    fault_meet(comm);
    if (tutti_rank(comm) == 0) {
        bool cancels = difference == 1;
        tutti_status status;
        if (difference == 2) {
            status = tutti_all_reduce_many(tutti_within(comm, 30), pieces, count, TUTTI_F32, TUTTI_SUM);
        } else {
            if (!cancels) tutti_within(comm, 30);
            CHECK(tutti_all_reduce_many_start(comm, pieces, count, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
            if (cancels) CHECK(tutti_cancel(op) == TUTTI_OK);
            status = tutti_wait_for(op, 45000);
        }
        const tutti_error *error = tutti_comm_error(comm);
        CHECK_THAT(status == (cancels ? TUTTI_ERR_CANCELLED : TUTTI_ERR_TIMEOUT) && error != NULL &&
                       strstr(error->text, "all_reduce_many") != NULL,
                   "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
        self->mark = 1;
    } else {
        fault_await_mark(0, 1);
        tutti_status status = tutti_all_reduce_many(comm, pieces, count, TUTTI_F32, TUTTI_SUM);
        CHECK_THAT(status == TUTTI_ERR_CANCELLED || status == TUTTI_ERR_TIMEOUT, "%s", tutti_status_name(status));
    }
    free(pieces);
}

/* Cancelled, dropped or out of time at any moment: all ends on every rank. */
static uint64_t seed;

static void random_end(tutti_comm *comm, struct fault_rank *self)
{
    uint64_t random = seed + (uint64_t)tutti_rank(comm);
    size_t count;
    tutti_piece *pieces = long_list(comm, &count);
    tutti_op ops[4];
    (void)self;
    for (size_t i = 0; i < 4; i++) {
        bool ends = tutti_rank(comm) == 0 && i == seed % 4;
        if (ends && seed % 2 == 0) tutti_within(comm, 1);
        if (tutti_all_reduce_many_start(comm, pieces, count, TUTTI_F32, TUTTI_SUM, &ops[i]) != TUTTI_OK) {
            ops[i].id = 0; /* broken by now */
            continue;
        }
        if (ends && seed % 2 == 1) {
            tutti_wait_for(ops[i], (int64_t)(fault_random(&random) % 2));
            tutti_status status = tutti_cancel(ops[i]);
            CHECK(status == TUTTI_OK || status == TUTTI_ERR_HANDLE);
        }
        if (fault_random(&random) % 4 != 0) continue;
        tutti_drop(ops[i]);
        ops[i].id = 0;
    }
    for (int i = 0; i < 4; i++) {
        tutti_status status = ops[i].id == 0 ? TUTTI_OK : tutti_wait_for(ops[i], 45000);
        CHECK_THAT(status == TUTTI_OK || status == TUTTI_ERR_HANDLE || status == TUTTI_ERR_CANCELLED ||
                       status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_MISMATCH,
                   "%s", tutti_status_name(status));
    }
    tutti_barrier(comm); /* nothing of the list is in use any more when this has returned */
    free(pieces);
}

/* ---- In simulated time ----------------------------------------------------------------------------------------------- */

static int simulated(tutti_comm *world, void *context)
{
    (void)context;
    return same_bits(world, tutti_size(world) % 2 == 0, 1);
}

static void in_simulation(int hosts, int ranks)
{
    tutti_sim_setup setup;
    tutti_sim_report report = {.struct_size = sizeof report, .result = -1};
    tutti_error error;
    check_title("simulated, %d hosts with %d ranks", hosts, ranks);
    tutti_sim_setup_init(&setup);
    setup.hosts = hosts;
    setup.ranks_per_host = ranks;
    setup.noise_ns = 300;
    setup.stack_bytes = 1 << 18;
    tutti_status status = tutti_sim_run(&setup, simulated, NULL, &report, &error);
    CHECK_THAT(status == TUTTI_OK && report.result == 0, "%s", status == TUTTI_OK ? "wrong" : error.text);
}

static bool over_tcp;

static void run(const char *title, fault_body *body, int size, bool processes)
{
    fault_run_body(title, body, size, processes, over_tcp);
}

static void run_all(bool processes)
{
    run("same bits", same_bits_shared, 1, processes);
    run("same bits", same_bits_shared, 2, processes);
    run("same bits", same_bits_private, 2, processes);
    run("same bits", same_bits_private, 3, processes);
    run("odd lists", odd_lists, 3, processes);
    run("bad arguments", bad_arguments, 2, processes);
    for (difference = 0; difference < 4; difference++) run("mismatch", mismatch, 2, processes);
    for (difference = 0; difference < 3; difference++) run("late", ends_late, 2, processes);
    for (seed = 1; seed <= 8; seed++) run("random end", random_end, 2 + (int)(seed % 2), processes);
}

int main(void)
{
    fault_begin(110);
    fault_everywhere(run_all, &over_tcp);
    in_simulation(1, 4);
    in_simulation(3, 1);
    in_simulation(2, 2);
    return fault_end();
}
