/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=300 labels=asan,tsan
 *
 * Ranks that call different things: each gets an error in time, that names both ranks, both calls and where they stand;
 * a rank whose own part had legitimately ended gets it at its next operation. Nobody hangs, no wrong data are reported as
 * success, and the comm says from then on that it is broken, and why.
 */
#include "collective/peers/posts.h"
#include "fault.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { SMALL = 4, MIDDLE = 1000, LARGE = 200000, SIZES = 3 };
enum { LIMIT_MS = 1000 };

/* One rank's buffers and what it is about to call. */
struct hand {
    tutti_comm *comm;
    struct fault_rank *self;
    int rank, size;
    size_t count;
    float *in, *out; /* of size * count + 8 elements each */
};

typedef tutti_status play(struct hand *hand);

enum { HAND_LINE, HAND_WRONG }; /* numbers of a rank's report */

/* The call's line is reported by the call itself, so that the error's can be compared with it. */
#define SITE(hand) ((hand)->self->numbers[HAND_LINE] = __LINE__)

/* ---- Calls ----------------------------------------------------------------------------------------------------- */

static tutti_reduction first_reduction, second_reduction;

static void add(void *context, void *left, const void *right, size_t count, tutti_type type)
{
    (void)context, (void)type;
    for (size_t i = 0; i < count; i++) ((float *)left)[i] += ((const float *)right)[i];
}

static void register_both(void)
{
    CHECK(tutti_reduction_register("adding", add, NULL, &first_reduction, NULL) == TUTTI_OK);
    CHECK(tutti_reduction_register("adding_otherwise", add, NULL, &second_reduction, NULL) == TUTTI_OK);
}

static pthread_once_t registered = PTHREAD_ONCE_INIT;

#define NAMED tutti_named(h->comm, name)
#define DEFINE(id, call)                                                                                               \
    __attribute__((unused)) static tutti_status id##_as(struct hand *h, const char *name)                              \
    {                                                                                                                  \
        SITE(h);                                                                                                       \
        return call;                                                                                                   \
    }                                                                                                                  \
    __attribute__((unused)) static tutti_status id(struct hand *h)                                                     \
    {                                                                                                                  \
        return id##_as(h, "usual");                                                                                    \
    }                                                                                                                  \
    __attribute__((unused)) static tutti_status odd_##id(struct hand *h)                                               \
    {                                                                                                                  \
        return id##_as(h, "odd");                                                                                      \
    }

DEFINE(barrier, tutti_barrier(NAMED))
DEFINE(sum, tutti_all_reduce(NAMED, h->in, h->out, h->count, TUTTI_F32, TUTTI_SUM))
DEFINE(sum_more, tutti_all_reduce(NAMED, h->in, h->out, h->count + 1, TUTTI_F32, TUTTI_SUM))
DEFINE(sum_i32, tutti_all_reduce(NAMED, h->in, h->out, h->count, TUTTI_I32, TUTTI_SUM))
DEFINE(sum_none, tutti_all_reduce(NAMED, h->in, h->out, 0, TUTTI_F32, TUTTI_SUM))
DEFINE(max, tutti_all_reduce(NAMED, h->in, h->out, h->count, TUTTI_F32, TUTTI_MAX))
DEFINE(adding, tutti_all_reduce(NAMED, h->in, h->out, h->count, TUTTI_F32, first_reduction))
DEFINE(adding2, tutti_all_reduce(NAMED, h->in, h->out, h->count, TUTTI_F32, second_reduction))
DEFINE(reduce, tutti_reduce(NAMED, h->in, h->out, h->count, TUTTI_F32, TUTTI_SUM, 0))
DEFINE(reduce_last, tutti_reduce(NAMED, h->in, h->out, h->count, TUTTI_F32, TUTTI_SUM, h->size - 1))
DEFINE(reduce_max, tutti_reduce(NAMED, h->in, h->out, h->count, TUTTI_F32, TUTTI_MAX, 0))
DEFINE(broadcast, tutti_broadcast(NAMED, h->in, h->out, h->count, TUTTI_F32, 0))
DEFINE(broadcast_last, tutti_broadcast(NAMED, h->in, h->out, h->count, TUTTI_F32, h->size - 1))
DEFINE(broadcast_less, tutti_broadcast(NAMED, h->in, h->out, h->count - 1, TUTTI_F32, 0))
DEFINE(broadcast_own, tutti_broadcast(NAMED, h->in, h->out, h->count, TUTTI_F32, h->rank))
DEFINE(all_gather, tutti_all_gather(NAMED, h->in, h->out, h->count, TUTTI_F32))
DEFINE(all_gather_less, tutti_all_gather(NAMED, h->in, h->out, h->count - 1, TUTTI_F32))
DEFINE(gather, tutti_gather(NAMED, h->in, h->out, h->count, TUTTI_F32, 0))
DEFINE(gather_u32, tutti_gather(NAMED, h->in, h->out, h->count, TUTTI_U32, 0))
DEFINE(scatter, tutti_scatter(NAMED, h->in, h->out, h->count, TUTTI_F32, 0))
DEFINE(scatter_less, tutti_scatter(NAMED, h->in, h->out, h->count - 1, TUTTI_F32, 0))
DEFINE(reduce_scatter, tutti_reduce_scatter(NAMED, h->in, h->out, h->count, TUTTI_F32, TUTTI_SUM))
DEFINE(reduce_scatter_min, tutti_reduce_scatter(NAMED, h->in, h->out, h->count, TUTTI_F32, TUTTI_MIN))
DEFINE(all_to_all, tutti_all_to_all(NAMED, h->in, h->out, h->count, TUTTI_F32))
DEFINE(all_to_all_in_place, tutti_all_to_all(NAMED, h->out, h->out, h->count, TUTTI_F32))
DEFINE(scan, tutti_scan(NAMED, h->in, h->out, h->count, TUTTI_F32, TUTTI_SUM))
DEFINE(exscan, tutti_exscan(NAMED, h->in, h->out, h->count, TUTTI_F32, TUTTI_SUM))

