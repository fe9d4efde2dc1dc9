/* SPDX-License-Identifier: Apache-2.0
 *
 * Tutti: layers and models, and their passes. train.h, which includes this, trains them.
 *
 *     tutti_model *model;
 *     tutti_gpt gpt = {.layers = 4, .heads = 4, .width = 128, .context = 64, .vocabulary = 256};
 *     if (tutti_gpt_create(&gpt, &model) != TUTTI_OK) return tutti_model_explain(model, stderr);
 *     tutti_model_bind(model, NULL, NULL);                     memory for parameters and gradients
 *     tutti_model_init(model, seed);
 *     tutti_pass_create(model, &(tutti_pass_options){sizeof(tutti_pass_options), .samples = 12}, &pass);
 *     tutti_pass_forward(pass, &batch, &loss);                 loss.sum / loss.count is the mean
 *     tutti_pass_backward(pass, NULL);                         gradients of loss.sum
 *
 * A model is a list of layers. A layer has named tensors, which are views into one allocation of parameters and one of
 * gradients, a forward pass, and a backward pass in two parts: for its input and for its weights. A pass is the memory
 * that one batch needs on its way through a model. Gradients are those of the loss's sum: whoever knows the count of
 * the whole global batch divides, once.
 *
 * All activations are f32 and lie in rows. A sample has model->rows rows: the tokens of a sequence, or one.
 * Conventions are those of tutti.h.
 */
#ifndef TUTTI_NN_H
#define TUTTI_NN_H

#include <tutti/layout.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tensors --------------------------------------------------------------------------------------------------- */

enum { TUTTI_NAME_BYTES = 64, TUTTI_LAYER_TENSORS = 4 };

typedef enum tutti_init { TUTTI_INIT_ZERO, TUTTI_INIT_ONE, TUTTI_INIT_NORMAL, TUTTI_INIT_UNIFORM } tutti_init;

typedef struct tutti_tensor {
    char name[TUTTI_NAME_BYTES]; /* "h.0.attn.c_attn.weight" */
    tutti_type type;             /* TUTTI_F32 */
    int dimensions;
    int64_t shape[TUTTI_DIMENSIONS_MAX]; /* row-major; a linear layer's weight is (inputs, outputs) */
    size_t count;                        /* elements that are here */
    size_t offset;                       /* in elements, into the allocations; a multiple of 16 */
    tutti_placement placement; /* SHARDED: cut along placement_dimension into width grains (tutti_model_place) */
    int placement_dimension;
    int sections;                        /* that are cut alike: 3 where queries, keys and values lie side by side */
    int64_t local[TUTTI_DIMENSIONS_MAX]; /* what is here of the shape */
    tutti_init init;
    double init_scale; /* standard deviation of NORMAL, bound of UNIFORM */
    int layer;         /* the layer that owns it */
} tutti_tensor;

/* ---- Layers ---------------------------------------------------------------------------------------------------- */

typedef struct tutti_model tutti_model;
typedef struct tutti_layer tutti_layer;

/* The rows that one call of a layer works on: some rows of a batch, whole samples. Pointers are to the first of these
 * rows. */
