/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the collectives with equal counts, and the checks that all entry points make. The v-forms are in api_v.c,
 * messages between two ranks in api_message.c.
 */
#define TUTTI_NO_CALL_SITES
#include "collective/api/api.h"
#include "collective/comm/epoch.h"

#include "base/latest.h"
#include "base/memory.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/op/thread_local_op.h"
#include "device/find.h"
#include "device/open.h"
#include <string.h>

/* ---- Checks ---------------------------------------------------------------------------------------------------- */

static tutti_status broken_before(tutti_comm *comm, enum tti_kind kind)
{
    if (tti_epoch_is_old(comm)) return tti_epoch_refuse_call(comm, kind);
    tutti_status status = tti_comm_notify(comm, kind);
    /* the first call that fails here reports the error itself */
    if (!atomic_exchange_explicit(&comm->errors.told, status != TUTTI_OK, memory_order_relaxed)) return status;
    tutti_error why = comm->errors.call;
    if (status == TUTTI_ERR_EPOCH) return status; /* another rank is in a later epoch: this one should follow it */
    tti_comm_refuse(comm, kind, TUTTI_ERR_BROKEN, "this comm is broken since an earlier error: %.360s", why.text);
    tti_comm_blame(comm, why.peer);
    return TUTTI_ERR_BROKEN;
}

static bool goes_on_stream(enum tti_kind kind)
{
    return kind < TTI_TUNING || (kind >= TTI_SEND && kind <= TTI_PROBE);
}

static tutti_status not_on_stream(tutti_comm *comm, enum tti_kind kind)
{
    return tti_comm_refuse(comm, kind, TUTTI_ERR_UNSUPPORTED,
                           "%s: only collectives and messages can be put on a stream; leave tutti_on out",
                           tti_kind_name(kind));
}

static bool needs_all(enum tti_kind kind)
{
    return kind < TTI_LEAVE || (kind >= TTI_COMM_SPLIT && kind <= TTI_MESH);
}

/* Refuses collectives on a tolerant comm, and in handlers of an actor on the comm that the actor serves. */
static tutti_status restrict_call(tutti_comm *comm, enum tti_kind kind)
{
    if (!comm->traits.tolerant && !comm->traits.serves(comm)) return TUTTI_OK;
    if (!comm->traits.tolerant) /* the comm itself may be in use by another thread's call */
        return tti_latest_stray(
            tti_kind_name(kind), TUTTI_ERR_ARGUMENT,
            "%s: the handler of an actor must not call collectives of the comm that its actors were created on, since "
            "other ranks would wait in it for requests to be handled; use a comm that is the actor's alone",
            tti_kind_name(kind));
    return tti_comm_refuse(
        comm, kind, TUTTI_ERR_UNSUPPORTED,
        "%s: this comm is tolerant, and has messages only: a collective needs all its ranks; call it on "
        "the comm that this one was made from",
        tti_kind_name(kind));
}

tutti_status tti_api_no_handle(tutti_comm *comm, enum tti_kind kind)
{
    TTI_TRY(tti_api_begin(comm, kind));
    return tti_comm_refuse(comm, kind, TUTTI_ERR_ARGUMENT, "%s: `op` is NULL; the handle has to go somewhere",
                           tti_kind_name(kind));
}

tutti_status tti_api_no_comm(enum tti_kind kind)
{
    return tti_latest_stray(tti_kind_name(kind), TUTTI_ERR_ARGUMENT,
                            "%s: `comm` is NULL: it was left already, could not be made, or this rank is not in it",
                            tti_kind_name(kind));
}

static __attribute__((noinline)) tutti_status refuse_forked(tutti_comm *comm, enum tti_kind kind)
{
    return tti_comm_refuse(comm, kind, TUTTI_ERR_FORKED,
                           "this comm belongs to the parent process; a child must join for itself");
}

static __attribute__((noinline)) tutti_status refuse_broken(tutti_comm *comm, enum tti_kind kind)
{
    tutti_status status = broken_before(comm, kind);
    tti_group_miss(comm, kind);
    tti_call_end(comm);
    return status;
}

