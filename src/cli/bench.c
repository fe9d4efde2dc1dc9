/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti bench: the command's page, what is checked before anything is started, and the work of one rank.
 *
 * As threads, the ranks are this process. As processes, the tool runs itself under tutti run; a rank then finds its
 * launcher in the environment, as does a rank of `tutti run -n 4 tutti bench …` or `mpirun -n 4 tutti bench …`, which
 * runs the same code.
 */
#include "cli/bench.h"
#include "cli/cli_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char worker_variable[] = "TUTTI_BENCH_WORKER"; /* set in the ranks that the tool starts by itself */

/* ---- The page ---------------------------------------------------------------------------------------------------- */

#define BENCH_OFFSET(field) offsetof(struct bench_values, field)
#define LARGEST ((int64_t)1 << 50)

static const struct cli_flag bench_flags[] = {
    {.row = {"list", TUTTI_OPTION_BOOL, "0", 0, 1, "name the operations and end"},
     .offset = BENCH_OFFSET(list),
     .is_switch = true},
    {.row = {"minbytes", TUTTI_OPTION_BYTES, "8", 1, LARGEST, "smallest size"},
     .offset = BENCH_OFFSET(min_bytes),
     .short_name = "b"},
    {.row = {"maxbytes", TUTTI_OPTION_BYTES, "64M", 1, LARGEST, "largest size"},
     .offset = BENCH_OFFSET(max_bytes),
     .short_name = "e"},
    {.row = {"stepbytes", TUTTI_OPTION_BYTES, "", 1, LARGEST, "from one size to the next: add this"},
     .offset = BENCH_OFFSET(step_bytes),
     .short_name = "i"},
    {.row = {"stepfactor", TUTTI_OPTION_INT, "", 2, 1048576, "from one size to the next: times this (8, unless -i)"},
     .offset = BENCH_OFFSET(step_factor),
     .short_name = "f"},
    {.row = {"iters", TUTTI_OPTION_INT, "", 1, 1000000, "samples per row; by default 50, fewer where they take long"},
     .offset = BENCH_OFFSET(samples),
     .short_name = "n"},
    {.row = {"samples", TUTTI_OPTION_INT, "", 1, 1000000, "another name of --iters"}, .offset = BENCH_OFFSET(samples)},
    {.row = {"warmup_iters", TUTTI_OPTION_INT, "5", 0, 1000000, "calls before the first sample of a row"},
     .offset = BENCH_OFFSET(warmup),
     .short_name = "w"},
    {.row = {"agg_iters", TUTTI_OPTION_INT, "", 1, 1000000000,
             "calls per sample, back to back; by default as many as take 1.5 ms"},
     .offset = BENCH_OFFSET(batch),
     .short_name = "m"},
    {.row = {"rounds", TUTTI_OPTION_INT, "10", 1, 1000000,
             "turns that the samples and those of the floor are taken in"},
     .offset = BENCH_OFFSET(rounds)},
    {.row = {"op", TUTTI_OPTION_TEXT, "sum", 0, 0,
             "reduction; mulsum: a sum in which each rank's part is doubled first"},
     .offset = BENCH_OFFSET(reduction),
     .short_name = "o",
     .choices = "sum|prod|min|max|avg|and|or|xor|mulsum|all"},
    {.row = {"datatype", TUTTI_OPTION_TEXT, "f32", 0, 0,
             "type of the elements: f32, bf16, i8 … or nccl-tests' names float, bfloat16, int8 …; or all"},
     .offset = BENCH_OFFSET(type),
     .short_name = "d",
     .value = "TYPE"},
    {.row = {"root", TUTTI_OPTION_INT, "0", 0, 65535, "root of the operations that have one"},
     .offset = BENCH_OFFSET(root),
     .short_name = "r"},
    {.row = {"check", TUTTI_OPTION_INT, "1", 0, 1000000,
             "calls per row whose results are compared with a serial reference; 0: none"},
     .offset = BENCH_OFFSET(check),
     .short_name = "c"},
    {.row = {"ranks", TUTTI_OPTION_INT, "", 1, 65536, "how many ranks; by default one per core, and at least 2"},
     .offset = BENCH_OFFSET(ranks)},
    {.row = {"as", TUTTI_OPTION_TEXT, "", 0, 0, "what the ranks are; threads by default"},
     .offset = BENCH_OFFSET(as),
     .choices = "threads|processes"},
    {.row = {"transport", TUTTI_OPTION_TEXT, "auto", 0, 0,
             "how bytes move: thread between threads, shm between processes, or tcp between either"},
     .offset = BENCH_OFFSET(transport),
     .choices = "auto|thread|shm|tcp"},
    {.row = {"buffers", TUTTI_OPTION_TEXT, "shared", 0, 0,
             "shared: from tutti_alloc, which all ranks of the host can reach; on a device, what processes can map. "
             "private: ordinary memory"},
     .offset = BENCH_OFFSET(buffers),
     .choices = "shared|private"},
    {.row = {"device", TUTTI_OPTION_TEXT, "", 0, 0,
             "on buffers and a stream of a device: cuda (local ranks take the GPUs in turn), cuda:N or host"},
     .offset = BENCH_OFFSET(device),
     .value = "NAME"},
    {.row = {"bind", TUTTI_OPTION_TEXT, "", 0, 0,
             "core: each rank on its own; the default unless ranks outnumber cores"},
     .offset = BENCH_OFFSET(bind),
     .choices = "core|none"},
    {.row = {"floor", TUTTI_OPTION_BOOL, "1", 0, 1, "measure the floor: the same bytes moved by bare loops"},
     .offset = BENCH_OFFSET(floor)},
    {.row = {"json", TUTTI_OPTION_TEXT, "", 0, 0,
             "write each measurement as a line of JSON; - or no value: to stdout, the table to stderr"},
     .offset = BENCH_OFFSET(json),
     .value = "[FILE]",
     .bare = "-"},
    {.row = {"tune", TUTTI_OPTION_TEXT, "", 0, 0, "measure the switch-over sizes instead, and write them for --tuning"},
     .offset = BENCH_OFFSET(tune),
     .value = "FILE"},
    {.row = {.name = NULL}},
};

