/* SPDX-License-Identifier: Apache-2.0
 *
 * Tutti: models and training.
 *
 *     tutti_model *model;
 *     tutti_gpt gpt = {.layers = 4, .heads = 4, .width = 128, .context = 64, .vocabulary = 256};
 *     if (tutti_gpt_create(&gpt, &model) != TUTTI_OK) return tutti_model_explain(model, stderr);
 *     tutti_model_bind(model, NULL, NULL);                     memory for parameters and gradients
 *     tutti_model_init(model, seed);
 *     tutti_pass_create(model, &(tutti_pass_options){.samples = 12, .threads = 2}, &pass);
 *     tutti_pass_forward(pass, &batch, &loss);                 loss.sum / loss.count is the mean
 *     tutti_pass_backward(pass, &(tutti_backward){0});         gradients of loss.sum
 *
 * A model is a list of layers. A layer has named tensors, which are views into one allocation of parameters and one of
 * gradients, a forward pass, and a backward pass in two parts: for its input and for its weights. A pass is the memory
 * that one batch needs on its way through a model. Gradients are those of the loss's sum: whoever knows the count of
 * the whole global batch divides, once.
 *
 * All activations are f32 and lie in rows. A sample has model->rows rows: the tokens of a sequence, or one.
 * Conventions are those of tutti.h.
 */
#ifndef TUTTI_TRAIN_H
#define TUTTI_TRAIN_H

#include <stdbool.h>
#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tensors --------------------------------------------------------------------------------------------------- */

enum { TUTTI_DIMENSIONS_MAX = 4, TUTTI_NAME_BYTES = 64, TUTTI_LAYER_TENSORS = 4 };

/* How a tensor lies on the ranks. Replicated is the only one so far. */
typedef enum tutti_placement { TUTTI_REPLICATED, TUTTI_SHARDED, TUTTI_PARTIAL } tutti_placement;

typedef enum tutti_init { TUTTI_INIT_ZERO, TUTTI_INIT_ONE, TUTTI_INIT_NORMAL, TUTTI_INIT_UNIFORM } tutti_init;

typedef struct tutti_tensor {
    char name[TUTTI_NAME_BYTES]; /* "h.0.attn.c_attn.weight" */
    tutti_type type;             /* TUTTI_F32 */
    int dimensions;
    int64_t shape[TUTTI_DIMENSIONS_MAX]; /* row-major; a linear layer's weight is (inputs, outputs) */
    size_t count;                        /* elements */
    size_t offset;                       /* in elements, into the allocations; a multiple of 16 */
    tutti_placement placement;
    int placement_dimension;
    tutti_init init;
    double init_scale; /* standard deviation of NORMAL, bound of UNIFORM */
    int layer;         /* the layer that owns it */
} tutti_tensor;

/* ---- Layers ---------------------------------------------------------------------------------------------------- */

typedef struct tutti_model tutti_model;
typedef struct tutti_layer tutti_layer;

/* What one call of a layer works on: some rows of a batch, whole samples. Pointers are to the first of these rows. */
typedef struct tutti_call {
    const tutti_layer *layer;
    const tutti_model *model;
    int64_t samples, rows; /* of this call; rows = samples * model rows */
    int64_t first_sample;  /* of this call, in the global batch: for random numbers */
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

    const int32_t *targets;      /* for losses: (rows) classes; below 0: does not count */
    const float *target_values;  /* for losses: (rows, inputs) */
    const float *row_weights;    /* for losses: NULL, or (rows) */
    double loss_sum, loss_count; /* a loss adds to these, in forward */

    float
        *gradients[TUTTI_LAYER_TENSORS];  /* backward_weights: where the gradient of each of the layer's tensors goes */
    bool accumulate[TUTTI_LAYER_TENSORS]; /* add to what is there, instead of overwriting it */
    int part, parts; /* backward_weights: do this one of so many parts of each gradient (tutti_part_range) */
    float *scratch;  /* layer->scratch floats of this thread; keeps nothing from call to call */
} tutti_call;

/* A kind of layer. Functions are pure arithmetic on what `call` names: they may run on any thread, on several at once
 * for different rows (backward_weights: different parts), and must give the same bits for the same rows, whatever else
 * is in the batch. Nothing may block or fail. */
