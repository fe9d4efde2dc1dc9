/* SPDX-License-Identifier: Apache-2.0
 *
 * A word: a number in host memory that only grows, which streams, the host and other processes raise and wait for.
 * Comparison is cyclic and signed, as GPUs do it (cuStreamWaitValue64, GEQ): `value` is reached from itself on for 2^63
 * numbers. To let all waits go for good, a word is raised by TTI_WORD_FAR, not to the largest number.
 *
 * A GPU only stores the number; a thread of the host that stores it also rings the bell for sleepers. So a sleeper
 * sleeps for a short time only, since a GPU or another process may be the one to raise it.
 */
#ifndef TTI_DEVICE_WORD_H
#define TTI_DEVICE_WORD_H

#include "base/wait.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <tutti/tutti.h>

struct tti_device;
struct tti_stream;

#define TTI_WORD_FAR (UINT64_C(1) << 62)

struct tti_word {
    _Alignas(64) _Atomic uint64_t value;
    tti_bell bell;
    _Atomic uint32_t sleepers;
};

static inline bool tti_word_reached(const struct tti_word *word, uint64_t value)
{
    return (int64_t)(atomic_load_explicit(&word->value, memory_order_acquire) - value) >= 0;
}

/* Returns true if it was raised by far, past the value: this lets all waits go, and the work that it stands for need
 * not have been done. */
static inline bool tti_word_is_far(const struct tti_word *word, uint64_t value)
{
    return tti_word_reached(word, value + TTI_WORD_FAR / 2);
}

/* Stores the value, from the host, and wakes all that wait for it. */
void tti_word_store(struct tti_word *word, uint64_t value);

/* Waits until the word has reached the value; returns false if `ended` returned true, or the deadline (by the one
 * clock) has passed. `slow` (may be NULL) is called once, when the wait has become long. */
struct tti_word_wait {
    int64_t deadline_ns;
    bool (*ended)(void *context);
    void (*slow)(void *context);
    void *context;
};
bool tti_word_wait(struct tti_word *word, uint64_t value, const struct tti_word_wait *wait);

/* Does the same for a caller on the host that waits for work of this stream: ERR_TIMEOUT, ERR_DEVICE (poisoned),
 * ERR_STALE (the device was shut down), ERR_CANCELLED (the stream was given up). */
tutti_status tti_word_await(struct tti_stream *stream, struct tti_word *word, uint64_t value, int64_t deadline_ns,
                            tutti_error *error);

/* Words that the device can raise and hold for. A word keeps its number when it is given back: the next taker counts on
 * from there, and gives it back when no work refers to it any more. They stay readable until nothing refers to the
 * device. */
tutti_status tti_word_take(struct tti_device *device, struct tti_word **word, tutti_error *error);
void tti_word_give(struct tti_device *device, struct tti_word *word); /* NULL is ignored */
/* Called when the device is started again, when it is shut, and when nothing refers to it any more. */
tutti_status tti_words_enlist(struct tti_device *device, tutti_error *error);
void tti_words_withdraw(struct tti_device *device);
void tti_words_free(struct tti_device *device);

#endif
