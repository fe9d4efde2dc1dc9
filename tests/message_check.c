/* SPDX-License-Identifier: Apache-2.0 */
#include "message_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Symbols --------------------------------------------------------------------------------------------------- */

enum symbol_kind { NOTHING, INPUT, PARTIAL, RESULT };

/* `word`: which of the cells that a partial's element takes. */
static uint64_t symbol(enum symbol_kind kind, int first, int ranks, size_t word, size_t index)
{
    return (uint64_t)kind << 60 | (uint64_t)first << 52 | (uint64_t)ranks << 44 | (uint64_t)word << 40 |
           (uint64_t)index;
}

/* ---- State ----------------------------------------------------------------------------------------------------- */

struct cell {
    uint64_t symbol;
    size_t sending;   /* number + 1 of the last message that reads it */
    size_t receiving; /* likewise of the one that writes it; 0 once awaited */
    bool written;
    int written_in, read_in; /* epoch, by the owner and by others */
};

struct memory {
    struct cell *cells;
    size_t count;
};

struct clock {
    uint32_t of[CONF_RANKS_MOST];
};

/* A message, from the moment one side has posted it. */
struct message {
    int from, to;
    bool sent, received, awaited, drained;
    uint64_t sent_bytes, received_bytes;
    struct cell *source, *target;
    uint64_t *symbols;   /* of its data */
    struct clock clock;  /* of the sender, when it was posted */
    uint32_t awaited_at; /* the receiver's time */
    size_t *overwrites;  /* messages that may still be reading where this one goes */
    size_t overwrite_count;
};

struct rank {
    const struct tti_plan *plan;
    struct memory user, temp;
    size_t in, out; /* where the buffers lie in `user` */
    struct clock clock;
    size_t step;
    size_t *sends, *receives; /* numbers of messages, in order of posting */
    size_t sent, received, awaited, drained;
};

/* Messages of one rank to another, in order. */
struct pair {
    size_t *numbers;
    size_t count, sent, received;
};

struct checker {
    const struct plan_check_op *op;
    const struct tti_hosts *hosts; /* NULL: messages only */
    int phase;                     /* enum tti_phase, and 1 more */
    int epoch;                     /* meetings of a host's ranks, and 1 more */
    struct pair pairs[CONF_RANKS_MOST][CONF_RANKS_MOST];
    struct rank ranks[CONF_RANKS_MOST];
    struct message *messages;
    size_t count, capacity;
    bool wrong;
    int at_rank;
};

static char problem[512];

static void report(struct checker *checker, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void report(struct checker *checker, const char *format, ...)
{
    if (checker->wrong) return;
    checker->wrong = true;
    int length = snprintf(problem, sizeof problem, "rank %d, step %zu: ", checker->at_rank,
                          checker->ranks[checker->at_rank].step);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem + length, sizeof problem - (size_t)length, format, arguments);
    va_end(arguments);
}

static struct rank *self(struct checker *checker)
{
    return &checker->ranks[checker->at_rank];
}

/* ---- Cells ----------------------------------------------------------------------------------------------------- */

static bool still_sending(const struct checker *checker, const struct cell *cell)
{
    return cell->sending != 0 && !checker->messages[cell->sending - 1].drained;
}

static uint64_t read_cell(struct checker *checker, struct cell *cell)
{
    if (cell->receiving != 0) report(checker, "reads where data may be arriving");
    if (cell->symbol == NOTHING) report(checker, "reads what nobody wrote");
    bool foreign = cell < self(checker)->user.cells || cell >= self(checker)->user.cells + self(checker)->user.count;
    foreign = foreign &&
              (cell < self(checker)->temp.cells || cell >= self(checker)->temp.cells + self(checker)->temp.count);
    if (foreign && cell->written_in == checker->epoch) report(checker, "reads what another rank may be writing");
    if (foreign) cell->read_in = checker->epoch;
    return cell->symbol;
}

static void write_cell(struct checker *checker, struct cell *cell, uint64_t value)
{
    if (cell->receiving != 0) report(checker, "writes where data may be arriving");
    if (still_sending(checker, cell)) report(checker, "writes what may still be sent");
    if (cell->read_in == checker->epoch) report(checker, "writes what another rank may be reading");
    cell->symbol = value;
    cell->written = true;
    cell->written_in = checker->epoch;
}

