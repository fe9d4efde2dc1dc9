/* SPDX-License-Identifier: Apache-2.0
 *
 * The service thread: one per process, started with its first op. It takes ops forward that nobody waits for, and
 * watches their deadlines. It leaves ops alone that were just started or that another thread is busy with, and naps:
 * for moments at first, since ops tend to follow each other and a wake-up costs more than a small op. For all other
 * comms it announces that it dozes: whoever brings something for one of them then wakes it. Ranks that share memory do
 * so by the rank's bell, a futex word that they ring only when it says that it dozes; over a transport it sleeps on the
 * transport's descriptors.
 *
 * A process whose ranks are threads has several where the host has cores to spare: one would do the parts of all its
 * ranks in an operation one after the other. All comms of a rank that have as many ranks here are with the same one,
 * but for those over a transport: nobody can sleep on a futex word and on descriptors at once.
 *
 * Inside a simulated run every comm has one of its own, as if it were alone in its process: a task, without locks,
 * since it ends before its comm does.
 *
 * Invariant: either the thread has looked at a queue after an op was put into it, or whoever put it there sees `state`.
 * Either it has looked at a comm that it dozes for after something came, or whoever brought it sees that it dozes.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/sim.h"
#include "base/status.h"
#include "base/task.h"
#include "collective/op/callback.h"
#include "collective/peers/net.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define US INT64_C(1000)
enum {
    SPIN_US = 20, /* polls before it naps, when ops wait for peers */
    NAP_US = 50,  /* the first nap; while nothing moves, each next one is twice as long, up to NAP_DOUBLED_US */
    NAP_DOUBLED_US = 1000,
    NAP_PART = 32, /* later naps grow by this part: an event is noticed late by that part of its wait */
    NAP_MOST_US = 8000,
    NAP_GATED_US = 100, /* while an op waits for its stream */
    LINGER_US = 20000,  /* how long it naps before it sleeps, if there are no ops */
    SLEEP_MS = 1000
};
/* How it rests, from shortest to longest; the last one on descriptors. */
enum { AWAKE, NAPPING, DOZING, ASLEEP, ASLEEP_ON_WIRE };

struct tti_service {
    pthread_mutex_t lock; /* lock of the list of comms, while it is walked or changed */
    bool simulated;       /* it is not used */
    bool forked;          /* it was copied by fork, and has no thread here */
    bool over_wire;       /* it serves comms over a transport, */
    int number;           /* it is the process's service thread of this number, */
    struct tti_world *world;
    tutti_comm *first;
    struct tti_task task;
    bool runs;
    _Atomic uint32_t state;
    tti_bell *bell;        /* the bell of the first rank that it served; */
    tti_bell own_bell;     /* used if ranks share no memory, */
    int wake_fd;           /* written to wake it while it sleeps on transports; -1: it never does */
    struct pollfd *polled; /* the descriptors of these */
    struct tti_transport **transports;
    int transport_count;
    bool on_transports; /* true while it may sleep on them */
    uint32_t rests;     /* how often it has slept */
    int users;          /* its comms; guarded by services_lock */
    _Atomic uint32_t stop;
    struct tti_service *next;
};

/* The services of the process, under this lock, which is taken before theirs. */
static pthread_mutex_t services_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tti_service *services;

int tti_service_threads = 0;

struct round {
    bool any;                       /* an op is in flight that is not left to others */
    bool moved;                     /* an op moved */
    bool fresh;                     /* one was started since the last poll, or another thread is busy with it */
    bool gated;                     /* one waits for a stream of a device, which wakes no thread */
    bool restless;                  /* nobody rings when one of these can go on */
    struct tti_callback *callbacks; /* callbacks to be called without the lock */
    tutti_comm *of;                 /* the comm that has these callbacks */
};

static void lock(struct tti_service *service)
{
    if (!service->simulated) pthread_mutex_lock(&service->lock);
}

static void unlock(struct tti_service *service)
{
    if (!service->simulated) pthread_mutex_unlock(&service->lock);
}

/* ---- Looking ------------------------------------------------------------------------------------------------------- */

/* Returns true if an op was started since the last poll, so that its thread may well wait for it, or if another thread
 * is busy with the comm. Ops that are not thread-local are left alone for a start only once: then they are taken
 * forward, whatever else is started. */