/* counts[i] = count, but for one rank's */
static const size_t *counts_of(const struct hand *h, int but, size_t other)
{
    static _Thread_local size_t counts[4][FAULT_RANKS];
    static _Thread_local int next;
    size_t *made = counts[next++ % 4];
    for (int i = 0; i < h->size; i++) made[i] = i == but ? other : h->count;
    return made;
}

#define EQUAL counts_of(h, -1, 0)
#define LESS(rank) counts_of(h, (rank), h->count - 1)

DEFINE(all_gather_v, tutti_all_gather_v(NAMED, h->in, h->out, EQUAL, NULL, TUTTI_F32))
DEFINE(all_gather_v_less, tutti_all_gather_v(NAMED, h->in, h->out, LESS(0), NULL, TUTTI_F32))
DEFINE(reduce_scatter_v, tutti_reduce_scatter_v(NAMED, h->in, h->out, EQUAL, TUTTI_F32, TUTTI_SUM))
DEFINE(reduce_scatter_v_less, tutti_reduce_scatter_v(NAMED, h->in, h->out, LESS(0), TUTTI_F32, TUTTI_SUM))
DEFINE(gather_v, tutti_gather_v(NAMED, h->in, h->count, h->out, EQUAL, NULL, TUTTI_F32, 0))
DEFINE(gather_v_less, tutti_gather_v(NAMED, h->in, h->count - 1, h->out, EQUAL, NULL, TUTTI_F32, 0))
DEFINE(scatter_v, tutti_scatter_v(NAMED, h->in, EQUAL, NULL, h->out, h->count, TUTTI_F32, 0))
DEFINE(scatter_v_less, tutti_scatter_v(NAMED, h->in, EQUAL, NULL, h->out, h->count - 1, TUTTI_F32, 0))
DEFINE(all_to_all_v, tutti_all_to_all_v(NAMED, h->in, EQUAL, NULL, h->out, EQUAL, NULL, TUTTI_F32))
DEFINE(all_to_all_v_send, tutti_all_to_all_v(NAMED, h->in, LESS(0), NULL, h->out, EQUAL, NULL, TUTTI_F32))
DEFINE(all_to_all_v_take, tutti_all_to_all_v(NAMED, h->in, EQUAL, NULL, h->out, LESS(0), NULL, TUTTI_F32))

static tutti_status set_tuning(struct hand *h, int64_t chunk)
{
    tutti_tuning tuning = {.struct_size = sizeof tuning};
    tutti_tuning_get(h->comm, &tuning);
    tuning.chunk = chunk;
    return tutti_tuning_set(h->comm, &tuning);
}

static tutti_status tuned(struct hand *h)
{
    tutti_status status = set_tuning(h, 65536);
    return status == TUTTI_OK ? sum(h) : status;
}

