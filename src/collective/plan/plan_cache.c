/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/plan/plan_cache.h"

#include "base/alloc.h"

static bool same_shape(const struct tti_shape *a, const struct tti_shape *b)
{
    return a->kind == b->kind && a->path == b->path && a->root == b->root && a->count == b->count &&
           a->element == b->element && a->in_place == b->in_place && a->rank == b->rank &&
           a->accumulator == b->accumulator && a->scaled == b->scaled;
}

static struct tti_kept_plan **place_of(struct tti_plan_cache *cache, const struct tti_shape *shape)
{
    uint64_t place = (shape->count ^ shape->count >> 10) + (uint64_t)shape->kind * 3 + (uint64_t)shape->path +
                     (uint64_t)shape->rank;
    return &cache->kept[place % TTI_KEPT_PLANS];
}

const struct tti_plan *tti_plan_cache_get(struct tti_plan_cache *cache, const struct tti_shape *shape,
                                          const struct tti_hosts *hosts)
{
    struct tti_kept_plan **place = place_of(cache, shape), *kept = *place;
    if (kept == NULL) kept = *place = tti_calloc(1, sizeof *kept);
    if (kept == NULL) return NULL;
    if (kept->plan.count > 0 && shape->tables == NULL && same_shape(shape, &kept->shape)) return &kept->plan;
    kept->shape = *shape;
    tutti_status status = hosts == NULL ? tti_plan_build(&kept->plan, shape)
                                        : tti_hosts_build_all(&kept->plan, hosts, shape);
    if (status == TUTTI_OK && !kept->plan.failed) {
        tti_plan_count(&kept->plan);
        return &kept->plan;
    }
    kept->plan.count = 0;
    return NULL;
}

void tti_plan_cache_clear(struct tti_plan_cache *cache)
{
    for (int i = 0; i < TTI_KEPT_PLANS; i++)
        if (cache->kept[i] != NULL) cache->kept[i]->plan.count = 0;
}

void tti_plan_cache_free(struct tti_plan_cache *cache)
{
    for (int i = 0; i < TTI_KEPT_PLANS; i++) {
        if (cache->kept[i] != NULL) tti_plan_free(&cache->kept[i]->plan);
        tti_free(cache->kept[i]);
    }
}

size_t tti_plan_cache_bytes(const struct tti_plan_cache *cache)
{
    size_t bytes = 0;
    for (int i = 0; i < TTI_KEPT_PLANS; i++) {
        if (cache->kept[i] == NULL) continue;
        const struct tti_plan *plan = &cache->kept[i]->plan;
        bytes += sizeof *cache->kept[i] + plan->capacity * sizeof *plan->steps;
        bytes += plan->part_capacity * sizeof *plan->parts;
    }
    return bytes;
}
