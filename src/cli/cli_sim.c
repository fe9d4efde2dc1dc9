/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti sim: the command's page, and the reading of its flags.
 */
#include "cli/cli_sim.h"
#include "cli/sim_faults.h"

#include <string.h>

/* ---- The page ---------------------------------------------------------------------------------------------------- */

#define SIM_OFFSET(field) offsetof(struct sim_values, field)
#define LARGEST ((int64_t)1 << 40)

static const struct cli_flag sim_flags[] = {
    {.row = {"hosts", TUTTI_OPTION_INT, "1", 1, 65536, "how many hosts"}, .offset = SIM_OFFSET(hosts)},
    {.row = {"ranks_per_host", TUTTI_OPTION_INT, "8", 1, 65536, "ranks of each host; 65536 ranks in all at most"},
     .offset = SIM_OFFSET(ranks_per_host)},
    {.row = {"link", TUTTI_OPTION_TEXT, "100G:5us", 0, 0,
             "each host's link, in each direction: bits per second, and time from host to host"},
     .offset = SIM_OFFSET(link),
     .value = "RATE:TIME"},
    {.row = {"local", TUTTI_OPTION_TEXT, "10G:200ns", 0, 0,
             "memory of a host: bytes per second that one rank copies, and time until another rank sees a change"},
     .offset = SIM_OFFSET(local),
     .value = "RATE:TIME"},
    {.row = {"overhead", TUTTI_OPTION_TEXT, "100ns", 0, 0, "of each step that moves data and of each message"},
     .offset = SIM_OFFSET(overhead),
     .value = "TIME"},
    {.row = {"copy", TUTTI_OPTION_TEXT, "", 0, 0,
             "how fast cores copy messages that they send or receive: bytes per second, or the time of some sizes"},
     .offset = SIM_OFFSET(copy),
     .value = "RATE|SIZE:TIME,..."},
    {.row = {"links", TUTTI_OPTION_TEXT, "", 0, 0,
             "take --link, --local and --copy from a file that tutti bench --tune --transport tcp wrote"},
     .offset = SIM_OFFSET(links),
     .value = "FILE"},
    {.row = {"bytes", TUTTI_OPTION_BYTES, "1M", 1, LARGEST,
             "of the vector, or of all blocks together; of a sweep: the most"},
     .offset = SIM_OFFSET(bytes),
     .short_name = "b"},
    {.row = {"datatype", TUTTI_OPTION_TEXT, "f32", 0, 0, "type of the elements: f32, bf16, i8 …"},
     .offset = SIM_OFFSET(type),
     .short_name = "d",
     .value = "TYPE"},
    {.row = {"op", TUTTI_OPTION_TEXT, "sum", 0, 0, "reduction"},
     .offset = SIM_OFFSET(reduction),
     .short_name = "o",
     .choices = "sum|prod|min|max|avg|and|or|xor"},
    {.row = {"root", TUTTI_OPTION_INT, "0", 0, 65535, "root of the operations that have one"},
     .offset = SIM_OFFSET(root),
     .short_name = "r"},
    {.row = {"buffers", TUTTI_OPTION_TEXT, "shared", 0, 0,
             "shared: all ranks of a host reach them. private: nobody else does"},
     .offset = SIM_OFFSET(buffers),
     .choices = "shared|private"},
    {.row = {"sweep", TUTTI_OPTION_BOOL, "0", 0, 1,
             "a table over sizes and hosts of what the library chooses, up to --bytes and --hosts"},
     .offset = SIM_OFFSET(sweep),
     .is_switch = true},
    {.row = {"svg", TUTTI_OPTION_TEXT, "", 0, 0, "draw the sweep; -: to stdout, the table to stderr"},
     .offset = SIM_OFFSET(svg),
     .value = "FILE"},
    {.row = {"json", TUTTI_OPTION_TEXT, "", 0, 0,
             "write each prediction as a line of JSON; - or no value: to stdout, the table to stderr"},
     .offset = SIM_OFFSET(json),
     .value = "[FILE]",
     .bare = "-"},
    {.row = {"limit", TUTTI_OPTION_MS, "60s", 1, 86400000, "processor time that simulating one algorithm may take"},
     .offset = SIM_OFFSET(limit_ms)},
    {.row = {"seed", TUTTI_OPTION_INT, "1", 0, INT64_MAX - 1, "orders what may happen in any order"},
     .offset = SIM_OFFSET(seed)},
    {.row = {"noise", TUTTI_OPTION_TEXT, "0ns", 0, 0, "every duration is longer by up to this, as the seed has it"},
     .offset = SIM_OFFSET(noise),
     .value = "TIME"},
    {.row = {"faults", TUTTI_OPTION_BOOL, "0", 0, 1,
             "instead of predicting: ranks die, and more, in random programs; looks for hangs, disagreements and wrong "
             "results"},
     .offset = SIM_OFFSET(faults),
     .is_switch = true},
    {.row = {"seeds", TUTTI_OPTION_INT, "1000", 1, 1000000000, "faults: how many programs, from --seed on"},
     .offset = SIM_OFFSET(seeds)},
    {.row = {"ranks", TUTTI_OPTION_TEXT, "3-32", 0, 0, "faults: ranks of a program, 3 to 32; as the seed has it"},
     .offset = SIM_OFFSET(ranks),
     .value = "N-N"},
    {.row = {"plant", TUTTI_OPTION_TEXT, "nothing", 0, 0,
             "faults: what a rank does wrong on purpose behind a loss, to see that it is found"},
     .offset = SIM_OFFSET(plant),
     .choices = "nothing|hang|disagreement|result"},
    {.row = {.name = NULL}},
};

