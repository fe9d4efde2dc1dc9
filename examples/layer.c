/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer and a loss of one's own in a model, trained data parallel. The layer is Swish with a slope that is learnt for
 * each of its inputs; the loss is Huber's. They learn a wave. Any number of ranks gives the same weights, bit for bit.
 *
 *     build/examples/layer                        one rank
 *     TUTTI_RANKS=3 build/examples/layer          three threads
 *     tutti run -n 2 build/examples/layer         two processes
 *
 * Installed: cc layer.c $(pkg-config --cflags --libs tutti) -lm -o layer
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <tutti/train.h>

/* ---- The layer: out = x * s with s = sigmoid(slope * x) --------------------------------------------------------- */
/* Its functions get some rows of the batch and may run on several threads at once: they touch nothing but what the call
 * names, and what they write for a row depends on that row alone. */

enum { SLOPE }; /* its tensors, in the order in which they are declared */

static tutti_status swish_setup(tutti_model *model, tutti_layer *layer)
{
    layer->outputs = layer->inputs;
    layer->saved = layer->inputs; /* s, which backward needs again */
    return tutti_layer_tensor(model, layer, "slope", 1, &layer->inputs, TUTTI_INIT_ONE, 0);
}

static void swish_forward(tutti_call *call)
{
    const int64_t width = call->layer->inputs;
    const float *slope = tutti_layer_values(call, SLOPE);
    for (int64_t i = 0; i < call->rows * width; i++) {
        call->saved[i] = 1 / (1 + expf(-slope[i % width] * call->in[i]));
        call->out[i] = call->in[i] * call->saved[i];
    }
}

/* d out / d x = s + slope * x * s * (1 - s) */
static void swish_backward_input(tutti_call *call)
{
    if (call->in_gradient == NULL) return; /* the first layer: nobody needs it */
    const int64_t width = call->layer->inputs;
    const float *slope = tutti_layer_values(call, SLOPE);
    for (int64_t i = 0; i < call->rows * width; i++) {
        const float x = call->in[i], s = call->saved[i];
        call->in_gradient[i] = call->out_gradient[i] * (s + slope[i % width] * x * s * (1 - s));
    }
}

/* d out / d slope = x^2 * s * (1 - s), summed over the rows; added to what is there where the call says so. */
static void swish_backward_weights(tutti_call *call)
{
    const int64_t width = call->layer->inputs;
    float *gradient = call->gradients[SLOPE];
    for (int64_t j = 0; j < width; j++) {
        float sum = call->accumulate[SLOPE] ? gradient[j] : 0;
        for (int64_t i = j; i < call->rows * width; i += width)
            sum += call->out_gradient[i] * call->in[i] * call->in[i] * call->saved[i] * (1 - call->saved[i]);
        gradient[j] = sum;
    }
}

static const tutti_layer_ops swish_ops = {.kind = "swish",
                                          .setup = swish_setup,
                                          .forward = swish_forward,
                                          .backward_input = swish_backward_input,
                                          .backward_weights = swish_backward_weights};

/* ---- The loss: d^2 / 2 up to |d| = limit, and from there on a straight line -------------------------------------- */

typedef struct huber {
    float limit;
} huber;

static tutti_status huber_setup(tutti_model *model, tutti_layer *layer)
{
    const huber *config = layer->config; /* the model's own copy */
    if (!(config->limit > 0)) return tutti_model_refuse(model, TUTTI_ERR_ARGUMENT, "the limit must be positive");
    layer->outputs = 0; /* that makes it a loss */
    return TUTTI_OK;
}

static float row_weight(const tutti_call *call, int64_t row)
{
    return call->row_weights == NULL ? 1 : call->row_weights[row];
}

/* Adds up (sum, count): whoever knows the count of all ranks divides, once. */
static void huber_forward(tutti_call *call)
{
    const float limit = ((const huber *)call->layer->config)->limit;
    const int64_t width = call->layer->inputs;
    for (int64_t i = 0; i < call->rows * width; i++) {
        const float d = fabsf(call->in[i] - call->target_values[i]);
        const float loss = d <= limit ? d * d / 2 : limit * (d - limit / 2);
        call->loss_sum += (double)(row_weight(call, i / width) * loss);
        if (i % width == 0) call->loss_count += (double)row_weight(call, i / width);
    }
}

static void huber_backward(tutti_call *call)
{
    const float limit = ((const huber *)call->layer->config)->limit;
    const int64_t width = call->layer->inputs;
    for (int64_t i = 0; call->in_gradient != NULL && i < call->rows * width; i++) {
        const float d = call->in[i] - call->target_values[i];
        call->in_gradient[i] = row_weight(call, i / width) * fmaxf(-limit, fminf(limit, d));
    }
}

static const tutti_layer_ops huber_ops = {.kind = "huber",
                                          .setup = huber_setup,
                                          .forward = huber_forward,
                                          .backward_input = huber_backward,
                                          .reads = TUTTI_READS_TARGET_VALUES};

/* ---- The model, which is trained like any other (model.c says more) ---------------------------------------------- */

enum { HIDDEN = 16, GRAINS = 6, GRAIN_SAMPLES = 8, STEPS = 300, TENSORS_MOST = 8 };

typedef struct learner {
    tutti_comm *world;
    tutti_model *model;
    tutti_parameter list[TENSORS_MOST];
    tutti_pass *pass;
    tutti_ddp *ddp;
    tutti_optimizer *optimizer;
    int first_grain, grains; /* of this rank */
    float inputs[GRAINS * GRAIN_SAMPLES], targets[GRAINS * GRAIN_SAMPLES];
} learner;