static tutti_status odd_tuned(struct hand *h)
{
    tutti_status status = set_tuning(h, 16384);
    return status == TUTTI_OK ? odd_sum(h) : status;
}

static tutti_status odd_untuned(struct hand *h)
{
    return odd_sum(h);
}

static tutti_status after_three_barriers(struct hand *h)
{
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < 3 && status == TUTTI_OK; i++) status = barrier(h);
    return status == TUTTI_OK ? sum(h) : status;
}

static tutti_status odd_after_two_barriers(struct hand *h)
{
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < 2 && status == TUTTI_OK; i++) status = barrier(h);
    return status == TUTTI_OK ? odd_sum(h) : status;
}

static tutti_status sum_then_max(struct hand *h)
{
    tutti_status status = sum(h);
    return status == TUTTI_OK ? max(h) : status;
}

static tutti_status odd_max_then_sum(struct hand *h)
{
    tutti_status status = odd_max(h);
    return status == TUTTI_OK ? odd_sum(h) : status;
}

/* Roots of small broadcasts run ahead, as far as the window lets them. */
static tutti_status many_broadcasts(struct hand *h)
{
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < 2 * TTI_WINDOW_CROWDED + 2 && status == TUTTI_OK; i++) status = broadcast(h);
    return status;
}

static tutti_status odd_one_fewer(struct hand *h)
{
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < 2 * TTI_WINDOW_CROWDED + 1 && status == TUTTI_OK; i++) status = broadcast(h);
    return status == TUTTI_OK ? odd_barrier(h) : status;
}

/* ---- Cases ----------------------------------------------------------------------------------------------------- */

enum flags {
    V_COUNTS = 1, /* the text gives the two counts that differ, rather than two calls */
    LEAVES = 2,   /* the odd rank leaves in place of a call */
    ALL_ODD = 4,  /* every rank is the odd one */
    SMALL_ONLY = 8,
    SAYS_TUNING = 16,
    SLOW_USUAL = 32, /* the usual ranks come later */
    SAYS_WHOSE = 64  /* the text tells whose count differs: rank 0's */
};

/* Whose part a rank needs for its own to end; it may end well when those made the same call. */
enum needs {
    ALL,
    ROOT,    /* rank 0's: broadcast, scatter */
    LAST,    /* the last rank's */
    NOBODYS, /* each rank is its own root */
    AT_ROOT, /* all, at rank 0; elsewhere nobody's: reduce, gather */
    AT_LAST,
    LOWER /* those of lower ranks: scan */
};

