/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=180 labels=asan,tsan
 *
 * Models that ranks share by their width: losses and gradients of every number of ranks are, bit for bit, those of one rank
 * with the same width grains, which are those of one grain up to rounding; sizes that do not divide, grains without
 * classes or columns, dropout; how often ranks meet; a user's own layer; what is refused.
 */
#include "check_nn.h"
#include "conformance_world.h"
#include "width_pass.h"

#include <stdlib.h>
#include <string.h>

static const struct width_shape shapes[] = {
    {"gpt", .gpt = {.layers = 2, .heads = 8, .width = 64, .context = 12, .vocabulary = 50}, .width_grains = 8},
    {"gpt with dropout", .gpt = {.layers = 1, .heads = 4, .width = 32, .context = 70, .vocabulary = 37, .dropout = 0.2},
     .width_grains = 4},
    {"gpt with fewer classes than grains", .gpt = {.layers = 1, .heads = 4, .width = 16, .context = 5, .vocabulary = 3},
     .width_grains = 4},
    {"gpt with fewer rows than grains",
     .gpt = {.layers = 2, .heads = 4, .width = 16, .context = 1, .vocabulary = 9, .dropout = 0.3}, .width_grains = 4},
    {"gpt in six grains", .gpt = {.layers = 1, .heads = 6, .width = 24, .context = 5, .vocabulary = 11},
     .width_grains = 6},
    {"mlp with columns that do not divide",
     .mlp = {.inputs = 7, .outputs = 3, .hidden_layers = 4, .hidden = 13, .activation = TUTTI_RELU}, .width_grains = 8},
    {"mlp with fewer columns than grains",
     .mlp = {.inputs = 7, .outputs = 4, .hidden_layers = 2, .hidden = 3, .activation = TUTTI_GELU, .classify = true},
     .width_grains = 4},
    {"mlp with batch norm",
     .mlp = {.inputs = 7, .outputs = 3, .hidden_layers = 3, .hidden = 13, .activation = TUTTI_GELU, .batch_norm = true},
     .width_grains = 8},
    {"mlp with batch norm of fewer columns than grains",
     .mlp = {.inputs = 7,
             .outputs = 4,
             .hidden_layers = 2,
             .hidden = 3,
             .activation = TUTTI_RELU,
             .classify = true,
             .batch_norm = true},
     .width_grains = 4},
    {"mlp with an output layer of its own",
     .mlp = {.inputs = 7, .outputs = 37, .hidden_layers = 2, .hidden = 13, .activation = TUTTI_GELU, .classify = true},
     .width_grains = 8},
    {"mlp whose output layer has fewer classes than grains",
     .mlp = {.inputs = 7, .outputs = 3, .hidden_layers = 4, .hidden = 9, .activation = TUTTI_RELU, .classify = true},
     .width_grains = 4},
    {"an output layer alone", .mlp = {.inputs = 7, .outputs = 21, .hidden_layers = 0, .hidden = 1, .classify = true},
     .width_grains = 4},
    {"mlp in whole numbers",
     .mlp = {.inputs = 7, .outputs = 4, .hidden_layers = 2, .hidden = 16, .activation = TUTTI_RELU}, .width_grains = 4,
     .whole_numbers = true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void set_whole_numbers(tutti_model *model)
{
    for (int i = 0; i < tutti_model_tensors(model); i++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, i);
        float *whole = calloc(width_count(tensor), sizeof *whole);
        uint64_t state = (uint64_t)i;
        for (size_t k = 0; k < width_count(tensor); k++) whole[k] = (float)(width_next(&state) % 5) - 2;
        tutti_tensor_take(model, i, whole, tutti_model_values(model) + tensor->offset);
        free(whole);
    }
}

/* A token whose row is all −0.0 at a place whose row is too: their sum is −0.0 only if nothing but −0.0 is added. */
static void set_signed_zeros(tutti_model *model)
{
    for (int i = 0; i < 2; i++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, i);
        float *whole = calloc(width_count(tensor), sizeof *whole);
        float *local = tutti_model_values(model) + tensor->offset;
        tutti_tensor_put(model, i, local, whole);
        for (int64_t k = 0; k < (int64_t)width_count(tensor) && (i == 0 || k < 2 * tensor->shape[1]); k++)
            if (i == 1 || k % (3 * tensor->shape[1]) < tensor->shape[1]) whole[k] = -0.0f;
        tutti_tensor_take(model, i, whole, local);
        free(whole);
    }
}

