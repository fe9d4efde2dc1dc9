/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti faultbench: starts jobs by `tutti run --max-restarts` whose ranks die (faultbench_rank.c), and counts failures.
 * A job in which nothing happens for too long is a hang: it is killed, and another one continues after that round.
 */
#include "cli/faultbench.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KILLS_MOST = 100000, TENTHS = 10, POLL_MS = 20, HANG_MS = 3 * FAULT_LIMIT_MS, ENDS_MS = 5000 };

struct faultbench_values {
    int64_t kills, seed;
    const char *ranks, *transport, *json, *rank;
};

static const struct cli_flag faultbench_flags[] = {
    {.row = {"kills", TUTTI_OPTION_INT, "100", 1, KILLS_MOST, "how many ranks are killed, one after the other"},
     .offset = offsetof(struct faultbench_values, kills)},
    {.row = {"ranks", TUTTI_OPTION_TEXT, "4", 0, 0,
             "how many ranks a job has, 2 to 16; 2-8: a job of each size has its share of the kills"},
     .offset = offsetof(struct faultbench_values, ranks),
     .value = "N",
     .short_name = "n"},
    {.row = {"transport", TUTTI_OPTION_TEXT, "shm", 0, 0, "by what the ranks reach each other"},
     .offset = offsetof(struct faultbench_values, transport),
     .choices = "shm|tcp"},
    {.row = {"seed", TUTTI_OPTION_INT, "1", 0, INT32_MAX, "chooses who dies where; the same one dies the same deaths"},
     .offset = offsetof(struct faultbench_values, seed)},
    {.row = {"json", TUTTI_OPTION_TEXT, "", 0, 0,
             "write the figures as JSON to FILE; to stdout in place of lines if there is no FILE, or for -"},
     .offset = offsetof(struct faultbench_values, json),
     .value = "FILE",
     .bare = "-"},
    {.row = {"rank", TUTTI_OPTION_TEXT, "", 0, 0, "what this command starts its ranks with"},
     .offset = offsetof(struct faultbench_values, rank),
     .value = "PATH"},
    {.row = {.name = NULL}},
};

static const struct cli_example faultbench_examples[] = {
    {"tutti faultbench", "100 kills among 4 ranks in shared memory"},
    {"tutti faultbench --kills 1000 --ranks 2-8 --transport tcp --json tcp.json",
     "1000 kills in jobs of 2 to 8 ranks that reach each other by tcp"},
    {NULL, NULL},
};

const struct cli_page cli_faultbench_page = {
    .usage = "tutti faultbench [flags]",
    .about =
        "Kills ranks (SIGKILL) in the midst of collectives and messages, one after the other, in jobs that go on with "
        "ranks started again. Every collective has its turn, with four sizes, in memory that others reach and in "
        "private memory. Three of four ranks die behind a step of their plan, chosen among all that the same call "
        "took before, the others at some moment; every third is rank 0.\n\n"
        "Counted are hangs (an op without an end for 20 s, or a job in which nothing happens), disagreements "
        "(survivors that do not all fail with ERR_PEER_LOST, name different lost ranks, or do not agree on who is "
        "left), wrong sums after a rebuild, jobs that fail, and what is left over: processes, descriptors, mappings. "
        "Measured are the time from the death to the error of the last survivor, and to the end of the first "
        "collective of the rebuilt world. The status is 1 if anything was counted.",
    .examples = faultbench_examples,
    .flags = faultbench_flags,
};

/* ---- Figures -------------------------------------------------------------------------------------------------------------- */

struct times {
    double *ms;
    int count;
};