static const struct mismatch {
    const char *name;
    play *usual, *odd;
    const char *usual_call, *odd_call; /* as the text names them */
    int flags;
    enum needs usual_needs, odd_needs;
} mismatches[] = {
    {"kind: all_reduce, barrier", sum, odd_barrier, "all_reduce(", "barrier", 0, ALL, ALL},
    {"kind: barrier, all_gather", barrier, odd_all_gather, "barrier", "all_gather(", 0, ALL, ALL},
    {"kind: scan, exscan", scan, odd_exscan, "scan(", "exscan(", 0, LOWER, LOWER},
    {"kind: reduce, broadcast", reduce, odd_broadcast, "reduce(", "broadcast(", 0, AT_ROOT, ROOT},
    {"kind: all_to_all, reduce_scatter", all_to_all, odd_reduce_scatter, "all_to_all(", "reduce_scatter(", 0, ALL, ALL},
    {"kind: all_gather_v, all_to_all_v", all_gather_v, odd_all_to_all_v, "all_gather_v(", "all_to_all_v(", 0, ALL, ALL},
    {"type: f32, i32", sum, odd_sum_i32, "f32, sum)", "i32, sum)", 0, ALL, ALL},
    {"type: gather f32, u32", gather, odd_gather_u32, "f32, root 0)", "u32, root 0)", 0, AT_ROOT, AT_ROOT},
    {"count: all_reduce", sum, odd_sum_more, "all_reduce(", "all_reduce(", 0, ALL, ALL},
    {"count: all_reduce of none", sum, odd_sum_none, "all_reduce(", "all_reduce(0 f32, sum)", 0, ALL, ALL},
    {"count: broadcast", broadcast, odd_broadcast_less, "broadcast(", "broadcast(", 0, ROOT, ROOT},
    {"count: scatter", scatter, odd_scatter_less, "scatter(", "scatter(", 0, ROOT, ROOT},
    {"count: all_gather", all_gather, odd_all_gather_less, "all_gather(", "all_gather(", 0, ALL, ALL},
    {"reduction: sum, max", sum, odd_max, "f32, sum)", "f32, max)", 0, ALL, ALL},
    {"reduction: reduce", reduce, odd_reduce_max, "f32, sum, root 0)", "f32, max, root 0)", 0, AT_ROOT, AT_ROOT},
    {"reduction: reduce_scatter", reduce_scatter, odd_reduce_scatter_min, "f32, sum)", "f32, min)", 0, ALL, ALL},
    {"reduction by name", adding, odd_adding2, "all_reduce(", "all_reduce(", 0, ALL, ALL},
    {"reduction: built in, registered", sum, odd_adding, "f32, sum)", "all_reduce(", 0, ALL, ALL},
    {"root: reduce", reduce, odd_reduce_last, "root 0)", "f32, sum, root ", 0, AT_ROOT, AT_LAST},
    {"root: broadcast", broadcast, odd_broadcast_last, "root 0)", "broadcast(", 0, ROOT, LAST},
    {"root: every rank its own", broadcast_own, odd_broadcast_own, "broadcast(", "broadcast(", ALL_ODD, NOBODYS,
     NOBODYS},
    {"in place on one rank", all_to_all, odd_all_to_all_in_place, "all_to_all(", ", in place)", 0, ALL, ALL},
    {"order: sum and max", sum_then_max, odd_max_then_sum, "f32, sum)", "f32, max)", 0, ALL, ALL},
    {"counts: all_gather_v", all_gather_v, odd_all_gather_v_less, "all_gather_v(", "all_gather_v(", SAYS_WHOSE, ALL,
     ALL},
    {"counts: reduce_scatter_v", reduce_scatter_v, odd_reduce_scatter_v_less, "reduce_scatter_v(", "reduce_scatter_v(",
     SAYS_WHOSE, ALL, ALL},
    {"counts: gather_v", gather_v, odd_gather_v_less, "gather_v", "gather_v", V_COUNTS, ALL, ALL},
    {"counts: scatter_v", scatter_v, odd_scatter_v_less, "scatter_v", "scatter_v", V_COUNTS, ALL, ALL},
    {"counts: all_to_all_v sends less", all_to_all_v, odd_all_to_all_v_send, "all_to_all_v", "all_to_all_v", V_COUNTS,
     ALL, ALL},
    {"counts: all_to_all_v takes less", all_to_all_v, odd_all_to_all_v_take, "all_to_all_v", "all_to_all_v", V_COUNTS,
     ALL, ALL},
    {"tuning: different tables", tuned, odd_tuned, "all_reduce(", "all_reduce(", SAYS_TUNING, ALL, ALL},
    {"tuning: one rank sets none", tuned, odd_untuned, "all_reduce(", "all_reduce(", SAYS_TUNING, ALL, ALL},
    {"one call fewer", after_three_barriers, odd_after_two_barriers, "barrier", "all_reduce(", 0, ALL, ALL},
    {"one broadcast fewer", many_broadcasts, odd_one_fewer, "broadcast(", "barrier", SMALL_ONLY, ROOT, ALL},
    {"leaves: all_reduce", sum, NULL, "all_reduce(", "leave", LEAVES, ALL, ALL},
    {"leaves: barrier", barrier, NULL, "barrier", "leave", LEAVES, ALL, ALL},
    {"leaves: all_to_all_v", all_to_all_v, NULL, "all_to_all_v(", "leave", LEAVES, ALL, ALL},
    {"leaves: gather", gather, NULL, "gather(", "leave", LEAVES, AT_ROOT, ALL},
    {"leaves: late barrier", barrier, NULL, "barrier", "leave", LEAVES | SLOW_USUAL, ALL, ALL},
};

static const struct mismatch *current;
static int odd_rank;
static size_t current_count;
static bool shared_memory;

static bool is_odd(int rank)
{
    return (current->flags & ALL_ODD) != 0 || rank == odd_rank;
}

static void fill(struct hand *hand)
{
    size_t elements = (size_t)hand->size * hand->count + 8;
    for (size_t i = 0; i < elements; i++) {
        hand->in[i] = (float)(hand->rank * 1000 + (int)(i % 97));
        hand->out[i] = -1;
    }
}