static bool make_model(const struct width_shape *shape, tutti_mesh *mesh, int width_grains, bool sequence,
                       struct width_result *result)
{
    tutti_model_placing placing = {
        .struct_size = sizeof placing, .mesh = mesh, .width_grains = width_grains, .sequence = sequence};
    tutti_status status = shape->gpt.heads > 0 ? tutti_gpt_create(&shape->gpt, &result->model)
                                               : tutti_mlp_create(&shape->mlp, &result->model);
    if (status == TUTTI_OK && width_grains > 0) status = tutti_model_place(result->model, &placing);
    if (status == TUTTI_OK) status = tutti_model_bind(result->model, NULL, NULL);
    if (status == TUTTI_OK) status = tutti_model_init(result->model, 7);
    if (status == TUTTI_OK && shape->whole_numbers) set_whole_numbers(result->model);
    if (status == TUTTI_OK && shape->gpt.heads > 0) set_signed_zeros(result->model);
    return width_good(result->model, status);
}

static bool run_shape(const struct width_shape *shape, tutti_mesh *mesh, int width_grains, bool sequence, int threads,
                      const struct width_result *base, struct width_result *result)
{
    *result = (struct width_result){0};
    if (!make_model(shape, mesh, width_grains, sequence, result) || !width_run_pass(shape, threads, result))
        return false;
    width_collect(result, base);
    return true;
}

/* ---- Every number of ranks ------------------------------------------------------------------------------------- */

static bool fits(const struct width_shape *shape, int ranks)
{
    const int each = shape->width_grains / ranks;
    return shape->width_grains % ranks == 0 && (each & (each - 1)) == 0;
}

/* Four meetings per block, one of the embedding, two of the loss; of an MLP's pair of linear layers two, but for the first
 * layer's input, which needs no gradient. Where rows are shared out each sum is a scattering and a gathering; the embedding's
 * gradient is gathered, and so is what the loss is given. An output layer without a partner is cut with its cross-entropy: what
 * rows have of the softmax is gathered, and the layer's input gradient summed. */
static uint64_t meetings(const struct width_shape *shape, bool sequence)
{
    if (shape->gpt.heads > 0) return (uint64_t)(sequence ? 8 * shape->gpt.layers + 5 : 4 * shape->gpt.layers + 3);
    const int linears = shape->mlp.hidden_layers + 1, pairs = linears / 2;
    const bool alone = linears % 2 != 0 && shape->mlp.classify;
    return (uint64_t)(pairs * 2 + (alone ? 2 : 0) - 1);
}

static void compare_shared(const struct width_shape *shape, tutti_mesh *mesh, bool sequence, int threads,
                           const struct width_result *alone, const char *with)
{
    struct width_result shared;
    const int size = tutti_mesh_size(mesh, "tensor");
    if (run_shape(shape, mesh, shape->width_grains, sequence, threads, alone, &shared)) {
        width_compare_bits(shape, &shared, alone, with);
        CHECK_THAT(sequence || shared.rows == alone->rows, "%s, %s: other rows", shape->name, with);
        CHECK_THAT(shared.operations == (size > 1 ? meetings(shape, sequence) : 0), "%s, %s: met %llu times",
                   shape->name, with, (unsigned long long)shared.operations);
        const size_t parts = tutti_model_elements(alone->model) / (size_t)size;
        CHECK_THAT(shape->gpt.width < 64 || tutti_model_elements(shared.model) < parts + parts / 4,
                   "%s, %s: %zu elements", shape->name, with, tutti_model_elements(shared.model));
    }
    width_free(&shared);
}

/* In fast mode items are what threads share, and sums of slices are added over items at once. */
static void compare_fast(struct width_shape shape, tutti_mesh *mesh, int threads, struct width_result *alone)
{
    struct width_result shared;
    shape.fast = true;
    for (int g = 1; g < WIDTH_GRAINS; g++) {
        alone->losses[0].sum += alone->losses[g].sum;
        alone->losses[0].count += alone->losses[g].count;
        alone->losses[g] = (tutti_loss){0};
    }
    if (run_shape(&shape, mesh, shape.width_grains, true, threads, alone, &shared))
        width_compare_nearly(&shape, &shared, alone);
    width_free(&shared);
}

