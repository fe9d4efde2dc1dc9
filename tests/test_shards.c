/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Shards of a user's own, on 1 to 5 ranks that are threads and processes, over memory and tcp: outputs, losses and norms equal
 * those of one loop over all slices, however unequal or empty these are; what all ranks are told when a shard fails, gives
 * something else than the others, or dies.
 */
#include "fault.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <tutti/train.h>
#include <unistd.h>

enum { RANKS_MOST = 5, OUTPUTS = 300, INPUTS_MOST = 64 };

/* What a case does; set before the ranks begin. */
static struct plan {
    int ranks;
    size_t inputs, unit;
    size_t sizes[RANKS_MOST];
    bool sized, after, leaves_out; /* no partial output where the slice is empty */
    int odd_rank;                  /* where something happens; -1: nowhere */
    enum { FAILS, FAILS_AFTER, FAILS_OTHERWISE, GIVES_MORE, GIVES_NONE, GIVES_NULL, IS_NAN, IS_NEGATIVE, DIES } odd;
} the;

static float input_at(size_t i)
{
    return (float)(i * i % 17) - 5;
}

/* What input i adds to output j: no sum of these rounds. */
static float term(size_t i, size_t j)
{
    return input_at(i) * (float)((i + j) % 7);
}

/* ---- One shard --------------------------------------------------------------------------------------------------- */

struct shard {
    int rank;
    bool armed; /* the odd thing is still to happen */
    int calls, wrong;
    float output[OUTPUTS + 1];
};

static bool comes(struct shard *shard, int odd)
{
    if (!shard->armed || shard->rank != the.odd_rank || (int)the.odd != odd) return false;
    shard->armed = false;
    return true;
}

static tutti_status fail(const tutti_shard_call *call)
{
    (void)snprintf(call->reason, TUTTI_SHARDS_REASON_BYTES, "no such feature");
    return TUTTI_ERR_DAMAGED;
}

static void set_numbers(const tutti_shard_call *from, tutti_shard_call *call)
{
    for (size_t i = 0; i < from->inputs; i++) {
        call->loss += (double)from->input[i] / 2;
        call->norm_squared += (double)from->input[i] * (double)from->input[i];
    }
    call->samples = (double)from->inputs;
}

static void spoil(struct shard *shard, tutti_shard_call *call)
{
    if (comes(shard, GIVES_MORE)) call->outputs++;
    if (comes(shard, GIVES_NONE)) call->outputs = 0;
    if (comes(shard, GIVES_NULL)) call->output = NULL;
    if (comes(shard, IS_NAN)) call->loss = NAN;
    if (comes(shard, IS_NEGATIVE)) call->norm_squared = -1;
    if (comes(shard, DIES)) kill(getpid(), SIGKILL);
}

static tutti_status step(void *context, tutti_shard_call *call)
{
    struct shard *shard = context;
    shard->calls++;
    shard->wrong += call->whole != NULL || (call->inputs == 0) != (call->input == NULL);
    for (size_t i = 0; i < call->inputs; i++) shard->wrong += call->input[i] != input_at(call->first + i);
    for (size_t j = 0; j < OUTPUTS; j++) {
        shard->output[j] = 0;
        for (size_t i = 0; i < call->inputs; i++) shard->output[j] += term(call->first + i, j);
    }
    call->output = shard->output;
    call->outputs = the.leaves_out && call->inputs == 0 ? 0 : OUTPUTS;
    if (!the.after) set_numbers(call, call);
    spoil(shard, call);
    if (comes(shard, FAILS_OTHERWISE)) return TUTTI_IN_PROGRESS;
    return comes(shard, FAILS) ? fail(call) : TUTTI_OK;
}

static bool is_whole(const float *output, size_t count)
{
    size_t wrong = 0;
    for (size_t j = 0; j < count; j++) {
        float sum = 0;
        for (size_t i = 0; i < the.inputs; i++) sum += term(i, j);
        wrong += output[j] != sum;
    }
    return wrong == 0;
}

