/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=300 labels=asan
 *
 * Host-aware plans: every covered operation, on random layouts of ranks on hosts, checked without running them
 * (message_check.h) and run on real data against the serial reference; what travels is counted.
 */
#include "check.h"
#include "message_check.h"
#include "plan_run.h"

#include <stdlib.h>
#include <string.h>

enum { NEVER = 1 << 30, DATA_COUNT = 6000 };

/* ---- Subtrees -------------------------------------------------------------------------------------------------- */

static bool covers(const int *host_of, int host, int first, int last)
{
    for (int rank = first; rank < last; rank++)
        if (host_of[rank] != host) return false;
    return true;
}

/* The same by recursion. */
static int collect(const int *host_of, int host, int first, int last, struct tti_subtree *list, int used)
{
    if (covers(host_of, host, first, last)) {
        list[used] = (struct tti_subtree){first, last - first, host};
        return used + 1;
    }
    if (last - first == 1) return used;
    int half = 1;
    while (half * 2 < last - first) half *= 2;
    used = collect(host_of, host, first, first + half, list, used);
    return collect(host_of, host, first + half, last, list, used);
}

static void check_subtrees(const int *host_of, int size, int hosts)
{
    struct tti_subtree wanted[CONF_RANKS_MOST], got[CONF_RANKS_MOST];
    for (int host = 0; host < hosts; host++) {
        int count = collect(host_of, host, 0, size, wanted, 0);
        bool same = tti_subtrees(host_of, size, host, got) == count;
        for (int i = 0; i < count && same; i++)
            same = got[i].first == wanted[i].first && got[i].ranks == wanted[i].ranks && got[i].owner == host;
        CHECK_THAT(same, "the subtrees of host %d of %d, %d ranks", host, hosts, size);
    }
}

/* Ranges of ranks are a layout of two hosts. */
static void check_ranges(int size)
{
    int host_of[CONF_RANKS_MOST];
    struct tti_subtree wanted[CONF_RANKS_MOST], got[CONF_RANKS_MOST];
    for (int first = 0; first < size; first++)
        for (int last = first + 1; last <= size; last++) {
            for (int rank = 0; rank < size; rank++) host_of[rank] = rank >= first && rank < last ? 0 : 1;
            int count = collect(host_of, 0, 0, size, wanted, 0);
            bool same = tti_subtrees_of_range(first, last, size, got) == count;
            CHECK_THAT(same && memcmp(got, wanted, (size_t)count * sizeof *got) == 0,
                       "the subtrees of %d to %d, %d ranks", first, last - 1, size);
        }
}

/* ---- Layouts --------------------------------------------------------------------------------------------------- */

/* Side by side, round robin, or anyhow; every number of hosts. */
static void lay_out(int *host_of, int size, int hosts, uint64_t seed)
{
    uint64_t how = conf_hash(seed, 2) % 3;
    for (int rank = 0; rank < size; rank++) {
        host_of[rank] = how == 0 ? rank * hosts / size : rank % hosts;
        if (how == 2) host_of[rank] = (int)(conf_hash(seed, 100 + (uint64_t)rank) % (uint64_t)hosts) * 7 - 3;
    }
}

static const enum tti_kind covered[] = {TTI_BARRIER,          TTI_ALL_REDUCE, TTI_REDUCE,    TTI_REDUCE_SCATTER,
                                        TTI_REDUCE_SCATTER_V, TTI_BROADCAST,  TTI_ALL_GATHER};
enum { COVERED = sizeof covered / sizeof *covered };

/* An operation, and its phases for one window. */
struct subject {
    struct plan_check_op op;
    struct tti_hosts hosts;
    uint64_t tables[CONF_RANKS_MOST * 4];
    struct tti_plan plans[CONF_RANKS_MOST][TTI_PHASES];
    struct tti_shape shapes[CONF_RANKS_MOST];
};

