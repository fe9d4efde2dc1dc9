/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations that can be measured, one row each. Sizes are counted as in nccl-tests: the vector, or for operations
 * on blocks the blocks of all ranks together.
 */
#include "cli/bench.h"

#include <stdlib.h>
#include <string.h>

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

static tutti_status call_barrier(struct bench_rank *self, const struct bench_case *c)
{
    (void)c;
    return tutti_barrier(bench_on(self));
}

static tutti_status call_all_reduce(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_all_reduce(bench_on(self), c->in, c->out, c->count, c->type, c->reduction);
}

static tutti_status call_reduce(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_reduce(bench_on(self), c->in, c->out, c->count, c->type, c->reduction, c->root);
}

static tutti_status call_broadcast(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_broadcast(bench_on(self), c->in, c->out, c->count, c->type, c->root);
}

static tutti_status call_all_gather(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_all_gather(bench_on(self), c->in, c->out, c->count, c->type);
}

static tutti_status call_gather(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_gather(bench_on(self), c->in, c->out, c->count, c->type, c->root);
}

static tutti_status call_scatter(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_scatter(bench_on(self), c->in, c->out, c->count, c->type, c->root);
}

static tutti_status call_reduce_scatter(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_reduce_scatter(bench_on(self), c->in, c->out, c->count, c->type, c->reduction);
}

static tutti_status call_all_to_all(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_all_to_all(bench_on(self), c->in, c->out, c->count, c->type);
}

static tutti_status call_all_gather_v(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_all_gather_v(bench_on(self), c->in, c->out, self->counts, NULL, c->type);
}

static tutti_status call_gather_v(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_gather_v(bench_on(self), c->in, self->counts[self->rank], c->out, self->counts, NULL, c->type,
                          c->root);
}

static tutti_status call_scatter_v(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_scatter_v(bench_on(self), c->in, self->counts, NULL, c->out, self->counts[self->rank], c->type,
                           c->root);
}

static tutti_status call_reduce_scatter_v(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_reduce_scatter_v(bench_on(self), c->in, c->out, self->counts, c->type, c->reduction);
}

/* A rank sends each peer as much as it receives from it. */
static tutti_status call_all_to_all_v(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_all_to_all_v(bench_on(self), c->in, self->counts, NULL, c->out, self->counts, NULL, c->type);
}

static tutti_status call_scan(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_scan(bench_on(self), c->in, c->out, c->count, c->type, c->reduction);
}

static tutti_status call_exscan(struct bench_rank *self, const struct bench_case *c)
{
    return tutti_exscan(bench_on(self), c->in, c->out, c->count, c->type, c->reduction);
}

