/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/engine/engine.h"

#include "base/alloc.h"

static bool allocate(struct tti_engine *engine, const tutti_comm *comm)
{
    size_t n = (size_t)comm->size;
    bool scratch = !comm->traits.all_threads;
    engine->sources = tti_calloc(n, sizeof *engine->sources);
    engine->targets = tti_calloc(n, sizeof *engine->targets);
    engine->factors = tti_calloc(n, sizeof *engine->factors);
    if (scratch) engine->scratch = tti_calloc(n, TTI_SCRATCH_BYTES);
    return engine->sources != NULL && engine->targets != NULL && engine->factors != NULL &&
           (!scratch || engine->scratch != NULL);
}

bool tti_engine_create(tutti_comm *comm)
{
    struct tti_engine *engine = comm->engine = tti_calloc(1, sizeof *engine);
    if (engine == NULL) return false;
    if (comm->memory == NULL) return true; /* over messages, what is needed follows from the plans */
    engine->own_row = (size_t)comm->rank;
    engine->stages = comm->memory->stages;
    engine->tables = comm->memory->tables;
    return allocate(engine, comm);
}

void tti_engine_free(tutti_comm *comm)
{
    struct tti_engine *engine = comm->engine;
    tutti_error ignored = {0};
    if (engine == NULL) return;
    tti_plan_cache_free(&engine->plans);
    tti_free(engine->sources);
    tti_free(engine->targets);
    tti_free(engine->factors);
    tti_free(engine->scratch);
    tti_free(engine->row);
    if (comm->memory == NULL) tti_free(engine->tables);
    if (engine->pack != NULL) tti_arena_free(&comm->world->arena, engine->pack, &ignored);
    tti_free(engine);
    comm->engine = NULL;
}

size_t tti_engine_bytes(const tutti_comm *comm)
{
    const struct tti_engine *engine = comm->engine;
    size_t n = (size_t)comm->size, bytes = sizeof *engine + tti_plan_cache_bytes(&engine->plans);
    if (engine->row != NULL) bytes += TTI_GIVEN * n * sizeof *engine->row;
    if (engine->sources != NULL)
        bytes += n * (sizeof *engine->sources + sizeof *engine->targets + sizeof *engine->factors);
    if (engine->scratch != NULL) bytes += n * TTI_SCRATCH_BYTES;
    return bytes;
}
