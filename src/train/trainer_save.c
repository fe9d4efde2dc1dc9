/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving and resuming. Rank 0 writes and reads; the others get what it read. Nothing in a checkpoint depends on how many
 * ranks there were: parameters, optimizer state and the number of steps are all there is to go on from. With zero, rank 0
 * has the state of all parameters for as long as it writes or reads it.
 */
#define TUTTI_NO_CALL_SITES
#include "train/trainer.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "train/checkpoint.h"
#include "train/ddp.h"
#include "train/optimizer.h"
#include "train/options.h"
#include <stdlib.h>
#include <string.h>

enum { NOTES = 64, NAME = 2 * TUTTI_NAME_BYTES };

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

/* The optimizer's states of all parameters, on rank 0: its own memory, or with zero memory to gather them in. */
struct states {
    float *weights; /* of the model: its own memory, or with zero 3 gathered too */
    float *values[TTI_OPTIMIZER_STATES];
    int count;
    bool gathered, owns_weights;
};

static void states_free(struct states *states)
{
    for (int s = 0; states->gathered && s < states->count; s++) tti_free(states->values[s]);
    if (states->owns_weights) tti_free(states->weights);
}

static tutti_status states_make(const struct tutti_trainer *t, struct states *states, tutti_error *error)
{
    *states = (struct states){
        .gathered = t->options.zero > 0, .weights = t->values, .owns_weights = tti_trainer_passing_values(t)};
    if (states->owns_weights) states->weights = tti_calloc_aligned((t->elements + 1) * sizeof(float));
    bool made = states->weights != NULL;
    while (tutti_optimizer_state(t->optimizer, states->count, &states->values[states->count]) != NULL) {
        if (states->gathered) states->values[states->count] = tti_calloc_aligned((t->elements + 1) * sizeof(float));
        made = made && states->values[states->count] != NULL;
        states->count++;
        if (states->count == TTI_OPTIMIZER_STATES) break;
    }
    if (made) return TUTTI_OK;
    states_free(states);
    states->count = 0;
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for the optimizer's state of all %zu parameters",
                         tutti_model_parameters(t->model));
}

/* Everyone's part to rank 0. */
static tutti_status states_gather(struct tutti_trainer *t, const struct states *states)
{
    float *mine = NULL;
    if (tti_trainer_passing_values(t))
        TTI_TRY(tutti_ddp_gather_owned(t->ddp, tti_ddp_owned_values(t->ddp), t->rank == 0 ? states->weights : NULL));
    for (int s = 0; t->options.zero > 0 && tutti_optimizer_state(t->optimizer, s, &mine) != NULL; s++)
        TTI_TRY(tutti_ddp_gather_owned(t->ddp, mine, t->rank == 0 ? states->values[s] : NULL));
    return TUTTI_OK;
}