static const struct cli_example bench_examples[] = {
    {"tutti bench all_reduce -b 8 -e 64M -f 8 --ranks 2", "all_reduce on 8 bytes to 64 MiB, between two threads"},
    {"tutti bench broadcast --ranks 4 --as processes --buffers private", "between processes, on ordinary memory"},
    {"tutti bench all_reduce --ranks 4 --device cuda", "on GPUs, on one of them if there is one"},
    {"tutti bench --json results.json", "the standard set of operations, also as lines of JSON"},
    {"tutti bench --tune tutti.tuning", "what suits this machine; programs read it by TUTTI_TUNING=tutti.tuning"},
    {NULL, NULL},
};

/* nccl-tests counts threads and the GPUs of each; here every one of them is a rank. */
static const struct cli_foreign bench_foreign[] = {
    {"-g", "--ranks"},
    {"--ngpus", "--ranks"},
    {"-t", "--ranks"},
    {"--nthreads", "--ranks"},
    {"--sizes", "sizes go from -b to -e, times -f or plus -i"},
    {"--size", "sizes go from -b to -e, times -f or plus -i"},
    {"--bytes", "sizes go from -b to -e, times -f or plus -i"},
    {NULL, NULL},
};

const struct cli_page cli_bench_page = {
    .usage = "tutti bench [OPERATION | all] [flags]",
    .about =
        "Measures collectives in the columns and with the flags of nccl-tests, checks their results, and sets beside "
        "each time its floor: what the same ranks need to move the bytes that the operation cannot avoid, with "
        "nothing else in the way. Without OPERATION: the standard set; --list names all, and the names of nccl-tests' "
        "programs (all_gather_perf, alltoall_perf) are understood.\n\n"
        "Sizes are those of the vector, or of all ranks' blocks together where the operation works in blocks; they "
        "are rounded to whole elements. A sample is a batch of calls, and its time that of the slowest rank. The "
        "exit status is 1 when a result was wrong.",
    .examples = bench_examples,
    .flags = bench_flags,
    .foreign = bench_foreign,
    .operands = true,
    .library_options = true,
};

/* ---- What was asked ---------------------------------------------------------------------------------------------- */

static int list_operations(void)
{
    for (size_t i = 0; i < bench_op_count; i++)
        printf("%-17s %s%s\n", bench_ops[i].name, bench_ops[i].help, bench_ops[i].standard ? "" : " (not in all)");
    return CLI_OK;
}

