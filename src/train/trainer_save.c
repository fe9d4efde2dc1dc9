/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving and resuming. Rank 0 writes and reads; the others get what it read. Nothing in a checkpoint depends on how many
 * ranks there were: parameters, optimizer state and the number of steps are all there is to go on from. With zero, or
 * where ranks share the model, rank 0 has what is shared out, of all parameters, for as long as it writes or reads it; so it has
 * all of a model that is cut into width grains, whose tensors do not lie in their shapes.
 */
#define TUTTI_NO_CALL_SITES
#include "train/trainer.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "nn/model.h"
#include "train/checkpoint.h"
#include "train/ddp.h"
#include "train/optimizer.h"
#include "train/train_options.h"
#include <stdlib.h>
#include <string.h>

enum { NOTES = 64, NAME = 2 * TUTTI_NAME_BYTES };

/* Which order sums have, for checkpoints to note. 1: the two gradients of a tied weight are summed over grains apart. */
enum { SUMS = 1 };

/* ---- What is saved --------------------------------------------------------------------------------------------- */

struct tensors {
    tutti_checkpoint_tensor *list;
    char (*names)[NAME];
    size_t count;
};

static void tensors_free(struct tensors *tensors)
{
    tti_free(tensors->list);
    tti_free(tensors->names);
}

/* What rank 0 writes or reads: its own memory, or where ranks have parts, memory to gather them in. */
struct states {
    float *weights;                      /* of the model; NULL: on a rank that gives its part */
    float *values[TTI_OPTIMIZER_STATES]; /* the optimizer's, of all parameters */
    float *
        shard; /* with zero, of a model that is cut or shared: what this rank has of one array, with its owners' parts */
    float *pieces; /* where ranks share the model: a tensor or two on the way */
    int count;
    bool gathered, owns_weights;
};

/* True if all ranks take part in saving: what one has is not all. */
static bool is_shared_out(const struct tutti_trainer *t)
{
    return t->options.zero > 0 || t->pipeline != NULL || tti_trainer_shares_width(t);
}

/* True if a rank's arrays are not as whole ones are: in stages, or cut into width grains. */
static bool is_divided(const struct tutti_trainer *t)
{
    return t->pipeline != NULL || tti_trainer_is_cut(t);
}

/* True if a rank has no more of the weights than it owns. */
static bool weights_shared_out(const struct tutti_trainer *t)
{
    return tti_trainer_passing_values(t) && t->options.zero > 0;
}

static void states_free(struct states *states)
{
    for (int s = 0; states->gathered && s < states->count; s++) tti_free(states->values[s]);
    if (states->owns_weights) tti_free(states->weights);
    tti_free(states->shard);
    tti_free(states->pieces);
}

/* What those that share the model with rank 0 need, and it too. */
static bool allocate_divided(const struct tutti_trainer *t, struct states *states)
{
    bool made = true;
    if (!is_divided(t) || t->rank != 0) return true;
    if (t->options.zero > 0) made = (states->shard = tti_calloc_aligned((t->elements + 1) * sizeof(float))) != NULL;
    if (t->pipeline != NULL || tti_trainer_shares_width(t))
        made = (states->pieces = tti_calloc_aligned((tti_whole_pieces(t->model) + 1) * sizeof(float))) != NULL && made;
    return made;
}

static bool states_allocate(const struct tutti_trainer *t, struct states *states)
{
    const bool writes = tutti_rank(t->comm) == 0;
    const size_t bytes = (tti_whole_elements(t->model) + 1) * sizeof(float);
    bool made = allocate_divided(t, states);
    if (states->owns_weights && writes) made = (states->weights = tti_calloc_aligned(bytes)) != NULL && made;
    while (states->count < TTI_OPTIMIZER_STATES &&
           tutti_optimizer_state(t->optimizer, states->count, &states->values[states->count]) != NULL) {
        float **values = &states->values[states->count++];
        if (states->gathered) *values = writes ? tti_calloc_aligned(bytes) : NULL;
        made = made && (*values != NULL || !writes);
    }
    return made;
}

