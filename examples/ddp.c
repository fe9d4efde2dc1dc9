/* SPDX-License-Identifier: Apache-2.0
 *
 * Data parallel training with gradients written by hand: a network of one hidden layer learns to tell two spirals apart.
 * Nothing of the library's own layers is used; tutti_ddp takes any list of (parameter, gradient) pointers.
 *
 *     build/examples/ddp                                one rank
 *     TUTTI_RANKS=3 build/examples/ddp                  three threads, which share the samples unevenly
 *     tutti run -n 2 build/examples/ddp                 two processes
 *     tutti run -n 2 build/examples/ddp FOLDER          all ranks save there, and go on from what was saved, by any number
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <tutti/train.h>

enum { SAMPLES = 400, INPUTS = 2, HIDDEN = 48, STEPS = 600, PARAMETERS = 4 };

/* The network: x -> tanh(x w1 + b1) -> h w2 + b2, the logit of the second spiral. */
typedef struct network {
    float w1[INPUTS][HIDDEN], b1[HIDDEN], w2[HIDDEN], b2[1];
} network;

static void spiral(int sample, float x[INPUTS], float *target)
{
    double t = 0.5 + 3.0 * (double)(sample / 2) / (SAMPLES / 2), side = sample % 2 == 0 ? 1 : -1;
    x[0] = (float)(side * t * cos(2.5 * t) / 3.5);
    x[1] = (float)(side * t * sin(2.5 * t) / 3.5);
    *target = (float)(sample % 2);
}

/* Adds the gradient of one sample's loss; returns the loss. */
static double backward(const network *net, network *gradient, int sample)
{
    float x[INPUTS], target, hidden[HIDDEN], logit = net->b2[0];
    spiral(sample, x, &target);
    for (int j = 0; j < HIDDEN; j++) {
        hidden[j] = tanhf(x[0] * net->w1[0][j] + x[1] * net->w1[1][j] + net->b1[j]);
        logit += hidden[j] * net->w2[j];
    }
    float error = 1 / (1 + expf(-logit)) - target; /* of the logit */
    gradient->b2[0] += error;
    for (int j = 0; j < HIDDEN; j++) {
        float inner = error * net->w2[j] * (1 - hidden[j] * hidden[j]);
        gradient->w2[j] += error * hidden[j];
        gradient->b1[j] += inner;
        gradient->w1[0][j] += inner * x[0];
        gradient->w1[1][j] += inner * x[1];
    }
    return log1p(exp(-fabs((double)logit))) + fmax(target > 0.5F ? -(double)logit : (double)logit, 0);
}

static void start(network *net)
{
    uint32_t state = 12345;
    float *all = &net->w1[0][0];
    for (size_t i = 0; i < sizeof *net / sizeof *all; i++) {
        state = state * 1664525 + 1013904223;
        all[i] = (float)(state >> 8) / (float)(1 << 23) - 1;
    }
}

static int train(tutti_comm *world, network *net, network *gradient, tutti_ddp *ddp, tutti_optimizer *optimizer,
                 int taken)
{
    int rank = tutti_rank(world), size = tutti_size(world);
    for (int step = taken + 1; step <= taken + STEPS; step++) {
        double loss = 0, all_loss = 0, mine = 0, all = 0;
        *gradient = (network){0};
        tutti_ddp_begin(ddp, true);
        for (int sample = rank; sample < SAMPLES; sample += size, mine++) loss += backward(net, gradient, sample);
        for (size_t i = PARAMETERS; i-- > 0;) tutti_ddp_ready(ddp, i);
        if (tutti_ddp_end(ddp, mine, &all) != TUTTI_OK) return tutti_explain(world, stderr);
        tutti_optimizer_step(optimizer, 0.02, 1 / all); /* the mean over all ranks' samples */
        if (step % 150 != 0) continue;
        if (tutti_all_reduce(world, &loss, &all_loss, 1, TUTTI_F64, TUTTI_SUM) != TUTTI_OK)
            return tutti_explain(world, stderr);
        if (rank == 0) printf("step %d: loss %.4f\n", step, all_loss / all);
    }
    return 0;
}

static int say(tutti_comm *world, const tutti_error *error)
{
    if (tutti_rank(world) == 0) fprintf(stderr, "%s\n", error->text);
    return 1;
}

/* Trains, and saves: `folder` NULL: nowhere. */
static int run(tutti_comm *world, network *net, network *gradient, tutti_ddp *ddp, tutti_optimizer *optimizer,
               const char *folder)
{
    struct stat about;
    tutti_error error;
    uint64_t step = 0;
    if (folder != NULL && stat(folder, &about) == 0 &&
        tutti_ddp_load(ddp, folder, optimizer, &step, &error) != TUTTI_OK)
        return say(world, &error);
    int status = train(world, net, gradient, ddp, optimizer, (int)step);
    if (status == 0 && folder != NULL &&
        tutti_ddp_save(ddp, folder, step + STEPS, 3, optimizer, NULL, 0, &error) != TUTTI_OK)
        return say(world, &error);
    return status;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    network *net = tutti_alloc(world, sizeof *net), *gradient = tutti_alloc(world, sizeof *gradient);
    if (net == NULL || gradient == NULL) return tutti_explain(world, stderr);
    tutti_parameter parameters[PARAMETERS] = {
        {"w1", &net->w1[0][0], &gradient->w1[0][0], sizeof net->w1 / sizeof(float), true},
        {"b1", net->b1, gradient->b1, HIDDEN, false},
        {"w2", net->w2, gradient->w2, HIDDEN, true},
        {"b2", net->b2, gradient->b2, 1, false},
    };
    tutti_optimizer_settings settings;
    tutti_optimizer *optimizer = NULL;
    tutti_ddp *ddp = NULL;
    tutti_error error;
    if (tutti_rank(world) == 0) start(net); /* the others get rank 0's values */
    if (tutti_ddp_create(world, parameters, PARAMETERS, NULL, &ddp, &error) != TUTTI_OK ||
        tutti_optimizer_defaults("adam", &settings, &error) != TUTTI_OK ||
        tutti_optimizer_create(&settings, parameters, PARAMETERS, &optimizer, &error) != TUTTI_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    int status = run(world, net, gradient, ddp, optimizer, argc > 1 ? argv[1] : NULL);
    if (status == 0 && tutti_weights_compare(world, tutti_weights_hash(parameters, PARAMETERS), NULL) == TUTTI_OK &&
        tutti_rank(world) == 0)
        printf("all %d ranks have the same weights\n", tutti_size(world));
    tutti_optimizer_free(optimizer);
    tutti_ddp_free(ddp);
    return status;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