static void add_tensor(struct tensors *tensors, const char *group, const char *prefix, const tutti_tensor *tensor,
                       float *base)
{
    char *name = tensors->names[tensors->count];
    (void)snprintf(name, NAME, "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".", tensor->name);
    tutti_checkpoint_tensor *made = &tensors->list[tensors->count++];
    *made = (tutti_checkpoint_tensor){
        .group = group, .name = name, .dimensions = tensor->dimensions, .values = base + tensor->offset};
    memcpy(made->shape, tensor->shape, sizeof made->shape);
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
    for (int i = 0; i < count; i++) add_tensor(tensors, "model", "", tutti_model_tensor(t->model, i), states->weights);
    for (int s = 0; s < states->count; s++) {
        const char *name = tutti_optimizer_state(t->optimizer, s, NULL);
        for (int i = 0; i < count; i++)
            add_tensor(tensors, "optimizer", name, tutti_model_tensor(t->model, i), states->values[s]);
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
    add_number(notes, "layout.ranks", (uint64_t)t->size, "%llu");
    add_number(notes, "layout.grains", t->options.fast ? 0 : t->cells, "%llu");
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

/* With zero all ranks come here, and give rank 0 their part unless it has found already that it cannot save. */
static tutti_status save(struct tutti_trainer *t)
{
    struct states states = {0};
    tutti_status status = TUTTI_OK;
    if (t->rank == 0 && t->options.save[0] == '\0')
        status = tti_error_set(&t->error, TUTTI_ERR_ARGUMENT, 0, "no folder for checkpoints was given");
    else if (t->rank == 0)
        status = states_make(t, &states, &t->error);
    uint8_t goes_on = status == TUTTI_OK;
    const uint64_t hash = tutti_trainer_hash(t);
    if (t->options.zero > 0) {
        tutti_status met = tutti_broadcast(tti_inside(tti_trainer_comm(t), "checkpoint", "save"), &goes_on, &goes_on, 1,
                                           TUTTI_U8, 0);
        if (met == TUTTI_OK && goes_on) met = states_gather(t, &states);
        if (met != TUTTI_OK && status == TUTTI_OK) t->error = *tutti_comm_error(t->comm);
        if (status == TUTTI_OK) status = met;
    }
    if (t->rank == 0 && status == TUTTI_OK) status = write_checkpoint(t, &states, hash);
    states_free(&states);
    return status;
}

tutti_status tutti_trainer_save(tutti_trainer *t)
{
    tti_trainer_begin(t);
    return t->rank != 0 && t->options.zero == 0 ? TUTTI_OK : tti_trainer_end(t, "save", save(t));
}

/* ---- Resuming -------------------------------------------------------------------------------------------------- */

/* Options that a model is made of must be those of the checkpoint. Others may change; those that change what the run
 * computes are said. */
static tutti_status compare_options(const struct tutti_trainer *t, const tutti_checkpoint *checkpoint,
                                    tutti_error *error)
{
    static const char model[] = " model layers heads width context loss optimizer ";
    static const char local[] =
        " save save_every keep resume steps val_every val_samples check_every threads accumulate zero mesh ";
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

static tutti_status load(struct tutti_trainer *t, const tutti_checkpoint *checkpoint, const struct states *states,
                         tutti_error *error)
{
    struct tensors tensors;
    TTI_TRY(compare_options(t, checkpoint, error));
    compare_machine(checkpoint);
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
    TTI_TRY(states_make(t, states, error));
    TTI_TRY(tutti_checkpoint_open(t->options.save, true, &checkpoint, error));
    tutti_status status = load(t, checkpoint, states, error);
    tutti_checkpoint_free(checkpoint);
    return status;
}

static tutti_status share(struct tutti_trainer *t, const struct states *states)
{
    float *state = NULL;
    TTI_TRY(
        tutti_broadcast(tti_inside(tti_trainer_comm(t), "checkpoint", "resume"), &t->step, &t->step, 1, TUTTI_U64, 0));
    TTI_TRY(tutti_broadcast(tti_inside(tti_trainer_comm(t), "checkpoint", "resume"), t->resumed_from, t->resumed_from,
                            sizeof t->resumed_from, TUTTI_U8, 0));
    if (tti_trainer_passing_values(t))
        TTI_TRY(tutti_ddp_scatter_owned(t->ddp, states->weights, tti_ddp_owned_values(t->ddp)));
    else
        TTI_TRY(tutti_broadcast(tti_inside(tti_trainer_comm(t), "checkpoint", "resume"), t->values, t->values,
                                t->elements, TUTTI_F32, 0));
    for (int s = 0; tutti_optimizer_state(t->optimizer, s, &state) != NULL; s++)
        TTI_TRY(tutti_ddp_scatter_owned(t->ddp, t->rank == 0 ? states->values[s] : state, state));
    tutti_optimizer_set_steps(t->optimizer, t->step);
    return TUTTI_OK;
}

tutti_status tti_trainer_resume(struct tutti_trainer *t, tutti_error *error)
{
    struct states states = {0};
    tutti_status status = t->rank == 0 ? read_checkpoint(t, &states, error) : TUTTI_OK;
    status = tti_agree(tti_trainer_comm(t), status, error);
    if (status == TUTTI_OK) {
        status = share(t, &states);
        if (status != TUTTI_OK) *error = *tutti_comm_error(t->comm);
    }
    states_free(&states);
    return status;
}
