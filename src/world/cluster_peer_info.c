/* SPDX-License-Identifier: Apache-2.0
 *
 * The facts that processes tell each other at their first meeting, from which the host of each rank follows.
 */
#include "base/alloc.h"
#include "base/status.h"
#include "world/cluster_joining.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PEER_INFO_MOST = sizeof(struct tti_tcp_peer_info) };

/* The data that a process gives: this, then for each of its ranks the bytes of its peer info and the peer info; or, if
 * it cannot listen, the reason. */
struct peer_info {
    int32_t status;
    /* `network` and `processes` are namespaces; `network` also identifies the system */
    uint64_t system, network, processes;
    uint32_t user;
    int32_t pid, ranks_each, has_key;
    int32_t all_tcp;                  /* it was told that all ranks use tcp */
    int32_t part;                     /* the part of its host that counts as a host of its own; 0 except in trials */
    uint32_t epoch, whole;            /* as in struct tti_sequel */
    uint32_t life;                    /* as in struct tti_cluster_rank */
    unsigned char key[TTI_KEY_BYTES]; /* the key of process 0, if the meeting is for this user on this host alone */
    char host[TTI_CLUSTER_HOST];
};

/* ---- Cards ----------------------------------------------------------------------------------------------------- */

static uint64_t process_space(void)
{
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? (uint64_t)info.st_ino : 0;
}

static void name_host(const struct tti_joining *joining, struct peer_info *peer_info)
{
    int64_t each = joining->options->host_processes;
    tti_host_name(peer_info->host, sizeof peer_info->host);
    if (each == 0) return;
    peer_info->part = joining->cluster->process / (int32_t)each;
    char *suffix = peer_info->host + strnlen(peer_info->host, sizeof peer_info->host - 8);
    snprintf(suffix, 8, ".%d", (int)peer_info->part);
}

static void fill_peer_info(const struct tti_joining *joining, struct peer_info *peer_info)
{
    memset(peer_info, 0, sizeof *peer_info);
    peer_info->status = joining->able;
    peer_info->system = tti_system_here();
    peer_info->network = tti_network_here();
    peer_info->processes = process_space();
    peer_info->user = (uint32_t)geteuid();
    peer_info->pid = getpid();
    peer_info->ranks_each = joining->cluster->ranks_each;
    peer_info->all_tcp = joining->all_tcp;
    peer_info->epoch = joining->sequel.epoch;
    peer_info->whole = joining->sequel.whole;
    peer_info->life = tti_board_lives(&joining->board, joining->cluster->process);
    name_host(joining, peer_info);
    peer_info->has_key = joining->launch->one_host && joining->cluster->process == 0;
    if (peer_info->has_key) memcpy(peer_info->key, joining->key.bytes, sizeof peer_info->key);
}

static size_t add_reason(const struct tti_joining *joining, unsigned char *mine)
{
    size_t bytes = strlen(joining->error->text);
    memcpy(mine, joining->error->text, bytes);
    return bytes;
}

tutti_status tti_joining_exchange(struct tti_joining *joining)
{
    size_t each = sizeof(uint32_t) + PEER_INFO_MOST, text = sizeof joining->error->text, used;
    unsigned char *mine = tti_calloc(1, sizeof(struct peer_info) + text + (size_t)joining->cluster->ranks_each * each);
    if (mine == NULL) return tti_joining_no_memory(joining);
    struct peer_info peer_info;
    fill_peer_info(joining, &peer_info);
    memcpy(mine, &peer_info, used = sizeof peer_info);
    if (joining->able != TUTTI_OK) used += add_reason(joining, mine + used);
    for (int i = 0; i < joining->cluster->ranks_each && joining->able == TUTTI_OK; i++) {
        struct tti_tcp_peer_info own;
        uint32_t bytes = (uint32_t)tti_tcp_peer_info(joining->endpoints[i], &own);
        memcpy(mine + used, &bytes, sizeof bytes);
        memcpy(mine + used + sizeof bytes, &own, bytes);
        used += sizeof bytes + bytes;
    }
    tutti_status status = tti_meeting_exchange(joining->meeting, mine, used, &joining->peer_infos, joining->error);
    tti_free(mine);
    return status;
}

static tutti_status read_peer_info(struct tti_joining *joining, int process, struct peer_info *peer_info)
{
    size_t bytes;
    const unsigned char *blob = tti_blob(&joining->peer_infos, process, &bytes);
    if (bytes >= sizeof *peer_info) memcpy(peer_info, blob, sizeof *peer_info);
    joining->error->peer = process * joining->cluster->ranks_each;
    if (bytes < sizeof *peer_info) return tti_joining_other_version(joining, process);
    if (peer_info->status != TUTTI_OK)
        return tti_error_set(joining->error, TUTTI_ERR_JOIN, 0, "process %d of job %.64s cannot join: %.*s", process,
                             joining->launch->job, (int)(bytes - sizeof *peer_info),
                             (const char *)blob + sizeof *peer_info);
    if (peer_info->ranks_each != joining->cluster->ranks_each)
        return tti_error_set(
            joining->error, TUTTI_ERR_JOIN, 0,
            "process %d of job %s has %d ranks, process %d has %d; TUTTI_RANKS must be the same for all", process,
            joining->launch->job, peer_info->ranks_each, joining->cluster->process, joining->cluster->ranks_each);
    if ((peer_info->all_tcp != 0) != joining->all_tcp)
        return tti_error_set(joining->error, TUTTI_ERR_JOIN, 0,
                             "process %d of job %.64s was%s told to use tcp between all ranks, process %d was%s; "
                             "TUTTI_TRANSPORT must be the same for all",
                             process, joining->launch->job, joining->all_tcp ? " not" : "", joining->cluster->process,
                             joining->all_tcp ? "" : " not");
    peer_info->host[sizeof peer_info->host - 1] = '\0';
    joining->error->peer = -1;
    return TUTTI_OK;
}

