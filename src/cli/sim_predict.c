/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts times. An algorithm is forced by setting switch-over sizes. Runs with the same seed are equal if the same
 * happens in them: so two algorithms with the same trace count as one, and the library's choice is the one whose trace
 * is that of a run with nothing forced. Runs in which all ranks have the same plans will be equal, so the second one
 * ends once this is known.
 */
#include "cli/cli_sim.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ALWAYS INT64_C(1125899906842624) /* the highest value that sizes can be set to */
enum { STAGED_MOST = 8192, RANKS_MOST = 65536 };
#define START_NS INT64_C(10000000000) /* simulated time at which all ranks make their call */
/* simulated time at which all ranks leave together, so that none hears that others have left */
#define LEAVE_NS INT64_C(3600000000000)

/* ---- Algorithms -------------------------------------------------------------------------------------------------- */

/* Where an algorithm works: on one host; on several by messages alone, or with the ranks of each host combining in its
 * memory. */
enum where { ONE_HOST, BY_MESSAGES, IN_MEMORY };

/* The operations that an algorithm can carry out. v-forms in which a rank knows only its own counts, not those of all,
 * are STRAIGHT. */
enum { ROUTED = 1, STRAIGHT = 2, BARRIER = 4, PAIR = 8 };

struct algorithm {
    const char *name, *help;
    enum where where;
    int ops;
    bool any_private;  /* data go through bounce buffers, as if no rank could access another's memory */
    size_t most_bytes; /* the largest size it can carry out; 0: any */
    void (*force)(tutti_tuning *tuning);
};

static void force_staged(tutti_tuning *tuning)
{
    tuning->one_shot = tuning->staged = STAGED_MOST;
}

static void force_meeting(tutti_tuning *tuning)
{
    tuning->one_shot = tuning->staged = 0;
}

static void force_chunks(tutti_tuning *tuning)
{
    force_meeting(tuning);
    tuning->attach = tuning->tree = ALWAYS;
}

static void force_local_tree(tutti_tuning *tuning)
{
    force_chunks(tuning);
    tuning->tree = 0;
}

static void force_gathering(tutti_tuning *tuning)
{
    tuning->dissemination = RANKS_MOST;
}

static void force_dissemination(tutti_tuning *tuning)
{
    tuning->dissemination = 2;
}

static void force_flat(tutti_tuning *tuning)
{
    tuning->message_flat = RANKS_MOST;
    tuning->message_tree = tuning->message_doubling = ALWAYS;
}

static void force_rounds(tutti_tuning *tuning)
{
    tuning->message_flat = 1;
    tuning->message_tree = tuning->message_doubling = tuning->message_bruck = ALWAYS;
}

static void force_halving(tutti_tuning *tuning)
{
    tuning->message_doubling = 0;
    tuning->message_halving = 2;
}

static void force_slices(tutti_tuning *tuning)
{
    tuning->message_flat = 1;
    tuning->message_halving = RANKS_MOST;
    tuning->message_tree = tuning->message_doubling = tuning->message_bruck = 0;
}

static const struct algorithm algorithms[] = {
    {"one shot", "staged by each, taken or reduced by all who need it", ONE_HOST, ROUTED, false, STAGED_MOST,
     force_staged},
    {"direct", "slices that each rank owns, from all buffers to all buffers", ONE_HOST, ROUTED, false, 0,
     force_meeting},
    {"direct", "from buffer to buffer", ONE_HOST, STRAIGHT, false, 0, force_meeting},
    {"chunks", "through bounce buffers, two chunks in flight", ONE_HOST, ROUTED | STRAIGHT, true, 0, force_chunks},
    {"pipelined tree", "through bounce buffers, down a binary tree", ONE_HOST, ROUTED, true, 0, force_local_tree},
    {"all at once", "every rank waits for all others", ONE_HOST, BARRIER, false, 0, force_gathering},
    {"dissemination", "in a logarithmic number of rounds", ONE_HOST, BARRIER, false, 0, force_dissemination},
    {"message", "between two ranks that reach each other's buffers", ONE_HOST, PAIR, false, 0, force_meeting},
    {"parts", "a message between two ranks in parts, where neither reaches the other's buffer", ONE_HOST, PAIR, true, 0,
     force_meeting},
    {"rounds", "messages in a logarithmic number of rounds: trees, recursive doubling, Bruck", BY_MESSAGES, ROUTED,
     false, 0, force_rounds},
    {"halving", "messages along a tree of ranks, of pieces that are halved at each level", BY_MESSAGES, ROUTED, false,
     0, force_halving},
    {"slices", "messages with slices or blocks that each rank owns, pipelines and rings", BY_MESSAGES, ROUTED, false, 0,
     force_slices},
    {"flat", "messages between one rank and all others", BY_MESSAGES, ROUTED, false, 0, force_flat},
    {"straight", "one message from each rank to each that gets a block of it", BY_MESSAGES, STRAIGHT, false, 0,
     force_slices},
    {"dissemination", "messages in a logarithmic number of rounds", BY_MESSAGES, BARRIER, false, 0, force_rounds},
    {"message", "between two ranks", BY_MESSAGES, PAIR, false, 0, force_rounds},
    {"hosts, rounds", "each host in its memory; rounds between one rank of each", IN_MEMORY, ROUTED | BARRIER, false, 0,
     force_rounds},
    {"hosts, halving", "each host in its memory; halving between ranks of hosts", IN_MEMORY, ROUTED, false, 0,
     force_halving},
    {"hosts, slices", "each host in its memory; slices between ranks of hosts", IN_MEMORY, ROUTED, false, 0,
     force_slices},
};
enum { ALGORITHMS = sizeof algorithms / sizeof algorithms[0] };

