/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of a ddp: a list of parameters of the user's own, and an optimizer's state of what each rank owns. All ranks
 * write ranges of the files, and each reads what it has, at any stage and on any number of ranks.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "collective/comm/comm.h"
#include "train/ddp.h"
#include "train/optimizer.h"
#include "train/pieces.h"
#include "train/train_agree.h"
#include <stdlib.h>
#include <string.h>

enum { ARRAYS = 1 + TTI_OPTIMIZER_STATES };
static const char steps_note[] = "optimizer.steps";

/* The values, and each of the optimizer's states. */
struct ddp_arrays {
    const struct tutti_ddp *ddp;
    const tutti_parameter *owned; /* [parts] */
    size_t parts;
    int count;
    const char *states[ARRAYS]; /* names; NULL for the values */
    float *values[ARRAYS];      /* of states: in the order of the owned parts */
    bool apart[ARRAYS];         /* each rank has a part only, that it owns */
    size_t *owned_at;           /* [parts + 1]: where each part begins in a state */
    tutti_checkpoint_tensor *list;
    char **names; /* [list_count] */
    size_t list_count;
};

/* ---- The list -------------------------------------------------------------------------------------------------- */

static void free_arrays(struct ddp_arrays *arrays)
{
    for (size_t i = 0; arrays->names != NULL && i < arrays->list_count; i++) tti_free(arrays->names[i]);
    tti_free(arrays->names);
    tti_free(arrays->list);
    tti_free(arrays->owned_at);
}

static void find_states(struct ddp_arrays *arrays, const tutti_optimizer *optimizer)
{
    const struct tutti_ddp *ddp = arrays->ddp;
    arrays->apart[0] = tti_ddp_passes_values(ddp) && ddp->zero.stage > 0;
    arrays->count = 1;
    while (optimizer != NULL && arrays->count < ARRAYS) {
        const char *name = tutti_optimizer_state(optimizer, arrays->count - 1, &arrays->values[arrays->count]);
        if (name == NULL) break;
        arrays->states[arrays->count] = name;
        arrays->apart[arrays->count++] = ddp->zero.stage > 0;
    }
}

static bool add_tensor(struct ddp_arrays *arrays, int array, const tutti_parameter *parameter)
{
    const char *state = arrays->states[array] == NULL ? "" : arrays->states[array];
    const char *name = parameter->name == NULL ? "" : parameter->name;
    const size_t room = strlen(state) + strlen(name) + 2;
    char *made = arrays->names[arrays->list_count] = tti_malloc(room, 1);
    if (made == NULL) return false;
    (void)snprintf(made, room, "%s%s%s", state, state[0] == '\0' ? "" : ".", name);
    arrays->list[arrays->list_count++] = (tutti_checkpoint_tensor){.group = array == 0 ? "model" : "optimizer",
                                                                   .name = made,
                                                                   .dimensions = 1,
                                                                   .shape = {(int64_t)parameter->count}};
    return true;
}

