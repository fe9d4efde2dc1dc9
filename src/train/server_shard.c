/* SPDX-License-Identifier: Apache-2.0
 *
 * A server's part of the parameters: values, optimizer, and the gradients that workers have staged.
 */
#include "nn/nn_kernels.h"
#include "train/server.h"

#include "base/alloc.h"
#include "base/status.h"
#include "train/norm.h"
#include <stdatomic.h>
#include <string.h>

/* ---- Making one ------------------------------------------------------------------------------------------------ */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

struct tti_span tti_server_span(const tutti_server *server, int index)
{
    const struct tti_blocks blocks = {server->starts, server->count};
    return tti_blocks_owned(&blocks, (struct tti_span){0, server->elements}, index, server->options.servers);
}

struct tti_span tti_server_tied(const tutti_server *server, struct tti_span span)
{
    const size_t first = server->tie.first, end = first + server->tie.elements;
    const size_t lo = smaller(larger(span.lo, first), end), hi = smaller(larger(span.hi, first), end);
    return (struct tti_span){lo - first, hi - first};
}

/* Lists the parts of parameters in the span. Called twice: to count, and to fill in. */
static size_t list_owned(const tutti_server *server, tutti_parameter *owned)
{
    const struct tti_span span = server->shard.span;
    size_t made = 0;
    for (size_t i = 0; i < server->count; i++) {
        const size_t lo = larger(server->starts[i], span.lo), hi = smaller(server->starts[i + 1], span.hi);
        if (lo >= hi) continue;
        if (owned != NULL)
            owned[made] = (tutti_parameter){.name = server->parameters[i].name,
                                            .value = server->shard.values + (lo - span.lo),
                                            .gradient = server->shard.values +
                                                        (lo - span.lo), /* used until there are sums */
                                            .count = hi - lo,
                                            .decays = server->parameters[i].decays};
        made++;
    }
    return made;
}

/* Returns the room for sums: the lead collects the sums of squares of all shards. */
static size_t blocks_wanted(const tutti_server *server)
{
    const struct tti_blocks blocks = {server->starts, server->count};
    const bool leads = server->rank == tti_server_lead(server);
    return leads ? tti_blocks_before(&blocks, server->elements) : server->shard.blocks;
}

tutti_status tti_shard_make(tutti_server *server, tutti_error *error)
{
    struct tti_shard *shard = &server->shard;
    const struct tti_blocks blocks = {server->starts, server->count};
    shard->span = tti_server_span(server, server->rank - server->first);
    shard->tied = tti_server_tied(server, shard->span);
    shard->row = shard->span.hi - shard->span.lo + shard->tied.hi - shard->tied.lo;
    shard->blocks = tti_blocks_before(&blocks, shard->span.hi) - tti_blocks_before(&blocks, shard->span.lo);
    shard->owned_count = list_owned(server, NULL);
    shard->values = tti_calloc_aligned((shard->span.hi - shard->span.lo + 1) * sizeof(float));
    shard->owned = tti_calloc(shard->owned_count + 1, sizeof *shard->owned);
    shard->staged = tti_calloc((size_t)server->workers, sizeof *shard->staged);
    shard->room = tti_calloc((size_t)server->workers, sizeof *shard->room);
    shard->sums = tti_calloc(blocks_wanted(server) + 1, sizeof *shard->sums);
    server->members = tti_calloc((size_t)server->workers, sizeof *server->members);
    if (shard->values == NULL || shard->owned == NULL || shard->staged == NULL || shard->room == NULL ||
        shard->sums == NULL || server->members == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "server: no memory for %zu parameters",
                             shard->span.hi - shard->span.lo);
    (void)list_owned(server, shard->owned);
    return tutti_optimizer_create(&server->settings, shard->owned, shard->owned_count, &shard->optimizer, error);
}

/* Makes a list longer, with zeroes. Returns false, and leaves it, if there is no memory. */
static bool lengthen(void **list, size_t from, size_t to, size_t bytes)
{
    void *longer = tti_calloc(to, bytes);
    if (longer == NULL) return false;
    memcpy(longer, *list, from * bytes);
    tti_free(*list);
    *list = longer;
    return true;
}

bool tti_shard_grow(tutti_server *server, int workers)
{
    struct tti_shard *shard = &server->shard;
    const size_t from = (size_t)server->workers, to = (size_t)workers;
    void *members = server->members, *staged = shard->staged, *room = shard->room;
    const bool done = lengthen(&members, from, to, sizeof *server->members) &&
                      lengthen(&staged, from, to, sizeof *shard->staged) &&
                      lengthen(&room, from, to, sizeof *shard->room);
    server->members = members;
    shard->staged = staged;
    shard->room = room;
    if (done) server->workers = workers;
    return done;
}

