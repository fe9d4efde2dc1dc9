/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/staging.h"

#include "base/alloc.h"
#include "base/status.h"
#include "collective/comm/trace.h"
#include "collective/op/many.h"
#include "device/open.h"
#include "device/pinned.h"
#include "device/stream.h"
#include <string.h>

enum {
    SLOTS = 3,
    ROUND_BYTES = 4 << 20, /* bytes of the larger one of a round's two buffers */
    SLOT_LEAST = 64 << 10
};

/* Copies of a comm: a stream for each direction, and how far it is. */
struct tti_stager {
    struct tti_device *device;
    struct tti_stream *in, *out;
    struct tti_word *came, *went; /* raised to a copy's number when the copy is done */
    uint64_t in_copies, out_copies;
    tutti_comm *comm;                /* the slots are in its arena: ranks that are processes read them there */
    struct tti_pinned *slots[SLOTS]; /* kept from op to op */
    uint64_t sure[SLOTS];            /* bytes of each that every rank has, as all ranks know */
};

enum slot_state { FREE, COMING, HERE, GOING };

struct slot {
    struct tti_pinned *memory;
    enum slot_state state;
    uint64_t copy;  /* the last copy that uses it */
    uint64_t round; /* the round that it is for */
};

/* The op's data in a device's buffers: blocks of `count` elements each. */
struct tti_staging {
    struct tti_stager *stager;
    const char *in; /* buffers on the device: of the op, or of the present piece */
    char *out;
    uint64_t in_bytes, out_bytes;
    uint64_t in_blocks, out_blocks, count; /* 0 blocks: this rank uses no such buffer */
    uint64_t each;                         /* elements of a block that a round takes */
    uint64_t rounds, copied_in, done, copied_out;
    const uint64_t *row; /* for a v-form: the row that this rank gave */
    size_t piece;        /* for an op with several: the present one */
    bool running;        /* the round `done` is under way on the host */
    bool secured;        /* every rank has the slots that the op, or its present piece, needs */
    bool agreeing;       /* the ranks are telling each other whether they have the slots */
    struct tti_op kept;  /* the op as it was before that exchange */
    int32_t mine;        /* OK if this rank has the slots */
    tutti_error why;     /* the reason for `mine` */
    struct slot slots[SLOTS];
    int32_t all[]; /* [size] the ranks' statuses */
};

/* ---- The comm's part ----------------------------------------------------------------------------------------------- */