static const struct cli_example sim_examples[] = {
    {"tutti sim all_reduce --ranks-per-host 16", "how long 1 MiB takes between the ranks of one host"},
    {"tutti sim all_reduce --hosts 512 --ranks-per-host 8 --link 400G:5us --local 50G:1us --bytes 1G",
     "by each algorithm, and which one the library would choose"},
    {"tutti sim broadcast --hosts 64 --sweep --svg broadcast.svg", "over sizes and numbers of hosts, as a picture too"},
    {"tutti sim --faults --seeds 10000", "10000 programs with faults; says which seeds have gone wrong"},
    {NULL, NULL},
};

const struct cli_page cli_sim_page = {
    .usage = "tutti sim OPERATION|--faults [flags]",
    .about =
        "Predicts how long a collective takes on hosts that are not there: the library itself runs, with all its "
        "ranks in one thread and in simulated time, on hosts and links as described; only the data are left out. "
        "Prints the time of each algorithm and marks the one that the library chooses.\n\n"
        "Rates are numbers with k, M, G or T (powers of 1000), times have ns, us, ms or s. The rate of a link is "
        "in bits per second, as links are named, that of memory in bytes per second; a trailing bit or B says "
        "otherwise (50GB). Sizes are powers of 1024. A run is reproduced by its seed. tutti bench --list names "
        "the operations.\n\n"
        "With --faults each seed is a program instead: 3 to 32 ranks on 1 to 32 hosts, random collectives, links and "
        "noise, and among the faults ranks that die, hosts that do not hear each other, connections that end, ranks "
        "that stand still and clocks that jump, at any time, agreement and shrink included. Survivors agree, shrink, "
        "renew their comms and go on. Their data, lost ranks, agreements and epochs are compared, ERR_EXCLUDED may "
        "only come to a minority between hosts, and whatever takes too long in simulated time is a hang. The status "
        "is 1 if anything was wrong.",
    .examples = sim_examples,
    .flags = sim_flags,
    .operands = true,
};

/* ---- What was asked ---------------------------------------------------------------------------------------------- */

static int find_op(const char *word, const struct bench_op **op)
{
    *op = bench_op_find(word);
    return *op != NULL ? CLI_GO_ON : bench_op_refuse("sim", word);
}

static int find_type(const char *word, tutti_type *type)
{
    const char *names[TUTTI_TYPE_COUNT];
    for (int t = 0; t < TUTTI_TYPE_COUNT; t++) {
        names[t] = tutti_type_name((tutti_type)t);
        *type = (tutti_type)t;
        if (strcmp(names[t], word) == 0) return CLI_GO_ON;
    }
    const char *near = tutti_nearest(word, names, TUTTI_TYPE_COUNT);
    if (near == NULL) return cli_refuse("sim", "unknown type '%s'; types are f32, bf16, i8 …", word);
    return cli_refuse("sim", "unknown type '%s'; did you mean '%s'?", word, near);
}

