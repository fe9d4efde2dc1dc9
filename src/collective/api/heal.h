/* SPDX-License-Identifier: Apache-2.0
 *
 * What the calls that go on after a loss share.
 */
#ifndef TTI_COLLECTIVE_HEAL_H
#define TTI_COLLECTIVE_HEAL_H

#include "collective/api/api.h"
#include <tutti/experimental.h>

struct tti_cluster;

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

/* Joins the job once more, as a process of it, with what it brings from the epoch before (api_join.c). Begins anew as often as the
 * launcher has started a process again meanwhile. */
tutti_status tti_join_job_again(const tutti_launch *launch, const tutti_options *options, int ranks,
                                const struct tti_sequel *sequel, struct tti_cluster **cluster, tutti_error *error);
/* A comm of all ranks for one of this process's, in place of `before` of an earlier epoch, or NULL. Its part of the cluster is given
 * back if that fails. */
tutti_status tti_join_sit_down(struct tti_cluster *cluster, int index, const tutti_comm *before, tutti_comm **comm,
                               tutti_error *error);

/* A world of this process alone, of so many ranks, each for a thread to use (api_join.c). */
tutti_status tti_join_alone(const tutti_options *options, int ranks, tutti_comm **comms, tutti_error *error);

#endif
