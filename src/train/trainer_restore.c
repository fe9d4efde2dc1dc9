/* SPDX-License-Identifier: Apache-2.0
 *
 * Goes on in a world that was rebuilt. Each rank that has lived through the loss keeps its images, is made anew on the
 * new comm together with those that were started again, and tells which images it has. All find the same newest step
 * for which some rank has the image of every class; a rank without its own gets it. If there is none, all go on from
 * the checkpoint.
 *
 * Held images are freed only when this rank is restored: if another one is lost meanwhile, they are there for the next
 * attempt.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/comm/comm.h"
#include "train/trainer.h"
#include "train/trainer_copy.h"
#include <string.h>

/* ---- What is held ---------------------------------------------------------------------------------------------- */

/* Holds the present state, if every rank has everything: a whole step has changed it at once, or not at all. */
static void hold_state(struct tutti_trainer *t)
{
    t->held = tti_calloc(1, sizeof *t->held);
    struct tti_image *image = t->held == NULL ? NULL : &t->held->images[0];
    if (image == NULL || !tti_image_make(image, t->world_rank, tti_image_bytes(t))) {
        tti_log(TUTTI_WARN, "rank %d has no memory to keep what it has of the training", t->world_rank);
        return;
    }
    tti_image_begin(t, image);
    tti_image_take(t, image);
}

/* Holds this rank's state. A trainer whose restoring failed holds it from before. */
static void hold(struct tutti_trainer *t)
{
    (void)tti_copies_wait(t);
    if (!t->unmade && t->held == NULL && tti_image_classes(t) == 1) hold_state(t);
}

/* ---- What all have --------------------------------------------------------------------------------------------- */

/* The images that a rank has. */
struct had {
    uint64_t wanted; /* the size of its image */
    struct {
        uint64_t rank, step, bytes;
    } images[TTI_IMAGES];
};

static struct had tell(const struct tutti_trainer *t)
{
    struct had had = {.wanted = tti_image_bytes(t)};
    for (int i = 0; i < TTI_IMAGES; i++) {
        had.images[i].step = TTI_NO_STEP;
        if (t->held == NULL || t->held->images[i].data == NULL) continue;
        const struct tti_image *image = &t->held->images[i];
        had.images[i].rank = (uint64_t)image->rank;
        had.images[i].step = image->step;
        had.images[i].bytes = image->bytes;
    }
    return had;
}

/* Returns which of the holder's images has that rank's class and step; -1: none. */
static int find_image(const struct tutti_trainer *t, const struct had *all, int holder, int rank, uint64_t step)
{
    for (int i = 0; i < TTI_IMAGES; i++)
        if (all[holder].images[i].step == step && all[holder].images[i].bytes == all[rank].wanted &&
            tti_image_class(t, (int)all[holder].images[i].rank) == tti_image_class(t, rank))
            return i;
    return -1;
}

/* Returns the rank that gives a rank its image: itself, or the lowest one that has it; -1: none. */
static int find_giver(const struct tutti_trainer *t, const struct had *all, int rank, uint64_t step)
{
    if (find_image(t, all, rank, rank, step) >= 0) return rank;
    for (int r = 0; r < t->world_size; r++)
        if (find_image(t, all, r, rank, step) >= 0) return r;
    return -1;
}

static bool is_whole(const struct tutti_trainer *t, const struct had *all, uint64_t step)
{
    for (int r = 0; r < t->world_size; r++)
        if (find_giver(t, all, r, step) < 0) return false;
    return true;
}

/* Returns the newest step for which all images exist; TTI_NO_STEP: there is none. */
static uint64_t find_newest(const struct tutti_trainer *t, const struct had *all)
{
    uint64_t newest = TTI_NO_STEP, refused = TTI_NO_STEP;
    for (int r = 0; r < t->world_size; r++)
        for (int i = 0; i < TTI_IMAGES; i++) {
            const uint64_t step = all[r].images[i].step;
            if (step == TTI_NO_STEP || step == refused || (newest != TTI_NO_STEP && step <= newest)) continue;
            if (is_whole(t, all, step))
                newest = step;
            else
                refused = step;
        }
    return newest;
}