tutti_status tti_stager_make(struct tti_device *device, tutti_comm *comm, struct tti_stager **made, tutti_error *error)
{
    struct tti_stager *stager = tti_calloc(1, sizeof *stager);
    if (stager == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for staging");
    stager->device = device;
    stager->comm = comm;
    tti_object_keep(&device->object);
    tutti_status status = tti_stream_make(device, &stager->in, error);
    if (status == TUTTI_OK) status = tti_stream_make(device, &stager->out, error);
    if (status == TUTTI_OK) status = tti_word_take(device, &stager->came, error);
    if (status == TUTTI_OK) status = tti_word_take(device, &stager->went, error);
    if (status != TUTTI_OK) {
        tti_stager_free(stager);
        return status;
    }
    stager->in_copies = atomic_load_explicit(&stager->came->value, memory_order_relaxed);
    stager->out_copies = atomic_load_explicit(&stager->went->value, memory_order_relaxed);
    *made = stager;
    return TUTTI_OK;
}

/* Frees a slot. Another rank may still read it after a failure. */
static void free_slot(struct tti_stager *stager, int i)
{
    struct tti_arena *arena = stager->comm->world->arena;
    struct tti_pinned *slot = stager->slots[i];
    tutti_error ignored = {0};
    if (slot == NULL) return;
    void *base = slot->base;
    stager->slots[i] = NULL;
    tti_pinned_release(slot);
    if (tti_comm_is_broken(stager->comm))
        tti_arena_quarantine(arena, base);
    else
        (void)tti_arena_free(arena, base, &ignored);
}

void tti_stager_free(struct tti_stager *stager)
{
    tutti_error ignored = {0};
    if (stager == NULL) return;
    bool idle = stager->went != NULL && tti_word_reached(stager->came, stager->in_copies) &&
                tti_word_reached(stager->went, stager->out_copies);
    if (stager->in != NULL) (void)tti_stream_drop(stager->in, &ignored);
    if (stager->out != NULL) (void)tti_stream_drop(stager->out, &ignored);
    for (int i = 0; i < SLOTS && idle; i++) free_slot(stager, i);
    if (idle) {
        tti_word_give(stager->device, stager->came);
        tti_word_give(stager->device, stager->went);
    }
    tti_object_give(&stager->device->object);
    tti_free(stager);
}

static tutti_status renew_stream(struct tti_device *device, struct tti_stream **stream, tutti_error *error)
{
    struct tti_stream *made = NULL;
    tutti_error ignored = {0};
    TTI_TRY(tti_stream_make(device, &made, error));
    (void)tti_stream_drop(*stream, &ignored);
    *stream = made;
    return TUTTI_OK;
}

tutti_status tti_stager_renew(struct tti_stager *stager, tutti_error *error)
{
    TTI_TRY(renew_stream(stager->device, &stager->in, error));
    TTI_TRY(renew_stream(stager->device, &stager->out, error));
    for (int i = 0; i < SLOTS; i++)
        if (stager->slots[i] != NULL) TTI_TRY(tti_pinned_renew(stager->slots[i], error));
    return TUTTI_OK;
}

/* Returns a power of two, so that a slot is seldom replaced. 0: too many bytes. */
static size_t slot_bytes(size_t bytes)
{
    size_t rounded = SLOT_LEAST;
    while (rounded < bytes && rounded != 0) rounded *= 2;
    return rounded;
}

/* Makes sure that a slot is large enough. No copy uses it: it is free. A failure leaves it as it was. */
static tutti_status ensure_slot(struct tti_stager *stager, int i, size_t bytes, tutti_error *error)
{
    struct tti_arena *arena = stager->comm->world->arena;
    size_t rounded = slot_bytes(bytes);
    if (stager->slots[i] != NULL && stager->slots[i]->bytes >= bytes) return TUTTI_OK;
    if (rounded == 0)
        return tti_error_set(error, TUTTI_ERR_COUNT, 0, "%zu bytes of pinned memory were asked for", bytes);
    void *base = tti_arena_alloc(arena, rounded, error);
    if (base == NULL) return error->status;
    struct tti_pinned *made = NULL;
    tutti_status status = tti_pinned_adopt(stager->device, base, rounded, &made, error);
    if (status != TUTTI_OK) {
        (void)tti_arena_free(arena, base, &(tutti_error){0});
        return status;
    }
    free_slot(stager, i);
    stager->slots[i] = made;
    return TUTTI_OK;
}

/* ---- Rounds -------------------------------------------------------------------------------------------------------- */

static bool has_tables(const struct tti_op *op)
{
    return op->shape.tables != NULL;
}

/* Sets how many blocks this rank's buffers have. */
static void set_blocks(struct tti_staging *staging, const struct tti_op *op)
{
    const struct tti_shape *shape = &op->shape;
    uint64_t n = (uint64_t)shape->size;
    bool root = shape->rank == shape->root;
    staging->in_blocks = staging->out_blocks = 1;
    switch (shape->kind) {
    case TTI_BARRIER: staging->in_blocks = staging->out_blocks = 0; break;
    case TTI_REDUCE: staging->out_blocks = root; break;
    case TTI_BROADCAST: staging->in_blocks = root; break;
    case TTI_ALL_GATHER: staging->out_blocks = n; break;
    case TTI_GATHER: staging->out_blocks = root ? n : 0; break;
    case TTI_SCATTER: staging->in_blocks = root ? n : 0; break;
    case TTI_REDUCE_SCATTER: staging->in_blocks = n; break;
    case TTI_ALL_TO_ALL: staging->in_blocks = staging->out_blocks = n; break;
    case TTI_EXSCAN: staging->out_blocks = shape->rank > 0; break;
    default: break;
    }
}

/* Returns the blocks of the larger buffer of any rank, so that all ranks cut alike. */
static uint64_t most_blocks(const struct tti_shape *shape)
{
    switch (shape->kind) {
    case TTI_ALL_GATHER:
    case TTI_GATHER:
    case TTI_SCATTER:
    case TTI_REDUCE_SCATTER:
    case TTI_ALL_TO_ALL: return (uint64_t)shape->size;
    default: return 1;
    }
}

static void set_rounds(struct tti_staging *staging, const struct tti_op *op, uint64_t count)
{
    uint64_t element = op->shape.element, each = ROUND_BYTES / (element * most_blocks(&op->shape));
    staging->count = count;
    staging->each = each == 0 ? 1 : each;
    staging->rounds = count == 0 || has_tables(op) ? 1 : (count + staging->each - 1) / staging->each;
    staging->copied_in = staging->done = staging->copied_out = 0;
}

/* Begins with the op, or with the next one of its pieces. */
static void set_piece(struct tti_staging *staging, const struct tti_op *op, size_t piece)
{
    const tutti_piece *at = op->many == NULL ? NULL : &op->many->pieces[piece];
    staging->piece = piece;
    staging->secured = false;
    if (at != NULL) {
        staging->in = at->in;
        staging->out = at->out;
    }
    set_rounds(staging, op, at == NULL ? op->shape.count : at->count);
}

static uint64_t elements_of(const struct tti_staging *staging, uint64_t round)
{
    uint64_t first = round * staging->each;
    return staging->count - first < staging->each ? staging->count - first : staging->each;
}

/* Returns the bytes of one of a round's two halves of a slot. */
static uint64_t half_bytes(const struct tti_staging *staging, const struct tti_op *op, bool out)
{
    if (has_tables(op)) return out ? staging->out_bytes : staging->in_bytes;
    return (out ? staging->out_blocks : staging->in_blocks) * staging->each * op->shape.element;
}

/* Returns where the output begins in a slot. The ranks have agreed if an all_to_all is in place, so it must be so
 * here. */
static uint64_t out_offset(const struct tti_staging *staging, const struct tti_op *op)
{
    if (op->call.in_place) return 0;
    return (half_bytes(staging, op, false) + 63) & ~UINT64_C(63);
}

struct tti_staging *tti_staging_make(struct tti_started *started, tutti_error *error)
{
    struct tti_streams *streams = started->turn->comm->queue.streams;
    struct tti_op *op = &started->op;
    struct tti_staging *staging = tti_calloc(1, sizeof *staging + (size_t)op->shape.size * sizeof *staging->all);
    if (staging == NULL) {
        tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for staging");
        return NULL;
    }
    staging->stager = streams->stager;
    staging->row = started->row;
    staging->in = op->in;
    staging->out = op->out;
    staging->in_bytes = op->in_bytes;
    staging->out_bytes = op->out_bytes;
    set_blocks(staging, op);
    set_piece(staging, op, 0);
    return staging;
}

void tti_staging_free(struct tti_staging *staging)
{
    tti_free(staging);
}

/* ---- Copies -------------------------------------------------------------------------------------------------------- */

/* Copies one round's part of each block. */
static tutti_status copy_blocks(const struct tti_staging *staging, const struct tti_op *op, uint64_t round, char *half,
                                bool out, tutti_error *error)
{
    uint64_t element = op->shape.element, bytes = elements_of(staging, round) * element;
    uint64_t blocks = bytes == 0 ? 0 : out ? staging->out_blocks : staging->in_blocks;
    for (uint64_t block = 0; block < blocks; block++) {
        uint64_t at = (block * staging->count + round * staging->each) * element;
        if (out)
            TTI_TRY(tti_stream_copy(staging->stager->out, staging->out + at, half + block * bytes, bytes, error));
        else
            TTI_TRY(tti_stream_copy(staging->stager->in, half + block * bytes, staging->in + at, bytes, error));
    }
    return TUTTI_OK;
}

/* Copies a v-form's output, whose gaps stay as they are. */
static tutti_status copy_out_table(const struct tti_staging *staging, const struct tti_op *op, const char *half,
                                   tutti_error *error)
{
    const struct tti_shape *shape = &op->shape;
    size_t n = (size_t)shape->size, element = shape->element;
    bool one = shape->kind == TTI_REDUCE_SCATTER_V || shape->kind == TTI_SCATTER_V;
    if (one) return tti_stream_copy(staging->stager->out, staging->out, half, staging->out_bytes, error);
    for (size_t from = 0; from < n && staging->out_bytes > 0; from++) {
        uint64_t count = staging->row[TTI_OUT_COUNTS * n + from],
                 at = staging->row[TTI_OUT_OFFSETS * n + from] * element;
        TTI_TRY(tti_stream_copy(staging->stager->out, staging->out + at, half + at, count * element, error));
    }
    return TUTTI_OK;
}

static tutti_status copy_in(struct tti_staging *staging, const struct tti_op *op, struct slot *slot, tutti_error *error)
{
    struct tti_stager *stager = staging->stager;
    char *half = slot->memory->base;
    if (has_tables(op))
        TTI_TRY(tti_stream_copy(stager->in, half, staging->in, staging->in_bytes, error));
    else
        TTI_TRY(copy_blocks(staging, op, slot->round, half, false, error));
    TTI_TRY(tti_stream_raise(stager->in, stager->came, stager->in_copies + 1, error));
    slot->copy = ++stager->in_copies;
    return TUTTI_OK;
}

static tutti_status copy_out(struct tti_staging *staging, const struct tti_op *op, struct slot *slot,
                             tutti_error *error)
{
    struct tti_stager *stager = staging->stager;
    char *half = slot->memory->base + out_offset(staging, op);
    if (has_tables(op))
        TTI_TRY(copy_out_table(staging, op, half, error));
    else
        TTI_TRY(copy_blocks(staging, op, slot->round, half, true, error));
    TTI_TRY(tti_stream_raise(stager->out, stager->went, stager->out_copies + 1, error));
    slot->copy = ++stager->out_copies;
    return TUTTI_OK;
}

/* ---- Taking it forward --------------------------------------------------------------------------------------------- */

static struct slot *slot_of(struct tti_staging *staging, uint64_t round)
{
    return &staging->slots[round % SLOTS];
}

/* ---- Memory for it ------------------------------------------------------------------------------------------------- */

/* Returns the bytes that a slot must have on any rank. All ranks know it alike, but for v-forms. */
static uint64_t most_bytes(const struct tti_staging *staging, const struct tti_op *op)
{
    uint64_t half = staging->each * op->shape.element * most_blocks(&op->shape);
    if (op->shape.kind == TTI_BARRIER) return 1;
    if (has_tables(op)) return out_offset(staging, op) + staging->out_bytes + 1;
    return ((half + 63) & ~UINT64_C(63)) + half;
}

static uint64_t slots_used(const struct tti_staging *staging)
{
    return staging->rounds < SLOTS ? staging->rounds : SLOTS;
}

/* Returns true if some rank may have too little. */
static bool must_agree(const struct tti_staging *staging, const struct tti_op *op)
{
    bool sure = !has_tables(op);
    for (uint64_t i = 0; i < slots_used(staging); i++)
        sure = sure && staging->stager->sure[i] >= most_bytes(staging, op);
    return !sure;
}

/* Makes the slots that this rank lacks, and begins an all_gather of the results, in place of a round. */
static tutti_status begin_agreement(struct tti_staging *staging, struct tti_op *op, tutti_error *error)
{
    tutti_status status = TUTTI_OK;
    for (uint64_t i = 0; i < slots_used(staging) && status == TUTTI_OK; i++)
        status = ensure_slot(staging->stager, (int)i, most_bytes(staging, op), error);
    if (status != TUTTI_OK && status != TUTTI_ERR_MEMORY) return status;
    staging->mine = status;
    staging->why = *error;
    *error = (tutti_error){0};
    staging->kept = *op;
    uint64_t bytes = sizeof staging->mine;
    op->shape = (struct tti_shape){.kind = TTI_ALL_GATHER,
                                   .rank = op->shape.rank,
                                   .size = op->shape.size,
                                   .root = -1,
                                   .element = 1,
                                   .count = bytes,
                                   .tuning = op->shape.tuning};
    op->in = &staging->mine;
    op->out = staging->all;
    op->in_bytes = bytes;
    op->out_bytes = bytes * (uint64_t)op->shape.size;
    op->in_place = false;
    op->many = NULL;
    tti_op_rewind(op);
    tti_op_begin(op, NULL);
    op->many = staging->kept.many; /* it is freed with the op, however this ends */
    staging->agreeing = true;
    return TUTTI_OK;
}

/* Takes the exchange forward. When it has ended the op is as before; fields that stay the same are not written, since a
 * thread that waits for the op may read them. */
static tutti_status agree(struct tti_staging *staging, struct tti_op *op)
{
    const struct tti_op *kept = &staging->kept;
    op->many = NULL;
    tutti_status status = tti_op_progress(op);
    op->many = kept->many;
    if (status != TUTTI_OK) return status;
    op->state = kept->state;
    op->shape = kept->shape;
    op->in = kept->in;
    op->out = kept->out;
    op->in_bytes = kept->in_bytes;
    op->out_bytes = kept->out_bytes;
    op->in_place = kept->in_place;
    op->waiting_for = -1;
    staging->agreeing = false;
    return TUTTI_OK;
}

static tutti_status lacks_memory(const struct tti_staging *staging, struct tti_started *started, int rank)
{
    struct tti_verdict *verdict = &started->turn->verdict;
    const char *own = rank == started->op.shape.rank ? staging->why.text : "";
    started->turn->refused = true;
    verdict->status = TUTTI_ERR_MEMORY;
    snprintf(verdict->text, sizeof verdict->text,
             "rank %d has no memory left for the pinned buffers that the call is staged through%s%.*s", rank,
             own[0] == '\0' ? "" : ": ", 120, own);
    return TUTTI_ERR_MEMORY;
}

/* Out of memory must be found before any rank begins a round: then all of them refuse the op, and the comm stays
 * whole. */
static tutti_status secure(struct tti_staging *staging, struct tti_started *started, tutti_error *error)
{
    struct tti_op *op = &started->op;
    if (!staging->agreeing && must_agree(staging, op)) TTI_TRY(begin_agreement(staging, op, error));
    if (staging->agreeing) {
        TTI_TRY(agree(staging, op));
        for (int rank = 0; rank < op->shape.size; rank++)
            if (staging->all[rank] != TUTTI_OK) return lacks_memory(staging, started, rank);
        for (uint64_t i = 0; i < slots_used(staging) && !has_tables(op); i++)
            if (staging->stager->sure[i] < most_bytes(staging, op)) staging->stager->sure[i] = most_bytes(staging, op);
    }
    staging->secured = true;
    return TUTTI_OK;
}

/* ---- Copies in and out --------------------------------------------------------------------------------------------- */

/* Copies in rounds ahead of the one that the host works on, while slots are free. */
static tutti_status bring(struct tti_staging *staging, const struct tti_op *op, tutti_error *error)
{
    while (staging->copied_in < staging->rounds && slot_of(staging, staging->copied_in)->state == FREE) {
        struct slot *slot = slot_of(staging, staging->copied_in);
        slot->memory = staging->stager->slots[slot - staging->slots];
        slot->round = staging->copied_in;
        TTI_TRY(copy_in(staging, op, slot, error));
        slot->state = COMING;
        staging->copied_in++;
    }
    return TUTTI_OK;
}

static void look_at_copies(struct tti_staging *staging)
{
    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &staging->slots[i];
        if (slot->state == COMING && tti_word_reached(staging->stager->came, slot->copy)) slot->state = HERE;
        if (slot->state == GOING && tti_word_reached(staging->stager->went, slot->copy)) {
            slot->state = FREE;
            staging->copied_out++;
        }
    }
}

