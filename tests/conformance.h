/* SPDX-License-Identifier: Apache-2.0
 *
 * The one list of conformance cases: every operation, compared byte for byte with what a serial program computes, on
 * every kind of rank, memory and path. A list of cases is made before the world is started and is the same on all
 * ranks; each rank knows from it what all of its bytes must be afterwards, those around its buffers included.
 */
#ifndef TESTS_CONFORMANCE_H
#define TESTS_CONFORMANCE_H

#include "collective/comm/call.h"
#include "conformance_reference.h"
#include "conformance_world.h"
#include <tutti/experimental.h>

enum conf_place { CONF_OUT_OF_PLACE, CONF_IN_PLACE, CONF_IN_PLACE_ODD /* on odd ranks */, CONF_PLACES };
enum conf_memory {
    CONF_SHARED,  /* tutti_alloc */
    CONF_PRIVATE, /* malloc */
    CONF_MIXED,   /* private on odd ranks */
    CONF_SPLIT,   /* inputs shared, outputs private */
    CONF_MEMORIES
};
enum conf_tuning {
    CONF_DEFAULT,  /* as the library has it */
    CONF_SMALL,    /* every switch-over at a few hundred or thousand bytes */
    CONF_BOUNCED,  /* nothing staged, nothing attached, everything streamed */
    CONF_ATTACHED, /* nothing staged, everything attached where it can be */
    CONF_TREE,     /* as CONF_BOUNCED, with trees and dissemination from the smallest size on */
    CONF_TUNINGS
};

struct conf_case {
    enum tti_kind kind; /* a collective, TTI_SEND (then recv) or TTI_SENDRECV */
    tutti_type type;
    int column; /* of reductions */
    size_t count;
    int root; /* of messages: the distance of partners */
    enum conf_place place;
    enum conf_memory memory;
    enum conf_tuning tuning;
    uint64_t seed; /* of counts, offsets, alignment */
};

struct conf_list {
    struct conf_case *cases;
    size_t count, capacity;
    int size;          /* ranks */
    size_t batch;      /* most operations that are started before any is verified */
    size_t most_bytes; /* of one buffer */
    const char *label;
    const char *device; /* collectives run on streams of this one; NULL: on the host */
    const char *only;   /* "cuda" or "nccl": random cases are of what that has, all memory is shared; NULL: all */
    struct conf_table tables[TUTTI_TYPE_COUNT];
};

extern const enum tti_kind conf_kinds[];
extern const size_t conf_kind_count;

tutti_tuning conf_tuning_of(enum conf_tuning tuning);
bool conf_kind_reduces(enum tti_kind kind);
bool conf_kind_has_blocks(enum tti_kind kind);

/* Counts worth testing: 0, 1, around the number of ranks, and one below, at and above every switch-over. Returns how many,
 * at most CONF_COUNTS_MOST, none of a buffer above most_bytes. */
enum { CONF_COUNTS_MOST = 80 };
size_t conf_counts(enum conf_tuning tuning, tutti_type type, enum tti_kind kind, int size, size_t most_bytes,
                   size_t *counts);

void conf_list_add(struct conf_list *list, struct conf_case one);
/* Adds a case whose type, reduction, root, place and memory follow from the seed. */
void conf_list_add_random(struct conf_list *list, enum tti_kind kind, enum conf_tuning tuning, uint64_t seed,
                          size_t most_bytes);
/* Once all cases are there: computes what is to be expected. Takes most of the time, unless the list was cleared and has
 * it from before. */
void conf_list_prepare(struct conf_list *list, uint64_t seed, bool wide);
void conf_list_clear(struct conf_list *list); /* no more cases; to be filled again for as many ranks */
void conf_list_free(struct conf_list *list);

/* The body of a world: runs the list that is its context. */
void conf_list_run(tutti_comm *comm, void *list);

#endif