void tti_shard_free(tutti_server *server)
{
    struct tti_shard *shard = &server->shard;
    for (int w = 0; w < server->workers; w++) {
        if (shard->staged != NULL) tti_free(shard->staged[w]);
        if (server->members != NULL) tti_free(server->members[w].commit);
    }
    tutti_optimizer_free(shard->optimizer);
    tti_free(shard->values);
    tti_free(shard->owned);
    tti_free(shard->staged);
    tti_free(shard->room);
    tti_free(shard->sums);
    tti_free(server->members);
}

/* ---- What workers send ----------------------------------------------------------------------------------------- */

static bool more_room(struct tti_shard *shard, int worker, uint32_t rows)
{
    float *more = tti_calloc_aligned((size_t)rows * shard->row * sizeof(float) + 1);
    if (more == NULL) return false;
    if (shard->staged[worker] != NULL)
        memcpy(more, shard->staged[worker], shard->room[worker] * shard->row * sizeof(float));
    tti_free(shard->staged[worker]);
    shard->staged[worker] = more;
    shard->room[worker] = rows;
    return true;
}

tutti_status tti_shard_stage(tutti_server *server, int worker, const struct tti_server_call *call, const float *data,
                             size_t floats, const char **why)
{
    struct tti_shard *shard = &server->shard;
    *why = "server: these gradients do not fit the parameters here";
    if (worker >= server->workers || call->index >= TUTTI_SUBTREES_MAX || call->count != floats ||
        call->from > shard->row || call->count > shard->row - call->from)
        return TUTTI_ERR_COUNT;
    *why = "server: no memory for a worker's gradients";
    if (call->index >= shard->room[worker] && !more_room(shard, worker, call->index + 1)) return TUTTI_ERR_MEMORY;
    memcpy(shard->staged[worker] + call->index * shard->row + call->from, data, floats * sizeof(float));
    return TUTTI_OK;
}

float *tti_shard_array(tutti_server *server, uint32_t index)
{
    float *state = NULL;
    if (index == 0) return server->shard.values;
    return tutti_optimizer_state(server->shard.optimizer, (int)index - 1, &state) == NULL ? NULL : state;
}

/* ---- Adding up ------------------------------------------------------------------------------------------------- */

static void add(float *to, const float *from, size_t count)
{
    tti_nn_kernels()->add(to, to, from, count);
}

/* Returns the sum over leaves lo to hi - 1, in the place of one of its terms; NULL: nothing of it was pushed. */
static float *sum_leaves(struct tti_shard *shard, const struct tti_server_term *terms, size_t count, uint32_t lo,
                         uint32_t hi)
{
    size_t first = 0, end;
    while (first < count && terms[first].lo < lo) first++;
    for (end = first; end < count && terms[end].lo < hi;) end++;
    if (first == end) return NULL;
    if (end == first + 1) return shard->staged[terms[first].worker] + terms[first].index * shard->row;
    const uint32_t middle = lo + (uint32_t)tti_tree_half(hi - lo);
    float *left = sum_leaves(shard, terms + first, end - first, lo, middle);
    float *right = sum_leaves(shard, terms + first, end - first, middle, hi);
    if (left == NULL) return right;
    if (right != NULL) add(left, right, shard->row);
    return left;
}

void tti_shard_sum(tutti_server *server, const struct tti_server_term *terms, size_t count, double *sums)
{
    struct tti_shard *shard = &server->shard;
    uint32_t leaves = 1;
    for (size_t i = 0; i < count; i++) leaves = terms[i].hi > leaves ? terms[i].hi : leaves;
    while ((leaves & (leaves - 1)) != 0) leaves += leaves & -leaves; /* absent leaves change nothing */
    float *sum = sum_leaves(shard, terms, count, 0, leaves);
    const size_t elements = shard->span.hi - shard->span.lo;
    const struct tti_span tied = shard->tied;
    if (tied.hi > tied.lo) add(sum + (server->tie.first + tied.lo - shard->span.lo), sum + elements, tied.hi - tied.lo);
    for (size_t i = 0; i < shard->owned_count; i++)
        shard->owned[i].gradient = sum + (shard->owned[i].value - shard->values);
    tti_block_sums(NULL, shard->owned, shard->owned_count, sums);
}

void tti_shard_step(tutti_server *server, double rate, double scale)
{
    tutti_optimizer_step(server->shard.optimizer, rate, scale);
    const struct tti_server_watch *watch = atomic_load(&server->watch);
    if (watch != NULL) watch->call(watch->context, tutti_optimizer_steps(server->shard.optimizer));
}
