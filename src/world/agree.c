/* SPDX-License-Identifier: Apache-2.0 */
#include "world/agree.h"

#include "base/alloc.h"
#include <string.h>

enum type { GIVE = 1, VIEW, PROPOSE, ACKNOWLEDGE, COMMIT };

/* The form of all messages. Behind the fields are sets: who is gone, and who is lost, as the sender knows; for a
 * proposal also who took part, who was lost, and what each rank gave. */
struct message {
    uint32_t number, type, kind, outcome;
    int32_t ballot; /* the rank that made the proposal; -1: there is no proposal */
    int32_t peer;
    uint64_t value; /* GIVE: the value of the sender */
    uint64_t words[];
};

struct proposal {
    enum tti_agree_outcome outcome;
    int ballot, peer;
    uint64_t *present, *lost; /* sets */
    uint64_t *values;         /* (size) */
};

struct tti_agree {
    int rank, size;
    size_t set_words; /* words of a set of ranks */
    bool by_majority;
    tti_agree_send *send;
    void *context;
    struct message *out; /* messages are written here before they are sent */
    uint32_t number;     /* the number of the agreement that runs, or is next */
    bool started;        /* this rank takes part in that agreement */
    bool excluded;
    uint32_t kind;
    uint64_t *gone, *lost; /* sets: they only grow */
    int coordinator;       /* the rank to which this one has given its value; itself: it collects; -1: none yet */
    bool proposed;         /* this rank has made a proposal */
    uint64_t *given, *acknowledged; /* sets of ranks that gave, or acknowledged, to this rank */
    uint64_t *values;               /* (size) what they gave */
    uint32_t *kinds;                /* (size) in which call they gave it */
    struct proposal accepted, last; /* the latest proposal heard of; the outcome of the agreement before */
    uint64_t *memory;               /* all words of the sets and lists */
};

static bool has(const uint64_t *set, int rank)
{
    return (set[rank / 64] >> (rank % 64) & 1) != 0;
}

static void add(uint64_t *set, int rank)
{
    set[rank / 64] |= UINT64_C(1) << (rank % 64);
}

static void merge(uint64_t *set, const uint64_t *other, size_t words)
{
    for (size_t i = 0; i < words; i++) set[i] |= other[i];
}

/* ---- Making and freeing -------------------------------------------------------------------------------------------- */

static size_t set_words(int size)
{
    return ((size_t)size + 63) / 64;
}

size_t tti_agree_bytes(int size)
{
    return sizeof(struct message) + (4 * set_words(size) + (size_t)size) * sizeof(uint64_t);
}

static void lay_out(struct tti_agree *agree)
{
    uint64_t **sets[] = {
        &agree->gone,          &agree->lost,         &agree->given,    &agree->acknowledged, &agree->accepted.present,
        &agree->accepted.lost, &agree->last.present, &agree->last.lost};
    uint64_t **lists[] = {&agree->values, &agree->accepted.values, &agree->last.values};
    uint64_t *next = agree->memory;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++, next += agree->set_words) *sets[i] = next;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++, next += agree->size) *lists[i] = next;
}

struct tti_agree *tti_agree_create(int rank, int size, bool by_majority, tti_agree_send *send, void *context)
{
    struct tti_agree *agree = tti_calloc(1, sizeof *agree);
    if (agree == NULL) return NULL;
    *agree = (struct tti_agree){.rank = rank, .size = size, .set_words = set_words(size), .by_majority = by_majority};
    agree->send = send;
    agree->context = context;
    agree->coordinator = agree->accepted.ballot = agree->accepted.peer = agree->last.peer = -1;
    agree->number = 1;
    agree->memory = tti_calloc(8 * agree->set_words + 3 * (size_t)size, sizeof *agree->memory);
    agree->kinds = tti_calloc((size_t)size, sizeof *agree->kinds);
    agree->out = tti_calloc(1, tti_agree_bytes(size));
    if (agree->memory == NULL || agree->kinds == NULL || agree->out == NULL) {
        tti_agree_free(agree);
        return NULL;
    }
    lay_out(agree);
    return agree;
}

