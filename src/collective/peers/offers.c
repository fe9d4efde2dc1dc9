/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/peers/offers.h"

#include "base/alloc.h"
#include "base/status.h"
#include "device/buffer.h"
#include "device/find.h"
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    MAPPED_MOST = 1024, /* buffers of others */
    BORROWED_MOST = 64, /* allocations of others that are mapped at once */
    LEASED_MOST = 1024, /* allocations that this rank lends */
};

struct tti_mapped {
    int rank;
    uint64_t id;   /* id of the buffer, or of the allocation, in the process of that rank */
    uint64_t used; /* by work that has passed when offers->passed has reached this */
    struct tti_memory memory;
    struct tti_mapped *next;
};

struct tti_leased {
    uint64_t id;             /* id of the allocation */
    struct tti_lease *lease; /* in the arena, for others to read */
    struct tti_leased *next;
};

/* ---- Offering ------------------------------------------------------------------------------------------------------ */

static struct tti_leased *lease(struct tti_offers *offers, const void *pointer, uint64_t id)
{
    struct tti_device *device = offers->device;
    tutti_error ignored = {0};
    struct tti_lease made;
    int count = 0;
    for (struct tti_leased *one = offers->leased; one != NULL; one = one->next, count++)
        if (one->id == id) return one;
    if (count >= LEASED_MOST || device->ops->lend(device, pointer, &made, &ignored) != TUTTI_OK) return NULL;
    struct tti_leased *leased = tti_calloc(1, sizeof *leased);
    if (leased == NULL) return NULL;
    leased->lease = tti_arena_alloc(offers->comm->world->arena, sizeof made, &ignored);
    if (leased->lease == NULL) {
        tti_free(leased);
        return NULL;
    }
    *leased->lease = made;
    leased->id = id;
    leased->next = offers->leased;
    offers->leased = leased;
    return leased;
}

/* Memory of the device in no buffer. */
static void offer_lease(struct tti_offers *offers, const void *pointer, const struct tti_found *found,
                        struct tti_offer *offer)
{
    if (found->buffer != NULL || found->where != TTI_FOUND_DEVICE || found->id == 0) return;
    if (found->device != offers->device || offers->device->ops->lend == NULL) return;
    const struct tti_leased *leased = lease(offers, pointer, found->id);
    if (leased == NULL) return;
    offer->reach = TTI_OFFER_LEASED;
    offer->id = found->id;
    offer->bytes = found->bytes;
    offer->at = (uint64_t)((const char *)pointer - found->base);
    offer->lease = tti_place_of(offers->comm, leased->lease, sizeof *leased->lease).value;
}

struct tti_offer tti_offer_of(struct tti_offers *offers, const void *pointer, uint64_t bytes, bool near)
{
    struct tti_offer offer = {.reach = TTI_OFFER_HERE, .bytes = bytes, .at = (uint64_t)(uintptr_t)pointer};
    struct tti_found found;
    tutti_error ignored = {0};
    int fd = -1;
    if (bytes == 0) return (struct tti_offer){.reach = TTI_OFFER_UNUSED};
    if (near) return offer;
    tti_memory_find(pointer, &found);
    offer.reach = TTI_OFFER_NONE;
    if (found.buffer != NULL && found.buffer->memory.kind == TUTTI_MEMORY_SHARED &&
        tti_buffer_offer(found.buffer, &fd, &offer.id, &ignored) == TUTTI_OK) {
        offer.reach = TTI_OFFER_SHARED;
        offer.fd = fd;
        offer.bytes = found.buffer->memory.bytes;
        offer.at = (uint64_t)((const char *)pointer - found.buffer->memory.base);
    }
    offer_lease(offers, pointer, &found, &offer);
    tti_found_give(&found);
    return offer;
}

/* ---- Mapping ------------------------------------------------------------------------------------------------------- */

static struct tti_mapped *find(const struct tti_offers *offers, int rank, const struct tti_offer *offer)
{
    bool borrowed = offer->reach == TTI_OFFER_LEASED;
    struct tti_mapped *mapped = offers->mapped;
    while (mapped != NULL && (mapped->rank != rank || mapped->id != offer->id || mapped->memory.borrowed != borrowed))
        mapped = mapped->next;
    return mapped;
}

static void unmap(struct tti_offers *offers, struct tti_mapped **at)
{
    struct tti_mapped *mapped = *at;
    *at = mapped->next;
    offers->device->ops->free(offers->device, &mapped->memory, NULL);
    tti_free(mapped);
}

void tti_offers_unmap(struct tti_offers *offers)
{
    while (offers->mapped != NULL) unmap(offers, &offers->mapped);
}

