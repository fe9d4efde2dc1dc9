/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the program for a call: there is one for each kind of work, type, reduction and length of lists.
 */
#include "collective/gpu/gpu_kernels.h"

#include "base/status.h"
#include "collective/gpu/gpu_arguments.h"
#include "collective/gpu/gpu_host.h"
#include "collective/gpu/gpu_source.h"
#include "collective/reduce/arithmetic.h"
#include "device/program.h"
#include <assert.h>

/* The names of the kernels, few and many, and the names for which their sources are compiled. */
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

/* Options for the same bits as on the CPU: no fused multiply-add, subnormal numbers, correct rounding. */
static const char *const common_options[] = {
    "--device-as-default-execution-space", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "-w"};

static const struct row *row_of(const struct tti_reducer *reducer)
{
    int column = reducer->code == TTI_REDUCE_SCALED_SUM ? TTI_KERNEL_SCALED_SUM : reducer->code;
    if (reducer->code == TTI_REDUCE_FUNCTION) return NULL;
    assert(column >= 0 && column < TTI_KERNEL_REDUCTIONS && (unsigned)reducer->type < TUTTI_TYPE_COUNT);
    return rows[reducer->type][column].type == NULL ? NULL : &rows[reducer->type][column];
}

void tti_gpu_program_of(enum tti_gpu_work work, const struct tti_reducer *reducer, bool many,
                        struct tti_gpu_program *made)
{
    const char **option = made->options;
    const struct row *row = work == TTI_GPU_MOVE ? NULL : row_of(reducer);
    const struct tti_gpu_functions *functions = work == TTI_GPU_MOVE   ? &tti_gpu_move_functions
                                                : work == TTI_GPU_FOLD ? &tti_gpu_fold_functions[reducer->type]
                                                                       : &tti_gpu_scan_functions[reducer->type];
    for (size_t i = 0; i < sizeof common_options / sizeof *common_options; i++) *option++ = common_options[i];
    if (row != NULL) {
        *option++ = row->type;
        *option++ = row->reduction;
    }
    *option++ = many ? "-DSIZE=many" : "-DSIZE=few";
    *option = NULL;
    made->program = (struct tti_program){
        .name = row == NULL            ? move_names[many]
                : work == TTI_GPU_FOLD ? row->fold[many]
                                       : row->scan[many],
        .source = row == NULL            ? tti_gpu_move_source
                  : work == TTI_GPU_FOLD ? tti_gpu_fold_source
                                         : tti_gpu_scan_source,
        .options = made->options,
        .function = many ? functions->many : functions->few,
    };
}

static tutti_status prepare_one(struct tti_device *device, const struct tti_gpu_kernel *of, bool many,
                                const struct tti_kernel **kernel, tutti_error *error)
{
    struct tti_gpu_program made;
    tti_gpu_program_of(of->work, &of->reducer, many, &made);
    return tti_program_prepare(device, &made.program, kernel, error);
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
    if (work == TTI_GPU_MOVE || ranks <= TTI_GPU_FEW) TTI_TRY(prepare_one(device, &made, false, &made.few, error));
    if (work == TTI_GPU_MOVE || ranks > TTI_GPU_FEW) TTI_TRY(prepare_one(device, &made, true, &made.many, error));
    made.multiprocessors = tti_program_multiprocessors(device);
    *kernel = made;
    return TUTTI_OK;
}
