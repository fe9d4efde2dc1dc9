/* SPDX-License-Identifier: Apache-2.0
 *
 * Buckets of gradients, and when they are reduced.
 *
 * Invariant: all ranks start the same buckets in the same order, whichever became ready first: a bucket waits for all
 * before it, and those that never became full are started at the end, with zeros for gradients that were not computed.
 * A bucket that was started belongs to its op until tutti_ddp_end has waited for it, while the rest of backward goes
 * on.
 */
#define TUTTI_NO_CALL_SITES
#include "train/ddp.h"
#include "train/train_agree.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/comm/comm.h"
#include "train/ledger.h"
#include "train/parameter_list.h"
#include <assert.h>
#include <string.h>

enum { BUCKET = 25 << 20, FIRST_BUCKET = 1 << 20 };

/* ---- Making one ------------------------------------------------------------------------------------------------ */

static bool touching(const tutti_parameter *parameters, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (parameters[i - 1].gradient + parameters[i - 1].count != parameters[i].gradient) return false;
    return true;
}

static bool begins_part(const struct tti_ddp_cut *cut, size_t element)
{
    for (int p = 0; p < cut->count; p++)
        if (cut->starts[p] == element) return true;
    return false;
}

/* Cuts buckets from the end of the list, as whole groups of parameters until the size is reached. Called twice: to
 * count, and to fill in. */
static size_t cut_buckets(const struct tutti_ddp *ddp, const tutti_ddp_options *options, const struct tti_ddp_cut *cut,
                          struct tti_bucket *buckets)
{
    const size_t bytes = options->bucket_bytes == 0 ? BUCKET : options->bucket_bytes;
    const size_t first_bytes = options->first_bucket_bytes == 0 ? FIRST_BUCKET : options->first_bucket_bytes;
    const int *groups = options->groups;
    size_t made = 0;
    for (size_t i = ddp->count, to = ddp->elements; i > 0; i--) {
        size_t most = made == 0 ? first_bytes : bytes;
        const bool ends = i == 1 || begins_part(cut, ddp->starts[i - 1]);
        if ((to - ddp->starts[i - 1]) * sizeof(float) < most && !ends) continue;
        if (!ends && groups != NULL && groups[i - 1] == groups[i - 2]) continue;
        if (buckets != NULL) buckets[made] = (struct tti_bucket){.from = ddp->starts[i - 1], .to = to};
        to = ddp->starts[i - 1];
        made++;
    }
    return made;
}

/* Lists the buckets of each part: they go from the end of the list to its beginning. */
static tutti_status list_parts(struct tutti_ddp *ddp, const struct tti_ddp_cut *cut, tutti_error *error)
{
    ddp->now = (struct tti_span){0, ddp->bucket_count};
    if (cut->count == 0) return TUTTI_OK;
    ddp->parts = tti_calloc((size_t)cut->count, sizeof *ddp->parts);
    if (ddp->parts == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "ddp: no memory for a list of parts");
    ddp->part_count = cut->count;
    for (int p = 0; p < cut->count; p++) {
        const size_t end = p + 1 < cut->count ? cut->starts[p + 1] : ddp->elements;
        struct tti_span *buckets = &ddp->parts[p].buckets;
        while (buckets->lo < ddp->bucket_count && ddp->buckets[buckets->lo].from >= end) buckets->lo++;
        buckets->hi = buckets->lo;
        while (buckets->hi < ddp->bucket_count && ddp->buckets[buckets->hi].from >= cut->starts[p]) buckets->hi++;
    }
    return TUTTI_OK;
}

static tutti_status make_buckets(struct tutti_ddp *ddp, const tutti_ddp_options *options, const struct tti_ddp_cut *cut,
                                 tutti_error *error)
{
    ddp->bucket_count = cut_buckets(ddp, options, cut, NULL);
    ddp->buckets = tti_calloc(ddp->bucket_count + 1, sizeof *ddp->buckets);
    if (ddp->buckets == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "ddp: no memory for buckets");
    (void)cut_buckets(ddp, options, cut, ddp->buckets);
    return list_parts(ddp, cut, error);
}