static struct subject *make(enum tti_kind kind, int size, size_t count, uint64_t seed)
{
    struct subject *subject = calloc(1, sizeof *subject);
    struct plan_check_op *op = &subject->op;
    uint64_t hash = conf_hash(seed, 3);
    int host_of[CONF_RANKS_MOST];
    lay_out(host_of, size, 1 + (int)(hash % (uint64_t)size), seed);
    if (tti_hosts_make(&subject->hosts, host_of, size) != TUTTI_OK) exit(2);
    op->one = (struct conf_case){.kind = kind, .count = count, .seed = seed, .root = (int)(hash >> 20) & 15};
    op->one.root %= size;
    op->one.place = (enum conf_place)(hash / 64 % CONF_PLACES);
    op->path = TTI_MESSAGES;
    op->size = size;
    op->tuning = plan_check_tuning(hash >> 24, 512);
    return subject;
}

static void drop(struct subject *subject)
{
    for (int rank = 0; rank < subject->op.size; rank++)
        for (int phase = 0; phase < TTI_PHASES; phase++) tti_plan_free(&subject->plans[rank][phase]);
    plan_check_free(&subject->op);
    tti_hosts_free(&subject->hosts);
    free(subject);
}

/* Once element, accumulator and scaled are set. */
static void fill_shapes(struct subject *subject)
{
    struct plan_check_op *op = &subject->op;
    if (!plan_check_build(op)) exit(2); /* for its layouts */
    for (int rank = 0; rank < op->size; rank++) {
        subject->shapes[rank] = plan_check_shape(op, rank);
        if (op->one.kind != TTI_REDUCE_SCATTER_V) continue;
        for (int to = 0; to < op->size; to++) {
            subject->tables[to] = op->layouts[0].in_counts[to];
            subject->tables[op->size + to] = op->layouts[0].in_offsets[to];
        }
        subject->shapes[rank].tables = subject->tables;
    }
}

static void build(struct subject *subject, struct tti_part_of_all window)
{
    for (int rank = 0; rank < subject->op.size; rank++)
        for (int phase = 0; phase < TTI_PHASES; phase++)
            if (tti_hosts_build(&subject->plans[rank][phase], &subject->hosts, &subject->shapes[rank],
                                (enum tti_phase)phase, window) != TUTTI_OK)
                exit(2);
}

static void describe(const struct subject *subject, char *text, size_t bytes)
{
    const struct plan_check_op *op = &subject->op;
    int length = snprintf(text, bytes, "%s, %zu elements of %zu bytes (%zu)%s, root %d, place %d, seed %llu, hosts",
                          tti_kind_name(op->one.kind), op->one.count, op->element, op->accumulator,
                          op->scaled ? ", scaled" : "", op->one.root, (int)op->one.place,
                          (unsigned long long)op->one.seed);
    for (int rank = 0; rank < op->size; rank++)
        length += snprintf(text + length, bytes - (size_t)length, " %d", subject->hosts.host_of[rank]);
}

/* ---- Without running ------------------------------------------------------------------------------------------- */

static void check_plan(enum tti_kind kind, int size, size_t count, uint64_t seed)
{
    static const size_t formats[][2] = {{4, 4}, {2, 4}, {8, 8}, {1, 8}};
    struct subject *subject = make(kind, size, count, seed);
    const size_t *format = formats[conf_hash(seed, 8) % 4];
    char text[400];
    subject->op.element = format[0];
    subject->op.accumulator = format[1];
    subject->op.scaled = conf_hash(seed, 8) >> 20 & 1;
    fill_shapes(subject);
    build(subject, (struct tti_part_of_all){0, tti_hosts_bytes(&subject->hosts, &subject->shapes[0])});
    describe(subject, text, sizeof text);
    const char *problem = message_check_hosts(&subject->op, &subject->hosts, subject->plans, seed);
    CHECK_THAT(problem == NULL, "%s: %s", text, problem);
    check_subtrees(subject->hosts.host_of, size, subject->hosts.count);
    drop(subject);
}

/* ---- Meetings -------------------------------------------------------------------------------------------------- */

/* Where a rank's buffers begin, in one memory. */
struct lies {
    size_t in, out;
};

static struct lies lies_at(const struct plan_check_op *op, int rank)
{
    const struct conf_layout *layout = &op->layouts[rank];
    struct lies lies = {0, op->in_place[rank] ? 0 : (layout->in_count + 1) * op->element};
    if (op->in_place[rank] && layout->inside == CONF_IN_INSIDE) lies.in = layout->own * op->element;
    if (op->in_place[rank] && layout->inside == CONF_OUT_INSIDE) lies.out = layout->own * op->element;
    return lies;
}

