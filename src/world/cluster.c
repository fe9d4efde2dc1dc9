/* SPDX-License-Identifier: Apache-2.0
 *
 * Joining a cluster: endpoints listen; in a first meeting every process says who it is and where its ranks listen;
 * ranks that share a host form a world, and those that do not are connected; a last meeting says whether all have done
 * it. A process that fails on the way abandons the meeting, which the others notice while they connect.
 */
#include "world/cluster_joining.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "base/status.h"
#include "base/wait.h"
#include "transport/socket.h"
#include "world/join_messages.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

/* ---- Checks and memory ----------------------------------------------------------------------------------------- */

tutti_status tti_cluster_check_transport(const char *transport, tutti_error *error)
{
    static const char *const known[] = {"auto", "shm", "tcp"};
    return tti_option_word("the option transport", transport, known, sizeof known / sizeof *known, error);
}

tutti_status tti_joining_no_memory(struct tti_joining *joining)
{
    return tti_error_set(joining->error, TUTTI_ERR_MEMORY, ENOMEM, "memory for a job of %d processes ran out",
                         joining->launch->process_count);
}

tutti_status tti_joining_other_version(struct tti_joining *joining, int process)
{
    joining->error->peer = process * joining->cluster->ranks_each;
    return tti_error_set(joining->error, TUTTI_ERR_JOIN, 0, "process %d of job %s runs another version of the library",
                         process, joining->launch->job);
}

static tutti_status make_cluster(struct tti_joining *joining)
{
    const struct tti_cluster_launch *launch = joining->launch;
    struct tti_cluster *cluster = tti_calloc(1, sizeof *cluster);
    joining->cluster = cluster;
    if (cluster == NULL) return tti_joining_no_memory(joining);
    snprintf(cluster->job, sizeof cluster->job, "%s", launch->job[0] == '\0' ? "alone" : launch->job);
    cluster->size = launch->process_count * launch->ranks_each;
    cluster->process = launch->process;
    cluster->process_count = launch->process_count;
    cluster->ranks_each = launch->ranks_each;
    atomic_init(&cluster->references, 1);
    cluster->ranks = tti_calloc((size_t)cluster->size, sizeof *cluster->ranks);
    cluster->host_names = tti_calloc((size_t)cluster->size, sizeof *cluster->host_names);
    cluster->local_ranks = tti_calloc((size_t)launch->ranks_each, sizeof *cluster->local_ranks);
    joining->hosts = tti_calloc((size_t)launch->process_count, sizeof *joining->hosts);
    joining->endpoints = tti_calloc((size_t)launch->ranks_each, sizeof *joining->endpoints);
    bool made = cluster->ranks != NULL && cluster->host_names != NULL && cluster->local_ranks != NULL &&
                joining->hosts != NULL && joining->endpoints != NULL;
    return made ? TUTTI_OK : tti_joining_no_memory(joining);
}

void tti_cluster_release(struct tti_cluster *cluster)
{
    if (atomic_fetch_sub_explicit(&cluster->references, 1, memory_order_acq_rel) > 1) return;
    tti_board_close(&cluster->board);
    tti_free(cluster->local_ranks);
    tti_free(cluster->host_names);
    tti_free(cluster->ranks);
    tti_free(cluster);
}

/* ---- The first meeting ----------------------------------------------------------------------------------------- */

static tutti_status listen_all(struct tti_joining *joining)
{
    const tutti_options *options = joining->options;
    struct tti_tcp_settings settings = {.job = joining->cluster->job,
                                        .size = joining->cluster->size,
                                        .interface = options->interface,
                                        .ports = options->ports,
                                        .streams = (int)options->streams,
                                        .heartbeat_ms = options->heartbeat_ms};
    /* within one host no other host needs to see the port, and a heartbeat is of no use */
    bool chosen = settings.interface != NULL && settings.interface[0] != '\0';
    if (joining->launch->one_host) settings.heartbeat_ms = 0;
    if (!chosen && (joining->launch->one_host || tti_addresses_are_here(joining->launch->address)))
        settings.interface = "lo";
    for (int i = 0; i < joining->cluster->ranks_each; i++) {
        settings.rank = joining->cluster->process * joining->cluster->ranks_each + i;
        TTI_TRY(tti_tcp_listen(&settings, &joining->endpoints[i], joining->error));
    }
    return TUTTI_OK;
}

