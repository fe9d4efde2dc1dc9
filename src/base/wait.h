/* SPDX-License-Identifier: Apache-2.0
 *
 * The one way to wait: poll; between polls spin, then yield the core, then sleep on a bell.
 *
 *     struct tti_wait wait;
 *     tti_wait_begin(&wait, crowded, patience_ns);
 *     while (!ready()) {
 *         if (tti_wait_pause(&wait, …)) continue;      spun or yielded: poll again
 *         … register as a sleeper, poll once more, then tti_bell_sleep(…)
 *     }
 *
 * The clock is read at most every few spins, so that a short wait does not pay for it.
 */
#ifndef TTI_BASE_WAIT_H
#define TTI_BASE_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct tti_wait {
    uint32_t rounds;
    uint32_t spins; /* spins since the last yield */
    uint32_t yields;
    bool crowded;        /* there are more ranks than cores */
    int64_t patience_ns; /* how long to yield before sleeping */
    int64_t started_ns;  /* 0 until the clock was first read */
    int64_t now_ns;      /* the last reading */
};

void tti_wait_begin(struct tti_wait *wait, bool crowded, int64_t patience_ns);

/* Returns true after it has spun or yielded: poll again; false: it is time to sleep. `give_way`: with more ranks than
 * cores, the awaited event cannot happen before another rank gets this core; otherwise it may come from another core at
 * any moment. */
bool tti_wait_pause(struct tti_wait *wait, bool give_way);

/* Lets others run between two polls of a wait that is rare and has no bell. */
void tti_wait_turn(void);
/* Returns when the lock was seen free or, since its holder may have lost its core, after others could run. */
void tti_lock_await(_Atomic uint32_t *lock);
/* Takes a lock that is held for a few instructions; 0: it is free. */
static inline void tti_lock(_Atomic uint32_t *lock)
{
    while (atomic_exchange_explicit(lock, 1, memory_order_acquire) != 0) tti_lock_await(lock);
}
static inline void tti_unlock(_Atomic uint32_t *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
}
/* Called after a caller's own poll that found nothing, since it may poll again at once: in simulated time, too, polling
 * takes time. */
void tti_wait_polled(void);

/* Returns true once spinning has given way to yielding or sleeping: slower checks are affordable, now_ns is recent. */
bool tti_wait_slow(const struct tti_wait *wait);

/* A bell: ringing it wakes all threads that sleep on it. */
typedef _Atomic uint32_t tti_bell;

/* Sleeps until the bell no longer has the value `seen`, at most `timeout_ns`. `shared`: the bell is in memory of
 * several processes. Spurious returns are allowed: the caller polls. */
void tti_bell_sleep(tti_bell *bell, uint32_t seen, int64_t timeout_ns, bool shared);
void tti_bell_ring(tti_bell *bell, bool shared);

void tti_relax(void); /* one spin that relaxes the processor */

/* Fences for two sides that "store mine, then read yours", of which one is frequent and the other rare. The frequent
 * side pays for no fence: the rare side makes all other processors complete their stores in order, by a system call.
 * Then either the rare side sees the store, or the frequent side sees what the rare side stored before. */
bool tti_fence_setup(void); /* called once per process; false: this system cannot, so both sides must fence (`both`) */
static inline void tti_fence_frequent(bool both)
{
    if (both)
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst);
}
void tti_fence_rare(void);

/* Cores: the set on which the calling thread may run, and the number of cores in a set. */
enum { TTI_CORE_WORDS = 16 };
int tti_core_now(void); /* returns the core on which the thread runs */
void tti_cores_mine(uint64_t cores[TTI_CORE_WORDS]);
int tti_cores_count(const uint64_t cores[TTI_CORE_WORDS]);
/* Returns how many cores the ranks of this host have together, as one of them sees it: a rank that is bound to one core
 * knows nothing of the others' cores, and one that may run on several shares these. */
int tti_cores_of_host(void);

#endif
