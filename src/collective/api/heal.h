/* SPDX-License-Identifier: Apache-2.0
 *
 * What the calls that go on after a loss share.
 */
#ifndef TTI_COLLECTIVE_HEAL_H
#define TTI_COLLECTIVE_HEAL_H

#include "collective/api/api.h"
#include <tutti/experimental.h>

struct tti_cluster;
struct tti_cluster_launch;

/* Like tti_api_begin, for calls that a broken comm allows, and that may wait. */
tutti_status tti_heal_begin(tutti_comm *comm, enum tti_kind kind);

/* Several agreements in one call. Each has the call's whole deadline: ranks that have waited for one that did not come
 * need time for the next agreement. */
struct tti_healing {
    tutti_comm *comm;
    enum tti_kind kind;
    bool kills; /* as in struct tti_agreement */
    int64_t deadline_ms;
    uint64_t *values; /* (size) what the ranks gave in the last agreement */
    bool *present;    /* (size) who took part in it */
};
/* Returns false if there is no memory. It must be closed in any case. */
bool tti_healing_open(struct tti_healing *healing, tutti_comm *comm, enum tti_kind kind);
void tti_healing_close(struct tti_healing *healing);
/* Returns OK, or an error that the comm has now; the same on all ranks that take part. */
tutti_status tti_healing_agree(struct tti_healing *healing, uint64_t mine, uint64_t *all);

/* Joins the job once more as one process of it, with what it keeps from the epoch before (api_join.c). Begins anew each
 * time the launcher has started a process again meanwhile. */
tutti_status tti_join_job_again(const tutti_launch *launch, const tutti_options *options, int ranks,
                                const struct tti_sequel *sequel, struct tti_cluster **cluster, tutti_error *error);
/* Makes a comm of all ranks for one rank of this process, in place of `before`, a comm of an earlier epoch, or NULL. If
 * that fails, this rank's part of the cluster is given back. */
tutti_status tti_join_sit_down(struct tti_cluster *cluster, int index, const tutti_comm *before, tutti_comm **comm,
                               tutti_error *error);

/* Joins as a process of a job, for each of its ranks a comm. */
tutti_status tti_join_job(const struct tti_cluster_launch *launch, const tutti_options *options, tutti_comm **comms,
                          tutti_error *error);
/* Joins a job that runs already, once its ranks take this process in (api_wait.c). */
tutti_status tti_join_waiting(const tutti_launch *launch, const tutti_options *options, int ranks, tutti_comm **world,
                              tutti_error *error);

/* Notes that a thread of this process has ended its work, after leaving or not: the others must not wait for it in
 * tutti_comm_rebuild. */
void tti_rebuild_miss(const tutti_comm *world, bool lost);

/* Makes a world of this process alone, with so many ranks, each for a thread to use (api_join.c). */
tutti_status tti_join_alone(const tutti_options *options, int ranks, tutti_comm **comms, tutti_error *error);

#endif
