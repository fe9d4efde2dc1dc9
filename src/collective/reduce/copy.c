/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/reduce/copy.h"

#include "base/clock.h"
#include "base/sim.h"
#include "collective/reduce/reduce_kernels.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    LINE_BYTES = 64,
    SETS = 64, /* sets of a first-level cache, each of which holds a few lines */
    SET_LINES = 4,
    VECTOR_LEAST = 2048, /* from this size on the C library may use an instruction that is slow across cores */
    VECTOR_MOST = 65536, /* above this size the C library's advantage hardly counts */
    FAST_NS = 9,         /* most time for a line until it has arrived, for FAST */
    PLAIN_NS = 20,       /* twice the time of a streamed line */
    PLAIN_AGAIN_NS = 14,
    WORSE_ENOUGH = 3, /* slow copies in a row: a single one may have been interrupted */
    TIMED = 32,       /* one copy in so many is timed */
    TRIAL = 16,       /* copies of a trial, which are made as if lines were fast */
    TRIAL_TIMED = 8,  /* one of so many in a trial is timed */
    PERIOD = 1024,    /* copies from one trial to the next */
    /* for targets that are written in turn: read from memory once, then from the first-level cache */
    BLOCK_BYTES = 4096,
    TURN_BYTES = 4096 /* bytes of a mixed copy before it turns to its other half */
};

/* Returns the bytes before the first whole line of `pointer`, at most `bytes`. */
static size_t lead(const void *pointer, size_t bytes)
{
    size_t head = -(uintptr_t)pointer % LINE_BYTES;
    return head < bytes ? head : bytes;
}

static bool take_set(unsigned char *taken, const void *pointer)
{
    return ++taken[(uintptr_t)pointer / LINE_BYTES % SETS] <= SET_LINES;
}

bool tti_lie_apart(const void *const *some, int count, void *const *others, int other_count)
{
    unsigned char taken[SETS] = {0};
    for (int k = 0; k < count; k++)
        if (!take_set(taken, some[k])) return false;
    for (int k = 0; k < other_count; k++)
        if (!take_set(taken, others[k])) return false;
    return true;
}

static void stream_some(void *dst, const void *src, size_t bytes, bool ahead)
{
    char *to = dst;
    const char *from = src;
    size_t head = lead(to, bytes), body = (bytes - head) & ~(size_t)(LINE_BYTES - 1);
    void *lines = to + head;
    memcpy(to, from, head);
    if (body > 0) tti_kernels_now()->stream(&lines, 1, from + head, body, ahead);
    memcpy(to + head + body, from + head + body, bytes - head - body);
}

/* Streams the result of a reduction, which lies in a cache. */
void tti_stream_some(void *dst, const void *src, size_t bytes)
{
    stream_some(dst, src, bytes, false);
}

void tti_stream_end(void)
{
    tti_kernels_now()->fence();
}

/* Returns true if whole lines begin at the same bytes of all targets. */
static bool lines_agree(void *const *dsts, int dst_count)
{
    uintptr_t differ = 0;
    for (int k = 1; k < dst_count; k++) differ |= (uintptr_t)dsts[k] ^ (uintptr_t)dsts[0];
    return differ % LINE_BYTES == 0;
}

/* Copies to a group of targets. Bytes that are not part of a whole line are copied to one target after the other. Whole
 * lines are copied by vectors to a single target, too: the C library's copy takes a tenth longer in turns with streamed
 * lines. */
static void copy_group(void *const *dsts, int dst_count, const char *src, size_t bytes, enum tti_store store)
{
    bool stream = store != TTI_CACHED, ahead = store == TTI_STREAMED;
    const struct tti_kernels *set = tti_kernels_now();
    void *lines[TTI_KERNEL_WIDE];
    bool one_by_one = stream && (dst_count == 1 || !lines_agree(dsts, dst_count));
    size_t head = one_by_one ? bytes : lead(dsts[0], bytes), body = (bytes - head) & ~(size_t)(LINE_BYTES - 1);
    for (int k = 0; k < dst_count; k++) {
        char *to = dsts[k];
        lines[k] = to + head;
        if (one_by_one)
            stream_some(to, src, bytes, ahead);
        else
            memcpy(to, src, head);
        memcpy(to + head + body, src + head + body, bytes - head - body);
    }
    if (body == 0) return;
    if (stream)
        set->stream(lines, dst_count, src + head, body, ahead);
    else
        set->copy(lines, dst_count, src + head, body);
}

/* Copies bytes begin..end, a block to one target after the other: buffers that lie a large power of two apart push each
 * other's lines out of the first-level cache. */
static void copy_in_turn(void *const *dsts, int dst_count, const char *src, size_t begin, size_t end)
{
    const struct tti_kernels *set = tti_kernels_now();
    for (; begin < end; begin += BLOCK_BYTES) {
        size_t length = end - begin < BLOCK_BYTES ? end - begin : BLOCK_BYTES;
        size_t body = length & ~(size_t)(LINE_BYTES - 1);
        for (int k = 0; k < dst_count; k++) {
            char *to = dsts[k];
            if (to == src) continue;
            void *lines = to + begin;
            set->copy(&lines, 1, src + begin, body);
            memcpy(to + begin + body, src + begin + body, length - body);
        }
    }
}

