/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti train: the work of one rank, and how it continues after another is lost.
 */
#include "cli/cli_train.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct train_values *asked; /* of the process: its ranks are threads */

/* ---- Signals --------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t launched; /* started by tutti run */

/* A second Ctrl-C or SIGTERM ends the process at once, wherever it is. Under tutti run only the same signal again does:
 * the launcher sends SIGTERM some time after SIGINT, and kills when it gets a second signal itself. */
static void on_signal(int number)
{
    interrupted = number;
    if (launched || (number != SIGINT && number != SIGTERM)) return;
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
}

/* Before the first step there is nothing to save, and a signal ends the process at once, even if the shell had SIGINT
 * ignored. If the reader of the output goes away, the process continues until the first step notices. */
static void prepare_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    launched = getenv("TUTTI_BOARD") != NULL;
    (void)signal(SIGINT, SIG_DFL);
    (void)sigaction(SIGPIPE, &action, NULL);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that grows too large is an error of write, like a full disk */
}

/* From the first step on a signal ends the run at the end of a step, so that nothing is lost. A terminal that goes away
 * has the effect of Ctrl-C; the process may be told of that more than once. */
static void catch_signals(void)
{
    static atomic_flag caught = ATOMIC_FLAG_INIT; /* ranks are threads */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}, before;
    if (atomic_flag_test_and_set(&caught)) return;
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    action.sa_flags = 0;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) /* except below nohup */
        (void)sigaction(SIGHUP, &action, NULL);
}

/* Everything is written: a signal ends the process again. */
static void release_signals(void)
{
    struct sigaction before;
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) (void)signal(SIGHUP, SIG_DFL);
}

double train_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* What has been done after a step: validation, saving. Restarted ranks learn it from others. */
struct done {
    uint64_t step;
    double validation; /* NaN: there was none */
    bool saved;        /* the step is in a checkpoint */
};

struct loop {
    tutti_comm *world, *before; /* before: the world in which the trainer was made, if it must be freed */
    const tutti_comm *first;    /* the world that this process has joined */
    tutti_trainer *trainer;
    struct train_report *report; /* NULL except on rank 0 */
    bool reports;                /* the report is open */
    struct train_machine machine;
    struct train_victim victim;
    bool began, stopped;
    struct done done;
    uint64_t steps; /* steps since the trainer was made */
    uint64_t hash;  /* hash of the weights at the end; 0: not known */
    struct train_end end;
};

/* Instead of an exit status: a rank was lost, and is started again; or this one was, when the training had ended. */
enum { LOST = -2, ENDED = -3 };

/* Returns true for the errors of a comm that has lost a rank, or that another rank gives up because of that. */
static bool is_lost(const struct loop *loop, tutti_status status)
{
    return (status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_CANCELLED || status == TUTTI_ERR_BROKEN ||
            status == TUTTI_ERR_EPOCH || status == TUTTI_ERR_TIMEOUT) &&
           tutti_comm_can_rebuild(loop->world);
}

/* Reports an error on one rank: the lowest one, or the only one that knows. */
static int failed(const struct loop *loop, const tutti_error *error)
{
    tutti_error named = *error;
    if (is_lost(loop, error->status)) return LOST;
    if (error->rank != 0 && strncmp(error->text, "rank ", 5) != 0)
        (void)snprintf(named.text, sizeof named.text, "rank %d: %.440s", error->rank, error->text);
    return tutti_rank(loop->world) == 0 ? cli_blame("train", &named) : CLI_FAILED;
}

/* Reports an error with parameter servers: ranks fail independently, and each says why. If all know the error, as
 * without staleness, rank 0 reports it. */
static int failed_alone(const struct loop *loop, const tutti_error *error)
{
    const bool shared = error->status == TUTTI_ERR_DIVERGED && asked->options.staleness == 0;
    if (shared || tutti_rank(loop->world) == 0 || is_lost(loop, error->status)) return failed(loop, error);
    tutti_error named = *error;
    (void)snprintf(named.text, sizeof named.text, "rank %d: %.440s", tutti_rank(loop->world), error->text);
    return cli_blame("train", &named);
}

