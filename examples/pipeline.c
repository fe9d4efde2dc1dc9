/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline with stages of one's own: a deep network learns to tell two spirals apart, each rank has some of its layers,
 * and micro-batches go through them by the table that is named. Nothing of the library's own layers is used.
 *
 *     tutti run -n 4 build/examples/pipeline                  by zb-h1
 *     tutti run -n 4 build/examples/pipeline interleaved      or gpipe, 1f1b, zb-v, or a file with a table
 *     TUTTI_RANKS=2 build/examples/pipeline                   two threads
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/pipeline.h>

enum { SAMPLES = 64, WIDTH = 16, LAYERS = 2, CHUNKS = 8, MICROS = 8, STEPS = 150 }; /* LAYERS of each stage */

/* One layer: x -> x + tanh(x w + b). The last stage ends with a logit: the sum of its first half less that of its second. */
typedef struct layer {
    float w[WIDTH][WIDTH], b[WIDTH];
} layer;

typedef struct stage {
    layer layers[LAYERS], gradients[LAYERS];
    float (*inputs)[LAYERS + 1][SAMPLES][WIDTH]; /* [slots]: what each layer was given, and what the last one gave */
    float (*errors)[LAYERS][SAMPLES][WIDTH];     /* [slots]: gradients of what is inside of tanh */
} stage;

typedef struct network {
    stage chunks[CHUNKS];
    double loss;
} network;

/* Two spirals; micro-batches have different points of them. */
static float point(int micro, int sample, float x[WIDTH])
{
    double t = 0.3 + 2.2 * (sample / 2 * MICROS + micro) / (SAMPLES / 2 * MICROS), side = sample % 2 == 0 ? 1 : -1;
    memset(x, 0, WIDTH * sizeof *x);
    x[0] = (float)(side * t * cos(2 * t));
    x[1] = (float)(side * t * sin(2 * t));
    x[2] = 1;
    return (float)(sample % 2);
}

static void layer_forward(const layer *l, const float in[WIDTH], float out[WIDTH])
{
    for (int j = 0; j < WIDTH; j++) {
        float sum = l->b[j];
        for (int i = 0; i < WIDTH; i++) sum += in[i] * l->w[i][j];
        out[j] = in[j] + tanhf(sum);
    }
}

static tutti_status forward(void *context, const tutti_pipeline_call *call)
{
    stage *own = &((network *)context)->chunks[call->chunk];
    float(*x)[SAMPLES][WIDTH] = own->inputs[call->slot];
    for (int s = 0; s < SAMPLES; s++) {
        if (call->in == NULL)
            (void)point(call->micro, s, x[0][s]);
        else
            memcpy(x[0][s], (const float *)call->in + (size_t)s * WIDTH, sizeof x[0][s]);
        for (int l = 0; l < LAYERS; l++) layer_forward(&own->layers[l], x[l][s], x[l + 1][s]);
        for (int j = 0; j < WIDTH; j++)
            if (!isfinite(x[LAYERS][s][j])) {
                snprintf(call->reason, TUTTI_PIPELINE_REASON_BYTES, "sample %d is no finite number any more", s);
                return TUTTI_ERR_DIVERGED; /* all ranks are told */
            }
    }
    if (call->out != NULL) memcpy(call->out, x[LAYERS], sizeof x[LAYERS]);
    return TUTTI_OK;
}

/* The gradient of the loss by what the last stage gave. */
static double loss_gradient(int micro, int sample, const float out[WIDTH], float gradient[WIDTH])
{
    float x[WIDTH], target = point(micro, sample, x), logit = 0;
    for (int j = 0; j < WIDTH; j++) logit += j < WIDTH / 2 ? out[j] : -out[j];
    float error = 1 / (1 + expf(-logit)) - target;
    for (int j = 0; j < WIDTH; j++) gradient[j] = j < WIDTH / 2 ? error : -error;
    return log1p(exp(-fabs((double)logit))) + fmax(target > 0.5F ? -(double)logit : (double)logit, 0);
}

/* Only what the stage before waits for; what the weights need is kept. */
static tutti_status input_part(void *context, const tutti_pipeline_call *call)
{
    network *net = context;
    stage *own = &net->chunks[call->chunk];
    for (int s = 0; s < SAMPLES; s++) {
        float gradient[WIDTH];
        if (call->out_gradient == NULL)
            net->loss += loss_gradient(call->micro, s, own->inputs[call->slot][LAYERS][s], gradient);
        else
            memcpy(gradient, (const float *)call->out_gradient + (size_t)s * WIDTH, sizeof gradient);
        for (int l = LAYERS - 1; l >= 0; l--) {
            float *error = own->errors[call->slot][l][s];
            const float *in = own->inputs[call->slot][l][s], *out = own->inputs[call->slot][l + 1][s];
            for (int j = 0; j < WIDTH; j++) {
                float inner = out[j] - in[j]; /* tanh */
                error[j] = gradient[j] * (1 - inner * inner);
            }
            for (int i = 0; i < WIDTH; i++)
                for (int j = 0; j < WIDTH; j++) gradient[i] += error[j] * own->layers[l].w[i][j];
        }
        if (call->in_gradient != NULL)
            memcpy((float *)call->in_gradient + (size_t)s * WIDTH, gradient, sizeof gradient);
    }
    return TUTTI_OK;
}

