/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/stream/streams.h"
#include "collective/comm/show.h"

#include "base/alloc.h"
#include "base/status.h"
#include "collective/comm/trace.h"
#include "collective/op/callback.h"
#include "collective/op/staging.h"
#include "collective/op/standby.h"
#include "device/open.h"
#include "device/stream.h"
#include <string.h>

/* ---- Facts --------------------------------------------------------------------------------------------------------- */

const char *const tti_streams_words[TTI_STREAMS_WORDS] = {
    [TTI_BY_ITSELF] = "auto", [TTI_BY_STAGING] = "staged", [TTI_BY_CUDA] = "cuda", [TTI_BY_NCCL] = "nccl"};

/* What a rank tells the others about its device. */
struct facts {
    int32_t status; /* OK, or an error if it cannot be described */
    int32_t wanted; /* rank 0's value is used */
    int32_t exact;  /* rank 0's value is used */
    int32_t number;
    char kind[12];
    unsigned char uuid[16];
};

static struct facts facts_of(const tutti_comm *comm, struct tti_device *device)
{
    struct facts facts = {.number = device->number};
    tutti_device_about about = {.struct_size = sizeof about};
    tutti_error ignored = {0};
    size_t word = 0;
    while (word < TTI_STREAMS_WORDS && strcmp(comm->world->options.device_provider, tti_streams_words[word]) != 0)
        word++;
    facts.wanted = (int32_t)word;
    facts.exact = (int32_t)comm->world->options.exact;
    facts.status = device->ops->describe(device, &about, &ignored);
    snprintf(facts.kind, sizeof facts.kind, "%s", device->ops->kind);
    memcpy(facts.uuid, about.uuid, sizeof facts.uuid);
    return facts;
}

static bool on_one_device(const tutti_comm *comm, const struct facts *all)
{
    bool host = strcmp(all[0].kind, "host") == 0;
    for (int i = 1; i < comm->size; i++)
        if (memcmp(all[i].uuid, all[0].uuid, sizeof all[i].uuid) != 0 || (host && all[i].number != all[0].number))
            return false;
    return true;
}

/* Returns why `cuda` cannot be used. NULL: all ranks' streams are on one device, on which each rank can launch for all,
 * or on GPUs of this host. */
static const char *why_not_cuda(const tutti_comm *comm, const struct facts *all)
{
    for (int i = 0; i < comm->size; i++) {
        if (all[i].status != TUTTI_OK) return "a rank's device cannot be described";
        if (strcmp(all[i].kind, all[0].kind) != 0) return "the ranks' devices are of different kinds";
    }
    if (strcmp(all[0].kind, "host") == 0 && !on_one_device(comm, all)) return "the ranks are on different devices";
    if (!comm->traits.all_threads && comm->lanes != NULL) return "the ranks share no memory of the host";
    return NULL;
}

/* For different GPUs: the launcher's kernel must be able to reach all memory. The launcher tells all whether it can. */
static tutti_status ask_launcher(tutti_comm *comm, const struct tti_streams *streams, const struct facts *all,
                                 const char **why)
{
    const struct tti_device *device = streams->device;
    int32_t mine = 1, *told = tti_calloc((size_t)comm->size, sizeof *told);
    if (told == NULL) /* the others would wait for this rank */
        return tti_comm_break(comm, comm->op.shape.kind, TUTTI_ERR_MEMORY, comm->rank,
                              "rank %d has no memory for calls on streams", comm->rank);
    for (int i = 0; comm->rank == TTI_LAUNCHER && i < comm->size; i++)
        mine = mine && device->ops->reaches_uuid(streams->device, all[i].uuid);
    tutti_status status = tti_streams_all_gather(comm, streams->data, &mine, told, sizeof mine);
    if (status == TUTTI_OK && told[TTI_LAUNCHER] == 0)
        *why = "the ranks are on different GPUs, and the first one's does not reach the memory of all others";
    tti_free(told);
    return status;
}

/* Returns true if every rank has a GPU of its own. */
static bool have_own_gpus(const tutti_comm *comm, const struct facts *all)
{
    for (int i = 0; i < comm->size; i++) {
        if (all[i].status != TUTTI_OK || strcmp(all[i].kind, "cuda") != 0) return false;
        for (int k = 0; k < i; k++)
            if (memcmp(all[i].uuid, all[k].uuid, sizeof all[i].uuid) == 0) return false;
    }
    return comm->size > 1;
}

