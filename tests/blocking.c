/* SPDX-License-Identifier: Apache-2.0
 *
 * The model of a program of blocking calls, and running programs to compare them with it.
 */
#include "blocking.h"

#include "ranks.h"
#include "sim_setup.h"
#include <stdlib.h>
#include <string.h>

/* ---- The model --------------------------------------------------------------------------------------------------- */

enum { QUEUE = BLOCKING_CALLS * BLOCKING_LETTERS, STEPS_MOST = 20000 };

struct model {
    const struct blocking_program *program;
    bool broadcasts_meet; /* a broadcast waits for all ranks, and not only for its root */
    bool between_waits;   /* a message of BLOCKING_BETWEEN waits for its receive */
    bool ends_well, deadlocks;
    unsigned enders; /* see blocking_enders */
    int steps;
};

/* A message that was not received: what it is, and which letter of its sender's call. */
struct queued {
    int8_t tag, letter;
    bool waits;
};

struct state {
    int8_t at[BLOCKING_RANKS], collectives[BLOCKING_RANKS];
    bool begun[BLOCKING_RANKS];
    bool done[BLOCKING_RANKS][BLOCKING_LETTERS]; /* of the present call */
    int8_t queued[BLOCKING_RANKS][BLOCKING_RANKS];
    struct queued queue[BLOCKING_RANKS][BLOCKING_RANKS][QUEUE]; /* from, to */
};

static const struct blocking_call *call_of(const struct model *model, const struct state *state, int rank)
{
    return state->at[rank] < model->program->count[rank] ? &model->program->calls[rank][state->at[rank]] : NULL;
}

static void begin(const struct model *model, struct state *state, int rank)
{
    const struct blocking_call *call = call_of(model, state, rank);
    state->begun[rank] = true;
    if (call->kind != BLOCKING_MESSAGE) state->collectives[rank]++;
    for (int i = 0; i < call->count; i++) {
        const struct blocking_letter *letter = &call->letters[i];
        bool waits = letter->size == BLOCKING_LARGE || (letter->size == BLOCKING_BETWEEN && model->between_waits);
        state->done[rank][i] = letter->sends && !waits;
        if (letter->sends)
            state->queue[rank][letter->peer][state->queued[rank][letter->peer]++] = (struct queued){letter->tag,
                                                                                                    (int8_t)i, waits};
    }
}

/* The first that fits in what `from` has sent, or -1. */
static int find(const struct state *state, const struct blocking_letter *letter, int from, int to)
{
    for (int i = 0; i < state->queued[from][to]; i++)
        if (letter->tag == BLOCKING_ANY || state->queue[from][to][i].tag == letter->tag) return i;
    return -1;
}

static void take(struct state *state, int from, int to, int index, int letter)
{
    struct queued *queue = state->queue[from][to];
    if (queue[index].waits) state->done[from][queue[index].letter] = true;
    memmove(&queue[index], &queue[index + 1], (size_t)(--state->queued[from][to] - index) * sizeof *queue);
    state->done[to][letter] = true;
}

static bool has_met(const struct model *model, const struct state *state, int rank)
{
    const struct blocking_call *call = call_of(model, state, rank);
    bool root_only = call->kind == BLOCKING_BROADCAST && !model->broadcasts_meet;
    if (call->kind == BLOCKING_MESSAGE || (root_only && call->root == rank)) return true;
    for (int other = 0; other < model->program->ranks; other++)
        if (state->collectives[other] < state->collectives[rank] && (!root_only || other == call->root)) return false;
    return true;
}

/* Does what can be done in one way only. */
static bool advance(const struct model *model, struct state *state, int rank)
{
    const struct blocking_call *call = call_of(model, state, rank);
    if (call == NULL) return false;
    bool moved = !state->begun[rank], ended = true;
    if (moved) begin(model, state, rank);
    for (int i = 0; i < call->count; i++) {
        const struct blocking_letter *letter = &call->letters[i];
        bool looks = !letter->sends && !state->done[rank][i] && letter->peer != BLOCKING_ANY;
        int index = looks ? find(state, letter, letter->peer, rank) : -1;
        if (index >= 0) take(state, letter->peer, rank, index, i);
        moved = moved || index >= 0;
        ended = ended && state->done[rank][i];
    }
    if (!ended || !has_met(model, state, rank)) return moved;
    state->at[rank]++;
    state->begun[rank] = false;
    return true;
}