static tutti_status open_meeting(struct tti_joining *joining)
{
    const struct tti_cluster_launch *launch = joining->launch;
    struct tti_rendezvous where = {.job = joining->cluster->job,
                                   .rank = launch->process,
                                   .size = launch->process_count,
                                   .ranks_each = launch->ranks_each,
                                   .deadline_ns = joining->deadline_ns,
                                   .interface = joining->options->interface,
                                   .board = &joining->board};
    tti_board_open(&joining->board, joining->options->board, launch->job, launch->process_count, launch->ranks_each);
    if (tti_board_restarts(&joining->board) > 0) joining->board.generation = joining->sequel.generation;
    joining->board.attempt = joining->sequel.attempt;
    where.again = tti_is_sequel(&joining->sequel);
    where.generation = joining->sequel.generation;
    where.attempt = joining->sequel.attempt;
    where.board_name = joining->options->board;
    if (launch->one_host) {
        where.apart = where.again ? NULL : &joining->apart;
    } else {
        where.address = launch->address;
        where.key = joining->has_key ? &joining->key : NULL;
        where.context = launch->context;
        where.publish = launch->publish;
        where.lookup = launch->lookup;
        if (where.publish == NULL && (where.address == NULL || where.address[0] == '\0'))
            return tti_error_set(joining->error, TUTTI_ERR_JOIN, 0,
                                 "the launcher of job %.64s does not say where its hosts meet; set "
                                 "TUTTI_MASTER_ADDR and TUTTI_MASTER_PORT",
                                 launch->job);
    }
    return tti_meeting_open(&where, &joining->meeting, joining->error);
}

/* ---- Worlds and connections ------------------------------------------------------------------------------------ */

/* Places all ranks on this host. No meeting is needed if nobody asked for tcp. */
static void place_here(struct tti_joining *joining)
{
    struct tti_cluster *cluster = joining->cluster;
    cluster->host_count = 1;
    tti_host_name(cluster->host_names[0], TTI_CLUSTER_HOST);
    for (int rank = 0; rank < cluster->size; rank++)
        cluster->ranks[rank] = (struct tti_cluster_rank){
            .local = rank, .process = rank / cluster->ranks_each, .pid = getpid()};
    joining->local = cluster->process;
    joining->local_count = cluster->process_count;
}

/* Returns the numbers of the first ranks of this host's processes. */
static int *list_firsts(const struct tti_joining *joining)
{
    const struct tti_cluster *cluster = joining->cluster;
    int *firsts = tti_calloc((size_t)joining->local_count, sizeof *firsts), count = 0;
    for (int process = 0; firsts != NULL && process < cluster->process_count; process++)
        if (joining->hosts[process] == joining->hosts[cluster->process])
            firsts[count++] = process * cluster->ranks_each;
    return firsts;
}

/* The processes of a host form a job of their own there; messages name them as in the whole job. */
static tutti_status join_host(struct tti_joining *joining, size_t area_bytes, struct tti_world **world)
{
    const struct tti_cluster *cluster = joining->cluster;
    struct tti_member member = {.job = cluster->job,
                                .process = joining->local,
                                .process_count = joining->local_count,
                                .ranks_each = cluster->ranks_each,
                                .apart = joining->networked ? NULL : &joining->apart,
                                .sequel = joining->sequel};
    if (cluster->host_count == 1) return tti_world_join(&member, joining->options, area_bytes, world, joining->error);
    char job[TTI_WIRE_JOB];
    int *firsts = list_firsts(joining);
    if (firsts == NULL) return tti_joining_no_memory(joining);
    snprintf(job, sizeof job, "%s.host%d", cluster->job, joining->hosts[cluster->process]);
    member.job = job;
    member.title = cluster->job;
    member.title_processes = cluster->process_count;
    member.firsts = firsts;
    tutti_status status = tti_world_join(&member, joining->options, area_bytes, world, joining->error);
    tti_free(firsts);
    return status;
}

