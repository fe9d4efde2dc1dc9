/* SPDX-License-Identifier: Apache-2.0
 *
 * The floor under a collective: the time in which the same ranks, on the same cores, move the bytes that the operation
 * cannot avoid moving, with nothing else in the way. Bare C and libc: it shares no code with the library.
 *
 * All ranks map one region. It holds the flags of a bare barrier, a small stage per rank, and an input and an output
 * buffer per rank. One call of an operation reads every input once and writes every output once, the work divided
 * evenly, between two barriers; small calls may also go through the stages, which takes one exchange instead of two.
 * An operation has several ways to do this; its floor is the fastest of them.
 */
#ifndef BENCH_FLOOR_H
#define BENCH_FLOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FLOOR_MAX_RANKS = 256 };

typedef enum floor_op {
    FLOOR_BARRIER,
    FLOOR_ALL_REDUCE,
    FLOOR_REDUCE,
    FLOOR_BROADCAST,
    FLOOR_ALL_GATHER,
    FLOOR_GATHER,
    FLOOR_SCATTER,
    FLOOR_REDUCE_SCATTER,
    FLOOR_ALL_TO_ALL,
    FLOOR_SCAN,
    FLOOR_EXSCAN,
    FLOOR_PING_PONG /* batches must be even */
} floor_op;

typedef enum floor_way {
    FLOOR_PLAIN,  /* vector loads and ordinary stores */
    FLOOR_STREAM, /* vector loads and stores past the caches */
    FLOOR_MIXED,  /* half of the lines by each of these, in turns, where nothing is added */
    FLOOR_LIBC,   /* memcpy, where nothing is added */
    FLOOR_STAGED, /* small: every rank's data beside a flag, one exchange */
    FLOOR_WAYS
} floor_way;

/* out = in[0] + in[1], floats, by the fastest loop there is; all aligned to 64. */
void floor_add(const char *const in[2], char *out, size_t bytes);

typedef struct floor_call {
    floor_op op;
    size_t bytes; /* of the larger buffer of the operation, all its blocks together */
    bool in_place;
    int root;
} floor_call;

/* One rank's view of the region. Opaque but for its size; no two ranks share one. */
typedef struct floor_rank {
    char *region;
    int rank, ranks;
    size_t buffer_bytes; /* between two buffers of the region */
    bool yield;          /* more ranks than cores: give the core away while waiting */
    uint64_t epoch;      /* barriers passed */
    uint64_t posted;     /* staged calls made */
    uint64_t left_seen;  /* staged calls that every rank is known to have left */
    const void *kernels;
} floor_rank;

/* Bytes of a region for calls of up to `max_bytes`. It starts zeroed. */
size_t floor_region_bytes(int ranks, size_t max_bytes);

/* The part of the region that `rank` fills in floor_attach: it should be the one to commit it. */
void floor_own_part(int rank, int ranks, size_t max_bytes, size_t *offset, size_t *bytes);

/* Fills in `self` and this rank's buffers. */
void floor_attach(floor_rank *self, void *region, int rank, int ranks, size_t max_bytes, bool yield);

/* Whether `way` is worth measuring for this call; FLOOR_PLAIN always is. */
bool floor_has_way(const floor_rank *self, const floor_call *call, floor_way way);

/* Makes `batch` calls after a barrier. Returns this rank's elapsed seconds, or a negative number when the ranks were
 * told to give up (or one of them has not come for a minute). Every rank must make the same call. */
double floor_sample(floor_rank *self, const floor_call *call, floor_way way, uint64_t batch);

/* Tells all ranks to give up: a rank that ends early must not leave the others waiting. */
void floor_abort(floor_rank *self);

/* "avx512", "avx2" or "portable" */
const char *floor_kernels_name(void);

#endif
