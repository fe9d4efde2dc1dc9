/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated worlds: does what tutti_main does with threads, with tasks of a simulated run.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/sim.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/task.h"
#include "collective/api/api.h"
#include "collective/comm/trace.h"
#include "collective/op/queue.h"
#include "collective/peers/net.h"
#include "collective/peers/posts.h"
#include "transport/sim_transport.h"
#include "world/cluster.h"
#include <errno.h>
#include <time.h>

enum { RANKS_MOST = 65536 };
#define RATE_LEAST 1.0 /* bytes per second */
#define RATE_MOST 1e18
#define TIME_MOST ((int64_t)1000000000000000) /* nanoseconds, eleven days: for one latency, overhead and so on */
#define STACK_LEAST ((size_t)16 << 10)
#define STACK_MOST ((size_t)1 << 30)
#define ADDRESS_SPACE ((int64_t)1 << 45) /* for all arenas together */

struct simulation;

struct sim_rank {
    struct tti_task task;
    struct simulation *simulation;
    struct tti_world *world;
    tutti_comm *comm;
    int rank, local, result; /* local: its number in the world of its host */
    bool ended, lost;
};

struct sim_death {
    struct tti_event event; /* the first member */
    struct sim_rank *rank;
};

struct sim_fault {          /* a stop or a jump */
    struct tti_event event; /* the first member */
    struct simulation *simulation;
    const tutti_sim_fault *fault;
};

struct simulation {
    const tutti_sim_setup *setup;
    tutti_options options;
    char trace[TTI_TRACE_PATH];
    tutti_sim_work *work;
    void *context;
    int size, result;
    struct sim_rank *ranks;
    struct sim_death *deaths;
    struct sim_fault *faults;
    struct tti_sim_network *network; /* NULL: there is one host */
    struct tti_cluster cluster;      /* cluster of all ranks; used if there are several hosts */
    struct tti_hosts layout;
    tutti_status status;
    tutti_error *error;
};

/* ---- Ranks ----------------------------------------------------------------------------------------------------- */

static void *run_rank(void *argument)
{
    struct sim_rank *rank = argument;
    rank->comm->traits.of_main = true;
    rank->result = rank->simulation->work(rank->comm, rank->simulation->context);
    struct simulation *simulation = rank->simulation;
    tutti_status left;
    rank->result = tti_rank_end(rank->comm, rank->result, &left);
    if (left == TUTTI_ERR_SYSTEM && simulation->status == TUTTI_OK)
        simulation->status = tti_error_set(simulation->error, left, 0, "the trace %.200s could not be written",
                                           simulation->trace);
    rank->ended = true;
    return NULL;
}

static void lose(struct sim_rank *rank)
{
    rank->lost = true;
    tti_world_mark(rank->world, rank->local, TTI_RANK_LOST);
    if (rank->simulation->network != NULL) tti_sim_network_drop(rank->simulation->network, rank->rank);
}

static void die(struct tti_event *event)
{
    struct sim_rank *rank = ((struct sim_death *)event)->rank;
    if (rank->ended) return;
    tti_sim_task_kill(rank->task.simulated);
    lose(rank);
}

static void plan_deaths(struct simulation *simulation)
{
    int64_t start = tti_now_ns();
    for (size_t i = 0; i < simulation->setup->death_count; i++) {
        const tutti_sim_death *death = &simulation->setup->deaths[i];
        simulation->deaths[i] = (struct sim_death){.event = {.fire = die, .id = (uint64_t)death->rank << 32},
                                                   .rank = &simulation->ranks[death->rank]};
        tti_sim_at(&simulation->deaths[i].event, start + death->at_ns);
    }
}

static void strike(struct tti_event *event)
{
    const struct sim_fault *at = (const struct sim_fault *)event;
    const tutti_sim_fault *fault = at->fault;
    struct simulation *simulation = at->simulation;
    for (int rank = 0; rank < simulation->size; rank++) {
        int host = rank / simulation->setup->ranks_per_host;
        struct tti_sim_task *task = simulation->ranks[rank].task.simulated;
        if (simulation->ranks[rank].ended || simulation->ranks[rank].lost) continue;
        if (fault->kind == TUTTI_SIM_STOP && fault->from == (uint64_t)rank)
            tti_sim_task_stop(task, tti_sim_now_ns() + fault->for_ns);
        if (fault->kind == TUTTI_SIM_JUMP && host < 64 && (fault->from >> host & 1) != 0)
            tti_sim_task_jump(task, fault->for_ns);
    }
}

