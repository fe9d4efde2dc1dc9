/* SPDX-License-Identifier: Apache-2.0
 *
 * How an operation fails: for this rank alone (refused), or for all (broken).
 */
#include "base/clock.h"
#include "base/latest.h"
#include "base/log.h"
#include "collective/comm/comm.h"
#include <stdarg.h>
#include <string.h>
#include <tutti/experimental.h>

#define ADOPT_NS INT64_C(100000000)
#define ADOPT_LOOK_NS INT64_C(5000000)

static void fill(const tutti_comm *comm, tutti_error *error, uint64_t sequence, enum tti_kind kind, tutti_status status,
                 int peer)
{
    memset(error, 0, sizeof *error);
    error->status = status;
    error->rank = comm->rank;
    error->peer = peer;
    error->sequence = kind < TTI_LEAVE ? sequence : 0;
    snprintf(error->operation, sizeof error->operation, "%s", tti_kind_name(kind));
}

void tti_error_name(tutti_error *error, enum tti_kind kind)
{
    if (kind > TTI_LEAVE) error->sequence = 0;
    snprintf(error->operation, sizeof error->operation, "%s", tti_kind_name(kind));
}

/* Returns the record of the comm's rank; NULL: none that may be touched. In a child process another thread may have
 * held its lock. */
static struct tti_latest *latest_of(const tutti_comm *comm)
{
    return comm->traits.fork_count != tti_fork_count() ? NULL : comm->errors.latest;
}

static void fill_told(const tutti_comm *comm, const tutti_error *error, struct tti_told *told)
{
    char numbers[200] = "";
    *told = (struct tti_told){.error = *error};
    if (comm->world != NULL) tti_comm_numbers(comm, error->peer, numbers, sizeof numbers);
    if (numbers[0] != '\0') snprintf(told->numbers, sizeof told->numbers, "in a comm of %d: %s", comm->size, numbers);
}

void tti_comm_note(const tutti_comm *comm, const tutti_error *error)
{
    struct tti_told told = {.error = *error};
    if (comm != NULL)
        fill_told(comm, error, &told);
    else
        told.error.rank = -1;
    tti_latest_note(comm == NULL ? NULL : latest_of(comm), &told);
}

void tti_comm_show(tutti_comm *comm, const tutti_error *error)
{
    tti_lock(&comm->queue.lock);
    comm->errors.ended = *error;
    tti_unlock(&comm->queue.lock);
    atomic_store_explicit(&comm->errors.shows_ended, true, memory_order_release);
    tti_comm_note(comm, error);
}

/* The text may name hosts, files and calls as other ranks have told them, so it is made printable. */
__attribute__((format(printf, 2, 0))) static void write_text(tutti_error *error, const char *format, va_list arguments)
{
    vsnprintf(error->text, sizeof error->text, format, arguments);
    tutti_text_printable(error->text);
}

tutti_status tti_comm_describe(const tutti_comm *comm, tutti_error *error, enum tti_kind kind, tutti_status status,
                               const char *format, ...)
{
    fill(comm, error, 0, kind, status, -1);
    va_list arguments;
    va_start(arguments, format);
    write_text(error, format, arguments);
    va_end(arguments);
    return status;
}

/* Adds the place in the program of a call that was refused for its arguments. */
static void add_site(tutti_comm *comm)
{
    char site[112];
    size_t length = strlen(comm->errors.call.text);
    if (comm->caller.site.line <= 0 || strcmp(tutti_status_group(comm->errors.call.status), "argument") != 0) return;
    tti_site_describe(&comm->caller.site, site, sizeof site);
    snprintf(comm->errors.call.text + length, sizeof comm->errors.call.text - length, " (the call%s)", site);
}

static bool is_held(enum tti_kind kind)
{
    return kind < TTI_TUNING || kind == TTI_SEND || kind == TTI_RECV || kind == TTI_SENDRECV;
}

void tti_group_miss(tutti_comm *comm, enum tti_kind kind)
{
    struct tti_group *group = comm->caller.group;
    if (group == NULL || !is_held(kind)) return;
    group->calls++;
    if (group->broken_at != 0) return;
    group->broken = comm->errors.call;
    group->broken_at = group->calls;
}