/* What a rank reads or writes in which phase, counted through all windows. */
struct access {
    int by, of, turn;
    bool writes;
    uint64_t begin, end;
};

enum { ACCESSES_MOST = 4096, TEMP_AT = 1 << 30 };

static struct {
    struct access list[ACCESSES_MOST];
    int count;
} accesses;

static uint64_t address_of(const struct subject *subject, const struct tti_region *at)
{
    struct lies lies = lies_at(&subject->op, at->rank);
    return at->offset + (at->space == TTI_IN ? lies.in : at->space == TTI_OUT ? lies.out : TEMP_AT);
}

static void note(const struct subject *subject, struct access access, const struct tti_region *at, uint64_t bytes)
{
    if (bytes == 0) return;
    if (accesses.count == ACCESSES_MOST) exit(2);
    access.of = at->rank;
    access.begin = address_of(subject, at);
    access.end = access.begin + bytes;
    accesses.list[accesses.count++] = access;
}

static void note_step(const struct subject *subject, const struct tti_plan *plan, const struct tti_step *step, int by,
                      int turn)
{
    struct access reads = {.by = by, .turn = turn}, writes = {.by = by, .turn = turn, .writes = true};
    uint64_t partial = step->bytes / subject->op.element * subject->op.accumulator;
    switch ((enum tti_step_kind)step->kind) {
    case TTI_STEP_FOLD:
        for (int i = 0; i < step->sources; i++) {
            const struct tti_part *part = &plan->parts[step->first + (uint32_t)i];
            note(subject, reads, &part->at, part->partial ? partial : step->bytes);
        }
        note(subject, writes, &step->target, step->value == 0 ? partial : step->bytes);
        break;
    case TTI_STEP_COPY: /* in place: to where it is */
        if (step->source.rank == by && address_of(subject, &step->source) == address_of(subject, &step->target)) break;
        note(subject, reads, &step->source, step->bytes);
        note(subject, writes, &step->target, step->bytes);
        break;
    case TTI_STEP_SEND: note(subject, reads, &step->source, step->bytes); break;
    case TTI_STEP_RECV: note(subject, writes, &step->target, step->bytes); break;
    default: break;
    }
}

static bool meet_between(enum tti_kind kind, int earlier, int later)
{
    for (int turn = earlier + 1; turn <= later; turn++)
        if (tti_hosts_meet(kind, (enum tti_phase)(turn % TTI_PHASES))) return true;
    return false;
}

/* Nobody writes what another reads or writes, unless their host has met in between. */
static bool disturbs(enum tti_kind kind, const struct access *one, const struct access *other)
{
    if (one->by == other->by || one->of != other->of || !(one->writes || other->writes)) return false;
    if (one->begin >= other->end || other->begin >= one->end) return false;
    return one->turn < other->turn ? !meet_between(kind, one->turn, other->turn)
                                   : !meet_between(kind, other->turn, one->turn);
}

static void note_window(const struct subject *subject, int turn)
{
    for (int rank = 0; rank < subject->op.size; rank++)
        for (int phase = 0; phase < TTI_PHASES; phase++) {
            const struct tti_plan *plan = &subject->plans[rank][phase];
            for (size_t i = 0; i < plan->count; i++) note_step(subject, plan, &plan->steps[i], rank, turn + phase);
        }
}

static void check_meetings(enum tti_kind kind, int size, uint64_t seed)
{
    enum { WINDOW = 64 };
    struct subject *subject = make(kind, size, 1 + conf_hash(seed, 6) % 48, seed);
    char text[400];
    subject->op.element = 4;
    subject->op.accumulator = conf_hash(seed, 8) % 2 == 0 ? 4 : 8;
    fill_shapes(subject);
    uint64_t bytes = tti_hosts_bytes(&subject->hosts, &subject->shapes[0]);
    accesses.count = 0;
    for (uint64_t begin = 0, turn = 0; begin < bytes; begin += WINDOW, turn += TTI_PHASES) {
        build(subject, (struct tti_part_of_all){begin, bytes - begin < WINDOW ? bytes - begin : WINDOW});
        note_window(subject, (int)turn);
    }
    const struct access *bad = NULL;
    for (int i = 0; i < accesses.count && bad == NULL; i++)
        for (int k = 0; k < i && bad == NULL; k++)
            if (disturbs(kind, &accesses.list[i], &accesses.list[k])) bad = &accesses.list[i];
    describe(subject, text, sizeof text);
    CHECK_THAT(bad == NULL, "%s: rank %d disturbs another in phase %d of window %d", text, bad == NULL ? -1 : bad->by,
               bad == NULL ? -1 : bad->turn % TTI_PHASES, bad == NULL ? -1 : bad->turn / TTI_PHASES);
    drop(subject);
}