static tutti_status make_lists(struct tutti_ddp *ddp, tutti_error *error)
{
    ddp->starts = tti_calloc(ddp->count + 1, sizeof *ddp->starts);
    ddp->ready = tti_calloc(ddp->count + 1, sizeof *ddp->ready);
    ddp->used = tti_calloc(ddp->count + 1, sizeof *ddp->used);
    ddp->whole = tti_calloc(ddp->count + 1, sizeof *ddp->whole);
    ddp->counts = tti_calloc(4 * (size_t)ddp->size, sizeof *ddp->counts);
    if (ddp->starts == NULL || ddp->ready == NULL || ddp->used == NULL || ddp->whole == NULL || ddp->counts == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "ddp: no memory for lists of %zu parameters", ddp->count);
    for (size_t i = 0; i < ddp->count; i++) ddp->starts[i + 1] = ddp->starts[i] + ddp->parameters[i].count;
    return TUTTI_OK;
}

bool tti_ddp_take(struct tutti_ddp *ddp, size_t bytes, float **memory)
{
    ddp->bytes += bytes;
    if (ddp->comm == NULL) return true;
    *memory = tutti_alloc(ddp->comm, bytes);
    return *memory != NULL;
}

/* Makes the memory of all gradients. If the parameters' gradients are not one piece of memory, a copy is reduced, in
 * memory that all ranks of the host can reach. */
static tutti_status make_flat(struct tutti_ddp *ddp, tutti_error *error)
{
    /* with these stages there is no memory for all gradients */
    if (ddp->zero.stage >= TTI_ZERO_GRADIENTS) return TUTTI_OK;
    if (ddp->comm == NULL) return TUTTI_OK; /* a model's gradients are one piece */
    ddp->copied = !touching(ddp->parameters, ddp->count);
    ddp->flat = ddp->count > 0 ? ddp->parameters[0].gradient : NULL;
    if (!ddp->copied) return TUTTI_OK;
    if (!tti_ddp_take(ddp, ddp->elements * sizeof(float), &ddp->flat))
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "ddp: no memory to gather gradients in");
    return TUTTI_OK;
}

tutti_comm *tti_ddp_inside(const struct tutti_ddp *ddp, const char *what)
{
    return tti_inside(tutti_at(ddp->comm, ddp->here.file, ddp->here.line), "ddp", what);
}

tutti_ddp *tutti_ddp_at(tutti_ddp *ddp, const char *file, int line)
{
    if (ddp != NULL) ddp->here = (struct tti_here){file, line};
    return ddp;
}

tutti_comm *tti_ddp_inside_group(const struct tutti_ddp *ddp, const char *what)
{
    return tti_inside(tutti_at(ddp->zero.group, ddp->here.file, ddp->here.line), "ddp", what);
}

/* Broadcasts values. With zero 3 and bf16 parameters may have no memory: then their owners set the values. */
static tutti_status share_values(struct tutti_ddp *ddp, tutti_error *error)
{
    for (size_t i = 0; i < ddp->count; i++) {
        const tutti_parameter *p = &ddp->parameters[i];
        if (p->value == NULL && p->count > 0) continue;
        tutti_status status = tutti_broadcast(tti_ddp_inside(ddp, p->name), p->value, p->value, p->count, TUTTI_F32, 0);
        if (status != TUTTI_OK) {
            *error = *tutti_comm_error(ddp->comm);
            return status;
        }
    }
    return TUTTI_OK;
}

static tutti_status check_replicas(int size, const tutti_ddp_options *options, tutti_error *error)
{
    const int replicas = options->replicas;
    if (replicas < 0 || (replicas > 1 && options->zero == 0))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "ddp: %d replicas with zero %d; replicas share out what zero 1, 2 or 3 says", replicas,
                             options->zero);
    if (replicas > 1 && size % replicas != 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "ddp: %d ranks cannot be %d replicas of as many ranks each",
                             size, replicas);
    return TUTTI_OK;
}

