/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/engine/engine.h"

#include "base/alloc.h"

/* Allocates the arguments of the kernels. Over links their sizes follow from the plans. */
static bool allocate(struct tti_engine *engine, const tutti_comm *comm)
{
    size_t n = (size_t)comm->size;
    engine->sources = tti_calloc(n, sizeof *engine->sources);
    engine->targets = tti_calloc(n, sizeof *engine->targets);
    engine->factors = tti_calloc(n, sizeof *engine->factors);
    return engine->sources != NULL && engine->targets != NULL && engine->factors != NULL;
}

bool tti_engine_create(tutti_comm *comm)
{
    const struct tti_posts *memory = comm->memory;
    struct tti_engine *engine = comm->engine = tti_calloc(1, sizeof *engine);
    if (engine == NULL || memory == NULL) return engine != NULL;
    if (!memory->one_process) engine->scratch = tti_malloc_aligned((size_t)memory->count * TTI_SCRATCH_BYTES);
    if (!memory->one_process && engine->scratch == NULL) return false;
    if (memory->hosts != NULL) return true;
    engine->own_row = (size_t)comm->rank;
    engine->stages = memory->stages;
    engine->tables = memory->tables;
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
    if (comm->memory == NULL || comm->memory->tables == NULL) tti_free(engine->tables);
    if (engine->pack != NULL) tti_arena_free(comm->world->arena, engine->pack, &ignored);
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
    if (engine->scratch != NULL) bytes += (size_t)comm->memory->count * TTI_SCRATCH_BYTES;
    return bytes;
}
