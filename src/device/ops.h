/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kind of device is: a table, and the objects that its functions work on. The layer above the table (device.c,
 * stream.c, buffer.c …) checks handles, generations and bounds, and knows who uses what; the table only carries out.
 *
 * Rules that hold for every kind:
 *   - Work on a stream ends in order. What is put on it may block the caller while the device's queue is full.
 *   - Completion is a word in host memory (word.h): whoever keeps a deadline polls that, and enters no driver.
 *   - Nobody puts a wait on a stream for something that was not put on a stream before, unless the host itself promises
 *     it: streams may share a queue of the hardware, and a wait in front would hold up what it waits for.
 *   - After a failure that the device cannot recover from (poison), every function that puts work or takes memory answers
 *     ERR_DEVICE; those that free and close still work, and what was put on streams may never be done.
 */
#ifndef TTI_DEVICE_OPS_H
#define TTI_DEVICE_OPS_H

#include "base/list.h"
#include "device/object.h"
#include "device/word.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/device.h>

struct tti_device_ops;

/* Limits on what the host waits for. */
#define TTI_DEVICE_CLOSE_NS INT64_C(10000000000)      /* until work that is waited for at the end is given up */
#define TTI_DEVICE_PATIENCE_NS INT64_C(1800000000000) /* all else, unless told */

enum { TTI_DEVICE_NAME = 16, TTI_POISON_TEXT = 320 };

struct tti_device { /* each kind begins its own struct with this one */
    struct tti_object object;
    const struct tti_device_ops *ops;
    int number;
    void *foreign; /* the caller's context that it was opened with, or NULL */
    char name[TTI_DEVICE_NAME];
    int opens;                   /* under the lock of all devices (device.c) */
    struct tti_device *next;     /* open one; likewise */
    bool simulated;              /* it was opened inside a simulated run and is that task's alone */
    _Atomic uint64_t generation; /* from 1; a re-open adds 1 */
    _Atomic uint32_t shut;       /* closed */
    _Atomic uint32_t poisoned;   /* poison_text is set, for good */
    char poison_text[TTI_POISON_TEXT];
    _Atomic uint32_t lock;                   /* of the lists below; held for a few instructions */
    struct tti_link streams;                 /* tti_stream.link */
    struct tti_link buffers;                 /* tti_buffer.link */
    struct tti_link limbo;                   /* memory that is given back when its uses are done (buffer.c) */
    struct tti_link pinned;                  /* memory for pinned_take (pinned.c) */
    struct tti_word_chunk *words;            /* (word.c) */
    _Atomic(struct tti_programs *) programs; /* those that are ready (program.c) */
};

/* One allocation. The device's part stays as alloc() or map() set it. */
struct tti_memory {
    char *base;
    size_t bytes;
    tutti_memory kind;
    uint64_t native; /* the device's own */
    size_t room;     /* bytes taken for it, where that is more */
    bool borrowed;   /* it is memory of another process, by a lease */
};

/* By which another process maps memory that the program has taken from the device's own library. */
struct tti_lease {
    unsigned char name[64];
};

struct tti_stream {
    struct tti_object object;
    struct tti_device *device; /* a reference */
    uint64_t generation;
    struct tti_link link;
    void *native;                 /* the device's own: a thread's queue, a CUstream */
    void *extra;                  /* likewise */
    _Atomic uint64_t put, passed; /* work put and ended, where the device counts it */
    bool adopted;                 /* the caller's own: never destroyed here */
    _Atomic uint32_t shown;       /* its native form was given out: others may put work on it unseen */
    _Atomic uint32_t ended;       /* it was freed, or its device was shut */
    _Atomic uint32_t lost;        /* its work had not ended then, and may never: what that uses is not freed */
    _Atomic uint32_t given_up;    /* nothing more is put on it, and its guards are told; then */
    _Atomic uint32_t lets_go;     /* its holds no longer wait (abort) */
    struct tti_link guards;       /* tti_stream_guard.link (stream.c) */
    _Atomic(const char *) last;   /* what was put on it last: a constant */
    _Atomic int64_t until_ns; /* putting work blocks until then where the device can tell; 0: TTI_DEVICE_PATIENCE_NS */
    _Atomic uint32_t lock;    /* of `open_mark`; held while that is recorded */
    struct tti_mark *open_mark; /* for uses of buffers since the last wait, to be recorded when needed; or NULL */
    struct tti_word *owed_word; /* to be raised behind what is on it: under `lock`, */
    struct tti_mark *owed_for;  /* and behind this mark of another stream, or NULL: likewise, */
    _Atomic uint64_t owed;      /* to this; 0: nothing is owed */
    struct tti_word *done;      /* for sync */
    uint64_t syncs;             /* its last value */
};