static tutti_status agree(const struct tutti_ddp *ddp, tutti_status status, tutti_error *error)
{
    if (ddp->comm == NULL) return status;
    return tti_agree(tutti_at(ddp->comm, ddp->here.file, ddp->here.line), status, error);
}

/* Makes what a rank makes by itself before values are shared, */
static tutti_status make_buffers(struct tutti_ddp *ddp, const tutti_ddp_options *options, const struct tti_ddp_cut *cut,
                                 tutti_error *error)
{
    TTI_TRY(make_lists(ddp, error));
    TTI_TRY(make_buckets(ddp, options, cut, error));
    TTI_TRY(tti_zero_count(ddp, error));
    TTI_TRY(make_flat(ddp, error));
    TTI_TRY(tti_ddp_plan_grains(ddp, options->pass_grains, error));
    return ddp->zero.stage >= TTI_ZERO_GRADIENTS ? tti_zero_make_buffers(ddp, error) : TUTTI_OK;
}

/* and after it. */
static tutti_status make_owned(struct tutti_ddp *ddp, tutti_error *error)
{
    if (tti_ddp_passes_values(ddp)) TTI_TRY(tti_zero_make_values(ddp, error));
    return (ddp->zero.stage > 0 || ddp->zero.bf16) && ddp->comm != NULL ? tti_zero_plan(ddp, error) : TUTTI_OK;
}

/* Makes all parts. A rank that has no memory tells the others, which would wait for it. */
static tutti_status make_parts(struct tutti_ddp *ddp, const tutti_ddp_options *options, const struct tti_ddp_cut *cut,
                               tutti_error *error)
{
    TTI_TRY(tti_zero_group(ddp, error));
    TTI_TRY(agree(ddp, make_buffers(ddp, options, cut, error), error));
    if (ddp->valued && ddp->comm != NULL) TTI_TRY(share_values(ddp, error));
    return agree(ddp, make_owned(ddp, error), error);
}

static tutti_status check_options(int size, const tutti_ddp_options *options, tutti_error *error)
{
    if (options->grains < 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "ddp: %d grains; give 0 or more", options->grains);
    if (options->zero < 0 || options->zero > TTI_ZERO_PARAMETERS)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "ddp: zero is %d; there are 0, 1, 2 and 3", options->zero);
    TTI_TRY(check_replicas(size, options, error));
    if (options->grains > 0 && options->grains < size)
        return tti_error_set(
            error, TUTTI_ERR_ARGUMENT, 0,
            "%d ranks are more than %d grains: every rank needs a grain; use more grains or fewer ranks", size,
            options->grains);
    return TUTTI_OK;
}

/* Makes a ddp. `valued`: parameters have values, which become the same on all ranks. Without a comm they need no
 * memory. */
tutti_status tti_ddp_make(const struct tti_ddp_place *place, const tutti_parameter *parameters, size_t count,
                          bool valued, const tutti_ddp_options *options, tutti_ddp **ddp, tutti_error *error)
{
    size_t elements;
    const bool planned = place->comm == NULL;
    const struct tti_list_needs needs = {!planned && valued && options->zero < TTI_ZERO_PARAMETERS && !options->bf16,
                                         !planned && options->zero < TTI_ZERO_GRADIENTS};
    TTI_TRY(tti_list_check_needs(parameters, count, needs, &elements, error));
    TTI_TRY(check_options(place->size, options, error));
    struct tutti_ddp *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "ddp: no memory");
    *made = (struct tutti_ddp){.comm = place->comm,
                               .here = planned ? (struct tti_here){0} : tti_here(place->comm),
                               .rank = place->rank,
                               .size = place->size,
                               .parameters = parameters,
                               .count = count,
                               .elements = elements,
                               .grains = options->grains,
                               .allows_unused = options->allow_unused,
                               .alone = place->alone,
                               .valued = valued,
                               .zero = {.stage = options->zero,
                                        .bf16 = options->bf16,
                                        .replicas = options->replicas > 1 ? options->replicas : 1},
                               .fresh = true};
    tutti_status status = make_parts(made, options, &place->cut, error);
    if (status != TUTTI_OK)
        tutti_ddp_free(made);
    else
        *ddp = made;
    return status;
}

