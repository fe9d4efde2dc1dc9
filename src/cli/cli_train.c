/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti train: the command's page and the work of one rank.
 */
#include "cli/cli_train.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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
             "draw the last step as SVG, as measured: who did what when, in a pipeline or on all ranks"},
     .offset = offsetof(struct train_values, timeline),
     .value = "FILE"},
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

static struct train_values values; /* of the process: ranks are its threads */
static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t launched; /* by tutti run */

/* A second Ctrl-C or SIGTERM ends the process at once, wherever it is. Below tutti run only the same signal again does:
 * it sends SIGTERM some time after SIGINT, and kills when it is told a second time itself. */
static void on_signal(int number)
{
    interrupted = number;
    if (launched || (number != SIGINT && number != SIGTERM)) return;
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
}

/* Before the first step there is nothing to save, and a signal ends the process at once: also where the shell had
 * SIGINT ignored. A reader of the output who goes away does not; the first step will notice. */
static void prepare_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    launched = getenv("TUTTI_BOARD") != NULL;
    (void)signal(SIGINT, SIG_DFL);
    (void)sigaction(SIGPIPE, &action, NULL);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that grows too large is an error of write, like a full disk */
}

/* From the first step on the run ends at the end of a step, and nothing of it is lost. A terminal that goes away ends it
 * as Ctrl-C does; of that the process may be told more than once. */
static void catch_signals(void)
{
    static atomic_flag caught = ATOMIC_FLAG_INIT; /* ranks are threads */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}, before;
    if (atomic_flag_test_and_set(&caught)) return;
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    action.sa_flags = 0;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) /* not below nohup */
        (void)sigaction(SIGHUP, &action, NULL);
}

/* All is written: a signal ends the process again. */
static void release_signals(void)
{
    struct sigaction before;
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) (void)signal(SIGHUP, SIG_DFL);
}

static bool is_model(const char *word)
{
    return strcmp(word, "gpt") == 0 || strcmp(word, "mlp") == 0;
}

/* The model is the first word; the rest are flags, those of the config file before them. */
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
    if (values.options.data[0] == '\0')
        return cli_refuse("train", "--data is missing: a file or folder to learn from; see tutti train --help");
    return CLI_GO_ON;
}

static void note_path(void *context, const char *path)
{
    (void)snprintf(context, 512, "%s", path);
}

/* A folder that has checkpoints is either resumed or left alone. */
static int check_folder(void)
{
    const tutti_train_options *options = &values.options;
    char path[512] = "";
    struct stat about;
    tutti_error error;
    if (options->save[0] == '\0' || options->resume || stat(options->save, &about) != 0) return CLI_GO_ON;
    if (tutti_checkpoint_list(options->save, note_path, path, &error) != TUTTI_OK) return cli_blame("train", &error);
    if (path[0] == '\0') return CLI_GO_ON;
    return cli_refuse("train", "there is %s already: go on from it with --resume, or --save to another folder", path);
}

/* ---- One rank -------------------------------------------------------------------------------------------------- */

double train_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* One rank speaks: the lowest one, or the one that alone knows. */
static int failed(const tutti_comm *world, const tutti_error *error)
{
    tutti_error named = *error;
    if (error->rank != 0 && strncmp(error->text, "rank ", 5) != 0)
        (void)snprintf(named.text, sizeof named.text, "rank %d: %.440s", error->rank, error->text);
    return tutti_rank(world) == 0 ? cli_blame("train", &named) : CLI_FAILED;
}

/* With parameter servers ranks fail by themselves, and each says why; what all learn of without staleness, the lowest one does. */
static int failed_alone(tutti_comm *world, const tutti_error *error)
{
    const bool shared = error->status == TUTTI_ERR_DIVERGED && values.options.staleness == 0;
    if (shared || tutti_rank(world) == 0) return failed(world, error);
    tutti_error named = *error;
    (void)snprintf(named.text, sizeof named.text, "rank %d: %.440s", tutti_rank(world), error->text);
    return cli_blame("train", &named);
}

static int step_failed(tutti_comm *world, const tutti_error *error)
{
    return values.options.server > 0 ? failed_alone(world, error) : failed(world, error);
}

struct loop {
    tutti_comm *world;
    tutti_trainer *trainer;
    struct train_report *report; /* NULL but on rank 0 */
    bool stopped, saved;         /* saved: the last step is in a checkpoint */
    uint64_t steps;              /* taken by this run */
};

/* All ranks know; one says it. */
static void say_unsaved(const struct loop *loop, const char *then)
{
    if (tutti_rank(loop->world) != 0) return;
    (void)cli_fail("train", "%s%s", tutti_trainer_error(loop->trainer)->text, then);
}