void tti_offers_free(struct tti_offers *offers)
{
    tutti_error ignored = {0};
    tti_offers_unmap(offers);
    while (offers->leased != NULL) {
        struct tti_leased *leased = offers->leased;
        offers->leased = leased->next;
        (void)tti_arena_free(offers->comm->world->arena, leased->lease, &ignored);
        tti_free(leased);
    }
}

/* The descriptor, in this process. */
static tutti_status fetch(const struct tti_offers *offers, int rank, int there, int *fd, tutti_error *error)
{
    const tutti_comm *comm = offers->comm;
    const struct tti_process *process = &comm->world->processes[tti_info_of(comm, rank)->process];
    *fd = (int)syscall(SYS_pidfd_getfd, process->pidfd, there, 0);
    if (*fd >= 0) return TUTTI_OK;
    return tti_error_set(
        error, TUTTI_ERR_SYSTEM, errno,
        "rank %d may not take over the memory of rank %d (pidfd_getfd: %s); allow processes of one user "
        "to trace each other, or use TUTTI_DEVICE_PROVIDER=staged",
        comm->rank, rank, strerror(errno));
}

static tutti_status map(struct tti_offers *offers, int rank, const struct tti_offer *offer, struct tti_mapped **made,
                        tutti_error *error)
{
    int fd = -1, mapped = 0;
    for (const struct tti_mapped *one = offers->mapped; one != NULL; one = one->next) mapped++;
    if (mapped >= MAPPED_MOST)
        return tti_error_set(error, TUTTI_ERR_LIMIT, 0, "more than %d buffers of other processes were used", mapped);
    struct tti_mapped *one = tti_calloc(1, sizeof *one);
    if (one == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for one more mapped buffer");
    tutti_status status = fetch(offers, rank, offer->fd, &fd, error);
    if (status == TUTTI_OK) {
        status = offers->device->ops->map(offers->device, fd, offer->bytes, &one->memory, error);
        close(fd);
    }
    if (status != TUTTI_OK) {
        tti_free(one);
        return status;
    }
    one->rank = rank;
    one->id = offer->id;
    one->next = offers->mapped;
    *made = offers->mapped = one;
    return TUTTI_OK;
}

/* Lets the one go that was not used for the longest time, of those that no work uses any more. */
static bool make_room(struct tti_offers *offers)
{
    struct tti_mapped **oldest = NULL;
    int count = 0;
    for (struct tti_mapped **at = &offers->mapped; *at != NULL; at = &(*at)->next) {
        if (!(*at)->memory.borrowed) continue;
        count++;
        if (offers->passed == NULL || !tti_word_reached(offers->passed, (*at)->used)) continue;
        if (oldest == NULL || (*at)->used < (*oldest)->used) oldest = at;
    }
    if (count < BORROWED_MOST) return true;
    if (oldest != NULL) unmap(offers, oldest);
    return oldest != NULL;
}

static tutti_status borrow(struct tti_offers *offers, int rank, const struct tti_offer *offer, struct tti_mapped **made,
                           tutti_error *error)
{
    const tutti_comm *comm = offers->comm;
    struct tti_device *device = offers->device;
    tutti_error why = {0};
    const struct tti_lease *lease = tti_world_translate(comm->world, tti_info_of(comm, rank)->process, offer->lease,
                                                        sizeof *lease);
    struct tti_mapped *one = lease == NULL || !make_room(offers) ? NULL : tti_calloc(1, sizeof *one);
    if (one == NULL || device->ops->borrow(device, lease, offer->bytes, &one->memory, &why) != TUTTI_OK) {
        tti_free(one);
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                             "rank %d cannot map one more allocation of rank %d%s%.200s", comm->rank, rank,
                             why.text[0] == '\0' ? "" : ": ", why.text);
    }
    one->rank = rank;
    one->id = offer->id;
    one->next = offers->mapped;
    *made = offers->mapped = one;
    return TUTTI_OK;
}

tutti_status tti_offer_resolve(struct tti_offers *offers, int rank, const struct tti_offer *offer, char **at,
                               tutti_error *error)
{
    *at = NULL;
    if (offer->reach == TTI_OFFER_UNUSED) return TUTTI_OK;
    if (offer->reach == TTI_OFFER_HERE) {
        *at = (char *)(uintptr_t)offer->at;
        return TUTTI_OK;
    }
    struct tti_mapped *mapped = find(offers, rank, offer);
    if (mapped == NULL && offer->reach == TTI_OFFER_LEASED) TTI_TRY(borrow(offers, rank, offer, &mapped, error));
    if (mapped == NULL) TTI_TRY(map(offers, rank, offer, &mapped, error));
    mapped->used = offers->next;
    *at = mapped->memory.base + offer->at;
    return TUTTI_OK;
}
