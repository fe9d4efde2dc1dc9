/* SPDX-License-Identifier: Apache-2.0 */
#include "train/train_traffic.h"

#include "nn/pass.h"
#include "train/ddp.h"
#include "train/ledger.h"

/* Returns the share of the bytes that a rank sends, with so many ranks. */
static double sent_share(tutti_train_op op, int ranks)
{
    const double others = (double)(ranks - 1) / ranks;
    if (op == TUTTI_TRAIN_SEND) return 1;
    return op == TUTTI_TRAIN_ALL_REDUCE ? 2 * others : others;
}

/* ---- Who is where ---------------------------------------------------------------------------------------------- */

/* Ranks that take part in an operation: `count` of them, `stride` apart. Ranks along any dimension of the mesh are such
 * a group, and so are those that share the batch. */
struct group {
    int first, stride, count;
};

/* Returns how many ranks of the mesh lie between a coordinate and the next one. */
static int stride_of(const struct tutti_trainer *t, enum tti_mesh_dimension dimension)
{
    int stride = 1;
    for (int i = TTI_MESH_DIMENSIONS - 1; i > (int)dimension; i--) stride *= t->mesh.sizes[i];
    return stride;
}

/* Returns the rank whose traffic is counted, at another coordinate along the pipe. */
static int rank_of(const struct tti_train_traffic *traffic, int pipe)
{
    const struct tutti_trainer *t = traffic->trainer;
    return t->world_rank + (pipe - t->mesh.at[TTI_MESH_PIPE]) * stride_of(t, TTI_MESH_PIPE);
}

static struct group batch_group(const struct tti_train_traffic *traffic)
{
    const struct tutti_trainer *t = traffic->trainer;
    const int stride = stride_of(t, TTI_MESH_SHARD);
    return (struct group){rank_of(traffic, traffic->pipe) - t->rank * stride, stride, t->size};
}

/* Returns the ranks that own everything together; the other returns those that own the same. */
static struct group replica_group(const struct tti_train_traffic *traffic)
{
    const struct group all = batch_group(traffic);
    const int count = all.count / traffic->trainer->ddp->zero.replicas;
    return (struct group){all.first + traffic->trainer->rank / count * count * all.stride, all.stride, count};
}

static struct group same_group(const struct tti_train_traffic *traffic)
{
    const struct group all = batch_group(traffic);
    const int replicas = traffic->trainer->ddp->zero.replicas, each = all.count / replicas;
    return (struct group){all.first + traffic->trainer->rank % each * all.stride, each * all.stride, replicas};
}

static struct group width_group(const struct tti_train_traffic *traffic)
{
    const struct tutti_trainer *t = traffic->trainer;
    return (struct group){rank_of(traffic, traffic->pipe) - t->mesh.at[TTI_MESH_TENSOR], 1,
                          t->mesh.sizes[TTI_MESH_TENSOR]};
}

static int hosts_of(const struct tti_train_traffic *traffic, struct group group)
{
    const int each = traffic->costs->ranks_per_host;
    int hosts = 0, last = -1;
    for (int i = 0; each > 0 && i < group.count; i++) {
        const int host = (group.first + i * group.stride) / each;
        if (host != last) hosts++;
        last = host;
    }
    return hosts > 0 ? hosts : 1;
}

/* Returns how many groups like this one use a host's link at a time: each of the host's ranks is in one. */
static int sharing_of(const struct tti_train_traffic *traffic, struct group group, int hosts)
{
    const int here = (group.count + hosts - 1) / hosts, each = traffic->costs->ranks_per_host;
    return hosts == 1 || each <= here ? 1 : each / here;
}

/* Returns how many ranks of this rank's host have the same stages: they send at the same time. */
static int senders(const struct tti_train_traffic *traffic, int rank)
{
    const struct tutti_trainer *t = traffic->trainer;
    const int each = traffic->costs->ranks_per_host, first = rank / each * each;
    int count = 0;
    for (int r = first; r < first + each && r < t->world_size; r++)
        count += tti_trainer_mesh_at(&t->mesh, r, TTI_MESH_PIPE) == traffic->pipe;
    return count;
}

/* ---- Adding up ------------------------------------------------------------------------------------------------- */