/* ---- Giving ---------------------------------------------------------------------------------------------------- */

/* Returns the place of this rank's own image, which it has or will get. */
static struct tti_image *own_image(struct tutti_trainer *t, const struct had *all, uint64_t step, tutti_error *error)
{
    const int mine = find_image(t, all, t->world_rank, t->world_rank, step);
    if (t->held == NULL) t->held = tti_calloc(1, sizeof *t->held);
    struct tti_image *image = t->held == NULL ? NULL : &t->held->images[mine < 0 ? 0 : mine];
    if (image != NULL && mine < 0 && (image->data == NULL || image->bytes != (size_t)all[t->world_rank].wanted)) {
        tti_image_free(image);
        (void)tti_image_make(image, t->world_rank, (size_t)all[t->world_rank].wanted);
    }
    if (image != NULL && image->data != NULL) return image;
    (void)tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for the %llu bytes of the state to go on from",
                        (unsigned long long)all[t->world_rank].wanted);
    return NULL;
}

/* Gives images in the order of ranks, which is the same for all: no rank waits for one that waits for it. */
static tutti_status give_images(struct tutti_trainer *t, const struct had *all, uint64_t step, struct tti_image *own)
{
    for (int r = 0; r < t->world_size; r++) {
        const int giver = find_giver(t, all, r, step);
        tutti_comm *comm = tti_inside(tti_trainer_comm(t), "trainer", "restore");
        if (giver == r) continue;
        if (giver == t->world_rank) {
            const struct tti_image *image = &t->held->images[find_image(t, all, giver, r, step)];
            TTI_TRY(tutti_send(comm, image->data, image->bytes, TUTTI_U8, r, 0));
        } else if (r == t->world_rank) {
            own->step = TTI_NO_STEP;
            own->rank = r;
            TTI_TRY(tutti_recv(comm, own->data, own->bytes, TUTTI_U8, giver, 0, NULL));
            own->step = step;
        }
    }
    return TUTTI_OK;
}

static tutti_status met(struct tutti_trainer *t, tutti_status status, tutti_error *error)
{
    if (status != TUTTI_OK) {
        (void)tti_trainer_comm_failed(t, status);
        *error = t->error;
    }
    return status;
}

static tutti_status take_images(struct tutti_trainer *t, const struct had *all, uint64_t step, tutti_error *error)
{
    struct tti_image *own = own_image(t, all, step, error);
    TTI_TRY(tti_agree(tti_trainer_comm(t), own == NULL ? TUTTI_ERR_MEMORY : TUTTI_OK, error));
    TTI_TRY(met(t, give_images(t, all, step, own), error));
    tti_image_apply(t, own);
    (void)snprintf(t->restored_from, sizeof t->restored_from, "memory");
    return met(t, tti_trainer_spread(t), error);
}

/* ---- Without images -------------------------------------------------------------------------------------------- */

static void note_one(void *context, const char *path)
{
    (void)path;
    *(bool *)context = true;
}

bool tti_trainer_has_checkpoint(const struct tutti_trainer *t)
{
    bool some = false;
    tutti_error unused;
    if (t->options.save[0] == '\0') return false;
    return tutti_checkpoint_list(t->options.save, note_one, &some, &unused) == TUTTI_OK && some;
}

static tutti_status start_over(struct tutti_trainer *t, tutti_error *error)
{
    uint64_t some = t->world_rank == 0 && tti_trainer_has_checkpoint(t);
    for (int i = 0; t->held != NULL && i < TTI_IMAGES; i++) t->held->images[i].step = TTI_NO_STEP;
    t->step = 0;
    t->taken = (tutti_train_step){0};
    TTI_TRY(met(t,
                tutti_broadcast(tti_inside(tti_trainer_comm(t), "trainer", "restore"), &some, &some, 1, TUTTI_U64, 0),
                error));
    (void)snprintf(t->restored_from, sizeof t->restored_from, "start");
    if (some == 0) return TUTTI_OK;
    TTI_TRY(tti_trainer_resume(t, error));
    (void)snprintf(t->restored_from, sizeof t->restored_from, "%s", t->resumed_from);
    return TUTTI_OK;
}

/* ---- All of it ------------------------------------------------------------------------------------------------- */

