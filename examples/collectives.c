/* SPDX-License-Identifier: Apache-2.0
 *
 * Every collective once, with what each rank put in and what it got out.
 *
 *     tutti run -n 4 build/examples/collectives        4 processes
 *     TUTTI_RANKS=4 build/examples/collectives         4 threads
 */
#include <limits.h>
#include <stdio.h>

#include <tutti/tutti.h>

enum { ROOT = 0, UNSET = INT_MIN };

/* One rank's side of a call. `counts` are the uneven blocks of the v-forms: 1, 2, 1, 2, … elements. */
typedef struct side {
    tutti_comm *world;
    int rank, size;
    int32_t *in, *out;    /* (room) */
    int32_t *everyone;    /* (size, room): where the root collects what it prints */
    size_t room;          /* elements: no call needs more */
    size_t *counts;       /* (size) */
    size_t *equal_counts; /* (size): this rank's count, once for every peer */
} side;

static tutti_status all_reduce(side *s)
{
    return tutti_all_reduce(s->world, s->in, s->out, 1, TUTTI_I32, TUTTI_SUM);
}

static tutti_status reduce(side *s)
{
    return tutti_reduce(s->world, s->in, s->out, 1, TUTTI_I32, TUTTI_MAX, ROOT);
}

static tutti_status broadcast(side *s)
{
    return tutti_broadcast(s->world, s->in, s->out, 2, TUTTI_I32, ROOT);
}

static tutti_status all_gather(side *s)
{
    return tutti_all_gather(s->world, s->in, s->out, 1, TUTTI_I32);
}

static tutti_status gather(side *s)
{
    return tutti_gather(s->world, s->in, s->out, 1, TUTTI_I32, ROOT);
}

static tutti_status scatter(side *s)
{
    return tutti_scatter(s->world, s->in, s->out, 1, TUTTI_I32, ROOT);
}

static tutti_status reduce_scatter(side *s)
{
    return tutti_reduce_scatter(s->world, s->in, s->out, 1, TUTTI_I32, TUTTI_SUM);
}

static tutti_status all_to_all(side *s)
{
    return tutti_all_to_all(s->world, s->in, s->out, 1, TUTTI_I32);
}

static tutti_status scan(side *s)
{
    return tutti_scan(s->world, s->in, s->out, 1, TUTTI_I32, TUTTI_SUM);
}

static tutti_status exscan(side *s)
{
    return tutti_exscan(s->world, s->in, s->out, 1, TUTTI_I32, TUTTI_SUM);
}

static tutti_status all_gather_v(side *s)
{
    return tutti_all_gather_v(s->world, s->in, s->out, s->counts, NULL, TUTTI_I32);
}

static tutti_status gather_v(side *s)
{
    return tutti_gather_v(s->world, s->in, s->counts[s->rank], s->out, s->counts, NULL, TUTTI_I32, ROOT);
}

static tutti_status scatter_v(side *s)
{
    return tutti_scatter_v(s->world, s->in, s->counts, NULL, s->out, s->counts[s->rank], TUTTI_I32, ROOT);
}

static tutti_status reduce_scatter_v(side *s)
{
    return tutti_reduce_scatter_v(s->world, s->in, s->out, s->counts, TUTTI_I32, TUTTI_SUM);
}

static tutti_status all_to_all_v(side *s)
{
    return tutti_all_to_all_v(s->world, s->in, s->counts, NULL, s->out, s->equal_counts, NULL, TUTTI_I32);
}

static tutti_status sendrecv(side *s)
{
    int next = (s->rank + 1) % s->size, previous = (s->rank + s->size - 1) % s->size;
    return tutti_sendrecv(s->world, s->in, 1, next, 0, s->out, 1, previous, 0, TUTTI_I32, NULL);
}

/* How many elements a rank puts in: one block, one for every rank, or the uneven blocks of the v-forms. */
typedef enum shape { ONE, TWO, EACH, MINE, ALL_UNEVEN } shape;

