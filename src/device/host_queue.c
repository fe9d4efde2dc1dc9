/* SPDX-License-Identifier: Apache-2.0
 *
 * Queues of device `host`.
 *
 * Invariant: work counts as passed (tti_stream.passed, the room of the queue) when it has ended, and only its
 * references are touched after that. So a stream whose work has all passed can be closed.
 *
 * After poison, work is only released and not done: memory is freed, marks pass, words stay. The same holds for work of
 * a stream that was given up, but its words are raised, since others may hold for them.
 */
#include "device/host_queue.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sim.h"
#include "base/status.h"
#include "device/open.h"
#include "device/stream.h"
#include <errno.h>
#include <string.h>

#define US INT64_C(1000)
#define MS INT64_C(1000000)
enum { YIELD_US = 50, SLEEP_MS = 1000, FULL_NAP_MS = 1, STOP_MS = 1000 };

struct tti_host_queue {
    struct tti_host_device *device; /* a reference, until the thread has ended */
    struct tti_host_queue *next;    /* the next queue of the device */
    struct tti_task task;
    int users;            /* streams that use it; under the device's lock */
    pthread_mutex_t lock; /* guards the ring */
    struct tti_host_work *ring;
    size_t room;
    uint64_t put, taken;       /* `taken` counts work that has ended */
    tti_bell filled, drained;  /* rung when work was put, and when some has ended */
    _Atomic uint32_t sleeping; /* the thread sleeps on `filled` */
    _Atomic uint32_t full;     /* a thread sleeps on `drained` */
    _Atomic uint32_t stop;     /* asks the thread to end when there is no more work */
    _Atomic uint32_t ended;    /* the thread touches nothing any more */
};

/* ---- Events ------------------------------------------------------------------------------------------------------ */

struct tti_host_event *tti_host_event_make(void)
{
    struct tti_host_event *event = tti_calloc_aligned(sizeof *event);
    if (event != NULL) atomic_store_explicit(&event->references, 1, memory_order_relaxed);
    return event;
}

void tti_host_event_give(struct tti_host_event *event)
{
    if (event != NULL && atomic_fetch_sub_explicit(&event->references, 1, memory_order_acq_rel) == 1) tti_free(event);
}

/* ---- Doing work -------------------------------------------------------------------------------------------------- */

static bool is_let_go(void *context)
{
    const struct tti_stream *stream = context;
    return atomic_load_explicit(&stream->lets_go, memory_order_acquire) != 0 || tti_device_is_poisoned(stream->device);
}

static void hold(struct tti_host_queue *queue, const struct tti_host_work *work)
{
    int64_t limit_ns = atomic_load_explicit(&queue->device->hold_ns, memory_order_relaxed);
    struct tti_word_wait wait = {.deadline_ns = tti_now_ns() + limit_ns, .ended = is_let_go, .context = work->stream};
    if (tti_word_wait(work->word.word, work->word.value, &wait) || is_let_go(work->stream)) return;
    tti_log(TUTTI_ERROR, "a stream of %s has held for %lld ms for a word that nobody raised; it was given up",
            work->stream->device->name, (long long)(limit_ns / MS));
    tti_stream_give_up(work->stream);
}

static void fill(const struct tti_host_work *work)
{
    size_t bytes = work->fill.element_bytes;
    if (!tti_move(work->fill.count * bytes)) return;
    for (size_t i = 0; i < work->fill.count; i++) memcpy(work->fill.to + i * bytes, work->fill.element, bytes);
}

static void move(const struct tti_host_work *work)
{
    if (work->kind == TTI_HOST_FILL)
        fill(work);
    else if (tti_move(work->copy.bytes))
        memcpy(work->copy.to, work->copy.from, work->copy.bytes);
    tti_moved();
}

static void launch(const struct tti_host_work *work)
{
    work->launch.function(work->launch.large != NULL ? work->launch.large : work->launch.arguments);
}

static void do_work(struct tti_host_queue *queue, struct tti_host_work *work)
{
    bool dead = is_let_go(work->stream);
    switch (work->kind) {
    case TTI_HOST_COPY:
    case TTI_HOST_FILL:
        if (!dead) move(work);
        break;
    case TTI_HOST_RAISE:
        if (work->event != NULL || !tti_device_is_poisoned(work->stream->device))
            tti_word_store(work->word.word, work->word.value);
        break;
    case TTI_HOST_HOLD:
        if (!dead) hold(queue, work);
        break;
    case TTI_HOST_LAUNCH:
        if (!dead) launch(work);
        break;
    case TTI_HOST_FREE: tti_host_release(queue->device, &work->memory); break;
    }
}

static void delay(const struct tti_host_queue *queue)
{
    int64_t ns = atomic_load_explicit(&queue->device->delay_ns, memory_order_relaxed);
    tti_bell nobody = 0;
    if (ns > 0) tti_bell_sleep(&nobody, 0, ns, false);
}