/* Returns as many of the options as the caller knows; 0, for a caller that has not set the size, stands for the first
 * version's. */
static tutti_ddp_options known_options(const tutti_ddp_options *options)
{
    tutti_ddp_options known = {0};
    size_t bytes = options->struct_size == 0 ? offsetof(tutti_ddp_options, allow_unused) : options->struct_size;
    memcpy(&known, options, bytes < sizeof known ? bytes : sizeof known);
    return known;
}

tutti_status tutti_ddp_create(tutti_comm *comm, const tutti_parameter *parameters, size_t count,
                              const tutti_ddp_options *options, tutti_ddp **ddp, tutti_error *error)
{
    tutti_error unused;
    tutti_ddp_options known = options == NULL ? (tutti_ddp_options){0} : known_options(options);
    const struct tti_ddp_place place = {.comm = comm, .rank = tutti_rank(comm), .size = tutti_size(comm)};
    if (error == NULL) error = &unused;
    *error = (tutti_error){.rank = tutti_rank(comm), .peer = -1, .operation = "ddp_create"};
    tutti_status status = comm == NULL || ddp == NULL
                              ? tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "ddp: a comm and a place to go are needed")
                              : tti_ddp_make(&place, parameters, count, true, &known, ddp, error);
    if (status != TUTTI_OK) tti_comm_note(comm, error);
    return status;
}

tutti_status tti_ddp_create_sums(tutti_comm *comm, const tutti_parameter *parameters, size_t count,
                                 const tutti_ddp_options *options, tutti_ddp **ddp, tutti_error *error)
{
    const struct tti_ddp_place place = {.comm = comm, .rank = tutti_rank(comm), .size = tutti_size(comm)};
    return tti_ddp_make(&place, parameters, count, false, options, ddp, error);
}

/* ---- Reducing -------------------------------------------------------------------------------------------------- */

/* Returns the parameters that have elements from..to. */
static struct tti_span parameters_of(const struct tutti_ddp *ddp, size_t from, size_t to)
{
    struct tti_span span = {0, ddp->count};
    while (span.lo < span.hi && ddp->starts[span.lo + 1] <= from) span.lo++;
    while (span.hi > span.lo && ddp->starts[span.hi - 1] >= to) span.hi--;
    return span;
}

static void copy_bucket(struct tutti_ddp *ddp, const struct tti_bucket *bucket, bool back)
{
    struct tti_span span = parameters_of(ddp, bucket->from, bucket->to);
    for (size_t i = span.lo; ddp->copied && i < span.hi; i++) {
        const tutti_parameter *p = &ddp->parameters[i];
        float *flat = ddp->flat + ddp->starts[i];
        memcpy(back ? p->gradient : flat, back ? flat : p->gradient, p->count * sizeof(float));
    }
}

float *tti_ddp_sums(const struct tutti_ddp *ddp, const struct tti_bucket *bucket)
{
    if (ddp->zero.stage >= TTI_ZERO_GRADIENTS) return tti_zero_sums(ddp, bucket);
    return ddp->flat + tti_ddp_slice(ddp, bucket, ddp->rank).lo;
}

struct tti_bucket *tti_ddp_bucket_of(const struct tutti_ddp *ddp, size_t element)
{
    size_t b = 0;
    while (b + 1 < ddp->bucket_count && ddp->buckets[b].from > element) b++;
    return &ddp->buckets[b];
}

