/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements joining and leaving, and tutti_main, which does both.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/latest.h"
#include "base/log.h"
#include "base/status.h"
#include "base/task.h"
#include "collective/api/heal.h"
#include "collective/comm/epoch.h"
#include "collective/comm/trace.h"
#include "collective/op/callback.h"
#include "collective/peers/net.h"
#include "collective/peers/posts.h"
#include "device/open.h"
#include "transport/socket.h"
#include "world/board.h"
#include "world/cluster.h"
#include "world/launch.h"
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* ---- Joining --------------------------------------------------------------------------------------------------- */

static tutti_status stillborn(const tutti_error *error, tutti_comm **world)
{
    tutti_error named = *error;
    snprintf(named.operation, sizeof named.operation, "join");
    *world = tti_comm_stillborn(&named);
    return error->status;
}

static bool needs_bounce(const tutti_options *options, bool processes)
{
    return processes || options->direct == 0;
}

static tutti_status read_options(tutti_options *options, int rank, tutti_error *error)
{
    tutti_status status = tutti_options_init(options, error);
    error->rank = rank;
    error->peer = -1;
    if (status != TUTTI_OK) return status;
    TTI_TRY(tti_options_check(options, error));
    tti_log_set_level_name(options->log);
    return TUTTI_OK;
}

/* Warns of variables that look like misspelt options, which would be ignored otherwise; done once, by the first process
 * of the job. */
static void tell_strays(const tutti_launch *launch)
{
    static atomic_bool told;
    tutti_stray_option stray;
    if (launch->rank > 0 || atomic_exchange_explicit(&told, true, memory_order_relaxed)) return;
    for (size_t place = 0; tutti_options_stray(&place, &stray);) {
        bool near = stray.nearest[0] != '\0';
        tti_log(TUTTI_WARN, near ? "%s is set, but is no option; did you mean %s?" : "%s is set, but is no option",
                stray.name, stray.nearest);
    }
}

static tutti_status check_identity(const struct tti_cluster_launch *member, tutti_error *error)
{
    int rank = member->process, count = member->process_count;
    if (member->job == NULL || member->job[0] == '\0')
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the job has no name; all ranks must give the same one");
    size_t most = sizeof((struct tti_cluster *)NULL)->job - 1;
    if (strlen(member->job) > most)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the job's name is longer than %zu bytes", most);
    if (count < 1 || count > 65536)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a world of %d ranks: the size goes from 1 to 65536", count);
    if (rank < 0 || rank >= count)
        return tti_error_set(error, TUTTI_ERR_RANK, 0, "rank %d of a world of %d: ranks go from 0 to %d", rank, count,
                             count - 1);
    if (member->ranks_each > 65536 / count)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "%d processes of %d ranks each (TUTTI_RANKS): the size goes from 1 to 65536", count,
                             member->ranks_each);
    return TUTTI_OK;
}

static size_t area_size(const tutti_options *options, int ranks, bool processes)
{
    return tti_posts_bytes(ranks, needs_bounce(options, processes));
}

enum { PAIRED_BYTES = 512 << 10 };

/* Takes over rank 0's table, except for what each host decides for itself. */
static void agree_on_tuning(tutti_comm *comm, const struct tti_cluster *cluster)
{
    tutti_tuning own = comm->tuning;
    comm->tuning = cluster->tuning;
    comm->tuning.one_shot = own.one_shot;
    comm->tuning.staged = own.staged;
    comm->tuning.stream = own.stream;
    comm->tuning.stream_to_all = own.stream_to_all;
    if (cluster->crowded && comm->tuning.message_paired == 0) comm->tuning.message_paired = PAIRED_BYTES;
}