/* ---- Real data ------------------------------------------------------------------------------------------------- */

struct buffers {
    unsigned char *memory, *wanted, *temp;
    size_t bytes, in, out;
    struct tti_reducer reducer;
};

static void fill_buffers(const struct plan_check_op *op, const struct conf_table *table, int rank,
                         struct buffers *buffers)
{
    const struct conf_layout *layout = &op->layouts[rank];
    size_t element = op->element;
    struct lies lies = lies_at(op, rank);
    buffers->in = lies.in;
    buffers->out = lies.out;
    buffers->bytes = (layout->in_count + layout->out_count + 1) * element;
    buffers->memory = malloc(buffers->bytes);
    buffers->wanted = malloc(buffers->bytes);
    memset(buffers->memory, 0x5a, buffers->bytes);
    if (layout->in_used) memcpy(buffers->memory + buffers->in, table->in[rank], layout->in_count * element);
    memcpy(buffers->wanted, buffers->memory, buffers->bytes);
    for (int i = 0; i < layout->blocks; i++) {
        const struct conf_block *block = &layout->block[i];
        const unsigned char *from = block->from < 0 ? table->reduced[op->one.column][block->last]
                                                    : table->in[block->from];
        memcpy(buffers->wanted + buffers->out + block->target * element, from + block->source * element,
               block->count * element);
    }
}

/* Phase by phase; TEMP is kept from one to the next. */
static bool run_window(struct subject *subject, struct buffers *buffers, uint64_t seed)
{
    struct plan_run_rank ranks[CONF_RANKS_MOST];
    struct plan_check_op *op = &subject->op;
    bool ended = true;
    for (int rank = 0; rank < op->size; rank++) {
        uint64_t most = 0;
        for (int phase = 0; phase < TTI_PHASES; phase++)
            if (subject->plans[rank][phase].temp_bytes > most) most = subject->plans[rank][phase].temp_bytes;
        buffers[rank].temp = aligned_alloc(64, (most / 64 + 1) * 64);
        ranks[rank] = (struct plan_run_rank){.reducer = &buffers[rank].reducer,
                                             .element = op->element,
                                             .accumulator = op->accumulator,
                                             .in = buffers[rank].memory + buffers[rank].in,
                                             .out = buffers[rank].memory + buffers[rank].out,
                                             .temp = buffers[rank].temp};
    }
    for (int phase = 0; phase < TTI_PHASES; phase++) {
        for (int rank = 0; rank < op->size; rank++) ranks[rank].plan = &subject->plans[rank][phase];
        ended = ended && plan_run(ranks, op->size, seed++);
    }
    for (int rank = 0; rank < op->size; rank++) free(buffers[rank].temp);
    return ended;
}

static void run_data(struct subject *subject, struct conf_table *table)
{
    struct plan_check_op *op = &subject->op;
    struct buffers buffers[CONF_RANKS_MOST] = {0};
    char text[400];
    describe(subject, text, sizeof text);
    if (conf_kind_reduces(op->one.kind)) conf_table_reduce(table, op->one.column, op->size - 1);
    for (int rank = 0; rank < op->size; rank++) {
        fill_buffers(op, table, rank, &buffers[rank]);
        if (conf_kind_reduces(op->one.kind))
            (void)tti_reducer_init(&buffers[rank].reducer, op->one.type, conf_reduction(op->one.column, rank), NULL, 0);
    }
    uint64_t bytes = tti_hosts_bytes(&subject->hosts, &subject->shapes[0]), most = 64 * (1 + op->one.seed % 40);
    for (uint64_t begin = 0; begin < bytes; begin += most) {
        build(subject, (struct tti_part_of_all){begin, bytes - begin < most ? bytes - begin : most});
        CHECK_THAT(run_window(subject, buffers, op->one.seed + begin), "%s: waits for ever", text);
    }
    for (int rank = 0; rank < op->size; rank++) {
        CHECK_THAT(memcmp(buffers[rank].memory, buffers[rank].wanted, buffers[rank].bytes) == 0,
                   "%s, %s of %s: rank %d", text, conf_column_name(op->one.column), tutti_type_name(op->one.type),
                   rank);
        free(buffers[rank].memory);
        free(buffers[rank].wanted);
    }
}

