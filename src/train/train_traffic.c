/* SPDX-License-Identifier: Apache-2.0 */
#include "train/train_traffic.h"

#include "train/ddp.h"
#include "train/ledger.h"

/* The share of the bytes that a rank sends, of so many ranks. */
static double sent_share(tutti_train_op op, int ranks)
{
    const double others = (double)(ranks - 1) / ranks;
    if (op == TUTTI_TRAIN_SEND) return 1;
    return op == TUTTI_TRAIN_ALL_REDUCE ? 2 * others : others;
}

static void add(struct tti_train_traffic *traffic, tutti_train_op op, int ranks, double bytes)
{
    if (ranks < 2 || bytes <= 0) return;
    traffic->operations++;
    traffic->sent_bytes += bytes * sent_share(op, ranks);
    if (traffic->costs->link != NULL)
        traffic->seconds += traffic->costs->link(traffic->costs->context, op, ranks, (size_t)bytes);
}

void tti_traffic_send(struct tti_train_traffic *traffic, size_t bytes)
{
    add(traffic, TUTTI_TRAIN_SEND, 2, (double)bytes);
}

/* ---- Ranks that share the batch -------------------------------------------------------------------------------- */

static double bucket_bytes(const struct tti_bucket *bucket)
{
    return (double)(bucket->to - bucket->from) * sizeof(float);
}

/* One bucket's sums, in one pass. */
static void add_bucket(struct tti_train_traffic *traffic, const struct tutti_ddp *ddp,
                       const struct tti_grain_pass *pass, double bytes)
{
    const int replicas = ddp->zero.replicas, group = ddp->size / replicas;
    if (!pass->aligned) {
        for (int round = 0; round < pass->rounds; round++) add(traffic, TUTTI_TRAIN_ALL_TO_ALL, ddp->size, bytes);
        if (ddp->zero.stage == 0) add(traffic, TUTTI_TRAIN_ALL_GATHER, ddp->size, bytes);
    } else if (ddp->zero.stage == 0) {
        add(traffic, TUTTI_TRAIN_ALL_REDUCE, ddp->size, bytes);
    } else {
        add(traffic, TUTTI_TRAIN_REDUCE_SCATTER, group, bytes);
        add(traffic, TUTTI_TRAIN_ALL_REDUCE, replicas, bytes / group);
    }
}

/* Values: with zero 1 and 2 once after the update, with zero 3 for each pass forward and backward. */
static int gatherings(const struct tutti_ddp *ddp)
{
    if (ddp->zero.stage == 0 || !ddp->valued) return 0;
    return ddp->zero.stage < TTI_ZERO_PARAMETERS ? 1 : 2 * ddp->pass_count;
}

static void add_ddp(struct tti_train_traffic *traffic, const struct tutti_ddp *ddp)
{
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        const double bytes = bucket_bytes(&ddp->buckets[b]);
        for (int i = 0; i < ddp->pass_count; i++) add_bucket(traffic, ddp, &ddp->passes[i], bytes);
        for (int i = 0; i < gatherings(ddp); i++)
            add(traffic, TUTTI_TRAIN_ALL_GATHER, ddp->size / ddp->zero.replicas, bytes);
    }
}

void tti_traffic_batch(struct tti_train_traffic *traffic, const struct tutti_trainer *t)
{
    const struct tti_tie *tie = &t->tie;
    const double tied = (double)(tie->elements * sizeof(float));
    add_ddp(traffic, t->ddp);
    if (tie->ddp != NULL) add_ddp(traffic, tie->ddp);
    if (tie->ddp != NULL && tie->passes)
        add(traffic, TUTTI_TRAIN_ALL_TO_ALL, t->ddp->size / t->ddp->zero.replicas,
            tied / (t->ddp->size / t->ddp->zero.replicas));
    if (tie->owns != tie->shares) add(traffic, TUTTI_TRAIN_SEND, 2, tied);
}

/* ---- Ranks that share the width -------------------------------------------------------------------------------- */

void tti_traffic_forward(struct tti_train_traffic *traffic, const tutti_model *model, struct tti_layers layers,
                         double rows)
{
    const int ranks = model->width.ranks;
    for (int i = layers.lo; i < layers.hi; i++) {
        const tutti_layer *layer = model->layers[i];
        if (!layer->meets) continue;
        if (layer->gathers > 0)
            add(traffic, TUTTI_TRAIN_ALL_GATHER, ranks, rows * (double)(layer->gathers * ranks) * sizeof(float));
        else
            add(traffic, TUTTI_TRAIN_ALL_REDUCE, ranks, rows * (double)layer->outputs * sizeof(float));
    }
}

void tti_traffic_backward(struct tti_train_traffic *traffic, const tutti_model *model, struct tti_layers layers,
                          double rows)
{
    for (int i = layers.lo; i < layers.hi; i++) {
        const tutti_layer *layer = model->layers[i];
        if (layer->meets_back && layer->index > 0)
            add(traffic, TUTTI_TRAIN_ALL_REDUCE, model->width.ranks, rows * (double)layer->inputs * sizeof(float));
    }
}
