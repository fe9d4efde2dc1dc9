/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * Rows that ranks share out: models of layers of all kinds have the bits of one rank, with both parts of backward apart, and
 * with recomputation; activations take what a formula says; what is refused. test_tensor has GPTs of many shapes.
 */
#include "check_nn.h"
#include "conformance_world.h"
#include "width_pass.h"

#include <string.h>

/* ---- A user's layer of whole rows ------------------------------------------------------------------------------ */
/* It works on each row alone, but does not say so. */

static tutti_status scale_setup(tutti_model *model, tutti_layer *layer)
{
    const int64_t one = 1;
    return tutti_layer_tensor(model, layer, "factor", 1, &one, TUTTI_INIT_UNIFORM, 1);
}

static void scale_forward(tutti_call *call)
{
    for (int64_t i = 0; i < call->rows * call->layer->outputs; i++)
        call->out[i] = call->in[i] * tutti_layer_values(call, 0)[0];
}

static void scale_backward_input(tutti_call *call)
{
    for (int64_t i = 0; i < call->rows * call->layer->outputs; i++)
        call->in_gradient[i] = call->out_gradient[i] * tutti_layer_values(call, 0)[0];
}

static void scale_backward_weights(tutti_call *call)
{
    float sum = call->accumulate[0] ? call->gradients[0][0] : 0;
    for (int64_t i = 0; i < call->rows * call->layer->outputs; i++) sum += call->out_gradient[i] * call->in[i];
    call->gradients[0][0] = sum;
}

static const tutti_layer_ops scale_ops = {.kind = "scale",
                                          .setup = scale_setup,
                                          .forward = scale_forward,
                                          .backward_input = scale_backward_input,
                                          .backward_weights = scale_backward_weights,
                                          .cuts = TUTTI_CUT_WHOLE};

/* ---- Layers of all kinds, where rows are shared out ------------------------------------------------------------ */

/* A user's layer of whole rows, by itself in a residual branch; branches that end with an activation; branches of one layer,
 * and one in another; an end that is not cut. Items have fewer rows than there are grains, and others than a multiple. */
static tutti_status odd_model(tutti_mesh *mesh, bool sequence, int width_grains, tutti_model **model)
{
    tutti_model_placing placing = {
        .struct_size = sizeof placing, .mesh = mesh, .width_grains = width_grains, .sequence = sequence};
    tutti_model_create(&(tutti_model_shape){.rows = 1, .inputs = 7}, model);
    tutti_add_linear(*model, "in", &(tutti_linear){.outputs = 16, .activation = TUTTI_GELU});
    tutti_add_layer_norm(*model, "norm");
    tutti_residual_begin(*model);
    tutti_add_rms_norm(*model, "a.norm");
    tutti_add_linear(*model, "a.up", &(tutti_linear){.outputs = 24, .activation = TUTTI_GELU});
    tutti_add_linear(*model, "a.down", &(tutti_linear){.outputs = 16});
    tutti_add_dropout(*model, "a.drop", 0.25);
    tutti_residual_end(*model);
    tutti_residual_begin(*model);
    tutti_model_add(*model, "b.scale", &scale_ops, NULL, 0);
    tutti_residual_end(*model);
    tutti_residual_begin(*model);
    tutti_add_linear(*model, "c.mix", &(tutti_linear){.outputs = 16, .activation = TUTTI_GELU});
    tutti_residual_end(*model);
    tutti_residual_begin(*model);
    tutti_add_relu(*model, "d.relu");
    tutti_residual_begin(*model);
    tutti_add_layer_norm(*model, "d.norm");
    tutti_residual_end(*model);
    tutti_add_linear(*model, "d.mix", &(tutti_linear){.outputs = 16});
    tutti_residual_end(*model);
    tutti_residual_begin(*model);
    tutti_add_linear(*model, "e.up", &(tutti_linear){.outputs = 8});
    tutti_add_linear(*model, "e.down", &(tutti_linear){.outputs = 16, .activation = TUTTI_RELU});
    tutti_residual_end(*model);
    tutti_add_gelu(*model, "gelu");
    tutti_add_linear(*model, "out", &(tutti_linear){.outputs = 4});
    tutti_add_mse(*model);
    tutti_model_seal(*model);
    return tutti_model_place(*model, &placing);
}

static bool run_odd(const struct width_shape *shape, tutti_mesh *mesh, bool sequence, int width_grains, int threads,
                    const struct width_result *base, struct width_result *result)
{
    *result = (struct width_result){0};
    tutti_status status = odd_model(mesh, sequence, width_grains, &result->model);
    if (status == TUTTI_OK) status = tutti_model_bind(result->model, NULL, NULL);
    if (status == TUTTI_OK) status = tutti_model_init(result->model, 7);
    if (!width_good(result->model, status) || !width_run_pass(shape, threads, result)) return false;
    width_collect(result, base);
    return true;
}

