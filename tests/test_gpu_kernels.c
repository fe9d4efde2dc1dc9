/* SPDX-License-Identifier: Apache-2.0
 * ctest: labels=asan timeout=300
 *
 * test_gpu_kernels [DEVICE [TYPE]]: the kernels fold, scan and move against tti_reduce, tti_scan and memcpy, bit for bit, on
 * one type or on all ("move": what needs no type). Whatever lies around the outputs must stay as it is.
 */
#include "device_check.h"

#include "base/clock.h"
#include "collective/gpu/gpu_arguments.h"
#include "collective/gpu/gpu_kernels.h"
#include "collective/reduce/arithmetic.h"
#include "collective/reduce/reduce_kernels.h"

enum { RANKS_MOST = TTI_GPU_RANKS, COUNT_MOST = 4096, GUARD = 64, ROOM = 8 << 20, SCALED = TTI_KERNEL_SCALED_SUM };

static struct tti_stream *stream;
static char *before, *expected, *got; /* what the region holds, should hold and holds afterwards */
static char *region;                  /* on the device */
static size_t used;                   /* bytes of it */
static double factors[RANKS_MOST];
static uint64_t random_state = 1;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * 0x2545f4914f6cdd1du;
}

static size_t pick(size_t below)
{
    return (size_t)((random_bits() >> 33) % below);
}

/* ---- Values --------------------------------------------------------------------------------------------------------- */

/* 1, the bits that may be changed for numbers of that size, infinity or the largest, and NaN. */
static const struct {
    uint64_t one, near, infinity, nan;
} floats[TUTTI_TYPE_COUNT] = {
    [TUTTI_F64] = {0x3ff0000000000000, 0x801fffffffffffff, 0x7ff0000000000000, 0x7ff8000000000000},
    [TUTTI_F32] = {0x3f800000, 0x80ffffff, 0x7f800000, 0x7fc00000},
    [TUTTI_F16] = {0x3c00, 0x87ff, 0x7c00, 0x7e01},
    [TUTTI_BF16] = {0x3f80, 0x80ff, 0x7f80, 0x7fc1},
    [TUTTI_F8E4M3] = {0x38, 0x8f, 0x7e, 0x7f},
    [TUTTI_F8E5M2] = {0x3c, 0x87, 0x7c, 0x7e},
};

static void fill(char *at, tutti_type type, size_t count)
{
    size_t bytes = tutti_type_bytes(type);
    uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
    for (size_t i = 0; i < count; i++) {
        uint64_t value = random_bits();
        size_t what = pick(16);
        if (floats[type].one != 0 && what < 10)
            value = floats[type].one ^ (value & floats[type].near);
        else if (what < 12)
            value = pick(2) ? sign : 0; /* of floats: both zeros */
        else if (what == 12 && floats[type].one != 0)
            value = floats[type].infinity | (pick(2) ? sign : 0);
        else if (what == 13 && floats[type].one != 0 && pick(8) == 0)
            value = floats[type].nan | (pick(2) ? sign : 0);
        memcpy(at + i * bytes, &value, bytes);
    }
}

static bool is_nan(tutti_type type, const char *at)
{
    float f32;
    double f64;
    if (type == TUTTI_F32) return memcpy(&f32, at, sizeof f32), f32 != f32;
    if (type == TUTTI_F64) return memcpy(&f64, at, sizeof f64), f64 != f64;
    return false;
}

/* ---- The region ----------------------------------------------------------------------------------------------------- */

static void begin_region(void)
{
    used = GUARD;
}

/* Room for `bytes`, `odd` bytes past a multiple of 64; an offset. */
static size_t place(size_t bytes, size_t odd)
{
    size_t at = used + odd;
    used = (at + bytes + 2 * GUARD - 1) / GUARD * GUARD + GUARD;
    if (used > ROOM) abort();
    return at;
}