static bool needs(const struct hand *h, int peer)
{
    switch (is_odd(h->rank) ? current->odd_needs : current->usual_needs) {
    case ROOT: return peer == 0;
    case LAST: return peer == h->size - 1;
    case NOBODYS: return false;
    case AT_ROOT: return h->rank == 0;
    case AT_LAST: return h->rank == h->size - 1;
    case LOWER: return peer < h->rank;
    default: return true;
    }
}

/* What element i of the output must be where the call may have ended well; the case says which call it was. */
static float expected(const struct hand *h, play *played, size_t i)
{
    if (played == broadcast || played == many_broadcasts) return (float)(i % 97);
    if (played == scatter) return (float)(((size_t)h->rank * h->count + i) % 97);
    if (played != scan) return h->out[i];
    return (float)(1000 * h->rank * (h->rank + 1) / 2 + (h->rank + 1) * (int)(i % 97));
}

/* The rank's own part may end well only where it did not need those that differ; what came must then be right. */
static bool is_right(const struct hand *h, play *played)
{
    for (int peer = 0; peer < h->size; peer++)
        if (peer != h->rank && is_odd(peer) != is_odd(h->rank) && needs(h, peer)) return false;
    for (size_t i = 0; i < h->count; i++)
        if (h->out[i] != expected(h, played, i)) return false;
    return true;
}

static void play_mismatch(tutti_comm *comm, struct fault_rank *self)
{
    struct hand hand = {.comm = comm, .self = self, .count = current_count};
    hand.rank = tutti_rank(comm);
    hand.size = tutti_size(comm);
    pthread_once(&registered, register_both);
    size_t bytes = ((size_t)hand.size * hand.count + 8) * sizeof(float);
    hand.in = shared_memory ? tutti_alloc(comm, bytes) : malloc(bytes);
    hand.out = shared_memory ? tutti_alloc(comm, bytes) : malloc(bytes);
    if (!CHECK(hand.in != NULL && hand.out != NULL)) return;
    fill(&hand);
    play *played = is_odd(hand.rank) ? current->odd : current->usual;
    if ((current->flags & SLOW_USUAL) != 0 && played != NULL) fault_sleep_ms(60);
    if (played != NULL) {
        if (FAULT_CALL(self, comm, played(&hand)) == TUTTI_OK) {
            self->numbers[HAND_WRONG] = !is_right(&hand, played);
            FAULT_CALL(self, comm, tutti_barrier(tutti_named(comm, "after")));
        }
        FAULT_CALL(self, comm, tutti_all_reduce(comm, hand.in, hand.out, hand.count, TUTTI_F32, TUTTI_SUM));
        FAULT_CALL(self, comm, tutti_send(comm, hand.in, 1, TUTTI_F32, (hand.rank + 1) % hand.size, 0));
    }
    if (shared_memory) return; /* leaving frees it */
    free(hand.in);
    free(hand.out);
}

/* ---- What is demanded ------------------------------------------------------------------------------------------ */

static bool names_call(const struct fault_step *step, int rank, const char *call, const char *name)
{
    char site[64], named[64], who[64];
    snprintf(site, sizeof site, "test_mismatch.c:%d", (int)fault_shared->ranks[rank].numbers[HAND_LINE]);
    snprintf(named, sizeof named, "\"%s\"", name);
    snprintf(who, sizeof who, "rank %d called ", rank);
    const char *text = strstr(step->error.text, who);
    if (text == NULL || strstr(text, call) == NULL) return false;
    return call[0] == 'l' || (strstr(text, site) != NULL && strstr(text, named) != NULL);
}

/* Both ranks and both calls, with file, line and name. */
static void check_words(const struct fault_step *step, int size)
{
    bool usual = false, odd = false;
    for (int rank = 0; rank < size; rank++) {
        if (is_odd(rank)) odd |= names_call(step, rank, current->odd_call, "odd");
        if (!is_odd(rank)) usual |= names_call(step, rank, current->usual_call, "usual");
    }
    if ((current->flags & ALL_ODD) != 0) usual = true;
    /* who finds at a later call that the other has left names that one */
    if ((current->flags & LEAVES) != 0 && fault_has(step, "rank %d has left", odd_rank)) {
        usual = fault_has(step, "test_mismatch.c:") && (fault_has(step, "\"usual\"") || fault_has(step, "\"after\""));
        odd = fault_has(step, "rank %d's last call was #1 leave", odd_rank);
    }
    if ((current->flags & V_COUNTS) != 0) {
        usual = fault_has(step, "%s", current->usual_call) && fault_has(step, "rank %d", odd_rank);
        odd = fault_has(step, "%zu", current_count) && fault_has(step, "%zu", current_count - 1) &&
              fault_has(step, "test_mismatch.c:") && fault_has(step, "\"odd\"");
    }
    if ((current->flags & SAYS_WHOSE) != 0) odd &= fault_has(step, "the first count that differs is that of rank 0;");
    if ((current->flags & SAYS_TUNING) != 0) /* setting the tables is a call of its own, and the one that differs */
        usual = odd = fault_has(step, "called tuning_set at") && fault_has(step, "test_mismatch.c:");
    CHECK_THAT(usual && odd, "%s", step->error.text);
}