typedef struct tutti_call {
    const tutti_layer *layer;
    const tutti_model *model;
    int64_t samples, rows; /* of this call; rows = samples * model rows */
    int64_t first_sample;  /* of this call, in the global batch: for random numbers */
    int64_t first_row; /* of this call, counted from its first sample's first: above 0 where one sample goes on, whose
                            * rows before lie before these (forward only, for sampling), and for layers that are given
                            * some of an item's rows (TUTTI_CUT_ROWS): `samples` are then those of the item */
    uint64_t step, seed;
    bool training; /* false: dropout does nothing */

    const float *in;       /* (rows, layer->inputs) */
    float *out;            /* (rows, layer->outputs) */
    const float *add;      /* NULL, or what is added to the result: (rows, outputs) forward, (rows, inputs) backward.
                            * May be the result itself. Set only for layers whose ops->adds says so. */
    float *saved;          /* (rows, layer->saved): the layer's own, from forward to backward */
    float *out_gradient;   /* (rows, outputs); where layer->changes_gradient is set, backward_input may change it, and
                            * backward_weights then sees the change */
    float *in_gradient;    /* (rows, inputs); may be the same memory as `add`. NULL: nobody needs it */
    const int32_t *tokens; /* (rows), for layers that read tokens */
    /* Values of the layer's tensors (tutti_layer_values). The next call may find them elsewhere. */
    const float *values[TUTTI_LAYER_TENSORS];

    /* For layers that gather (layer->gathers): what is known of these rows, (rows, gathers) for each rank that shares the
     * model's width; rank k's begins gathered_stride floats behind that of k - 1. forward fills in this rank's. */
    float *gathered;
    int64_t gathered_stride;

    const int32_t *targets;      /* for losses: (rows) classes; below 0: does not count */
    const float *target_values;  /* for losses: (rows, inputs) */
    const float *row_weights;    /* for losses: NULL, or (rows) */
    double loss_sum, loss_count; /* a loss adds to these, in forward */

    float
        *gradients[TUTTI_LAYER_TENSORS];  /* backward_weights: where the gradient of each of the layer's tensors goes */
    bool accumulate[TUTTI_LAYER_TENSORS]; /* add to what is there, instead of overwriting it */
    int grain; /* backward_weights: do this one of the layer's width grains: gradients of tensors that are cut are those of
                * the grain; those of others are made with grain 0 */
    int part, parts; /* backward_weights: do this one of so many parts of each gradient (tutti_part_range) */
    float *scratch;  /* layer->scratch floats of this thread; keeps nothing from call to call */

    /* For layers that look at the whole batch (ops->collect): what is known of this call's rows, to be put down by collect,
     * and what is known of all rows of all ranks, for whoever comes after it; the same of collect_back. */
    double *collected;      /* (layer->collects) */
    double *collected_back; /* (layer->collects_back) */
} tutti_call;

/* A kind of layer. Functions are pure arithmetic on what `call` names: they may run on any thread, on several at once
 * for different rows (backward_weights: different parts), and must give the same bits for the same rows, whatever else
 * is in the batch. Nothing may block or fail. examples/layer.c has a layer and a loss of its own. */
typedef struct tutti_layer_ops {
    const char *kind; /* "linear" */
    /* Once, when the layer is added: sets outputs and saved, declares tensors (tutti_layer_tensor). Outputs of 0 make it
     * a loss, which ends the model. */
    tutti_status (*setup)(tutti_model *model, tutti_layer *layer);
    void (*forward)(tutti_call *call);
    void (*backward_input)(tutti_call *call);   /* always before backward_weights of the same rows */
    void (*backward_weights)(tutti_call *call); /* NULL: no tensors. Overwrites, or adds where call->accumulate */
    /* Into how many parts backward_weights can well be cut, for threads. Depends on shapes only. NULL: it cannot. */
    int (*parts)(const tutti_model *model, const tutti_layer *layer);
    bool
        weights_read_in; /* backward_weights reads nothing but tokens, inputs and output gradients: where it is apart from
                           * backward_input, out and saved may be gone */
    bool parts_by_row;   /* parts are ranges of each tensor's first dimension; otherwise of its last one */
    bool adds;           /* forward and backward_input handle call->add */
    unsigned reads;      /* what a batch must have: TUTTI_READS_... */
    unsigned unread;     /* TUTTI_UNREAD_...: what backward does not look at, so that it need not be made again */

    /* Where ranks share a model's width (tutti_model_place). */
    unsigned cuts; /* TUTTI_CUT_...: how it may be cut; 0: it is refused where several ranks share the width */
    /* Once, when layer->cut was chosen and is not WHOLE: says which tensors are cut (tutti_layer_cut), sets saved and
     * scratch. inputs and outputs are those of this rank already. NULL: there is nothing to say. */
    tutti_status (*place)(tutti_model *model, tutti_layer *layer);
    /* After the outputs of all ranks were summed (cut INPUTS): adds what is not cut, such as a bias, and call->add. Only
     * called where layer->meets; else forward does it. NULL: the pass adds call->add. */
    void (*finish)(tutti_call *call);

    /* For layers whose output for a row depends on all rows of the global batch, such as batch norm. In training, when all
     * items have come to the layer, `collect` puts down what is known of each item's rows. The pass merges that in the
     * canonical tree over all grains, those of other ranks too (tutti_pass_options.batch), and only then come forward and
     * what follows it. An item without rows is all zeros. Backward alike: collect_back before backward_input, added up. */
    void (*collect)(tutti_call *call);
    void (*merge)(const tutti_layer *layer, double *into, const double *from); /* from, of rows behind those of into */
    void (*collect_back)(tutti_call *call);                                    /* NULL: nothing */
    /* Once for each forward in training, with what all rows have come to: changes the layer's states (tutti_model_state).
     * May refuse the batch. NULL: there is nothing to do. */
    tutti_status (*merged)(tutti_model *model, const tutti_layer *layer, const double *collected);
} tutti_layer_ops;