/* Ranks of a host reach each other's memory for reading, where no messages are under way. */
static bool in_reach(const struct checker *checker, int rank, bool write)
{
    const struct tti_hosts *hosts = checker->hosts;
    if (rank == checker->at_rank) return true;
    if (hosts == NULL || write || checker->phase == TTI_BETWEEN + 1) return false;
    return hosts->host_of[rank] == hosts->host_of[checker->at_rank];
}

/* The cells of a region; NULL (and a report) if it is not one. */
static struct cell *region(struct checker *checker, const struct tti_region *where, uint64_t bytes, size_t alignment,
                           bool write)
{
    const struct plan_check_op *op = checker->op;
    const struct conf_layout *layout = &op->layouts[where->rank];
    struct rank *rank = &checker->ranks[where->rank];
    struct memory *memory = &rank->user;
    size_t base = 0, limit = 0;
    if (!in_reach(checker, where->rank, write)) report(checker, "reaches for memory of rank %d", (int)where->rank);
    if (where->space == TTI_IN) base = rank->in, limit = layout->in_used ? layout->in_count : 0;
    if (where->space == TTI_OUT) base = rank->out, limit = layout->out_used ? layout->out_count : 0;
    if (where->space == TTI_TEMP) memory = &rank->temp, limit = memory->count;
    if (where->offset % alignment != 0 || bytes % alignment != 0)
        report(checker, "%llu bytes at %llu are not aligned to %zu", (unsigned long long)bytes,
               (unsigned long long)where->offset, alignment);
    if (where->offset + bytes > limit * op->element)
        report(checker, "%llu bytes at %llu of space %d, which has %zu", (unsigned long long)bytes,
               (unsigned long long)where->offset, (int)where->space, limit * op->element);
    return checker->wrong ? NULL : memory->cells + base + where->offset / op->element;
}

/* ---- Copies and folds ------------------------------------------------------------------------------------------ */

static void copy(struct checker *checker, const struct tti_step *step)
{
    size_t element = checker->op->element, count = step->bytes / element;
    struct cell *target = region(checker, &step->target, step->bytes, element, true);
    struct cell *source = region(checker, &step->source, step->bytes, element, false);
    if (checker->wrong || target == source) return;
    if (target < source + count && source < target + count) report(checker, "copies within itself");
    for (size_t i = 0; i < count && !checker->wrong; i++)
        write_cell(checker, &target[i], read_cell(checker, &source[i]));
}

static int half_of(int ranks)
{
    int half = 1;
    while (half * 2 < ranks) half *= 2;
    return half;
}

/* Whether these parts make up [first, last) as the canonical tree does. */
static bool is_tree(const struct tti_part *parts, int count, int first, int last)
{
    if (count == 0 || count > last - first) return false;
    if (count == 1) return parts->first == first && parts->first + parts->ranks == last;
    int middle = first + half_of(last - first), left = 0;
    while (left < count && parts[left].first < middle) left++;
    return is_tree(parts, left, first, middle) && is_tree(parts + left, count - left, middle, last);
}

static bool is_node(int first, int last, int size)
{
    int width = 1;
    while (width < last - first) width *= 2;
    return first % width == 0 && (last - first == width || last == size);
}

static void check_tree(struct checker *checker, const struct tti_step *step, const struct tti_part *parts)
{
    int first = parts[0].first, last = parts[step->sources - 1].first + parts[step->sources - 1].ranks;
    bool partial = step->value == 0;
    if (!is_tree(parts, step->sources, first, last)) report(checker, "the parts of a fold are no tree");
    if (partial && !is_node(first, last, checker->op->size))
        report(checker, "ranks %d to %d are no subtree", first, last - 1);
    if (!partial && (first != 0 || last != (int)step->value))
        report(checker, "a result over %d to %d is divided by %u", first, last - 1, step->value);
}

