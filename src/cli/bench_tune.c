/* SPDX-License-Identifier: Apache-2.0
 *
 * A switch-over size separates two ways of doing the same thing: small calls go one way, large calls the other. To
 * choose it, every size is measured both ways, in turns: the table is set so that all sizes go one way, then the other.
 * The size chosen is the one that loses least against the faster way at every size; where it gains next to nothing over
 * the default, the default stays.
 */
#include "cli/bench.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { TUNE_SIZES = 24, TUNE_ROUNDS = 21, TUNE_OPS = 2 };
static const double tune_sample_seconds = 0.4e-3;
static const double worth_changing = 0.02; /* mean gain, relative to the faster way */

enum tune_kind {
    TUNE_UP_TO,       /* a size up to the value goes the small way */
    TUNE_FROM,        /* a size from the value on goes the large way */
    TUNE_BEST,        /* no switch-over: the value with the least time */
    TUNE_RANKS_UP_TO, /* like the first two, for the number of ranks */
    TUNE_RANKS_FROM
};

/* What the value counts; sizes are those of one buffer of one rank. */
enum tune_unit {
    TUNE_OF_BUFFER,
    TUNE_OF_TWO_EACH, /* two buffers of every rank */
    TUNE_OF_ALL,      /* one buffer of every rank and one more */
    TUNE_OF_FEW       /* the buffer of up to 7 ranks; with every 8 more, the size goes up by the value */
};

struct tune_row {
    const char *name; /* its name in TUTTI_TUNING_LIST */
    enum tune_kind kind;
    const char *ops[TUNE_OPS]; /* the operations that are measured; the second may be NULL */
    size_t from, to;           /* sizes (or values, for TUNE_BEST), each twice the one before */
    size_t at;                 /* the size that is measured if the value is no switch-over size */
    enum tune_unit unit;
    bool messages;   /* matters to ranks that exchange messages; otherwise to those that share memory */
    bool is_private; /* measured on private buffers */
    bool processes;  /* matters between processes only */
    int min_ranks;
    bool two_ranks; /* the value holds for two ranks */
    bool no_attach; /* measured without cross-memory attach */
    enum { TUNE_ALWAYS, TUNE_CROWDED, TUNE_UNCROWDED } when;
    const char *in_place_of; /* the field that ranks use after they have joined; NULL: this one */
    bool replaced;           /* ranks that share cores join with another value, which is not for the file */
};

