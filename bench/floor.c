/* SPDX-License-Identifier: Apache-2.0
 *
 * The region, in order:
 *   a line with the abort word
 *   per rank, 128 bytes apart: `arrived`, the barriers it has reached; `left`, the staged calls it has left
 *   per rank: a ring of stages, each a line that holds the number of its call and up to 56 bytes, then STAGE_BYTES
 *   per rank: an input and an output buffer, each a few lines off from the last so that their lines fall in different
 *   cache sets
 * Invariants: only a rank itself writes its flags and its stages. A rank reads a stage only after it has seen the
 * number of its call there, and writes it again only after every rank has left the call that was in it.
 */
#include "bench/floor.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "bench/floor_kernels.h"

enum {
    LINE = 64,
    FLAG_STRIDE = 128,
    STAGE_BYTES = 8192,
    STAGE_SLOTS = 8,
    INLINE_BYTES = LINE - 8,
    SLOT_BYTES = LINE + STAGE_BYTES,
    BUFFER_SKEW = 5 * LINE,
    STREAM_FROM = 32768,
    MIX_FROM = 1 << 20,
    MIX_TURN = 4096,
    PATIENCE = 1024, /* spins before the core is given away */
    GIVE_UP_SECONDS = 60
};

/* ---- The region -------------------------------------------------------------------------------------------------- */

void floor_add(const char *const in[2], char *out, size_t bytes)
{
    kernels_best()->sum(in, 2, &out, 1, bytes, false);
}

const char *floor_kernels_name(void)
{
    return kernels_best()->name;
}

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static size_t flags_at(int rank)
{
    return (size_t)(1 + 2 * rank) * FLAG_STRIDE;
}
static size_t stages_at(int ranks)
{
    return flags_at(ranks);
}
static size_t stages_bytes(void)
{
    return (size_t)STAGE_SLOTS * SLOT_BYTES;
}
static size_t buffers_at(int ranks)
{
    return round_up(stages_at(ranks) + (size_t)ranks * stages_bytes(), 4096);
}

/* A block may be padded to a line, hence a line per rank. */
static size_t buffer_stride(int ranks, size_t max_bytes)
{
    return round_up(max_bytes + (size_t)(ranks + 1) * LINE, 4096) + BUFFER_SKEW;
}

size_t floor_region_bytes(int ranks, size_t max_bytes)
{
    return round_up(buffers_at(ranks) + 2 * (size_t)ranks * buffer_stride(ranks, max_bytes), 4096);
}

void floor_own_part(int rank, int ranks, size_t max_bytes, size_t *offset, size_t *bytes)
{
    size_t both = 2 * buffer_stride(ranks, max_bytes);
    *offset = rank == 0 ? 0 : buffers_at(ranks) + (size_t)rank * both;
    *bytes = rank == 0 ? buffers_at(ranks) + both : both;
}

void floor_attach(floor_rank *self, void *region, int rank, int ranks, size_t max_bytes, bool yield)
{
    size_t stride = buffer_stride(ranks, max_bytes);
    *self = (floor_rank){.region = region, .rank = rank, .ranks = ranks, .buffer_bytes = stride, .yield = yield};
    self->kernels = kernels_best();
    memset(self->region + buffers_at(ranks) + 2 * (size_t)rank * stride, 1, 2 * stride);
}

static char *buffer_in(const floor_rank *self, int rank)
{
    return self->region + buffers_at(self->ranks) + 2 * (size_t)rank * self->buffer_bytes;
}

static char *buffer_out(const floor_rank *self, int rank)
{
    return buffer_in(self, rank) + self->buffer_bytes;
}

static _Atomic uint64_t *flag_arrived(const floor_rank *self, int rank)
{
    return (_Atomic uint64_t *)(void *)(self->region + flags_at(rank));
}

static _Atomic uint64_t *flag_left(const floor_rank *self, int rank)
{
    return (_Atomic uint64_t *)(void *)(self->region + flags_at(rank) + FLAG_STRIDE);
}

static _Atomic uint64_t *abort_word(const floor_rank *self)
{
    return (_Atomic uint64_t *)(void *)self->region;
}

