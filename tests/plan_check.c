/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_check.h"

#include "collective/peers/posts.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = TTI_WINDOW, OPS_MOST = 16 };

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

enum symbol_kind { NOTHING, INPUT, REDUCED, REUSED };

static uint64_t symbol(enum symbol_kind kind, int rank, size_t index)
{
    return (uint64_t)kind << 56 | (uint64_t)rank << 40 | (uint64_t)index;
}

struct cell {
    uint64_t symbol;
    int writer; /* rank + 1; 0: nobody (memory begins as zeros, and most of it is never touched) */
    uint32_t written;
    uint32_t writes;                /* by the plan */
    uint32_t read[CONF_RANKS_MOST]; /* clock of each rank's last read since then */
};

struct memory {
    struct cell *cells;
    size_t count;
    size_t touched; /* cells from here on are as new */
};

/* A rank's buffers of one operation: `in` and `out` are views of one memory. */
struct user {
    struct memory memory;
    size_t in, out;
};

/* ---- Ranks ----------------------------------------------------------------------------------------------------- */

struct clock {
    uint32_t of[CONF_RANKS_MOST];
};

struct published {
    int op;
    uint32_t value;
    struct clock clock;
};

enum phase { OPENING, MEETING, RUNNING, DONE };

struct rank {
    struct clock clock;
    int op;
    enum phase phase;
    size_t step;
    struct published *published;
    size_t published_count, published_capacity;
    bool entered[OPS_MOST];
    struct clock entry[OPS_MOST];
};

struct checker {
    struct plan_check_op *const *ops;
    int op_count, size;
    struct rank ranks[CONF_RANKS_MOST];
    struct user users[OPS_MOST][CONF_RANKS_MOST];
    bool wrong;
    int at_rank; /* for the text */
};

static char problem[512];

/* Kept from check to check, and cleared where touched: new memory is what would take most of the time. */
static struct memory stages[SLOTS][CONF_RANKS_MOST], bounces[CONF_RANKS_MOST];

static void report(struct checker *checker, const char *format, ...)
{
    if (checker->wrong) return;
    checker->wrong = true;
    const struct rank *rank = &checker->ranks[checker->at_rank];
    int length = snprintf(problem, sizeof problem, "rank %d, operation %d, step %zu: ", checker->at_rank, rank->op,
                          rank->step);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem + length, sizeof problem - (size_t)length, format, arguments);
    va_end(arguments);
}

static void join(struct clock *clock, const struct clock *other)
{
    for (int i = 0; i < CONF_RANKS_MOST; i++)
        if (other->of[i] > clock->of[i]) clock->of[i] = other->of[i];
}

/* ---- Reading and writing cells --------------------------------------------------------------------------------- */

static uint64_t read_cell(struct checker *checker, struct cell *cell)
{
    int me = checker->at_rank;
    const struct clock *clock = &checker->ranks[me].clock;
    int writer = cell->writer - 1;
    if (writer >= 0 && writer != me && cell->written > clock->of[writer])
        report(checker, "reads what rank %d wrote, without having waited for it", writer);
    if (cell->symbol == NOTHING) report(checker, "reads what nobody wrote");
    if (cell->symbol >> 56 == REUSED) report(checker, "reads a buffer that its owner has taken back");
    cell->read[me] = clock->of[me];
    return cell->symbol;
}

static void claim_cell(struct checker *checker, struct cell *cell)
{
    int me = checker->at_rank;
    const struct clock *clock = &checker->ranks[me].clock;
    int writer = cell->writer - 1;
    if (writer >= 0 && writer != me && cell->written > clock->of[writer])
        report(checker, "overwrites what rank %d wrote, without having waited for it", writer);
    for (int rank = 0; rank < checker->size; rank++)
        if (rank != me && cell->read[rank] > clock->of[rank])
            report(checker, "overwrites what rank %d may still be reading", rank);
    memset(cell->read, 0, sizeof cell->read);
    cell->writer = me + 1;
    cell->written = clock->of[me];
}

static void write_cell(struct checker *checker, struct cell *cell, uint64_t value)
{
    if (cell->symbol >> 56 == REUSED) report(checker, "writes a buffer that its owner has taken back");
    claim_cell(checker, cell);
    cell->symbol = value;
    cell->writes++;
}

/* ---- Regions --------------------------------------------------------------------------------------------------- */

static struct plan_check_op *op_of(const struct checker *checker)
{
    return checker->ops[checker->ranks[checker->at_rank].op];
}

