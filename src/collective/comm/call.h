/* SPDX-License-Identifier: Apache-2.0
 *
 * A call: what a rank asked for, in the form that its peers can read, compare and name in an error.
 */
#ifndef TTI_COLLECTIVE_CALL_H
#define TTI_COLLECTIVE_CALL_H

#include "base/hash.h"
#include "collective/plan/kind.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

/* Where a buffer lies, for other ranks. */
enum tti_reach {
    TTI_NOWHERE, /* not used in this call */
    TTI_ARENA,   /* value is an offset in the arena of `process` */
    TTI_PRIVATE, /* value is an address, good in the process with that pid only */
    TTI_DEVICE   /* for a message: value is an arena offset that leads to the place on a device (message_device.c) */
};
struct tti_place {
    uint32_t reach;
    int32_t process;
    uint64_t value;
    uint32_t epoch; /* epoch of the comm in which it was told */
};

/* Where a call is made. The file's tail and the name are copied, since a peer cannot follow our pointers. */
struct tti_site {
    int32_t line;
    char file[43];
    bool inside; /* the library makes it inside another call; needs a name */
    char name[32];
};

enum { TTI_NO_REDUCTION = 255, TTI_CALL_DIGESTS = 6 };

struct tti_call {
    uint8_t kind;       /* enum tti_kind */
    uint8_t type;       /* tutti_type; TUTTI_TYPE_COUNT: none */
    uint8_t reduction;  /* tutti_reduction, known by its name, or TTI_NO_REDUCTION */
    bool in_place : 1;  /* for all_to_all, where it must hold on all ranks or on none */
    bool on_stream : 1; /* it was put on a stream */
    int32_t root;       /* -1: none */
    uint32_t reduction_signature;
    uint32_t counts_signature;          /* signature of the counts that must be equal on all ranks */
    uint64_t count;                     /* elements of all parts, if it has parts */
    double factor;                      /* this rank's, for a scaled sum */
    uint32_t parts;                     /* pieces, or blocks whose counts all ranks give; 0: none */
    uint16_t digests[TTI_CALL_DIGESTS]; /* each of an equal share of the parts' counts: they tell which counts differ */
    struct tti_site site;
};
_Static_assert(sizeof(struct tti_call) == 128, "two cache lines each");

/* Returns a digest of all that must be equal on all ranks. */
uint64_t tti_call_digest(const struct tti_call *call);
/* Chains a call onto the signature of all calls before it: once two signatures differ they stay different. The lowest
 * bit is left clear for the "private" mark of the entry word. */
static inline uint32_t tti_call_signature(uint32_t before, uint64_t digest)
{
    return (uint32_t)(tti_mix((uint64_t)before << 32 | before, digest) >> 32) & ~UINT32_C(1);
}
uint32_t tti_counts_signature(const size_t *counts, int size);
/* Fills in the fields that depend on how many pieces there are, and on their counts. */
void tti_call_set_pieces(struct tti_call *call, const tutti_piece *pieces, size_t count);
/* The same for blocks, one of each rank. */
void tti_call_set_blocks(struct tti_call *call, const size_t *counts, int size);

/* Writes " \"loss\" at cli_train.c:12", or "" if the caller did not say where. */
void tti_site_describe(const struct tti_site *site, char *text, size_t bytes);

/* Writes "all_reduce(4 f32, sum) \"loss\" at cli_train.c:12". */
void tti_call_describe(const struct tti_call *call, char *text, size_t bytes);

/* Returns true if the rank's result of this call depends on the peer's input. */
bool tti_call_depends(const struct tti_call *call, int rank, int peer);

/* Writes "ranks differ at operation #7: rank 0 called barrier at a.c:10, but rank 1 called …". */
void tti_call_describe_two(uint64_t sequence, int rank, const struct tti_call *call, int peer,
                           const struct tti_call *other, char *text, size_t bytes);

#endif