/* Rows between layers are whole, and each rank has all of them; or they are cut: each rank has the floats of its own width
 * grains. A cut layer computes grain by grain, so that bits do not depend on who has which. */
enum {
    TUTTI_CUT_WHOLE = 1,    /* whole rows to whole rows: every rank does the same */
    TUTTI_CUT_ALIKE = 2,    /* cut rows to cut rows */
    TUTTI_CUT_OUTPUTS = 4,  /* whole rows to cut rows; the gradients of its input are summed over ranks */
    TUTTI_CUT_INPUTS = 8,   /* cut rows to whole rows, which are summed over ranks; or a loss of cut rows */
    TUTTI_CUT_CLASSES = 16, /* whole rows; the first tensor is cut by classes: embeddings and losses tied to them */
    /* Beside WHOLE: a row's results depend on that row alone, and gradients of tensors are sums over rows. So calls may be
     * given some of an item's rows, and gradients are made for blocks of rows, one for each width grain, which are summed
     * in the canonical tree. */
    TUTTI_CUT_ROWS = 32
};

/* For forward and backward: the values of the layer's n-th tensor, counted from 0 in the order in which setup
 * declared them; a shared one is 0, and states follow the tensors. NULL: the layer has none of that number. The
 * gradient goes to call->gradients[n], in backward_weights, which adds to what is there where call->accumulate[n]
 * says so. */
TUTTI_API const float *tutti_layer_values(const tutti_call *call, int n);

/* For layers that are cut. How many width grains are here: 1 where the layer is WHOLE. */
TUTTI_API int tutti_call_grains(const tutti_call *call);
/* The floats of a row of cut inputs, or cut outputs, that belong to one of these grains: `from` to `to` - 1. Of rows that
 * are not cut: all. */
TUTTI_API void tutti_call_inputs(const tutti_call *call, int grain, int64_t *from, int64_t *to);
TUTTI_API void tutti_call_outputs(const tutti_call *call, int grain, int64_t *from, int64_t *to);
/* The values of one grain of the layer's n-th tensor: as an array whose cut dimension is what the grain has. Of one that
 * is not cut: all. */
TUTTI_API const float *tutti_grain_values(const tutti_call *call, int n, int grain);
/* For place: the layer's n-th tensor (or state, which follow the tensors) is cut along `dimension`, in `sections`
 * that are cut alike. */
TUTTI_API tutti_status tutti_layer_cut(tutti_model *model, tutti_layer *layer, int n, int dimension, int sections);

enum { TUTTI_READS_TOKENS = 1, TUTTI_READS_TARGETS = 2, TUTTI_READS_TARGET_VALUES = 4 };
enum { TUTTI_UNREAD_IN = 1, TUTTI_UNREAD_OUT = 2 };

/* The range of one part of `count` places: from a multiple of 16 to another, or to the end. */
TUTTI_API void tutti_part_range(int64_t count, int part, int parts, int64_t *from, int64_t *to);

