/* SPDX-License-Identifier: Apache-2.0
 *
 * Siblings are ranks of one comm in one process: threads, which share all memory. Two that give the same memory as
 * output, such as a global variable, would overwrite each other's results. Every sibling shows on a board, which all of
 * them share, where its output lies, and since which operation.
 *
 * Invariant: an output is shown before the operation begins, and only when it is another than before. While outputs
 * stay the same nobody writes to the board, and all that is read is its count of changes. Where all ranks meet, as in
 * an all_reduce, all outputs are in use at the same time: who has changed his, or sees that somebody has, compares at
 * the end, so at least one of two that overlap breaks the comm. In other operations a rank may have ended, and freed
 * what another has got since: there who shows a new output compares it with those that were shown for the same
 * operation and are still in use.
 */
#ifndef TTI_COLLECTIVE_SIBLINGS_H
#define TTI_COLLECTIVE_SIBLINGS_H

#include "collective/comm/comm.h"

struct tti_outputs; /* the board */

/* A rank's output, from one operation on. */
struct tti_output {
    uint64_t since; /* the first operation; 0: there was none */
    uintptr_t address;
    uint64_t bytes;
    bool ended;           /* that operation has ended for this rank */
    struct tti_site site; /* site of that call */
};

/* A comm's view of the board. */
struct tti_siblings {
    struct tti_outputs *outputs;
    const _Atomic uint64_t *changes; /* changes on the board so far */
    int place;                       /* this rank's place among them */
    uint64_t seen;                   /* the changes up to which it has compared */
    struct tti_output now;           /* this rank's output, as on the board */
    int clash;                       /* 1 + the rank whose output was found to overlap when the op began; 0: none */
    struct tti_site clash_site;
};

/* Makes comm->siblings for a comm that has its area or its lanes; NULL there if the rank has none. Returns false if
 * there is no memory. */
bool tti_siblings_create(tutti_comm *comm);
void tti_siblings_free(tutti_comm *comm);

/* Called when the op, or a round of it, is about to be numbered. */
void tti_siblings_show_new(struct tti_op *op);
static inline void tti_siblings_show(struct tti_op *op)
{
    const struct tti_output *now = &op->comm->traits.siblings->now;
    if ((uintptr_t)op->out != now->address || op->out_bytes != now->bytes) tti_siblings_show_new(op);
}

/* Called when it has ended. Returns OK, or the error that broke the comm. */
tutti_status tti_siblings_compare_new(struct tti_op *op);
static inline tutti_status tti_siblings_compare(struct tti_op *op)
{
    const struct tti_siblings *siblings = op->comm->traits.siblings;
    bool seen = atomic_load_explicit(siblings->changes, memory_order_acquire) == siblings->seen;
    return seen ? TUTTI_OK : tti_siblings_compare_new(op);
}

void tti_siblings_forked(void);

#endif