typedef struct tutti_layer_ops {
    const char *kind; /* "linear" */
    /* Once, when the layer is added: sets outputs and saved, declares tensors (tutti_layer_tensor). */
    tutti_status (*setup)(tutti_model *model, tutti_layer *layer);
    void (*forward)(tutti_call *call);
    void (*backward_input)(tutti_call *call);   /* always before backward_weights of the same rows */
    void (*backward_weights)(tutti_call *call); /* NULL: no tensors. Overwrites, or adds where call->accumulate */
    /* Into how many parts backward_weights can well be cut, for threads. Depends on shapes only. NULL: it cannot. */
    int (*parts)(const tutti_model *model, const tutti_layer *layer);
    bool parts_by_row; /* parts are ranges of each tensor's first dimension; otherwise of its last one */
    bool adds;         /* forward and backward_input handle call->add */
    unsigned reads;    /* what a batch must have: TUTTI_READS_... */
} tutti_layer_ops;

enum { TUTTI_READS_TOKENS = 1, TUTTI_READS_TARGETS = 2, TUTTI_READS_TARGET_VALUES = 4 };

/* The range of one part of `count` places: from a multiple of 16 to another, or to the end. */
TUTTI_API void tutti_part_range(int64_t count, int part, int parts, int64_t *from, int64_t *to);

struct tutti_layer {
    const tutti_layer_ops *ops;
    char name[TUTTI_NAME_BYTES]; /* "h.0.attn.c_attn" */
    const void *config;          /* a copy of what was given to tutti_model_add */
    int index;                   /* place in the model */
    int64_t inputs, outputs;     /* floats per row */
    int64_t classes;             /* tokens or targets that it reads are below this */
    int64_t saved;               /* floats per row that the layer keeps for its backward pass */
    int64_t scratch;             /* floats per thread that a call may use */
    bool changes_gradient;       /* backward_input changes the output gradient */
    int tensor_count;
    int tensors[TUTTI_LAYER_TENSORS]; /* numbers of the model's tensors */
    int shared_with;                  /* the layer whose tensors these are; -1: its own */
    int add_from;                     /* residual: that layer's input is added to this one's output; -1: none */
    int add_to;                       /* that layer's end, where this one begins a residual; -1: none */
};

/* ---- Models: building ------------------------------------------------------------------------------------------ */
/* A failed call leaves its reason in the model; later calls then do nothing and return the same status, so that
 * checking tutti_model_seal is enough. */

typedef struct tutti_model_shape {
    int64_t rows;   /* per sample: context of a sequence model, otherwise 1 */
    int64_t inputs; /* floats per row of the first layer's input; 0: tokens */
} tutti_model_shape;

/* On failure *model is NULL (no memory) or good for tutti_model_error and tutti_model_destroy only. */
TUTTI_API tutti_status tutti_model_create(const tutti_model_shape *shape, tutti_model **model);
TUTTI_API void tutti_model_destroy(tutti_model *model); /* NULL is ignored */
TUTTI_API const tutti_error *tutti_model_error(const tutti_model *model);
TUTTI_API int tutti_model_explain(const tutti_model *model, FILE *stream); /* as tutti_explain; NULL: no memory */

/* Appends a layer of any kind, a user's own included. `config` (may be NULL) is copied. */
TUTTI_API tutti_status tutti_model_add(tutti_model *model, const char *name, const tutti_layer_ops *ops,
                                       const void *config, size_t config_bytes);
/* For setup: a tensor of this layer, called layer.suffix. */
TUTTI_API tutti_status tutti_layer_tensor(tutti_model *model, tutti_layer *layer, const char *suffix, int dimensions,
                                          const int64_t *shape, tutti_init init, double init_scale);
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
TUTTI_API tutti_status tutti_add_gelu(tutti_model *model, const char *name);
TUTTI_API tutti_status tutti_add_relu(tutti_model *model, const char *name);
TUTTI_API tutti_status tutti_add_dropout(tutti_model *model, const char *name, double probability);
/* Causal, over rows of (query, key, value): inputs = 3 * outputs. */
TUTTI_API tutti_status tutti_add_attention(tutti_model *model, const char *name, int heads);
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
} tutti_mlp;

/* Tensors: layers.0.weight (inputs, outputs), layers.0.bias, ... */
TUTTI_API tutti_status tutti_mlp_create(const tutti_mlp *mlp, tutti_model **model);

typedef struct tutti_gpt {
    int layers, heads;
    int64_t width, context, vocabulary;
    double dropout; /* after the embedding and at the end of each residual branch */
} tutti_gpt;

