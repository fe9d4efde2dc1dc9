/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of joining: processes that are one rank each and report through a pipe. Nothing is waited for without a
 * bound.
 */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

#include "check.h"
#include "harness.h"
#include "sanitized.h"
#include "world/join_messages.h"
#include "world/world.h"

/* Waits that only a hang outlasts, also on a loaded machine: BOUND_MS of the test, LONG_MS of the library. SLACK_MS: what
 * such a machine may add to a time that is promised; less than LONG_MS. */
enum { RANKS_MOST = 80, BOUND_MS = 60000, AREA_BYTES = 12345, LONG_MS = 45000, SLACK_MS = 20000 };

#define MS ((int64_t)1000000)

/* What one rank is to do. */
struct part {
    char job[TTI_WIRE_JOB];
    int rank, size;
    int64_t timeout_ms;
    size_t area_bytes;
    long allowed; /* allocations before they fail; -1: all succeed */
    size_t limit_fds, limit_space, arena_bytes;
    void (*then)(struct tti_world *world, const struct part *part); /* once joined */
};

/* What it reports. */
struct report {
    tutti_status status;
    int64_t took_ns;
    tutti_error error;
};

struct process {
    pid_t pid;
    int pipe; /* of its report */
};

extern int rank_job_number; /* part of the job's name; to be raised after each case */

struct part rank_part(int rank, int size);
void ranks_fill(struct part *parts, int size);
tutti_options rank_options(const struct part *part);
/* Joins in this process; NULL on failure. */
struct tti_world *rank_join(const struct part *part, struct report *report);

/* Joins in a process of its own. */
struct process rank_start(const struct part *part);
/* Its report; status IN_PROGRESS when it ended without one, or never came. */
struct report rank_report(struct process *process);
/* Waits for its end; true if that was in time, and in order or by SIGKILL. */
bool rank_finish(struct process *process);
/* Starts all parts and collects all reports, in order. */
void ranks_run(const struct part *parts, struct report *reports, int count);

/* For parts' `then`: ends the process with 1 unless the condition holds. */
#define EXPECT(condition) rank_expect((condition), __FILE__, __LINE__)
void rank_expect(bool condition, const char *file, int line);
/* Meets the other ranks by counting at word `at` of the area. False if they do not come. */
bool rank_meet(struct tti_world *world, int at);
/* A `then`: every rank writes to its arena and says where; every rank finds every other's. */
void rank_use_world(struct tti_world *world, const struct part *part);

#endif