struct figures {
    int kills, hangs, disagreements, wrong, failed, leftovers;
    int before, by_clock, tenths[TENTHS],
        most_steps; /* deaths: before the first step, at some time, in tenths of the plan; steps of the longest plan */
    struct times detect, rebuild; /* times of the slowest survivor */
    struct slowest {
        double ms;
        int ranks, round, rank, victim, op;
    } slowest; /* the slowest detection of a death, and the survivor that needed so long */
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the least value that `percent` of the times do not exceed; 0 if there are none. The times are sorted. */
static double percentile(const struct times *times, int percent)
{
    if (times->count == 0) return 0;
    int at = (times->count * percent + 99) / 100 - 1;
    return times->ms[at < 0 ? 0 : at];
}

static void add_time(struct times *times, int64_t from_ns, int64_t to_ns)
{
    if (to_ns > from_ns) times->ms[times->count++] = (double)(to_ns - from_ns) / 1e6;
}

static void add_place(struct figures *figures, const struct fault_round *round)
{
    int step = atomic_load(&round->step), steps = atomic_load(&round->steps);
    if (step < 0)
        figures->by_clock++;
    else if (step == 0)
        figures->before++;
    else
        figures->tenths[(step - 1) * TENTHS / steps]++;
    if (steps > figures->most_steps) figures->most_steps = steps;
}

/* Returns true if a survivor saw the death as all others did. */
static bool agrees(const struct fault_round *round, const struct fault_seen *seen, const struct fault_seen *first)
{
    int agreed = atomic_load(&seen->agreed);
    if (atomic_load(&seen->status) != TUTTI_ERR_PEER_LOST || agreed != atomic_load(&first->agreed)) return false;
    return agreed == TUTTI_OK && atomic_load(&seen->all) == atomic_load(&first->all) &&
           atomic_load(&seen->lost) == atomic_load(&first->lost) &&
           atomic_load(&seen->lost) == UINT64_C(1) << atomic_load(&round->victim);
}

static void add_slowest(struct figures *figures, const struct fault_round *round, int number, int size)
{
    for (int rank = 0; rank < size; rank++) {
        double ms = (double)(atomic_load(&round->seen[rank].detected_ns) - atomic_load(&round->died_ns)) / 1e6;
        if (ms > figures->slowest.ms)
            figures->slowest = (struct slowest){
                ms, size, number, rank, atomic_load(&round->victim), atomic_load(&round->op)};
    }
}

/* Adds a round. One in which nobody died was cut short, and does not count. */
static void add_round(struct figures *figures, const struct fault_round *round, int number, int size)
{
    int64_t died = atomic_load(&round->died_ns), detected = 0, whole = 0;
    const struct fault_seen *first = NULL;
    bool timed_out = false, differs = false;
    if (died == 0) return;
    for (int rank = 0; rank < size; rank++) {
        const struct fault_seen *seen = &round->seen[rank];
        int64_t seen_ns = atomic_load(&seen->detected_ns), whole_ns = atomic_load(&seen->whole_ns);
        if (rank == atomic_load(&round->victim) || seen_ns == 0) continue;
        if (first == NULL) first = seen;
        timed_out = timed_out || atomic_load(&seen->status) == TUTTI_ERR_TIMEOUT;
        differs = differs || !agrees(round, seen, first);
        detected = seen_ns > detected ? seen_ns : detected;
        whole = whole_ns > whole ? whole_ns : whole;
    }
    figures->kills++;
    add_slowest(figures, round, number, size);
    figures->hangs += timed_out;
    figures->disagreements += differs && !timed_out;
    add_place(figures, round);
    add_time(&figures->detect, died, detected);
    add_time(&figures->rebuild, died, whole);
}

/* ---- Jobs ----------------------------------------------------------------------------------------------------------------- */

struct bench {
    const struct faultbench_values *values;
    char tool[4096];
    struct figures figures;
};

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void nap(void)
{
    (void)nanosleep(&(struct timespec){0, POLL_MS * 1000000L}, NULL);
}

/* Becomes the job, whose output goes to `log`: it has a line for each kill. */
static void become_job(const struct bench *bench, const struct fault_shared *shared, int fd, int log)
{
    enum { MORE = 16 }; /* spare restarts, for ranks that end by themselves */
    char ranks[16], restarts[16], path[64];
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* the launcher then ends the ranks */
    (void)dup2(log, STDOUT_FILENO);
    (void)dup2(log, STDERR_FILENO);
    (void)snprintf(ranks, sizeof ranks, "%d", shared->size);
    (void)snprintf(restarts, sizeof restarts, "%d", shared->rounds - shared->first + MORE);
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getppid(), fd);
    (void)setenv("TUTTI_RANKS", "1", 1); /* a process is one rank, so that each dies by itself */
    (void)setenv("TUTTI_TRANSPORT", bench->values->transport, 1);
    (void)setenv("TUTTI_TRACE_EVENTS", "256", 1); /* steps are watched only while a trace is kept */
    (void)execl(bench->tool, "tutti", "run", "-n", ranks, "--max-restarts", restarts, "--no-prefix", bench->tool,
                "faultbench", "--rank", path, (char *)NULL);
    perror("tutti faultbench: cannot start `tutti run`");
    _exit(127);
}