void tti_group_spoil(tutti_comm *comm, enum tti_kind kind)
{
    struct tti_group *group = comm->caller.group;
    if (group == NULL || !is_held(kind) || group->error.status != TUTTI_OK) return;
    if (comm->errors.call.status == TUTTI_ERR_BROKEN) return; /* tti_group_miss */
    group->error = comm->errors.call;
    group->refused = group->calls + 1;
}

tutti_status tti_comm_refuse(tutti_comm *comm, enum tti_kind kind, tutti_status status, const char *format, ...)
{
    fill(comm, &comm->errors.call, 0, kind, status, -1);
    va_list arguments;
    va_start(arguments, format);
    write_text(&comm->errors.call, format, arguments);
    va_end(arguments);
    atomic_store_explicit(&comm->errors.shows_ended, false, memory_order_relaxed);
    bool has_site = kind != TTI_ALLOC && kind != TTI_FREE && kind != TTI_STATS;
    if (has_site) add_site(comm);
    tti_group_spoil(comm, kind);
    if (has_site) tti_call_forget(comm); /* what was said about this call must not stick */
    tti_comm_note(comm, &comm->errors.call);
    return status;
}

void tti_call_failed(tutti_comm *comm)
{
    atomic_store_explicit(&comm->errors.shows_ended, false, memory_order_relaxed);
    if (tti_comm_is_broken(comm)) atomic_store_explicit(&comm->errors.told, true, memory_order_relaxed);
    tti_comm_note(comm, &comm->errors.call);
}

void tti_comm_blame(tutti_comm *comm, int peer)
{
    comm->errors.call.peer = peer;
    tti_comm_note(comm, &comm->errors.call);
}

void tti_comm_leave_differing(tutti_comm *comm, int peer, const char *text)
{
    tutti_error error;
    fill(comm, &error, 0, TTI_LEAVE, TUTTI_ERR_MISMATCH, peer);
    snprintf(error.text, sizeof error.text, "rank %d leaves a comm whose %s", comm->rank, text);
    tti_log(TUTTI_ERROR, "%s", error.text);
    tti_comm_note(comm, &error);
    tti_latest_fail(comm->errors.latest);
    comm->errors.left_differing = true;
}

bool tti_is_of_this_process(const tutti_comm *comm, int peer)
{
    int64_t each = comm->world->options.ranks; /* threads of a process */
    if (comm->lanes == NULL) return tti_info_of(comm, peer)->pid == tti_info_of(comm, comm->rank)->pid;
    return tti_member(comm, peer) / each == comm->job_rank / each;
}

/* Notes that another process is the cause, also for what this process may end with now. */
static void note_cause(const tutti_comm *comm, int peer)
{
    if (peer >= 0 && tti_sim == NULL && !tti_is_of_this_process(comm, peer)) tti_world_follow(comm->world);
}

/* Tries to make this rank the one that breaks the comm: from `before` on no other rank does. */
static bool begin_breaking(tutti_comm *comm, uint32_t before)
{
    uint32_t breaking = TTI_BREAKING | (uint32_t)comm->rank << TTI_BROKEN_BITS;
    return atomic_compare_exchange_strong_explicit(&comm->area->broken, &before, breaking, memory_order_seq_cst,
                                                   memory_order_seq_cst);
}

static void finish_breaking(tutti_comm *comm, const tutti_error *error)
{
    comm->area->failure = *error;
    comm->area->failure.next_epoch = (uint64_t)comm->traits.era.made + 1;
    comm->peers->decisions->settle_lost(comm);
    atomic_store_explicit(&comm->area->broken, TTI_BROKEN, memory_order_seq_cst);
}

bool tti_comm_store_failure(tutti_comm *comm, const tutti_error *error)
{
    if (!begin_breaking(comm, TTI_WHOLE)) return false;
    finish_breaking(comm, error);
    return true;
}