/* Makes a round trip. */
static tutti_status call_ping_pong(struct bench_rank *self, const struct bench_case *c)
{
    if (self->rank > 1) return TUTTI_OK;
    int peer = 1 - self->rank;
    tutti_status status = TUTTI_OK;
    if (self->rank == 0) status = tutti_send(self->world, c->in, c->count, c->type, peer, 0);
    if (status == TUTTI_OK) status = tutti_recv(self->world, c->out, c->count, c->type, peer, 0, NULL);
    if (status == TUTTI_OK && self->rank == 1) status = tutti_send(self->world, c->in, c->count, c->type, peer, 0);
    return status;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

const struct bench_op bench_ops[] = {
    {.name = "all_reduce",
     .help = "every rank gets the reduction of all ranks' vectors",
     .shape = FLOOR_ALL_REDUCE,
     .in_place = BENCH_SAME,
     .bus = BENCH_BUS_ALL_REDUCE,
     .reduces = true,
     .standard = true,
     .call = call_all_reduce},
    {.name = "reduce",
     .help = "the root gets the reduction of all ranks' vectors",
     .shape = FLOOR_REDUCE,
     .in_place = BENCH_SAME,
     .rooted = true,
     .reduces = true,
     .standard = true,
     .call = call_reduce},
    {.name = "broadcast",
     .help = "every rank gets the root's vector",
     .shape = FLOOR_BROADCAST,
     .in_place = BENCH_SAME,
     .rooted = true,
     .standard = true,
     .call = call_broadcast},
    {.name = "all_gather",
     .help = "every rank gets every rank's block",
     .shape = FLOOR_ALL_GATHER,
     .in_place = BENCH_OWN_OF_OUT,
     .bus = BENCH_BUS_BLOCKS,
     .blocks = true,
     .standard = true,
     .call = call_all_gather},
    {.name = "gather",
     .help = "the root gets every rank's block",
     .shape = FLOOR_GATHER,
     .in_place = BENCH_OWN_OF_OUT,
     .blocks = true,
     .rooted = true,
     .standard = true,
     .call = call_gather},
    {.name = "scatter",
     .help = "every rank gets its block of the root's vector",
     .shape = FLOOR_SCATTER,
     .in_place = BENCH_OWN_OF_IN,
     .blocks = true,
     .rooted = true,
     .standard = true,
     .call = call_scatter},
    {.name = "reduce_scatter",
     .help = "every rank gets its block of the reduction of all ranks' vectors",
     .shape = FLOOR_REDUCE_SCATTER,
     .in_place = BENCH_OWN_OF_IN,
     .bus = BENCH_BUS_BLOCKS,
     .blocks = true,
     .reduces = true,
     .standard = true,
     .call = call_reduce_scatter},
    {.name = "all_to_all",
     .help = "every rank gets its block of every rank's vector",
     .shape = FLOOR_ALL_TO_ALL,
     .in_place = BENCH_SAME,
     .bus = BENCH_BUS_BLOCKS,
     .blocks = true,
     .standard = true,
     .call = call_all_to_all},
    {.name = "scan",
     .help = "rank r gets the reduction of ranks 0..r",
     .shape = FLOOR_SCAN,
     .in_place = BENCH_SAME,
     .reduces = true,
     .standard = true,
     .call = call_scan},
    {.name = "exscan",
     .help = "rank r gets the reduction of ranks 0..r-1",
     .shape = FLOOR_EXSCAN,
     .in_place = BENCH_SAME,
     .reduces = true,
     .standard = true,
     .call = call_exscan},
    {.name = "barrier",
     .help = "no rank goes on before all have come; has no size",
     .shape = FLOOR_BARRIER,
     .standard = true,
     .call = call_barrier},
    {.name = "ping_pong",
     .help = "a message from rank 0 to rank 1 and one back; the time is half of it",
     .shape = FLOOR_PING_PONG,
     .standard = true,
     .call = call_ping_pong},
    {.name = "all_gather_v",
     .help = "all_gather with blocks of 1, 2, 3 ... parts",
     .shape = FLOOR_ALL_GATHER,
     .in_place = BENCH_OWN_OF_OUT,
     .bus = BENCH_BUS_BLOCKS,
     .blocks = true,
     .uneven = true,
     .call = call_all_gather_v},
    {.name = "gather_v",
     .help = "gather with blocks of 1, 2, 3 ... parts",
     .shape = FLOOR_GATHER,
     .in_place = BENCH_OWN_OF_OUT,
     .blocks = true,
     .uneven = true,
     .rooted = true,
     .call = call_gather_v},
    {.name = "scatter_v",
     .help = "scatter with blocks of 1, 2, 3 ... parts",
     .shape = FLOOR_SCATTER,
     .in_place = BENCH_OWN_OF_IN,
     .blocks = true,
     .uneven = true,
     .rooted = true,
     .call = call_scatter_v},
    {.name = "reduce_scatter_v",
     .help = "reduce_scatter with blocks of 1, 2, 3 ... parts",
     .shape = FLOOR_REDUCE_SCATTER,
     .in_place = BENCH_OWN_OF_IN,
     .bus = BENCH_BUS_BLOCKS,
     .blocks = true,
     .uneven = true,
     .reduces = true,
     .call = call_reduce_scatter_v},
    {.name = "all_to_all_v",
     .help = "all_to_all with blocks of 1, 2, 3 ... parts",
     .shape = FLOOR_ALL_TO_ALL,
     .bus = BENCH_BUS_BLOCKS,
     .blocks = true,
     .uneven = true,
     .call = call_all_to_all_v},
};
const size_t bench_op_count = sizeof bench_ops / sizeof bench_ops[0];

/* Accepts names without underlines between words, too, as in MPI and in some of nccl-tests' programs. */
static bool is_named(const struct bench_op *op, const char *word)
{
    const char *name = op->name;
    if (strcmp(name, word) == 0) return true;
    for (; *name != '\0'; name++)
        if (*name != '_' && *name != *word++) return false;
    return *word == '\0';
}

enum { WORD_BYTES = 32 };

/* Takes the operation's name out of the name of nccl-tests' program. */
static void strip(const char *word, char name[WORD_BYTES])
{
    static const char perf[] = "_perf";
    size_t length = strlen(word), tail = sizeof perf - 1;
    if (length > tail && strcmp(word + length - tail, perf) == 0) length -= tail;
    (void)snprintf(name, WORD_BYTES, "%.*s", (int)length, word);
}

const struct bench_op *bench_op_find(const char *word)
{
    char name[WORD_BYTES];
    strip(word, name);
    for (size_t i = 0; i < bench_op_count; i++)
        if (is_named(&bench_ops[i], name)) return &bench_ops[i];
    return NULL;
}

const char *bench_op_nearest(const char *word)
{
    static const char *const elsewhere[][2] = {{"bcast", "broadcast"}, {"sendrecv", "ping_pong"}};
    const char *names[BENCH_MAX_OPS];
    char name[WORD_BYTES];
    strip(word, name);
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strcmp(elsewhere[i][0], name) == 0) return elsewhere[i][1];
    for (size_t i = 0; i < bench_op_count; i++) names[i] = bench_ops[i].name;
    return tutti_nearest(name, names, bench_op_count);
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

/* Uneven blocks have 1, 2, ... n parts; as the parts need not be whole elements, block ends are rounded down. */
size_t bench_block_offset(const struct bench_case *c, int ranks, int block)
{
    size_t n = (size_t)ranks, b = (size_t)block;
    if (!c->op->uneven) return b * c->count;
    size_t parts = n * (n + 1) / 2, before = b * (b + 1) / 2;
    return c->total / parts * before + c->total % parts * before / parts;
}

/* Uneven: returns the size of block (from + to) mod n, so that all ranks send and receive equally much. */
static size_t pair_count(const struct bench_case *c, int ranks, int from, int to)
{
    int block = (from + to) % ranks;
    return bench_block_offset(c, ranks, block + 1) - bench_block_offset(c, ranks, block);
}

size_t bench_pair_offset(const struct bench_case *c, int ranks, int from, int to)
{
    size_t offset = 0;
    for (int p = 0; p < to; p++) offset += pair_count(c, ranks, from, p);
    return offset;
}

/* Changes a call's buffers for in-place operation. */
static void place_in(const struct bench_rank *self, const struct bench_case *c, char **in, char **out)
{
    size_t own = bench_block_offset(c, self->ranks, self->rank) * tutti_type_bytes(c->type);
    if (!c->in_place || (c->op->rooted && self->rank != c->root)) return;
    switch (c->op->in_place) {
    case BENCH_NEVER: break;
    case BENCH_SAME: *out = *in; break;
    case BENCH_OWN_OF_OUT: *in = *out + own; break;
    case BENCH_OWN_OF_IN: *out = *in + own; break;
    }
}

static void place_buffers(struct bench_rank *self, struct bench_case *c)
{
    c->host_in = self->in_buffer;
    c->host_out = self->out_buffer;
    c->in = self->device == NULL ? self->in_buffer : self->device->at[0];
    c->out = self->device == NULL ? self->out_buffer : self->device->at[1];
    place_in(self, c, &c->host_in, &c->host_out);
    place_in(self, c, &c->in, &c->out);
}

const char *bench_reduction_name(tutti_reduction reduction)
{
    return reduction < TUTTI_REDUCTION_USER ? tutti_reduction_name(reduction) : "mulsum";
}

size_t bench_whole_bytes(const struct bench_op *op, tutti_type type, int ranks, size_t bytes)
{
    size_t least = tutti_type_bytes(type) * (op->blocks ? (size_t)ranks : 1);
    return bytes < least ? least : bytes - bytes % least;
}

void bench_case_init(struct bench_rank *self, struct bench_case *c, const struct bench_op *op, size_t bytes,
                     tutti_type type, tutti_reduction reduction, bool in_place)
{
    size_t element = tutti_type_bytes(type), blocks = op->blocks ? (size_t)self->ranks : 1;
    *c = (struct bench_case){.op = op, .type = type, .in_place = in_place};
    c->reduction = op->reduces ? reduction : TUTTI_MAX; /* has no effect, and any input will do */
    c->root = (int)self->settings->flags.root;
    c->count = bench_whole_bytes(op, type, self->ranks, bytes) / element / blocks;
    if (op->shape == FLOOR_BARRIER) c->count = 0;
    c->total = c->count * blocks;
    c->bytes = c->total * element;
    for (int p = 0; op->blocks && p < self->ranks; p++) {
        size_t offset = bench_block_offset(c, self->ranks, p);
        bool pairs = op->shape == FLOOR_ALL_TO_ALL;
        self->counts[p] = pairs ? pair_count(c, self->ranks, self->rank, p)
                                : bench_block_offset(c, self->ranks, p + 1) - offset;
    }
    place_buffers(self, c);
}

double bench_bus_factor(const struct bench_op *op, int ranks)
{
    double n = ranks;
    switch (op->bus) {
    case BENCH_BUS_ALL_REDUCE: return 2 * (n - 1) / n;
    case BENCH_BUS_BLOCKS: return (n - 1) / n;
    case BENCH_BUS_ONE: break;
    }
    return 1;
}

/* ---- Buffers ----------------------------------------------------------------------------------------------------- */

static char *buffer_new(struct bench_rank *self)
{
    if (!self->buffers_private) return tutti_alloc(self->world, self->max_bytes);
    void *buffer = NULL;
    if (posix_memalign(&buffer, 4096, self->max_bytes) != 0) return NULL;
    memset(buffer, 0, self->max_bytes);
    return buffer;
}

static void buffer_end(struct bench_rank *self, char *buffer)
{
    if (self->buffers_private)
        free(buffer);
    else
        (void)tutti_free(self->world, buffer);
}

bool bench_buffers_open(struct bench_rank *self, bool as_private)
{
    self->buffers_private = as_private;
    self->counts = calloc((size_t)self->ranks, sizeof *self->counts);
    self->in_buffer = buffer_new(self);
    self->out_buffer = self->in_buffer ? buffer_new(self) : NULL;
    return self->counts && self->out_buffer;
}

void bench_buffers_close(struct bench_rank *self)
{
    buffer_end(self, self->out_buffer);
    buffer_end(self, self->in_buffer);
    free(self->counts);
    self->in_buffer = self->out_buffer = NULL;
    self->counts = NULL;
}
