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
    cpu_set_t *cores; /* (ranks) the cores that each rank binds itself to; NULL: none */
};

/* ---- Operations -------------------------------------------------------------------------------------------------- */

enum bench_in_place {
    BENCH_NEVER,      /* the operation has no in-place form */
    BENCH_SAME,       /* in == out; with a root, at the root */
    BENCH_OWN_OF_OUT, /* in == the rank's own block of out; with a root, at the root */
    BENCH_OWN_OF_IN   /* out == the rank's own block of in; with a root, at the root */
};

enum bench_bus { BENCH_BUS_ONE, BENCH_BUS_ALL_REDUCE, BENCH_BUS_BLOCKS }; /* factors 1, 2(n-1)/n, (n-1)/n */

struct bench_rank;
struct bench_case;
typedef tutti_status bench_call(struct bench_rank *self, const struct bench_case *c);

struct bench_op {
    const char *name, *help;
    floor_op shape; /* how data move; a v-form has the shape of its even form */
    enum bench_in_place in_place;
    enum bench_bus bus;
    bool blocks;   /* sizes count the blocks of all ranks together */
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
    char *host_in, *host_out; /* the same; with a device, buffers that the host fills and checks */
};

/* One rank's device, and its buffers there. */
struct bench_device {
    tutti_device *device;
    tutti_stream *stream;
    tutti_buffer *buffers[2]; /* in, out: (max_bytes) each */
    char *at[2];              /* addresses of the buffers */
    tutti_device_about about;
    int devices, mates;   /* devices of all ranks; ranks that share this one */
    bool first;           /* this rank is the first of the ranks that share the device */
    const char *provider; /* the provider of this comm's calls on streams */
    const char *why;      /* why that provider was chosen */
    uint64_t carried[4];  /* calls by provider, as counted last time */
    tutti_error error;
};

/* One rank's state. */
struct bench_rank {
    tutti_comm *world;
    const struct bench_settings *settings;
    int rank, ranks, cores;
    size_t max_bytes;             /* bytes of each buffer */
    char *in_buffer, *out_buffer; /* (max_bytes) each */
    size_t link_at, link_most;    /* bench_links: place of the next message in the buffers; bytes of them in use */
    unsigned link_turn;           /* bench_links: messages so far */
    tutti_comm *link_pair;        /* bench_links: a comm of this rank and its partner */
    bool buffers_private;         /* the buffers are private memory */
    bool bound;                   /* ranks are bound to different cores */
    size_t *counts;               /* (ranks) elements of each block of the current case */
    struct bench_device *device;  /* NULL: calls are on memory of the host */
    floor_rank floor;
    size_t floor_bytes; /* bytes of the mapping; 0: no floor is measured */
};

/* mulsum of nccl-tests: a scaled sum, with this factor on every rank. */
enum { BENCH_FACTOR = 2 };
const char *bench_reduction_name(tutti_reduction reduction);

extern const struct bench_op bench_ops[];
extern const size_t bench_op_count;
const struct bench_op *bench_op_find(const char *word); /* by its name or that of nccl-tests' program; NULL: none */
const char *bench_op_nearest(const char *word);         /* NULL: none is similar */
int bench_op_refuse(const char *command, const char *word);
/* Called when no operation is given: refuses `--json all_reduce`, where --json took the operation for its file. */
int bench_json_check(const char *command, const char *path);

/* Returns `bytes` rounded to whole elements in whole blocks, at least one element each. */
size_t bench_whole_bytes(const struct bench_op *op, tutti_type type, int ranks, size_t bytes);
/* Sets up the case for so many bytes, and fills in self->counts. */
void bench_case_init(struct bench_rank *self, struct bench_case *c, const struct bench_op *op, size_t bytes,
                     tutti_type type, tutti_reduction reduction, bool in_place);
/* Returns the elements before block `block` when `total` elements are cut into blocks. */
size_t bench_block_offset(const struct bench_case *c, int ranks, int block);
/* all_to_all: returns where the elements that `from` sends to `to` begin in its input. */
size_t bench_pair_offset(const struct bench_case *c, int ranks, int from, int to);
double bench_bus_factor(const struct bench_op *op, int ranks);

/* Makes both buffers; returns false with the comm's error set, or errno. */
bool bench_buffers_open(struct bench_rank *self, bool as_private);
void bench_buffers_close(struct bench_rank *self);

/* ---- Checking ---------------------------------------------------------------------------------------------------- */

/* Makes one call on fresh inputs and counts the elements of this rank's output that are wrong. */
tutti_status bench_check(struct bench_rank *self, const struct bench_case *c, uint64_t *wrong);
/* Fills in fresh inputs and poisoned outputs, as before a check. */
tutti_status bench_fill(struct bench_rank *self, const struct bench_case *c);

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