static bool in_reach(const struct checker *checker, int rank, enum tti_space space, bool write)
{
    const struct plan_check_op *op = op_of(checker);
    bool from_root = op->one.kind == TTI_BROADCAST && checker->at_rank == op->one.root;
    if (rank == checker->at_rank) return true;
    switch (op->path) {
    case TTI_STAGED: return space == TTI_STAGE && !write;
    case TTI_DIRECT: return space == TTI_IN || space == TTI_OUT;
    case TTI_ATTACH: return (space == TTI_IN || space == TTI_OUT) && (!write || from_root);
    default: return space == TTI_BOUNCED && !write;
    }
}

/* The cells of a region; NULL (and a report) if it is not one. */
static struct cell *region(struct checker *checker, int rank, const struct tti_region *where, uint64_t bytes,
                           bool write)
{
    const struct plan_check_op *op = op_of(checker);
    int op_index = checker->ranks[checker->at_rank].op;
    enum tti_space space = (enum tti_space)where->space;
    struct user *user = &checker->users[op_index][rank];
    const struct conf_layout *layout = &op->layouts[rank];
    struct memory *memory = &user->memory;
    size_t base = 0, limit = 0;
    if (!in_reach(checker, rank, space, write)) {
        report(checker, "space %d of rank %d is out of reach%s", (int)space, rank, write ? " for writing" : "");
        return NULL;
    }
    if (space == TTI_IN) base = user->in, limit = layout->in_used ? layout->in_count : 0;
    if (space == TTI_OUT) base = user->out, limit = layout->out_used ? layout->out_count : 0;
    if (space == TTI_STAGE) memory = &stages[op_index % SLOTS][rank], limit = memory->count;
    if (space == TTI_BOUNCED) memory = &bounces[rank], limit = memory->count;
    uint64_t offset = where->offset;
    /* an element too large to lie beside the entry word: what begins after that place is its next element */
    if (space == TTI_STAGE && op->element > TTI_PAYLOAD_BYTES && offset >= TTI_PAYLOAD_BYTES)
        offset += op->element - TTI_PAYLOAD_BYTES;
    if (offset % op->element != 0 || bytes % op->element != 0 || bytes == 0) {
        report(checker, "a region of %llu bytes at %llu cuts elements", (unsigned long long)bytes,
               (unsigned long long)offset);
        return NULL;
    }
    if (offset + bytes < bytes || offset + bytes > limit * op->element) {
        report(checker, "%llu bytes at %llu of space %d of rank %d, which has %zu", (unsigned long long)bytes,
               (unsigned long long)offset, (int)space, rank, limit * op->element);
        return NULL;
    }
    size_t end = base + (offset + bytes) / op->element;
    if (end > memory->touched) memory->touched = end;
    return memory->cells + base + offset / op->element;
}

/* ---- Steps that move data -------------------------------------------------------------------------------------- */

static void copy_cells(struct checker *checker, struct cell *target, struct cell *source, size_t count)
{
    if (target == NULL || source == NULL || target == source) return;
    if (target < source + count && source < target + count) report(checker, "copies within itself");
    for (size_t i = 0; i < count && !checker->wrong; i++)
        write_cell(checker, &target[i], read_cell(checker, &source[i]));
}

static void copy(struct checker *checker, const struct tti_step *step)
{
    size_t count = step->bytes / op_of(checker)->element;
    struct cell *source = region(checker, step->source.rank, &step->source, step->bytes, false);
    int first = step->target.rank == TTI_ALL ? 0 : step->target.rank;
    int last = step->target.rank == TTI_ALL ? checker->size - 1 : first;
    for (int rank = first; rank <= last && !checker->wrong; rank++)
        copy_cells(checker, region(checker, rank, &step->target, step->bytes, true), source, count);
}

/* Reads cell i of the sources: they must be the ranks' inputs, all of one element. */
static uint64_t reduce_cells(struct checker *checker, struct cell *const *sources, int count, size_t i)
{
    size_t index = 0;
    for (int rank = 0; rank < count; rank++) {
        uint64_t value = read_cell(checker, &sources[rank][i]);
        if (rank == 0) index = (size_t)(value & ((UINT64_C(1) << 40) - 1));
        if (value != symbol(INPUT, rank, index))
            report(checker, "source %d of a reduction is not rank %d's input", rank, rank);
    }
    return symbol(REDUCED, count - 1, index);
}

