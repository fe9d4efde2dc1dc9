/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the kernel's arguments and the shape of its launch from a call. Lists lie among the arguments if they fit, else
 * in pinned memory that the kernel reads.
 */
#include "collective/gpu/gpu_kernels.h"

#include "base/status.h"
#include "collective/gpu/gpu_arguments.h"
#include "collective/reduce/reduce_kernels.h"
#include "device/stream.h"
#include <assert.h>
#include <stddef.h>
#include <string.h>

enum {
    BLOCK = 256,             /* threads of a block */
    BLOCKS = 32,             /* most blocks for each multiprocessor: more than run at once */
    GRID_Y = 65535,          /* the most that a grid allows */
    LIST_WORDS = 1 << 30,    /* most words of a list */
    COPIED_BYTES = 48 * 1024 /* most bytes that a block can copy */
};

/* The arguments of `few` are the beginning of those of `many`. */
static_assert(offsetof(struct tti_gpu_few, lists) == offsetof(struct tti_gpu_many, lists), "lists begin alike");
static_assert(sizeof(struct tti_gpu_many) <= 4096, "every GPU takes so many bytes of arguments");
static_assert((4 * TTI_GPU_RANKS + 1) * sizeof(uint64_t) <= COPIED_BYTES, "a fold's lists can be copied");

/* A launch that is being made. */
struct making {
    struct tti_stream *stream;
    const struct tti_gpu_kernel *of;
    const struct tti_kernel *kernel; /* the one of the two that will run */
    struct tti_gpu_launch *launch;
    struct tti_gpu_many arguments;
    uint64_t *lists; /* where the lists are written */
};

/* ---- Arguments ---------------------------------------------------------------------------------------------------- */

static uint64_t number_of(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

static tutti_status refuse(const char *what, tutti_error *error)
{
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%s", what);
}

/* Returns the address for kernels of memory that is registered with the device; 0 for NULL. */
static tutti_status address_of(struct tti_device *device, const void *enlisted, uint64_t *address, tutti_error *error)
{
    *address = enlisted == NULL ? 0 : number_of(device->ops->address(device, (void *)(uintptr_t)enlisted));
    if ((enlisted == NULL) == (*address == 0)) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "kernels on %s cannot reach this memory of the host",
                         device->name);
}

static tutti_status take_lists(struct making *making, size_t words, tutti_error *error)
{
    struct tti_device *device = making->stream->device;
    if (words > LIST_WORDS)
        return tti_error_set(error, TUTTI_ERR_LIMIT, 0, "a list of %zu words is too long for a kernel", words);
    TTI_TRY(tti_pinned_take(device, words * sizeof(uint64_t), &making->launch->lists, error));
    making->lists = (uint64_t *)(void *)making->launch->lists->base;
    tutti_status status = address_of(device, making->lists, &making->arguments.elsewhere, error);
    if (status != TUTTI_OK) {
        tti_pinned_give(making->launch->lists);
        making->launch->lists = NULL;
    }
    return status;
}

/* Fills in the arguments that all kernels have. `words`: those of the lists; `kernel`: the one that will run. Lists are
 * not cleared. */
static tutti_status begin(struct making *making, const struct tti_kernel *kernel, size_t words, tutti_error *error)
{
    const struct tti_gpu_launch *launch = making->launch;
    struct tti_gpu_many *arguments = &making->arguments;
    struct tti_device *device = making->stream->device;
    bool few = kernel == making->of->few;
    making->launch->lists = NULL;
    if (kernel == NULL) return refuse("the kernel was not prepared for so many ranks", error);
    if (launch->done != NULL && launch->counters == NULL) return refuse("a launch with `done` needs counters", error);
    making->kernel = kernel;
    memset(arguments, 0, offsetof(struct tti_gpu_many, lists));
    TTI_TRY(address_of(device, launch->abort, &arguments->abort, error));
    TTI_TRY(address_of(device, launch->done, &arguments->done, error));
    arguments->value = launch->value;
    arguments->counters = number_of(launch->counters);
    arguments->ticket = launch->ticket;
    arguments->list_words = (uint32_t)words;
    making->lists = arguments->lists;
    if (words > (few ? TTI_GPU_FEW_WORDS : TTI_GPU_MANY_WORDS)) return take_lists(making, words, error);
    return TUTTI_OK;
}

