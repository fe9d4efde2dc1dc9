/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of jobs on several hosts: processes of one rank or more each join a cluster, send frames to all ranks of other
 * hosts, and report through a pipe.
 */
#ifndef TEST_HOSTS_H
#define TEST_HOSTS_H

#include "check_mesh.h"
#include "world/cluster.h"

/* What one process is to do. */
struct host_part {
    struct tti_cluster_launch launch;
    tutti_options options;
    uint64_t frames;  /* to every rank of other hosts */
    int expect_hosts; /* 0: not looked at */
    const char *then; /* a command that the first rank of the process runs when it has all frames; NULL: none */
    int64_t busy_ms;  /* sends more frames for so long, before that */
    bool stay;        /* when joined: until a peer is lost, whose text then is in the report */
};

struct host_report {
    tutti_status status;
    int hosts, local_size; /* of the world */
    bool shares;           /* ranks of a host combine in memory */
    int apart, machines;   /* hosts that processes are on, whatever the transport; and whose cores these have */
    uint64_t ended, wrong; /* frames */
    int64_t joined_ns, ran_ns, lost_ns; /* when, by the clock of all */
    tutti_error error;
    char lost[200];
};

/* The options' defaults, with a little memory. */
tutti_options host_options(void);
/* Joins and does its part in this process. */
struct host_report host_run(const struct host_part *part);

#endif