static tutti_status after(void *context, tutti_shard_call *call)
{
    struct shard *shard = context;
    shard->wrong += !is_whole(call->whole, call->wholes) || (call->wholes != OUTPUTS && !the.leaves_out);
    set_numbers(call, call);
    return comes(shard, FAILS_AFTER) ? fail(call) : TUTTI_OK;
}

/* ---- Ranks ------------------------------------------------------------------------------------------------------- */

static bool make(tutti_comm *comm, struct shard *shard, tutti_shards **shards)
{
    tutti_error error = {.text = ""};
    *shard = (struct shard){.rank = tutti_rank(comm)};
    tutti_shards_options options = {.struct_size = sizeof options,
                                    .step = step,
                                    .after = the.after ? after : NULL,
                                    .context = shard,
                                    .sizes = the.sized ? the.sizes : NULL,
                                    .unit = the.unit};
    return CHECK_THAT(tutti_shards_create(comm, &options, shards, &error) == TUTTI_OK, "%s", error.text);
}

static bool all_left_out(void)
{
    return the.leaves_out && the.inputs == 0;
}

static void check_step(tutti_shards *shards, struct shard *shard, const float *input, uint64_t number)
{
    tutti_shards_report report = {.struct_size = sizeof report};
    double loss = 0, norm_squared = 0;
    tutti_status status = tutti_shards_step(shards, input, the.inputs, &report);
    if (!CHECK_THAT(status == TUTTI_OK && tutti_shards_error(shards) == NULL, "%s",
                    status == TUTTI_OK ? "" : tutti_shards_error(shards)->text))
        return;
    for (size_t i = 0; i < the.inputs; i++) {
        loss += (double)input[i] / 2;
        norm_squared += (double)input[i] * (double)input[i];
    }
    CHECK(shard->wrong == 0 && report.step == number);
    CHECK(report.outputs == (all_left_out() ? 0 : OUTPUTS) && is_whole(report.output, report.outputs));
    CHECK(report.samples == (double)the.inputs && report.norm == sqrt(norm_squared));
    CHECK(the.inputs == 0 ? isnan(report.loss) : report.loss == loss / (double)the.inputs);
    CHECK(report.seconds > 0 && report.comm_seconds > 0 && report.comm_seconds <= report.seconds);
}

static void check_slices(const tutti_shards *shards)
{
    size_t first, inputs, at = 0, most = 0, least = SIZE_MAX;
    for (int r = 0; r < the.ranks; r++) {
        CHECK(tutti_shards_slice(shards, the.inputs, r, &first, &inputs) == TUTTI_OK && first == at);
        CHECK(the.sized ? inputs == the.sizes[r] : the.unit == 0 || inputs % the.unit == 0);
        at += inputs;
        most = inputs > most ? inputs : most;
        least = inputs < least ? inputs : least;
    }
    CHECK(at == the.inputs && (the.sized || most - least <= (the.unit == 0 ? 1 : the.unit)));
    CHECK(tutti_shards_slice(shards, the.inputs, the.ranks, &first, &inputs) == TUTTI_ERR_RANK);
}

static void fill(float *input)
{
    for (size_t i = 0; i < the.inputs; i++) input[i] = input_at(i);
}

static void run_whole(tutti_comm *comm, struct fault_rank *self)
{
    struct shard shard;
    tutti_shards *shards;
    float input[INPUTS_MOST];
    (void)self;
    fill(input);
    if (!make(comm, &shard, &shards)) return;
    check_slices(shards);
    for (uint64_t number = 1; number <= 2; number++) check_step(shards, &shard, input, number);
    tutti_shards_free(shards);
}

/* Something happens on one rank; then, where the comm is still good, all is as if nothing had. */
static void run_odd(tutti_comm *comm, struct fault_rank *self)
{
    struct shard shard;
    tutti_shards *shards;
    float input[INPUTS_MOST];
    tutti_shards_report report = {.struct_size = sizeof report, .step = 77};
    fill(input);
    if (!make(comm, &shard, &shards)) return;
    shard.armed = true;
    self->steps[0].status = tutti_shards_step(shards, input, the.inputs, &report);
    if (tutti_shards_error(shards) != NULL) self->steps[0].error = *tutti_shards_error(shards);
    self->steps[0].done = true;
    CHECK(report.step == 77 && shard.calls == 1);
    if (the.odd != DIES) check_step(shards, &shard, input, 1);
    tutti_shards_free(shards);
}