void tti_agree_free(struct tti_agree *agree)
{
    if (agree == NULL) return;
    tti_free(agree->memory);
    tti_free(agree->kinds);
    tti_free(agree->out);
    tti_free(agree);
}

/* ---- Sending ------------------------------------------------------------------------------------------------------- */

static void say(struct tti_agree *agree, int to, enum type type, uint32_t number, const struct proposal *proposal)
{
    struct message *out = agree->out;
    size_t words = agree->set_words, bytes = words * sizeof(uint64_t);
    *out = (struct message){.number = number, .type = type, .kind = agree->kind, .ballot = -1, .peer = -1};
    out->value = agree->values[agree->rank];
    memcpy(out->words, agree->gone, bytes);
    memcpy(out->words + words, agree->lost, bytes);
    memset(out->words + 2 * words, 0, 2 * bytes + (size_t)agree->size * sizeof(uint64_t));
    if (proposal != NULL) {
        out->outcome = proposal->outcome;
        out->ballot = proposal->ballot;
        out->peer = proposal->peer;
        memcpy(out->words + 2 * words, proposal->present, bytes);
        memcpy(out->words + 3 * words, proposal->lost, bytes);
        memcpy(out->words + 4 * words, proposal->values, (size_t)agree->size * sizeof(uint64_t));
    }
    agree->send(agree->context, to, out, tti_agree_bytes(agree->size));
}

/* Sends to all. `gone`: also to ranks that are gone, since one may live, and should hear that it is excluded. */
static void say_all(struct tti_agree *agree, enum type type, uint32_t number, const struct proposal *proposal,
                    bool gone)
{
    for (int rank = 0; rank < agree->size; rank++)
        if (rank != agree->rank && (gone || !has(agree->gone, rank))) say(agree, rank, type, number, proposal);
}

/* ---- Deciding ------------------------------------------------------------------------------------------------------ */

static void copy_proposal(const struct tti_agree *agree, struct proposal *to, const struct proposal *from)
{
    to->outcome = from->outcome;
    to->ballot = from->ballot;
    to->peer = from->peer;
    memcpy(to->present, from->present, agree->set_words * sizeof(uint64_t));
    memcpy(to->lost, from->lost, agree->set_words * sizeof(uint64_t));
    memcpy(to->values, from->values, (size_t)agree->size * sizeof(uint64_t));
}

/* The accepted proposal is the outcome: all are told, and the next agreement may begin. */
static void decide(struct tti_agree *agree)
{
    copy_proposal(agree, &agree->last, &agree->accepted);
    say_all(agree, COMMIT, agree->number, &agree->last, true);
    agree->number++;
    agree->started = agree->proposed = false;
    agree->coordinator = agree->accepted.ballot = -1;
    memset(agree->given, 0, agree->set_words * sizeof(uint64_t));
    memset(agree->acknowledged, 0, agree->set_words * sizeof(uint64_t));
}

/* ---- Coordinating -------------------------------------------------------------------------------------------------- */

/* Returns the first rank that is not gone and not in the set, or -1. */
static int find_missing(const struct tti_agree *agree, const uint64_t *set)
{
    for (int rank = 0; rank < agree->size; rank++)
        if (!has(agree->gone, rank) && !has(set, rank)) return rank;
    return -1;
}

static bool is_majority(const struct tti_agree *agree, const uint64_t *set)
{
    int count = 0;
    for (int rank = 0; rank < agree->size; rank++) count += has(set, rank);
    return 2 * count > agree->size || (2 * count == agree->size && has(set, 0));
}

