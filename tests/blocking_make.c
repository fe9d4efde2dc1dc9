/* SPDX-License-Identifier: Apache-2.0
 *
 * Every small program of blocking calls, and random larger ones.
 */
#include "blocking.h"

#include <stdlib.h>
#include <string.h>

/* ---- Every one --------------------------------------------------------------------------------------------------- */

/* A program as a number: how many calls each rank has, three bits each, and from bit 9 on five bits for each call, those of
 * rank 0 first. Programs of a length are found from those that have one call less, by adding one where a rank has ended all of
 * its calls: so every call of every one is reached. */
enum { SMALL_RANKS = 3, TAGS = 2, RECV_CODE = 12, BARRIER_CODE = 20, CODES = 24 };

static struct blocking_call message_call(struct blocking_letter letter)
{
    return (struct blocking_call){.kind = BLOCKING_MESSAGE, .count = 1, .letters = {letter}};
}

static struct blocking_call call_of(int code)
{
    int recv = code - RECV_CODE;
    if (code < RECV_CODE)
        return message_call((struct blocking_letter){.sends = true,
                                                     .peer = (int8_t)(code / 4),
                                                     .tag = (int8_t)(code / 2 % 2),
                                                     .size = code % 2 != 0 ? BLOCKING_LARGE : BLOCKING_SMALL});
    if (code < BARRIER_CODE)
        return message_call((struct blocking_letter){.peer = (int8_t)(recv / TAGS - 1), .tag = (int8_t)(recv % TAGS)});
    if (code == BARRIER_CODE) return (struct blocking_call){.kind = BLOCKING_BARRIER};
    return (struct blocking_call){.kind = BLOCKING_BROADCAST, .root = (int8_t)(code - BARRIER_CODE - 1)};
}

static int code_of(const struct blocking_call *call, const int *rank_to, const int *tag_to)
{
    const struct blocking_letter *letter = &call->letters[0];
    if (call->kind == BLOCKING_BARRIER) return BARRIER_CODE;
    if (call->kind == BLOCKING_BROADCAST) return BARRIER_CODE + 1 + rank_to[call->root];
    int peer = letter->peer < 0 ? letter->peer : rank_to[letter->peer], tag = tag_to[letter->tag];
    return letter->sends ? peer * 4 + tag * 2 + (letter->size == BLOCKING_LARGE) : RECV_CODE + (peer + 1) * TAGS + tag;
}

static void decode(uint64_t number, int ranks, struct blocking_program *program)
{
    uint64_t calls = number >> 9;
    *program = (struct blocking_program){.ranks = ranks};
    for (int rank = 0; rank < ranks; rank++) {
        program->count[rank] = (int)(number >> (3 * rank) & 7);
        for (int i = 0; i < program->count[rank]; i++, calls >>= 5)
            program->calls[rank][i] = call_of((int)(calls & 31));
    }
}

static uint64_t encode_as(const struct blocking_program *program, const int *rank_to, const int *rank_from,
                          const int *tag_to)
{
    uint64_t number = 0;
    int shift = 9;
    for (int rank = 0; rank < program->ranks; rank++) {
        int old = rank_from[rank];
        number |= (uint64_t)program->count[old] << (3 * rank);
        for (int i = 0; i < program->count[old]; i++, shift += 5)
            number |= (uint64_t)code_of(&program->calls[old][i], rank_to, tag_to) << shift;
    }
    return number;
}

/* The least number of the same program with other numbers of ranks and tags. */
static uint64_t encode(const struct blocking_program *program)
{
    static const int orders[][SMALL_RANKS] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}};
    static const int tags[][TAGS] = {{0, 1}, {1, 0}};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < (program->ranks == 2 ? 2 : 6); i++) {
        int from[SMALL_RANKS];
        for (int rank = 0; rank < SMALL_RANKS; rank++) from[orders[i][rank]] = rank;
        for (int k = 0; k < TAGS; k++) {
            uint64_t number = encode_as(program, orders[i], from, tags[k]);
            if (number < least) least = number;
        }
    }
    return least;
}

struct numbers {
    uint64_t *all;
    size_t count, room;
};

static void put(struct numbers *numbers, uint64_t number)
{
    if (numbers->count == numbers->room) {
        numbers->room = numbers->room == 0 ? 4096 : 2 * numbers->room;
        numbers->all = realloc(numbers->all, numbers->room * sizeof *numbers->all);
        if (numbers->all == NULL) abort();
    }
    numbers->all[numbers->count++] = number;
}

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static void sort(struct numbers *numbers)
{
    size_t kept = 0;
    if (numbers->count > 0) qsort(numbers->all, numbers->count, sizeof *numbers->all, compare);
    for (size_t i = 0; i < numbers->count; i++)
        if (i == 0 || numbers->all[i] != numbers->all[i - 1]) numbers->all[kept++] = numbers->all[i];
    numbers->count = kept;
}

static bool is_collective(const struct blocking_call *call)
{
    return call->kind != BLOCKING_MESSAGE;
}

static const struct blocking_call *collective_of(const struct blocking_program *program, int rank, int index)
{
    for (int i = 0; i < program->count[rank]; i++)
        if (is_collective(&program->calls[rank][i]) && index-- == 0) return &program->calls[rank][i];
    return NULL;
}

/* Whether all ranks make the same collectives, as far as they get. */
static bool agrees(const struct blocking_program *program)
{
    for (int index = 0; index < BLOCKING_CALLS; index++) {
        const struct blocking_call *first = NULL;
        for (int rank = 0; rank < program->ranks; rank++) {
            const struct blocking_call *call = collective_of(program, rank, index);
            if (call == NULL) continue;
            if (first != NULL && (first->kind != call->kind || first->root != call->root)) return false;
            first = call;
        }
    }
    return true;
}

