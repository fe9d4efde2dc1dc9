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

/* How many there are of a kind, "host" or "cuda". ERR_UNSUPPORTED, with what is missing and how to get it, where the
 * kind's library is not here or too old; *count is 0 then. */
TUTTI_API tutti_status tutti_device_count(const char *kind, int *count, tutti_error *error);

/* "host", "cuda:0", "cuda:1" …; "cuda" is "cuda:0". Opening one that is open gives the same device, to be freed as often.
 * "host:1", "host:2" … are further ones that share nothing with "host", as several GPUs are; for tests. */
TUTTI_API tutti_status tutti_device_open(const char *name, tutti_device **device, tutti_error *error);

/* This rank's device: the one that TUTTI_DEVICE names, where that is set, else `name`; freed as any other. "cuda" is the GPU
 * with the rank's number among the ranks of its machine (tutti_local_rank), modulo how many GPUs are visible
 * (CUDA_VISIBLE_DEVICES). NULL is "cuda" where there is a GPU that can be used, and else "host". */
TUTTI_API tutti_status tutti_device_open_for(tutti_comm *comm, const char *name, tutti_device **device,
                                             tutti_error *error);

/* Like tutti_device_open with a context that the caller has made (a CUcontext, kind "cuda") and that outlives the
 * device. Programs that use CUDA's runtime need not: tutti_device_open uses the same context as they do. */
TUTTI_API tutti_status tutti_device_adopt(const char *kind, void *context, tutti_device **device, tutti_error *error);

/* Whether "cuda" (a GPU with a driver that is new enough), "nvrtc" or "nccl" can be used here. Loads its library. */
TUTTI_API bool tutti_has(const char *what);

/* The last free waits for the streams' work, 10 s at most in all; ERR_TIMEOUT names what did not end. The device is shut
 * down in any case: its streams, marks and buffers are stale, their memory is given back. NULL is ignored. */
TUTTI_API tutti_status tutti_device_free(tutti_device *device, tutti_error *error);

/* Shuts the device down as freeing does and opens it again. Streams, marks and buffers made before are stale. A device that
 * has failed cannot be opened again in its process: ERR_DEVICE. */
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
    bool shares;            /* whether TUTTI_MEMORY_SHARED can be had */
} tutti_device_about;

TUTTI_API tutti_status tutti_device_describe(tutti_device *device, tutti_device_about *about, tutti_error *error);
/* Whether work on the device can use the other one's memory directly; true of one and the same, false of different kinds and
 * void handles. Copies between GPUs that do not reach each other go through the host, which CUDA sees to. */
TUTTI_API bool tutti_device_reaches(tutti_device *device, tutti_device *other);
TUTTI_API const char *tutti_device_name(tutti_device *device); /* "cuda:0", until it is freed; NULL: a void handle */

/* ---- Streams and marks ----------------------------------------------------------------------------------------- */
/* A stream is work on a device, done in the order in which it was put there. Different streams go on independently. */

typedef struct tutti_stream tutti_stream;
typedef struct tutti_mark tutti_mark;

TUTTI_API tutti_status tutti_stream_create(tutti_device *device, tutti_stream **stream, tutti_error *error);

/* A stream that the caller has made (a CUstream or cudaStream_t) and that outlives this handle; it is never destroyed
 * here. The default streams are refused: what is put on them waits for other streams unasked, and they differ from
 * thread to thread. */
TUTTI_API tutti_status tutti_stream_adopt(tutti_device *device, void *foreign, tutti_stream **stream,
                                          tutti_error *error);
/* What the device's own library calls it, for one's own work on it; NULL: a void or stale handle. */
TUTTI_API void *tutti_stream_native(tutti_stream *stream);

/* Until all that was put on it is done. ERR_TIMEOUT after so long (negative: half an hour); the work goes on. */
TUTTI_API tutti_status tutti_stream_sync(tutti_stream *stream, int64_t timeout_ms, tutti_error *error);