/* Reads element i of a part, which must be what it says, and of element `*index`. */
static void read_part(struct checker *checker, const struct tti_part *part, struct cell *cells, size_t i, size_t *index)
{
    size_t words = part->partial ? checker->op->accumulator / checker->op->element : 1;
    for (size_t word = 0; word < words && !checker->wrong; word++) {
        uint64_t value = read_cell(checker, &cells[i * words + word]);
        size_t of = (size_t)(value & ((UINT64_C(1) << 40) - 1));
        if (*index == SIZE_MAX) *index = of;
        uint64_t wanted = symbol(part->partial ? PARTIAL : INPUT, part->first, part->ranks, word, *index);
        if (value != wanted)
            report(checker, "what should be ranks %d to %d is not", (int)part->first,
                   (int)(part->first + part->ranks - 1));
    }
    if (!part->partial && checker->op->scaled && !in_reach(checker, part->first, false))
        report(checker, "scales a leaf of rank %d", (int)part->first);
}

static void fold(struct checker *checker, const struct tti_step *step, const struct tti_part *parts)
{
    const struct plan_check_op *op = checker->op;
    struct cell *sources[CONF_RANKS_MOST];
    size_t words = op->accumulator / op->element, count = step->bytes / op->element;
    if (step->sources < 1 || step->sources > op->size) report(checker, "folds %d parts", (int)step->sources);
    for (int k = 0; k < step->sources && !checker->wrong; k++)
        sources[k] = region(checker, &parts[k].at, step->bytes * (parts[k].partial ? words : 1),
                            parts[k].partial ? op->accumulator : op->element, false);
    bool partial = step->value == 0;
    struct cell *target = region(checker, &step->target, step->bytes * (partial ? words : 1),
                                 partial ? op->accumulator : op->element, true);
    if (!checker->wrong) check_tree(checker, step, parts);
    int ranks = checker->wrong ? 0 : parts[step->sources - 1].first + parts[step->sources - 1].ranks - parts[0].first;
    for (size_t i = 0; i < count && !checker->wrong; i++) {
        size_t index = SIZE_MAX;
        for (int k = 0; k < step->sources; k++) read_part(checker, &parts[k], sources[k], i, &index);
        for (size_t word = 0; word < (partial ? words : 1) && !checker->wrong; word++)
            write_cell(checker, &target[i * (partial ? words : 1) + word],
                       symbol(partial ? PARTIAL : RESULT, parts[0].first, ranks, word, index));
    }
}

/* ---- Messages -------------------------------------------------------------------------------------------------- */

/* The message of this pair that this side is the next to post. */
static size_t next_message(struct checker *checker, int from, int to, bool sends)
{
    struct pair *pair = &checker->pairs[from][to];
    size_t at = sends ? pair->sent++ : pair->received++;
    if (at < pair->count) return pair->numbers[at];
    if (checker->count == checker->capacity) {
        checker->capacity = checker->capacity * 2 + 64;
        checker->messages = realloc(checker->messages, checker->capacity * sizeof *checker->messages);
    }
    checker->messages[checker->count] = (struct message){.from = from, .to = to};
    pair->numbers = realloc(pair->numbers, (pair->count + 1) * sizeof *pair->numbers);
    pair->numbers[pair->count++] = checker->count;
    return checker->count++;
}

static bool is_peer(struct checker *checker, int peer)
{
    if (peer < 0 || peer >= checker->op->size || peer == checker->at_rank)
        report(checker, "posts a message with rank %d", peer);
    return !checker->wrong;
}

static void check_lengths(struct checker *checker, const struct message *message)
{
    if (message->sent && message->received && message->sent_bytes != message->received_bytes)
        report(checker, "rank %d sends %llu bytes to rank %d, which expects %llu", message->from,
               (unsigned long long)message->sent_bytes, message->to, (unsigned long long)message->received_bytes);
}

