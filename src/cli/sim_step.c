/* SPDX-License-Identifier: Apache-2.0
 *
 * One random collective of a program whose ranks may die: chooses it, fills in its data, and checks the results.
 */
#include "cli/sim_faults.h"

enum { TAG = 5 };

/* ---- Random ---------------------------------------------------------------------------------------------------------- */

uint64_t sim_mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) + b + UINT64_C(0x632be59bd9b4e019);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t sim_draw(uint64_t *state, uint64_t below)
{
    *state = sim_mix(*state, below);
    return *state % below;
}

/* ---- Collectives ----------------------------------------------------------------------------------------------------- */

enum call {
    BARRIER,
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    ALL_GATHER,
    GATHER,
    SCATTER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    SCAN,
    RING,
    CALLS
};

static const char *const call_names[CALLS] = {"barrier",    "all_reduce", "reduce",  "broadcast",
                                              "all_gather", "gather",     "scatter", "reduce_scatter",
                                              "all_to_all", "scan",       "sendrecv"};

static uint64_t value_of(const struct sim_step *step, int id, size_t i)
{
    return sim_mix(step->key + (uint64_t)id, i) >> 20; /* small enough that sums of all ranks do not overflow */
}

void sim_step_choose(struct sim_step *step, uint64_t random, size_t most)
{
    const size_t counts[] = {1, 3, 8, 64, 500, 3000, most};
    step->size = tutti_size(step->comm);
    step->rank = tutti_rank(step->comm);
    step->call = (int)sim_draw(&random, CALLS);
    step->root = (int)sim_draw(&random, (uint64_t)step->size);
    step->count = counts[sim_draw(&random, sizeof counts / sizeof *counts)];
    if (step->count * (size_t)step->size > most) step->count = most / (size_t)step->size;
    step->key = random;
    step->name = call_names[step->call];
}

tutti_status sim_step_do(const struct sim_step *s)
{
    tutti_comm *comm = s->comm;
    const uint64_t *in = s->in;
    uint64_t *out = s->out;
    int next = (s->rank + 1) % s->size, before = (s->rank + s->size - 1) % s->size;
    size_t received;
    switch ((enum call)s->call) {
    case ALL_REDUCE: return tutti_all_reduce(comm, in, out, s->count, TUTTI_U64, TUTTI_SUM);
    case REDUCE: return tutti_reduce(comm, in, out, s->count, TUTTI_U64, TUTTI_SUM, s->root);
    case BROADCAST: return tutti_broadcast(comm, in, out, s->count, TUTTI_U64, s->root);
    case ALL_GATHER: return tutti_all_gather(comm, in, out, s->count, TUTTI_U64);
    case GATHER: return tutti_gather(comm, in, out, s->count, TUTTI_U64, s->root);
    case SCATTER: return tutti_scatter(comm, in, out, s->count, TUTTI_U64, s->root);
    case REDUCE_SCATTER: return tutti_reduce_scatter(comm, in, out, s->count, TUTTI_U64, TUTTI_SUM);
    case ALL_TO_ALL: return tutti_all_to_all(comm, in, out, s->count, TUTTI_U64);
    case SCAN: return tutti_scan(comm, in, out, s->count, TUTTI_U64, TUTTI_SUM);
    case RING: return tutti_sendrecv(comm, in, s->count, next, TAG, out, s->count, before, TAG, TUTTI_U64, &received);
    case BARRIER:
    case CALLS: break;
    }
    return tutti_barrier(comm);
}

static uint64_t sum_of(const struct sim_step *s, int ranks, size_t i)
{
    uint64_t sum = 0;
    for (int place = 0; place < ranks; place++) sum += value_of(s, s->ids[place], i);
    return sum;
}

/* Returns the value that this rank must find at `i` of its output. */
static uint64_t expected(const struct sim_step *s, size_t i)
{
    size_t mine = (size_t)s->rank * s->count + i;
    switch ((enum call)s->call) {
    case ALL_REDUCE:
    case REDUCE: return sum_of(s, s->size, i);
    case SCAN: return sum_of(s, s->rank + 1, i);
    case REDUCE_SCATTER: return sum_of(s, s->size, mine);
    case BROADCAST: return value_of(s, s->ids[s->root], i);
    case SCATTER: return value_of(s, s->ids[s->root], mine);
    case ALL_GATHER:
    case GATHER: return value_of(s, s->ids[i / s->count], i % s->count);
    case ALL_TO_ALL: return value_of(s, s->ids[i / s->count], (size_t)s->rank * s->count + i % s->count);
    case RING: return value_of(s, s->ids[(s->rank + s->size - 1) % s->size], i);
    case BARRIER:
    case CALLS: break;
    }
    return 0;
}

static size_t in_count(const struct sim_step *s)
{
    bool blocks = s->call == SCATTER || s->call == REDUCE_SCATTER || s->call == ALL_TO_ALL;
    return s->call == BARRIER ? 0 : blocks ? s->count * (size_t)s->size : s->count;
}

static size_t out_count(const struct sim_step *s)
{
    bool blocks = s->call == ALL_GATHER || s->call == GATHER || s->call == ALL_TO_ALL;
    if (s->call == BARRIER || ((s->call == REDUCE || s->call == GATHER) && s->rank != s->root)) return 0;
    return blocks ? s->count * (size_t)s->size : s->count;
}

/* ---- Data ------------------------------------------------------------------------------------------------------------ */

void sim_step_fill(const struct sim_step *step)
{
    for (size_t i = 0; i < in_count(step); i++) step->in[i] = value_of(step, step->ids[step->rank], i);
}

void sim_step_spoil(const struct sim_step *step)
{
    if (out_count(step) > 0) step->out[out_count(step) - 1] ^= 1;
}

bool sim_step_check(const struct sim_step *step, size_t *place, uint64_t *right)
{
    size_t count = out_count(step), i = 0;
    for (; i < count; i++) {
        if (i % step->count > 16 && i % 61 != 0 && i + 1 != count) continue; /* checks only some of many */
        *right = expected(step, i);
        if (step->out[i] != *right) break;
    }
    *place = i < count ? i : 0;
    return i == count;
}
