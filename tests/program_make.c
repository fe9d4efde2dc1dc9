/* SPDX-License-Identifier: Apache-2.0 */
#include "check_program.h"

#include <stdio.h>
#include <string.h>

enum { LIVE_MOST = 6, OUT_MOST = 30, PREPARED_MOST = 5, BYTES_MOST = 400000 };
enum { HUGE_BYTES = 4 << 20, HUGE_MOST = 6 << 20, HUGE_RARE = 200 };
enum { ANNOUNCED_BYTES = 100000 }; /* what is not sent before it is received */
                                   /* from where on messages are sent by several streams */
enum standing {
    UNKNOWN,
    OUT,     /* started by all */
    HALF,    /* its other half is to be started */
    ASIDE,   /* a thread waits for it */
    IDLE,    /* prepared */
    DROPPED, /* on its way without a handle */
    GONE
};

struct maker {
    struct program *program;
    uint64_t drawn;
    enum standing standing[PROGRAM_ITEMS];
    const struct program_action *asides[PROGRAM_ASIDES];
    bool lent[PROGRAM_FAMILIES];     /* to a thread */
    bool withdrew[PROGRAM_FAMILIES]; /* sends were taken back, which others may not have heard of yet */
};

int program_pick(uint64_t seed, uint64_t what, int bound)
{
    return (int)(conf_hash(seed, what) % (uint64_t)bound);
}

static int draw(struct maker *maker, int bound)
{
    return program_pick(maker->program->seed, 1000 + maker->drawn++, bound);
}

static struct program_action *add(struct maker *maker, enum program_kind kind, int family)
{
    struct program *program = maker->program;
    struct program_action *action = &program->actions[program->action_count++];
    *action = (struct program_action){.kind = kind, .family = family, .other = -1};
    action->seed = conf_hash(program->seed, 500000 + (uint64_t)program->action_count);
    return action;
}

static void add_for(struct maker *maker, enum program_kind kind, const struct program_item *item,
                    enum standing standing)
{
    struct program_action *action = add(maker, kind, item->family);
    action->items[action->count++] = item->number;
    maker->standing[item->number] = standing;
}

static int any_family(struct maker *maker)
{
    struct program *program = maker->program;
    for (;;) {
        int family = draw(maker, program->family_count);
        if (program->families[family].live && !maker->lent[family]) return family;
    }
}

/* One whose comms have collectives. */
static int any_whole_family(struct maker *maker)
{
    for (;;) {
        int family = any_family(maker);
        if (!maker->program->families[family].tolerant) return family;
    }
}

static int count_standing(const struct maker *maker, enum standing standing)
{
    int count = 0;
    for (int i = 0; i < maker->program->item_count; i++) count += maker->standing[i] == standing;
    return count;
}

/* ---- Items ------------------------------------------------------------------------------------------------------- */

static struct program_item *new_item(struct maker *maker, enum program_content content, int family)
{
    struct program *program = maker->program;
    struct program_item *item = &program->items[program->item_count];
    *item = (struct program_item){.content = content, .number = program->item_count++, .family = family};
    item->seed = conf_hash(program->seed, 900000 + (uint64_t)item->number);
    item->one.seed = conf_hash(item->seed, 1) >> 8;
    item->one.type = (tutti_type)draw(maker, TUTTI_TYPE_COUNT);
    item->one.tuning = program->families[family].tuning;
    item->notified = program_pick(item->seed, 90, 4) == 0;
    return item;
}

struct conf_case program_case(const struct program_item *item, int piece, int group, int size)
{
    struct conf_case one = item->one;
    one.root = program_pick(item->seed, 2 + (uint64_t)group, size);
    one.seed += (uint64_t)group * 1000;
    if (item->content != CONTENT_MANY || piece == 0) return one;
    one.count = (size_t)program_pick(item->seed, 50 + (uint64_t)piece, (int)one.count + 1);
    if (program_pick(item->seed, 70 + (uint64_t)piece, 6) == 0) one.count = 0;
    return one;
}

