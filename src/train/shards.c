/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps over a user's own shards. Ranks meet in the same order whatever their functions do: each tells all others the
 * result of its own function, or its failure, before anything is summed. So every rank decides the same from the same
 * records, and no rank waits for one that has given up.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/sized.h"
#include "base/status.h"
#include "collective/comm/comm.h"
#include "train/trainer.h"
#include <math.h>
#include <string.h>

/* The result of one function's call, as a rank tells it. All fields have 8 bytes: it is sent as it is in memory. */
struct record {
    int64_t status;
    uint64_t inputs; /* inputs in all, as this rank has them */
    uint64_t slice;  /* inputs of the rank's own slice */
    uint64_t outputs;
    double loss, samples, norm_squared;
};

struct tutti_shards {
    tutti_comm *comm;
    int rank, size;
    struct tti_here here; /* the call that is being made */
    tutti_shards_options options;
    size_t *sizes;          /* [size]; NULL: inputs are shared evenly */
    struct record *records; /* [size], from the last meeting */
    double *terms;          /* [size]: terms of a sum over ranks */
    float *output;          /* [room] */
    size_t room;            /* the same on all ranks */
    uint64_t step;          /* steps taken */
    double waited;          /* seconds in communication, since it was made */
    tutti_error error;
};

/* ---- Slices ---------------------------------------------------------------------------------------------------- */

static tutti_status fits(const struct tutti_shards *s, size_t count, tutti_error *error)
{
    size_t sum = 0;
    for (int r = 0; s->sizes != NULL && r < s->size; r++) sum += s->sizes[r];
    if (s->sizes != NULL && sum != count)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "shards: an input of %zu numbers on rank %d; the slices of all ranks have %zu", count,
                             s->rank, sum);
    if (s->sizes == NULL && count % s->options.unit != 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "shards: an input of %zu numbers on rank %d is no multiple of the unit, %zu", count,
                             s->rank, s->options.unit);
    return TUTTI_OK;
}

static struct tti_span slice_of(const struct tutti_shards *s, size_t count, int rank)
{
    struct tti_span slice = {0, 0};
    if (s->sizes == NULL) {
        slice = tti_share(count / s->options.unit, (size_t)rank, (size_t)s->size);
        return (struct tti_span){slice.lo * s->options.unit, slice.hi * s->options.unit};
    }
    for (int r = 0; r < rank; r++) slice.lo += s->sizes[r];
    slice.hi = slice.lo + s->sizes[rank];
    return slice;
}

tutti_status tutti_shards_slice(const tutti_shards *s, size_t count, int rank, size_t *first, size_t *inputs)
{
    tutti_error unused;
    if (s == NULL || first == NULL || inputs == NULL) return TUTTI_ERR_ARGUMENT;
    if (rank < 0 || rank >= s->size) return TUTTI_ERR_RANK;
    TTI_TRY(fits(s, count, &unused));
    const struct tti_span slice = slice_of(s, count, rank);
    *first = slice.lo;
    *inputs = slice.hi - slice.lo;
    return TUTTI_OK;
}

/* ---- Meeting --------------------------------------------------------------------------------------------------- */

static tutti_comm *comm_for(const struct tutti_shards *s, const char *what)
{
    return tti_inside(tutti_at(s->comm, s->here.file, s->here.line), "shards", what);
}

static tutti_status met(struct tutti_shards *s, int64_t began_ns, tutti_status status)
{
    s->waited += (double)(tti_now_ns() - began_ns) * 1e-9;
    const tutti_error *why = status == TUTTI_OK ? NULL : tutti_comm_error(s->comm);
    if (why != NULL) s->error = *why;
    return status;
}

/* Gives every rank the error of the lowest rank that has one. */
static tutti_status agree(struct tutti_shards *s, tutti_status status)
{
    const int64_t began_ns = tti_now_ns();
    status = tti_agree(tutti_at(s->comm, s->here.file, s->here.line), status, &s->error);
    s->waited += (double)(tti_now_ns() - began_ns) * 1e-9;
    return status;
}

/* ---- Making ---------------------------------------------------------------------------------------------------- */

static tutti_status check_options(const struct tutti_shards *s, tutti_error *error)
{
    if (s->options.step == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "shards: rank %d has no function for a step", s->rank);
    if (s->sizes != NULL && s->options.unit != 1)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "shards: rank %d gives sizes and a unit; a unit is for slices that are cut evenly",
                             s->rank);
    return TUTTI_OK;
}