struct tutti_layer {
    const tutti_layer_ops *ops;
    char name[TUTTI_NAME_BYTES]; /* "h.0.attn.c_attn" */
    const void *config;          /* a copy of what was given to tutti_model_add */
    int index;                   /* place in the model */
    int64_t inputs, outputs;     /* floats per row, here */
    int64_t classes;             /* tokens or targets that it reads are below this */
    int64_t saved;               /* floats per row that the layer keeps for its backward pass */
    int64_t scratch;             /* floats per thread that a call may use */
    int units;                   /* cut rows must be cut between so many equal units, such as heads; 0: anywhere */
    int sections;                /* of rows that are cut: (query, key, value) are 3, each cut alike; 0 is 1 */
    int cut;                     /* TUTTI_CUT_...; WHOLE before tutti_model_place */
    bool meets;                  /* its outputs, or what it gathers, meet those of other ranks after forward */
    bool meets_back;             /* its input gradients are summed over ranks */
    int64_t gathers;             /* floats per row that ranks gather after forward */
    bool by_blocks;              /* gradients of its tensors are summed over blocks of rows */
    bool sliced;                 /* each rank does its slice of an item's rows only (tutti_model_placing.sequence) */
    bool sliced_out;             /* of its output each rank has its slice of the rows only, after forward and finish */
    int64_t whole_inputs, whole_outputs; /* of all ranks */
    bool changes_gradient;               /* backward_input changes the output gradient */
    int tensor_count;
    int tensors[TUTTI_LAYER_TENSORS]; /* numbers of the model's tensors */
    int state_count;
    int states[TUTTI_LAYER_TENSORS]; /* numbers of the model's states */
    int64_t collects, collects_back; /* doubles that the layer collects of an item's rows */
    int shared_with;                 /* the layer whose tensors these are; -1: its own */
    bool shared;                     /* a later layer has its tensors too */
    int add_from;                    /* residual: that layer's input is added to this one's output; -1: none */
    int add_to;                      /* that layer's end, where this one begins a residual; -1: none */
};

/* ---- Models: building ------------------------------------------------------------------------------------------ */
/* A failed call leaves its reason in the model; later calls then do nothing and return the same status, so that
 * checking tutti_model_seal is enough. */

typedef struct tutti_model_shape {
    int64_t rows;   /* per sample: context of a sequence model, otherwise 1 */
    int64_t inputs; /* floats per row of the first layer's input; 0: tokens */
} tutti_model_shape;

/* On failure *model is NULL (no memory) or good for tutti_model_error and tutti_model_free only. */
TUTTI_API tutti_status tutti_model_create(const tutti_model_shape *shape, tutti_model **model);
TUTTI_API void tutti_model_free(tutti_model *model); /* NULL is ignored */
TUTTI_API const tutti_error *tutti_model_error(const tutti_model *model);
TUTTI_API int tutti_model_explain(const tutti_model *model, FILE *stream); /* as tutti_explain; NULL: no memory */

/* Appends a layer of any kind, a user's own included. `config` (may be NULL) is copied. */
TUTTI_API tutti_status tutti_model_add(tutti_model *model, const char *name, const tutti_layer_ops *ops,
                                       const void *config, size_t config_bytes);
/* For setup: a tensor of this layer, called layer.suffix. */
TUTTI_API tutti_status tutti_layer_tensor(tutti_model *model, tutti_layer *layer, const char *suffix, int dimensions,
                                          const int64_t *shape, tutti_init init, double init_scale);
/* For setup: a state of this layer: numbers that are kept and saved like a tensor's, but not trained. */
TUTTI_API tutti_status tutti_layer_state(tutti_model *model, tutti_layer *layer, const char *suffix, int dimensions,
                                         const int64_t *shape, tutti_init init);
/* For setup: this layer, which has no tensors of its own, uses a tensor of an earlier one. Its gradient is the sum of
 * both. */
TUTTI_API tutti_status tutti_layer_share(tutti_model *model, tutti_layer *layer, const char *tensor_name);
/* For setup: says in the model what is wrong, and returns `status`. */
TUTTI_API tutti_status tutti_model_refuse(tutti_model *model, tutti_status status, const char *sentence);

typedef enum tutti_activation { TUTTI_LINEAR, TUTTI_GELU, TUTTI_RELU } tutti_activation;

typedef struct tutti_linear {
    int64_t outputs;
    bool no_bias;
    tutti_activation activation; /* GELU is the tanh form of GPT-2 */
    double init_scale;           /* of the normal distribution; 0: 1 / sqrt(inputs) */
} tutti_linear;

TUTTI_API tutti_status tutti_add_linear(tutti_model *model, const char *name, const tutti_linear *linear);
/* tokens -> rows: name.weight where `positions` is NULL; otherwise the sum of the tensors `name`.weight and
 * `positions`.weight (by place in the sequence). */
TUTTI_API tutti_status tutti_add_embedding(tutti_model *model, const char *name, const char *positions,
                                           int64_t vocabulary, int64_t width, double init_scale);