static void make_proposal(struct tti_agree *agree, enum tti_agree_outcome outcome, int peer)
{
    struct proposal *made = &agree->accepted;
    made->outcome = outcome;
    made->peer = peer;
    memcpy(made->lost, agree->lost, agree->set_words * sizeof(uint64_t));
    memcpy(made->values, agree->values, (size_t)agree->size * sizeof(uint64_t));
    for (size_t i = 0; i < agree->set_words; i++) made->present[i] = agree->given[i] & ~agree->gone[i];
    for (int rank = 0; rank < agree->size && outcome == TTI_AGREED; rank++)
        if (has(made->present, rank) && agree->kinds[rank] != agree->kind) {
            made->outcome = TTI_AGREE_DIFFERS;
            made->peer = rank;
        }
    if (agree->by_majority && !is_majority(agree, made->present)) made->outcome = TTI_AGREE_EXCLUDED;
}

static void propose(struct tti_agree *agree)
{
    agree->proposed = true;
    agree->accepted.ballot = agree->rank;
    add(agree->acknowledged, agree->rank);
    say_all(agree, PROPOSE, agree->number, &agree->accepted, false);
}

/* Returns true if all have acknowledged the proposal. A rank that is late need not acknowledge that it is. */
static bool is_acknowledged(const struct tti_agree *agree)
{
    bool late = agree->accepted.outcome == TTI_AGREE_LATE;
    for (int rank = 0; rank < agree->size; rank++)
        if (!has(agree->gone, rank) && !has(agree->acknowledged, rank) && (!late || has(agree->given, rank)))
            return false;
    return true;
}

/* Ranks that took part may be given up before they have acknowledged: if too few are left, the others may go on without
 * this rank. */
static void finish(struct tti_agree *agree)
{
    if (agree->by_majority && agree->accepted.outcome == TTI_AGREED && !is_majority(agree, agree->acknowledged))
        agree->excluded = true;
    else
        decide(agree);
}

static void coordinate(struct tti_agree *agree)
{
    if (agree->coordinator != agree->rank) {
        agree->coordinator = agree->rank;
        add(agree->given, agree->rank);
        agree->kinds[agree->rank] = agree->kind;
        say_all(agree, VIEW, agree->number, NULL, false); /* asks ranks that do not know this coordinator to give */
    }
    if (!agree->proposed) {
        if (find_missing(agree, agree->given) >= 0) return;
        if (agree->accepted.ballot < 0) make_proposal(agree, TTI_AGREED, -1);
        propose(agree);
    }
    if (is_acknowledged(agree)) finish(agree);
}

/* Does what follows from the facts known now. */
static void go_on(struct tti_agree *agree)
{
    int lowest = 0;
    if (!agree->started || agree->excluded) return;
    while (has(agree->gone, lowest)) lowest++; /* ends at this rank at the latest */
    if (lowest == agree->rank) {
        coordinate(agree);
    } else if (agree->coordinator != lowest) {
        agree->coordinator = lowest;
        say(agree, lowest, GIVE, agree->number, agree->accepted.ballot < 0 ? NULL : &agree->accepted);
    }
}

/* ---- What happens -------------------------------------------------------------------------------------------------- */

uint32_t tti_agree_start(struct tti_agree *agree, uint32_t kind, uint64_t mine)
{
    uint32_t number = agree->number;
    agree->started = true;
    agree->kind = kind;
    agree->values[agree->rank] = mine;
    go_on(agree);
    return number;
}

void tti_agree_gone(struct tti_agree *agree, int rank, bool lost)
{
    if (rank == agree->rank || has(agree->gone, rank)) return;
    add(agree->gone, rank);
    if (lost) add(agree->lost, rank);
    go_on(agree);
}

static void accept(struct tti_agree *agree, const struct message *message)
{
    const uint64_t *words = message->words + 2 * agree->set_words;
    struct proposal proposal = {.outcome = (enum tti_agree_outcome)message->outcome,
                                .ballot = message->ballot,
                                .peer = message->peer,
                                .present = (uint64_t *)(uintptr_t)words,
                                .lost = (uint64_t *)(uintptr_t)(words + agree->set_words),
                                .values = (uint64_t *)(uintptr_t)(words + 2 * agree->set_words)};
    copy_proposal(agree, &agree->accepted, &proposal);
}