static void check_rank(int rank, int size)
{
    const struct fault_rank *self = &fault_shared->ranks[rank];
    if (is_odd(rank) && (current->flags & LEAVES) != 0) return;
    int at = self->steps[0].status == TUTTI_OK ? 1 : 0; /* the call, or its next operation */
    CHECK_THAT(self->numbers[HAND_WRONG] == 0, "rank %d was told that its call succeeded", rank);
    const struct fault_step *step = &self->steps[at];
    if (!CHECK_THAT(step->done, "rank %d", rank)) return;
    CHECK_THAT(step->status == TUTTI_ERR_MISMATCH, "rank %d: %s: %s", rank, tutti_status_name(step->status),
               step->error.text);
    CHECK_THAT(step->error.rank == rank && step->error.peer >= 0 && step->error.peer < size &&
                   step->error.status == step->status,
               "rank %d: rank %d, peer %d", rank, step->error.rank, step->error.peer);
    fault_time("mismatch: until the error", step->ended_ns - step->began_ns, LIMIT_MS);
    check_words(step, size);
    for (int later = at + 1; later <= at + 2; later++) {
        const struct fault_step *next = &self->steps[later];
        CHECK_THAT(next->done && next->status == TUTTI_ERR_BROKEN, "rank %d: %s", rank,
                   tutti_status_name(next->status));
        CHECK_THAT(fault_has(next, "%.60s", step->error.text), "rank %d: %s", rank, next->error.text);
    }
}

static void run_case(int size, bool processes, size_t count, bool shared, int odd)
{
    struct fault_world world = {.size = size, .processes = processes, .body = play_mismatch};
    current_count = count;
    shared_memory = shared;
    odd_rank = odd;
    check_title("%s; rank %d of %d %s, %zu elements, %s memory", current->name, odd, size,
                processes ? "processes" : "threads", count, shared ? "shared" : "private");
    fault_run(&world);
    for (int rank = 0; rank < size; rank++) check_rank(rank, size);
}

static void test_mismatches(void)
{
    static const struct {
        size_t count;
        bool shared;
    } kinds[] = {{SMALL, false}, {MIDDLE, true}, {LARGE, true}, {LARGE, false}};
    int most = SANITIZED ? 3 : 5, turn = 0;
    for (size_t i = 0; i < sizeof mismatches / sizeof *mismatches; i++) {
        current = &mismatches[i];
        for (int size = 2; size <= most; size++)
            for (int processes = 0; processes < 2; processes++)
                for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
                    if ((current->flags & SMALL_ONLY) != 0 && kinds[k].count == LARGE) continue;
                    /* for all sizes every kind, for each size some rank: all of them in turn */
                    int odd = (turn++ / 3) % size;
                    if (SANITIZED && turn % 3 != 0) continue;
                    run_case(size, processes != 0, kinds[k].count, kinds[k].shared, odd);
                }
    }
}

/* ---- Leaving while others are behind --------------------------------------------------------------------------- */

/* The root has run ahead as far as it may, and leaves: its goodbye finds no free slot. */
static void root_leaves_ahead(tutti_comm *comm, struct fault_rank *self)
{
    float x[4] = {0};
    int calls = (int)comm->memory->window - (tutti_rank(comm) == 0 ? 1 : 0);
    if (tutti_rank(comm) > 0) fault_await_mark(0, 1);
    tutti_status status = TUTTI_OK;
    /* one of the others may find it before another has made all its calls: its first step is its last call */
    for (int i = 0; i < calls && status == TUTTI_OK; i++) {
        self->steps_done = 0;
        status = FAULT_CALL(self, comm, tutti_broadcast(comm, x, x, 4, TUTTI_F32, 0));
    }
    if (tutti_rank(comm) == 0) atomic_store(&self->mark, 1);
}