/* The rank that was breaking the comm died meanwhile: this rank breaks it instead, with that death as the cause. */
static void replace_breaker(tutti_comm *comm, uint32_t breaking)
{
    int breaker = (int)(breaking >> TTI_BROKEN_BITS);
    char who[160];
    tutti_error error;
    if ((breaking & ~(~0U << TTI_BROKEN_BITS)) != TTI_BREAKING || breaker == comm->rank) return;
    if (comm->peers->find_lost(comm, breaker, true, who, sizeof who) != breaker) return;
    if (!begin_breaking(comm, breaking)) return;
    fill(comm, &error, 0, TTI_LEAVE, TUTTI_ERR_PEER_LOST, breaker);
    snprintf(error.text, sizeof error.text, "rank %d died or ended without leaving (%s), while it reported an error",
             breaker, who);
    finish_breaking(comm, &error);
    comm->peers->notify(comm, TTI_NEWS_BROKE);
}

/* Waits until the rank that breaks the comm has copied one sentence. Returns false if it does not, though it lives. */
static bool await_broken(tutti_comm *comm)
{
    int64_t began = tti_now_ns(), looked = began;
    uint32_t broken;
    while ((broken = atomic_load_explicit(&comm->area->broken, memory_order_acquire)) != TTI_BROKEN) {
        int64_t now = tti_now_ns();
        if (now - began > ADOPT_NS) return false;
        if (now - looked > ADOPT_LOOK_NS) {
            replace_breaker(comm, broken);
            looked = now;
        }
        tti_wait_turn();
    }
    return true;
}

/* Gets the error that broke the comm as this rank tells it: the same status, peer and words on every rank, about this
 * rank's own operation. */
static tutti_status adopt(tutti_comm *comm, enum tti_kind kind, uint64_t sequence, tutti_error *error)
{
    if (!await_broken(comm)) {
        fill(comm, error, sequence, kind, TUTTI_ERR_PEER_LOST, -1);
        snprintf(error->text, sizeof error->text, "a rank stopped while it reported an error");
        return error->status;
    }
    const tutti_error *failure = &comm->area->failure;
    fill(comm, error, sequence, kind, failure->status, failure->peer);
    error->next_epoch = failure->next_epoch;
    snprintf(error->text, sizeof error->text, "%.*s", (int)sizeof failure->text - 1, failure->text);
    tutti_text_printable(error->text); /* another process may have written it, on another host */
    note_cause(comm, failure->peer);
    return error->status;
}

bool tti_comm_failure(tutti_comm *comm, tutti_error *failure)
{
    if (!tti_comm_is_broken(comm) || !await_broken(comm)) return false;
    *failure = comm->area->failure;
    failure->text[sizeof failure->text - 1] = '\0';
    tutti_text_printable(failure->text);
    return true;
}

tutti_status tti_comm_notify(tutti_comm *comm, enum tti_kind kind)
{
    return adopt(comm, kind, 0, &comm->errors.call);
}

/* Returns false if the comm is broken already. */
static bool break_with(tutti_comm *comm, const tutti_error *error)
{
    if (!tti_comm_store_failure(comm, error)) return false;
    comm->peers->notify(comm, TTI_NEWS_BROKE);
    note_cause(comm, error->peer);
    tti_log(TUTTI_INFO, "rank %d: %s", comm->rank, error->text);
    return true;
}

tutti_status tti_comm_break(tutti_comm *comm, enum tti_kind kind, tutti_status status, int peer, const char *format,
                            ...)
{
    tutti_error error;
    fill(comm, &error, comm->sequence, kind, status, peer);
    va_list arguments;
    va_start(arguments, format);
    write_text(&error, format, arguments);
    va_end(arguments);
    if (!break_with(comm, &error)) return adopt(comm, kind, comm->sequence, comm->errors.sink);
    error.next_epoch = (uint64_t)comm->traits.era.made + 1;
    *comm->errors.sink = error;
    return status;
}

tutti_status tti_comm_break_apart(tutti_comm *comm, enum tti_kind kind, tutti_status status, int peer,
                                  const char *format, ...)
{
    tutti_error error;
    fill(comm, &error, 0, kind, status, peer);
    va_list arguments;
    va_start(arguments, format);
    write_text(&error, format, arguments);
    va_end(arguments);
    break_with(comm, &error);
    return status;
}