/* All ranks save. A checkpoint that cannot be written is no reason to stop. */
static bool save(const struct loop *loop, const char *then)
{
    tutti_trainer *trainer = loop->trainer;
    double began = train_now();
    tutti_status status = tutti_trainer_save(trainer);
    if (loop->report != NULL && status == TUTTI_OK) loop->report->saving_seconds = train_now() - began;
    if (status == TUTTI_OK) return true;
    if (tutti_rank(loop->world) == 0 || values.options.server > 0)
        (void)cli_fail("train", "no checkpoint was saved: %s%s", tutti_trainer_error(trainer)->text, then);
    return false;
}

/* One step and all that follows from it. CLI_GO_ON, or an exit status. */
static int take_step(struct loop *loop)
{
    const tutti_train_options *options = &values.options;
    tutti_train_step step;
    double validation = NAN;
    if (interrupted) tutti_trainer_stop(loop->trainer);
    if (tutti_trainer_step(loop->trainer, &step) != TUTTI_OK)
        return step_failed(loop->world, tutti_trainer_error(loop->trainer));
    if (step.save_failed) say_unsaved(loop, "; training goes on");
    bool last = step.step == (uint64_t)options->steps || step.stop;
    bool due = options->val_every > 0 && (last || step.step % (uint64_t)options->val_every == 0);
    if (due && tutti_trainer_validate(loop->trainer, &validation) != TUTTI_OK)
        return step_failed(loop->world, tutti_trainer_error(loop->trainer));
    loop->saved = false;
    bool save_now = options->save_every > 0 && step.step % (uint64_t)options->save_every == 0;
    if (options->save[0] != '\0' && (last || save_now)) loop->saved = save(loop, last ? "" : "; training goes on");
    if (loop->report != NULL) train_report_step(loop->report, loop->trainer, &step, validation);
    loop->stopped = step.stop;
    loop->steps++;
    return CLI_GO_ON;
}

static int train_all(struct loop *loop)
{
    tutti_train_about about;
    tutti_trainer_describe(loop->trainer, &about);
    loop->saved = true;
    for (uint64_t step = about.step; step < (uint64_t)values.options.steps && !loop->stopped; step++) {
        int status = take_step(loop);
        if (status != CLI_GO_ON) return status;
    }
    if (tutti_trainer_save_wait(loop->trainer) != TUTTI_OK) {
        loop->saved = false;
        say_unsaved(loop, "");
    }
    return CLI_GO_ON;
}

/* Rank 0 draws what all ranks of its pipeline know. */
static int draw_timeline(const struct loop *loop)
{
    const char *path = values.timeline;
    tutti_train_about about;
    tutti_trainer_describe(loop->trainer, &about);
    char title[300];
    const bool piped = strstr(values.options.mesh, "pipe=") != NULL;
    (void)snprintf(title, sizeof title, "%s, step %llu%s%s%s%s: seconds as measured", values.options.model,
                   (unsigned long long)about.step, values.options.mesh[0] == '\0' ? "" : ", ", values.options.mesh,
                   piped ? ", " : "", piped ? values.options.pipeline : "");
    FILE *file = loop->report != NULL ? fopen(path, "we") : NULL;
    tutti_status status = tutti_trainer_timeline(loop->trainer, title, file);
    if (status != TUTTI_OK) return failed(loop->world, tutti_trainer_error(loop->trainer));
    if (loop->report == NULL) return CLI_OK;
    if (file == NULL || fclose(file) != 0) return cli_blame_path("train", "cannot write", path);
    return CLI_OK;
}

/* With --fast: what the same steps cost with grains, for comparison. */
static void time_grains(tutti_comm *world, const struct train_report *report)
{
    enum { STEPS = 4 };
    tutti_train_options options = values.options;
    tutti_trainer *trainer = NULL;
    tutti_error error;
    double best = INFINITY;
    if (report != NULL) release_signals();
    options.fast = options.resume = 0;
    options.save = "";
    if (tutti_trainer_create(world, &options, &trainer, &error) != TUTTI_OK) {
        if (report != NULL) (void)fprintf(report->text, "the same with grains could not be timed: %s\n", error.text);
        return;
    }
    for (int i = 0; i < STEPS; i++) {
        tutti_train_step step;
        if (tutti_trainer_step(trainer, &step) != TUTTI_OK) break;
        if (step.seconds < best) best = step.seconds;
    }
    if (report != NULL && report->all_steps > 0)
        (void)fprintf(report->text, "a step takes %.1f ms with --fast; with layout-independent bits %.1f ms\n",
                      1000 * report->all_seconds / report->all_steps, 1000 * best);
    tutti_trainer_free(trainer);
}

