/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/stager.h"

#include "base/alloc.h"
#include "base/status.h"
#include "collective/op/staging.h"
#include "device/pinned.h"
#include "device/stream.h"

enum { SLOT_LEAST = 64 << 10 };

tutti_status tti_stager_make(struct tti_device *device, tutti_comm *comm, struct tti_stager **made, tutti_error *error)
{
    struct tti_stager *stager = tti_calloc(1, sizeof *stager);
    if (stager == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for staging");
    stager->device = device;
    stager->comm = comm;
    tti_object_keep(&device->object);
    tutti_status status = tti_stream_make(device, &stager->in, error);
    if (status == TUTTI_OK) status = tti_stream_make(device, &stager->out, error);
    if (status == TUTTI_OK) status = tti_word_take(device, &stager->came, error);
    if (status == TUTTI_OK) status = tti_word_take(device, &stager->went, error);
    if (status != TUTTI_OK) {
        tti_stager_free(stager);
        return status;
    }
    stager->in_copies = atomic_load_explicit(&stager->came->value, memory_order_relaxed);
    stager->out_copies = atomic_load_explicit(&stager->went->value, memory_order_relaxed);
    *made = stager;
    return TUTTI_OK;
}

/* Frees a slot. Another rank may still read it after a failure. */
static void free_slot(struct tti_stager *stager, int i)
{
    struct tti_arena *arena = stager->comm->world->arena;
    struct tti_pinned *slot = stager->slots[i];
    tutti_error ignored = {0};
    if (slot == NULL) return;
    void *base = slot->base;
    stager->slots[i] = NULL;
    tti_pinned_release(slot);
    if (tti_comm_is_broken(stager->comm))
        tti_arena_quarantine(arena, base);
    else
        (void)tti_arena_free(arena, base, &ignored);
}

void tti_stager_free(struct tti_stager *stager)
{
    tutti_error ignored = {0};
    if (stager == NULL) return;
    bool idle = stager->went != NULL && tti_word_reached(stager->came, stager->in_copies) &&
                tti_word_reached(stager->went, stager->out_copies);
    if (stager->in != NULL) (void)tti_stream_drop(stager->in, &ignored);
    if (stager->out != NULL) (void)tti_stream_drop(stager->out, &ignored);
    for (int i = 0; i < TTI_STAGER_SLOTS && idle; i++) free_slot(stager, i);
    if (idle) {
        tti_word_give(stager->device, stager->came);
        tti_word_give(stager->device, stager->went);
    }
    tti_object_give(&stager->device->object);
    tti_free(stager);
}

static tutti_status renew_stream(struct tti_device *device, struct tti_stream **stream, tutti_error *error)
{
    struct tti_stream *made = NULL;
    tutti_error ignored = {0};
    TTI_TRY(tti_stream_make(device, &made, error));
    (void)tti_stream_drop(*stream, &ignored);
    *stream = made;
    return TUTTI_OK;
}

tutti_status tti_stager_renew(struct tti_stager *stager, tutti_error *error)
{
    TTI_TRY(renew_stream(stager->device, &stager->in, error));
    TTI_TRY(renew_stream(stager->device, &stager->out, error));
    for (int i = 0; i < TTI_STAGER_SLOTS; i++)
        if (stager->slots[i] != NULL) TTI_TRY(tti_pinned_renew(stager->slots[i], error));
    return TUTTI_OK;
}

/* Returns a power of two, so that a slot is seldom replaced. 0: too many bytes. */
static size_t slot_bytes(size_t bytes)
{
    size_t rounded = SLOT_LEAST;
    while (rounded < bytes && rounded != 0) rounded *= 2;
    return rounded;
}

tutti_status tti_stager_ensure(struct tti_stager *stager, int i, size_t bytes, tutti_error *error)
{
    struct tti_arena *arena = stager->comm->world->arena;
    size_t rounded = slot_bytes(bytes);
    if (stager->slots[i] != NULL && stager->slots[i]->bytes >= bytes) return TUTTI_OK;
    if (rounded == 0)
        return tti_error_set(error, TUTTI_ERR_COUNT, 0, "%zu bytes of pinned memory were asked for", bytes);
    void *base = tti_arena_alloc(arena, rounded, error);
    if (base == NULL) return error->status;
    struct tti_pinned *made = NULL;
    tutti_status status = tti_pinned_adopt(stager->device, base, rounded, &made, error);
    if (status != TUTTI_OK) {
        (void)tti_arena_free(arena, base, &(tutti_error){0});
        return status;
    }
    free_slot(stager, i);
    stager->slots[i] = made;
    return TUTTI_OK;
}