static size_t span_of(const struct program *program, const struct program_item *item)
{
    const struct program_family *family = &program->families[item->family];
    size_t span = 0;
    for (int rank = 0; rank < program->size; rank++) {
        struct conf_layout layout;
        if (family->group[rank] < 0) continue;
        struct conf_case one = program_case(item, 0, family->group[rank], family->size[rank]);
        conf_layout_of(&one, family->size[rank], family->place[rank], &layout);
        if (layout.in_count > span) span = layout.in_count;
        if (layout.out_count > span) span = layout.out_count;
    }
    return span;
}

/* Small as a rule; around a switch-over; or large. */
static size_t any_count(struct maker *maker, const struct program_item *item, enum tti_kind kind)
{
    size_t counts[CONF_COUNTS_MOST];
    int how = draw(maker, 20), size = maker->program->size;
    if (how < 8) return (size_t)draw(maker, 20);
    if (how < 14) return (size_t)draw(maker, 600);
    bool large = how == 19 && draw(maker, 2) == 0;
    size_t used = conf_counts(item->one.tuning, item->one.type, kind, size, large ? BYTES_MOST : 20000, counts);
    size_t count = counts[draw(maker, (int)used)];
    return large && draw(maker, 3) == 0 ? (size_t)draw(maker, PROGRAM_LARGE) : count;
}

static void fit_count(struct maker *maker, struct program_item *item)
{
    size_t most = (item->huge ? HUGE_MOST : BYTES_MOST) / tutti_type_bytes(item->one.type);
    if (!item->huge && most > PROGRAM_LARGE) most = PROGRAM_LARGE;
    while (span_of(maker->program, item) > most) item->one.count /= 2;
    item->large = span_of(maker->program, item) > PROGRAM_SMALL;
}

static size_t huge_count(struct maker *maker, const struct program_item *item)
{
    return (size_t)(HUGE_BYTES + draw(maker, HUGE_MOST - HUGE_BYTES)) / tutti_type_bytes(item->one.type);
}

static struct program_item *new_collective(struct maker *maker, int family)
{
    enum { KINDS = 16 }; /* messages are the last of conf_kinds */
    static const enum tti_kind with_pieces[] = {TTI_ALL_REDUCE, TTI_BROADCAST, TTI_ALL_GATHER, TTI_REDUCE_SCATTER};
    bool many = draw(maker, 5) == 0;
    struct program_item *item = new_item(maker, many ? CONTENT_MANY : CONTENT_COLLECTIVE, family);
    struct conf_case *one = &item->one;
    one->kind = many ? with_pieces[draw(maker, 4)] : conf_kinds[draw(maker, KINDS)];
    one->place = (enum conf_place)draw(maker, CONF_PLACES);
    one->memory = (enum conf_memory)draw(maker, CONF_MEMORIES);
    one->column = draw(maker, CONF_COLUMNS);
    while (!conf_defined(one->type, one->column)) one->column = (one->column + 1) % CONF_COLUMNS;
    item->pieces = many ? draw(maker, PROGRAM_PIECES + 1) : 1;
    item->huge = !many && draw(maker, HUGE_RARE) == 0;
    one->count = item->huge ? huge_count(maker, item) : any_count(maker, item, one->kind);
    fit_count(maker, item);
    return item;
}

/* Messages of which the receives are not all there yet. */
static bool has_halves(const struct maker *maker, int family)
{
    for (int i = 0; i < maker->program->item_count; i++)
        if (maker->standing[i] == HALF && maker->program->items[i].family == family) return true;
    return false;
}

static struct program_item *new_letters(struct maker *maker, int family, enum program_post post)
{
    struct program_item *item = new_item(maker, CONTENT_LETTERS, family);
    bool wild = post != POST_SERIAL && post != POST_SENDRECV && !has_halves(maker, family);
    bool halves = post == POST_RECV_FIRST || post == POST_SEND_FIRST;
    item->post = post;
    item->one.kind = TTI_SENDRECV;
    item->letters = 1 + draw(maker, PROGRAM_LETTERS);
    item->tag = item->number * 16;
    item->any_source = wild && draw(maker, 3) == 0;
    item->any_tag = wild && !halves && !maker->withdrew[family] && draw(maker, 4) == 0;
    if (item->any_source && item->any_tag && post == POST_EACH) item->any_tag = false;
    if (maker->program->families[family].tolerant) item->any_tag = false; /* there is no barrier behind it */
    item->one.memory = (enum conf_memory)draw(maker, CONF_MEMORIES);
    item->huge = draw(maker, HUGE_RARE) == 0;
    if (item->huge) item->letters = 1 + draw(maker, 2);
    item->one.count = item->huge ? huge_count(maker, item) : any_count(maker, item, TTI_SENDRECV);
    if (item->one.count > PROGRAM_LARGE && !item->huge) item->one.count = PROGRAM_LARGE;
    item->large = item->one.count > PROGRAM_SMALL;
    return item;
}