static inline tutti_status begin_allowed(tutti_comm *comm, enum tti_kind kind)
{
    tti_thread_local_op_clear(comm); /* its memory is the one that this call will use */
    comm->errors.call.status = TUTTI_OK;
    atomic_store_explicit(&comm->errors.shows_ended, false, memory_order_relaxed);
    if (comm->caller.stream != NULL && !goes_on_stream(kind)) return not_on_stream(comm, kind);
    return tti_comm_is_broken(comm) ? refuse_broken(comm, kind) : TUTTI_OK;
}

static __attribute__((noinline)) tutti_status begin_restricted(tutti_comm *comm, enum tti_kind kind)
{
    if (needs_all(kind)) TTI_TRY(restrict_call(comm, kind));
    return begin_allowed(comm, kind);
}

/* The usual path calls no function, so no register is saved. */
tutti_status tti_api_begin(tutti_comm *comm, enum tti_kind kind)
{
    if (comm == NULL) return tti_api_no_comm(kind);
    if (tti_comm_is_stillborn(comm)) return comm->errors.call.status;
    if (comm->traits.fork_count != tti_fork_count()) return refuse_forked(comm, kind);
    return comm->traits.restricted ? begin_restricted(comm, kind) : begin_allowed(comm, kind);
}

/* Returns true if it is worth asking whether the host has so much memory. Small amounts are not checked, since the
 * check takes as long as the operation; simulated data need no memory, and for a call on a stream api_stream.c asks the
 * device. */
static bool is_large(const tutti_comm *comm, uint64_t bytes)
{
    if (bytes < UINT64_C(16) << 20 || comm->caller.stream != NULL) return false;
    return tti_sim == NULL || !tti_sim_setup_of()->sizes_only;
}

tutti_status tti_api_check_amount(tutti_comm *comm, enum tti_kind kind, const char *name, uint64_t bytes)
{
    char had[TTI_BYTES_TEXT];
    uint64_t total = is_large(comm, bytes) ? tti_memory_total() : UINT64_MAX;
    if (bytes <= total) return TUTTI_OK;
    return tti_comm_refuse(comm, kind, TUTTI_ERR_COUNT,
                           "%s: `%s` would be %llu bytes, more than the memory and swap of this machine (%s); is the "
                           "count right? Else use several calls",
                           tti_kind_name(kind), name, (unsigned long long)bytes, tti_bytes_text(total, had));
}

/* A count that was miscalculated is mostly absurd, and planning an operation for it would take hours. Operations with a
 * count for each rank may have buffers with gaps: only the end of these is checked. */
static tutti_status check_memory(tutti_comm *comm, enum tti_kind kind, const struct tti_buffer *buffer)
{
    if (!is_large(comm, buffer->bytes)) return TUTTI_OK;
    bool has_gaps = kind >= TTI_ALL_GATHER_V && kind <= TTI_ALL_TO_ALL_V;
    const char *first = (const char *)buffer->pointer + (has_gaps ? buffer->bytes - 1 : 0);
    if (!tti_memory_is_mapped(first, has_gaps ? 1 : buffer->bytes))
        return tti_comm_refuse(
            comm, kind, TUTTI_ERR_COUNT,
            "%s: `%s` would be %llu bytes from %p on, but not all of that is memory of this process; "
            "is the count right?",
            tti_kind_name(kind), buffer->name, (unsigned long long)buffer->bytes, buffer->pointer);
    return has_gaps ? TUTTI_OK : tti_api_check_amount(comm, kind, buffer->name, buffer->bytes);
}

/* Refuses memory that only a GPU can read. For a call on a stream, uses.c and message_device.c ask whose memory it is. */
static __attribute__((noinline)) tutti_status check_readable(tutti_comm *comm, enum tti_kind kind,
                                                             const struct tti_buffer *buffer)
{
    tutti_error error = {0};
    if (comm->caller.stream != NULL || tti_arena_contains(comm->world->arena, buffer->pointer, 1)) return TUTTI_OK;
    tutti_status status = tti_memory_for_host(buffer->pointer, buffer->name, &error);
    return status == TUTTI_OK ? TUTTI_OK
                              : tti_comm_refuse(comm, kind, status, "%s: %s", tti_kind_name(kind), error.text);
}

