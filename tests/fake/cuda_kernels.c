/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of collectives for the fake libcuda: those of device `host`, found by the names that GPUs have for them.
 */
#include "collective/gpu/gpu_host.c"

typedef void function(const void *arguments);
function *fake_kernel(const char *name); /* for tests/fake/cuda.c */

/* Nobody sleeps for a word of a GPU without a limit. */
void tti_word_store(struct tti_word *word, uint64_t value)
{
    atomic_store(&word->value, value);
}

function *fake_kernel(const char *name)
{
    static const char *const types[TUTTI_TYPE_COUNT] = {
#define ROW(T, TYPE, R, column) [TYPE] = #T "_",
        TTI_ARITHMETIC_PAIRS(ROW)
#undef ROW
    };
    const char *size = strrchr(name, '_');
    bool many = size != NULL && strcmp(size, "_many") == 0;
    if (strncmp(name, "move_", 5) == 0) return many ? tti_gpu_move_functions.many : tti_gpu_move_functions.few;
    const struct tti_gpu_functions *functions = strncmp(name, "fold_", 5) == 0   ? tti_gpu_fold_functions
                                                : strncmp(name, "scan_", 5) == 0 ? tti_gpu_scan_functions
                                                                                 : NULL;
    for (int i = 0; functions != NULL && i < TUTTI_TYPE_COUNT; i++)
        if (strncmp(name + 5, types[i], strlen(types[i])) == 0) return many ? functions[i].many : functions[i].few;
    return NULL;
}