/* Also on ranks that write nothing: they count the states. */
static tutti_status states_make(const struct tutti_trainer *t, struct states *states, tutti_error *error)
{
    *states = (struct states){.gathered = is_shared_out(t) || is_divided(t),
                              .owns_weights = weights_shared_out(t) || is_divided(t)};
    if (!states->owns_weights) states->weights = tti_trainer_is_bf16(t) ? tti_ddp_owned_values(t->ddp) : t->values;
    if (states_allocate(t, states)) return TUTTI_OK;
    states_free(states);
    *states = (struct states){0};
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for all %zu parameters and the optimizer's state",
                         tutti_model_parameters(t->model));
}

/* One array: what owners have of it to the first of those that share the batch, and from those that share the model to rank
 * 0. */
static tutti_status gather_array(struct tutti_trainer *t, const struct states *states, const float *mine, bool owned,
                                 float *all)
{
    const bool first = t->rank == 0;
    float *shard = is_divided(t) ? states->shard : all;
    if (owned) TTI_TRY(tutti_ddp_gather_owned(t->ddp, mine, first ? shard : NULL));
    if (!first || (owned && !is_divided(t))) return TUTTI_OK;
    return tti_whole_collect(t, owned ? shard : mine, states->pieces, all);
}

/* Everyone's part to rank 0. Weights that need not be gathered are there. */
static tutti_status states_gather(struct tutti_trainer *t, const struct states *states)
{
    const bool passing = tti_trainer_passing_values(t);
    float *mine = passing ? tti_ddp_owned_values(t->ddp) : t->values;
    if (states->owns_weights) TTI_TRY(gather_array(t, states, mine, weights_shared_out(t), states->weights));
    for (int s = 0; s < states->count; s++) {
        (void)tutti_optimizer_state(t->optimizer, s, &mine);
        TTI_TRY(gather_array(t, states, mine, t->options.zero > 0, states->values[s]));
    }
    return TUTTI_OK;
}

