/* SPDX-License-Identifier: Apache-2.0
 *
 * Tutti: training. Models are in nn.h; nothing here needs one but the trainer and the sampler.
 *
 *     tutti_train_options options;
 *     tutti_train_options_init(&options);
 *     options.data = "src";
 *     if (tutti_trainer_create(world, &options, &trainer, &error) != TUTTI_OK) …
 *     while (step.step < 1000 && tutti_trainer_step(trainer, &step) == TUTTI_OK) printf("%g\n", step.loss);
 *
 * Whoever computes gradients otherwise gives a list of parameters to tutti_ddp and tutti_optimizer: examples/ddp.c.
 * Conventions are those of tutti.h.
 */
#ifndef TUTTI_TRAIN_H
#define TUTTI_TRAIN_H

#include <tutti/actor.h>
#include <tutti/nn.h>
#include <tutti/pipeline.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Parameters ------------------------------------------------------------------------------------------------ */
/* A list of these is trained: a model's, or one's own. */

typedef struct tutti_parameter {
    const char *name;
    float *value, *gradient; /* (count) each */
    size_t count;
    bool decays; /* weight decay applies to it */
} tutti_parameter;

/* The model's tensors as such a list, as many as tutti_model_list_count says, in the order of memory: one for each tensor,
 * and for one that is cut, one for each width grain that is here. Counts include the padding behind each, so that the list
 * covers the allocation without gaps. Tensors of two dimensions or more decay. */
TUTTI_API tutti_status tutti_model_list(tutti_model *model, tutti_parameter *parameters);
TUTTI_API size_t tutti_model_list_count(const tutti_model *model);

/* For a whole model whose width ranks share (tutti_model_place): the norm of its gradients and a hash of its values.
 * Collective over these ranks, whose number changes no bit of either. On one rank the norm is tutti_gradient_norm's of
 * the model's list. tutti_model_error tells of failures. */
TUTTI_API tutti_status tutti_model_norm(tutti_model *model, double *norm);
TUTTI_API tutti_status tutti_model_hash(tutti_model *model, uint64_t *hash);

/* The square root of the sum of the squares of all gradients. With a comm, ranks (which must hold the same gradients)
 * share the work. The bits do not depend on the number of ranks. */
TUTTI_API tutti_status tutti_gradient_norm(tutti_comm *comm, const tutti_parameter *parameters, size_t count,
                                           double *norm);

/* A hash of all values in the order of the list: equal hashes, equal weights. */
TUTTI_API uint64_t tutti_weights_hash(const tutti_parameter *parameters, size_t count);

/* Compares the ranks' hashes. `odd` (may be NULL) gets the lowest rank that differs from rank 0, or -1. */
TUTTI_API tutti_status tutti_weights_compare(tutti_comm *comm, uint64_t hash, int *odd);

/* ---- Optimizers and schedules ---------------------------------------------------------------------------------- */

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
/* The same on the threads of a pass: the same bits. */
TUTTI_API void tutti_optimizer_step_on(tutti_optimizer *optimizer, tutti_pass *pass, double rate, double scale);

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

/* ---- Data ------------------------------------------------------------------------------------------------------ */

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
TUTTI_API void tutti_data_free(tutti_data *data); /* NULL is ignored */
TUTTI_API void tutti_data_describe(const tutti_data *data, tutti_data_about *about);

/* Sample number `index` of the order (step * batch + place in the batch). Every epoch goes through all samples once, in
 * an order that depends on the seed and the epoch, and begins a little elsewhere. Held-out samples come in order, and
 * from the first again after the last. Files are read where they are mapped, and must stay as they are: one that has
 * shrunk is ERR_DAMAGED. */
TUTTI_API tutti_status tutti_data_tokens(const tutti_data *data, bool held_out, uint64_t index, int32_t *tokens,
                                         int32_t *targets, tutti_error *error); /* (context) each */
/* Reads a row of a table. If there is no such row the target is NaN, and no features are set. */
TUTTI_API void tutti_data_row(const tutti_data *data, bool held_out, uint64_t index, float *features, float *target);

/* ---- Checkpoints ----------------------------------------------------------------------------------------------- */
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

/* Tensors of a group stand next to each other. Names are UTF-8, and no two of a group are the same. Values of notes may
 * be of any bytes: those that make no UTF-8 are kept as \xNN. Of the checkpoints before this one the last keep - 1 stay
 * (keep 0: all). On failure the folder is as it was, and the error says why. */
TUTTI_API tutti_status tutti_checkpoint_save(const char *folder, uint64_t step, int keep, const tutti_note *notes,
                                             size_t note_count, const tutti_checkpoint_tensor *tensors,
                                             size_t tensor_count, tutti_error *error);

typedef struct tutti_checkpoint tutti_checkpoint;

/* Opens the checkpoint at `path` and, with `verify`, reads all of it against its hashes: ERR_DAMAGED names what is
 * wrong. `path` may also be the folder of checkpoints: then the newest good one, and damaged ones are passed over with
 * a warning in the log. */
TUTTI_API tutti_status tutti_checkpoint_open(const char *path, bool verify, tutti_checkpoint **checkpoint,
                                             tutti_error *error);
TUTTI_API void tutti_checkpoint_free(tutti_checkpoint *checkpoint); /* NULL is ignored */
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