static void send(struct checker *checker, const struct tti_step *step)
{
    struct rank *rank = self(checker);
    size_t count = step->bytes / checker->op->element;
    struct cell *source = step->bytes == 0 ? NULL
                                           : region(checker, &step->source, step->bytes, checker->op->element, false);
    if (!is_peer(checker, step->peer)) return;
    size_t number = next_message(checker, checker->at_rank, step->peer, true);
    struct message *message = &checker->messages[number];
    message->symbols = calloc(count + 1, sizeof *message->symbols);
    for (size_t i = 0; i < count && !checker->wrong; i++) {
        message->symbols[i] = read_cell(checker, &source[i]);
        source[i].sending = number + 1; /* messages are drained in order: the last is enough to know */
    }
    rank->clock.of[checker->at_rank]++;
    message->clock = rank->clock;
    message->sent = true;
    message->source = source;
    message->sent_bytes = step->bytes;
    check_lengths(checker, message);
    rank->sends = realloc(rank->sends, (rank->sent + 1) * sizeof *rank->sends);
    rank->sends[rank->sent++] = number;
}

/* What is still being sent from here may be overwritten by what comes after it only: judged when that has come. */
static void note_overwrites(struct checker *checker, struct message *message, const struct cell *target, size_t count)
{
    const struct rank *rank = self(checker);
    for (size_t i = rank->drained; i < rank->sent; i++) {
        const struct message *sent = &checker->messages[rank->sends[i]];
        if (sent->sent_bytes == 0 || target >= sent->source + sent->sent_bytes / checker->op->element ||
            sent->source >= target + count)
            continue;
        size_t bytes = (message->overwrite_count + 1) * sizeof *message->overwrites;
        message->overwrites = realloc(message->overwrites, bytes);
        message->overwrites[message->overwrite_count++] = rank->sends[i];
    }
}

static void receive(struct checker *checker, const struct tti_step *step)
{
    struct rank *rank = self(checker);
    size_t count = step->bytes / checker->op->element;
    struct cell *target = step->bytes == 0 ? NULL
                                           : region(checker, &step->target, step->bytes, checker->op->element, true);
    if (step->target.space == TTI_IN) report(checker, "receives into its input");
    if (!is_peer(checker, step->peer)) return;
    size_t number = next_message(checker, step->peer, checker->at_rank, false);
    struct message *message = &checker->messages[number];
    for (size_t i = 0; i < count && !checker->wrong; i++) {
        if (target[i].receiving != 0) report(checker, "receives where other data may be arriving");
        target[i].receiving = number + 1;
    }
    if (count > 0 && !checker->wrong) note_overwrites(checker, message, target, count);
    message->received = true;
    message->received_bytes = step->bytes;
    message->target = target;
    check_lengths(checker, message);
    rank->receives = realloc(rank->receives, (rank->received + 1) * sizeof *rank->receives);
    rank->receives[rank->received++] = number;
}

static void arrive(struct checker *checker, struct message *message)
{
    struct rank *rank = self(checker);
    for (size_t i = 0; i < message->overwrite_count; i++) {
        const struct message *sent = &checker->messages[message->overwrites[i]];
        if (!sent->awaited || message->clock.of[sent->to] < sent->awaited_at)
            report(checker, "what comes from rank %d may overwrite what is still sent to rank %d", message->from,
                   sent->to);
    }
    for (size_t i = 0; i < message->sent_bytes / checker->op->element; i++) {
        message->target[i].symbol = message->symbols[i];
        message->target[i].receiving = 0;
        message->target[i].written = true;
    }
    for (int k = 0; k < CONF_RANKS_MOST; k++)
        if (message->clock.of[k] > rank->clock.of[k]) rank->clock.of[k] = message->clock.of[k];
    message->awaited = true;
    message->awaited_at = rank->clock.of[checker->at_rank];
}

static bool await(struct checker *checker, uint32_t value)
{
    struct rank *rank = self(checker);
    if (value > rank->received) report(checker, "awaits %u receives of %zu", value, rank->received);
    for (size_t i = rank->awaited; i < value && !checker->wrong; i++)
        if (!checker->messages[rank->receives[i]].sent) return false;
    rank->clock.of[checker->at_rank]++;
    for (; rank->awaited < value && !checker->wrong; rank->awaited++)
        arrive(checker, &checker->messages[rank->receives[rank->awaited]]);
    return true;
}