static void test_leaving_ahead(void)
{
    for (int processes = 0; processes < 2; processes++)
        for (int size = 2; size <= 4; size++) {
            struct fault_world world = {.size = size, .processes = processes != 0, .body = root_leaves_ahead};
            check_title("the root leaves ahead of %d %s", size, processes ? "processes" : "threads");
            fault_run(&world);
            for (int rank = 1; rank < size; rank++) {
                const struct fault_step *step = fault_shared->ranks[rank].steps;
                CHECK_THAT(step->done && step->status == TUTTI_ERR_MISMATCH, "rank %d: %s: %s", rank,
                           tutti_status_name(step->status), step->error.text);
                CHECK_THAT(fault_has(step, "rank 0") && fault_has(step, "le") && fault_has(step, "broadcast") &&
                               fault_has(step, "test_mismatch.c:"),
                           "%s", step->error.text);
                fault_time("left: until the error", step->ended_ns - step->began_ns, LIMIT_MS);
            }
        }
}

/* ---- Busy elsewhere -------------------------------------------------------------------------------------------- */

/* Rank 1's own call has ended and it computes until rank 0 has its error: no reason for rank 0 to wait for it, or to
 * kill it. */
static void go_away(tutti_comm *comm, struct fault_rank *self)
{
    size_t count = LARGE;
    float *x = tutti_alloc(comm, count * sizeof *x), *y = tutti_alloc(comm, count * sizeof *y);
    if (tutti_rank(comm) == 1) {
        FAULT_CALL(self, comm, tutti_broadcast(comm, x, x, 4, TUTTI_F32, 1));
        fault_await_mark(0, 1);
    } else {
        FAULT_CALL(self, comm, tutti_all_reduce(comm, x, y, count, TUTTI_F32, TUTTI_SUM));
        atomic_store(&self->mark, 1);
    }
    FAULT_CALL(self, comm, tutti_barrier(comm));
}

static void test_busy(void)
{
    for (int processes = 0; processes < 2; processes++) {
        struct fault_world world = {.size = 2, .processes = processes != 0, .body = go_away};
        check_title("a %s that computes after its part of a mismatch", processes ? "process" : "thread");
        fault_run(&world);
        const struct fault_step *first = fault_shared->ranks[0].steps, *second = fault_shared->ranks[1].steps;
        CHECK_THAT(first[0].status == TUTTI_ERR_MISMATCH, "%s", first[0].error.text);
        CHECK_THAT(!fault_has(&first[0], "do not reuse"), "%s", first[0].error.text);
        CHECK(first[1].status == TUTTI_ERR_BROKEN);
        CHECK(second[0].status == TUTTI_OK && second[1].status == TUTTI_ERR_MISMATCH);
        fault_time("mismatch with a busy rank: until the error", first[0].ended_ns - first[0].began_ns, LIMIT_MS);
    }
}

/* ---- The same call from elsewhere ------------------------------------------------------------------------------ */

static tutti_comm *named_if(bool wanted, tutti_comm *comm)
{
    return wanted ? tutti_named(comm, "other") : comm;
}

static int differ_at;

/* Rank 0 makes the same call again and again, then from another line, there without a name, with one and without; at one of
 * these rank 1 makes another one. */