/* ---- Waiting ----------------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void floor_abort(floor_rank *self)
{
    if (self->region) atomic_store_explicit(abort_word(self), 1, memory_order_release);
}

/* Until *flag >= value. After an abort it returns at once, and the caller's result is void. */
static inline void wait_for(floor_rank *self, _Atomic uint64_t *flag, uint64_t value)
{
    double since = 0;
    for (uint32_t spins = 1; atomic_load_explicit(flag, memory_order_acquire) < value; spins++) {
        if (spins % (self->yield || spins > PATIENCE ? 16 : PATIENCE) == 0)
            sched_yield(); /* others may need the core */
        else
            relax();
        if (spins % 4096 != 0) continue;
        if (atomic_load_explicit(abort_word(self), memory_order_relaxed)) return;
        if (since == 0)
            since = now();
        else if (now() - since > GIVE_UP_SECONDS)
            floor_abort(self);
    }
}

/* Of ranks 0..parties-1. Every rank tells and watches every other: one line crosses between each two. */
static inline void barrier(floor_rank *self, int parties)
{
    uint64_t epoch = ++self->epoch;
    atomic_store_explicit(flag_arrived(self, self->rank), epoch, memory_order_release);
    for (int k = 1; k < parties; k++) {
        int peer = self->rank + k < parties ? self->rank + k : self->rank + k - parties;
        wait_for(self, flag_arrived(self, peer), epoch);
    }
}

/* ---- Direct: every input read once and every output written once, between two barriers --------------------------- */

/* The buffers of one step, at most one of each per rank. Never cleared as a whole: that takes longer than a call. */
struct move {
    const char *in[FLOOR_MAX_RANKS];
    char *out[FLOOR_MAX_RANKS];
    int ins, outs;
    size_t bytes; /* a multiple of LINE */
};

static size_t whole_lines(size_t bytes)
{
    return round_up(bytes, LINE);
}

static size_t block_bytes(const floor_rank *self, const floor_call *call)
{
    return whole_lines(call->bytes / (size_t)self->ranks);
}

/* Part `part` of `parts` of `bytes`, in whole lines. */
static size_t slice_at(size_t bytes, int part, int parts)
{
    return whole_lines(bytes) / LINE * (size_t)part / (size_t)parts * LINE;
}

/* Copies in tiles that stay in the first cache while they go to all outputs. */
static void copy_libc(const struct move *move)
{
    const size_t tile = move->outs > 1 ? 16384 : move->bytes;
    for (size_t at = 0; at < move->bytes; at += tile) {
        size_t bytes = move->bytes - at < tile ? move->bytes - at : tile;
        for (int i = 0; i < move->outs; i++) memcpy(move->out[i] + at, move->in[0] + at, bytes);
    }
}

/* A turn of the first half by ordinary stores to one output after the other, one of the second half past the caches. */
static void copy_mixed(const struct kernels *kernels, const struct move *move)
{
    const size_t half = move->bytes / 2 / MIX_TURN * MIX_TURN;
    for (size_t at = 0; at < move->bytes - half; at += MIX_TURN) {
        const char *cached = move->in[0] + at, *streamed = cached + half;
        size_t rest = move->bytes - half - at, turn = rest < MIX_TURN ? rest : MIX_TURN;
        char *to[FLOOR_MAX_RANKS];
        for (int i = 0; i < move->outs; i++) {
            to[i] = move->out[i] + at;
            if (at < half) kernels->sum(&cached, 1, &to[i], 1, turn, false);
            to[i] += half;
        }
        kernels->sum(&streamed, 1, to, move->outs, turn, true);
    }
}

static void carry_out(const floor_rank *self, const struct move *move, floor_way way)
{
    const struct kernels *kernels = self->kernels;
    if (move->bytes == 0 || move->outs == 0) return;
    if (way == FLOOR_LIBC)
        copy_libc(move);
    else if (way == FLOOR_MIXED)
        copy_mixed(kernels, move);
    else if (way == FLOOR_STREAM && move->ins == 1)
        kernels->stream(move->in[0], move->out, move->outs, move->bytes);
    else
        kernels->sum(move->in, move->ins, move->out, move->outs, move->bytes, way == FLOOR_STREAM);
}