static int read_case(const struct sim_values *flags, const char *word, struct sim_case *c)
{
    *c = (struct sim_case){.root = (int)flags->root,
                           .bytes = (size_t)flags->bytes,
                           .private_buffers = strcmp(flags->buffers, "private") == 0};
    int status = find_op(word, &c->op);
    if (status == CLI_GO_ON) status = find_type(flags->type, &c->type);
    if (status == CLI_GO_ON) status = sim_read_setup("sim", flags, c);
    if (status != CLI_GO_ON) return status;
    for (int r = 0; r < TUTTI_REDUCTION_COUNT; r++)
        if (strcmp(flags->reduction, tutti_reduction_name((tutti_reduction)r)) == 0) c->reduction = (tutti_reduction)r;
    int64_t ranks = flags->hosts * flags->ranks_per_host;
    if (ranks > 65536) return cli_refuse("sim", "%lld ranks are more than 65536", (long long)ranks);
    if (flags->root >= ranks)
        return cli_refuse("sim", "the root is %lld; ranks are 0 to %lld", (long long)flags->root, (long long)ranks - 1);
    if (flags->sweep == 0) c->bytes = bench_whole_bytes(c->op, c->type, (int)ranks, c->bytes);
    if (ranks < 2 && c->op->shape == FLOOR_PING_PONG) return cli_refuse("sim", "ping_pong needs two ranks");
    if (flags->svg[0] != '\0' && flags->sweep == 0) return cli_refuse("sim", "--svg draws a sweep: add --sweep");
    if (cli_is_stdout(flags->svg) && cli_is_stdout(flags->json))
        return cli_refuse("sim", "--svg - and --json both write to stdout; give one of them a file");
    return CLI_GO_ON;
}

static bool is_one_of(const char *name, const char *const names[3])
{
    return strcmp(name, names[0]) == 0 || strcmp(name, names[1]) == 0 || strcmp(name, names[2]) == 0;
}

static bool differs(const struct cli_flag *flag, const struct sim_values *flags, const struct sim_values *defaults)
{
    const char *given = (const char *)flags + flag->offset, *usual = (const char *)defaults + flag->offset;
    if (flag->row.kind == TUTTI_OPTION_BOOL) return *given != *usual;
    if (flag->row.kind != TUTTI_OPTION_TEXT) return *(const int64_t *)given != *(const int64_t *)usual;
    return strcmp(*(const char *const *)given, *(const char *const *)usual) != 0;
}

/* Checks that predictions and --faults, which have flags of their own, are not mixed. Returns CLI_GO_ON if none of the
 * other one's flags are set. */