/* ---- The thread -------------------------------------------------------------------------------------------------- */

static bool next_work(struct tti_host_queue *queue, struct tti_host_work *work)
{
    pthread_mutex_lock(&queue->lock);
    bool there = queue->taken < queue->put;
    if (there) *work = queue->ring[queue->taken % queue->room];
    pthread_mutex_unlock(&queue->lock);
    return there;
}

static void end_work(struct tti_host_queue *queue, struct tti_host_work *work)
{
    pthread_mutex_lock(&queue->lock);
    queue->taken++;
    pthread_mutex_unlock(&queue->lock);
    if (atomic_load_explicit(&queue->full, memory_order_seq_cst) != 0) tti_bell_ring(&queue->drained, false);
    if (work->kind == TTI_HOST_LAUNCH) tti_free(work->launch.large);
    tti_host_event_give(work->event);
    atomic_fetch_add_explicit(&work->stream->passed, 1, memory_order_release);
    tti_object_give(&work->stream->object);
}

/* Sleeps until work is put. Either the thread has looked after work was put, or the thread that put it sees
 * `sleeping`. */
static void sleep_until_filled(struct tti_host_queue *queue)
{
    uint32_t seen = atomic_load_explicit(&queue->filled, memory_order_relaxed);
    atomic_store_explicit(&queue->sleeping, 1, memory_order_seq_cst);
    pthread_mutex_lock(&queue->lock);
    bool there = queue->taken < queue->put;
    pthread_mutex_unlock(&queue->lock);
    if (!there && atomic_load_explicit(&queue->stop, memory_order_seq_cst) == 0)
        tti_bell_sleep(&queue->filled, seen, SLEEP_MS * MS, false);
    atomic_store_explicit(&queue->sleeping, 0, memory_order_relaxed);
}

static void *serve(void *argument)
{
    struct tti_host_queue *queue = argument;
    struct tti_host_work work;
    struct tti_wait wait;
    tti_wait_begin(&wait, true, YIELD_US * US);
    for (;;) {
        bool stop = atomic_load_explicit(&queue->stop, memory_order_acquire) != 0;
        if (next_work(queue, &work)) {
            delay(queue);
            do_work(queue, &work);
            end_work(queue, &work);
            tti_wait_begin(&wait, true, YIELD_US * US);
        } else if (stop) {
            break;
        } else if (!tti_wait_pause(&wait, true)) {
            sleep_until_filled(queue);
        }
    }
    atomic_store_explicit(&queue->ended, 1, memory_order_release);
    return NULL;
}

/* ---- Putting work ------------------------------------------------------------------------------------------------ */