static void copy_one(const floor_rank *self, const char *in, char *out, size_t bytes, floor_way way)
{
    struct move move;
    move.in[0] = in, move.out[0] = out, move.ins = 1, move.outs = 1, move.bytes = bytes;
    carry_out(self, &move, way);
}

/* This rank's slice of everybody's vector: all_reduce, reduce, scan, exscan. */
static void move_reduction(const floor_rank *self, const floor_call *call, floor_way way)
{
    const struct kernels *kernels = self->kernels;
    struct move move;
    move.ins = self->ranks;
    size_t at = slice_at(call->bytes, self->rank, self->ranks);
    move.bytes = slice_at(call->bytes, self->rank + 1, self->ranks) - at;
    for (int p = 0; p < self->ranks; p++) {
        move.in[p] = buffer_in(self, p) + at;
        move.out[p] = (call->in_place ? buffer_in(self, p) : buffer_out(self, p)) + at;
    }
    if (call->op == FLOOR_REDUCE) {
        move.out[0] = move.out[call->root];
        move.outs = 1;
    } else
        move.outs = self->ranks;
    if (call->op == FLOOR_SCAN || call->op == FLOOR_EXSCAN)
        kernels->prefix(move.in, move.out, self->ranks, move.bytes, call->op == FLOOR_EXSCAN, way == FLOOR_STREAM);
    else
        carry_out(self, &move, way);
}

/* Block `rank` of everybody's vector to this rank. */
static void move_reduce_scatter(const floor_rank *self, const floor_call *call, floor_way way)
{
    struct move move;
    move.ins = self->ranks, move.outs = 1, move.bytes = block_bytes(self, call);
    size_t at = (size_t)self->rank * move.bytes;
    for (int p = 0; p < self->ranks; p++) move.in[p] = buffer_in(self, p) + at;
    move.out[0] = call->in_place ? buffer_in(self, self->rank) + at : buffer_out(self, self->rank);
    carry_out(self, &move, way);
}

/* broadcast: this rank's slice of the root's vector to all. all_gather: this rank's block to all. */
static void move_to_all(const floor_rank *self, const floor_call *call, floor_way way)
{
    bool gathers = call->op == FLOOR_ALL_GATHER;
    int source = gathers ? self->rank : call->root;
    struct move move;
    move.ins = 1, move.outs = 0;
    size_t at = gathers ? (size_t)self->rank * block_bytes(self, call) : slice_at(call->bytes, self->rank, self->ranks);
    move.bytes = gathers ? block_bytes(self, call) : slice_at(call->bytes, self->rank + 1, self->ranks) - at;
    move.in[0] = gathers && !call->in_place ? buffer_in(self, source) : buffer_in(self, source) + at;
    if (gathers && call->in_place) move.in[0] = buffer_out(self, source) + at;
    for (int p = 0; p < self->ranks; p++)
        if (!call->in_place || p != source) move.out[move.outs++] = buffer_out(self, p) + at;
    carry_out(self, &move, way);
}

/* gather and scatter. In place the root's own block does not move, and all ranks share the work on the others. */
static void move_rooted(const floor_rank *self, const floor_call *call, floor_way way)
{
    size_t block = block_bytes(self, call);
    bool gathers = call->op == FLOOR_GATHER;
    for (int p = 0; p < self->ranks; p++) {
        if (call->in_place ? p == call->root : p != self->rank) continue;
        size_t from = call->in_place ? slice_at(block, self->rank, self->ranks) : 0;
        size_t to = call->in_place ? slice_at(block, self->rank + 1, self->ranks) : block;
        const char *in = gathers ? buffer_in(self, p) : buffer_in(self, call->root) + (size_t)p * block;
        char *out = gathers ? buffer_out(self, call->root) + (size_t)p * block : buffer_out(self, p);
        copy_one(self, in + from, out + from, to - from, way);
    }
}

