/* SPDX-License-Identifier: Apache-2.0
 *
 * What providers keep for a comm from one op to the next.
 */
#ifndef TTI_COLLECTIVE_ENGINE_H
#define TTI_COLLECTIVE_ENGINE_H

#include "collective/peers/posts.h"
#include "collective/plan/plan_cache.h"

struct tti_engine {
    struct tti_plan_cache plans;
    const void **sources; /* (size) arguments of the kernels */
    void **targets;       /* (size) */
    double *factors;      /* (size) */
    char *scratch; /* ATTACH: pieces of others' inputs; TTI_SCRATCH_BYTES for each rank that shares memory, or NULL */
    char *stages;  /* TTI_STAGES_BYTES for each rank */
    uint64_t stage_used[TTI_GRAINS];    /* for each grain the last operation of this rank that staged there; 0: none */
    struct tti_staged_copy staged_copy; /* measures copies of staged data */
    uint64_t *tables;                   /* size rows of TTI_GIVEN * size, or only this rank's */
    size_t own_row;                     /* the number of this rank's row */
    uint64_t *row; /* TTI_GIVEN * size: this rank's row as the call gave it; shown to the others when the op begins */
    char *pack;    /* TTI_PACK_BYTES for small pieces of the op that runs, or NULL; see many.c */
};

/* Returns false if there is no memory. */
bool tti_engine_create(tutti_comm *comm);
void tti_engine_free(tutti_comm *comm);
/* Returns the bytes of the process's own memory that it holds. */
size_t tti_engine_bytes(const tutti_comm *comm);

static inline char *tti_stage_of(const struct tti_op *op, int rank)
{
    const tutti_comm *comm = op->comm;
    if (!op->stage.used) return (char *)(tti_slot_of(comm, rank, comm->sequence) + 1);
    return comm->engine->stages + (size_t)rank * TTI_STAGES_BYTES + (size_t)op->stage.first * TTI_GRAIN_STRIDE;
}

#endif