static void plan_faults(struct simulation *simulation)
{
    for (size_t i = 0; i < simulation->setup->fault_count; i++) {
        const tutti_sim_fault *fault = &simulation->setup->faults[i];
        if (fault->kind != TUTTI_SIM_STOP && fault->kind != TUTTI_SIM_JUMP) continue;
        simulation->faults[i] = (struct sim_fault){
            .event = {.fire = strike, .id = UINT64_C(9) << 59 | i}, .simulation = simulation, .fault = fault};
        tti_sim_at(&simulation->faults[i].event, tti_sim_now_ns() + fault->at_ns);
    }
}

/* Frees the comm of a rank that died, possibly in the middle of anything. */
static void free_lost(tutti_comm *comm)
{
    tti_queue_abandon(comm);
    if (comm->lanes != NULL) atomic_store_explicit(&comm->lanes->net->lock, 0, memory_order_relaxed);
    tti_comm_destroy(comm);
}

/* Runs the ranks as tasks. Ranks that could not be started are lost to the others. */
static void run_ranks(struct simulation *simulation)
{
    struct sim_rank *ranks = simulation->ranks;
    int started = 0;
    for (; started < simulation->size; started++) {
        simulation->status = tti_task_start(&ranks[started].task, run_rank, &ranks[started], simulation->error);
        if (simulation->status != TUTTI_OK) break;
        tti_sim_task_lead(ranks[started].task.simulated); /* tasks that it starts die with it */
    }
    for (int rank = started; rank < simulation->size; rank++) lose(&ranks[rank]);
    if (started == simulation->size) {
        plan_deaths(simulation);
        plan_faults(simulation);
    }
    for (int rank = 0; rank < started; rank++) tti_task_join(&ranks[rank].task);
    for (size_t i = 0; i < simulation->setup->death_count; i++) tti_sim_cancel(&simulation->deaths[i].event);
    for (size_t i = 0; i < simulation->setup->fault_count; i++) tti_sim_cancel(&simulation->faults[i].event);
    for (int rank = 0; rank < simulation->size; rank++) {
        if (ranks[rank].lost) free_lost(ranks[rank].comm);
        if (simulation->network != NULL)
            tti_sim_network_drop(simulation->network, rank); /* frees comms that the rank did not free */
        if (simulation->result == 0) simulation->result = ranks[rank].result;
    }
}

/* ---- Worlds ---------------------------------------------------------------------------------------------------- */

static tutti_status make_comm(struct sim_rank *rank, tutti_error *error)
{
    struct simulation *simulation = rank->simulation;
    if (simulation->network == NULL) return tti_comm_create_all(rank->world, rank->rank, NULL, &rank->comm, error);
    struct tti_net *net;
    struct tti_transport *transport = tti_sim_network_open(simulation->network, rank->rank);
    tutti_status status = tti_net_create(transport, &net, error);
    if (status != TUTTI_OK) {
        transport->ops->close(transport, 0);
        return status;
    }
    net->cluster = &simulation->cluster; /* the cluster outlasts the net */
    struct tti_here_setup shared = {.hosts = &simulation->layout, .area = rank->world->area, .one_process = true};
    struct tti_comm_setup setup = {.world = rank->world,
                                   .rank = rank->rank,
                                   .size = simulation->size,
                                   .here = simulation->setup->ranks_per_host,
                                   .net = net,
                                   .shared = simulation->cluster.shares ? &shared : NULL};
    status = tti_comm_create_over(&setup, &rank->comm, error);
    tti_net_release(net); /* the comm holds it now */
    return status;
}

static tutti_status make_host(struct simulation *simulation, int host)
{
    int count = simulation->setup->ranks_per_host, made = 0;
    struct sim_rank *ranks = simulation->ranks + host * count;
    struct tti_world *world;
    size_t area_bytes = simulation->network == NULL ? tti_posts_bytes(count, simulation->options.direct == 0)
                                                    : tti_posts_bytes_here(count);
    TTI_TRY(tti_world_threads(count, &simulation->options, NULL, area_bytes, &world, simulation->error));
    tutti_status status = TUTTI_OK;
    for (; made < count && status == TUTTI_OK; made++) {
        ranks[made] = (struct sim_rank){
            .simulation = simulation, .world = world, .rank = host * count + made, .local = made};
        status = make_comm(&ranks[made], simulation->error);
    }
    for (int i = status == TUTTI_OK ? count : made - 1; i < count; i++) tti_world_release(world);
    return status;
}