bool tti_staging_is_copying(struct tti_staging *staging)
{
    tutti_error none;
    bool copying = false;
    look_at_copies(staging);
    for (int i = 0; i < SLOTS; i++) copying |= staging->slots[i].state == COMING || staging->slots[i].state == GOING;
    return copying && tti_stream_state(staging->stager->in, &none) == TUTTI_OK;
}

/* Begins the host's part of a round, on the slot. */
static void begin_round(struct tti_staging *staging, struct tti_started *started, const struct slot *slot)
{
    struct tti_op *op = &started->op;
    char *half = slot->memory->base;
    uint64_t element = op->shape.element;
    struct tti_many *many = op->many;
    bool tables = has_tables(op);
    uint64_t bytes = tables ? 0 : elements_of(staging, slot->round) * element;
    tti_op_rewind(op);
    op->in = half;
    op->out = half + out_offset(staging, op);
    op->in_bytes = tables ? staging->in_bytes : staging->in_blocks * bytes;
    op->out_bytes = tables ? staging->out_bytes : staging->out_blocks * bytes;
    op->shape.count = tables ? op->shape.count : elements_of(staging, slot->round);
    op->in_place = op->call.in_place;
    op->many = NULL;
    tti_op_begin(op, started->row);
    op->many = many;
    staging->running = true;
}