static const struct tune_row tune_rows[] = {
    {.name = "one_shot",
     .kind = TUNE_UP_TO,
     .ops = {"all_reduce"},
     .from = 64,
     .to = 8192,
     .min_ranks = 2,
     .when = TUNE_UNCROWDED,
     .replaced = true},
    {.name = "staged",
     .kind = TUNE_UP_TO,
     .ops = {"broadcast"},
     .from = 64,
     .to = 8192,
     .min_ranks = 2,
     .when = TUNE_UNCROWDED,
     .replaced = true},
    {.name = "one_shot_crowded",
     .kind = TUNE_UP_TO,
     .ops = {"all_reduce", "all_gather"},
     .from = 64,
     .to = 8192,
     .min_ranks = 2,
     .when = TUNE_CROWDED,
     .in_place_of = "one_shot"},
    {.name = "staged_crowded",
     .kind = TUNE_UP_TO,
     .ops = {"broadcast"},
     .from = 64,
     .to = 8192,
     .min_ranks = 2,
     .when = TUNE_CROWDED,
     .in_place_of = "staged"},
    {.name = "stream",
     .kind = TUNE_FROM,
     .ops = {"all_reduce"},
     .from = 65536,
     .to = 16 << 20,
     .min_ranks = 1,
     .unit = TUNE_OF_TWO_EACH},
    {.name = "stream_to_all",
     .kind = TUNE_FROM,
     .ops = {"broadcast"},
     .from = 1 << 20,
     .to = 16 << 20,
     .min_ranks = 2,
     .unit = TUNE_OF_ALL},
    {.name = "chunk",
     .kind = TUNE_BEST,
     .ops = {"all_reduce", "broadcast"},
     .from = 16384,
     .to = 1 << 20,
     .at = 4 << 20,
     .is_private = true,
     .min_ranks = 2,
     .no_attach = true},
    {.name = "attach",
     .kind = TUNE_FROM,
     .ops = {"all_reduce", "broadcast"},
     .from = 16384,
     .to = 8 << 20,
     .is_private = true,
     .processes = true,
     .min_ranks = 2},
    {.name = "tree",
     .kind = TUNE_FROM,
     .ops = {"broadcast"},
     .from = 16384,
     .to = 4 << 20,
     .is_private = true,
     .min_ranks = 5},
    {.name = "eager", .kind = TUNE_UP_TO, .ops = {"ping_pong"}, .from = 64, .to = 4096, .min_ranks = 2},
    {.name = "message_doubling",
     .kind = TUNE_UP_TO,
     .ops = {"all_reduce"},
     .from = 65536,
     .to = 8 << 20,
     .messages = true,
     .min_ranks = 2,
     .two_ranks = true},
    {.name = "message_paired",
     .kind = TUNE_UP_TO,
     .ops = {"all_reduce", "all_gather"},
     .from = 4096,
     .to = 4 << 20,
     .messages = true,
     .min_ranks = 4,
     .when = TUNE_CROWDED,
     .replaced = true},
    {.name = "message_tree",
     .kind = TUNE_UP_TO,
     .ops = {"reduce"},
     .from = 4096,
     .to = 1 << 20,
     .messages = true,
     .min_ranks = 3},
    {.name = "message_bruck",
     .kind = TUNE_UP_TO,
     .ops = {"all_to_all"},
     .from = 512,
     .to = 256 << 10,
     .messages = true,
     .min_ranks = 5,
     .unit = TUNE_OF_FEW},
    {.name = "message_chunk",
     .kind = TUNE_BEST,
     .ops = {"all_reduce"},
     .from = 256 << 10,
     .to = 4 << 20,
     .at = 4 << 20,
     .messages = true,
     .min_ranks = 2},
    {.name = "message_flat", .kind = TUNE_RANKS_UP_TO, .ops = {"reduce"}, .at = 64, .messages = true, .min_ranks = 3},
    {.name = "message_halving",
     .kind = TUNE_RANKS_FROM,
     .ops = {"all_reduce"},
     .at = 4 << 20,
     .messages = true,
     .min_ranks = 4,
     .when = TUNE_UNCROWDED},
    {.name = "dissemination", .kind = TUNE_RANKS_FROM, .ops = {"barrier"}, .at = 1, .min_ranks = 2},
};

struct tuner {
    struct bench_rank *self;
    tutti_tuning chosen;
    const tutti_option_row *limits; /* of the current row */
    const struct tune_row *row;
    FILE *out; /* rank 0's; NULL on the others */
    bool over_messages;
    struct bench_links links;
};

