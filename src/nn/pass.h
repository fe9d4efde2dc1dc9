/* SPDX-License-Identifier: Apache-2.0
 *
 * A pass inside the library. A batch is cut into items, whole samples each: grains, or in fast mode what threads share.
 * Forward and the input part of backward run item by item, the weights part of backward by parts of the gradients.
 *
 * Gradients of outputs live in buffers. Layer i's output gradient is in buffer[i]; its input gradient goes to buffer[i - 1].
 * A residual holds its buffer from its last layer to its first, which adds to it. Buffers are reused: between the layers of
 * a backward pass all threads meet. With options.split the gradients of layers with tensors stay until their weights part:
 * over what nobody reads any more where there is enough of it, else in a buffer of their own.
 *
 * Outputs, what layers save and gradients that stay are there once for each slot; a batch is loaded before it is worked on.
 *
 * With options.recompute a block is a residual branch that lies in no other. Of its layers the last one's output stays as
 * above; all else that they put out or save is in memory that all blocks and slots use in turn, and is made again when
 * backward comes to the block: in a pass with options.split in each of backward's parts (pass_recompute.c).
 *
 * Where ranks share out rows (sequence.h), slices lie one item's after the other's: outputs of layers, what sliced layers
 * save, and all their gradients. Only an output that is gathered has room for all rows, and slices lie in it where they
 * belong. What is gathered of a gradient, and what is to be scattered, is aside, in memory that all layers use in turn.
 */
#ifndef TTI_NN_PASS_H
#define TTI_NN_PASS_H

#include "nn/pool.h"
#include "nn/sequence.h"

struct tti_item {
    int64_t first, samples; /* in this rank's batch */
    tutti_loss loss;
    struct tti_span slice; /* this rank's of the item's rows */
    size_t sliced_before;  /* rows of slices of items before it */
};

/* Where a layer's rows lie. */
struct tti_layer_place {
    float *out, *saved;
    double *collected; /* of the whole batch, from forward to the end of backward */
    int slot;          /* of its output gradient */
    int held_slot;     /* of that of a residual, which stays when the layer works on a copy of it; -1: no copy */
    int add_slot;      /* of what is added to its input gradient; -1: nothing */
    float *stays;      /* where its output gradient is kept for the weights part, if not in its slot; NULL */

    /* Where rows are shared out. */
    float *gradient; /* what is gathered of its output gradient */
    bool has_sums;   /* gradients of its tensors are made with those of its input, for slices, and then gathered */
    float *sums;     /* these, by item */
    int block;       /* with options.recompute the last layer of the block that it is in; -1: it is in none */
};

/* The slot that others write a layer's output gradient to. */
static inline int tti_layer_place_slot(const struct tti_layer_place *place)
{
    return place->held_slot >= 0 ? place->held_slot : place->slot;
}

/* Buffers of gradients: those that are reused, the boundaries' two, and from KEPT on one per layer, for those that stay. */
enum {
    TTI_TREE_DEPTH = 32,
    TTI_SLOTS_MAX = TTI_RESIDUALS_MAX + 3,
    TTI_SLOT_OUT = TTI_SLOTS_MAX,
    TTI_SLOT_IN,
    TTI_SLOT_KEPT
};

/* What is there once for each batch that is between its forward and the end of its backward. */
struct tti_live {
    struct tti_item *items;
    int item_count;
    tutti_batch batch;
    bool ready;
};

/* For layers that look at the whole batch. */
struct tti_pass_collects {
    tutti_comm *comm; /* of the ranks that share it; NULL: there is one */
    size_t cells;     /* grains of all ranks; in fast mode there is one per rank */
    size_t *counts;   /* [ranks]: doubles of each */
    double *items;    /* [item_room]: what is collected of each item, */
    double *all;      /* [cells] of each cell, */
    double *back;     /* and of all going back */
};

