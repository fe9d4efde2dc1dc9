/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti train: the command's page, and the reading of its flags.
 */
#include "cli/cli_train.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tutti/experimental.h>

/* ---- The page -------------------------------------------------------------------------------------------------- */

static const struct cli_flag train_flags[] = {
#define TRAIN_FLAG(name, kind, initial, low, high, help)                                                               \
    {.row = {#name, TUTTI_OPTION_##kind, initial, low, high, help},                                                    \
     .offset = offsetof(struct train_values, options.name),                                                            \
     .is_switch = TUTTI_OPTION_##kind == TUTTI_OPTION_BOOL},
    TUTTI_TRAIN_LIST(TRAIN_FLAG)
#undef TRAIN_FLAG
        {.row = {"ranks", TUTTI_OPTION_INT, "", 1, 65536,
                 "ranks of this process, as threads; under tutti run, of each process"},
         .offset = offsetof(struct train_values, ranks),
         .short_name = "n"},
    {.row = {"config", TUTTI_OPTION_TEXT, "", 0, 0,
             "settings, one on a line, as described below; where both say something, the command line holds"},
     .offset = offsetof(struct train_values, config),
     .value = "FILE"},
    {.row = {"metrics", TUTTI_OPTION_TEXT, "", 0, 0,
             "write a line of JSON for every step; -: to stdout, all else to stderr"},
     .offset = offsetof(struct train_values, metrics),
     .value = "FILE"},
    {.row = {"plot", TUTTI_OPTION_TEXT, "", 0, 0, "draw the loss as SVG; -: to stdout, all else to stderr"},
     .offset = offsetof(struct train_values, plot),
     .value = "FILE"},
    {.row = {"timeline", TUTTI_OPTION_TEXT, "", 0, 0,
             "draw the last step as SVG, as measured: what each rank did when"},
     .offset = offsetof(struct train_values, timeline),
     .value = "FILE"},
    {.row =
         {"drill", TUTTI_OPTION_TEXT, "", 0, 0,
          "under tutti run --max-restarts: kill=2@step=50 kills rank 2 before step 50, if that process is there since "
          "the beginning; in place of step, gradients, update and save do so in the midst of them, and kill=2@end when "
          "all is done. Several with commas between them. Then the same training is done again undisturbed, and the "
          "exit status is 0 only if "
          "it gives the same weights; with --staleness, whose weights differ from run to run, only if all workers have "
          "the same"},
     .offset = offsetof(struct train_values, drill),
     .value = "KILLS"},
    {.row = {.name = NULL}},
};

static const struct cli_example train_examples[] = {
    {"tutti train gpt --data src --steps 500 --ranks 2 --save run",
     "a small model of the files in src, on two threads"},
    {"tutti run -n 2 tutti train gpt --data src --steps 500 --save run", "the same on two processes: the same weights"},
    {"tutti train gpt --data src --steps 1000 --save run --resume",
     "go on from where it ended, on any number of ranks"},
    {"tutti train mlp --data points.csv --layers 2 --width 32 --batch 64", "classes from a table of numbers"},
    {"tutti train gpt --data markov:order=2,states=16 --metrics m.jsonl --plot loss.svg",
     "a made-up language whose entropy is known, which no loss can go below"},
    {"tutti train gpt --data src --ranks 4 --mesh data=2,pipe=2 --pipeline zb-h1 --timeline run.svg",
     "the model in two stages, the batch in two halves: the same weights"},
    {"tutti train gpt --data src --ranks 5 --server 1 --staleness 4",
     "four workers at their own pace, at most four steps apart, and a parameter server"},
    {"tutti run --max-restarts 3 -n 4 tutti train gpt --data src --steps 100 --drill kill=2@step=50",
     "rank 2 dies, is started again, and nothing is lost: shown on purpose"},
    {"tutti train --config small.conf --ranks 2", "settings from a file, as below; on two threads"},
    {NULL, NULL},
};

static const struct cli_foreign train_foreign[] = {
    {"--learning-rate", "--lr"},
    {"--batch-size", "--batch"},
    {"--block-size", "--context"},
    {"--weight-decay", "--decay"},
    {"--epochs", "--steps"},
    {"--max-iters", "--steps"},
    {NULL, NULL},
};

static const char *const config_lines[] = {
    "# small.conf: a small model of the files in src",
    "model gpt",
    "data src",
    "layers = 2",
    "heads = 2",
    "width = 32",
    "context = 16",
    "batch 8",
    "steps 30",
    "lr 0.004            # --lr 0.01 on the command line would hold instead",
    "end-lr 0.0004",
    "val_every 10",
    "nesterov off        # a switch",
    NULL,
};

static const struct cli_file config_file = {
    .title = "config file (--config)",
    .about = "Each line has one of the flags above without its dashes, and its value behind spaces or =. In names - "
             "and _ are the same. A value goes on to the end of the line, spaces included; it has no quotes. # begins "
             "a comment. The model, gpt or mlp, is the setting model. Switches have 1 or 0 (yes, no, on, off); one "
             "that the file turns on cannot be turned off on the command line. An unknown name, one that comes twice, "
             "or a bad value is an error that says its line. Paths begin at the current folder. "
             "The library's flags have no place here: they are TUTTI_ variables.",
    .lines = config_lines,
};

const struct cli_page cli_train_page = {
    .usage = "tutti train gpt|mlp --data DATA [flags]",
    .about =
        "Trains a model on many ranks: data parallel, and with --mesh pipe=N as a pipeline of N stages. The batch is "
        "cut into grains, whose sums do not depend on the number of ranks: 1, 2, 3 or 8 ranks, threads or processes, "
        "over memory or tcp, stopped and resumed or not, "
        "give the same weights "
        "bit for bit. --fast gives that up.\n\n"
        "Ctrl-C or SIGTERM ends the step that runs, saves a checkpoint where --save is given, and stops; a second one "
        "ends it at once, and so does the first before the first step. "
        "A terminal or a pipe that is closed stops it too (nohup keeps it running). "
        "Under tutti run --max-restarts a process that dies is started again, and the run goes on with the weights of "
        "the last step that all ranks have, from memory: with the same result.\n\n"
        "--resume goes on from the newest good checkpoint. When a checkpoint cannot be written the last good one "
        "stays, "
        "and training goes on.",
    .examples = train_examples,
    .flags = train_flags,
    .foreign = train_foreign,
    .file = &config_file,
    .operands = true,
    .library_options = true,
};

/* ---- What was asked -------------------------------------------------------------------------------------------- */

static struct train_values values; /* of the process: its ranks are threads */
static bool is_model(const char *word)
{
    return strcmp(word, "gpt") == 0 || strcmp(word, "mlp") == 0;
}

/* Reads the model, which is the first word, and the flags, those of the config file before those of the command
 * line. */
static int read_values(int argc, char **argv, struct train_words *words)
{
    const char *model = NULL;
    int rest = 0;
    if (argc > 1 && argv[1][0] != '-') {
        model = argv[1];
        if (!is_model(model)) return cli_refuse("train", "unknown model '%s'; it can be gpt or mlp", model);
        argv[1] = argv[0];
        argv++;
        argc--;
    }
    int status = train_read_config(&cli_train_page, argc, argv, words);
    if (status == CLI_GO_ON) status = cli_parse("train", &cli_train_page, words->argc, words->argv, &values, &rest);
    if (status != CLI_GO_ON) return status;
    if (rest < words->argc && model == NULL && is_model(words->argv[rest])) model = words->argv[rest++];
    if (rest < words->argc)
        return cli_refuse("train", "unexpected word '%s'; see tutti train --help", words->argv[rest]);
    if (model != NULL) values.options.model = model;
    values.options.struct_size = sizeof values.options;
    if (cli_is_stdout(values.metrics) && cli_is_stdout(values.plot))
        return cli_refuse("train", "--metrics - and --plot - both write to stdout; give one of them a file");
    if (values.timeline[0] != '\0' && values.options.server > 0)
        return cli_refuse("train", "--timeline does not go with --server: workers do not take steps together");
    if (cli_is_stdout(values.timeline)) return cli_refuse("train", "--timeline needs a file");
    if (values.options.resume && values.options.save[0] == '\0')
        return cli_refuse("train", "--resume needs --save: the folder of the checkpoints to go on from");
    if (values.options.save_every > 0 && values.options.save[0] == '\0')
        return cli_refuse("train", "--save-every needs --save: the folder that checkpoints are written into");
    if (values.drill[0] != '\0' && values.options.resume)
        return cli_refuse("train", "--drill trains from the start, twice; leave out --resume");
    status = train_read_drill(&values);
    if (status != CLI_GO_ON) return status;
    if (values.options.data[0] == '\0')
        return cli_refuse("train", "--data is missing: a file or folder to learn from; see tutti train --help");
    return CLI_GO_ON;
}

static void note_path(void *context, const char *path)
{
    (void)snprintf(context, 512, "%s", path);
}

/* Returns true if a launcher that restarts lost processes has started this one again. */
static bool was_started_again(void)
{
    tutti_options options;
    return tutti_options_init(&options, NULL) == TUTTI_OK && tutti_board_was_formed(options.board, options.job);
}

/* Refuses a folder that has checkpoints, unless they are to be resumed. */
static int check_folder(void)
{
    const tutti_train_options *options = &values.options;
    char path[512] = "";
    struct stat about;
    tutti_error error;
    if (was_started_again()) return CLI_GO_ON; /* the checkpoints are this run's */
    if (options->save[0] == '\0' || options->resume || stat(options->save, &about) != 0) return CLI_GO_ON;
    if (tutti_checkpoint_list(options->save, note_path, path, &error) != TUTTI_OK) return cli_blame("train", &error);
    if (path[0] == '\0') return CLI_GO_ON;
    return cli_refuse("train", "there is %s already: go on from it with --resume, or --save to another folder", path);
}

/* ---- One rank -------------------------------------------------------------------------------------------------- */

int cli_train(int argc, char **argv)
{
    struct train_words words = {0};
    int status = read_values(argc, argv, &words);
    if (status == CLI_GO_ON) status = check_folder();
    char ranks[24];
    (void)snprintf(ranks, sizeof ranks, "%lld", (long long)values.ranks);
    if (status == CLI_GO_ON && values.ranks > 0 && setenv("TUTTI_RANKS", ranks, 1) != 0)
        status = cli_fail("train", "out of memory");
    if (status == CLI_GO_ON) {
        (void)setenv("OPENBLAS_NUM_THREADS", "1", 1); /* OpenBLAS's own threads would only sleep */
        status = train_run(&values, argc, argv);
    }
    free(words.argv);
    free(words.text);
    return status;
}