/* What a branch is computed again from is gathered again, twice per block. */
static void compare_remade(struct width_shape shape, tutti_mesh *mesh, const struct width_result *alone)
{
    struct width_result shared;
    const uint64_t met = meetings(&shape, true) + 2 * (uint64_t)shape.gpt.layers;
    shape.recompute = true;
    if (run_shape(&shape, mesh, shape.width_grains, true, 1, alone, &shared)) {
        width_compare_bits(&shape, &shared, alone, "computed again");
        CHECK_THAT(tutti_mesh_size(mesh, "tensor") == 1 || shared.operations == met,
                   "%s, computed again: met %llu times", shape.name, (unsigned long long)shared.operations);
    }
    width_free(&shared);
}

static void run_rank(tutti_comm *comm, void *context)
{
    static const char *const names[] = {"data", "tensor"};
    const int size = tutti_size(comm);
    tutti_mesh *mesh = NULL;
    (void)context;
    if (!CHECK_THAT(tutti_mesh_create(comm, names, (const int[]){1, size}, 2, &mesh) == TUTTI_OK, "a mesh")) return;
    for (int i = 0; i < SHAPES; i++) {
        if (!fits(&shapes[i], size)) continue;
        struct width_result alone;
        char with[64];
        const bool ok = run_shape(&shapes[i], NULL, shapes[i].width_grains, false, 1, NULL, &alone);
        for (int sequence = 0; ok && sequence <= (shapes[i].gpt.heads > 0 ? 1 : 0); sequence++) {
            snprintf(with, sizeof with, "rank %d of %d%s", tutti_rank(comm), size, sequence ? ", sequence" : "");
            compare_shared(&shapes[i], mesh, sequence != 0, 1 + i % 2, &alone, with);
        }
        if (ok && shapes[i].gpt.heads > 0) compare_remade(shapes[i], mesh, &alone);
        if (ok && shapes[i].gpt.heads > 0) compare_fast(shapes[i], mesh, 1 + i % 2, &alone);
        width_free(&alone);
    }
    tutti_mesh_free(mesh);
}

/* One rank: many grains are one grain but for rounding, and in whole numbers just that. */
static void run_one(tutti_comm *comm, void *context)
{
    (void)comm, (void)context;
    for (int i = 0; i < SHAPES; i++) {
        struct width_result plain, one, cut, threads;
        bool ok = run_shape(&shapes[i], NULL, 0, false, 1, NULL, &plain);
        ok = run_shape(&shapes[i], NULL, 1, false, 1, NULL, &one) && ok;
        ok = run_shape(&shapes[i], NULL, shapes[i].width_grains, false, 1, NULL, &cut) && ok;
        ok = run_shape(&shapes[i], NULL, shapes[i].width_grains, false, 3, NULL, &threads) && ok;
        if (ok) width_compare_bits(&shapes[i], &one, &plain, "placed in one grain");
        if (ok) width_compare_bits(&shapes[i], &threads, &cut, "three threads");
        if (ok) width_compare_nearly(&shapes[i], &cut, &plain);
        if (ok && shapes[i].whole_numbers) width_compare_bits(&shapes[i], &cut, &plain, "in whole numbers");
        width_free(&plain);
        width_free(&one);
        width_free(&cut);
        width_free(&threads);
    }
}

/* ---- How many grains ------------------------------------------------------------------------------------------- */

static void check_usual(const tutti_gpt *gpt, int expected)
{
    tutti_model *model = NULL;
    tutti_model_placing placing = {.struct_size = sizeof placing};
    (void)tutti_gpt_create(gpt, &model);
    if (width_good(model, tutti_model_place(model, &placing)))
        CHECK_THAT(tutti_model_width_grains(model) == expected, "%d heads of width %lld: %d width grains", gpt->heads,
                   (long long)gpt->width, tutti_model_width_grains(model));
    tutti_model_free(model);
}