/* The threads of this rank that have a core of its host to themselves, if each thread of the ranks before it has one. */
static int threads_with_cores(tutti_comm *world)
{
    tutti_comm *host;
    if (tutti_comm_by_host(world, &host) != TUTTI_OK) return 0;
    int64_t threads = values.options.threads, left = sysconf(_SC_NPROCESSORS_ONLN) - tutti_rank(host) * threads;
    if (tutti_comm_free(host) != TUTTI_OK || left <= 0) return 0;
    if (tutti_rank(world) >= tutti_size(world) - values.options.server) return 0; /* servers multiply nothing */
    return (int)(left < threads ? left : threads);
}

/* All cores multiply matrices at once, as in training: what they do together is what the machine can, unless the kernels
 * that do it are old. */
static struct train_machine measure_machine(tutti_comm *world)
{
    struct train_machine mine = {0}, all = {0};
    int threads = threads_with_cores(world);
    if (tutti_barrier(world) != TUTTI_OK) return all;
    if (tutti_blas_load(NULL) == TUTTI_OK) {
        tutti_blas_about about;
        tutti_blas_describe(&about);
        mine.old = about.old;
        if (threads > 0) mine.gflops = tutti_blas_rate(threads, 0.2);
    }
    bool told = tutti_all_reduce(world, &mine, &all, 2, TUTTI_F64, TUTTI_SUM) == TUTTI_OK;
    return told ? all : (struct train_machine){0};
}

/* All ranks begin, or none: where rank 0 cannot write what it is to report, the others would train without it. */
static int begin(const struct loop *loop, struct train_machine machine)
{
    tutti_comm *world = loop->world;
    int32_t status = CLI_GO_ON;
    if (loop->report != NULL)
        status = train_report_open(loop->report, &values, loop->trainer, tutti_size(world), machine);
    bool told = tutti_broadcast(world, &status, &status, 1, TUTTI_I32, 0) == TUTTI_OK;
    return told ? status : failed(world, tutti_comm_error(world));
}

/* A parameter server's rank: until all workers have ended. */
static int serve(tutti_comm *world, tutti_trainer *trainer)
{
    catch_signals(); /* workers end the run */
    tutti_status status = tutti_trainer_serve(trainer);
    int end = status == TUTTI_OK ? CLI_OK : failed_alone(world, tutti_trainer_error(trainer));
    tutti_trainer_free(trainer);
    return end == CLI_OK && interrupted ? 128 + (int)interrupted : end;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    (void)argc, (void)argv;
    struct train_report report;
    struct loop loop = {.world = world};
    tutti_error error;
    struct train_machine machine = measure_machine(world);
    if (tutti_trainer_create(world, &values.options, &loop.trainer, &error) != TUTTI_OK) return failed(world, &error);
    if (tutti_rank(world) == 0) loop.report = &report;
    int status = begin(&loop, machine);
    if (status != CLI_GO_ON) {
        tutti_trainer_free(loop.trainer);
        return status;
    }
    if (tutti_trainer_serves(loop.trainer)) return serve(world, loop.trainer);
    catch_signals();
    status = train_all(&loop);
    int end = CLI_OK;
    const bool alone = values.options.server > 0 && status != CLI_GO_ON; /* the other workers go on */
    const uint64_t hash = alone ? 0 : tutti_trainer_hash(loop.trainer);  /* all ranks together */
    if (loop.report != NULL) end = train_report_close(&report, loop.trainer, hash);
    if (status == CLI_GO_ON && loop.steps > 0 && values.timeline[0] != '\0') {
        int drawn = draw_timeline(&loop);
        if (drawn != CLI_OK) end = drawn;
    }
    tutti_trainer_free(loop.trainer);
    if (status == CLI_GO_ON && values.options.fast && values.options.server == 0 && !loop.stopped)
        time_grains(world, loop.report);
    if (status != CLI_GO_ON) return status;
    if (loop.stopped && interrupted) return 128 + (int)interrupted;
    bool unsaved = values.options.save[0] != '\0' && !loop.saved && tutti_rank(world) == 0;
    return unsaved ? CLI_FAILED : end;
}

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
        (void)setenv("OPENBLAS_NUM_THREADS", "1", 1); /* its own threads would only sleep */
        prepare_signals();
        status = tutti_main(work, argc, argv);
    }
    free(words.argv);
    free(words.text);
    return status;
}