TUTTI_API tutti_status tutti_add_layer_norm(tutti_model *model, const char *name);
TUTTI_API tutti_status tutti_add_rms_norm(tutti_model *model, const char *name);

typedef struct tutti_batch_norm {
    double epsilon;  /* added to the variance; 0: 1e-5 */
    double momentum; /* of this batch in the running mean and variance; 0: 0.1 */
} tutti_batch_norm;

/* Each column over all rows of the global batch, those of other ranks too (tutti_pass_options.batch). Its states
 * running_mean and running_var (without bias) change with each forward in training, and are what evaluation uses. A
 * batch is one pass. `batch_norm` may be NULL. */
TUTTI_API tutti_status tutti_add_batch_norm(tutti_model *model, const char *name, const tutti_batch_norm *batch_norm);
TUTTI_API tutti_status tutti_add_gelu(tutti_model *model, const char *name);
TUTTI_API tutti_status tutti_add_relu(tutti_model *model, const char *name);
TUTTI_API tutti_status tutti_add_dropout(tutti_model *model, const char *name, double probability);

typedef struct tutti_attention {
    int heads;
    double dropout; /* of the probabilities */
} tutti_attention;

/* Causal, over rows of (query, key, value): inputs = 3 * outputs. */
TUTTI_API tutti_status tutti_add_attention(tutti_model *model, const char *name, const tutti_attention *attention);
/* Everything between the two is added to what comes in at begin. */
TUTTI_API tutti_status tutti_residual_begin(tutti_model *model);
TUTTI_API tutti_status tutti_residual_end(tutti_model *model);

/* A model ends with one loss. Sums are over rows, weighted by the batch's row weights; count is the sum of weights. */
TUTTI_API tutti_status tutti_add_mse(tutti_model *model); /* squared differences, mean over a row's elements */
/* Softmax and cross-entropy over a row. `class_weights`: NULL, or one per class (copied). */
TUTTI_API tutti_status tutti_add_cross_entropy(tutti_model *model, const float *class_weights);
/* The same behind a linear layer without bias whose weight is the (classes, width) tensor `tied`, in one. */
TUTTI_API tutti_status tutti_add_tied_cross_entropy(tutti_model *model, const char *name, const char *tied);

/* Ends building: places the tensors. */
TUTTI_API tutti_status tutti_model_seal(tutti_model *model);

/* ---- Models that are ready ------------------------------------------------------------------------------------- */

typedef struct tutti_mlp {
    int64_t inputs, outputs;
    int hidden_layers;
    int64_t hidden;              /* width of the hidden layers */
    tutti_activation activation; /* of the hidden layers */
    bool classify;               /* cross-entropy over outputs; otherwise MSE */
    const float *class_weights;  /* NULL, or one per output */
    bool
        batch_norm; /* behind each hidden layer, in place of its bias, and before the activation: tutti_add_batch_norm */
} tutti_mlp;

/* Tensors: layers.0.weight (inputs, outputs), layers.0.bias, ...; with batch_norm norms.0.weight, norms.0.bias, ... */
TUTTI_API tutti_status tutti_mlp_create(const tutti_mlp *mlp, tutti_model **model);

typedef struct tutti_gpt {
    int layers, heads;
    int64_t width, context, vocabulary;
    double dropout; /* after the embedding, of attention's probabilities, at the end of each residual branch */
} tutti_gpt;

/* GPT-2: names and shapes of tensors are those of its checkpoints (wte.weight, h.0.attn.c_attn.weight, ...). */
TUTTI_API tutti_status tutti_gpt_create(const tutti_gpt *gpt, tutti_model **model);

/* ---- Models: tensors and memory -------------------------------------------------------------------------------- */

TUTTI_API int tutti_model_tensors(const tutti_model *model);
TUTTI_API const tutti_tensor *tutti_model_tensor(const tutti_model *model, int index);
TUTTI_API const tutti_tensor *tutti_model_find(const tutti_model *model, const char *name); /* NULL: there is none */
TUTTI_API int tutti_model_layers(const tutti_model *model);
TUTTI_API const tutti_layer *tutti_model_layer(const tutti_model *model, int index);
TUTTI_API int64_t tutti_model_rows(const tutti_model *model);      /* per sample */
TUTTI_API size_t tutti_model_parameters(const tutti_model *model); /* elements of all tensors */
TUTTI_API size_t tutti_model_elements(const tutti_model *model);   /* of one allocation; padding included */
TUTTI_API size_t tutti_model_tied(const tutti_model *model);       /* of the gradients of layers that share a tensor */
/* Returns true if a model can be cut between this layer and the one before: no residual is open there. */
TUTTI_API bool tutti_model_cut(const tutti_model *model, int layer);
TUTTI_API double tutti_model_flops_per_row(const tutti_model *model); /* 6 per parameter; attention not counted */