/* ---- Who is where ---------------------------------------------------------------------------------------------- */

static bool same_host(const struct peer_info *a, const struct peer_info *b)
{
    return a->network == b->network && a->processes == b->processes && a->user == b->user && a->part == b->part;
}

static bool same_machine(const struct peer_info *a, const struct peer_info *b)
{
    return a->system == b->system;
}

/* Finds the first process for which `same` holds. */
static tutti_status find_first(struct tti_joining *joining, int process, const struct peer_info *peer_info,
                               bool same(const struct peer_info *a, const struct peer_info *b), int *first)
{
    struct peer_info other;
    for (*first = 0; *first < process; ++*first) {
        TTI_TRY(read_peer_info(joining, *first, &other));
        if (same(peer_info, &other)) break;
    }
    return TUTTI_OK;
}

static int add_host(struct tti_cluster *cluster, const struct peer_info *peer_info)
{
    snprintf(cluster->host_names[cluster->host_count], TTI_CLUSTER_HOST, "%s", peer_info->host);
    return cluster->host_count++;
}

static void place_ranks(struct tti_joining *joining, int process, int first, int machine,
                        const struct peer_info *peer_info)
{
    struct tti_cluster *cluster = joining->cluster;
    int host = joining->hosts[process], local = 0;
    for (int i = 0; i < process; i++) local += joining->hosts[i] == host;
    for (int i = 0; i < cluster->ranks_each; i++) {
        int rank = process * cluster->ranks_each + i;
        cluster->ranks[rank] = (struct tti_cluster_rank){.host = host,
                                                         .first = first,
                                                         .machine = machine,
                                                         .local = local * cluster->ranks_each + i,
                                                         .process = process,
                                                         .pid = peer_info->pid,
                                                         .life = peer_info->life};
        if (!joining->all_tcp) continue;
        cluster->ranks[rank].host = rank;
        cluster->ranks[rank].local = 0;
        snprintf(cluster->host_names[rank], TTI_CLUSTER_HOST, "%s", peer_info->host);
    }
}

/* Combines what all bring from earlier epochs. If all find their world whole, it is not formed anew. */
static tutti_status join_sequels(struct tti_joining *joining)
{
    struct tti_sequel *sequel = &joining->sequel;
    struct peer_info peer_info;
    for (int process = 0; process < joining->cluster->process_count; process++) {
        TTI_TRY(read_peer_info(joining, process, &peer_info));
        if (peer_info.epoch > sequel->epoch) sequel->epoch = peer_info.epoch;
        sequel->whole = sequel->whole && peer_info.whole != 0;
    }
    if (!sequel->whole) return TUTTI_OK;
    tti_error_set(joining->error, TUTTI_ERR_JOIN, 0, "the world of job %.64s is whole: all its ranks are there",
                  joining->launch->job);
    joining->error->system_errno = TTI_WORLD_WHOLE;
    return TUTTI_ERR_JOIN;
}

tutti_status tti_joining_place(struct tti_joining *joining)
{
    struct tti_cluster *cluster = joining->cluster;
    struct peer_info peer_info;
    TTI_TRY(join_sequels(joining));
    for (int process = 0; process < cluster->process_count; process++) {
        TTI_TRY(read_peer_info(joining, process, &peer_info));
        if (peer_info.has_key && process == 0) memcpy(joining->key.bytes, peer_info.key, sizeof peer_info.key);
        int first, machine;
        TTI_TRY(find_first(joining, process, &peer_info, same_host, &first));
        TTI_TRY(find_first(joining, process, &peer_info, same_machine, &machine));
        if (!joining->all_tcp)
            joining->hosts[process] = first < process ? joining->hosts[first] : add_host(cluster, &peer_info);
        place_ranks(joining, process, first, machine, &peer_info);
    }
    if (joining->all_tcp) cluster->host_count = cluster->size;
    for (int process = 0; process < cluster->process_count; process++) {
        bool here = joining->hosts[process] == joining->hosts[cluster->process];
        joining->local_count += here;
        joining->local += here && process < cluster->process;
    }
    return TUTTI_OK;
}

tutti_status tti_joining_expect(struct tti_joining *joining, struct tti_tcp *endpoint, int rank)
{
    const struct tti_cluster *cluster = joining->cluster;
    for (int process = 0; process < cluster->process_count; process++) {
        size_t bytes, at = sizeof(struct peer_info);
        const unsigned char *blob = tti_blob(&joining->peer_infos, process, &bytes);
        for (int i = 0; i < cluster->ranks_each; i++) {
            int peer = process * cluster->ranks_each + i;
            uint32_t length = 0;
            if (bytes - at >= sizeof length) memcpy(&length, blob + at, sizeof length);
            at += sizeof length;
            if (at > bytes || length > bytes - at) length = 0; /* no peer info: refused below */
            if (peer != rank) /* includes ranks of the same host: a comm over hosts uses one transport for all */
                TTI_TRY(tti_tcp_expect(endpoint, peer, length == 0 ? NULL : blob + at, length, joining->error));
            at += length;
            if (at > bytes) at = bytes;
        }
    }
    return TUTTI_OK;
}
