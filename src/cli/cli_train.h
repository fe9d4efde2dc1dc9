/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti train: what its files share.
 */
#ifndef TUTTI_CLI_CLI_TRAIN_H
#define TUTTI_CLI_CLI_TRAIN_H

#include "cli/cli.h"

#include <tutti/train.h>

/* A rank that is to be killed on purpose. */
struct train_kill {
    int rank;
    tutti_train_phase phase;
    uint64_t step;
};

enum { TRAIN_KILLS = 32 };

struct train_values {
    tutti_train_options options;
    int64_t ranks;
    const char *config, *metrics, *plot, *timeline, *drill;
    struct train_kill kills[TRAIN_KILLS]; /* what drill says */
    int kill_count;
};

/* The words of a config file as flags in front of the others: argv with more words, the caller's to free with the
 * text they lie in. A tool's exit status, or CLI_GO_ON. */
struct train_words {
    int argc;
    char **argv;
    char *text;
};
int train_read_config(const struct cli_page *page, int argc, char **argv, struct train_words *words);

/* Trains, as all ranks of this process. A tool's exit status. */
int train_run(const struct train_values *values, int argc, char **argv);

/* ---- Drills (train_drill.c) ------------------------------------------------------------------------------------ */

/* Reads values->drill. CLI_GO_ON, or an exit status. */
int train_read_drill(struct train_values *values);
/* Whether what was asked can be done in this world; rank 0 says why not. */
int train_check_world(const struct train_values *values, tutti_comm *world);
/* A tutti_train_watch, with the values as its context, on that rank of the world. */
struct train_victim {
    const struct train_values *values;
    int rank;
};
void train_watch_drill(void *victim, tutti_train_phase phase, uint64_t step);
/* Collective: the same training again, from the start. The hash of its weights. */
tutti_status train_undisturbed(const struct train_values *values, tutti_comm *world, uint64_t *hash,
                               tutti_error *error);

/* ---- Reporting (rank 0 only) ----------------------------------------------------------------------------------- */

struct train_point {
    uint64_t step;
    double loss, validation; /* validation: NaN where none was made */
};

/* What the cores of all ranks do together in matrix products. */
struct train_machine {
    double gflops; /* 0: unknown */
    double old;    /* ranks whose kernels are older than their CPU, so that this is not what the machine can */
};

struct train_report {
    const struct train_values *values;
    tutti_train_about about;
    FILE *text;        /* what is for people: stdout, unless metrics or the plot go there */
    FILE *metrics;     /* NULL: none */
    bool metrics_lost; /* some of them could not be written */
    bool terminal;     /* that is one: the progress line is written over */
    int ranks;
    struct train_machine machine;
    struct train_point *points;
    size_t count, room;
    double shown_at;                    /* when the progress line was last printed */
    double seconds, rows, comm_seconds; /* of the steps since then */
    double all_seconds, all_rows, all_comm_seconds, all_steps;
    double all_stale, all_ahead;         /* with parameter servers */
    double all_idle, all_predicted_idle; /* of steps of a pipeline */
    double last_validation;
    uint64_t epoch;        /* the world's */
    uint64_t reported;     /* the last step that was; after a loss it may come again */
    double saving_seconds; /* of the last checkpoint; 0: none */
};

/* CLI_GO_ON, or an exit status when a file cannot be written. `epoch`: of the world; a report that is opened after a loss goes on
 * where the one of the rank before ended. */
int train_report_open(struct train_report *report, const struct train_values *values, const tutti_trainer *trainer,
                      int ranks, struct train_machine machine, uint64_t epoch);
/* After a loss, in the world of this epoch: where the training goes on. */
void train_report_restored(struct train_report *report, const tutti_trainer *trainer, uint64_t epoch);
/* After every step; `validation` is NaN where none was made. A step that was reported before a loss is passed over. */
void train_report_step(struct train_report *report, const tutti_trainer *trainer, const tutti_train_step *step,
                       double validation);
/* The summary and the plots. A tool's exit status. */
int train_report_close(struct train_report *report, const tutti_trainer *trainer, uint64_t hash);
double train_now(void); /* seconds */

void train_plot_terminal(FILE *stream, const struct train_point *points, size_t count, double entropy);
/* Returns false where the file cannot be written; "-": stdout. */
bool train_plot_svg(const char *path, const struct train_point *points, size_t count, double entropy);

#endif