struct bench_result {
    double min, p50, p99; /* seconds of one call on the slowest rank */
    double floor;         /* p50 of its floor, by the fastest way; 0: not measured */
    double floor_min;     /* the fastest sample of its floor */
    uint64_t samples, batch;
    uint64_t wrong;       /* wrong elements on all ranks; UINT64_MAX: not checked */
    const char *provider; /* with a device: the provider of the calls */
};

/* Measures a case. Returns a tool's exit status, or CLI_GO_ON. Every rank gets the same p50 and wrong. */
int bench_measure(struct bench_rank *self, const struct bench_case *c, struct bench_result *result);

/* Measures the seconds of one call in a quick batch; for bench_tune. */
int bench_time_batch(struct bench_rank *self, const struct bench_case *c, uint64_t batch, double *seconds);
double bench_median(double *values, size_t count); /* sorts the values */

/* Prints the comm's error (who, what, where, what to do) and returns CLI_FAILED. */
int bench_failed(struct bench_rank *self);

/* Returns CLI_GO_ON on every rank if `ok` on every rank, otherwise CLI_FAILED on every rank. */
int bench_agree(struct bench_rank *self, bool ok);

/* ---- Reporting (rank 0 only) ------------------------------------------------------------------------------------- */

struct bench_report {
    FILE *table, *json; /* json may be NULL */
    bool checked;       /* results are compared with a reference */
    double bus_sum;     /* bus bandwidths of all results, added up */
    uint64_t results, wrong;
};

int bench_report_open(struct bench_report *report, struct bench_rank *self);
void bench_report_section(struct bench_report *report, const struct bench_op *op);
/* Prints a row. `in_place` may be NULL. */
void bench_report_row(struct bench_report *report, struct bench_rank *self, const struct bench_case *c,
                      const struct bench_result *out_of_place, const struct bench_result *in_place);
int bench_report_close(struct bench_report *report);

/* ---- Tuning ------------------------------------------------------------------------------------------------------ */

enum { BENCH_TUNE_BYTES = 16 << 20 }; /* the largest size that tuning measures */

/* Measures, prints, and writes the file. Returns a tool's exit status. */
int bench_tune(struct bench_rank *self);

/* Figures that tutti sim --links reads. Copying and adding are measured with data in the caches, and with data that do
 * not fit into them. */
enum { BENCH_LINK_SIZES = 6 };
struct bench_link_costs {
    double local_bytes_per_s;
    /* seconds of a message each way, among many and alone */
    double stream_s[BENCH_LINK_SIZES], alone_s[BENCH_LINK_SIZES];
    tutti_sim_point copy[BENCH_LINK_SIZES + 1], delay[BENCH_LINK_SIZES + 1];
};
struct bench_links {
    double link_bytes_per_s;
    int64_t link_latency_ns;
    size_t far_bytes; /* data of vectors from this size on are not in the caches */
    struct bench_link_costs near, far;
};
int bench_links_measure(struct bench_rank *self, struct bench_links *links); /* fills in the points on rank 0 only */
void bench_links_write(FILE *file, const struct bench_links *links);

/* ---- A device ---------------------------------------------------------------------------------------------------- */

/* Collective. Opens this rank's device, and makes the first call on a stream. Returns a tool's exit status, or
 * CLI_GO_ON. */
int bench_device_open(struct bench_rank *self);
void bench_device_close(struct bench_rank *self);
/* Returns the comm for the next call: on the device's stream if there is a device. */
static inline tutti_comm *bench_on(struct bench_rank *self)
{
    return self->device == NULL ? self->world : tutti_on(self->world, self->device->stream);
}
/* Waits until all work on the stream is done. Without a device this does nothing; nor do the two below. */
tutti_status bench_device_sync(struct bench_rank *self);
/* They copy so many bytes of the host's two buffers to the device's, and back. */
tutti_status bench_device_put(struct bench_rank *self, size_t bytes);
tutti_status bench_device_get(struct bench_rank *self, size_t bytes);
/* Returns the seconds of `batch` times the floor: the bytes that the operation reads and writes, copied from a device
 * to itself by the first of the ranks that share it. Negative: it failed. */
double bench_device_floor(struct bench_rank *self, const struct bench_case *c, uint64_t batch);
/* Returns the provider that carried out the calls since this was last asked. */
const char *bench_device_carrier(struct bench_rank *self);
/* Prints the error of the device or else of the comm, and returns CLI_FAILED. */
int bench_device_failed(struct bench_rank *self);

/* ---- The machine ------------------------------------------------------------------------------------------------- */

int bench_cores_here(void); /* cores that the calling thread may run on */
/* Sets self->cores to the number of cores that all ranks together may run on, and self->bound. Returns a tool's exit
 * status, or CLI_GO_ON. */
int bench_count_cores(struct bench_rank *self);

/* Maps the floor's region on every rank and attaches to it. Returns a tool's exit status, or CLI_GO_ON. */
int bench_floor_open(struct bench_rank *self);
void bench_floor_close(struct bench_rank *self);

#endif
