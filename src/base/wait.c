/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wait.h"

#include "base/clock.h"
#include "base/sim.h"
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SPIN_NS = 50000,      /* longer than any exchange between two running ranks of a small payload */
    SPINS_PER_CLOCK = 64, /* reading the clock takes as long as about a dozen spins */
    YIELDS_PER_CLOCK = 4,
    CROWDED_SPINS = 40,
    SIMULATED_TURN_NS = 20000,
    LOCK_SPINS = 30, /* about a microsecond: the least cost of a turn on the core */
    BARE_POLLS = 24  /* first polls without the processor's pause: an event that is about to come is seen sooner */
};

void tti_relax(void)
{
    if (tti_sim != NULL) {
        tti_wait_turn();
        return;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- Fences ---------------------------------------------------------------------------------------------------- */

static pthread_once_t fence_once = PTHREAD_ONCE_INIT;
static bool fence_registered;

static void fence_register(void)
{
    fence_registered = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

bool tti_fence_setup(void)
{
    pthread_once(&fence_once, fence_register);
    return fence_registered;
}

void tti_fence_rare(void)
{
    if (tti_sim != NULL) return; /* one thread sees its own stores in order */
    atomic_thread_fence(memory_order_seq_cst);
    if (fence_registered) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

/* ---- Pausing --------------------------------------------------------------------------------------------------- */

void tti_wait_begin(struct tti_wait *wait, bool crowded, int64_t patience_ns)
{
    *wait = (struct tti_wait){.crowded = crowded, .patience_ns = patience_ns};
}

static void read_clock(struct tti_wait *wait)
{
    wait->now_ns = tti_now_ns();
    if (wait->started_ns == 0) wait->started_ns = wait->now_ns;
}

/* Returns true if the wait spins on. A crowded wait spins no longer than a turn on the core costs. */
static bool spins_on(struct tti_wait *wait, bool give_way)
{
    if (wait->crowded) return !give_way && wait->spins++ < CROWDED_SPINS;
    if (wait->rounds % SPINS_PER_CLOCK == 0) read_clock(wait);
    return wait->now_ns - wait->started_ns < SPIN_NS;
}

bool tti_wait_pause(struct tti_wait *wait, bool give_way)
{
    wait->rounds++;
    if (tti_sim != NULL) { /* polling again at the same moment finds the same */
        read_clock(wait);
        return false;
    }
    if (spins_on(wait, give_way)) {
        if (wait->rounds > BARE_POLLS) tti_relax();
        return true;
    }
    wait->spins = 0;
    wait->yields++;
    if (!wait->crowded || wait->yields % YIELDS_PER_CLOCK == 1) read_clock(wait);
    if (wait->now_ns - wait->started_ns >= wait->patience_ns) return false;
    sched_yield();
    return true;
}

void tti_wait_turn(void)
{
    if (tti_sim != NULL)
        tti_sim_sleep(SIMULATED_TURN_NS);
    else
        sched_yield();
}

void tti_lock_await(_Atomic uint32_t *lock)
{
    for (int i = 0; i < LOCK_SPINS && tti_sim == NULL; i++) {
        if (atomic_load_explicit(lock, memory_order_relaxed) == 0) return;
        tti_relax();
    }
    tti_wait_turn();
}

void tti_wait_polled(void)
{
    if (tti_sim != NULL) tti_sim_sleep(SIMULATED_TURN_NS);
}

bool tti_wait_slow(const struct tti_wait *wait)
{
    return wait->now_ns - wait->started_ns >= SPIN_NS;
}

static long futex(tti_bell *bell, int operation, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, (void *)bell, operation, value, timeout, NULL, 0);
}

void tti_bell_sleep(tti_bell *bell, uint32_t seen, int64_t timeout_ns, bool shared)
{
    if (timeout_ns <= 0) return;
    if (tti_sim != NULL) {
        tti_sim_bell_sleep(bell, seen, timeout_ns);
        return;
    }
    struct timespec timeout = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
    futex(bell, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen, &timeout);
}

void tti_bell_ring(tti_bell *bell, bool shared)
{
    if (tti_sim != NULL) {
        tti_sim_bell_ring(bell, tti_sim_setup_of()->local_latency_ns);
        return;
    }
    atomic_fetch_add_explicit(bell, 1, memory_order_seq_cst);
    futex(bell, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
}

int tti_core_now(void)
{
    return sched_getcpu();
}

void tti_cores_mine(uint64_t cores[TTI_CORE_WORDS])
{
    if (tti_sim != NULL) { /* every rank has a core of its own: a simulation does not depend on where it runs */
        memset(cores, 0xff, TTI_CORE_WORDS * sizeof *cores);
        return;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
    for (size_t word = 0; word < TTI_CORE_WORDS; word++) {
        cores[word] = 0;
        for (size_t bit = 0; bit < 64; bit++)
            if (CPU_ISSET(word * 64 + bit, &set)) cores[word] |= UINT64_C(1) << bit;
    }
}

int tti_cores_count(const uint64_t cores[TTI_CORE_WORDS])
{
    int count = 0;
    for (int word = 0; word < TTI_CORE_WORDS; word++)
        for (uint64_t bits = cores[word]; bits != 0; bits &= bits - 1) count++;
    return count;
}

int tti_cores_of_host(void)
{
    uint64_t cores[TTI_CORE_WORDS];
    tti_cores_mine(cores);
    int count = tti_cores_count(cores);
    return count > 1 ? count : (int)sysconf(_SC_NPROCESSORS_ONLN);
}
