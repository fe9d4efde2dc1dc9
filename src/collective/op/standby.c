/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU's driver holds up whoever puts work on a stream whose queue is full, and with it every thread of the process that calls
 * the driver, for as long as the stream stands still. The library's own calls never fill a queue (src/device/room.c), but a
 * program's kernels may. A service thread issues ops, so it may be held up as well, and then nobody would find out that a rank is
 * lost: which may be just what the stream waits for.
 *
 * So one more thread looks from time to time at the oldest op that flies of each comm. One that nobody has looked at for a while
 * it takes forward, as any other thread may (queue.h). What it does for an op that flies enters no driver before the streams
 * that wait for the op were let go.
 *
 * Invariant: `standby.lock` is held while a comm is looked at, so a comm that has left is not touched.
 */
#include "collective/op/standby.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sim.h"
#include "base/task.h"
#include "device/object.h"

#define LOOK_NS INT64_C(20000000)      /* between looks */
#define NEGLECTED_NS INT64_C(50000000) /* an op that nobody has looked at for so long is taken forward */

static struct {
    pthread_mutex_t lock;
    struct tti_link comms; /* of struct tti_streams */
    struct tti_task task;
    bool runs;
    uint64_t process; /* a process that was forked has neither thread nor comms */
    tti_bell bell;
    _Atomic uint32_t stop;
} standby = {.lock = PTHREAD_MUTEX_INITIALIZER, .comms = {&standby.comms, &standby.comms}};

/* Returns the comm's oldest op if that flies, or NULL: only to be compared. */
static const struct tti_started *peek(tutti_comm *data)
{
    if (atomic_load_explicit(&data->queue.count, memory_order_acquire) == 0) return NULL;
    tti_lock(&data->queue.lock);
    const struct tti_started *first = data->queue.first;
    bool flies = first != NULL && tti_turn_flies(first);
    tti_unlock(&data->queue.lock);
    return flies ? first : NULL;
}

/* Takes the op forward if no other thread is busy with the comm, or has been for a while. */
static void take_over(tutti_comm *data, int64_t now_ns)
{
    if (!tti_queue_try_for_ops(data)) return;
    struct tti_started *first = tti_queue_first(data);
    if (first != NULL && tti_turn_flies(first) && now_ns - first->wait_state.polled_ns >= NEGLECTED_NS) {
        tti_queue_drive(data);
        (void)tti_queue_poll(data, now_ns);
    }
    tti_queue_give_back(data);
}

static void look(struct tti_streams *streams, int64_t now_ns)
{
    const struct tti_started *first = peek(streams->data);
    if (first == NULL || first != streams->seen) {
        streams->seen = first;
        streams->seen_ns = now_ns;
    } else if (now_ns - streams->seen_ns >= NEGLECTED_NS) {
        take_over(streams->data, now_ns);
    }
}

static void *stand_by(void *argument)
{
    (void)argument;
    while (atomic_load_explicit(&standby.stop, memory_order_acquire) == 0) {
        uint32_t seen = atomic_load_explicit(&standby.bell, memory_order_acquire);
        tti_bell_sleep(&standby.bell, seen, LOOK_NS, false);
        pthread_mutex_lock(&standby.lock);
        TTI_LIST_EACH(link, &standby.comms) look(TTI_LIST_OF(link, struct tti_streams, link), tti_now_ns());
        pthread_mutex_unlock(&standby.lock);
    }
    return NULL;
}

/* Joins and leaves one at a time, so that the thread is not started while it is ended. */
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

static void start(void)
{
    tutti_error error = {0};
    atomic_store_explicit(&standby.stop, 0, memory_order_relaxed);
    standby.runs = tti_task_start(&standby.task, stand_by, NULL, &error) == TUTTI_OK;
    if (!standby.runs)
        tti_log(TUTTI_WARN, "no thread stands by for those that a GPU's driver holds up: %s", error.text);
}

void tti_standby_join(struct tti_streams *streams)
{
    if (tti_sim != NULL || streams->provider == NULL) return;
    pthread_mutex_lock(&changing);
    if (standby.process != tti_object_process()) {
        pthread_mutex_init(&standby.lock, NULL);
        tti_list_init(&standby.comms);
        standby.runs = false;
        standby.process = tti_object_process();
    }
    pthread_mutex_lock(&standby.lock);
    tti_list_append(&standby.comms, &streams->link);
    streams->listed = true;
    pthread_mutex_unlock(&standby.lock);
    if (!standby.runs) start();
    pthread_mutex_unlock(&changing);
}

void tti_standby_leave(struct tti_streams *streams)
{
    if (!streams->listed || standby.process != tti_object_process()) return;
    pthread_mutex_lock(&changing);
    pthread_mutex_lock(&standby.lock);
    tti_list_remove(&streams->link);
    bool last = tti_list_is_empty(&standby.comms);
    pthread_mutex_unlock(&standby.lock);
    if (last && standby.runs) {
        atomic_store_explicit(&standby.stop, 1, memory_order_release);
        tti_bell_ring(&standby.bell, false);
        tti_task_join(&standby.task);
        standby.runs = false;
    }
    pthread_mutex_unlock(&changing);
}