static int64_t *field(tutti_tuning *tuning, const char *name)
{
#define TUNE_FIELD(field_name, kind, initial, low, high, help)                                                         \
    if (strcmp(name, #field_name) == 0) return &tuning->field_name;
    TUTTI_TUNING_LIST(TUNE_FIELD)
#undef TUNE_FIELD
    return NULL;
}

static const tutti_option_row *limits_of(const char *name)
{
    size_t count = 0;
    const tutti_option_row *rows = tutti_tuning_rows(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

__attribute__((format(printf, 2, 3))) static void say(const struct tuner *tuner, const char *format, ...)
{
    va_list arguments;
    if (!tuner->out) return;
    va_start(arguments, format);
    (void)vfprintf(tuner->out, format, arguments);
    va_end(arguments);
    (void)fflush(tuner->out);
}

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

/* Takes one sample with the row's field set to `value`. */
static int time_with(struct tuner *tuner, const struct bench_case *c, int64_t value, uint64_t batch, double *seconds)
{
    tutti_tuning tuning = tuner->chosen;
    *field(&tuning, tuner->row->name) = value;
    if (tuner->row->in_place_of) *field(&tuning, tuner->row->in_place_of) = value;
    if (tuner->row->no_attach) tuning.attach = limits_of("attach")->high;
    if (tutti_tuning_set(tuner->self->world, &tuning) != TUTTI_OK) return bench_failed(tuner->self);
    return bench_time_batch(tuner->self, c, batch, seconds);
}

static int find_batch(struct tuner *tuner, const struct bench_case *c, int64_t value, uint64_t *batch)
{
    double seconds = 0;
    for (*batch = 1; *batch < 65536; *batch *= 4) {
        int status = time_with(tuner, c, value, *batch, &seconds);
        if (status != CLI_GO_ON) return status;
        if (seconds * (double)*batch >= tune_sample_seconds) break;
    }
    return CLI_GO_ON;
}

/* Measures `op` on `bytes` with each of two values of the field, in turns. The quarter of the samples that was
 * disturbed least decides. */
static int time_both(struct tuner *tuner, const char *op, size_t bytes, const int64_t values[2], double times[2])
{
    double samples[2][TUNE_ROUNDS];
    uint64_t batch[2];
    struct bench_case c;
    bench_case_init(tuner->self, &c, bench_op_find(op), bytes, TUTTI_F32, TUTTI_SUM, false);
    bench_fill(tuner->self, &c);
    int status = CLI_GO_ON;
    for (int way = 0; way < 2 && status == CLI_GO_ON; way++) status = find_batch(tuner, &c, values[way], &batch[way]);
    for (int i = 0; i < 2 * TUNE_ROUNDS && status == CLI_GO_ON; i++)
        status = time_with(tuner, &c, values[i % 2], batch[i % 2], &samples[i % 2][i / 2]);
    if (status != CLI_GO_ON) return status;
    for (int way = 0; way < 2; way++) {
        (void)bench_median(samples[way], TUNE_ROUNDS);
        times[way] = samples[way][TUNE_ROUNDS / 4];
    }
    return CLI_GO_ON;
}

static void say_times(const struct tuner *tuner, const char *op, size_t bytes, const int64_t values[2],
                      const double times[2])
{
    double first = times[0] * 1e6, second = times[1] * 1e6;
    if (tuner->row->kind == TUNE_BEST)
        say(tuner, "#   %-10s %9zu B %10.3f us with %-8lld %10.3f us with %lld\n", op, bytes, first,
            (long long)values[0], second, (long long)values[1]);
    else
        say(tuner, "#   %-10s %9zu B %10.3f us below it %10.3f us above it\n", op, bytes, first, second);
}

/* Does the same for all operations of the row, and adds the times, relative to the faster one, to `costs`. */
static int cost_both(struct tuner *tuner, size_t bytes, const int64_t values[2], double costs[2])
{
    for (int i = 0; i < TUNE_OPS && tuner->row->ops[i]; i++) {
        double times[2];
        int status = time_both(tuner, tuner->row->ops[i], bytes, values, times);
        if (status != CLI_GO_ON) return status;
        double least = times[0] < times[1] ? times[0] : times[1];
        for (int way = 0; way < 2; way++) costs[way] += times[way] / least;
        say_times(tuner, tuner->row->ops[i], bytes, values, times);
    }
    return CLI_GO_ON;
}

/* ---- Choosing ---------------------------------------------------------------------------------------------------- */

static int64_t in_unit(const struct tuner *tuner, size_t bytes)
{
    int64_t size = (int64_t)bytes, ranks = tuner->self->ranks;
    switch (tuner->row->unit) {
    case TUNE_OF_TWO_EACH: return size * 2 * ranks;
    case TUNE_OF_ALL: return size * (ranks + 1);
    case TUNE_OF_FEW: return size / (1 + ranks / 8);
    default: return size;
    }
}

static int64_t usual_value(const struct tuner *tuner)
{
    return strtoll(tuner->limits->initial, NULL, 10);
}

/* Returns the least value that is meant literally: if 0 is the default, it means "as the machine suggests". */
static int64_t least(const struct tuner *tuner)
{
    return usual_value(tuner) == 0 ? 1 : tuner->limits->low;
}

/* Returns the value with which the first `small` sizes go the small way. */
static int64_t switch_value(const struct tuner *tuner, const size_t *sizes, size_t count, size_t small)
{
    if (tuner->row->kind == TUNE_UP_TO) return small ? in_unit(tuner, sizes[small - 1]) : least(tuner);
    return small < count ? (small ? in_unit(tuner, sizes[small]) : least(tuner)) : tuner->limits->high;
}

static size_t small_sizes(const struct tuner *tuner, const size_t *sizes, size_t count, int64_t value)
{
    size_t small = 0;
    while (small < count && (in_unit(tuner, sizes[small]) < value ||
                             (tuner->row->kind == TUNE_UP_TO && in_unit(tuner, sizes[small]) == value)))
        small++;
    return small;
}

/* Chooses the value. costs[i]: of size i, the small way and the large way. */
static int64_t choose_switch(const struct tuner *tuner, const size_t *sizes, double (*costs)[2], size_t count,
                             int64_t usual)
{
    double totals[TUNE_SIZES + 1];
    size_t best = 0, present = small_sizes(tuner, sizes, count, usual);
    for (size_t small = 0; small <= count; small++) {
        totals[small] = 0;
        for (size_t i = 0; i < count; i++) totals[small] += costs[i][i < small ? 0 : 1];
        if (totals[small] < totals[best]) best = small;
    }
    bool gains = totals[present] - totals[best] > worth_changing * (double)count;
    return gains ? switch_value(tuner, sizes, count, best) : usual;
}

static int tune_switch(struct tuner *tuner, int64_t *value)
{
    size_t sizes[TUNE_SIZES], count = 0;
    double costs[TUNE_SIZES][2] = {{0}};
    const int64_t sides[2] = {tuner->limits->high, least(tuner)}; /* all sizes go the small way; all go the large way */
    for (size_t bytes = tuner->row->from; bytes <= tuner->row->to && count < TUNE_SIZES; bytes *= 2) {
        sizes[count] = bytes;
        int status = cost_both(tuner, bytes, sides, costs[count++]);
        if (status != CLI_GO_ON) return status;
    }
    *value = choose_switch(tuner, sizes, costs, count, *value);
    return CLI_GO_ON;
}

static int tune_best(struct tuner *tuner, int64_t *value)
{
    int64_t best = *value;
    double gain = 0;
    for (size_t candidate = tuner->row->from; candidate <= tuner->row->to; candidate *= 2) {
        if ((int64_t)candidate == *value) continue;
        const int64_t both[2] = {*value, (int64_t)candidate};
        double costs[2] = {0};
        int status = cost_both(tuner, tuner->row->at, both, costs);
        if (status != CLI_GO_ON) return status;
        if (costs[0] - costs[1] <= gain) continue;
        gain = costs[0] - costs[1];
        best = (int64_t)candidate;
    }
    if (gain > 2 * worth_changing) *value = best;
    return CLI_GO_ON;
}

static int tune_ranks(struct tuner *tuner, int64_t *value)
{
    const int64_t sides[2] = {tuner->limits->high, tuner->limits->low};
    /* limits that just include this number of ranks, and just exclude it */
    int64_t few = tuner->self->ranks, many = few - 1;
    double costs[2] = {0};
    if (tuner->row->kind == TUNE_RANKS_FROM) few++, many++;
    int status = cost_both(tuner, tuner->row->at, sides, costs);
    if (status != CLI_GO_ON) return status;
    if (costs[0] - costs[1] > worth_changing && *value > many) *value = many;
    if (costs[1] - costs[0] > worth_changing && *value < few) *value = few;
    return CLI_GO_ON;
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* Returns why the row cannot be measured here, or NULL if it can. */
static const char *missing(const struct tuner *tuner)
{
    if (tuner->row->messages && !tuner->over_messages) return "matters to ranks that exchange messages";
    if (!tuner->row->messages && tuner->over_messages) return "matters to ranks that share memory";
    if (tuner->row->two_ranks && tuner->self->ranks != 2) return "is measured with two ranks";
    if (tuner->row->processes && tuner->self->settings->as_threads) return "matters between processes only";
    static const char *const needs[] = {[2] = "needs two ranks",
                                        [3] = "matters with more than two ranks only",
                                        [4] = "matters with four ranks or more only",
                                        [5] = "matters with more than four ranks only"};
    if (tuner->self->ranks < tuner->row->min_ranks) return needs[tuner->row->min_ranks];
    bool crowded = tuner->self->ranks > tuner->self->cores;
    if (tuner->row->when == TUNE_CROWDED && !crowded) return "matters with more ranks than cores only";
    if (tuner->row->when == TUNE_UNCROWDED && crowded) return "matters with a core for every rank only";
    return NULL;
}

static int want_buffers(struct tuner *tuner)
{
    struct bench_rank *self = tuner->self;
    if (self->buffers_private == tuner->row->is_private) return CLI_GO_ON;
    bench_buffers_close(self);
    bool ok = bench_buffers_open(self, tuner->row->is_private);
    if (!ok) (void)cli_fail("bench", "rank %d: no memory for buffers of %zu bytes", self->rank, self->max_bytes);
    return bench_agree(self, ok);
}

static int tune_one(struct tuner *tuner)
{
    int64_t *value = field(&tuner->chosen, tuner->row->name), before;
    tuner->limits = limits_of(tuner->row->name);
    if (!value || !tuner->limits || !tuner->limits->initial) return CLI_GO_ON; /* this library has no such row */
    before = *value;
    const char *why = missing(tuner);
    if (why) {
        if (tuner->row->replaced && tuner->self->ranks > tuner->self->cores) *value = usual_value(tuner);
        say(tuner, "%s %lld  # not measured: %s\n", tuner->row->name, (long long)*value, why);
        return CLI_GO_ON;
    }
    say(tuner, "# %s: %s\n", tuner->row->name, tuner->limits->help);
    int status = want_buffers(tuner);
    if (status != CLI_GO_ON) return status;
    if (tuner->row->kind == TUNE_BEST)
        status = tune_best(tuner, value);
    else if (tuner->row->kind >= TUNE_RANKS_UP_TO)
        status = tune_ranks(tuner, value);
    else
        status = tune_switch(tuner, value);
    if (status == CLI_GO_ON) {
        say(tuner, "%s %lld%s\n", tuner->row->name, (long long)*value, *value == before ? "  # as before" : "");
    }
    return status;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static int file_failed(const char *path)
{
    return cli_blame_path("bench", "cannot write", path);
}

static int write_file(struct tuner *tuner, const char *path)
{
    const struct bench_rank *self = tuner->self;
    size_t count = 0;
    const tutti_option_row *rows = tutti_tuning_rows(&count);
    FILE *file = fopen(path, "we");
    if (!file) return file_failed(path);
    (void)fprintf(file, "# switch-over sizes, by tutti bench --tune\n# machine: %s, %d cores\n# ranks: %d as %s\n",
                  tutti_cpu(), self->cores, self->ranks, self->settings->as_threads ? "threads" : "processes");
    for (size_t i = 0; i < count; i++) {
        int64_t *value = field(&tuner->chosen, rows[i].name);
        if (value) (void)fprintf(file, "%s %lld\n", rows[i].name, (long long)*value);
    }
    if (tuner->over_messages) bench_links_write(file, &tuner->links);
    bool bad = ferror(file) != 0;
    if (fclose(file) != 0 || bad) return file_failed(path);
    if (tuner->over_messages) bench_links_write(tuner->out, &tuner->links);
    say(tuner, "# written to %s; TUTTI_TUNING=%s or --tuning %s reads it\n", path, path, path);
    return CLI_OK;
}

int bench_tune(struct bench_rank *self)
{
    const char *path = self->settings->flags.tune;
    struct tuner tuner = {.self = self, .out = self->rank == 0 ? stdout : NULL};
    tuner.over_messages = self->ranks > 1 && strstr(tutti_comm_transport(self->world), "tcp") != NULL;
    tutti_tuning usual;
    int status = bench_agree(self, self->rank != 0 || cli_check_output("bench", path) == CLI_GO_ON);
    tuner.chosen.struct_size = usual.struct_size = sizeof usual;
    tutti_tuning_get(self->world, &tuner.chosen);
    usual = tuner.chosen;
    for (size_t i = 0; i < sizeof tune_rows / sizeof tune_rows[0] && status == CLI_GO_ON; i++) {
        tuner.row = &tune_rows[i];
        status = tune_one(&tuner);
    }
    if (status != CLI_GO_ON) return status;
    if (tutti_tuning_set(self->world, &usual) != TUTTI_OK) return bench_failed(self);
    if (tuner.over_messages) status = bench_links_measure(self, &tuner.links);
    if (status != CLI_GO_ON) return status;
    return self->rank == 0 ? write_file(&tuner, path) : CLI_OK;
}
