/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices `cuda:N`, shared by the files that carry out its table.
 */
#ifndef TTI_DEVICE_CUDA_DEVICE_H
#define TTI_DEVICE_CUDA_DEVICE_H

#include "base/task.h"
#include "device/cuda_api.h"
#include "device/ops.h"
#include <pthread.h>

enum { TTI_CUDA_WATCHED = 64 };

struct tti_cuda_module {
    struct tti_cuda_module *next;
    void *native;
};

enum { TTI_CUDA_SPARE_EVENTS = 64, TTI_CUDA_USERS = 32 };

struct tti_cuda_device {
    struct tti_device device;
    const struct tti_cuda *cuda;
    int ordinal;        /* CUdevice */
    void *context;      /* the primary one, retained, or the caller's */
    bool adopted;       /* the caller's */
    void *pool, *home;  /* of LOCAL memory, and the stream that it is taken on: nothing else is put there */
    bool same_pointers; /* registered host memory has the same address on the device */
    bool shares;        /* memory can be shared by descriptor */
    size_t granularity; /* of such memory */
    struct tti_cuda_access
        users[TTI_CUDA_USERS]; /* this GPU, and those that reach its memory: all memory is for them */
    size_t user_count;
    _Atomic(const char *) last_kernel; /* launched last, for errors */
    pthread_mutex_t lock;              /* of the modules and the marks */
    /* Ranks that are threads share the device, and one may close it while another still gives memory back: held by who does, and
     * alone by who shuts the device. */
    pthread_rwlock_t giving;
    struct tti_cuda_module *modules;
    struct tti_link marks;                     /* those with an event, which goes when the device is shut */
    void *spare_events[TTI_CUDA_SPARE_EVENTS]; /* for marks to come; likewise */
    int spare_count;
    /* A thread that looks, while somebody waits for long, whether the device has failed. Whoever waits polls a word only. */
    pthread_mutex_t watch_lock; /* of all below; held while the driver is asked */
    bool watcher_runs;
    struct tti_task watcher;
    _Atomic uint32_t watcher_stops;
    tti_bell watch_bell;
    int watched_count;
    struct tti_stream *watched[TTI_CUDA_WATCHED]; /* a reference each; one that is waited for twice is there twice */
};

static inline struct tti_cuda_device *tti_cuda_of(struct tti_device *device)
{
    return (struct tti_cuda_device *)(void *)device; /* its first member */
}

/* The device's context is current between the two; what the caller had comes back. A result of CUDA. */
int tti_cuda_enter(struct tti_cuda_device *device);
void tti_cuda_leave(struct tti_cuda_device *device);

/* What a result of CUDA's means: OK, ERR_MEMORY, ERR_ARGUMENT …; one that the device does not recover from poisons it:
 * ERR_DEVICE. `what` is what was called, with `stream` (may be NULL) the one it was for. */
tutti_status tti_cuda_check(struct tti_cuda_device *device, int code, const char *what, struct tti_stream *stream,
                            tutti_error *error);

/* The entries of the table, by file. cuda_memory.c: */
tutti_status tti_cuda_alloc(struct tti_device *device, tutti_memory kind, size_t bytes, struct tti_memory *memory,
                            tutti_error *error);
void tti_cuda_free(struct tti_device *device, struct tti_memory *memory, struct tti_stream *stream);
tutti_status tti_cuda_share(struct tti_device *device, const struct tti_memory *memory, int *fd, tutti_error *error);
tutti_status tti_cuda_map(struct tti_device *device, int fd, size_t bytes, struct tti_memory *memory,
                          tutti_error *error);
tutti_status tti_cuda_lend(struct tti_device *device, const void *pointer, struct tti_lease *lease, tutti_error *error);
tutti_status tti_cuda_borrow(struct tti_device *device, const struct tti_lease *lease, size_t bytes,
                             struct tti_memory *memory, tutti_error *error);
bool tti_cuda_find(struct tti_device *device, const void *pointer, struct tti_found *found);
tutti_status tti_cuda_enlist(struct tti_device *device, void *base, size_t bytes, tutti_error *error);
void tti_cuda_withdraw(struct tti_device *device, void *base);
void *tti_cuda_address(struct tti_device *device, void *enlisted);
/* Whether the driver knows the pointer: a copy from or to any other host memory may block. */
bool tti_cuda_knows(struct tti_cuda_device *device, const void *pointer);

/* cuda_stream.c: */
tutti_status tti_cuda_stream_open(struct tti_stream *stream, void *foreign, tutti_error *error);
bool tti_cuda_stream_idle(struct tti_stream *stream);
void tti_cuda_stream_abort(struct tti_stream *stream);
bool tti_cuda_stream_close(struct tti_stream *stream);
tutti_status tti_cuda_stream_check(struct tti_stream *stream, tutti_error *error);
tutti_status tti_cuda_copy(struct tti_stream *stream, void *to, const void *from, size_t bytes, tutti_error *error);
tutti_status tti_cuda_fill(struct tti_stream *stream, void *to, size_t count, const void *element, size_t element_bytes,
                           tutti_error *error);
tutti_status tti_cuda_mark_open(struct tti_mark *mark, tutti_error *error);
void tti_cuda_mark_close(struct tti_mark *mark);
void tti_cuda_marks_clear(struct tti_cuda_device *device); /* when it is shut */
tutti_status tti_cuda_record(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error);
tutti_status tti_cuda_after(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error);
bool tti_cuda_passed(struct tti_mark *mark);
tutti_status tti_cuda_hold(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error);
tutti_status tti_cuda_raise(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error);
tutti_status tti_cuda_kernel_load(struct tti_device *device, const char *code, struct tti_kernel *kernel,
                                  tutti_error *error);
tutti_status tti_cuda_launch(struct tti_stream *stream, const struct tti_kernel *kernel,
                             const struct tti_launch_shape *shape, const void *arguments, size_t bytes,
                             tutti_error *error);

/* cuda_watch.c: */
void tti_cuda_probe(struct tti_device *device, struct tti_stream *stream);
void tti_cuda_watch(struct tti_device *device, struct tti_stream *stream, bool waiting);
void tti_cuda_unwatch(struct tti_cuda_device *device, const struct tti_stream *stream); /* its native form goes */
void tti_cuda_watch_stop(struct tti_cuda_device *device);

#endif
