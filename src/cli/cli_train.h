/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti train: declarations that its files share.
 */
#ifndef TUTTI_CLI_CLI_TRAIN_H
#define TUTTI_CLI_CLI_TRAIN_H

#include "cli/cli.h"

#include <tutti/train.h>

/* A rank to be killed on purpose. */
struct train_kill {
    int rank;
    bool at_end; /* when all agree that the training has ended, and before it leaves; no phase and step then */
    tutti_train_phase phase;
    uint64_t step;
};

enum { TRAIN_KILLS = 32 };

struct train_values {
    tutti_train_options options;
    int64_t ranks;
    const char *config, *metrics, *plot, *timeline, *drill;
    struct train_kill kills[TRAIN_KILLS]; /* as given by --drill */
    int kill_count;
};

/* The command line with the words of a config file as flags in front of the others. The caller frees it, and the text
 * that its words point into. Returns a tool's exit status, or CLI_GO_ON. */
struct train_words {
    int argc;
    char **argv;
    char *text;
};
int train_read_config(const struct cli_page *page, int argc, char **argv, struct train_words *words);

/* Trains with all ranks of this process. Returns a tool's exit status. */
int train_run(const struct train_values *values, int argc, char **argv);

/* ---- Drills (train_drill.c) ------------------------------------------------------------------------------------ */

/* Reads values->drill. Returns CLI_GO_ON, or an exit status. */
int train_read_drill(struct train_values *values);
/* Checks that the flags are possible in this world; if they are not, rank 0 says why. */
int train_check_world(const struct train_values *values, tutti_comm *world);
/* A tutti_train_watch, with the values as its context, on that rank of the world. */
struct train_victim {
    const struct train_values *values;
    int rank;
};
void train_watch_drill(void *victim, tutti_train_phase phase, uint64_t step);
void train_kill_at_end(const struct train_victim *victim);
bool train_kills_at_end_only(const struct train_values *values); /* no rank is lost before the end */
/* Collective: repeats the same training from the start, without kills, and returns the hash of its weights. */
tutti_status train_undisturbed(const struct train_values *values, tutti_comm *world, uint64_t *hash,
                               tutti_error *error);

/* ---- The end (train_end.c) ------------------------------------------------------------------------------------- */

/* How the training has ended, as all ranks have agreed. */
struct train_end {
    uint64_t hash, step; /* hash 0: it has not ended */
};
/* Collective: *all gets the end that some rank knows of. */
tutti_status train_meet(tutti_comm *world, const struct train_end *mine, struct train_end *all);
/* Collective: returns true on all ranks if none was lost. */
bool train_all_here(tutti_comm *world);

/* ---- Reporting (rank 0 only) ----------------------------------------------------------------------------------- */

struct train_point {
    uint64_t step;
    double loss, validation; /* validation: NaN if there was none */
};

/* The rate of all ranks' cores together in matrix products. */
struct train_machine {
    double gflops; /* 0: unknown */
    double old;    /* ranks whose kernels are older than their CPU, so that the machine could do more */
};

/* Collective: multiplies matrices on all cores at once, as in training: their total rate is what the machine can do, unless
 * the kernels are old. */
struct train_machine train_measure_machine(const struct train_values *values, tutti_comm *world);

struct train_report {
    const struct train_values *values;
    tutti_train_about about;
    FILE *text;        /* for people: stdout, unless metrics or the plot go there */
    FILE *metrics;     /* NULL: none */
    bool metrics_lost; /* some of them could not be written */
    bool terminal;     /* `text` is a terminal: the progress line is overwritten */
    int ranks;
    struct train_machine machine;
    struct train_point *points;
    size_t count, room;
    double shown_at;                    /* when the progress line was last printed */
    double seconds, rows, comm_seconds; /* of the steps since then */
    double all_seconds, all_rows, all_comm_seconds, all_steps;
    double all_stale, all_ahead;         /* steps with parameter servers */
    double all_idle, all_predicted_idle; /* steps of a pipeline */
    double last_validation;
    uint64_t epoch;        /* the world's epoch */
    uint64_t reported;     /* the last step reported; after a loss it may come again */
    double saving_seconds; /* time of the last checkpoint; 0: none */
};

/* Returns CLI_GO_ON, or an exit status if a file cannot be written. `epoch`: the world's; a report opened after a loss
 * continues where the previous rank's report ended. */
int train_report_open(struct train_report *report, const struct train_values *values, const tutti_trainer *trainer,
                      int ranks, struct train_machine machine, uint64_t epoch);
/* Called after a loss, in the world of this epoch: says where the training continues. */
void train_report_restored(struct train_report *report, const tutti_trainer *trainer, uint64_t epoch);
/* Called after every step; `validation` is NaN if there was none. Ignores a step that was reported before a loss. */
void train_report_step(struct train_report *report, const tutti_trainer *trainer, const tutti_train_step *step,
                       double validation);
/* Prints the summary and the plots. Returns a tool's exit status. */
int train_report_close(struct train_report *report, const tutti_trainer *trainer, uint64_t hash);
double train_now(void); /* seconds */

void train_plot_terminal(FILE *stream, const struct train_point *points, size_t count, double entropy);
/* Returns false if the file cannot be written; "-": stdout. */
bool train_plot_svg(const char *path, const struct train_point *points, size_t count, double entropy);

#endif