/* In place, each of two ranks exchanges half of their pair of blocks. */
static void move_all_to_all(const floor_rank *self, const floor_call *call, floor_way way)
{
    const struct kernels *kernels = self->kernels;
    size_t block = block_bytes(self, call);
    int r = self->rank;
    for (int k = 0; k < self->ranks; k++) {
        int p = (r + k) % self->ranks;
        if (!call->in_place) {
            copy_one(self, buffer_in(self, p) + (size_t)r * block, buffer_out(self, r) + (size_t)p * block, block, way);
        } else if (p != r) {
            size_t at = slice_at(block, p < r, 2), to = slice_at(block, (p < r) + 1, 2);
            kernels->swap(buffer_in(self, r) + (size_t)p * block + at, buffer_in(self, p) + (size_t)r * block + at,
                          to - at, way == FLOOR_STREAM);
        }
    }
}

/* Half of a message by each of the two ranks; they take turns at being the sender. */
static void move_message(const floor_rank *self, const floor_call *call, floor_way way, uint64_t turn)
{
    int from = (int)(turn % 2);
    size_t at = slice_at(call->bytes, self->rank, 2), to = slice_at(call->bytes, self->rank + 1, 2);
    copy_one(self, buffer_in(self, from) + at, buffer_out(self, 1 - from) + at, to - at, way);
}

static void move_data(const floor_rank *self, const floor_call *call, floor_way way, uint64_t turn)
{
    switch (call->op) {
    case FLOOR_BARRIER: break;
    case FLOOR_ALL_REDUCE:
    case FLOOR_REDUCE:
    case FLOOR_SCAN:
    case FLOOR_EXSCAN: move_reduction(self, call, way); break;
    case FLOOR_REDUCE_SCATTER: move_reduce_scatter(self, call, way); break;
    case FLOOR_BROADCAST:
    case FLOOR_ALL_GATHER: move_to_all(self, call, way); break;
    case FLOOR_GATHER:
    case FLOOR_SCATTER: move_rooted(self, call, way); break;
    case FLOOR_ALL_TO_ALL: move_all_to_all(self, call, way); break;
    case FLOOR_PING_PONG: move_message(self, call, way, turn); break;
    }
}

static void call_direct(floor_rank *self, const floor_call *call, floor_way way, uint64_t turn)
{
    int parties = call->op == FLOOR_PING_PONG ? 2 : self->ranks;
    barrier(self, parties);
    if (call->op == FLOOR_BARRIER) return;
    move_data(self, call, way, turn);
    if (way == FLOOR_STREAM || way == FLOOR_MIXED) stream_end();
    barrier(self, parties);
}

/* ---- Staged: each rank's data beside a flag, one exchange -------------------------------------------------------- */

static char *stage_slot(const floor_rank *self, int rank, uint64_t number)
{
    return self->region + stages_at(self->ranks) + (size_t)rank * stages_bytes() + number % STAGE_SLOTS * SLOT_BYTES;
}

/* How a staged call lays out its data: tiny ones in words beside the flag, larger ones in lines behind it. */
struct stage_plan {
    size_t block;  /* bytes of a rank's block, or of the whole vector */
    size_t posted; /* bytes a rank stages */
    size_t data;   /* where they begin in the slot */
    bool adds;
};

static struct stage_plan stage_plan_of(int ranks, const floor_call *call)
{
    struct stage_plan plan = {.data = 8};
    bool in_blocks = call->op == FLOOR_ALL_GATHER || call->op == FLOOR_GATHER || call->op == FLOOR_SCATTER ||
                     call->op == FLOOR_REDUCE_SCATTER || call->op == FLOOR_ALL_TO_ALL;
    bool posts_all = call->op == FLOOR_SCATTER || call->op == FLOOR_REDUCE_SCATTER || call->op == FLOOR_ALL_TO_ALL;
    size_t blocks = posts_all ? (size_t)ranks : 1;
    size_t bytes = in_blocks ? call->bytes / (size_t)ranks : call->bytes;
    plan.block = round_up(bytes, 8);
    if (blocks * plan.block > INLINE_BYTES) plan.block = whole_lines(bytes), plan.data = LINE;
    plan.posted = blocks * plan.block;
    plan.adds = call->op == FLOOR_ALL_REDUCE || call->op == FLOOR_REDUCE || call->op == FLOOR_REDUCE_SCATTER ||
                call->op == FLOOR_SCAN || call->op == FLOOR_EXSCAN;
    return plan;
}

