/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices `cuda:N`: declarations for the files that implement their table.
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
    int ordinal;        /* a CUdevice */
    void *context;      /* the primary context, retained, or the caller's */
    bool adopted;       /* the context is the caller's */
    void *pool, *home;  /* the pool of LOCAL memory, and the stream on which it is taken: nothing else is put there */
    bool same_pointers; /* registered host memory has the same address on the device */
    bool shares;        /* memory can be shared by descriptor */
    size_t granularity; /* granularity of such memory */
    /* this GPU, and those that reach its memory: all memory is accessible to them */
    struct tti_cuda_access users[TTI_CUDA_USERS];
    size_t user_count;
    _Atomic(const char *) last_kernel; /* the kernel that was launched last, for errors */
    pthread_mutex_t lock;              /* guards the modules and the marks */
    /* Ranks that are threads share the device, and one may close it while another still gives memory back. A thread
     * that gives memory back holds this for reading, one that shuts the device for writing. */
    pthread_rwlock_t giving;
    struct tti_cuda_module *modules;
    struct tti_link marks;                     /* marks with an event; the events end when the device is shut */
    void *spare_events[TTI_CUDA_SPARE_EVENTS]; /* events for later marks; they end likewise */
    int spare_count;
    /* While a caller waits for long, a thread checks whether the device has failed. The caller itself polls a word
     * only. */
    pthread_mutex_t watch_lock; /* guards all fields below; never held inside the driver */
    bool watcher_runs;
    struct tti_task watcher;
    _Atomic uint32_t watcher_stops;
    tti_bell watch_bell;
    int watched_count;
    const struct tti_stream *asked;               /* the stream that the driver is asked about now, or NULL */
    struct tti_stream *watched[TTI_CUDA_WATCHED]; /* references; a stream for which two callers wait is there twice */
};

static inline struct tti_cuda_device *tti_cuda_of(struct tti_device *device)
{
    return (struct tti_cuda_device *)(void *)device; /* it is the first member */
}

/* Between the two calls the device's context is current; then the caller's own is current again. Returns a result of
 * CUDA. */
int tti_cuda_enter(struct tti_cuda_device *device);
void tti_cuda_leave(struct tti_cuda_device *device);

/* Translates a result of CUDA: OK, ERR_MEMORY, ERR_ARGUMENT …; a result from which the device does not recover poisons
 * it: ERR_DEVICE. `what` names the function that was called, `stream` (may be NULL) is the stream that it was called
 * for. */
tutti_status tti_cuda_check(struct tti_cuda_device *device, int code, const char *what, struct tti_stream *stream,
                            tutti_error *error);

/* The functions of the table, by file. cuda_memory.c: */
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
tutti_status tti_cuda_enlist_words(struct tti_device *device, void *base, size_t bytes, tutti_error *error);
void tti_cuda_withdraw_words(struct tti_device *device, void *base);
void *tti_cuda_address(struct tti_device *device, void *enlisted);
/* Returns true if the driver knows the pointer: a copy from or to any other host memory may block. */
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
void tti_cuda_marks_clear(struct tti_cuda_device *device); /* called when it is shut */
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
/* called before its native form is freed */
void tti_cuda_unwatch(struct tti_cuda_device *device, const struct tti_stream *stream);
void tti_cuda_watch_stop(struct tti_cuda_device *device);

#endif