static void run_usual(tutti_comm *comm, void *context)
{
    (void)comm, (void)context;
    check_usual(&(tutti_gpt){.layers = 1, .heads = 4, .width = 128, .context = 4, .vocabulary = 9}, 4);
    check_usual(&(tutti_gpt){.layers = 1, .heads = 6, .width = 192, .context = 4, .vocabulary = 9}, 2);
    check_usual(&(tutti_gpt){.layers = 1, .heads = 4, .width = 124, .context = 4, .vocabulary = 9}, 2);
    check_usual(&(tutti_gpt){.layers = 1, .heads = 5, .width = 640, .context = 4, .vocabulary = 9}, 1);
    check_usual(&(tutti_gpt){.layers = 0, .heads = 4, .width = 640, .context = 4, .vocabulary = 9}, 1);
}

/* ---- A user's own layer ---------------------------------------------------------------------------------------- */
/* out = in * slope, the slope by column. */

static tutti_status slope_setup(tutti_model *model, tutti_layer *layer)
{
    return tutti_layer_tensor(model, layer, "slope", 1, &layer->inputs, TUTTI_INIT_UNIFORM, 1);
}

static tutti_status slope_place(tutti_model *model, tutti_layer *layer)
{
    return tutti_layer_cut(model, layer, 0, 0, layer->sections);
}

static void slope_apply(const tutti_call *call, float *to, const float *from)
{
    for (int g = 0; g < tutti_call_grains(call); g++) {
        const float *slope = tutti_grain_values(call, 0, g);
        int64_t first, end;
        tutti_call_inputs(call, g, &first, &end);
        for (int64_t r = 0; r < call->rows; r++)
            for (int64_t c = first; c < end; c++)
                to[r * call->layer->inputs + c] = from[r * call->layer->inputs + c] * slope[c - first];
    }
}

static void slope_forward(tutti_call *call)
{
    slope_apply(call, call->out, call->in);
}

static void slope_backward_input(tutti_call *call)
{
    if (call->in_gradient != NULL) slope_apply(call, call->in_gradient, call->out_gradient);
}

static void slope_backward_weights(tutti_call *call)
{
    int64_t first, end;
    tutti_call_inputs(call, call->grain, &first, &end);
    for (int64_t c = first; c < end; c++) {
        float sum = call->accumulate[0] ? call->gradients[0][c - first] : 0;
        for (int64_t r = 0; r < call->rows; r++)
            sum += call->out_gradient[r * call->layer->inputs + c] * call->in[r * call->layer->inputs + c];
        call->gradients[0][c - first] = sum;
    }
}

#define SLOPE                                                                                                          \
    .kind = "slope", .setup = slope_setup, .forward = slope_forward, .backward_input = slope_backward_input,           \
    .backward_weights = slope_backward_weights
static const tutti_layer_ops slope_cut = {SLOPE, .cuts = TUTTI_CUT_WHOLE | TUTTI_CUT_ALIKE, .place = slope_place};
static const tutti_layer_ops slope_whole = {SLOPE, .cuts = TUTTI_CUT_WHOLE};
static const tutti_layer_ops slope_unknown = {SLOPE};

static tutti_status own_model(const tutti_layer_ops *ops, tutti_mesh *mesh, int width_grains, tutti_model **model)
{
    tutti_model_placing placing = {.struct_size = sizeof placing, .mesh = mesh, .width_grains = width_grains};
    tutti_model_create(&(tutti_model_shape){.rows = 1, .inputs = 7}, model);
    tutti_add_linear(*model, "in", &(tutti_linear){.outputs = 13});
    tutti_model_add(*model, "middle", ops, NULL, 0);
    tutti_add_dropout(*model, "drop", 0.25);
    tutti_add_linear(*model, "out", &(tutti_linear){.outputs = 4, .activation = TUTTI_GELU});
    tutti_add_mse(*model);
    tutti_model_seal(*model);
    return tutti_model_place(*model, &placing);
}

