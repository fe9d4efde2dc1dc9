/* SPDX-License-Identifier: Apache-2.0 */
#define TUTTI_NO_CALL_SITES
#include "train/train_agree.h"

#include "collective/api/inside.h"

tutti_status tti_agree(tutti_comm *comm, tutti_status status, tutti_error *error)
{
    if (comm == NULL) return status;       /* only planned: nobody must be told */
    struct tti_here here = tti_here(comm); /* for both calls */
    int64_t size = tutti_size(comm), failed = status == TUTTI_OK ? size : tutti_rank(comm), first = size;
    error->rank = tutti_rank(comm);
    tutti_status met = tutti_all_reduce(tti_inside(comm, "trainer", "agree"), &failed, &first, 1, TUTTI_I64, TUTTI_MIN);
    if (met == TUTTI_OK && first < size)
        met = tutti_broadcast(tti_inside(tutti_at(comm, here.file, here.line), "trainer", "agree"), error, error,
                              sizeof *error, TUTTI_U8, (int)first);
    if (met != TUTTI_OK) {
        if (status == TUTTI_OK) *error = *tutti_comm_error(comm);
        return met;
    }
    return first < size ? error->status : TUTTI_OK;
}
