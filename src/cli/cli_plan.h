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
    tutti_train_options options; /* what is planned: with a vocabulary, and without data if that is enough */
    int64_t ranks, hosts, memory, measure, spread, show, cores;
    const char *json, *picture, *links;
    const char *data; /* as given */
};

/* One layout and its figures. */
struct plan_row {
    tutti_train_layout layout;
    tutti_train_options options; /* with this layout */
    char mesh[TUTTI_TRAIN_MESH_BYTES];
    tutti_status status; /* OK, or the trainer refuses the layout, for the reason in `why` */
    char why[sizeof((tutti_error *)0)->text];
    tutti_train_estimate estimate;
    bool fits;
    double measured;  /* seconds of a step; 0: not measured */
    char failed[256]; /* last error message of its run; "": it was not run, or did not fail */
};

struct plan {
    const struct plan_values *values;
    /* those that fit, fastest first; then those that do not, by the memory they need; then refused ones */
    struct plan_row *rows;
    size_t count, fitting, possible; /* possible: all that were not refused */
    tutti_train_costs costs;         /* for the current layout */
    int cores;                       /* cores of this machine */
    int shared;                      /* cores that all ranks share; 0: there are enough for each */
};

enum { PLAN_UNITS = 4096, PLAN_WIDTHS = 16, PLAN_SMALL = 256, PLAN_LARGE = 4 << 20 };

/* Times of the model's layers when so many ranks share the width. */
struct plan_width {
    int tensor;
    size_t count;
    tutti_pipeline_times units[PLAN_UNITS], further; /* as in tutti_train_costs */
};

/* Times measured here, in seconds. */
struct plan_costs {
    struct plan_width widths[PLAN_WIDTHS];
    size_t width_count;
    double update, add, step;             /* as in tutti_train_costs */
    double transfers[TUTTI_TRAIN_OPS][2]; /* of PLAN_SMALL and PLAN_LARGE bytes; 0: there is one rank */
    int ranks;                            /* how many ranks measured it */
    tutti_error error;                    /* set if no layers could be measured */
};

/* Measures the layers for the plan's rows, and everything else. Returns a tool's exit status, or CLI_GO_ON. */
int plan_measure_costs(const struct plan_values *values, const struct plan *plan, const struct plan_costs **costs);
/* Estimates all layouts. Returns a tool's exit status, or CLI_GO_ON. The caller frees the rows. */
int plan_estimate(const struct plan_values *values, struct plan *plan);
/* Sets plan->costs for one layout. */
void plan_set_costs(struct plan *plan, const struct plan_row *row);
/* Runs the first few layouts that fit, on this machine, and continues if one fails. */
int plan_measure(struct plan *plan);
/* How accurate the predictions of the measured layouts are. Errors are predicted / measured - 1. */
struct plan_score {
    size_t measured, failed;
    double median_error; /* median of the errors without their signs */
    size_t worst;        /* the row with the largest error, which follows */
    double worst_error;
    size_t fastest; /* the row that was measured fastest; `behind` says how much longer steps of the first row took */
    double behind;  /* 0.02: 2% longer */
};
/* Returns false if none was measured. */
bool plan_score(const struct plan *plan, struct plan_score *score);

void plan_print(FILE *stream, const struct plan *plan);
void plan_print_measured(FILE *stream, const struct plan *plan);
int plan_json(const struct plan *plan);
/* Returns the `tutti train` command for a layout, quoted for the shell. */
enum { PLAN_COMMAND_BYTES = 4096 };
const char *plan_command(const struct plan *plan, const struct plan_row *row, char text[PLAN_COMMAND_BYTES]);
/* Returns a text such as "data=2,pipe=2 zero 1 1f1b micro 8". */
enum { PLAN_LAYOUT_BYTES = 192 };
const char *plan_layout_text(const struct plan_row *row, char text[PLAN_LAYOUT_BYTES]);
const char *plan_bytes_text(double bytes, char text[32]);

#endif
