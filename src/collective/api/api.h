/* SPDX-License-Identifier: Apache-2.0
 *
 * What the entry points of the library share: checking arguments before anything is published.
 */
#ifndef TTI_COLLECTIVE_API_H
#define TTI_COLLECTIVE_API_H

#include "collective/comm/comm.h"

struct tti_started;
struct tti_turn;

/* What a rank asks for when a comm of some ranks is made; all ranks learn whether they meant the same. */
struct tti_split_call {
    enum tti_kind kind;
    int colour, key;
    bool tolerant;   /* the new comm is, whatever `kind` says */
    uint64_t digest; /* of what all ranks must give alike, */
    char said[144];  /* and in words; "": nothing */
};
/* Collective over `comm`, which has begun a call. */
tutti_status tti_comm_make(tutti_comm *comm, const struct tti_split_call *call, tutti_comm **made);

/* Whether options may be used to join: numbers within their ranges, texts there, names known. */
tutti_status tti_options_check(const tutti_options *options, tutti_error *error);

/* Whether `comm` can start an operation; forgets the last error. */
tutti_status tti_api_begin(tutti_comm *comm, enum tti_kind kind);

/* What a call starts has its handle where a form that starts says so; NULL: the call waits. Whether it says so; if not, the call is
 * refused. */
static inline bool tti_api_has_handle(tutti_op *handle)
{
    if (handle != NULL) handle->id = 0;
    return handle != NULL;
}
tutti_status tti_api_no_handle(tutti_comm *comm, enum tti_kind kind);

/* The call has no comm. Returns ERR_ARGUMENT. */
tutti_status tti_api_no_comm(enum tti_kind kind);

/* One buffer of a call, as it was given. `used`: this rank's is read or written. */
struct tti_buffer {
    const char *name; /* "in" */
    const void *pointer;
    uint64_t bytes;
    bool used;
};
/* Whether the buffer is there, and memory of this process as far as it reaches. The one place where counts are compared with
 * memory and address space, for every operation, provider and transport. */
tutti_status tti_api_check_buffer(tutti_comm *comm, enum tti_kind kind, const struct tti_buffer *buffer);
/* Two buffers must not overlap, except that `in_place` is a form the operation knows and these two are in it. */
tutti_status tti_api_check_overlap(tutti_comm *comm, enum tti_kind kind, const struct tti_buffer *in,
                                   const struct tti_buffer *out, bool in_place);
tutti_status tti_api_check_type(tutti_comm *comm, enum tti_kind kind, tutti_type type);
tutti_status tti_api_check_rank(tutti_comm *comm, enum tti_kind kind, const char *what, int rank);
/* ERR_COUNT where a buffer has more data than there can be on this machine. */
tutti_status tti_api_check_amount(tutti_comm *comm, enum tti_kind kind, const char *name, uint64_t bytes);
/* bytes = count * element * blocks, or ERR_COUNT. */
tutti_status tti_api_bytes(tutti_comm *comm, enum tti_kind kind, uint64_t count, size_t element, uint64_t blocks,
                           uint64_t *bytes);

/* What a collective with equal counts is given, of a kind and type that were checked; `named`: what it is called in errors.
 * Tells how many bytes of both buffers this rank uses, and whether they are in a form that the kind knows as in place. */
struct tti_buffers {
    uint64_t in_bytes, out_bytes;
    bool in_place;
};
tutti_status tti_api_check_buffers(tutti_comm *comm, enum tti_kind named, const struct tti_arguments *given,
                                   struct tti_buffers *buffers);

tutti_status tti_api_set_reduction(struct tti_op *op, enum tti_kind named, tutti_type type, tutti_reduction reduction);
/* Meets the other ranks, puts it on the stream that the call is to be on, and starts it where that is wanted. */
tutti_status tti_stream_op_run(struct tti_op *op, tutti_op *handle);
/* The same for one that was prepared, or noted in a group, on a stream. A failure has started nothing. */
tutti_status tti_stream_op_start(struct tti_started *started);
/* Before a comm is freed: waits for what was put on streams, a bounded time. */
void tti_streams_close(tutti_comm *comm);
/* Groups (api_group.c). A checked collective is noted, to be started with the others of its group. */
tutti_status tti_group_note(struct tti_op *op, struct tti_turn *turn, /* NULL: on no stream; taken over on success */
                            tutti_op *handle);                        /* refused unless NULL */
/* Refuses what cannot be done on a comm that is in a group. */
tutti_status tti_group_without(tutti_comm *comm, enum tti_kind kind);
/* The group that was begun on the comm, if there is one, ends without anything of it being done. */
void tti_group_close(tutti_comm *comm);
/* The comm is freed: so does that, and a group that it was added to does without it, and says so at its end. */
void tti_group_leave(tutti_comm *comm);
/* Runs it, starts it where it is to have a handle, or notes it in its group; and forgets what was said about the next call. */
tutti_status tti_api_run(struct tti_op *op, tutti_op *handle);
#endif