struct tutti_pass {
    tutti_model *model;
    tutti_pass_options options;
    struct tti_pool *pool;
    struct tti_layers layers;       /* that it goes over */
    struct tti_layer_place *places; /* one per layer */
    struct tti_live *lives;         /* [options.slots]; of the one that is loaded the fields below are newer */
    int loaded;                     /* its number */
    size_t live_floats;             /* of the memory, for each */
    size_t rows_most, sliced_most;  /* of a batch, and of the rank's slices of it */
    struct tti_item *items;
    int item_room, item_count;
    int slot_count;
    float **slots;
    float *memory; /* of each live batch: outputs, saved, gradients that stay; then slots, scratch of threads, trees */
    size_t memory_bytes;
    float *scratch;
    size_t scratch_each;
    float *tree[TTI_TREE_DEPTH]; /* one layer's gradients each */
    float *gathered;             /* of the layer that gathers: (ranks, rows, gathers) */
    float *aside;      /* of the layer that runs: what is gathered of a gradient, and what is to be scattered */
    float *staged;     /* slices of all ranks, rank by rank */
    float *entered;    /* what was gathered of a boundary */
    float *block_tree; /* of sums over blocks of rows, for each thread */
    size_t block_tree_each;
    int unsummed_end; /* backward: layers behind the last gathering up to this one have sums of slices only */
    struct tti_pass_collects collects;
    bool remaking;             /* forward runs once more for backward: what was collected is known */
    tutti_batch batch;         /* of the last forward */
    bool ready;                /* a forward has been done, backward may come */
    tutti_value_source source; /* need NULL: the model's values */
    const float *values;       /* of the layer that runs, from its first tensor on */
    size_t values_offset;      /* of that tensor */
    double meeting_seconds;    /* with ranks that share the width, since it was made */
};

/* What tutti_pass_bytes would say of a pass with these options; the model needs no values. */
tutti_status tti_pass_plan(tutti_model *model, const tutti_pass_options *options, size_t *bytes);

/* Makes the batch in this slot the one that is worked on. */
tutti_status tti_pass_load(struct tutti_pass *pass, int slot);

/* Around the calls of a layer, on the thread that runs the pass: its values are there. */
tutti_status tti_pass_need(struct tutti_pass *pass, const tutti_layer *layer);
void tti_pass_done(struct tutti_pass *pass, const tutti_layer *layer);

/* The call of one layer on one item, forward or backward, on one thread: of a sliced one on the rank's slice. */
tutti_call tti_pass_call(const struct tutti_pass *pass, const tutti_layer *layer, const struct tti_item *item,
                         int thread);
/* The call that finishes a layer's output, after ranks have met. */
tutti_call tti_pass_finishing(const struct tutti_pass *pass, const tutti_layer *layer, const struct tti_item *item,
                              int thread);
/* Goes on to rows `rows` of what the call has. */
void tti_call_narrow(tutti_call *call, struct tti_span rows);

/* True if backward_input itself adds what a residual brings; else that comes after the sum over width grains. */
static inline bool tti_layer_adds_back(const tutti_model *model, const tutti_layer *layer)
{
    return tti_layer_adds(model, layer) && layer->cut != TUTTI_CUT_OUTPUTS && layer->cut != TUTTI_CUT_CLASSES;
}

/* Recomputation (pass_recompute.c). Finds the blocks; ERR_ARGUMENT: the model has none. */
tutti_status tti_pass_find_blocks(struct tutti_pass *pass);
/* True if the layer's output is in memory that others use in turn. What it saves is wherever it is in a block. */
bool tti_pass_out_is_remade(const struct tutti_pass *pass, int layer);
/* Places what is made again, all blocks over each other; the floats needed. */
size_t tti_pass_lay_out_blocks(struct tutti_pass *pass, float *memory);
/* The end of the layers of a block, which begins and ends with these two, that must be made again. */
int tti_pass_remade_end(const tutti_model *model, int first, int last);
/* True if the layer at that end looks at what was made again, which must be gathered for it where rows are shared out. */
bool tti_pass_remade_is_read(const tutti_model *model, int first, int end, int last);
/* Where backward comes to this layer: makes its block again if that ends with it. */
tutti_status tti_pass_remake(struct tutti_pass *pass, int layer);

/* Looking at the whole batch (pass_collect.c). Whether the ranks that share it can be served; memory; what is done before forward
 * and before backward of a layer. */