static void put_region(void)
{
    for (size_t i = 0; i < used; i += 8) {
        uint64_t bits = random_bits();
        memcpy(before + i, &bits, 8);
    }
}

static void send_region(void)
{
    memcpy(expected, before, used);
    GOOD(tti_stream_copy(stream, region, before, used, &error));
}

/* Compares all of it; where `type` has NaNs whose bits are not defined, any will do. */
static void check_region(tutti_type type, const char *what)
{
    GOOD(tti_stream_copy(stream, got, region, used, &error));
    GOOD(tti_stream_sync(stream, tti_now_ns() + LONG_MS * MS, &error));
    bool same = memcmp(got, expected, used) == 0;
    if (!same && (type == TUTTI_F32 || type == TUTTI_F64)) {
        size_t bytes = tutti_type_bytes(type), differ = 0;
        same = true;
        for (size_t i = 0; i < used && same; i++) {
            if (got[i] == expected[i]) continue;
            differ = i;
            same = false;
            for (size_t odd = 0; odd < bytes && !same; odd++) { /* elements lie at any address */
                if (odd > i) break;
                same = is_nan(type, got + i - odd) && is_nan(type, expected + i - odd);
                if (same) i += bytes - odd - 1;
            }
        }
        CHECK_THAT(same, "%s: byte %zu of %zu", what, differ, used);
        return;
    }
    CHECK_THAT(same, "%s", what);
}

static void *on_device(size_t offset)
{
    return region + offset;
}

/* ---- Fold ------------------------------------------------------------------------------------------------------------ */

struct fold_case {
    int inputs, outputs;
    size_t count;
    size_t odd[2];  /* bytes past a multiple of 64, of inputs and of outputs */
    bool differing; /* every pointer has an alignment of its own */
    bool in_place, slices;
};

static size_t in_at[RANKS_MOST], out_at[RANKS_MOST], counts[RANKS_MOST];

static size_t odd_of(const struct fold_case *of, int which, size_t bytes)
{
    return of->differing ? pick(16 / bytes) * bytes : of->odd[which];
}

static void cut_slices(const struct fold_case *of)
{
    size_t left = of->count;
    for (int k = 0; k < of->outputs; k++) {
        counts[k] = k == of->outputs - 1 ? left : pick(3) == 0 ? 0 : pick(left + 1);
        if (k < of->outputs - 1 && pick(2) == 0 && of->count / (size_t)of->outputs <= left)
            counts[k] = of->count / (size_t)of->outputs;
        left -= counts[k];
    }
}

static void lay_out(const struct fold_case *of, tutti_type type)
{
    size_t bytes = tutti_type_bytes(type), first = 0;
    begin_region();
    for (int k = 0; k < of->inputs; k++) in_at[k] = place(of->count * bytes, odd_of(of, 0, bytes));
    for (int k = 0; k < of->outputs; k++) {
        if (of->in_place)
            out_at[k] = in_at[k] + first * bytes;
        else
            out_at[k] = place((of->slices ? counts[k] : of->count) * bytes, odd_of(of, 1, bytes));
        if (of->slices) first += counts[k];
    }
    put_region();
    for (int k = 0; k < of->inputs; k++) fill(before + in_at[k], type, of->count);
}

static void expect_fold(const struct fold_case *of, const struct tti_reducer *reducer)
{
    const void *sources[RANKS_MOST];
    void *targets[RANKS_MOST];
    size_t bytes = tutti_type_bytes(reducer->type), first = 0;
    for (int k = 0; k < of->outputs; k++) targets[k] = expected + out_at[k];
    if (!of->slices) {
        for (int s = 0; s < of->inputs; s++) sources[s] = expected + in_at[s];
        tti_reduce(reducer, sources, factors, of->inputs, targets, of->outputs, of->count, false);
        return;
    }
    for (int k = 0; k < of->outputs; first += counts[k], k++) {
        for (int s = 0; s < of->inputs; s++) sources[s] = expected + in_at[s] + first * bytes;
        tti_reduce(reducer, sources, factors, of->inputs, &targets[k], 1, counts[k], false);
    }
}

