/* SPDX-License-Identifier: Apache-2.0
 *
 * What the entry points of the library share: they check arguments before anything is published.
 */
#ifndef TTI_COLLECTIVE_API_H
#define TTI_COLLECTIVE_API_H

#include "collective/comm/comm.h"

struct tti_started;
struct tti_turn;

/* What a rank asks for when it makes a comm of some ranks; all ranks learn whether they meant the same. */
struct tti_split_call {
    enum tti_kind kind;
    int colour, key;
    bool tolerant;   /* the new comm is tolerant, whatever `kind` says */
    uint64_t digest; /* a digest of what all ranks must give alike */
    char said[144];  /* the same in words; "": nothing */
};
/* Makes a comm. Collective over `comm`, which has begun a call. */
tutti_status tti_comm_make(tutti_comm *comm, const struct tti_split_call *call, tutti_comm **made);

/* Returns OK if the options may be used to join: numbers are within their ranges, texts are set, names are known. */
tutti_status tti_options_check(const tutti_options *options, tutti_error *error);

/* Returns OK if `comm` can start an operation; forgets the last error. */
tutti_status tti_api_begin(tutti_comm *comm, enum tti_kind kind);

/* For forms of a call that start an op: clears the handle. Returns false if it is NULL; the call is refused then. */
static inline bool tti_api_has_handle(tutti_op *handle)
{
    if (handle != NULL) handle->id = 0;
    return handle != NULL;
}
tutti_status tti_api_no_handle(tutti_comm *comm, enum tti_kind kind);

/* Refuses a call without a comm. Returns ERR_ARGUMENT. */
tutti_status tti_api_no_comm(enum tti_kind kind);

/* One buffer of a call, as it was given. `used`: this rank reads or writes it. */
struct tti_buffer {
    const char *name; /* "in" */
    const void *pointer;
    uint64_t bytes;
    bool used;
};
/* Checks that the buffer is given, is memory of this process as far as it reaches, and is not a GPU's unless the call is
 * on a stream. This is the one place that compares counts with memory and address space, for every operation, provider
 * and transport. */
tutti_status tti_api_check_buffer(tutti_comm *comm, enum tti_kind kind, const struct tti_buffer *buffer);
/* Refuses two buffers that overlap, unless `in_place` says that they form a case that the operation knows as in
 * place. */
tutti_status tti_api_check_overlap(tutti_comm *comm, enum tti_kind kind, const struct tti_buffer *in,
                                   const struct tti_buffer *out, bool in_place);
tutti_status tti_api_check_type(tutti_comm *comm, enum tti_kind kind, tutti_type type);
tutti_status tti_api_check_rank(tutti_comm *comm, enum tti_kind kind, const char *what, int rank);
/* Returns ERR_COUNT if a buffer has more data than there can be on this machine. */
tutti_status tti_api_check_amount(tutti_comm *comm, enum tti_kind kind, const char *name, uint64_t bytes);
/* Sets bytes = count * element * blocks, or returns ERR_COUNT. */
tutti_status tti_api_bytes(tutti_comm *comm, enum tti_kind kind, uint64_t count, size_t element, uint64_t blocks,
                           uint64_t *bytes);

/* Checks the buffers of a collective with equal counts, whose kind and type were checked; errors call it `named`. Sets
 * how many bytes of both buffers this rank uses, and whether the kind knows their form as in place. */
struct tti_buffers {
    uint64_t in_bytes, out_bytes;
    bool in_place;
};
tutti_status tti_api_check_buffers(tutti_comm *comm, enum tti_kind named, const struct tti_arguments *given,
                                   struct tti_buffers *buffers);

tutti_status tti_api_set_reduction(struct tti_op *op, enum tti_kind named, tutti_type type, tutti_reduction reduction);
/* Meets the other ranks and puts the op on the stream of the call. With a handle it is started, without one the call
 * waits. */
tutti_status tti_stream_op_run(struct tti_op *op, tutti_op *handle);
/* The same for an op that was prepared, or noted in a group, on a stream. If it fails, nothing was started. */
tutti_status tti_stream_op_start(struct tti_started *started);
/* Called before a comm is freed: waits for ops on streams, for a bounded time. */
void tti_streams_close(tutti_comm *comm);
/* Groups (api_group.c). Notes a checked collective, to be started with the others of its group. */
tutti_status tti_group_note(struct tti_op *op, struct tti_turn *turn, /* NULL: on no stream; taken over on success */
                            tutti_op *handle);                        /* refused unless NULL */
/* Refuses calls that cannot be made on a comm that is in a group. */
tutti_status tti_group_without(tutti_comm *comm, enum tti_kind kind);
/* Ends the group that was begun on the comm, if there is one, without doing any of it. */
void tti_group_close(tutti_comm *comm);
/* Called when the comm is freed: ends its group in the same way. A group that it was added to goes on without it, and
 * fails at its end. */
void tti_group_leave(tutti_comm *comm);
/* Runs the op, starts it if it has a handle, or notes it in its group; forgets what was said about the next call. */
tutti_status tti_api_run(struct tti_op *op, tutti_op *handle);
#endif