static void add_transfer(struct tti_train_traffic *traffic, const tutti_train_transfer *transfer, double bytes)
{
    traffic->operations++;
    traffic->sent_bytes += bytes * sent_share(transfer->op, transfer->ranks);
    if (traffic->costs->link != NULL) traffic->seconds += traffic->costs->link(traffic->costs->context, transfer);
}

static void add(struct tti_train_traffic *traffic, tutti_train_op op, struct group group, double bytes)
{
    if (group.count < 2 || bytes <= 0) return;
    const int hosts = hosts_of(traffic, group), sharing = sharing_of(traffic, group, hosts);
    add_transfer(traffic, &(tutti_train_transfer){op, group.count, hosts, sharing, (size_t)bytes}, bytes);
}

void tti_traffic_send(struct tti_train_traffic *traffic, int to, size_t bytes)
{
    const int from = rank_of(traffic, traffic->pipe), there = rank_of(traffic, to);
    const int hosts = hosts_of(traffic, (struct group){from, there - from, 2});
    if (bytes == 0) return;
    const int sharing = hosts > 1 ? senders(traffic, from) : 1;
    add_transfer(traffic, &(tutti_train_transfer){TUTTI_TRAIN_SEND, 2, hosts, sharing, bytes}, (double)bytes);
}

/* ---- Ranks that share the batch -------------------------------------------------------------------------------- */

static double bucket_bytes(const struct tti_bucket *bucket)
{
    return (double)(bucket->to - bucket->from) * sizeof(float);
}

/* Adds one bucket's sums, in one pass. */
static void add_bucket(struct tti_train_traffic *traffic, const struct tutti_ddp *ddp,
                       const struct tti_grain_pass *pass, double bytes)
{
    const struct group all = batch_group(traffic), replica = replica_group(traffic);
    if (!pass->aligned) {
        for (int round = 0; round < pass->rounds; round++) add(traffic, TUTTI_TRAIN_ALL_TO_ALL, all, bytes);
        if (ddp->zero.stage == 0) add(traffic, TUTTI_TRAIN_ALL_GATHER, all, bytes);
    } else if (ddp->zero.stage == 0) {
        add(traffic, TUTTI_TRAIN_ALL_REDUCE, all, bytes);
    } else {
        add(traffic, TUTTI_TRAIN_REDUCE_SCATTER, replica, bytes);
        add(traffic, TUTTI_TRAIN_ALL_REDUCE, same_group(traffic), bytes / replica.count);
    }
}

/* Returns how often values are gathered: with zero 1 and 2 once after the update, with zero 3 for each pass forward and
 * backward. */
static int gatherings(const struct tutti_ddp *ddp)
{
    if (ddp->zero.stage == 0 || !ddp->valued) return 0;
    return ddp->zero.stage < TTI_ZERO_PARAMETERS ? 1 : 2 * ddp->pass_count;
}

static void add_ddp(struct tti_train_traffic *traffic, const struct tutti_ddp *ddp)
{
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        const double bytes = bucket_bytes(&ddp->buckets[b]), values = ddp->zero.bf16 ? bytes / 2 : bytes;
        for (int i = 0; i < ddp->pass_count; i++) add_bucket(traffic, ddp, &ddp->passes[i], bytes);
        for (int i = 0; i < gatherings(ddp); i++) add(traffic, TUTTI_TRAIN_ALL_GATHER, replica_group(traffic), values);
    }
}

/* Adds layers that depend on the whole batch: forward and backward. */
static void add_collects(struct tti_train_traffic *traffic)
{
    const struct tutti_trainer *t = traffic->trainer;
    for (int i = 0; i < t->model->layer_count; i++) {
        const tutti_layer *layer = t->model->layers[i];
        if (layer->ops->collect == NULL || !tti_tensor_is_own(t->model, layer->tensors[0])) continue;
        const double cells = (double)(t->cells * sizeof(double));
        add(traffic, TUTTI_TRAIN_ALL_GATHER, batch_group(traffic), cells * (double)layer->collects);
        add(traffic, TUTTI_TRAIN_ALL_GATHER, batch_group(traffic), cells * (double)layer->collects_back);
    }
}

/* Adds a tied weight on two ranks of the pipe: sums to its owner, and new values back; with zero 2 and 3 slices of
 * them. */