static void name_case(char *text, size_t bytes, const char *what, const struct fold_case *of,
                      const struct tti_reducer *reducer)
{
    (void)snprintf(text, bytes, "%s of %s, reduction %d, %d to %d, %zu elements, odd %zu and %zu%s%s%s", what,
                   tutti_type_name(reducer->type), reducer->code, of->inputs, of->outputs, of->count, of->odd[0],
                   of->odd[1], of->differing ? ", differing" : "", of->in_place ? ", in place" : "",
                   of->slices ? ", slices" : "");
}

static void try_fold(const struct tti_gpu_kernel *kernel, const struct fold_case *of)
{
    const void *in[RANKS_MOST];
    void *out[RANKS_MOST];
    char text[200];
    struct tti_gpu_launch launch = {0};
    struct tti_gpu_fold fold = {.inputs = of->inputs,
                                .outputs = of->outputs,
                                .in = in,
                                .factors = factors,
                                .out = out,
                                .count = of->count,
                                .counts = of->slices ? counts : NULL};
    if (of->slices) cut_slices(of);
    lay_out(of, kernel->reducer.type);
    send_region();
    for (int k = 0; k < of->inputs; k++) in[k] = on_device(in_at[k]);
    for (int k = 0; k < of->outputs; k++) out[k] = on_device(out_at[k]);
    GOOD(tti_gpu_fold(stream, kernel, &fold, &launch, &error));
    expect_fold(of, &kernel->reducer);
    name_case(text, sizeof text, "fold", of, &kernel->reducer);
    check_region(kernel->reducer.type, text);
    tti_pinned_give(launch.lists);
}

static const size_t some_counts[] = {0, 1, 3, 7, 31, 64, 257, 1000, 4095};

/* Whatever the number, inputs and outputs that lie in one of the ways that there are. */
static struct fold_case any_case(int inputs, tutti_type type)
{
    size_t bytes = tutti_type_bytes(type);
    struct fold_case made = {.inputs = inputs, .outputs = pick(3) == 0 ? 1 : inputs};
    made.count = some_counts[pick(sizeof some_counts / sizeof *some_counts)];
    if (inputs > 17 && made.count > 257) made.count = 257;
    switch (pick(5)) {
    case 0: made.odd[0] = made.odd[1] = pick(16 / bytes) * bytes; break; /* all alike */
    case 1: made.odd[0] = pick(16), made.odd[1] = pick(16); break;       /* at any address */
    case 2: made.differing = true; break;
    default: break;
    }
    made.slices = pick(2) == 0;
    made.in_place = (made.outputs == inputs || !made.slices) && pick(2) == 0;
    return made;
}

/* ---- Scan ------------------------------------------------------------------------------------------------------------ */

static void try_scan(const struct tti_gpu_kernel *kernel, const struct fold_case *of, bool exclusive, bool holes)
{
    const void *in[RANKS_MOST], *sources[RANKS_MOST];
    void *out[RANKS_MOST], *targets[RANKS_MOST];
    char text[200];
    struct tti_gpu_launch launch = {0};
    struct tti_gpu_scan scan = {
        .ranks = of->inputs, .in = in, .factors = factors, .out = out, .exclusive = exclusive, .count = of->count};
    lay_out(of, kernel->reducer.type);
    send_region();
    for (int k = 0; k < of->inputs; k++) {
        bool wanted = !holes || pick(3) != 0;
        in[k] = on_device(in_at[k]);
        sources[k] = expected + in_at[k];
        out[k] = wanted ? on_device(out_at[k]) : NULL;
        targets[k] = wanted ? expected + out_at[k] : NULL;
    }
    GOOD(tti_gpu_scan(stream, kernel, &scan, &launch, &error));
    tti_scan(&kernel->reducer, sources, factors, of->inputs, targets, exclusive, of->count, false);
    name_case(text, sizeof text, exclusive ? "exclusive scan" : "scan", of, &kernel->reducer);
    check_region(kernel->reducer.type, text);
    tti_pinned_give(launch.lists);
}

