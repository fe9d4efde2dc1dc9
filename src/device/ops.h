/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface of a kind of device: a table of functions, and the objects that they work on. The layer above the table
 * (open.c, stream.c, buffer.c …) checks handles, generations and bounds, and knows all uses; the table only carries
 * out.
 *
 * Rules that hold for every kind:
 *   - Work on a stream ends in order. What is put on it may block the caller while the device's queue is full.
 *   - Completion is a word in host memory (word.h): a caller with a deadline polls that, and enters no driver.
 *   - No caller puts a wait on a stream for something that was not put on a stream before, unless the host itself
 *     promises it: streams may share a queue of the hardware, and a wait in front would hold up what it waits for.
 *   - After a failure that the device cannot recover from (poison), every function that puts work or takes memory
 *     answers ERR_DEVICE; those that free and close still work, and what was put on streams may never be done.
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

/* Limits for waits of the host. */
#define TTI_DEVICE_CLOSE_NS INT64_C(10000000000)      /* after which work is given up for which a close waits */
#define TTI_DEVICE_PATIENCE_NS INT64_C(1800000000000) /* for all other waits, unless a limit is given */

enum { TTI_DEVICE_NAME = 16, TTI_POISON_TEXT = 320 };

struct tti_device { /* each kind begins its own struct with this one */
    struct tti_object object;
    const struct tti_device_ops *ops;
    int number;
    void *foreign; /* the caller's context with which it was opened, or NULL */
    char name[TTI_DEVICE_NAME];
    int opens;                   /* under the lock of all devices (open.c) */
    struct tti_device *next;     /* the next open device; under the same lock */
    bool simulated;              /* it was opened inside a simulated run and belongs to that task alone */
    _Atomic uint64_t generation; /* from 1; each re-open adds 1 */
    _Atomic uint32_t shut;       /* closed */
    _Atomic uint32_t poisoned;   /* poison_text is set, for good */
    char poison_text[TTI_POISON_TEXT];
    _Atomic uint32_t lock;        /* guards the lists below; held for a few instructions */
    struct tti_link streams;      /* linked by tti_stream.link */
    struct tti_link buffers;      /* linked by tti_device_buffer.link */
    struct tti_link limbo;        /* buffers whose memory is given back when their uses are done (buffer.c) */
    struct tti_link pinned;       /* memory for tti_pinned_take (pinned.c) */
    struct tti_word_chunk *words; /* see word.c */
    _Atomic(struct tti_programs *) programs; /* programs that are ready (program.c) */
};

/* One allocation. The fields of the device stay as alloc() or map() set them. */
struct tti_memory {
    char *base;
    size_t bytes;
    tutti_memory kind;
    uint64_t native; /* the device's own handle */
    size_t room;     /* bytes taken for it, if that is more */
    bool borrowed;   /* memory of another process, by a lease */
};

/* A name by which another process maps memory that the program has taken from the device's own library. */
struct tti_lease {
    unsigned char name[64];
};

struct tti_stream {
    struct tti_object object;
    struct tti_device *device; /* a reference */
    uint64_t generation;
    struct tti_link link;
    void *native;                 /* the device's own object: a thread's queue, a CUstream */
    void *extra;                  /* the device's own, too */
    _Atomic uint64_t put, passed; /* how much work was put and has ended, if the device counts it */
    bool adopted;                 /* the caller's own: never destroyed here */
    _Atomic uint32_t shown;       /* its native form was given out: others may put work on it that is not seen here */
    _Atomic uint32_t checked;     /* the call that puts work on it now has found that it is not being captured */
    _Atomic uint32_t ended;       /* it was freed, or its device was shut */
    _Atomic uint32_t lost; /* its work had not ended then, and may never end: memory that the work uses is not freed */
    _Atomic uint32_t given_up;  /* nothing more is put on it, and its guards are called; after that */
    _Atomic uint32_t lets_go;   /* its holds do not wait any more (abort) */
    struct tti_link guards;     /* linked by tti_stream_guard.link (stream.c) */
    _Atomic(const char *) last; /* names the work that was put on it last: a constant */
    /* until when putting work may block, if the device can limit that; 0: TTI_DEVICE_PATIENCE_NS */
    _Atomic int64_t until_ns;
    _Atomic uint32_t lock;      /* guards `open_mark`; held while that is recorded */
    struct tti_mark *open_mark; /* for uses of buffers since the last wait, recorded when needed; or NULL */
    struct tti_word *owed_word; /* the word to raise behind the work on it; under `lock` */
    struct tti_mark *owed_for;  /* a mark of another stream, behind which it is raised, too, or NULL; under `lock` */
    _Atomic uint64_t owed;      /* the value to which it is raised; 0: nothing is owed */
    struct tti_word *done;      /* the word for sync */
    uint64_t syncs;             /* its last value */
    _Atomic uint32_t works;     /* pieces of work since `syncs` was raised for room; */
    uint64_t rooms[2];          /* its values then, the last two times; 0: none (room.c) */
};

