/* SPDX-License-Identifier: Apache-2.0
 *
 * What the caller of a comm has said about its next call, and what its last call was.
 */
#ifndef TTI_COLLECTIVE_CALLER_H
#define TTI_COLLECTIVE_CALLER_H

#include "collective/comm/call.h"
#include "collective/comm/group.h"

/* A collective's arguments, as they were given. Each has a word of its own: two that shared a word would be compared
 * with one load, and that would wait until both are stored, behind all stores of the operation before. */
struct tti_arguments {
    enum tti_kind kind;
    _Alignas(8) tutti_type type;
    _Alignas(8) int reduction; /* -1: none */
    _Alignas(8) int root;      /* -1: none */
    const void *in;
    void *out;
    size_t count;
};

struct tti_caller {
    struct tti_site site;         /* where the next call is, and its name */
    const char *site_file;        /* the name of which site.file is the tail */
    const char *noted_file;       /* site_file at the time when the op's site was noted */
    int64_t deadline_ms;          /* deadline of the next call; 0: the comm's own deadline */
    bool preparing;               /* the next call that has a handle does not start its op yet */
    struct tutti_stream *stream;  /* the next call is put on it; NULL: on none */
    struct tti_group *group;      /* NULL: none has begun */
    tutti_mesh *meshes;           /* made from this comm, which keeps their errors */
    uint64_t editions;            /* number of calls so far */
    struct tti_arguments checked; /* the arguments that the comm's op was last filled from, if `repeats` */
    bool repeats;
};

#endif