static int check_flags(const struct sim_values *flags)
{
    static const char *const of_faults[] = {"seeds", "ranks", "plant"}, *const of_both[] = {"faults", "seed", "json"};
    struct sim_values defaults = {0};
    char name_of_page[] = "sim", *none[] = {name_of_page, NULL};
    int status = cli_parse("sim", &cli_sim_page, 1, none, &defaults, NULL);
    if (status != CLI_GO_ON) return status;
    for (const struct cli_flag *flag = sim_flags; flag->row.name != NULL; flag++) {
        bool faults = is_one_of(flag->row.name, of_faults);
        if (is_one_of(flag->row.name, of_both) || faults == flags->faults || !differs(flag, flags, &defaults)) continue;
        const char *name = flag->row.name;
        if (faults) return cli_refuse("sim", "--%s is for --faults, which is not given", name);
        return cli_refuse("sim", "--%s does nothing with --faults: its programs take everything from the seed", name);
    }
    return CLI_GO_ON;
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

struct outputs {
    FILE *table, *json, *svg;
};

static int run_one(const struct sim_case *c, const struct outputs *outputs)
{
    struct sim_prediction predictions[SIM_MAX_ALGORITHMS];
    size_t count = 0;
    int chosen = -1;
    int status = sim_predict_all(c, predictions, &count, &chosen);
    if (status != CLI_GO_ON) return status;
    sim_report_all(outputs->table, c, predictions, count, chosen);
    for (size_t i = 0; i < count && outputs->json != NULL; i++)
        sim_json(outputs->json, c, &predictions[i], (int)i == chosen);
    for (size_t i = 0; i < count; i++)
        if (!predictions[i].too_large) return CLI_OK;
    return cli_fail("sim", "nothing could be predicted");
}

enum { SWEEP_FACTOR = 8, SWEEP_ROWS = 24, SWEEP_COLUMNS = 17 };

/* Lists 8 bytes, 64, … and the most. Hosts are listed likewise: 1, 2, 4, … and all. */
static size_t sweep_sizes(size_t most, size_t sizes[SWEEP_ROWS])
{
    size_t count = 0;
    for (size_t bytes = 8; bytes < most && count + 1 < SWEEP_ROWS; bytes *= SWEEP_FACTOR) sizes[count++] = bytes;
    sizes[count++] = most;
    return count;
}

static size_t sweep_hosts(int most, int hosts[SWEEP_COLUMNS])
{
    size_t count = 0;
    for (int h = 1; h < most && count + 1 < SWEEP_COLUMNS; h *= 2) hosts[count++] = h;
    hosts[count++] = most;
    return count;
}

static int run_sweep(const struct sim_case *c, const struct outputs *outputs)
{
    static struct sim_cell cells[SWEEP_ROWS * SWEEP_COLUMNS];
    size_t sizes[SWEEP_ROWS], rows = sweep_sizes(c->op->shape == FLOOR_BARRIER ? 8 : c->bytes, sizes);
    int hosts[SWEEP_COLUMNS];
    size_t columns = sweep_hosts(c->setup.hosts, hosts);
    for (size_t row = 0; row < rows; row++)
        for (size_t column = 0; column < columns; column++) {
            struct sim_cell *cell = &cells[row * columns + column];
            struct sim_case one = *c;
            cell->bytes = sizes[row];
            one.setup.hosts = cell->hosts = hosts[column];
            one.bytes = bench_whole_bytes(c->op, c->type, cell->hosts * c->setup.ranks_per_host, cell->bytes);
            if (one.root >= one.setup.hosts * one.setup.ranks_per_host) one.root = 0;
            int status = sim_predict_chosen(&one, &cell->chosen);
            if (status != CLI_GO_ON) return status;
            if (outputs->json != NULL) sim_json(outputs->json, &one, &cell->chosen, true);
        }
    sim_report_sweep(outputs->table, c, cells, rows, columns);
    if (outputs->svg != NULL) sim_svg(outputs->svg, c, cells, rows, columns);
    return CLI_OK;
}

/* Parses the command line. The operation may come before, between or after the flags. */
static int parse(int argc, char **argv, struct sim_values *flags, const char **word)
{
    for (;;) {
        int rest = 0, status = cli_parse("sim", &cli_sim_page, argc, argv, flags, &rest);
        if (status != CLI_GO_ON) return status;
        if (rest == argc) break;
        if (*word != NULL) return cli_refuse("sim", "one operation at a time: '%s' or '%s'", *word, argv[rest]);
        *word = argv[rest];
        memmove(&argv[rest], &argv[rest + 1], (size_t)(argc - rest - 1) * sizeof *argv);
        argc--;
    }
    if (*word != NULL && flags->faults)
        return cli_refuse("sim", "--faults has programs of its own; it takes no operation such as '%s'", *word);
    if (flags->faults) return CLI_GO_ON;
    int status = *word == NULL ? bench_json_check("sim", flags->json) : CLI_GO_ON;
    if (status != CLI_GO_ON || *word != NULL) return status;
    return cli_refuse("sim", "which operation? For example: tutti sim all_reduce");
}

static int run(const struct sim_values *flags, const struct sim_case *c)
{
    struct outputs outputs = {.table = stdout};
    if (cli_is_stdout(flags->json) || cli_is_stdout(flags->svg)) outputs.table = stderr;
    int status = sim_open(flags->json, &outputs.json);
    if (status == CLI_GO_ON) status = sim_open(flags->svg, &outputs.svg);
    if (status == CLI_GO_ON) status = flags->sweep != 0 ? run_sweep(c, &outputs) : run_one(c, &outputs);
    int json = sim_close(flags->json, outputs.json), svg = sim_close(flags->svg, outputs.svg);
    if (status != CLI_OK) return status;
    return json != CLI_OK ? json : svg;
}

int cli_sim(int argc, char **argv)
{
    struct sim_values flags = {0};
    struct sim_case c;
    const char *word = NULL;
    int status = parse(argc, argv, &flags, &word);
    if (status == CLI_GO_ON) status = check_flags(&flags);
    if (status == CLI_GO_ON && flags.faults) return sim_faults(&flags);
    if (status == CLI_GO_ON) status = read_case(&flags, word, &c);
    return status == CLI_GO_ON ? run(&flags, &c) : status;
}