/* ---- What is demanded -------------------------------------------------------------------------------------------- */

static bool over_tcp;

static void run_data(bool processes)
{
    static const struct plan cases[] = {
        {.inputs = 23},
        {.inputs = 3, .after = true},
        {.inputs = 35, .unit = 5, .after = true},
        {.inputs = 16, .sized = true, .sizes = {0, 9, 0, 7, 0}, .leaves_out = true},
        {.inputs = 20, .sized = true, .sizes = {1, 15, 4, 0, 0}, .after = true},
        {.inputs = 0, .after = true},
        {.inputs = 0, .leaves_out = true},
    };
    for (int ranks = 1; ranks <= RANKS_MOST; ranks += 1 + (SANITIZED != 0))
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            if (over_tcp && (ranks + (int)c) % 2 != 0) continue;
            the = cases[c];
            the.ranks = ranks;
            the.odd_rank = -1;
            if (the.sized) the.inputs = 0;
            for (int r = 0; r < ranks; r++) the.inputs += the.sizes[r];
            char title[64];
            (void)snprintf(title, sizeof title, "case %zu on %d ranks", c, ranks);
            fault_run_body(title, run_whole, ranks, processes, over_tcp);
        }
}

static void expect_death(struct fault_world *world)
{
    (void)world;
    fault_expect_end(the.odd_rank);
}