/* ---- All pairs ------------------------------------------------------------------------------------------------------- */

static struct tti_gpu_kernel prepare(enum tti_gpu_work work, const struct tti_reducer *reducer, int ranks)
{
    struct tti_gpu_kernel kernel = {0};
    GOOD(tti_gpu_prepare(stream->device, work, reducer, ranks, &kernel, &error));
    if (kernel.few == NULL && kernel.many == NULL) exit(check_end() || 1);
    return kernel;
}

static void try_ranks(const struct tti_reducer *reducer, int ranks, int rounds)
{
    struct tti_gpu_kernel fold = prepare(TTI_GPU_FOLD, reducer, ranks), scan = prepare(TTI_GPU_SCAN, reducer, ranks);
    for (int round = 0; round < rounds; round++) {
        struct fold_case of = any_case(ranks, reducer->type);
        try_fold(&fold, &of);
        of = any_case(ranks, reducer->type);
        of.slices = false;
        of.outputs = ranks;
        try_scan(&scan, &of, pick(2) == 0, pick(3) == 0);
    }
}

static bool make_reducer(tutti_type type, int column, struct tti_reducer *reducer)
{
    char why[200];
    tutti_reduction reduction = (tutti_reduction)column;
    if (column == SCALED && tutti_reduction_scaled_sum(3, &reduction, NULL) != TUTTI_OK) return false;
    return tti_reducer_init(reducer, type, reduction, why, sizeof why) == TUTTI_OK;
}

static void set_factors(tutti_type type)
{
    static const double any[] = {0.5, -1.25, 3, 1e-3, -0.0, 7e4};
    bool is_float = floats[type].one != 0;
    for (int i = 0; i < RANKS_MOST; i++) factors[i] = is_float ? any[i % 6] : (double)(1 + i % 5);
    if (!is_float && (type == TUTTI_I8 || type == TUTTI_I64)) factors[1] = -3;
}

static void test_type(tutti_type type)
{
    struct tti_reducer reducer;
    set_factors(type);
    for (int column = 0; column < TTI_KERNEL_REDUCTIONS; column++) {
        if (!make_reducer(type, column, &reducer)) continue;
        for (int ranks = 1; ranks <= 17; ranks++) try_ranks(&reducer, ranks, 4);
        try_ranks(&reducer, 64, 1);
        if (column == TUTTI_SUM || column == SCALED) {
            try_ranks(&reducer, 128, 3); /* among the arguments, or not, */
            try_ranks(&reducer, 200, 2); /* and elsewhere */
            try_ranks(&reducer, RANKS_MOST, 1);
        }
    }
}

/* ---- The arithmetic by itself ---------------------------------------------------------------------------------------- */

/* The tree by recursion, with the functions of arithmetic.h, against tti_reduce. */
#define TREE(T, TYPE, R, column)                                                                                       \
    static accumulator_##T##_##R tree_##T##_##R(const char *const *at, int first, int n, size_t i)                     \
    {                                                                                                                  \
        element_##T x;                                                                                                 \
        int half = 1;                                                                                                  \
        memcpy(&x, at[first] + i * sizeof x, sizeof x);                                                                \
        if (n == 1) return load_##T##_##R(x, factors[first]);                                                          \
        while (2 * half < n) half *= 2;                                                                                \
        return fold_##T##_##R(tree_##T##_##R(at, first, half, i), tree_##T##_##R(at, first + half, n - half, i));      \
    }                                                                                                                  \
    static void reduce_##T##_##R(const char *const *at, int n, size_t count, char *out)                                \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                           \
            element_##T made = store_##T##_##R(tree_##T##_##R(at, 0, n, i), n);                                        \
            memcpy(out + i * sizeof made, &made, sizeof made);                                                         \
        }                                                                                                              \
    }