/* Records which host each rank is on. */
static tutti_status lay_out(struct simulation *simulation)
{
    const tutti_sim_setup *setup = simulation->setup;
    const tutti_options *options = &simulation->options;
    struct tti_cluster *cluster = &simulation->cluster;
    *cluster = (struct tti_cluster){.size = simulation->size, .process_count = 1, .host_count = setup->hosts};
    cluster->ranks_each = simulation->size;
    cluster->shares = setup->ranks_per_host > 1 && options->direct != 0 && options->host_aware != 0;
    cluster->ranks = tti_calloc((size_t)simulation->size, sizeof *cluster->ranks);
    cluster->host_names = tti_calloc((size_t)setup->hosts, sizeof *cluster->host_names);
    int *host_of = tti_calloc((size_t)simulation->size, sizeof *host_of);
    bool made = cluster->ranks != NULL && cluster->host_names != NULL && host_of != NULL;
    for (int rank = 0; made && rank < simulation->size; rank++) {
        int host = host_of[rank] = rank / setup->ranks_per_host;
        cluster->ranks[rank] = (struct tti_cluster_rank){
            .host = host, .first = host, .machine = host, .local = rank % setup->ranks_per_host};
        snprintf(cluster->host_names[host], TTI_CLUSTER_HOST, "host%d", host);
    }
    if (made && cluster->shares) made = tti_hosts_make(&simulation->layout, host_of, simulation->size) == TUTTI_OK;
    tti_free(host_of);
    if (made) return TUTTI_OK;
    return tti_error_set(simulation->error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for %d simulated ranks",
                         simulation->size);
}

static tutti_status make_hosts(struct simulation *simulation)
{
    const tutti_sim_setup *setup = simulation->setup;
    if (setup->hosts > 1) TTI_TRY(lay_out(simulation));
    if (setup->hosts > 1)
        TTI_TRY(tti_sim_network_create(setup->hosts, setup->ranks_per_host, 1e9 / setup->link_bytes_per_s,
                                       setup->link_latency_ns, &simulation->network, simulation->error));
    if (setup->hosts > 1 && setup->fault_count > 0)
        TTI_TRY(tti_sim_network_disturb(simulation->network, setup->faults, setup->fault_count,
                                        simulation->options.heartbeat_ms, simulation->error));
    for (int host = 0; host < setup->hosts; host++) TTI_TRY(make_host(simulation, host));
    return TUTTI_OK;
}

static void *run_world(void *argument)
{
    struct simulation *simulation = argument;
    simulation->status = make_hosts(simulation);
    if (simulation->status == TUTTI_OK)
        run_ranks(simulation);
    else
        for (int rank = 0; rank < simulation->size; rank++) tti_comm_destroy(simulation->ranks[rank].comm);
    tti_sim_network_free(simulation->network);
    tti_hosts_free(&simulation->layout);
    tti_free(simulation->cluster.host_names);
    tti_free(simulation->cluster.ranks);
    return NULL;
}

/* ---- The run --------------------------------------------------------------------------------------------------- */

void tutti_sim_setup_init(tutti_sim_setup *setup)
{
    *setup = (tutti_sim_setup){.struct_size = sizeof *setup,
                               .seed = 1,
                               .hosts = 1,
                               .ranks_per_host = 1,
                               .link_bytes_per_s = 12.5e9,
                               .link_latency_ns = 5000,
                               .local_bytes_per_s = 10e9,
                               .local_latency_ns = 200,
                               .overhead_ns = 100};
}

static tutti_status check_rate(const char *what, double bytes_per_s, tutti_error *error)
{
    if (bytes_per_s >= RATE_LEAST && bytes_per_s <= RATE_MOST) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "simulation: %s is %g; it takes %g to %g bytes per second", what,
                         bytes_per_s, RATE_LEAST, RATE_MOST);
}

static tutti_status check_time(const char *what, int64_t ns, tutti_error *error)
{
    if (ns >= 0 && ns <= TIME_MOST) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "simulation: %s is %lld; it takes 0 to %lld nanoseconds", what,
                         (long long)ns, (long long)TIME_MOST);
}

static tutti_status check_figures(const tutti_sim_setup *setup, tutti_error *error)
{
    TTI_TRY(check_rate("link_bytes_per_s", setup->link_bytes_per_s, error));
    TTI_TRY(check_rate("local_bytes_per_s", setup->local_bytes_per_s, error));
    TTI_TRY(check_time("link_latency_ns", setup->link_latency_ns, error));
    TTI_TRY(check_time("local_latency_ns", setup->local_latency_ns, error));
    TTI_TRY(check_time("overhead_ns", setup->overhead_ns, error));
    TTI_TRY(check_time("noise_ns", setup->noise_ns, error));
    if (setup->stack_bytes == 0 || (setup->stack_bytes >= STACK_LEAST && setup->stack_bytes <= STACK_MOST))
        return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "simulation: stack_bytes is %zu; it takes %zu to %zu, or 0 for the usual size",
                         setup->stack_bytes, STACK_LEAST, STACK_MOST);
}