/* GPT-2: names and shapes of tensors are those of its checkpoints (wte.weight, h.0.attn.c_attn.weight, ...). */
TUTTI_API tutti_status tutti_gpt_create(const tutti_gpt *gpt, tutti_model **model);

/* ---- Models: tensors and memory -------------------------------------------------------------------------------- */

TUTTI_API int tutti_model_tensors(const tutti_model *model);
TUTTI_API const tutti_tensor *tutti_model_tensor(const tutti_model *model, int index);
TUTTI_API const tutti_tensor *tutti_model_find(const tutti_model *model, const char *name); /* NULL: there is none */
TUTTI_API int tutti_model_layers(const tutti_model *model);
TUTTI_API const tutti_layer *tutti_model_layer(const tutti_model *model, int index);
TUTTI_API int64_t tutti_model_rows(const tutti_model *model);         /* per sample */
TUTTI_API size_t tutti_model_parameters(const tutti_model *model);    /* elements of all tensors */
TUTTI_API size_t tutti_model_elements(const tutti_model *model);      /* of one allocation; padding included */
TUTTI_API double tutti_model_flops_per_row(const tutti_model *model); /* 6 per parameter; attention not counted */

/* Gives the model its memory: tutti_model_elements() floats each, aligned to 64 bytes, that outlive the model. NULL:
 * the model allocates (and frees). Gradients are made at the first need where they are NULL. */
TUTTI_API tutti_status tutti_model_bind(tutti_model *model, float *parameters, float *gradients);
TUTTI_API float *tutti_model_values(const tutti_model *model);
TUTTI_API float *tutti_model_gradients(tutti_model *model); /* NULL: no memory, see tutti_model_error */

/* Random values keyed by (seed, tensor name, index): the same for every layout and every machine. */
TUTTI_API tutti_status tutti_model_init(tutti_model *model, uint64_t seed);

/* ---- Passes ---------------------------------------------------------------------------------------------------- */

typedef struct tutti_loss {
    double sum, count;
} tutti_loss;

typedef struct tutti_batch {
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
} tutti_batch;

typedef struct tutti_pass tutti_pass;

typedef struct tutti_pass_options {
    int64_t samples; /* the most of one batch */
    int grains;      /* the most of one batch; 0: fast mode only */
    int threads;     /* of this rank, the caller included; 0: 1 */
    bool evaluate;   /* forward only: no memory for backward */
    bool split;      /* keep what is needed to do the two parts of backward apart from each other */
} tutti_pass_options;

/* Errors of a pass are in its model (tutti_model_error). */
TUTTI_API tutti_status tutti_pass_create(tutti_model *model, const tutti_pass_options *options, tutti_pass **pass);
TUTTI_API void tutti_pass_destroy(tutti_pass *pass);       /* NULL is ignored */
TUTTI_API size_t tutti_pass_bytes(const tutti_pass *pass); /* activations and scratch */

/* `losses`: one per grain; in fast mode one. The batch's memory must stay until backward has ended. */
TUTTI_API tutti_status tutti_pass_forward(tutti_pass *pass, const tutti_batch *batch, tutti_loss *losses);

/* Gradients of the elements from `offset` on, `count` of them, are final on this rank. From the thread that called. */
typedef void tutti_gradient_ready(void *context, size_t offset, size_t count);

enum { TUTTI_BACKWARD_INPUT = 1, TUTTI_BACKWARD_WEIGHTS = 2 };

typedef struct tutti_backward {
    /* Grains are summed in the canonical tree. A subtree is a run of this rank's grains: subtree k, the grains from
     * subtree_bounds[k] to subtree_bounds[k + 1], goes to gradients[k] (of tutti_model_elements() floats).
     * 0 subtrees: all of the batch is one, into the model's gradients. */
    int subtrees;
    const int *subtree_bounds; /* subtrees + 1 numbers; see tutti_grain_subtrees */
    float *const *gradients;
    bool accumulate; /* add to the gradients; fast mode only */
    int parts;       /* 0: both. Otherwise TUTTI_BACKWARD_INPUT, then TUTTI_BACKWARD_WEIGHTS (with options.split) */
    tutti_gradient_ready *ready; /* NULL, or called once for each run of elements, in backward order */
    void *context;
} tutti_backward;

TUTTI_API tutti_status tutti_pass_backward(tutti_pass *pass, const tutti_backward *how);