/* ---- Shape -------------------------------------------------------------------------------------------------------- */

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* Returns the width of a grid: as wide as its largest part needs, which has `most` pieces of work, but no wider than
 * that part's share of all the blocks that the GPU runs at once. `sum`: the pieces of all parts. */
static unsigned grid_width(const struct tti_gpu_kernel *kernel, uint64_t most, uint64_t sum)
{
    uint64_t blocks = (uint64_t)kernel->multiprocessors * BLOCKS, wanted = divide_up(most, BLOCK);
    uint64_t share = sum == 0 ? 1 : (uint64_t)((double)blocks * (double)most / (double)sum) + 1;
    uint64_t width = wanted < share ? wanted : share;
    if (width > blocks) width = blocks;
    return width == 0 ? 1 : (unsigned)width;
}

static tutti_status end(struct making *making, uint64_t most, uint64_t sum, tutti_error *error)
{
    const struct tti_gpu_many *arguments = &making->arguments;
    bool few = making->kernel == making->of->few;
    unsigned parts = arguments->parts < GRID_Y ? arguments->parts : GRID_Y;
    struct tti_launch_shape shape = {.grid = {grid_width(making->of, most, sum), parts == 0 ? 1 : parts, 1},
                                     .block = {BLOCK, 1, 1}};
    if ((arguments->flags & TTI_GPU_COPIED) != 0)
        shape.shared_bytes = arguments->list_words * (unsigned)sizeof(uint64_t);
    tutti_status status = tti_stream_launch(making->stream, making->kernel, &shape, arguments,
                                            few ? sizeof(struct tti_gpu_few) : sizeof(struct tti_gpu_many), error);
    if (status == TUTTI_OK) return TUTTI_OK;
    tti_pinned_give(making->launch->lists);
    making->launch->lists = NULL;
    return status;
}

/* ---- Fold and scan ------------------------------------------------------------------------------------------------ */

/* How pointers are aligned; NULL pointers do not count. */
struct alignment {
    uintptr_t all, differ, first;
};

static void look_at(struct alignment *alignment, const void *const *pointers, int count)
{
    for (int k = 0; k < count; k++) {
        uintptr_t address = (uintptr_t)pointers[k];
        if (address == 0) continue;
        if (alignment->first == 0) alignment->first = address;
        alignment->all |= address;
        alignment->differ |= address ^ alignment->first;
    }
}

static uint32_t alignment_flags(const struct alignment *alignment, const struct alignment *inputs, size_t element_bytes)
{
    if (alignment->all % element_bytes != 0) return 0;
    return TTI_GPU_ALIGNED | (inputs->differ % 16 == 0 ? TTI_GPU_ALIKE : 0);
}

static const struct tti_kernel *kernel_for(const struct tti_gpu_kernel *kernel, int ranks)
{
    return kernel->few != NULL && ranks <= TTI_GPU_FEW ? kernel->few : kernel->many;
}

static bool is_scaled(const struct tti_gpu_kernel *kernel)
{
    return kernel->reducer.code == TTI_REDUCE_SCALED_SUM;
}

static uint64_t *write_pointers(uint64_t *at, const void *const *pointers, int count)
{
    for (int k = 0; k < count; k++) *at++ = number_of(pointers[k]);
    return at;
}

static uint64_t *write_factors(uint64_t *at, const struct tti_gpu_kernel *kernel, const double *factors, int count)
{
    if (!is_scaled(kernel)) return at;
    memcpy(at, factors, (size_t)count * sizeof *factors);
    return at + count;
}