static bool is_fresh(struct tti_queue *queue, bool started)
{
    if (atomic_load_explicit(&queue->thread_local_op, memory_order_relaxed) != NULL)
        return started || atomic_load_explicit(&queue->inside, memory_order_relaxed) != 0;
    queue->served.left_alone = started && !queue->served.left_alone;
    queue->served.unhurried = queue->served.unhurried || started;
    bool busy = atomic_load_explicit(&queue->busy, memory_order_relaxed) == TTI_BUSY_TAKEN;
    return queue->served.left_alone || (queue->served.unhurried && busy);
}

/* Takes the callbacks of one comm in a round: the comm is not freed before they have returned. */
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

/* Returns true if it can doze until something comes for the comm. A collective that has just begun is polled again in a
 * moment: its ranks come at about the same time, and all of them would ring. */
static bool is_calm(struct tti_queue *queue, enum tti_awaits awaits, int64_t nap_us)
{
    bool waits = awaits == TTI_AWAITS_MESSAGES || (awaits == TTI_AWAITS_RANKS && nap_us >= NAP_DOUBLED_US);
    return waits && atomic_load_explicit(&queue->busy, memory_order_relaxed) == TTI_BUSY_NOBODY;
}

static void poll_comm(tutti_comm *comm, struct round *round, int64_t nap_us, bool polls)
{
    struct tti_queue *queue = &comm->queue;
    struct tti_served *served = &queue->served;
    uint32_t starts = atomic_load_explicit(&queue->starts, memory_order_relaxed);
    bool started = starts != served->seen_starts, rung = served->rung;
    served->seen_starts = starts;
    served->rung = served->calm = false;
    round->fresh = round->fresh || started;
    if (atomic_load_explicit(&queue->count, memory_order_acquire) == 0) {
        served->unhurried = false;
        take_callbacks(round, comm);
        return;
    }
    if (is_fresh(queue, started) && !rung) {
        round->fresh = round->restless = true;
        return;
    }
    round->any = true;
    round->moved = tti_queue_help(comm, polls) || round->moved;
    enum tti_awaits awaits = tti_queue_awaits(comm);
    round->gated = round->gated || awaits == TTI_AWAITS_STREAM;
    served->calm = is_calm(queue, awaits, nap_us);
    round->restless = round->restless || !served->calm;
    take_callbacks(round, comm);
}

static struct round walk(struct tti_service *service, int64_t nap_us, bool polls)
{
    struct round round = {0};
    lock(service);
    for (tutti_comm *comm = service->first; comm != NULL; comm = comm->queue.served.next)
        poll_comm(comm, &round, nap_us, polls);
    unlock(service);
    call_back(&round);
    return round;
}

/* ---- Sleeping ------------------------------------------------------------------------------------------------------ */

static int64_t longer(int64_t us)
{
    if (us < NAP_DOUBLED_US) return us * 2 < NAP_DOUBLED_US ? us * 2 : NAP_DOUBLED_US;
    return us + us / NAP_PART < NAP_MOST_US ? us + us / NAP_PART : NAP_MOST_US;
}

static void note_transport(struct tti_service *service, struct tti_transport *transport)
{
    for (int i = 0; i < service->transport_count; i++)
        if (service->transports[i] == transport) return;
    service->transports[service->transport_count++] = transport;
}

/* Announces for all comms that only wait for others that it dozes. Returns true if there are any. */
static bool doze_off(struct tti_service *service)
{
    bool any = false;
    lock(service);
    service->transport_count = 0;
    for (tutti_comm *comm = service->first; comm != NULL; comm = comm->queue.served.next) {
        struct tti_served *served = &comm->queue.served;
        if (!served->calm || atomic_load_explicit(&comm->queue.count, memory_order_acquire) == 0) continue;
        comm->peers->doze(comm, true);
        atomic_store_explicit(&served->dozes, true, memory_order_seq_cst);
        if (comm->lanes != NULL) note_transport(service, comm->lanes->net->transport);
        any = true;
    }
    service->on_transports = service->transport_count > 0;
    unlock(service);
    return any;
}

