/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over all gradients whose bits do not depend on the layout.
 *
 * Invariant: a tensor is cut into blocks (blocks.h) by its own index, a block is summed in LANES lanes of double whose
 * order is fixed, and the blocks are summed in the canonical tree over all blocks of all tensors. It does not matter
 * which rank computes a block: ranks, and their threads, share the blocks out, and ranks gather the sums.
 */
#define TUTTI_NO_CALL_SITES
#include "train/norm.h"

#include "base/alloc.h"
#include "collective/api/inside.h"
#include "nn/pool.h"
#include "train/blocks.h"
#include "train/parameter_list.h"
#include "train/variants.h"
#include <math.h>

enum { LANES = 16 };

TTI_BODY squares_body(const float *values, size_t count, double *sum)
{
    double lanes[LANES] = {0};
    size_t whole = count - count % LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            double x = (double)values[i + j];
            lanes[j] += x * x;
        }
    }
    for (size_t i = whole; i < count; i++) lanes[i - whole] += (double)values[i] * (double)values[i];
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t j = 0; j < half; j++) lanes[j] += lanes[j + half];
    *sum = lanes[0];
}
TTI_VARIANTS(squares, (const float *values, size_t count, double *sum), (values, count, sum));

static size_t block_count(const tutti_parameter *parameters, size_t count)
{
    size_t blocks = 0;
    for (size_t i = 0; i < count; i++) blocks += tti_blocks_of(parameters[i].count);
    return blocks;
}

/* Computes the sums of squares of blocks span.lo..span.hi, in sums[lo..hi). */
static void fill_sums(const tutti_parameter *parameters, size_t count, struct tti_span span, double *sums)
{
    void (*squares)(const float *, size_t, double *) = squares_variants[tti_set_now()];
    size_t at = 0;
    for (size_t i = 0; i < count && at < span.hi; i++) {
        size_t blocks = tti_blocks_of(parameters[i].count);
        for (size_t b = 0; b < blocks; b++, at++) {
            if (at < span.lo || at >= span.hi) continue;
            size_t from = b * TTI_BLOCK, left = parameters[i].count - from;
            squares(parameters[i].gradient + from, left < TTI_BLOCK ? left : TTI_BLOCK, &sums[at]);
        }
    }
}

static tutti_status gather(tutti_comm *comm, size_t blocks, double *sums)
{
    int size = tutti_size(comm), rank = tutti_rank(comm);
    size_t *counts = tti_calloc((size_t)size, sizeof *counts);
    if (counts == NULL) return TUTTI_ERR_MEMORY;
    for (int r = 0; r < size; r++) {
        struct tti_span span = tti_tree_share(blocks, r, size);
        counts[r] = span.hi - span.lo;
    }
    struct tti_span mine = tti_tree_share(blocks, rank, size);
    tutti_status status = tutti_all_gather_v(tti_inside(comm, "norm", "of the gradient"), sums + mine.lo, sums, counts,
                                             NULL, TUTTI_F64);
    tti_free(counts);
    return status;
}

struct work {
    const tutti_parameter *parameters;
    size_t count;
    struct tti_span blocks;
    double *sums;
};

static void fill_body(void *context, int thread, int threads)
{
    const struct work *work = context;
    struct tti_span share = tti_tree_share(work->blocks.hi - work->blocks.lo, thread, threads);
    fill_sums(work->parameters, work->count, (struct tti_span){work->blocks.lo + share.lo, work->blocks.lo + share.hi},
              work->sums);
}

static void run_work(struct work *work, struct tti_pool *pool)
{
    if (pool != NULL)
        tti_pool_run(pool, fill_body, work);
    else
        fill_body(work, 0, 1);
}

void tti_block_sums(struct tti_pool *pool, const tutti_parameter *parameters, size_t count, double *sums)
{
    struct work work = {parameters, count, {0, block_count(parameters, count)}, sums};
    run_work(&work, pool);
}

tutti_status tti_gradient_block_sums(tutti_comm *comm, struct tti_pool *pool, const tutti_parameter *parameters,
                                     size_t count, double *sums)
{
    size_t blocks = block_count(parameters, count);
    struct work work = {parameters, count, {0, blocks}, sums};
    bool shared = comm != NULL && tutti_size(comm) > 1;
    if (shared) work.blocks = tti_tree_share(blocks, tutti_rank(comm), tutti_size(comm));
    run_work(&work, pool);
    return shared ? gather(comm, blocks, sums) : TUTTI_OK;
}

tutti_status tutti_gradient_norm(tutti_comm *comm, const tutti_parameter *parameters, size_t count, double *norm)
{
    size_t elements;
    if (norm == NULL || tti_list_check(parameters, count, &elements, NULL) != TUTTI_OK) return TUTTI_ERR_ARGUMENT;
    size_t blocks = block_count(parameters, count);
    double *sums = tti_calloc(blocks + 1, sizeof *sums);
    if (sums == NULL) return TUTTI_ERR_MEMORY;
    tutti_status status = tti_gradient_block_sums(comm, NULL, parameters, count, sums);
    if (status == TUTTI_OK) *norm = sqrt(tti_tree_sum(sums, blocks));
    tti_free(sums);
    return status;
}