/* Cuts a sealed model into width grains: heads of attention, columns between two linear layers, rows of a tied
 * embedding. Everything is computed grain by grain and summed over grains in the canonical tree, so that ranks of the
 * mesh's dimension `tensor`, of which each has as many successive grains, get the bits that one rank with all of them
 * gets. To be called once, before tutti_model_bind; collective over the mesh. Models that are not placed have one width
 * grain.
 *
 * Tensors that are cut lie grain by grain, each grain a row-major array of its own that begins at a multiple of 16
 * floats: tutti_tensor_take and tutti_tensor_put go between that and the tensor's global shape. */
typedef struct tutti_model_placing {
    size_t struct_size;
    tutti_mesh
        *mesh; /* NULL, or one without a dimension `tensor`: one rank has all grains. It must outlive the model */
    int width_grains; /* 0: the largest power of two up to 4 that divides the heads and leaves a grain 32 columns */
    /* Ranks that share the width share out the rows too, where layers work on each row alone and where residuals are: norms,
     * dropout. An item's rows are cut like the width, and a rank has those of its width grains; the sums over ranks become
     * reduce_scatters, and rows are gathered before the next product. The same bits, and less memory for activations. */
    bool sequence;
} tutti_model_placing;

TUTTI_API tutti_status tutti_model_place(tutti_model *model, const tutti_model_placing *placing);
TUTTI_API int tutti_model_width_grains(const tutti_model *model);
/* Copy this rank's part of a tensor out of the whole tensor in its global shape, and into it. `local` is where the
 * tensor begins: an allocation plus tensor->offset. States are numbered behind the tensors here. */
TUTTI_API void tutti_tensor_take(const tutti_model *model, int index, const float *whole, float *local);
TUTTI_API void tutti_tensor_put(const tutti_model *model, int index, const float *local, float *whole);

/* States are what layers keep that is not trained, such as running means. They are numbered like tensors; `values` (may
 * be NULL) gets where this one lies, and NULL if there is no memory. Code that saves the model's tensors must save
 * these too. */
TUTTI_API int tutti_model_states(const tutti_model *model);
TUTTI_API const tutti_tensor *tutti_model_state(tutti_model *model, int index, float **values);

/* Gives the model its memory: tutti_model_elements() floats each, aligned to 64 bytes, that outlive the model. NULL:
 * the model allocates (and frees). Gradients are made at the first need where they are NULL. */
TUTTI_API tutti_status tutti_model_bind(tutti_model *model, float *parameters, float *gradients);
TUTTI_API float *tutti_model_values(const tutti_model *model);
TUTTI_API float *tutti_model_gradients(tutti_model *model); /* NULL: no memory, see tutti_model_error */

/* Random values keyed by (seed, tensor name, index): the same for every layout and every machine. States get their first
 * values, too. */
TUTTI_API tutti_status tutti_model_init(tutti_model *model, uint64_t seed);

/* ---- Passes ---------------------------------------------------------------------------------------------------- */

typedef struct tutti_loss {
    double sum, count;
} tutti_loss;

/* Data that a pass over some of the layers exchanges with the layers before and behind it, (rows, floats) each, until
 * backward has ended. NULL: there are no layers on that side. If rows are shared out (tutti_layer.sliced_out of the
 * layer before) they are those of this rank, one item's after the other's. */
typedef struct tutti_boundary {
    const float *in;     /* the first layer's input */
    float *out;          /* the last layer's output: forward fills it in */
    float *out_gradient; /* of the last layer's output: backward reads it, and may change it */
    float *in_gradient;  /* of the first layer's input: the input part of backward fills it in */
} tutti_boundary;