/* ---- Choosing ------------------------------------------------------------------------------------------------------ */

static tutti_status refuse(tutti_comm *comm, const char *provider, const char *why)
{
    enum tti_kind kind = comm->op.shape.kind;
    return tti_comm_refuse(comm, kind, TUTTI_ERR_UNSUPPORTED,
                           "%s: TUTTI_DEVICE_PROVIDER=%s, but it cannot carry out this comm's calls on streams: %s; "
                           "leave it at auto",
                           tti_kind_name(kind), provider, why);
}

/* Refuses the call on all ranks. The next call tries again, since there may be memory then. */
static tutti_status lacks_memory(tutti_comm *comm, const tutti_error *error)
{
    if (tti_comm_is_broken(comm)) return tti_comm_health(comm, comm->op.shape.kind, false);
    return tti_comm_refuse(comm, comm->op.shape.kind, TUTTI_ERR_MEMORY, "%s: %s", tti_kind_name(comm->op.shape.kind),
                           error->text);
}

/* Returns OK without a provider if NCCL cannot be used, and another provider may be. */
static tutti_status choose_nccl(tutti_comm *comm, struct tti_streams *streams, const struct facts *all)
{
    tutti_error error = {0};
    tutti_status status = TUTTI_ERR_UNSUPPORTED;
    if (all[0].exact != 0)
        tti_error_set(&error, status, 0, "TUTTI_EXACT=1, and NCCL sums in an order of its own");
    else
        status = tti_nccl_engine_open(comm, streams, &error);
    if (tti_comm_is_broken(comm)) return tti_comm_health(comm, comm->op.shape.kind, false);
    if (status == TUTTI_OK) streams->provider = &tti_device_provider_nccl;
    streams->forced = all[0].wanted == TTI_BY_NCCL;
    if (status == TUTTI_ERR_MEMORY) return lacks_memory(comm, &error);
    if (status != TUTTI_OK && all[0].wanted == TTI_BY_NCCL) return refuse(comm, "nccl", error.text);
    snprintf(streams->why, sizeof streams->why, "%.*s", (int)sizeof streams->why - 1,
             status == TUTTI_OK ? "every rank has a GPU of its own" : error.text);
    return TUTTI_OK;
}

/* Chooses the provider; all ranks choose the same. */
static tutti_status choose(tutti_comm *comm, struct tti_streams *streams, const struct facts *all)
{
    const char *why = why_not_cuda(comm, all);
    bool on_host = strcmp(all[0].kind, "host") == 0;
    tutti_error error = {0};
    bool one = on_one_device(comm, all), without_nccl = false;
    if (all[0].wanted == TTI_BY_NCCL || (all[0].wanted == TTI_BY_ITSELF && have_own_gpus(comm, all))) {
        tutti_status status = choose_nccl(comm, streams, all);
        if (status != TUTTI_OK || streams->provider != NULL) return status;
        without_nccl = true;
    }
    if (why == NULL && !one && all[0].wanted != TTI_BY_STAGING) TTI_TRY(ask_launcher(comm, streams, all, &why));
    if (all[0].wanted == TTI_BY_CUDA && why != NULL) return refuse(comm, "cuda", why);
    streams->stages = all[0].wanted == TTI_BY_STAGING;
    streams->forced = all[0].wanted == TTI_BY_CUDA;
    if (all[0].wanted == TTI_BY_STAGING || why != NULL || (on_host && all[0].wanted != TTI_BY_CUDA)) {
        if (!without_nccl)
            snprintf(streams->why, sizeof streams->why, "%s",
                     all[0].wanted == TTI_BY_STAGING ? "TUTTI_DEVICE_PROVIDER asks for it"
                     : on_host                       ? "the device is the host's memory"
                                                     : why);
        return TUTTI_OK;
    }
    if (tti_cuda_engine_open(comm, streams, &error) == TUTTI_OK) {
        streams->provider = &tti_device_provider_cuda;
        snprintf(streams->why, sizeof streams->why, "%s",
                 one ? "all ranks are on one device" : "the first rank's GPU reaches those of all others");
        return TUTTI_OK;
    }
    if (error.status == TUTTI_ERR_MEMORY) return lacks_memory(comm, &error);
    if (all[0].wanted == TTI_BY_CUDA) return refuse(comm, "cuda", error.text);
    snprintf(streams->why, sizeof streams->why, "%.*s", (int)sizeof streams->why - 1, error.text);
    return TUTTI_OK;
}