tutti_status tti_trainer_find_teacher(struct tutti_trainer *t, tutti_error *error)
{
    int64_t mine = t->known_costs != NULL ? t->world_rank : t->world_size, first = 0;
    TTI_TRY(met(
        t,
        tutti_all_reduce(tti_inside(tti_trainer_comm(t), "trainer", "restore"), &mine, &first, 1, TUTTI_I64, TUTTI_MIN),
        error));
    t->teacher = first < t->world_size ? (int)first : 0;
    return TUTTI_OK;
}

static tutti_status recover(struct tutti_trainer *t, struct had *all, tutti_error *error)
{
    const struct had mine = tell(t);
    TTI_TRY(met(
        t, tutti_all_gather(tti_inside(tti_trainer_comm(t), "trainer", "restore"), &mine, all, sizeof mine, TUTTI_U8),
        error));
    const uint64_t step = find_newest(t, all);
    return step == TTI_NO_STEP ? start_over(t, error) : take_images(t, all, step, error);
}

tutti_status tti_trainer_recover(struct tutti_trainer *t, tutti_error *error)
{
    struct had *all = tti_calloc((size_t)t->world_size, sizeof *all);
    tutti_status status = all != NULL ? TUTTI_OK : tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to restore");
    status = tti_agree(tti_trainer_comm(t), status, error);
    if (status == TUTTI_OK) status = recover(t, all, error);
    tti_free(all);
    return status;
}

static tutti_status check(const struct tutti_trainer *t, const tutti_comm *comm, tutti_error *error)
{
    if (comm == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "trainer_restore: there is no comm");
    tutti_comm *before = tti_trainer_all(t);
    if (tutti_size(comm) != tutti_size(before) || tutti_rank(comm) != tutti_rank(before))
        return tti_error_set(
            error, TUTTI_ERR_ARGUMENT, 0,
            "trainer_restore: the comm has %d ranks, and this is rank %d; the trainer had %d, and this "
            "was rank %d: a trainer goes on with all its ranks",
            tutti_size(comm), tutti_rank(comm), tutti_size(before), tutti_rank(before));
    if (comm == before || tutti_epoch(comm) == 0 || !tutti_comm_can_rebuild(comm))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "trainer_restore: the comm is not of a world that was rebuilt (tutti_comm_rebuild)");
    return TUTTI_OK;
}

static tutti_status assemble_anew(struct tutti_trainer *t, tutti_comm *comm)
{
    hold(t);
    tti_trainer_release(t);
    t->comm = comm;
    return tti_trainer_assemble(t, &t->error);
}

tutti_status tutti_trainer_restore(tutti_trainer *t, tutti_comm *comm)
{
    if (t == NULL) return TUTTI_ERR_ARGUMENT;
    t->here = tti_here(comm);
    t->error = (tutti_error){.rank = tutti_rank(comm), .peer = -1, .operation = "trainer_restore"};
    tutti_status status = check(t, comm, &t->error);
    if (status == TUTTI_OK) {
        status = t->options.server > 0 ? tti_trainer_server_restore(t, comm, &t->error) : assemble_anew(t, comm);
        t->unmade = status != TUTTI_OK;
    }
    if (status != TUTTI_OK && comm != NULL) tti_comm_note(comm, &t->error);
    return status;
}

tutti_status tti_trainer_usable(struct tutti_trainer *t)
{
    if (!t->unmade) return TUTTI_OK;
    t->error = (tutti_error){.rank = t->world_rank, .peer = -1};
    return tti_error_set(
        &t->error, TUTTI_ERR_ARGUMENT, 0,
        "tutti_trainer_restore has failed: call it again on the world that tutti_comm_rebuild makes, or "
        "free the trainer");
}

/* ---- For users ------------------------------------------------------------------------------------------------- */

const tutti_train_step *tutti_trainer_last(const tutti_trainer *t)
{
    return t->taken.struct_size == 0 ? NULL : &t->taken;
}

void tutti_trainer_watch(tutti_trainer *t, tutti_train_watch *watch, void *context)
{
    t->watch = watch;
    t->watch_context = context;
    if (t->server != NULL) tti_trainer_server_watch(t);
}