/* Fills in the arguments that fold and scan have in common, after begin. */
static void describe(struct making *making, int inputs, int outputs, size_t count, uint32_t flags)
{
    struct tti_gpu_many *arguments = &making->arguments;
    const struct tti_reducer *reducer = &making->of->reducer;
    arguments->inputs = (uint32_t)inputs;
    arguments->outputs = (uint32_t)outputs;
    arguments->count = count;
    arguments->parts = 1;
    arguments->flags = flags | (arguments->elsewhere != 0 ? TTI_GPU_COPIED : 0);
    arguments->reduction = is_scaled(making->of) ? TTI_KERNEL_SCALED_SUM : (uint32_t)reducer->code;
}

/* Writes to `lists` where each slice begins, and where the last one ends; returns the most elements of a slice. */
static uint64_t write_slices(uint64_t *lists, const struct tti_gpu_fold *fold)
{
    uint64_t first = 0, most = 0;
    for (int k = 0; k < fold->outputs; k++) {
        *lists++ = first;
        first += fold->counts[k];
        if (fold->counts[k] > most) most = fold->counts[k];
    }
    *lists = first;
    return most;
}

static bool in_range(int count)
{
    return count >= 1 && count <= TTI_GPU_RANKS;
}

tutti_status tti_gpu_fold(struct tti_stream *stream, const struct tti_gpu_kernel *kernel,
                          const struct tti_gpu_fold *fold, struct tti_gpu_launch *launch, tutti_error *error)
{
    struct making making;
    making.stream = stream;
    making.of = kernel;
    making.launch = launch;
    struct alignment inputs = {0}, all;
    bool slices = fold->counts != NULL;
    size_t element_bytes = tutti_type_bytes(kernel->reducer.type), lanes = element_bytes < 2 ? 8 : 16 / element_bytes;
    if (kernel->work != TTI_GPU_FOLD || !in_range(fold->inputs) || !in_range(fold->outputs))
        return refuse("this is no kernel for a fold of so many inputs and outputs", error);
    size_t words = (size_t)(fold->inputs + fold->outputs + (slices ? fold->outputs + 1 : 0)) +
                   (is_scaled(kernel) ? (size_t)fold->inputs : 0);
    TTI_TRY(begin(&making, kernel_for(kernel, fold->inputs), words, error));
    look_at(&inputs, fold->in, fold->inputs);
    all = inputs;
    look_at(&all, (const void *const *)fold->out, fold->outputs);
    describe(&making, fold->inputs, fold->outputs, fold->count,
             alignment_flags(&all, slices ? &inputs : &all, element_bytes) | (slices ? TTI_GPU_SLICES : 0));

    uint64_t most = fold->count, *at = write_pointers(making.lists, fold->in, fold->inputs);
    at = write_pointers(at, (const void *const *)fold->out, fold->outputs);
    if (slices) {
        making.arguments.parts = (uint32_t)fold->outputs;
        most = write_slices(at, fold);
        at += fold->outputs + 1;
    }
    write_factors(at, kernel, fold->factors, fold->inputs);
    if ((making.arguments.flags & TTI_GPU_ALIKE) == 0) lanes = 1;
    return end(&making, divide_up(most, lanes), divide_up(fold->count, lanes), error);
}

tutti_status tti_gpu_scan(struct tti_stream *stream, const struct tti_gpu_kernel *kernel,
                          const struct tti_gpu_scan *scan, struct tti_gpu_launch *launch, tutti_error *error)
{
    struct making making;
    making.stream = stream;
    making.of = kernel;
    making.launch = launch;
    struct alignment all = {0};
    size_t lanes = tutti_type_bytes(kernel->reducer.type) > 4 ? 2 : 4;
    if (kernel->work != TTI_GPU_SCAN || !in_range(scan->ranks))
        return refuse("this is no kernel for a scan of so many ranks", error);
    size_t words = (size_t)scan->ranks * (is_scaled(kernel) ? 3 : 2);
    TTI_TRY(begin(&making, kernel_for(kernel, scan->ranks), words, error));
    look_at(&all, scan->in, scan->ranks);
    look_at(&all, (const void *const *)scan->out, scan->ranks);
    describe(&making, scan->ranks, scan->ranks, scan->count,
             alignment_flags(&all, &all, tutti_type_bytes(kernel->reducer.type)) |
                 (scan->exclusive ? TTI_GPU_EXCLUSIVE : 0));
    uint64_t *at = write_pointers(making.lists, scan->in, scan->ranks);
    at = write_pointers(at, (const void *const *)scan->out, scan->ranks);
    write_factors(at, kernel, scan->factors, scan->ranks);
    if ((making.arguments.flags & TTI_GPU_ALIKE) == 0) lanes = 1;
    return end(&making, divide_up(scan->count, lanes), divide_up(scan->count, lanes), error);
}

