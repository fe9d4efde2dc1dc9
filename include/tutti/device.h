/* SPDX-License-Identifier: Apache-2.0
 *
 * Tutti: devices, their memory and their streams.
 *
 *     tutti_device *device;
 *     tutti_stream *stream;
 *     tutti_buffer *x;
 *     tutti_device_open("host", &device, &error);                      or "cuda:0"
 *     tutti_stream_create(device, &stream, &error);
 *     tutti_buffer_create(device, TUTTI_MEMORY_LOCAL, TUTTI_F32, 1024, &x, &error);
 *     tutti_buffer_put(x, 0, values, 1024, stream, &error);            copies when the stream gets there
 *     tutti_stream_sync(stream, 5000, &error);                         until it has, for 5 s at most
 *
 * The device "host" is this machine's memory, and its streams are threads: what runs on it runs on a GPU.
 *
 * Conventions are those of tutti.h. Functions that put work on a stream return when it is there, not when it is done;
 * they may block while the device's queue is full. Every wait on the host has a deadline.
 *
 * Handles are checked: one that was freed is ERR_STALE, never followed. So is whatever belongs to a device that was shut
 * down or opened again; the sentence says which of these. A device that has failed (a GPU after an illegal address)
 * answers ERR_DEVICE from then on; freeing still works. After fork the child gets ERR_FORKED.
 *
 * Threads: different streams and buffers, also of one device, may be used at the same time; one of them by one thread at
 * a time. A device is freed or opened again when nobody else calls anything on it.
 */
#ifndef TUTTI_DEVICE_H
#define TUTTI_DEVICE_H

#include <stdbool.h>
#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Devices --------------------------------------------------------------------------------------------------- */

typedef struct tutti_device tutti_device;

/* Tells how many devices there are of a kind, "host" or "cuda". ERR_UNSUPPORTED says what is missing and how to get it
 * if the kind's library is not here or too old; *count is 0 then. */
TUTTI_API tutti_status tutti_device_count(const char *kind, int *count, tutti_error *error);

/* Opens "host", "cuda:0", "cuda:1" …; "cuda" is "cuda:0". Opening a device again gives the same one, to be freed as
 * often. "host:1", "host:2" … are further devices that share nothing with "host", as several GPUs do; they are for
 * tests. */
TUTTI_API tutti_status tutti_device_open(const char *name, tutti_device **device, tutti_error *error);

/* Opens this rank's device: the one that TUTTI_DEVICE names if that is set, else `name`; it is freed as any other.
 * "cuda" is the GPU with the rank's number among the ranks of its machine (tutti_local_rank), modulo how many GPUs are
 * visible (CUDA_VISIBLE_DEVICES). NULL is "cuda" if there is a GPU that can be used, else "host". */
TUTTI_API tutti_status tutti_device_open_for(tutti_comm *comm, const char *name, tutti_device **device,
                                             tutti_error *error);

/* Like tutti_device_open with a context that the caller has made (a CUcontext, kind "cuda") and that outlives the
 * device. Programs that use CUDA's runtime need not: tutti_device_open uses the same context as they do. */
TUTTI_API tutti_status tutti_device_adopt(const char *kind, void *context, tutti_device **device, tutti_error *error);

/* Returns true if "cuda" (a GPU with a driver that is new enough), "nvrtc" or "nccl" can be used here. Loads its
 * library. */
TUTTI_API bool tutti_has(const char *what);

/* The last free waits for the streams' work, 10 s at most in all; ERR_TIMEOUT names what did not end. The device is shut
 * down in any case: its streams, marks and buffers are stale, their memory is given back. NULL is ignored. */
TUTTI_API tutti_status tutti_device_free(tutti_device *device, tutti_error *error);

/* Shuts the device down as freeing does and opens it again. Streams, marks and buffers made before are stale; comms go on
 * with new ones, whether other ranks have opened theirs again or not. A device that has failed cannot be opened again in
 * its process: ERR_DEVICE. */
TUTTI_API tutti_status tutti_device_reopen(tutti_device *device, tutti_error *error);

typedef struct tutti_device_about {
    size_t struct_size; /* to be set before the call: sizeof(tutti_device_about) */
    uint64_t memory_free, memory_total;
    uint64_t generation;    /* counts from 1; every re-open adds 1 */
    int number;             /* N of "cuda:N" */
    char model[96];         /* "NVIDIA H200" */
    unsigned char uuid[16]; /* the same in every process; all 0 where there is none */
    int capability;         /* 90: 9.0; 0: no GPU */
    int multiprocessors;    /* 132 of an H200; 0: no GPU */
    bool shares;            /* TUTTI_MEMORY_SHARED can be had */
} tutti_device_about;

