/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/staging.h"

#include "base/alloc.h"
#include "base/status.h"
#include "collective/comm/trace.h"
#include "collective/op/many.h"
#include "collective/op/stager.h"
#include "collective/op/staging_v.h"
#include "device/open.h"
#include "device/pinned.h"
#include "device/stream.h"
#include <string.h>

enum { ROUND_BYTES = 4 << 20 }; /* bytes of the larger one of a round's two buffers */

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
    uint64_t each;                         /* elements of a block that a round takes; a v-form: of each flow */
    uint64_t rounds, copied_in, done, copied_out;
    uint64_t ring;       /* slots in use */
    const uint64_t *row; /* for a v-form: the row that this rank gave, */
    uint64_t *cut;       /* and the one with which a round runs */
    size_t piece;        /* for an op with several: the present one */
    bool running;        /* the round `done` is under way on the host */
    bool secured;        /* every rank has the slots that the op, or its present piece, needs */
    bool agreeing;       /* the ranks are telling each other whether they have the slots */
    struct tti_op kept;  /* the op as it was before that exchange */
    tutti_error why;     /* the reason if this rank does not have them */
    struct slot slots[TTI_STAGER_SLOTS];
    size_t words;    /* of what a rank tells the others: OK if it has the slots, and for a v-form its row */
    uint64_t *mine;  /* [words] */
    uint64_t told[]; /* [size * words] what all tell, then `mine`, then `cut` */
};

/* ---- Rounds -------------------------------------------------------------------------------------------------------- */

static bool has_tables(const struct tti_op *op)
{
    return op->shape.tables != NULL;
}