static tutti_status make_parts(struct tutti_shards *s, const tutti_shards_options *options, tutti_error *error)
{
    if (options != NULL && !tti_sized_take(&s->options, sizeof s->options, options))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "shards: rank %d must set struct_size to sizeof(tutti_shards_options)", s->rank);
    const size_t size = (size_t)s->size;
    const size_t *given = s->options.sizes;
    s->records = tti_calloc(size, sizeof *s->records);
    s->terms = tti_calloc(size, sizeof *s->terms);
    if (given != NULL) s->sizes = tti_calloc(size, sizeof *s->sizes);
    if (s->records == NULL || s->terms == NULL || (given != NULL && s->sizes == NULL))
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "shards: no memory for the records of %d ranks", s->size);
    if (given != NULL) memcpy(s->sizes, given, size * sizeof *given);
    if (s->options.unit == 0) s->options.unit = 1;
    return check_options(s, error);
}

/* Compares the settings that must be the same on every rank: otherwise some would wait for a meeting to which others do
 * not come. */
static tutti_status compare(struct tutti_shards *s)
{
    uint64_t mine = tti_mix(s->options.unit, (uint64_t)(s->options.after != NULL) * 2 + (s->sizes != NULL));
    for (int r = 0; s->sizes != NULL && r < s->size; r++) mine = tti_mix(mine, s->sizes[r]);
    uint64_t first = mine;
    TTI_TRY(met(s, tti_now_ns(), tutti_broadcast(comm_for(s, "compare"), &first, &first, 1, TUTTI_U64, 0)));
    tutti_status status = TUTTI_OK;
    if (mine != first)
        status = tti_error_set(
            &s->error, TUTTI_ERR_MISMATCH, 0,
            "shards: rank %d has other sizes or another unit than rank 0, or only one of the two has "
            "a function for after the sum",
            s->rank);
    return agree(s, status);
}

static tutti_status make(struct tutti_shards *s, const tutti_shards_options *options)
{
    TTI_TRY(agree(s, make_parts(s, options, &s->error)));
    return compare(s);
}

static tutti_status create(tutti_comm *comm, const tutti_shards_options *options, tutti_shards **shards,
                           tutti_error *error)
{
    const struct tti_here here = tti_here(comm);
    struct tutti_shards *made = tti_calloc(1, sizeof *made);
    if (made == NULL)
        return tti_agree(comm, tti_error_set(error, TUTTI_ERR_MEMORY, 0, "shards: no memory for shards"), error);
    *made = (struct tutti_shards){
        .comm = comm, .here = here, .rank = tutti_rank(comm), .size = tutti_size(comm), .error = *error};
    tutti_status status = make(made, options);
    if (status == TUTTI_OK)
        *shards = made;
    else {
        *error = made->error;
        tutti_shards_free(made);
    }
    return status;
}

tutti_status tutti_shards_create(tutti_comm *comm, const tutti_shards_options *options, tutti_shards **shards,
                                 tutti_error *error)
{
    tutti_error unused;
    if (error == NULL) error = &unused;
    *error = (tutti_error){.rank = comm == NULL ? -1 : tutti_rank(comm), .peer = -1, .operation = "shards_create"};
    if (comm == NULL || shards == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "shards: a comm and a place to go are needed");
    *shards = NULL;
    tutti_status status = create(comm, options, shards, error);
    if (status != TUTTI_OK) tti_comm_note(comm, error);
    return status;
}

void tutti_shards_free(tutti_shards *s)
{
    if (s == NULL) return;
    (void)tutti_free(s->comm, s->output);
    tti_free(s->sizes);
    tti_free(s->records);
    tti_free(s->terms);
    tti_free(s);
}

tutti_shards *tutti_shards_at(tutti_shards *s, const char *file, int line)
{
    if (s != NULL) s->here = (struct tti_here){file, line};
    return s;
}

const tutti_error *tutti_shards_error(const tutti_shards *s)
{
    return s == NULL || s->error.status == TUTTI_OK ? NULL : &s->error;
}

/* ---- One rank's part ------------------------------------------------------------------------------------------- */

