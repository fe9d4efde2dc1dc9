/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=180 labels=asan,tsan
 *
 * Models that ranks share by their width: losses and gradients of every number of ranks are, bit for bit, those of one rank
 * with the same width grains, which are those of one grain up to rounding; sizes that do not divide, grains without
 * classes or columns, dropout; how often ranks meet; a user's own layer; what is refused.
 */
#include "base/hash.h"
#include "conformance_world.h"
#include "nn.h"
#include "nn/pass.h"
#include "nn/width.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 5, GRAINS = 3 };

struct shape {
    const char *name;
    tutti_gpt gpt; /* heads 0: an MLP of these */
    tutti_mlp mlp;
    int width_grains;
    bool whole_numbers; /* then all sums are exact */
};

static const struct shape shapes[] = {
    {"gpt", .gpt = {.layers = 2, .heads = 8, .width = 64, .context = 12, .vocabulary = 50}, .width_grains = 8},
    {"gpt with dropout", .gpt = {.layers = 1, .heads = 4, .width = 32, .context = 70, .vocabulary = 37, .dropout = 0.2},
     .width_grains = 4},
    {"gpt with fewer classes than grains", .gpt = {.layers = 1, .heads = 4, .width = 16, .context = 5, .vocabulary = 3},
     .width_grains = 4},
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
    {"mlp in whole numbers",
     .mlp = {.inputs = 7, .outputs = 4, .hidden_layers = 2, .hidden = 16, .activation = TUTTI_RELU}, .width_grains = 4,
     .whole_numbers = true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static uint64_t next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ (x >> 31);
}

/* ---- One pass -------------------------------------------------------------------------------------------------- */

/* A model, its values and its gradients in their global shapes, and the losses of its grains. */
struct result {
    tutti_model *model;
    float **values, **gradients; /* by tensor */
    tutti_loss losses[GRAINS];
    uint64_t operations, rows; /* rows: a hash of all rows that are whole */
};

static size_t whole_count(const tutti_tensor *tensor)
{
    size_t count = 1;
    for (int d = 0; d < tensor->dimensions; d++) count *= (size_t)tensor->shape[d];
    return count;
}

static void result_free(struct result *result)
{
    for (int i = 0; result->values != NULL && i < tutti_model_tensors(result->model); i++) {
        free(result->values[i]);
        free(result->gradients[i]);
    }
    free(result->values);
    free(result->gradients);
    tutti_model_free(result->model);
}

static bool good(const tutti_model *model, tutti_status status)
{
    const tutti_error *error = tutti_model_error(model);
    return CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
}

static void set_whole_numbers(tutti_model *model)
{
    for (int i = 0; i < tutti_model_tensors(model); i++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, i);
        float *whole = calloc(whole_count(tensor), sizeof *whole);
        uint64_t state = (uint64_t)i;
        for (size_t k = 0; k < whole_count(tensor); k++) whole[k] = (float)(next(&state) % 5) - 2;
        tutti_tensor_take(model, i, whole, tutti_model_values(model) + tensor->offset);
        free(whole);
    }
}

/* A token whose row is all −0.0 at a place whose row is too: their sum is −0.0 only if nothing but −0.0 is added. */
static void set_signed_zeros(tutti_model *model)
{
    for (int i = 0; i < 2; i++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, i);
        float *whole = calloc(whole_count(tensor), sizeof *whole);
        float *local = tutti_model_values(model) + tensor->offset;
        tutti_tensor_put(model, i, local, whole);
        for (int64_t k = 0; k < (i == 0 ? (int64_t)whole_count(tensor) : 2 * tensor->shape[1]); k++)
            if (i == 1 || k % (3 * tensor->shape[1]) < tensor->shape[1]) whole[k] = -0.0f;
        tutti_tensor_take(model, i, whole, local);
        free(whole);
    }
}

static bool make_model(const struct shape *shape, tutti_mesh *mesh, int width_grains, bool sequence,
                       struct result *result)
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
    return good(result->model, status);
}

