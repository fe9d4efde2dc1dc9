/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves. All ranks write ranges of the files. Nothing in a checkpoint depends on the number of ranks or on the part of
 * each: parameters, optimizer state and the number of steps are enough to go on from. A rank only needs memory for a
 * few pieces of 1 MiB, unless it saves in the background.
 */
#define TUTTI_NO_CALL_SITES
#include "train/trainer_save.h"
#include "base/alloc.h"
#include "base/status.h"
#include "nn/model.h"
#include "train/train_options.h"
#include "train/trainer.h"
#include <stdlib.h>

enum { NOTES = 64 };

/* ---- What is noted --------------------------------------------------------------------------------------------- */

struct tti_notes {
    tutti_note list[NOTES];
    char texts[NOTES][TTI_TRAIN_TEXT];
    size_t count;
};

static void add_number(struct tti_notes *notes, const char *name, uint64_t value, const char *format)
{
    char *text = notes->texts[notes->count];
    (void)snprintf(text, TTI_TRAIN_TEXT, format, (unsigned long long)value);
    notes->list[notes->count++] = (tutti_note){name, text};
}

static void make_notes(const struct tutti_trainer *t, uint64_t hash, struct tti_notes *notes)
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
    add_number(notes, "layout.ranks", (uint64_t)(t->server == NULL ? tutti_size(t->comm) : t->size), "%llu");
    if (t->server != NULL && t->server->updates != t->step)
        add_number(notes, "layout.updates", t->server->updates, "%llu");
    add_number(notes, "layout.sums", TTI_TRAINER_SUMS, "%llu");
    add_number(notes, "layout.grains", t->options.fast ? 0 : t->cells, "%llu");
    add_number(notes, "layout.width_grains", (uint64_t)tutti_model_width_grains(t->model), "%llu");
    add_number(notes, "data.vocabulary", t->about.vocabulary, "%llu");
    add_number(notes, "data.features", t->about.features, "%llu");
    add_number(notes, "weights_hash", hash, "%016llx");
}

/* Returns the configuration that transformers' GPT2LMHeadModel.from_pretrained needs besides the tensors; NULL: no
 * memory. Ids that begin and end texts are not known here, so there are none. */
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

/* Tells all ranks of the first rank that failed. */
static tutti_status agree(struct tutti_trainer *t, tutti_status status)
{
    return tti_agree(tti_trainer_comm(t), status, &t->error);
}

static tutti_status no_memory(struct tutti_trainer *t)
{
    return tti_error_set(&t->error, TUTTI_ERR_MEMORY, 0, "no memory to save a checkpoint");
}

/* ---- From the beginning to the end ----------------------------------------------------------------------------- */

/* Prepares the save; the same on all ranks. */
static tutti_status prepare(struct tutti_trainer *t, uint64_t hash, struct tti_save *save)
{
    const bool is_gpt = !t->table && t->own.make == NULL;
    save->notes = tti_calloc(1, sizeof *save->notes);
    save->config = is_gpt ? make_gpt2_config(t) : NULL;
    if (save->notes == NULL || (is_gpt && save->config == NULL)) return no_memory(t);
    make_notes(t, hash, save->notes);
    TTI_TRY(tti_arrays_make(t, &save->arrays, &t->error));
    save->text = (struct tti_checkpoint_text){.name = "config.json", .text = save->config};
    save->content = (struct tti_checkpoint_content){.notes = save->notes->list,
                                                    .note_count = save->notes->count,
                                                    .tensors = save->arrays.list,
                                                    .tensor_count = save->arrays.list_count,
                                                    .texts = &save->text,
                                                    .text_count = save->config != NULL,
                                                    .locked = t->world_rank != 0 || t->locked,
                                                    .elsewhere = true};
    TTI_TRY(tti_saving_make(t->options.save, t->step, &save->content, &save->saving, &t->error));
    save->hashes = tti_calloc(save->saving.plan->parts + 1, sizeof *save->hashes);
    return save->hashes == NULL ? no_memory(t) : TUTTI_OK;
}

tutti_status tti_save_begin(struct tutti_trainer *t, struct tti_save *save)
{
    *save = (struct tti_save){.saving = {.lock = -1}};
    tutti_status status = prepare(t, tti_trainer_hash(t), save);
    if (status == TUTTI_OK && t->world_rank == 0) status = tti_saving_open(&save->saving, &t->error);
    status = agree(t, status);
    if (status == TUTTI_OK) tti_trainer_watched(t, TUTTI_TRAIN_AT_SAVE, t->step);
    return status;
}

tutti_status tti_save_end(struct tti_save *save, tutti_comm *comm, int keep, tutti_status written, tutti_error *error)
{
    return tti_saving_finish(&save->saving, save->hashes, comm, keep, written, error);
}

void tti_save_free(struct tti_save *save)
{
    tti_saving_end(&save->saving);
    tti_arrays_free(&save->arrays);
    tti_free(save->notes);
    tti_free(save->hashes);
    free(save->config);
    *save = (struct tti_save){.saving = {.lock = -1}};
}

static tutti_status write_now(struct tutti_trainer *t, struct tti_save *save)
{
    struct tti_pieces pieces;
    const struct tti_piece_source source = tti_arrays_source(&save->arrays, &t->error);
    tutti_status status = agree(t, tti_pieces_make(&source, save->saving.plan, &pieces, &t->error));
    if (status == TUTTI_OK)
        status = tti_save_end(save, tti_trainer_comm(t), (int)t->options.keep,
                              tti_pieces_write(&pieces, &save->saving, save->hashes), &t->error);
    tti_pieces_free(&pieces);
    return status;
}

static tutti_status save_now(struct tutti_trainer *t)
{
    struct tti_save save;
    tutti_status status = tti_save_begin(t, &save);
    if (status == TUTTI_OK) status = write_now(t, &save);
    tti_save_free(&save);
    return status;
}

/* Saves with parameter servers: one worker does it. */
static tutti_status save_from_servers(struct tutti_trainer *t)
{
    bool saves = false;
    tutti_status status = tti_trainer_server_save(t, &saves);
    if (status == TUTTI_OK && saves) status = save_now(t);
    tti_trainer_server_saved(t);
    return status;
}

tutti_status tutti_trainer_save(tutti_trainer *t)
{
    TTI_TRY(tti_trainer_usable(t));
    tti_trainer_begin(t);
    if (t->options.save[0] == '\0') {
        tutti_status none = tti_error_set(&t->error, TUTTI_ERR_ARGUMENT, 0, "no folder for checkpoints was given");
        return tti_trainer_end(t, "save", none);
    }
    if (tutti_trainer_serves(t)) return tti_trainer_refuse_server(t, "save");
    if (t->server != NULL) return tti_trainer_end(t, "save", save_from_servers(t));
    return tti_trainer_end(t, "save", t->background == NULL ? save_now(t) : tti_background_save(t));
}

tutti_status tutti_trainer_save_wait(tutti_trainer *t)
{
    TTI_TRY(tti_trainer_usable(t));
    tti_trainer_begin(t);
    return tti_trainer_end(t, "save_wait", tti_background_failed(t, true) ? t->error.status : TUTTI_OK);
}
