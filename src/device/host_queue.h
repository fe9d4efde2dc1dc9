/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream of device `host`: a thread does the work of a bounded queue in order. Usually each stream has a queue of its
 * own; a fault (host_fault.h) lets several share one, as the streams of a GPU share the queues of its hardware.
 */
#ifndef TTI_DEVICE_HOST_QUEUE_H
#define TTI_DEVICE_HOST_QUEUE_H

#include "base/task.h"
#include "device/ops.h"
#include <pthread.h>

enum { TTI_HOST_ROOM = 1024, TTI_HOST_QUEUES = 16, TTI_HOST_ARGUMENTS = 96 };

struct tti_host_queue;

struct tti_host_device {
    struct tti_device device;
    _Atomic int64_t delay_ns;  /* fault: delay before each piece of work */
    _Atomic int64_t hold_ns;   /* fault: the longest hold, after which the stream is given up */
    _Atomic size_t room;       /* fault: room of queues that are made from now on */
    _Atomic int shared_queues; /* fault: queues that streams made from now on share; 0: each has its own */
    _Atomic size_t bytes_most; /* fault: the device's memory */
    _Atomic size_t bytes;      /* how much of it is taken */
    pthread_mutex_t lock;      /* guards the queues */
    struct tti_host_queue *queues;
    int dealt; /* how many streams that share queues were made */
    struct tti_host_queue *shared[TTI_HOST_QUEUES];
};

/* The event of a recorded mark: a word that is 1 when the mark has passed. The mark and each work have a reference. */
struct tti_host_event {
    struct tti_word word;
    _Atomic uint32_t references;
};
struct tti_host_event *tti_host_event_make(void); /* NULL: no memory */
void tti_host_event_give(struct tti_host_event *event);

/* A piece of work. The queue owns its references once it was put there. */
struct tti_host_work {
    enum { TTI_HOST_COPY, TTI_HOST_FILL, TTI_HOST_RAISE, TTI_HOST_HOLD, TTI_HOST_LAUNCH, TTI_HOST_FREE } kind;
    struct tti_stream *stream;
    struct tti_host_event *event; /* the event whose word it is, or NULL */
    union {
        struct {
            char *to;
            const char *from;
            size_t bytes;
        } copy;
        struct {
            char *to;
            size_t count, element_bytes;
            char element[8];
        } fill;
        struct {
            struct tti_word *word;
            uint64_t value;
        } word;
        struct {
            void (*function)(const void *arguments);
            void *large; /* the arguments, if they do not fit here */
            _Alignas(16) char arguments[TTI_HOST_ARGUMENTS];
        } launch;
        struct tti_memory memory;
    };
};

/* Puts it at the end of the stream's queue; blocks while that is full. After a failure its references are still the
 * caller's. */
tutti_status tti_host_put(struct tti_stream *stream, const struct tti_host_work *work, tutti_error *error);

tutti_status tti_host_stream_open(struct tti_stream *stream, void *foreign, tutti_error *error);
bool tti_host_stream_close(struct tti_stream *stream);

void tti_host_release(struct tti_host_device *device, struct tti_memory *memory);

static inline struct tti_host_device *tti_host_of(struct tti_device *device)
{
    return (struct tti_host_device *)(void *)device; /* it is the first member */
}

#endif
