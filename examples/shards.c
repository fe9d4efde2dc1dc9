/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that is cut by its width, with nothing of the library's own layers: y is the sum of all features times their
 * weights. Each rank has the weights of some features, and its function gets these features of all samples; what the ranks give
 * is summed, and from the sum each of them learns its own weights.
 *
 *     build/examples/shards                             one rank
 *     TUTTI_RANKS=3 build/examples/shards               three threads, whose slices are unequal
 *     tutti run -n 9 build/examples/shards              nine processes, two of them with no feature at all
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/train.h>

enum { FEATURES = 7, SAMPLES = 40, STEPS = 300 };

/* One rank's features, with their weights. */
typedef struct shard {
    float weights[FEATURES];
    size_t first, count;
    float summand[SAMPLES]; /* of y */
    const float *targets;   /* (SAMPLES) */
} shard;

/* The slice is (features, SAMPLES). */
static tutti_status step(void *context, tutti_shard_call *call)
{
    shard *mine = context;
    for (int s = 0; s < SAMPLES; s++) mine->summand[s] = 0;
    for (size_t f = 0; f < mine->count; f++)
        for (size_t s = 0; s < SAMPLES; s++) mine->summand[s] += mine->weights[f] * call->input[f * SAMPLES + s];
    call->output = mine->summand;
    call->outputs = SAMPLES;
    return TUTTI_OK;
}

/* All of y is there: half of the squared error is the loss, which each rank computes of all samples. */
static tutti_status after(void *context, tutti_shard_call *call)
{
    shard *mine = context;
    for (int s = 0; s < SAMPLES; s++) {
        const double error = (double)(call->whole[s] - mine->targets[s]);
        call->loss += error * error / 2;
    }
    call->samples = SAMPLES;
    for (size_t f = 0; f < mine->count; f++) {
        float gradient = 0;
        for (size_t s = 0; s < SAMPLES; s++)
            gradient += (call->whole[s] - mine->targets[s]) * call->input[f * SAMPLES + s] / SAMPLES;
        call->norm_squared += (double)gradient * (double)gradient;
        mine->weights[f] -= 0.3F * gradient;
    }
    return TUTTI_OK;
}

/* Numbers from -1 to 1; the true weights are 1, 2, 3 … */
static void make_samples(float *input, float *targets)
{
    uint32_t state = 12345;
    for (int f = 0; f < FEATURES; f++)
        for (int s = 0; s < SAMPLES; s++) {
            state = state * 1664525 + 1013904223;
            input[f * SAMPLES + s] = (float)(state >> 8) / (float)(1 << 23) - 1;
            targets[s] += (float)(f + 1) * input[f * SAMPLES + s];
        }
}

static int train(tutti_comm *world, tutti_shards *shards, shard *mine, const float *input)
{
    tutti_shards_report report = {.struct_size = sizeof report};
    size_t first, inputs;
    tutti_shards_slice(shards, FEATURES * SAMPLES, tutti_rank(world), &first, &inputs);
    mine->first = first / SAMPLES;
    mine->count = inputs / SAMPLES;
    while (report.step < STEPS) {
        if (tutti_shards_step(shards, input, FEATURES * SAMPLES, &report) != TUTTI_OK)
            return tutti_explain(world, stderr);
        if (report.step % 100 == 0 && tutti_rank(world) == 0)
            printf("step %llu: loss %.4f, norm %.4f\n", (unsigned long long)report.step, report.loss, report.norm);
    }
    for (size_t f = 0; f < mine->count; f++)
        printf("rank %d: feature %zu has weight %.2f\n", tutti_rank(world), mine->first + f, (double)mine->weights[f]);
    return 0;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    (void)argc, (void)argv;
    float input[FEATURES * SAMPLES], targets[SAMPLES] = {0};
    shard mine = {.targets = targets};
    tutti_shards_options options = {
        .struct_size = sizeof options, .step = step, .after = after, .context = &mine, .unit = SAMPLES};
    tutti_shards *shards;
    make_samples(input, targets);
    if (tutti_shards_create(world, &options, &shards, NULL) != TUTTI_OK) return tutti_explain(world, stderr);
    int failed = train(world, shards, &mine, input);
    tutti_shards_free(shards);
    return failed;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
