/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/comm/comm.h"

#include "base/alloc.h"
#include "base/latest.h"
#include "base/status.h"
#include "collective/api/api.h"
#include "collective/comm/epoch.h"
#include "collective/comm/stats.h"
#include "collective/comm/trace.h"
#include "collective/engine/engine.h"
#include "collective/message/message.h"
#include "collective/op/queue.h"
#include "collective/op/siblings.h"
#include "collective/peers/net.h"
#include "collective/peers/posts.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { CACHE_BYTES = 32 << 20 };

/* ---- Forks ----------------------------------------------------------------------------------------------------- */

atomic_uint tti_forks;
static pthread_once_t forks_once = PTHREAD_ONCE_INIT;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&tti_forks, 1, memory_order_relaxed);
    tti_service_forked();
    tti_handles_forked();
    tti_latest_forked();
    tti_siblings_forked();
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

/* ---- Making and freeing ---------------------------------------------------------------------------------------- */

static int64_t read_cache_bytes(void)
{
    /* sysconf is not used: on some machines it returns the sum of all the processor's caches */
    long long kib = 0;
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re");
    if (file == NULL) return CACHE_BYTES;
    bool read = fscanf(file, "%lldK", &kib) == 1 && kib > 0;
    fclose(file);
    return read ? kib * 1024 : CACHE_BYTES;
}

static int64_t cache_bytes(void)
{
    static atomic_llong known; /* 0: not yet */
    int64_t bytes = atomic_load_explicit(&known, memory_order_relaxed);
    if (bytes == 0) bytes = read_cache_bytes();
    atomic_store_explicit(&known, bytes, memory_order_relaxed);
    return bytes;
}

/* A large cache is shared with more than this job, on a virtual machine with other machines. Data that one rank writes
 * for all uses half of it nevertheless, since every one of them would have to fetch data that went past it. */
void tti_tuning_complete(tutti_tuning *tuning)
{
    int64_t cache = cache_bytes(), used = cache < CACHE_BYTES ? cache : CACHE_BYTES;
    bool chosen = tuning->stream != 0;
    if (!chosen) tuning->stream = used;
    if (tuning->stream_to_all != 0) return;
    tuning->stream_to_all = chosen || cache / 2 < 2 * used ? 2 * tuning->stream : cache / 2;
}

void tti_comm_show_cores(tutti_comm *comm)
{
    uint64_t mine[TTI_CORE_WORDS];
    tti_cores_mine(mine);
    for (int i = 0; i < TTI_CORE_WORDS; i++)
        if (mine[i] != 0) atomic_fetch_or_explicit(&comm->area->cores[i], mine[i], memory_order_relaxed);
}

static bool is_one_process(const tutti_comm *comm)
{
    for (int rank = 1; rank < comm->size; rank++)
        if (tti_info_of(comm, rank)->process != tti_info_of(comm, 0)->process) return false;
    return true;
}

/* Makes the parts that all comms have. */
static tutti_comm *new_comm(const struct tti_comm_setup *setup)
{
    pthread_once(&forks_once, watch_forks);
    tutti_comm *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    made->world = setup->world;
    made->rank = setup->rank;
    made->size = setup->size;
    made->traits.here = setup->here;
    made->traits.is_world = setup->parent == NULL;
    made->traits.of_epoch = setup->parent == NULL || setup->next_epoch;
    made->traits.rebuilt = setup->parent != NULL && setup->parent->world != setup->world;
    made->job_rank = made->traits.is_world ? setup->rank : setup->parent->job_rank;
    made->members = setup->members;
    made->errors.call.rank = setup->rank;
    made->errors.sink = &made->errors.call;
    made->queue.last = &made->queue.first;
    tti_list_init(&made->queue.pending);
    tti_list_init(&made->queue.ended_pending);
    made->traits.fork_count = tti_fork_count();
    made->tuning = setup->world->segment->tuning;
    tti_tuning_complete(&made->tuning);
    if (!tti_epoch_join(made, setup->parent, setup->next_epoch)) {
        tti_free(made);
        return NULL;
    }
    made->errors.latest = tti_latest_join(made->traits.is_world ? NULL : setup->parent->errors.latest);
    if (made->errors.latest != NULL && tti_stats_create(made) && tti_trace_create(made)) return made;
    tti_latest_part(made->errors.latest);
    tti_epoch_part(made);
    tti_stats_free(made);
    tti_free(made);
    return NULL;
}

/* On failure, what the comm would have taken over stays the caller's. */
static tutti_status give_up(tutti_comm *made, const struct tti_comm_setup *setup, tutti_error *error)
{
    if (made != NULL) {
        made->world = NULL;
        made->members = NULL;
        tti_comm_destroy(made);
    }
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a comm of %d ranks", setup->size);
}

tutti_status tti_comm_create(const struct tti_comm_setup *setup, tutti_comm **comm, tutti_error *error)
{
    tutti_comm *made = new_comm(setup);
    if (made == NULL) return give_up(NULL, setup, error);
    made->peers = &tti_peers_posts;
    made->provider = &tti_provider_shared;
    made->traits.all_threads = is_one_process(made);
    made->traits.shares_parts = made->world->segment->crowded;
    made->traits.shared_bells = !made->traits.all_threads;
    bool all = tti_posts_create(made, setup->area, setup->area_bytes) && tti_engine_create(made);
    made->messages = tti_messages_create(made);
    if (!all || made->messages == NULL || !tti_siblings_create(made)) return give_up(made, setup, error);
    made->traits.can_attach = tti_world_can_attach(made->world);
    atomic_store_explicit(&made->memory->posts[made->rank].epoch, made->traits.era.made, memory_order_relaxed);
    atomic_store_explicit(&tti_info_of(made, made->rank)->attaches, made->traits.can_attach, memory_order_relaxed);
    if (!tti_fence_setup()) atomic_store_explicit(&made->area->full_fences, 1, memory_order_seq_cst);
    tti_comm_show_cores(made);
    *comm = made;
    return TUTTI_OK;
}

