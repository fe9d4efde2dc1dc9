/* SPDX-License-Identifier: Apache-2.0
 *
 * What the calls that go on after a loss share.
 */
#ifndef TTI_COLLECTIVE_HEAL_H
#define TTI_COLLECTIVE_HEAL_H

#include "collective/api/api.h"

/* As tti_api_begin, for calls that a broken comm allows, and that may wait. */
tutti_status tti_heal_begin(tutti_comm *comm, enum tti_kind kind);

/* One agreement after another, in one call. Each has the call's deadline for itself: those that have waited for a rank that did
 * not come need time for the next one. */
struct tti_healing {
    tutti_comm *comm;
    enum tti_kind kind;
    bool kills; /* as in struct tti_agreement */
    int64_t deadline_ms;
    uint64_t *values; /* (size) of the last agreement */
    bool *present;    /* (size) likewise */
};
/* False: there is no memory. It is to be closed in any case. */
bool tti_healing_open(struct tti_healing *healing, tutti_comm *comm, enum tti_kind kind);
void tti_healing_close(struct tti_healing *healing);
/* OK, or an error that the comm has now; the same on all that take part. */
tutti_status tti_healing_agree(struct tti_healing *healing, uint64_t mine, uint64_t *all);

#endif