static tutti_status run(struct tutti_shards *s, tutti_shard_function *function, tutti_shard_call *call)
{
    char reason[TUTTI_SHARDS_REASON_BYTES] = "";
    call->reason = reason;
    tutti_status status = function(s->options.context, call);
    reason[sizeof reason - 1] = '\0';
    if (status == TUTTI_OK && call->output == NULL && call->outputs > 0)
        return tti_error_set(&s->error, TUTTI_ERR_ARGUMENT, 0,
                             "shards: rank %d gave a partial output of %zu numbers that is NULL", s->rank,
                             call->outputs);
    if (status == TUTTI_OK) return TUTTI_OK;
    if (status > 0) status = TUTTI_ERR_ARGUMENT; /* the function has failed, whatever else it returns */
    return tti_error_set(&s->error, status, 0, "shards: the shard of rank %d failed in step %llu%s: %s", s->rank,
                         (unsigned long long)call->step, function == s->options.after ? ", after the sum" : "",
                         reason[0] != '\0' ? reason : tutti_status_text(status));
}

static tutti_status begin(struct tutti_shards *s, const float *input, size_t count, tutti_shard_call *call)
{
    *call = (tutti_shard_call){.step = s->step + 1};
    TTI_TRY(fits(s, count, &s->error));
    const struct tti_span slice = slice_of(s, count, s->rank);
    call->first = slice.lo;
    call->inputs = slice.hi - slice.lo;
    if (input == NULL && call->inputs > 0)
        return tti_error_set(&s->error, TUTTI_ERR_ARGUMENT, 0, "shards: the input of rank %d is NULL", s->rank);
    call->input = call->inputs > 0 ? input + slice.lo : NULL;
    return run(s, s->options.step, call);
}

/* ---- What all ranks know --------------------------------------------------------------------------------------- */

/* Gathers all ranks' records; a failure of any rank is the failure of all. */
static tutti_status gather(struct tutti_shards *s, tutti_status status, size_t count, const tutti_shard_call *call)
{
    const struct record mine = {.status = status,
                                .inputs = count,
                                .slice = call->inputs,
                                .outputs = call->outputs,
                                .loss = call->loss,
                                .samples = call->samples,
                                .norm_squared = call->norm_squared};
    TTI_TRY(met(s, tti_now_ns(), tutti_all_gather(comm_for(s, "records"), &mine, s->records, sizeof mine, TUTTI_U8)));
    for (int r = 0; r < s->size; r++)
        if (s->records[r].status != TUTTI_OK) return agree(s, status);
    return TUTTI_OK;
}

/* Refuses, as the records decide; the same on all ranks. `rank`: the one that it is about. */
static tutti_status refuse(struct tutti_shards *s, int rank)
{
    s->error.rank = rank;
    return s->error.status;
}

static tutti_status check_inputs(struct tutti_shards *s)
{
    for (int r = 1; r < s->size; r++)
        if (s->records[r].inputs != s->records[0].inputs) {
            (void)tti_error_set(&s->error, TUTTI_ERR_MISMATCH, 0,
                                "shards: the input has %llu numbers on rank 0, but %llu on rank %d",
                                (unsigned long long)s->records[0].inputs, (unsigned long long)s->records[r].inputs, r);
            return refuse(s, r);
        }
    return TUTTI_OK;
}

/* Returns true if the rank has a partial output; one whose slice is empty may leave it out. */
static bool takes_part(const struct record *record)
{
    return record->outputs > 0 || record->slice > 0;
}

static tutti_status check_outputs(struct tutti_shards *s, size_t *outputs)
{
    int first = 0;
    while (first < s->size && !takes_part(&s->records[first])) first++;
    *outputs = first < s->size ? s->records[first].outputs : 0;
    for (int r = first + 1; r < s->size; r++)
        if (takes_part(&s->records[r]) && s->records[r].outputs != *outputs) {
            (void)tti_error_set(&s->error, TUTTI_ERR_MISMATCH, 0,
                                "shards: the partial output of rank %d has %zu numbers, but that of rank %d has %llu; "
                                "they are summed, so all must have as many",
                                first, *outputs, r, (unsigned long long)s->records[r].outputs);
            return refuse(s, r);
        }
    return TUTTI_OK;
}