/* Ends the doze for a comm. The service's lock is held. */
static void wake_up(tutti_comm *comm)
{
    struct tti_served *served = &comm->queue.served;
    if (!atomic_load_explicit(&served->dozes, memory_order_relaxed)) return;
    atomic_store_explicit(&served->dozes, false, memory_order_relaxed);
    served->rung = comm->peers->doze(comm, false);
}

static void wake_all(struct tti_service *service)
{
    lock(service);
    for (tutti_comm *comm = service->first; comm != NULL; comm = comm->queue.served.next) wake_up(comm);
    service->on_transports = false;
    service->rests++;
    unlock(service);
}

/* Begins to sleep on the transports. Returns true if all of them allow it now. */
static bool begin_sleep(struct tti_service *service)
{
    bool all = true;
    service->polled[0] = (struct pollfd){.fd = service->wake_fd, .events = POLLIN};
    for (int i = 0; i < service->transport_count; i++) {
        struct tti_transport *transport = service->transports[i];
        service->polled[i + 1] = (struct pollfd){.fd = transport->ops->sleep_begin(transport), .events = POLLIN};
        all = all && service->polled[i + 1].fd >= 0;
    }
    return all;
}

static void sleep_on_transports(struct tti_service *service, int64_t us)
{
    struct timespec timeout = {us / 1000000, us % 1000000 * 1000};
    uint64_t count;
    if (begin_sleep(service)) ppoll(service->polled, (nfds_t)service->transport_count + 1, &timeout, NULL);
    for (int i = 0; i < service->transport_count; i++) service->transports[i]->ops->sleep_end(service->transports[i]);
    if (service->polled[0].revents != 0) (void)!read(service->wake_fd, &count, sizeof count);
}

/* What has come may be for a comm of another thread, which reads it when its time comes. */
static void sleep_on_simulated(struct tti_transport *transport, int64_t us)
{
    int64_t before = tti_now_ns();
    transport->ops->sleep(transport, us * US);
    if (tti_now_ns() == before) tti_sim_sleep(US);
}

static void sleep_until_woken(struct tti_service *service, uint32_t seen, int64_t us)
{
    if (service->transport_count == 0)
        tti_bell_sleep(service->bell, seen, us * US, true);
    else if (service->simulated)
        sleep_on_simulated(service->transports[0], us);
    else
        sleep_on_transports(service, us);
}

/* Polls once more the comms that it dozes for and, if the sleep is to be deep, checks if others have ops by now. */
static bool may_sleep(struct tti_service *service, bool deep)
{
    struct round round = {0};
    bool news = false;
    lock(service);
    for (tutti_comm *comm = service->first; comm != NULL; comm = comm->queue.served.next) {
        struct tti_served *served = &comm->queue.served;
        if (atomic_load_explicit(&served->dozes, memory_order_relaxed)) {
            served->rung = true;
            poll_comm(comm, &round, NAP_MOST_US, true);
        } else {
            news = news || atomic_load_explicit(&comm->queue.count, memory_order_acquire) != 0 ||
                   atomic_load_explicit(&comm->queue.starts, memory_order_relaxed) != served->seen_starts ||
                   tti_callbacks_are_due(comm);
        }
    }
    unlock(service);
    call_back(&round);
    return !round.moved && !(deep && (news || round.restless));
}

/* Sleeps for so long, or until a thread wakes it that starts something, or brings something for one of the comms that
 * it dozes for. `deep`: other comms have no ops. Returns true if it was woken, or had no time to sleep. */
static bool rest(struct tti_service *service, int64_t us, uint32_t state, bool deep)
{
    uint32_t seen = atomic_load_explicit(service->bell, memory_order_relaxed);
    bool dozes = doze_off(service), sleeps = true;
    if (service->transport_count > 0) state = ASLEEP_ON_WIRE;
    atomic_store_explicit(&service->state, state, memory_order_seq_cst);
    if (dozes || deep) {
        tti_fence_rare();
        sleeps = may_sleep(service, deep);
    }
    if (sleeps && atomic_load_explicit(&service->stop, memory_order_seq_cst) == 0) sleep_until_woken(service, seen, us);
    atomic_store_explicit(&service->state, AWAKE, memory_order_seq_cst);
    if (dozes) wake_all(service);
    return !sleeps || atomic_load_explicit(service->bell, memory_order_relaxed) != seen;
}

