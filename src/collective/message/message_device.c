/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/message/message_device.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "collective/message/message_parts.h"
#include "device/buffer.h"
#include "device/find.h"
#include "device/open.h"
#include "device/stream.h"

enum { UNDER_WAY_MOST = 64 };

/* Says where the data of a send lie. It is in the arena of its process, which all ranks of the host map. */
struct tti_device_offer {
    char kind[12];
    int32_t number;
    unsigned char uuid[16];
    struct tti_offer offer;
};

/* ---- Copies -------------------------------------------------------------------------------------------------------- */

static bool is_done(const struct tti_copier *copier, uint64_t copy)
{
    return tti_word_reached(copier->done, copier->first_done + copy);
}

static bool is_crowded(const struct tti_copier *copier)
{
    return copier->copies >= UNDER_WAY_MOST && !is_done(copier, copier->copies - UNDER_WAY_MOST + 1);
}

static void free_copier(struct tti_copier *copier)
{
    tutti_error ignored = {0};
    bool idle = copier->done != NULL && is_done(copier, copier->copies);
    if (copier->stream != NULL) (void)tti_stream_drop(copier->stream, &ignored);
    if (idle) tti_word_give(copier->device, copier->done);
    if (idle) tti_offers_free(&copier->offers); /* otherwise copies may still use them */
    tti_gates_free(&copier->gates);
    tti_object_give(&copier->device->object);
    tti_free(copier);
}