static const struct {
    const char *name;
    tutti_status (*call)(side *);
    shape in;
    int in_at_root_only;
} rows[] = {
    {.name = "all_reduce (sum)", .call = all_reduce, .in = ONE},
    {.name = "reduce (max)", .call = reduce, .in = ONE},
    {.name = "broadcast", .call = broadcast, .in = TWO, .in_at_root_only = 1},
    {.name = "all_gather", .call = all_gather, .in = ONE},
    {.name = "gather", .call = gather, .in = ONE},
    {.name = "scatter", .call = scatter, .in = EACH, .in_at_root_only = 1},
    {.name = "reduce_scatter (sum)", .call = reduce_scatter, .in = EACH},
    {.name = "all_to_all", .call = all_to_all, .in = EACH},
    {.name = "scan (sum)", .call = scan, .in = ONE},
    {.name = "exscan (sum)", .call = exscan, .in = ONE},
    {.name = "all_gather_v", .call = all_gather_v, .in = MINE},
    {.name = "gather_v", .call = gather_v, .in = MINE},
    {.name = "scatter_v", .call = scatter_v, .in = ALL_UNEVEN, .in_at_root_only = 1},
    {.name = "reduce_scatter_v (sum)", .call = reduce_scatter_v, .in = ALL_UNEVEN},
    {.name = "all_to_all_v", .call = all_to_all_v, .in = ALL_UNEVEN},
    {.name = "sendrecv (to the next)", .call = sendrecv, .in = ONE},
};

static size_t elements(const side *s, shape in)
{
    size_t all = 0;
    for (int r = 0; r < s->size; r++) all += s->counts[r];
    switch (in) {
    case ONE: return 1;
    case TWO: return 2;
    case EACH: return (size_t)s->size;
    case MINE: return s->counts[s->rank];
    case ALL_UNEVEN: return all;
    }
    return 0;
}

static void fill(side *s, size_t count)
{
    for (size_t i = 0; i < s->room; i++) {
        s->in[i] = i < count ? 10 * (s->rank + 1) + (int32_t)i : UNSET;
        s->out[i] = UNSET;
    }
}

/* Prints every rank's values, in rank order, at the root: [10] [20] [30] [40]; [-] is a rank that has none. */
static tutti_status show(side *s, const char *label, const char *direction, const int32_t *values)
{
    tutti_status status = tutti_gather(s->world, values, s->everyone, s->room, TUTTI_I32, ROOT);
    if (status != TUTTI_OK || s->rank != ROOT) return status;
    printf("%-23s %-3s", label, direction);
    for (int r = 0; r < s->size; r++) {
        const int32_t *block = s->everyone + (size_t)r * s->room;
        printf(" [%s", block[0] == UNSET ? "-" : "");
        for (size_t i = 0; i < s->room && block[i] != UNSET; i++) printf("%s%d", i ? " " : "", block[i]);
        printf("]");
    }
    printf("\n");
    return TUTTI_OK;
}

static tutti_status run_all(side *s)
{
    tutti_status status = tutti_barrier(s->world);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && status == TUTTI_OK; i++) {
        int has_input = !rows[i].in_at_root_only || s->rank == ROOT;
        fill(s, has_input ? elements(s, rows[i].in) : 0);
        status = show(s, rows[i].name, "in", s->in);
        if (status == TUTTI_OK) status = rows[i].call(s);
        if (status == TUTTI_OK) status = show(s, "", "out", s->out);
    }
    return status;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    (void)argc, (void)argv;
    side s = {.world = world, .rank = tutti_rank(world), .size = tutti_size(world)};
    size_t size = (size_t)s.size;
    s.room = 2 * size;
    s.in = tutti_alloc(world, s.room * sizeof *s.in);
    s.out = tutti_alloc(world, s.room * sizeof *s.out);
    s.everyone = tutti_alloc(world, size * s.room * sizeof *s.everyone);
    s.counts = tutti_alloc(world, size * sizeof *s.counts);
    s.equal_counts = tutti_alloc(world, size * sizeof *s.equal_counts);
    if (!s.in || !s.out || !s.everyone || !s.counts || !s.equal_counts) return tutti_explain(world, stderr);
    for (size_t r = 0; r < size; r++) s.counts[r] = r % 2 + 1;
    for (size_t r = 0; r < size; r++) s.equal_counts[r] = s.counts[s.rank];

    if (s.rank == ROOT) printf("%d ranks; [what rank 0 has] [what rank 1 has] ...\n\n", s.size);
    if (run_all(&s) != TUTTI_OK) return tutti_explain(world, stderr);
    return 0; /* leaving the world frees what tutti_alloc gave */
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
