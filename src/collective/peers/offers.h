/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a device that ranks of one host let each other use. Ranks of one process know it by its address. What is in
 * another process is mapped when it is first used, and stays so: a buffer is known by a number that no other one of its
 * process ever has, so that a mapping is never taken for another's.
 *
 * Memory that the program has taken from the device's own library (cudaMalloc) is reached by a lease, where that library gives
 * one. Its owner may free it at any time, which gives nothing back while it is mapped here: so few stay mapped.
 */
#ifndef TTI_COLLECTIVE_OFFERS_H
#define TTI_COLLECTIVE_OFFERS_H

#include "collective/comm/comm.h"
#include "device/ops.h"

enum tti_offer_reach { TTI_OFFER_UNUSED, TTI_OFFER_HERE, TTI_OFFER_SHARED, TTI_OFFER_LEASED, TTI_OFFER_NONE };

/* How a buffer of a rank can be reached by another one. */
struct tti_offer {
    int32_t reach; /* enum tti_offer_reach */
    int32_t fd;    /* SHARED: in its process */
    uint64_t id;   /* likewise, of the buffer; LEASED: of the allocation */
    uint64_t bytes;
    uint64_t at;    /* HERE: the address; else the offset in it */
    uint64_t lease; /* LEASED: where that lies in its process's arena */
};

/* What this rank has mapped of others' memory, and lends to them. */
struct tti_mapped;
struct tti_leased;
struct tti_offers {
    tutti_comm *comm;
    struct tti_device *device; /* that uses it */
    struct tti_mapped *mapped;
    struct tti_leased *leased;
    const struct tti_word *passed; /* work has passed that uses what is resolved now when this word has */
    uint64_t next;                 /* reached that; NULL: it is never known to have */
};

/* `near`: for a rank of this process. */
struct tti_offer tti_offer_of(struct tti_offers *offers, const void *pointer, uint64_t bytes, bool near);
/* Where this rank finds what the other one has offered, mapped if need be; NULL: unused. ERR_UNSUPPORTED: a lease cannot be
 * used, or not one more. */
tutti_status tti_offer_resolve(struct tti_offers *offers, int rank, const struct tti_offer *offer, char **at,
                               tutti_error *error);
/* When no work on the device uses it any more. */
void tti_offers_free(struct tti_offers *offers);

#endif