/* ---- Data parallel --------------------------------------------------------------------------------------------- */
/* Every rank has all parameters and computes gradients of its own samples; tutti_ddp sums them over the ranks.
 *
 *     tutti_ddp_create(world, parameters, count, NULL, &ddp, &error);        all ranks get rank 0's values
 *     tutti_ddp_begin(ddp, true);
 *     … backward: gradients of sums, not of means; tutti_ddp_ready(ddp, i) as soon as gradient i is final …
 *     tutti_ddp_end(ddp, samples, &all_samples);                             gradients are sums over all ranks now
 *     tutti_optimizer_step(optimizer, rate, 1 / all_samples);
 *
 * Gradients are reduced in buckets, in the reverse order of the list, while the rest of backward runs. Ranks may have
 * different numbers of samples, or none: one that has none calls begin and end, with a count of 0. One that has some makes
 * all parameters ready: what it forgets would be missing in every rank's sums, and is an error on all of them.
 *
 * With options.grains the result does not depend on the number of ranks, bit for bit: the global batch is cut into that
 * many grains, rank r works on grains tutti_ddp_grains gives it, and hands over one gradient per subtree of the
 * canonical tree over all grains (tutti_ddp_partials), which is what tutti_pass_backward makes. docs/training.md.
 *
 * With options.zero (ZeRO) every rank owns a part of all elements, and keeps for that part only: 1 the optimizer's state,
 * 2 the sums of gradients too, 3 the values too. Weights are the same, bit for bit:
 *
 *     size_t owned_count = tutti_ddp_owned(ddp, &owned);                     once
 *     tutti_optimizer_create(&settings, owned, owned_count, &optimizer, &error);
 *     … tutti_ddp_end(ddp, samples, &all_samples);                           gradients are sums where this rank owns them
 *     tutti_optimizer_step(optimizer, rate, 1 / all_samples);
 *     tutti_ddp_spread(ddp);                                                 owners give their new values to all
 *
 * The same program runs with zero 0: then all of it is owned by everyone, and spreading does nothing.
 *
 * From zero 2 on the gradients of a parameter have memory only from when it is asked for until it is ready, and parameters
 * need none of their own (`gradient` may be NULL); with zero 3 that holds for values too:
 *
 *     … forward, backward: tutti_ddp_need(ddp, i, &values); … tutti_ddp_done(ddp, i);          of zero 3, on all ranks alike
 *     … backward, from the end of the list: tutti_ddp_gradient(ddp, i, &gradient); … tutti_ddp_ready(ddp, i);
 *
 * which give the parameters' own memory below these stages. Values that parameters bring with them to zero 3 are rank 0's,
 * and not looked at again; where they are NULL they begin as zeros, and may be set in the parts that tutti_ddp_owned
 * lists.
 *
 * With options.bf16, at any stage, the ddp has the values, as with zero 3: they come by tutti_ddp_need, as f32 that were rounded
 * to bf16. What tutti_ddp_owned lists are f32 masters, which the optimizer works on; tutti_ddp_spread rounds them for
 * everyone, also after whoever else has set them. Gradients are f32. */

typedef struct tutti_ddp tutti_ddp;

typedef struct tutti_ddp_options {
    size_t struct_size;
    size_t bucket_bytes;       /* 0: 25 MB */
    size_t first_bucket_bytes; /* 0: 1 MB; small, so that the first can start early */
    int grains;                /* 0: gradients of ranks are summed as they are */
    bool allow_unused;         /* parameters that a rank does not make ready count as zeros there */
    int zero;                  /* 1, 2, 3: each rank owns a part of all elements, as above; 0: none do */
    int replicas;              /* with zero: groups of successive ranks that own everything each; 0: one */
    int pass_grains;           /* with grains and zero 2 or 3: the most grains of a rank in one pass; 0: any number */
    const int *groups;         /* NULL, or a number per parameter: those next to each other with the same number are
                                * reduced, and with zero 3 gathered, together */
    bool bf16;                 /* values are kept and sent as bf16, and owners keep theirs as f32 too, as below */
} tutti_ddp_options;

/* Collective. The list and what it points to must outlive the ddp. Errors of collectives are in the comm. */
TUTTI_API tutti_status tutti_ddp_create(tutti_comm *comm, const tutti_parameter *parameters, size_t count,
                                        const tutti_ddp_options *options, tutti_ddp **ddp, tutti_error *error);
TUTTI_API void tutti_ddp_free(tutti_ddp *ddp); /* not collective; NULL is ignored */

/* Calls that come out of order, and parameters that are ready twice in a pass, are ERR_ARGUMENT. */
/* A backward pass begins. `last` false: it only accumulates, and nothing is sent; from zero 2 on each pass sends what it
 * has, and beginning the next one is collective. With grains, such a step has tutti_ddp_passes passes, which each have
 * their own tutti_ddp_grains and tutti_ddp_partials. */
TUTTI_API tutti_status tutti_ddp_begin(tutti_ddp *ddp, bool last);
TUTTI_API tutti_status tutti_ddp_ready(tutti_ddp *ddp, size_t index);
/* The same for a run of elements, counted over all parameters one after the other: for tutti_pass_backward. */
TUTTI_API tutti_status tutti_ddp_ready_run(tutti_ddp *ddp, size_t offset, size_t count);
/* Collective. Ends the pass that was begun with `last`. Parameters that were not all ready in some pass of this step
 * are ERR_ARGUMENT, which names them, on all ranks, and breaks the comm; but see allow_unused. *total (may be NULL)
 * gets the sum of all ranks' counts. */
TUTTI_API tutti_status tutti_ddp_end(tutti_ddp *ddp, double count, double *total);

/* Where the gradient of a parameter goes in this pass, until it is ready; with grains: of its first partial. */
TUTTI_API tutti_status tutti_ddp_gradient(tutti_ddp *ddp, size_t index, float **gradient);
/* The same for a run of elements of one group, of partial number `partial`: for tutti_backward. */
TUTTI_API tutti_status tutti_ddp_gradient_run(tutti_ddp *ddp, int partial, size_t offset, size_t count,
                                              float **gradients);
/* The values of a parameter, until tutti_ddp_done. With zero 3 collective over the ranks that own them together: all of
 * them ask for the same in the same order. The group that is likely next is on its way meanwhile. */
TUTTI_API tutti_status tutti_ddp_need(tutti_ddp *ddp, size_t index, const float **values);
TUTTI_API void tutti_ddp_done(tutti_ddp *ddp, size_t index);
/* The same for a run of elements of one group: for tutti_value_source. With zero 3 only. */
TUTTI_API tutti_status tutti_ddp_need_run(tutti_ddp *ddp, size_t offset, size_t count, const float **values);
TUTTI_API void tutti_ddp_done_run(tutti_ddp *ddp, size_t offset, size_t count);

