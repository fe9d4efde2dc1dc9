/* SPDX-License-Identifier: Apache-2.0
 *
 * A pass inside the library. A batch is cut into items, whole samples each: grains, or in fast mode what threads share.
 * Forward and the input part of backward run item by item, the weights part of backward by parts of the gradients.
 *
 * Gradients of outputs live in buffers. Layer i's output gradient is in buffer[i]; its input gradient goes to buffer[i
 * - 1]. A residual holds its buffer from its last layer to its first, which adds to it. Buffers are reused: between the
 * layers of a backward pass all threads meet. With options.split the gradients of layers with tensors stay until their
 * weights part: over data that are not read any more if these are large enough, else in a buffer of their own.
 *
 * Outputs, saved values and gradients that stay exist once for each slot; a batch is loaded before it is used.
 *
 * With options.recompute a block is a residual branch that lies in no other. The output of its last layer stays as
 * above; all other outputs and saved values of its layers are in memory that all blocks and slots use in turn, and are
 * made again when backward comes to the block: in a pass with options.split in each of backward's parts
 * (pass_recompute.c).
 *
 * If ranks share out rows (sequence.h), the slices of one item lie behind those of the item before: outputs of layers,
 * values that sliced layers save, and all their gradients. Only an output that is gathered has room for all rows, and
 * slices lie at their places in it. Gathered gradients, and gradients that will be scattered, are in `aside`, memory
 * that all layers use in turn.
 */
#ifndef TTI_NN_PASS_H
#define TTI_NN_PASS_H

#include "nn/pool.h"
#include "nn/sequence.h"

struct tti_item {
    int64_t first, samples; /* in this rank's batch */
    tutti_loss loss;
    struct tti_span slice; /* this rank's slice of the item's rows */
    size_t sliced_before;  /* rows of slices of the items before it */
};

/* The places of a layer's rows. */
struct tti_layer_place {
    float *out, *saved;
    double *collected; /* for the whole batch, from forward to the end of backward */
    int slot;          /* the slot of its output gradient */
    /* the slot of a residual's gradient, which stays while the layer works on a copy of it; -1: there is no copy */
    int held_slot;
    int add_slot; /* the slot of the gradient that is added to its input gradient; -1: none */
    float *stays; /* where its output gradient is kept for the weights part, if not in its slot; or NULL */

    /* If rows are shared out: */
    float *gradient; /* its output gradient, gathered */
    bool has_sums;   /* the gradients of its tensors are made with those of its input, for slices, and then gathered */
    float *sums;     /* these gradients, by item */
    int block;       /* with options.recompute the last layer of its block; -1: it is in none */
};

/* Returns the slot to which others write a layer's output gradient. */
static inline int tti_layer_place_slot(const struct tti_layer_place *place)
{
    return place->held_slot >= 0 ? place->held_slot : place->slot;
}

/* Buffers of gradients: those that are reused, two for the boundaries, and from KEPT on one per layer, for gradients
 * that stay. */
enum {
    TTI_TREE_DEPTH = 32,
    TTI_SLOTS_MAX = TTI_RESIDUALS_MAX + 3,
    TTI_SLOT_OUT = TTI_SLOTS_MAX,
    TTI_SLOT_IN,
    TTI_SLOT_KEPT
};

/* The state of each batch that is between its forward and the end of its backward. */
struct tti_live {
    struct tti_item *items;
    int item_count;
    tutti_batch batch;
    bool ready;
};

/* For layers that depend on the whole batch. */
struct tti_pass_collects {
    tutti_comm *comm; /* the comm of the ranks that share it; NULL: there is one rank */
    size_t cells;     /* grains of all ranks; in fast mode there is one per rank */
    size_t *counts;   /* [ranks]: doubles of each rank */
    double *items;    /* [item_room]: collected from each item */
    double *all;      /* [cells]: collected from each cell */
    double *back;     /* collected from all in backward */
};