static int step_failed(const struct loop *loop)
{
    const tutti_error *error = tutti_trainer_error(loop->trainer);
    return asked->options.server > 0 ? failed_alone(loop, error) : failed(loop, error);
}

/* Reports an error of the world itself. */
static int world_failed(const struct loop *loop)
{
    return failed(loop, tutti_comm_error(loop->world));
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

/* Reports a failed save. All ranks know of it, or with parameter servers the one that saves; one of them reports it. */
static void say_unsaved(const struct loop *loop, const char *then)
{
    if (tutti_rank(loop->world) != 0 && asked->options.server == 0) return;
    (void)cli_fail("train", "%s%s", tutti_trainer_error(loop->trainer)->text, then);
}

/* Saves on all ranks. If a checkpoint cannot be written, training continues. */
static int save(struct loop *loop, const char *then)
{
    tutti_trainer *trainer = loop->trainer;
    double began = train_now();
    tutti_status status = tutti_trainer_save(trainer);
    if (loop->report != NULL && status == TUTTI_OK) loop->report->saving_seconds = train_now() - began;
    loop->done.saved = status == TUTTI_OK;
    if (status == TUTTI_OK) return CLI_GO_ON;
    if (is_lost(loop, status)) return LOST;
    if (tutti_rank(loop->world) == 0 || asked->options.server > 0)
        (void)cli_fail("train", "no checkpoint was saved: %s%s", tutti_trainer_error(trainer)->text, then);
    return CLI_GO_ON;
}

/* Does everything that follows a step. Returns CLI_GO_ON, or an exit status. */
static int follow(struct loop *loop, const tutti_train_step *step)
{
    const tutti_train_options *options = &asked->options;
    double validation = NAN;
    bool last = step->step == (uint64_t)options->steps || step->stop;
    bool due = options->val_every > 0 && (last || step->step % (uint64_t)options->val_every == 0);
    if (due && tutti_trainer_validate(loop->trainer, &validation) != TUTTI_OK) return step_failed(loop);
    bool save_now = options->save_every > 0 && step->step % (uint64_t)options->save_every == 0;
    int status = CLI_GO_ON;
    loop->done.saved = false;
    if (options->save[0] != '\0' && (last || save_now)) status = save(loop, last ? "" : "; training goes on");
    if (status != CLI_GO_ON) return status;
    if (loop->report != NULL) train_report_step(loop->report, loop->trainer, step, validation);
    loop->done.step = step->step;
    loop->done.validation = validation;
    loop->stopped = step->stop;
    return CLI_GO_ON;
}

static int take_step(struct loop *loop)
{
    tutti_train_step step;
    if (interrupted) tutti_trainer_stop(loop->trainer);
    if (tutti_trainer_step(loop->trainer, &step) != TUTTI_OK) return failed(loop, tutti_trainer_error(loop->trainer));
    loop->steps++;
    if (step.save_failed) say_unsaved(loop, "; training goes on");
    return follow(loop, &step);
}

static int train_all(struct loop *loop)
{
    tutti_train_about about;
    tutti_trainer_describe(loop->trainer, &about);
    for (uint64_t step = about.step; step < (uint64_t)asked->options.steps && !loop->stopped; step++) {
        int status = take_step(loop);
        if (status != CLI_GO_ON) return status;
    }
    tutti_status status = tutti_trainer_save_wait(loop->trainer);
    if (status == TUTTI_OK) return CLI_GO_ON;
    loop->done.saved = false;
    if (is_lost(loop, status)) return LOST;
    say_unsaved(loop, "");
    return CLI_GO_ON;
}

/* ---- The end --------------------------------------------------------------------------------------------------- */

/* Draws the timeline on rank 0, which has that of all ranks of its pipeline. */
static int draw_timeline(const struct loop *loop)
{
    const char *path = asked->timeline;
    tutti_train_about about;
    tutti_trainer_describe(loop->trainer, &about);
    char title[300];
    (void)snprintf(title, sizeof title, "%s, step %llu%s%s%s%s: seconds as measured", asked->options.model,
                   (unsigned long long)about.step, asked->options.mesh[0] == '\0' ? "" : ", ", asked->options.mesh,
                   about.pipeline == NULL ? "" : ", ", about.pipeline == NULL ? "" : about.pipeline);
    FILE *file = loop->report != NULL ? fopen(path, "we") : NULL;
    tutti_status status = tutti_trainer_timeline(loop->trainer, title, file);
    if (status != TUTTI_OK) return failed(loop, tutti_trainer_error(loop->trainer));
    if (loop->report == NULL) return CLI_OK;
    if (file == NULL || fclose(file) != 0) return cli_blame_path("train", "cannot write", path);
    return CLI_OK;
}

/* With --fast: measures the same steps with grains, for comparison. */
static void time_grains(tutti_comm *world, const struct train_report *report)
{
    enum { STEPS = 4 };
    tutti_train_options options = asked->options;
    tutti_trainer *trainer = NULL;
    tutti_error error;
    double best = INFINITY;
    if (report != NULL) release_signals();
    options.fast = options.resume = options.save_async = 0;
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

/* Finds the hash to compare with: that of an undisturbed run; with staleness, that of worker 0. */
static tutti_status find_expected(const struct loop *loop, uint64_t *expected, tutti_error *error)
{
    if (asked->options.staleness == 0) return train_undisturbed(asked, loop->world, expected, error);
    *expected = loop->hash;
    tutti_status status = tutti_broadcast(loop->world, expected, expected, 1, TUTTI_U64, 0);
    if (status != TUTTI_OK) *error = *tutti_comm_error(loop->world);
    return status;
}

/* Returns true on all ranks if all workers have that hash; servers have no weights. */
static bool all_same(const struct loop *loop, uint64_t expected)
{
    const bool serves = tutti_rank(loop->world) >= tutti_size(loop->world) - asked->options.server;
    uint64_t all = 0;
    return tutti_comm_agree(loop->world, serves || expected == loop->hash, &all) == TUTTI_OK && all == 1;
}

/* Reports at the very end if the drill was passed. */
static int judge_drill(const struct loop *loop)
{
    uint64_t undisturbed = 0;
    tutti_error error;
    const bool says = loop->report != NULL;
    if (asked->kill_count == 0 || loop->stopped) return CLI_GO_ON;
    if (find_expected(loop, &undisturbed, &error) != TUTTI_OK) return failed(loop, &error);
    const bool lost = tutti_epoch(loop->world) > 0 || train_kills_at_end_only(asked),
               same = all_same(loop, undisturbed);
    if (says && !lost)
        (void)cli_fail("train", "drill failed: no rank was lost");
    else if (says && !same)
        (void)cli_fail("train",
                       "drill failed: the weights hash %016" PRIx64 " differs from %016" PRIx64
                       " of an undisturbed run, or another worker has other weights",
                       loop->hash, undisturbed);
    else if (says)
        (void)fprintf(loop->report->text,
                      "drill passed: --drill %s, and the weights hash %016" PRIx64 " equals that of %s\n", asked->drill,
                      loop->hash, asked->options.staleness == 0 ? "an undisturbed run" : "every other worker");
    if (says) (void)fflush(loop->report->text);
    return lost && same ? CLI_GO_ON : CLI_FAILED;
}

/* Serves as a parameter server until all workers have ended. Returns an exit status. */
static int serve(struct loop *loop)
{
    catch_signals(); /* workers end the run */
    tutti_status status = tutti_trainer_serve(loop->trainer);
    int end = status == TUTTI_OK ? CLI_OK : failed_alone(loop, tutti_trainer_error(loop->trainer));
    return end == CLI_OK && interrupted ? 128 + (int)interrupted : end;
}

/* Either all ranks end, or none: a rank that has left cannot help to restore another. */
static int end_all(struct loop *loop)
{
    uint64_t all = 0;
    loop->hash = tutti_trainer_hash(loop->trainer); /* all ranks compute it together */
    if (asked->options.server > 0 || !tutti_comm_can_rebuild(loop->world)) return CLI_GO_ON;
    int status = loop->hash == 0 ? LOST : judge_drill(loop);
    tutti_status agreed = tutti_comm_agree(loop->world, status != LOST, &all);
    if (agreed != TUTTI_OK || all == 0) return LOST;
    tutti_train_about about;
    tutti_trainer_describe(loop->trainer, &about);
    loop->end = (struct train_end){loop->hash, about.step};
    if (tutti_epoch(loop->first) == 0) train_kill_at_end(&loop->victim);
    return status;
}

/* ---- The beginning, and after a loss --------------------------------------------------------------------------- */

/* After a rebuild all ranks meet first: one that was started again hears if the training had ended before. */
static int meet(struct loop *loop)
{
    struct train_end end;
    if (train_meet(loop->world, &loop->end, &end) != TUTTI_OK) return world_failed(loop);
    if (end.hash == 0 || loop->end.hash != 0) return CLI_GO_ON;
    if (loop->report != NULL)
        (void)fprintf(asked->metrics[0] == '-' || asked->plot[0] == '-' ? stderr : stdout,
                      "weights %016" PRIx64 " after step %" PRIu64 "; this rank was lost when all was done\n", end.hash,
                      end.step);
    loop->end = end;
    return ENDED;
}

static int make(struct loop *loop)
{
    tutti_error error;
    tutti_status status;
    if (loop->trainer != NULL) {
        status = tutti_trainer_restore(loop->trainer, loop->world);
        error = *tutti_trainer_error(loop->trainer);
    } else {
        status = tutti_trainer_create(loop->world, &asked->options, &loop->trainer, &error);
    }
    /* Actors of parameter servers may still use it if they could not be renewed. */
    if (loop->before != NULL && (status == TUTTI_OK || asked->options.server == 0)) {
        (void)tutti_comm_free(loop->before);
        loop->before = NULL;
    }
    loop->steps = 0;
    if (status != TUTTI_OK) return failed(loop, &error);
    if (asked->kill_count > 0 && tutti_epoch(loop->first) == 0)
        tutti_trainer_watch(loop->trainer, train_watch_drill, &loop->victim);
    return CLI_GO_ON;
}

/* Either all ranks begin, or none: if rank 0 cannot write its report, the others would train without it. */
static int begin(struct loop *loop)
{
    tutti_comm *world = loop->world;
    int32_t status = CLI_GO_ON;
    if (loop->report != NULL && !loop->reports) {
        status = train_report_open(loop->report, asked, loop->trainer, tutti_size(world), loop->machine,
                                   tutti_epoch(world));
        loop->reports = status == CLI_GO_ON;
    }
    if (loop->reports && tutti_epoch(world) > 0) train_report_restored(loop->report, loop->trainer, tutti_epoch(world));
    bool told = tutti_broadcast(world, &status, &status, 1, TUTTI_I32, 0) == TUTTI_OK;
    return told ? status : world_failed(loop);
}

/* Shares what the ranks that know most have done. */
static tutti_status share_done(struct loop *loop)
{
    const int size = tutti_size(loop->world);
    struct done all[size];
    const tutti_status status = tutti_all_gather(loop->world, &loop->done, all, sizeof *all, TUTTI_U8);
    if (status != TUTTI_OK) return status;
    for (int r = 0; r < size; r++)
        if (all[r].step > loop->done.step) loop->done = all[r];
    return TUTTI_OK;
}

/* After a loss: does what should have followed the step from which the training continues. */
static int catch_up(struct loop *loop)
{
    const tutti_train_step *last = tutti_trainer_last(loop->trainer);
    if (tutti_epoch(loop->world) == 0) return CLI_GO_ON;
    if (share_done(loop) != TUTTI_OK) return world_failed(loop);
    if (last == NULL) return CLI_GO_ON;
    const tutti_train_step step = *last;
    if (loop->done.step < step.step) return follow(loop, &step);
    if (loop->report != NULL && loop->done.step == step.step)
        train_report_step(loop->report, loop->trainer, &step, loop->done.validation);
    loop->stopped = step.stop;
    return CLI_GO_ON;
}

static int attempt(struct loop *loop)
{
    int status = CLI_GO_ON;
    if (tutti_epoch(loop->world) == 0)
        loop->machine = train_measure_machine(asked, loop->world);
    else
        status = meet(loop);
    if (status == CLI_GO_ON) status = make(loop);
    if (status == CLI_GO_ON) status = begin(loop);
    if (status == CLI_GO_ON) status = catch_up(loop);
    if (status != CLI_GO_ON) return status;
    if (tutti_trainer_serves(loop->trainer)) return serve(loop);
    loop->began = true;
    catch_signals();
    status = train_all(loop);
    return status == CLI_GO_ON ? end_all(loop) : status;
}

static int rebuild(struct loop *loop)
{
    tutti_comm *next = NULL;
    if (tutti_comm_rebuild(loop->world, &next) != TUTTI_OK) {
        (void)tutti_explain(loop->world, stderr);
        return CLI_FAILED;
    }
    if (loop->world != loop->first) loop->before = loop->world;
    loop->world = next;
    return CLI_GO_ON;
}

static int train(struct loop *loop)
{
    int status = attempt(loop);
    while (status == LOST) {
        status = rebuild(loop);
        if (status == CLI_GO_ON) status = attempt(loop);
    }
    return status;
}

/* A rank that dies when all is done is started again, too. The others wait for it, and tell it, or else it would find
 * nobody. Once all have met here, nothing is left to be done. */
static void leave_together(struct loop *loop)
{
    while (loop->end.hash != 0 && !train_all_here(loop->world)) {
        if (rebuild(loop) != CLI_GO_ON) return;
        (void)meet(loop);
    }
}

/* Writes the end of the report. Returns an exit status. */
static int close_report(struct loop *loop, int status)
{
    int end = CLI_OK;
    if (!loop->began) return CLI_OK;
    const bool alone = asked->options.server > 0; /* the other workers continue */
    if (status != CLI_GO_ON && loop->hash == 0 && !alone) loop->hash = tutti_trainer_hash(loop->trainer);
    if (loop->reports) end = train_report_close(loop->report, loop->trainer, loop->hash);
    if (status == CLI_GO_ON && loop->steps > 0 && asked->timeline[0] != '\0') {
        int drawn = draw_timeline(loop);
        if (drawn == LOST) drawn = cli_fail("train", "%s is not drawn: a rank was lost", asked->timeline);
        if (drawn != CLI_OK) end = drawn;
    }
    return end;
}

/* Returns true, on all ranks, if a drill with parameter servers is to be judged: all ranks have come to the end. There each ends
 * by itself, and they meet once more for this. */
static bool judges_at_the_end(const struct loop *loop, int status)
{
    const bool serves = tutti_rank(loop->world) >= tutti_size(loop->world) - asked->options.server;
    const bool ended = status == (serves ? CLI_OK : CLI_GO_ON) && !loop->stopped;
    uint64_t all = 0;
    if (asked->kill_count == 0 || asked->options.server == 0) return false;
    return tutti_comm_agree(loop->world, ended, &all) == TUTTI_OK && all == 1;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    (void)argc, (void)argv;
    struct train_report report;
    struct loop loop = {.world = world,
                        .first = world,
                        .victim = {asked, tutti_rank(world)},
                        .done = {.validation = NAN, .saved = true}};
    if (tutti_rank(world) == 0) loop.report = &report;
    int status = train_check_world(asked, world);
    if (status == CLI_GO_ON) status = train(&loop);
    int end = close_report(&loop, status);
    tutti_trainer_free(loop.trainer);
    const int judged = judges_at_the_end(&loop, status) ? judge_drill(&loop) : CLI_GO_ON;
    if (judged != CLI_GO_ON) status = judged;
    if (status == CLI_GO_ON && asked->options.fast && asked->options.server == 0 && !loop.stopped)
        time_grains(loop.world, loop.report);
    leave_together(&loop);
    if (loop.before != NULL) (void)tutti_comm_free(loop.before);
    if (loop.world != world) (void)tutti_comm_free(loop.world);
    if (status == ENDED) return CLI_OK;
    if (status != CLI_GO_ON) return status;
    if (loop.stopped && interrupted) return 128 + (int)interrupted;
    bool unsaved = asked->options.save[0] != '\0' && !loop.done.saved &&
                   (tutti_rank(world) == 0 || asked->options.server > 0);
    if (unsaved) return cli_fail("train", "%s lacks the last weights: saving them failed", asked->options.save);
    return end;
}

int train_run(const struct train_values *values, int argc, char **argv)
{
    asked = values;
    prepare_signals();
    return tutti_main(work, argc, argv);
}
