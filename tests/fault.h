/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fault tests share: worlds that run in processes of their own, so that a rank can be killed, stopped or crash
 * without taking the test along, and a bound on everything.
 *
 * Every world runs in child processes: one per rank, or one whose threads are the ranks. Ranks report through memory
 * that all of them share with the test. The test waits for all children, at most `limit_ms`; what is still there then is
 * killed, and counts as a hang. Each child has an alarm besides.
 */
#ifndef TUTTI_TESTS_FAULT_H
#define TUTTI_TESTS_FAULT_H

#include "check.h"
#include "harness.h"
#include "sanitized.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <tutti/experimental.h>
#include <tutti/tutti.h>

/* What a loaded machine may add to a time that is promised: nothing that hangs ends within it. */
enum { FAULT_SLACK_MS = 15000 };

enum { FAULT_RANKS = 8, FAULT_STEPS = 16, FAULT_NUMBERS = 8, FAULT_LINES = 16 };

/* How one call ended. */
struct fault_step {
    bool done;
    tutti_status status;
    int64_t began_ns, ended_ns;
    tutti_error error; /* of the comm, if the call failed */
    int line;
};

/* What one rank reports, and can be told. */
struct fault_rank {
    _Atomic int mark; /* how far it is; for whoever acts on it */
    _Atomic int met;  /* how often it came to fault_meet */
    bool joined, finished;
    int64_t leave_ns;            /* processes: how long leaving took */
    int fds_left, mappings_left; /* processes: more than before joining */
    int exit_status;             /* of its process, as waitpid gives it */
    int64_t began_ns;            /* of the call that runs now */
    int steps_done;
    struct fault_step steps[FAULT_STEPS];
    int64_t numbers[FAULT_NUMBERS];
};

struct fault_log {
    _Atomic int count;
    char lines[FAULT_LINES][512];
};

struct fault_shared {
    _Atomic int go;
    struct fault_rank ranks[FAULT_RANKS];
    struct fault_log log;
    _Alignas(64) char scratch[8192]; /* for a test of its own */
};
extern struct fault_shared *fault_shared;

/* ---- The test program --------------------------------------------------------------------------------------------- */

/* Begins a test program: shared memory, and an alarm for the whole, which may take `seconds` on a quiet machine. */
void fault_begin(unsigned seconds);
/* Prints the times and the counts, and gives main's result. */
int fault_end(void);

int64_t fault_now_ns(void);
void fault_sleep_ms(int64_t ms);
/* For a world that is joined by the test itself: little memory, and an end to waiting for who does not come. */
tutti_options fault_join_options(int64_t join_timeout_ms);
uint64_t fault_random(uint64_t *state);

/* Any of the times given for one name may be FAULT_SLACK_MS longer than what is promised; of ten and more, one in ten may be
 * longer, of those for which the machine had turns to give. fault_end prints the largest. */
void fault_time(const char *name, int64_t ns, int64_t promised_ms);

/* ---- Worlds ---------------------------------------------------------------------------------------------------- */

typedef void fault_body(tutti_comm *comm, struct fault_rank *self);

struct fault_world {
    int size;
    bool processes;
    bool keeps_files; /* ranks may leave descriptors open: a GPU's driver does */
    bool joins;       /* threads that join one by one, as processes do; else those of tutti_main */
    fault_body *body;
    void (*after)(void);     /* run by ranks that have left the world, but not by those of tutti_main */
    const char *settings[8]; /* "TUTTI_ATTACH=0" */
    void (*meanwhile)(struct fault_world *world); /* run by the test while the ranks do */
    int64_t limit_ms;                             /* 0: 60 s */
    pid_t pids[FAULT_RANKS];                      /* -1 once it has ended; threads: all ranks have the first one's */
};

/* Runs the world to its end. False if something hung or a child ended in a way nobody asked for (a rank that the test
 * kills or that ends by itself says so with fault_expect_end). */
bool fault_run(struct fault_world *world);
void fault_expect_end(int rank);
/* The same with this body alone, named after the title and what the ranks are. */
void fault_run_body(const char *title, fault_body *body, int size, bool processes, bool over_tcp);
/* With a setting, NAME=VALUE, or NULL. */
void fault_run_set(const char *title, fault_body *body, int size, bool processes, const char *setting);
/* Calls it for threads and for processes, over memory and, with `over_tcp` set, over tcp. */
void fault_everywhere(void (*run_all)(bool processes), bool *over_tcp);

/* Waits until the rank has come to `mark`; false if it does not. */
bool fault_await_mark(int rank, int mark);
/* Meets all ranks of the world beside the comm: whatever they called before has ended on all of them. A barrier may end on
 * one rank before another's does, which then fails if the first breaks the comm. */
void fault_meet(const tutti_comm *comm);

/* FAULT_CALL(self, comm, tutti_barrier(comm)) runs, times and records one call, and gives its status. */
#define FAULT_CALL(self, comm, call) ((self)->began_ns = fault_now_ns(), fault_did((self), (comm), __LINE__, (call)))
tutti_status fault_did(struct fault_rank *self, const tutti_comm *comm, int line, tutti_status status);

bool fault_has(const struct fault_step *step, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Log lines of the library go to fault_shared->log, of whatever process. */
void fault_catch_log(void);
bool fault_logged(const char *words);

/* ---- Every operation, out of place ----------------------------------------------------------------------------- */

enum {
    FAULT_BARRIER,
    FAULT_ALL_REDUCE,
    FAULT_REDUCE,
    FAULT_BROADCAST,
    FAULT_ALL_GATHER,
    FAULT_GATHER,
    FAULT_SCATTER,
    FAULT_REDUCE_SCATTER,
    FAULT_ALL_TO_ALL,
    FAULT_ALL_GATHER_V,
    FAULT_GATHER_V,
    FAULT_SCATTER_V,
    FAULT_REDUCE_SCATTER_V,
    FAULT_ALL_TO_ALL_V,
    FAULT_SCAN,
    FAULT_EXSCAN,
    FAULT_SENDRECV, /* to the next rank, from the one before */
    FAULT_SEND,     /* by rank 0 to every other rank, which receive */
    FAULT_OPS
};
const char *fault_op_name(int op);

/* One rank's buffers, of size * count elements of f32 each. */
struct fault_buffers {
    tutti_comm *comm;
    int rank, size;
    size_t count;
    size_t *counts; /* [size], all `count`: for the v-forms */
    float *in, *out;
    bool shared;
};
bool fault_buffers_make(struct fault_buffers *buffers, tutti_comm *comm, size_t count, bool shared);
void fault_buffers_free(struct fault_buffers *buffers);
bool fault_inputs_intact(const struct fault_buffers *buffers);

tutti_status fault_op(int op, struct fault_buffers *buffers);
/* Spoils some elements of the output before a call, and looks at those after a success. */
void fault_op_spoil(struct fault_buffers *buffers);
bool fault_op_right(int op, const struct fault_buffers *buffers);

#endif