/* Outputs of the last layer before the loss, (rows, outputs), after a forward; NULL where the loss makes them itself. */
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

/* The matrix library, loaded at the first need. ERR_UNSUPPORTED with the package to install in `reason`. */
TUTTI_API tutti_status tutti_blas_load(char *reason, size_t reason_bytes);
/* "OpenBLAS 0.3.21 ... Cooperlake" and "avx512": what bits depend on. Valid after tutti_blas_load. */
TUTTI_API const char *tutti_blas_name(void);
TUTTI_API const char *tutti_nn_kernels_name(void);
/* The rate of square matrix products on so many threads, in GFLOP/s; takes about `seconds`. */
TUTTI_API double tutti_blas_rate(int threads, double seconds);

/* ---- Training: parameters -------------------------------------------------------------------------------------- */
/* From here on nothing needs a tutti_model: whoever computes gradients otherwise gives a list of these. */

typedef struct tutti_parameter {
    const char *name;
    float *value, *gradient; /* (count) each */
    size_t count;
    bool decays; /* whether weight decay applies */
} tutti_parameter;

/* The model's tensors as such a list, as many as tutti_model_tensors, in the order of memory. Counts include the padding
 * behind each tensor, so that the list covers the allocation without gaps. Tensors of two dimensions or more decay. */
TUTTI_API tutti_status tutti_model_list(tutti_model *model, tutti_parameter *parameters);

/* The square root of the sum of the squares of all gradients. With a comm, ranks (which must hold the same gradients)
 * share the work. The bits do not depend on the number of ranks. */
TUTTI_API tutti_status tutti_gradient_norm(tutti_comm *comm, const tutti_parameter *parameters, size_t count,
                                           double *norm);

/* A hash of all values in the order of the list: equal hashes, equal weights. */
TUTTI_API uint64_t tutti_weights_hash(const tutti_parameter *parameters, size_t count);

/* Compares the ranks' hashes. `odd` (may be NULL) gets the lowest rank that differs from rank 0, or -1. */
TUTTI_API tutti_status tutti_weights_compare(tutti_comm *comm, uint64_t hash, int *odd);

/* ---- Training: optimizers and schedules ------------------------------------------------------------------------ */

typedef struct tutti_optimizer tutti_optimizer;

typedef struct tutti_optimizer_settings {
    size_t struct_size;
    const char *name;                    /* "sgd", "adam", "adamw" or "lion" */
    double beta1, beta2, epsilon, decay; /* adam, adamw, lion; decay also of sgd */
    double momentum;                     /* sgd */
    bool nesterov;
} tutti_optimizer_settings;

TUTTI_API const char *tutti_optimizer_names(size_t index); /* NULL at the end */
TUTTI_API tutti_status tutti_optimizer_defaults(const char *name, tutti_optimizer_settings *settings,
                                                tutti_error *error);
/* The list must outlive the optimizer. */
TUTTI_API tutti_status tutti_optimizer_create(const tutti_optimizer_settings *settings,
                                              const tutti_parameter *parameters, size_t count,
                                              tutti_optimizer **optimizer, tutti_error *error);
TUTTI_API void tutti_optimizer_free(tutti_optimizer *optimizer); /* NULL is ignored */
/* One pass over memory: gradients are multiplied by `scale` (one over the global count, and clipping) on their way. */
TUTTI_API void tutti_optimizer_step(tutti_optimizer *optimizer, double rate, double scale);

/* For checkpoints: steps taken, and state number `index` (floats in the list's order) with its name; NULL: no more. */
TUTTI_API uint64_t tutti_optimizer_steps(const tutti_optimizer *optimizer);
TUTTI_API void tutti_optimizer_set_steps(tutti_optimizer *optimizer, uint64_t steps);
TUTTI_API const char *tutti_optimizer_state(const tutti_optimizer *optimizer, int index, float **values);
TUTTI_API const tutti_optimizer_settings *tutti_optimizer_get(const tutti_optimizer *optimizer);
TUTTI_API size_t tutti_optimizer_bytes(const tutti_optimizer *optimizer);

typedef struct tutti_schedule {
    const char *shape; /* "constant", "linear" or "cosine" */
    double rate, end;  /* after warm-up, and at the end */
    uint64_t warmup, steps;
} tutti_schedule;