/* ---- Move --------------------------------------------------------------------------------------------------------- */

static bool is_void(const struct tti_gpu_flow *flow)
{
    return flow->bytes == 0 || flow->from == flow->to;
}

/* Returns true if both read the same source, which is read once then. */
static bool go_together(const struct tti_gpu_flow *flow, const struct tti_gpu_flow *next)
{
    return flow->from == next->from && flow->bytes == next->bytes && !flow->swap && !next->swap;
}

/* The totals of a list of flows. */
struct flows {
    size_t heads, targets;
    uint64_t most, sum; /* bytes of the largest head, and of all heads */
};

static struct flows count_flows(const struct tti_gpu_flow *flows, size_t flow_count)
{
    struct flows counted = {0};
    const struct tti_gpu_flow *before = NULL;
    for (size_t i = 0; i < flow_count; i++) {
        const struct tti_gpu_flow *flow = &flows[i];
        if (is_void(flow)) continue;
        counted.targets++;
        if (before != NULL && go_together(before, flow)) continue;
        counted.heads++;
        counted.sum += flow->bytes;
        if (flow->bytes > counted.most) counted.most = flow->bytes;
        before = flow;
    }
    return counted;
}

static void write_flows(uint64_t *heads, uint64_t *targets, const struct tti_gpu_flow *flows, size_t flow_count)
{
    const struct tti_gpu_flow *before = NULL;
    uint64_t *head = heads, *target = targets;
    for (size_t i = 0; i < flow_count; i++) {
        const struct tti_gpu_flow *flow = &flows[i];
        if (is_void(flow)) continue;
        if (before == NULL || !go_together(before, flow)) {
            head = before == NULL ? heads : head + TTI_GPU_HEAD;
            head[0] = number_of(flow->from);
            head[1] = flow->bytes;
            head[2] = (uint64_t)(target - targets) | (flow->swap ? TTI_GPU_SWAP : 0);
            before = flow;
        }
        head[2] += UINT64_C(1) << 32;
        *target++ = number_of(flow->to);
    }
}

tutti_status tti_gpu_move(struct tti_stream *stream, const struct tti_gpu_kernel *kernel,
                          const struct tti_gpu_flow *flows, size_t flow_count, struct tti_gpu_launch *launch,
                          tutti_error *error)
{
    struct making making;
    making.stream = stream;
    making.of = kernel;
    making.launch = launch;
    struct flows counted = count_flows(flows, flow_count);
    size_t words = counted.heads * TTI_GPU_HEAD + counted.targets;
    if (kernel->work != TTI_GPU_MOVE) return refuse("this is no kernel that moves", error);
    launch->lists = NULL;
    if (counted.heads == 0 && launch->done == NULL) return TUTTI_OK;
    TTI_TRY(begin(&making, words <= TTI_GPU_FEW_WORDS ? kernel->few : kernel->many, words, error));
    making.arguments.outputs = (uint32_t)counted.targets;
    making.arguments.parts = (uint32_t)counted.heads;
    write_flows(making.lists, making.lists + counted.heads * TTI_GPU_HEAD, flows, flow_count);
    return end(&making, divide_up(counted.most, 16), divide_up(counted.sum, 16), error);
}
