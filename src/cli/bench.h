/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti bench, in parts:
 *   bench.c          flags, and how the ranks are started
 *   bench_ops.c      the operations: buffers, calls, busy bandwidth
 *   bench_check.c    inputs that are known everywhere, and results compared with them
 *   bench_measure.c  samples of an operation and of its floor, in turns
 *   bench_report.c   the table and the JSON lines
 *   bench_tune.c     switch-over sizes
 *   bench_links.c    figures of links, for tutti sim
 *   bench_machine.c  cores, the floor's memory
 *   bench_device.c   buffers and a stream of a device, and its floor
 */
#ifndef TUTTI_CLI_BENCH_H
#define TUTTI_CLI_BENCH_H

#include "bench/floor.h"
#include "cli/cli.h"

#include <sched.h>
#include <tutti/device.h>

enum { BENCH_MAX_OPS = 32 };

/* ---- What was asked ---------------------------------------------------------------------------------------------- */

struct bench_values { /* the flags, as given */
    bool list, floor;
    int64_t min_bytes, max_bytes, step_bytes, step_factor, samples, warmup, batch, root, check;
    int64_t ranks, rounds;
    const char *reduction, *type, *as, *transport, *buffers, *device, *bind, *json, *tune;
};

struct bench_op;

struct bench_settings {
    struct bench_values flags;
    const struct bench_op *ops[BENCH_MAX_OPS];
    size_t op_count;
    tutti_type types[TUTTI_TYPE_COUNT];
    size_t type_count;
    tutti_reduction reductions[TUTTI_REDUCTION_COUNT + 1];
    size_t reduction_count;
    bool in_job; /* this process is a rank that a launcher started */
    bool as_threads, buffers_private, bind;
    cpu_set_t *cores; /* (ranks) where each rank is to bind itself; NULL: nowhere */
};

/* ---- Operations -------------------------------------------------------------------------------------------------- */

enum bench_in_place {
    BENCH_NEVER,      /* the operation has no in-place form */
    BENCH_SAME,       /* in == out; with a root, at the root */
    BENCH_OWN_OF_OUT, /* in == the rank's own block of out; with a root, at the root */
    BENCH_OWN_OF_IN   /* out == the rank's own block of in; with a root, at the root */
};

enum bench_bus { BENCH_BUS_ONE, BENCH_BUS_ALL_REDUCE, BENCH_BUS_BLOCKS }; /* 1, 2(n-1)/n, (n-1)/n */

struct bench_rank;
struct bench_case;
typedef tutti_status bench_call(struct bench_rank *self, const struct bench_case *c);

struct bench_op {
    const char *name, *help;
    floor_op shape; /* what moves where; the v-forms share it with the even forms */
    enum bench_in_place in_place;
    enum bench_bus bus;
    bool blocks;   /* sizes are of all ranks' blocks together */
    bool uneven;   /* a v-form: rank r's block is r + 1 parts long */
    bool rooted;   /* has a root */
    bool reduces;  /* has a reduction */
    bool standard; /* measured when no operation is named */
    bench_call *call;
};

/* One operation on one size. */
struct bench_case {
    const struct bench_op *op;
    tutti_type type;
    tutti_reduction reduction;
    int root;
    bool in_place;
    size_t total;             /* elements of the larger buffer */
    size_t count;             /* elements of a block, or of the vector */
    size_t bytes;             /* total in bytes */
    char *in, *out;           /* what the call gets on this rank */
    char *host_in, *host_out; /* the same; with a device, what the host fills and looks at instead */
};

/* What a rank has on a device. */
struct bench_device {
    tutti_device *device;
    tutti_stream *stream;
    tutti_buffer *buffers[2]; /* in, out: (max_bytes) each, */
    char *at[2];              /* and where they lie */
    tutti_device_about about;
    int devices, mates;   /* that all ranks have, and ranks that share this one */
    bool first;           /* this rank is the first of those */
    const char *provider; /* who carries out this comm's calls on streams, */
    const char *why;      /* and why that one */
    uint64_t carried[4];  /* calls by provider when that was last asked */
    tutti_error error;
};