static void check_data(enum tti_kind kind, tutti_type type, int column, struct conf_table *table, uint64_t seed)
{
    uint64_t hash = conf_hash(seed, 9);
    int size = 1 + (int)(hash % CONF_RANKS_MOST);
    size_t most = DATA_COUNT / 2 / (conf_kind_has_blocks(kind) ? (size_t)size : 1);
    struct subject *subject = make(kind, size, hash / 4096 % (most + 1), seed);
    struct tti_reducer reducer = {0};
    if (conf_kind_reduces(kind)) (void)tti_reducer_init(&reducer, type, conf_reduction(column, 0), NULL, 0);
    subject->op.one.type = type;
    subject->op.one.column = column;
    subject->op.element = tutti_type_bytes(type);
    subject->op.accumulator = conf_kind_reduces(kind) ? tti_accumulator_bytes(&reducer) : 1;
    subject->op.scaled = conf_kind_reduces(kind) && column == CONF_SCALED;
    fill_shapes(subject);
    run_data(subject, table);
    drop(subject);
}

static void check_all_data(uint64_t seed)
{
    conf_reference_prepare();
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        struct conf_table table;
        conf_table_fill(&table, (tutti_type)type, CONF_RANKS_MOST, DATA_COUNT, seed + (uint64_t)type, CONF_WIDE);
        for (int i = 1; i < COVERED; i++)
            for (int column = 0; column < (conf_kind_reduces(covered[i]) ? CONF_COLUMNS : 1); column++)
                for (int again = 0; again < (SANITIZED ? 1 : 3) && conf_defined((tutti_type)type, column); again++)
                    check_data(covered[i], (tutti_type)type, column, &table, seed++);
        conf_table_free(&table);
    }
}

/* ---- What travels ---------------------------------------------------------------------------------------------- */

/* Ranks side by side, as many on each host: a host sends what one rank in its place would, spread over its ranks. */
static void check_traffic(int hosts, int each)
{
    uint64_t total = 0, most = 0, bytes = 4 << 20;
    struct subject *subject = make(TTI_ALL_REDUCE, hosts * each, bytes / 4, 1);
    int host_of[CONF_RANKS_MOST];
    for (int rank = 0; rank < hosts * each; rank++) host_of[rank] = rank / each;
    tti_hosts_free(&subject->hosts);
    if (tti_hosts_make(&subject->hosts, host_of, hosts * each) != TUTTI_OK) exit(2);
    subject->op.element = subject->op.accumulator = 4;
    subject->op.tuning = (tutti_tuning){
        .message_chunk = 1 << 18, .message_doubling = 1 << 20, .message_halving = NEVER};
    fill_shapes(subject);
    build(subject, (struct tti_part_of_all){0, bytes});
    for (int rank = 0; rank < hosts * each; rank++) {
        struct tti_cost cost = tti_plan_cost(&subject->plans[rank][TTI_BETWEEN], &subject->shapes[rank]);
        total += cost.bytes;
        if (cost.bytes > most) most = cost.bytes;
    }
    uint64_t wanted = 2 * (uint64_t)(hosts - 1) * bytes;
    CHECK_THAT(total == wanted, "%d hosts of %d ranks send %llu bytes, not %llu", hosts, each,
               (unsigned long long)total, (unsigned long long)wanted);
    CHECK_THAT(most <= wanted / (uint64_t)(hosts * each) + 8192, "%d hosts of %d ranks: one of them sends %llu bytes",
               hosts, each, (unsigned long long)most);
    drop(subject);
}