/* Naps. A missed ring costs no more than the nap. Returns how long the next nap is. */
static int64_t nap(struct tti_service *service, const struct round *round, int64_t us)
{
    bool deep = round->any && !round->restless;
    if (round->gated && us > NAP_GATED_US) us = NAP_GATED_US;
    uint32_t state = us > NAP_DOUBLED_US || deep ? ASLEEP : us > NAP_US ? DOZING : NAPPING;
    return rest(service, deep ? NAP_MOST_US : us, state, deep) ? NAP_US : longer(us);
}

static void *serve(void *argument)
{
    struct tti_service *service = argument;
    int64_t idle_since = 0, used_ns = 0, nap_us = NAP_US;
    while (atomic_load_explicit(&service->stop, memory_order_seq_cst) == 0) {
        struct round round = walk(service, nap_us, nap_us > NAP_US);
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
            rest(service, SLEEP_MS * 1000, ASLEEP, true);
            nap_us = NAP_US;
        } else {
            nap_us = nap(service, &round, nap_us);
        }
    }
    return NULL;
}

/* ---- Starting and stopping ----------------------------------------------------------------------------------------- */

static void free_service(struct tti_service *service)
{
    if (service->wake_fd >= 0) close(service->wake_fd);
    tti_free(service->polled);
    tti_free(service->transports);
    tti_free(service);
}

/* Makes a service. If the ranks of a comm share memory the others know this rank's bell. */
static struct tti_service *make_service(const tutti_comm *comm, int number)
{
    struct tti_service *service = tti_calloc(1, sizeof *service);
    if (service == NULL) return NULL;
    service->simulated = tti_sim != NULL;
    service->over_wire = comm->lanes != NULL;
    service->number = number;
    service->world = comm->world;
    service->bell = service->over_wire ? &service->own_bell : &tti_info_of(comm, comm->rank)->bell;
    service->wake_fd = service->over_wire && !service->simulated ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    pthread_mutex_init(&service->lock, NULL);
    if (!service->over_wire) return service;
    size_t ranks = (size_t)comm->world->options.ranks; /* threads of this process */
    service->polled = tti_calloc(ranks + 1, sizeof *service->polled);
    service->transports = tti_calloc(ranks, sizeof *service->transports);
    if (service->polled != NULL && service->transports != NULL) return service;
    free_service(service);
    return NULL;
}

/* Returns the number of the service for this comm. There is one for each core that this host's ranks do not need to
 * compute, eight at most. */
static int number_for(const tutti_comm *comm)
{
    enum { SERVICES = 8 };
    uint64_t cores[TTI_CORE_WORDS];
    tti_cores_mine(cores);
    int count = tti_service_threads > 0 ? tti_service_threads : tti_cores_count(cores) - comm->traits.here;
    return comm->job_rank % (count < 1 ? 1 : count < SERVICES ? count : SERVICES);
}

/* Returns the service for this comm, made if need be; NULL: no memory. */
static struct tti_service *service_for(const tutti_comm *comm)
{
    int number = number_for(comm);
    for (struct tti_service *service = services; service != NULL; service = service->next)
        if (service->world == comm->world && service->number == number && !service->forked &&
            service->over_wire == (comm->lanes != NULL))
            return service;
    struct tti_service *made = make_service(comm, number);
    if (made == NULL) return NULL;
    made->next = services;
    return services = made;
}

static tutti_status ensure(struct tti_service *service, tutti_error *error)
{
    if (service->runs) return TUTTI_OK;
    if (service->over_wire && !service->simulated && service->wake_fd < 0)
        return tti_error_set(error, TUTTI_ERR_LIMIT, errno, "no descriptor for a service thread; check `ulimit -n`");
    TTI_TRY(tti_task_start(&service->task, serve, service, error));
    service->runs = true;
    return TUTTI_OK;
}

static void ring(struct tti_service *service)
{
    uint64_t one = 1;
    if (service->wake_fd >= 0) (void)!write(service->wake_fd, &one, sizeof one);
    if (service->simulated && service->transport_count > 0) service->transports[0]->ops->wake(service->transports[0]);
    tti_bell_ring(service->bell, true);
}