static bool find_all(struct checker *checker, const struct tti_region *where, uint64_t bytes, int count, bool write,
                     struct cell **cells)
{
    for (int rank = 0; rank < count; rank++)
        if ((cells[rank] = region(checker, rank, where, bytes, write)) == NULL) return false;
    return true;
}

static void reduce(struct checker *checker, const struct tti_step *step)
{
    struct cell *sources[CONF_RANKS_MOST], *targets[CONF_RANKS_MOST];
    if (step->sources < 1 || step->sources > checker->size) report(checker, "reduces %d sources", (int)step->sources);
    if (checker->wrong || !find_all(checker, &step->source, step->bytes, step->sources, false, sources)) return;
    int me = checker->at_rank, count = step->target.rank == TTI_ALL ? checker->size : 1;
    if (me < step->sources && (step->source.space == TTI_STAGE || step->source.space == TTI_BOUNCED)) {
        const struct tti_region own = {me, TTI_IN, step->own};
        if ((sources[me] = region(checker, me, &own, step->bytes, false)) == NULL) return;
    }
    if (step->target.rank == TTI_ALL) {
        if (!find_all(checker, &step->target, step->bytes, count, true, targets)) return;
    } else if ((targets[0] = region(checker, step->target.rank, &step->target, step->bytes, true)) == NULL) {
        return;
    }
    for (size_t i = 0; i < step->bytes / op_of(checker)->element && !checker->wrong; i++) {
        uint64_t value = reduce_cells(checker, sources, step->sources, i);
        for (int k = 0; k < count; k++) write_cell(checker, &targets[k][i], value);
    }
}

static void prefix(struct checker *checker, const struct tti_step *step)
{
    struct cell *sources[CONF_RANKS_MOST], *targets[CONF_RANKS_MOST];
    int size = checker->size;
    if (!find_all(checker, &step->source, step->bytes, size, false, sources)) return;
    if (!find_all(checker, &step->target, step->bytes, size, true, targets)) return;
    for (size_t i = 0; i < step->bytes / op_of(checker)->element && !checker->wrong; i++) {
        uint64_t values[CONF_RANKS_MOST];
        for (int rank = 0; rank < size; rank++) values[rank] = reduce_cells(checker, sources, rank + 1, i);
        for (int rank = step->exclusive ? 1 : 0; rank < size; rank++)
            write_cell(checker, &targets[rank][i], values[step->exclusive ? rank - 1 : rank]);
    }
}

static void exchange(struct checker *checker, const struct tti_step *step)
{
    struct cell *one = region(checker, step->source.rank, &step->source, step->bytes, true);
    struct cell *other = region(checker, step->target.rank, &step->target, step->bytes, true);
    if (one == NULL || other == NULL) return;
    for (size_t i = 0; i < step->bytes / op_of(checker)->element && !checker->wrong; i++) {
        uint64_t a = read_cell(checker, &one[i]), b = read_cell(checker, &other[i]);
        write_cell(checker, &one[i], b);
        write_cell(checker, &other[i], a);
    }
}

/* ---- Steps that order ------------------------------------------------------------------------------------------ */

static void enter(struct checker *checker)
{
    struct rank *rank = &checker->ranks[checker->at_rank];
    if (rank->entered[rank->op]) report(checker, "enters twice");
    rank->entered[rank->op] = true;
    rank->entry[rank->op] = rank->clock;
    rank->clock.of[checker->at_rank]++;
}

static void publish(struct checker *checker, uint32_t value)
{
    struct rank *rank = &checker->ranks[checker->at_rank];
    if (rank->published_count == rank->published_capacity) {
        rank->published_capacity = rank->published_capacity * 2 + 16;
        rank->published = realloc(rank->published, rank->published_capacity * sizeof *rank->published);
    }
    const struct published *last = &rank->published[rank->published_count];
    if (rank->published_count > 0 && last[-1].op == rank->op && last[-1].value >= value)
        report(checker, "publishes %u after %u", value, last[-1].value);
    rank->published[rank->published_count++] = (struct published){rank->op, value, rank->clock};
    rank->clock.of[checker->at_rank]++;
}

/* Joins the peer's entry of an operation; false: it has not entered yet. */
static bool see_entry(struct checker *checker, int peer, int op)
{
    if (!checker->ranks[peer].entered[op]) return false;
    join(&checker->ranks[checker->at_rank].clock, &checker->ranks[peer].entry[op]);
    return true;
}