static bool drain(struct checker *checker, uint32_t value)
{
    struct rank *rank = self(checker);
    if (value > rank->sent) report(checker, "drains %u sends of %zu", value, rank->sent);
    for (size_t i = rank->drained; i < value && !checker->wrong; i++)
        if (!checker->messages[rank->sends[i]].received) return false;
    for (; rank->drained < value && !checker->wrong; rank->drained++)
        checker->messages[rank->sends[rank->drained]].drained = true;
    return true;
}

/* ---- A rank, step by step -------------------------------------------------------------------------------------- */

static bool do_step(struct checker *checker, const struct tti_plan *plan, const struct tti_step *step)
{
    switch ((enum tti_step_kind)step->kind) {
    case TTI_STEP_COPY: copy(checker, step); return true;
    case TTI_STEP_FOLD: fold(checker, step, plan->parts + step->first); return true;
    case TTI_STEP_SEND: send(checker, step); return true;
    case TTI_STEP_RECV: receive(checker, step); return true;
    case TTI_STEP_AWAIT: return await(checker, step->value);
    case TTI_STEP_DRAIN: return drain(checker, step->value);
    default: report(checker, "a step of kind %d is not for messages", (int)step->kind); return true;
    }
}

static bool advance(struct checker *checker, int at_rank)
{
    checker->at_rank = at_rank;
    struct rank *rank = self(checker);
    const struct tti_plan *plan = rank->plan;
    bool moved = false;
    while (rank->step < plan->count && !checker->wrong && do_step(checker, plan, &plan->steps[rank->step])) {
        rank->step++;
        moved = true;
    }
    return moved;
}

static void check_block(struct checker *checker, const struct conf_block *block, struct cell *out)
{
    for (size_t i = 0; i < block->count && !checker->wrong; i++) {
        size_t index = block->source + i;
        uint64_t wanted = block->from < 0 ? symbol(RESULT, 0, block->last + 1, 0, index)
                                          : symbol(INPUT, block->from, 1, 0, index);
        struct cell *cell = &out[block->target + i];
        if (cell->symbol != wanted) report(checker, "element %zu of the output is wrong at the end", block->target + i);
        cell->written = false;
    }
}

static void check_rank_end(struct checker *checker, int at_rank)
{
    checker->at_rank = at_rank;
    struct rank *rank = self(checker);
    const struct conf_layout *layout = &checker->op->layouts[at_rank];
    for (int i = 0; i < layout->blocks; i++) check_block(checker, &layout->block[i], rank->user.cells + rank->out);
    for (size_t i = 0; i < rank->user.count; i++)
        if (rank->user.cells[i].written) report(checker, "cell %zu is not of the output, and was written", i);
}

/* A barrier has no data: everyone must have heard of everyone. */
static void check_heard(struct checker *checker)
{
    for (int rank = 0; rank < checker->op->size; rank++)
        for (int other = 0; other < checker->op->size; other++)
            if (rank != other && checker->ranks[rank].clock.of[other] == 0)
                report(checker, "rank %d leaves the barrier without having heard of rank %d", rank, other);
}

/* The same of hosts: their first ranks have, and all ranks of a host meet. */
static void check_hosts_heard(struct checker *checker)
{
    const struct tti_hosts *hosts = checker->hosts;
    for (int host = 0; host < hosts->count; host++)
        for (int other = 0; other < hosts->count; other++) {
            int rank = hosts->ranks[hosts->first[host]], peer = hosts->ranks[hosts->first[other]];
            if (host != other && checker->ranks[rank].clock.of[peer] == 0)
                report(checker, "host %d leaves the barrier without having heard of host %d", host, other);
        }
}

/* ---- From start to end ----------------------------------------------------------------------------------------- */