TUTTI_API tutti_status tutti_schedule_check(const tutti_schedule *schedule, tutti_error *error);
TUTTI_API double tutti_schedule_rate(const tutti_schedule *schedule, uint64_t step); /* of step 0, 1, … */

/* ---- Training: data -------------------------------------------------------------------------------------------- */

typedef struct tutti_data tutti_data;

typedef struct tutti_data_settings {
    size_t struct_size;
    /* A file or a folder (bytes), "u16:FILE" or "u32:FILE" (token ids), "markov:order=2,states=64,length=1000000,seed=1",
     * or "csv:FILE" (rows of numbers, the last one the target). */
    const char *source;
    size_t context;    /* tokens of a sample; not for CSV */
    double held_out;   /* fraction that is kept for validation: the last tokens, or rows drawn without the seed */
    uint64_t seed;     /* of the order */
    bool classes;      /* CSV: targets are classes 0, 1, … */
    size_t vocabulary; /* 0: what the source has; otherwise ids must be below it */
} tutti_data_settings;

typedef struct tutti_data_about {
    size_t struct_size;
    size_t tokens, held_out; /* tokens or rows of both parts */
    size_t samples;          /* of one epoch: stretches of `context` tokens, or rows */
    size_t held_out_samples;
    size_t vocabulary; /* tokens; CSV: classes, or 0 */
    size_t features;   /* CSV: columns but the last */
    double entropy;    /* nats per token where known; otherwise NaN */
} tutti_data_about;

TUTTI_API tutti_status tutti_data_open(const tutti_data_settings *settings, tutti_data **data, tutti_error *error);
TUTTI_API void tutti_data_close(tutti_data *data); /* NULL is ignored */
TUTTI_API void tutti_data_describe(const tutti_data *data, tutti_data_about *about);

/* Sample number `index` of the order (step * batch + place in the batch). Every epoch goes through all samples once, in
 * an order that depends on the seed and the epoch, and begins a little elsewhere. Held-out samples come in order,
 * and from the first again after the last. */
TUTTI_API void tutti_data_tokens(const tutti_data *data, bool held_out, uint64_t index, int32_t *tokens,
                                 int32_t *targets); /* (context) each */
TUTTI_API void tutti_data_row(const tutti_data *data, bool held_out, uint64_t index, float *features, float *target);

/* ---- Training: checkpoints ------------------------------------------------------------------------------------- */
/* A checkpoint is a folder, step-00000100: one safetensors file per group of tensors and index.json, which holds the
 * notes and the sizes and hashes of the files. It is written beside its place and moved there when all of it is on
 * the disk, so one that has its name is whole. */

typedef struct tutti_note {
    const char *name, *value;
} tutti_note;

typedef struct tutti_checkpoint_tensor {
    const char *group; /* its file: "model" is model.safetensors */
    const char *name;
    int dimensions;
    int64_t shape[TUTTI_DIMENSIONS_MAX];
    float *values;
} tutti_checkpoint_tensor;

/* Tensors of a group stand next to each other. Of the checkpoints before this one the last keep - 1 stay (keep 0: all).
 * On failure the folder is as it was, and the error says why. */
TUTTI_API tutti_status tutti_checkpoint_save(const char *folder, uint64_t step, int keep, const tutti_note *notes,
                                             size_t note_count, const tutti_checkpoint_tensor *tensors,
                                             size_t tensor_count, tutti_error *error);

typedef struct tutti_checkpoint tutti_checkpoint;

/* Opens the checkpoint at `path` and, with `verify`, reads all of it against its hashes: ERR_DAMAGED names what is wrong.
 * `path` may also be the folder of checkpoints: then the newest good one, and damaged ones are passed over with a
 * warning in the log. */
TUTTI_API tutti_status tutti_checkpoint_open(const char *path, bool verify, tutti_checkpoint **checkpoint,
                                             tutti_error *error);
TUTTI_API void tutti_checkpoint_close(tutti_checkpoint *checkpoint); /* NULL is ignored */
TUTTI_API const char *tutti_checkpoint_path(const tutti_checkpoint *checkpoint);
TUTTI_API uint64_t tutti_checkpoint_step(const tutti_checkpoint *checkpoint);
TUTTI_API uint64_t tutti_checkpoint_bytes(const tutti_checkpoint *checkpoint);
TUTTI_API const char *tutti_checkpoint_note(const tutti_checkpoint *checkpoint, const char *name); /* NULL: none */
/* Fills in the values. Tensors of these groups that are missing, too many or of other shapes are an error that names
 * the first ones. */