int bench_op_refuse(const char *command, const char *word)
{
    const char *near = bench_op_nearest(word);
    if (near == NULL) return cli_refuse(command, "unknown operation '%s'; tutti bench --list names them", word);
    return cli_refuse(command, "unknown operation '%s'; did you mean '%s'?", word, near);
}

int bench_json_check(const char *command, const char *path)
{
    if (bench_op_find(path) == NULL && strcmp(path, "all") != 0) return CLI_GO_ON;
    return cli_refuse(command,
                      "--json %s: that is an operation, but stands in the place of a file; write it before --json "
                      "(tutti %s %s --json), or ./%s for a file of that name",
                      path, command, path, path);
}

static int choose_ops(struct bench_settings *settings, const char *word)
{
    bool all = !word || strcmp(word, "all") == 0;
    for (size_t i = 0; all && i < bench_op_count; i++)
        if (bench_ops[i].standard) settings->ops[settings->op_count++] = &bench_ops[i];
    const struct bench_op *op = all ? NULL : bench_op_find(word);
    if (op != NULL) settings->ops[settings->op_count++] = op;
    return settings->op_count ? CLI_GO_ON : bench_op_refuse("bench", word);
}

struct type_alias {
    const char *name;
    tutti_type type;
};

static const struct type_alias type_aliases[] = {
    {"double", TUTTI_F64},    {"float64", TUTTI_F64},     {"float", TUTTI_F32},     {"float32", TUTTI_F32},
    {"half", TUTTI_F16},      {"float16", TUTTI_F16},     {"bfloat16", TUTTI_BF16}, {"fp8_e4m3", TUTTI_F8E4M3},
    {"f8e4m3", TUTTI_F8E4M3}, {"fp8_e5m2", TUTTI_F8E5M2}, {"f8e5m2", TUTTI_F8E5M2}, {"int8", TUTTI_I8},
    {"char", TUTTI_I8},       {"uint8", TUTTI_U8},        {"int16", TUTTI_I16},     {"uint16", TUTTI_U16},
    {"int32", TUTTI_I32},     {"int", TUTTI_I32},         {"uint32", TUTTI_U32},    {"int64", TUTTI_I64},
    {"uint64", TUTTI_U64},
};
enum { TYPE_ALIASES = sizeof type_aliases / sizeof type_aliases[0] };

static int choose_types(struct bench_settings *settings)
{
    const char *word = settings->flags.type;
    const char *names[TYPE_ALIASES + TUTTI_TYPE_COUNT + 1] = {"all"};
    size_t count = 1;
    for (int t = 0; t < TUTTI_TYPE_COUNT; t++) {
        names[count++] = tutti_type_name((tutti_type)t);
        if (strcmp(word, "all") != 0 && strcmp(word, tutti_type_name((tutti_type)t)) != 0) continue;
        settings->types[settings->type_count++] = (tutti_type)t;
    }
    for (size_t i = 0; i < TYPE_ALIASES && settings->type_count == 0; i++) {
        names[count++] = type_aliases[i].name;
        if (strcmp(word, type_aliases[i].name) == 0) settings->types[settings->type_count++] = type_aliases[i].type;
    }
    if (settings->type_count) return CLI_GO_ON;
    const char *near = tutti_nearest(word, names, count);
    if (!near) return cli_refuse("bench", "unknown type '%s'; types are f32, bf16, i8 … or all", word);
    return cli_refuse("bench", "unknown type '%s'; did you mean '%s'?", word, near);
}

static int choose_reductions(struct bench_settings *settings)
{
    const char *word = settings->flags.reduction;
    bool all = strcmp(word, "all") == 0;
    for (int r = 0; r < TUTTI_REDUCTION_COUNT; r++) {
        if (!all && strcmp(word, tutti_reduction_name((tutti_reduction)r)) != 0) continue;
        settings->reductions[settings->reduction_count++] = (tutti_reduction)r;
    }
    if (!all && settings->reduction_count > 0) return CLI_GO_ON;
    tutti_reduction *scaled = &settings->reductions[settings->reduction_count++];
    return tutti_reduction_scaled_sum(BENCH_FACTOR, scaled, NULL) == TUTTI_OK ? CLI_GO_ON
                                                                              : cli_fail("bench", "no memory");
}

