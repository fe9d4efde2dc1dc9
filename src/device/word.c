/* SPDX-License-Identifier: Apache-2.0 */
#include "device/word.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "device/open.h"
#include "device/ops.h"
#include <errno.h>

#define US INT64_C(1000)
enum {
    YIELD_US = 200, /* yields so long before a wait sleeps */
    NAP_US = 20,    /* the shortest sleep */
    NAP_PART = 32,  /* a sleep is this part of the time waited so far; the end may be seen so much later */
    NAP_MOST_US = 1000,
    CHUNK_WORDS = 64, /* one for each bit of `used` */
};

/* ---- Waiting ----------------------------------------------------------------------------------------------------- */

void tti_word_store(struct tti_word *word, uint64_t value)
{
    atomic_store_explicit(&word->value, value, memory_order_seq_cst);
    if (atomic_load_explicit(&word->sleepers, memory_order_seq_cst) != 0) tti_bell_ring(&word->bell, true);
}

/* Sleeps. A missed ring costs no more than the nap. */
static void nap(struct tti_word *word, uint64_t value, int64_t ns)
{
    uint32_t seen = atomic_load_explicit(&word->bell, memory_order_relaxed);
    atomic_fetch_add_explicit(&word->sleepers, 1, memory_order_seq_cst);
    if (!tti_word_reached(word, value)) tti_bell_sleep(&word->bell, seen, ns, true);
    atomic_fetch_sub_explicit(&word->sleepers, 1, memory_order_relaxed);
}

static int64_t nap_after(int64_t waited_ns)
{
    int64_t ns = waited_ns / NAP_PART;
    return ns < NAP_US * US ? NAP_US * US : ns < NAP_MOST_US * US ? ns : NAP_MOST_US * US;
}

bool tti_word_wait(struct tti_word *word, uint64_t value, const struct tti_word_wait *wait)
{
    struct tti_wait pause;
    bool slow = false;
    tti_wait_begin(&pause, true, YIELD_US * US);
    while (!tti_word_reached(word, value)) {
        if (wait->ended(wait->context)) return tti_word_reached(word, value);
        if (tti_wait_pause(&pause, true)) continue;
        int64_t now_ns = tti_now_ns(), left_ns = wait->deadline_ns - now_ns;
        int64_t nap_ns = nap_after(now_ns - pause.started_ns);
        if (left_ns <= 0) return tti_word_reached(word, value);
        if (!slow && wait->slow != NULL) wait->slow(wait->context);
        slow = true;
        nap(word, value, nap_ns < left_ns ? nap_ns : left_ns);
    }
    return true;
}

struct waiter {
    struct tti_stream *stream;
    bool watched;
};

static bool waiter_ended(void *context)
{
    const struct tti_stream *stream = ((struct waiter *)context)->stream;
    return atomic_load_explicit(&stream->device->poisoned, memory_order_acquire) != 0 ||
           atomic_load_explicit(&stream->given_up, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&stream->ended, memory_order_relaxed) != 0;
}

static void waiter_slow(void *context)
{
    struct waiter *waiter = context;
    struct tti_device *device = waiter->stream->device;
    if (device->ops->watch == NULL) return;
    device->ops->watch(device, waiter->stream, true);
    waiter->watched = true;
}

static tutti_status why(struct tti_stream *stream, tutti_error *error)
{
    struct tti_device *device = stream->device;
    const char *last = atomic_load_explicit(&stream->last, memory_order_relaxed);
    TTI_TRY(tti_device_usable(device, stream->generation, "stream", error));
    if (waiter_ended(&(struct waiter){.stream = stream}))
        return tti_error_set(error, TUTTI_ERR_CANCELLED, 0, "a stream of %s was given up while its work was waited for",
                             device->name);
    return tti_error_set(error, TUTTI_ERR_TIMEOUT, 0,
                         "work on a stream of %s has not ended in time; the last that was put there is %s. It goes on: "
                         "wait again, or free the stream",
                         device->name, last == NULL ? "nothing" : last);
}

