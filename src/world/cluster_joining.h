/* SPDX-License-Identifier: Apache-2.0
 *
 * A process on its way into a cluster; for cluster*.c only.
 */
#ifndef TTI_WORLD_CLUSTER_JOINING_H
#define TTI_WORLD_CLUSTER_JOINING_H

#include "base/key.h"
#include "transport/tcp.h"
#include "world/apart.h"
#include "world/cluster.h"
#include "world/rendezvous.h"

struct tti_joining {
    const struct tti_cluster_launch *launch;
    const tutti_options *options;
    tti_area_size *area_bytes;
    struct tti_cluster *cluster;
    bool all_tcp, networked;  /* every rank counts as a host; there are endpoints */
    struct tti_sequel sequel; /* as the launch has it; after the first meeting with the epoch that all can have */
    struct tti_apart apart;
    bool traces; /* some process writes traces */
    struct tti_key key;
    bool has_key;
    int64_t deadline_ns;
    struct tti_tcp **endpoints; /* ranks_each */
    tutti_status able;          /* OK if the endpoints listen; otherwise `error` says why, and all processes are told */
    struct tti_board board;
    struct tti_meeting *meeting;
    struct tti_blobs peer_infos;
    int *hosts;             /* (process_count) each process's host */
    int local, local_count; /* the number of this process among those of its host, and how many these are */
    tutti_error *error;
};

/* Tells all where this process is and where its ranks listen, and hears the same of all. */
tutti_status tti_joining_exchange(struct tti_joining *joining);
/* Finds which ranks are on which hosts. */
tutti_status tti_joining_place(struct tti_joining *joining);
/* Tells an endpoint of this process where all other ranks listen. */
tutti_status tti_joining_expect(struct tti_joining *joining, struct tti_tcp *endpoint, int rank);

tutti_status tti_joining_no_memory(struct tti_joining *joining);
tutti_status tti_joining_other_version(struct tti_joining *joining, int process);

#endif