/* The parts of parameters that this rank owns, in order: how many, and where they are until the ddp is freed. */
TUTTI_API size_t tutti_ddp_owned(const tutti_ddp *ddp, const tutti_parameter **owned);
/* The first element of one of these parts, counted over all parameters one after the other. */
TUTTI_API size_t tutti_ddp_owned_first(const tutti_ddp *ddp, size_t part);
/* Collective, after the optimizer's step: every rank gets the values of all elements from their owners. */
TUTTI_API tutti_status tutti_ddp_spread(tutti_ddp *ddp);
/* Collective, after tutti_ddp_end: the norm of all gradients, with the bits of tutti_gradient_norm. */
TUTTI_API tutti_status tutti_ddp_norm(tutti_ddp *ddp, double *norm);
/* Collective: a number per element that is owned, such as an optimizer's state, for checkpoints. Rank 0 gets everyone's, in
 * the order of all parameters; and hands them out. `all` counts on rank 0 only. */
TUTTI_API tutti_status tutti_ddp_gather_owned(tutti_ddp *ddp, const float *mine, float *all);
TUTTI_API tutti_status tutti_ddp_scatter_owned(tutti_ddp *ddp, const float *all, float *mine);

/* Collective: a checkpoint of the parameters, each as a tensor of one dimension, and of the optimizer's state (NULL: none), which
 * was created with what tutti_ddp_owned lists. All ranks write ranges of the files, and each reads what it has: no rank needs memory
 * for everything. Any number of ranks goes on from it with any stage of zero. Hosts share the folder. `notes` and `keep` as for
 * tutti_checkpoint_save. On failure every rank gets the same status; a save that has failed harms nothing. */
TUTTI_API tutti_status tutti_ddp_save(tutti_ddp *ddp, const char *folder, uint64_t step, int keep,
                                      const tutti_optimizer *optimizer, const tutti_note *notes, size_t note_count,
                                      tutti_error *error);
/* Collective: reads a checkpoint, or of a folder of checkpoints the newest good one: values, states and the optimizer's steps.
 * ERR_ARGUMENT where there is none. `step` may be NULL. */
TUTTI_API tutti_status tutti_ddp_load(tutti_ddp *ddp, const char *folder, tutti_optimizer *optimizer, uint64_t *step,
                                      tutti_error *error);

/* Name number `index` of the parameters that no pass of the last step made ready on this rank; NULL: no more. */
TUTTI_API const char *tutti_ddp_unused(const tutti_ddp *ddp, size_t index);
/* Seconds this rank has spent in communication, or waiting for it, since it was created. */
TUTTI_API double tutti_ddp_seconds(const tutti_ddp *ddp);
TUTTI_API size_t tutti_ddp_bytes(const tutti_ddp *ddp); /* of its buffers */

/* Where its next call is, for errors; as tutti_at. */
TUTTI_API tutti_ddp *tutti_ddp_at(tutti_ddp *ddp, const char *file, int line);

/* With grains: passes of a step; those of this rank in the pass that has begun (or the first one), `first` to `first
 * + count`; and where the gradient of each subtree goes (below zero 2). */
TUTTI_API int tutti_ddp_passes(const tutti_ddp *ddp);
TUTTI_API void tutti_ddp_grains(const tutti_ddp *ddp, int *first, int *count);
TUTTI_API int tutti_ddp_partials(const tutti_ddp *ddp, const int **bounds, float *const **gradients);

/* ---- Parameter server ------------------------------------------------------------------------------------------ */
/* Some ranks keep the parameters, the others, the workers, push gradients and pull values. A worker may be `staleness` steps
 * ahead of the slowest one:
 *
 *     tutti_server_create(world, parameters, count, &options, &server, &error);       all workers get rank 0's values
 *     if (tutti_server_serves(server)) tutti_server_serve(server);                    until all workers have left
 *     else for (…) {
 *         … backward: gradients of sums, not of means …
 *         tutti_server_push(server, &(tutti_push){.struct_size = sizeof(tutti_push), .rate = 0.01, .count = samples}, &pushed);
 *         tutti_server_pull(server);                                                  the newest values
 *     }
 *     tutti_server_free(server);
 *
 * Staleness 0: an update is the sum over all workers' gradients of a step, with the bits of tutti_ddp on as many ranks. More:
 * each push is an update of its own, made when it comes. Workers come and go: the others do not wait for one that has left or
 * is lost. A server that is lost is an error, by its rank, for all. examples/server.c; docs/training.md. */

typedef struct tutti_server tutti_server;

typedef struct tutti_server_options {
    size_t struct_size;
    int servers;                               /* the last ranks of the comm; 0: 1 */
    int staleness;                             /* steps that a worker may be ahead of the slowest */
    const tutti_optimizer_settings *optimizer; /* NULL: adamw as it is by default */
    double clip;                               /* largest norm of an update's mean gradient; 0: any */
    int64_t deadline_ms; /* how long a push waits for others before ERR_TIMEOUT names the slowest; 0: the world's */
} tutti_server_options;

/* Collective over `comm`, with the same options and list (names, counts) on all ranks. Servers need no values and
 * gradients in it. The list must outlive the server. On failure every rank gets the same status. */
TUTTI_API tutti_status tutti_server_create(tutti_comm *comm, const tutti_parameter *parameters, size_t count,
                                           const tutti_server_options *options, tutti_server **server,
                                           tutti_error *error);
/* Not collective: a worker leaves; a server ends, whether workers still need it or not. NULL is ignored. */
TUTTI_API void tutti_server_free(tutti_server *server);

/* True if this rank keeps a part of the parameters; false: it is a worker. */
TUTTI_API bool tutti_server_serves(const tutti_server *server);
/* A server's work, until every worker has left or is lost. Fails where another server is lost. */
TUTTI_API tutti_status tutti_server_serve(tutti_server *server);

