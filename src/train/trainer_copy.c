/* SPDX-License-Identifier: Apache-2.0 */
#define TUTTI_NO_CALL_SITES
#include "train/trainer_copy.h"

#include "base/alloc.h"
#include "base/status.h"
#include "base/task.h"
#include "train/trainer.h"
#include <unistd.h>

enum { TAG = 0, SENT, RECEIVED, OPS };

struct tti_copies {
    struct tutti_trainer *trainer;
    tutti_comm *comm; /* the comm of the tasks */
    int keeper;       /* the rank that gets this one's images; -1: none does */
    int owner;        /* the rank whose images this one gets; -1: none */
    int next;         /* the one of the two images that is written next */
    struct tti_task task;
    bool running; /* the task was started and not joined; until then only the task touches the images */
    tutti_status status;
    tutti_error error;
};

/* ---- Who keeps whose ------------------------------------------------------------------------------------------- */

static bool is_apart(const struct tti_rank_place *a, const struct tti_rank_place *b, bool hosts)
{
    return a->host != b->host || (!hosts && a->process != b->process);
}

static bool has_hosts(const struct tti_rank_place *places, int size)
{
    for (int r = 1; r < size; r++)
        if (places[r].host != places[0].host) return true;
    return false;
}

static int count_apart(const struct tti_rank_place *places, int size, int shift, bool hosts)
{
    int count = 0;
    for (int r = 0; r < size; r++) count += is_apart(&places[r], &places[(r + shift) % size], hosts);
    return count;
}

/* Finds the shift: rank r's keeper is r + shift, so each rank keeps for one at most. It is the least shift with the
 * most keepers on other hosts, and of these with the most in other processes. */
static int find_shift(const struct tti_rank_place *places, int size)
{
    int best = 0, best_hosts = 0, best_processes = 0;
    for (int shift = 1; shift < size; shift++) {
        const int hosts = count_apart(places, size, shift, true);
        const int processes = count_apart(places, size, shift, false);
        if (hosts < best_hosts || (hosts == best_hosts && processes <= best_processes)) continue;
        best = shift;
        best_hosts = hosts;
        best_processes = processes;
    }
    return best;
}

/* The places of all ranks. */
struct places {
    const struct tti_rank_place *list; /* [size] */
    int shift;
    bool hosts; /* there are several hosts */
};

static struct places places_of(const struct tti_rank_place *list, int size)
{
    return (struct places){list, find_shift(list, size), has_hosts(list, size)};
}

/* Returns a rank's keeper; -1: other ranks have its image, too, or there is no other process. */
static int keeper_of(const struct tutti_trainer *t, const struct places *places, int rank)
{
    const struct tti_rank_place *list = places->list;
    const int keeper = (rank + places->shift) % t->world_size, class = tti_image_class(t, rank);
    for (int r = 0; r < t->world_size; r++)
        if (tti_image_class(t, r) == class && is_apart(&list[r], &list[rank], places->hosts)) return -1;
    return is_apart(&list[keeper], &list[rank], false) ? keeper : -1;
}

static int owner_of(const struct tutti_trainer *t, const struct places *places)
{
    int owner = -1;
    for (int r = 0; r < t->world_size; r++)
        if (keeper_of(t, places, r) == t->world_rank) owner = r;
    return owner;
}

static bool makes_images(const struct tutti_trainer *t)
{
    return t->heals && t->options.copy_every > 0 && tti_image_classes(t) > 1;
}

bool tti_copies_plan(const struct tutti_trainer *t, int *owner)
{
    if (!makes_images(t)) return false;
    struct tti_rank_place apart[t->world_size];
    for (int r = 0; r < t->world_size; r++) apart[r] = (struct tti_rank_place){.process = r};
    const struct places places = places_of(t->places != NULL ? t->places : apart, t->world_size);
    *owner = owner_of(t, &places);
    return true;
}

/* ---- Making ---------------------------------------------------------------------------------------------------- */

/* Makes the image fit; it stays as it is if it has the same rank and size. */
static bool fit_image(struct tti_image *image, int rank, size_t bytes)
{
    if (image->data != NULL && image->rank == rank && image->bytes == bytes) return true;
    tti_image_free(image);
    return rank < 0 || tti_image_make(image, rank, bytes);
}

static bool make_images(struct tutti_trainer *t, const struct tti_copies *copies, const uint64_t *bytes)
{
    if (t->held == NULL) t->held = tti_calloc(1, sizeof *t->held);
    if (t->held == NULL) return false;
    for (int i = 0; i < TTI_IMAGES; i++) {
        const int rank = i < TTI_KEPT ? t->world_rank : copies->owner;
        if (!fit_image(&t->held->images[i], rank, rank < 0 ? 0 : (size_t)bytes[rank])) return false;
    }
    return true;
}

/* Makes the copies. `bytes`: the size of each rank's image. */
static tutti_status make_copies(struct tutti_trainer *t, const uint64_t *bytes, tutti_error *error)
{
    const struct places places = places_of(t->places, t->world_size);
    struct tti_copies *copies = t->copies = tti_calloc(1, sizeof *copies);
    if (copies == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for copies of the state");
    *copies = (struct tti_copies){
        .trainer = t, .keeper = keeper_of(t, &places, t->world_rank), .owner = owner_of(t, &places)};
    if (!make_images(t, copies, bytes))
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0,
                             "copy_every: no memory for two copies of the %zu bytes of this rank's state%s",
                             tti_image_bytes(t), copies->owner < 0 ? "" : ", and two of another rank's");
    copies->next = t->held->images[0].step == t->step; /* keeps the image from which the training goes on */
    return TUTTI_OK;
}

