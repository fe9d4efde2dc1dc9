/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Bad input: each call is refused with the exact status and a sentence that names what is wrong, and leaves no trace: the
 * comm works afterwards, and what was said about the refused call does not stick to the next one.
 */
#include "base/memory.h"
#include "fault.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { COUNT = 64 };

static void check_refused(const tutti_comm *comm, tutti_status status, tutti_status expected, const char *word,
                          int line, const char *call)
{
    const tutti_error *error = tutti_comm_error(comm);
    const char *text = error == NULL ? "no error" : error->text;
    check_that(status == expected, __FILE__, line, call, "%s, not %s: %s", tutti_status_name(status),
               tutti_status_name(expected), text);
    if (!check_that(error != NULL, __FILE__, line, call, "no error is kept")) return;
    check_that(error->sequence == 0, __FILE__, line, call, "it is said to be number %d", (int)error->sequence);
    check_that(error->status == expected && error->rank == tutti_rank(comm), __FILE__, line, call,
               "the error says %s of rank %d", tutti_status_name(error->status), error->rank);
    check_that(strstr(text, word) != NULL, __FILE__, line, call, "\"%s\" is not in: %s", word, text);
    check_that(error->operation[0] != '\0' && strstr(call, error->operation) != NULL, __FILE__, line, call, "about %s",
               error->operation);
}

#define REFUSED(call, expected, word) check_refused(comm, (call), (expected), (word), __LINE__, #call)

/* The address is bad, but nothing of it may ever be touched. */
static void *near_the_end(void)
{
    return (void *)(UINTPTR_MAX - 100);
}

/* ---- Collectives ----------------------------------------------------------------------------------------------- */

static void refuse_types(tutti_comm *comm, float *x, float *y)
{
    tutti_type none = TUTTI_TYPE_COUNT, absurd = (tutti_type)-7;
    size_t counts[2] = {1, 1};
    REFUSED(tutti_all_reduce(comm, x, y, 4, none, TUTTI_SUM), TUTTI_ERR_TYPE, "type 15");
    REFUSED(tutti_all_gather(comm, x, y, 4, absurd), TUTTI_ERR_TYPE, "type -7");
    REFUSED(tutti_all_gather_v(comm, x, y, counts, NULL, absurd), TUTTI_ERR_TYPE, "type -7");
    REFUSED(tutti_send(comm, x, 4, none, 0, 0), TUTTI_ERR_TYPE, "type 15");
    REFUSED(tutti_recv(comm, x, 4, none, 0, 0, NULL), TUTTI_ERR_TYPE, "type 15");
    REFUSED(tutti_sendrecv(comm, x, 4, 0, 0, y, 4, 0, 0, none, NULL), TUTTI_ERR_TYPE, "type 15");
    REFUSED(tutti_all_reduce(comm, x, y, 4, TUTTI_F32, TUTTI_XOR), TUTTI_ERR_TYPE, "xor of f32");
    REFUSED(tutti_reduce(comm, x, y, 4, TUTTI_BF16, TUTTI_AND, 0), TUTTI_ERR_TYPE, "and of bf16");
    REFUSED(tutti_scan(comm, x, y, 4, TUTTI_BOOL, TUTTI_AVG), TUTTI_ERR_TYPE, "avg of bool");
    REFUSED(tutti_reduce_scatter_v(comm, x, y, counts, TUTTI_F64, TUTTI_OR), TUTTI_ERR_TYPE, "or of f64");
    REFUSED(tutti_all_reduce(comm, x, y, 4, TUTTI_F32, TUTTI_REDUCTION_COUNT), TUTTI_ERR_ARGUMENT, "no such reduction");
    REFUSED(tutti_exscan(comm, x, y, 4, TUTTI_F32, (tutti_reduction)4000), TUTTI_ERR_ARGUMENT, "no such reduction");
    REFUSED(tutti_reduce_scatter(comm, x, y, 4, TUTTI_F32, (tutti_reduction)-1), TUTTI_ERR_ARGUMENT,
            "no such reduction");
    tutti_reduction half;
    CHECK(tutti_reduction_scaled_sum(0.5, &half, NULL) == TUTTI_OK);
    REFUSED(tutti_all_reduce(comm, x, y, 4, TUTTI_I32, half), TUTTI_ERR_ARGUMENT, "whole number");
    REFUSED(tutti_all_reduce(comm, x, y, 4, TUTTI_BOOL, half), TUTTI_ERR_TYPE, "bool");
}

static void name_the_call(tutti_comm *comm, float *x)
{
    char place[64];
    snprintf(place, sizeof place, "test_arguments.c:%d)", __LINE__ + 1);
    CHECK(tutti_broadcast(tutti_named(comm, "weights"), x, x, 4, TUTTI_F32, 9) == TUTTI_ERR_RANK);
    CHECK(strstr(tutti_comm_error(comm)->text, "ranks go from 0 to 1 (the call \"weights\" at ") != NULL);
    CHECK(strstr(tutti_comm_error(comm)->text, place) != NULL);
    tutti_op op;
    snprintf(place, sizeof place, "test_arguments.c:%d)", __LINE__ + 1);
    CHECK(tutti_recv_start(comm, x, 4, TUTTI_F32, 9, 0, NULL, &op) == TUTTI_ERR_RANK);
    CHECK(strstr(tutti_comm_error(comm)->text, place) != NULL);
}

