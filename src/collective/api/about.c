/* SPDX-License-Identifier: Apache-2.0
 *
 * What a user asks a comm or tells it: its ranks, what holds for its next call, its memory, its switch-over sizes.
 */
#define TUTTI_NO_CALL_SITES
#include "base/status.h"
#include "collective/api/api.h"
#include "collective/api/inside.h"
#include "collective/engine/engine.h"
#include "collective/op/in_use.h"
#include "collective/op/pending.h"
#include "collective/peers/net.h"
#include "collective/peers/posts.h"
#include <string.h>

uint64_t tutti_epoch(const tutti_comm *comm)
{
    return comm == NULL ? 0 : comm->traits.era.made;
}

int tutti_rank(const tutti_comm *comm)
{
    return comm == NULL ? -1 : comm->rank;
}

int tutti_size(const tutti_comm *comm)
{
    return comm == NULL ? -1 : comm->size;
}

int tutti_world_rank(const tutti_comm *comm, int rank)
{
    bool there = comm != NULL && comm->world != NULL && rank >= 0 && rank < comm->size;
    return there ? tti_job_rank_of(comm, rank) : -1;
}

const char *tutti_job(const tutti_comm *comm)
{
    return comm == NULL || comm->world == NULL ? "" : comm->world->job;
}

bool tutti_all_threads(const tutti_comm *comm)
{
    return comm != NULL && comm->traits.all_threads;
}

const char *tutti_comm_transport(const tutti_comm *comm)
{
    if (comm == NULL) return "";
    if (comm->lanes == NULL) return tti_sim != NULL ? "sim" : comm->traits.all_threads ? "thread" : "shm";
    bool memory = tti_posts_cover(comm, TTI_ALL_REDUCE);
    return memory && tti_sim == NULL ? "shm+tcp" : comm->lanes->net->transport->ops->name;
}

const char *tutti_kernels(void)
{
    return tti_kernels_name();
}

/* ---- About the next call --------------------------------------------------------------------------------------- */

tutti_comm *tutti_at(tutti_comm *comm, const char *file, int line)
{
    if (comm == NULL) return NULL;
    comm->caller.site.line = line;
    if (file == comm->caller.site_file) return comm;
    comm->caller.site_file = file;
    size_t length = file == NULL ? 0 : strlen(file), most = sizeof comm->caller.site.file - 1;
    const char *tail = length > most ? file + length - most : file;
    snprintf(comm->caller.site.file, sizeof comm->caller.site.file, "%s", tail == NULL ? "" : tail);
    return comm;
}

tutti_comm *tutti_named(tutti_comm *comm, const char *name)
{
    if (comm == NULL) return NULL;
    snprintf(comm->caller.site.name, sizeof comm->caller.site.name, "%s", name == NULL ? "" : name);
    comm->caller.site.inside = false;
    return comm;
}

struct tti_here tti_here(const tutti_comm *comm)
{
    return (struct tti_here){comm->caller.site_file, (int)comm->caller.site.line};
}

tutti_status tti_inside_break(tutti_comm *comm, enum tti_kind operation, tutti_status status, const char *text)
{
    TTI_TRY(tti_api_begin(comm, operation));
    tti_queue_hold(comm); /* ops may be in flight; they end because the comm breaks */
    status = tti_queue_let_go(comm, tti_comm_break(comm, operation, status, comm->rank, "%s", text));
    tti_call_end(comm);
    return status;
}

tutti_comm *tti_inside(tutti_comm *comm, const char *who, const char *what)
{
    if (comm == NULL) return NULL;
    const bool said = what != NULL && what[0] != '\0';
    snprintf(comm->caller.site.name, sizeof comm->caller.site.name, "%s%s%s", who, said ? ": " : "", said ? what : "");
    comm->caller.site.inside = true;
    return comm;
}