typedef struct tutti_push {
    size_t struct_size;
    double rate;   /* learning rate; with staleness 0 that of the lowest worker holds */
    double count;  /* samples that gradients and loss are sums over */
    double loss;   /* for tutti_pushed only */
    bool catch_up; /* wait until all others have made as many steps: for the last one */
} tutti_push;

typedef struct tutti_pushed {
    size_t struct_size;
    uint64_t step;     /* of this worker, from 1; one that joins goes on from the slowest one's */
    uint64_t updates;  /* of the parameters so far */
    double loss, norm; /* of this update: means over its samples, the norm before clipping */
    double count;      /* of them */
    int64_t ahead;     /* steps of this worker more than the slowest one's, when this was answered */
} tutti_pushed;

/* Hands over the gradients and waits until this worker may go on. ERR_DIVERGED: loss or gradients are not finite,
 * and nothing was changed. `pushed` may be NULL. */
TUTTI_API tutti_status tutti_server_push(tutti_server *server, const tutti_push *push, tutti_pushed *pushed);
/* The newest values, into the parameters. With more than staleness 0 they may be of several updates. */
TUTTI_API tutti_status tutti_server_pull(tutti_server *server);

/* All workers have joined at first. One that leaves is not waited for until it joins again. */
TUTTI_API tutti_status tutti_server_leave(tutti_server *server);
TUTTI_API tutti_status tutti_server_join(tutti_server *server);

/* Where the launcher starts lost ranks again (tutti_comm_can_rebuild), the loss of one is ERR_PEER_LOST for pushes and for
 * tutti_server_serve, and nothing was changed by such a push. Then all call tutti_comm_rebuild, and this on the new world;
 * a worker that was started again calls tutti_server_create meanwhile, and tutti_server_pull after it. The values, and the
 * steps of the others, are as before, and the push is made again. If it fails with ERR_PEER_LOST, since another rank was
 * lost, it can be called on the next world. ERR_UNSUPPORTED: a server was lost, with its part of the parameters. To be
 * called before the old comm is freed.
 *
 * Workers can come, too: where processes wait to join (tutti_comm_waiting), one worker calls tutti_server_pause. All pushes
 * that were not answered, and tutti_server_serve, get ERR_EPOCH then, and all call tutti_comm_grow, and this; a process that
 * has joined is a worker, and calls what one does that was started again. If tutti_comm_grow fails this is called on the
 * server's own comm, so that it goes on as it is. */
TUTTI_API tutti_status tutti_server_renew(tutti_server *server, tutti_comm *comm);
TUTTI_API tutti_status tutti_server_pause(tutti_server *server);

/* Why the last call has failed; tutti_explain tells it too. */
TUTTI_API const tutti_error *tutti_server_error(const tutti_server *server);

/* ---- Shards of one's own --------------------------------------------------------------------------------------- */
/* For a model that its user has cut by its width, a shard for each rank, with no layers and no parameters of ours. A step calls
 * each rank's function with that rank's slice of the input, and puts together what they give:
 *
 *     tutti_shards_options options = {.struct_size = sizeof options, .step = step, .context = &shard};
 *     tutti_shards_create(world, &options, &shards, &error);
 *     while (…) tutti_shards_step(shards, input, count, &report);          report.output is the sum of all partial outputs
 *     tutti_shards_free(shards);
 *
 * Sums are made in the canonical tree over ranks, so they have the same bits wherever the ranks are. examples/shards.c;
 * docs/training.md. */

typedef struct tutti_shards tutti_shards;

enum { TUTTI_SHARDS_REASON_BYTES = 256 };

/* One step of one shard. What it gives counts where it returns TUTTI_OK. */
typedef struct tutti_shard_call {
    uint64_t step;      /* from 1 */
    const float *input; /* this rank's slice, */
    size_t inputs;      /* its numbers, which may be none, */
    size_t first;       /* and its first one's place in the whole input */
    const float *whole; /* NULL; for options.after: the sum of all partial outputs, */
    size_t wholes;      /* of so many numbers */
    /* to be set: */
    const float *output; /* this shard's partial output, which must stay until tutti_shards_step returns, */
    size_t outputs;      /* of as many numbers as that of every other rank; or none, where the slice is empty */
    double loss;         /* the sum over these samples */
    double samples;
    double norm_squared; /* the sum of the squares of this shard's gradients */
    char *reason;        /* (TUTTI_SHARDS_REASON_BYTES): a shard that fails may say why, for all ranks to read */
} tutti_shard_call;

/* Anything but TUTTI_OK ends the step, on all ranks, with that status and the reason. */
typedef tutti_status tutti_shard_function(void *context, tutti_shard_call *call);

typedef struct tutti_shards_options {
    size_t struct_size;
    tutti_shard_function *step;
    tutti_shard_function
        *after;          /* NULL, or called when the whole output is known: for a loss of it, and gradients. What `step`
                                  * has set of loss, samples and norm is still there, to be replaced */
    void *context;       /* of both */
    const size_t *sizes; /* (ranks): numbers of each rank's slice, the same on all; NULL: evenly */
    size_t unit;         /* evenly, but cut only behind so many numbers, or a multiple of it; 0: 1 */
} tutti_shards_options;

typedef struct tutti_shards_report {
    size_t struct_size;  /* to be set before the call */
    uint64_t step;       /* that was taken, from 1 */
    const float *output; /* the whole one, until the next step */
    size_t outputs;
    double loss;         /* sum of all losses over the sum of all samples; NaN where there are no samples */
    double samples;      /* of all ranks */
    double norm;         /* the root of the sum of all norm_squared */
    double seconds;      /* of the step, on this rank, */
    double comm_seconds; /* and of these what went by in communication, or waiting for other ranks */
} tutti_shards_report;

/* Collective, with the same sizes, unit and use of `after` on all ranks. On failure *shards is NULL and every rank
 * gets the same status; error->rank says which one it is about. */
TUTTI_API tutti_status tutti_shards_create(tutti_comm *comm, const tutti_shards_options *options, tutti_shards **shards,
                                           tutti_error *error);