TTI_ARITHMETIC_PAIRS(TREE)

static const struct arithmetic {
    const char *name;
    tutti_type type;
    int column;
    void (*reduce)(const char *const *at, int n, size_t count, char *out);
} arithmetic[] = {
#define ROW(T, TYPE, R, column) {#T " " #R, TYPE, column, reduce_##T##_##R},
    TTI_ARITHMETIC_PAIRS(ROW)
#undef ROW
};
enum { PAIRS = sizeof arithmetic / sizeof *arithmetic };

static void test_arithmetic(const struct arithmetic *of)
{
    enum { RANKS = 17, ELEMENTS = 2000 };
    struct tti_reducer reducer;
    const char *in[RANKS];
    const void *sources[RANKS];
    size_t bytes = tutti_type_bytes(of->type);
    CHECK_THAT(make_reducer(of->type, of->column, &reducer), "%s", of->name);
    set_factors(of->type);
    for (int k = 0; k < RANKS; k++) {
        char *at = before + (size_t)k * ELEMENTS * 8;
        fill(at, of->type, ELEMENTS);
        in[k] = at;
        sources[k] = at;
    }
    for (int n = 1; n <= RANKS; n++) {
        void *target = expected;
        of->reduce(in, n, ELEMENTS, got);
        tti_reduce(&reducer, sources, factors, n, &target, 1, ELEMENTS, false);
        size_t wrong = 0;
        for (size_t i = 0; i < ELEMENTS; i++) {
            char *ours = got + i * bytes, *theirs = expected + i * bytes;
            wrong += memcmp(ours, theirs, bytes) != 0 && !(is_nan(of->type, ours) && is_nan(of->type, theirs));
        }
        CHECK_THAT(wrong == 0, "%s of %d: %zu elements differ", of->name, n, wrong);
    }
}

/* Every pair that the host defines has its arithmetic, and no other. */
static void test_pairs(void)
{
    struct tti_reducer reducer;
    int defined = 0;
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++)
        for (int column = 0; column < TTI_KERNEL_REDUCTIONS; column++)
            defined += make_reducer((tutti_type)type, column, &reducer);
    CHECK_THAT(defined == PAIRS, "%d pairs are defined, and %d have arithmetic", defined, (int)PAIRS);
    for (int i = 0; i < PAIRS; i++) test_arithmetic(&arithmetic[i]);
}

/* ---- Move ------------------------------------------------------------------------------------------------------------- */

static void expect_flows(const struct tti_gpu_flow *flows, size_t count)
{
    static char held[ROOM];
    for (size_t i = 0; i < count; i++) {
        size_t from = (size_t)((const char *)flows[i].from - region), to = (size_t)((char *)flows[i].to - region);
        memcpy(held, before + to, flows[i].bytes);
        memcpy(expected + to, before + from, flows[i].bytes);
        if (flows[i].swap) memcpy(expected + from, held, flows[i].bytes);
    }
}

static void move_and_check(const struct tti_gpu_kernel *kernel, const struct tti_gpu_flow *flows, size_t count,
                           const char *what)
{
    struct tti_gpu_launch launch = {0};
    put_region();
    send_region();
    GOOD(tti_gpu_move(stream, kernel, flows, count, &launch, &error));
    expect_flows(flows, count);
    check_region(TUTTI_U8, what);
    tti_pinned_give(launch.lists);
}