static int check_sizes(struct bench_values *flags)
{
    if (flags->min_bytes > flags->max_bytes) {
        return cli_refuse("bench", "-b %lld is more than -e %lld: the smallest size comes first",
                          (long long)flags->min_bytes, (long long)flags->max_bytes);
    }
    if (flags->step_bytes && flags->step_factor) return cli_refuse("bench", "-i and -f exclude each other");
    if (!flags->step_bytes && !flags->step_factor) flags->step_factor = 8;
    return CLI_GO_ON;
}

/* Returns true if a launcher started this process as one of several: tutti run, mpirun, srun … */
static bool has_launcher(void)
{
    size_t count = 0;
    const tutti_launcher_row *rows = tutti_launcher_rows(&count);
    const char *chosen = getenv("TUTTI_LAUNCHER");
    bool any = chosen == NULL || strcmp(chosen, "auto") == 0;
    for (size_t i = 0; i < count; i++)
        if ((any || strcmp(chosen, rows[i].name) == 0) && tutti_launcher_found(&rows[i])) return true;
    return false;
}

/* Decides how the ranks run and how many there are, inside a job and outside. With launchers other than the tool, the
 * number is known when the ranks join. */
static int check_ranks(struct bench_settings *settings)
{
    struct bench_values *flags = &settings->flags;
    const char *job_size = getenv("TUTTI_SIZE");
    bool in_job = has_launcher();
    int64_t size = in_job && job_size ? strtoll(job_size, NULL, 10) : 0;
    settings->in_job = in_job;
    if (in_job && strcmp(flags->as, "threads") == 0)
        return cli_refuse("bench", "--as threads: this is a rank of a job that was started as processes");
    if (in_job && flags->ranks && !size)
        return cli_refuse("bench", "--ranks: this is a rank of a job, whose launcher says how many there are");
    if (in_job && flags->ranks && flags->ranks != size)
        return cli_refuse("bench", "--ranks %lld: the job has %lld", (long long)flags->ranks, (long long)size);
    if (in_job && !getenv(worker_variable) && strcmp(flags->bind, "core") == 0)
        return cli_refuse("bench", "--bind core: the launcher binds the ranks of this job (tutti run --bind core)");
    settings->as_threads = !in_job && strcmp(flags->as, "processes") != 0;
    if (in_job) flags->ranks = size;
    if (!flags->ranks) flags->ranks = bench_cores_here() < 2 ? 2 : bench_cores_here();
    if (flags->root >= flags->ranks && (!in_job || size))
        return cli_refuse("bench", "--root %lld: ranks are 0 to %lld", (long long)flags->root,
                          (long long)flags->ranks - 1);
    if (flags->floor && flags->device[0] == '\0' && flags->ranks > FLOOR_MAX_RANKS)
        return cli_refuse("bench", "--ranks %lld: the floor is measured on up to %d ranks; add --floor 0",
                          (long long)flags->ranks, FLOOR_MAX_RANKS);
    return CLI_GO_ON;
}

static int check_transport(const struct bench_settings *settings)
{
    const char *asked = settings->flags.transport, *is = settings->as_threads ? "thread" : "shm";
    bool tcp = strcmp(asked, "tcp") == 0;
    if (strcmp(asked, "auto") == 0) return CLI_GO_ON;
    if (!tcp && strcmp(asked, is) != 0)
        return cli_refuse("bench", "--transport %s: between %s it is %s or tcp; see --as", asked,
                          settings->as_threads ? "threads" : "processes", is);
    return setenv("TUTTI_TRANSPORT", tcp ? "tcp" : "shm", 1) == 0 ? CLI_GO_ON : cli_fail("bench", "out of memory");
}

static int check_tune(const struct bench_values *flags, const char *operation)
{
    if (flags->tune[0] == '\0') return CLI_GO_ON;
    if (operation != NULL)
        return cli_refuse("bench", "--tune measures what all operations go by, not '%s' alone", operation);
    return flags->json[0] == '\0' ? CLI_GO_ON : cli_refuse("bench", "--tune writes its own file, and no JSON");
}