static void refuse_pointers(tutti_comm *comm, float *x, float *y)
{
    int me = tutti_rank(comm);
    size_t counts[2] = {4, 4}, none[2] = {0, 0};
    REFUSED(tutti_all_reduce(comm, NULL, y, 4, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_ARGUMENT, "`in` is NULL");
    REFUSED(tutti_all_reduce(comm, x, NULL, 4, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_ARGUMENT, "`out` is NULL");
    REFUSED(tutti_reduce(comm, x, NULL, 4, TUTTI_F32, TUTTI_SUM, me), TUTTI_ERR_ARGUMENT, "`out` is NULL");
    REFUSED(tutti_broadcast(comm, NULL, y, 4, TUTTI_F32, me), TUTTI_ERR_ARGUMENT, "`in` is NULL");
    REFUSED(tutti_broadcast(comm, x, NULL, 4, TUTTI_F32, 1 - me), TUTTI_ERR_ARGUMENT, "`out` is NULL");
    REFUSED(tutti_all_gather(comm, x, NULL, 4, TUTTI_F32), TUTTI_ERR_ARGUMENT, "`out` is NULL");
    REFUSED(tutti_gather(comm, NULL, y, 4, TUTTI_F32, 0), TUTTI_ERR_ARGUMENT, "`in` is NULL");
    REFUSED(tutti_scatter(comm, NULL, y, 4, TUTTI_F32, me), TUTTI_ERR_ARGUMENT, "`in` is NULL");
    REFUSED(tutti_all_to_all(comm, x, NULL, 4, TUTTI_F32), TUTTI_ERR_ARGUMENT, "`out` is NULL");
    REFUSED(tutti_scan(comm, NULL, y, 4, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_ARGUMENT, "`in` is NULL");
    REFUSED(tutti_all_gather_v(comm, x, y, NULL, NULL, TUTTI_F32), TUTTI_ERR_ARGUMENT, "counts of `out`");
    REFUSED(tutti_gather_v(comm, x, 4, y, NULL, NULL, TUTTI_F32, me), TUTTI_ERR_ARGUMENT, "counts of `out`");
    REFUSED(tutti_gather_v(comm, NULL, 4, y, counts, NULL, TUTTI_F32, 0), TUTTI_ERR_ARGUMENT, "`in` is NULL");
    REFUSED(tutti_scatter_v(comm, x, NULL, NULL, y, 4, TUTTI_F32, me), TUTTI_ERR_ARGUMENT, "counts of `in`");
    REFUSED(tutti_scatter_v(comm, x, counts, NULL, NULL, 4, TUTTI_F32, me), TUTTI_ERR_ARGUMENT, "`out` is NULL");
    REFUSED(tutti_reduce_scatter_v(comm, x, y, NULL, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_ARGUMENT, "counts of `in`");
    REFUSED(tutti_all_to_all_v(comm, x, NULL, NULL, y, counts, NULL, TUTTI_F32), TUTTI_ERR_ARGUMENT, "counts of `in`");
    REFUSED(tutti_all_to_all_v(comm, x, none, NULL, y, NULL, NULL, TUTTI_F32), TUTTI_ERR_ARGUMENT, "counts of `out`");
    REFUSED(tutti_send(comm, NULL, 4, TUTTI_F32, 0, 0), TUTTI_ERR_ARGUMENT, "`in` is NULL");
    REFUSED(tutti_recv(comm, NULL, 4, TUTTI_F32, 0, 0, NULL), TUTTI_ERR_ARGUMENT, "`out` is NULL");
    REFUSED(tutti_sendrecv(comm, x, 4, 0, 0, NULL, 4, 0, 0, TUTTI_F32, NULL), TUTTI_ERR_ARGUMENT, "`out` is NULL");
}

static void refuse_ranks(tutti_comm *comm, float *x, float *y)
{
    tutti_message message;
    size_t counts[2] = {4, 4};
    REFUSED(tutti_reduce(comm, x, y, 4, TUTTI_F32, TUTTI_SUM, 2), TUTTI_ERR_RANK, "root 2");
    REFUSED(tutti_broadcast(comm, x, y, 4, TUTTI_F32, -1), TUTTI_ERR_RANK, "root -1");
    REFUSED(tutti_gather(comm, x, y, 4, TUTTI_F32, INT32_MAX), TUTTI_ERR_RANK, "from 0 to 1");
    REFUSED(tutti_scatter(comm, x, y, 4, TUTTI_F32, INT32_MIN), TUTTI_ERR_RANK, "root -2147483648");
    REFUSED(tutti_gather_v(comm, x, 4, y, counts, NULL, TUTTI_F32, 7), TUTTI_ERR_RANK, "root 7");
    REFUSED(tutti_scatter_v(comm, x, counts, NULL, y, 4, TUTTI_F32, -1), TUTTI_ERR_RANK, "root -1");
    REFUSED(tutti_send(comm, x, 4, TUTTI_F32, 2, 0), TUTTI_ERR_RANK, "peer 2");
    REFUSED(tutti_recv(comm, x, 4, TUTTI_F32, -1, 0, NULL), TUTTI_ERR_RANK, "peer -1");
    REFUSED(tutti_sendrecv(comm, x, 4, 9, 0, y, 4, 0, 0, TUTTI_F32, NULL), TUTTI_ERR_RANK, "`to` 9");
    REFUSED(tutti_sendrecv(comm, x, 4, 0, 0, y, 4, -3, 0, TUTTI_F32, NULL), TUTTI_ERR_RANK, "`from` -3");
    REFUSED(tutti_send(comm, x, 4, TUTTI_F32, 0, -1), TUTTI_ERR_ARGUMENT, "tag -1");
    REFUSED(tutti_recv(comm, x, 4, TUTTI_F32, 0, INT32_MIN, NULL), TUTTI_ERR_ARGUMENT, "negative");
    REFUSED(tutti_sendrecv(comm, x, 4, 0, 0, y, 4, 0, -5, TUTTI_F32, NULL), TUTTI_ERR_ARGUMENT, "tag -5");
    REFUSED(tutti_send(comm, x, 100000, TUTTI_F32, tutti_rank(comm), 0), TUTTI_ERR_ARGUMENT, "own rank");
    REFUSED(tutti_probe(comm, tutti_rank(comm), 0, &message), TUTTI_ERR_ARGUMENT, "probe from rank");
}

static void refuse_counts(tutti_comm *comm, float *x, float *y)
{
    size_t absurd[2] = {SIZE_MAX, 1}, wraps[2] = {SIZE_MAX / 8, SIZE_MAX / 8}, some[2] = {4, 4}, far[2] = {0, SIZE_MAX},
           first[2] = {4, 0};
    REFUSED(tutti_all_reduce(comm, x, y, SIZE_MAX, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_COUNT, "18446744073709551615");
    REFUSED(tutti_all_reduce(comm, x, y, SIZE_MAX / 4 + 2, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_COUNT, "elements");
    REFUSED(tutti_all_gather(comm, x, y, SIZE_MAX / 8, TUTTI_F32), TUTTI_ERR_COUNT, "2 times");
    REFUSED(tutti_all_to_all(comm, x, y, SIZE_MAX / 2, TUTTI_U8), TUTTI_ERR_COUNT, "2 times");
    REFUSED(tutti_all_reduce(comm, x, x, (size_t)1 << 58, TUTTI_U8, TUTTI_SUM), TUTTI_ERR_COUNT, "elements");
    REFUSED(tutti_scan(comm, x, near_the_end(), 100, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_COUNT, "reach past");
    REFUSED(tutti_all_gather_v(comm, x, y, absurd, NULL, TUTTI_F32), TUTTI_ERR_COUNT, "elements");
    REFUSED(tutti_reduce_scatter_v(comm, x, y, wraps, TUTTI_F64, TUTTI_SUM), TUTTI_ERR_COUNT, "elements");
    REFUSED(tutti_all_gather_v(comm, x, y, some, far, TUTTI_F32), TUTTI_ERR_COUNT, "elements");
    CHECK(tutti_all_gather_v(comm, x, y, first, far, TUTTI_F32) == TUTTI_OK); /* an empty block lies nowhere */
    REFUSED(tutti_all_to_all_v(comm, x, some, NULL, y, some, far, TUTTI_F32), TUTTI_ERR_COUNT, "elements");
    REFUSED(tutti_gather_v(comm, x, SIZE_MAX / 2, y, some, NULL, TUTTI_F32, 0), TUTTI_ERR_COUNT, "elements");
    REFUSED(tutti_scatter_v(comm, x, some, NULL, y, SIZE_MAX, TUTTI_F64, 0), TUTTI_ERR_COUNT, "elements");
    REFUSED(tutti_send(comm, x, SIZE_MAX, TUTTI_F64, 0, 0), TUTTI_ERR_COUNT, "elements");
    REFUSED(tutti_recv(comm, x, SIZE_MAX / 8, TUTTI_F64, 0, 0, NULL), TUTTI_ERR_COUNT, "elements");
    REFUSED(tutti_all_reduce(comm, near_the_end(), y, 100, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_COUNT, "`in`");
    REFUSED(tutti_recv(comm, near_the_end(), 100, TUTTI_F32, 0, 0, NULL), TUTTI_ERR_COUNT, "`out`");
}

/* Counts that could be addressed, of buffers that are not as long. Planning the operation would take hours. */
static void refuse_lies(tutti_comm *comm, struct fault_rank *self)
{
    static const char word[] = "is the count right?";
    float x[COUNT] = {0}, y[COUNT] = {0};
    (void)self;
    for (size_t count = (size_t)1 << 47; count >= (size_t)1 << 43; count >>= 2) {
        size_t counts[2] = {1, count}, few[2] = {4, 4}, far[2] = {0, count};
        tutti_piece pieces[2] = {{x, y, 4}, {x + 4, y + 4, count}};
        tutti_op op;
        REFUSED(tutti_all_reduce(comm, x, y, count, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_all_reduce(comm, x, x, count, TUTTI_U8, TUTTI_SUM), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_all_reduce_start(comm, x, y, count, TUTTI_F32, TUTTI_SUM, &op), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_reduce(comm, x, y, count, TUTTI_F32, TUTTI_SUM, 0), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_broadcast(comm, x, y, count, TUTTI_F32, 0), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_all_gather(comm, x, y, count, TUTTI_F32), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_gather(comm, x, y, count, TUTTI_F32, 0), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_scatter(comm, x, y, count, TUTTI_F32, 0), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_reduce_scatter(comm, x, y, count, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_all_to_all(comm, x, y, count, TUTTI_F32), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_scan(comm, x, y, count, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_all_gather_v(comm, x, y, counts, NULL, TUTTI_F32), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_all_gather_v(comm, x, y, few, far, TUTTI_F32), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_gather_v(comm, x, count, y, few, NULL, TUTTI_F32, 0), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_scatter_v(comm, x, few, NULL, y, count, TUTTI_F32, 0), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_reduce_scatter_v(comm, x, y, counts, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_all_to_all_v(comm, x, few, NULL, y, counts, NULL, TUTTI_F32), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_all_reduce_many(comm, pieces, 2, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_send(comm, x, count, TUTTI_F32, 1, 0), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_recv(comm, x, count, TUTTI_F32, 0, 0, NULL), TUTTI_ERR_COUNT, word);
        REFUSED(tutti_sendrecv(comm, x, 4, 0, 0, y, count, 0, 0, TUTTI_F32, NULL), TUTTI_ERR_COUNT, word);
    }
    size_t bytes = 2 * tti_memory_total(), most[2] = {bytes - 4, 4}; /* which is mapped, but cannot be had */
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room != MAP_FAILED) {
        REFUSED(tutti_all_reduce(comm, room, room, bytes, TUTTI_U8, TUTTI_SUM), TUTTI_ERR_COUNT, "memory and swap");
        REFUSED(tutti_send(comm, room, bytes, TUTTI_U8, 1, 0), TUTTI_ERR_COUNT, "memory and swap");
        REFUSED(tutti_all_gather_v(comm, x, room, most, NULL, TUTTI_U8), TUTTI_ERR_COUNT, "memory and swap");
        munmap(room, bytes);
    }
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

static void refuse_overlap(tutti_comm *comm, float *x)
{
    int me = tutti_rank(comm);
    size_t counts[2] = {4, 4};
    REFUSED(tutti_all_reduce(comm, x, x + 1, 4, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_OVERLAP, "`in` and `out` overlap");
    REFUSED(tutti_all_reduce(comm, x + 3, x, 4, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_OVERLAP, "overlap");
    REFUSED(tutti_scan(comm, x, x + 2, 4, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_OVERLAP, "overlap");
    REFUSED(tutti_reduce(comm, x, x + 2, 4, TUTTI_F32, TUTTI_SUM, me), TUTTI_ERR_OVERLAP, "overlap");
    REFUSED(tutti_broadcast(comm, x, x + 2, 4, TUTTI_F32, me), TUTTI_ERR_OVERLAP, "overlap");
    REFUSED(tutti_all_gather(comm, x + 4 * (1 - me), x, 4, TUTTI_F32), TUTTI_ERR_OVERLAP, "overlap");
    REFUSED(tutti_gather(comm, x + 1, x, 4, TUTTI_F32, me), TUTTI_ERR_OVERLAP, "overlap");
    REFUSED(tutti_scatter(comm, x, x + 4 * (1 - me), 4, TUTTI_F32, me), TUTTI_ERR_OVERLAP, "overlap");
    REFUSED(tutti_reduce_scatter(comm, x, x + 1, 4, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_OVERLAP, "overlap");
    REFUSED(tutti_all_to_all(comm, x, x + 4, 4, TUTTI_F32), TUTTI_ERR_OVERLAP, "overlap");
    REFUSED(tutti_all_gather_v(comm, x + 1, x, counts, NULL, TUTTI_F32), TUTTI_ERR_OVERLAP, "overlap");
    REFUSED(tutti_reduce_scatter_v(comm, x, x + 2, counts, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_OVERLAP, "overlap");
    REFUSED(tutti_all_to_all_v(comm, x, counts, NULL, x, counts, NULL, TUTTI_F32), TUTTI_ERR_OVERLAP, "overlap");
    REFUSED(tutti_sendrecv(comm, x, 4, 0, 0, x + 3, 4, 0, 0, TUTTI_F32, NULL), TUTTI_ERR_OVERLAP, "overlap");
}

/* Two ranks would write to the same place. */
static void refuse_blocks(tutti_comm *comm, const float *x, float *y)
{
    int me = tutti_rank(comm);
    size_t counts[2] = {2, 2}, same[2] = {1, 1}, half[2] = {3, 2}, backwards[2] = {2, 0}, one[2] = {2, 0};
    const char *what = "the blocks of ranks 0 and 1 overlap in `out`";
    REFUSED(tutti_all_gather_v(comm, x, y, counts, same, TUTTI_F32), TUTTI_ERR_OVERLAP, what);
    REFUSED(tutti_gather_v(comm, x, 2, y, counts, same, TUTTI_F32, me), TUTTI_ERR_OVERLAP, what);
    REFUSED(tutti_all_to_all_v(comm, x, counts, NULL, y, counts, half, TUTTI_F32), TUTTI_ERR_OVERLAP,
            "the blocks of ranks 1 and 0 overlap in `out`");
    CHECK(tutti_all_gather_v(comm, x, y, counts, backwards, TUTTI_F32) == TUTTI_OK);
    CHECK(tutti_all_gather_v(comm, x, y, one, same, TUTTI_F32) == TUTTI_OK);
    CHECK(tutti_all_to_all_v(comm, x, counts, same, y, counts, NULL, TUTTI_F32) == TUTTI_OK);
}

static void refuse_tuning(tutti_comm *comm)
{
    tutti_tuning tuning = {.struct_size = sizeof tuning};
    tutti_tuning_get(comm, &tuning);
    REFUSED(tutti_tuning_set(comm, NULL), TUTTI_ERR_ARGUMENT, "`tuning` is NULL");
    tuning.chunk = 1;
    REFUSED(tutti_tuning_set(comm, &tuning), TUTTI_ERR_OPTION, "chunk is 1");
    tuning.chunk = 65536;
    tuning.staged = 1 << 20;
    REFUSED(tutti_tuning_set(comm, &tuning), TUTTI_ERR_OPTION, "staged is 1048576");
}

/* A sum over both ranks: the comm works, and has forgotten its last error. */
static void check_works(tutti_comm *comm)
{
    float one = 1, sum = 0;
    tutti_status status = tutti_all_reduce(comm, &one, &sum, 1, TUTTI_F32, TUTTI_SUM);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_OK && error == NULL && sum == (float)tutti_size(comm), "%s",
               error == NULL ? "" : error->text);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static void *absurd_alloc(tutti_comm *comm, size_t bytes)
{
    return tutti_alloc(comm, bytes);
}

static void refuse_memory(tutti_comm *comm)
{
    int mine = 0;
    /* threads share their arena: a block that one freed may be another's by the time it is freed again */
    if (tutti_rank(comm) == 1) CHECK(tutti_barrier(comm) == TUTTI_OK);
    char *block = tutti_alloc(comm, 1000);
    CHECK(block != NULL);
    REFUSED(tutti_free(comm, &mine), TUTTI_ERR_ARGUMENT, "");
    REFUSED(tutti_free(comm, block + 64), TUTTI_ERR_ARGUMENT, "");
    CHECK(tutti_free(comm, block) == TUTTI_OK);
    REFUSED(tutti_free(comm, block), TUTTI_ERR_ARGUMENT, "");
    CHECK(tutti_free(comm, NULL) == TUTTI_OK);
    static const size_t absurd[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 60, (size_t)1 << 46};
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        CHECK(absurd_alloc(comm, absurd[i]) == NULL);
        const tutti_error *error = tutti_comm_error(comm);
        CHECK_THAT(error != NULL && error->status == TUTTI_ERR_MEMORY && strcmp(error->operation, "alloc") == 0 &&
                       error->text[0] != '\0',
                   "%s", error == NULL ? "no error" : error->text);
    }
    void *nothing = tutti_alloc(comm, 0);
    CHECK(nothing != NULL && tutti_free(comm, nothing) == TUTTI_OK);
    if (tutti_rank(comm) == 0) CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* ---- What was said about a refused call ------------------------------------------------------------------------ */

static void keep_nothing(tutti_comm *comm, struct fault_rank *self)
{
    float x = 1;
    tutti_all_reduce(tutti_within(tutti_named(comm, "refused"), 20), NULL, &x, 1, TUTTI_F32, TUTTI_SUM);
    tutti_send(tutti_within(comm, 20), &x, 1, TUTTI_F32, 99, 0);
    size_t counts[FAULT_RANKS] = {1, 1};
    tutti_all_gather_v(tutti_within(comm, 20), &x, NULL, counts, NULL, TUTTI_F32);
    if (tutti_rank(comm) == 1) fault_sleep_ms(150);
    tutti_status status = FAULT_CALL(self, comm, tutti_barrier(comm));
    CHECK_THAT(status == TUTTI_OK, "a refused call's deadline stuck to the next: %s", self->steps[0].error.text);
}

/* ---- Messages -------------------------------------------------------------------------------------------------- */

static size_t long_count;
static bool shared_memory;

/* Too long for the buffer: says both lengths, and can be received later; also one that waits behind another tag. */
static void receive_long(tutti_comm *comm, struct fault_rank *self)
{
    size_t bytes = long_count * sizeof(float), got = 0;
    float *x = shared_memory ? tutti_alloc(comm, bytes) : calloc(1, bytes);
    char words[64];
    (void)self;
    if (tutti_rank(comm) == 0) {
        for (size_t i = 0; i < long_count; i++) x[i] = (float)i;
        float tiny = 7;
        CHECK(tutti_send(comm, x, long_count <= 1024 ? long_count : 1, TUTTI_F32, 1, 5) == TUTTI_OK);
        CHECK(tutti_send(comm, &tiny, 1, TUTTI_F32, 1, 6) == TUTTI_OK);
        CHECK(tutti_send(comm, x, long_count, TUTTI_F32, 1, 7) == TUTTI_OK);
    } else {
        float tiny = 0;
        CHECK(tutti_recv(comm, &tiny, 1, TUTTI_F32, 0, 6, NULL) == TUTTI_OK && tiny == 7);
        for (int i = 0; i < 2; i++) {
            snprintf(words, sizeof words, "%zu elements", long_count);
            REFUSED(tutti_recv(comm, x, long_count - 1, TUTTI_F32, 0, 7, &got), TUTTI_ERR_TRUNCATED, words);
            snprintf(words, sizeof words, "only %zu", long_count - 1);
            REFUSED(tutti_recv(comm, x, long_count - 1, TUTTI_F32, 0, 7, &got), TUTTI_ERR_TRUNCATED, words);
        }
        CHECK(got == 0);
        CHECK(tutti_recv(comm, x, long_count, TUTTI_F32, 0, 7, &got) == TUTTI_OK && got == long_count);
        CHECK(x[long_count - 1] == (float)(long_count - 1));
        if (long_count <= 1024)
            REFUSED(tutti_recv(comm, x, long_count - 1, TUTTI_F32, 0, 5, &got), TUTTI_ERR_TRUNCATED, "tag 5");
        CHECK(tutti_recv(comm, x, long_count, TUTTI_F32, 0, 5, &got) == TUTTI_OK);
        CHECK(got == (long_count <= 1024 ? long_count : 1));
    }
    check_works(comm);
    if (!shared_memory) free(x);
}

/* ---- After fork ------------------------------------------------------------------------------------------------ */

static void be_forked(tutti_comm *comm, float *x, float *y)
{
    size_t counts[2] = {1, 1};
    tutti_tuning tuning = {.struct_size = sizeof tuning};
    REFUSED(tutti_barrier(comm), TUTTI_ERR_FORKED, "parent");
    REFUSED(tutti_all_reduce(comm, x, y, 1, TUTTI_F32, TUTTI_SUM), TUTTI_ERR_FORKED, "parent");
    REFUSED(tutti_all_gather_v(comm, x, y, counts, NULL, TUTTI_F32), TUTTI_ERR_FORKED, "parent");
    REFUSED(tutti_send(comm, x, 1, TUTTI_F32, 0, 0), TUTTI_ERR_FORKED, "parent");
    REFUSED(tutti_recv(comm, x, 1, TUTTI_F32, 0, 0, NULL), TUTTI_ERR_FORKED, "parent");
    REFUSED(tutti_tuning_set(comm, &tuning), TUTTI_ERR_FORKED, "parent");
    CHECK(tutti_alloc(comm, 8) == NULL && tutti_comm_error(comm)->status == TUTTI_ERR_FORKED);
    CHECK(tutti_free(comm, x) == TUTTI_ERR_FORKED);
    CHECK(tutti_leave(comm) == TUTTI_ERR_FORKED);
}

static void refuse_forked(tutti_comm *comm, float *x, float *y)
{
    int status = 0;
    if (tutti_rank(comm) != 0) return;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        be_forked(comm, x, y);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* ---- All of it, on two ranks ----------------------------------------------------------------------------------- */

static void refuse_all(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    float *x = tutti_alloc(comm, COUNT * sizeof *x), *y = tutti_alloc(comm, COUNT * sizeof *y);
    if (!CHECK(x != NULL && y != NULL)) return;
    memset(x, 1, COUNT * sizeof *x);
    refuse_types(comm, x, y);
    check_works(comm);
    name_the_call(comm, x);
    refuse_pointers(comm, x, y);
    check_works(comm);
    refuse_ranks(comm, x, y);
    check_works(comm);
    refuse_counts(comm, x, y);
    check_works(comm);
    refuse_overlap(comm, x);
    refuse_blocks(comm, x, y);
    check_works(comm);
    refuse_tuning(comm);
    refuse_memory(comm);
    check_works(comm);
    if (!SANITIZED || !tutti_all_threads(comm)) refuse_forked(comm, x, y); /* tsan: no forks from threads */
    check_works(comm);
    CHECK(tutti_all_reduce(comm, NULL, NULL, 0, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_send(comm, NULL, 0, TUTTI_F32, tutti_rank(comm), 3) == TUTTI_OK);
    CHECK(tutti_recv(comm, NULL, 0, TUTTI_F32, tutti_rank(comm), 3, NULL) == TUTTI_OK);
}

/* Over memory and over tcp, where plans are of the same length. */
static void test_lies(void)
{
    for (int way = 0; way < 4; way++)
        fault_run_body("counts that are larger than the buffers", refuse_lies, 2, way % 2 != 0, way / 2 != 0);
}

static void test_refused(void)
{
    static const size_t lengths[] = {2, 1000, 5000, 200000};
    for (int processes = 0; processes < 2; processes++) {
        struct fault_world world = {.size = 2, .processes = processes != 0, .body = refuse_all};
        check_title("refused calls of %s", processes ? "processes" : "threads");
        fault_run(&world);
        check_title("after a refused call of %s", processes ? "processes" : "threads");
        world.body = keep_nothing;
        fault_run(&world);
        world.body = receive_long;
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (int shared = 0; shared < 2; shared++) {
                long_count = lengths[i];
                shared_memory = shared != 0;
                check_title("a message of %zu, too long, %s, %s memory", long_count,
                            processes ? "processes" : "threads", shared ? "shared" : "private");
                fault_run(&world);
            }
    }
}

/* ---- Explaining ------------------------------------------------------------------------------------------------ */

/* Whether tutti_explain finds an error and prints these words. */
static bool explains(const tutti_comm *comm, const char *words)
{
    char text[2048] = "";
    FILE *memory = fmemopen(text, sizeof text, "w");
    int found = tutti_explain(comm, memory);
    fclose(memory);
    bool right = found == 1 && strstr(text, words) != NULL;
    if (!right) printf("explained %d, wanted \"%s\": %s\n", found, words, text);
    return right;
}

static void explain_handles(tutti_comm *comm)
{
    tutti_op op;
    CHECK(tutti_barrier_start(comm, &op) == TUTTI_OK && tutti_wait(op) == TUTTI_OK);
    CHECK(tutti_wait(op) == TUTTI_ERR_HANDLE && tutti_comm_error(comm) == NULL);
    char words[64];
    snprintf(words, sizeof words, "rank %d: wait: TUTTI_ERR_HANDLE", tutti_rank(comm));
    CHECK(explains(comm, words) && explains(comm, "never given, or its comm is gone"));
    fault_meet(comm); /* what is no comm's is the same for all ranks of the process */
    CHECK(tutti_drop((tutti_op){0}) == TUTTI_ERR_HANDLE && explains(comm, "drop: TUTTI_ERR_HANDLE"));
    fault_meet(comm);
    CHECK(tutti_wait_all(NULL, 1) == TUTTI_ERR_ARGUMENT && explains(comm, "`ops` is NULL"));
    fault_meet(comm);
}

/* The world has no error of its own in all of these: whoever returns what tutti_explain says must not end with 0. */
static void explain_others(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *odd = NULL, *along = NULL;
    tutti_mesh *mesh = NULL;
    const int sizes[] = {tutti_size(comm)};
    const char *const names[] = {"data"};
    float x = 0, y = 0;
    char words[64];
    (void)self;
    CHECK(tutti_explain(comm, stderr) == 0);
    CHECK(tutti_comm_split(comm, 0, -tutti_rank(comm), &odd) == TUTTI_OK);
    CHECK(tutti_broadcast(odd, &x, &y, 1, TUTTI_F32, 100 + tutti_rank(comm)) == TUTTI_ERR_RANK);
    fault_meet(comm); /* each rank's own, although others have failed since */
    snprintf(words, sizeof words, "root %d is not a rank", 100 + tutti_rank(comm));
    CHECK(tutti_comm_error(comm) == NULL && explains(comm, words) && explains(comm, "its rank 0 is rank 1"));
    CHECK(tutti_leave(odd) == TUTTI_OK && explains(comm, words));
    CHECK(tutti_barrier(comm) == TUTTI_OK && explains(comm, words));
    fault_meet(comm);
    CHECK(tutti_all_reduce(along, &x, &y, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_ERR_ARGUMENT);
    CHECK(explains(comm, "all_reduce: `comm` is NULL"));
    fault_meet(comm);
    explain_handles(comm);
    CHECK(tutti_mesh_create(comm, names, sizes, 1, &mesh) == TUTTI_OK);
    CHECK(tutti_mesh_comm(mesh, "date", &along) == TUTTI_ERR_ARGUMENT && explains(comm, "\"date\" does not name"));
    tutti_mesh_free(mesh);
    CHECK(tutti_barrier(comm) == TUTTI_OK && explains(comm, "\"date\" does not name"));
    CHECK(tutti_explain(comm, NULL) == 1);
}

/* ---- Outputs that threads share --------------------------------------------------------------------------------- */

enum { SHARED = 70000 };
static const size_t shared_counts[] = {1, 14, 500, 30000};
static float shared[SHARED];
static size_t shared_count, shared_kind; /* of the case that runs */

static tutti_status all_reduce_shared(tutti_comm *comm, const float *in)
{
    return tutti_all_reduce(comm, in, shared, shared_count, TUTTI_F32, TUTTI_SUM);
}

static tutti_status all_reduce_start_shared(tutti_comm *comm, const float *in)
{
    tutti_op op;
    tutti_status status = tutti_all_reduce_start(comm, in, shared, shared_count, TUTTI_F32, TUTTI_SUM, &op);
    return status == TUTTI_OK ? tutti_wait(op) : status;
}

static tutti_status all_reduce_many_shared(tutti_comm *comm, const float *in)
{
    tutti_piece pieces[] = {{in, shared, shared_count}, {in, shared + shared_count, shared_count}};
    return tutti_all_reduce_many(comm, pieces, 2, TUTTI_F32, TUTTI_SUM);
}

/* Of which a part overlaps. */
static tutti_status reduce_scatter_shared(tutti_comm *comm, const float *in)
{
    float *out = shared + (tutti_rank(comm) == 1 ? shared_count / 2 : 0);
    return tutti_reduce_scatter(comm, in, out, shared_count, TUTTI_F32, TUTTI_SUM);
}

static tutti_status all_gather_shared(tutti_comm *comm, const float *in)
{
    return tutti_all_gather(comm, in, shared, shared_count, TUTTI_F32);
}

static tutti_status broadcast_shared(tutti_comm *comm, const float *in)
{
    return tutti_broadcast(comm, in, shared, shared_count, TUTTI_F32, 0);
}

static tutti_status scan_shared(tutti_comm *comm, const float *in)
{
    return tutti_scan(comm, in, shared, shared_count, TUTTI_F32, TUTTI_SUM);
}

static const struct {
    const char *name;
    tutti_status (*call)(tutti_comm *comm, const float *in);
} sharing[] = {{"all_reduce", all_reduce_shared},
               {"all_reduce_start", all_reduce_start_shared},
               {"all_reduce_many", all_reduce_many_shared},
               {"reduce_scatter", reduce_scatter_shared},
               {"all_gather", all_gather_shared},
               {"broadcast", broadcast_shared},
               {"scan", scan_shared}};

/* Ranks 0 and 1 are of one process. Who has ended the call before it was found is told at the next one. */
static void share_output(tutti_comm *comm, struct fault_rank *self)
{
    float *in = calloc(2 * SHARED, sizeof *in);
    tutti_status status = sharing[shared_kind].call(comm, in);
    (void)self;
    if (status == TUTTI_OK) status = tutti_barrier(comm);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_ERR_OVERLAP && error != NULL, "%s", tutti_status_name(status));
    if (error != NULL)
        CHECK_THAT(strstr(error->text, "rank 0 at ") != NULL && strstr(error->text, "rank 1 at ") != NULL &&
                       strstr(error->text, "test_arguments.c:") != NULL,
                   "%s", error->text);
    free(in);
}

/* Memory that a rank had given, and another has now, is no mistake. */
static void pass_output_on(tutti_comm *comm, struct fault_rank *self)
{
    float x = 1, spare = 0;
    (void)self;
    for (int turn = 0; turn < 10; turn++) {
        bool mine = turn % 2 == tutti_rank(comm);
        CHECK(tutti_all_reduce(comm, &x, mine ? shared : &spare, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
        CHECK((mine ? shared[0] : spare) == 2);
        CHECK(tutti_broadcast(comm, &x, mine ? shared : &spare, 1, TUTTI_F32, 0) == TUTTI_OK);
        fault_meet(comm);
    }
}

static void test_sharing(void)
{
    /* the sanitizer for threads sees the same mistake, and tells it first */
    for (shared_kind = 0; shared_kind < sizeof sharing / sizeof *sharing && !SANITIZED_THREADS; shared_kind++)
        for (size_t i = 0; i < sizeof shared_counts / sizeof *shared_counts; i++) {
            shared_count = shared_counts[i];
            char title[80];
            snprintf(title, sizeof title, "%s of %zu to a global variable", sharing[shared_kind].name, shared_count);
            fault_run_body(title, share_output, 2, false, false);
            fault_run_body(title, share_output, 2, false, true);
        }
    fault_run_body("a global variable in turns", pass_output_on, 2, false, false);
    fault_run_body("a global variable in turns", pass_output_on, 2, false, true);
    fault_run_body("global variables of processes", pass_output_on, 2, true, false);
}

/* ---- No comm --------------------------------------------------------------------------------------------------- */

static tutti_comm *no_comm(void)
{
    return NULL;
}

static void test_no_comm(void)
{
    tutti_comm *comm = no_comm();
    float x = 0, y = 0;
    size_t counts[1] = {1};
    check_title("no comm");
    CHECK(tutti_barrier(comm) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_all_reduce(comm, &x, &y, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_broadcast(tutti_named(tutti_within(comm, 5), "x"), &x, &y, 1, TUTTI_F32, 0) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_all_gather_v(comm, &x, &y, counts, NULL, TUTTI_F32) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_send(comm, &x, 1, TUTTI_F32, 0, 0) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_recv(comm, &x, 1, TUTTI_F32, 0, 0, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_sendrecv(comm, &x, 1, 0, 0, &y, 1, 0, 0, TUTTI_F32, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_tuning_set(comm, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_alloc(comm, 8) == NULL && tutti_free(comm, NULL) == TUTTI_OK);
    CHECK(tutti_free(comm, &x) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_comm_error(comm) == NULL && tutti_leave(comm) == TUTTI_OK);
    CHECK(tutti_rank(comm) < 0 && tutti_size(comm) <= 0 && tutti_job(comm) != NULL && !tutti_all_threads(comm));
    FILE *sink = fopen("/dev/null", "w");
    CHECK(sink != NULL && tutti_explain(comm, sink) == 1);
    if (sink != NULL) fclose(sink);
    CHECK(tutti_join(NULL) == TUTTI_ERR_ARGUMENT && tutti_join_as("x", 0, 1, NULL, NULL) == TUTTI_ERR_ARGUMENT);
}

/* ---- A world that was left --------------------------------------------------------------------------------------- */

/* The error is about leaving, whatever was called. */
static void check_gone(const tutti_comm *comm, tutti_status status, int line)
{
    const tutti_error *error = tutti_comm_error(comm);
    check_that(status == TUTTI_ERR_ARGUMENT && error != NULL, __FILE__, line, "gone", "status %d", (int)status);
    if (error == NULL) return;
    check_that(strstr(error->text, "has left this world before (") != NULL && strcmp(error->operation, "leave") == 0,
               __FILE__, line, "gone", "%s", error->text);
}

static void use_left(tutti_comm *comm)
{
    float x[8] = {0}, y[8] = {0};
    size_t counts[2] = {1, 1};
    tutti_piece piece = {x, y, 1};
    tutti_message message;
    tutti_comm *made = NULL;
    tutti_mesh *mesh = NULL;
    tutti_tuning tuning;
    tutti_stats stats;
    tutti_op op;
    const char *names[] = {"a"};
    int sizes[] = {1};
    int64_t waited[8];
#define LEFT(call) check_gone(comm, (call), __LINE__)
    LEFT(tutti_barrier(comm));
    LEFT(tutti_all_reduce(tutti_named(tutti_within(comm, 5), "x"), x, y, 1, TUTTI_F32, TUTTI_SUM));
    LEFT(tutti_broadcast(comm, x, y, 1, TUTTI_F32, 0));
    LEFT(tutti_all_gather_v(comm, x, y, counts, NULL, TUTTI_F32));
    LEFT(tutti_all_reduce_many(comm, &piece, 1, TUTTI_F32, TUTTI_SUM));
    LEFT(tutti_all_reduce_start(comm, x, y, 1, TUTTI_F32, TUTTI_SUM, &op));
    LEFT(tutti_all_reduce_start(tutti_prepared(comm), x, y, 1, TUTTI_F32, TUTTI_SUM, &op));
    LEFT(tutti_send(comm, x, 1, TUTTI_F32, 0, 0));
    LEFT(tutti_recv(comm, x, 1, TUTTI_F32, 0, 0, NULL));
    LEFT(tutti_recv_start(comm, x, 1, TUTTI_F32, 0, 0, NULL, &op));
    LEFT(tutti_sendrecv(comm, x, 1, 0, 0, y, 1, 0, 0, TUTTI_F32, NULL));
    LEFT(tutti_probe(comm, 0, 0, &message));
    LEFT(tutti_try_probe(comm, 0, 0, &message));
    LEFT(tutti_group_begin(comm));
    LEFT(tutti_group_end(comm));
    LEFT(tutti_group_end_start(comm, &op));
    LEFT(tutti_comm_split(comm, 0, 0, &made));
    LEFT(tutti_comm_duplicate(comm, &made));
    LEFT(tutti_comm_by_host(comm, &made));
    LEFT(tutti_mesh_create(comm, names, sizes, 1, &mesh));
    LEFT(tutti_comm_stats(comm, &stats));
    LEFT(tutti_comm_waits(comm, waited));
    LEFT(tutti_tuning_set(comm, &tuning));
    LEFT(tutti_free(comm, x));
    LEFT(tutti_leave(comm));
    LEFT(tutti_comm_free(comm));
    CHECK(tutti_alloc(comm, 8) == NULL && tutti_job(comm) != NULL && tutti_world_rank(comm, 0) == -1);
    CHECK(tutti_comm_transport(comm) != NULL && tutti_rank(comm) == 0 && tutti_size(comm) > 0);
    tutti_tuning_get(comm, &tuning);
    FILE *sink = fopen("/dev/null", "w");
    CHECK(sink != NULL && tutti_explain(comm, sink) == 1);
    if (sink != NULL) fclose(sink);
}

static tutti_comm *left_by_main;

static int keep_world(tutti_comm *comm, int argc, char **argv)
{
    (void)argc, (void)argv;
    if (tutti_rank(comm) == 0) left_by_main = comm;
    return 0;
}

static void test_left(void)
{
    char *arguments[] = {"x", NULL}, place[64];
    for (int over_tcp = 0; over_tcp < 2; over_tcp++) {
        tutti_comm *world, *again;
        check_title("a world that was left%s", over_tcp ? ", over tcp" : "");
        if (over_tcp) setenv("TUTTI_TRANSPORT", "tcp", 1);
        CHECK(tutti_join(&world) == TUTTI_OK);
        snprintf(place, sizeof place, "(by tutti_leave at %s:%d)", __FILE__, __LINE__ + 1);
        CHECK(tutti_leave(world) == TUTTI_OK);
        use_left(world);
        CHECK_THAT(strstr(tutti_comm_error(world)->text, place) != NULL, "%s", tutti_comm_error(world)->text);
        CHECK(tutti_join(&again) == TUTTI_OK && again != world && tutti_barrier(again) == TUTTI_OK);
        use_left(world);
        CHECK(tutti_leave(again) == TUTTI_OK);
        setenv("TUTTI_RANKS", "2", 1);
        CHECK(tutti_main(keep_world, 1, arguments) == 0);
        unsetenv("TUTTI_RANKS");
        use_left(left_by_main);
        CHECK(strstr(tutti_comm_error(left_by_main)->text, "(when its work had returned)") != NULL);
    }
    unsetenv("TUTTI_TRANSPORT");
    for (int i = 0; i < 600; i++) { /* more than are kept */
        tutti_comm *world;
        CHECK(tutti_join(&world) == TUTTI_OK && tutti_leave(world) == TUTTI_OK && tutti_barrier(world) < 0);
    }
}

static void add_nothing(void *context, void *left, const void *right, size_t count, tutti_type type)
{
    (void)context, (void)left, (void)right, (void)count, (void)type;
}

static void test_registering(void)
{
    tutti_reduction first, again;
    char longest[200];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    tutti_error taken, unnamed, infinite;
    check_title("registering");
    CHECK(tutti_reduction_register("nothing", add_nothing, NULL, &first, NULL) == TUTTI_OK);
    CHECK(tutti_reduction_register("nothing", add_nothing, NULL, &again, NULL) == TUTTI_OK && again == first);
    CHECK(tutti_reduction_register("nothing", add_nothing, &first, &again, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_reduction_register("sum", add_nothing, NULL, &again, &taken) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_reduction_register("", add_nothing, NULL, &again, &unnamed) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_reduction_register(longest, add_nothing, NULL, &again, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_reduction_register(NULL, add_nothing, NULL, &again, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_reduction_register("other", NULL, NULL, &again, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_reduction_register("other", add_nothing, NULL, NULL, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_reduction_scaled_sum(NAN, &again, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_reduction_scaled_sum(INFINITY, &again, &infinite) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_reduction_scaled_sum(1.0, NULL, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(taken.text, "tutti_reduction_register: \"sum\": a built-in reduction, or one") != NULL);
    CHECK(strstr(unnamed.text, "a name has 1 to 63 bytes") != NULL);
    CHECK(strstr(infinite.text, "tutti_reduction_scaled_sum: \"inf\": a factor must") != NULL);
    CHECK(strcmp(tutti_reduction_name((tutti_reduction)999), "unknown") == 0);
    CHECK(strcmp(tutti_type_name((tutti_type)99), "unknown") == 0 && tutti_type_bytes((tutti_type)99) == 0);
}

/* What tutti_main joined is left by it. */
static void leave_early(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    CHECK(tutti_leave(comm) == TUTTI_ERR_ARGUMENT && strstr(tutti_comm_error(comm)->text, "when that has returned"));
    CHECK(tutti_comm_free(comm) == TUTTI_ERR_ARGUMENT && tutti_barrier(comm) == TUTTI_OK);
}

int main(void)
{
    fault_begin(110);
    for (int size = 1; size < 3; size++)
        fault_run_body("left by the work of tutti_main", leave_early, size, false, false);
    fault_run_body("errors of others", explain_others, 2, false, false);
    fault_run_body("errors of others", explain_others, 2, false, true);
    fault_run_body("errors of others", explain_others, 2, true, false);
    test_sharing();
    test_no_comm();
    test_left();
    test_registering();
    test_refused();
    test_lies();
    return fault_end();
}
