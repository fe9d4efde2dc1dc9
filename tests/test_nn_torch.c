/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120
 *
 * A GPT against PyTorch (nn_torch.py): what every layer gives, the first gradients, ten AdamW steps. Skipped where PyTorch
 * is not installed.
 */
#include "check_nn.h"
#include "nn/pass.h"

#include <stdlib.h>
#include <sys/wait.h>

enum { SAMPLES = 3, STEPS = 10 };
#define RATE 1e-3
#define DECAY 0.1

static const tutti_gpt gpt = {.layers = 2, .heads = 4, .width = 64, .context = 24, .vocabulary = 97};

static char folder[] = "/tmp/tutti-nn-torch-XXXXXX";

static FILE *open_file(const char *name, const char *suffix)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
    FILE *file = fopen(path, "wb");
    if (file == NULL) abort();
    return file;
}

static void write_array(const char *name, const char *suffix, const void *data, size_t count)
{
    FILE *file = open_file(name, suffix);
    CHECK(fwrite(data, 4, count, file) == count && fclose(file) == 0);
}

static void write_tensors(const tutti_model *model, const char *suffix, const float *base)
{
    for (int t = 0; t < tutti_model_tensors(model); t++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, t);
        write_array(tensor->name, suffix, base + tensor->offset, tensor->count);
    }
}

/* What each layer but the loss gives, as (rows, outputs). */
static void write_outputs(const tutti_pass *pass)
{
    const tutti_model *model = pass->model;
    for (int i = 0; i < model->layer_count - 1; i++)
        write_array(model->layers[i]->name, ".output", pass->places[i].out,
                    (size_t)(SAMPLES * gpt.context * model->layers[i]->outputs));
}

static void write_shape(const tutti_model *model, double loss)
{
    FILE *file = open_file("shape.json", "");
    fprintf(file,
            "{\"layers\": %d, \"heads\": %d, \"width\": %lld, \"context\": %lld, \"vocabulary\": %lld, \"rate\": %g, "
            "\"decay\": %g, \"steps\": %d, \"loss\": %.9g, \"tensors\": [",
            gpt.layers, gpt.heads, (long long)gpt.width, (long long)gpt.context, (long long)gpt.vocabulary, RATE, DECAY,
            STEPS, loss);
    for (int t = 0; t < tutti_model_tensors(model); t++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, t);
        fprintf(file, "%s{\"name\": \"%s\", \"shape\": [%lld", t == 0 ? "" : ", ", tensor->name,
                (long long)tensor->shape[0]);
        for (int d = 1; d < tensor->dimensions; d++) fprintf(file, ", %lld", (long long)tensor->shape[d]);
        fprintf(file, "]}");
    }
    fprintf(file, "]}\n");
    CHECK(fclose(file) == 0);
}

/* The mean's gradient: what the optimizer sees. */
static void write_gradients(tutti_model *model, double count)
{
    size_t elements = tutti_model_elements(model);
    float *means = malloc(elements * sizeof *means);
    for (size_t i = 0; i < elements; i++) means[i] = (float)((double)tutti_model_gradients(model)[i] / count);
    write_tensors(model, ".gradient", means);
    free(means);
}

static void train(void)
{
    tutti_model *model = nn_gpt(&gpt, 5);
    tutti_batch batch = nn_tokens(SAMPLES, gpt.context, (int32_t)gpt.vocabulary, 6);
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = SAMPLES});
    size_t tensors = (size_t)tutti_model_tensors(model);
    tutti_parameter *list = calloc(tensors, sizeof *list);
    tutti_optimizer_settings settings;
    tutti_optimizer *optimizer = NULL;
    tutti_error error;
    CHECK(tutti_model_list(model, list) == TUTTI_OK);
    CHECK(tutti_optimizer_defaults("adamw", &settings, &error) == TUTTI_OK);
    settings.beta1 = 0.9;
    settings.beta2 = 0.999;
    settings.epsilon = 1e-8;
    settings.decay = DECAY;
    CHECK(tutti_optimizer_create(&settings, list, tensors, &optimizer, &error) == TUTTI_OK);
    write_array("tokens", "", batch.tokens, (size_t)(SAMPLES * gpt.context));
    write_array("targets", "", batch.targets, (size_t)(SAMPLES * gpt.context));
    write_tensors(model, ".before", tutti_model_values(model));
    for (int step = 0; step < STEPS; step++) {
        tutti_loss loss = nn_step(pass, &batch, &(tutti_backward){0});
        if (step == 0) write_shape(model, loss.sum / loss.count);
        if (step == 0) write_gradients(model, loss.count);
        if (step == 0) write_outputs(pass);
        tutti_optimizer_step(optimizer, RATE, 1 / loss.count);
    }
    write_tensors(model, ".after", tutti_model_values(model));
    tutti_optimizer_free(optimizer);
    free(list);
    tutti_pass_free(pass);
    nn_batch_free(&batch);
    tutti_model_free(model);
}

/* The first Python on the path need not be the one that Debian's packages are for. */
static const char *python_with_torch(void)
{
    static const char *const pythons[] = {"python3", "/usr/bin/python3"};
    for (size_t i = 0; i < sizeof pythons / sizeof *pythons; i++) {
        char command[128];
        snprintf(command, sizeof command, "%s -c 'import torch' 2> /dev/null", pythons[i]);
        if (system(command) == 0) return pythons[i];
    }
    return NULL;
}

int main(void)
{
    nn_need_blas();
    const char *python = python_with_torch();
    if (python == NULL) {
        printf("skipped: PyTorch is not installed (Debian: python3-torch)\n");
        return 77;
    }
    const char *source = getenv("SRC");
    char command[512];
    CHECK(mkdtemp(folder) != NULL);
    train();
    snprintf(command, sizeof command, "OPENBLAS_NUM_THREADS=1 %s %s/tests/nn_torch.py %s", python,
             source == NULL ? "." : source, folder);
    (void)fflush(stdout);
    int status = system(command);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    return check_end();
}