/* Starts the second half of a sum over replicas: adds up their sums. The bucket was started some time ago. */
static tutti_status add_replicas(struct tutti_ddp *ddp, struct tti_bucket *bucket)
{
    if (!bucket->halfway) return TUTTI_OK;
    bucket->halfway = false;
    tutti_op op = bucket->op;
    bucket->op = (tutti_op){0};
    TTI_TRY(tutti_wait(op));
    struct tti_span mine = tti_ddp_slice(ddp, bucket, ddp->rank);
    float *sums = tti_ddp_sums(ddp, bucket);
    tutti_comm *across = tti_inside(tutti_at(ddp->zero.across, ddp->here.file, ddp->here.line), "ddp", "replicas");
    return tutti_all_reduce_start(across, sums, sums, mine.hi - mine.lo, TUTTI_F32, TUTTI_SUM, &bucket->op);
}

/* Sends the sums of each rank's slice to that rank. */
static tutti_status start_owned(struct tutti_ddp *ddp, struct tti_bucket *bucket, const float *values)
{
    tti_ddp_slice_counts(ddp, bucket, (struct tti_span){bucket->from, bucket->to});
    bucket->halfway = ddp->zero.across != NULL;
    TTI_TRY(tutti_reduce_scatter_v_start(tti_ddp_inside_group(ddp, "gradients"), values, tti_ddp_sums(ddp, bucket),
                                         ddp->counts, TUTTI_F32, TUTTI_SUM, &bucket->op));
    return bucket == ddp->buckets ? TUTTI_OK : add_replicas(ddp, bucket - 1);
}

/* Starts a bucket. If subtrees must be combined, the bucket before it is completed, too: its exchange has had all the
 * time since. */
static tutti_status start_bucket(struct tutti_ddp *ddp, struct tti_bucket *bucket)
{
    if (ddp->zero.stage >= TTI_ZERO_GRADIENTS) TTI_TRY(tti_zero_fill_missing(ddp, bucket));
    if (!tti_ddp_pass(ddp)->aligned) {
        TTI_TRY(tti_ddp_combine_begin(ddp, bucket));
        return tti_ddp_combine_end(ddp, &ddp->exchanges[(ddp->next + 1) % 2]);
    }
    if (ddp->zero.stage >= TTI_ZERO_GRADIENTS) return start_owned(ddp, bucket, tti_zero_gradients(ddp, bucket, 0));
    copy_bucket(ddp, bucket, false);
    float *values = ddp->flat + bucket->from;
    if (ddp->zero.stage > 0) return start_owned(ddp, bucket, values);
    return tutti_all_reduce_start(tti_ddp_inside(ddp, "gradients"), values, values, bucket->to - bucket->from,
                                  TUTTI_F32, TUTTI_SUM, &bucket->op);
}

tutti_status tti_ddp_wait_buckets(struct tutti_ddp *ddp, size_t count)
{
    tutti_status first = TUTTI_OK;
    for (size_t b = 0; b < count; b++) {
        if (ddp->buckets[b].op.id == 0) continue;
        tutti_status status = tutti_wait(ddp->buckets[b].op);
        ddp->buckets[b].op = (tutti_op){0};
        ddp->buckets[b].halfway = false;
        if (first == TUTTI_OK) first = status;
    }
    return first;
}

/* Waits for all buckets that were started, after a failure, too: nothing may write to the gradients any more. */
static tutti_status finish(struct tutti_ddp *ddp)
{
    int64_t began = tti_now_ns();
    tutti_status first = TUTTI_OK;
    for (size_t b = ddp->next; b < ddp->next + 2; b++) { /* in the order in which they were begun */
        tutti_status status = tti_ddp_combine_end(ddp, &ddp->exchanges[b % 2]);
        if (first == TUTTI_OK) first = status;
    }
    for (size_t b = 0; first == TUTTI_OK && b < ddp->next; b++) first = add_replicas(ddp, &ddp->buckets[b]);
    tutti_status waited = tti_ddp_wait_buckets(ddp, ddp->next);
    ddp->seconds += (double)(tti_now_ns() - began) * 1e-9;
    return first == TUTTI_OK ? waited : first;
}

