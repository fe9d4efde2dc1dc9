/* SPDX-License-Identifier: Apache-2.0
 *
 * Which program a call needs: one for each kind of work, type, reduction and length of lists.
 */
#include "collective/gpu/gpu_kernels.h"

#include "base/status.h"
#include "collective/gpu/gpu_arguments.h"
#include "collective/gpu/gpu_host.h"
#include "collective/gpu/gpu_source.h"
#include "collective/reduce/arithmetic.h"
#include "device/program.h"
#include <assert.h>

/* The names of the kernels, few and many, and what their sources are compiled for. */
struct row {
    const char *fold[2], *scan[2];
    const char *type, *reduction; /* NULL: the pair is not defined */
};

static const struct row rows[TUTTI_TYPE_COUNT][TTI_KERNEL_REDUCTIONS] = {
#define ROW(T, TYPE, R, column)                                                                                        \
    [TYPE][column] = {.fold = {"fold_" #T "_" #R "_few", "fold_" #T "_" #R "_many"},                                   \
                      .scan = {"scan_" #T "_" #R "_few", "scan_" #T "_" #R "_many"},                                   \
                      .type = "-DTYPE=" #T,                                                                            \
                      .reduction = "-DREDUCTION=" #R},
    TTI_ARITHMETIC_PAIRS(ROW)
#undef ROW
};
static const char *const move_names[2] = {"move_few", "move_many"};
static const char *const sizes[2] = {"-DSIZE=few", "-DSIZE=many"};

/* The same bits as on the CPU: no fused multiply-add, subnormal numbers, correct rounding. */
#define OPTIONS                                                                                                        \
    "--device-as-default-execution-space", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "-w"

static const struct row *row_of(const struct tti_reducer *reducer)
{
    int column = reducer->code == TTI_REDUCE_SCALED_SUM ? TTI_KERNEL_SCALED_SUM : reducer->code;
    if (reducer->code == TTI_REDUCE_FUNCTION) return NULL;
    assert(column >= 0 && column < TTI_KERNEL_REDUCTIONS && (unsigned)reducer->type < TUTTI_TYPE_COUNT);
    return rows[reducer->type][column].type == NULL ? NULL : &rows[reducer->type][column];
}

static tutti_status prepare_move(struct tti_device *device, int size, const struct tti_kernel **kernel,
                                 tutti_error *error)
{
    const struct tti_program program = {
        .name = move_names[size],
        .source = tti_gpu_move_source,
        .options = (const char *const[]){OPTIONS, sizes[size], NULL},
        .function = size == 0 ? tti_gpu_move_functions.few : tti_gpu_move_functions.many,
    };
    return tti_program_prepare(device, &program, kernel, error);
}

static tutti_status prepare_one(struct tti_device *device, const struct tti_gpu_kernel *of, int size,
                                const struct tti_kernel **kernel, tutti_error *error)
{
    if (of->work == TTI_GPU_MOVE) return prepare_move(device, size, kernel, error);
    const struct row *row = row_of(&of->reducer);
    bool fold = of->work == TTI_GPU_FOLD;
    const struct tti_gpu_functions *functions = fold ? &tti_gpu_fold_functions[of->reducer.type]
                                                     : &tti_gpu_scan_functions[of->reducer.type];
    const struct tti_program program = {
        .name = fold ? row->fold[size] : row->scan[size],
        .source = fold ? tti_gpu_fold_source : tti_gpu_scan_source,
        .options = (const char *const[]){OPTIONS, row->type, row->reduction, sizes[size], NULL},
        .function = size == 0 ? functions->few : functions->many,
    };
    return tti_program_prepare(device, &program, kernel, error);
}

static tutti_status check(enum tti_gpu_work work, const struct tti_reducer *reducer, int ranks, tutti_error *error)
{
    if (work == TTI_GPU_MOVE) return TUTTI_OK;
    if (row_of(reducer) == NULL)
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                             "GPUs have no kernel for this reduction: functions of the program's own run on the host");
    if (ranks >= 1 && ranks <= TTI_GPU_RANKS) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "a kernel reduces over 1 to %d ranks, not over %d",
                         TTI_GPU_RANKS, ranks);
}

tutti_status tti_gpu_prepare(struct tti_device *device, enum tti_gpu_work work, const struct tti_reducer *reducer,
                             int ranks, struct tti_gpu_kernel *kernel, tutti_error *error)
{
    struct tti_gpu_kernel made = {.work = work};
    TTI_TRY(check(work, reducer, ranks, error));
    if (work != TTI_GPU_MOVE) made.reducer = *reducer;
    if (work == TTI_GPU_MOVE || ranks <= TTI_GPU_FEW) TTI_TRY(prepare_one(device, &made, 0, &made.few, error));
    if (work == TTI_GPU_MOVE || ranks > TTI_GPU_FEW) TTI_TRY(prepare_one(device, &made, 1, &made.many, error));
    made.multiprocessors = tti_program_multiprocessors(device);
    *kernel = made;
    return TUTTI_OK;
}
