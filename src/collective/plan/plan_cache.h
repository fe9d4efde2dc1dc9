/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of recent shapes, so that a loop builds its plans once.
 */
#ifndef TTI_COLLECTIVE_PLAN_CACHE_H
#define TTI_COLLECTIVE_PLAN_CACHE_H

#include "collective/plan/plan_hosts.h"

enum { TTI_KEPT_PLANS = 8 };

/* A plan and the shape it was built for. */
struct tti_kept_plan {
    struct tti_shape shape;
    struct tti_plan plan; /* without steps: there is none */
};

struct tti_plan_cache {
    struct tti_kept_plan *kept[TTI_KEPT_PLANS]; /* NULL: none yet */
};

/* Returns the plan for a shape, kept or newly built, which stays valid until the next call; NULL: there is no memory.
 * `hosts`: for a host-aware plan, or NULL. A plan is a function of its shape; the v-forms' tables are not compared, so
 * their plans are built anew. */
const struct tti_plan *tti_plan_cache_get(struct tti_plan_cache *cache, const struct tti_shape *shape,
                                          const struct tti_hosts *hosts);
/* Forgets the plans, which were built for another table of tuning. */
void tti_plan_cache_clear(struct tti_plan_cache *cache);
void tti_plan_cache_free(struct tti_plan_cache *cache);
size_t tti_plan_cache_bytes(const struct tti_plan_cache *cache);

#endif