TUTTI_API void tutti_shards_free(tutti_shards *shards); /* not collective; NULL is ignored */
/* The slice of a rank of an input of `count` numbers: `inputs` of them from `first` on. */
TUTTI_API tutti_status tutti_shards_slice(const tutti_shards *shards, size_t count, int rank, size_t *first,
                                          size_t *inputs);
/* Collective. `input`: the whole one, `count` numbers, on every rank; only its slice is read there. `report` may be
 * NULL, and is set after success only. Where a function has failed, or partial outputs have different lengths
 * (ERR_MISMATCH, which names two ranks and both lengths), or a loss or norm is not finite (ERR_DIVERGED), all ranks
 * get that status; the shards may step again. */
TUTTI_API tutti_status tutti_shards_step(tutti_shards *shards, const float *input, size_t count,
                                         tutti_shards_report *report);
/* Tells why the last call has failed, error->rank the rank it is about; NULL: it has not. tutti_explain tells it
 * too. */
TUTTI_API const tutti_error *tutti_shards_error(const tutti_shards *shards);
/* Where its next call is, for errors; as tutti_at. */
TUTTI_API tutti_shards *tutti_shards_at(tutti_shards *shards, const char *file, int line);

/* ---- All of it together ---------------------------------------------------------------------------------------- */
/* `tutti train` as functions, a step at a time. Every rank makes the same calls. */

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
    X(batch_norm, BOOL, "0", 0, 1, "of the mlp: batch norm behind each hidden layer, over the batch of all ranks")     \
    X(batch, INT, "16", 1, 16777216, "samples of a step, over all ranks")                                              \
    X(pipeline, TEXT, "", 0, 0,                                                                                        \
      "with pipe in the mesh, who does what when: gpipe, 1f1b, interleaved, zb-h1, zb-v or a file with a table; "      \
      "\"\": 1f1b")                                                                                                    \
    X(micro, INT, "0", 0, 1048576,                                                                                     \
      "with pipe, micro-batches of a rank's part of the batch; 0: as many as it has grains, up to 4 for each stage")   \
    X(stages, TEXT, "", 0, 0,                                                                                          \
      "with pipe, layers that each stage but the first begins with, such as h.2.ln_1,ln_f; \"\": balanced by what is " \
      "measured")                                                                                                      \
    X(grains, INT, "0", 0, 4096,                                                                                       \
      "parts of the batch that the result depends on instead of the ranks; 0: up to 16, a power of two")               \
    X(fast, BOOL, "0", 0, 1, "no grains: faster, and other ranks give other bits")                                     \
    X(zero, INT, "0", 0, 3,                                                                                            \
      "a rank keeps for its own part of the weights only: 1 the optimizer's state, 2 gradients too, 3 the weights "    \
      "too; the same weights")                                                                                         \
    X(type, TEXT, "f32", 0, 0,                                                                                         \
      "of the weights: f32, or bf16, which layers compute with as f32; the optimizer then keeps them as f32 too")      \
    X(mesh, TEXT, "", 0, 0,                                                                                            \
      "how ranks share the work, such as data=2,pipe=2,tensor=2: data and shard have other samples of the batch, "     \
      "--zero shares out what it says along shard, pipe has other layers, tensor other parts of each; \"\": all are "  \
      "data, and --zero shares it out among all")                                                                      \
    X(width_grains, INT, "0", 0, 1024,                                                                                 \
      "parts of the heads, hidden columns and vocabulary that the result depends on instead of the ranks along "       \
      "tensor; 0: up to 4, a power of two that divides the heads and leaves each 32 columns; with fast, none more "    \
      "than ranks")                                                                                                    \
    X(sequence, BOOL, "0", 0, 1,                                                                                       \
      "ranks along tensor share out rows too, where layers work on each row alone: less memory, the same bits")        \
    X(accumulate, INT, "1", 1, 65536, "passes that a rank's part of the batch is cut into, to need less memory")       \
    X(recompute, BOOL, "0", 0, 1,                                                                                      \
      "keep what is between residual branches only, and compute their insides again for backward: less memory, more "  \
      "time, the same weights; gpt")                                                                                   \
    X(server, INT, "0", 0, 65535,                                                                                      \
      "the last so many ranks are parameter servers, which keep weights and the optimizer's state; the others push "   \
      "gradients to them and pull values; 0: none")                                                                    \
    X(staleness, INT, "0", 0, 1000000,                                                                                 \
      "with --server, steps that a worker may be ahead of the slowest; 0: all together, and the weights of data "      \
      "parallel on as many workers")                                                                                   \
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
    X(save_async, BOOL, "0", 0, 1, "write checkpoints while training goes on, from a copy of what a rank writes")      \
    X(copy_every, INT, "1", 0, 1000000000000,                                                                          \
      "under tutti run --max-restarts: steps between copies of what no other rank has, in the memory of another "      \
      "process; 0: none, and a run that has lost a rank goes on from its last checkpoint")                             \
    X(keep, INT, "3", 0, 1000000, "checkpoints that stay; 0: all")                                                     \
    X(resume, BOOL, "0", 0, 1, "go on from the newest good checkpoint in the folder")                                  \
    X(check_every, INT, "50", 0, 1000000000000, "steps between comparisons of all ranks' weights; 0: never")

#define TUTTI_TRAIN_TYPE_INT int64_t
#define TUTTI_TRAIN_TYPE_BOOL bool
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

/* Makes data, model, optimizer and ddp, and resumes where asked. The folder of checkpoints, which all hosts share
 * under one path, is this run's until the trainer is freed: another run that is to save there is refused. On failure
 * *trainer is NULL and every rank gets the same status; error->rank says which one it is about. Texts of the options
 * must outlive the trainer. */
TUTTI_API tutti_status tutti_trainer_create(tutti_comm *comm, const tutti_train_options *options,
                                            tutti_trainer **trainer, tutti_error *error);

/* A model of one's own in the place of options.model: made of the layers of nn.h and of one's own, it is trained on every mesh,
 * with every stage of zero and every table, by the same calls. */
