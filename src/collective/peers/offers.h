/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a device that ranks of one host let each other use. Ranks of one process know it by its address. Memory of
 * another process is mapped when it is first used, and stays mapped: a buffer is known by a number that no other buffer
 * of its process ever has, so one mapping is never taken for another.
 *
 * Memory that the program has taken from the device's own library (cudaMalloc) is reached by a lease, where that
 * library gives one. Its owner may free it at any time, but that gives nothing back while it is mapped here: so few
 * leases stay mapped.
 */
#ifndef TTI_COLLECTIVE_OFFERS_H
#define TTI_COLLECTIVE_OFFERS_H

#include "collective/comm/comm.h"
#include "device/ops.h"

enum tti_offer_reach { TTI_OFFER_UNUSED, TTI_OFFER_HERE, TTI_OFFER_SHARED, TTI_OFFER_LEASED, TTI_OFFER_NONE };

/* How another rank can reach a buffer of this one. */
struct tti_offer {
    int32_t reach; /* enum tti_offer_reach */
    int32_t fd;    /* SHARED: a descriptor in its process */
    uint64_t id;   /* SHARED: number of the buffer; LEASED: of the allocation */
    uint64_t bytes;
    uint64_t at;    /* HERE: the address; else the offset in the buffer */
    uint64_t lease; /* LEASED: where the lease lies in its process's arena */
};

/* Memory of other ranks that this rank has mapped, and memory that it lends to them. */
struct tti_mapped;
struct tti_leased;
struct tti_offers {
    tutti_comm *comm;
    struct tti_device *device; /* the device that uses it */
    struct tti_mapped *mapped;
    struct tti_leased *leased;
    const struct tti_word *passed; /* work that uses what is resolved now has passed when this word has reached */
    uint64_t next;                 /* this number; NULL: it is never known to have passed */
};

/* `near`: for a rank of this process. */
struct tti_offer tti_offer_of(struct tti_offers *offers, const void *pointer, uint64_t bytes, bool near);
/* Finds where this rank sees what the other one has offered, and maps it if need be; NULL: unused. ERR_UNSUPPORTED: a
 * lease cannot be used, or there are too many. */
tutti_status tti_offer_resolve(struct tti_offers *offers, int rank, const struct tti_offer *offer, char **at,
                               tutti_error *error);
/* They must be called when no work on the device uses others' memory any more. After unmap, others' memory is mapped
 * again when it is used. */
void tti_offers_unmap(struct tti_offers *offers);
void tti_offers_free(struct tti_offers *offers);

#endif
