/* SPDX-License-Identifier: Apache-2.0
 *
 * The service thread: one per process, started with its first op. It takes ops forward that nobody waits for, and watches
 * their deadlines. It sleeps when there is nothing to do: for moments at first, since ops tend to follow each other and a
 * wake-up costs more than a small op, then until it is woken.
 *
 * A process whose ranks are threads has several where the host has cores to spare: one would do the parts of all its ranks in
 * an operation one after the other. All comms of a rank that have as many ranks here are with the same one.
 *
 * Inside a simulated run every comm has one of its own, as if it were alone in its process: a task, without locks, since
 * it ends before its comm does.
 *
 * Invariant: either the thread has looked at a queue after an op was put into it, or whoever put it there sees `asleep`.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/sim.h"
#include "base/status.h"
#include "base/task.h"
#include "collective/op/callback.h"
#include <errno.h>
#include <pthread.h>

#define US INT64_C(1000)
enum {
    SPIN_US = 20, /* polls before it naps, when ops wait for peers */
    NAP_US = 50,  /* the first nap; each one without anything moving is twice as long, */
    NAP_DOUBLED_US = 1000,
    NAP_PART = 32, /* and from then on longer by this part: what comes is seen late by as little of how long it took */
    NAP_MOST_US = 8000,
    NAP_GATED_US = 100, /* while an op waits for its stream */
    LINGER_US = 20000,  /* naps this long before it sleeps, when there are no ops */
    SLEEP_MS = 1000
};
enum { AWAKE, NAPPING, DOZING, ASLEEP }; /* the longer until it looks again, the later */

struct tti_service {
    pthread_mutex_t life; /* of the thread's start and end; taken before `lock` */
    pthread_mutex_t lock; /* of the list, while it is walked or changed */
    bool simulated;       /* both are not used */
    tutti_comm *first;
    struct tti_task task;
    bool runs;
    _Atomic uint32_t state;
    tti_bell bell;
    _Atomic uint32_t stop;
};

enum { SERVICES = 8 };
#define SERVICE                                                                                                        \
    {                                                                                                                  \
        .life = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER                                           \
    }
static struct tti_service services[SERVICES] = {SERVICE, SERVICE, SERVICE, SERVICE, SERVICE, SERVICE, SERVICE, SERVICE};

int tti_service_threads = 0;

struct round {
    bool any;                       /* some op is in flight, and not left to others */
    bool moved;                     /* and moved */
    bool fresh;                     /* one was started since the last look, or somebody is at it */
    bool gated;                     /* one waits for a stream of a device, which wakes nobody */
    struct tti_callback *callbacks; /* to be called without the lock, */
    tutti_comm *of;                 /* of this comm */
};

static void lock(const struct tti_service *service, pthread_mutex_t *mutex)
{
    if (!service->simulated) pthread_mutex_lock(mutex);
}

static void unlock(const struct tti_service *service, pthread_mutex_t *mutex)
{
    if (!service->simulated) pthread_mutex_unlock(mutex);
}

/* One was started since the last look, so that they may well be waited for, or somebody is at them. Ops that are not at hand
 * are left alone for a start only once: then they are taken forward, whatever else is started. */
static bool is_fresh(struct tti_queue *queue, bool started)
{
    if (atomic_load_explicit(&queue->at_hand, memory_order_relaxed) != NULL)
        return started || atomic_load_explicit(&queue->inside, memory_order_relaxed) != 0;
    queue->served.left_alone = started && !queue->served.left_alone;
    queue->served.unhurried = queue->served.unhurried || started;
    bool busy = atomic_load_explicit(&queue->busy, memory_order_relaxed) == TTI_BUSY_TAKEN;
    return queue->served.left_alone || (queue->served.unhurried && busy);
}

/* Those of one comm in a round: it is not freed before they are back. */
static void take_callbacks(struct round *round, tutti_comm *comm)
{
    if (round->callbacks != NULL || !tti_callbacks_are_due(comm)) return;
    round->callbacks = tti_callbacks_take(comm);
    round->of = comm;
}