tutti_status tti_api_check_buffer(tutti_comm *comm, enum tti_kind kind, const struct tti_buffer *buffer)
{
    if (!buffer->used || buffer->bytes == 0) return TUTTI_OK;
    if (buffer->pointer == NULL)
        return tti_comm_refuse(comm, kind, TUTTI_ERR_ARGUMENT, "%s: `%s` is NULL, but %llu bytes of it are needed",
                               tti_kind_name(kind), buffer->name, (unsigned long long)buffer->bytes);
    if ((uintptr_t)buffer->pointer > UINTPTR_MAX - buffer->bytes)
        return tti_comm_refuse(comm, kind, TUTTI_ERR_COUNT, "%s: `%s` and its %llu bytes reach past the address space",
                               tti_kind_name(kind), buffer->name, (unsigned long long)buffer->bytes);
    if (tti_devices_any()) TTI_TRY(check_readable(comm, kind, buffer));
    return check_memory(comm, kind, buffer);
}

tutti_status tti_api_check_overlap(tutti_comm *comm, enum tti_kind kind, const struct tti_buffer *in,
                                   const struct tti_buffer *out, bool in_place)
{
    if (!in->used || !out->used || in->bytes == 0 || out->bytes == 0 || in_place) return TUTTI_OK;
    uintptr_t a = (uintptr_t)in->pointer, b = (uintptr_t)out->pointer;
    if (a + in->bytes <= b || b + out->bytes <= a) return TUTTI_OK;
    bool never = kind == TTI_SENDRECV || kind == TTI_ALL_TO_ALL_V;
    return tti_comm_refuse(comm, kind, TUTTI_ERR_OVERLAP, "%s: `in` and `out` overlap%s; use separate buffers",
                           tti_kind_name(kind), never ? "" : " but are not in the in-place form (see tutti.h)");
}

tutti_status tti_api_check_type(tutti_comm *comm, enum tti_kind kind, tutti_type type)
{
    if ((unsigned)type < TUTTI_TYPE_COUNT) return TUTTI_OK;
    return tti_comm_refuse(comm, kind, TUTTI_ERR_TYPE, "%s: type %d is not one of TUTTI_F64 … TUTTI_BOOL",
                           tti_kind_name(kind), (int)type);
}

static const char *special_name(int rank)
{
    return rank == TUTTI_ANY_SOURCE ? " (TUTTI_ANY_SOURCE)" : rank == TUTTI_NOBODY ? " (TUTTI_NOBODY)" : "";
}

tutti_status tti_api_check_rank(tutti_comm *comm, enum tti_kind kind, const char *what, int rank)
{
    if (rank >= 0 && rank < comm->size) return TUTTI_OK;
    return tti_comm_refuse(comm, kind, TUTTI_ERR_RANK, "%s: %s %d%s is not a rank of this comm; ranks go from 0 to %d",
                           tti_kind_name(kind), what, rank, special_name(rank), comm->size - 1);
}

tutti_status tti_api_bytes(tutti_comm *comm, enum tti_kind kind, uint64_t count, size_t element, uint64_t blocks,
                           uint64_t *bytes)
{
    const uint64_t most = UINT64_C(1) << 56; /* no system gives a process more addresses than this */
    uint64_t block, total;
    if (!__builtin_mul_overflow(count, (uint64_t)element, &block) && !__builtin_mul_overflow(block, blocks, &total) &&
        total <= most) {
        *bytes = total;
        return TUTTI_OK;
    }
    return tti_comm_refuse(comm, kind, TUTTI_ERR_COUNT,
                           "%s: %llu elements of %zu bytes, %llu times, are more than can be addressed; is the count "
                           "right?",
                           tti_kind_name(kind), (unsigned long long)count, element, (unsigned long long)blocks);
}