/* Starts the next buckets that are full, or with `all` every bucket that is left. */
static tutti_status advance(struct tutti_ddp *ddp, bool all)
{
    int64_t began = tti_now_ns();
    while (ddp->failed == TUTTI_OK && ddp->next < ddp->now.hi) {
        struct tti_bucket *bucket = &ddp->buckets[ddp->next];
        if (!all && bucket->ready < bucket->to - bucket->from) break;
        ddp->failed = start_bucket(ddp, bucket);
        ddp->next++;
    }
    ddp->seconds += (double)(tti_now_ns() - began) * 1e-9;
    return ddp->failed;
}

void tutti_ddp_free(tutti_ddp *ddp)
{
    if (ddp == NULL) return;
    (void)finish(ddp);
    if (ddp->copied) (void)tutti_free(ddp->comm, ddp->flat);
    tti_zero_free(ddp);
    tti_ddp_free_grains(ddp);
    tti_free(ddp->starts);
    tti_free(ddp->ready);
    tti_free(ddp->used);
    tti_free(ddp->whole);
    tti_free(ddp->buckets);
    tti_free(ddp->parts);
    tti_free(ddp->counts);
    tti_free(ddp);
}

/* ---- A pass ---------------------------------------------------------------------------------------------------- */

/* Writes " at cli_train.c:12", or "": for a long path its end. */
static void describe_here(const struct tutti_ddp *ddp, char text[96])
{
    enum { SHOWN = 60 };
    const char *file = ddp->here.file;
    text[0] = '\0';
    if (ddp->here.line <= 0 || file == NULL) return;
    size_t length = strlen(file);
    snprintf(text, 96, " at %s:%d", length > SHOWN ? file + length - SHOWN : file, ddp->here.line);
}

tutti_status tti_ddp_refuse(const tutti_ddp *ddp, const char *call, const char *why)
{
    tutti_comm *comm = ddp == NULL ? NULL : ddp->comm;
    tutti_error error = {.status = TUTTI_ERR_ARGUMENT, .rank = tutti_rank(comm), .peer = -1};
    char site[96] = "";
    if (ddp != NULL) describe_here(ddp, site);
    const bool known = site[0] != '\0';
    snprintf(error.operation, sizeof error.operation, "ddp_%s", call);
    snprintf(error.text, sizeof error.text, "tutti_ddp_%s: %s%s%s%s", call, why, known ? " (the call" : "", site,
             known ? ")" : "");
    tti_log(TUTTI_ERROR, "%s", error.text);
    tti_comm_note(comm, &error);
    return error.status;
}

/* Ends a pass. If gradients do not stay, each pass sends its own. */
static tutti_status end_pass(struct tutti_ddp *ddp)
{
    tutti_status status = advance(ddp, true);
    tutti_status waited = finish(ddp);
    TTI_TRY(status == TUTTI_OK ? waited : status);
    tti_zero_merge(ddp);
    return TUTTI_OK;
}

static tutti_status next_pass(struct tutti_ddp *ddp, bool last)
{
    const int next = ddp->fresh ? 0 : ddp->pass + 1;
    if (ddp->grains > 0 && last != (next + 1 == ddp->pass_count))
        return tti_ddp_refuse(ddp, "begin", "with grains and zero 2 or 3 a step has tutti_ddp_passes passes");
    if (ddp->begun) TTI_TRY(end_pass(ddp));
    ddp->pass = ddp->grains > 0 ? next : 0;
    if (ddp->grains > 0) return TUTTI_OK;
    ddp->passes[0].depth = ddp->passes[0].merges = next > 0;
    return tti_zero_need_pending(ddp, next > 0);
}