static int check_device(const struct bench_settings *settings)
{
    const struct bench_values *flags = &settings->flags;
    if (flags->device[0] == '\0') return CLI_GO_ON;
    if (flags->tune[0] != '\0') return cli_refuse("bench", "--tune measures what goes by the host, and no --device");
    if (settings->op_count == 1 && settings->ops[0]->shape == FLOOR_PING_PONG)
        return cli_refuse("bench", "ping_pong is not measured on a device; leave --device out");
    return setenv("TUTTI_DEVICE", flags->device, 1) == 0 ? CLI_GO_ON : cli_fail("bench", "out of memory");
}

static int check_operations(const struct bench_settings *settings)
{
    if (settings->flags.ranks > 1 || settings->op_count > 1 || settings->ops[0]->shape != FLOOR_PING_PONG)
        return CLI_GO_ON;
    return cli_refuse("bench", "ping_pong needs two ranks; see --ranks");
}

static void choose_binding(struct bench_settings *settings)
{
    const char *bind = settings->flags.bind;
#ifdef TUTTI_HAVE_HWLOC
    bool possible = settings->flags.ranks <= bench_cores_here();
#else
    bool possible = false;
#endif
    settings->bind = bind[0] ? strcmp(bind, "core") == 0 : possible;
}

/* Turns underlines in names of flags into dashes: nccl-tests writes --warmup_iters, the tool --warmup-iters. */
static void dash_flags(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--", 2) != 0) continue;
        for (char *c = argv[i] + 2; *c != '\0' && *c != '='; c++) *c = *c == '_' ? '-' : *c;
    }
}

/* Parses the command line. The operation may come before, between or after the flags; it is removed from `words`. */
static int parse_words(struct bench_settings *settings, int argc, char **words, const char **operation)
{
    int rest = 0;
    for (;;) {
        settings->flags = (struct bench_values){0};
        int status = cli_parse("bench", &cli_bench_page, argc, words, &settings->flags, &rest);
        if (status != CLI_GO_ON || rest == argc) return status;
        if (*operation) return cli_refuse("bench", "one operation at a time: '%s' or '%s'", *operation, words[rest]);
        *operation = words[rest];
        memmove(&words[rest], &words[rest + 1], (size_t)(argc - rest - 1) * sizeof *words);
        argc--;
    }
}

static int read_settings(struct bench_settings *settings, int argc, char **argv)
{
    const char *operation = NULL;
    char **words = calloc((size_t)argc + 1, sizeof *words);
    if (!words) return cli_fail("bench", "out of memory");
    dash_flags(argc, argv);
    memcpy(words, argv, (size_t)argc * sizeof *words);
    int status = parse_words(settings, argc, words, &operation);
    free(words);
    if (status != CLI_GO_ON || settings->flags.list) return status;
    status = operation == NULL ? bench_json_check("bench", settings->flags.json) : CLI_GO_ON;
    if (status == CLI_GO_ON) status = check_tune(&settings->flags, operation);
    if (status == CLI_GO_ON) status = choose_ops(settings, operation);
    if (status == CLI_GO_ON) status = choose_types(settings);
    if (status == CLI_GO_ON) status = check_sizes(&settings->flags);
    if (status == CLI_GO_ON) status = check_ranks(settings);
    if (status == CLI_GO_ON) status = check_transport(settings);
    if (status == CLI_GO_ON) status = check_operations(settings);
    if (status == CLI_GO_ON) status = check_device(settings);
    if (status == CLI_GO_ON) status = choose_reductions(settings);
    choose_binding(settings);
    settings->buffers_private = strcmp(settings->flags.buffers, "private") == 0;
    return status;
}

/* ---- One rank's work --------------------------------------------------------------------------------------------- */

/* Asks the library if the reduction is defined for the type: it refuses an undefined pair before it does anything
 * else. */
static int check_pair(struct bench_rank *self, tutti_type type, tutti_reduction reduction, bool *defined)
{
    uint64_t in = 0, out = 0;
    tutti_status status = tutti_all_reduce(self->world, &in, &out, 1, type, reduction);
    *defined = status == TUTTI_OK;
    return status == TUTTI_OK || status == TUTTI_ERR_TYPE ? CLI_GO_ON : bench_failed(self);
}