/* Waits for its work, 10 s at most; then the work is given up, and ERR_TIMEOUT says in what it waited: what moves data has
 * not been done. The handle is void in any case. NULL is ignored. */
TUTTI_API tutti_status tutti_stream_free(tutti_stream *stream, tutti_error *error);

/* A mark stands for all work that was on a stream when it was recorded, last recorded. */
TUTTI_API tutti_status tutti_mark_create(tutti_device *device, tutti_mark **mark, tutti_error *error);
TUTTI_API tutti_status tutti_mark_record(tutti_mark *mark, tutti_stream *stream, tutti_error *error);
/* What is put on the stream from now on begins when that work is done. ERR_ARGUMENT: the mark was never recorded. */
TUTTI_API tutti_status tutti_stream_after(tutti_stream *stream, tutti_mark *mark, tutti_error *error);
TUTTI_API tutti_status tutti_mark_free(tutti_mark *mark, tutti_error *error); /* NULL is ignored */

/* ---- Buffers --------------------------------------------------------------------------------------------------- */
/* A buffer knows its device, type, count and the generation of the device in which it was made. It remembers which streams
 * use it: a use on another one waits by itself for the last write, and a write for the reads since. */

typedef struct tutti_buffer tutti_buffer;

typedef enum tutti_memory {
    TUTTI_MEMORY_LOCAL,  /* the device's own */
    TUTTI_MEMORY_SHARED, /* the same, and other processes can map it */
    TUTTI_MEMORY_PINNED  /* host memory that the device reads and writes at full speed */
} tutti_memory;

/* Contents are undefined. Count 0 is allowed. ERR_MEMORY is an ordinary error: everything works afterwards. */
TUTTI_API tutti_status tutti_buffer_create(tutti_device *device, tutti_memory memory, tutti_type type, size_t count,
                                           tutti_buffer **buffer, tutti_error *error);
/* At once for the caller; the memory is given back when the work that uses it is done. NULL is ignored. */
TUTTI_API tutti_status tutti_buffer_free(tutti_buffer *buffer, tutti_error *error);

/* Where `count` elements from `offset` on lie; collectives take such pointers. NULL: stale or past the end. */
TUTTI_API void *tutti_buffer_at(tutti_buffer *buffer, size_t offset, size_t count);
/* Why: OK, ERR_STALE, ERR_COUNT, ERR_DEVICE … */
TUTTI_API tutti_status tutti_buffer_check(tutti_buffer *buffer, size_t offset, size_t count, tutti_error *error);

typedef struct tutti_buffer_about {
    size_t struct_size; /* to be set before the call: sizeof(tutti_buffer_about) */
    tutti_device *device;
    tutti_memory memory;
    tutti_type type;
    size_t count;
    uint64_t generation;
} tutti_buffer_about;

/* Also of a stale one, unless it was freed. */
TUTTI_API tutti_status tutti_buffer_describe(tutti_buffer *buffer, tutti_buffer_about *about, tutti_error *error);

/* All below are put on the stream, and done when it gets there. Host memory must stay until then; where it is not pinned,
 * the call may wait until the stream has got there, half an hour at most. */
TUTTI_API tutti_status tutti_buffer_put(tutti_buffer *buffer, size_t offset, const void *from, size_t count,
                                        tutti_stream *stream, tutti_error *error);
TUTTI_API tutti_status tutti_buffer_get(tutti_buffer *buffer, size_t offset, void *to, size_t count,
                                        tutti_stream *stream, tutti_error *error);
/* Both of the same type, on any devices of one kind. The ranges must not overlap. */
TUTTI_API tutti_status tutti_buffer_copy(tutti_buffer *to, size_t to_offset, tutti_buffer *from, size_t from_offset,
                                         size_t count, tutti_stream *stream, tutti_error *error);
