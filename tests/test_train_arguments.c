/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Bad arguments of train.h and nn.h: a status and a sentence, and nothing that is not there is read.
 */
#include "ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train.h>

enum { COUNT = 8 };
static float values[COUNT], gradients[2 * COUNT];
static const tutti_parameter list[] = {{"a", values, gradients, COUNT / 2, true},
                                       {"b", values + COUNT / 2, gradients + COUNT / 2, COUNT / 2, true}};
static tutti_error error;

/* Whether that is the status, with a sentence that says so. */
static bool refused(tutti_status status, tutti_status wanted, const char *complaint)
{
    bool right = status == wanted && error.status == wanted && strstr(error.text, complaint) != NULL;
    if (!right) printf("%s, wanted %s: %s\n", tutti_status_name(status), complaint, error.text);
    error = (tutti_error){.status = TUTTI_OK};
    return right;
}

static void test_optimizers(void)
{
    tutti_optimizer_settings settings;
    tutti_optimizer *optimizer = NULL;
    tutti_parameter odd = list[0];
    CHECK(tutti_optimizer_defaults("adm", &settings, NULL) == TUTTI_ERR_OPTION);
    CHECK(tutti_optimizer_defaults("adam", NULL, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_optimizer_defaults("adam", &settings, NULL) == TUTTI_OK);
    CHECK(refused(tutti_optimizer_create(NULL, list, 2, &optimizer, &error), TUTTI_ERR_ARGUMENT, "needs settings"));
    CHECK(refused(tutti_optimizer_create(&settings, NULL, 2, &optimizer, &error), TUTTI_ERR_ARGUMENT, "is NULL"));
    odd.gradient = NULL;
    CHECK(refused(tutti_optimizer_create(&settings, &odd, 1, &optimizer, &error), TUTTI_ERR_ARGUMENT, "gradient is"));
    odd = list[0];
    odd.count = SIZE_MAX / 2; /* whose bytes would come round to a few */
    CHECK(refused(tutti_optimizer_create(&settings, &odd, 1, &optimizer, &error), TUTTI_ERR_COUNT, "too many"));
    CHECK(refused(tutti_schedule_check(NULL, &error), TUTTI_ERR_ARGUMENT, "needs a shape"));
    double norm;
    CHECK(tutti_gradient_norm(NULL, NULL, 1, &norm) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_weights_compare(NULL, 0, NULL) == TUTTI_ERR_ARGUMENT);
}

static void test_data(void)
{
    tutti_data_settings settings = {.struct_size = sizeof settings, .source = "markov:length=1000", .context = 4};
    tutti_data *data = NULL;
    int32_t tokens[4], targets[4];
    float features[4], target = 0;
    CHECK(refused(tutti_data_open(NULL, &data, &error), TUTTI_ERR_ARGUMENT, "no source"));
    CHECK(tutti_data_open(&settings, &data, NULL) == TUTTI_OK);
    CHECK(
        refused(tutti_data_tokens(data, true, 0, tokens, targets, &error), TUTTI_ERR_ARGUMENT, "nothing is held out"));
    tutti_data_row(data, false, 0, features, &target);
    CHECK(isnan(target));
    tutti_data_free(data);
}

static void test_checkpoints(void)
{
    tutti_checkpoint *checkpoint = NULL;
    tutti_sampler *sampler = NULL;
    CHECK(refused(tutti_checkpoint_open(NULL, true, &checkpoint, &error), TUTTI_ERR_ARGUMENT, "needs a path"));
    CHECK(tutti_checkpoint_open("", true, &checkpoint, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(refused(tutti_checkpoint_save(NULL, 1, 1, NULL, 0, NULL, 0, &error), TUTTI_ERR_ARGUMENT, "needs a folder"));
    CHECK(refused(tutti_checkpoint_list(NULL, NULL, NULL, &error), TUTTI_ERR_ARGUMENT, "needs a folder"));
    CHECK(refused(tutti_sampler_create(NULL, &sampler, &error), TUTTI_ERR_ARGUMENT, "needs a path"));
}

/* Parameter "a" is ready twice: its bucket is not begun before "b" is ready, too. */
/* Whether tutti_explain finds an error and prints these words. */
static bool explains(const tutti_comm *world, const char *words)
{
    char text[2048] = "";
    FILE *memory = fmemopen(text, sizeof text, "w");
    int found = tutti_explain(world, memory);
    fclose(memory);
    bool right = found == 1 && strstr(text, words) != NULL;
    if (!right) printf("explained %d, wanted \"%s\": %s\n", found, words, text);
    return right;
}

static void test_ddp(tutti_comm *world)
{
    tutti_ddp *ddp = NULL;
    tutti_ddp_options options = {.struct_size = sizeof options, .grains = -1};
    CHECK(refused(tutti_ddp_create(NULL, list, 2, NULL, &ddp, &error), TUTTI_ERR_ARGUMENT, "a comm"));
    CHECK(refused(tutti_ddp_create(world, NULL, 2, NULL, &ddp, &error), TUTTI_ERR_ARGUMENT, "is NULL"));
    CHECK(refused(tutti_ddp_create(world, list, 2, &options, &ddp, &error), TUTTI_ERR_ARGUMENT, "-1 grains"));
    CHECK(tutti_comm_error(world) == NULL && explains(world, "-1 grains"));
    CHECK(tutti_ddp_begin(NULL, true) == TUTTI_ERR_ARGUMENT && tutti_ddp_ready(NULL, 0) == TUTTI_ERR_ARGUMENT);
    CHECK(explains(world, "tutti_ddp_ready: "));
    CHECK(tutti_ddp_create(world, list, 2, NULL, &ddp, NULL) == TUTTI_OK);
    CHECK(tutti_ddp_ready(ddp, 0) == TUTTI_ERR_ARGUMENT && tutti_ddp_end(ddp, 1, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_comm_error(world) == NULL && explains(world, "rank 0: ddp_end: TUTTI_ERR_ARGUMENT"));
    CHECK(tutti_ddp_begin(ddp, true) == TUTTI_OK && tutti_ddp_begin(ddp, true) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_ddp_ready(ddp, 2) == TUTTI_ERR_ARGUMENT && tutti_ddp_ready_run(ddp, SIZE_MAX, 2) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_ddp_ready(ddp, 0) == TUTTI_OK && tutti_ddp_ready(ddp, 0) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_ddp_ready(ddp, 1) == TUTTI_OK && tutti_ddp_end(ddp, 1, NULL) == TUTTI_OK);
    tutti_ddp_free(ddp);
}

static tutti_status make_nothing(void *context, const tutti_data_about *data, tutti_model **model, tutti_error *why)
{
    (void)context, (void)data, (void)model, (void)why;
    return TUTTI_OK;
}

static tutti_status make_unsealed(void *context, const tutti_data_about *data, tutti_model **model, tutti_error *why)
{
    (void)context, (void)data, (void)why;
    return tutti_model_create(&(tutti_model_shape){.rows = 1, .inputs = 3}, model);
}

/* Its loss has nothing before it, which the model says. */
static tutti_status make_wrong(void *context, const tutti_data_about *data, tutti_model **model, tutti_error *why)
{
    (void)context, (void)data, (void)why;
    (void)tutti_model_create(&(tutti_model_shape){.rows = 8}, model);
    (void)tutti_add_cross_entropy(*model, NULL);
    return tutti_model_seal(*model);
}

static tutti_status make_refused(void *context, const tutti_data_about *data, tutti_model **model, tutti_error *why)
{
    (void)context, (void)data, (void)model;
    snprintf(why->text, sizeof why->text, "it is Sunday");
    return TUTTI_ERR_UNSUPPORTED;
}

static tutti_status make_flat(void *context, const tutti_data_about *data, tutti_model **model, tutti_error *why)
{
    (void)context, (void)why;
    (void)tutti_model_create(&(tutti_model_shape){.rows = 8}, model);
    (void)tutti_add_embedding(*model, "in", NULL, (int64_t)data->vocabulary, 16, 1);
    (void)tutti_add_linear(*model, "out", &(tutti_linear){.outputs = (int64_t)data->vocabulary});
    (void)tutti_add_cross_entropy(*model, NULL);
    return tutti_model_seal(*model);
}

static void test_model(tutti_comm *world)
{
    tutti_train_options options;
    tutti_train_model model = {.struct_size = sizeof model, .name = "mine", .make = make_flat};
    tutti_trainer *trainer = NULL;
    tutti_train_options_init(&options);
    options.data = "markov:states=5,length=1000";
    options.context = 8;
    CHECK(tutti_trainer_create_model(world, &options, &model, &trainer, &error) == TUTTI_OK);
    tutti_trainer_free(trainer);
    options.recompute = true;
    CHECK(refused(tutti_trainer_create_model(world, &options, &model, &trainer, &error), TUTTI_ERR_OPTION,
                  "model mine has no residual branches"));
    options.recompute = false;
    CHECK(refused(tutti_trainer_create_model(world, &options, NULL, &trainer, &error), TUTTI_ERR_ARGUMENT, "a name"));
    model.name = "gpt";
    CHECK(
        refused(tutti_trainer_create_model(world, &options, &model, &trainer, &error), TUTTI_ERR_ARGUMENT, "nor mlp"));
    model.name = "mine";
    model.make = NULL;
    CHECK(refused(tutti_trainer_create_model(world, &options, &model, &trainer, &error), TUTTI_ERR_ARGUMENT, "a name"));
    const struct {
        tutti_status (*make)(void *, const tutti_data_about *, tutti_model **, tutti_error *);
        tutti_status status;
        const char *words;
    } rows[] = {{make_nothing, TUTTI_ERR_ARGUMENT, "model mine: the function that makes it must seal it"},
                {make_unsealed, TUTTI_ERR_ARGUMENT, "model mine: the function that makes it must seal it"},
                {make_wrong, TUTTI_ERR_ARGUMENT, "model mine cannot be made: "},
                {make_refused, TUTTI_ERR_UNSUPPORTED, "model mine cannot be made: it is Sunday"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model.make = rows[i].make;
        CHECK(refused(tutti_trainer_create_model(world, &options, &model, &trainer, &error), rows[i].status,
                      rows[i].words) &&
              trainer == NULL);
    }
}

static void test_trainer(tutti_comm *world)
{
    tutti_train_options options = {0};
    tutti_trainer *trainer = NULL;
    CHECK(refused(tutti_trainer_create(NULL, &options, &trainer, &error), TUTTI_ERR_ARGUMENT, "needs a comm"));
    CHECK(refused(tutti_trainer_create(world, NULL, &trainer, &error), TUTTI_ERR_ARGUMENT, "no options"));
    CHECK(refused(tutti_trainer_create(world, &options, &trainer, &error), TUTTI_ERR_ARGUMENT, "options_init"));
    tutti_train_options_init(&options);
    options.save = NULL;
    CHECK(refused(tutti_trainer_create(world, &options, &trainer, &error), TUTTI_ERR_OPTION, "save is NULL"));
    CHECK(tutti_trainer_create(world, &options, &trainer, NULL) == TUTTI_ERR_OPTION && trainer == NULL);
    CHECK(explains(world, "trainer_create: TUTTI_ERR_OPTION"));
}

/* ---- Models ---------------------------------------------------------------------------------------------------- */

static void check_model(tutti_model *model, tutti_status status, const char *complaint)
{
    if (tutti_model_error(model) != NULL) error = *tutti_model_error(model);
    CHECK(refused(status, TUTTI_ERR_ARGUMENT, complaint));
    tutti_model_free(model);
}

static tutti_model *model_of(int64_t inputs)
{
    tutti_model *model = NULL;
    CHECK(tutti_model_create(&(tutti_model_shape){.rows = 1, .inputs = inputs}, &model) == TUTTI_OK);
    return model;
}

static void test_models(void)
{
    tutti_model *model = NULL;
    tutti_status status = tutti_model_create(NULL, &model);
    check_model(model, status, "is NULL");
    status = tutti_gpt_create(NULL, &model);
    check_model(model, status, "is NULL");
    CHECK(tutti_add_relu(NULL, "r") == TUTTI_ERR_ARGUMENT && tutti_add_cross_entropy(NULL, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_model_seal(NULL) == TUTTI_ERR_ARGUMENT);
    model = model_of(2);
    check_model(model, tutti_add_linear(model, "a", NULL), "is NULL");
    model = model_of(2);
    check_model(model, tutti_add_tied_cross_entropy(model, "a", NULL), "is NULL");
    model = model_of(2);
    check_model(model, tutti_add_linear(model, "a", &(tutti_linear){.outputs = 2, .activation = 99}), "activation 99");
    CHECK(tutti_mlp_create(&(tutti_mlp){.inputs = 1 << 30, .outputs = 1 << 14}, &model) == TUTTI_OK);
    CHECK(tutti_model_bind(model, NULL, NULL) == TUTTI_ERR_MEMORY); /* before it takes all that there is */
    CHECK(strstr(tutti_model_error(model)->text, "parameters: 64.0 TiB of memory cannot be had") != NULL);
    tutti_model_free(model);
    model = model_of(0); /* it had no outputs, and passed for a loss */
    check_model(model, tutti_add_relu(model, "a"), "begins with one that does");
    int bounds[TUTTI_SUBTREES_MAX + 1];
    CHECK(tutti_grain_subtrees(INT32_MAX, 1, INT32_MAX, bounds) == 0);
    CHECK(tutti_grain_subtrees(INT32_MAX, 1, INT32_MAX - 1, bounds) > 0);
}

static void test_passes(void)
{
    tutti_model *model = NULL;
    tutti_pass *pass = NULL;
    tutti_loss loss;
    tutti_mlp mlp = {.inputs = 2, .outputs = 2};
    CHECK(tutti_mlp_create(&mlp, &model) == TUTTI_OK && tutti_model_bind(model, NULL, NULL) == TUTTI_OK);
    CHECK(tutti_pass_create(model, &(tutti_pass_options){.struct_size = sizeof(tutti_pass_options), .samples = 1},
                            &pass) == TUTTI_OK);
    CHECK(tutti_pass_forward(pass, NULL, &loss) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_pass_forward(pass, &(tutti_batch){.struct_size = sizeof(tutti_batch), .samples = 0}, NULL) ==
          TUTTI_ERR_ARGUMENT);
    CHECK(tutti_pass_forward(pass, &(tutti_batch){.samples = 1}, &loss) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_pass_backward(pass, &(tutti_backward){.parts = 3}) == TUTTI_ERR_ARGUMENT);
    tutti_pass_free(pass);
    CHECK(tutti_pass_create(model, &(tutti_pass_options){.samples = 1}, &pass) == TUTTI_ERR_ARGUMENT);
    check_model(model, tutti_pass_create(model, NULL, &pass), "needs options");
}

int main(void)
{
    tutti_comm *world = NULL;
    CHECK(tutti_join(&world) == TUTTI_OK);
    tutti_log_set_level(TUTTI_QUIET);
    test_optimizers();
    test_data();
    test_checkpoints();
    test_ddp(world);
    test_trainer(world);
    test_model(world);
    if (tutti_blas_load(NULL) == TUTTI_OK) {
        test_models();
        test_passes();
    }
    CHECK(tutti_leave(world) == TUTTI_OK);
    return check_end();
}