static void take(struct tti_agree *agree, int from, const struct message *message)
{
    bool newer = message->ballot >= agree->accepted.ballot && message->ballot >= 0;
    switch ((enum type)message->type) {
    case GIVE:
        add(agree->given, from);
        agree->values[from] = message->value;
        agree->kinds[from] = message->kind;
        if (newer && !agree->proposed) accept(agree, message);
        break;
    case PROPOSE:
        if (!newer) break;
        accept(agree, message);
        say(agree, from, ACKNOWLEDGE, agree->number, &agree->accepted);
        break;
    case ACKNOWLEDGE:
        if (message->ballot == agree->rank) add(agree->acknowledged, from);
        break;
    case COMMIT:
        accept(agree, message);
        decide(agree);
        break;
    case VIEW: break;
    }
}

void tti_agree_hear(struct tti_agree *agree, int from, const void *bytes_in, size_t bytes)
{
    const struct message *message = bytes_in;
    if (bytes != tti_agree_bytes(agree->size) || message->type < GIVE || message->type > COMMIT ||
        message->ballot >= agree->size || from == agree->rank)
        return;
    if (message->number + 1 == agree->number && message->type != COMMIT)
        say(agree, from, COMMIT, message->number, &agree->last); /* the sender has not heard the outcome */
    if (message->number != agree->number) return;
    if (message->type != COMMIT && has(agree->gone, from)) { /* the others go on without the sender */
        say(agree, from, VIEW, agree->number, NULL);
        return;
    }
    merge(agree->gone, message->words, agree->set_words);
    merge(agree->lost, message->words + agree->set_words, agree->set_words);
    if (has(agree->gone, agree->rank)) agree->excluded = true;
    if (!agree->excluded || message->type == COMMIT) take(agree, from, message);
    go_on(agree);
}

bool tti_agree_leads(const struct tti_agree *agree)
{
    return agree->started && agree->coordinator == agree->rank;
}

int tti_agree_awaited(const struct tti_agree *agree)
{
    if (!agree->started) return -1;
    if (agree->coordinator != agree->rank) return agree->coordinator;
    return find_missing(agree, agree->proposed ? agree->acknowledged : agree->given);
}

bool tti_agree_awaits(const struct tti_agree *agree, int rank)
{
    const uint64_t *came = agree->proposed ? agree->acknowledged : agree->given;
    bool waits = tti_agree_leads(agree) ? !has(came, rank) : rank == tti_agree_awaited(agree);
    return waits && !has(agree->gone, rank);
}

/* Gives up all ranks for which this one waits now, but none for which it will wait next. */
static void exclude(struct tti_agree *agree)
{
    for (int rank = 0; rank < agree->size; rank++) {
        if (!tti_agree_awaits(agree, rank)) continue;
        add(agree->gone, rank);
        add(agree->lost, rank);
    }
    go_on(agree);
}

int tti_agree_expire(struct tti_agree *agree, bool excludes)
{
    int awaited = tti_agree_awaited(agree);
    if (awaited < 0) return -1;
    if (excludes) {
        exclude(agree);
    } else if (agree->coordinator == agree->rank && !agree->proposed) {
        make_proposal(agree, TTI_AGREE_LATE, awaited);
        propose(agree);
        if (is_acknowledged(agree)) finish(agree);
    }
    return awaited;
}

/* ---- The outcome --------------------------------------------------------------------------------------------------- */

bool tti_agree_result(const struct tti_agree *agree, uint32_t number, struct tti_agree_result *result)
{
    const struct proposal *last = &agree->last;
    bool any = agree->number > 1, failed = any && last->outcome != TTI_AGREED;
    *result = (struct tti_agree_result){.outcome = last->outcome, .peer = last->peer, .values = last->values};
    if (failed || (any && number < agree->number && has(last->present, agree->rank))) return true;
    result->outcome = TTI_AGREE_EXCLUDED;
    result->peer = -1;
    return agree->excluded || (any && number < agree->number);
}

bool tti_agree_was_present(const struct tti_agree *agree, int rank)
{
    return has(agree->last.present, rank);
}

bool tti_agree_was_lost(const struct tti_agree *agree, int rank)
{
    return has(agree->last.lost, rank);
}