static tutti_status make_copier(tutti_comm *comm, struct tti_device *device, struct tti_copier **made,
                                tutti_error *error)
{
    tutti_device_about about = {.struct_size = sizeof about};
    struct tti_copier *copier = tti_calloc(1, sizeof *copier);
    if (copier == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for messages on streams");
    copier->comm = comm;
    copier->device = device;
    copier->offers = (struct tti_offers){.comm = comm, .device = device};
    tti_object_keep(&device->object);
    tutti_status status = device->ops->describe(device, &about, error);
    if (status == TUTTI_OK) status = tti_stream_make(device, &copier->stream, error);
    if (status == TUTTI_OK) status = tti_word_take(device, &copier->done, error);
    if (status != TUTTI_OK) {
        free_copier(copier);
        return status;
    }
    memcpy(copier->uuid, about.uuid, sizeof copier->uuid);
    copier->first_done = atomic_load_explicit(&copier->done->value, memory_order_relaxed);
    *made = copier;
    return TUTTI_OK;
}

/* Finds the copier for a device, or makes one. If the device was opened again, its copies go by a new copier. */
static tutti_status find_copier(tutti_comm *comm, struct tti_device *device, struct tti_copier **found,
                                tutti_error *error)
{
    _Atomic(struct tti_copier *) *list = &comm->messages->copiers;
    for (struct tti_copier *copier = atomic_load_explicit(list, memory_order_relaxed); copier != NULL;
         copier = copier->next)
        if (copier->device == device && copier->stream->generation == tti_device_generation(device)) {
            *found = copier;
            return TUTTI_OK;
        }
    TTI_TRY(make_copier(comm, device, found, error));
    (*found)->next = atomic_load_explicit(list, memory_order_relaxed);
    /* other threads that take messages forward may read it */
    atomic_store_explicit(list, *found, memory_order_release);
    return TUTTI_OK;
}

void tti_copiers_free(struct tti_copier *copiers)
{
    while (copiers != NULL) {
        struct tti_copier *copier = copiers;
        copiers = copier->next;
        free_copier(copier);
    }
}

bool tti_copiers_await(struct tti_copier *copiers, int64_t until_ns)
{
    int64_t nap_ns = 0;
    for (; copiers != NULL; copiers = copiers->next)
        while (!is_done(copiers, copiers->copies)) {
            tutti_error ignored;
            /* nothing runs on this stream any more */
            if (tti_stream_state(copiers->stream, &ignored) != TUTTI_OK) break;
            if (tti_now_ns() >= until_ns) return false;
            tti_poll_nap(&nap_ns);
        }
    return true;
}

static tutti_status put_copy(struct tti_device_letter *device, void *to, const void *from, uint64_t bytes,
                             tutti_error *error)
{
    struct tti_copier *copier = device->copier;
    TTI_TRY(tti_stream_copy(copier->stream, to, from, bytes, error));
    TTI_TRY(tti_stream_raise(copier->stream, copier->done, copier->first_done + copier->copies + 1, error));
    device->copy = ++copier->copies;
    return TUTTI_OK;
}

/* ---- A letter's data ----------------------------------------------------------------------------------------------- */

void tti_device_letter_free(struct tti_device_letter *device)
{
    if (device == NULL) return;
    tti_device_letter_end(device);
    if (device->buffer != NULL) tti_object_give(&device->buffer->object);
    tti_object_give(&device->stream->object);
    tti_free(device);
}

tutti_status tti_device_letter_make(tutti_comm *comm, struct tti_stream *stream, const void *pointer, uint64_t bytes,
                                    bool sends, struct tti_device_letter **made, tutti_error *error)
{
    struct tti_device_buffer *buffer = NULL;
    struct tti_copier *copier = NULL;
    TTI_TRY(tti_stream_ready(stream, error));
    if (bytes > 0) TTI_TRY(tti_memory_take(pointer, bytes, sends ? "in" : "out", stream, &buffer, error));
    tutti_status status = find_copier(comm, stream->device, &copier, error);
    struct tti_device_letter *device = status == TUTTI_OK ? tti_calloc(1, sizeof *device) : NULL;
    if (device == NULL) {
        if (buffer != NULL) tti_object_give(&buffer->object);
        return status != TUTTI_OK ? status
                                  : tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for one more message");
    }
    tti_object_keep(&stream->object);
    *device = (struct tti_device_letter){.copier = copier,
                                         .stream = stream,
                                         .buffer = buffer,
                                         .at = (char *)(uintptr_t)pointer,
                                         .bytes = bytes,
                                         .sends = sends,
                                         .buffers = sends && bytes <= (uint64_t)comm->tuning.eager};
    *made = device;
    return TUTTI_OK;
}

/* Copies the data of a small send in its stream, which continues at once. */
static tutti_status put_buffered(struct tti_device_letter *device, tutti_error *error)
{
    if (device->bytes == 0) return TUTTI_OK;
    TTI_TRY(tti_pinned_take(device->copier->device, device->bytes, &device->host, error));
    atomic_fetch_add_explicit(&device->copier->buffered, device->bytes, memory_order_relaxed);
    TTI_TRY(tti_stream_copy(device->stream, device->host->base, device->at, device->bytes, error));
    return device->buffer == NULL ? TUTTI_OK : tti_buffer_end(device->buffer, TUTTI_READS, device->stream, error);
}

tutti_status tti_device_letter_put(struct tti_device_letter *device, tutti_error *error)
{
    tutti_access access = device->sends ? TUTTI_READS : TUTTI_WRITES;
    TTI_TRY(tti_stream_ready(device->stream, error));
    struct tti_stream_gate *gate = tti_gates_find(&device->copier->gates, device->stream, error);
    if (gate == NULL) return error->status;
    if (device->buffer != NULL) TTI_TRY(tti_buffer_begin(device->buffer, access, device->stream, error));
    if (device->buffers) TTI_TRY(put_buffered(device, error));
    TTI_TRY(tti_gate_put_reached(&gate->gate, device->stream, &device->turn, error));
    atomic_fetch_add_explicit(&gate->used, 1, memory_order_relaxed);
    if (device->buffer != NULL) tti_buffer_hold(device->buffer);
    device->gate = gate;
    return TUTTI_OK;
}

/* Ends the copy of a letter. If it has not passed, after a failure, its memory is not given back before it has. */
static void end_copy(struct tti_device_letter *device)
{
    const struct tti_copier *copier = device->copier;
    tutti_error ignored = {0};
    bool passed = device->buffers ? tti_device_letter_has_come(device) : is_done(copier, device->copy);
    if (!passed && !device->buffers && device->buffer != NULL)
        (void)tti_buffer_end(device->buffer, device->sends ? TUTTI_READS : TUTTI_WRITES, copier->stream, &ignored);
    if (passed) tti_pinned_give(device->host);
    if (device->buffers && device->host != NULL)
        atomic_fetch_sub_explicit(&device->copier->buffered, device->bytes, memory_order_relaxed);
    device->host = NULL;
    device->copy = 0;
    device->source = NULL;
}

void tti_device_letter_end(struct tti_device_letter *device)
{
    tutti_error ignored = {0};
    end_copy(device);
    if (device->offer != NULL) (void)tti_arena_free(device->copier->comm->world->arena, device->offer, &ignored);
    device->offer = NULL;
    if (device->gate == NULL) return;
    atomic_fetch_sub_explicit(&device->gate->used, 1, memory_order_release);
    device->gate = NULL;
    if (device->buffer != NULL) tti_buffer_let_go(device->buffer);
}

tutti_status tti_device_letter_state(const struct tti_device_letter *device, tutti_error *error)
{
    if (!tti_device_letter_has_come(device)) TTI_TRY(tti_stream_state(device->stream, error));
    bool passed = device->copy == 0 || is_done(device->copier, device->copy);
    return passed ? TUTTI_OK : tti_stream_state(device->copier->stream, error);
}

/* ---- For the receiver: where the data lie -------------------------------------------------------------------------- */

/* Says where the data of a send lie for the receiver. Data that are on the host already are sent from there. */
struct tti_place tti_device_place_of(struct tti_send *send)
{
    struct tti_letter *letter = &send->letter;
    tutti_comm *comm = letter->comm;
    struct tti_device_letter *device = letter->device;
    struct tti_place nowhere = {.reach = TTI_NOWHERE, .epoch = comm->traits.era.made};
    tutti_error ignored = {0};
    bool near = tti_is_of_this_process(comm, letter->peer);
    if (device->bytes == 0 || device->buffers || comm->lanes != NULL || comm->traits.tolerant) return nowhere;
    struct tti_offer offer = tti_offer_of(&device->copier->offers, device->at, device->bytes, near);
    if (offer.reach == TTI_OFFER_NONE) return nowhere;
    if (device->offer == NULL) device->offer = tti_arena_alloc(comm->world->arena, sizeof *device->offer, &ignored);
    if (device->offer == NULL) return nowhere;
    *device->offer = (struct tti_device_offer){.number = device->copier->device->number, .offer = offer};
    snprintf(device->offer->kind, sizeof device->offer->kind, "%s", device->copier->device->ops->kind);
    memcpy(device->offer->uuid, device->copier->uuid, sizeof device->offer->uuid);
    struct tti_place place = tti_place_of(comm, device->offer, sizeof *device->offer);
    place.reach = TTI_DEVICE;
    return place;
}

/* Returns true if both devices are the same one, or if the receiver's reaches the sender's memory. */
static bool can_copy(const struct tti_copier *copier, const struct tti_device_offer *offer)
{
    struct tti_device *device = copier->device;
    if (strncmp(offer->kind, device->ops->kind, sizeof offer->kind) != 0) return false;
    if (device->ops == &tti_host_ops) return offer->number == device->number;
    if (memcmp(offer->uuid, copier->uuid, sizeof copier->uuid) == 0) return true;
    return device->ops->reaches_uuid != NULL && device->ops->reaches_uuid(device, offer->uuid);
}

bool tti_device_reaches(struct tti_recv *recv, int peer, struct tti_place place)
{
    struct tti_device_letter *device = recv->letter.device;
    tutti_comm *comm = recv->letter.comm;
    tutti_error ignored = {0};
    char *at = NULL;
    if (device == NULL || comm->world->options.direct == 0) return false;
    const struct tti_device_offer *offer = tti_world_translate(comm->world, place.process, place.value, sizeof *offer);
    if (offer == NULL || !can_copy(device->copier, offer)) return false;
    if (tti_offer_resolve(&device->copier->offers, peer, &offer->offer, &at, &ignored) != TUTTI_OK) return false;
    device->source = at;
    return at != NULL;
}

/* ---- Moving -------------------------------------------------------------------------------------------------------- */

static bool fail(struct tti_letter *letter, const tutti_error *error)
{
    tutti_comm *comm = letter->comm;
    int peer = letter->waiting_for < 0 ? comm->rank : letter->waiting_for;
    tti_box_fault(tti_box_at(comm->messages, peer), letter->is_send ? TTI_SEND : TTI_RECV, error->status, comm->rank,
                  "rank %d: %s", comm->rank, error->text);
    return false;
}

/* Puts a copy between both places once the stream has come to the letter; returns true when the copy is done. */
static bool move(struct tti_letter *letter, void *to, const void *from, uint64_t bytes)
{
    struct tti_device_letter *device = letter->device;
    tutti_error error = {0};
    if (device->copy == 0) {
        if (!tti_device_letter_has_come(device) || is_crowded(device->copier)) return false;
        if (put_copy(device, to, from, bytes, &error) != TUTTI_OK) return fail(letter, &error);
    }
    return is_done(device->copier, device->copy);
}

bool tti_device_make_room(struct tti_recv *recv)
{
    struct tti_letter *letter = &recv->letter;
    struct tti_device_letter *device = letter->device;
    tutti_error error = {0};
    if (device == NULL || device->host != NULL || letter->bytes == 0) return true;
    if (tti_pinned_take(device->copier->device, letter->bytes, &device->host, &error) != TUTTI_OK)
        return fail(letter, &error);
    recv->out = device->host->base;
    return true;
}

bool tti_device_copy(struct tti_recv *recv)
{
    return move(&recv->letter, recv->letter.device->at, recv->letter.device->source, recv->letter.bytes);
}

bool tti_device_fetch(struct tti_send *send)
{
    struct tti_letter *letter = &send->letter;
    struct tti_device_letter *device = letter->device;
    tutti_error error = {0};
    if (!tti_device_letter_has_come(device)) return false;
    if (letter->bytes == 0) return true;
    if (device->host == NULL &&
        tti_pinned_take(device->copier->device, device->bytes, &device->host, &error) != TUTTI_OK)
        return fail(letter, &error);
    send->in = device->host->base;
    return device->buffers || move(letter, device->host->base, device->at, device->bytes);
}

bool tti_device_lift(struct tti_recv *recv)
{
    struct tti_device_letter *device = recv->letter.device;
    if (device->host == NULL) return tti_device_letter_has_come(device); /* no data came */
    return move(&recv->letter, device->at, device->host->base, recv->letter.bytes);
}