static void explore(struct model *model, struct state *state);

/* A receive from any rank may get any of those messages that fit. It is looked at when nothing else can go on, since what else
 * has come by then does not depend on it, but for other such receives: of these any may be the first. */
static bool choose(struct model *model, struct state *state, int rank)
{
    const struct blocking_call *call = call_of(model, state, rank);
    bool any = false;
    if (call == NULL || call->count != 1 || call->letters[0].peer != BLOCKING_ANY) return false;
    for (int source = 0; source < model->program->ranks; source++) {
        int index = source == rank ? -1 : find(state, &call->letters[0], source, rank);
        if (index < 0) continue;
        struct state next = *state;
        take(&next, source, rank, index, 0);
        explore(model, &next);
        any = true;
    }
    return any;
}

/* Nothing goes on any more. */
static void conclude(struct model *model, const struct state *state)
{
    unsigned enders = 0, all = (1U << model->program->ranks) - 1;
    bool begun = true;
    for (int rank = 0; rank < model->program->ranks; rank++) {
        if (call_of(model, state, rank) == NULL) enders |= 1U << rank;
        begun = begun && state->at[rank] + 1 >= model->program->count[rank];
    }
    if (begun) model->enders |= enders;
    model->ends_well = model->ends_well || enders == all;
    model->deadlocks = model->deadlocks || enders != all;
}

static void explore(struct model *model, struct state *state)
{
    bool moved = true, chose = false;
    if (++model->steps > STEPS_MOST) {
        model->ends_well = model->deadlocks = true;
        return;
    }
    while (moved) {
        moved = false;
        for (int rank = 0; rank < model->program->ranks; rank++) moved = advance(model, state, rank) || moved;
    }
    for (int rank = 0; rank < model->program->ranks; rank++) chose = choose(model, state, rank) || chose;
    if (!chose) conclude(model, state);
}

unsigned blocking_enders(const struct blocking_program *program)
{
    struct model model = {.program = program};
    struct state state = {0};
    explore(&model, &state);
    return model.enders;
}

