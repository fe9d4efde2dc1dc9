/* SPDX-License-Identifier: Apache-2.0
 *
 * Worlds for tests that run in every kind of them, with results that are the same in all. The test program itself never starts
 * a thread.
 */
#ifndef TESTS_CONFORMANCE_WORLD_H
#define TESTS_CONFORMANCE_WORLD_H

#include "check.h"
#include "harness.h"
#include "sanitized.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include <tutti/tutti.h>

struct conf_world {
    enum world_ranks ranks;
    int size;
    int direct, attach;   /* the options of these names */
    const char *provider; /* the option device_provider; NULL: auto */
    uint64_t seed;        /* of a simulation, */
    int hosts;            /* and how many hosts the ranks are on; 0: one */
    unsigned limit_s;     /* seconds until the alarm; 0: 400 */
    bool killed;          /* its processes are to end by SIGKILL */
    int deadline_ms;      /* of operations; 0: 60 s */
    size_t arena_bytes;   /* of each process; 0: 256 MiB */
    unsigned ends;        /* processes that end before their time, as bits */
    bool faulty;          /* ranks may fail */
    bool own_hosts;       /* NCCL takes each process for a host of its own, so that they can share a GPU */
    bool leaks;           /* a thread may end with comms that nobody frees */
    void (*meanwhile)(const struct conf_world *world, const pid_t *pids); /* done by the test while the ranks run */
    void (*body)(tutti_comm *comm, void *context);
    void *context;
};

/* What all processes of the test count together. */
struct conf_totals {
    atomic_ulong arrivals;    /* of barriers: set to 0 before each world */
    atomic_long paths[32][5]; /* operations by kind and path (enum tti_path); the last column: a tree */
};
extern struct conf_totals *conf_totals;

/* Before all else. */
void conf_begin(void);
void conf_world_run(const struct conf_world *world);

#endif