/* ---- Windows --------------------------------------------------------------------------------------------------- */

/* A plan's steps in order, with what an AGAIN repeats each time it is done. */
struct reader {
    const struct tti_plan *plan;
    size_t step;
    uint32_t turn, numbers, rounds;
    uint64_t shift;
};

static const struct tti_step *read_step(struct reader *reader)
{
    const struct tti_step *step = &reader->plan->steps[reader->step];
    while (reader->step < reader->plan->count && step->kind == TTI_STEP_AGAIN) {
        bool again = ++reader->turn < step->value;
        reader->step = again ? step->first : reader->step + 1;
        reader->numbers = again ? reader->numbers + (uint32_t)step->sources : 0;
        reader->shift = again ? reader->shift + step->bytes : 0;
        if (!again) reader->turn = 0;
        reader->rounds++;
        step = &reader->plan->steps[reader->step];
    }
    if (reader->step >= reader->plan->count) return NULL;
    reader->step++;
    return step;
}

static bool same_region(const struct reader *reader, const struct tti_region *got, const struct tti_region *wanted)
{
    uint64_t shift = got->space == TTI_TEMP ? 0 : reader->shift;
    return got->rank == wanted->rank && got->space == wanted->space && got->offset + shift == wanted->offset;
}

static bool same_parts(const struct reader *reader, const struct tti_step *got, const struct tti_plan *phase,
                       const struct tti_step *wanted)
{
    if (got->sources != wanted->sources || got->value != wanted->value) return false;
    for (int i = 0; i < wanted->sources; i++)
        if (!same_region(reader, &reader->plan->parts[got->first + (uint32_t)i].at,
                         &phase->parts[wanted->first + (uint32_t)i].at))
            return false;
    return true;
}

/* Of the phase of one window: as the plan of the whole has it. `before`: receives or sends of the phases before. */
static bool same_step(const struct reader *reader, const struct tti_step *got, const struct tti_plan *phase,
                      const struct tti_step *wanted, uint32_t before)
{
    enum tti_step_kind kind = (enum tti_step_kind)wanted->kind;
    if (got == NULL || got->kind != wanted->kind) return false;
    if (kind == TTI_STEP_AWAIT || kind == TTI_STEP_DRAIN) return got->value == wanted->value + before;
    if (got->bytes != wanted->bytes) return false;
    bool sends = kind == TTI_STEP_SEND, receives = kind == TTI_STEP_RECV;
    if ((sends || receives) && got->peer != wanted->peer) return false;
    if ((sends || kind == TTI_STEP_COPY) && !same_region(reader, &got->source, &wanted->source)) return false;
    if (!sends && !same_region(reader, &got->target, &wanted->target)) return false;
    return kind != TTI_STEP_FOLD || same_parts(reader, got, phase, wanted);
}

static bool is_number(const struct reader *reader, const struct tti_step *step, enum tti_step_kind kind,
                      uint32_t number)
{
    return step != NULL && step->kind == kind && step->value + reader->numbers == number;
}

/* One window of the whole, phase by phase; false: they differ. */
static bool check_window(struct reader *reader, const struct tti_hosts *hosts, const struct tti_shape *shape,
                         struct tti_part_of_all window, uint32_t *number)
{
    struct tti_plan plan = {0};
    uint32_t sends = 0, receives = 0;
    bool same = true;
    for (int phase = 0; phase < TTI_PHASES && same; phase++) {
        if (tti_hosts_build(&plan, hosts, shape, (enum tti_phase)phase, window) != TUTTI_OK) exit(2);
        if (tti_hosts_meet(shape->kind, (enum tti_phase)phase) && (window.begin > 0 || phase > 0)) {
            same = is_number(reader, read_step(reader), TTI_STEP_PUBLISH, ++*number);
            same = same && is_number(reader, read_step(reader), TTI_STEP_WAIT, *number);
        }
        uint32_t sent = sends, received = receives;
        for (size_t i = 0; i < plan.count && same; i++) {
            const struct tti_step *wanted = &plan.steps[i];
            same = same_step(reader, read_step(reader), &plan, wanted,
                             wanted->kind == TTI_STEP_AWAIT ? received : sent);
            sends += wanted->kind == TTI_STEP_SEND;
            receives += wanted->kind == TTI_STEP_RECV;
        }
    }
    tti_plan_free(&plan);
    return same;
}