/* What broadcasts and some messages wait for is the library's choice: the truth is what holds whatever it chooses. */
enum blocking_truth blocking_truth(const struct blocking_program *program)
{
    bool ends_well = false, deadlocks = false;
    for (int choice = 0; choice < 4; choice++) {
        struct model model = {
            .program = program, .broadcasts_meet = (choice & 1) != 0, .between_waits = (choice & 2) != 0};
        struct state state = {0};
        explore(&model, &state);
        ends_well = ends_well || model.ends_well;
        deadlocks = deadlocks || model.deadlocks;
    }
    if (!deadlocks) return BLOCKING_WELL;
    return ends_well ? BLOCKING_EITHER : BLOCKING_DEADLOCK;
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

enum { BATCH = 400, LARGE_BYTES = 70000, BETWEEN_BYTES = 40000, REDUCED_BYTES = 600000 };
#define AT_ONCE_NS INT64_C(1000000000)
#define SLOW_NS INT64_C(60000000000)

struct result {
    tutti_status status; /* of the last call */
    tutti_status freed;  /* of freeing the comm; IN_PROGRESS: the rank did not come so far */
    int done;            /* calls */
    int64_t took_ns;
    char text[480];
};

bool blocking_slowly = false;
static struct blocking_program batch[BATCH];
static struct result (*results)[BLOCKING_RANKS];
static char *memory[BLOCKING_RANKS];
static int batched;
static long ran, truths[3];

static tutti_status play_letter(tutti_comm *comm, const struct blocking_letter *letter, int place)
{
    static const size_t bytes[] = {8, BETWEEN_BYTES, LARGE_BYTES};
    char *buffer = memory[tutti_rank(comm)] + place * LARGE_BYTES;
    int tag = letter->tag == BLOCKING_ANY ? TUTTI_ANY_TAG : letter->tag;
    int peer = letter->peer == BLOCKING_ANY ? TUTTI_ANY_SOURCE : letter->peer;
    if (letter->sends) return tutti_send(comm, buffer, bytes[letter->size], TUTTI_U8, peer, tag);
    return tutti_recv(comm, buffer, LARGE_BYTES, TUTTI_U8, peer, tag, NULL);
}

static tutti_status play_letters(tutti_comm *comm, const struct blocking_call *call)
{
    if (call->count == 1) return play_letter(comm, &call->letters[0], 0);
    tutti_status status = tutti_group_begin(comm);
    for (int i = 0; i < call->count && status == TUTTI_OK; i++) status = play_letter(comm, &call->letters[i], i);
    return status == TUTTI_OK ? tutti_group_end(comm) : status;
}

static tutti_status play(tutti_comm *comm, const struct blocking_call *call)
{
    char *buffer = memory[tutti_rank(comm)];
    if (call->late_ms > 0) tutti_spend_ns(call->late_ms * MS);
    switch ((enum blocking_kind)call->kind) {
    case BLOCKING_MESSAGE: return play_letters(comm, call);
    case BLOCKING_BARRIER: return tutti_barrier(comm);
    case BLOCKING_BROADCAST: return tutti_broadcast(comm, buffer, buffer, 8, TUTTI_U8, call->root);
    case BLOCKING_ALL_REDUCE: return tutti_all_reduce(comm, buffer, buffer, REDUCED_BYTES, TUTTI_U8, TUTTI_MAX);
    }
    return TUTTI_ERR_ARGUMENT;
}

/* Each program on a comm of its own, which a rank frees when it has ended its part: for the others it has left then. */
static int play_batch(tutti_comm *world, void *context)
{
    int rank = tutti_rank(world);
    (void)context;
    for (int i = 0; i < batched; i++) {
        const struct blocking_program *program = &batch[i];
        struct result *result = &results[i][rank];
        tutti_comm *comm;
        if (tutti_comm_duplicate(world, &comm) != TUTTI_OK) return tutti_explain(world, stdout);
        int64_t began = tutti_clock_ns();
        *result = (struct result){.freed = TUTTI_IN_PROGRESS};
        while (result->done < program->count[rank] && result->status == TUTTI_OK)
            result->status = play(comm, &program->calls[rank][result->done++]);
        if (result->status != TUTTI_OK) snprintf(result->text, sizeof result->text, "%s", tutti_comm_error(comm)->text);
        result->took_ns = tutti_clock_ns() - began;
        result->freed = tutti_comm_free(comm);
    }
    return 0;
}

static void print_call(const struct blocking_call *call)
{
    static const char *const names[] = {"", " barrier", " broadcast", " all_reduce"};
    static const char *const sizes[] = {"", " between", " large"};
    if (call->late_ms > 0) printf(" +%d", call->late_ms);
    printf("%s", names[call->kind]);
    if (call->kind == BLOCKING_BROADCAST) printf(" %d", call->root);
    for (int i = 0; i < call->count; i++) {
        const struct blocking_letter *letter = &call->letters[i];
        printf("%s %s %d tag %d%s", i == 0 ? "" : " with", letter->sends ? "send" : "recv", letter->peer, letter->tag,
               letter->sends ? sizes[letter->size] : "");
    }
    printf(";");
}

static int64_t lateness(const struct blocking_program *program)
{
    int64_t all = 0;
    for (int rank = 0; rank < program->ranks; rank++)
        for (int i = 0; i < program->count[rank]; i++) all += program->calls[rank][i].late_ms;
    return all * MS;
}

/* Who has ended its part may have done so before the others were told. */
static bool is_right(const struct blocking_program *program, const struct result *ranks, enum blocking_truth truth,
                     bool slow)
{
    int told = 0, wrong = 0;
    int64_t limit = lateness(program) + (slow ? SLOW_NS : AT_ONCE_NS);
    for (int rank = 0; rank < program->ranks; rank++) {
        tutti_status status = ranks[rank].status;
        told += status != TUTTI_OK;
        wrong += ranks[rank].freed == TUTTI_IN_PROGRESS || ranks[rank].took_ns > limit ||
                 (status != TUTTI_OK && status != TUTTI_ERR_MISMATCH && status != TUTTI_ERR_BROKEN);
    }
    if (wrong > 0) return false;
    return truth == BLOCKING_WELL ? told == 0 : truth == BLOCKING_EITHER || told > 0;
}

static void judge(const struct blocking_program *program, const struct result *ranks, int hosts, bool slow)
{
    static const char *const truths_text[] = {"goes well", "deadlocks", "may do either"};
    enum blocking_truth truth = blocking_truth(program);
    bool right = is_right(program, ranks, truth, slow);
    if (CHECK(right) || check_failed() > 5) return;
    printf("on %d %shosts, a program that %s:\n", hosts, slow ? "slow " : "", truths_text[truth]);
    for (int rank = 0; rank < program->ranks; rank++) {
        printf("  rank %d:", rank);
        for (int i = 0; i < program->count[rank]; i++) print_call(&program->calls[rank][i]);
        printf("\n    %d calls, %s after %.3f s: %s\n", ranks[rank].done, tutti_status_name(ranks[rank].status),
               (double)ranks[rank].took_ns / 1e9, ranks[rank].text);
    }
}

/* A slow network has things on their way for longer than it takes to look who waits for whom, large ones longer yet. */
static void run_batch_on(int hosts, bool slow)
{
    static const tutti_sim_point delay[] = {
        {0, 0}, {BETWEEN_BYTES - 1, 0}, {BETWEEN_BYTES, 100 * MS}, {2 * BETWEEN_BYTES, 100 * MS}};
    tutti_sim_setup setup = sim_setup(batch[0].ranks / hosts, (uint64_t)ran);
    tutti_error error;
    setup.hosts = hosts;
    setup.noise_ns = slow ? 3 * MS : 200;
    if (slow) {
        setup.link_latency_ns = 15 * MS;
        setup.link_bytes_per_s = 4e6;
        setup.local_bytes_per_s = 4e5;
        setup.delay = delay;
        setup.delay_count = sizeof delay / sizeof *delay;
    }
    memset(results, 0, BATCH * sizeof *results);
    for (int i = 0; i < batched; i++)
        for (int rank = 0; rank < batch[i].ranks; rank++) results[i][rank].freed = TUTTI_IN_PROGRESS;
    tutti_status status = tutti_sim_run(&setup, play_batch, NULL, NULL, &error);
    CHECK(status == TUTTI_OK);
    if (status != TUTTI_OK) printf("%s\n", error.text);
    for (int i = 0; i < batched; i++) judge(&batch[i], results[i], hosts, slow);
}

static void make_room(void)
{
    if (results == NULL) results = calloc(BATCH, sizeof *results);
    for (int rank = 0; rank < BLOCKING_RANKS; rank++)
        if (memory[rank] == NULL) memory[rank] = calloc(1, REDUCED_BYTES);
}

static void run_batch(void)
{
    if (batched == 0) return;
    make_room();
    for (int slow = 0; slow < (blocking_slowly ? 2 : 1); slow++) {
        run_batch_on(1, slow != 0);
        run_batch_on(batch[0].ranks, slow != 0);
        if (batch[0].ranks % 2 == 0 && batch[0].ranks > 2) run_batch_on(2, slow != 0);
    }
    for (int i = 0; i < batched; i++) truths[blocking_truth(&batch[i])]++;
    ran += batched;
    batched = 0;
}

void blocking_add(const struct blocking_program *program)
{
    if (batched == BATCH || (batched > 0 && batch[0].ranks != program->ranks)) run_batch();
    batch[batched++] = *program;
}

void blocking_end(const char *what)
{
    run_batch();
    printf("%s: %ld, of which %ld go well, %ld deadlock, and %ld may do either\n", what, ran, truths[0], truths[1],
           truths[2]);
    ran = truths[0] = truths[1] = truths[2] = 0;
}