typedef struct tutti_train_model {
    size_t struct_size;
    const char *name; /* noted in checkpoints: a run goes on from those of a model of this name only */
    bool
        table; /* it learns from rows of a CSV file, whose targets are classes, or with options.loss "mse" numbers; else from
                       * tokens */
    /* Makes the model for these data and seals it, and does not place it or give it memory: the same layers on every rank and in every
     * call, of which each rank makes several. The trainer frees what lies in *model, after a failure too. Why it has failed is in the
     * model, or in the error. */
    tutti_status (*make)(void *context, const tutti_data_about *data, tutti_model **model, tutti_error *error);
    void *context;
} tutti_train_model;

/* The same as tutti_trainer_create, with this model. Of the options that describe a gpt or mlp only context (tokens) and loss (rows)
 * count. What it points to must outlive the trainer. */
TUTTI_API tutti_status tutti_trainer_create_model(tutti_comm *comm, const tutti_train_options *options,
                                                  const tutti_train_model *model, tutti_trainer **trainer,
                                                  tutti_error *error);
TUTTI_API void tutti_trainer_free(tutti_trainer *trainer); /* not collective; NULL is ignored */

/* With options.server: true if this rank serves. Then tutti_trainer_serve is all that it calls before
 * tutti_trainer_free; it returns when every worker has freed its trainer or is lost. Workers make the other calls,
 * in the same order; with staleness not at the same time, but validations, saves and hashes together. Of a save that
 * fails only the worker that writes learns. A worker that is lost is not waited for; one whose call fails by itself
 * leaves by tutti_trainer_free. */
TUTTI_API bool tutti_trainer_serves(const tutti_trainer *trainer);
TUTTI_API tutti_status tutti_trainer_serve(tutti_trainer *trainer);

typedef struct tutti_train_step {
    size_t struct_size;
    uint64_t step;         /* that was taken, from 1 */
    double loss;           /* mean over the global batch, before the step */
    double rate, norm;     /* learning rate, norm of the mean gradient before clipping */
    double rows;           /* tokens (or samples) of the global batch */
    double seconds;        /* of the step, on this rank */
    double comm_seconds;   /* of these, in communication or waiting for it */
    bool stop;             /* some rank was asked to stop */
    double idle;           /* with a pipeline: share of this rank's pipe's time without work; else NaN */
    double predicted_idle; /* the same by the table, from what steps took on average */
    bool hashed;           /* weights were compared: */
    uint64_t hash;
    double stale; /* with parameter servers: updates that others made between this rank's pull and its push; else NaN */
    int64_t ahead; /* then: steps of this rank more than the slowest one's, when its push was answered */
    bool
        save_failed; /* with save_async: this rank has learnt that a save failed; tutti_trainer_error says why. Training may go on */
} tutti_train_step;

/* ERR_DIVERGED when a loss or gradient is not finite: the error says where it began, and the weights are those before
 * the step. ERR_MISMATCH when ranks have different weights. */
TUTTI_API tutti_status tutti_trainer_step(tutti_trainer *trainer, tutti_train_step *step);
/* Mean loss over the held-out samples. NaN where none are held out. */
TUTTI_API tutti_status tutti_trainer_validate(tutti_trainer *trainer, double *loss);
/* Collective: all ranks write parts of the files. A failure, which all of them learn of, harms nothing: training may
 * go on. With save_async it waits for the save before, and returns when each rank has a copy of what it writes; what
 * comes of it a later step's save_failed says, or tutti_trainer_save_wait. One that nobody asked about is logged as
 * a warning. */
TUTTI_API tutti_status tutti_trainer_save(tutti_trainer *trainer);
/* Waits until a save in the background has ended. If it has failed and nobody was told yet, its status; else OK. */
TUTTI_API tutti_status tutti_trainer_save_wait(tutti_trainer *trainer);
/* Collective: rank 0 draws the last step as SVG, as tutti_pipeline_picture does: what all ranks did, with a
 * pipeline the steps of its table, without one their passes. `stream` (NULL: nothing is drawn) counts there only. ERR_ARGUMENT: no step was taken. */
TUTTI_API tutti_status tutti_trainer_timeline(tutti_trainer *trainer, const char *title, FILE *stream);
/* The next step tells all ranks. May be called from a signal handler. */
TUTTI_API void tutti_trainer_stop(tutti_trainer *trainer);
TUTTI_API const tutti_error *tutti_trainer_error(const tutti_trainer *trainer);
TUTTI_API tutti_trainer *tutti_trainer_at(tutti_trainer *trainer, const char *file, int line); /* as tutti_at */

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
    size_t saving_bytes; /* with save_async: the copy that is written while training goes on */
    size_t copy_bytes;   /* copies for going on after a loss: of what this rank has, and of what another one has */
    /* after a loss: "memory", "start", "servers", or the checkpoint's path; NULL: there was none since the trainer was made */
    const char *restored_from;
    const char *pipeline; /* the name or file of its table; NULL: the model is not in stages */
} tutti_train_about;

TUTTI_API void tutti_trainer_describe(const tutti_trainer *trainer, tutti_train_about *about);
/* Tells what tutti_trainer_describe would say on rank `rank` of `ranks` with these options, or the reason for which the
 * trainer refuses them. It runs the trainer's own functions, without other ranks and without memory for numbers. `data`
 * may be "" if a vocabulary is given. `copy_bytes` are those of a run whose lost ranks are started again, with a process
 * for each rank, on one host. */
TUTTI_API tutti_status tutti_train_plan(const tutti_train_options *options, int ranks, int rank,
                                        tutti_train_about *about, tutti_error *error);
/* Collective: returns the hash of all weights as they are now, as tutti_weights_hash does. It depends on the number of
 * width grains, but not on which rank has which. */
TUTTI_API uint64_t tutti_trainer_hash(const tutti_trainer *trainer);