static bool run_own(const tutti_layer_ops *ops, tutti_mesh *mesh, int width_grains, const struct width_result *base,
                    struct width_result *result)
{
    static const struct width_shape shape = {"own layer", .mlp = {.inputs = 7, .outputs = 4}};
    *result = (struct width_result){0};
    tutti_status status = own_model(ops, mesh, width_grains, &result->model);
    if (status == TUTTI_OK) status = tutti_model_bind(result->model, NULL, NULL);
    if (status == TUTTI_OK) status = tutti_model_init(result->model, 7);
    if (!width_good(result->model, status) || !width_run_pass(&shape, 1, result)) return false;
    width_collect(result, base);
    return true;
}

static void check_own(const tutti_layer_ops *ops, tutti_mesh *mesh)
{
    static const struct width_shape shape = {.name = "own layer"};
    struct width_result plain, alone, shared;
    bool ok = run_own(ops, NULL, 1, NULL, &plain);
    ok = run_own(ops, NULL, 4, NULL, &alone) && ok;
    if (ok) width_compare_nearly(&shape, &alone, &plain);
    if (run_own(ops, mesh, 4, ok ? &alone : NULL, &shared) && ok)
        width_compare_bits(&shape, &shared, &alone, "on two ranks");
    width_free(&plain);
    width_free(&alone);
    width_free(&shared);
}

static void check_refused(const tutti_model *model, tutti_status status, const char *words)
{
    const tutti_error *error = tutti_model_error(model);
    CHECK_THAT(status != TUTTI_OK && error != NULL && strstr(error->text, words) != NULL, "expected '%s', not '%s'",
               words, error == NULL ? "" : error->text);
}

static void check_place(const tutti_gpt *gpt, tutti_mesh *mesh, int width_grains, const char *words)
{
    tutti_model *model = NULL;
    tutti_model_placing placing = {.struct_size = sizeof placing, .mesh = mesh, .width_grains = width_grains};
    (void)tutti_gpt_create(gpt, &model);
    tutti_status status = tutti_model_place(model, &placing);
    check_refused(model, status, words);
    tutti_model_free(model);
}

static void run_two(tutti_comm *comm, void *context)
{
    static const char *const names[] = {"tensor"};
    static const tutti_gpt gpt = {.layers = 1, .heads = 4, .width = 128, .context = 4, .vocabulary = 9};
    static const tutti_gpt flat = {.layers = 0, .heads = 4, .width = 128, .context = 4, .vocabulary = 9};
    tutti_mesh *mesh = NULL;
    tutti_model *model = NULL;
    (void)context;
    if (!CHECK_THAT(tutti_mesh_create(comm, names, (const int[]){2}, 1, &mesh) == TUTTI_OK, "a mesh")) return;
    check_own(&slope_cut, mesh);
    check_place(&gpt, mesh, 3, "its 4 heads cannot be cut into 3 width grains");
    check_place(&gpt, mesh, -1, "-1 width grains");
    check_place(&gpt, mesh, 1, "tensor=2: 1 width grain goes to 1 rank; --width-grains 2 allows it");
    check_place(&flat, mesh, 2, "no layers of this model can be cut");
    CHECK(tutti_gpt_create(&gpt, &model) == TUTTI_OK);
    check_refused(model, tutti_model_place(model, &(tutti_model_placing){.mesh = mesh}), "set struct_size to sizeof");
    tutti_model_free(model);
    tutti_status status = own_model(&slope_unknown, mesh, 4, &model);
    check_refused(model, status, "layer 'middle' (slope): tensor=2: it does not say how it may be cut");
    tutti_model_free(model);
    status = own_model(&slope_whole, mesh, 4, &model);
    check_refused(model, status, "no layers of this model can be cut");
    tutti_model_free(model);
    tutti_mesh_free(mesh);
}

static void run(enum world_ranks ranks, int size, void (*body)(tutti_comm *, void *))
{
    struct conf_world world = {.ranks = ranks, .size = size, .direct = 1, .attach = 1, .body = body};
    conf_world_run(&world);
}

int main(void)
{
    nn_need_blas();
    conf_begin();
    run(WORLD_THREADS, 1, run_one);
    run(WORLD_THREADS, 1, run_usual);
    for (int size = 1; size <= 8; size++) run(WORLD_THREADS, size, run_rank);
    run(WORLD_PROCESSES, 4, run_rank);
    run(WORLD_THREADS, 2, run_two);
    return check_end();
}
