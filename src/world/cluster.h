/* SPDX-License-Identifier: Apache-2.0
 *
 * A job over one host or several: its ranks, their hosts, and the way from this process's ranks to the others. Ranks of
 * one host share a world (memory); ranks of different hosts have a transport between them. With transport=tcp every
 * rank counts as a host of its own, and all use tcp.
 *
 * Processes are on one host if they see the same system, network, process numbers and user; and, with the option
 * host_processes, if their numbers lie together.
 */
#ifndef TTI_WORLD_CLUSTER_H
#define TTI_WORLD_CLUSTER_H

#include "transport/transport.h"
#include "world/board.h"
#include "world/world.h"

enum { TTI_CLUSTER_HOST = 64 };

/* One rank of the job. */
struct tti_cluster_rank {
    int host;    /* an index; with transport=tcp every rank counts as a host */
    int first;   /* the first process on the same host, also with transport=tcp */
    int machine; /* the first process of those that share its cores, on whatever hosts: these may be namespaces */
    int local;   /* its number in the world of its host */
    int process, pid;
    uint32_t life; /* how often its process had ended before, as its launcher counts */
};

/* One rank of this process. */
struct tti_cluster_local_rank {
    int rank;
    struct tti_world *world; /* of its host; one reference for each local rank, which the holder releases */
    /* to all other ranks, connected; NULL: all are on one host. The holder closes it */
    struct tti_transport *transport;
};

struct tti_cluster {
    char job[128];
    int size;
    int process, process_count, ranks_each;
    int host_count;
    bool shares;                          /* ranks of a host can read each other's memory, on all hosts, and should */
    struct tti_board board;               /* the board of this host's launcher, or none; if there is a transport */
    bool crowded;                         /* some host has more ranks than cores */
    tutti_tuning tuning;                  /* rank 0's, for all exchanges between hosts */
    struct tti_cluster_rank *ranks;       /* (size) */
    char (*host_names)[TTI_CLUSTER_HOST]; /* (host_count) */
    struct tti_cluster_local_rank *local_ranks; /* (ranks_each): ranks process * ranks_each and those after it */
    atomic_int references;                      /* one for each local rank at first */
};

/* What the launcher says. */
struct tti_cluster_launch {
    const char *job;
    int process, process_count, ranks_each;
    bool one_host; /* all processes are on this one */
    struct tti_sequel sequel;
    /* For several hosts: where process 0 waits for the others, or how it tells them; as in struct tti_rendezvous. */
    const char *address;
    void *context;
    tutti_status (*publish)(void *context, const char *text, tutti_error *error);
    tutti_status (*lookup)(void *context, char *text, size_t bytes, int64_t deadline_ns, tutti_error *error);
};

/* Returns the bytes of the area that the layer above needs in a world of so many ranks. */
typedef size_t tti_area_size(const tutti_options *options, int ranks, bool processes);

/* Joins, within options->join_timeout_ms: all or nothing, with an error on every rank that names the rank that is
 * missing, or the ranks that cannot reach each other. */
tutti_status tti_cluster_join(const struct tti_cluster_launch *launch, const tutti_options *options,
                              tti_area_size *area_bytes, struct tti_cluster **cluster, tutti_error *error);
/* Gives up a reference; the last one frees the cluster. The worlds and transports of its local ranks must have been
 * given back before. */
void tti_cluster_release(struct tti_cluster *cluster);

/* Returns how many ranks of the job share this rank's machine, or how many of these come before it. */
int tti_cluster_here(const struct tti_cluster *cluster, int rank);
int tti_cluster_place(const struct tti_cluster *cluster, int rank);

/* Checks that the option has one of the values auto, shm or tcp. */
tutti_status tti_cluster_check_transport(const char *transport, tutti_error *error);

#endif