/* Puts the caller's arguments back, for texts. */
static void restore(const struct tti_staging *staging, struct tti_op *op)
{
    op->in = staging->in;
    op->out = staging->out;
    op->in_bytes = staging->in_bytes;
    op->out_bytes = staging->out_bytes;
    op->shape.count = staging->count;
}

static tutti_status run_round(struct tti_staging *staging, struct tti_started *started, tutti_error *error)
{
    struct tti_op *op = &started->op;
    struct slot *slot = slot_of(staging, staging->done);
    struct tti_many *many = op->many;
    if (!staging->running && (staging->done == staging->rounds || slot->state != HERE)) return TUTTI_IN_PROGRESS;
    if (!staging->running) begin_round(staging, started, slot);
    op->many = NULL;
    tutti_status status = tti_op_progress(op);
    op->many = many;
    if (status != TUTTI_OK) return status;
    staging->running = false;
    op->state = TTI_OP_QUEUED; /* it does nothing on the host */
    op->waiting_for = -1;      /* it waits for copies only, which no rank that leaves can hold up */
    restore(staging, op);
    TTI_TRY(copy_out(staging, op, slot, error));
    slot->state = GOING;
    staging->done++;
    return TUTTI_IN_PROGRESS;
}

static tutti_status fail(struct tti_started *started, const tutti_error *error)
{
    struct tti_op *op = &started->op;
    return tti_comm_break(op->comm, (enum tti_kind)op->call.kind, error->status, op->comm->rank, "rank %d: %s",
                          op->comm->rank, error->text);
}