static tutti_batch make_batch(const struct shape *shape)
{
    static const int64_t bounds[GRAINS + 1] = {0, 2, 2, SAMPLES};
    const bool tokens = shape->gpt.heads > 0;
    const int64_t rows = tokens ? SAMPLES * shape->gpt.context : SAMPLES;
    const int64_t classes = tokens ? shape->gpt.vocabulary : shape->mlp.outputs;
    uint64_t state = 3;
    int32_t *ids = tokens ? calloc((size_t)rows, sizeof *ids) : NULL, *targets = calloc((size_t)rows, sizeof *targets);
    float *inputs = tokens ? NULL : calloc((size_t)(SAMPLES * (shape->mlp.inputs + 1)), sizeof *inputs);
    float *values = calloc((size_t)(SAMPLES * (shape->mlp.outputs + 1)), sizeof *values);
    for (int64_t i = 0; i < rows; i++) {
        int32_t id = (int32_t)(next(&state) % (uint64_t)classes);
        if (tokens) ids[i] = id;
        targets[i] = i % 9 == 4 ? -1 : (int32_t)(next(&state) % (uint64_t)classes);
    }
    for (int64_t i = 0; !tokens && i < SAMPLES * shape->mlp.inputs; i++) inputs[i] = (float)(next(&state) % 5) - 2;
    for (int64_t i = 0; i < SAMPLES * shape->mlp.outputs; i++) values[i] = (float)(next(&state) % 5) - 2;
    return (tutti_batch){.samples = SAMPLES,
                         .tokens = ids,
                         .targets = targets,
                         .inputs = inputs,
                         .target_values = values,
                         .grain_bounds = bounds,
                         .grains = GRAINS,
                         .first_sample = 11,
                         .step = 5,
                         .seed = 9};
}

static uint64_t operations(tutti_comm *comm)
{
    tutti_stats stats = {.struct_size = sizeof stats};
    if (comm != NULL) (void)tutti_comm_stats(comm, &stats);
    return stats.operations;
}

static bool run_pass(const struct shape *shape, int threads, struct result *result)
{
    tutti_model *model = result->model;
    tutti_pass *pass = NULL;
    tutti_batch batch = make_batch(shape);
    tutti_pass_options options = {.samples = SAMPLES, .grains = GRAINS, .threads = threads};
    bool ok = good(model, tutti_pass_create(model, &options, &pass));
    const uint64_t before = operations(model->width.comm);
    ok = ok && good(model, tutti_pass_forward(pass, &batch, result->losses));
    ok = ok && good(model, tutti_pass_backward(pass, &(tutti_backward){0}));
    result->operations = operations(model->width.comm) - before;
    for (int i = 0; ok && i < model->layer_count; i++)
        if (model->layers[i]->cut != TUTTI_CUT_OUTPUTS && model->layers[i]->cut != TUTTI_CUT_ALIKE &&
            !tti_pass_has_slices_only(pass, i))
            result->rows = tti_hash_bytes(result->rows, pass->places[i].out,
                                          tti_pass_rows(pass) * (size_t)model->layers[i]->outputs * sizeof(float));
    tutti_pass_free(pass);
    const void *own[] = {batch.tokens, batch.targets, batch.inputs, batch.target_values};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free((void *)(uintptr_t)own[i]);
    return ok;
}

/* Values and gradients in their global shapes; of what is not here, those of `base` (NULL: 0). */
static void collect(struct result *result, const struct result *base)
{
    tutti_model *model = result->model;
    const size_t tensors = (size_t)tutti_model_tensors(model);
    result->values = calloc(tensors, sizeof *result->values);
    result->gradients = calloc(tensors, sizeof *result->gradients);
    for (int i = 0; i < (int)tensors; i++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, i);
        const size_t bytes = whole_count(tensor) * sizeof(float);
        result->values[i] = calloc(1, bytes);
        result->gradients[i] = calloc(1, bytes);
        if (base != NULL) memcpy(result->values[i], base->values[i], bytes);
        if (base != NULL) memcpy(result->gradients[i], base->gradients[i], bytes);
        tutti_tensor_put(model, i, tutti_model_values(model) + tensor->offset, result->values[i]);
        tutti_tensor_put(model, i, tutti_model_gradients(model) + tensor->offset, result->gradients[i]);
    }
}

static bool run_shape(const struct shape *shape, tutti_mesh *mesh, int width_grains, bool sequence, int threads,
                      const struct result *base, struct result *result)
{
    *result = (struct result){0};
    if (!make_model(shape, mesh, width_grains, sequence, result) || !run_pass(shape, threads, result)) return false;
    collect(result, base);
    return true;
}