TUTTI_API tutti_status tutti_device_describe(tutti_device *device, tutti_device_about *about, tutti_error *error);
/* Returns true if work on the device can use the other device's memory directly: always if both are the same one, never
 * if they are of different kinds or a handle is void. Copies between GPUs that do not reach each other go through the
 * host, which CUDA sees to. */
TUTTI_API bool tutti_device_reaches(tutti_device *device, tutti_device *other);
TUTTI_API const char *tutti_device_name(tutti_device *device); /* "cuda:0", until it is freed; NULL: a void handle */

/* ---- Streams and marks ----------------------------------------------------------------------------------------- */
/* A stream is work on a device, done in the order in which it was put there. Different streams go on independently. */

typedef struct tutti_stream tutti_stream;
typedef struct tutti_mark tutti_mark;

TUTTI_API tutti_status tutti_stream_create(tutti_device *device, tutti_stream **stream, tutti_error *error);

/* Gives a handle for a stream that the caller has made (a CUstream or cudaStream_t) and that outlives the handle; it is
 * never destroyed here. The default streams are refused: work on them waits for other streams unasked, and they differ
 * from thread to thread. */
TUTTI_API tutti_status tutti_stream_adopt(tutti_device *device, void *foreign, tutti_stream **stream,
                                          tutti_error *error);
/* Returns the stream as the device's own library knows it, for work of one's own on it; NULL: a void or stale
 * handle. */
TUTTI_API void *tutti_stream_native(tutti_stream *stream);

/* Waits until all work that was put on the stream is done. ERR_TIMEOUT after so long (negative: half an hour); the work
 * goes on. */
TUTTI_API tutti_status tutti_stream_sync(tutti_stream *stream, int64_t timeout_ms, tutti_error *error);

/* Waits for the stream's work, 10 s at most. After that the work is given up, so its data are not moved, and
 * ERR_TIMEOUT says what the stream waited in. The handle is void in any case. NULL is ignored. */
TUTTI_API tutti_status tutti_stream_free(tutti_stream *stream, tutti_error *error);

/* A mark stands for all work that was on a stream when the mark was last recorded. */
TUTTI_API tutti_status tutti_mark_create(tutti_device *device, tutti_mark **mark, tutti_error *error);
TUTTI_API tutti_status tutti_mark_record(tutti_mark *mark, tutti_stream *stream, tutti_error *error);
/* Lets work that is put on the stream from now on begin when the mark's work is done. ERR_ARGUMENT: the mark was never
 * recorded. */
TUTTI_API tutti_status tutti_stream_after(tutti_stream *stream, tutti_mark *mark, tutti_error *error);
TUTTI_API tutti_status tutti_mark_free(tutti_mark *mark, tutti_error *error); /* NULL is ignored */

/* ---- Buffers --------------------------------------------------------------------------------------------------- */
/* A buffer knows its device, type, count and the generation of the device in which it was made. It remembers which streams
 * use it: a use on another one waits by itself for the last write, and a write for the reads since. */

typedef struct tutti_buffer tutti_buffer;

typedef enum tutti_memory {
    TUTTI_MEMORY_LOCAL,  /* the device's own */
    TUTTI_MEMORY_SHARED, /* the device's own, and other processes can map it */
    TUTTI_MEMORY_PINNED  /* host memory that the device reads and writes at full speed */
} tutti_memory;

/* Contents are undefined. Count 0 is allowed. ERR_MEMORY is an ordinary error: everything works afterwards. */
TUTTI_API tutti_status tutti_buffer_create(tutti_device *device, tutti_memory memory, tutti_type type, size_t count,
                                           tutti_buffer **buffer, tutti_error *error);
/* Frees the buffer at once for the caller; the memory is given back when the work that uses it is done. NULL is
 * ignored. */
TUTTI_API tutti_status tutti_buffer_free(tutti_buffer *buffer, tutti_error *error);

/* Returns where `count` elements from `offset` on lie; collectives take such pointers. NULL: stale or past the end. */
TUTTI_API void *tutti_buffer_at(tutti_buffer *buffer, size_t offset, size_t count);
/* Tells why tutti_buffer_at returns NULL: ERR_STALE, ERR_COUNT, ERR_DEVICE …; else OK. */
TUTTI_API tutti_status tutti_buffer_check(tutti_buffer *buffer, size_t offset, size_t count, tutti_error *error);

typedef struct tutti_buffer_about {
    size_t struct_size; /* to be set before the call: sizeof(tutti_buffer_about) */
    tutti_device *device;
    tutti_memory memory;
    tutti_type type;
    size_t count;
    uint64_t generation;
} tutti_buffer_about;

/* Works for a stale buffer too, unless it was freed. */
TUTTI_API tutti_status tutti_buffer_describe(tutti_buffer *buffer, tutti_buffer_about *about, tutti_error *error);

