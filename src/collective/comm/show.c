/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that finds the row in use by another thread of its rank leaves it alone: the other one shows something as
 * new.
 */
#include "collective/comm/show.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "collective/comm/epoch.h"
#include "world/rows.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct sums {
    uint64_t ops, bytes;
    int64_t waited_ns, skew_ns, skew_most_ns;
};

struct tti_shown {
    struct tti_row_handle *row;
    struct sums gone;      /* sums of comms that were freed */
    _Atomic uint32_t lock; /* lock of: */
    struct tti_row_facts facts;
};

static bool try_lock(_Atomic uint32_t *lock)
{
    return atomic_exchange_explicit(lock, 1, memory_order_acquire) == 0;
}

struct tti_shown *tti_shown_open(const tutti_comm *comm)
{
    if (tti_sim != NULL) return NULL;
    struct tti_row_handle *row = tti_row_open(&comm->world->options, comm->job_rank);
    struct tti_shown *shown = row == NULL ? NULL : tti_calloc(1, sizeof *shown);
    if (shown == NULL) {
        tti_row_close(row);
        return NULL;
    }
    shown->row = row;
    shown->facts = (struct tti_row_facts){.pid = (int32_t)getpid(),
                                          .awaited = TTI_ROW_NOBODY,
                                          .blamed = TTI_ROW_NOBODY,
                                          .epoch = comm->world->segment->epoch,
                                          .seen_ns = tti_now_ns(),
                                          .op = "joined",
                                          .device = "host"};
    tti_row_write(row, &shown->facts);
    return shown;
}

void tti_shown_close(struct tti_shown *shown)
{
    if (shown == NULL) return;
    tti_row_close(shown->row);
    tti_free(shown);
}

const _Atomic uint32_t *tti_shown_watched(const struct tti_shown *shown)
{
    static const _Atomic uint32_t nobody;
    return shown == NULL ? &nobody : tti_row_watched(shown->row);
}

/* ---- Sums ------------------------------------------------------------------------------------------------------------ */

static void add(struct sums *sums, const struct tti_counts *counts)
{
    int64_t skew_most_ns = atomic_load_explicit(&counts->skew_most_ns, memory_order_relaxed);
    sums->ops += atomic_load_explicit(&counts->called, memory_order_relaxed);
    sums->bytes += atomic_load_explicit(&counts->bytes, memory_order_relaxed) +
                   atomic_load_explicit(&counts->messaged, memory_order_relaxed);
    sums->waited_ns += atomic_load_explicit(&counts->waited_ns, memory_order_relaxed);
    sums->skew_ns += atomic_load_explicit(&counts->skew_ns, memory_order_relaxed);
    if (skew_most_ns > sums->skew_most_ns) sums->skew_most_ns = skew_most_ns;
}

void tti_shown_keep(struct tti_shown *shown, const tutti_comm *comm)
{
    if (shown != NULL) add(&shown->gone, &comm->counts);
}

static void add_up(struct tti_rank_epoch *rank)
{
    struct tti_row_facts *facts = &rank->shown->facts;
    if (!try_lock(&rank->lock)) return;
    struct sums sums = rank->shown->gone;
    for (const tutti_comm *comm = rank->first; comm != NULL; comm = comm->traits.era.next) add(&sums, &comm->counts);
    tti_unlock(&rank->lock);
    facts->ops = sums.ops;
    facts->bytes = sums.bytes;
    facts->waited_ns = sums.waited_ns;
    facts->skew_ns = sums.skew_ns;
    facts->skew_most_ns = sums.skew_most_ns;
}

/* ---- Showing --------------------------------------------------------------------------------------------------------- */

/* Returns NULL if nobody watches, or if another thread uses the row. */
static struct tti_shown *begin(const tutti_comm *comm)
{
    const struct tti_rank_epoch *rank = comm->traits.era.rank;
    struct tti_shown *shown = rank == NULL ? NULL : rank->shown;
    return shown != NULL && try_lock(&shown->lock) ? shown : NULL;
}

static void finish(const tutti_comm *comm, struct tti_shown *shown)
{
    add_up(comm->traits.era.rank);
    shown->facts.epoch = atomic_load_explicit(&comm->traits.era.rank->now, memory_order_relaxed);
    shown->facts.seen_ns = tti_now_ns();
    tti_row_write(shown->row, &shown->facts);
    tti_unlock(&shown->lock);
}

static int awaited_of(const tutti_comm *comm, int awaited)
{
    return awaited < 0 ? TTI_ROW_ANYONE : tti_job_rank_of(comm, awaited);
}

/* Shows that the rank waits for nobody. */
static void end_wait(struct tti_row_facts *facts)
{
    facts->awaited = TTI_ROW_NOBODY;
    facts->since_ns = 0;
}

__attribute__((noinline)) void tti_show_op(const struct tti_op *op)
{
    const tutti_comm *comm = op->comm;
    struct tti_shown *shown = begin(comm);
    char what[240];
    if (shown == NULL) return;
    if (!tti_row_is_watched(shown->row)) {
        tti_unlock(&shown->lock);
        return;
    }
    tti_call_describe(&op->call, what, sizeof what);
    snprintf(shown->facts.op, sizeof shown->facts.op, "#%llu %.100s", (unsigned long long)comm->sequence, what);
    end_wait(&shown->facts);
    finish(comm, shown);
}

/* Writes "last call was #7 barrier at a.c:10", without the rank in front, which is a number of this comm. */
static void tell(const tutti_comm *comm, int blamed, struct tti_row_facts *facts)
{
    char doing[192], whose[32];
    comm->peers->describe(comm, blamed, doing, sizeof doing);
    size_t length = (size_t)snprintf(whose, sizeof whose, "rank %d", blamed);
    const char *text = strncmp(doing, whose, length) == 0 ? doing + length + strcspn(doing + length, " ") : doing;
    snprintf(facts->told, sizeof facts->told, "%.*s", (int)sizeof facts->told - 1, text[0] == ' ' ? text + 1 : text);
    facts->told_ns = tti_now_ns();
    facts->blamed = tti_job_rank_of(comm, blamed);
}

void tti_show_wait(const tutti_comm *comm, const struct tti_wait_record *now, int64_t since_ns, int blamed)
{
    struct tti_shown *shown = begin(comm);
    if (shown == NULL) return;
    snprintf(shown->facts.op, sizeof shown->facts.op, "%.*s", (int)sizeof now->what, now->what);
    shown->facts.awaited = awaited_of(comm, now->awaited);
    shown->facts.since_ns = since_ns;
    shown->facts.blamed = TTI_ROW_NOBODY;
    if (blamed >= 0) tell(comm, blamed, &shown->facts);
    finish(comm, shown);
}

void tti_show_wait_ended(const tutti_comm *comm)
{
    struct tti_shown *shown = begin(comm);
    if (shown == NULL) return;
    end_wait(&shown->facts);
    finish(comm, shown);
}

void tti_show_device(const tutti_comm *comm, const char *name)
{
    struct tti_shown *shown = begin(comm);
    if (shown == NULL) return;
    snprintf(shown->facts.device, sizeof shown->facts.device, "%s", name);
    finish(comm, shown);
}
