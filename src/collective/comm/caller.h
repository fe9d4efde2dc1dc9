/* SPDX-License-Identifier: Apache-2.0
 *
 * What whoever makes calls on a comm has said about the next one, and what its last one was.
 */
#ifndef TTI_COLLECTIVE_CALLER_H
#define TTI_COLLECTIVE_CALLER_H

#include "collective/comm/call.h"
#include "collective/comm/group.h"

/* A collective's arguments, as they were given. Each in a word of its own: two that share one are compared at once, and
 * such a load waits until both are stored, behind all that the operation before has stored. */
struct tti_arguments {
    enum tti_kind kind;
    _Alignas(8) tutti_type type;
    _Alignas(8) int reduction; /* -1: none */
    _Alignas(8) int root;      /* likewise */
    const void *in;
    void *out;
    size_t count;
};

struct tti_caller {
    struct tti_site site;         /* where the next call is, and its name */
    const char *site_file;        /* whose tail site.file is */
    const char *noted_file;       /* what site_file was when the op's site was noted */
    int64_t deadline_ms;          /* of the next call; 0: the comm's */
    bool preparing;               /* the next call that has a handle does not start its op yet */
    struct tutti_stream *stream;  /* the next call is put on it; NULL: on none */
    struct tti_group *group;      /* NULL: none has begun */
    tutti_mesh *meshes;           /* made from this comm: their errors are told here */
    uint64_t editions;            /* of calls, so far */
    struct tti_arguments checked; /* what the comm's op was last filled from, when `repeats` */
    bool repeats;
};

#endif