static void run_odds(tutti_comm *comm, void *context)
{
    static const char *const names[] = {"tensor"};
    tutti_mesh *mesh = NULL;
    struct width_result plain, alone;
    (void)context;
    const int size = tutti_size(comm);
    if (!CHECK_THAT(tutti_mesh_create(comm, names, &size, 1, &mesh) == TUTTI_OK, "a mesh")) return;
    struct width_shape shape = {.name = "layers of all kinds", .mlp = {.inputs = 7, .outputs = 4}};
    bool ok = run_odd(&shape, NULL, false, 1, 1, NULL, &plain);
    ok = run_odd(&shape, NULL, false, 4, 1, NULL, &alone) && ok;
    if (ok) width_compare_nearly(&shape, &alone, &plain);
    for (int i = 0; ok && i < 8; i++) {
        struct width_result shared;
        char with[80];
        shape.split = i / 2 % 2 == 1;
        shape.recompute = i / 4 == 1;
        snprintf(with, sizeof with, "rank %d of %d%s%s%s", tutti_rank(comm), size, i % 2 ? ", sequence" : "",
                 shape.split ? ", split" : "", shape.recompute ? ", recompute" : "");
        if (run_odd(&shape, mesh, i % 2 == 1, 4, 1 + i % 3, &alone, &shared))
            width_compare_bits(&shape, &shared, &alone, with);
        width_free(&shared);
    }
    width_free(&plain);
    width_free(&alone);
    tutti_mesh_free(mesh);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

enum { HEADS = 4, WIDTH = 64, CONTEXT = 16, ROWS = WIDTH_SAMPLES * CONTEXT };

static size_t pass_bytes(tutti_mesh *mesh, bool sequence, int layers)
{
    tutti_model *model = NULL;
    tutti_pass *pass = NULL;
    const tutti_gpt gpt = {
        .layers = layers, .heads = HEADS, .width = WIDTH, .context = CONTEXT, .vocabulary = 32, .dropout = 0.1};
    tutti_model_placing placing = {
        .struct_size = sizeof placing, .mesh = mesh, .width_grains = HEADS, .sequence = sequence};
    (void)tutti_gpt_create(&gpt, &model);
    size_t bytes = 0;
    if (width_good(model, tutti_model_place(model, &placing)) &&
        width_good(model, tutti_model_bind(model, NULL, NULL)) &&
        width_good(model, tutti_pass_create(model,
                                            &(tutti_pass_options){.struct_size = sizeof(tutti_pass_options),
                                                                  .samples = WIDTH_SAMPLES,
                                                                  .grains = WIDTH_GRAINS},
                                            &pass)))
        bytes = tutti_pass_bytes(pass);
    tutti_pass_free(pass);
    tutti_model_free(model);
    return bytes;
}

/* What one more block adds: attention and products by columns, (3 + 1 + 4 + 4) widths and a number per head; two norms with
 * two numbers each, two projections and what dropout makes of them, by rows, but for what norms put out; and two sums of two
 * gradients per grain. */
static void check_memory(tutti_mesh *mesh)
{
    const size_t ranks = (size_t)tutti_mesh_size(mesh, "tensor");
    const size_t cut = ROWS * (12 * WIDTH + HEADS) / ranks, norms = ROWS * 2 * WIDTH, rows = ROWS * (4 * WIDTH + 4);
    const size_t whole = pass_bytes(mesh, false, 3) - pass_bytes(mesh, false, 2);
    const size_t shared = pass_bytes(mesh, true, 3) - pass_bytes(mesh, true, 2);
    const size_t sums = (size_t)WIDTH_GRAINS * 2 * 2 * WIDTH;
    CHECK_THAT(whole == (cut + norms + rows) * sizeof(float), "a block takes %zu bytes", whole);
    CHECK_THAT(shared == (cut + norms + rows / ranks + sums) * sizeof(float), "a block takes %zu bytes, with sequence",
               shared);
}

/* ---- Refusals -------------------------------------------------------------------------------------------------- */

static void check_refused(tutti_mesh *mesh)
{
    tutti_model *model = NULL;
    const tutti_mlp mlp = {.inputs = 7, .outputs = 4, .hidden_layers = 1, .hidden = 16, .activation = TUTTI_RELU};
    tutti_model_placing placing = {.struct_size = sizeof placing, .mesh = mesh, .width_grains = 4, .sequence = true};
    (void)tutti_mlp_create(&mlp, &model);
    tutti_status status = tutti_model_place(model, &placing);
    const tutti_error *error = tutti_model_error(model);
    CHECK_THAT(status == TUTTI_ERR_ARGUMENT && error != NULL &&
                   strstr(error->text, "sequence: no layers of this model") != NULL,
               "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
    tutti_model_free(model);
}

static void run_two(tutti_comm *comm, void *context)
{
    static const char *const names[] = {"tensor"};
    tutti_mesh *mesh = NULL;
    (void)context;
    if (!CHECK_THAT(tutti_mesh_create(comm, names, (const int[]){2}, 1, &mesh) == TUTTI_OK, "a mesh")) return;
    check_memory(mesh);
    check_refused(mesh);
    tutti_mesh_free(mesh);
}

static void run(int size, void (*body)(tutti_comm *, void *))
{
    struct conf_world world = {.ranks = WORLD_THREADS, .size = size, .direct = 1, .attach = 1, .body = body};
    conf_world_run(&world);
}

int main(void)
{
    nn_need_blas();
    conf_begin();
    for (int size = 1; size <= 4; size *= 2) run(size, run_odds);
    run(2, run_two);
    return check_end();
}
