/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti plan, in parts:
 *   cli_plan.c       flags, what is asked, the order of things
 *   plan_costs.c     measuring layers, transfers and steps of a pipeline
 *   plan_estimate.c  every layout's figures
 *   plan_trial.c     running the best few, to compare, and how near the predictions are
 *   plan_report.c    the tables, the command to type, the JSON
 */
#ifndef TUTTI_CLI_CLI_PLAN_H
#define TUTTI_CLI_CLI_PLAN_H

#include "cli/cli.h"

#include <tutti/train.h>

struct plan_values {
    tutti_train_options options; /* what is planned: with a vocabulary, and without data where that is enough */
    int64_t ranks, hosts, memory, measure, show, cores;
    const char *json, *picture, *links;
    const char *data; /* as given */
};

/* One layout and what is known of it. */
struct plan_row {
    tutti_train_layout layout;
    tutti_train_options options; /* of this layout */
    char mesh[TUTTI_TRAIN_MESH_BYTES];
    tutti_status status; /* OK, or the trainer refuses it: */
    char why[sizeof((tutti_error *)0)->text];
    tutti_train_estimate estimate;
    bool fits;
    double measured;  /* seconds of a step; 0: not measured */
    char failed[256]; /* its run's last words; "": it was not run, or did not fail */
};

struct plan {
    const struct plan_values *values;
    struct plan_row *rows; /* those that fit, fastest first; those that do not, by what they need; then those refused */
    size_t count, fitting, possible; /* possible: not refused */
    tutti_train_costs costs;         /* of the layout that is looked at */
    int cores;                       /* of this machine */
    int shared;                      /* that all ranks have together; 0: enough for each */
};

enum { PLAN_UNITS = 4096, PLAN_WIDTHS = 16, PLAN_SMALL = 256, PLAN_LARGE = 4 << 20 };

/* What one number of ranks that share the width makes of the layers. */
struct plan_width {
    int tensor;
    size_t count;
    tutti_pipeline_times units[PLAN_UNITS], further; /* as tutti_train_costs has them */
};

/* What was measured here, in seconds. */
struct plan_costs {
    struct plan_width widths[PLAN_WIDTHS];
    size_t width_count;
    double update, add, step;             /* as tutti_train_costs has them */
    double transfers[TUTTI_TRAIN_OPS][2]; /* of PLAN_SMALL and PLAN_LARGE bytes; 0: there is one rank */
    int ranks;                            /* that measured it */
    tutti_error error;                    /* where no layers could be measured */
};

/* Measures the layers of the plan's rows, and everything else. A tool's exit status, or CLI_GO_ON. */
int plan_measure_costs(const struct plan_values *values, const struct plan *plan, const struct plan_costs **costs);
/* All of it. A tool's exit status, or CLI_GO_ON. The rows are the caller's to free. */
int plan_estimate(const struct plan_values *values, struct plan *plan);
/* The costs for one layout, in plan->costs. */
void plan_set_costs(struct plan *plan, const struct plan_row *row);
/* Runs the first few layouts that fit, on this machine, and goes on where one fails. */
int plan_measure(struct plan *plan);
/* How near the predictions of those that were measured are. Errors are predicted / measured - 1. */
struct plan_score {
    size_t measured, failed;
    double median_error; /* of the errors without their signs */
    size_t worst;        /* the row with the largest error; its error: */
    double worst_error;
    size_t fastest; /* the row that was measured fastest, and how much longer the first row's steps took: */
    double behind;  /* 0.02: 2% longer */
};
/* False: none was measured. */
bool plan_score(const struct plan *plan, struct plan_score *score);

void plan_print(FILE *stream, const struct plan *plan);
void plan_print_measured(FILE *stream, const struct plan *plan);
int plan_json(const struct plan *plan);
/* The words of `tutti train` for a layout, as the shell reads them. */
enum { PLAN_COMMAND_BYTES = 4096 };
const char *plan_command(const struct plan *plan, const struct plan_row *row, char text[PLAN_COMMAND_BYTES]);
/* "data=2,pipe=2 zero 1 1f1b micro 8" */
enum { PLAN_LAYOUT_BYTES = 192 };
const char *plan_layout_text(const struct plan_row *row, char text[PLAN_LAYOUT_BYTES]);
const char *plan_bytes_text(double bytes, char text[32]);

#endif