/* Whether rank `to` takes data that rank `from` staged. */
static bool stage_flows(const floor_call *call, int from, int to, uint64_t turn)
{
    switch (call->op) {
    case FLOOR_BROADCAST:
    case FLOOR_SCATTER: return from == call->root && to != from;
    case FLOOR_REDUCE:
    case FLOOR_GATHER: return to == call->root && to != from;
    case FLOOR_SCAN:
    case FLOOR_EXSCAN: return from < to;
    case FLOOR_PING_PONG: return from == (int)(turn % 2) && to == 1 - from;
    default: return from != to;
    }
}

static bool stage_posts(const floor_rank *self, const floor_call *call, uint64_t turn)
{
    switch (call->op) {
    case FLOOR_BROADCAST:
    case FLOOR_SCATTER: return self->rank == call->root;
    case FLOOR_REDUCE:
    case FLOOR_GATHER: return self->rank != call->root;
    case FLOOR_SCAN:
    case FLOOR_EXSCAN: return self->rank + 1 < self->ranks;
    case FLOOR_PING_PONG: return self->rank == (int)(turn % 2);
    default: return true;
    }
}

static inline void copy_words(char *to, const char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 8) memcpy(to + at, from + at, 8);
}

static void stage_post(floor_rank *self, const struct stage_plan *plan, const char *in, uint64_t number)
{
    const struct kernels *kernels = self->kernels;
    if (number > STAGE_SLOTS && self->left_seen < number - STAGE_SLOTS) {
        for (int p = 0; p < self->ranks; p++)
            if (p != self->rank) wait_for(self, flag_left(self, p), number - STAGE_SLOTS);
        self->left_seen = number - STAGE_SLOTS;
    }
    char *slot = stage_slot(self, self->rank, number);
    char *data = slot + plan->data;
    if (plan->data == LINE)
        kernels->sum(&in, 1, &data, 1, plan->posted, false);
    else
        copy_words(data, in, plan->posted);
    atomic_store_explicit((_Atomic uint64_t *)(void *)slot, number, memory_order_release);
}

static void stage_take(floor_rank *self, const struct stage_plan *plan, const char *from, char *out, bool add)
{
    const struct kernels *kernels = self->kernels;
    const char *in[2] = {from, out};
    if (plan->data == LINE) {
        kernels->sum(in, add ? 2 : 1, &out, 1, plan->block, false);
    } else if (!add) {
        copy_words(out, from, plan->block);
    } else {
        for (size_t at = 0; at < plan->block; at += 8) {
            uint64_t a, b;
            memcpy(&a, from + at, 8);
            memcpy(&b, out + at, 8);
            b += a;
            memcpy(out + at, &b, 8);
        }
    }
}

/* Where this rank's part lies in a peer's stage, and where the peer's part goes in this rank's output. */
static size_t stage_offset(const floor_call *call, const struct stage_plan *plan, int rank)
{
    bool own_block = call->op == FLOOR_SCATTER || call->op == FLOOR_REDUCE_SCATTER || call->op == FLOOR_ALL_TO_ALL;
    return own_block ? (size_t)rank * plan->block : 0;
}

static size_t stage_target(const floor_call *call, const struct stage_plan *plan, int peer)
{
    bool by_peer = call->op == FLOOR_ALL_GATHER || call->op == FLOOR_GATHER || call->op == FLOOR_ALL_TO_ALL;
    return by_peer ? (size_t)peer * plan->block : 0;
}