/* The plan of a whole operation is that of its windows, one after the other, but shorter. */
static void check_windows(enum tti_kind kind, const struct tti_hosts *hosts, size_t element, uint64_t windows,
                          uint64_t rest)
{
    static const tutti_tuning tuning = {.message_chunk = 1 << 18, .message_halving = 4};
    struct tti_shape shape = {.kind = kind,
                              .path = TTI_MESSAGES,
                              .size = hosts->size,
                              .root = hosts->size - 1,
                              .element = element,
                              .accumulator = element < 4 ? 4 : element,
                              .tuning = &tuning};
    uint64_t most = tti_hosts_window(hosts, &shape), bytes = windows * most + rest * element;
    shape.count = bytes / element;
    for (shape.rank = 0; shape.rank < hosts->size; shape.rank++) {
        struct tti_plan plan = {0};
        if (tti_hosts_build_all(&plan, hosts, &shape) != TUTTI_OK) exit(2);
        struct reader reader = {.plan = &plan, .step = 2};
        uint32_t number = 0;
        bool same = plan.steps[0].kind == TTI_STEP_ENTER && plan.steps[1].kind == TTI_STEP_WAIT;
        for (uint64_t begin = 0; begin < bytes && same; begin += most)
            same = check_window(&reader, hosts, &shape,
                                (struct tti_part_of_all){begin, bytes - begin < most ? bytes - begin : most}, &number);
        const struct tti_step *leave = read_step(&reader), *wait = read_step(&reader);
        same = same && leave != NULL && leave->kind == TTI_STEP_LEAVE && wait != NULL && wait->kind == TTI_STEP_WAIT;
        CHECK_THAT(
            same && read_step(&reader) == NULL && reader.shift == 0,
            "%s of %llu windows and %llu elements of %zu bytes: rank %d of %d on %d hosts differs at step %zu, turn %u",
            tti_kind_name(kind), (unsigned long long)windows, (unsigned long long)rest, element, shape.rank,
            hosts->size, hosts->count, reader.step, reader.turn);
        CHECK_THAT(windows < 4 || reader.rounds >= windows, "%s of %llu windows goes round %u times",
                   tti_kind_name(kind), (unsigned long long)windows, reader.rounds);
        tti_plan_free(&plan);
    }
}

static void check_all_windows(void)
{
    static const enum tti_kind kinds[] = {TTI_ALL_REDUCE, TTI_REDUCE, TTI_REDUCE_SCATTER};
    static const int layouts[][8] = {{0, 0, 1, 1, 2, 2, 3, 3}, {0, 1, 0, 1, 2, 0, 2, 2}};
    for (int i = 0; i < 2; i++) {
        struct tti_hosts hosts;
        if (tti_hosts_make(&hosts, layouts[i], 8) != TUTTI_OK) exit(2);
        for (int k = 0; k < 3; k++) {
            check_windows(kinds[k], &hosts, 4, 1, 0);
            check_windows(kinds[k], &hosts, 4, 2, 0);
            check_windows(kinds[k], &hosts, 2, 4, 77);
            check_windows(kinds[k], &hosts, 8, 1, 1);
        }
        tti_hosts_free(&hosts);
    }
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000003 : 1;
    for (int size = 1; size <= CONF_RANKS_MOST; size++)
        for (int i = 0; i < COVERED; i++)
            for (int again = 0; again < (SANITIZED ? 6 : 30); again++)
                check_plan(covered[i], size, conf_hash(seed, 6) % (again % 2 == 0 ? 12 : 500), seed + 1), seed++;
    for (int size = 2; size <= 8; size++)
        for (int i = 1; i < COVERED; i++)
            for (int again = 0; again < 20; again++) check_meetings(covered[i], size, seed++);
    for (int size = 1; size <= CONF_RANKS_MOST; size++) check_ranges(size);
    check_all_data(seed);
    check_traffic(2, 2);
    check_traffic(4, 4);
    check_traffic(3, 4);
    check_all_windows();
    return check_end();
}