static void drop_service(struct tti_service *service)
{
    struct tti_service **link = &services;
    while (*link != NULL && *link != service) link = &(*link)->next;
    if (*link != NULL) *link = service->next;
    if (service->runs) {
        atomic_store_explicit(&service->stop, 1, memory_order_seq_cst);
        ring(service);
        tti_task_join(&service->task);
    }
    free_service(service);
}

static void link_comm(struct tti_service *service, tutti_comm *comm)
{
    if (comm->lanes != NULL) atomic_store_explicit(&comm->lanes->net->doze_fd, service->wake_fd, memory_order_relaxed);
    if (!service->over_wire) {
        const struct tti_rank_info *bell_of = TTI_LIST_OF(service->bell, struct tti_rank_info, bell);
        atomic_store_explicit(&tti_info_of(comm, comm->rank)->served_at,
                              (int32_t)(bell_of - comm->world->segment->ranks), memory_order_relaxed);
    }
    lock(service);
    comm->queue.served.next = service->first;
    service->first = comm;
    comm->queue.served.by = service;
    unlock(service);
}

static void lock_services(void)
{
    if (tti_sim == NULL) pthread_mutex_lock(&services_lock);
}

static void unlock_services(void)
{
    if (tti_sim == NULL) pthread_mutex_unlock(&services_lock);
}

tutti_status tti_service_add(tutti_comm *comm, tutti_error *error)
{
    lock_services();
    struct tti_service *service = tti_sim == NULL ? service_for(comm) : make_service(comm, 0);
    tutti_status status = TUTTI_ERR_MEMORY;
    if (service == NULL)
        tti_error_set(error, status, ENOMEM, "no memory for a service thread");
    else if ((status = ensure(service, error)) == TUTTI_OK)
        link_comm(service, comm);
    if (status == TUTTI_OK)
        service->users++;
    else if (service != NULL && service->users == 0)
        drop_service(service);
    unlock_services();
    return status;
}

/* Removes the comm: after this the service thread touches neither the comm nor its transport. */
static void unlink_comm(struct tti_service *service, tutti_comm *comm)
{
    lock(service);
    tutti_comm **link = &service->first;
    while (*link != NULL && *link != comm) link = &(*link)->queue.served.next;
    if (*link != NULL) *link = comm->queue.served.next;
    wake_up(comm);
    uint32_t rests = service->rests; /* after the next rest it knows nothing of this comm */
    while (service->on_transports && service->rests == rests) {
        unlock(service);
        ring(service);
        tti_wait_turn();
        lock(service);
    }
    unlock(service);
}

void tti_service_remove(tutti_comm *comm)
{
    struct tti_service *service = comm->queue.served.by;
    comm->queue.served.by = NULL;
    if (service->forked) return;
    if (!service->simulated) unlink_comm(service, comm);
    lock_services();
    if (--service->users == 0) drop_service(service);
    unlock_services();
}

void tti_service_wake(const tutti_comm *comm, enum tti_haste haste)
{
    struct tti_service *service = comm->queue.served.by;
    tti_fence_frequent(atomic_load_explicit(&comm->area->full_fences, memory_order_relaxed) != 0);
    uint32_t state = atomic_load_explicit(&service->state, memory_order_relaxed);
    if (state >= (haste == TTI_SOMETIME ? ASLEEP : haste == TTI_SOON ? DOZING : NAPPING)) ring(service);
}

bool tti_service_find(bool (*is)(tutti_comm *comm, void *context), void *context)
{
    bool found = false;
    if (tti_sim != NULL) return false;
    lock_services();
    for (struct tti_service *service = services; service != NULL; service = service->next) {
        lock(service);
        for (tutti_comm *comm = service->first; comm != NULL && !found; comm = comm->queue.served.next)
            found = is(comm, context);
        unlock(service);
    }
    unlock_services();
    return found;
}

void tti_service_forked(void)
{
    pthread_mutex_init(&services_lock, NULL);
    for (struct tti_service *service = services; service != NULL; service = service->next) {
        pthread_mutex_init(&service->lock, NULL);
        service->first = NULL;
        service->runs = false;
        service->forked = true;
        atomic_store_explicit(&service->state, AWAKE, memory_order_relaxed);
    }
}