static bool makes_sense(const struct blocking_call *call, int rank, int ranks)
{
    if (is_collective(call)) return call->root < ranks;
    return call->letters[0].peer < ranks && call->letters[0].peer != rank;
}

static void extend(struct numbers *longer, uint64_t number, int ranks)
{
    struct blocking_program program;
    decode(number, ranks, &program);
    unsigned enders = blocking_enders(&program);
    for (int rank = 0; rank < ranks; rank++)
        for (int code = 0; code < CODES && (enders & 1U << rank) != 0; code++) {
            struct blocking_call call = call_of(code);
            if (!makes_sense(&call, rank, ranks)) continue;
            program.calls[rank][program.count[rank]++] = call;
            if (agrees(&program)) put(longer, encode(&program));
            program.count[rank]--;
        }
}

void blocking_every(int ranks, int calls)
{
    struct numbers now = {0}, longer = {0};
    put(&now, 0);
    for (int length = 1; length <= calls; length++) {
        for (size_t i = 0; i < now.count; i++) extend(&longer, now.all[i], ranks);
        sort(&longer);
        for (size_t i = 0; i < longer.count; i++) {
            struct blocking_program program;
            decode(longer.all[i], ranks, &program);
            blocking_add(&program);
        }
        free(now.all);
        now = longer;
        longer = (struct numbers){0};
    }
    free(now.all);
}

/* ---- Random ones ------------------------------------------------------------------------------------------------- */

static uint64_t random_state;

static int pick(int count)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((random_state >> 33) % (uint64_t)count);
}

static void append(struct blocking_program *program, int rank, struct blocking_call call)
{
    static const int16_t late_ms[] = {1, 5, 12, 25, 60, 300};
    if (pick(4) == 0) call.late_ms = late_ms[pick(6)];
    if (program->count[rank] < BLOCKING_CALLS) program->calls[rank][program->count[rank]++] = call;
}

static bool has_room(const struct blocking_program *program)
{
    for (int rank = 0; rank < program->ranks; rank++)
        if (program->count[rank] == BLOCKING_CALLS) return false;
    return true;
}

static struct blocking_letter random_letter(void)
{
    return (struct blocking_letter){.tag = (int8_t)pick(3), .size = (int8_t)pick(3)};
}

static void add_message(struct blocking_program *program, int from, int to)
{
    struct blocking_letter letter = random_letter();
    letter.sends = true;
    letter.peer = (int8_t)to;
    append(program, from, message_call(letter));
    letter.sends = false;
    letter.peer = (int8_t)(pick(5) == 0 ? BLOCKING_ANY : from);
    if (pick(8) == 0) letter.tag = BLOCKING_ANY;
    append(program, to, message_call(letter));
}

static void put_letter(struct blocking_call *call, struct blocking_letter letter)
{
    int at = pick(call->count + 1);
    memmove(&call->letters[at + 1], &call->letters[at], (size_t)(call->count++ - at) * sizeof letter);
    call->letters[at] = letter;
}

/* Groups of some ranks, with messages between them. */
static void add_exchange(struct blocking_program *program)
{
    struct blocking_call calls[BLOCKING_RANKS] = {0};
    for (int i = 1 + pick(2 * program->ranks); i > 0; i--) {
        int from = pick(program->ranks), to = (from + 1 + pick(program->ranks - 1)) % program->ranks;
        struct blocking_letter letter = random_letter();
        if (calls[from].count == BLOCKING_LETTERS || calls[to].count == BLOCKING_LETTERS) continue;
        letter.sends = true;
        letter.peer = (int8_t)to;
        put_letter(&calls[from], letter);
        letter.sends = false;
        letter.peer = (int8_t)from;
        put_letter(&calls[to], letter);
    }
    for (int rank = 0; rank < program->ranks; rank++)
        if (calls[rank].count > 0) append(program, rank, calls[rank]);
}

static void add_collective(struct blocking_program *program)
{
    struct blocking_call call = {.kind = (int8_t)(BLOCKING_BARRIER + pick(3))};
    if (call.kind == BLOCKING_BROADCAST) call.root = (int8_t)pick(program->ranks);
    for (int rank = 0; rank < program->ranks; rank++) append(program, rank, call);
}

/* One after the other they all come to an end, but for receives that take each other's messages. */
static void add_event(struct blocking_program *program)
{
    int what = pick(10), from = pick(program->ranks), to = (from + 1 + pick(program->ranks - 1)) % program->ranks;
    if (what < 6)
        add_message(program, from, to);
    else if (what < 8)
        add_exchange(program);
    else
        add_collective(program);
}

static void change(struct blocking_program *program)
{
    int rank = pick(program->ranks), count = program->count[rank];
    if (count < 2) return;
    int i = pick(count - 1);
    struct blocking_call *call = &program->calls[rank][i], next = call[1];
    switch (pick(4)) {
    case 0:
        call[1] = call[0];
        call[0] = next;
        break;
    case 1: call->letters[0].tag = (int8_t)pick(3); break;
    case 2: call->letters[0].size = (int8_t)pick(3); break;
    default: memmove(call, call + 1, (size_t)(count - i - 1) * sizeof *call); program->count[rank]--;
    }
}

void blocking_random(struct blocking_program *program, uint64_t seed)
{
    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    *program = (struct blocking_program){.ranks = 2 +
                                                  (int)(seed / 100 % (BLOCKING_RANKS - 1))}; /* one world for many */
    for (int events = 1 + pick(4 * program->ranks); events > 0 && has_room(program); events--) add_event(program);
    for (int changes = pick(4); changes > 0; changes--) {
        struct blocking_program changed = *program;
        change(&changed);
        if (agrees(&changed)) *program = changed;
    }
}
