/* SPDX-License-Identifier: Apache-2.0
 *
 * Estimates all layouts from times that were measured here (plan_costs.c). Links are those of tutti sim, scaled by the
 * time that each kind of transfer takes here.
 */
#include "cli/cli_plan.h"
#include "cli/cli_sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POINTS = 4 };

/* ---- Links ------------------------------------------------------------------------------------------------------- */

static const size_t sizes[POINTS] = {256, 16 << 10, 1 << 20, 64 << 20};
static const char *const op_names[TUTTI_TRAIN_OPS] = {[TUTTI_TRAIN_ALL_REDUCE] = "all_reduce",
                                                      [TUTTI_TRAIN_REDUCE_SCATTER] = "reduce_scatter",
                                                      [TUTTI_TRAIN_ALL_GATHER] = "all_gather",
                                                      [TUTTI_TRAIN_ALL_TO_ALL] = "all_to_all",
                                                      [TUTTI_TRAIN_SEND] = "ping_pong"};

/* Simulated times of transfers, once for each operation, number of ranks and hosts, and number of transfers that share
 * a host's link. */
static struct link {
    tutti_train_op op;
    int ranks, hosts, sharing;
    double seconds[POINTS];
} * links;
static size_t link_count, link_room;
static struct sim_case link_case;
static const struct plan_costs *measured;
static double scales[TUTTI_TRAIN_OPS][2]; /* for small and large transfers: measured over simulated time */
static int link_status = CLI_GO_ON;       /* status of the first one that could not be simulated */

static int read_links(const struct plan_values *values)
{
    const struct sim_values flags = {.hosts = 1,
                                     .ranks_per_host = 2,
                                     .seed = 1,
                                     .limit_ms = 60000,
                                     .link = "100G:5us",
                                     .local = "10G:200ns",
                                     .overhead = "100ns",
                                     .noise = "0ns",
                                     .copy = "",
                                     .links = values->links};
    link_case = (struct sim_case){.type = TUTTI_F32, .reduction = TUTTI_SUM};
    return sim_read_setup("plan", &flags, &link_case);
}

/* Simulates a transfer. Transfers that share a host's link have an equal part of it each. */
static double simulate(const tutti_train_transfer *transfer)
{
    struct sim_prediction prediction = {0};
    struct sim_case one = link_case;
    one.op = bench_op_find(op_names[transfer->op]);
    one.setup.hosts = transfer->hosts;
    one.setup.ranks_per_host = (transfer->ranks + transfer->hosts - 1) / transfer->hosts;
    one.setup.link_bytes_per_s /= transfer->sharing;
    one.bytes = bench_whole_bytes(one.op, TUTTI_F32, one.setup.hosts * one.setup.ranks_per_host, transfer->bytes);
    int status = sim_predict_chosen(&one, &prediction);
    if (status == CLI_GO_ON && prediction.too_large) status = cli_fail("plan", "%s", prediction.why);
    if (link_status == CLI_GO_ON) link_status = status;
    return status == CLI_GO_ON ? (double)prediction.time_ns * 1e-9 : 0;
}

static bool is_like(const struct link *link, const tutti_train_transfer *transfer)
{
    return link->op == transfer->op && link->ranks == transfer->ranks && link->hosts == transfer->hosts &&
           link->sharing == transfer->sharing;
}

/* Returns NULL if there is no memory. */
static const struct link *find_link(const tutti_train_transfer *transfer)
{
    for (size_t i = 0; i < link_count; i++)
        if (is_like(&links[i], transfer)) return &links[i];
    if (link_count == link_room) {
        const size_t room = 2 * link_room + 16;
        struct link *more = realloc(links, room * sizeof *links);
        if (more == NULL) return NULL;
        links = more;
        link_room = room;
    }
    struct link *link = &links[link_count++];
    *link = (struct link){transfer->op, transfer->ranks, transfer->hosts, transfer->sharing, {0}};
    for (int i = 0; i < POINTS && link_status == CLI_GO_ON; i++) {
        tutti_train_transfer sized = *transfer;
        sized.bytes = sizes[i];
        link->seconds[i] = simulate(&sized);
    }
    return link;
}

/* Interpolates linearly between the sizes that were simulated, and beyond them. */
static double link_seconds(void *context, const tutti_train_transfer *transfer)
{
    (void)context;
    const size_t bytes = transfer->bytes;
    const struct link *link = find_link(transfer);
    if (link == NULL && link_status == CLI_GO_ON) link_status = cli_fail("plan", "out of memory");
    if (link_status != CLI_GO_ON) return 0;
    int at = 0;
    while (at + 2 < POINTS && bytes > sizes[at + 1]) at++;
    const double part = ((double)bytes - (double)sizes[at]) / (double)(sizes[at + 1] - sizes[at]);
    const double seconds = link->seconds[at] + part * (link->seconds[at + 1] - link->seconds[at]);
    const double large = fmin(fmax(log((double)bytes / PLAN_SMALL) / log((double)PLAN_LARGE / PLAN_SMALL), 0), 1);
    return fmax(seconds, 0) * pow(scales[transfer->op][0], 1 - large) * pow(scales[transfer->op][1], large);
}