static tutti_status join_world(struct tti_joining *joining)
{
    struct tti_cluster *cluster = joining->cluster;
    int size = joining->local_count * cluster->ranks_each;
    size_t bytes = joining->area_bytes(joining->options, size, joining->local_count > 1);
    struct tti_world *world;
    TTI_TRY(join_host(joining, bytes, &world));
    snprintf(world->job, sizeof world->job, "%s", cluster->job);
    for (int i = 0; i < cluster->ranks_each; i++) cluster->local_ranks[i].world = world;
    for (int rank = 0; rank < cluster->size; rank++)
        if (cluster->ranks[rank].host == cluster->ranks[cluster->local_ranks[0].rank].host)
            cluster->ranks[rank].pid = world->segment->ranks[cluster->ranks[rank].local].pid;
    return TUTTI_OK;
}

static tutti_status make_own_worlds(struct tti_joining *joining)
{
    struct tti_cluster *cluster = joining->cluster;
    size_t bytes = joining->area_bytes(joining->options, 1, false);
    struct tti_sequel sequel = joining->sequel;
    for (int i = 0; i < cluster->ranks_each; i++) {
        struct tti_world *world;
        if (joining->sequel.arenas != NULL) sequel.arenas = joining->sequel.arenas + i;
        TTI_TRY(tti_world_threads(1, joining->options, &sequel, bytes, &world, joining->error));
        snprintf(world->job, sizeof world->job, "%s", cluster->job);
        cluster->local_ranks[i].world = world;
    }
    return TUTTI_OK;
}

static bool has_trouble(void *context, tutti_error *error)
{
    return tti_meeting_has_trouble(context, error);
}

/* Returns the time until which ranks connect. If a process that is late will be ended, this is before the end of the
 * meeting: then those that wait for it name it, and not rank 0, which sees that none of them has come. */
static int64_t connect_deadline(const struct tti_joining *joining)
{
    int64_t left_ns = joining->deadline_ns - tti_now_ns();
    bool again = tti_is_sequel(&joining->sequel) && left_ns > 0;
    return joining->deadline_ns - (again ? left_ns / 4 : 0);
}

/* Asks the launcher to end a process that was waited for in vain, since it may be stopped, and to start it again: then
 * all begin anew. */
static void end_late(const struct tti_joining *joining, int64_t deadline_ns)
{
    const tutti_error *error = joining->error;
    bool again = tti_is_sequel(&joining->sequel) && joining->sequel.attempt == 0;
    bool late = again && tti_now_ns() >= deadline_ns && error->peer >= 0;
    if (late)
        tti_board_end(joining->options->board, joining->launch->job, &joining->board,
                      error->peer / joining->cluster->ranks_each);
}

static tutti_status connect_all(struct tti_joining *joining)
{
    struct tti_cluster *cluster = joining->cluster;
    int64_t deadline_ns = connect_deadline(joining);
    for (int i = 0; i < cluster->ranks_each; i++) {
        tti_tcp_set_epoch(joining->endpoints[i], joining->sequel.epoch);
        TTI_TRY(tti_joining_expect(joining, joining->endpoints[i], cluster->local_ranks[i].rank));
    }
    tutti_status status = tti_tcp_connect(joining->endpoints, cluster->ranks_each, &joining->key, deadline_ns,
                                          has_trouble, joining->meeting, joining->error);
    if (status != TUTTI_OK) end_late(joining, deadline_ns);
    TTI_TRY(status);
    for (int i = 0; i < cluster->ranks_each; i++) {
        cluster->local_ranks[i].transport = tti_tcp_transport(joining->endpoints[i]);
        joining->endpoints[i] = NULL;
    }
    return TUTTI_OK;
}

/* ---- Joining --------------------------------------------------------------------------------------------------- */