struct tti_mark {
    struct tti_object object;
    struct tti_device *device; /* a reference */
    uint64_t generation;
    _Atomic uint32_t recorded; /* it was recorded at least once */
    struct tti_stream *stream; /* the stream of an open mark, a reference; otherwise NULL */
    void *native;              /* the device's own object: an event */
    struct tti_link link;      /* on the device's list of marks, if it keeps one */
};

/* Code that a stream runs. The owner of the code fills it in (host), or load() does (CUDA). */
struct tti_kernel {
    const char *name;                        /* for errors: a constant */
    void (*function)(const void *arguments); /* host */
    void *native;                            /* CUDA */
};

struct tti_launch_shape { /* the shape of a launch; the host does not use it */
    unsigned grid[3], block[3], shared_bytes;
};

/* The memory of a pointer. */
struct tti_found {
    enum { TTI_FOUND_PRIVATE, TTI_FOUND_PINNED, TTI_FOUND_DEVICE, TTI_FOUND_MANAGED } where;
    struct tti_device *device;        /* a reference; NULL unless it is memory of an open device */
    struct tti_device_buffer *buffer; /* a reference; NULL: the memory is in no buffer */
    char *base;                       /* the range in which it lies; NULL: not known (private) */
    size_t bytes;
    uint64_t generation;
    uint64_t id; /* the number of the allocation, which no other one of the process ever has; 0: not known */
};

struct tti_device_ops {
    const char *kind; /* "host" */
    bool
        holds_up; /* whoever puts more on a stream than its queue takes is held up, and so are other threads in the driver */
    bool unreadable; /* the host cannot read or write the kind's LOCAL and SHARED memory */

    /* Counts the devices. By any thread, without a device. ERR_UNSUPPORTED names the missing library; *count is 0
     * then. */
    tutti_status (*count)(int *count, tutti_error *error);

    /* Makes the kind's struct (zeroed; the caller sets the common part), which is not yet started. Called by open,
     * under the lock of all devices. After a failure nothing is left. */
    tutti_status (*make)(int number, void *context, struct tti_device **device, tutti_error *error);
    /* Finds the device of a context of the caller's; `make` gets the context then, else NULL. NULL: the kind has no
     * contexts. */
    tutti_status (*adopt)(void *context, int *number, tutti_error *error);
    /* Called when nothing refers to it any more; it was shut before, or never started. Must not wait. */
    void (*destroy)(struct tti_device *device);

    /* Takes the resources that the device needs. Called by open and re-open, by one thread. May take long (a driver
     * starts). After a failure nothing is taken, and start may be tried again. */
    tutti_status (*start)(struct tti_device *device, tutti_error *error);
    /* Gives the resources back. Called by close and re-open, after all streams were closed and all memory freed, except
     * memory that is lost with a stream that did not end. Blocks for a bounded time at most. */
    void (*shut)(struct tti_device *device);

    /* Fills in memory, model, uuid, capability, multiprocessors and `shares`. By any thread; does not wait for
     * streams. */
    tutti_status (*describe)(struct tti_device *device, tutti_device_about *about, tutti_error *error);

    /* ---- Memory. By any thread, at once; none waits for work on streams. ---- */

    /* Takes memory. `bytes` is not 0. *memory is the caller's until free. A failure has taken nothing; after ERR_MEMORY
     * everything still works. */
    tutti_status (*alloc)(struct tti_device *device, tutti_memory kind, size_t bytes, struct tti_memory *memory,
                          tutti_error *error);
    /* Frees memory. With a stream (for LOCAL memory only): when the stream gets there, in order; this may block as
     * putting work does. Without one: now, and nothing uses it any more. Never fails: on a poisoned device the memory
     * may be lost. */
    void (*free)(struct tti_device *device, struct tti_memory *memory, struct tti_stream *stream);
    /* Returns a descriptor of SHARED memory, which another process can map and the caller closes. */
    tutti_status (*share)(struct tti_device *device, const struct tti_memory *memory, int *fd, tutti_error *error);
    /* Maps the memory of such a descriptor. The descriptor stays the caller's, and may be closed at once. */
    tutti_status (*map)(struct tti_device *device, int fd, size_t bytes, struct tti_memory *memory, tutti_error *error);
    /* Makes a lease of the allocation of a pointer that is in no buffer. ERR_UNSUPPORTED: such memory cannot be lent.
     * NULL, also for borrow: the kind knows no memory but its buffers. */
    tutti_status (*lend)(struct tti_device *device, const void *pointer, struct tti_lease *lease, tutti_error *error);
    /* Maps all of the leased memory, in another process. It stays mapped until it is freed here, even if its owner
     * frees it. */
    tutti_status (*borrow)(struct tti_device *device, const struct tti_lease *lease, size_t bytes,
                           struct tti_memory *memory, tutti_error *error);
    /* Finds the memory of a pointer that is in no buffer: sets `where`, `base`, `bytes` and `id` and returns true if
     * this device knows the memory. May enter the driver. */
    bool (*find)(struct tti_device *device, const void *pointer, struct tti_found *found);
    /* Lets the device read and write ordinary host memory, for words and copies; until withdraw or shut. Whole pages
     * only. */
    tutti_status (*enlist)(struct tti_device *device, void *base, size_t bytes, tutti_error *error);
    void (*withdraw)(struct tti_device *device, void *base);
    /* Does the same for words that all devices of the process may use: they stay usable until withdraw_words, even if this
     * device is shut or opened again. */
    tutti_status (*enlist_words)(struct tti_device *device, void *base, size_t bytes, tutti_error *error);
    void (*withdraw_words)(struct tti_device *device, void *base);
    /* Returns the address of such memory for kernels. NULL: it has none. */
    void *(*address)(struct tti_device *device, void *enlisted);
    /* Returns true if work on this device can use the other's memory directly. Both are of this kind. */
    bool (*reaches)(struct tti_device *device, struct tti_device *other);
    /* Does the same for the device with this uuid, which another process may have open. NULL, also for reach: devices
     * of this kind share memory by descriptor only. */
    bool (*reaches_uuid)(struct tti_device *device, const unsigned char uuid[16]);
    /* Lets work on this device use all memory of the other one from now on, which it must be able to reach. */
    tutti_status (*reach)(struct tti_device *device, struct tti_device *other, tutti_error *error);