/* ---- Comparing ------------------------------------------------------------------------------------------------- */

static void compare_bits(const struct shape *shape, const struct result *a, const struct result *b, const char *with)
{
    CHECK_THAT(memcmp(a->losses, b->losses, sizeof a->losses) == 0, "%s, %s: other losses: %.17g, %.17g", shape->name,
               with, a->losses[0].sum, b->losses[0].sum);
    for (int i = 0; i < tutti_model_tensors(a->model); i++) {
        const tutti_tensor *tensor = tutti_model_tensor(a->model, i);
        const size_t bytes = whole_count(tensor) * sizeof(float);
        CHECK_THAT(memcmp(a->values[i], b->values[i], bytes) == 0, "%s, %s: other values of %s", shape->name, with,
                   tensor->name);
        CHECK_THAT(memcmp(a->gradients[i], b->gradients[i], bytes) == 0, "%s, %s: another gradient of %s", shape->name,
                   with, tensor->name);
    }
}

static void compare_nearly(const struct shape *shape, const struct result *a, const struct result *b)
{
    for (int g = 0; g < GRAINS; g++)
        CHECK_THAT(fabs(a->losses[g].sum - b->losses[g].sum) <= 1e-5 * fabs(b->losses[g].sum) &&
                       a->losses[g].count == b->losses[g].count,
                   "%s: a loss of %g, in one grain %g", shape->name, a->losses[g].sum, b->losses[g].sum);
    for (int i = 0; i < tutti_model_tensors(a->model); i++) {
        const tutti_tensor *tensor = tutti_model_tensor(a->model, i);
        double worst = 0, largest = 1e-6;
        for (size_t k = 0; k < whole_count(tensor); k++) {
            worst = fmax(worst, fabs((double)(a->gradients[i][k] - b->gradients[i][k])));
            largest = fmax(largest, fabs((double)b->gradients[i][k]));
        }
        CHECK_THAT(worst <= 1e-5 * largest, "%s: the gradient of %s is off by %g of %g", shape->name, tensor->name,
                   worst, largest);
        CHECK_THAT(memcmp(a->values[i], b->values[i], whole_count(tensor) * sizeof(float)) == 0,
                   "%s: other first values of %s", shape->name, tensor->name);
    }
}

/* ---- Every number of ranks ------------------------------------------------------------------------------------- */

static bool fits(const struct shape *shape, int ranks)
{
    const int each = shape->width_grains / ranks;
    return shape->width_grains % ranks == 0 && (each & (each - 1)) == 0;
}

/* Four meetings per block, one of the embedding, two of the loss; of an MLP's pair of linear layers two, but for the first
 * layer's input, which needs no gradient. Where rows are shared out each sum is a scattering and a gathering; the embedding's
 * gradient is gathered, and so is what the loss is given. */
static uint64_t meetings(const struct shape *shape, bool sequence)
{
    if (shape->gpt.heads > 0) return (uint64_t)(sequence ? 8 * shape->gpt.layers + 5 : 4 * shape->gpt.layers + 3);
    return (uint64_t)((shape->mlp.hidden_layers + 1) / 2 * 2 - 1);
}

static void compare_shared(const struct shape *shape, tutti_mesh *mesh, bool sequence, int threads,
                           const struct result *alone, const char *with)
{
    struct result shared;
    const int size = tutti_mesh_size(mesh, "tensor");
    if (run_shape(shape, mesh, shape->width_grains, sequence, threads, alone, &shared)) {
        compare_bits(shape, &shared, alone, with);
        CHECK_THAT(sequence || shared.rows == alone->rows, "%s, %s: other rows", shape->name, with);
        CHECK_THAT(shared.operations == (size > 1 ? meetings(shape, sequence) : 0), "%s, %s: met %llu times",
                   shape->name, with, (unsigned long long)shared.operations);
        const size_t parts = tutti_model_elements(alone->model) / (size_t)size;
        CHECK_THAT(shape->gpt.width < 64 || tutti_model_elements(shared.model) < parts + parts / 4,
                   "%s, %s: %zu elements", shape->name, with, tutti_model_elements(shared.model));
    }
    result_free(&shared);
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
        struct result alone;
        char with[64];
        const bool ok = run_shape(&shapes[i], NULL, shapes[i].width_grains, false, 1, NULL, &alone);
        for (int sequence = 0; ok && sequence <= (shapes[i].gpt.heads > 0 ? 1 : 0); sequence++) {
            snprintf(with, sizeof with, "rank %d of %d%s", tutti_rank(comm), size, sequence ? ", sequence" : "");
            compare_shared(&shapes[i], mesh, sequence != 0, 1 + i % 2, &alone, with);
        }
        result_free(&alone);
    }
    tutti_mesh_free(mesh);
}