tutti_status tti_streams_choose(const struct tti_streams *streams, const struct tti_op *op,
                                const struct tti_device_provider **provider, tutti_error *error)
{
    char call[160];
    bool supports = streams->provider != NULL && streams->provider->supports(streams, op);
    *provider = supports ? streams->provider : NULL;
    if (supports || !streams->forced) return TUTTI_OK;
    tti_call_describe(&op->call, call, sizeof call);
    return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                         "TUTTI_DEVICE_PROVIDER=%s, which does not have %s; leave it at auto, so that such calls are "
                         "staged through the host",
                         streams->provider->ops.name, call);
}

tutti_status tti_streams_all_gather(tutti_comm *comm, tutti_comm *data, const void *mine, void *all, size_t bytes)
{
    struct tti_op *op = tti_op_fill(data, TTI_ALL_GATHER, mine, bytes, all, bytes * (size_t)data->size, bytes, TUTTI_U8,
                                    -1);
    tutti_status status = tti_op_run(op, NULL);
    tti_call_end(data);
    if (status != TUTTI_OK) comm->errors.call = data->errors.call;
    return status;
}

void tti_opening_note(struct tti_opening *opening, tutti_status status, const tutti_error *error)
{
    opening->status = status;
    snprintf(opening->text, sizeof opening->text, "%.*s", (int)sizeof opening->text - 1,
             status == TUTTI_OK ? "" : error->text);
}

tutti_status tti_streams_agree(tutti_comm *comm, struct tti_streams *streams, const struct tti_opening *mine, void *all,
                               size_t bytes, tutti_error *error)
{
    tutti_status status = tti_streams_all_gather(comm, streams->data, mine, all, bytes);
    if (status != TUTTI_OK) {
        *error = comm->errors.call;
        return status;
    }
    for (int rank = 0; rank < comm->size; rank++) {
        const struct tti_opening *opening = (const void *)((const char *)all + (size_t)rank * bytes);
        if (opening->status != TUTTI_OK)
            return tti_error_set(error, (tutti_status)opening->status, 0, "rank %d: %s", rank, opening->text);
    }
    return TUTTI_OK;
}

tutti_status tti_streams_check_counts(const struct tti_shape *given, const uint64_t *rows, tutti_error *error)
{
    struct tti_shape shape = *given;
    struct tti_unequal unequal;
    if (shape.tables == NULL) return TUTTI_OK;
    shape.tables = rows;
    for (int rank = 0; rank < shape.size; rank++)
        if (tti_shape_is_unequal(&shape, rank, &unequal))
            return tti_error_set(error, TUTTI_ERR_MISMATCH, 0,
                                 "counts differ: rank %d sends %llu elements to rank %d, which receives %llu",
                                 unequal.from, (unsigned long long)unequal.sent, unequal.to,
                                 (unsigned long long)unequal.received);
    return TUTTI_OK;
}

/* ---- Opening and closing ------------------------------------------------------------------------------------------- */

static tutti_status exchange(tutti_comm *comm, struct tti_streams *streams)
{
    struct facts mine = facts_of(comm, streams->device);
    struct facts *all = tti_calloc((size_t)comm->size, sizeof *all);
    if (all == NULL)
        return tti_comm_refuse(comm, comm->op.shape.kind, TUTTI_ERR_MEMORY, "no memory for calls on streams");
    tutti_status status = tti_streams_all_gather(comm, streams->data, &mine, all, sizeof mine);
    if (status == TUTTI_OK) status = choose(comm, streams, all);
    tti_free(all);
    return status;
}

static tutti_status make_own(tutti_comm *comm, struct tti_streams *streams, tutti_error *error)
{
    if (streams->provider != NULL) TTI_TRY(tti_stream_make(streams->device, &streams->side, error));
    if (streams->device->ops == &tti_host_ops && !streams->stages) return TUTTI_OK;
    return tti_stager_make(streams->device, comm, &streams->stager, error);
}