tutti_status tti_comm_create_all(struct tti_world *world, int rank, const tutti_comm *before, tutti_comm **comm,
                                 tutti_error *error)
{
    struct tti_comm_setup setup = {.world = world,
                                   .rank = rank,
                                   .size = world->size,
                                   .here = world->size,
                                   .area = world->area,
                                   .area_bytes = world->segment->area_bytes,
                                   .parent = before,
                                   .next_epoch = before != NULL};
    return tti_comm_create(&setup, comm, error);
}

tutti_status tti_comm_create_over(const struct tti_comm_setup *setup, tutti_comm **comm, tutti_error *error)
{
    tutti_comm *made = new_comm(setup);
    if (made == NULL) return give_up(NULL, setup, error);
    made->peers = &tti_peers_wire;
    made->provider = &tti_provider_net;
    made->area = tti_calloc(1, sizeof *made->area);
    made->messages = tti_messages_create(made);
    tutti_status status = made->area != NULL && made->messages != NULL ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (status == TUTTI_OK && setup->shared != NULL) status = tti_posts_create_here(made, setup->shared, error);
    if (status == TUTTI_OK && !tti_engine_create(made)) status = TUTTI_ERR_MEMORY;
    if (status == TUTTI_OK) status = tti_lanes_create(made, setup->net, setup->id, &tti_letter_sink, error);
    if (status == TUTTI_OK && !tti_siblings_create(made)) status = TUTTI_ERR_MEMORY;
    if (status != TUTTI_OK) {
        if (made->lanes != NULL) tti_lanes_free(made->lanes);
        made->lanes = NULL;
        tti_free(made->area);
        return give_up(made, setup, error);
    }
    atomic_store_explicit(&made->area->full_fences, !tti_fence_setup(), memory_order_seq_cst);
    *comm = made;
    return TUTTI_OK;
}

/* Frees everything of a comm except its own struct. */
static tutti_status take_apart(tutti_comm *comm)
{
    tti_mesh_forget(comm);
    tti_epoch_part(comm);
    tti_group_leave(comm);
    tti_queue_close(comm);
    tutti_status status = tti_trace_finish(comm);
    tti_messages_lock(comm);
    tti_messages_free(comm->messages);
    comm->messages = NULL; /* messages that come from now on are dropped */
    tti_messages_unlock(comm);
    tti_stats_free(comm);
    tti_latest_part(comm->errors.latest);
    tti_engine_free(comm);
    tti_siblings_free(comm);
    if (comm->world != NULL) comm->peers->close(comm);
    tti_posts_free(comm);
    tti_free(comm->members); /* frames that come for the comm over a transport read these until it is closed */
    tti_free(comm->job_ranks);
    if (comm->world != NULL) tti_world_release(comm->world);
    return status;
}

tutti_status tti_comm_destroy(tutti_comm *comm)
{
    if (comm == NULL) return TUTTI_OK;
    tutti_status status = take_apart(comm);
    tti_free(comm);
    return status;
}

/* Keeps the struct of a comm that was left, so that later calls on it are refused; frees the oldest to make room. */
static void keep(tutti_comm *left)
{
    enum { KEPT = 256 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static tutti_comm *kept[KEPT];
    static size_t count;
    pthread_mutex_lock(&lock);
    tutti_comm **place = &kept[count++ % KEPT];
    tti_free(*place);
    *place = left;
    pthread_mutex_unlock(&lock);
}

tutti_status tti_comm_retire(tutti_comm *comm, bool by_main)
{
    char site[112] = "";
    int rank = comm->rank, size = comm->size;
    if (!by_main && comm->caller.site.line > 0) tti_site_describe(&comm->caller.site, site, sizeof site);
    tutti_status status = take_apart(comm);
    memset(comm, 0, sizeof *comm);
    comm->rank = comm->errors.call.rank = rank;
    comm->size = size;
    comm->errors.call.peer = -1;
    comm->traits.has_left = true;
    comm->traits.fork_count = tti_fork_count();
    snprintf(comm->errors.call.operation, sizeof comm->errors.call.operation, "%s", tti_kind_name(TTI_LEAVE));
    tti_error_set(&comm->errors.call, TUTTI_ERR_ARGUMENT, 0,
                  "rank %d has left this world before (%s%s)%s; what was made for it is gone, and who wants to go on "
                  "joins again",
                  rank, by_main ? "when its work had returned" : "by tutti_leave", site,
                  status == TUTTI_OK ? "" : ", and not all of its trace could be written");
    keep(comm);
    return status;
}

tutti_comm *tti_comm_stillborn(const tutti_error *error)
{
    pthread_once(&forks_once, watch_forks);
    tutti_comm *comm = tti_calloc(1, sizeof *comm);
    if (comm == NULL) return NULL;
    comm->rank = error->rank;
    comm->traits.fork_count = tti_fork_count();
    comm->errors.call = *error;
    return comm;
}