/* ---- Running --------------------------------------------------------------------------------------------------- */

/* A function of its own, so that the usual path stays small enough to be inlined. */
static __attribute__((noinline)) tutti_status run_elsewhere(struct tti_op *op, tutti_op *handle)
{
    return op->comm->caller.stream == NULL ? tti_group_note(op, NULL, handle) : tti_stream_op_run(op, handle);
}

tutti_status tti_api_run(struct tti_op *op, tutti_op *handle)
{
    tutti_comm *comm = op->comm;
    bool usual = comm->caller.stream == NULL && comm->caller.group == NULL;
    tutti_status status = usual ? tti_op_run(op, handle) : run_elsewhere(op, handle);
    tti_call_end(comm);
    return status;
}

/* ---- Collectives with equal counts ----------------------------------------------------------------------------- */

/* Describes the buffers of a kind: blocks of `count` elements, or one per rank; used everywhere or at the root only. */
struct form {
    bool in_blocks, out_blocks;
    bool in_at_root, out_at_root;
    bool reduces;
};

static const struct form forms[] = {
    [TTI_ALL_REDUCE] = {.reduces = true},
    [TTI_REDUCE] = {.out_at_root = true, .reduces = true},
    [TTI_BROADCAST] = {.in_at_root = true},
    [TTI_ALL_GATHER] = {.out_blocks = true},
    [TTI_GATHER] = {.out_blocks = true, .out_at_root = true},
    [TTI_SCATTER] = {.in_blocks = true, .in_at_root = true},
    [TTI_REDUCE_SCATTER] = {.in_blocks = true, .reduces = true},
    [TTI_ALL_TO_ALL] = {.in_blocks = true, .out_blocks = true},
    [TTI_SCAN] = {.reduces = true},
    [TTI_EXSCAN] = {.reduces = true},
};

static bool is_in_place(const tutti_comm *comm, const struct form *form, const struct tti_buffer *in,
                        const struct tti_buffer *out)
{
    uintptr_t a = (uintptr_t)in->pointer, b = (uintptr_t)out->pointer, rank = (uintptr_t)comm->rank;
    if (form->in_blocks == form->out_blocks) return a == b;
    return form->out_blocks ? a == b + rank * in->bytes : b == a + rank * out->bytes;
}

tutti_status tti_api_set_reduction(struct tti_op *op, enum tti_kind kind, tutti_type type, tutti_reduction reduction)
{
    char why[200];
    tutti_status status = tti_reducer_init(&op->reducer, type, reduction, why, sizeof why);
    if (status != TUTTI_OK) return tti_comm_refuse(op->comm, kind, status, "%s: %s", tti_kind_name(kind), why);
    op->call.reduction = (uint8_t)reduction;
    op->call.reduction_signature = op->reducer.signature;
    op->call.factor = op->reducer.factor;
    return TUTTI_OK;
}

tutti_status tti_api_check_buffers(tutti_comm *comm, enum tti_kind named, const struct tti_arguments *given,
                                   struct tti_buffers *buffers)
{
    const struct form *form = &forms[given->kind];
    bool at_root = given->root == comm->rank;
    uint64_t all = 0, element = tutti_type_bytes(given->type), block = given->count * element;
    TTI_TRY(tti_api_bytes(comm, named, given->count, element, (uint64_t)comm->size, &all));
    struct tti_buffer in = {"in", given->in, form->in_blocks ? all : block, !form->in_at_root || at_root};
    struct tti_buffer out = {"out", given->out, form->out_blocks ? all : block, !form->out_at_root || at_root};
    TTI_TRY(tti_api_check_buffer(comm, named, &in));
    TTI_TRY(tti_api_check_buffer(comm, named, &out));
    bool in_place = is_in_place(comm, form, &in, &out);
    TTI_TRY(tti_api_check_overlap(comm, named, &in, &out, in_place));
    *buffers = (struct tti_buffers){in.used ? in.bytes : 0, out.used ? out.bytes : 0, in_place && given->count > 0};
    return TUTTI_OK;
}