struct tti_mark {
    struct tti_object object;
    struct tti_device *device; /* a reference */
    uint64_t generation;
    _Atomic uint32_t recorded; /* at least once */
    struct tti_stream *stream; /* an open mark's, a reference; else NULL */
    void *native;              /* the device's own: an event */
    struct tti_link link;      /* of the device's marks, where it keeps them */
};

/* Code that a stream runs. Filled in by who has it (host) or by load() (CUDA). */
struct tti_kernel {
    const char *name;                        /* for errors: a constant */
    void (*function)(const void *arguments); /* host */
    void *native;                            /* CUDA */
};

struct tti_launch_shape { /* of a launch; not looked at by the host */
    unsigned grid[3], block[3], shared_bytes;
};

/* Where a pointer leads. */
struct tti_found {
    enum { TTI_FOUND_PRIVATE, TTI_FOUND_PINNED, TTI_FOUND_DEVICE, TTI_FOUND_MANAGED } where;
    struct tti_device *device;        /* a reference; NULL unless it is the memory of an open one */
    struct tti_device_buffer *buffer; /* a reference; NULL: memory that is not a buffer's */
    char *base;                       /* the range that it is in; NULL: not known (private) */
    size_t bytes;
    uint64_t generation;
    uint64_t id; /* of the allocation, which no other one of the process ever has; 0: not known */
};

struct tti_device_ops {
    const char *kind; /* "host" */

    /* How many there are. By any thread, on no device. ERR_UNSUPPORTED names the missing library; *count is 0 then. */
    tutti_status (*count)(int *count, tutti_error *error);

    /* By open, under the lock of all devices. Makes the kind's struct (zeroed, the common part is set by the caller), which
     * is not yet started. On failure nothing is left. */
    tutti_status (*make)(int number, void *context, struct tti_device **device, tutti_error *error);
    /* Says which device a context of the caller's is on; `make` gets it then, else NULL. NULL: the kind has no contexts. */
    tutti_status (*adopt)(void *context, int *number, tutti_error *error);
    /* When nobody refers to it any more; it was shut before, or never started. Must not wait. */
    void (*destroy)(struct tti_device *device);

    /* Takes what the device needs. By open and re-open, one thread. May take long (a driver starts). On failure nothing is
     * taken, and start may be tried again. */
    tutti_status (*start)(struct tti_device *device, tutti_error *error);
    /* Gives it back. By close and re-open, after all streams were closed and all memory freed, except what is lost with a
     * stream that did not end. Blocks for a bounded time at most. */
    void (*shut)(struct tti_device *device);

    /* Fills in memory, model, uuid, capability, multiprocessors and `shares`. By any thread; does not wait for streams. */
    tutti_status (*describe)(struct tti_device *device, tutti_device_about *about, tutti_error *error);

    /* ---- Memory. By any thread, at once; none waits for work on streams. ---- */

    /* `bytes` is not 0. *memory is the caller's until free. Failure has taken nothing; ERR_MEMORY: everything still works. */
    tutti_status (*alloc)(struct tti_device *device, tutti_memory kind, size_t bytes, struct tti_memory *memory,
                          tutti_error *error);
    /* With a stream (of LOCAL memory only): when it gets there, in order; may block as putting work does. Without one: now,
     * and nothing uses it any more. Never fails: on a poisoned device the memory may be lost. */
    void (*free)(struct tti_device *device, struct tti_memory *memory, struct tti_stream *stream);
    /* A descriptor of SHARED memory, the caller's to close, which another process can map. */
    tutti_status (*share)(struct tti_device *device, const struct tti_memory *memory, int *fd, tutti_error *error);
    /* Memory that such a descriptor stands for. The descriptor stays the caller's, and may be closed at once. */
    tutti_status (*map)(struct tti_device *device, int fd, size_t bytes, struct tti_memory *memory, tutti_error *error);
    /* A lease of the allocation that a pointer leads to which is in no buffer. ERR_UNSUPPORTED: such memory cannot be lent.
     * NULL, as the next: the kind knows no memory but its buffers. */
    tutti_status (*lend)(struct tti_device *device, const void *pointer, struct tti_lease *lease, tutti_error *error);
    /* Maps all of it, in another process. It stays mapped, whatever its owner frees, until it is freed here. */
    tutti_status (*borrow)(struct tti_device *device, const struct tti_lease *lease, size_t bytes,
                           struct tti_memory *memory, tutti_error *error);
    /* Says where a pointer leads that is in no buffer: sets `where`, `base`, `bytes` and `id` and returns true if it is
     * memory that this device knows. May enter the driver. */
    bool (*find)(struct tti_device *device, const void *pointer, struct tti_found *found);
    /* Lets the device read and write ordinary host memory, for words and copies; until withdraw or shut. Whole pages. */
    tutti_status (*enlist)(struct tti_device *device, void *base, size_t bytes, tutti_error *error);
    void (*withdraw)(struct tti_device *device, void *base);
    /* Where kernels find such memory. NULL: it cannot be told. */
    void *(*address)(struct tti_device *device, void *enlisted);
    /* Whether work on this device can use the other's memory directly. Both of this kind. */
    bool (*reaches)(struct tti_device *device, struct tti_device *other);
    /* The same for the one with this uuid, which another process may have open. NULL, as the next: devices of this kind share
     * no memory but by descriptor. */
    bool (*reaches_uuid)(struct tti_device *device, const unsigned char uuid[16]);
    /* From now on, work on this device uses memory of the other one, whoever has taken it: one that it reaches. */
    tutti_status (*reach)(struct tti_device *device, struct tti_device *other, tutti_error *error);