tutti_status tti_pass_find_cells(struct tutti_pass *pass);
void tti_pass_lay_out_collects(struct tutti_pass *pass, float *memory, size_t *used);
tutti_status tti_pass_collect(struct tutti_pass *pass, const tutti_layer *layer);
tutti_status tti_pass_collect_back(struct tutti_pass *pass, const tutti_layer *layer);

/* Takes `count` floats from the memory, or, while it does not exist, only counts. */
float *tti_pass_take(float *memory, size_t *used, size_t count);
/* Forward of layers from..to - 1, with their values and meetings. */
tutti_status tti_pass_forward_layers(struct tutti_pass *pass, int from, int to);

/* Rows of the batch. */
static inline size_t tti_pass_rows(const struct tutti_pass *pass)
{
    return (size_t)(pass->batch.samples * pass->model->shape.rows);
}

/* After a meeting that began then: counts its time; a failure becomes the model's error. */
tutti_status tti_pass_met(struct tutti_pass *pass, const tutti_comm *comm, int64_t began_ns, tutti_status status);
/* Where ranks that share the width meet, when all items have gone through a layer: what each has in `rows` is summed, or
 * gathered. On the thread that runs the pass. A failure is in the model's error. */
tutti_status tti_pass_sum(struct tutti_pass *pass, const tutti_layer *layer, float *rows, int64_t width);
tutti_status tti_pass_gather(struct tutti_pass *pass, const tutti_layer *layer);
tutti_status tti_pass_all_gather(struct tutti_pass *pass, const tutti_layer *layer, const float *in, float *out,
                                 const size_t *counts, const size_t *offsets);
tutti_status tti_pass_reduce_scatter(struct tutti_pass *pass, const tutti_layer *layer, const float *in, float *out,
                                     const size_t *counts);

/* Rows that are shared out (pass_slices.c). Cuts the batch's items into slices. */
void tti_pass_cut_items(struct tutti_pass *pass);
/* Rows of all slices of a rank. */
size_t tti_pass_sliced_rows(const struct tutti_pass *pass, int rank);
/* True if a layer's output has room for slices only; the rows that it has room for; where this rank's slice of it lies. */
bool tti_pass_has_slices_only(const struct tutti_pass *pass, int layer);
size_t tti_pass_room(const struct tutti_pass *pass, int layer);
float *tti_pass_slice(const struct tutti_pass *pass, int layer, const struct tti_item *item);
/* Where such a layer leaves the gradient of its input before it is scattered; its output, at `aside`. */
float *tti_pass_unscattered(const struct tutti_pass *pass, const tutti_layer *layer);
/* The memory that all layers use in turn; the floats needed. */
size_t tti_pass_lay_out_slices(struct tutti_pass *pass, float *memory);
/* A layer that works on all rows, of slices: before forward its input is gathered, after it the output is scattered. */
tutti_status tti_pass_gather_in(struct tutti_pass *pass, const tutti_layer *layer);
tutti_status tti_pass_scatter_out(struct tutti_pass *pass, const tutti_layer *layer);
/* Before backward the gradient of its output is gathered, and with it the gradients of tensors that have sums of slices;
 * after it that of the input is scattered. */
tutti_status tti_pass_gather_back(struct tutti_pass *pass, const tutti_layer *layer);
tutti_status tti_pass_scatter_back(struct tutti_pass *pass, const tutti_layer *layer);
/* At the end of backward: gathers the sums that no layer's gradient took along. */
tutti_status tti_pass_gather_sums(struct tutti_pass *pass);
/* The elements of such sums, of the layers from..to - 1, for one item. */
size_t tti_pass_sum_elements(const struct tutti_pass *pass, int from, int to);
/* Items that a batch may have. */
int tti_pass_items_most(const struct tutti_pass *pass);

/* Rows `from` to `to` of one sample, without the loss. The rows before them are where this left them: with one row at a
 * time a text goes on at the cost of that row. Of a pass for one sample, to evaluate. */
void tti_pass_extend(struct tutti_pass *pass, const int32_t *tokens, int64_t from, int64_t to);

#endif