static void repeat_and_differ(tutti_comm *comm, struct fault_rank *self)
{
    float x[4] = {0}, y[4];
    for (uint64_t i = 0; i < 3 * comm->memory->window; i++)
        CHECK(tutti_all_reduce(comm, x, y, 4, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    self->numbers[HAND_LINE] = __LINE__ + 4;
    for (int i = 0; i <= differ_at; i++) {
        tutti_reduction reduction = i == differ_at && tutti_rank(comm) == 1 ? TUTTI_MAX : TUTTI_SUM;
        self->steps_done = 0;
        FAULT_CALL(self, comm, tutti_all_reduce(named_if(i == 1, comm), x, y, 4, TUTTI_F32, reduction));
    }
}

static void test_repeated(void)
{
    for (int variant = 0; variant < 6; variant++) {
        struct fault_world world = {.size = 2, .processes = variant % 2 != 0, .body = repeat_and_differ};
        differ_at = variant / 2;
        const char *at = differ_at == 1 ? " \"other\" at " : " at ";
        size_t most = sizeof((struct tti_site){0}.file) - 1, length = strlen(__FILE__);
        const char *file = &__FILE__[length > most ? length - most : 0];
        check_title("a call that was made before, variant %d", variant);
        fault_run(&world);
        for (int rank = 0; rank < 2; rank++) {
            const struct fault_rank *self = &fault_shared->ranks[rank];
            const struct fault_step *step = self->steps;
            int line = (int)self->numbers[HAND_LINE];
            CHECK_THAT(step->status == TUTTI_ERR_MISMATCH && fault_has(step, "(4 f32, sum)%s%s:%d", at, file, line) &&
                           fault_has(step, "(4 f32, max)%s%s:%d", at, file, line),
                       "%s", step->error.text);
        }
    }
}

/* ---- Nobody needs anybody -------------------------------------------------------------------------------------- */

/* Each rank is the root of its own broadcasts, and waits for no data; none may go on like that for ever. */
static void own_roots(tutti_comm *comm, struct fault_rank *self)
{
    enum { MANY = 20000 };
    float x[4] = {0};
    tutti_status status = TUTTI_OK;
    int calls = 0;
    (void)self;
    for (; calls < MANY && status == TUTTI_OK; calls++)
        status = tutti_broadcast(comm, x, x, 4, TUTTI_F32, tutti_rank(comm));
    CHECK(status == TUTTI_ERR_MISMATCH && strstr(tutti_comm_error(comm)->text, "broadcast(4 f32, root ") != NULL);
}

static bool over_tcp;

static void test_own_roots(bool processes)
{
    for (int size = 2; size <= 3; size++)
        fault_run_body("every rank its own root", own_roots, size, processes, over_tcp);
}

/* ---- Found when the comm is left -------------------------------------------------------------------------------- */

/* The last of `calls` broadcasts has a root of its own on rank 1, and nobody waits for anybody: rank 0 has run ahead, and does not
 * know how far the other is. */
static void differ_at_the_end(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm);
    float x[4] = {0};
    tutti_comm *copy = NULL;
    CHECK(tutti_comm_duplicate(comm, &copy) == TUTTI_OK);
    int calls = copy->lanes != NULL ? 3 : (int)copy->memory->window - 1;
    if (rank == 1) fault_await_mark(0, 1);
    for (int i = 1; i < calls; i++) CHECK(tutti_broadcast(copy, x, x, 4, TUTTI_F32, 0) == TUTTI_OK);
    CHECK(tutti_broadcast(copy, x, x, 4, TUTTI_F32, rank) == TUTTI_OK);
    if (rank == 0) atomic_store(&self->mark, 1);
    if (rank == 0) fault_await_mark(1, 1);
    tutti_status status = tutti_comm_free(copy);
    if (rank == 1) atomic_store(&self->mark, 1);
    bool seen = rank == 0 || comm->lanes == NULL; /* the later one, and where both see each other's calls both */
    CHECK_THAT((status == TUTTI_ERR_MISMATCH) == seen, "rank %d: %s", rank, tutti_status_name(status));
    char text[1024] = "";
    FILE *memory = fmemopen(text, sizeof text, "w");
    if (seen) CHECK(tutti_explain(comm, memory) == 1);
    fclose(memory);
    if (seen) CHECK_THAT(strstr(text, "leave: TUTTI_ERR_MISMATCH") && strstr(text, ", root 1) at "), "%s", text);
}

/* What tutti_main returns is not 0 then, although the work has. */
static void expect_status(struct fault_world *world)
{
    if (!world->processes) fault_expect_end(0);
}

static void test_at_the_end(bool processes)
{
    struct fault_world world = {.size = 2,
                                .processes = processes,
                                .body = differ_at_the_end,
                                .meanwhile = expect_status,
                                .settings = {over_tcp ? "TUTTI_TRANSPORT=tcp" : NULL}};
    check_title("the last root differs, %s%s", processes ? "processes" : "threads", over_tcp ? " over tcp" : "");
    fault_run(&world);
    int status = fault_shared->ranks[0].exit_status;
    CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) == !processes, "%d", status);
}

int main(void)
{
    fault_begin(280);
    fault_everywhere(test_at_the_end, &over_tcp);
    fault_everywhere(test_own_roots, &over_tcp);
    test_busy();
    test_repeated();
    test_leaving_ahead();
    test_mismatches();
    return fault_end();
}