static void run_odds(bool processes)
{
    static const struct {
        int odd;
        tutti_status status;
        int about; /* the rank; -1: that of the error is not looked at */
        const char *words;
    } cases[] = {
        {FAILS, TUTTI_ERR_DAMAGED, 2, "shard of rank 2 failed in step 1: no such feature"},
        {FAILS_AFTER, TUTTI_ERR_DAMAGED, 2, "rank 2 failed in step 1, after the sum: no such feature"},
        {FAILS_OTHERWISE, TUTTI_ERR_ARGUMENT, 2, "shard of rank 2 failed in step 1: an argument is missing"},
        {GIVES_MORE, TUTTI_ERR_MISMATCH, 2, "output of rank 0 has 300 numbers, but that of rank 2 has 301"},
        {GIVES_NONE, TUTTI_ERR_MISMATCH, 2, "output of rank 0 has 300 numbers, but that of rank 2 has 0"},
        {GIVES_NULL, TUTTI_ERR_ARGUMENT, 2, "rank 2 gave a partial output of 300 numbers that is NULL"},
        {IS_NAN, TUTTI_ERR_DIVERGED, 2, "in step 1 the loss of rank 2 is nan"},
        {IS_NEGATIVE, TUTTI_ERR_ARGUMENT, 2, "rank 2 gave 6 samples and -1 as the square of its norm"},
        {DIES, TUTTI_ERR_PEER_LOST, -1, "rank 2"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        if (cases[c].odd == DIES && !processes) continue;
        the = (struct plan){.ranks = 4, .inputs = 25, .after = cases[c].odd == FAILS_AFTER, .odd_rank = 2};
        the.odd = (unsigned)cases[c].odd;
        struct fault_world world = {.size = 4,
                                    .processes = processes,
                                    .body = run_odd,
                                    .meanwhile = the.odd == DIES ? expect_death : NULL,
                                    .settings = {over_tcp ? "TUTTI_TRANSPORT=tcp" : "TUTTI_ATTACH=1"}};
        check_title("odd %zu, %s%s", c, processes ? "processes" : "threads", over_tcp ? " over tcp" : "");
        fault_run(&world);
        for (int r = 0; r < 4; r++) {
            const struct fault_step *did = &fault_shared->ranks[r].steps[0];
            if (the.odd == DIES && r == 2) continue;
            CHECK_THAT(did->done && did->status == cases[c].status && did->error.status == cases[c].status,
                       "rank %d: %d: %s", r, (int)did->status, did->error.text);
            CHECK_THAT(strstr(did->error.text, cases[c].words) != NULL, "rank %d: \"%s\"", r, did->error.text);
            CHECK(cases[c].about < 0 || did->error.rank == cases[c].about);
        }
    }
}

/* ---- What is refused --------------------------------------------------------------------------------------------- */

#define UNSET "set struct_size to sizeof(tutti_shards_options)"

static void refused(tutti_comm *comm, tutti_shards_options options, int about, tutti_status expected, const char *words)
{
    tutti_shards *shards = NULL;
    tutti_error error = {.text = ""};
    options.struct_size = strcmp(words, UNSET) == 0 ? 0 : sizeof options;
    tutti_status status = tutti_shards_create(comm, &options, &shards, &error);
    CHECK_THAT(status == expected && shards == NULL && strstr(error.text, words) != NULL && error.rank == about,
               "%s: %d, about %d: %s", words, (int)status, error.rank, error.text);
}

static void refused_step(tutti_shards *shards, const float *input, size_t count, int about, tutti_status expected,
                         const char *words)
{
    tutti_status status = tutti_shards_step(shards, input, count, NULL);
    const tutti_error *error = tutti_shards_error(shards);
    CHECK_THAT(status == expected && error != NULL && strstr(error->text, words) != NULL && error->rank == about,
               "%s: %d, about %d: %s", words, (int)status, error == NULL ? -2 : error->rank,
               error == NULL ? "" : error->text);
}

static void run_refusals(tutti_comm *comm, struct fault_rank *self)
{
    const int rank = tutti_rank(comm);
    const size_t even[] = {2, 2, 2}, other[] = {2, 3, 1};
    float input[INPUTS_MOST];
    struct shard shard;
    tutti_shards *shards;
    (void)self;
    refused(comm, (tutti_shards_options){.step = rank == 1 ? NULL : step}, 1, TUTTI_ERR_ARGUMENT,
            "rank 1 has no function");
    refused(comm, (tutti_shards_options){.step = step}, 0, TUTTI_ERR_ARGUMENT, UNSET);
    refused(comm, (tutti_shards_options){.step = step, .sizes = even, .unit = 2}, 0, TUTTI_ERR_ARGUMENT,
            "sizes and a unit");
    refused(comm, (tutti_shards_options){.step = step, .sizes = rank == 2 ? other : even}, 2, TUTTI_ERR_MISMATCH,
            "rank 2 has other sizes");
    refused(comm, (tutti_shards_options){.step = step, .after = rank == 1 ? after : NULL}, 1, TUTTI_ERR_MISMATCH,
            "only one of the two has a function for after the sum");
    CHECK(tutti_shards_create(NULL, NULL, &shards, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_shards_step(NULL, input, 0, NULL) == TUTTI_ERR_ARGUMENT);
    the = (struct plan){.ranks = 3, .inputs = 12, .unit = 4, .odd_rank = -1};
    fill(input);
    if (!make(comm, &shard, &shards)) return;
    refused_step(shards, input, 13, 0, TUTTI_ERR_ARGUMENT, "13 numbers on rank 0 is no multiple of the unit, 4");
    refused_step(shards, rank == 1 ? NULL : input, 12, 1, TUTTI_ERR_ARGUMENT, "the input of rank 1 is NULL");
    refused_step(shards, input, rank == 2 ? 8 : 12, 2, TUTTI_ERR_MISMATCH, "12 numbers on rank 0, but 8 on rank 2");
    shard.wrong = 0;
    check_step(shards, &shard, input, 1);
    tutti_shards_free(shards);
    the.sized = true;
    the.unit = 0;
    for (int r = 0; r < 3; r++) the.sizes[r] = 4;
    if (!make(comm, &shard, &shards)) return;
    refused_step(shards, input, 11, 0, TUTTI_ERR_ARGUMENT, "11 numbers on rank 0; the slices of all ranks have 12");
    tutti_shards_free(shards);
}

static void run_refused(bool processes)
{
    /* ranks that are threads share what a case is, and set it alike */
    if (processes) fault_run_body("what is refused", run_refusals, 3, processes, over_tcp);
}

int main(void)
{
    fault_begin(110);
    fault_everywhere(run_refused, &over_tcp);
    fault_everywhere(run_data, &over_tcp);
    fault_everywhere(run_odds, &over_tcp);
    return fault_end();
}