/* Scales links to measured times. A file of links is used as it is. */
static void scale_links(const struct plan_values *values)
{
    const size_t ends[2] = {PLAN_SMALL, PLAN_LARGE};
    for (tutti_train_op op = 0; op < TUTTI_TRAIN_OPS; op++)
        for (int i = 0; i < 2; i++) {
            const int ranks = op == TUTTI_TRAIN_SEND ? 2 : measured->ranks;
            const double took = measured->transfers[op][i];
            scales[op][i] = 1;
            if (values->links[0] != '\0' || took <= 0) continue;
            const double made_up = simulate(&(tutti_train_transfer){op, ranks, 1, 1, ends[i]});
            if (made_up > 0) scales[op][i] = took / made_up;
        }
}

/* ---- Layouts ----------------------------------------------------------------------------------------------------- */

void plan_set_costs(struct plan *plan, const struct plan_row *row)
{
    const struct plan_width *width = &measured->widths[0];
    for (size_t i = 0; i < measured->width_count; i++)
        if (measured->widths[i].tensor == row->layout.tensor) width = &measured->widths[i];
    plan->costs = (tutti_train_costs){.struct_size = sizeof plan->costs,
                                      .units = width->units,
                                      .unit_count = width->count,
                                      .further = width->further,
                                      .step = measured->step,
                                      .update = measured->update,
                                      .add = measured->add,
                                      .link = link_seconds,
                                      .cores = plan->shared,
                                      .ranks_per_host = (int)(plan->values->ranks / plan->values->hosts)};
}

static void estimate_row(struct plan *plan, struct plan_row *row)
{
    tutti_error error;
    plan_set_costs(plan, row);
    row->status = tutti_train_estimate_layout(&row->options, (int)plan->values->ranks, &plan->costs, &row->estimate,
                                              &error);
    if (row->status != TUTTI_OK) (void)snprintf(row->why, sizeof row->why, "%s", error.text);
    row->options.stages = row->estimate.stages;
    row->fits = row->status == TUTTI_OK &&
                (plan->values->memory == 0 || row->estimate.bytes <= (size_t)plan->values->memory);
}

static int class_of(const struct plan_row *row)
{
    return row->status != TUTTI_OK ? 2 : row->fits ? 0 : 1;
}

/* Orders rows: the fastest first, of equally fast ones the one that needs least memory; those that do not fit by the
 * memory they need. */
static int compare_rows(const void *a, const void *b)
{
    const struct plan_row *x = a, *y = b;
    if (class_of(x) != class_of(y)) return class_of(x) - class_of(y);
    const double seconds = x->estimate.seconds - y->estimate.seconds;
    const bool less = x->estimate.bytes<y->estimate.bytes, more = x->estimate.bytes> y->estimate.bytes;
    if (class_of(x) == 0 && seconds != 0) return seconds < 0 ? -1 : 1;
    return less ? -1 : more;
}

/* Points a row's options to texts in the row itself, after sorting has moved it. */
static void settle(struct plan_row *row)
{
    row->options.mesh = row->mesh;
    row->options.stages = row->estimate.stages;
}

static int list_rows(const struct plan_values *values, struct plan *plan)
{
    const size_t count = tutti_train_layouts(&values->options, (int)values->ranks, NULL, 0);
    tutti_train_layout *layouts = calloc(count + 1, sizeof *layouts);
    plan->rows = calloc(count + 1, sizeof *plan->rows);
    if (layouts == NULL || plan->rows == NULL) {
        free(layouts);
        return cli_fail("plan", "out of memory for %zu layouts", count);
    }
    plan->count = tutti_train_layouts(&values->options, (int)values->ranks, layouts, count);
    for (size_t i = 0; i < plan->count; i++) {
        plan->rows[i].layout = layouts[i];
        plan->rows[i].options = values->options;
        tutti_train_layout_set(&layouts[i], plan->rows[i].mesh, &plan->rows[i].options);
    }
    free(layouts);
    return CLI_GO_ON;
}

int plan_estimate(const struct plan_values *values, struct plan *plan)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *plan = (struct plan){.values = values, .cores = cores < 1 ? 1 : (int)cores};
    plan->shared = values->cores > 0 || values->measure == 0 ? (int)values->cores : plan->cores;
    int status = list_rows(values, plan);
    if (status == CLI_GO_ON) status = read_links(values);
    if (status == CLI_GO_ON) status = plan_measure_costs(values, plan, &measured);
    if (status != CLI_GO_ON) return status;
    scale_links(values);
    for (size_t i = 0; i < plan->count && link_status == CLI_GO_ON; i++) estimate_row(plan, &plan->rows[i]);
    if (link_status != CLI_GO_ON) return link_status;
    qsort(plan->rows, plan->count, sizeof *plan->rows, compare_rows);
    for (size_t i = 0; i < plan->count; i++) {
        settle(&plan->rows[i]);
        plan->fitting += class_of(&plan->rows[i]) == 0;
        plan->possible += class_of(&plan->rows[i]) < 2;
    }
    return CLI_GO_ON;
}