/* Finds the first of these numbers that is impossible. */
static tutti_status check_numbers(struct tutti_shards *s)
{
    for (int r = 0; r < s->size; r++) {
        const struct record *record = &s->records[r];
        if (record->samples < 0 || record->norm_squared < 0 || !isfinite(record->samples))
            (void)tti_error_set(&s->error, TUTTI_ERR_ARGUMENT, 0,
                                "shards: rank %d gave %g samples and %g as the square of its norm", r, record->samples,
                                record->norm_squared);
        else if (!isfinite(record->loss) || !isfinite(record->norm_squared))
            (void)tti_error_set(&s->error, TUTTI_ERR_DIVERGED, 0,
                                "shards: in step %llu the loss of rank %d is %g, and the square of its norm %g",
                                (unsigned long long)s->step + 1, r, record->loss, record->norm_squared);
        else
            continue;
        return refuse(s, r);
    }
    return TUTTI_OK;
}

/* ---- Sums ------------------------------------------------------------------------------------------------------ */

/* Enlarges the room on all ranks together, or on none. */
static tutti_status make_room(struct tutti_shards *s, size_t outputs)
{
    if (outputs <= s->room) return TUTTI_OK;
    (void)tutti_free(s->comm, s->output);
    s->output = tutti_alloc(s->comm, outputs * sizeof *s->output);
    tutti_status status = TUTTI_OK;
    if (s->output == NULL)
        status = tti_error_set(&s->error, TUTTI_ERR_MEMORY, 0,
                               "shards: no memory on rank %d for an output of %zu numbers", s->rank, outputs);
    status = agree(s, status);
    s->room = status == TUTTI_OK ? outputs : 0;
    return status;
}

/* Sums the outputs. -0.0 stands for a missing partial output: it changes no sum. */
static tutti_status add_outputs(struct tutti_shards *s, const tutti_shard_call *call, size_t outputs)
{
    TTI_TRY(make_room(s, outputs));
    if (outputs == 0) return TUTTI_OK;
    for (size_t i = 0; call->outputs == 0 && i < outputs; i++) s->output[i] = -0.0F;
    const float *mine = call->outputs == 0 ? s->output : call->output;
    return met(s, tti_now_ns(),
               tutti_all_reduce(comm_for(s, "output"), mine, s->output, outputs, TUTTI_F32, TUTTI_SUM));
}

static double sum(const struct tutti_shards *s, size_t field)
{
    for (int r = 0; r < s->size; r++) memcpy(&s->terms[r], (const char *)&s->records[r] + field, sizeof *s->terms);
    return tti_tree_sum(s->terms, (size_t)s->size);
}

/* ---- The step -------------------------------------------------------------------------------------------------- */

static tutti_status take_step(struct tutti_shards *s, const float *input, size_t count, size_t *outputs)
{
    tutti_shard_call call;
    tutti_status status = begin(s, input, count, &call);
    TTI_TRY(gather(s, status, count, &call));
    TTI_TRY(check_inputs(s));
    TTI_TRY(check_outputs(s, outputs));
    TTI_TRY(add_outputs(s, &call, *outputs));
    if (s->options.after != NULL) {
        call.whole = s->output;
        call.wholes = *outputs;
        TTI_TRY(gather(s, run(s, s->options.after, &call), count, &call));
    }
    return check_numbers(s);
}

static void fill_report(const struct tutti_shards *s, size_t outputs, tutti_shards_report *report)
{
    report->step = s->step;
    report->output = s->output;
    report->outputs = outputs;
    report->samples = sum(s, offsetof(struct record, samples));
    report->loss = sum(s, offsetof(struct record, loss)) / report->samples;
    report->norm = sqrt(sum(s, offsetof(struct record, norm_squared)));
}

tutti_status tutti_shards_step(tutti_shards *s, const float *input, size_t count, tutti_shards_report *report)
{
    if (s == NULL) return TUTTI_ERR_ARGUMENT;
    const int64_t began_ns = tti_now_ns();
    const double waited = s->waited;
    tutti_shards_report all = {0};
    size_t outputs = 0;
    s->error = (tutti_error){.rank = s->rank, .peer = -1, .operation = "shards_step"};
    tutti_status status = take_step(s, input, count, &outputs);
    if (status != TUTTI_OK) tti_comm_note(s->comm, &s->error);
    if (status != TUTTI_OK) return status;
    s->step++;
    if (report == NULL) return TUTTI_OK;
    fill_report(s, outputs, &all);
    all.struct_size = report->struct_size;
    all.seconds = (double)(tti_now_ns() - began_ns) * 1e-9;
    all.comm_seconds = s->waited - waited;
    memcpy(report, &all, all.struct_size < sizeof all ? all.struct_size : sizeof all);
    return TUTTI_OK;
}