static tutti_status check_tables(const tutti_sim_setup *setup, tutti_error *error)
{
    const char *missing = setup->copy == NULL && setup->copy_count > 0      ? "copy"
                          : setup->delay == NULL && setup->delay_count > 0  ? "delay"
                          : setup->deaths == NULL && setup->death_count > 0 ? "deaths"
                          : setup->faults == NULL && setup->fault_count > 0 ? "faults"
                                                                            : NULL;
    if (missing == NULL) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "simulation: `%s` is NULL, and its count is not 0", missing);
}

static tutti_status check_deaths(const tutti_sim_setup *setup, tutti_error *error)
{
    for (size_t i = 0; i < setup->death_count; i++) {
        int rank = setup->deaths[i].rank;
        TTI_TRY(check_time("deaths[].at_ns", setup->deaths[i].at_ns, error));
        if (rank < 0 || rank >= setup->hosts * setup->ranks_per_host)
            return tti_error_set(error, TUTTI_ERR_RANK, 0, "simulation: rank %d, which is to die at %lld ns, is none",
                                 rank, (long long)setup->deaths[i].at_ns);
    }
    return TUTTI_OK;
}

static tutti_status check_fault(const tutti_sim_setup *setup, const tutti_sim_fault *fault, tutti_error *error)
{
    uint64_t size = (uint64_t)setup->hosts * (uint64_t)setup->ranks_per_host;
    bool connects = fault->kind == TUTTI_SIM_CUT || fault->kind == TUTTI_SIM_BREAK;
    bool back = fault->kind == TUTTI_SIM_JUMP && fault->for_ns < 0 && fault->for_ns >= -TIME_MOST;
    TTI_TRY(check_time("faults[].at_ns", fault->at_ns, error));
    TTI_TRY(check_time("faults[].for_ns", back ? -fault->for_ns : fault->for_ns, error));
    if ((int)fault->kind < TUTTI_SIM_CUT || fault->kind > TUTTI_SIM_JUMP)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "simulation: fault kind %d is none", (int)fault->kind);
    if (connects && setup->hosts == 1)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "simulation: connections end between hosts, and there is only one");
    if ((fault->kind == TUTTI_SIM_BREAK && (fault->to >= size || fault->to == fault->from)) ||
        (fault->kind != TUTTI_SIM_CUT && fault->kind != TUTTI_SIM_JUMP && fault->from >= size))
        return tti_error_set(
            error, TUTTI_ERR_RANK, 0, "simulation: a fault of ranks %llu and %llu; there are 0 to %llu",
            (unsigned long long)fault->from, (unsigned long long)fault->to, (unsigned long long)size - 1);
    return TUTTI_OK;
}

static tutti_status check_points(const tutti_sim_setup *setup, tutti_error *error)
{
    for (size_t i = 0; i < setup->copy_count; i++) {
        const tutti_sim_point *point = &setup->copy[i];
        TTI_TRY(check_time("copy[].ns", point->ns, error));
        if (i > 0 && (point->bytes <= point[-1].bytes || point->ns < point[-1].ns))
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                                 "simulation: copying %llu bytes takes %lld ns; sizes must grow, and times not shrink",
                                 (unsigned long long)point->bytes, (long long)point->ns);
    }
    for (size_t i = 0; i < setup->delay_count; i++) {
        const tutti_sim_point *point = &setup->delay[i];
        TTI_TRY(check_time("delay[].ns", point->ns, error));
        if (i > 0 && point->bytes <= point[-1].bytes)
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                                 "simulation: %llu bytes are delayed by %lld ns; sizes must grow",
                                 (unsigned long long)point->bytes, (long long)point->ns);
    }
    return TUTTI_OK;
}

static tutti_status check(const tutti_sim_setup *setup, tutti_sim_work *work, tutti_error *error)
{
    if (setup == NULL || work == NULL || setup->struct_size != sizeof *setup)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "simulation: `setup` and `work` must be there; use tutti_sim_setup_init");
    if (setup->hosts < 1 || setup->ranks_per_host < 1 || setup->hosts > RANKS_MOST / setup->ranks_per_host)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "simulation: %d hosts with %d ranks each; there can be 1 to %d ranks", setup->hosts,
                             setup->ranks_per_host, RANKS_MOST);
    TTI_TRY(check_figures(setup, error));
    TTI_TRY(check_tables(setup, error));
    TTI_TRY(check_points(setup, error));
    for (size_t i = 0; i < setup->fault_count; i++) TTI_TRY(check_fault(setup, &setup->faults[i], error));
    return check_deaths(setup, error);
}