/* Checks the arguments and fills the comm's op from them. */
static tutti_status prepare(tutti_comm *comm, const struct tti_arguments *given)
{
    enum tti_kind kind = given->kind;
    if (kind == TTI_BARRIER) {
        tti_op_fill(comm, kind, NULL, 0, NULL, 0, 0, given->type, -1);
        return TUTTI_OK;
    }
    TTI_TRY(tti_api_check_type(comm, kind, given->type));
    const struct form *form = &forms[kind];
    if (form->in_at_root || form->out_at_root) TTI_TRY(tti_api_check_rank(comm, kind, "root", given->root));
    struct tti_buffers buffers;
    TTI_TRY(tti_api_check_buffers(comm, kind, given, &buffers));
    struct tti_op *op = tti_op_fill(comm, kind, given->in, buffers.in_bytes, given->out, buffers.out_bytes,
                                    given->count, given->type, given->root);
    if (form->reduces) TTI_TRY(tti_api_set_reduction(op, kind, given->type, (tutti_reduction)given->reduction));
    op->shape.in_place = kind == TTI_ALL_TO_ALL && buffers.in_place;
    op->call.in_place = op->shape.in_place;
    op->in_place = buffers.in_place && buffers.in_bytes > 0 && buffers.out_bytes > 0;
    return TUTTI_OK;
}

static bool same_arguments(const struct tti_arguments *a, const struct tti_arguments *b)
{
    return a->kind == b->kind && a->in == b->in && a->out == b->out && a->count == b->count && a->type == b->type &&
           a->reduction == b->reduction && a->root == b->root;
}

static void note(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    op->edition = ++comm->caller.editions;
    op->digest = tti_call_digest(&op->call);
    comm->caller.noted_file = comm->caller.site_file;
}

/* Prepares the same call once more. Its site, name and deadline are rarely new, and are compared in the parts in which
 * they were stored: a copy would have to wait until these stores are done, which come behind those of the operation
 * before. */
static void repeat(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    const struct tti_site *said = &comm->caller.site, *known = &op->call.site;
    tti_op_rewind(op);
    op->deadline_ms = comm->caller.deadline_ms;
    bool unnamed = said->name[0] == '\0' && known->name[0] == '\0';
    if (unnamed && said->line == known->line && comm->caller.site_file == comm->caller.noted_file) return;
    op->call.site = *said;
    note(op);
}

/* A call like the one before it, as in a loop, finds its op checked and filled. The arguments are passed by address: as
 * a value they would be copied, with the same delay. */
static tutti_status collective(tutti_comm *comm, const struct tti_arguments *given, tutti_op *handle)
{
    TTI_TRY(tti_api_begin(comm, given->kind));
    if (comm->caller.repeats && same_arguments(given, &comm->caller.checked)) {
        repeat(&comm->op);
    } else {
        TTI_TRY(prepare(comm, given));
        note(&comm->op);
        comm->caller.checked = *given;
        comm->caller.repeats = true;
    }
    return tti_api_run(&comm->op, handle);
}

enum { NONE = -1 }; /* no reduction, or no root */

/* Makes a call that waits. Inlined, so that the arguments are stored once, where they are compared. */
static inline tutti_status call(tutti_comm *comm, enum tti_kind kind, const void *in, void *out, size_t count,
                                tutti_type type, int reduction, int root)
{
    return collective(
        comm,
        &(struct tti_arguments){
            .kind = kind, .type = type, .reduction = reduction, .root = root, .in = in, .out = out, .count = count},
        NULL);
}

/* Makes the same call with a handle. */
static tutti_status start(tutti_comm *comm, enum tti_kind kind, const void *in, void *out, size_t count,
                          tutti_type type, int reduction, int root, tutti_op *handle)
{
    const struct tti_arguments given = {
        .kind = kind, .type = type, .reduction = reduction, .root = root, .in = in, .out = out, .count = count};
    return tti_api_has_handle(handle) ? collective(comm, &given, handle) : tti_api_no_handle(comm, kind);
}