    /* ---- Streams ---- */

    /* Makes `native`, or takes the caller's (`foreign` not NULL). A failure has made nothing. */
    tutti_status (*stream_open)(struct tti_stream *stream, void *foreign, tutti_error *error);
    /* Returns true if all work that was put on it is done, or if the device is poisoned. Never blocks. */
    bool (*stream_idle)(struct tti_stream *stream);
    /* Lets its holds go, later ones too: work behind them that moves data may be done or left out. By any thread. */
    void (*stream_abort)(struct tti_stream *stream);
    /* Frees `native`, unless it is adopted. Returns false if its work has not ended, and never will: memory that the
     * work uses is lost then, and must not be freed. Blocks for a bounded time at most. */
    bool (*stream_close)(struct tti_stream *stream);
    /* Returns OK if work may be put on it now; refuses graph capture. May enter the driver. */
    tutti_status (*stream_check)(struct tti_stream *stream, tutti_error *error);

    /* ---- Work on a stream. By one thread at a time for each stream, record and after by any. Each may block while the
     * queue is full. A failure has put nothing there. ---- */

    tutti_status (*copy)(struct tti_stream *stream, void *to, const void *from, size_t bytes, tutti_error *error);
    tutti_status (*fill)(struct tti_stream *stream, void *to, size_t count, const void *element, size_t element_bytes,
                         tutti_error *error);
    /* Makes and frees the resources of a mark. mark_close may be called while work refers to it; the table keeps what
     * that needs. */
    tutti_status (*mark_open)(struct tti_mark *mark, tutti_error *error);
    void (*mark_close)(struct tti_mark *mark);
    tutti_status (*record)(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error);
    /* Waits for the work that the mark stands for at the time of this call. The mark was recorded. */
    tutti_status (*after)(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error);
    /* Returns true if that work is done, or if the device is poisoned. Never blocks on streams. */
    bool (*passed)(struct tti_mark *mark);
    /* Waits until word - value, as a signed number, is not negative. The word is in memory of word.h, or registered by
     * enlist. */
    tutti_status (*hold)(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error);
    /* Stores the value when all work before it is done and visible. */
    tutti_status (*raise)(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error);
    /* Fills in kernel->native from code that has kernel->name. The code is the device's until it is shut. A GPU's
     * driver waits for all work on it before it loads anything, so this is called before a stream holds for something
     * that only the caller can do. Launching does not wait then. */
    tutti_status (*load)(struct tti_device *device, const char *code, struct tti_kernel *kernel, tutti_error *error);
    /* Runs it with a copy of its arguments, which are one struct. */
    tutti_status (*launch)(struct tti_stream *stream, const struct tti_kernel *kernel,
                           const struct tti_launch_shape *shape, const void *arguments, size_t bytes,
                           tutti_error *error);

    /* Checks whether the device is poisoned, and notes it (tti_device_poison). Called by a thread of the device or one
     * without a deadline: it may block in the driver. `stream` (may be NULL) is one for which a caller waits. */
    void (*probe)(struct tti_device *device, struct tti_stream *stream);
    /* Called by a wait that has become long: while `waiting` is true, some thread probes. Never blocks. NULL: the kind
     * notes its poison by itself. */
    void (*watch)(struct tti_device *device, struct tti_stream *stream, bool waiting);
};

extern const struct tti_device_ops tti_host_ops, tti_cuda_ops;

#endif