/* Returns where the next tensor's values begin: they lie one behind the other, padding included. */
static float *add_tensor(struct tensors *tensors, const char *group, const char *prefix, const tutti_model *model,
                         int index, float *values)
{
    const tutti_tensor *tensor = tutti_model_tensor(model, index);
    char *name = tensors->names[tensors->count];
    (void)snprintf(name, NAME, "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".", tensor->name);
    tutti_checkpoint_tensor *made = &tensors->list[tensors->count++];
    *made = (tutti_checkpoint_tensor){.group = group, .name = name, .dimensions = tensor->dimensions, .values = values};
    memcpy(made->shape, tensor->shape, sizeof made->shape);
    return values + tti_whole_room(model, index);
}

/* The model's tensors, then each of the optimizer's states in the same shapes. */
static tutti_status list_tensors(const struct tutti_trainer *t, const struct states *states, struct tensors *tensors,
                                 tutti_error *error)
{
    int count = tutti_model_tensors(t->model);
    size_t all = (size_t)count * (size_t)(states->count + 1);
    *tensors = (struct tensors){.list = tti_calloc(all, sizeof *tensors->list),
                                .names = tti_calloc(all, sizeof *tensors->names)};
    if (tensors->list == NULL || tensors->names == NULL) {
        tensors_free(tensors);
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a list of tensors");
    }
    float *values = states->weights;
    for (int i = 0; i < count; i++) values = add_tensor(tensors, "model", "", t->model, i, values);
    for (int s = 0; s < states->count; s++) {
        const char *name = tutti_optimizer_state(t->optimizer, s, NULL);
        values = states->values[s];
        for (int i = 0; i < count; i++) values = add_tensor(tensors, "optimizer", name, t->model, i, values);
    }
    return TUTTI_OK;
}

struct notes {
    tutti_note list[NOTES];
    char texts[NOTES][TTI_TRAIN_TEXT];
    size_t count;
};

static void add_number(struct notes *notes, const char *name, uint64_t value, const char *format)
{
    char *text = notes->texts[notes->count];
    (void)snprintf(text, TTI_TRAIN_TEXT, format, (unsigned long long)value);
    notes->list[notes->count++] = (tutti_note){name, text};
}

static void make_notes(const struct tutti_trainer *t, uint64_t hash, struct notes *notes)
{
    notes->count = 0;
    for (size_t i = 0; i < tti_train_row_count; i++) {
        const struct tti_train_row *row = &tti_train_rows[i];
        const char *text = tti_train_text(&t->options, row, notes->texts[notes->count]);
        notes->list[notes->count++] = (tutti_note){row->row.name, text};
    }
    notes->list[notes->count++] = (tutti_note){"machine.cpu", tutti_cpu()};
    notes->list[notes->count++] = (tutti_note){"machine.blas", tutti_blas_name()};
    notes->list[notes->count++] = (tutti_note){"machine.kernels", tutti_nn_kernels_name()};
    add_number(notes, "layout.ranks", (uint64_t)tutti_size(t->comm), "%llu");
    add_number(notes, "layout.sums", SUMS, "%llu");
    add_number(notes, "layout.grains", t->options.fast ? 0 : t->cells, "%llu");
    add_number(notes, "layout.width_grains", (uint64_t)tutti_model_width_grains(t->model), "%llu");
    add_number(notes, "data.vocabulary", t->about.vocabulary, "%llu");
    add_number(notes, "data.features", t->about.features, "%llu");
    add_number(notes, "weights_hash", hash, "%016llx");
}

/* What transformers' GPT2LMHeadModel.from_pretrained needs to know beside the tensors; NULL: no memory. Ids that begin and
 * end texts are not known here, so there are none. */
static char *make_gpt2_config(const struct tutti_trainer *t)
{
    const tutti_train_options *o = &t->options;
    json_t *config = json_pack(
        "{s:s, s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:n, s:s, s:f, s:f, s:f, s:f, s:f, s:b, s:n, s:n}", "model_type",
        "gpt2", "architectures", "GPT2LMHeadModel", "torch_dtype", "float32", "vocab_size",
        (json_int_t)t->about.vocabulary, "n_positions", (json_int_t)o->context, "n_embd", (json_int_t)o->width,
        "n_layer", (json_int_t)o->layers, "n_head", (json_int_t)o->heads, "n_inner", "activation_function", "gelu_new",
        "layer_norm_epsilon", 1e-5, "initializer_range", 0.02, "embd_pdrop", o->dropout, "resid_pdrop", o->dropout,
        "attn_pdrop", o->dropout, "tie_word_embeddings", 1, "bos_token_id", "eos_token_id");
    char *text = config == NULL ? NULL : json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(config);
    return text;
}

static tutti_status save_all(struct tutti_trainer *t, const struct notes *notes, const struct tensors *tensors)
{
    bool gpt = !t->table;
    char *config = gpt ? make_gpt2_config(t) : NULL;
    if (gpt && config == NULL) return tti_error_set(&t->error, TUTTI_ERR_MEMORY, 0, "no memory to save a checkpoint");
    struct tti_checkpoint_text text = {.name = "config.json", .text = config};
    struct tti_checkpoint_content content = {.notes = notes->list,
                                             .note_count = notes->count,
                                             .tensors = tensors->list,
                                             .tensor_count = tensors->count,
                                             .texts = &text,
                                             .text_count = gpt,
                                             .locked = t->locked};
    tutti_status status = tti_checkpoint_save(t->options.save, t->step, (int)t->options.keep, &content, &t->error);
    free(config);
    return status;
}

static tutti_status write_checkpoint(struct tutti_trainer *t, const struct states *states, uint64_t hash)
{
    struct tensors tensors;
    struct notes *notes = tti_calloc(1, sizeof *notes);
    if (notes == NULL) return tti_error_set(&t->error, TUTTI_ERR_MEMORY, 0, "no memory to save a checkpoint");
    tutti_status status = list_tensors(t, states, &tensors, &t->error);
    if (status == TUTTI_OK) {
        make_notes(t, hash, notes);
        status = save_all(t, notes, &tensors);
        tensors_free(&tensors);
    }
    tti_free(notes);
    return status;
}

/* All ranks give rank 0 their part, unless one has found already that it cannot be. What is wrong rank 0 says. */
static tutti_status save_together(struct tutti_trainer *t, tutti_status status, const struct states *states)
{
    status = tti_agree(tti_trainer_comm(t), status, &t->error);
    if (status != TUTTI_OK) return tutti_rank(t->comm) != 0 && tutti_comm_error(t->comm) == NULL ? TUTTI_OK : status;
    const uint64_t hash = tutti_trainer_hash(t);
    status = states_gather(t, states);
    if (status != TUTTI_OK) return tti_trainer_comm_failed(t, status);
    return tutti_rank(t->comm) == 0 ? write_checkpoint(t, states, hash) : TUTTI_OK;
}

static tutti_status save_alone(struct tutti_trainer *t, const struct states *states)
{
    if (is_divided(t)) TTI_TRY(states_gather(t, states));
    return write_checkpoint(t, states, tutti_trainer_hash(t));
}

static tutti_status save(struct tutti_trainer *t)
{
    struct states states = {0};
    tutti_status status = TUTTI_OK;
    if (tutti_rank(t->comm) == 0 && t->options.save[0] == '\0')
        status = tti_error_set(&t->error, TUTTI_ERR_ARGUMENT, 0, "no folder for checkpoints was given");
    else
        status = states_make(t, &states, &t->error);
    if (is_shared_out(t))
        status = save_together(t, status, &states);
    else if (status == TUTTI_OK)
        status = save_alone(t, &states);
    states_free(&states);
    return status;
}

tutti_status tutti_trainer_save(tutti_trainer *t)
{
    tti_trainer_begin(t);
    return tutti_rank(t->comm) != 0 && !is_shared_out(t) ? TUTTI_OK : tti_trainer_end(t, "save", save(t));
}

/* ---- Resuming -------------------------------------------------------------------------------------------------- */

/* Options that a model is made of must be those of the checkpoint. Others may change; those that change what the run
 * computes are said. */
static tutti_status compare_options(const struct tutti_trainer *t, const tutti_checkpoint *checkpoint,
                                    tutti_error *error)
{
    static const char model[] = " model layers heads width context loss optimizer ";
    static const char local[] =
        " save save_every keep resume steps val_every val_samples check_every threads accumulate zero mesh pipeline "
        "micro stages width_grains recompute ";
    for (size_t i = 0; i < tti_train_row_count; i++) {
        const struct tti_train_row *row = &tti_train_rows[i];
        char here[TTI_TRAIN_TEXT], word[64];
        const char *there = tutti_checkpoint_note(checkpoint, row->row.name);
        const char *value = tti_train_text(&t->options, row, here);
        if (there == NULL || tti_note_is(there, value)) continue;
        (void)snprintf(word, sizeof word, " %s ", row->row.name);
        if (strstr(model, word) != NULL)
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                                 "%.240s is of another model: %s is %.64s there, %.64s here",
                                 tutti_checkpoint_path(checkpoint), row->row.name, there, value);
        if (strstr(local, word) == NULL)
            tti_log(TUTTI_WARN, "resuming with another %s: %s, the checkpoint has %s", row->row.name, value, there);
    }
    return TUTTI_OK;
}