    /* ---- Streams ---- */

    /* Makes native, or takes the caller's (`foreign` not NULL). Failure has made nothing. */
    tutti_status (*stream_open)(struct tti_stream *stream, void *foreign, tutti_error *error);
    /* Whether all that was put on it is done. Never blocks; true too when the device is poisoned. */
    bool (*stream_idle)(struct tti_stream *stream);
    /* Lets its holds go, those to come too: what moves data after them may be done or left out. By any thread. */
    void (*stream_abort)(struct tti_stream *stream);
    /* Gives native back, unless it is adopted. Returns false if its work has not ended, and never will: what that uses is
     * lost then, and must not be freed. Blocks for a bounded time at most. */
    bool (*stream_close)(struct tti_stream *stream);
    /* Whether work may be put on it now; refuses graph capture. May enter the driver. */
    tutti_status (*stream_check)(struct tti_stream *stream, tutti_error *error);

    /* ---- Work on a stream. By one thread at a time for each stream, record and after by any. Each may block while the
     * queue is full. A failure has put nothing there. ---- */

    tutti_status (*copy)(struct tti_stream *stream, void *to, const void *from, size_t bytes, tutti_error *error);
    tutti_status (*fill)(struct tti_stream *stream, void *to, size_t count, const void *element, size_t element_bytes,
                         tutti_error *error);
    /* Makes and frees what a mark needs. mark_close may come while work refers to it; the table keeps what that needs. */
    tutti_status (*mark_open)(struct tti_mark *mark, tutti_error *error);
    void (*mark_close)(struct tti_mark *mark);
    tutti_status (*record)(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error);
    /* The mark was recorded. Waits for what it stood for at the time of this call. */
    tutti_status (*after)(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error);
    /* Whether what it stands for is done. Never blocks on streams; true too on a poisoned device. */
    bool (*passed)(struct tti_mark *mark);
    /* Until word - value, as a signed number, is not negative. The word is in memory of word.h, or enlisted. */
    tutti_status (*hold)(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error);
    /* Stores the value when all before it is done and can be seen. */
    tutti_status (*raise)(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error);
    /* Fills in kernel->native from code that names kernel->name. The code is the device's until it is shut. A GPU's driver
     * waits for all work on it before it loads anything: to be called before a stream holds for what only the caller can
     * do. Launching does not wait then. */
    tutti_status (*load)(struct tti_device *device, const char *code, struct tti_kernel *kernel, tutti_error *error);
    /* Runs it with a copy of its arguments, which are one struct. */
    tutti_status (*launch)(struct tti_stream *stream, const struct tti_kernel *kernel,
                           const struct tti_launch_shape *shape, const void *arguments, size_t bytes,
                           tutti_error *error);

    /* Looks whether the device is poisoned, and notes it (tti_device_poison). By a thread of the device or one that keeps
     * no deadline: it may block in the driver. `stream` (may be NULL) is one that somebody waits for. */
    void (*probe)(struct tti_device *device, struct tti_stream *stream);
    /* Called by a wait that has become long: from now on somebody probes while `waiting` is true. Never blocks. NULL: the
     * kind notes its poison by itself. */
    void (*watch)(struct tti_device *device, struct tti_stream *stream, bool waiting);
};

extern const struct tti_device_ops tti_host_ops, tti_cuda_ops;

#endif