/* Hashes of the plans of earlier runs, none of them 0. The first is of the run with nothing forced, or 0. */
struct known {
    uint64_t plans[1 + ALGORITHMS];
    size_t count;
};

static int kind_of(const struct bench_op *op)
{
    if (op->shape == FLOOR_BARRIER) return BARRIER;
    if (op->shape == FLOOR_PING_PONG) return PAIR;
    return op->uneven && (op->rooted || op->shape == FLOOR_ALL_TO_ALL) ? STRAIGHT : ROUTED;
}

static bool applies(const struct algorithm *algorithm, const struct sim_case *c)
{
    if ((algorithm->ops & kind_of(c->op)) == 0) return false;
    if ((algorithm->where != ONE_HOST) != (c->setup.hosts > 1)) return false;
    if (algorithm->force == force_meeting && c->private_buffers) return false;
    if (algorithm->force == force_halving && c->op->shape != FLOOR_ALL_REDUCE) return false;
    if (algorithm->where == IN_MEMORY && (c->private_buffers || c->setup.ranks_per_host == 1)) return false;
    return algorithm->most_bytes == 0 || c->bytes <= algorithm->most_bytes;
}

/* ---- One run ----------------------------------------------------------------------------------------------------- */

struct run {
    const struct sim_case *c;
    const struct algorithm *algorithm; /* NULL: nothing is forced */
    struct bench_settings settings;
    char *buffer; /* for all ranks: only small parts of it are read or written */
    size_t *counts;
    int64_t last_ns;
    const struct known *known;
    uint64_t plans;    /* hash of the plans; 0: not known */
    int same;          /* the known run that has the same plans; -1: none */
    int tell;          /* descriptor that gets the plans when they are known; -1: none */
    tutti_error error; /* the first error */
};

/* What a predicting process writes: its ranks' plans, if it was told to, then the prediction. */
struct answer {
    bool plans_only;
    uint64_t plans;
    int same, status;
    struct sim_prediction prediction;
};

static int fail(struct run *run, tutti_comm *world)
{
    const tutti_error *error = tutti_comm_error(world);
    if (run->error.status == TUTTI_OK && error != NULL) run->error = *error;
    return 1;
}

static int call(struct run *run, struct bench_rank *self)
{
    const struct sim_case *c = run->c;
    struct bench_case one;
    tutti_tuning tuning;
    bench_case_init(self, &one, c->op, c->bytes, c->type, c->reduction, false);
    tutti_tuning_get(self->world, &tuning);
    if (run->algorithm != NULL) run->algorithm->force(&tuning);
    if (tutti_tuning_set(self->world, &tuning) != TUTTI_OK) return fail(run, self->world);
    int64_t start = tutti_clock_ns();
    tutti_spend_ns(START_NS - start);
    if (c->op->call(self, &one) != TUTTI_OK) return fail(run, self->world);
    int64_t end = tutti_clock_ns();
    if (end > run->last_ns) run->last_ns = end;
    tutti_spend_ns(LEAVE_NS - end);
    return 0;
}

/* Makes one rank's call. Counts differ from rank to rank only in a v-form of all_to_all; otherwise all ranks share one
 * table. */
static int rank_work(tutti_comm *world, void *context)
{
    struct run *run = context;
    const struct sim_case *c = run->c;
    struct bench_rank self = {.world = world,
                              .settings = &run->settings,
                              .rank = tutti_rank(world),
                              .ranks = tutti_size(world),
                              .in_buffer = run->buffer,
                              .out_buffer = run->buffer + c->bytes + 4096,
                              .counts = run->counts};
    bool own = c->op->uneven && c->op->shape == FLOOR_ALL_TO_ALL;
    if (own) self.counts = calloc((size_t)self.ranks, sizeof *self.counts);
    if (self.counts == NULL) return 1;
    int status = call(run, &self);
    if (own) free(self.counts);
    return status;
}