/* Copies bytes begin..end to as many targets at once as possible. A mixed copy's streamed half does not read ahead:
 * that would push out the other half. */
static void copy_range(void *const *dsts, int dst_count, const char *src, size_t begin, size_t end,
                       enum tti_store store)
{
    const void *source = src;
    bool cached = store == TTI_CACHED;
    if (cached && dst_count > 2 && !tti_lie_apart(&source, 1, dsts, dst_count)) {
        copy_in_turn(dsts, dst_count, src, begin, end);
        return;
    }
    const int most = cached ? TTI_KERNEL_WIDE : TTI_KERNEL_ARITY;
    size_t block = dst_count <= most ? end - begin : BLOCK_BYTES;
    for (; begin < end; begin += block) {
        size_t length = end - begin < block ? end - begin : block;
        void *group[TTI_KERNEL_WIDE];
        int held = 0;
        for (int k = 0; k < dst_count; k++) {
            if (dsts[k] != src) group[held++] = (char *)dsts[k] + begin;
            if (held == 0 || (held < most && k + 1 < dst_count)) continue;
            copy_group(group, held, src + begin, length, store);
            held = 0;
        }
    }
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void tti_copy_to_all(void *const *dsts, int dst_count, const void *src, size_t bytes, enum tti_store store)
{
    size_t middle = store == TTI_CACHED ? bytes : store == TTI_STREAMED ? 0 : bytes / 2 / TURN_BYTES * TURN_BYTES;
    size_t turn = store == TTI_MIXED ? TURN_BYTES : bytes;
    for (size_t front = 0, back = middle; front < middle || back < bytes; front += turn, back += turn) {
        if (front < middle) copy_range(dsts, dst_count, src, front, least(front + turn, middle), TTI_CACHED);
        if (back < bytes) copy_range(dsts, dst_count, src, back, least(back + turn, bytes), store);
    }
    if (store != TTI_CACHED) tti_stream_end();
}

void tti_copy_apart(void *const *dsts, int here, int dst_count, const void *src, size_t bytes)
{
    for (size_t begin = 0; begin < bytes; begin += TURN_BYTES) {
        size_t end = least(begin + TURN_BYTES, bytes);
        copy_range(dsts, here, src, begin, end, TTI_CACHED);
        copy_range(dsts + here, dst_count - here, src, begin, end, TTI_MIXED);
    }
    tti_stream_end();
}

void tti_copy(void *dst, const void *src, size_t bytes, enum tti_store store)
{
    if (dst == src || bytes == 0) return;
    if (store == TTI_CACHED && (bytes < VECTOR_LEAST || bytes > VECTOR_MOST))
        memcpy(dst, src, bytes);
    else
        tti_copy_to_all(&dst, 1, src, bytes, store);
}

/* Returns the time after earlier stores are done: these wait in line behind the instructions that made them. */
static int64_t now_when_stored(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    return tti_now_ns();
}

static bool tries(const struct tti_staged_copy *staged_copy)
{
    return staged_copy->pace != TTI_FAST && staged_copy->turn % PERIOD < TRIAL;
}

enum tti_pace tti_staged_copy_pace(const struct tti_staged_copy *staged_copy)
{
    return tries(staged_copy) ? TTI_FAST : staged_copy->pace;
}

/* Judges by the time that a line has taken, in a trial or at the present pace. */
static void judge(struct tti_staged_copy *staged_copy, int64_t ns, bool trial)
{
    bool worse = !trial && ns > (staged_copy->pace == TTI_FAST ? FAST_NS : PLAIN_NS);
    staged_copy->worse = worse ? staged_copy->worse + 1 : 0;
    if (trial && ns <= FAST_NS)
        staged_copy->pace = TTI_FAST;
    else if (trial && ns <= PLAIN_AGAIN_NS)
        staged_copy->pace = TTI_PLAIN;
    else if (staged_copy->worse >= WORSE_ENOUGH && staged_copy->pace < TTI_SLOW) {
        staged_copy->pace++;
        staged_copy->worse = 0;
    }
}

void tti_copy_across(struct tti_staged_copy *staged_copy, void *dst, const void *src, size_t bytes, size_t from)
{
    if (bytes < from || tti_sim != NULL) {
        tti_copy(dst, src, bytes, TTI_CACHED);
        return;
    }
    bool trial = tries(staged_copy), streams = !trial && staged_copy->pace == TTI_SLOW;
    uint32_t every = trial ? TRIAL_TIMED : TIMED;
    bool timed = !streams && staged_copy->turn % every == every - 1;
    staged_copy->turn++;
    int64_t start = timed ? now_when_stored() : 0;
    tti_copy(dst, src, bytes, streams ? TTI_STREAMED : TTI_CACHED);
    if (timed) judge(staged_copy, (now_when_stored() - start) / (int64_t)(bytes / LINE_BYTES), trial);
}

void tti_swap(void *one, void *other, size_t bytes)
{
    size_t body = bytes & ~(size_t)(LINE_BYTES - 1), rest = bytes - body;
    char held[LINE_BYTES], *a = (char *)one + body, *b = (char *)other + body;
    tti_kernels_now()->swap(one, other, body);
    memcpy(held, a, rest);
    memcpy(a, b, rest);
    memcpy(b, held, rest);
}
