/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of one host in a comm over several hosts. They see each other's progress and buffers through memory that they
 * share, and so carry out the local steps of host-aware plans (plan_hosts.h); with all else they deal with each other by
 * messages, like with ranks of other hosts. Nobody is ever written to: a rank reads what others of its host have, directly
 * or by cross-memory attach.
 *
 * Invariant: a rank writes its post alone, where its buffers lie when it enters an operation. What one rank shows others
 * read between their ENTER and their LEAVE, and it enters no other host-aware operation with buffers before all have left:
 * one set of places is enough. Numbers only grow, from one operation to the next too.
 *
 * A rank that sleeps until another publishes sleeps in its transport; it says so in its post, and whoever publishes then
 * sends it a frame (NUDGE). Simulated ranks are woken directly.
 *
 * After a failure buffers are their owner's again when no thread of its own process can still read them: these have left the
 * operation or failed too. Other processes read what is always mapped, or by attach, and their operation fails as well: they
 * wait for a number that will not come.
 */
#ifndef TTI_COLLECTIVE_LOCAL_H
#define TTI_COLLECTIVE_LOCAL_H

#include "collective/comm/comm.h"
#include "collective/peers/posts.h"
#include "collective/plan/plan_hosts.h"

/* In shared memory, one per rank of the host. */
struct tti_local_post {
    _Alignas(64) _Atomic uint64_t progress; /* as in struct tti_post */
    _Atomic uint32_t asleep;                /* threads of it, until somebody publishes */
    _Atomic uint32_t left;                  /* the comm */
    struct tti_transport *endpoint;         /* simulated ranks: what it sleeps in */
    uint32_t signature;                     /* of the operation that it has entered, and */
    int32_t pid;
    double factor;
    struct tti_place in, out, temp;
};

struct tti_local {
    const struct tti_hosts *hosts;
    struct tti_hosts own; /* `hosts`, unless they were given */
    const int *ranks;     /* of this host, in order */
    int count, place;     /* of them, and this one among them */
    struct tti_area *area;
    bool owns_area, given; /* the area is of this process's arena; it is to be given back */
    bool one_process;
    struct tti_local_post *posts; /* (count) */
    char *scratch;                /* (count) times TTI_SCRATCH_BYTES: pieces of what is read by attach */
};

/* Bytes of memory, zeroed, that a comm's ranks on one host share. */
size_t tti_local_bytes(int count);

/* What it is made from. */
struct tti_local_setup {
    const int *host_of;            /* (size) of the comm's ranks, or: */
    const struct tti_hosts *hosts; /* which outlast the comm */
    void *area;                    /* of tti_local_bytes */
    bool given, owns;              /* a comm that was split off gives its area back; this rank's arena has it */
    bool one_process;              /* the host's ranks are threads of this process */
};
tutti_status tti_local_create(tutti_comm *comm, const struct tti_local_setup *setup, tutti_error *error);
void tti_local_free(tutti_comm *comm);

/* Whether operations of this kind go by host-aware plans. */
bool tti_local_covers(const tutti_comm *comm, enum tti_kind kind);

/* What a rank of this host has published last; 0: it is of another. */
uint64_t tti_local_mark(const tutti_comm *comm, int rank);

/* This rank is about to sleep until one of them publishes, or has slept. */
void tti_local_announce(tutti_comm *comm, bool asleep);

/* Memory that the others can read; aligned to 64. Simulated ranks that move no data have one for all. */
void *tti_local_alloc(tutti_comm *comm, size_t bytes);
void tti_local_release(tutti_comm *comm, void *memory, bool in_use);

/* ENTER, PUBLISH, LEAVE. */
void tti_local_say(struct tti_op *op, const struct tti_step *step);
/* WAIT. With the net's lock held. */
tutti_status tti_local_wait(struct tti_op *op, const struct tti_step *step);

/* Where a region of another rank of this host can be read; NULL: it has to be fetched. */
char *tti_local_address(const struct tti_op *op, const struct tti_region *region);
/* Reads it from another process. IN_PROGRESS: it has ended. */
tutti_status tti_local_fetch(struct tti_op *op, const struct tti_region *region, uint64_t offset, void *target,
                             size_t bytes);
double tti_local_factor(const struct tti_op *op, int rank);

/* The op failed: nothing of the others is read any more. */
void tti_local_stop(struct tti_op *op);
/* A rank that may still read this rank's buffers by their address, or -1. */
int tti_local_reader(const struct tti_op *op);

#endif