/* Called when all ranks have made their call. */
static bool inspect(void *context, uint64_t plans)
{
    struct run *run = context;
    struct answer answer = {.plans_only = true, .plans = plans};
    run->plans = plans;
    if (run->tell >= 0 && write(run->tell, &answer, sizeof answer) != (ssize_t)sizeof answer) return false;
    for (size_t i = 0; plans != 0 && i < run->known->count; i++)
        if (run->known->plans[i] == plans) run->same = (int)i;
    return run->same < 0;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Returns the peak memory of this process, which simulates one algorithm. */
static int64_t peak_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

static int simulate(struct run *run, struct sim_prediction *prediction)
{
    tutti_options options;
    tutti_sim_report report = {.struct_size = sizeof report};
    tutti_error error = {0};
    tutti_sim_setup setup = sim_setup_of(run->c);
    if (tutti_options_init(&options, &error) != TUTTI_OK) return cli_refuse("sim", "%s", error.text);
    if (run->c->private_buffers || (run->algorithm != NULL && run->algorithm->any_private)) options.direct = false;
    if (run->algorithm != NULL && run->algorithm->where != ONE_HOST)
        options.host_aware = run->algorithm->where == IN_MEMORY;
    setup.options = &options;
    setup.inspect = inspect;
    setup.inspect_ns = START_NS;
    double start = seconds_now();
    tutti_status status = tutti_sim_run(&setup, rank_work, run, &report, &error);
    prediction->too_large = status == TUTTI_ERR_LIMIT || status == TUTTI_ERR_MEMORY;
    if (prediction->too_large) (void)snprintf(prediction->why, sizeof prediction->why, "%s", error.text);
    if (prediction->too_large || run->same >= 0) return CLI_GO_ON;
    if (status != TUTTI_OK) return cli_blame("sim", &error);
    if (report.result != 0 && run->error.status == TUTTI_OK) return cli_fail("sim", "%s failed", run->c->op->name);
    if (report.result != 0) return cli_blame("sim", &run->error);
    prediction->time_ns = run->last_ns - START_NS;
    /* the time is for there and back, of which tutti bench counts half, too */
    if (run->c->op->shape == FLOOR_PING_PONG) prediction->time_ns /= 2;
    prediction->trace = report.trace;
    prediction->events = report.events;
    prediction->real_s = seconds_now() - start;
    prediction->peak_bytes = peak_bytes();
    return CLI_GO_ON;
}

static void predict(struct run *run, struct answer *answer)
{
    const struct sim_case *c = run->c;
    const struct algorithm *algorithm = run->algorithm;
    size_t bytes = 2 * (c->bytes + 4096) + tutti_type_bytes(c->type) * RANKS_MOST;
    run->settings.flags.root = c->root;
    run->same = -1;
    *answer = (struct answer){.status = CLI_FAILED};
    answer->prediction.name = algorithm == NULL ? NULL : algorithm->name;
    answer->prediction.help = algorithm == NULL ? NULL : algorithm->help;
    run->buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    run->counts = calloc((size_t)c->setup.hosts * (size_t)c->setup.ranks_per_host, sizeof *run->counts);
    if (run->buffer == MAP_FAILED || run->counts == NULL)
        cli_fail("sim", "no memory for buffers: %s", strerror(errno));
    else
        answer->status = simulate(run, &answer->prediction);
    answer->plans = run->plans;
    answer->same = run->same;
}

/* A process that predicts. */
struct child {
    pid_t pid;
    int answers;
};

/* Simulates in a process of its own, which does not outlive this one: it takes with it what a run that was ended half
 * way leaves behind. `tells`: it writes its plans as soon as all ranks have made them. */
static int start_apart(const struct sim_case *c, const struct algorithm *algorithm, const struct known *known,
                       bool tells, struct child *child)
{
    struct run run = {.c = c, .algorithm = algorithm, .known = known, .tell = -1};
    struct answer answer;
    int ends[2];
    pid_t self = getpid();
    (void)fflush(NULL);
    if (pipe(ends) != 0) return cli_fail("sim", "cannot make a pipe: %s (RLIMIT_NOFILE, ulimit -n?)", strerror(errno));
    *child = (struct child){.pid = fork(), .answers = ends[0]};
    if (child->pid < 0) {
        int error = errno;
        (void)close(ends[0]);
        (void)close(ends[1]);
        return cli_fail("sim", "cannot start a process to simulate in: %s (RLIMIT_NPROC, ulimit -u?)", strerror(error));
    }
    if (child->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != self) _exit(1); /* the parent died before the line above */
        if (tells) run.tell = ends[1];
        predict(&run, &answer);
        _exit(write(ends[1], &answer, sizeof answer) == (ssize_t)sizeof answer ? 0 : 1);
    }
    (void)close(ends[1]);
    return CLI_GO_ON;
}

