/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * What tutti bench counts as wrong: nothing of what an operation gives, and every element that is not what it must be.
 */
#include "cli/bench_check.c"
#include "cli/bench_ops.c"
#include "fault.h"

/* No rank has a device here. */
tutti_status bench_device_put(struct bench_rank *self, size_t bytes)
{
    (void)bytes;
    return self->device == NULL ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED;
}

tutti_status bench_device_get(struct bench_rank *self, size_t bytes)
{
    return bench_device_put(self, bytes);
}

enum { RANKS = 3, BYTES = 600 };

static _Thread_local const struct bench_op *real;
static _Thread_local bool spoils;

/* The operation, and then the first element of what it gave is another one. */
static tutti_status call_and_spoil(struct bench_rank *self, const struct bench_case *c)
{
    tutti_status status = real->call(self, c);
    if (spoils) c->out[0] ^= 0x40;
    return status;
}

/* Whether this rank gets anything that could be wrong. */
static bool gets(const struct bench_rank *self, const struct bench_case *c)
{
    floor_op shape = c->op->shape;
    if (shape == FLOOR_BARRIER) return false;
    if (shape == FLOOR_PING_PONG) return self->rank < 2;
    return (shape != FLOOR_REDUCE && shape != FLOOR_GATHER) || self->rank == c->root;
}

static void check_case(struct bench_rank *self, const struct bench_op *op, tutti_type type, tutti_reduction reduction,
                       bool in_place)
{
    struct bench_op watched = *op;
    struct bench_case c;
    real = op;
    watched.call = call_and_spoil;
    bench_case_init(self, &c, &watched, BYTES, type, reduction, in_place);
    for (int turn = 0; turn < 2; turn++) {
        uint64_t wrong = UINT64_MAX;
        spoils = turn == 1;
        CHECK(bench_check(self, &c, &wrong) == TUTTI_OK);
        CHECK_THAT(wrong == (spoils && gets(self, &c) ? 1 : 0), "%s of %s, %s: rank %d finds %llu wrong", op->name,
                   tutti_type_name(type), bench_reduction_name(reduction), self->rank, (unsigned long long)wrong);
    }
}

static void check_all(tutti_comm *comm, struct fault_rank *unused)
{
    static const tutti_type types[] = {TUTTI_F32, TUTTI_F64, TUTTI_BF16, TUTTI_F8E4M3, TUTTI_U8, TUTTI_I64, TUTTI_BOOL};
    struct bench_settings settings = {.flags = {.root = 1}};
    struct bench_rank self = {
        .world = comm, .settings = &settings, .rank = tutti_rank(comm), .ranks = RANKS, .max_bytes = 2 * BYTES};
    tutti_reduction scaled;
    (void)unused;
    CHECK(bench_buffers_open(&self, false) && tutti_reduction_scaled_sum(BENCH_FACTOR, &scaled, NULL) == TUTTI_OK);
    for (size_t i = 0; i < bench_op_count; i++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            for (int in_place = 0; in_place <= (bench_ops[i].in_place != BENCH_NEVER); in_place++) {
                check_case(&self, &bench_ops[i], types[t], TUTTI_MAX, in_place != 0);
                if (bench_ops[i].reduces) check_case(&self, &bench_ops[i], types[t], TUTTI_SUM, in_place != 0);
                if (bench_ops[i].reduces && types[t] != TUTTI_BOOL)
                    check_case(&self, &bench_ops[i], types[t], scaled, in_place != 0);
            }
    bench_buffers_close(&self);
}

int main(void)
{
    fault_begin(50);
    fault_run_body("what bench finds wrong", check_all, RANKS, false, false);
    return fault_end();
}