/* Reads the options, and bounds the arenas: these only reserve addresses, but addresses are limited, too. */
static tutti_status read_options(struct simulation *simulation)
{
    const tutti_sim_setup *setup = simulation->setup;
    if (setup->options != NULL)
        simulation->options = *setup->options;
    else
        TTI_TRY(tutti_options_init(&simulation->options, simulation->error));
    TTI_TRY(tti_options_check(&simulation->options, simulation->error));
    int64_t *bytes = &simulation->options.arena_bytes, most = ADDRESS_SPACE / setup->hosts;
    if (*bytes == 0) *bytes = (int64_t)tti_arena_default_bytes(setup->hosts);
    if (*bytes > most) *bytes = most;
    TTI_TRY(tti_trace_prepare(simulation->options.trace, simulation->trace, simulation->error));
    simulation->options.trace = simulation->trace;
    return TUTTI_OK;
}

static bool inspect(void *context, uint64_t plans)
{
    const struct simulation *simulation = context;
    return simulation->setup->inspect(simulation->context, plans);
}

static tutti_status run(struct simulation *simulation, tutti_sim_report *report)
{
    const tutti_sim_setup *setup = simulation->setup;
    struct tti_sim_setup base = {.seed = setup->seed,
                                 .local_ns_per_byte = 1e9 / setup->local_bytes_per_s,
                                 .local_latency_ns = setup->local_latency_ns,
                                 .overhead_ns = setup->overhead_ns,
                                 .copy = setup->copy,
                                 .copy_count = setup->copy_count,
                                 .delay = setup->delay,
                                 .delay_count = setup->delay_count,
                                 .noise_ns = setup->noise_ns,
                                 .sizes_only = setup->sizes_only,
                                 .stack_bytes = setup->stack_bytes,
                                 .limit_ms = setup->limit_ms,
                                 .inspect_ns = setup->inspect_ns,
                                 .inspect = setup->inspect == NULL ? NULL : inspect,
                                 .inspect_context = simulation};
    struct tti_sim_totals totals = {0};
    TTI_TRY(tti_sim_run(&base, run_world, simulation, &totals, simulation->error));
    const tutti_sim_report known = {
        .result = simulation->result, .time_ns = totals.time_ns, .events = totals.events, .trace = totals.trace};
    if (report != NULL) tti_sized_give(report, &known, sizeof known);
    return simulation->status;
}

tutti_status tutti_sim_run(const tutti_sim_setup *setup, tutti_sim_work *work, void *context, tutti_sim_report *report,
                           tutti_error *error)
{
    tutti_error unwanted;
    if (error == NULL) error = &unwanted;
    *error = (tutti_error){.peer = -1};
    TTI_TRY(check(setup, work, error));
    if (report != NULL && report->struct_size < sizeof report->struct_size)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "sim: set the report's struct_size to sizeof(tutti_sim_report) before the run");
    struct simulation simulation = {.setup = setup, .work = work, .context = context, .error = error};
    simulation.size = setup->hosts * setup->ranks_per_host;
    TTI_TRY(read_options(&simulation));
    simulation.ranks = tti_calloc((size_t)simulation.size, sizeof *simulation.ranks);
    simulation.deaths = tti_calloc(setup->death_count + 1, sizeof *simulation.deaths);
    tutti_status status = TUTTI_ERR_MEMORY;
    simulation.faults = tti_calloc(setup->fault_count + 1, sizeof *simulation.faults);
    if (simulation.ranks != NULL && simulation.deaths != NULL && simulation.faults != NULL)
        status = run(&simulation, report);
    else
        tti_error_set(error, status, ENOMEM, "no memory for %d simulated ranks", simulation.size);
    tti_free(simulation.faults);
    tti_free(simulation.deaths);
    tti_free(simulation.ranks);
    return status;
}

int64_t tutti_clock_ns(void)
{
    return tti_now_ns();
}

int64_t tutti_sim_time_ns(void)
{
    return tti_sim != NULL ? tti_sim_now_ns() : tti_now_ns();
}

void tutti_spend_ns(int64_t ns)
{
    if (ns <= 0) return;
    if (tti_sim != NULL) {
        tti_sim_sleep(ns);
        return;
    }
    int64_t until = tti_now_ns() + ns;
    for (int64_t left = ns; left > 0; left = until - tti_now_ns()) {
        struct timespec time = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        nanosleep(&time, NULL);
    }
}
