/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of one's own, with a layer of one's own, on every mesh: the trainer shares its width and its layers among ranks,
 * shards what they keep, saves and goes on. Every mesh gives the same weights, bit for bit.
 *
 *     build/examples/mesh FILE                                                       one rank; learns the file's bytes
 *     TUTTI_RANKS=8 build/examples/mesh FILE data=2,pipe=2,tensor=2 1 zb-h1          eight threads, zero 1, a table
 *     tutti run -n 4 build/examples/mesh FILE tensor=2,pipe=2 0 '' FOLDER            four processes; saves, and goes on
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/train.h>

enum { CONTEXT = 16, WIDTH = 32, BLOCKS = 2, STEPS = 40 };

/* ---- A layer of one's own: out = in * slope, a slope for each column ---------------------------------------------- */

static tutti_status slope_setup(tutti_model *model, tutti_layer *layer)
{
    return tutti_layer_tensor(model, layer, "slope", 1, &layer->inputs, TUTTI_INIT_ONE, 0);
}

/* Where ranks share the width each has the slopes of its columns. */
static tutti_status slope_place(tutti_model *model, tutti_layer *layer)
{
    return tutti_layer_cut(model, layer, 0, 0, layer->sections);
}

/* Goes grain by grain, so that bits do not depend on which rank has which. */
static void apply(const tutti_call *call, float *to, const float *from)
{
    const int64_t width = call->layer->inputs;
    for (int g = 0; g < tutti_call_grains(call); g++) {
        const float *slopes = tutti_grain_values(call, 0, g);
        int64_t first, end;
        tutti_call_inputs(call, g, &first, &end);
        for (int64_t r = 0; r < call->rows; r++)
            for (int64_t c = first; c < end; c++) to[r * width + c] = from[r * width + c] * slopes[c - first];
    }
}

static void slope_forward(tutti_call *call)
{
    apply(call, call->out, call->in);
}

static void slope_backward_input(tutti_call *call)
{
    if (call->in_gradient != NULL) apply(call, call->in_gradient, call->out_gradient);
}

static void slope_backward_weights(tutti_call *call)
{
    const int64_t width = call->layer->inputs;
    int64_t first, end;
    tutti_call_inputs(call, call->grain, &first, &end);
    for (int64_t c = first; c < end; c++) {
        float sum = call->accumulate[0] ? call->gradients[0][c - first] : 0;
        for (int64_t r = 0; r < call->rows; r++) sum += call->out_gradient[r * width + c] * call->in[r * width + c];
        call->gradients[0][c - first] = sum;
    }
}

static const tutti_layer_ops slope = {.kind = "slope",
                                      .setup = slope_setup,
                                      .forward = slope_forward,
                                      .backward_input = slope_backward_input,
                                      .backward_weights = slope_backward_weights,
                                      .cuts = TUTTI_CUT_WHOLE | TUTTI_CUT_ALIKE,
                                      .place = slope_place};

/* ---- The model ------------------------------------------------------------------------------------------------- */

/* Checking the seal is enough: the first error stays in the model. */
static tutti_status make(void *context, const tutti_data_about *data, tutti_model **model, tutti_error *error)
{
    (void)context, (void)error;
    tutti_model_create(&(tutti_model_shape){.rows = CONTEXT}, model);
    tutti_add_embedding(*model, "tokens", "places", (int64_t)data->vocabulary, WIDTH, 0.1);
    for (int i = 0; i < BLOCKS; i++) {
        char name[4][16];
        for (int k = 0; k < 4; k++)
            snprintf(name[k], sizeof name[k], "%d.%s", i, (const char *[]){"norm", "up", "slope", "down"}[k]);
        tutti_residual_begin(*model);
        tutti_add_layer_norm(*model, name[0]);
        tutti_add_linear(*model, name[1], &(tutti_linear){.outputs = 4 * WIDTH, .activation = TUTTI_GELU});
        tutti_model_add(*model, name[2], &slope, NULL, 0);
        tutti_add_linear(*model, name[3], &(tutti_linear){.outputs = WIDTH});
        tutti_residual_end(*model);
    }
    tutti_add_layer_norm(*model, "norm");
    tutti_add_linear(*model, "head", &(tutti_linear){.outputs = (int64_t)data->vocabulary, .no_bias = true});
    tutti_add_cross_entropy(*model, NULL);
    return tutti_model_seal(*model);
}

/* ---- Training -------------------------------------------------------------------------------------------------- */

static int train(tutti_comm *world, tutti_trainer *trainer, bool saves)
{
    tutti_train_about about;
    tutti_train_step step;
    tutti_trainer_describe(trainer, &about);
    for (uint64_t end = about.step + STEPS; about.step < end; about.step++) {
        if (tutti_trainer_step(trainer, &step) != TUTTI_OK) return tutti_explain(world, stderr);
        if (tutti_rank(world) == 0 && step.step % 10 == 0)
            printf("step %llu: loss %.4f\n", (unsigned long long)step.step, step.loss);
    }
    if (saves && tutti_trainer_save(trainer) != TUTTI_OK) return tutti_explain(world, stderr);
    const uint64_t hash = tutti_trainer_hash(trainer);
    if (tutti_rank(world) == 0) printf("weights %016llx\n", (unsigned long long)hash);
    return 0;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    const tutti_train_model model = {.struct_size = sizeof model, .name = "sloped", .make = make};
    tutti_train_options options;
    tutti_trainer *trainer = NULL;
    tutti_error error;
    if (argc < 2) return fprintf(stderr, "usage: mesh FILE [MESH [ZERO [TABLE [FOLDER]]]]\n"), 2;
    tutti_train_options_init(&options);
    options.data = argv[1];
    options.context = CONTEXT;
    options.width_grains = 4; /* the same for every mesh, so the same bits */
    options.schedule = "constant";
    options.lr = 0.01;
    if (argc > 2) options.mesh = argv[2];
    if (argc > 3) options.zero = atoi(argv[3]);
    if (argc > 4) options.pipeline = argv[4];
    if (argc > 5) options.save = argv[5];
    FILE *before = argc > 5 ? fopen(argv[5], "r") : NULL;
    options.resume = before != NULL;
    if (before != NULL) fclose(before);
    if (tutti_trainer_create_model(world, &options, &model, &trainer, &error) != TUTTI_OK)
        return tutti_rank(world) == 0 ? (fprintf(stderr, "mesh: %s\n", error.text), 1) : 1;
    const int status = train(world, trainer, argc > 5);
    tutti_trainer_free(trainer);
    return status;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