static tutti_status make_arrays(const struct tutti_ddp *ddp, const tutti_optimizer *optimizer,
                                struct ddp_arrays *arrays, tutti_error *error)
{
    bool good = true;
    *arrays = (struct ddp_arrays){.ddp = ddp};
    arrays->parts = tutti_ddp_owned(ddp, &arrays->owned);
    find_states(arrays, optimizer);
    const size_t all = (size_t)arrays->count * ddp->count;
    arrays->list = tti_calloc(all + 1, sizeof *arrays->list);
    arrays->names = tti_calloc(all + 1, sizeof *arrays->names);
    arrays->owned_at = tti_calloc(arrays->parts + 1, sizeof *arrays->owned_at);
    if (arrays->list == NULL || arrays->names == NULL || arrays->owned_at == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a list of %zu tensors", all);
    for (int a = 0; a < arrays->count; a++)
        for (size_t i = 0; good && i < ddp->count; i++) good = add_tensor(arrays, a, &ddp->parameters[i]);
    for (size_t p = 0; p < arrays->parts; p++) arrays->owned_at[p + 1] = arrays->owned_at[p] + arrays->owned[p].count;
    return good ? TUTTI_OK : tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a list of %zu tensors", all);
}

/* ---- Who has what ---------------------------------------------------------------------------------------------- */

/* Calls `run` for the elements lo..hi, counted over all parameters, of the parts that this rank lists as owned. */
static void owned_runs(const struct ddp_arrays *arrays, int array, struct tti_span elements, size_t start,
                       tti_array_run *run, void *with)
{
    for (size_t p = 0; p < arrays->parts; p++) {
        const size_t first = tutti_ddp_owned_first(arrays->ddp, p), end = first + arrays->owned[p].count;
        const size_t lo = first > elements.lo ? first : elements.lo, hi = end < elements.hi ? end : elements.hi;
        if (lo >= hi) continue;
        float *values = array == 0 ? arrays->owned[p].value : arrays->values[array] + arrays->owned_at[p];
        run(with, lo - start, hi - lo, values + (lo - first));
    }
}

static void all_runs(const void *of, size_t tensor, struct tti_span within, tti_array_run *run, void *with)
{
    const struct ddp_arrays *arrays = of;
    const struct tutti_ddp *ddp = arrays->ddp;
    const int array = (int)(tensor / ddp->count);
    const size_t index = tensor % ddp->count, start = ddp->starts[index];
    if (array == 0 && !tti_ddp_passes_values(ddp)) {
        if (within.hi > within.lo)
            run(with, within.lo, within.hi - within.lo, ddp->parameters[index].value + within.lo);
        return;
    }
    owned_runs(arrays, array, (struct tti_span){start + within.lo, start + within.hi}, start, run, with);
}

/* Ranks of one replica own everything together; where nothing is apart each rank has what it writes itself. */
static bool gives(const void *of, size_t tensor, int to)
{
    const struct ddp_arrays *arrays = of;
    const struct tutti_ddp *ddp = arrays->ddp;
    const int group = arrays->apart[tensor / ddp->count] ? ddp->size / ddp->zero.replicas : 1;
    return to / group == ddp->rank / group;
}

static struct tti_piece_source source_of(const struct ddp_arrays *arrays, tutti_error *error)
{
    bool whole = true;
    for (int a = 0; a < arrays->count; a++) whole = whole && !arrays->apart[a];
    return (struct tti_piece_source){.comm = arrays->ddp->comm,
                                     .here = arrays->ddp->here,
                                     .whole = whole,
                                     .list = arrays->list,
                                     .count = arrays->list_count,
                                     .gives = gives,
                                     .runs = all_runs,
                                     .context = arrays,
                                     .error = error};
}

static tutti_comm *comm_of(const struct tutti_ddp *ddp)
{
    return tutti_at(ddp->comm, ddp->here.file, ddp->here.line);
}

static tutti_status check(tutti_ddp *ddp, bool given, const char *call, tutti_error *error)
{
    if (ddp == NULL || !given)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%s: a ddp and a folder are needed", call);
    if (ddp->begun && ddp->last)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%s: a pass has begun: tutti_ddp_end comes first", call);
    return TUTTI_OK;
}

/* ---- Saving ---------------------------------------------------------------------------------------------------- */

/* What a save needs until it has ended. */
struct save {
    struct ddp_arrays arrays;
    tutti_note *notes;
    char steps[24];
    struct tti_checkpoint_content content;
    struct tti_saving saving;
    uint64_t *hashes;
};

static tutti_status prepare(tutti_ddp *ddp, const char *folder, uint64_t step, const tutti_optimizer *optimizer,
                            const tutti_note *notes, size_t note_count, struct save *save, tutti_error *error)
{
    TTI_TRY(make_arrays(ddp, optimizer, &save->arrays, error));
    save->notes = tti_calloc(note_count + 1, sizeof *save->notes);
    if (save->notes == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to save a checkpoint");
    for (size_t i = 0; i < note_count; i++) save->notes[i] = notes[i];
    const uint64_t taken = optimizer == NULL ? step : tutti_optimizer_steps(optimizer);
    (void)snprintf(save->steps, sizeof save->steps, "%llu", (unsigned long long)taken);
    save->notes[note_count] = (tutti_note){steps_note, save->steps};
    save->content = (struct tti_checkpoint_content){.notes = save->notes,
                                                    .note_count = note_count + 1,
                                                    .tensors = save->arrays.list,
                                                    .tensor_count = save->arrays.list_count,
                                                    .locked = ddp->rank != 0,
                                                    .elsewhere = true};
    TTI_TRY(tti_saving_make(folder, step, &save->content, &save->saving, error));
    save->hashes = tti_calloc(save->saving.plan->parts + 1, sizeof *save->hashes);
    if (save->hashes == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to save a checkpoint");
    return ddp->rank == 0 ? tti_saving_open(&save->saving, error) : TUTTI_OK;
}

static tutti_status write_all(tutti_ddp *ddp, struct save *save, int keep, tutti_error *error)
{
    struct tti_pieces pieces;
    const struct tti_piece_source source = source_of(&save->arrays, error);
    tutti_status status = tti_agree(comm_of(ddp), tti_pieces_make(&source, save->saving.plan, &pieces, error), error);
    if (status == TUTTI_OK)
        status = tti_saving_finish(&save->saving, save->hashes, comm_of(ddp), keep,
                                   tti_pieces_write(&pieces, &save->saving, save->hashes), error);
    tti_pieces_free(&pieces);
    return status;
}

tutti_status tutti_ddp_save(tutti_ddp *ddp, const char *folder, uint64_t step, int keep,
                            const tutti_optimizer *optimizer, const tutti_note *notes, size_t note_count,
                            tutti_error *error)
{
    tutti_error unused;
    if (error == NULL) error = &unused;
    *error = (tutti_error){.rank = ddp == NULL ? -1 : ddp->rank, .peer = -1, .operation = "ddp_save"};
    TTI_TRY(check(ddp, folder != NULL && (notes != NULL || note_count == 0), "ddp_save", error));
    struct save save = {.saving = {.lock = -1}};
    tutti_status status = tti_agree(comm_of(ddp),
                                    prepare(ddp, folder, step, optimizer, notes, note_count, &save, error), error);
    if (status == TUTTI_OK) status = write_all(ddp, &save, keep, error);
    tti_saving_end(&save.saving);
    free_arrays(&save.arrays);
    tti_free(save.notes);
    tti_free(save.hashes);
    if (status != TUTTI_OK) tti_comm_note(ddp->comm, error);
    return status;
}

/* ---- Loading --------------------------------------------------------------------------------------------------- */

/* Rank 0 finds the newest good checkpoint, and checks all of it; the others open the same one. */
static tutti_status find(tutti_ddp *ddp, const char *folder, char path[PATH_MAX], tutti_error *error)
{
    tutti_checkpoint *newest = NULL;
    tutti_status status = ddp->rank == 0 ? tutti_checkpoint_open(folder, true, &newest, error) : TUTTI_OK;
    if (newest != NULL) (void)snprintf(path, PATH_MAX, "%s", tutti_checkpoint_path(newest));
    tutti_checkpoint_free(newest);
    TTI_TRY(tti_agree(comm_of(ddp), status, error));
    status = tutti_broadcast(tti_inside(comm_of(ddp), "checkpoint", "path"), path, path, PATH_MAX, TUTTI_U8, 0);
    if (status != TUTTI_OK && tutti_comm_error(ddp->comm) != NULL) *error = *tutti_comm_error(ddp->comm);
    return status;
}

static tutti_status read_all(tutti_ddp *ddp, const char *path, tutti_optimizer *optimizer, uint64_t *step,
                             tutti_error *error)
{
    struct ddp_arrays arrays;
    tutti_checkpoint *checkpoint = NULL;
    tutti_status status = make_arrays(ddp, optimizer, &arrays, error);
    if (status == TUTTI_OK) status = tutti_checkpoint_open(path, false, &checkpoint, error);
    const struct tti_piece_source source = source_of(&arrays, error);
    if (status == TUTTI_OK) status = tti_pieces_read(&source, checkpoint, error);
    if (status == TUTTI_OK) {
        const char *taken = tutti_checkpoint_note(checkpoint, steps_note);
        *step = tutti_checkpoint_step(checkpoint);
        if (optimizer != NULL) tutti_optimizer_set_steps(optimizer, taken == NULL ? *step : strtoull(taken, NULL, 10));
    }
    tutti_checkpoint_free(checkpoint);
    free_arrays(&arrays);
    return status;
}

tutti_status tutti_ddp_load(tutti_ddp *ddp, const char *folder, tutti_optimizer *optimizer, uint64_t *step,
                            tutti_error *error)
{
    tutti_error unused;
    uint64_t ignored;
    char path[PATH_MAX] = "";
    if (error == NULL) error = &unused;
    *error = (tutti_error){.rank = ddp == NULL ? -1 : ddp->rank, .peer = -1, .operation = "ddp_load"};
    TTI_TRY(check(ddp, folder != NULL, "ddp_load", error));
    tutti_status status = find(ddp, folder, path, error);
    if (status == TUTTI_OK)
        status = tti_agree(comm_of(ddp), read_all(ddp, path, optimizer, step == NULL ? &ignored : step, error), error);
    if (status == TUTTI_OK && tti_ddp_passes_values(ddp)) { /* what was gathered before is of other values */
        status = tutti_ddp_spread(ddp);
        if (status != TUTTI_OK && tutti_comm_error(ddp->comm) != NULL) *error = *tutti_comm_error(ddp->comm);
    }
    if (status != TUTTI_OK) tti_comm_note(ddp->comm, error);
    return status;
}