tutti_comm *tutti_within(tutti_comm *comm, int64_t deadline_ms)
{
    if (deadline_ms > TTI_WEEK_MS) deadline_ms = TTI_WEEK_MS; /* the most that the option allows, too */
    if (comm != NULL) comm->caller.deadline_ms = deadline_ms < 1 ? 1 : deadline_ms;
    return comm;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Returns how many bytes later than a whole page a buffer begins. An operation moves the same place of all ranks'
 * buffers at the same time, and caches hold few lines whose addresses end alike. So each rank's and each allocation's
 * buffer begins a different number of pages later, with more than four ranks plus some lines; two ranks need no pages,
 * since the lines of both fit. Each allocation also begins a few lines later than the one before: what is read must not
 * end like what was written a moment ago, or the core would wait; one to three lines are the worst, five the best. The
 * shift is at most an eighth of the buffer. */
static size_t shift_of(tutti_comm *comm, size_t bytes)
{
    enum { LINE = 64, PAGE = 64 /* lines */, SOME = 5, TURNS = 12, APART = 17 /* ranks */, MOST = 128 << 10 };
    uint64_t turn = atomic_fetch_add_explicit(&comm->counts.allocations, 1, memory_order_relaxed);
    uint64_t lines = (bytes / 8 < MOST ? bytes / 8 : MOST) / LINE, place = turn * APART + (uint64_t)comm->rank;
    if (lines < PAGE) return 0;
    if (comm->size > 4) return place * (PAGE + SOME) % lines * LINE;
    return ((comm->size > 2 ? place % (lines / PAGE) * PAGE : 0) + turn % TURNS * SOME) * LINE;
}

void *tutti_alloc(tutti_comm *comm, size_t bytes)
{
    if (comm == NULL || tti_comm_is_stillborn(comm)) return NULL;
    if (comm->traits.fork_count != tti_fork_count()) {
        tti_comm_refuse(comm, TTI_ALLOC, TUTTI_ERR_FORKED, "this comm belongs to the parent process");
        return NULL;
    }
    tutti_error error = {0};
    void *pointer = tti_arena_alloc_shifted(comm->world->arena, bytes, shift_of(comm, bytes), &error);
    if (pointer == NULL) tti_comm_refuse(comm, TTI_ALLOC, error.status, "%s", error.text);
    return pointer;
}

tutti_status tutti_free(tutti_comm *comm, void *pointer)
{
    if (pointer == NULL) return TUTTI_OK;
    if (comm == NULL) return tti_api_no_comm(TTI_FREE);
    if (tti_comm_is_stillborn(comm)) return comm->errors.call.status;
    if (comm->traits.fork_count != tti_fork_count())
        return tti_comm_refuse(comm, TTI_FREE, TUTTI_ERR_FORKED, "this comm belongs to the parent process");
    tutti_error error = {0};
    char op[160];
    size_t bytes = tti_arena_bytes(comm->world->arena, pointer);
    if (bytes > 0 && tti_is_in_use(comm, pointer, bytes, op, sizeof op))
        return tti_comm_refuse(comm, TTI_FREE, TUTTI_ERR_ARGUMENT,
                               "free: %p is used by %s, which is in flight; it can be freed once that has ended",
                               pointer, op);
    tutti_status status = tti_arena_free(comm->world->arena, pointer, &error);
    return status == TUTTI_OK ? TUTTI_OK : tti_comm_refuse(comm, TTI_FREE, status, "%s", error.text);
}

/* ---- Tuning ---------------------------------------------------------------------------------------------------- */

void tutti_tuning_get(const tutti_comm *comm, tutti_tuning *tuning)
{
    if (comm == NULL || tuning == NULL || tti_comm_is_stillborn(comm)) return;
    *tuning = comm->tuning;
}

static tutti_status check_tuning(tutti_comm *comm, const tutti_tuning *tuning)
{
    const int64_t values[] = {
#define VALUE(name, kind, initial, low, high, help) tuning->name,
        TUTTI_TUNING_LIST(VALUE)
#undef VALUE
    };
    size_t count;
    const tutti_option_row *rows = tutti_tuning_rows(&count);
    for (size_t i = 0; i < count; i++) {
        if (values[i] >= rows[i].low && values[i] <= rows[i].high) continue;
        return tti_comm_refuse(comm, TTI_TUNING, TUTTI_ERR_OPTION, "tuning_set: %s is %lld; it goes from %lld to %lld",
                               rows[i].name, (long long)values[i], (long long)rows[i].low, (long long)rows[i].high);
    }
    return TUTTI_OK;
}

/* Sets the table, after a barrier that also compares the ranks' tables. */
tutti_status tutti_tuning_set(tutti_comm *comm, const tutti_tuning *tuning)
{
    TTI_TRY(tti_api_begin(comm, TTI_TUNING));
    TTI_TRY(tti_group_without(comm, TTI_TUNING));
    if (tuning == NULL) return tti_comm_refuse(comm, TTI_TUNING, TUTTI_ERR_ARGUMENT, "tuning_set: `tuning` is NULL");
    TTI_TRY(check_tuning(comm, tuning));
    size_t words[sizeof *tuning / sizeof(size_t)];
    memcpy(words, tuning, sizeof words);
    struct tti_op *op = tti_op_fill(comm, TTI_TUNING, NULL, 0, NULL, 0, 0, TUTTI_TYPE_COUNT, -1);
    op->call.counts_signature = tti_counts_signature(words, (int)(sizeof words / sizeof *words));
    TTI_TRY(tti_api_run(op, NULL));
    tti_queue_hold(comm); /* messages may be under way, and they follow the table */
    comm->tuning = *tuning;
    tti_plan_cache_clear(&comm->engine->plans);
    tti_tuning_complete(&comm->tuning);
    return tti_queue_let_go(comm, TUTTI_OK);
}
