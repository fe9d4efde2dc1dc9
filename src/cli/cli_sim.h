/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti sim, in parts:
 *   cli_sim.c          flags, what is run
 *   sim_setup.c    rates and times as people write them, figures of links from a file
 *   sim_predict.c  the algorithms, and one simulated run of one of them
 *   sim_report.c   the tables, the JSON lines and the picture
 *   sim_faults.h   instead of a prediction: programs whose ranks die
 */
#ifndef TUTTI_CLI_CLI_SIM_H
#define TUTTI_CLI_CLI_SIM_H

#include "cli/bench.h"

struct sim_values { /* the flags, as given */
    bool sweep, faults;
    int64_t hosts, ranks_per_host, bytes, seed, seeds, root, limit_ms;
    const char *link, *local, *overhead, *noise, *type, *reduction, *json, *svg, *buffers, *copy, *links, *ranks,
        *plant;
};

enum { SIM_MAX_POINTS = 32, SIM_LINE = 1024 };

/* Costs of moving data. */
struct sim_costs {
    double local_bytes_per_s;
    int64_t local_latency_ns;
    tutti_sim_point copy[SIM_MAX_POINTS];
    size_t copy_count;
    tutti_sim_point delay[SIM_MAX_POINTS];
    size_t delay_count;
};

/* What is predicted. */
struct sim_case {
    const struct bench_op *op;
    tutti_type type;
    tutti_reduction reduction;
    int root;
    bool private_buffers;
    size_t bytes;
    tutti_sim_setup setup; /* without the costs of moving data, which follow */
    struct sim_costs near, far;
    size_t far_bytes; /* `far` holds for this size and larger ones; 0: never */
};

/* Returns the setup with the costs for the case's size. */
tutti_sim_setup sim_setup_of(const struct sim_case *c);

enum { SIM_MAX_ALGORITHMS = 16 };

/* The time that one algorithm takes. */
struct sim_prediction {
    const char *name, *help; /* of the algorithm; NULL: the library's choice */
    int64_t time_ns;
    uint64_t trace, events;
    double real_s;      /* real time that simulating it took */
    int64_t peak_bytes; /* memory that simulating it took */
    bool too_large;     /* it cannot be simulated with the time and memory there is; `why` says more */
    char why[480];
};

/* Reads the hosts and links. Returns a tool's exit status, or CLI_GO_ON. */
int sim_read_setup(const char *command, const struct sim_values *flags, struct sim_case *c);
int sim_predict_chosen(const struct sim_case *c, struct sim_prediction *chosen);
/* Predicts all algorithms that this operation can use here, each once. *chosen: the one that the library chooses, or
 * -1. */
int sim_predict_all(const struct sim_case *c, struct sim_prediction *predictions, size_t *count, int *chosen);

/* ---- Reporting --------------------------------------------------------------------------------------------------- */

struct sim_cell { /* one cell of a sweep */
    int hosts;
    size_t bytes;
    struct sim_prediction chosen;
};

int sim_open(const char *path, FILE **stream); /* "": NULL; "-": stdout. Returns an exit status, or CLI_GO_ON */
int sim_close(const char *path, FILE *stream);
bool sim_has_size(const struct sim_case *c);            /* false for a barrier */
const char *sim_time_text(int64_t ns, char text[32]);   /* such as "12.3 us" */
const char *sim_size_text(size_t bytes, char text[32]); /* such as "64 KiB" */
void sim_report_all(FILE *stream, const struct sim_case *c, const struct sim_prediction *predictions, size_t count,
                    int chosen);
/* Prints a sweep: a column for each number of hosts, a row for each size; `cells` are row by row. */
void sim_report_sweep(FILE *stream, const struct sim_case *c, const struct sim_cell *cells, size_t rows,
                      size_t columns);
void sim_json(FILE *stream, const struct sim_case *c, const struct sim_prediction *prediction, bool is_chosen);
void sim_svg(FILE *stream, const struct sim_case *c, const struct sim_cell *cells, size_t rows, size_t columns);

#endif