static tutti_status prepare(struct tti_joining *joining)
{
    const struct tti_cluster_launch *launch = joining->launch;
    const char *transport = joining->options->transport;
    TTI_TRY(tti_cluster_check_transport(transport, joining->error));
    joining->all_tcp = strcmp(transport, "tcp") == 0;
    bool several = !launch->one_host || joining->options->host_processes > 0;
    joining->networked = (joining->all_tcp && launch->process_count * launch->ranks_each > 1) || several;
    if (several && strcmp(transport, "shm") == 0)
        return tti_error_set(joining->error, TUTTI_ERR_OPTION, 0,
                             "the option transport is \"shm\", which ends at a host, but job %.64s has several",
                             launch->job);
    TTI_TRY(make_cluster(joining));
    joining->apart = (struct tti_apart){joining->cluster->job, launch->process, launch->process_count,
                                        launch->ranks_each, joining->options};
    for (int i = 0; i < launch->ranks_each; i++)
        joining->cluster->local_ranks[i].rank = launch->process * launch->ranks_each + i;
    if (!joining->networked) return TUTTI_OK;
    TTI_TRY(tti_key_find(joining->options, &joining->key, &joining->has_key, joining->error));
    return launch->one_host && !joining->has_key ? tti_key_random(&joining->key, joining->error) : TUTTI_OK;
}

int tti_cluster_here(const struct tti_cluster *cluster, int rank)
{
    int count = 0;
    for (int other = 0; other < cluster->size; other++)
        count += cluster->ranks[other].machine == cluster->ranks[rank].machine;
    return count;
}

int tti_cluster_place(const struct tti_cluster *cluster, int rank)
{
    int place = 0;
    for (int other = 0; other < rank; other++) place += cluster->ranks[other].machine == cluster->ranks[rank].machine;
    return place;
}

/* The facts on which all must agree. */
struct word {
    int32_t shares;  /* the process can read the memory of its host's ranks, and should */
    int32_t crowded; /* the host has more ranks than cores */
    int32_t traces;
    tutti_tuning tuning;
};

/* Returns true if ranks of a host may share memory. All hosts must agree, so the slower way is not taken without a
 * warning. */
static bool shares(const struct tti_joining *joining)
{
    const tutti_options *options = joining->options;
    bool wanted = options->direct != 0 && options->host_aware != 0 && !joining->all_tcp;
    bool reads = joining->local_count == 1 || tti_world_can_attach(joining->cluster->local_ranks[0].world);
    if (wanted && !reads && options->attach != 0 && joining->local == 0)
        tti_log(TUTTI_WARN,
                "job %s: processes of this host may not read each other's memory, so ranks of one host exchange by tcp "
                "too; tutti doctor says what to change, and TUTTI_HOST_AWARE=0 ends this warning",
                joining->cluster->job);
    return wanted && reads;
}

/* Holds the last meeting: all have come this far. */
static tutti_status agree(struct tti_joining *joining)
{
    struct tti_cluster *cluster = joining->cluster;
    struct tti_world *world = cluster->local_ranks[0].world;
    struct tti_blobs all;
    struct word mine = {.shares = shares(joining),
                        .crowded = tti_cluster_here(cluster, cluster->local_ranks[0].rank) > tti_cores_of_host(),
                        .traces = joining->options->trace[0] != '\0',
                        .tuning = world->segment->tuning};
    TTI_TRY(tti_meeting_exchange(joining->meeting, &mine, sizeof mine, &all, joining->error));
    tutti_status status = TUTTI_OK;
    cluster->shares = true;
    for (int process = 0; process < cluster->process_count && status == TUTTI_OK; process++) {
        size_t bytes;
        const unsigned char *blob = tti_blob(&all, process, &bytes);
        struct word theirs = {0};
        if (bytes == sizeof theirs)
            memcpy(&theirs, blob, sizeof theirs);
        else
            status = tti_joining_other_version(joining, process);
        cluster->shares = cluster->shares && theirs.shares != 0;
        cluster->crowded = cluster->crowded || theirs.crowded != 0;
        joining->traces = joining->traces || theirs.traces != 0;
        if (process == 0) cluster->tuning = theirs.tuning;
    }
    tti_blobs_free(&all);
    return status;
}

/* Compares clocks, for traces. */
static tutti_status compare_clocks(struct tti_joining *joining)
{
    int64_t offset_ns;
    TTI_TRY(tti_meeting_compare_clocks(joining->meeting, &offset_ns, joining->error));
    for (int i = 0; i < joining->cluster->ranks_each; i++)
        joining->cluster->local_ranks[i].world->clock_offset_ns = offset_ns;
    return TUTTI_OK;
}