static bool try_put(struct tti_host_queue *queue, struct tti_stream *stream, const struct tti_host_work *work)
{
    pthread_mutex_lock(&queue->lock);
    bool room = queue->put - queue->taken < queue->room;
    if (room) {
        queue->ring[queue->put % queue->room] = *work;
        queue->put++;
        atomic_fetch_add_explicit(&stream->put, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&queue->lock);
    if (room && atomic_load_explicit(&queue->sleeping, memory_order_seq_cst) != 0) tti_bell_ring(&queue->filled, false);
    return room;
}

static void sleep_until_drained(struct tti_host_queue *queue)
{
    uint32_t seen = atomic_load_explicit(&queue->drained, memory_order_relaxed);
    atomic_fetch_add_explicit(&queue->full, 1, memory_order_seq_cst);
    tti_bell_sleep(&queue->drained, seen, FULL_NAP_MS * MS, false);
    atomic_fetch_sub_explicit(&queue->full, 1, memory_order_relaxed);
}

tutti_status tti_host_put(struct tti_stream *stream, const struct tti_host_work *work, tutti_error *error)
{
    struct tti_host_queue *queue = stream->native;
    struct tti_host_work put = *work;
    int64_t deadline_ns = 0;
    put.stream = stream;
    tti_object_keep(&stream->object);
    while (!try_put(queue, stream, &put)) {
        int64_t now = tti_now_ns(), until = atomic_load_explicit(&stream->until_ns, memory_order_relaxed);
        if (deadline_ns == 0) deadline_ns = until != 0 ? until : now + TTI_DEVICE_PATIENCE_NS;
        tutti_status status = tti_stream_state(stream, error);
        if (status == TUTTI_OK && now >= deadline_ns)
            status = tti_error_set(error, TUTTI_ERR_TIMEOUT, 0,
                                   "the queue of a stream of %s was full for too long: %zu pieces of work wait in it",
                                   stream->device->name, queue->room);
        if (status != TUTTI_OK) {
            tti_object_give(&stream->object);
            return status;
        }
        sleep_until_drained(queue);
    }
    return TUTTI_OK;
}

/* ---- Queues ------------------------------------------------------------------------------------------------------ */

static void free_queue(struct tti_host_queue *queue)
{
    pthread_mutex_destroy(&queue->lock);
    tti_free(queue->ring);
    tti_free(queue);
}

static tutti_status make_queue(struct tti_host_device *device, struct tti_host_queue **made, tutti_error *error)
{
    struct tti_host_queue *queue = tti_calloc(1, sizeof *queue);
    if (queue == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a stream");
    pthread_mutex_init(&queue->lock, NULL);
    queue->device = device;
    queue->room = atomic_load_explicit(&device->room, memory_order_relaxed);
    queue->ring = tti_calloc(queue->room, sizeof *queue->ring);
    tutti_status status = queue->ring != NULL
                              ? tti_task_start(&queue->task, serve, queue, error)
                              : tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a stream");
    if (status != TUTTI_OK) {
        free_queue(queue);
        return status;
    }
    tti_object_keep(&device->device.object);
    queue->next = device->queues;
    device->queues = queue;
    *made = queue;
    return TUTTI_OK;
}

/* Finds or makes the queue for a new stream. With the device's lock held. */
static tutti_status queue_for(struct tti_host_device *device, struct tti_host_queue **queue, tutti_error *error)
{
    int share = atomic_load_explicit(&device->shared_queues, memory_order_relaxed);
    if (share == 0) return make_queue(device, queue, error);
    int place = device->dealt++ % share;
    if (device->shared[place] == NULL) TTI_TRY(make_queue(device, &device->shared[place], error));
    *queue = device->shared[place];
    return TUTTI_OK;
}

static struct tti_host_queue *known(struct tti_host_device *device, const void *foreign)
{
    struct tti_host_queue *queue = device->queues;
    while (queue != NULL && queue != foreign) queue = queue->next;
    return queue;
}

tutti_status tti_host_stream_open(struct tti_stream *stream, void *foreign, tutti_error *error)
{
    struct tti_host_device *device = tti_host_of(stream->device);
    struct tti_host_queue *queue = NULL;
    tutti_status status = TUTTI_OK;
    pthread_mutex_lock(&device->lock);
    if (foreign == NULL)
        status = queue_for(device, &queue, error);
    else if ((queue = known(device, foreign)) == NULL)
        status = tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                               "there is no such stream on %s; it was destroyed, or is "
                               "another device's",
                               stream->device->name);
    if (status == TUTTI_OK) queue->users++;
    pthread_mutex_unlock(&device->lock);
    stream->native = queue;
    return status;
}

/* Leaves the queue; the last user takes it off the device's list. */
static bool leave_queue(struct tti_host_device *device, struct tti_host_queue *queue)
{
    pthread_mutex_lock(&device->lock);
    bool last = --queue->users == 0;
    struct tti_host_queue **link = &device->queues;
    while (last && *link != queue) link = &(*link)->next;
    if (last) *link = queue->next;
    for (int i = 0; i < TTI_HOST_QUEUES && last; i++)
        if (device->shared[i] == queue) device->shared[i] = NULL;
    pthread_mutex_unlock(&device->lock);
    return last;
}

/* Keeps a queue whose thread has not ended: the thread will go on some day, and must find its memory. */
static void abandon(struct tti_host_queue *queue)
{
    static struct tti_host_queue *abandoned;
    static _Atomic uint32_t lock;
    tti_lock(&lock);
    queue->next = abandoned;
    abandoned = queue;
    tti_unlock(&lock);
}

/* Stops the queue's thread. A function that never returns cannot be ended: its thread and its queue are left to it. */
static bool stop_queue(struct tti_host_queue *queue)
{
    int64_t nap_ns = 0, deadline_ns = tti_now_ns() + STOP_MS * MS;
    atomic_store_explicit(&queue->stop, 1, memory_order_seq_cst);
    tti_bell_ring(&queue->filled, false);
    while (atomic_load_explicit(&queue->ended, memory_order_acquire) == 0) {
        if (tti_now_ns() >= deadline_ns) {
            abandon(queue);
            return false;
        }
        tti_poll_nap(&nap_ns);
    }
    tti_task_join(&queue->task);
    struct tti_device *device = &queue->device->device;
    free_queue(queue);
    tti_object_give(&device->object);
    return true;
}

bool tti_host_stream_close(struct tti_stream *stream)
{
    struct tti_host_queue *queue = stream->native;
    bool idle = atomic_load_explicit(&stream->put, memory_order_relaxed) ==
                atomic_load_explicit(&stream->passed, memory_order_acquire);
    if (leave_queue(tti_host_of(stream->device), queue)) idle = stop_queue(queue) && idle;
    return idle;
}