static void call_back(struct round *round)
{
    if (round->callbacks == NULL) return;
    tti_callbacks_call_taken(round->of, round->callbacks);
    round->moved = true; /* there may be more */
}

static struct round walk(struct tti_service *service, bool look)
{
    struct round round = {0};
    lock(service, &service->lock);
    for (tutti_comm *comm = service->first; comm != NULL; comm = comm->queue.served.next) {
        uint32_t starts = atomic_load_explicit(&comm->queue.starts, memory_order_relaxed);
        bool started = starts != comm->queue.served.seen_starts;
        comm->queue.served.seen_starts = starts;
        round.fresh = round.fresh || started;
        if (atomic_load_explicit(&comm->queue.count, memory_order_acquire) == 0) {
            comm->queue.served.unhurried = false;
            take_callbacks(&round, comm);
            continue;
        }
        if (is_fresh(&comm->queue, started)) {
            round.fresh = true;
            continue;
        }
        round.any = true;
        round.moved = tti_queue_help(comm, look) || round.moved;
        round.gated = round.gated || tti_queue_awaits_stream(comm);
        take_callbacks(&round, comm);
    }
    unlock(service, &service->lock);
    call_back(&round);
    return round;
}

static int64_t longer(int64_t us)
{
    if (us < NAP_DOUBLED_US) return us * 2 < NAP_DOUBLED_US ? us * 2 : NAP_DOUBLED_US;
    return us + us / NAP_PART < NAP_MOST_US ? us + us / NAP_PART : NAP_MOST_US;
}

/* A ring that is missed costs no more than the nap. Returns how long the next one is. */
static int64_t nap(struct tti_service *service, int64_t us)
{
    uint32_t seen = atomic_load_explicit(&service->bell, memory_order_relaxed);
    uint32_t state = us > NAP_DOUBLED_US ? ASLEEP : us > NAP_US ? DOZING : NAPPING;
    atomic_store_explicit(&service->state, state, memory_order_relaxed);
    tti_bell_sleep(&service->bell, seen, us * US, false);
    atomic_store_explicit(&service->state, AWAKE, memory_order_relaxed);
    if (atomic_load_explicit(&service->bell, memory_order_relaxed) != seen) return NAP_US;
    return longer(us);
}

static void fall_asleep(struct tti_service *service)
{
    uint32_t seen = atomic_load_explicit(&service->bell, memory_order_relaxed);
    atomic_store_explicit(&service->state, ASLEEP, memory_order_seq_cst);
    tti_fence_rare();
    bool stop = atomic_load_explicit(&service->stop, memory_order_seq_cst) != 0;
    struct round round = walk(service, false);
    if (!stop && !round.any && !round.fresh && !round.moved)
        tti_bell_sleep(&service->bell, seen, SLEEP_MS * 1000 * US, false);
    atomic_store_explicit(&service->state, AWAKE, memory_order_relaxed);
    if (round.fresh) nap(service, NAP_US);
}

static void *serve(void *argument)
{
    struct tti_service *service = argument;
    int64_t idle_since = 0, used_ns = 0, nap_us = NAP_US;
    while (atomic_load_explicit(&service->stop, memory_order_seq_cst) == 0) {
        struct round round = walk(service, nap_us > NAP_US);
        int64_t now = tti_now_ns();
        if (round.moved || round.fresh) used_ns = now;
        if (round.moved) {
            idle_since = 0;
            nap_us = NAP_US;
            continue;
        }
        if (idle_since == 0) idle_since = now;
        if (round.any && now - idle_since < SPIN_US * US) {
            tti_relax();
        } else if (!round.any && now - used_ns >= LINGER_US * US) {
            fall_asleep(service);
            nap_us = NAP_US;
        } else {
            if (round.gated && nap_us > NAP_GATED_US) nap_us = NAP_GATED_US;
            nap_us = nap(service, nap_us);
        }
    }
    return NULL;
}