/* A rank that has no memory for its own part refuses the call on all of them; the next call tries again. */
static tutti_status settle(tutti_comm *comm, struct tti_streams *streams)
{
    enum tti_kind kind = comm->op.shape.kind;
    struct tti_opening mine = {0}, *all = tti_calloc((size_t)comm->size, sizeof *all);
    tutti_error error = {0};
    if (all == NULL) /* the others would wait */
        return tti_comm_break(comm, kind, TUTTI_ERR_MEMORY, comm->rank, "rank %d has no memory for calls on streams",
                              comm->rank);
    tti_opening_note(&mine, make_own(comm, streams, &error), &error);
    tutti_status status = tti_streams_agree(comm, streams, &mine, all, sizeof mine, &error);
    tti_free(all);
    if (status == TUTTI_OK || tti_comm_is_broken(comm)) return status;
    return tti_comm_refuse(comm, kind, status, "%s: %s", tti_kind_name(kind), error.text);
}

/* ---- Opening anew -------------------------------------------------------------------------------------------------- */

/* Waits for ops that were started before the device was opened again. Those whose streams had not come to them end with
 * an error. */
static tutti_status await_ops(tutti_comm *comm, tutti_error *error)
{
    struct tti_streams *streams = comm->queue.streams;
    _Atomic uint32_t *count = &streams->data->queue.count;
    struct tti_wait wait;
    tti_bell nobody = 0;
    if (atomic_load_explicit(count, memory_order_acquire) != 0 && tti_is_in_callback())
        return tti_error_set(error, TUTTI_ERR_STALE, 0,
                             "%s was opened again while ops were under way; wait for them first, outside of a callback",
                             streams->device->name);
    tti_wait_begin(&wait, false, 1000000);
    while (atomic_load_explicit(count, memory_order_acquire) != 0) {
        tti_queue_help(comm, tti_wait_slow(&wait));
        tti_queue_help(streams->data, tti_wait_slow(&wait));
        if (!tti_wait_pause(&wait, false)) tti_bell_sleep(&nobody, 0, 50000, false);
    }
    return TUTTI_OK;
}

static tutti_status renew_side(struct tti_streams *streams, tutti_error *error)
{
    struct tti_stream *made = NULL;
    tutti_error ignored = {0};
    if (streams->side == NULL) return TUTTI_OK;
    TTI_TRY(tti_stream_make(streams->device, &made, error));
    (void)tti_stream_drop(streams->side, &ignored);
    streams->side = made;
    return TUTTI_OK;
}

tutti_status tti_streams_renew(tutti_comm *comm, tutti_error *error)
{
    struct tti_streams *streams = comm->queue.streams;
    uint64_t now = tti_device_generation(streams->device);
    if (streams->generation == now) return TUTTI_OK;
    TTI_TRY(await_ops(comm, error));
    TTI_TRY(renew_side(streams, error));
    if (streams->stager != NULL) TTI_TRY(tti_stager_renew(streams->stager, error));
    if (streams->provider != NULL) TTI_TRY(streams->provider->renew(streams, error));
    streams->generation = now;
    return TUTTI_OK;
}

void tti_streams_free(struct tti_streams *streams)
{
    tutti_error ignored = {0};
    tti_standby_leave(streams);
    if (streams->provider != NULL) streams->provider->close(streams);
    tti_gates_free(&streams->gates);
    tti_stager_free(streams->stager);
    if (streams->side != NULL) (void)tti_stream_drop(streams->side, &ignored);
    pthread_mutex_destroy(&streams->side_lock);
    tti_object_give(&streams->device->object);
    tti_free(streams);
}

tutti_status tti_streams_open(tutti_comm *comm, tutti_comm *data, struct tti_device *device)
{
    enum tti_kind kind = comm->op.shape.kind;
    struct tti_streams *streams = tti_calloc(1, sizeof *streams);
    if (streams == NULL) return tti_comm_refuse(comm, kind, TUTTI_ERR_MEMORY, "no memory for calls on streams");
    streams->data = data;
    tti_trace_name(data, "calls on streams");
    streams->device = device;
    streams->generation = tti_device_generation(device);
    tti_object_keep(&device->object);
    pthread_mutex_init(&streams->side_lock, NULL);
    tutti_status status = tti_queue_ready(data, kind);
    if (status == TUTTI_OK) status = exchange(comm, streams);
    if (status == TUTTI_OK) status = settle(comm, streams);
    if (status != TUTTI_OK) {
        tti_streams_free(streams);
        return status;
    }
    comm->queue.streams = streams;
    tti_standby_join(streams);
    tti_show_device(comm, device->name);
    return TUTTI_OK;
}