/* A list of `count` flows of all sorts, from places that are read only to places that are written once. */
static void try_flows(const struct tti_gpu_kernel *kernel, size_t count, size_t bytes_most)
{
    struct tti_gpu_flow *flows = calloc(count, sizeof *flows);
    char text[100];
    size_t alike = pick(2) ? 0 : pick(16);
    bool any = pick(2) == 0;
    begin_region();
    for (size_t i = 0; i < count; i++) {
        size_t bytes = pick(5) == 0 ? pick(20) : pick(bytes_most);
        if (i > 0 && !flows[i - 1].swap && pick(2) == 0) { /* of the same source */
            bytes = flows[i - 1].bytes;
            flows[i].from = flows[i - 1].from;
        } else {
            flows[i].from = on_device(place(bytes, any ? pick(16) : alike));
            flows[i].swap = pick(4) == 0;
        }
        flows[i].bytes = bytes;
        flows[i].to = on_device(place(bytes, any ? pick(16) : alike));
        if (pick(9) == 0 && !flows[i].swap && (i == 0 || flows[i].from != flows[i - 1].from))
            flows[i].to = (void *)(uintptr_t)flows[i].from;
    }
    (void)snprintf(text, sizeof text, "%zu flows of up to %zu bytes", count, bytes_most);
    move_and_check(kernel, flows, count, text);
    free(flows);
}

static void test_move(void)
{
    static const size_t lengths[] = {1, 2, 7, 16, 56, 120, 126, 200, 1500};
    struct tti_gpu_kernel kernel = prepare(TTI_GPU_MOVE, NULL, 8);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int round = 0; round < 12; round++) try_flows(&kernel, lengths[i], lengths[i] > 100 ? 300 : 20000);
    try_flows(&kernel, 2, 2 << 20);
    try_flows(&kernel, 4, 1 << 20);
    begin_region();
    move_and_check(&kernel, NULL, 0, "no flows");
    struct tti_gpu_flow itself = {on_device(place(100, 0)), NULL, 100, false};
    itself.to = (void *)(uintptr_t)itself.from;
    move_and_check(&kernel, &itself, 1, "a flow that stays");
}

/* ---- What goes with a launch ---------------------------------------------------------------------------------------- */

struct aside {
    struct tti_word *abort, *done;
    tutti_buffer *counter;
    struct tti_gpu_launch launch;
};

static void launch_move(const struct tti_gpu_kernel *kernel, struct aside *aside, size_t bytes, const char *what)
{
    begin_region();
    size_t from = place(bytes, 0), to = place(bytes, 0);
    struct tti_gpu_flow flow = {on_device(from), on_device(to), bytes, false};
    bool aborts = atomic_load_explicit(&aside->abort->value, memory_order_relaxed) != 0;
    put_region();
    send_region();
    aside->launch.ticket++;
    aside->launch.value = atomic_load_explicit(&aside->done->value, memory_order_relaxed) + 3;
    GOOD(tti_gpu_move(stream, kernel, &flow, 1, &aside->launch, &error));
    GOOD(tti_word_await(stream, aside->done, aside->launch.value, tti_now_ns() + LONG_MS * MS, &error));
    if (!aborts) expect_flows(&flow, 1);
    check_region(TUTTI_U8, what);
}

static void test_words(tutti_device *device)
{
    static const uint32_t zero = 0;
    struct tti_gpu_kernel kernel = prepare(TTI_GPU_MOVE, NULL, 2);
    struct aside aside = {.counter = make_buffer(device, TUTTI_U32, 2)};
    GOOD(tti_word_take(stream->device, &aside.abort, &error));
    GOOD(tti_word_take(stream->device, &aside.done, &error));
    aside.launch.abort = aside.abort;
    aside.launch.done = aside.done;
    struct tti_gpu_flow none = {NULL, NULL, 0, false};
    CHECK(tti_gpu_move(stream, &kernel, &none, 1, &aside.launch, &error) == TUTTI_ERR_ARGUMENT);
    aside.launch.counters = tutti_buffer_at(aside.counter, 0, 2);
    GOOD(tti_stream_fill(stream, aside.launch.counters, 2, &zero, sizeof zero, &error));
    tti_word_store(aside.abort, 0);
    for (int round = 0; round < 20; round++) {
        launch_move(&kernel, &aside, 64, "one block, then done");
        launch_move(&kernel, &aside, 3 << 20, "many blocks, then done");
        tti_word_store(aside.abort, 1);
        launch_move(&kernel, &aside, 3 << 20, "aborted");
        tti_word_store(aside.abort, 0);
    }
    GOOD(tti_stream_sync(stream, tti_now_ns() + LONG_MS * MS, &error));
    tti_word_give(stream->device, aside.abort);
    tti_word_give(stream->device, aside.done);
    GOOD(tutti_buffer_free(aside.counter, &error));
}