/* ---- Comms ------------------------------------------------------------------------------------------------------- */

static void make_families(struct maker *maker)
{
    struct program *program = maker->program;
    int live = 0;
    for (int i = 0; i < program->family_count; i++) live += program->families[i].live;
    if (live >= LIVE_MOST || program->family_count + 2 > PROGRAM_FAMILIES) return;
    struct program_action *action = add(maker, DO_MAKE, any_whole_family(maker));
    action->make = (enum program_make)draw(maker, MAKES);
    action->other = program->family_count;
    program_form(program, action);
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

static void join(struct maker *maker, int slot)
{
    const struct program_action *aside = maker->asides[slot];
    if (aside == NULL) return;
    add(maker, DO_JOIN, 0)->other = slot;
    for (int i = 0; i < aside->count && aside->kind == DO_WAIT; i++)
        maker->standing[aside->items[i]] = maker->program->items[aside->items[i]].prepared ? IDLE : GONE;
    if (aside->kind == DO_RUN) maker->lent[aside->family] = false;
    maker->asides[slot] = NULL;
}

/* Those that use the family; -1: all. */
static void join_for(struct maker *maker, int family)
{
    for (int slot = 0; slot < PROGRAM_ASIDES; slot++) {
        const struct program_action *aside = maker->asides[slot];
        bool uses = aside != NULL && (family < 0 || aside->family == family);
        for (int i = 0; aside != NULL && i < aside->count; i++)
            uses = uses || maker->program->items[aside->items[i]].family == family;
        if (uses) join(maker, slot);
    }
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

static void complete(struct maker *maker, int family)
{
    for (int i = 0; i < maker->program->item_count; i++) {
        const struct program_item *item = &maker->program->items[i];
        if (item->family == family && maker->standing[i] == HALF && item->content == CONTENT_LETTERS)
            add_for(maker, DO_SECOND, item, OUT);
    }
}

static bool may_wait(const struct maker *maker, const struct program_item *item, int family, bool all)
{
    if (maker->standing[item->number] != OUT || (family >= 0 && item->family != family)) return false;
    return all || item->content == CONTENT_LETTERS;
}

/* For some of those of a family, or of all (-1), that can be waited for. `most` of 1000. */
static struct program_action *wait_for_some(struct maker *maker, int family, bool all, int most)
{
    struct program_action *action = add(maker, DO_WAIT, family < 0 ? 0 : family);
    for (int i = 0; i < maker->program->item_count && action->count < PROGRAM_TOGETHER; i++) {
        const struct program_item *item = &maker->program->items[i];
        if (!may_wait(maker, item, family, all) || draw(maker, 1000) >= most) continue;
        action->items[action->count++] = i;
        maker->standing[i] = item->prepared ? IDLE : GONE;
    }
    if (action->count != 0) return action;
    maker->program->action_count--;
    return NULL;
}

static void wait_for_all(struct maker *maker, int family, bool all)
{
    for (int before = -1; before != maker->program->action_count;) {
        before = maker->program->action_count;
        wait_for_some(maker, family, all, 1000);
    }
}

static void cancel_orphans(struct maker *maker, int family)
{
    for (int i = 0; i < maker->program->item_count; i++) {
        const struct program_item *item = &maker->program->items[i];
        if (item->content != CONTENT_ORPHAN || item->family != family || maker->standing[i] != HALF) continue;
        add_for(maker, DO_CANCEL, item, GONE);
        maker->withdrew[family] = maker->withdrew[family] || item->sends;
    }
}

/* When all ranks have come here, what was dropped on one side has been waited for on the other, and nobody sends to one who
 * is about to leave. */
static void meet_if_needed(struct maker *maker, int family)
{
    bool needed = maker->withdrew[family];
    for (int i = 0; i < maker->program->item_count; i++)
        needed = needed || (maker->program->items[i].family == family && maker->program->items[i].drops != DROPS_NONE);
    if (!needed) return;
    struct program_item *barrier = new_item(maker, CONTENT_COLLECTIVE, family);
    barrier->one.kind = TTI_BARRIER;
    barrier->pieces = 1;
    add_for(maker, DO_RUN, barrier, GONE);
}

/* Messages must have been waited for, since a rank that is gone answers none; collectives may be under way. */
static void free_family(struct maker *maker, int family, bool in_flight)
{
    struct program_family *families = maker->program->families;
    int both[] = {family, families[family].sibling};
    for (int i = 0; i < 2 && both[i] >= 0; i++) {
        join_for(maker, both[i]);
        complete(maker, both[i]);
        cancel_orphans(maker, both[i]);
        wait_for_all(maker, both[i], !in_flight);
        meet_if_needed(maker, both[i]);
        families[both[i]].live = false;
        for (int k = 0; k < maker->program->item_count; k++)
            if (maker->program->items[k].family == both[i]) maker->standing[k] = GONE;
    }
    add(maker, DO_FREE, family);
}

static void free_any(struct maker *maker)
{
    int family = any_family(maker);
    if (family != 0) free_family(maker, family, draw(maker, 2) == 0);
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

/* A comm's first call on a stream waits for all ranks, so none is among calls whose order differs from rank to rank. */
static struct program_item *maybe_on_stream(struct maker *maker, struct program_item *item)
{
    bool streams = program_pick(maker->program->seed, 40, 3) == 0;
    item->on_stream = streams && item->content <= CONTENT_MANY && draw(maker, 3) == 0;
    return item;
}

static void step_run(struct maker *maker)
{
    add_for(maker, DO_RUN, maybe_on_stream(maker, new_collective(maker, any_whole_family(maker))), GONE);
}

static void step_start(struct maker *maker)
{
    if (count_standing(maker, OUT) >= OUT_MOST) return;
    struct program_item *item = maybe_on_stream(maker, new_collective(maker, any_whole_family(maker)));
    add_for(maker, DO_START, item, OUT);
    if (!item->on_stream && draw(maker, 8) == 0) add_for(maker, DO_DROP, item, DROPPED);
}

/* Several at once, which ranks start in different orders. */
static void step_together(struct maker *maker)
{
    bool used[PROGRAM_FAMILIES] = {false};
    int first = maker->program->action_count;
    if (count_standing(maker, OUT) >= OUT_MOST - 5) return;
    for (int i = 0; i < 6; i++) {
        int family = any_family(maker);
        if (used[family]) continue;
        used[family] = true;
        bool letters = draw(maker, 3) == 0 || maker->program->families[family].tolerant;
        struct program_item *item = letters ? new_letters(maker, family, POST_EACH) : new_collective(maker, family);
        add_for(maker, DO_START, item, OUT);
    }
    maker->program->actions[first].together = maker->program->action_count - first - 1;
}

static void step_letters(struct maker *maker)
{
    enum program_post post = (enum program_post)draw(maker, POSTS);
    struct program_item *item = new_letters(maker, any_family(maker), post);
    bool started = post >= POST_EACH ||
                   ((post == POST_SENDRECV || (post == POST_GROUP && !(item->any_source && item->any_tag))) &&
                    draw(maker, 2) == 0);
    bool halves = post == POST_RECV_FIRST || post == POST_SEND_FIRST;
    bool meets = item->family != 0 && !maker->program->families[item->family].tolerant;
    if (post >= POST_EACH && meets && draw(maker, 3) == 0)
        item->drops = draw(maker, 2) == 0 ? DROPS_SENDS : DROPS_RECEIVES;
    add_for(maker, started ? DO_START : DO_RUN, item, !started ? GONE : halves ? HALF : OUT);
}

static void step_second(struct maker *maker)
{
    complete(maker, any_family(maker));
}

static void step_wait(struct maker *maker)
{
    wait_for_some(maker, draw(maker, 2) == 0 ? -1 : any_family(maker), true, 200 + draw(maker, 800));
}

static void step_prepare(struct maker *maker)
{
    if (count_standing(maker, IDLE) >= PREPARED_MOST) return;
    int family = any_family(maker);
    bool letters = draw(maker, 3) == 0 || maker->program->families[family].tolerant;
    struct program_item *item = letters ? new_letters(maker, family, POST_SENDRECV)
                                        : maybe_on_stream(maker, new_collective(maker, family));
    item->prepared = true;
    add_for(maker, DO_PREPARE, item, IDLE);
}

static void step_again(struct maker *maker)
{
    for (int i = 0; i < maker->program->item_count; i++)
        if (maker->standing[i] == IDLE && !maker->lent[maker->program->items[i].family] && draw(maker, 2) == 0)
            add_for(maker, DO_AGAIN, &maker->program->items[i], OUT);
}

/* What was prepared, started or not, and collectives that were started. */
static void step_drop(struct maker *maker)
{
    for (int i = 0; i < maker->program->item_count; i++) {
        const struct program_item *item = &maker->program->items[i];
        if (maker->standing[i] == IDLE && draw(maker, 4) == 0) add_for(maker, DO_DROP, item, GONE);
        if (maker->standing[i] == OUT && item->content <= CONTENT_MANY && !item->on_stream && draw(maker, 6) == 0)
            add_for(maker, DO_DROP, item, DROPPED);
    }
}

static void step_orphan(struct maker *maker)
{
    struct program_item *item = new_item(maker, CONTENT_ORPHAN, any_whole_family(maker));
    item->tag = item->number * 16;
    item->sends = draw(maker, 3) == 0;
    item->any_source = !item->sends && draw(maker, 2) == 0;
    item->one.count = item->sends ? ANNOUNCED_BYTES / tutti_type_bytes(item->one.type) : (size_t)draw(maker, 300);
    item->large = item->one.count > PROGRAM_SMALL;
    add_for(maker, DO_START, item, HALF);
}

static void step_cancel(struct maker *maker)
{
    cancel_orphans(maker, any_family(maker));
}

static void step_tune(struct maker *maker)
{
    struct program_action *action = add(maker, DO_TUNE, any_whole_family(maker));
    action->tuning = (enum conf_tuning)draw(maker, CONF_TUNINGS);
    maker->program->families[action->family].tuning = action->tuning;
}

static void step_by_host(struct maker *maker)
{
    add(maker, DO_BY_HOST, any_whole_family(maker));
}

static void step_stats(struct maker *maker)
{
    add(maker, DO_STATS, any_family(maker));
}

static void step_group(struct maker *maker)
{
    int first = maker->program->item_count, count = 1 + draw(maker, 6);
    for (int i = 0; i < count; i++) {
        int family = any_family(maker);
        bool letters = draw(maker, 3) == 0 || maker->program->families[family].tolerant;
        struct program_item *item = letters ? new_letters(maker, family, POST_GROUP) : new_collective(maker, family);
        item->any_tag = false;
        maker->standing[item->number] = GONE;
    }
    struct program_action *action = add(maker, DO_GROUP, 0);
    while (action->count < count) action->items[action->count] = first + action->count, action->count++;
}

/* A thread waits for some ops, or has a family's comm for itself. */
static void step_aside(struct maker *maker)
{
    int slot = draw(maker, PROGRAM_ASIDES), family = any_family(maker);
    struct program_action *action;
    join(maker, slot);
    if (family == 0 || draw(maker, 2) == 0) {
        action = wait_for_some(maker, -1, true, 700);
        for (int i = 0; action != NULL && i < action->count; i++) maker->standing[action->items[i]] = ASIDE;
    } else {
        action = add(maker, DO_RUN, family);
        maker->lent[family] = true;
        for (int i = 2 + draw(maker, 5); i-- > 0;) {
            bool letters = draw(maker, 3) == 0 || maker->program->families[family].tolerant;
            struct program_item *item = letters ? new_letters(maker, family, (enum program_post)draw(maker, POST_EACH))
                                                : new_collective(maker, family);
            action->items[action->count++] = item->number;
            maker->standing[item->number] = GONE;
        }
    }
    if (action == NULL) return;
    action->aside = true;
    action->other = slot;
    maker->asides[slot] = action;
}

static void step_join(struct maker *maker)
{
    join(maker, draw(maker, PROGRAM_ASIDES));
}

static void step(struct maker *maker)
{
    static const struct {
        void (*take)(struct maker *maker);
        int weight;
    } steps[] = {{step_run, 20},   {step_start, 20},  {step_together, 8}, {step_letters, 18}, {step_second, 4},
                 {step_wait, 12},  {step_prepare, 4}, {step_again, 10},   {step_drop, 2},     {step_orphan, 3},
                 {step_cancel, 2}, {step_tune, 4},    {make_families, 8}, {free_any, 4},      {step_by_host, 1},
                 {step_stats, 2},  {step_aside, 7},   {step_join, 5},     {step_group, 8}};
    int sum = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) sum += steps[i].weight;
    int at = draw(maker, sum);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (at < steps[i].weight) {
            steps[i].take(maker);
            return;
        }
        at -= steps[i].weight;
    }
}

void program_make(struct program *program, uint64_t seed)
{
    struct maker maker = {.program = program};
    memset(program, 0, sizeof *program);
    program->seed = seed;
    program->size = 1 + program_pick(seed, 1, PROGRAM_RANKS);
    program_form_world(program);
    int steps = 20 + draw(&maker, 41);
    while (steps-- > 0 && program->action_count < PROGRAM_ACTIONS / 2 && program->item_count < PROGRAM_ITEMS - 20)
        step(&maker);
    join_for(&maker, -1);
    for (int family = program->family_count; family-- > 1;)
        if (program->families[family].live) free_family(&maker, family, draw(&maker, 2) == 0);
    complete(&maker, 0);
    cancel_orphans(&maker, 0);
    wait_for_all(&maker, 0, true);
}

/* ---- For people -------------------------------------------------------------------------------------------------- */

static int item_text(const struct program_item *item, char *text, size_t bytes)
{
    static const char *const posts[POSTS] = {"serial", "star", "sendrecv", "group", "each", "recv first", "send first"};
    if (item->content == CONTENT_ORPHAN)
        return snprintf(text, bytes, "a %s without an answer", item->sends ? "send" : "receive");
    if (item->content == CONTENT_LETTERS)
        return snprintf(text, bytes, "%d letters, %s, up to %zu %s%s%s%s%s", item->letters, posts[item->post],
                        item->one.count, tutti_type_name(item->one.type), item->any_source ? ", any source" : "",
                        item->any_tag ? ", any tag" : "", item->prepared ? ", prepared" : "",
                        item->drops == DROPS_NONE    ? ""
                        : item->drops == DROPS_SENDS ? ", sends dropped"
                                                     : ", receives dropped");
    return snprintf(text, bytes, "%s %s %s count %zu, %d pieces, place %d, memory %d, tuning %d%s",
                    tti_kind_name(item->one.kind), tutti_type_name(item->one.type),
                    conf_kind_reduces(item->one.kind) ? conf_column_name(item->one.column) : "", item->one.count,
                    item->pieces, (int)item->one.place, (int)item->one.memory, (int)item->one.tuning,
                    item->on_stream  ? item->prepared ? ", prepared on a stream" : ", on a stream"
                    : item->prepared ? ", prepared"
                                     : "");
}

const char *program_action_text(const struct program *program, const struct program_action *action, char *text,
                                size_t bytes)
{
    static const char *const kinds[] = {"run",  "start",   "second half", "prepare", "start again",
                                        "wait", "drop",    "cancel",      "make",    "free",
                                        "tune", "by host", "stats",       "join",    "group"};
    size_t used = (size_t)snprintf(text, bytes, "action %d on family %d (of %d): %s", (int)(action - program->actions),
                                   action->family, program->families[action->family].from, kinds[action->kind]);
    if (action->aside) used += (size_t)snprintf(text + used, bytes - used, " aside");
    if (action->kind == DO_MAKE || action->kind == DO_TUNE)
        used += (size_t)snprintf(text + used, bytes - used, " %d as %d", action->other,
                                 action->kind == DO_MAKE ? (int)action->make : (int)action->tuning);
    for (int i = 0; i < action->count && used + 2 < bytes; i++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s item %d ", i == 0 ? "" : ",", action->items[i]);
        if (used < bytes && action->count == 1)
            used += (size_t)item_text(&program->items[action->items[i]], text + used, bytes - used);
    }
    return text;
}