tutti_status tutti_barrier(tutti_comm *comm)
{
    return call(comm, TTI_BARRIER, NULL, NULL, 0, TUTTI_TYPE_COUNT, NONE, NONE);
}

tutti_status tutti_all_reduce(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                              tutti_reduction reduction)
{
    return call(comm, TTI_ALL_REDUCE, in, out, count, type, (int)reduction, NONE);
}

tutti_status tutti_reduce(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                          tutti_reduction reduction, int root)
{
    return call(comm, TTI_REDUCE, in, out, count, type, (int)reduction, root);
}

tutti_status tutti_broadcast(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type, int root)
{
    return call(comm, TTI_BROADCAST, in, out, count, type, NONE, root);
}

tutti_status tutti_all_gather(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type)
{
    return call(comm, TTI_ALL_GATHER, in, out, count, type, NONE, NONE);
}

tutti_status tutti_gather(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type, int root)
{
    return call(comm, TTI_GATHER, in, out, count, type, NONE, root);
}

tutti_status tutti_scatter(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type, int root)
{
    return call(comm, TTI_SCATTER, in, out, count, type, NONE, root);
}

tutti_status tutti_reduce_scatter(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                  tutti_reduction reduction)
{
    return call(comm, TTI_REDUCE_SCATTER, in, out, count, type, (int)reduction, NONE);
}

tutti_status tutti_all_to_all(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type)
{
    return call(comm, TTI_ALL_TO_ALL, in, out, count, type, NONE, NONE);
}

tutti_status tutti_scan(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                        tutti_reduction reduction)
{
    return call(comm, TTI_SCAN, in, out, count, type, (int)reduction, NONE);
}

tutti_status tutti_exscan(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                          tutti_reduction reduction)
{
    return call(comm, TTI_EXSCAN, in, out, count, type, (int)reduction, NONE);
}

/* ---- The same, started ----------------------------------------------------------------------------------------- */

tutti_status tutti_barrier_start(tutti_comm *comm, tutti_op *op)
{
    return start(comm, TTI_BARRIER, NULL, NULL, 0, TUTTI_TYPE_COUNT, NONE, NONE, op);
}

tutti_status tutti_all_reduce_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                    tutti_reduction reduction, tutti_op *op)
{
    return start(comm, TTI_ALL_REDUCE, in, out, count, type, (int)reduction, NONE, op);
}

tutti_status tutti_reduce_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                tutti_reduction reduction, int root, tutti_op *op)
{
    return start(comm, TTI_REDUCE, in, out, count, type, (int)reduction, root, op);
}

tutti_status tutti_broadcast_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type, int root,
                                   tutti_op *op)
{
    return start(comm, TTI_BROADCAST, in, out, count, type, NONE, root, op);
}

tutti_status tutti_all_gather_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                    tutti_op *op)
{
    return start(comm, TTI_ALL_GATHER, in, out, count, type, NONE, NONE, op);
}

tutti_status tutti_gather_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type, int root,
                                tutti_op *op)
{
    return start(comm, TTI_GATHER, in, out, count, type, NONE, root, op);
}

tutti_status tutti_scatter_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type, int root,
                                 tutti_op *op)
{
    return start(comm, TTI_SCATTER, in, out, count, type, NONE, root, op);
}

tutti_status tutti_reduce_scatter_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                        tutti_reduction reduction, tutti_op *op)
{
    return start(comm, TTI_REDUCE_SCATTER, in, out, count, type, (int)reduction, NONE, op);
}

tutti_status tutti_all_to_all_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                    tutti_op *op)
{
    return start(comm, TTI_ALL_TO_ALL, in, out, count, type, NONE, NONE, op);
}

tutti_status tutti_scan_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                              tutti_reduction reduction, tutti_op *op)
{
    return start(comm, TTI_SCAN, in, out, count, type, (int)reduction, NONE, op);
}

tutti_status tutti_exscan_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                tutti_reduction reduction, tutti_op *op)
{
    return start(comm, TTI_EXSCAN, in, out, count, type, (int)reduction, NONE, op);
}