/* Starts a pass over the buckets `now`. */
static void start_pass(struct tutti_ddp *ddp, bool last)
{
    for (size_t i = 0; i < ddp->count && ddp->fresh; i++) ddp->used[i] = ddp->whole[i] = false;
    memset(ddp->ready, 0, ddp->count * sizeof *ddp->ready);
    for (size_t b = 0; b < ddp->bucket_count; b++) ddp->buckets[b].ready = 0;
    ddp->begun = true;
    ddp->last = last;
    ddp->fresh = false;
    ddp->next = ddp->now.lo;
    ddp->failed = TUTTI_OK;
}

tutti_status tutti_ddp_begin(tutti_ddp *ddp, bool last)
{
    if (ddp == NULL) return tti_ddp_refuse(NULL, "begin", "there is no ddp");
    if (ddp->begun && ddp->last)
        return tti_ddp_refuse(ddp, "begin", "the last pass has begun already: tutti_ddp_end comes first");
    if (ddp->zero.stage >= TTI_ZERO_GRADIENTS) TTI_TRY(next_pass(ddp, last));
    start_pass(ddp, last);
    return TUTTI_OK;
}

tutti_status tti_ddp_begin_part(struct tutti_ddp *ddp, int number)
{
    struct tti_ddp_part *part = &ddp->parts[number];
    if (part->buckets.lo == part->buckets.hi) return TUTTI_OK;
    for (int p = 0; ddp->fresh && p < ddp->part_count; p++) {
        ddp->parts[p].passes = 0;
        if (p == 0) ddp->left = 0;
        if (ddp->parts[p].buckets.hi > ddp->parts[p].buckets.lo) ddp->left += ddp->pass_count;
    }
    assert(part->passes < ddp->pass_count);
    if (ddp->begun) TTI_TRY(end_pass(ddp));
    ddp->pass = part->passes++;
    ddp->now = part->buckets;
    start_pass(ddp, --ddp->left == 0);
    return TUTTI_OK;
}

static size_t overlap(size_t a, size_t b, size_t from, size_t to)
{
    size_t low = a > from ? a : from, high = b < to ? b : to;
    return high > low ? high - low : 0;
}

tutti_status tutti_ddp_ready_run(tutti_ddp *ddp, size_t offset, size_t count)
{
    if (ddp == NULL || !ddp->begun)
        return tti_ddp_refuse(ddp, "ready", "no pass has begun: tutti_ddp_begin comes first");
    if (offset > ddp->elements || count > ddp->elements - offset)
        return tti_ddp_refuse(ddp, "ready", "there are not so many parameters or elements");
    struct tti_span span = parameters_of(ddp, offset, offset + count);
    for (size_t i = span.lo; i < span.hi; i++)
        if (overlap(ddp->starts[i], ddp->starts[i + 1], offset, offset + count) >
            ddp->parameters[i].count - ddp->ready[i])
            return tti_ddp_refuse(ddp, "ready", "a parameter is ready twice in one pass");
    for (size_t i = span.lo; i < span.hi; i++) {
        ddp->ready[i] += overlap(ddp->starts[i], ddp->starts[i + 1], offset, offset + count);
        ddp->used[i] = true;
        if (ddp->ready[i] == ddp->parameters[i].count) ddp->whole[i] = true;
    }
    if (!ddp->last && ddp->zero.stage < TTI_ZERO_GRADIENTS) return TUTTI_OK;
    for (size_t b = ddp->next; b < ddp->now.hi; b++)
        ddp->buckets[b].ready += overlap(ddp->buckets[b].from, ddp->buckets[b].to, offset, offset + count);
    return advance(ddp, false);
}

tutti_status tutti_ddp_ready(tutti_ddp *ddp, size_t index)
{
    if (ddp == NULL || index >= ddp->count) return tti_ddp_refuse(ddp, "ready", "there are not so many parameters");
    return tutti_ddp_ready_run(ddp, ddp->starts[index], ddp->parameters[index].count);
}

static void zero_unused(struct tutti_ddp *ddp)
{
    for (size_t i = 0; i < ddp->count && ddp->zero.stage < TTI_ZERO_GRADIENTS; i++) {
        if (ddp->used[i]) continue;
        size_t bytes = ddp->parameters[i].count * sizeof(float);
        memset(ddp->parameters[i].gradient, 0, bytes);
        for (int k = 0; k < tti_ddp_pass(ddp)->partial_count; k++) memset(ddp->partials[k] + ddp->starts[i], 0, bytes);
    }
}