/* ---- Going on after the loss of a rank ------------------------------------------------------------------------- */
/* Under tutti run --max-restarts a trainer survives the loss of ranks: other ranks have its state, or keep copies of
 * it.
 *
 *     tutti_status status = tutti_trainer_create(world, &options, &trainer, &error);  also in a process that was started again
 *     while (step.step < 1000)
 *         if (tutti_trainer_step(trainer, &step) != TUTTI_OK) {
 *             tutti_comm_rebuild(world, &world);                                    TUTTI_OK: all ranks are there again
 *             tutti_trainer_restore(trainer, world);
 *         }
 * examples/survive.c has the checks, too. */

/* Collective over a rebuilt world, or a comm made from it that has as many ranks: the trainer goes on there, with
 * the state after the newest step of which every part is had by some rank; else with that of the newest checkpoint
 * in `save`; else as at first. tutti_train_about says which. Ranks that were started again call
 * tutti_trainer_create, with the same options. If it fails, since another rank was lost, it can be called again on
 * the next world; until it has succeeded nothing else can be done with the trainer but to free it. */
TUTTI_API tutti_status tutti_trainer_restore(tutti_trainer *trainer, tutti_comm *comm);
/* Returns the last step that was taken, also by others before this rank was started again: what tutti_trainer_step told
 * of it, as far as it is the same on all ranks. NULL: none was taken, or the state is a checkpoint's. */
TUTTI_API const tutti_train_step *tutti_trainer_last(const tutti_trainer *trainer);

typedef enum tutti_train_phase {
    TUTTI_TRAIN_AT_STEP,      /* it begins */
    TUTTI_TRAIN_AT_GRADIENTS, /* this rank's are there, and are being summed over the ranks */
    TUTTI_TRAIN_AT_UPDATE,    /* what this rank owns is updated, and not yet spread */
    TUTTI_TRAIN_AT_SAVE       /* the files of a checkpoint are made, and not yet written */
} tutti_train_phase;
typedef void tutti_train_watch(void *context, tutti_train_phase phase, uint64_t step);
/* Calls `watch` on this rank in each step and save, such as to log, or to break something on purpose. NULL: no more. */
TUTTI_API void tutti_trainer_watch(tutti_trainer *trainer, tutti_train_watch *watch, void *context);

/* ---- Which layout ---------------------------------------------------------------------------------------------- */
/* `tutti plan` as functions: list layouts, and estimate each from what layers and links take. All of it is
 * arithmetic. */

typedef struct tutti_train_layout {
    int data, shard, pipe, tensor; /* the mesh */
    int zero;
    const char *pipeline; /* with a pipe: the table's name; else NULL */
    int micro;            /* with a pipe: micro-batches; else 0 */
    int accumulate;       /* passes */
    bool recompute;       /* of a gpt */
    bool sequence;        /* of a gpt, with tensor */
} tutti_train_layout;

enum { TUTTI_TRAIN_MESH_BYTES = 96, TUTTI_TRAIN_STAGES_BYTES = 2048 };

/* All layouts of so many ranks that differ from each other: meshes, ZeRO, tables, and numbers of micro-batches and
 * passes that the grains of a rank can be cut into. Returns how many; the first `room` go to `layouts`.
 * tutti_train_plan and tutti_train_estimate_layout say if the trainer takes one. */
TUTTI_API size_t tutti_train_layouts(const tutti_train_options *options, int ranks, tutti_train_layout *layouts,
                                     size_t room);
/* Sets a layout in the options, whose mesh then lies in `mesh`. If the width grains that the options give, or the model
 * chooses, do not divide among so many ranks along tensor, there are as many grains as these ranks. */
TUTTI_API void tutti_train_layout_set(const tutti_train_layout *layout, char mesh[TUTTI_TRAIN_MESH_BYTES],
                                      tutti_train_options *options);

/* A kind of transfer along a link. Its `bytes` are those of the whole sum, of what all ranks have in the end, of what
 * one rank has for all others (TO_ALL), or of one message. */
typedef enum tutti_train_op {
    TUTTI_TRAIN_ALL_REDUCE,
    TUTTI_TRAIN_REDUCE_SCATTER,
    TUTTI_TRAIN_ALL_GATHER,
    TUTTI_TRAIN_ALL_TO_ALL,
    TUTTI_TRAIN_SEND,
    TUTTI_TRAIN_OPS
} tutti_train_op;

/* One transfer between so many ranks, spread over so many hosts as evenly as can be. `sharing`: transfers that use a
 * host's link to others at the same time, this one included; 1 on one host. */
typedef struct tutti_train_transfer {
    tutti_train_op op;
    int ranks, hosts, sharing;
    size_t bytes;
} tutti_train_transfer;

/* Costs on a machine, in seconds, measured or made up. */
typedef struct tutti_train_costs {
    size_t struct_size;
    const tutti_pipeline_times *units; /* of one grain in each unit of the model, as tutti_train_measure has them */
    size_t unit_count;
    tutti_pipeline_times further; /* what each grain but the first of a pass takes more, as a share of these */
    double step;                  /* of each step of a pipeline, beside its layers and its messages */
    double update;                /* of one element: norm, optimizer */
    double add;                   /* of one element that is added to another */
    double (*link)(void *context, const tutti_train_transfer *transfer); /* NULL: no time */
    void *context;
    int cores;          /* that all ranks share; 0: each thread has one of its own */
    int ranks_per_host; /* successive ones; 0: all are on one host */
} tutti_train_costs;

/* Measures costs of the options' model as one of `tensor` ranks that share its width has them, on this thread: `further`,
 * `update` and `add`, which it sets, and the units. A unit lies between two places where the model may be cut. Returns how many
 * there are; the first `room` go to `units`, and all of them can be in `costs`. 0: the error says why. To be called on all cores
 * at once: then caches are shared as in training. */
TUTTI_API size_t tutti_train_measure(const tutti_train_options *options, int tensor, tutti_pipeline_times *units,
                                     size_t room, tutti_train_costs *costs, tutti_error *error);