TUTTI_API tutti_status tutti_checkpoint_load(const tutti_checkpoint *checkpoint, const tutti_checkpoint_tensor *tensors,
                                             size_t tensor_count, tutti_error *error);

/* Calls `each` with the path of every checkpoint of the folder, oldest first, whole or damaged. */
TUTTI_API tutti_status tutti_checkpoint_list(const char *folder, void (*each)(void *context, const char *path),
                                             void *context, tutti_error *error);
/* Calls `each` with one line for each thing in which the two differ. */
TUTTI_API tutti_status tutti_checkpoint_diff(const tutti_checkpoint *a, const tutti_checkpoint *b,
                                             void (*each)(void *context, const char *line), void *context,
                                             tutti_error *error);

/* ---- Training: data parallel ----------------------------------------------------------------------------------- */
/* Every rank has all parameters and computes gradients of its own samples; tutti_ddp sums them over the ranks.
 *
 *     tutti_ddp_create(world, parameters, count, NULL, &ddp, &error);        all ranks get rank 0's values
 *     tutti_ddp_begin(ddp, true);
 *     … backward: gradients of sums, not of means; tutti_ddp_ready(ddp, i) as soon as gradient i is final …
 *     tutti_ddp_end(ddp, samples, &all_samples);                             gradients are sums over all ranks now
 *     tutti_optimizer_step(optimizer, rate, 1 / all_samples);
 *
 * Gradients are reduced in buckets, in the reverse order of the list, while the rest of backward runs. Ranks may have
 * different numbers of samples, or none. A rank that does not call ready for a parameter contributes zeros to it.
 *
 * With options.grains the result does not depend on the number of ranks, bit for bit: the global batch is cut into that
 * many grains, rank r works on grains tutti_ddp_grains gives it, and hands over one gradient per subtree of the
 * canonical tree over all grains (tutti_ddp_partials), which is what tutti_pass_backward makes. docs/training.md. */

typedef struct tutti_ddp tutti_ddp;

typedef struct tutti_ddp_options {
    size_t struct_size;
    size_t bucket_bytes;       /* 0: 25 MB */
    size_t first_bucket_bytes; /* 0: 1 MB; small, so that the first can start early */
    int grains;                /* 0: gradients of ranks are summed as they are */
} tutti_ddp_options;

/* Collective. The list and what it points to must outlive the ddp. Errors of collectives are in the comm. */
TUTTI_API tutti_status tutti_ddp_create(tutti_comm *comm, const tutti_parameter *parameters, size_t count,
                                        const tutti_ddp_options *options, tutti_ddp **ddp, tutti_error *error);
TUTTI_API void tutti_ddp_free(tutti_ddp *ddp); /* not collective; NULL is ignored */

/* A backward pass begins. `last` false: it only accumulates, and nothing is sent. */
TUTTI_API tutti_status tutti_ddp_begin(tutti_ddp *ddp, bool last);
TUTTI_API tutti_status tutti_ddp_ready(tutti_ddp *ddp, size_t index);
/* The same for a run of elements, counted over all parameters one after the other: for tutti_pass_backward. */
TUTTI_API tutti_status tutti_ddp_ready_run(tutti_ddp *ddp, size_t offset, size_t count);
/* Collective. Ends the pass that was begun with `last`. *total (may be NULL) gets the sum of all ranks' counts. */
TUTTI_API tutti_status tutti_ddp_end(tutti_ddp *ddp, double count, double *total);

/* Name number `index` of the parameters that no pass of the last step made ready on this rank; NULL: no more. */
TUTTI_API const char *tutti_ddp_unused(const tutti_ddp *ddp, size_t index);
/* Seconds this rank has spent in communication, or waiting for it, since it was created. */
TUTTI_API double tutti_ddp_seconds(const tutti_ddp *ddp);
TUTTI_API size_t tutti_ddp_bytes(const tutti_ddp *ddp); /* of its buffers */

/* With grains: those of this rank, `first` to `first + count`, and where the gradient of each subtree goes. */
TUTTI_API void tutti_ddp_grains(const tutti_ddp *ddp, int *first, int *count);
TUTTI_API int tutti_ddp_partials(const tutti_ddp *ddp, const int **bounds, float *const **gradients);