/* Refuses a pair that was asked for by name and is not defined. With `all`, undefined pairs are left out. */
static int check_named_pair(struct bench_rank *self)
{
    const struct bench_settings *settings = self->settings;
    bool reduces = false, defined = true;
    for (size_t i = 0; i < settings->op_count; i++) reduces |= settings->ops[i]->reduces;
    if (!reduces || settings->type_count > 1 || settings->reduction_count > 1) return CLI_GO_ON;
    int status = check_pair(self, settings->types[0], settings->reductions[0], &defined);
    if (status != CLI_GO_ON || defined) return status;
    if (self->rank == 0) (void)tutti_explain(self->world, stderr);
    return CLI_USAGE;
}

static int measure_row(struct bench_rank *self, struct bench_report *report, struct bench_case *c)
{
    struct bench_result results[2];
    bool twice = c->op->in_place != BENCH_NEVER;
    for (int in_place = 0; in_place <= twice; in_place++) {
        bench_case_init(self, c, c->op, c->bytes, c->type, c->reduction, in_place);
        int status = bench_measure(self, c, &results[in_place]);
        if (status != CLI_GO_ON) return status;
    }
    if (self->rank == 0)
        bench_report_row(report, self, c, &results[0], twice ? &results[1] : NULL);
    else
        report->wrong += results[0].wrong == UINT64_MAX ? 0 : results[0].wrong + (twice ? results[1].wrong : 0);
    return CLI_GO_ON;
}

static int measure_sizes(struct bench_rank *self, struct bench_report *report, const struct bench_op *op,
                         tutti_type type, tutti_reduction reduction)
{
    const struct bench_values *flags = &self->settings->flags;
    bool defined = true;
    int status = op->reduces ? check_pair(self, type, reduction, &defined) : CLI_GO_ON;
    size_t last = SIZE_MAX;
    for (int64_t bytes = flags->min_bytes; status == CLI_GO_ON && defined && bytes <= flags->max_bytes;) {
        struct bench_case c;
        bench_case_init(self, &c, op, (size_t)bytes, type, reduction, false);
        if (c.bytes != last) status = measure_row(self, report, &c); /* rounding may give the same size twice */
        last = c.bytes;
        /* the next size would be too large */
        if (flags->step_factor && bytes > flags->max_bytes / flags->step_factor) break;
        bytes = flags->step_bytes ? bytes + flags->step_bytes : bytes * flags->step_factor;
    }
    return status;
}

static int measure_op(struct bench_rank *self, struct bench_report *report, const struct bench_op *op)
{
    const struct bench_settings *settings = self->settings;
    if (op->shape == FLOOR_PING_PONG && (self->ranks < 2 || self->device != NULL)) return CLI_GO_ON;
    if (self->rank == 0) bench_report_section(report, op);
    size_t types = op->shape == FLOOR_BARRIER ? 1 : settings->type_count;
    size_t reductions = op->reduces ? settings->reduction_count : 1;
    for (size_t t = 0; t < types; t++) {
        for (size_t r = 0; r < reductions; r++) {
            int status = measure_sizes(self, report, op, settings->types[t], settings->reductions[r]);
            if (status != CLI_GO_ON) return status;
        }
    }
    return CLI_GO_ON;
}

static int measure_all(struct bench_rank *self)
{
    struct bench_report report = {.table = stdout};
    int status = check_named_pair(self);
    if (status != CLI_GO_ON) return status;
    if (self->rank == 0) status = bench_report_open(&report, self);
    status = bench_agree(self, status == CLI_GO_ON);
    for (size_t i = 0; status == CLI_GO_ON && i < self->settings->op_count; i++)
        status = measure_op(self, &report, self->settings->ops[i]);
    if (self->rank == 0) {
        int closed = bench_report_close(&report);
        return status == CLI_GO_ON ? closed : status;
    }
    if (status != CLI_GO_ON) return status;
    return report.wrong ? CLI_FAILED : CLI_OK;
}

static int open_rank(struct bench_rank *self)
{
    const struct bench_settings *settings = self->settings;
    int status = bench_count_cores(self);
    if (status != CLI_GO_ON) return status;
    if (settings->cores) (void)sched_setaffinity(0, sizeof *settings->cores, &settings->cores[self->rank]);
    bool ok = bench_buffers_open(self, settings->buffers_private);
    if (!ok && !tutti_explain(self->world, stderr))
        (void)cli_fail("bench", "rank %d: no memory for buffers of %zu bytes", self->rank, self->max_bytes);
    status = bench_agree(self, ok);
    if (status != CLI_GO_ON) return status;
    if (settings->flags.device[0] != '\0') return bench_device_open(self);
    return settings->flags.floor && !settings->flags.tune[0] ? bench_floor_open(self) : CLI_GO_ON;
}

