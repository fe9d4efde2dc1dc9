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

enum { MAPPED_MOST = 1024 }; /* buffers of others */

struct tti_mapped {
    int rank;
    uint64_t id; /* of the buffer there */
    struct tti_memory memory;
    struct tti_mapped *next;
};

struct tti_offer tti_offer_of(const void *pointer, uint64_t bytes, bool near)
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
    tti_found_give(&found);
    return offer;
}

static struct tti_mapped *find(const struct tti_offers *offers, int rank, uint64_t id)
{
    struct tti_mapped *mapped = offers->mapped;
    while (mapped != NULL && (mapped->rank != rank || mapped->id != id)) mapped = mapped->next;
    return mapped;
}

void tti_offers_free(struct tti_offers *offers)
{
    while (offers->mapped != NULL) {
        struct tti_mapped *mapped = offers->mapped;
        offers->mapped = mapped->next;
        offers->device->ops->free(offers->device, &mapped->memory, NULL);
        tti_free(mapped);
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

tutti_status tti_offer_resolve(struct tti_offers *offers, int rank, const struct tti_offer *offer, char **at,
                               tutti_error *error)
{
    *at = NULL;
    if (offer->reach == TTI_OFFER_UNUSED) return TUTTI_OK;
    if (offer->reach == TTI_OFFER_HERE) {
        *at = (char *)(uintptr_t)offer->at;
        return TUTTI_OK;
    }
    struct tti_mapped *mapped = find(offers, rank, offer->id);
    if (mapped == NULL) TTI_TRY(map(offers, rank, offer, &mapped, error));
    *at = mapped->memory.base + offer->at;
    return TUTTI_OK;
}