/* ---- Training: all of it together ------------------------------------------------------------------------------ */
/* What `tutti train` does, a step at a time. Every rank makes the same calls. */

/* name, kind, default, minimum, maximum, help. Flags of `tutti train`, lines of its config file and what checkpoints
 * note are these rows. REAL is a double. */
#define TUTTI_TRAIN_LIST(X)                                                                                            \
    X(model, TEXT, "gpt", 0, 0, "gpt or mlp")                                                                          \
    X(data, TEXT, "", 0, 0,                                                                                            \
      "what to learn: a file or folder (bytes), u16:FILE or u32:FILE (token ids), markov:order=2,states=64; mlp: a "   \
      "CSV file")                                                                                                      \
    X(layers, INT, "4", 0, 1000, "blocks of the gpt, hidden layers of the mlp")                                        \
    X(heads, INT, "4", 1, 1000, "attention heads; they divide the width")                                              \
    X(width, INT, "128", 1, 1048576, "numbers per token, or per hidden layer")                                         \
    X(context, INT, "64", 1, 1048576, "tokens of a sample")                                                            \
    X(vocabulary, INT, "0", 0, 16777216, "ids that the model knows; 0: as many as the data has")                       \
    X(dropout, REAL, "0", 0, 1, "probability")                                                                         \
    X(loss, TEXT, "cross_entropy", 0, 0, "of the mlp: cross_entropy (targets are classes) or mse")                     \
    X(batch, INT, "16", 1, 16777216, "samples of a step, over all ranks")                                              \
    X(grains, INT, "0", 0, 4096,                                                                                       \
      "parts of the batch that the result depends on instead of the ranks; 0: up to 8, a power of two")                \
    X(fast, BOOL, "0", 0, 1, "no grains: faster, and other ranks give other bits")                                     \
    X(accumulate, INT, "1", 1, 65536, "passes that a rank's part of the batch is cut into, to need less memory")       \
    X(threads, INT, "1", 1, 1024, "threads of each rank")                                                              \
    X(steps, INT, "1000", 0, 1000000000000, "when to end")                                                             \
    X(optimizer, TEXT, "adamw", 0, 0, "sgd, adam, adamw or lion")                                                      \
    X(lr, REAL, "0.001", 0, 1000000, "learning rate after warm-up")                                                    \
    X(end_lr, REAL, "0", 0, 1000000, "learning rate at the end")                                                       \
    X(schedule, TEXT, "cosine", 0, 0, "constant, linear or cosine")                                                    \
    X(warmup, INT, "20", 0, 1000000000000, "steps in which the rate rises")                                            \
    X(beta1, REAL, "0.9", 0, 1, "adam, adamw, lion: of the mean of gradients")                                         \
    X(beta2, REAL, "0.95", 0, 1, "adam, adamw, lion: of the mean of squares (lion: of the mean)")                      \
    X(momentum, REAL, "0.9", 0, 1, "sgd")                                                                              \
    X(nesterov, BOOL, "0", 0, 1, "sgd: Nesterov's form of momentum")                                                   \
    X(decay, REAL, "0.1", 0, 1000000, "weight decay, of tensors with two dimensions or more")                          \
    X(clip, REAL, "1", 0, 1000000, "largest norm of all gradients; 0: any")                                            \
    X(seed, INT, "1", 0, 4611686018427387904, "of the first weights, the order of samples, and dropout")               \
    X(held_out, REAL, "0.1", 0, 1, "fraction of the data that is kept for validation")                                 \
    X(val_every, INT, "100", 0, 1000000000000, "steps between validations; 0: none")                                   \
    X(val_samples, INT, "64", 1, 1000000000, "held-out samples of a validation")                                       \
    X(save, TEXT, "", 0, 0, "folder of checkpoints")                                                                   \
    X(save_every, INT, "0", 0, 1000000000000, "steps between checkpoints; 0: only at the end and on Ctrl-C")           \
    X(keep, INT, "3", 0, 1000000, "checkpoints that stay; 0: all")                                                     \
    X(resume, BOOL, "0", 0, 1, "go on from the newest good checkpoint in the folder")                                  \
    X(check_every, INT, "50", 0, 1000000000000, "steps between comparisons of all ranks' weights; 0: never")

#define TUTTI_TRAIN_TYPE_INT int64_t
#define TUTTI_TRAIN_TYPE_BOOL int64_t
#define TUTTI_TRAIN_TYPE_REAL double
#define TUTTI_TRAIN_TYPE_TEXT const char *