/* Makes a comm of all ranks over several hosts. */
static tutti_status create_over(struct tti_cluster *cluster, const struct tti_cluster_local_rank *local_rank,
                                const tutti_comm *before, struct tti_net *net, tutti_comm **comm, tutti_error *error)
{
    struct tti_here_setup shared = {.area = local_rank->world->area,
                                    .one_process = local_rank->world->process_count == 1};
    struct tti_comm_setup setup = {.world = local_rank->world,
                                   .rank = local_rank->rank,
                                   .size = cluster->size,
                                   .here = tti_cluster_here(cluster, local_rank->rank),
                                   .parent = before,
                                   .next_epoch = before != NULL,
                                   .net = net};
    bool together = cluster->shares && cluster->host_count < cluster->size;
    int *host_of = together ? tti_calloc((size_t)cluster->size, sizeof *host_of) : NULL;
    if (together && host_of == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a comm of %d ranks", cluster->size);
    for (int rank = 0; rank < cluster->size && together; rank++) host_of[rank] = cluster->ranks[rank].host;
    shared.host_of = host_of;
    if (together) setup.shared = &shared;
    tutti_status status = tti_comm_create_over(&setup, comm, error);
    if (status == TUTTI_OK) agree_on_tuning(*comm, cluster);
    tti_free(host_of);
    return status;
}

static void release_cluster(void *cluster)
{
    tti_cluster_release(cluster);
}

tutti_status tti_join_sit_down(struct tti_cluster *cluster, int index, const tutti_comm *before, tutti_comm **comm,
                               tutti_error *error)
{
    const struct tti_cluster_local_rank copy = cluster->local_ranks[index],
                                        *local_rank = &copy; /* the cluster may be freed before the comm */
    struct tti_net *net = NULL;
    tutti_status status;
    if (local_rank->transport == NULL) {
        status = tti_comm_create_all(local_rank->world, local_rank->rank, before, comm, error);
        /* the others have joined already: tell them that this rank is lost */
        if (status != TUTTI_OK) tti_world_mark(local_rank->world, local_rank->rank, TTI_RANK_LOST);
        tti_cluster_release(cluster);
    } else if ((status = tti_net_create(local_rank->transport, &net, error)) == TUTTI_OK) {
        net->cluster = cluster;
        net->release = release_cluster;
        status = create_over(cluster, local_rank, before, net, comm, error);
        tti_net_release(net); /* the comm holds it now */
    } else {
        local_rank->transport->ops->close(local_rank->transport, 0);
        tti_cluster_release(cluster);
    }
    if (status != TUTTI_OK) tti_world_release(local_rank->world);
    return status;
}

/* Returns true if the join begins anew. It may have failed because a process died that the launcher is about to start
 * again; then all begin anew. */
static bool begins_anew(const struct tti_board *board, tutti_error *error)
{
    enum { MOVES_MS = 2000 };
    int64_t until_ns = tti_now_ns() + MOVES_MS * INT64_C(1000000);
    while (!tti_board_moved(board)) {
        if (tti_board_excluded(board) || tti_board_ended(board, 0) >= 0) {
            tti_board_check(board, error);
            return false;
        }
        if (tti_now_ns() >= until_ns) return false;
        tti_poll(NULL, 0, 1);
    }
    return true;
}

/* Fills in the epoch and timeout of a process that the launcher has started again, or whose world is rebuilt. */
static void prepare_sequel(struct tti_sequel *sequel, const struct tti_board *board, const tutti_options *options)
{
    sequel->generation = board->generation;
    if (sequel->generation > 0 && sequel->epoch < tti_board_epochs(board)) sequel->epoch = tti_board_epochs(board);
    if (sequel->generation == 0 || sequel->timeout_ms > 0) return;
    sequel->timeout_ms = options->deadline_ms; /* the others come after an op of theirs has failed */
    if (sequel->timeout_ms < options->join_timeout_ms) sequel->timeout_ms = options->join_timeout_ms;
}

/* Returns the address of process 0, which waits on another host if its first one was lost. */
static const char *find_root(const char *first, const struct tti_board *board, char *address, size_t bytes)
{
    char host[256] = "";
    const char *port = strrchr(first, ':');
    tti_board_master(board, host, sizeof host);
    if (host[0] == '\0' || port == NULL) return first;
    snprintf(address, bytes, "%s%s", host, port);
    return address;
}

static tutti_status join_cluster(const struct tti_cluster_launch *launch, const tutti_options *options,
                                 struct tti_cluster **cluster, tutti_error *error)
{
    struct tti_cluster_launch attempt = *launch;
    struct tti_board board;
    char address[300];
    for (bool again = true; again;) {
        tti_board_open(&board, options->board, launch->job, launch->process_count, launch->ranks_each);
        bool restarts = tti_board_restarts(&board) > 0, tried = attempt.sequel.attempt != 0;
        if (restarts) prepare_sequel(&attempt.sequel, &board, options);
        if (tti_board_grows(&board) && tti_is_sequel(&attempt.sequel) && !tried)
            attempt.process_count = tti_board_size(&board);
        if (restarts && launch->address != NULL && launch->address[0] != '\0')
            attempt.address = find_root(launch->address, &board, address, sizeof address);
        tutti_status status = tti_cluster_join(&attempt, options, area_size, cluster, error);
        bool tells = restarts || tti_board_grows(&board) || tti_board_is_linked(&board);
        if (tells && !tried && status == TUTTI_OK)
            tti_board_form(options->board, launch->job, (*cluster)->local_ranks[0].world->segment->epoch);
        /* on a host that has taken the place of a lost one no world was formed before, but processes were started again */
        bool formed = attempt.sequel.epoch > 0 || attempt.sequel.generation > 0;
        again = restarts && !tried && status != TUTTI_OK && formed && error->system_errno != TTI_WORLD_WHOLE &&
                begins_anew(&board, error);
        tti_board_close(&board);
    }
    return *cluster != NULL ? TUTTI_OK : error->status;
}

/* Joins all ranks of one process of a job. */
tutti_status tti_join_job(const struct tti_cluster_launch *launch, const tutti_options *options, tutti_comm **comms,
                          tutti_error *error)
{
    struct tti_cluster *cluster;
    TTI_TRY(check_identity(launch, error));
    TTI_TRY(tti_options_check(options, error));
    char trace[TTI_TRACE_PATH];
    TTI_TRY(tti_trace_prepare(options->trace, trace, error));
    tutti_options located = *options;
    located.trace = trace;
    TTI_TRY(join_cluster(launch, &located, &cluster, error));
    tutti_status first = TUTTI_OK;
    int count = launch->ranks_each;
    for (int i = 0; i < count; i++) { /* all of them: each local rank must be taken or given back */
        tutti_error other = {0};
        tutti_status status = tti_join_sit_down(cluster, i, NULL, &comms[i], first == TUTTI_OK ? error : &other);
        if (status != TUTTI_OK) comms[i] = NULL;
        if (first == TUTTI_OK) first = status;
    }
    for (int i = 0; i < count && first != TUTTI_OK; i++) tti_comm_destroy(comms[i]);
    return first;
}

tutti_status tutti_join_as(const char *job, int rank, int size, const tutti_options *options, tutti_comm **world)
{
    if (world == NULL) return TUTTI_ERR_ARGUMENT;
    *world = NULL;
    tutti_options defaults;
    tutti_error error = {.rank = rank, .peer = -1};
    if (options == NULL) {
        if (read_options(&defaults, rank, &error) != TUTTI_OK) return stillborn(&error, world);
        options = &defaults;
    }
    if (tti_options_check(options, &error) != TUTTI_OK) return stillborn(&error, world);
    char address[300];
    bool several = options->master_addr[0] != '\0';
    if (several) snprintf(address, sizeof address, "%s:%d", options->master_addr, (int)options->master_port);
    struct tti_cluster_launch launch = {.job = job,
                                        .process = rank,
                                        .process_count = size,
                                        .ranks_each = 1,
                                        .one_host = !several,
                                        .address = several ? address : NULL};
    tutti_status status = tti_join_job(&launch, options, world, &error);
    return status == TUTTI_OK ? TUTTI_OK : stillborn(&error, world);
}

/* Context for a launcher's store, in which rank 0 publishes its address. */
struct teller {
    const tutti_launch *launch;
    int64_t deadline_ns;
};

static tutti_status publish(void *context, const char *text, tutti_error *error)
{
    const struct teller *teller = context;
    return tti_launch_publish(teller->launch, text, teller->deadline_ns, error);
}

static tutti_status look_up(void *context, char *text, size_t bytes, int64_t deadline_ns, tutti_error *error)
{
    return tti_launch_lookup(((const struct teller *)context)->launch, text, bytes, deadline_ns, error);
}

/* Sets the address of rank 0 for processes whose launcher has no store. */
static void address_of(const tutti_launch *launch, char *address, size_t bytes)
{
    address[0] = '\0';
    /* otherwise this is the store's address, on which rank 0 cannot wait */
    if (launch->host[0] != '\0' && launch->store[0] == '\0')
        snprintf(address, bytes, "%s:%d", launch->host, launch->port);
}

tutti_status tti_join_job_again(const tutti_launch *launch, const tutti_options *options, int ranks,
                                const struct tti_sequel *sequel, struct tti_cluster **cluster, tutti_error *error)
{
    char address[300];
    address_of(launch, address, sizeof address);
    struct tti_cluster_launch how = {.job = launch->job,
                                     .process = launch->rank,
                                     .process_count = launch->size,
                                     .ranks_each = ranks,
                                     .one_host = launch->one_host,
                                     .address = address,
                                     .sequel = *sequel};
    return join_cluster(&how, options, cluster, error);
}

enum { OWN_NAME = 64 };

static void name_own_job(char name[OWN_NAME])
{
    static atomic_uint jobs;
    snprintf(name, OWN_NAME, "alone-%d-%u", (int)getpid(), atomic_fetch_add(&jobs, 1));
}

tutti_status tti_join_alone(const tutti_options *options, int ranks, tutti_comm **comms, tutti_error *error)
{
    char own[OWN_NAME];
    name_own_job(own);
    const struct tti_cluster_launch launch = {.job = own, .process_count = 1, .ranks_each = ranks, .one_host = true};
    return tti_join_job(&launch, options, comms, error);
}

/* Joins the job that the launcher describes, or a job of this process alone. */
static tutti_status join_launched(tutti_launch *launch, const tutti_options *options, int ranks, tutti_comm **comms,
                                  tutti_error *error)
{
    char address[300], own[OWN_NAME];
    if (launch->waits) return tti_join_waiting(launch, options, ranks, comms, error);
    name_own_job(own);
    bool launched = launch->launcher != NULL, store = launched && launch->store[0] != '\0';
    struct teller teller = {launch, tti_now_ns() + options->join_timeout_ms * 1000000};
    address_of(launch, address, sizeof address);
    struct tti_cluster_launch how = {.job = launched ? launch->job : own,
                                     .process = launched ? launch->rank : 0,
                                     .process_count = launched ? launch->size : 1,
                                     .ranks_each = ranks,
                                     .one_host = !launched || launch->one_host,
                                     .address = address,
                                     .context = &teller,
                                     .publish = store ? publish : NULL,
                                     .lookup = store ? look_up : NULL};
    tutti_status status = tti_join_job(&how, options, comms, error);
    tti_launch_done(launch);
    return status;
}

/* Reads the launch. If it makes no sense, the launcher is asked nothing more. */
static tutti_status read_launch(const tutti_options *options, tutti_launch *launch, tutti_error *error)
{
    tutti_status status = tti_launch_read(options, launch, error);
    error->rank = launch->rank;
    if (status != TUTTI_OK)
        tti_launch_done(launch);
    else
        tell_strays(launch);
    return status;
}

static tutti_status join_environment(const tutti_options *options, tutti_comm **world, tutti_error *error)
{
    tutti_launch launch;
    TTI_TRY(read_launch(options, &launch, error));
    return join_launched(&launch, options, 1, world, error);
}

tutti_status tutti_join(tutti_comm **world)
{
    if (world == NULL) return TUTTI_ERR_ARGUMENT;
    *world = NULL;
    tutti_options options;
    tutti_error error = {.peer = -1};
    tutti_status status = read_options(&options, 0, &error);
    if (status == TUTTI_OK) status = join_environment(&options, world, &error);
    return status == TUTTI_OK ? TUTTI_OK : stillborn(&error, world);
}

/* Marks the state of this rank for the ranks of its host, which see it in their own comms, also if the world uses a
 * transport. */
static void mark_here(const tutti_comm *world, enum tti_rank_state state)
{
    const struct tti_cluster *cluster = world->lanes == NULL ? NULL : world->lanes->net->cluster;
    if (world->lanes == NULL || cluster != NULL)
        tti_world_mark(world->world, cluster == NULL ? world->rank : cluster->ranks[world->rank].local, state);
}

/* If the comm has lost a rank, the others are told of that first: it is the reason why this rank leaves. */
static void take_leave(tutti_comm *comm)
{
    if (!tti_comm_is_broken(comm)) tti_comm_health(comm, TTI_LEAVE, false);
    comm->peers->notify(comm, TTI_NEWS_LEFT);
    if (comm->lanes != NULL && comm->members == NULL) mark_here(comm, TTI_RANK_LEFT);
}

/* Leaves a world that was rebuilt and not freed. */
static void leave_rebuilt(tutti_comm *world)
{
    take_leave(world);
    mark_here(world, TTI_RANK_GONE);
    if (world->lanes != NULL) tti_net_part(world->lanes->net);
}

/* Leaves the comms that were split off and not freed; they will not be used any more. */
static void leave_others(tutti_comm *comm)
{
    mark_here(comm, TTI_RANK_GONE);
    tti_epoch_each_world(comm, leave_rebuilt);
    struct tti_lanes *lanes = comm->lanes == NULL ? NULL : comm->lanes->net->lanes;
    for (; lanes != NULL; lanes = lanes->next)
        if (lanes->comm != comm) take_leave(lanes->comm);
    if (comm->lanes != NULL) tti_net_part(comm->lanes->net);
}

static void tell_of_group(const tutti_comm *comm)
{
    const struct tti_group *group = comm->caller.group;
    if (group == NULL || tti_comm_is_broken(comm)) return;
    tti_log(TUTTI_WARN,
            "rank %d frees a comm %s and not ended: its calls were never made, and the group is closed; "
            "tutti_group_end makes them",
            comm->rank,
            group->comms->comm == comm ? "on which a group has begun" : "that was added to a group which has begun");
}

enum { LOSE_MS = 20 }; /* the time for each comm, out of 100 ms in which all others must know */

/* Breaks the comm, beside the service thread unless the thread that ended was in a call itself. */
static void lose_comm_with(tutti_comm *comm, tutti_status status, const char *why)
{
    int64_t until = tti_now_ns() + LOSE_MS * INT64_C(1000000);
    bool taken;
    while (!(taken = tti_queue_try(comm)) && tti_now_ns() < until) tti_wait_turn();
    tti_comm_break(comm, TTI_LEAVE, status, comm->rank, "rank %d%s", comm->rank, why);
    if (taken) tti_queue_give_back(comm);
}

/* Tells the others why the rank is lost, of the comms that it finds; then it counts as lost in all. */
static void lose_world_with_device(tutti_comm *world)
{
    struct tti_lanes *lanes = world->lanes == NULL ? NULL : world->lanes->net->lanes;
    char why[TTI_POISON_TEXT + 2];
    snprintf(why, sizeof why, ": %s", tti_devices_failure());
    if (lanes == NULL) lose_comm_with(world, TUTTI_ERR_DEVICE, why);
    for (; lanes != NULL; lanes = lanes->next) lose_comm_with(lanes->comm, TUTTI_ERR_DEVICE, why);
    mark_here(world, TTI_RANK_LOST);
}

static void lose_device(tutti_comm *world)
{
    tti_epoch_each_world(world, lose_world_with_device);
    lose_world_with_device(world);
}

tutti_status tti_leave(tutti_comm *comm, bool ends)
{
    if (comm == NULL) return TUTTI_OK;
    if (comm->traits.has_left) return comm->errors.call.status;
    if (comm->world != NULL && comm->traits.fork_count != tti_fork_count())
        return tti_comm_refuse(comm, TTI_LEAVE, TUTTI_ERR_FORKED, "this comm belongs to the parent process");
    if (comm->traits.of_mesh)
        return tti_comm_refuse(comm, TTI_MESH, TUTTI_ERR_ARGUMENT,
                               "rank %d frees a comm that belongs to a mesh; tutti_mesh_free frees it", comm->rank);
    if (comm->traits.of_main)
        return tti_comm_refuse(
            comm, TTI_LEAVE, TUTTI_ERR_ARGUMENT,
            "rank %d leaves the world that `work` was given; who called `work` leaves it when that has "
            "returned",
            comm->rank);
    if (tti_is_in_callback()) return tti_callback_refuse(comm, TTI_LEAVE);
    if (comm->world != NULL) tell_of_group(comm);
    tti_group_leave(comm);
    if (comm->traits.lost_device) lose_device(comm);
    tti_queue_finish(comm);
    tti_streams_close(comm);
    tti_queue_close(comm);
    bool lost = comm->traits.lost_device;
    if (comm->world != NULL && !lost) take_leave(comm);
    if (comm->world != NULL && ends && !lost) leave_others(comm);
    bool differs = comm->errors.left_differing, retires = comm->world != NULL && comm->traits.is_world;
    tutti_status status = retires ? tti_comm_retire(comm, ends) : tti_comm_destroy(comm);
    return differs ? TUTTI_ERR_MISMATCH : status;
}

tutti_status tutti_leave(tutti_comm *comm)
{
    return tti_leave(comm, false);
}

/* ---- tutti_main ------------------------------------------------------------------------------------------------ */

/* All or nothing: no rank of this process begins before the threads of all have been started. */
struct gate {
    tti_bell rung;
    bool open;
};

struct rank_task {
    struct tti_task task;
    struct gate *gate;
    tutti_work *work;
    tutti_comm *comm;
    int argc, result;
    bool lost; /* its thread ended without returning */
    char **argv;
};

/* Tells the peers of a rank of this process that it ended without leaving. */
static void lose_comms(tutti_comm *world)
{
    struct tti_lanes *lanes = world->lanes == NULL ? NULL : world->lanes->net->lanes;
    mark_here(world, TTI_RANK_LOST);
    for (; lanes != NULL; lanes = lanes->next)
        lose_comm_with(lanes->comm, TUTTI_ERR_PEER_LOST, "'s thread ended without leaving");
}

static void lose_rank(void *argument)
{
    struct rank_task *rank = argument;
    tti_rebuild_miss(rank->comm, true);
    lose_comms(rank->comm);
    rank->lost = true;
}

int tti_rank_end(tutti_comm *world, int result, tutti_status *left)
{
    struct tti_latest *latest = tti_latest_join(world->errors.latest);
    world->traits.of_main = false;
    world->traits.lost_device = result != 0 && tti_devices_failure() != NULL;
    *left = tti_leave(world, true);
    if (result == 0 && (*left != TUTTI_OK || tti_latest_failed(latest))) result = 1;
    tti_latest_part(latest);
    return result;
}

static bool goes_through(struct gate *gate)
{
    while (atomic_load_explicit(&gate->rung, memory_order_acquire) == 0)
        tti_bell_sleep(&gate->rung, 0, INT64_C(1000000000), false);
    return gate->open;
}

static void *run_rank(void *argument)
{
    struct rank_task *rank = argument;
    if (!goes_through(rank->gate)) return NULL;
    pthread_cleanup_push(lose_rank, rank); /* the user's work may end its thread without returning */
    rank->comm->traits.of_main = true;
    rank->result = rank->work(rank->comm, rank->argc, rank->argv);
    pthread_cleanup_pop(0);
    tti_rebuild_miss(rank->comm, false);
    tutti_status left;
    rank->result = tti_rank_end(rank->comm, rank->result, &left);
    return NULL;
}

static int give_up(struct rank_task *tasks, int count, int started, const tutti_error *error)
{
    for (int i = 0; i < count; i++) {
        lose_comms(tasks[i].comm); /* ranks of other processes may have begun */
        tti_comm_destroy(tasks[i].comm);
    }
    tti_log(TUTTI_ERROR, "only %d of %d threads could be started, so no rank of this process begins: %s", started,
            count, error->text);
    return 1;
}

static int run_threads(struct rank_task *tasks, int count)
{
    tutti_error error = {0};
    struct gate gate = {0};
    int started = 0, result = 0;
    for (; started < count; started++) {
        tasks[started].gate = &gate;
        if (tti_task_start(&tasks[started].task, run_rank, &tasks[started], &error) != TUTTI_OK) break;
    }
    gate.open = started == count;
    tti_bell_ring(&gate.rung, false);
    for (int i = 0; i < started; i++) tti_task_join(&tasks[i].task);
    if (!gate.open) return give_up(tasks, count, started, &error);
    for (int i = 0; i < count; i++) {
        if (tasks[i].lost) tti_comm_destroy(tasks[i].comm);
        if (result == 0) result = tasks[i].result;
    }
    return result;
}

/* Returns the exit status of tutti_main after it could not join. All arguments come from the environment there. */
static int failed_with(tutti_status status)
{
    return strcmp(tutti_status_group(status), "argument") == 0 ? 2 : 1;
}

static int main_threads(tutti_work *work, int argc, char **argv, const tutti_options *options, tutti_launch *launch)
{
    int count = (int)options->ranks;
    tutti_error error = {0};
    struct rank_task *tasks = tti_calloc((size_t)count, sizeof *tasks);
    tutti_comm **comms = tti_calloc((size_t)count, sizeof *comms);
    tutti_status status = tasks == NULL || comms == NULL
                              ? tti_error_set(&error, TUTTI_ERR_MEMORY, 0, "no memory for %d ranks", count)
                              : join_launched(launch, options, count, comms, &error);
    for (int i = 0; i < count && status == TUTTI_OK; i++)
        tasks[i] = (struct rank_task){.work = work, .comm = comms[i], .argc = argc, .argv = argv};
    if (status != TUTTI_OK)
        tti_log(TUTTI_ERROR, "a world of %d threads%s could not be made: %s: %s", count,
                launch->launcher == NULL ? "" : " per process", tutti_status_name(status), error.text);
    int result = status == TUTTI_OK ? run_threads(tasks, count) : failed_with(status);
    tti_free(comms);
    tti_free(tasks);
    return result;
}

static int main_alone(tutti_work *work, int argc, char **argv)
{
    tutti_comm *world;
    tutti_status status = tutti_join(&world);
    if (status != TUTTI_OK) {
        const tutti_error *why = tutti_comm_error(world);
        tti_log(TUTTI_ERROR, "%s", why == NULL ? "no memory to join" : why->text);
        tutti_leave(world);
        return failed_with(status);
    }
    world->traits.of_main = true;
    tutti_status left;
    return tti_rank_end(world, work(world, argc, argv), &left);
}

int tutti_main(tutti_work *work, int argc, char **argv)
{
    tutti_options options;
    tutti_launch launch;
    tutti_error error = {0};
    if (work == NULL) return 2;
    if (read_options(&options, 0, &error) != TUTTI_OK) {
        tti_log(TUTTI_ERROR, "%s", error.text);
        return 2;
    }
    if (options.ranks == 1) return main_alone(work, argc, argv);
    tutti_status status = read_launch(&options, &launch, &error);
    if (status == TUTTI_OK) return main_threads(work, argc, argv, &options, &launch);
    tti_log(TUTTI_ERROR, "%s", error.text);
    return failed_with(status);
}