static struct tti_side side_of(const struct tti_staging *staging, const struct tti_op *op, bool out)
{
    return tti_side_of(&op->shape, staging->row, out);
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

static uint64_t rounds_of(const struct tti_staging *staging, uint64_t count)
{
    return count == 0 ? 1 : (count - 1) / staging->each + 1;
}

/* For a v-form these are the rounds in which this rank itself has data, until the others have told theirs. */
static void set_rounds(struct tti_staging *staging, const struct tti_op *op, uint64_t count)
{
    uint64_t n = has_tables(op) ? (uint64_t)op->shape.size : most_blocks(&op->shape);
    uint64_t each = ROUND_BYTES / (op->shape.element * n), most = count;
    staging->count = count;
    staging->each = each == 0 ? 1 : each;
    for (int out = 0; out < 2 && has_tables(op); out++) {
        struct tti_side side = side_of(staging, op, out != 0);
        if (tti_side_most(&side) > most) most = tti_side_most(&side);
    }
    staging->rounds = rounds_of(staging, most);
    staging->ring = staging->rounds < TTI_STAGER_SLOTS ? staging->rounds : TTI_STAGER_SLOTS;
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
    if (has_tables(op)) { /* the first round is the largest */
        struct tti_side side = side_of(staging, op, out);
        return tti_side_cut(&side, staging->each, 0) * op->shape.element;
    }
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
    size_t n = (size_t)op->shape.size, row = has_tables(op) ? TTI_GIVEN * n : 0, words = 1 + row;
    struct tti_staging *staging = tti_calloc(1, sizeof *staging + ((n + 1) * words + row) * sizeof *staging->told);
    if (staging == NULL) {
        tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for staging");
        return NULL;
    }
    staging->words = words;
    staging->mine = staging->told + n * words;
    staging->cut = staging->mine + words;
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

static tutti_status copy_piece(const struct tti_staging *staging, char *data, char *half, uint64_t bytes, bool out,
                               tutti_error *error)
{
    if (bytes == 0) return TUTTI_OK;
    return out ? tti_stream_copy(staging->stager->out, data, half, bytes, error)
               : tti_stream_copy(staging->stager->in, half, data, bytes, error);
}

/* Copies one round's part of a v-form's blocks, those that lie behind each other at once. Gaps between blocks stay as they are. */
static tutti_status copy_sides(const struct tti_staging *staging, const struct tti_op *op, uint64_t round, char *half,
                               bool out, tutti_error *error)
{
    struct tti_side side = side_of(staging, op, out);
    uint64_t element = op->shape.element, from = 0, bytes = 0;
    char *data = out ? staging->out : (char *)(uintptr_t)staging->in;
    for (size_t i = 0; i < side.blocks; i++) {
        uint64_t count = tti_cut(side.counts[i], staging->each, round) * element;
        uint64_t at = ((side.offsets == NULL ? 0 : side.offsets[i]) + round * staging->each) * element;
        if (count == 0) continue;
        if (at != from + bytes) {
            TTI_TRY(copy_piece(staging, data + from, half, bytes, out, error));
            half += bytes;
            from = at;
            bytes = 0;
        }
        bytes += count;
    }
    return bytes == 0 ? TUTTI_OK : copy_piece(staging, data + from, half, bytes, out, error);
}

static tutti_status copy_in(struct tti_staging *staging, const struct tti_op *op, struct slot *slot, tutti_error *error)
{
    struct tti_stager *stager = staging->stager;
    char *half = slot->memory->base;
    if (has_tables(op))
        TTI_TRY(copy_sides(staging, op, slot->round, half, false, error));
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
        TTI_TRY(copy_sides(staging, op, slot->round, half, true, error));
    else
        TTI_TRY(copy_blocks(staging, op, slot->round, half, true, error));
    TTI_TRY(tti_stream_raise(stager->out, stager->went, stager->out_copies + 1, error));
    slot->copy = ++stager->out_copies;
    return TUTTI_OK;
}

/* ---- Taking it forward --------------------------------------------------------------------------------------------- */

static struct slot *slot_of(struct tti_staging *staging, uint64_t round)
{
    return &staging->slots[round % staging->ring];
}

/* ---- Memory for it ------------------------------------------------------------------------------------------------- */

/* Returns the bytes that a slot must have on any rank. All ranks know it alike, but for v-forms. */
static uint64_t most_bytes(const struct tti_staging *staging, const struct tti_op *op)
{
    uint64_t half = staging->each * op->shape.element * most_blocks(&op->shape);
    if (op->shape.kind == TTI_BARRIER) return 1;
    if (has_tables(op)) return out_offset(staging, op) + half_bytes(staging, op, true);
    return ((half + 63) & ~UINT64_C(63)) + half;
}

/* Returns true if some rank may have too little. */
static bool must_agree(const struct tti_staging *staging, const struct tti_op *op)
{
    bool sure = !has_tables(op);
    for (uint64_t i = 0; i < staging->ring; i++) sure = sure && staging->stager->sure[i] >= most_bytes(staging, op);
    return !sure;
}

/* Makes the slots that this rank lacks, and begins an all_gather of the results, in place of a round. */
static tutti_status begin_agreement(struct tti_staging *staging, struct tti_op *op, tutti_error *error)
{
    tutti_status status = TUTTI_OK;
    for (uint64_t i = 0; i < staging->ring && status == TUTTI_OK; i++)
        status = tti_stager_ensure(staging->stager, (int)i, most_bytes(staging, op), error);
    if (status != TUTTI_OK && status != TUTTI_ERR_MEMORY) return status;
    staging->mine[0] = (uint64_t)(int64_t)status;
    if (has_tables(op)) memcpy(staging->mine + 1, staging->row, (staging->words - 1) * sizeof *staging->row);
    staging->why = *error;
    *error = (tutti_error){0};
    staging->kept = *op;
    uint64_t bytes = staging->words * sizeof *staging->mine;
    op->shape = (struct tti_shape){.kind = TTI_ALL_GATHER,
                                   .rank = op->shape.rank,
                                   .size = op->shape.size,
                                   .root = -1,
                                   .element = 1,
                                   .count = bytes,
                                   .tuning = op->shape.tuning};
    op->in = staging->mine;
    op->out = staging->told;
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

/* Counts that differ are found before any data are moved: in rounds, some would have been. */
static tutti_status tell_unequal(struct tti_op *op, const struct tti_unequal *unequal)
{
    char call[160];
    tti_call_describe(&op->call, call, sizeof call);
    return tti_comm_break(op->comm, (enum tti_kind)op->call.kind, TUTTI_ERR_MISMATCH,
                          unequal->from == op->shape.rank ? unequal->to : unequal->from,
                          "counts differ in %s: rank %d sends %llu elements to rank %d, which receives %llu", call,
                          unequal->from, (unsigned long long)unequal->sent, unequal->to,
                          (unsigned long long)unequal->received);
}

/* For a v-form: from all rows follows how many rounds all ranks run. */
static tutti_status agree_on_rounds(struct tti_staging *staging, struct tti_op *op)
{
    struct tti_shape shape = op->shape;
    struct tti_unequal unequal;
    size_t row = staging->words - 1;
    for (size_t rank = 0; rank < (size_t)shape.size; rank++)
        memmove(staging->told + rank * row, staging->told + rank * staging->words + 1, row * sizeof *staging->told);
    shape.tables = staging->told;
    for (int rank = 0; rank < shape.size; rank++)
        if (tti_shape_is_unequal(&shape, rank, &unequal)) return tell_unequal(op, &unequal);
    staging->rounds = rounds_of(staging, tti_largest_flow(&shape));
    return TUTTI_OK;
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
            if (staging->told[(size_t)rank * staging->words] != TUTTI_OK) return lacks_memory(staging, started, rank);
        if (has_tables(op)) TTI_TRY(agree_on_rounds(staging, op));
        for (uint64_t i = 0; i < staging->ring && !has_tables(op); i++)
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
    for (int i = 0; i < TTI_STAGER_SLOTS; i++) {
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
    for (int i = 0; i < TTI_STAGER_SLOTS; i++)
        copying |= staging->slots[i].state == COMING || staging->slots[i].state == GOING;
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
    struct tti_side in = side_of(staging, op, false), out = side_of(staging, op, true);
    if (tables) tti_cut_row(&op->shape, staging->row, staging->each, slot->round, staging->cut);
    tti_op_rewind(op);
    op->in = half;
    op->out = half + out_offset(staging, op);
    op->in_bytes = tables ? tti_side_cut(&in, staging->each, slot->round) * element : staging->in_blocks * bytes;
    op->out_bytes = tables ? tti_side_cut(&out, staging->each, slot->round) * element : staging->out_blocks * bytes;
    op->shape.count = tables ? op->shape.count : elements_of(staging, slot->round);
    op->in_place = op->call.in_place;
    op->many = NULL;
    tti_op_begin(op, staging->cut);
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
