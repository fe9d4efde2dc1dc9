/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti faultbench: ranks that are killed in the midst of collectives, and what the others make of it. faultbench.c starts jobs
 * and counts, faultbench_rank.c is what their ranks do. Both share memory, in which each round has its place.
 */
#ifndef TUTTI_CLI_FAULTBENCH_H
#define TUTTI_CLI_FAULTBENCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <tutti/tutti.h>

enum { FAULT_RANKS_MOST = 16, FAULT_LIMIT_MS = 20000 };

/* What a rank that lives saw of a death. */
struct fault_seen {
    _Atomic int64_t detected_ns; /* its op had failed; 0: it did not see it */
    _Atomic int64_t whole_ns;    /* the first collective of the next epoch had ended */
    _Atomic int32_t status;      /* of the op, */
    _Atomic int32_t agreed;      /* of the agreement that followed, */
    _Atomic uint64_t all, lost;  /* what it gave, and who was lost then, a bit each */
};

struct fault_round {
    _Atomic int64_t died_ns; /* 0: nobody has */
    _Atomic int32_t victim, op;
    _Atomic int32_t step, steps; /* it died behind that step of its plan, 0: before the first one, -1: at some time */
    struct fault_seen seen[FAULT_RANKS_MOST];
};

struct fault_shared {
    uint64_t seed;
    int32_t size, rounds, first; /* the job's first round */
    _Atomic int32_t next;        /* round that has not begun */
    _Atomic uint32_t progress;   /* grows while something happens */
    _Atomic int32_t wrong;       /* sums */
    _Atomic int32_t left_open;   /* ranks with more descriptors or mappings at the end than at first */
    struct fault_round list[];   /* [rounds] */
};

/* What a round's `op` is called. */
const char *fault_op_name(int op);
/* In the process of a rank, which is to share this memory by the name of a descriptor. Returns its exit status. */
int fault_rank_main(const char *path);

#endif