static tutti_status ensure(struct tti_service *service, tutti_error *error)
{
    if (service->runs) return TUTTI_OK;
    atomic_store_explicit(&service->stop, 0, memory_order_seq_cst);
    TTI_TRY(tti_task_start(&service->task, serve, service, error));
    service->runs = true;
    return TUTTI_OK;
}

static struct tti_service *simulated_service(void)
{
    struct tti_service *service = tti_calloc(1, sizeof *service);
    if (service != NULL) service->simulated = true;
    return service;
}

/* Ranks that compute have their cores to themselves; of the others each takes a thread. */
static struct tti_service *service_for(const tutti_comm *comm)
{
    uint64_t cores[TTI_CORE_WORDS];
    tti_cores_mine(cores);
    int count = tti_service_threads > 0 ? tti_service_threads : tti_cores_count(cores) - comm->traits.here;
    return &services[comm->job_rank % (count < 1 ? 1 : count < SERVICES ? count : SERVICES)];
}

tutti_status tti_service_add(tutti_comm *comm, tutti_error *error)
{
    struct tti_service *service = tti_sim == NULL ? service_for(comm) : simulated_service();
    if (service == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a service task");
    lock(service, &service->life);
    tutti_status status = ensure(service, error);
    if (status == TUTTI_OK) {
        lock(service, &service->lock);
        comm->queue.served.next = service->first;
        service->first = comm;
        comm->queue.served.by = service;
        unlock(service, &service->lock);
    }
    unlock(service, &service->life);
    if (status != TUTTI_OK && service->simulated) tti_free(service);
    return status;
}

/* Returns whether it was the last one. */
static bool unlink_comm(struct tti_service *service, tutti_comm *comm)
{
    lock(service, &service->lock);
    tutti_comm **link = &service->first;
    while (*link != NULL && *link != comm) link = &(*link)->queue.served.next;
    if (*link != NULL) *link = comm->queue.served.next;
    comm->queue.served.by = NULL;
    bool last = service->first == NULL;
    unlock(service, &service->lock);
    return last;
}

static void stop(struct tti_service *service)
{
    atomic_store_explicit(&service->stop, 1, memory_order_seq_cst);
    tti_bell_ring(&service->bell, false);
    tti_task_join(&service->task);
    service->runs = false;
}

void tti_service_remove(tutti_comm *comm)
{
    struct tti_service *service = comm->queue.served.by;
    if (service->simulated) {
        stop(service);
        unlink_comm(service, comm);
        tti_free(service);
        return;
    }
    pthread_mutex_lock(&service->life);
    if (unlink_comm(service, comm) && service->runs) stop(service);
    pthread_mutex_unlock(&service->life);
}

void tti_service_wake(const tutti_comm *comm, enum tti_haste haste)
{
    struct tti_service *service = comm->queue.served.by;
    tti_fence_frequent(atomic_load_explicit(&comm->area->full_fences, memory_order_relaxed) != 0);
    uint32_t state = atomic_load_explicit(&service->state, memory_order_relaxed);
    if (state >= (haste == TTI_SOMETIME ? ASLEEP : haste == TTI_SOON ? DOZING : NAPPING))
        tti_bell_ring(&service->bell, false);
}

bool tti_service_find(bool (*is)(tutti_comm *comm, void *context), void *context)
{
    bool found = false;
    for (struct tti_service *service = services; tti_sim == NULL && service < services + SERVICES; service++) {
        lock(service, &service->lock);
        for (tutti_comm *comm = service->first; comm != NULL && !found; comm = comm->queue.served.next)
            found = is(comm, context);
        unlock(service, &service->lock);
    }
    return found;
}

void tti_service_forked(void)
{
    for (struct tti_service *service = services; service < services + SERVICES; service++) {
        pthread_mutex_init(&service->life, NULL);
        pthread_mutex_init(&service->lock, NULL);
        service->first = NULL;
        service->runs = false;
        atomic_store_explicit(&service->state, AWAKE, memory_order_relaxed);
    }
}