static tutti_status weights_part(void *context, const tutti_pipeline_call *call)
{
    stage *own = &((network *)context)->chunks[call->chunk];
    for (int l = 0; l < LAYERS; l++)
        for (int s = 0; s < SAMPLES; s++)
            for (int j = 0; j < WIDTH; j++) {
                float error = own->errors[call->slot][l][s][j];
                for (int i = 0; i < WIDTH; i++) own->gradients[l].w[i][j] += own->inputs[call->slot][l][s][i] * error;
                own->gradients[l].b[j] += error;
            }
    return TUTTI_OK;
}

static void start(layer *l, int number)
{
    uint32_t state = 12345 + 977 * (uint32_t)number;
    float *all = &l->w[0][0];
    for (size_t i = 0; i < (size_t)WIDTH * WIDTH; i++) {
        state = state * 1664525 + 1013904223;
        all[i] = ((float)(state >> 8) / (float)(1 << 23) - 1) * 0.3F;
    }
}

static void step(stage *own, float rate)
{
    float *value = &own->layers[0].w[0][0], *gradient = &own->gradients[0].w[0][0];
    for (size_t i = 0; i < LAYERS * sizeof(layer) / sizeof(float); i++) {
        value[i] -= rate * gradient[i];
        gradient[i] = 0;
    }
}

/* ---- All of it ------------------------------------------------------------------------------------------------- */

static tutti_status make_table(const char *name, int ranks, tutti_pipeline **table, tutti_error *error)
{
    const char *known;
    for (size_t i = 0; (known = tutti_pipeline_names(i)) != NULL; i++)
        if (strcmp(known, name) == 0) return tutti_pipeline_build(name, ranks, 0, MICROS, table, error);
    return tutti_pipeline_read(name, table, error);
}

static int train(network *net, tutti_pipeline_runner *runner, int chunks, bool has_loss, bool tells)
{
    tutti_pipeline_report report = {.struct_size = sizeof report};
    tutti_error error;
    for (int i = 1; i <= STEPS; i++) {
        net->loss = 0;
        if (tutti_pipeline_run(runner, &report, &error) != TUTTI_OK) return fprintf(stderr, "%s\n", error.text), 1;
        for (int c = 0; c < chunks; c++) step(&net->chunks[c], 1.0F / (SAMPLES * MICROS));
        if (has_loss && (i == 1 || i % 50 == 0)) printf("step %d: loss %.4f\n", i, net->loss / (SAMPLES * MICROS));
    }
    if (tells)
        printf("last step: %.2f ms, %.0f%% idle; by its table %.2f ms, %.0f%%\n", 1e3 * report.seconds,
               100 * report.idle, 1e3 * report.predicted_seconds, 100 * report.predicted_idle);
    return 0;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    tutti_pipeline *table = NULL;
    tutti_pipeline_runner *runner = NULL;
    tutti_pipeline_about about = {.struct_size = sizeof about};
    tutti_error error;
    network *net = calloc(1, sizeof *net);
    if (make_table(argc > 1 ? argv[1] : "zb-h1", tutti_size(world), &table, &error) != TUTTI_OK)
        return fprintf(stderr, "%s\n", error.text), free(net), 2;
    tutti_pipeline_describe(table, &about);
    size_t *bytes = calloc((size_t)about.stages, sizeof *bytes);
    for (int s = 0; s < about.stages; s++) bytes[s] = sizeof(float[SAMPLES][WIDTH]);
    tutti_pipeline_settings settings = {.struct_size = sizeof settings,
                                        .forward = forward,
                                        .input = input_part,
                                        .weights = weights_part,
                                        .context = net,
                                        .bytes = bytes};
    int chunks = about.chunks < CHUNKS ? about.chunks : CHUNKS, rank = tutti_rank(world), result = 1;
    if (about.chunks > CHUNKS)
        fprintf(stderr, "this example has room for %d chunks per rank, not %d\n", CHUNKS, about.chunks);
    else if (tutti_pipeline_runner_create(world, table, &settings, &runner, &error) != TUTTI_OK)
        fprintf(stderr, "%s\n", error.text);
    else
        result = 0;
    for (int c = 0; result == 0 && c < chunks; c++) {
        size_t slots = (size_t)tutti_pipeline_slots(runner, c);
        net->chunks[c].inputs = calloc(slots, sizeof *net->chunks[c].inputs);
        net->chunks[c].errors = calloc(slots, sizeof *net->chunks[c].errors);
        for (int l = 0; l < LAYERS; l++)
            start(&net->chunks[c].layers[l], LAYERS * tutti_pipeline_stage(table, rank, c) + l);
    }
    bool has_loss = tutti_pipeline_rank(table, about.stages - 1, NULL) == rank;
    if (result == 0) result = train(net, runner, chunks, has_loss, rank == 0);
    tutti_pipeline_runner_free(runner);
    for (int c = 0; c < chunks; c++) free(net->chunks[c].inputs), free(net->chunks[c].errors);
    tutti_pipeline_free(table);
    free(bytes);
    free(net);
    return result;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