static void add(void *context, void *left, const void *right, size_t count, tutti_type type)
{
    (void)context, (void)left, (void)right, (void)count, (void)type;
}

static void test_refused(void)
{
    struct tti_reducer reducer;
    struct tti_gpu_kernel kernel = {0}, few;
    struct tti_gpu_launch launch = {0};
    tutti_reduction own;
    const void *in[TTI_GPU_FEW + 1] = {0};
    void *out = NULL;
    CHECK(tutti_reduction_register("of my own", add, NULL, &own, NULL) == TUTTI_OK);
    CHECK(tti_reducer_init(&reducer, TUTTI_F32, own, NULL, 0) == TUTTI_OK);
    CHECK(tti_gpu_prepare(stream->device, TTI_GPU_FOLD, &reducer, 2, &kernel, &error) == TUTTI_ERR_UNSUPPORTED);
    CHECK(make_reducer(TUTTI_F32, TUTTI_SUM, &reducer));
    CHECK(tti_gpu_prepare(stream->device, TTI_GPU_FOLD, &reducer, RANKS_MOST + 1, &kernel, &error) ==
          TUTTI_ERR_UNSUPPORTED);
    few = prepare(TTI_GPU_FOLD, &reducer, 2);
    struct tti_gpu_fold fold = {.inputs = TTI_GPU_FEW + 1, .outputs = 1, .in = in, .out = &out};
    CHECK(tti_gpu_fold(stream, &few, &fold, &launch, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(tti_gpu_move(stream, &few, NULL, 0, &launch, &error) == TUTTI_ERR_ARGUMENT);
}

/* ---- All of it -------------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    const char *wanted = argc > 2 ? argv[2] : NULL;
    if (argc > 1) device_name = argv[1];
    tutti_device *device = open_device();
    tutti_stream *handle = make_stream(device);
    tutti_buffer *all = make_buffer(device, TUTTI_U8, ROOM);
    struct {
        tutti_buffer *buffer;
        char **at;
    } pinned[] = {{NULL, &before}, {NULL, &expected}, {NULL, &got}};
    stream = tti_stream_take(handle, &error);
    region = tutti_buffer_at(all, 0, ROOM);
    for (int i = 0; i < 3; i++) {
        GOOD(tutti_buffer_create(device, TUTTI_MEMORY_PINNED, TUTTI_U8, ROOM, &pinned[i].buffer, &error));
        *pinned[i].at = tutti_buffer_at(pinned[i].buffer, 0, ROOM);
    }
    if (stream == NULL || region == NULL || before == NULL || expected == NULL || got == NULL) return 1;

    if (wanted == NULL) test_pairs();
    if (wanted == NULL || strcmp(wanted, "move") == 0) {
        test_move();
        test_words(device);
        test_refused();
    }
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++)
        if (wanted == NULL || strcmp(wanted, tutti_type_name((tutti_type)type)) == 0) test_type((tutti_type)type);

    tti_object_give(&stream->object);
    for (int i = 0; i < 3; i++) GOOD(tutti_buffer_free(pinned[i].buffer, &error));
    GOOD(tutti_buffer_free(all, &error));
    GOOD(tutti_stream_free(handle, &error));
    GOOD(tutti_device_free(device, &error));
    return check_end();
}