struct tutti_pass {
    tutti_model *model;
    tutti_pass_options options;
    struct tti_pool *pool;
    struct tti_layers layers;       /* the layers of the pass */
    struct tti_layer_place *places; /* one per layer */
    struct tti_live *lives;         /* [options.slots]; for the one that is loaded the fields below are newer */
    int loaded;                     /* the number of the loaded one */
    size_t live_floats;             /* floats of memory for each */
    size_t rows_most, sliced_most;  /* rows of a batch, and of the rank's slices of it */
    struct tti_item *items;
    int item_room, item_count;
    int slot_count;
    float **slots;
    /* for each live batch: outputs, saved values, gradients that stay; then slots, scratch of threads, trees */
    float *memory;
    size_t memory_bytes;
    float *scratch;
    size_t scratch_each;
    float *tree[TTI_TREE_DEPTH]; /* each has one layer's gradients */
    float *gathered;             /* for the layer that gathers: (ranks, rows, gathers) */
    float *aside;                /* for the layer that runs: its gathered gradient, and the gradient to be scattered */
    float *staged;               /* slices of all ranks, rank by rank */
    float *entered;              /* a gathered boundary */
    float *block_tree;           /* sums over blocks of rows, for each thread */
    size_t block_tree_each;
    int unsummed_end; /* backward: layers behind the last gathering up to this one only have sums of slices */
    struct tti_pass_collects collects;
    bool remaking;             /* forward runs once more for backward: collected values are known */
    tutti_batch batch;         /* the batch of the last forward */
    bool ready;                /* a forward has been done, backward may come */
    tutti_value_source source; /* `need` NULL: the model's values */
    const float *values;       /* values of the layer that runs, from its first tensor on */
    size_t values_offset;      /* the offset of that tensor */
    double meeting_seconds;    /* time in meetings of ranks that share the width, since the pass was made */
};

/* Computes what tutti_pass_bytes would return for a pass with these options; the model needs no values. */
tutti_status tti_pass_plan(tutti_model *model, const tutti_pass_options *options, size_t *bytes);

/* Loads the batch in this slot. */
tutti_status tti_pass_load(struct tutti_pass *pass, int slot);

/* Called around the calls of a layer, on the thread that runs the pass: between them the layer's values are there. */
tutti_status tti_pass_need(struct tutti_pass *pass, const tutti_layer *layer);
void tti_pass_done(struct tutti_pass *pass, const tutti_layer *layer);

/* Returns the call of one layer on one item, forward or backward, on one thread: for a sliced layer on the rank's
 * slice. */
tutti_call tti_pass_call(const struct tutti_pass *pass, const tutti_layer *layer, const struct tti_item *item,
                         int thread);
/* Returns the call that finishes a layer's output, after ranks have met. */
tutti_call tti_pass_finishing(const struct tutti_pass *pass, const tutti_layer *layer, const struct tti_item *item,
                              int thread);
/* Narrows a call to some of its rows. */
void tti_call_narrow(tutti_call *call, struct tti_span rows);

/* Returns true if backward_input itself adds a residual's gradient; otherwise that is added after the sum over width
 * grains. */
static inline bool tti_layer_adds_back(const tutti_model *model, const tutti_layer *layer)
{
    return tti_layer_adds(model, layer) && layer->cut != TUTTI_CUT_OUTPUTS && layer->cut != TUTTI_CUT_CLASSES;
}

/* Recomputation (pass_recompute.c). Finds the blocks; ERR_ARGUMENT: the model has none. */
tutti_status tti_pass_find_blocks(struct tutti_pass *pass);
/* Returns true if the layer's output is in memory that others use in turn. Its saved values are there if it is in any
 * block. */
bool tti_pass_out_is_remade(const struct tutti_pass *pass, int layer);
/* Places the data that are made again, all blocks over each other; returns the floats needed. */
size_t tti_pass_lay_out_blocks(struct tutti_pass *pass, float *memory);
/* Returns the end of those layers that must be made again, of the block with these first and last layers. */
int tti_pass_remade_end(const tutti_model *model, int first, int last);
/* Returns true if the layer at that end reads data that were made again, which must be gathered for it if rows are
 * shared out. */
bool tti_pass_remade_is_read(const tutti_model *model, int first, int end, int last);
/* Called when backward comes to this layer: makes its block again if that ends with it. */
tutti_status tti_pass_remake(struct tutti_pass *pass, int layer);

/* Layers that depend on the whole batch (pass_collect.c). find_cells checks that the ranks that share the batch can be
 * served; lay_out_collects places memory; the others are called before forward and before backward of a layer. */