static tutti_status lose(tutti_comm *comm, enum tti_kind kind, int lost, const char *who)
{
    char doing[192];
    comm->peers->describe(comm, lost, doing, sizeof doing);
    return tti_comm_break(comm, kind, TUTTI_ERR_PEER_LOST, lost,
                          "rank %d died or ended without leaving (%s); %s; look at its output, then start the job "
                          "again",
                          lost, who, doing);
}

tutti_status tti_comm_health(tutti_comm *comm, enum tti_kind kind, bool polls)
{
    if (atomic_load_explicit(&comm->area->broken, memory_order_acquire) != TTI_WHOLE)
        return adopt(comm, kind, comm->sequence, comm->errors.sink);
    if (comm->traits.tolerant) return TUTTI_OK; /* it does without ranks that are lost */
    char who[160];
    int lost = comm->peers->find_lost(comm, 0, polls, who, sizeof who);
    return lost < 0 ? TUTTI_OK : lose(comm, kind, lost, who);
}

void tti_comm_quarantine(tutti_comm *comm, enum tti_kind kind, int peer, const void *in, const void *out)
{
    tti_arena_quarantine(comm->world->arena, in);
    tti_arena_quarantine(comm->world->arena, out);
    size_t length = strlen(comm->errors.sink->text);
    snprintf(comm->errors.sink->text + length, sizeof comm->errors.sink->text - length,
             "; rank %d may still use this call's buffers: do not reuse them", peer);
    tti_log(TUTTI_WARN, "rank %d: rank %d did not leave %s: its buffers stay quarantined", comm->rank, peer,
            tti_kind_name(kind));
}

static bool has_numbers_of_its_own(const tutti_comm *comm)
{
    for (int rank = 0; rank < comm->size; rank++)
        if (tti_job_rank_of(comm, rank) != rank) return true;
    return false;
}

/* Writes all numbers of a small comm; of a large one those of this rank and of the peer. */
void tti_comm_numbers(const tutti_comm *comm, int peer, char *text, size_t bytes)
{
    enum { SHOWN = 8 };
    bool all = comm->size <= SHOWN, first = true;
    size_t used = 0;
    text[0] = '\0';
    if (!has_numbers_of_its_own(comm)) return;
    for (int rank = 0; rank < comm->size && used < bytes; rank++) {
        if (!all && rank != comm->rank && rank != peer) continue;
        used += (size_t)snprintf(text + used, bytes - used,
                                 first ? "its rank %d is rank %d of the world" : ", %d is %d", rank,
                                 tti_job_rank_of(comm, rank));
        first = false;
    }
}

/* ---- For users ------------------------------------------------------------------------------------------------- */

const tutti_error *tutti_comm_error(const tutti_comm *comm)
{
    if (comm == NULL) return NULL;
    bool ended = atomic_load_explicit(&comm->errors.shows_ended, memory_order_acquire);
    const tutti_error *error = ended ? &comm->errors.ended : &comm->errors.call;
    return error->status != TUTTI_OK ? error : NULL;
}

static void print_told(const struct tti_told *told, FILE *stream)
{
    const tutti_error *error = &told->error;
    char number[32] = "";
    if (error->sequence > 0) snprintf(number, sizeof number, " #%llu", (unsigned long long)error->sequence);
    fprintf(stream, "tutti: rank %d: %s%s: %s\n  %s\n", error->rank, error->operation, number,
            tutti_status_name(error->status), error->text);
    if (told->numbers[0] != '\0') fprintf(stream, "  %s\n", told->numbers);
}

int tutti_explain(const tutti_comm *comm, FILE *stream)
{
    if (stream == NULL) stream = stderr;
    if (comm == NULL) {
        fprintf(stream, "tutti: there is no comm: joining failed for lack of memory, it was left already, or this rank "
                        "is in none\n");
        return 1;
    }
    struct tti_told told;
    const tutti_error *own = tutti_comm_error(comm);
    if (own != NULL)
        fill_told(comm, own, &told);
    else if (!tti_latest_find(latest_of(comm), &told))
        return 0;
    if (told.error.rank < 0) told.error.rank = comm->rank;
    print_told(&told, stream);
    return 1;
}