static tutti_status build(tutti_model **model)
{
    tutti_model_create(&(tutti_model_shape){.rows = 1, .inputs = 1}, model);
    tutti_add_linear(*model, "in", &(tutti_linear){.outputs = HIDDEN});
    tutti_model_add(*model, "swish", &swish_ops, NULL, 0);
    tutti_add_linear(*model, "out", &(tutti_linear){.outputs = 1});
    tutti_model_add(*model, "loss", &huber_ops, &(huber){.limit = 0.5f}, sizeof(huber));
    return tutti_model_seal(*model); /* the first error of all these stays in the model */
}

static int say(const tutti_error *error)
{
    fprintf(stderr, "%s: %s\n", tutti_status_name(error->status), error->text);
    return 1;
}

static int make(learner *l)
{
    tutti_optimizer_settings settings;
    tutti_ddp_options options = {.struct_size = sizeof options, .grains = GRAINS};
    tutti_error error;
    if (build(&l->model) != TUTTI_OK || tutti_model_bind(l->model, NULL, NULL) != TUTTI_OK ||
        tutti_model_init(l->model, 42) != TUTTI_OK || tutti_model_gradients(l->model) == NULL)
        return tutti_model_explain(l->model, stderr);
    const size_t tensors = (size_t)tutti_model_tensors(l->model);
    tutti_model_list(l->model, l->list);
    if (tutti_ddp_create(l->world, l->list, tensors, &options, &l->ddp, &error) != TUTTI_OK ||
        tutti_optimizer_defaults("adam", &settings, &error) != TUTTI_OK ||
        tutti_optimizer_create(&settings, l->list, tensors, &l->optimizer, &error) != TUTTI_OK)
        return say(&error);
    tutti_ddp_grains(l->ddp, &l->first_grain, &l->grains);
    tutti_pass_options pass = {
        .struct_size = sizeof pass, .samples = (int64_t)l->grains * GRAIN_SAMPLES, .grains = l->grains};
    return tutti_pass_create(l->model, &pass, &l->pass) == TUTTI_OK ? 0 : tutti_model_explain(l->model, stderr);
}

static void ready(void *context, size_t offset, size_t count)
{
    tutti_ddp_ready_run(context, offset, count); /* a failure is tutti_ddp_end's, too */
}

static int take_step(learner *l, int step, double *mean)
{
    int64_t bounds[GRAINS + 1];
    tutti_loss losses[GRAINS], mine = {0};
    double all = 0, sum = 0;
    const int first = l->first_grain * GRAIN_SAMPLES, samples = l->grains * GRAIN_SAMPLES;
    for (int i = 0; i < samples; i++) { /* sample `number` is the same whichever rank has it */
        const int number = step * GRAINS * GRAIN_SAMPLES + first + i;
        l->inputs[i] = (float)(number * 7919 % 1000) / 500 - 1;
        l->targets[i] = sinf(3 * l->inputs[i]);
    }
    for (int g = 0; g <= l->grains; g++) bounds[g] = (int64_t)g * GRAIN_SAMPLES;
    tutti_batch batch = {.struct_size = sizeof batch,
                         .samples = samples,
                         .inputs = l->inputs,
                         .target_values = l->targets,
                         .grain_bounds = bounds,
                         .grains = l->grains,
                         .first_sample = first,
                         .step = (uint64_t)step};
    tutti_backward how = {.struct_size = sizeof how, .ready = ready, .context = l->ddp};
    how.subtrees = tutti_ddp_partials(l->ddp, &how.subtree_bounds, &how.gradients);
    tutti_ddp_begin(l->ddp, true);
    if (tutti_pass_forward(l->pass, &batch, losses) != TUTTI_OK || tutti_pass_backward(l->pass, &how) != TUTTI_OK)
        return tutti_model_explain(l->model, stderr);
    for (int g = 0; g < l->grains; g++) mine.sum += losses[g].sum, mine.count += losses[g].count;
    if (tutti_ddp_end(l->ddp, mine.count, &all) != TUTTI_OK ||
        tutti_all_reduce(l->world, &mine.sum, &sum, 1, TUTTI_F64, TUTTI_SUM) != TUTTI_OK)
        return tutti_explain(l->world, stderr);
    tutti_optimizer_step(l->optimizer, 0.01, 1 / all);
    *mean = sum / all;
    return 0;
}

static int train(learner *l)
{
    const bool speaks = tutti_rank(l->world) == 0;
    int status = 0;
    for (int step = 0; status == 0 && step < STEPS; step++) {
        double loss = 0;
        status = take_step(l, step, &loss);
        if (status == 0 && speaks && (step == 0 || (step + 1) % 100 == 0))
            printf("step %d: loss %.4f\n", step + 1, loss);
    }
    const uint64_t hash = tutti_weights_hash(l->list, (size_t)tutti_model_tensors(l->model));
    if (status != 0) return status;
    if (tutti_weights_compare(l->world, hash, NULL) != TUTTI_OK) return tutti_explain(l->world, stderr);
    const float *slope = tutti_model_values(l->model) + tutti_model_find(l->model, "swish.slope")->offset;
    float low = slope[0], high = slope[0];
    for (int i = 1; i < HIDDEN; i++) low = fminf(low, slope[i]), high = fmaxf(high, slope[i]);
    if (speaks) printf("slopes, once all 1, are %.2f to %.2f\n", (double)low, (double)high);
    if (speaks) printf("weights %016llx\n", (unsigned long long)hash);
    return 0;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    (void)argc, (void)argv;
    learner *l = calloc(1, sizeof *l);
    if (l == NULL) return 1;
    l->world = world;
    int status = make(l);
    if (status == 0) status = train(l);
    tutti_pass_free(l->pass);
    tutti_optimizer_free(l->optimizer);
    tutti_ddp_free(l->ddp);
    tutti_model_free(l->model);
    free(l);
    return status;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