typedef struct tutti_train_options {
    size_t struct_size;
#define TUTTI_TRAIN_FIELD(name, kind, initial, low, high, help) TUTTI_TRAIN_TYPE_##kind name;
    TUTTI_TRAIN_LIST(TUTTI_TRAIN_FIELD)
#undef TUTTI_TRAIN_FIELD
} tutti_train_options;

TUTTI_API void tutti_train_options_init(tutti_train_options *options); /* the defaults */

typedef struct tutti_trainer tutti_trainer;

/* Makes data, model, optimizer and ddp, and resumes where asked. On failure *trainer is NULL and every rank gets the
 * same status; error->rank says which one it is about. Texts of the options must outlive the trainer. */
TUTTI_API tutti_status tutti_trainer_create(tutti_comm *comm, const tutti_train_options *options,
                                            tutti_trainer **trainer, tutti_error *error);
TUTTI_API void tutti_trainer_free(tutti_trainer *trainer); /* not collective; NULL is ignored */

typedef struct tutti_train_step {
    size_t struct_size;
    uint64_t step;       /* that was taken, from 1 */
    double loss;         /* mean over the global batch, before the step */
    double rate, norm;   /* learning rate, norm of the mean gradient before clipping */
    double rows;         /* tokens (or samples) of the global batch */
    double seconds;      /* of the step, on this rank */
    double comm_seconds; /* of these, in communication or waiting for it */
    bool stop;           /* some rank was asked to stop */
    bool hashed;         /* weights were compared: */
    uint64_t hash;
} tutti_train_step;

/* ERR_DIVERGED when a loss or gradient is not finite: the error says where it began, and the weights are those before
 * the step. ERR_MISMATCH when ranks have different weights. */
TUTTI_API tutti_status tutti_trainer_step(tutti_trainer *trainer, tutti_train_step *step);
/* Mean loss over the held-out samples. NaN where none are held out. */
TUTTI_API tutti_status tutti_trainer_validate(tutti_trainer *trainer, double *loss);
/* Rank 0 saves; the others return at once. A failure harms nothing: training may go on. */
TUTTI_API tutti_status tutti_trainer_save(tutti_trainer *trainer);
/* The next step tells all ranks. May be called from a signal handler. */
TUTTI_API void tutti_trainer_stop(tutti_trainer *trainer);
TUTTI_API const tutti_error *tutti_trainer_error(const tutti_trainer *trainer);

typedef struct tutti_train_about {
    size_t struct_size;
    uint64_t step;     /* taken so far */
    size_t parameters; /* numbers */
    int grains;        /* 0: fast */
    double flops_per_row;
    size_t rows_per_step;
    double entropy; /* of the data, or NaN */
    size_t samples, held_out_samples;
    const char *resumed_from; /* path, or NULL */
    /* bytes of this rank by purpose */
    size_t parameter_bytes, gradient_bytes, optimizer_bytes, activation_bytes, communication_bytes;
} tutti_train_about;

TUTTI_API void tutti_trainer_describe(const tutti_trainer *trainer, tutti_train_about *about);
TUTTI_API uint64_t tutti_trainer_hash(const tutti_trainer *trainer); /* of the weights, now */

/* ---- Sampling -------------------------------------------------------------------------------------------------- */

typedef struct tutti_sampler tutti_sampler;

/* A model of tokens from a checkpoint, or from the newest good one of a folder. */
TUTTI_API tutti_status tutti_sampler_create(const char *path, tutti_sampler **sampler, tutti_error *error);
TUTTI_API void tutti_sampler_free(tutti_sampler *sampler); /* NULL is ignored */
TUTTI_API size_t tutti_sampler_vocabulary(const tutti_sampler *sampler);
TUTTI_API const char *tutti_sampler_data(const tutti_sampler *sampler); /* what it was trained on */
/* The token after `count` others, of which the last that fit into the context matter. temperature 0: the likeliest.
 * top 0: of all tokens, otherwise of so many likeliest. The draw depends on seed and place alone. */
TUTTI_API tutti_status tutti_sampler_next(tutti_sampler *sampler, const int32_t *tokens, size_t count,
                                          double temperature, int top, uint64_t seed, uint64_t place, int32_t *next,
                                          tutti_error *error);

#ifdef __cplusplus
}
#endif

#endif