static bool see_number(struct checker *checker, int peer, int op, uint32_t value)
{
    const struct rank *other = &checker->ranks[peer];
    for (size_t i = 0; i < other->published_count; i++) {
        const struct published *published = &other->published[i];
        if (published->op < op || (published->op == op && published->value < value)) continue;
        join(&checker->ranks[checker->at_rank].clock, &published->clock);
        return true;
    }
    return false;
}

static bool see(struct checker *checker, int peer, uint32_t value)
{
    int op = checker->ranks[checker->at_rank].op;
    if (peer < 0 || peer >= checker->size) {
        report(checker, "waits for rank %d", peer);
        return false;
    }
    if (value != 0 && peer != checker->at_rank && !see_number(checker, peer, op, value)) return false;
    return see_entry(checker, peer, op);
}

static bool see_all(struct checker *checker, uint32_t value)
{
    bool all = true;
    for (int peer = 0; peer < checker->size && all; peer++)
        if (peer != checker->at_rank) all = see(checker, peer, value);
    return all;
}

/* ---- A rank, step by step -------------------------------------------------------------------------------------- */

static bool do_step(struct checker *checker, const struct tti_step *step)
{
    switch ((enum tti_step_kind)step->kind) {
    case TTI_STEP_ENTER: enter(checker); return true;
    case TTI_STEP_PUBLISH: publish(checker, step->value); return true;
    case TTI_STEP_LEAVE: publish(checker, TTI_LEFT); return true;
    case TTI_STEP_WAIT:
        return step->peer == TTI_ALL ? see_all(checker, step->value) : see(checker, step->peer, step->value);
    case TTI_STEP_COPY: copy(checker, step); return true;
    case TTI_STEP_REDUCE: reduce(checker, step); return true;
    case TTI_STEP_PREFIX: prefix(checker, step); return true;
    default: exchange(checker, step); return true;
    }
}

static void check_block(struct checker *checker, const struct conf_block *block, struct cell *out)
{
    for (size_t i = 0; i < block->count; i++) {
        size_t index = block->source + i;
        uint64_t wanted = block->from < 0 ? symbol(REDUCED, block->last, index) : symbol(INPUT, block->from, index);
        struct cell *cell = &out[block->target + i];
        if (cell->symbol != wanted) report(checker, "element %zu of the output is wrong at the end", block->target + i);
        if (cell->writes > 1)
            report(checker, "element %zu of the output was written %u times", block->target + i, cell->writes);
        cell->writes = 0;
    }
}

/* At the end of an operation: outputs are right, nothing else was written, and the caller takes its buffers back. */
static void end_op(struct checker *checker)
{
    int me = checker->at_rank, op_index = checker->ranks[me].op;
    const struct conf_layout *layout = &op_of(checker)->layouts[me];
    struct user *user = &checker->users[op_index][me];
    for (int i = 0; i < layout->blocks; i++) check_block(checker, &layout->block[i], user->memory.cells + user->out);
    for (size_t i = 0; i < user->memory.count && !checker->wrong; i++) {
        struct cell *cell = &user->memory.cells[i];
        if (cell->writes > 0) report(checker, "cell %zu is not of the output, and was written", i);
        claim_cell(checker, cell);
        cell->symbol = symbol(REUSED, 0, 0);
    }
    if (op_of(checker)->one.kind != TTI_BARRIER) return;
    for (int rank = 0; rank < checker->size; rank++)
        if (rank != me && (!checker->ranks[rank].entered[op_index] ||
                           checker->ranks[me].clock.of[rank] < checker->ranks[rank].entry[op_index].of[rank]))
            report(checker, "leaves the barrier without having heard of rank %d", rank);
}

static bool open_slot(struct checker *checker)
{
    int op = checker->ranks[checker->at_rank].op;
    for (int peer = 0; peer < checker->size && op >= SLOTS; peer++)
        if (peer != checker->at_rank && !see_entry(checker, peer, op - SLOTS + 1)) return false;
    return true;
}

static void begin_op(struct checker *checker)
{
    struct rank *rank = &checker->ranks[checker->at_rank];
    const struct plan_check_op *op = op_of(checker);
    bool meets = op->path != TTI_STAGED;
    rank->step = 0;
    rank->phase = meets ? MEETING : RUNNING;
    if (meets) enter(checker);
}

