/* SPDX-License-Identifier: Apache-2.0 */
#include "check_hosts.h"

#include "base/clock.h"
#include "ranks.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct local_rank_work {
    pthread_t thread;
    const struct host_part *part;
    const struct tti_cluster *cluster;
    struct tti_cluster_local_rank *local_rank;
    struct mesh_node node;
    struct host_report *report;
    atomic_int *complete;
};

tutti_options host_options(void)
{
    tutti_options options;
    tutti_options_init(&options, NULL);
    options.arena_bytes = (int64_t)64 << 20;
    options.join_timeout_ms = LONG_MS;
    return options;
}

static size_t area_bytes(const tutti_options *options, int ranks, bool processes)
{
    (void)options;
    (void)processes;
    return (size_t)ranks * 64;
}

static int any_lost(const struct mesh_node *node)
{
    for (int peer = 0; peer < node->size; peer++)
        if (node->lost[peer]) return peer;
    return -1;
}

/* Frames to everybody on other hosts and from them. Who has all and has sent all leaves. */
static void *work(void *argument)
{
    struct local_rank_work *work = argument;
    struct mesh_node *node = &work->node;
    int64_t deadline_ns = tti_now_ns() + BOUND_MS * MS;
    const char *then = work->local_rank == work->cluster->local_ranks ? work->part->then : NULL;
    int64_t busy_until_ns = tti_now_ns() + work->part->busy_ms * MS, more_ns = 0;
    for (uint64_t n = 0; tti_now_ns() < deadline_ns; n++) {
        bool busy = tti_now_ns() < busy_until_ns, more = busy && tti_now_ns() >= more_ns;
        if (more) more_ns = tti_now_ns() + 20 * MS;
        for (int peer = 0; peer < node->size && (n < work->part->frames || more); peer++)
            if (peer != node->rank && !node->apart[peer]) mesh_send(node, peer);
        bool moved = mesh_progress(node);
        int lost = any_lost(node);
        bool complete = !busy && n + 1 >= work->part->frames && mesh_complete(node, work->part->frames);
        if (complete && then != NULL) {
            work->report->ran_ns = tti_now_ns();
            if (system(then) != 0) abort();
            then = NULL;
        }
        if (complete && !work->part->stay) break;
        if (work->part->stay && lost >= 0) {
            work->report->lost_ns = tti_now_ns();
            snprintf(work->report->lost, sizeof work->report->lost, "%s", node->text[lost]);
            break;
        }
        if (!moved && n >= work->part->frames) node->transport->ops->sleep(node->transport, (busy ? 5 : 1000) * MS);
    }
    return NULL;
}

static void run_local_ranks(const struct host_part *part, struct tti_cluster *cluster, struct host_report *report)
{
    struct local_rank_work *works = calloc((size_t)cluster->ranks_each, sizeof *works);
    for (int i = 0; i < cluster->ranks_each; i++) {
        works[i] = (struct local_rank_work){
            .part = part, .cluster = cluster, .local_rank = &cluster->local_ranks[i], .report = report};
        if (cluster->local_ranks[i].transport == NULL) continue;
        mesh_node_init(&works[i].node, cluster->local_ranks[i].transport, SANITIZED ? 600000 : 5000000);
        for (int peer = 0; peer < cluster->size; peer++)
            works[i].node.apart[peer] = cluster->ranks[peer].host == cluster->ranks[cluster->local_ranks[i].rank].host;
        if (pthread_create(&works[i].thread, NULL, work, &works[i]) != 0) abort();
    }
    for (int i = 0; i < cluster->ranks_each; i++) {
        struct tti_cluster_local_rank *local_rank = &cluster->local_ranks[i];
        if (local_rank->transport != NULL) {
            pthread_join(works[i].thread, NULL);
            for (int peer = 0; peer < cluster->size; peer++) report->ended += works[i].node.ended[peer];
            report->wrong += works[i].node.wrong;
            local_rank->transport->ops->close(local_rank->transport, BOUND_MS * MS);
        }
        tti_world_mark(local_rank->world, cluster->ranks[local_rank->rank].local, TTI_RANK_LEFT);
        tti_world_release(local_rank->world);
    }
    free(works);
}

static bool facts_hold(const struct tti_cluster *cluster)
{
    for (int i = 0; i < cluster->ranks_each; i++) {
        const struct tti_cluster_local_rank *local_rank = &cluster->local_ranks[i];
        const struct tti_cluster_rank *rank = &cluster->ranks[local_rank->rank];
        if (local_rank->rank != cluster->process * cluster->ranks_each + i || rank->process != cluster->process)
            return false;
        if (rank->host < 0 || rank->host >= cluster->host_count || rank->local >= local_rank->world->size) return false;
        if (cluster->host_names[rank->host][0] == '\0') return false;
        if ((local_rank->transport == NULL) != (cluster->host_count == 1)) return false;
        if (local_rank->world->segment->ranks[rank->local].pid != rank->pid) return false;
        if (strcmp(local_rank->world->job, cluster->job) != 0) return false;
    }
    return true;
}

struct host_report host_run(const struct host_part *part)
{
    struct host_report report = {.status = TUTTI_IN_PROGRESS};
    struct tti_cluster *cluster;
    report.status = tti_cluster_join(&part->launch, &part->options, area_bytes, &cluster, &report.error);
    report.joined_ns = tti_now_ns();
    if (report.status != TUTTI_OK) return report;
    report.hosts = cluster->host_count;
    report.shares = cluster->shares;
    report.local_size = cluster->local_ranks[0].world->size;
    for (int rank = 0; rank < cluster->size; rank += cluster->ranks_each) {
        report.apart += cluster->ranks[rank].first == cluster->ranks[rank].process;
        report.machines += cluster->ranks[rank].machine == cluster->ranks[rank].process;
    }
    if (!facts_hold(cluster)) report.wrong++;
    run_local_ranks(part, cluster, &report);
    for (int i = part->launch.ranks_each; i > 0; i--) tti_cluster_release(cluster);
    return report;
}