typedef struct tutti_batch {
    size_t struct_size;
    int64_t samples;            /* of this rank; 0 is ordinary */
    const int32_t *tokens;      /* (samples, rows), for models of tokens */
    const int32_t *targets;     /* (samples, rows) classes, for cross-entropy; below 0: does not count */
    const float *inputs;        /* (samples, rows, inputs), for other models */
    const float *target_values; /* (samples, rows, outputs), for MSE */
    const float *row_weights;   /* NULL, or (samples, rows) */

    /* Grains: NULL is fast mode, whose bits depend on samples and threads. Otherwise grain g is the samples from
     * grain_bounds[g] to grain_bounds[g + 1], grains + 1 numbers from 0 to `samples`; what is computed for a grain
     * depends on nothing but the grain. */
    const int64_t *grain_bounds;
    int grains;

    int64_t first_sample; /* of this rank in the global batch: for random numbers */
    uint64_t step, seed;
    bool evaluate; /* no dropout; backward is refused */

    int slot;                /* of a pass with several: that of this batch, until its backward has ended */
    tutti_boundary boundary; /* for a pass over some of the layers */
} tutti_batch;

typedef struct tutti_pass tutti_pass;

/* A source of parameters that do not all stay in memory. `need`: `count` values from element `offset` on are about to
 * be used; they stay where *values says until `done`. Both are called layer by layer, by the thread that runs the pass.
 * A failure ends the pass with that status. */
typedef struct tutti_value_source {
    tutti_status (*need)(void *context, size_t offset, size_t count, const float **values);
    void (*done)(void *context, size_t offset, size_t count);
    void *context;
} tutti_value_source;

typedef struct tutti_pass_options {
    size_t struct_size;
    int64_t samples;                  /* the most of one batch */
    int grains;                       /* the most of one batch; 0: fast mode only */
    int threads;                      /* of this rank, the caller included; 0: 1 */
    bool evaluate;                    /* forward only: no memory for backward */
    bool split;                       /* keep what is needed to do the two parts of backward apart from each other */
    const tutti_value_source *source; /* NULL: the model's values. Otherwise the model needs no memory for them */
    int first_layer, end_layer; /* layers first_layer to end_layer - 1 only, with boundaries where others are before or
                                 * behind; 0 and 0: all. Between two passes no residual is open (tutti_model_cut) */
    int slots;                  /* batches that are between their forward and the end of their backward at once; 0: 1 */
    bool
        recompute; /* keep only what enters and leaves a residual branch, and make what is inside again in backward: the
                     * same bits, for less memory and more time. For models that have residuals */
    tutti_comm
        *batch; /* for layers that look at the whole batch: the ranks that share it, which then make the same passes,
                        * also where they have no samples. NULL: there are no others */
    int batch_grains; /* with `batch`: the grains of all ranks together, which have successive ones as tutti_ddp_grains
                        * gives them; 0: fast mode */
} tutti_pass_options;

/* Errors of a pass are in its model (tutti_model_error). */
TUTTI_API tutti_status tutti_pass_create(tutti_model *model, const tutti_pass_options *options, tutti_pass **pass);
TUTTI_API void tutti_pass_free(tutti_pass *pass);          /* NULL is ignored */
TUTTI_API size_t tutti_pass_bytes(const tutti_pass *pass); /* activations and scratch */

/* `losses`: one per grain; in fast mode one. The batch's memory must stay until backward has ended. */
TUTTI_API tutti_status tutti_pass_forward(tutti_pass *pass, const tutti_batch *batch, tutti_loss *losses);

/* Tells that the gradients of `count` elements from `offset` on are final on this rank. Called by the thread that runs
 * the pass. */
typedef void tutti_gradient_ready(void *context, size_t offset, size_t count);

/* Tells where the gradients of these elements go, those of subtree number `subtree`. Called just before they are made;
 * a failure ends backward with that status. */
typedef tutti_status tutti_gradient_place(void *context, int subtree, size_t offset, size_t count, float **gradients);

enum { TUTTI_BACKWARD_INPUT = 1, TUTTI_BACKWARD_WEIGHTS = 2 };

