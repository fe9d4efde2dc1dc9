/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels for every machine, and the choice among them.
 */
#include "nn/nn_kernels.h"

#include <math.h>
#include <string.h>
#include <tutti/train.h>

static bool usable(void)
{
    return true;
}

#define KERNEL_SET tti_nn_kernels_portable
#define KERNEL_NAME "portable"
#include "nn/nn_kernels.inc"

static const struct tti_nn_kernels *const sets[] = {
#if defined(__x86_64__)
    &tti_nn_kernels_avx512,
    &tti_nn_kernels_avx2,
#endif
    &tti_nn_kernels_portable,
};

const struct tti_nn_kernels *tti_nn_kernels(void)
{
    size_t i = 0;
    while (!sets[i]->usable()) i++;
    return sets[i];
}

const char *tutti_nn_kernels_name(void)
{
    return tti_nn_kernels()->name;
}