/* Gathers all ranks' items of so many bytes; freed with tti_free, after a failure, too. */
static tutti_status gather(struct tutti_trainer *t, const void *mine, size_t bytes, void **all, tutti_error *error)
{
    *all = tti_calloc((size_t)t->world_size, bytes);
    tutti_status status = *all != NULL ? TUTTI_OK
                                       : tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to plan copies");
    TTI_TRY(tti_agree(tti_trainer_comm(t), status, error));
    status = tutti_all_gather(tti_inside(tti_trainer_comm(t), "trainer", "who keeps copies"), mine, *all, bytes,
                              TUTTI_U8);
    if (status != TUTTI_OK) tti_trainer_mesh_error(t->comm, &t->mesh, error);
    return status;
}

tutti_status tti_copies_find_places(struct tutti_trainer *t, tutti_error *error)
{
    if (!t->heals) return TUTTI_OK;
    const struct tti_rank_place mine = {tti_host_of(t->comm), getpid()};
    void *all = NULL;
    tutti_status status = gather(t, &mine, sizeof mine, &all, error);
    t->places = all;
    return status;
}

tutti_status tti_copies_make(struct tutti_trainer *t, tutti_error *error)
{
    if (!makes_images(t)) return TUTTI_OK;
    const uint64_t mine = tti_image_bytes(t);
    void *all = NULL;
    tutti_status status = gather(t, &mine, sizeof mine, &all, error);
    if (status == TUTTI_OK) status = tti_agree(tti_trainer_comm(t), make_copies(t, all, error), error);
    tti_free(all);
    TTI_TRY(status);
    status = tutti_comm_duplicate(tti_inside(tti_trainer_comm(t), "trainer", "copies"), &t->copies->comm);
    if (status != TUTTI_OK) tti_trainer_mesh_error(t->comm, &t->mesh, error);
    return status;
}

/* ---- Copying --------------------------------------------------------------------------------------------------- */

static tutti_status exchange(struct tti_copies *copies)
{
    struct tti_image *own = &copies->trainer->held->images[copies->next];
    struct tti_image *kept = &copies->trainer->held->images[TTI_KEPT + copies->next];
    tutti_op sent = {0}, received = {0};
    tutti_status status = TUTTI_OK, ended = TUTTI_OK;
    kept->step = TTI_NO_STEP;
    if (copies->owner >= 0)
        status = tutti_recv_start(tti_inside(copies->comm, "trainer", "copy"), kept->data, kept->bytes, TUTTI_U8,
                                  copies->owner, TAG, NULL, &received);
    tti_image_take(copies->trainer, own);
    if (copies->keeper >= 0 && status == TUTTI_OK)
        status = tutti_send_start(tti_inside(copies->comm, "trainer", "copy"), own->data, own->bytes, TUTTI_U8,
                                  copies->keeper, TAG, &sent);
    if (received.id != 0) ended = tutti_wait(received);
    if (status == TUTTI_OK) status = ended;
    if (sent.id != 0) ended = tutti_wait(sent);
    if (status == TUTTI_OK) status = ended;
    if (status == TUTTI_OK && copies->owner >= 0) kept->step = tti_image_step(kept);
    return status;
}

static void *work(void *argument)
{
    struct tti_copies *copies = argument;
    copies->status = exchange(copies);
    if (copies->status != TUTTI_OK && tutti_comm_error(copies->comm) != NULL)
        copies->error = *tutti_comm_error(copies->comm);
    return NULL;
}

void tti_copies_start(struct tutti_trainer *t)
{
    struct tti_copies *copies = t->copies;
    tutti_error unused;
    if (copies == NULL || t->step % (uint64_t)t->options.copy_every != 0) return;
    copies->running = true;
    tti_image_begin(t, &t->held->images[copies->next]);
    copies->error = (tutti_error){.rank = t->world_rank, .peer = -1};
    if (tti_task_start(&copies->task, work, copies, &unused) == TUTTI_OK) return;
    (void)work(copies); /* no other thread can do it */
    copies->running = false;
    copies->next ^= copies->status == TUTTI_OK;
}

static void join(struct tti_copies *copies)
{
    if (!copies->running) return;
    tti_task_join(&copies->task);
    copies->running = false;
    copies->next ^= copies->status == TUTTI_OK;
}

tutti_status tti_copies_wait(struct tutti_trainer *t)
{
    if (t->copies == NULL) return TUTTI_OK;
    join(t->copies);
    if (t->copies->status != TUTTI_OK) t->error = t->copies->error;
    return t->copies->status;
}

size_t tti_held_bytes(const struct tti_held *held)
{
    size_t bytes = 0;
    for (int i = 0; held != NULL && i < TTI_IMAGES; i++) bytes += held->images[i].bytes;
    return bytes;
}

size_t tti_copies_bytes(const struct tutti_trainer *t)
{
    return tti_trainer_is_planned(t) ? t->planned_copies : t->copies == NULL ? 0 : tti_held_bytes(t->held);
}

/* ---- The end --------------------------------------------------------------------------------------------------- */

void tti_held_free(struct tti_held *held)
{
    for (int i = 0; held != NULL && i < TTI_IMAGES; i++) tti_image_free(&held->images[i]);
    tti_free(held);
}

void tti_copies_free(struct tutti_trainer *t)
{
    struct tti_copies *copies = t->copies;
    if (copies == NULL) return;
    join(copies);
    (void)tutti_comm_free(copies->comm);
    tti_free(copies);
    t->copies = NULL;
}