static tutti_status go_on(struct tti_staging *staging, struct tti_started *started, tutti_error *error)
{
    const struct tti_op *op = &started->op;
    TTI_TRY(tti_stream_state(staging->stager->in, error));
    if (!staging->secured) TTI_TRY(secure(staging, started, error));
    look_at_copies(staging);
    TTI_TRY(bring(staging, op, error));
    look_at_copies(staging);
    tutti_status status = run_round(staging, started, error);
    if (status != TUTTI_IN_PROGRESS) return status;
    if (staging->copied_out < staging->rounds) return TUTTI_IN_PROGRESS;
    if (op->many == NULL || staging->piece + 1 >= op->many->count) return TUTTI_OK;
    set_piece(staging, op, staging->piece + 1);
    return TUTTI_IN_PROGRESS;
}

tutti_status tti_staging_progress(struct tti_started *started)
{
    struct tti_staging *staging = started->turn->staging;
    tutti_error error = {0};
    uint64_t before, after;
    tutti_status status;
    do {
        before = staging->copied_in + staging->done + staging->copied_out + staging->piece + staging->secured;
        status = go_on(staging, started, &error);
        after = staging->copied_in + staging->done + staging->copied_out + staging->piece + staging->secured;
    } while (status == TUTTI_IN_PROGRESS && after != before);
    return status < 0 && error.status != TUTTI_OK ? fail(started, &error) : status;
}