static void add_apart(struct tti_train_traffic *traffic, const struct tti_tie *tie, double bytes)
{
    const int other = tie->owns ? tie->sharer : tie->owner;
    const double slice = bytes / replica_group(traffic).count, whole = tie->bf16 ? bytes / 2 : bytes;
    tti_traffic_send(traffic, other, (size_t)(tie->passes ? slice : bytes));
    tti_traffic_send(traffic, other, (size_t)(tie->zero >= TTI_ZERO_PARAMETERS ? slice : whole));
}

void tti_traffic_batch(struct tti_train_traffic *traffic)
{
    const struct tutti_trainer *t = traffic->trainer;
    const struct tti_tie *tie = &t->tie;
    const double tied = (double)(tie->elements * sizeof(float));
    add_ddp(traffic, t->ddp);
    add_collects(traffic);
    if (tie->ddp != NULL) add_ddp(traffic, tie->ddp);
    if (tie->ddp != NULL && tie->passes)
        add(traffic, TUTTI_TRAIN_ALL_TO_ALL, replica_group(traffic), tied / replica_group(traffic).count);
    if (tie->owns != tie->shares) add_apart(traffic, tie, tied);
}

/* ---- Ranks that share the width -------------------------------------------------------------------------------- */

static void add_rows(struct tti_train_traffic *traffic, tutti_train_op op, double rows, int64_t width)
{
    add(traffic, op, width_group(traffic), rows * (double)width * sizeof(float));
}

void tti_traffic_forward(struct tti_train_traffic *traffic, struct tti_layers layers, double rows)
{
    const tutti_model *model = traffic->trainer->model;
    for (int i = layers.lo; i < layers.hi; i++) {
        const tutti_layer *layer = model->layers[i];
        if (tti_layer_gathers_in(model, layer)) add_rows(traffic, TUTTI_TRAIN_ALL_GATHER, rows, layer->inputs);
        if (!layer->meets) continue;
        if (layer->gathers > 0)
            add_rows(traffic, TUTTI_TRAIN_ALL_GATHER, rows, layer->gathers * width_group(traffic).count);
        else
            add_rows(traffic, layer->sliced_out ? TUTTI_TRAIN_REDUCE_SCATTER : TUTTI_TRAIN_ALL_REDUCE, rows,
                     layer->outputs);
    }
}

void tti_traffic_again(struct tti_train_traffic *traffic, struct tti_layers layers, double rows)
{
    const tutti_model *model = traffic->trainer->model;
    for (int i = layers.lo; i < layers.hi; i++) {
        const int last = model->layers[i]->add_to;
        if (last < 0) continue;
        const int end = tti_pass_remade_end(model, i, last);
        tti_traffic_forward(traffic, (struct tti_layers){i, end}, rows);
        if (tti_pass_remade_is_read(model, i, end, last) && tti_layer_gathers_in(model, model->layers[end]))
            add_rows(traffic, TUTTI_TRAIN_ALL_GATHER, rows, model->layers[end]->inputs);
        i = last;
    }
}

/* Returns the sums of slices that are not gathered yet when backward comes to the stage's end. */
static double unsent_sums(const tutti_model *model, struct tti_layers layers)
{
    double elements = 0;
    for (int i = layers.lo; i < layers.hi && !tti_layer_scatters_out(model->layers[i]); i++)
        for (int n = 0; model->layers[i]->sliced && n < model->layers[i]->tensor_count; n++)
            elements += (double)model->tensors[model->layers[i]->tensors[n]].count;
    return elements;
}

void tti_traffic_backward(struct tti_train_traffic *traffic, struct tti_layers layers, double rows)
{
    const tutti_model *model = traffic->trainer->model;
    const struct group ranks = width_group(traffic);
    for (int i = layers.lo; i < layers.hi; i++) {
        const tutti_layer *layer = model->layers[i];
        const bool scatters = tti_layer_gathers_in(model, layer);
        if (tti_layer_scatters_out(layer)) add_rows(traffic, TUTTI_TRAIN_ALL_GATHER, rows, layer->outputs);
        if (layer->meets_back && layer->index > 0)
            add_rows(traffic, scatters ? TUTTI_TRAIN_REDUCE_SCATTER : TUTTI_TRAIN_ALL_REDUCE, rows, layer->inputs);
    }
    add(traffic, TUTTI_TRAIN_ALL_GATHER, ranks, unsent_sums(model, layers) * ranks.count * sizeof(float));
}
