/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the kernels: the best that this CPU can run, or those that a test asks for.
 */
#include "collective/reduce/reduce_kernels.h"

#include "collective/reduce/reduce.h"
#include <string.h>

static const struct tti_kernels *const all[] = {
#if defined(__x86_64__)
    &tti_kernels_avx512,
    &tti_kernels_avx2,
#endif
    &tti_kernels_portable,
};
enum { COUNT = sizeof all / sizeof *all };

_Atomic(const struct tti_kernels *) tti_kernels_chosen;

const struct tti_kernels *tti_kernels_choose(void)
{
    int best = 0;
    while (!all[best]->usable()) best++;
    atomic_store_explicit(&tti_kernels_chosen, all[best], memory_order_relaxed);
    return all[best];
}

const char *tti_kernels_name(void)
{
    return tti_kernels_now()->name;
}

bool tti_kernels_force(const char *name)
{
    if (name == NULL) return tti_kernels_choose() != NULL;
    for (int i = 0; i < COUNT; i++) {
        if (strcmp(name, all[i]->name) != 0 || !all[i]->usable()) continue;
        atomic_store_explicit(&tti_kernels_chosen, all[i], memory_order_relaxed);
        return true;
    }
    return false;
}
