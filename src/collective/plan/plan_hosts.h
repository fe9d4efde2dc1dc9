/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives across hosts, host-aware: ranks of one host work in memory that they share, and between hosts only
 * necessary data travel. Any layout of ranks will do; hosts may have different numbers of ranks.
 *
 * An operation goes in three phases, each a plan; if a phase needs the results of other ranks, the host's ranks meet
 * before it (tti_hosts_meet); all leave together:
 *   BEFORE   COPY and FOLD from buffers of ranks of this host (regions say whose) into this rank's own OUT or TEMP
 *   BETWEEN  messages, between ranks that lead the same slice; regions are this rank's own
 *   AFTER    COPY from OUT or TEMP of ranks of this host into this rank's own OUT
 * TEMP is one and the same in all three, as large as the largest of them asks for; ranks of the host read it.
 *
 * The data of a window (below) are cut into slices, as many as the smallest host has ranks, or fewer when they are
 * small. A host's ranks have places, counted in rank order; its rank at place i leads slice i.
 *
 *                  before                               between, leaders of a slice           after
 *   barrier        -                                    dissemination, place 0                -
 *   all_reduce     the slice, folded over the host's    all_reduce of those sets              the other slices, from
 *                  ranks: one partial per subtree                                             their leaders' OUT
 *                  that the host covers, into TEMP
 *   reduce         the same                             reduce to the root's host: its        the root: from its host's
 *                                                       leaders, into OUT (the root) or TEMP  leaders
 *   reduce_scatter the same, of the blocks of ranks     each partial to the rank whose block  -
 *                  at the own place, of all hosts       it is, which folds all
 *   broadcast      on the root's host: the slice, from  broadcast from that host              the other slices, from
 *                  the root's IN; the root: all                                               their leaders' OUT
 *   all_gather     own block to OUT; blocks of ranks    ring, or in rounds, of the blocks     the other blocks, from
 *                  past the last slice too              that a slice has                      their leaders' OUT
 *
 * In all_gather and reduce_scatter a slice consists of the blocks of ranks at places i, i + slices, i + 2 * slices, …
 *
 * Reductions give the same bits as on one host: a host sends the largest subtrees of the canonical tree that its ranks
 * cover, a single one if they lie side by side and aligned, and down to single leaves if they do not.
 *
 * A window is a range of the vector, or of every block; the operation is repeated window after window so that TEMP
 * stays bounded. All ranks must go through the same windows.
 *
 * The whole operation is one plan (tti_hosts_build_all): its phases in a row, with steps in between at which a host's
 * ranks wait for each other. A WAIT for all waits for those of this host; ENTER says that this rank's buffers may be
 * read, LEAVE that it reads no other rank's buffers any more.
 */
#ifndef TTI_COLLECTIVE_PLAN_HOSTS_H
#define TTI_COLLECTIVE_PLAN_HOSTS_H

#include "collective/plan/plan.h"
#include "collective/reduce/subtree.h"

struct tti_hosts {
    int size, count;   /* the numbers of ranks and hosts */
    int slices;        /* the most slices: as many as the smallest host has ranks */
    int trees;         /* the number of subtrees that hosts cover, all together */
    int trees_most;    /* the number of subtrees of the host that has most */
    bool side_by_side; /* each host's ranks have consecutive numbers, host after host */
    int *host_of;      /* (size) each rank's host, numbered from 0 in order of the hosts' lowest ranks */
    int *place_of;     /* (size) each rank's place on its host */
    int *ranks;        /* (size) host by host, in rank order */
    int *first;        /* (count + 1) where a host begins in `ranks` */
};

static inline int tti_ranks_on(const struct tti_hosts *hosts, int host)
{
    return hosts->first[host + 1] - hosts->first[host];
}

static inline int tti_rank_at(const struct tti_hosts *hosts, int host, int place)
{
    return hosts->ranks[hosts->first[host] + place];
}

/* Fills in the hosts. `host_of` may hold any numbers: equal ones are one host. */
tutti_status tti_hosts_make(struct tti_hosts *hosts, const int *host_of, int size);
void tti_hosts_free(struct tti_hosts *hosts);

enum tti_phase { TTI_BEFORE, TTI_BETWEEN, TTI_AFTER, TTI_PHASES };

/* Returns true if a host-aware form is of use: there are several hosts, and one of them has several ranks. */
static inline bool tti_hosts_pay(const struct tti_hosts *hosts)
{
    return hosts->count > 1 && hosts->count < hosts->size;
}

/* Returns true if a host's ranks must meet before this phase. Before the first phase this holds for all windows but the
 * first, which comes after the entry. */
bool tti_hosts_meet(enum tti_kind kind, enum tti_phase phase);

/* A range of the vector, or of every block, in bytes. */
struct tti_part_of_all {
    uint64_t begin, bytes;
};

/* Returns true if there is a host-aware form: for the kinds in the table above. */
bool tti_hosts_cover(enum tti_kind kind);

/* Returns the most bytes of a window, a multiple of 64: the same on all ranks. */
uint64_t tti_hosts_window(const struct tti_hosts *hosts, const struct tti_shape *shape);

/* Returns the bytes that windows cut up: of the vector, or of the largest block. */
uint64_t tti_hosts_bytes(const struct tti_hosts *hosts, const struct tti_shape *shape);

/* Replaces the plan's steps. The shape is that of the whole operation, path MESSAGES. Returns ERR_MEMORY if they could
 * not be stored. */
tutti_status tti_hosts_build(struct tti_plan *plan, const struct tti_hosts *hosts, const struct tti_shape *shape,
                             enum tti_phase phase, struct tti_part_of_all window);
/* Builds all phases of all windows. */
tutti_status tti_hosts_build_all(struct tti_plan *plan, const struct tti_hosts *hosts, const struct tti_shape *shape);

#endif
