/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * A trainer's loss and norm against those of one pass over the same samples, without grains, trees and ddp: tests of layouts compare
 * trainers with each other only. With dropout, whose random numbers are those of the samples' places in the whole batch.
 */
#include "conformance_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train.h>

enum { BATCH = 6, CONTEXT = 8, STATES = 37 };
static const char data_source[] = "markov:order=1,states=37,length=4000";

static tutti_train_options options_of(double dropout)
{
    tutti_train_options options;
    tutti_train_options_init(&options);
    options.data = data_source;
    options.layers = 2;
    options.heads = 2;
    options.width = 32;
    options.context = CONTEXT;
    options.batch = BATCH;
    options.grains = 4;
    options.dropout = dropout;
    options.val_every = 0;
    options.seed = 5;
    return options;
}

/* The mean loss and the norm of the mean gradient of the first step's samples, by one pass. */
static void one_pass(const tutti_train_options *options, double *loss, double *norm)
{
    int32_t tokens[BATCH * CONTEXT], targets[BATCH * CONTEXT];
    const tutti_data_settings settings = {.struct_size = sizeof settings,
                                          .source = data_source,
                                          .context = CONTEXT,
                                          .held_out = options->held_out,
                                          .seed = (uint64_t)options->seed};
    const tutti_gpt gpt = {
        .layers = 2, .heads = 2, .width = 32, .context = CONTEXT, .vocabulary = STATES, .dropout = options->dropout};
    tutti_data *data = NULL;
    tutti_model *model = NULL;
    tutti_pass *pass = NULL;
    tutti_error error = {0};
    tutti_loss sum = {0};
    double squares = 0;
    CHECK_THAT(tutti_data_open(&settings, &data, &error) == TUTTI_OK, "%s", error.text);
    for (int s = 0; s < BATCH; s++)
        CHECK(tutti_data_tokens(data, false, (uint64_t)s, tokens + s * CONTEXT, targets + s * CONTEXT, &error) ==
              TUTTI_OK);
    CHECK(tutti_gpt_create(&gpt, &model) == TUTTI_OK && tutti_model_bind(model, NULL, NULL) == TUTTI_OK &&
          tutti_model_init(model, (uint64_t)options->seed) == TUTTI_OK);
    const tutti_pass_options how = {.struct_size = sizeof how, .samples = BATCH, .threads = 1};
    const tutti_batch batch = {.struct_size = sizeof batch,
                               .samples = BATCH,
                               .tokens = tokens,
                               .targets = targets,
                               .seed = (uint64_t)options->seed,
                               .step = 0};
    CHECK(tutti_pass_create(model, &how, &pass) == TUTTI_OK && tutti_pass_forward(pass, &batch, &sum) == TUTTI_OK &&
          tutti_pass_backward(pass, &(tutti_backward){.struct_size = sizeof(tutti_backward)}) == TUTTI_OK);
    for (int i = 0; i < tutti_model_tensors(model); i++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, i);
        for (size_t k = 0; k < tensor->count; k++) {
            const double one = (double)tutti_model_gradients(model)[tensor->offset + k];
            squares += one * one;
        }
    }
    *loss = sum.sum / sum.count;
    *norm = sqrt(squares) / sum.count;
    tutti_pass_free(pass);
    tutti_model_free(model);
    tutti_data_free(data);
}

static void run(tutti_comm *comm, void *context)
{
    tutti_train_options options = options_of(*(const double *)context);
    tutti_trainer *trainer = NULL;
    tutti_train_step step = {0};
    tutti_error error = {0};
    double loss = 0, norm = 0;
    if (!CHECK_THAT(tutti_trainer_create(comm, &options, &trainer, &error) == TUTTI_OK, "%s", error.text)) return;
    CHECK_THAT(tutti_trainer_step(trainer, &step) == TUTTI_OK, "%s", tutti_trainer_error(trainer)->text);
    one_pass(&options, &loss, &norm);
    CHECK_THAT(fabs(step.loss / loss - 1) < 1e-5, "dropout %g: loss %.9g, by one pass %.9g", options.dropout, step.loss,
               loss);
    CHECK_THAT(fabs(step.norm / norm - 1) < 1e-4, "dropout %g: norm %.9g, by one pass %.9g", options.dropout, step.norm,
               norm);
    tutti_trainer_free(trainer);
}

int main(void)
{
    static double dropouts[] = {0, 0.3};
    conf_begin();
    for (int size = 1; size <= 3; size += 2)
        for (size_t i = 0; i < 2; i++) {
            struct conf_world world = {
                .ranks = WORLD_THREADS, .size = size, .direct = 1, .attach = 1, .body = run, .context = &dropouts[i]};
            conf_world_run(&world);
        }
    return check_end();
}