/* One rank: many grains are one grain but for rounding, and in whole numbers just that. */
static void run_one(tutti_comm *comm, void *context)
{
    (void)comm, (void)context;
    for (int i = 0; i < SHAPES; i++) {
        struct result plain, one, cut, threads;
        bool ok = run_shape(&shapes[i], NULL, 0, false, 1, NULL, &plain);
        ok = run_shape(&shapes[i], NULL, 1, false, 1, NULL, &one) && ok;
        ok = run_shape(&shapes[i], NULL, shapes[i].width_grains, false, 1, NULL, &cut) && ok;
        ok = run_shape(&shapes[i], NULL, shapes[i].width_grains, false, 3, NULL, &threads) && ok;
        if (ok) compare_bits(&shapes[i], &one, &plain, "placed in one grain");
        if (ok) compare_bits(&shapes[i], &threads, &cut, "three threads");
        if (ok) compare_nearly(&shapes[i], &cut, &plain);
        if (ok && shapes[i].whole_numbers) compare_bits(&shapes[i], &cut, &plain, "in whole numbers");
        result_free(&plain);
        result_free(&one);
        result_free(&cut);
        result_free(&threads);
    }
}

/* ---- How many grains ------------------------------------------------------------------------------------------- */

static void check_usual(const tutti_gpt *gpt, int expected)
{
    tutti_model *model = NULL;
    tutti_model_placing placing = {.struct_size = sizeof placing};
    (void)tutti_gpt_create(gpt, &model);
    if (good(model, tutti_model_place(model, &placing)))
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

static bool run_own(const tutti_layer_ops *ops, tutti_mesh *mesh, int width_grains, const struct result *base,
                    struct result *result)
{
    static const struct shape shape = {"own layer", .mlp = {.inputs = 7, .outputs = 4}};
    *result = (struct result){0};
    tutti_status status = own_model(ops, mesh, width_grains, &result->model);
    if (status == TUTTI_OK) status = tutti_model_bind(result->model, NULL, NULL);
    if (status == TUTTI_OK) status = tutti_model_init(result->model, 7);
    if (!good(result->model, status) || !run_pass(&shape, 1, result)) return false;
    collect(result, base);
    return true;
}

static void check_own(const tutti_layer_ops *ops, tutti_mesh *mesh)
{
    static const struct shape shape = {.name = "own layer"};
    struct result plain, alone, shared;
    bool ok = run_own(ops, NULL, 1, NULL, &plain);
    ok = run_own(ops, NULL, 4, NULL, &alone) && ok;
    if (ok) compare_nearly(&shape, &alone, &plain);
    if (run_own(ops, mesh, 4, ok ? &alone : NULL, &shared) && ok) compare_bits(&shape, &shared, &alone, "on two ranks");
    result_free(&plain);
    result_free(&alone);
    result_free(&shared);
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
    tutti_status status = own_model(&slope_unknown, mesh, 4, &model);
    check_refused(model, status, "layer 'middle' (slope): tensor=2: it does not say how it may be cut");
    tutti_model_free(model);
    status = own_model(&slope_whole, mesh, 4, &model);
    check_refused(model, status, "no layers of this model can be cut");
    tutti_model_free(model);
    tutti_mesh_free(mesh);
}

static void run(enum conf_ranks ranks, int size, void (*body)(tutti_comm *, void *))
{
    struct conf_world world = {.ranks = ranks, .size = size, .direct = 1, .attach = 1, .body = body};
    conf_world_run(&world);
}

int main(void)
{
    nn_need_blas();
    conf_begin();
    run(CONF_THREADS, 1, run_one);
    run(CONF_THREADS, 1, run_usual);
    for (int size = 1; size <= 8; size++) run(CONF_THREADS, size, run_rank);
    run(CONF_PROCESSES, 4, run_rank);
    run(CONF_THREADS, 2, run_two);
    return check_end();
}