/* One rank's state. */
struct bench_rank {
    tutti_comm *world;
    const struct bench_settings *settings;
    int rank, ranks, cores;
    size_t max_bytes;             /* of a buffer */
    char *in_buffer, *out_buffer; /* (max_bytes) each */
    size_t link_at, link_most;    /* bench_links: where in them the next message is, and how far it may go */
    unsigned link_turn;           /* and how many there were */
    tutti_comm *link_pair;        /* this rank and the one it is measured with */
    bool buffers_private;         /* what they are */
    bool bound;                   /* ranks are bound to different cores */
    size_t *counts;               /* (ranks) elements of each block of the case at hand */
    struct bench_device *device;  /* NULL: calls are on memory of the host */
    floor_rank floor;
    size_t floor_bytes; /* of the mapping; 0: no floor is measured */
};

/* mulsum, as nccl-tests calls it: a scaled sum in which every rank has this factor. */
enum { BENCH_FACTOR = 2 };
const char *bench_reduction_name(tutti_reduction reduction);

extern const struct bench_op bench_ops[];
extern const size_t bench_op_count;
const struct bench_op *bench_op_find(const char *word); /* also by the name of nccl-tests' program; NULL: none */
const char *bench_op_nearest(const char *word);         /* NULL: none is near */
int bench_op_refuse(const char *command, const char *word);
/* For a command line without an operation: refuses `--json all_reduce`, which took the operation for its file. */
int bench_json_check(const char *command, const char *path);

/* `bytes` rounded to whole elements in whole blocks; one element each at least. */
size_t bench_whole_bytes(const struct bench_op *op, tutti_type type, int ranks, size_t bytes);
/* The case for so many bytes; fills self->counts. */
void bench_case_init(struct bench_rank *self, struct bench_case *c, const struct bench_op *op, size_t bytes,
                     tutti_type type, tutti_reduction reduction, bool in_place);
/* Elements before block `block` when `total` elements are cut into blocks. */
size_t bench_block_offset(const struct bench_case *c, int ranks, int block);
/* all_to_all: where the elements that `from` sends to `to` lie in its input. */
size_t bench_pair_offset(const struct bench_case *c, int ranks, int from, int to);
double bench_bus_factor(const struct bench_op *op, int ranks);

/* Both buffers; false with the comm's error set, or errno. */
bool bench_buffers_open(struct bench_rank *self, bool as_private);
void bench_buffers_close(struct bench_rank *self);

/* ---- Checking ---------------------------------------------------------------------------------------------------- */

/* Makes one call on fresh inputs and counts the elements of this rank's output that are wrong. */
tutti_status bench_check(struct bench_rank *self, const struct bench_case *c, uint64_t *wrong);
/* Fresh inputs and poisoned outputs, as before a check. */
tutti_status bench_fill(struct bench_rank *self, const struct bench_case *c);

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

struct bench_result {
    double min, p50, p99; /* seconds of one call on the slowest rank */
    double floor;         /* p50 of its floor, by the fastest way; 0: not measured */
    double floor_min;     /* the fastest sample of its floor */
    uint64_t samples, batch;
    uint64_t wrong;       /* elements on all ranks; UINT64_MAX: not checked */
    const char *provider; /* with a device: who carried it out */
};

/* Status of a measurement: a tool's exit status, or CLI_GO_ON. Every rank gets the same p50 and wrong. */
int bench_measure(struct bench_rank *self, const struct bench_case *c, struct bench_result *result);

/* Seconds of one call in a quick batch; for bench_tune. */
int bench_time_batch(struct bench_rank *self, const struct bench_case *c, uint64_t batch, double *seconds);
double bench_median(double *values, size_t count); /* sorts */

/* Prints the comm's error (who, what, where, what to do) and returns CLI_FAILED. */
int bench_failed(struct bench_rank *self);