/* One step further; false: nothing can be done now. */
static bool advance(struct checker *checker, int at_rank)
{
    checker->at_rank = at_rank;
    struct rank *rank = &checker->ranks[at_rank];
    if (rank->phase == DONE) return false;
    if (rank->phase == OPENING) {
        if (!open_slot(checker)) return false;
        begin_op(checker);
        return true;
    }
    if (rank->phase == MEETING) {
        if (!see_all(checker, 0)) return false;
        rank->phase = RUNNING;
        return true;
    }
    const struct tti_plan *plan = &op_of(checker)->plans[at_rank];
    if (rank->step < plan->count) {
        if (!do_step(checker, &plan->steps[rank->step])) return false;
        rank->step++;
        return true;
    }
    end_op(checker);
    rank->op++;
    rank->phase = rank->op < checker->op_count ? OPENING : DONE;
    return true;
}

static bool advance_some(struct checker *checker, enum plan_check_order order, uint64_t *state)
{
    bool moved = false;
    int first = (int)(*state % (uint64_t)checker->size);
    *state = conf_hash(*state, 17);
    for (int i = 0; i < checker->size && !checker->wrong; i++) {
        int rank = (i + (order == PLAN_CHECK_ROUND_ROBIN ? 0 : first)) % checker->size;
        bool now = advance(checker, rank);
        moved = moved || now;
        if (order == PLAN_CHECK_RANDOM && now) return true;
        while (order == PLAN_CHECK_ONE_FIRST && now && !checker->wrong) now = advance(checker, rank);
    }
    return moved;
}

/* ---- From start to end ----------------------------------------------------------------------------------------- */

static void renew(struct memory *memory, size_t count, size_t most)
{
    if (memory->cells == NULL) memory->cells = calloc(most, sizeof *memory->cells);
    memset(memory->cells, 0, memory->touched * sizeof *memory->cells);
    memory->count = count;
    memory->touched = 0;
}

static void make_user(struct checker *checker, int op_index, int rank)
{
    const struct plan_check_op *op = checker->ops[op_index];
    const struct conf_layout *layout = &op->layouts[rank];
    struct user *user = &checker->users[op_index][rank];
    size_t both = layout->in_count > layout->out_count ? layout->in_count : layout->out_count;
    size_t count = op->in_place[rank] ? both : layout->in_count + layout->out_count + 1;
    renew(&user->memory, count, count + 1);
    user->out = op->in_place[rank] ? 0 : layout->in_count + 1;
    if (op->in_place[rank] && layout->inside == CONF_IN_INSIDE) user->in = layout->own;
    if (op->in_place[rank] && layout->inside == CONF_OUT_INSIDE) user->out = layout->own;
    for (size_t i = 0; i < layout->in_count && layout->in_used; i++) {
        struct cell *cell = &user->memory.cells[user->in + i];
        cell->symbol = symbol(INPUT, rank, i);
    }
    for (size_t i = 0; i < user->memory.count; i++) { /* the caller wrote them before the call */
        user->memory.cells[i].writer = rank + 1;
        user->memory.cells[i].written = (uint32_t)op_index; /* any number below the entry's clock */
    }
}

static void make_all(struct checker *checker)
{
    size_t bounce = checker->ops[0]->bounce_bytes, element = checker->ops[0]->element;
    for (int rank = 0; rank < checker->size; rank++) {
        checker->ranks[rank].clock.of[rank] = 1;
        renew(&bounces[rank], bounce / element, bounce);
        size_t stage = element > TTI_PAYLOAD_BYTES ? 1 + (TTI_STAGE_ROOM) / element : TTI_STAGE_BYTES / element;
        for (int slot = 0; slot < SLOTS; slot++) renew(&stages[slot][rank], stage, TTI_STAGE_BYTES);
        for (int op = 0; op < checker->op_count; op++) make_user(checker, op, rank);
    }
}

static void free_all(struct checker *checker)
{
    for (int rank = 0; rank < checker->size; rank++) {
        free(checker->ranks[rank].published);
        for (int op = 0; op < checker->op_count; op++) free(checker->users[op][rank].memory.cells);
    }
    free(checker);
}

const char *plan_check_run(struct plan_check_op *const *ops, int count, enum plan_check_order order, uint64_t seed)
{
    struct checker *checker = calloc(1, sizeof *checker);
    checker->ops = ops;
    checker->op_count = count;
    checker->size = ops[0]->size;
    make_all(checker);
    while (!checker->wrong && advance_some(checker, order, &seed)) continue;
    for (int rank = 0; rank < checker->size && !checker->wrong; rank++) {
        checker->at_rank = rank;
        if (checker->ranks[rank].phase != DONE) report(checker, "waits for ever");
    }
    bool wrong = checker->wrong;
    free_all(checker);
    return wrong ? problem : NULL;
}