static void make_rank(struct checker *checker, int at_rank, uint64_t temp_bytes)
{
    const struct plan_check_op *op = checker->op;
    const struct conf_layout *layout = &op->layouts[at_rank];
    struct rank *rank = &checker->ranks[at_rank];
    size_t both = layout->in_count > layout->out_count ? layout->in_count : layout->out_count;
    rank->user.count = op->in_place[at_rank] ? both : layout->in_count + layout->out_count + 1;
    rank->user.cells = calloc(rank->user.count + 1, sizeof *rank->user.cells);
    rank->temp.count = temp_bytes / op->element;
    rank->temp.cells = calloc(rank->temp.count + 1, sizeof *rank->temp.cells);
    rank->out = op->in_place[at_rank] ? 0 : layout->in_count + 1;
    if (op->in_place[at_rank] && layout->inside == CONF_IN_INSIDE) rank->in = layout->own;
    if (op->in_place[at_rank] && layout->inside == CONF_OUT_INSIDE) rank->out = layout->own;
    for (size_t i = 0; i < layout->in_count && layout->in_used; i++)
        rank->user.cells[rank->in + i].symbol = symbol(INPUT, at_rank, 1, 0, i);
}

static void free_all(struct checker *checker)
{
    for (int rank = 0; rank < checker->op->size; rank++) {
        free(checker->ranks[rank].user.cells);
        free(checker->ranks[rank].temp.cells);
        free(checker->ranks[rank].sends);
        free(checker->ranks[rank].receives);
    }
    for (int from = 0; from < checker->op->size; from++)
        for (int to = 0; to < checker->op->size; to++) free(checker->pairs[from][to].numbers);
    for (size_t i = 0; i < checker->count; i++) {
        free(checker->messages[i].symbols);
        free(checker->messages[i].overwrites);
    }
    free(checker->messages);
    free(checker);
}

/* Until all ranks are at the end of their plans, and have settled what they posted. */
static void run_plans(struct checker *checker, uint64_t seed)
{
    int size = checker->op->size;
    bool moved = true;
    while (moved && !checker->wrong) {
        moved = false;
        int first = (int)(conf_hash(seed++, 5) % (uint64_t)size);
        for (int k = 0; k < size && !checker->wrong; k++) moved = advance(checker, (first + k) % size) || moved;
    }
    for (int at_rank = 0; at_rank < size && !checker->wrong; at_rank++) {
        struct rank *rank = &checker->ranks[at_rank];
        checker->at_rank = at_rank;
        if (rank->step < rank->plan->count) report(checker, "waits for ever");
        if (rank->awaited != rank->received || rank->drained != rank->sent)
            report(checker, "ends with messages unsettled");
    }
}

static const char *finish(struct checker *checker)
{
    for (int rank = 0; rank < checker->op->size && !checker->wrong; rank++) check_rank_end(checker, rank);
    if (checker->op->one.kind == TTI_BARRIER)
        checker->hosts == NULL ? check_heard(checker) : check_hosts_heard(checker);
    bool wrong = checker->wrong;
    free_all(checker);
    return wrong ? problem : NULL;
}

const char *message_check_run(const struct plan_check_op *op, uint64_t seed)
{
    struct checker *checker = calloc(1, sizeof *checker);
    checker->op = op;
    checker->phase = TTI_BETWEEN + 1;
    checker->epoch = 1;
    for (int rank = 0; rank < op->size; rank++) {
        make_rank(checker, rank, op->plans[rank].temp_bytes);
        checker->ranks[rank].plan = &op->plans[rank];
    }
    run_plans(checker, seed);
    return finish(checker);
}

const char *message_check_hosts(const struct plan_check_op *op, const struct tti_hosts *hosts,
                                struct tti_plan (*plans)[TTI_PHASES], uint64_t seed)
{
    struct checker *checker = calloc(1, sizeof *checker);
    checker->op = op;
    checker->hosts = hosts;
    for (int rank = 0; rank < op->size; rank++) {
        uint64_t most = 0;
        for (int phase = 0; phase < TTI_PHASES; phase++)
            if (plans[rank][phase].temp_bytes > most) most = plans[rank][phase].temp_bytes;
        make_rank(checker, rank, most);
    }
    for (int phase = 0; phase < TTI_PHASES && !checker->wrong; phase++) {
        checker->phase = phase + 1;
        if (phase == 0 || tti_hosts_meet(op->one.kind, (enum tti_phase)phase)) checker->epoch++;
        for (int rank = 0; rank < op->size; rank++) {
            checker->ranks[rank].plan = &plans[rank][phase];
            checker->ranks[rank].step = 0;
        }
        run_plans(checker, seed);
    }
    return finish(checker);
}