/* Returns the job's exit status as waitpid gives it; -1: nothing happened in it for too long, and it was killed. */
static int await_job(pid_t job, const struct fault_shared *shared)
{
    uint32_t seen = 0;
    int status = 0;
    for (int64_t moved_ms = now_ms(); now_ms() - moved_ms < HANG_MS; nap()) {
        if (waitpid(job, &status, WNOHANG) == job) return status;
        uint32_t now = atomic_load(&shared->progress);
        if (now != seen) moved_ms = now_ms();
        seen = now;
    }
    (void)kill(job, SIGKILL); /* its guard ends the ranks */
    (void)waitpid(job, &status, 0);
    return -1;
}

/* Counts the processes that the job left: it has ended, and they do not end in time. */
static int count_processes(void)
{
    int64_t until_ms = now_ms() + ENDS_MS;
    int count = 0, pid;
    for (; now_ms() < until_ms; nap()) {
        pid_t ended = waitpid(-1, NULL, WNOHANG);
        if (ended < 0 && errno == ECHILD) return 0;
    }
    FILE *children = fopen("/proc/thread-self/children", "re");
    for (; children != NULL && fscanf(children, "%d", &pid) == 1; count++) (void)kill(pid, SIGKILL);
    if (children != NULL) (void)fclose(children);
    return count == 0 ? 1 : count;
}

/* Prints the end of the job's output. */
static void print_log(int log)
{
    enum { SHOWN = 4000 };
    char text[SHOWN + 1];
    off_t all = lseek(log, 0, SEEK_END);
    ssize_t length = pread(log, text, SHOWN, all > SHOWN ? all - SHOWN : 0);
    if (length <= 0) return;
    text[length] = '\0';
    (void)fprintf(stderr, "%s%s\n", all > SHOWN ? "…" : "", text);
}

static int run_job(struct bench *bench, struct fault_shared *shared, int fd)
{
    int log = memfd_create("tutti-faultbench-log", MFD_CLOEXEC);
    pid_t job = log < 0 ? -1 : fork();
    if (job == 0) become_job(bench, shared, fd, log);
    if (job < 0) return cli_fail("faultbench", "cannot start a job: %s", strerror(errno));
    int status = await_job(job, shared);
    bench->figures.leftovers += count_processes();
    if (status < 0) {
        (void)fprintf(stderr, "tutti faultbench: seed %llu, %d ranks, round %d: nothing happened for %d s\n",
                      (unsigned long long)shared->seed, shared->size, atomic_load(&shared->next) - 1, HANG_MS / 1000);
        bench->figures.hangs++;
    } else if (status != 0) {
        bench->figures.failed++;
    }
    if (status != 0) print_log(log);
    (void)close(log);
    return CLI_GO_ON;
}