static bool is_missing(const struct tutti_ddp *ddp, size_t index)
{
    return !ddp->whole[index] && ddp->parameters[index].count > 0;
}

/* Writes "\"a\", \"b\" (in part) and 3 more". */
static void name_missing(const struct tutti_ddp *ddp, size_t missing, char *text, size_t bytes)
{
    enum { NAMED = 4 };
    size_t named = 0, used = 0;
    for (size_t i = 0; i < ddp->count && named < NAMED; i++) {
        if (!is_missing(ddp, i)) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s\"%.32s\"%s", named == 0 ? "" : ", ",
                                 ddp->parameters[i].name, ddp->used[i] ? " (in part)" : "");
        named++;
    }
    if (missing > NAMED) snprintf(text + used, bytes - used, " and %zu more", missing - NAMED);
}

/* Checks that all gradients were made ready. If one rank has forgotten some, they would be missing in all ranks' sums,
 * so all ranks are told. A rank without samples makes nothing ready. */
static tutti_status check_ready(struct tutti_ddp *ddp, double count)
{
    char names[200], text[640], site[96];
    size_t missing = 0, used = 0;
    for (size_t i = 0; i < ddp->count; i++) {
        missing += is_missing(ddp, i);
        used += ddp->used[i];
    }
    if (missing == 0 || ddp->allows_unused || (used == 0 && count == 0)) return TUTTI_OK;
    name_missing(ddp, missing, names, sizeof names);
    describe_here(ddp, site);
    snprintf(text, sizeof text,
             "rank %d came to tutti_ddp_end%s, and %zu of %zu parameters were not ready: %s; call tutti_ddp_ready for "
             "each once its gradient is final, or set allow_unused in the options, and those count as zeros",
             ddp->rank, site, missing, ddp->count, names);
    return tti_inside_break(ddp->comm, TTI_DDP_END, TUTTI_ERR_ARGUMENT, text);
}

tutti_status tutti_ddp_end(tutti_ddp *ddp, double count, double *total)
{
    if (ddp != NULL && ddp->part_count > 0 && ddp->bucket_count == 0) return TUTTI_OK; /* no part has parameters */
    if (ddp == NULL || !ddp->begun || !ddp->last)
        return tti_ddp_refuse(ddp, "end", "no last pass has begun: tutti_ddp_begin(ddp, true) comes first");
    ddp->begun = false;
    ddp->fresh = true;
    tutti_status status = check_ready(ddp, count);
    zero_unused(ddp);
    if (status == TUTTI_OK) status = advance(ddp, true);
    tutti_status waited = finish(ddp);
    TTI_TRY(status == TUTTI_OK ? waited : status);
    if (ddp->zero.stage >= TTI_ZERO_GRADIENTS) tti_zero_merge(ddp);
    if (tti_ddp_passes_values(ddp)) TTI_TRY(tti_zero_wait_values(ddp));
    ddp->pass = 0;
    for (size_t b = 0; b < ddp->bucket_count; b++) copy_bucket(ddp, &ddp->buckets[b], true);
    if (total == NULL) return TUTTI_OK;
    return tutti_all_reduce(tti_ddp_inside(ddp, "count"), &count, total, 1, TUTTI_F64, TUTTI_SUM);
}

const char *tutti_ddp_unused(const tutti_ddp *ddp, size_t index)
{
    for (size_t i = 0; i < ddp->count; i++)
        if (!ddp->used[i] && index-- == 0) return ddp->parameters[i].name;
    return NULL;
}

double tutti_ddp_seconds(const tutti_ddp *ddp)
{
    return ddp->seconds;
}

size_t tutti_ddp_bytes(const tutti_ddp *ddp)
{
    return ddp->bytes;
}