/* CLI_GO_ON on every rank if `ok` on every rank, otherwise CLI_FAILED on every rank. */
int bench_agree(struct bench_rank *self, bool ok);

/* ---- Reporting (rank 0 only) ------------------------------------------------------------------------------------- */

struct bench_report {
    FILE *table, *json; /* json may be NULL */
    bool checked;       /* results are compared with a reference */
    double bus_sum;     /* of all results */
    uint64_t results, wrong;
};

int bench_report_open(struct bench_report *report, struct bench_rank *self);
void bench_report_section(struct bench_report *report, const struct bench_op *op);
/* `results`: out of place, in place; the second may be NULL. */
void bench_report_row(struct bench_report *report, struct bench_rank *self, const struct bench_case *c,
                      const struct bench_result *out_of_place, const struct bench_result *in_place);
int bench_report_close(struct bench_report *report);

/* ---- Tuning ------------------------------------------------------------------------------------------------------ */

enum { BENCH_TUNE_BYTES = 16 << 20 }; /* largest size that tuning looks at */

/* Measures, prints, and writes the file. A tool's exit status. */
int bench_tune(struct bench_rank *self);

/* What tutti sim --links reads. Copying and adding are measured with data in the caches, and past them. */
enum { BENCH_LINK_SIZES = 6 };
struct bench_link_costs {
    double local_bytes_per_s;
    double stream_s[BENCH_LINK_SIZES], alone_s[BENCH_LINK_SIZES]; /* of one each way, among many and alone */
    tutti_sim_point copy[BENCH_LINK_SIZES + 1], delay[BENCH_LINK_SIZES + 1];
};
struct bench_links {
    double link_bytes_per_s;
    int64_t link_latency_ns;
    size_t far_bytes; /* of a vector: from here on its data do not lie in the caches */
    struct bench_link_costs near, far;
};
int bench_links_measure(struct bench_rank *self, struct bench_links *links); /* points on rank 0 only */
void bench_links_write(FILE *file, const struct bench_links *links);

/* ---- A device ---------------------------------------------------------------------------------------------------- */

/* Collective. Opens this rank's device, and makes the first call on a stream. A tool's exit status, or CLI_GO_ON. */
int bench_device_open(struct bench_rank *self);
void bench_device_close(struct bench_rank *self);
/* The comm for the next call: on the device's stream where there is one. */
static inline tutti_comm *bench_on(struct bench_rank *self)
{
    return self->device == NULL ? self->world : tutti_on(self->world, self->device->stream);
}
/* Until all that was put on the stream is done; nothing without a device, as is what follows. */
tutti_status bench_device_sync(struct bench_rank *self);
/* Copies so many bytes of the host's two buffers to the device's, or back. */
tutti_status bench_device_put(struct bench_rank *self, size_t bytes);
tutti_status bench_device_get(struct bench_rank *self, size_t bytes);
/* Seconds of so many times the floor: the bytes that the operation reads and writes, copied from a device to itself by the first
 * of the ranks that share it. Negative: failed. */
double bench_device_floor(struct bench_rank *self, const struct bench_case *c, uint64_t batch);
/* Who has carried out the calls since this was last asked. */
const char *bench_device_carrier(struct bench_rank *self);
/* Prints what failed on the device or else on the comm, and returns CLI_FAILED. */
int bench_device_failed(struct bench_rank *self);

/* ---- The machine ------------------------------------------------------------------------------------------------- */

int bench_cores_here(void); /* that the calling thread may run on */
/* Sets self->cores to how many cores the ranks may run on, all together, and self->bound. A tool's exit status, or
 * CLI_GO_ON. */
int bench_count_cores(struct bench_rank *self);

/* Maps the floor's region on every rank and attaches to it. A tool's exit status, or CLI_GO_ON. */
int bench_floor_open(struct bench_rank *self);
void bench_floor_close(struct bench_rank *self);

#endif