/* Another CPU type or matrix library rounds otherwise: the run goes on, but no longer to the same bits. */
static void compare_machine(const tutti_checkpoint *checkpoint)
{
    const struct {
        const char *name, *here;
    } rows[] = {{"machine.cpu", tutti_cpu()},
                {"machine.blas", tutti_blas_name()},
                {"machine.kernels", tutti_nn_kernels_name()}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *there = tutti_checkpoint_note(checkpoint, rows[i].name);
        if (there != NULL && strcmp(there, rows[i].here) != 0)
            tti_log(TUTTI_WARN,
                    "resuming on another machine, which may round otherwise: %s is %s, the checkpoint has %s",
                    rows[i].name, rows[i].here, there);
    }
}

/* Models without a tied weight, and --fast, have the sums that they always had. */
static void compare_sums(const struct tutti_trainer *t, const tutti_checkpoint *checkpoint)
{
    const char *there = tutti_checkpoint_note(checkpoint, "layout.sums");
    if (t->tie.elements > 0 && (there == NULL || atoi(there) != SUMS))
        tti_log(TUTTI_WARN,
                "resuming with another order of sums than the checkpoint was made with: last bits may differ "
                "from those of a run that was never stopped");
}

/* Checkpoints that do not note it are of models that were not cut. */
static void compare_width(const struct tutti_trainer *t, const tutti_checkpoint *checkpoint)
{
    const char *note = tutti_checkpoint_note(checkpoint, "layout.width_grains");
    const int here = tutti_model_width_grains(t->model), there = note == NULL ? 1 : atoi(note);
    if (here != there)
        tti_log(TUTTI_WARN,
                "resuming with %d width grains, the checkpoint has %d: last bits may differ from those of a run that "
                "was never stopped; --width-grains %d keeps them",
                here, there, there);
}