/* Makes so many kills among the ranks of a job, or of several jobs if one hangs or fails. */
static int run_size(struct bench *bench, int size, int kills)
{
    size_t bytes = sizeof(struct fault_shared) + (size_t)kills * sizeof(struct fault_round);
    int fd = memfd_create("tutti-faultbench", MFD_CLOEXEC), status = CLI_GO_ON;
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) return cli_fail("faultbench", "memfd_create: %s", strerror(errno));
    struct fault_shared *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) return cli_fail("faultbench", "mmap: %s", strerror(errno));
    shared->seed = (uint64_t)bench->values->seed;
    shared->size = size;
    shared->rounds = kills;
    for (int before = -1; status == CLI_GO_ON && atomic_load(&shared->next) > before;) {
        before = atomic_load(&shared->next);
        shared->first = before;
        if (before < kills) status = run_job(bench, shared, fd);
    }
    for (int i = 0; i < kills; i++) add_round(&bench->figures, &shared->list[i], i, size);
    bench->figures.wrong += atomic_load(&shared->wrong);
    bench->figures.leftovers += atomic_load(&shared->left_open);
    (void)munmap(shared, bytes);
    (void)close(fd);
    return status;
}

/* ---- Report --------------------------------------------------------------------------------------------------------------- */

static void print_times(const char *what, const struct times *times)
{
    printf("%-8s median %.1f ms, p99 %.1f ms, most %.1f ms, of %d\n", what, percentile(times, 50),
           percentile(times, 99), percentile(times, 100), times->count);
}

static void print_lines(const struct bench *bench)
{
    const struct figures *figures = &bench->figures;
    printf("%d kills, %s ranks, %s, seed %lld: %d hangs, %d disagreements, %d wrong, %d failed, %d left over\n",
           figures->kills, bench->values->ranks, bench->values->transport, (long long)bench->values->seed,
           figures->hangs, figures->disagreements, figures->wrong, figures->failed, figures->leftovers);
    print_times("detect", &figures->detect);
    print_times("rebuild", &figures->rebuild);
    printf("places   %d before the first step, by tenths of the plan", figures->before);
    for (int i = 0; i < TENTHS; i++) printf(" %d", figures->tenths[i]);
    printf(" (of up to %d steps), %d at some moment\n", figures->most_steps, figures->by_clock);
    const struct slowest *slowest = &figures->slowest;
    printf("slowest  rank %d of %d took %.1f ms to detect the death of rank %d in round %d (%s)\n", slowest->rank,
           slowest->ranks, slowest->ms, slowest->victim, slowest->round, fault_op_name(slowest->op));
}

static void print_json_times(FILE *stream, const char *name, const struct times *times)
{
    (void)fprintf(stream, "\"%s\": {\"p50\": %.3f, \"p99\": %.3f, \"max\": %.3f, \"count\": %d}, ", name,
                  percentile(times, 50), percentile(times, 99), percentile(times, 100), times->count);
}

static void print_json(FILE *stream, const struct bench *bench)
{
    const struct figures *figures = &bench->figures;
    (void)fprintf(stream, "{\"kills\": %d, \"ranks\": \"%s\", \"transport\": \"%s\", \"seed\": %lld, ", figures->kills,
                  bench->values->ranks, bench->values->transport, (long long)bench->values->seed);
    (void)fprintf(stream, "\"hangs\": %d, \"disagreements\": %d, \"wrong\": %d, \"failed\": %d, \"leftovers\": %d, ",
                  figures->hangs, figures->disagreements, figures->wrong, figures->failed, figures->leftovers);
    print_json_times(stream, "detect_ms", &figures->detect);
    print_json_times(stream, "rebuild_ms", &figures->rebuild);
    (void)fprintf(stream, "\"died\": {\"before\": %d, \"by_clock\": %d, \"steps_most\": %d, \"tenths\": [",
                  figures->before, figures->by_clock, figures->most_steps);
    for (int i = 0; i < TENTHS; i++) (void)fprintf(stream, "%s%d", i == 0 ? "" : ", ", figures->tenths[i]);
    (void)fputs("]}}\n", stream);
}