static const struct bench_settings *work_settings; /* settings of the ranks of this process; set before they start */

static int work(tutti_comm *world, int argc, char **argv)
{
    (void)argc, (void)argv;
    struct bench_rank self = {.world = world, .settings = work_settings};
    const struct bench_values *flags = &self.settings->flags;
    self.rank = tutti_rank(world);
    self.ranks = tutti_size(world);
    self.max_bytes = (size_t)flags->max_bytes;
    if (flags->tune[0]) self.max_bytes = BENCH_TUNE_BYTES;
    if (self.max_bytes < 8 * (size_t)self.ranks) self.max_bytes = 8 * (size_t)self.ranks; /* an element per block */
    int status = open_rank(&self);
    if (status == CLI_GO_ON) status = flags->tune[0] ? bench_tune(&self) : measure_all(&self);
    if (status != CLI_OK) floor_abort(&self.floor);
    bench_floor_close(&self);
    bench_device_close(&self);
    bench_buffers_close(&self);
    return status;
}

/* ---- Starting ---------------------------------------------------------------------------------------------------- */

static int start_threads(struct bench_settings *settings, int argc, char **argv)
{
    char ranks[32];
    (void)snprintf(ranks, sizeof ranks, "%lld", (long long)settings->flags.ranks);
    if (setenv("TUTTI_RANKS", ranks, 1) != 0) return cli_fail("bench", "out of memory");
    if (settings->bind) {
        int status = bind_cores((int)settings->flags.ranks, &settings->cores);
        if (status != CLI_GO_ON) return status;
    }
    work_settings = settings;
    int status = tutti_main(work, argc, argv);
    free(settings->cores);
    return status;
}

/* Starts the ranks by: tutti run -n N --no-prefix --bind B -- tutti bench … */
static int start_processes(const struct bench_settings *settings, int argc, char **argv)
{
    enum { OWN = 9 };
    if (fcntl(STDOUT_FILENO, F_GETFD) < 0)
        return cli_fail("bench", "cannot write the results to stdout: %s", strerror(errno));
    char ranks[32], path[4096],
        *words[OWN] = {"run", "-n", ranks, "--no-prefix", "--bind", "none", "--", path, "bench"};
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return cli_fail("bench", "cannot find the tool itself: /proc/self/exe: %s", strerror(errno));
    path[length] = '\0';
    (void)snprintf(ranks, sizeof ranks, "%lld", (long long)settings->flags.ranks);
    if (settings->bind) words[5] = "core";
    char **all = calloc((size_t)argc + OWN, sizeof *all);
    if (!all || setenv(worker_variable, "1", 1) != 0) {
        free(all);
        return cli_fail("bench", "out of memory");
    }
    memcpy(all, words, sizeof words);
    memcpy(all + OWN, argv + 1, (size_t)(argc - 1) * sizeof *all);
    int status = cli_run(argc - 1 + OWN, all);
    free(all);
    return status;
}

/* Checks that the results can be written, before anything is measured. */
static int check_outputs(const struct bench_values *flags)
{
    int status = cli_check_output("bench", flags->json);
    if (status == CLI_GO_ON) status = cli_check_output("bench", flags->tune);
    if (status == CLI_GO_ON) status = cli_check_output("bench", getenv("TUTTI_TRACE"));
    return status == CLI_GO_ON ? cli_check_options("bench", 1) : status;
}

int cli_bench(int argc, char **argv)
{
    static struct bench_settings settings;
    int status = read_settings(&settings, argc, argv);
    if (status != CLI_GO_ON) return status;
    if (settings.flags.list) return list_operations();
    if (!settings.in_job) status = check_outputs(&settings.flags);
    if (status != CLI_GO_ON) return status;
    if (settings.as_threads) return start_threads(&settings, argc, argv);
    if (!settings.in_job) return start_processes(&settings, argc, argv);
    work_settings = &settings;
    return tutti_main(work, argc, argv);
}