/* Reads the child's next answer; with the last one the child ends. */
static void hear(struct child *child, struct answer *answer)
{
    int wait_status = 0;
    bool told = read(child->answers, answer, sizeof *answer) == (ssize_t)sizeof *answer;
    if (told && answer->plans_only) return;
    (void)close(child->answers);
    (void)waitpid(child->pid, &wait_status, 0);
    if (told) return;
    *answer = (struct answer){.same = -1};
    if (WIFSIGNALED(wait_status))
        answer->status = cli_fail("sim", "the simulating process was killed by signal %d (%s)", WTERMSIG(wait_status),
                                  strsignal(WTERMSIG(wait_status)));
    else
        answer->status = cli_fail("sim", "the simulating process ended without an answer");
}

static int predict_apart(const struct sim_case *c, const struct algorithm *algorithm, const struct known *known,
                         struct answer *answer)
{
    struct child child;
    int status = start_apart(c, algorithm, known, false, &child);
    if (status != CLI_GO_ON) return status;
    hear(&child, answer);
    return answer->status;
}

int sim_predict_chosen(const struct sim_case *c, struct sim_prediction *chosen)
{
    static const struct known none;
    struct answer answer;
    int status = predict_apart(c, NULL, &none, &answer);
    if (status == CLI_GO_ON) *chosen = answer.prediction;
    return status;
}

static bool is_known(const struct sim_prediction *predictions, size_t count, uint64_t trace)
{
    for (size_t i = 0; i < count; i++)
        if (!predictions[i].too_large && predictions[i].trace == trace) return true;
    return false;
}

/* Predicts each algorithm. If one has the plans of the library's own choice, only its name is known so far. */
static int predict_algorithms(const struct sim_case *c, struct known *known, struct sim_prediction *predictions,
                              size_t *count, int *chosen)
{
    struct answer answer;
    for (size_t i = 0; i < ALGORITHMS; i++) {
        if (!applies(&algorithms[i], c)) continue;
        int status = predict_apart(c, &algorithms[i], known, &answer);
        if (status != CLI_GO_ON) return status;
        struct sim_prediction *prediction = &answer.prediction;
        bool is_chosen = answer.same == 0 && *chosen < 0;
        bool is_new = answer.same < 0 && (prediction->too_large || !is_known(predictions, *count, prediction->trace));
        if (answer.same < 0) known->plans[known->count++] = answer.plans;
        if (is_chosen) *chosen = (int)*count;
        if (is_chosen || is_new) predictions[(*count)++] = *prediction;
    }
    return CLI_GO_ON;
}

/* Marks the algorithm that equals the run with nothing forced, or adds that run. */
static void mark_chosen(const struct sim_prediction *own, struct sim_prediction *predictions, size_t *count,
                        int *chosen)
{
    for (size_t i = 0; i < *count && *chosen < 0; i++)
        if (!own->too_large && !predictions[i].too_large && predictions[i].trace == own->trace) *chosen = (int)i;
    if (*chosen < 0 && own->too_large) return;
    bool between = *chosen < 0; /* the choice is a mixture of what can be forced */
    struct sim_prediction *marked = &predictions[between ? (*chosen = (int)(*count)++) : *chosen];
    const char *name = between ? "as set" : marked->name;
    const char *help = between ? "what the switch-over sizes choose is none of the above alone" : marked->help;
    *marked = *own;
    marked->name = name;
    marked->help = help;
}

/* The library's choice is simulated while the algorithms are, once its plans are known. */
int sim_predict_all(const struct sim_case *c, struct sim_prediction *predictions, size_t *count, int *chosen)
{
    struct known known = {.count = 1};
    struct child child;
    struct answer own;
    *count = 0;
    *chosen = -1;
    int status = start_apart(c, NULL, &(struct known){0}, true, &child);
    if (status != CLI_GO_ON) return status;
    hear(&child, &own);
    known.plans[0] = own.plans;
    if (own.plans_only || own.status == CLI_GO_ON) status = predict_algorithms(c, &known, predictions, count, chosen);
    if (own.plans_only) hear(&child, &own);
    if (status == CLI_GO_ON) status = own.status;
    if (status == CLI_GO_ON) mark_chosen(&own.prediction, predictions, count, chosen);
    return status;
}