tutti_status tti_word_await(struct tti_stream *stream, struct tti_word *word, uint64_t value, int64_t deadline_ns,
                            tutti_error *error)
{
    struct waiter waiter = {.stream = stream};
    struct tti_word_wait wait = {
        .deadline_ns = deadline_ns, .ended = waiter_ended, .slow = waiter_slow, .context = &waiter};
    bool reached = tti_word_wait(word, value, &wait);
    if (waiter.watched) stream->device->ops->watch(stream->device, stream, false);
    return reached ? TUTTI_OK : why(stream, error);
}

/* ---- Words of a device ------------------------------------------------------------------------------------------- */

struct tti_word_chunk {
    struct tti_word_chunk *next;
    struct tti_mapping mapping;
    uint64_t used; /* a bit for each word that is in use */
    bool enlisted;
};

static struct tti_word *words_of(const struct tti_word_chunk *chunk)
{
    return (struct tti_word *)(void *)chunk->mapping.base;
}

/* Adds whole pages, so that nothing else on them is registered with the device. */
static tutti_status add_chunk(struct tti_device *device, tutti_error *error)
{
    struct tti_word_chunk *chunk = tti_calloc(1, sizeof *chunk);
    if (chunk == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for words of %s", device->name);
    tutti_status status = tti_mapping_create(&chunk->mapping, CHUNK_WORDS * sizeof(struct tti_word), false, true,
                                             error);
    if (status != TUTTI_OK) goto free_chunk;
    status = device->ops->enlist(device, chunk->mapping.base, chunk->mapping.bytes, error);
    if (status != TUTTI_OK) goto unmap;
    chunk->enlisted = true;
    tti_lock(&device->lock);
    chunk->next = device->words;
    device->words = chunk;
    tti_unlock(&device->lock);
    return TUTTI_OK;

unmap:
    tti_mapping_destroy(&chunk->mapping);
free_chunk:
    tti_free(chunk);
    return status;
}

static struct tti_word *take_free(struct tti_device *device)
{
    struct tti_word *found = NULL;
    tti_lock(&device->lock);
    for (struct tti_word_chunk *chunk = device->words; chunk != NULL && found == NULL; chunk = chunk->next) {
        if (chunk->used == UINT64_MAX || !chunk->enlisted) continue;
        int place = __builtin_ctzll(~chunk->used);
        chunk->used |= UINT64_C(1) << place;
        found = words_of(chunk) + place;
    }
    tti_unlock(&device->lock);
    return found;
}

tutti_status tti_word_take(struct tti_device *device, struct tti_word **word, tutti_error *error)
{
    struct tti_word *found;
    while ((found = take_free(device)) == NULL) TTI_TRY(add_chunk(device, error));
    *word = found;
    return TUTTI_OK;
}

void tti_word_give(struct tti_device *device, struct tti_word *word)
{
    tti_lock(&device->lock);
    for (struct tti_word_chunk *chunk = device->words; chunk != NULL && word != NULL; chunk = chunk->next)
        if (word >= words_of(chunk) && word < words_of(chunk) + CHUNK_WORDS)
            chunk->used &= ~(UINT64_C(1) << (word - words_of(chunk)));
    tti_unlock(&device->lock);
}

tutti_status tti_words_enlist(struct tti_device *device, tutti_error *error)
{
    for (struct tti_word_chunk *chunk = device->words; chunk != NULL; chunk = chunk->next) {
        TTI_TRY(device->ops->enlist(device, chunk->mapping.base, chunk->mapping.bytes, error));
        chunk->enlisted = true;
    }
    return TUTTI_OK;
}

void tti_words_withdraw(struct tti_device *device)
{
    for (struct tti_word_chunk *chunk = device->words; chunk != NULL; chunk = chunk->next) {
        if (chunk->enlisted) device->ops->withdraw(device, chunk->mapping.base);
        chunk->enlisted = false;
    }
}

void tti_words_free(struct tti_device *device)
{
    while (device->words != NULL) {
        struct tti_word_chunk *chunk = device->words;
        device->words = chunk->next;
        tti_mapping_destroy(&chunk->mapping);
        tti_free(chunk);
    }
}