static int report(struct bench *bench)
{
    struct figures *figures = &bench->figures;
    const char *json = bench->values->json;
    qsort(figures->detect.ms, (size_t)figures->detect.count, sizeof *figures->detect.ms, compare);
    qsort(figures->rebuild.ms, (size_t)figures->rebuild.count, sizeof *figures->rebuild.ms, compare);
    if (cli_is_stdout(json))
        print_json(stdout, bench);
    else
        print_lines(bench);
    if (json[0] != '\0' && !cli_is_stdout(json)) {
        FILE *file = fopen(json, "we");
        if (file == NULL) return cli_blame_path("faultbench", "cannot write", json);
        print_json(file, bench);
        bool bad = ferror(file) != 0;
        bad |= fclose(file) != 0;
        if (bad) return cli_blame_path("faultbench", "cannot write", json);
    }
    bool good = figures->hangs + figures->disagreements + figures->wrong + figures->failed + figures->leftovers == 0;
    return good && figures->kills == bench->values->kills ? CLI_OK : CLI_FAILED;
}

/* ---- The command ---------------------------------------------------------------------------------------------------------- */

/* Reads "4", or "2-8". Returns CLI_GO_ON or an exit status. */
static int read_sizes(const char *text, int64_t kills, int *low, int *high)
{
    char rest = '\0';
    bool one = sscanf(text, "%d%c", low, &rest) == 1;
    if (one) *high = *low;
    bool good = one || sscanf(text, "%d-%d%c", low, high, &rest) == 2;
    if (!good || *low < 2 || *high < *low || *high > FAULT_RANKS_MOST)
        return cli_refuse("faultbench", "--ranks %s: it must be a number from 2 to %d, or two as in 2-8", text,
                          FAULT_RANKS_MOST);
    if (kills < *high - *low + 1)
        return cli_refuse("faultbench", "--kills %lld: there must be one at least for each of the %d sizes of --ranks",
                          (long long)kills, *high - *low + 1);
    return CLI_GO_ON;
}

static int run_sizes(struct bench *bench, int low, int high)
{
    int kills = (int)bench->values->kills, sizes = high - low + 1, status = CLI_GO_ON;
    for (int i = 0; i < sizes && status == CLI_GO_ON; i++)
        status = run_size(bench, low + i, kills / sizes + (i < kills % sizes));
    return status == CLI_GO_ON ? report(bench) : status;
}

int cli_faultbench(int argc, char **argv)
{
    struct faultbench_values values;
    struct bench bench = {.values = &values};
    int low = 0, high = 0, status = cli_parse("faultbench", &cli_faultbench_page, argc, argv, &values, NULL);
    if (status != CLI_GO_ON) return status;
    if (values.rank[0] != '\0') return fault_rank_main(values.rank);
    status = read_sizes(values.ranks, values.kills, &low, &high);
    if (status == CLI_GO_ON) status = cli_check_output("faultbench", values.json);
    if (status != CLI_GO_ON) return status;
    if (readlink("/proc/self/exe", bench.tool, sizeof bench.tool - 1) < 0)
        return cli_fail("faultbench", "/proc/self/exe: %s", strerror(errno));
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* processes that a job leaves behind become children of this one */
    bench.figures.detect.ms = calloc((size_t)values.kills, sizeof(double));
    bench.figures.rebuild.ms = calloc((size_t)values.kills, sizeof(double));
    bool room = bench.figures.detect.ms != NULL && bench.figures.rebuild.ms != NULL;
    status = room ? run_sizes(&bench, low, high) : cli_fail("faultbench", "out of memory");
    free(bench.figures.detect.ms);
    free(bench.figures.rebuild.ms);
    return status;
}