static void call_staged(floor_rank *self, const floor_call *call, const struct stage_plan *plan, uint64_t turn)
{
    uint64_t number = ++self->posted;
    char *in = buffer_in(self, self->rank), *out = buffer_out(self, self->rank);
    bool takes_own = call->op != FLOOR_PING_PONG && call->op != FLOOR_EXSCAN;
    bool receives = call->op != FLOOR_REDUCE && call->op != FLOOR_GATHER;
    size_t offset = stage_offset(call, plan, self->rank);
    bool first = true;
    int heard = 0;
    if (stage_posts(self, call, turn)) stage_post(self, plan, in, number);
    if ((receives && (call->op != FLOOR_BROADCAST && call->op != FLOOR_SCATTER)) || self->rank == call->root) {
        if (takes_own && (plan->adds || !call->in_place)) {
            stage_take(self, plan, in + offset, out + stage_target(call, plan, self->rank), false);
            first = false;
        }
    }
    for (int k = 1; k < self->ranks; k++) {
        int p = self->rank + k < self->ranks ? self->rank + k : self->rank + k - self->ranks;
        if (!stage_flows(call, p, self->rank, turn)) continue;
        char *slot = stage_slot(self, p, number);
        wait_for(self, (_Atomic uint64_t *)(void *)slot, number);
        stage_take(self, plan, slot + plan->data + offset, out + stage_target(call, plan, p), plan->adds && !first);
        first = false;
        heard++;
    }
    if (heard + 1 == self->ranks) self->left_seen = number - 1; /* they staged this call, so they have left the last */
    atomic_store_explicit(flag_left(self, self->rank), number, memory_order_release);
}

/* ---- Samples ----------------------------------------------------------------------------------------------------- */

static bool only_copies(const floor_call *call)
{
    switch (call->op) {
    case FLOOR_BROADCAST:
    case FLOOR_ALL_GATHER:
    case FLOOR_GATHER:
    case FLOOR_SCATTER:
    case FLOOR_PING_PONG: return true;
    case FLOOR_ALL_TO_ALL: return !call->in_place;
    default: return false;
    }
}

bool floor_has_way(const floor_rank *self, const floor_call *call, floor_way way)
{
    if (way == FLOOR_PLAIN) return true;
    if (call->op == FLOOR_BARRIER || call->bytes == 0) return false;
    if (way == FLOOR_STREAM) return call->bytes >= STREAM_FROM;
    if (way == FLOOR_MIXED) return only_copies(call) && call->bytes >= MIX_FROM;
    if (way == FLOOR_LIBC) return only_copies(call) && call->bytes >= 4096;
    return self->ranks > 1 && stage_plan_of(self->ranks, call).posted <= STAGE_BYTES;
}

/* The receiver takes the whole message, straight from the sender's buffer, after one flag. */
static void call_pull(floor_rank *self, const floor_call *call, uint64_t turn)
{
    int from = (int)(turn % 2);
    uint64_t epoch = ++self->epoch;
    if (self->rank == from) {
        atomic_store_explicit(flag_arrived(self, from), epoch, memory_order_release);
        return;
    }
    wait_for(self, flag_arrived(self, from), epoch);
    memcpy(buffer_out(self, self->rank), buffer_in(self, from), call->bytes);
}

static void call_once(floor_rank *self, const floor_call *call, floor_way way, const struct stage_plan *plan,
                      uint64_t turn)
{
    if (way == FLOOR_STAGED)
        call_staged(self, call, plan, turn);
    else if (way == FLOOR_LIBC && call->op == FLOOR_PING_PONG)
        call_pull(self, call, turn);
    else
        call_direct(self, call, way, turn);
}

/* A rank that has no part in ping_pong: counts what the others count, so that the next barrier finds all at one. */
static void sit_out(floor_rank *self, floor_way way, uint64_t batch)
{
    if (way == FLOOR_STAGED) {
        self->posted += batch;
        atomic_store_explicit(flag_left(self, self->rank), self->posted, memory_order_release);
    } else {
        self->epoch += way == FLOOR_LIBC ? batch : 2 * batch;
    }
}

double floor_sample(floor_rank *self, const floor_call *call, floor_way way, uint64_t batch)
{
    struct stage_plan plan = stage_plan_of(self->ranks, call);
    barrier(self, self->ranks);
    double start = now();
    if (call->op == FLOOR_PING_PONG && (self->rank > 1 || self->ranks < 2)) {
        sit_out(self, way, batch);
    } else {
        for (uint64_t turn = 0; turn < batch; turn++) call_once(self, call, way, &plan, turn);
    }
    double elapsed = now() - start;
    return atomic_load_explicit(abort_word(self), memory_order_relaxed) ? -1 : elapsed;
}