static tutti_status load(struct tutti_trainer *t, const tutti_checkpoint *checkpoint, const struct states *states,
                         tutti_error *error)
{
    struct tensors tensors;
    TTI_TRY(compare_options(t, checkpoint, error));
    compare_machine(checkpoint);
    compare_sums(t, checkpoint);
    compare_width(t, checkpoint);
    TTI_TRY(list_tensors(t, states, &tensors, error));
    tutti_status status = tutti_checkpoint_load(checkpoint, tensors.list, tensors.count, error);
    tensors_free(&tensors);
    t->step = tutti_checkpoint_step(checkpoint);
    (void)snprintf(t->resumed_from, sizeof t->resumed_from, "%s", tutti_checkpoint_path(checkpoint));
    return status;
}

static tutti_status read_checkpoint(struct tutti_trainer *t, struct states *states, tutti_error *error)
{
    tutti_checkpoint *checkpoint = NULL;
    if (t->options.save[0] == '\0')
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "resume: say where the checkpoints are with save");
    TTI_TRY(tutti_checkpoint_open(t->options.save, true, &checkpoint, error));
    tutti_status status = load(t, checkpoint, states, error);
    tutti_checkpoint_free(checkpoint);
    return status;
}

/* One array from rank 0 to all: first to those that share the model with it. */
static tutti_status share_array(struct tutti_trainer *t, const struct states *states, float *all, bool owned,
                                float *mine)
{
    const bool divided = is_divided(t), first = t->rank == 0;
    float *shard = !owned ? mine : divided ? states->shard : all;
    if (first && divided) TTI_TRY(tti_whole_hand_out(t, all, states->pieces, shard));
    if (owned) return tutti_ddp_scatter_owned(t->ddp, shard, mine);
    return tutti_broadcast(tti_inside(tti_trainer_batch_comm(t), "checkpoint", "resume"),
                           first && !divided ? all : mine, mine, t->elements, TUTTI_F32, 0);
}

static tutti_status share_state(struct tutti_trainer *t, const struct states *states, int number)
{
    float *mine = NULL;
    (void)tutti_optimizer_state(t->optimizer, number, &mine);
    return share_array(t, states, states->values[number], t->options.zero > 0, mine);
}

static tutti_status share_weights(struct tutti_trainer *t, const struct states *states)
{
    const bool passing = tti_trainer_passing_values(t);
    float *mine = passing ? tti_ddp_owned_values(t->ddp) : t->values;
    TTI_TRY(share_array(t, states, states->weights, weights_shared_out(t), mine));
    return tti_tie_spread(&t->tie, t->ddp);
}

static tutti_status share(struct tutti_trainer *t, const struct states *states)
{
    TTI_TRY(
        tutti_broadcast(tti_inside(tti_trainer_comm(t), "checkpoint", "resume"), &t->step, &t->step, 1, TUTTI_U64, 0));
    TTI_TRY(tutti_broadcast(tti_inside(tti_trainer_comm(t), "checkpoint", "resume"), t->resumed_from, t->resumed_from,
                            sizeof t->resumed_from, TUTTI_U8, 0));
    TTI_TRY(share_weights(t, states));
    for (int s = 0; s < states->count; s++) TTI_TRY(share_state(t, states, s));
    tutti_optimizer_set_steps(t->optimizer, t->step);
    return TUTTI_OK;
}

tutti_status tti_trainer_resume(struct tutti_trainer *t, tutti_error *error)
{
    struct states states = {0};
    tutti_status status = states_make(t, &states, error);
    if (status == TUTTI_OK && tutti_rank(t->comm) == 0) status = read_checkpoint(t, &states, error);
    status = tti_agree(tti_trainer_comm(t), status, error);
    if (status == TUTTI_OK) {
        status = share(t, &states);
        if (status != TUTTI_OK) tti_trainer_mesh_error(t->comm, &t->mesh, error);
    }
    states_free(&states);
    return status;
}