tutti_status tti_pass_find_cells(struct tutti_pass *pass);
void tti_pass_lay_out_collects(struct tutti_pass *pass, float *memory, size_t *used);
tutti_status tti_pass_collect(struct tutti_pass *pass, const tutti_layer *layer);
tutti_status tti_pass_collect_back(struct tutti_pass *pass, const tutti_layer *layer);

/* Takes `count` floats from the memory; if that is NULL, only counts them. */
float *tti_pass_take(float *memory, size_t *used, size_t count);
/* Does forward of layers from..to - 1, with their values and meetings. */
tutti_status tti_pass_forward_layers(struct tutti_pass *pass, int from, int to);

/* Returns the rows of the batch. */
static inline size_t tti_pass_rows(const struct tutti_pass *pass)
{
    return (size_t)(pass->batch.samples * pass->model->shape.rows);
}

/* Called after a meeting that began at that time: counts the time; a failure becomes the model's error. */
tutti_status tti_pass_met(struct tutti_pass *pass, const tutti_comm *comm, int64_t began_ns, tutti_status status);
/* Lets ranks that share the width meet, when all items have gone through a layer: `rows` of each are summed, or
 * gathered. Called on the thread that runs the pass. A failure is in the model's error. */
tutti_status tti_pass_sum(struct tutti_pass *pass, const tutti_layer *layer, float *rows, int64_t width);
tutti_status tti_pass_gather(struct tutti_pass *pass, const tutti_layer *layer);
tutti_status tti_pass_all_gather(struct tutti_pass *pass, const tutti_layer *layer, const float *in, float *out,
                                 const size_t *counts, const size_t *offsets);
tutti_status tti_pass_reduce_scatter(struct tutti_pass *pass, const tutti_layer *layer, const float *in, float *out,
                                     const size_t *counts);

/* Rows that are shared out (pass_slices.c). Cuts the batch's items into slices. */
void tti_pass_cut_items(struct tutti_pass *pass);
/* Returns the rows of all slices of a rank. */
size_t tti_pass_sliced_rows(const struct tutti_pass *pass, int rank);
/* has_slices_only: returns true if a layer's output has room for slices only; room: returns the rows for which it has
 * room; slice: returns this rank's slice of it. */
bool tti_pass_has_slices_only(const struct tutti_pass *pass, int layer);
size_t tti_pass_room(const struct tutti_pass *pass, int layer);
float *tti_pass_slice(const struct tutti_pass *pass, int layer, const struct tti_item *item);
/* Returns where such a layer leaves the gradient of its input before it is scattered; its output is at `aside`. */
float *tti_pass_unscattered(const struct tutti_pass *pass, const tutti_layer *layer);
/* Places the memory that all layers use in turn; returns the floats needed. */
size_t tti_pass_lay_out_slices(struct tutti_pass *pass, float *memory);
/* For a layer that works on all rows, between slices: gathers its input before forward, and scatters its output after
 * it. */
tutti_status tti_pass_gather_in(struct tutti_pass *pass, const tutti_layer *layer);
tutti_status tti_pass_scatter_out(struct tutti_pass *pass, const tutti_layer *layer);
/* Gathers the gradient of its output before backward, and with it the gradients of tensors that have sums of slices;
 * scatters the gradient of its input after it. */
tutti_status tti_pass_gather_back(struct tutti_pass *pass, const tutti_layer *layer);
tutti_status tti_pass_scatter_back(struct tutti_pass *pass, const tutti_layer *layer);
/* Called at the end of backward: gathers the sums that no layer's gradient took along. */
tutti_status tti_pass_gather_sums(struct tutti_pass *pass);
/* Returns the elements of such sums, for the layers from..to - 1 and one item. */
size_t tti_pass_sum_elements(const struct tutti_pass *pass, int from, int to);
/* Returns the most items that a batch may have. */
int tti_pass_items_most(const struct tutti_pass *pass);

/* Does forward for rows `from` to `to` of one sample, without the loss. The rows before them are as an earlier call
 * left them: so a text is extended by one row at the cost of that row. For a pass with one sample, to evaluate. */
void tti_pass_extend(struct tutti_pass *pass, const int32_t *tokens, int64_t from, int64_t to);

#endif