/* The calls below are put on the stream, and done when it gets there. Host memory must stay until then; if it is not
 * pinned, the call may wait until the stream has got there, half an hour at most. */
TUTTI_API tutti_status tutti_buffer_put(tutti_buffer *buffer, size_t offset, const void *from, size_t count,
                                        tutti_stream *stream, tutti_error *error);
TUTTI_API tutti_status tutti_buffer_get(tutti_buffer *buffer, size_t offset, void *to, size_t count,
                                        tutti_stream *stream, tutti_error *error);
/* Both buffers are of the same type, on any devices of one kind. The ranges must not overlap. */
TUTTI_API tutti_status tutti_buffer_copy(tutti_buffer *to, size_t to_offset, tutti_buffer *from, size_t from_offset,
                                         size_t count, tutti_stream *stream, tutti_error *error);
/* `element` is one element of the buffer's type. */
TUTTI_API tutti_status tutti_buffer_fill(tutti_buffer *buffer, size_t offset, size_t count, const void *element,
                                         tutti_stream *stream, tutti_error *error);

typedef enum tutti_access { TUTTI_READS, TUTTI_WRITES } tutti_access;

/* Go around work of one's own (a kernel on tutti_stream_native): begin lets the stream wait for uses on other streams,
 * end says that the work put on the stream by now uses the buffer. */
TUTTI_API tutti_status tutti_buffer_begin(tutti_buffer *buffer, tutti_access access, tutti_stream *stream,
                                          tutti_error *error);
TUTTI_API tutti_status tutti_buffer_end(tutti_buffer *buffer, tutti_access access, tutti_stream *stream,
                                        tutti_error *error);

/* ---- Collectives and messages on a stream ------------------------------------------------------------------------ */

/* Puts the next call on the comm, a collective or a message, on a stream; its memory is that of the stream's device. It
 * is said before the call, like tutti_within. Either all ranks put a collective on a stream or none does, each always
 * on the same device. A call that is on no stream refuses memory that only a GPU can read.
 *
 *     tutti_all_reduce(tutti_on(comm, stream), x, x, count, TUTTI_F32, TUTTI_SUM);
 *
 * begins when the stream gets there, and what is put on the stream after it waits for its end. The call returns when
 * all ranks have made it: a later failure breaks the comm, and the next call returns it. If data are staged through the
 * host (docs/gpu.md says when) the call returns at the op's end. Deadlines count from when the stream gets there. The
 * form that starts (tutti_all_reduce_start) returns at once; the stream goes on beside the op, and only
 * tutti_stream_wait makes a stream wait for it. A comm's first call on a stream waits for all ranks in any form.
 *
 * Messages are matched in the order of the calls, as those of the host are; a message may go from a device to the host,
 * and back. Data are read or written when the stream has come to the call. Forms that block return when the data have
 * been sent or have come: work that is put on the stream later comes after that. A small send returns at once, as on
 * the host: its stream copies the data. Forms that start return at once, and the stream goes on beside the op. A probe
 * looks on the host, at once.
 *
 * A prepared op (tutti_prepared) is put on the same stream at every tutti_start, behind the work that is on it then.
 * Calls of a group are put on their streams at its end, which returns when all have ended. The memory of a buffer that
 * is freed while an op uses it goes when the op has ended; a prepared op whose buffer or stream was freed cannot be
 * started any more (ERR_STALE). */
TUTTI_API tutti_comm *tutti_on(tutti_comm *comm, tutti_stream *stream);

/* Lets work that is put on the stream from now on begin when the op, on a stream or not, has ended with any status. If
 * the op is on a stream, the call returns when all ranks have started it; if it is a message, a group or staged, when
 * it has ended. The handle stays good. */
TUTTI_API tutti_status tutti_stream_wait(tutti_stream *stream, tutti_op op, tutti_error *error);

/* Returns which provider carries out the comm's calls on streams, from its first one on: "cuda", "nccl", "staged", or
 * "host" if the host carries them out in place, on device "host"; NULL before that. Single calls that "cuda" or "nccl"
 * cannot do are staged, or refused if TUTTI_DEVICE_PROVIDER asks for one; tutti_comm_stats counts them, and a trace
 * names the provider of each. *why (may be NULL) gets the reason, valid as long as the comm. */
TUTTI_API const char *tutti_comm_provider(const tutti_comm *comm, const char **why);

/* Gives NCCL's own communicator (an ncclComm_t) of a comm whose calls on streams go by NCCL, for calls that are not
 * here. It exists from the comm's first call on a stream on. It belongs to the comm, and goes with it or when a rank is
 * lost. All ranks use it in one order with the comm's own calls on streams. ERR_UNSUPPORTED says why the calls go
 * another way. */
TUTTI_API tutti_status tutti_nccl_comm(tutti_comm *comm, void **native);

#ifdef __cplusplus
}
#endif
#endif
