/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti faultbench: kills ranks during collectives, and checks how the others react. faultbench.c starts jobs and
 * counts; faultbench_rank.c is the work of their ranks. Both share memory, in which each round has its place.
 */
#ifndef TUTTI_CLI_FAULTBENCH_H
#define TUTTI_CLI_FAULTBENCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <tutti/tutti.h>

enum { FAULT_RANKS_MOST = 16, FAULT_LIMIT_MS = 20000 };

/* What a surviving rank saw of a death. */
struct fault_seen {
    _Atomic int64_t detected_ns; /* when its op had failed; 0: it did not see the death */
    _Atomic int64_t whole_ns;    /* when the first collective of the next epoch had ended */
    _Atomic int32_t status;      /* status of the op */
    _Atomic int32_t agreed;      /* status of the agreement that followed */
    _Atomic uint64_t all, lost;  /* value that was agreed on; ranks lost by then, a bit each */
};

struct fault_round {
    _Atomic int64_t died_ns; /* 0: nobody has died */
    _Atomic int32_t victim, op;
    /* the victim died after this step of its plan of `steps` steps; 0: before the first one; -1: at some time */
    _Atomic int32_t step, steps;
    struct fault_seen seen[FAULT_RANKS_MOST];
};

struct fault_shared {
    uint64_t seed;
    int32_t size, rounds, first; /* the job's first round */
    _Atomic int32_t next;        /* the next round that has not begun */
    _Atomic uint32_t progress;   /* grows while something happens */
    _Atomic int32_t wrong;       /* wrong sums */
    _Atomic int32_t left_open;   /* ranks with more descriptors or mappings at the end than at first */
    struct fault_round list[];   /* [rounds] */
};

/* Returns the name of a round's `op`. */
const char *fault_op_name(int op);
/* Runs in the process of a rank; `path` is the memory that it shares. Returns its exit status. */
int fault_rank_main(const char *path);

#endif