typedef struct tutti_train_estimate {
    size_t struct_size;
    tutti_train_about memory; /* of the rank that needs most, */
    size_t bytes;             /* all purposes together but for the copies, */
    int rank;                 /* and which one that is */
    double seconds;           /* of a step */
    double compute_seconds;   /* of these, the passes of the slowest ranks, the table's idle time included, */
    double update_seconds;    /* norm, optimizer and sums over micro-batches, */
    double comm_seconds;      /* and the rest: gradients and values between ranks */
    double idle;              /* share of all ranks' time of the passes that is without work */
    size_t operations;        /* on data, of the rank that has most: of a step, without those of a few bytes */
    double sent_bytes;        /* by the rank that sends most */
    char stages[TUTTI_TRAIN_STAGES_BYTES]; /* with a pipe: where the model is cut, for options.stages */
} tutti_train_estimate;

/* Estimates the options' layout on so many ranks; if the trainer refuses it, that is the error. */
TUTTI_API tutti_status tutti_train_estimate_layout(const tutti_train_options *options, int ranks,
                                                   const tutti_train_costs *costs, tutti_train_estimate *estimate,
                                                   tutti_error *error);
/* Draws its passes as tutti_pipeline_picture does: with a pipe its ranks, which all other ranks are like, else all ranks. */
TUTTI_API tutti_status tutti_train_picture(const tutti_train_options *options, int ranks,
                                           const tutti_train_costs *costs, const char *title, FILE *stream,
                                           tutti_error *error);

/* ---- Trainers as actors ---------------------------------------------------------------------------------------- */
/* A step is a request here (actor.h): every rank makes its trainer an actor of one name, and any rank asks for steps of
 * all of them.
 *
 *     tutti_comm_duplicate(world, &own);                         the trainer's: its collectives run in the actors' threads
 *     tutti_trainer_create(own, &options, &trainer, &error);
 *     tutti_actors_create(world, NULL, &actors);
 *     tutti_trainer_actor(trainer, actors, "trainer");           on every rank; then tutti_barrier(world)
 *     tutti_trainer_ask_start(actors, "trainer", TUTTI_TRAIN_STEP, &step, 0, &op);        on any; the next one at once, too
 *     tutti_wait(op);
 *     tutti_actors_free(actors);                                 before the trainer
 *
 * The actor of rank 0 has all others do the same and answers when all have: requests are carried out in the order in
 * which they come to it. A failure on one rank is the request's error, with the rank's number. After the loss of a rank all
 * that was asked for and not done is answered with that, until the trainer is restored:
 *
 *     tutti_comm_rebuild(world, &next);                          on every rank that is left; a rank that was started again
 *     tutti_actors_renew(actors, next);                          makes all of it as above, in this order: actors, own, trainer
 *     tutti_comm_duplicate(next, &own);
 *     tutti_trainer_actor_restore(actors, "trainer", own, &step);    then tutti_barrier(next), and steps from `step` on */

typedef enum tutti_train_request {
    TUTTI_TRAIN_STEP,     /* tutti_trainer_step; loss, norm, rows and seconds are those of rank 0 */
    TUTTI_TRAIN_VALIDATE, /* tutti_trainer_validate; the answer's `loss` */
    TUTTI_TRAIN_SAVE      /* tutti_trainer_save; the answer's `step` */
} tutti_train_request;

/* The trainer is the actor's until that has ended. Its comm has the ranks of the actors', and is another comm. */
TUTTI_API tutti_status tutti_trainer_actor(tutti_trainer *trainer, tutti_actors *actors, const char *name);
/* Has the actor of this rank call tutti_trainer_restore, behind what was asked of it before, and waits for it. Every rank
 * that has its trainer calls it after tutti_actors_renew, with a comm of the rebuilt world that is the trainer's from
 * then on. *step (may be NULL) gets the step after which all go on. If it has failed, since another rank was lost, it
 * is called again in the next world. */
TUTTI_API tutti_status tutti_trainer_actor_restore(tutti_actors *actors, const char *name, tutti_comm *comm,
                                                   uint64_t *step);
/* `answer` must stay until the op has ended. deadline_ms 0: that of the actors' options. */
TUTTI_API tutti_status tutti_trainer_ask_start(tutti_actors *actors, const char *name, tutti_train_request request,
                                               tutti_train_step *answer, int64_t deadline_ms, tutti_op *op);
/* The same, and waits; `answer` may be NULL. */
TUTTI_API tutti_status tutti_trainer_ask(tutti_actors *actors, const char *name, tutti_train_request request,
                                         tutti_train_step *answer, int64_t deadline_ms);

/* ---- Sampling -------------------------------------------------------------------------------------------------- */

typedef struct tutti_sampler tutti_sampler;

/* A model of tokens from a checkpoint, or from the newest good one of a folder. */
TUTTI_API tutti_status tutti_sampler_create(const char *path, tutti_sampler **sampler, tutti_error *error);
TUTTI_API void tutti_sampler_free(tutti_sampler *sampler); /* NULL is ignored */
TUTTI_API size_t tutti_sampler_vocabulary(const tutti_sampler *sampler);
TUTTI_API const char *tutti_sampler_data(const tutti_sampler *sampler); /* what it was trained on */
/* Gives the model's logits for the token after `count` others: (vocabulary). The last tokens count, as many as fit into
 * the context: at least seven eighths of it. A call that goes on from the tokens of the last one costs only the new
 * ones. */
TUTTI_API tutti_status tutti_sampler_logits(tutti_sampler *sampler, const int32_t *tokens, size_t count, float *logits,
                                            tutti_error *error);
/* Draws the token after `count` others. temperature 0: the likeliest. top 0: of all tokens, otherwise of so many
 * likeliest. The draw depends on seed and place alone. */
TUTTI_API tutti_status tutti_sampler_next(tutti_sampler *sampler, const int32_t *tokens, size_t count,
                                          double temperature, int top, uint64_t seed, uint64_t place, int32_t *next,
                                          tutti_error *error);

#define TUTTI_TRAIN_DECLARED
#include <tutti/call_sites.h>

#ifdef __cplusplus
}
#endif
#endif