typedef struct tutti_backward {
    size_t struct_size;
    /* Grains are summed in the canonical tree. A subtree is a run of this rank's grains: subtree k, the grains from
     * subtree_bounds[k] to subtree_bounds[k + 1], goes to gradients[k] (of tutti_model_elements() floats).
     * 0 subtrees: all of the batch is one, into the model's gradients; with `place`, nothing is computed for weights. */
    int subtrees;
    const int *subtree_bounds; /* subtrees + 1 numbers; see tutti_grain_subtrees */
    float *const *gradients;
    bool accumulate; /* add to the gradients; fast mode only */
    int parts;       /* 0: both. Otherwise TUTTI_BACKWARD_INPUT, then TUTTI_BACKWARD_WEIGHTS (with options.split) */
    tutti_gradient_ready *ready; /* NULL, or called once for each run of elements, in backward order */
    tutti_gradient_place *place; /* NULL, or asked layer by layer; then `gradients` is not looked at */
    void *context;               /* of all */

    /* Layers that share another's tensor (tutti_layer_share). NULL: their gradients are added to the owner's, grain by
     * grain, at its turn. Otherwise those of subtree k go to tied[k], of tutti_model_tied() floats, at their own turn, and
     * tied_ready (or NULL) is called; whoever has summed both over all grains adds them up. */
    float *const *tied;
    void (*tied_ready)(void *context);
    int slot; /* of the batch */
} tutti_backward;

/* `how` NULL: both parts, of the whole batch, into the model's gradients. */
TUTTI_API tutti_status tutti_pass_backward(tutti_pass *pass, const tutti_backward *how);

/* Returns the outputs of the last layer before the loss, (rows, outputs), after a forward; NULL if the loss makes them
 * itself. */
TUTTI_API const float *tutti_pass_outputs(const tutti_pass *pass);

/* The canonical tree over `total` grains splits at the largest power of two below its size. Cuts the grains from
 * `first` to `first + count` into whole subtrees, the fewest: bounds[k]..bounds[k + 1], counted from `first`. Returns
 * how many; `bounds` has room for TUTTI_SUBTREES_MAX + 1. */
enum { TUTTI_SUBTREES_MAX = 64 };
TUTTI_API int tutti_grain_subtrees(int total, int first, int count, int *bounds);

/* Looks for the first value that is not finite: parameters, then outputs of layers in order, then gradients in the
 * order in which backward makes them. Meant to be asked when a loss or a norm is not finite; costs nothing before. */
typedef struct tutti_fault {
    char what[16];                 /* "parameter", "output" or "gradient" */
    char layer[TUTTI_NAME_BYTES];  /* "h.3.mlp.c_fc" */
    char tensor[TUTTI_NAME_BYTES]; /* "h.3.mlp.c_fc.weight"; empty for an output */
    size_t index;                  /* element of the tensor, or of the output's rows */
    float value;
} tutti_fault;

TUTTI_API bool tutti_pass_fault(const tutti_pass *pass, tutti_fault *fault); /* false: all is finite */

/* ---- Machine --------------------------------------------------------------------------------------------------- */

/* The matrix library, loaded at the first need. ERR_UNSUPPORTED names the package to install; ERR_LIMIT: the address space
 * that this process may use (ulimit -v) has no room for it. */
TUTTI_API tutti_status tutti_blas_load(tutti_error *error);
/* "OpenBLAS 0.3.21 ... Cooperlake" and "avx512": the bits of results depend on them. Valid after tutti_blas_load. */
TUTTI_API const char *tutti_blas_name(void);
TUTTI_API const char *tutti_nn_kernels_name(void);
/* The kernels that the matrix library multiplies with. It chooses them by the CPU's model. If it does not know that
 * model and takes old kernels, they are chosen by the CPU's features, unless OPENBLAS_CORETYPE is set. Valid after
 * tutti_blas_load, for as long as the process runs. */
typedef struct tutti_blas_about {
    size_t struct_size;
    const char *kernels; /* "SkylakeX" */
    const char *why;     /* these: "OpenBLAS's own choice for this CPU" */
    const char *fix;     /* what to do where they are old; "": nothing */
    bool old;            /* made for CPUs with fewer features than this one has: several times slower than could be */
    bool asked;          /* by OPENBLAS_CORETYPE */
} tutti_blas_about;
TUTTI_API void tutti_blas_describe(tutti_blas_about *about);
/* Measures the rate of square matrix products on so many threads, in GFLOP/s; takes about `seconds`. */
TUTTI_API double tutti_blas_rate(int threads, double seconds);

#ifdef __cplusplus
}
#endif

#endif