/* Forms the cluster. From here on others know of this process, and are told when it fails. */
static tutti_status form(struct tti_joining *joining)
{
    struct tti_cluster *cluster = joining->cluster;
    joining->able = listen_all(joining);
    tutti_error why = *joining->error;
    TTI_TRY(tti_joining_exchange(joining));
    if (joining->able != TUTTI_OK) *joining->error = why;
    TTI_TRY(joining->able);
    TTI_TRY(tti_joining_place(joining));
    TTI_TRY(joining->all_tcp ? make_own_worlds(joining) : join_world(joining));
    if (cluster->host_count > 1) TTI_TRY(connect_all(joining));
    TTI_TRY(agree(joining));
    return joining->traces ? compare_clocks(joining) : TUTTI_OK;
}

/* Tells the others of an error: this process's own one with its rank, any other as it is. */
static void notify_others(const struct tti_joining *joining)
{
    tutti_error told = *joining->error;
    if (told.status != TUTTI_ERR_JOIN) {
        told.peer = joining->cluster->local_ranks[0].rank;
        tti_error_set(&told, TUTTI_ERR_JOIN, 0, "rank %d could not join job %.64s: %.300s", told.peer,
                      joining->cluster->job, joining->error->text);
    }
    tti_meeting_abandon(joining->meeting, &told);
}

static tutti_status join(struct tti_joining *joining)
{
    TTI_TRY(prepare(joining));
    if (!joining->networked) {
        place_here(joining);
        return joining->all_tcp ? make_own_worlds(joining) : join_world(joining);
    }
    TTI_TRY(open_meeting(joining));
    tutti_status status = form(joining);
    if (status != TUTTI_OK) notify_others(joining);
    return status;
}

static void undo(struct tti_joining *joining)
{
    struct tti_cluster *cluster = joining->cluster;
    for (int i = 0; cluster->local_ranks != NULL && i < cluster->ranks_each; i++) {
        struct tti_cluster_local_rank *local_rank = &cluster->local_ranks[i];
        if (local_rank->transport != NULL) local_rank->transport->ops->close(local_rank->transport, 0);
        if (local_rank->world == NULL) continue;
        tti_world_mark(local_rank->world, cluster->ranks[local_rank->rank].local, TTI_RANK_LOST);
        tti_world_release(local_rank->world);
    }
    tti_cluster_release(cluster);
}

tutti_status tti_cluster_join(const struct tti_cluster_launch *launch, const tutti_options *options,
                              tti_area_size *area_bytes, struct tti_cluster **cluster, tutti_error *error)
{
    struct tti_joining joining = {
        .launch = launch, .options = options, .area_bytes = area_bytes, .sequel = launch->sequel, .error = error};
    int64_t timeout_ms = launch->sequel.timeout_ms > 0 ? launch->sequel.timeout_ms : options->join_timeout_ms;
    joining.deadline_ns = tti_now_ns() + timeout_ms * 1000000;
    *cluster = NULL;
    memset(error, 0, sizeof *error);
    error->rank = launch->process * launch->ranks_each;
    error->peer = -1;
    snprintf(error->operation, sizeof error->operation, "join");
    tutti_status status = join(&joining);
    tti_meeting_close(joining.meeting);
    struct tti_board board = joining.board;
    if (status != TUTTI_OK) tti_board_close(&board);
    tti_blobs_free(&joining.peer_infos);
    tti_key_forget(&joining.key);
    for (int i = 0; joining.endpoints != NULL && i < launch->ranks_each; i++) {
        struct tti_transport *unused = joining.endpoints[i] == NULL ? NULL : tti_tcp_transport(joining.endpoints[i]);
        if (unused != NULL) unused->ops->close(unused, 0);
    }
    tti_free(joining.endpoints);
    tti_free(joining.hosts);
    if (status == TUTTI_OK) {
        atomic_store_explicit(&joining.cluster->references, launch->ranks_each, memory_order_relaxed);
        joining.cluster->board = board;
        *cluster = joining.cluster;
    } else if (joining.cluster != NULL) {
        undo(&joining);
    }
    return status;
}