/* `element` is one element of the buffer's type. */
TUTTI_API tutti_status tutti_buffer_fill(tutti_buffer *buffer, size_t offset, size_t count, const void *element,
                                         tutti_stream *stream, tutti_error *error);

typedef enum tutti_access { TUTTI_READS, TUTTI_WRITES } tutti_access;

/* Around work of one's own (a kernel on tutti_stream_native): begin lets the stream wait for uses on others, end says that
 * what was put on the stream by now uses the buffer. */
TUTTI_API tutti_status tutti_buffer_begin(tutti_buffer *buffer, tutti_access access, tutti_stream *stream,
                                          tutti_error *error);
TUTTI_API tutti_status tutti_buffer_end(tutti_buffer *buffer, tutti_access access, tutti_stream *stream,
                                        tutti_error *error);

/* ---- Collectives and messages on a stream ------------------------------------------------------------------------ */

/* About the next call on the comm, like tutti_within: a collective or a message, on memory of the stream's device. All ranks put
 * a collective on a stream, or none; of one device each.
 *
 *     tutti_all_reduce(tutti_on(comm, stream), x, x, count, TUTTI_F32, TUTTI_SUM);
 *
 * begins when the stream gets there, and what is put on the stream after it waits for its end. The call returns when all
 * ranks have made it: what goes wrong later breaks the comm, and is told by the next call. Where data are staged through the
 * host (docs/gpu.md says when) it returns at the op's end. Deadlines count from when the stream gets there. The form that
 * starts (tutti_all_reduce_start) returns at once; the stream goes on beside the op, and only tutti_stream_wait lets it, or
 * another one, wait. A comm's first call on a stream waits for all ranks in any form.
 *
 * Messages are matched in the order of the calls, as those of the host are; a message may go from a device to the host, and
 * back. Data leave, and are written, when the stream has come to the call. Forms that block return when the data have gone, or are
 * there: what is put on the stream then comes after that. A small send returns at once, as on the host: its stream copies the data. Forms that start
 * return at once, and the stream goes on beside the op. Other ranks take no part. A probe looks on the host, at once.
 *
 * A prepared op (tutti_prepared) is put on the same stream at every tutti_start, from where that is then. Calls of a group are
 * put on their streams at its end, which returns when all have ended. A buffer that is freed while an op uses it goes when
 * that has ended; a prepared op whose buffer or stream was freed cannot be started any more (ERR_STALE). */
TUTTI_API tutti_comm *tutti_on(tutti_comm *comm, tutti_stream *stream);

/* What is put on the stream from now on begins when the op has ended, with whatever status; of any op, on a stream or not.
 * Of one that was put on a stream, the call returns when all ranks have started it; of messages, of a group and of what is
 * staged, when it has ended. The handle stays good. */
TUTTI_API tutti_status tutti_stream_wait(tutti_stream *stream, tutti_op op, tutti_error *error);

/* Who carries out the comm's calls on streams, from its first one on: "cuda", "nccl", "staged", or "host" for those
 * that the host carries out in place, on device "host"; NULL before. Single calls that "cuda" or "nccl" cannot do
 * are staged (refused, where TUTTI_DEVICE_PROVIDER asks for one); tutti_comm_stats counts them, and a trace names
 * the one of each. *why (may be NULL): why that one, good as long as the comm. */
TUTTI_API const char *tutti_comm_provider(const tutti_comm *comm, const char **why);

/* NCCL's own communicator (an ncclComm_t) of a comm whose calls on streams go by NCCL, for calls that are not here.
 * It is there from the comm's first call on a stream on, and stays the comm's: it goes with it, or when a rank is
 * lost. All ranks use it in one order with the comm's own calls on streams. ERR_UNSUPPORTED says why they go another
 * way. */
TUTTI_API tutti_status tutti_nccl_comm(tutti_comm *comm, void **native);

#ifdef __cplusplus
}
#endif
#endif
