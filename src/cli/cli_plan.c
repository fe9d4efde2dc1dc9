/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti plan: proposes a layout to train with.
 */
#include "cli/cli_plan.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The page ---------------------------------------------------------------------------------------------------- */

#define OFFSET(field) offsetof(struct plan_values, field)

static const struct cli_flag plan_flags[] = {
#define TRAIN_FLAG(name, kind, initial, low, high, help)                                                               \
    {.row = {#name, TUTTI_OPTION_##kind, initial, low, high, help},                                                    \
     .offset = OFFSET(options.name),                                                                                   \
     .is_switch = TUTTI_OPTION_##kind == TUTTI_OPTION_BOOL},
    TUTTI_TRAIN_LIST(TRAIN_FLAG)
#undef TRAIN_FLAG
        {.row = {"ranks", TUTTI_OPTION_INT, "", 1, 1024, "ranks to plan for; they need not be here"},
         .offset = OFFSET(ranks),
         .short_name = "n"},
    {.row = {"hosts", TUTTI_OPTION_INT, "1", 1, 1024, "that the ranks are on, as many on each; needs --links"},
     .offset = OFFSET(hosts)},
    {.row = {"memory", TUTTI_OPTION_BYTES, "0", 0, INT64_MAX, "what each rank has; 0: any"}, .offset = OFFSET(memory)},
    {.row = {"measure", TUTTI_OPTION_INT, "0", 0, 1000,
             "run so many of the best here, for a few steps each, to compare"},
     .offset = OFFSET(measure)},
    {.row = {"spread", TUTTI_OPTION_INT, "0", 0, 100000,
             "with --measure, run so many of the other layouts too, evenly spread over them from fast to slow"},
     .offset = OFFSET(spread)},
    {.row = {"cores", TUTTI_OPTION_INT, "0", 0, 1048576,
             "that all ranks have together; 0: enough for each, or with --measure as many as are here"},
     .offset = OFFSET(cores)},
    {.row = {"show", TUTTI_OPTION_INT, "10", 0, 1000000, "layouts to list; 0: all that fit"}, .offset = OFFSET(show)},
    {.row =
         {"links", TUTTI_OPTION_TEXT, "", 0, 0,
          "take what links take from a file that tutti bench --tune --transport tcp wrote; else it is measured here"},
     .offset = OFFSET(links),
     .value = "FILE"},
    {.row = {"picture", TUTTI_OPTION_TEXT, "", 0, 0, "draw who does what when in the best layout as SVG"},
     .offset = OFFSET(picture),
     .value = "FILE"},
    {.row = {"json", TUTTI_OPTION_TEXT, "", 0, 0,
             "write all layouts as JSON; - or no value: to stdout, all else to stderr"},
     .offset = OFFSET(json),
     .value = "[FILE]",
     .bare = "-"},
    {.row = {.name = NULL}},
};

static const struct cli_example plan_examples[] = {
    {"tutti plan gpt --data src --ranks 2 --measure 3", "the best layout here, the first three also measured"},
    {"tutti plan gpt --vocabulary 50257 --layers 12 --heads 12 --width 768 --ranks 16 --memory 1G --picture best.svg",
     "for 16 ranks of 1 GiB, without data"},
    {"tutti plan gpt --data src --ranks 16 --hosts 2 --links links",
     "for two hosts of 8 ranks, with links as tutti bench --tune links --transport tcp has measured them"},
    {NULL, NULL},
};

const struct cli_page cli_plan_page = {
    .usage = "tutti plan gpt|mlp --ranks N [--hosts N --links FILE] [--memory BYTES] [flags]",
    .about =
        "Says which layout to train with: for each mesh of data, shard, pipe and tensor, ZeRO stage, table of a "
        "pipeline "
        "and number of micro-batches or passes, what each rank needs by purpose, what it sends, how idle it is and how "
        "long a step takes; fastest first, with the command to type. Layouts that do not fit, and those that the "
        "trainer "
        "refuses, are listed as such.\n\n"
        "Memory is worked out by the trainer's own functions. Times are from the model's layers, measured here for a "
        "moment on as many cores as there are ranks, and from the links of tutti sim, scaled by what is measured here. "
        "Ranks have a core each, unless --cores says otherwise: then they take turns. With --hosts successive ranks "
        "are "
        "on one host; those of a host that send to others at the same time share its link.\n\n"
        "Takes the flags of tutti train; --mesh, --zero, --pipeline, --micro, --accumulate, --sequence, --recompute "
        "and --stages are what is "
        "planned, and refused.",
    .examples = plan_examples,
    .flags = plan_flags,
    .operands = true,
};

/* ---- What was asked ---------------------------------------------------------------------------------------------- */

static bool is_model(const char *word)
{
    return strcmp(word, "gpt") == 0 || strcmp(word, "mlp") == 0;
}

/* Parses the command line. The model may come before, between or after the flags. */
static int parse(int argc, char **argv, struct plan_values *values)
{
    const char *model = NULL;
    for (;;) {
        int rest = 0, status = cli_parse("plan", &cli_plan_page, argc, argv, values, &rest);
        if (status != CLI_GO_ON) return status;
        if (rest == argc) break;
        if (!is_model(argv[rest])) return cli_refuse("plan", "unknown model '%s'; it can be gpt or mlp", argv[rest]);
        if (model != NULL) return cli_refuse("plan", "one model at a time: '%s' or '%s'", model, argv[rest]);
        model = argv[rest];
        memmove(&argv[rest], &argv[rest + 1], (size_t)(argc - rest - 1) * sizeof *argv);
        argc--;
    }
    if (model != NULL) values->options.model = model;
    values->options.struct_size = sizeof values->options;
    values->data = values->options.data;
    return CLI_GO_ON;
}

static int check_flags(const struct plan_values *values)
{
    tutti_train_options usual;
    const tutti_train_options *o = &values->options;
    tutti_train_options_init(&usual);
    if (!is_model(o->model)) return cli_refuse("plan", "unknown model '%s'; it can be gpt or mlp", o->model);
    if (values->ranks == 0) return cli_refuse("plan", "how many ranks? Give --ranks");
    if (o->mesh[0] != '\0' || o->zero != usual.zero || strcmp(o->pipeline, usual.pipeline) != 0 ||
        o->micro != usual.micro || o->accumulate != usual.accumulate || o->stages[0] != '\0' || o->recompute ||
        o->sequence)
        return cli_refuse("plan", "--mesh, --zero, --pipeline, --micro, --accumulate, --sequence, --recompute and "
                                  "--stages are what is planned; "
                                  "leave them out");
    if (o->server > 0 || o->staleness > 0)
        return cli_refuse("plan", "--server and --staleness: only layouts in which all ranks work are planned; leave "
                                  "them out");
    if (o->fast) return cli_refuse("plan", "--fast has no grains, which layouts are planned by; leave it out");
    if (o->data[0] == '\0' && (o->vocabulary == 0 || strcmp(o->model, "mlp") == 0))
        return cli_refuse("plan", "--data is missing: what to learn; of a gpt --vocabulary is enough");
    if (values->ranks % values->hosts != 0)
        return cli_refuse("plan", "--hosts %lld: %lld ranks are no multiple of it", (long long)values->hosts,
                          (long long)values->ranks);
    if (values->hosts > 1 && values->links[0] == '\0')
        return cli_refuse("plan",
                          "--hosts %lld: links between hosts are not measured here; give --links FILE, which "
                          "tutti bench --tune FILE --transport tcp writes between two of them",
                          (long long)values->hosts);
    if (values->spread > 0 && values->measure == 0)
        return cli_refuse("plan", "--spread needs --measure: how many of the best to run beside the others");
    if (values->hosts > 1 && values->measure > 0)
        return cli_refuse("plan", "--measure runs layouts on this host: leave it or --hosts out");
    if (cli_is_stdout(values->picture)) return cli_refuse("plan", "--picture needs a file");
    if (values->links[0] != '\0' && access(values->links, R_OK) != 0)
        return cli_blame_path("plan", "--links: cannot read", values->links);
    return CLI_GO_ON;
}

/* Opens the data once, for the size of the vocabulary: nothing else of tokens matters here. */
static int read_data(struct plan_values *values)
{
    tutti_train_options *o = &values->options;
    tutti_data *data = NULL;
    tutti_data_about about = {.struct_size = sizeof about};
    tutti_error error;
    if (o->data[0] == '\0' || strcmp(o->model, "mlp") == 0) return CLI_GO_ON;
    const tutti_data_settings settings = {.struct_size = sizeof settings,
                                          .source = o->data,
                                          .context = (size_t)o->context,
                                          .held_out = o->held_out,
                                          .seed = (uint64_t)o->seed,
                                          .vocabulary = (size_t)o->vocabulary};
    if (tutti_data_open(&settings, &data, &error) != TUTTI_OK) return cli_blame("plan", &error);
    tutti_data_describe(data, &about);
    tutti_data_free(data);
    o->vocabulary = (int64_t)about.vocabulary;
    o->data = "";
    return CLI_GO_ON;
}

/* ---- What is said ------------------------------------------------------------------------------------------------ */

static int draw(struct plan *plan)
{
    const char *path = plan->values->picture;
    const struct plan_row *best = &plan->rows[0];
    char title[300];
    tutti_error error;
    if (path[0] == '\0') return CLI_GO_ON;
    FILE *stream = fopen(path, "we");
    if (stream == NULL) return cli_blame_path("plan", "cannot write", path);
    (void)snprintf(title, sizeof title, "%s, %lld ranks, %s%s%s: seconds as predicted", best->options.model,
                   (long long)plan->values->ranks, best->mesh[0] == '\0' ? "one rank" : best->mesh,
                   best->layout.pipeline == NULL ? "" : ", ",
                   best->layout.pipeline == NULL ? "" : best->layout.pipeline);
    plan_set_costs(plan, best);
    tutti_status status = tutti_train_picture(&best->options, (int)plan->values->ranks, &plan->costs, title, stream,
                                              &error);
    if (fclose(stream) != 0) return cli_blame_path("plan", "cannot write", path);
    return status == TUTTI_OK ? CLI_GO_ON : cli_blame("plan", &error);
}

/* Says that nothing can be proposed; the list above says why. */
static int refuse(const struct plan *plan)
{
    char needs[32], has[32], layout[PLAN_LAYOUT_BYTES];
    if (plan->possible == 0)
        return cli_refuse("plan", "no layout of %lld ranks is possible: %s", (long long)plan->values->ranks,
                          plan->rows[0].why);
    return cli_refuse("plan", "no layout fits into %s per rank: the nearest, %s, needs %s",
                      plan_bytes_text((double)plan->values->memory, has), plan_layout_text(&plan->rows[0], layout),
                      plan_bytes_text((double)plan->rows[0].estimate.bytes, needs));
}

/* Returns the status of the measured runs. The table has the error messages of those that failed. */
static int check_trials(const struct plan *plan)
{
    struct plan_score score;
    if (plan->values->measure == 0) return CLI_OK;
    (void)plan_score(plan, &score);
    if (score.failed == 0) return CLI_OK;
    return cli_fail("plan", "the runs of %zu of %zu layouts have failed", score.failed, score.failed + score.measured);
}

static int tell(struct plan *plan)
{
    FILE *text = cli_is_stdout(plan->values->json) || plan->fitting == 0 ? stderr : stdout;
    char command[PLAN_COMMAND_BYTES];
    plan_print(text, plan);
    (void)fflush(text);
    int status = plan_measure(plan);
    if (status == CLI_GO_ON) status = plan_json(plan);
    if (status != CLI_GO_ON) return status;
    if (plan->fitting == 0) return refuse(plan);
    if (plan->values->measure > 0) plan_print_measured(text, plan);
    (void)fprintf(text, "\n%s\n", plan_command(plan, &plan->rows[0], command));
    status = draw(plan);
    if (status != CLI_GO_ON) return status;
    return check_trials(plan);
}

int cli_plan(int argc, char **argv)
{
    static struct plan_values values;
    struct plan plan = {0};
    int status = parse(argc, argv, &values);
    if (status == CLI_GO_ON) status = check_flags(&values);
    if (status == CLI_GO_ON) status = cli_check_output("plan", values.picture);
    if (status == CLI_GO_ON) status = cli_check_output("plan", values.json);
    if (status == CLI_GO_ON) status = read_data(&values);
    if (status == CLI_GO_ON) status = plan_estimate(&values, &plan);
    if (status == CLI_GO_ON) status = tell(&plan);
    free(plan.rows);
    return status;
}
