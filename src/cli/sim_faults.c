/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti sim --faults. A process is forked to run some seeds at a time: memory of ranks that died is given back with it,
 * and a seed that ends the process is known.
 */
#include "cli/sim_faults.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TOGETHER = 100, LISTED = 20, SEED_LIMIT_S = 120 };

static const char *const kind_names[FAULTS_KINDS] = {"", "hang", "disagreement", "wrong result", "failure", "crash"};
static const char *const doing_names[DOING_KINDS] = {"elsewhere", "in collectives", "in agreement", "in shrink",
                                                     "in renew"};
static const char *const doing_keys[DOING_KINDS] = {"elsewhere", "collectives", "agreement", "shrink", "renew"};
static const char *const fault_names[] = {"cuts", "broken connections", "stops", "jumps of clocks"};
static const char *const fault_keys[] = {"cuts", "breaks", "stops", "jumps"}; /* in the order of tutti_sim_fault_kind */
/* in the order of enum faults_plant */
static const char *const plants[] = {"nothing", "hang", "disagreement", "result"};

/* Shared with the process that runs seeds. */
struct run {
    uint64_t first, count, done; /* seeds */
    int least, most;
    enum faults_plant plant;
    struct faults_counts counts;
    uint64_t found[FAULTS_KINDS];
    struct faults_finding findings[LISTED], current;
};

/* ---- Running ------------------------------------------------------------------------------------------------------------- */

static uint64_t found_in_all(const struct run *run)
{
    uint64_t all = 0;
    for (int kind = 0; kind < FAULTS_KINDS; kind++) all += run->found[kind];
    return all;
}

static void note(struct run *run)
{
    uint64_t before = found_in_all(run);
    run->done++;
    if (run->current.kind == FAULTS_NONE) return;
    if (before < LISTED) run->findings[before] = run->current;
    run->found[run->current.kind]++;
}

static void run_some(struct run *run)
{
    for (int i = 0; i < TOGETHER && run->done < run->count; i++) {
        (void)alarm(SEED_LIMIT_S); /* the alarm ends this process */
        faults_run_seed(run->first + run->done, run->least, run->most, run->plant, &run->current, &run->counts);
        note(run);
    }
}

static void note_crash(struct run *run, int wait_status)
{
    struct faults_finding *finding = &run->current;
    int number = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    *finding = (struct faults_finding){.kind = number == SIGALRM ? FAULTS_HANG : FAULTS_CRASHED,
                                       .seed = run->first + run->done};
    if (number == SIGALRM)
        (void)snprintf(finding->text, sizeof finding->text, "it took more than %d s", SEED_LIMIT_S);
    else if (number != 0)
        (void)snprintf(finding->text, sizeof finding->text, "the process was ended by signal %d (%s)", number,
                       strsignal(number));
    else
        (void)snprintf(finding->text, sizeof finding->text, "the process ended with status %d",
                       WEXITSTATUS(wait_status));
    note(run);
}

static int run_seeds(struct run *run)
{
    while (run->done < run->count) {
        int wait_status = 0;
        pid_t child = fork();
        if (child < 0) return cli_fail("sim", "cannot start a process: %s", strerror(errno));
        if (child == 0) {
            (void)signal(SIGALRM, SIG_DFL);
            run_some(run);
            _exit(0);
        }
        while (waitpid(child, &wait_status, 0) < 0)
            if (errno != EINTR) return cli_fail("sim", "cannot wait for a process: %s", strerror(errno));
        if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0) note_crash(run, wait_status);
    }
    return CLI_OK;
}

/* ---- Reporting ------------------------------------------------------------------------------------------------------------ */

static void print_found(FILE *stream, const struct run *run)
{
    uint64_t all = found_in_all(run);
    for (uint64_t i = 0; i < all && i < LISTED; i++) {
        const struct faults_finding *finding = &run->findings[i];
        (void)fprintf(stream, "seed %llu: %s: %s\n", (unsigned long long)finding->seed, kind_names[finding->kind],
                      finding->text);
        if (finding->setup[0] != '\0') (void)fprintf(stream, "    %s\n", finding->setup);
        (void)fprintf(stream, "    alone: tutti sim --faults --seeds 1 --seed %llu --ranks %d-%d%s%s\n",
                      (unsigned long long)finding->seed, run->least, run->most,
                      run->plant == PLANT_NOTHING ? "" : " --plant ",
                      run->plant == PLANT_NOTHING ? "" : plants[run->plant]);
    }
    if (all > LISTED) (void)fprintf(stream, "and %llu more\n", (unsigned long long)(all - LISTED));
}

static void print_figures(FILE *stream, const struct run *run, double seconds)
{
    const struct faults_counts *counts = &run->counts;
    (void)fprintf(stream, "%llu seeds from %llu, %d to %d ranks: %llu violations", (unsigned long long)run->done,
                  (unsigned long long)run->first, run->least, run->most, (unsigned long long)found_in_all(run));
    for (int kind = FAULTS_HANG; kind < FAULTS_KINDS; kind++)
        if (run->found[kind] > 0)
            (void)fprintf(stream, ", %s: %llu", kind_names[kind], (unsigned long long)run->found[kind]);
    (void)fprintf(stream, "\ndeaths:");
    for (int doing = 0; doing < DOING_KINDS; doing++)
        (void)fprintf(stream, " %llu %s%s", (unsigned long long)counts->deaths[doing], doing_names[doing],
                      doing + 1 < DOING_KINDS ? "," : "\n");
    (void)fprintf(stream, "other faults:");
    for (int kind = 0; kind <= TUTTI_SIM_JUMP; kind++)
        (void)fprintf(stream, " %llu %s%s", (unsigned long long)counts->faults[kind], fault_names[kind],
                      kind < TUTTI_SIM_JUMP ? "," : "\n");
    (void)fprintf(stream, "calls: %llu collectives, %llu agreements, %llu shrinks; %llu ranks were excluded; %.1f s\n",
                  (unsigned long long)counts->collectives, (unsigned long long)counts->agreements,
                  (unsigned long long)counts->shrinks, (unsigned long long)counts->excluded, seconds);
}

/* Prints text for JSON: its strings have no control characters, which become spaces. */
static void print_text(FILE *stream, const char *text)
{
    (void)fputc('"', stream);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') (void)fputc('\\', stream);
        (void)fputc((unsigned char)*text < ' ' ? ' ' : *text, stream);
    }
    (void)fputc('"', stream);
}

static void print_json(FILE *stream, const struct run *run, double seconds)
{
    uint64_t all = found_in_all(run);
    const struct faults_counts *counts = &run->counts;
    (void)fprintf(stream, "{\"seeds\": %llu, \"seed\": %llu, \"ranks\": [%d, %d], \"violations\": %llu, \"deaths\": {",
                  (unsigned long long)run->done, (unsigned long long)run->first, run->least, run->most,
                  (unsigned long long)all);
    for (int doing = 0; doing < DOING_KINDS; doing++)
        (void)fprintf(stream, "%s\"%s\": %llu", doing > 0 ? ", " : "", doing_keys[doing],
                      (unsigned long long)counts->deaths[doing]);
    (void)fprintf(stream, "}, \"faults\": {");
    for (int kind = 0; kind <= TUTTI_SIM_JUMP; kind++)
        (void)fprintf(stream, "%s\"%s\": %llu", kind > 0 ? ", " : "", fault_keys[kind],
                      (unsigned long long)counts->faults[kind]);
    (void)fprintf(
        stream,
        "}, \"collectives\": %llu, \"agreements\": %llu, \"shrinks\": %llu, \"excluded\": %llu, \"real_s\": %.3f, "
        "\"found\": [",
        (unsigned long long)counts->collectives, (unsigned long long)counts->agreements,
        (unsigned long long)counts->shrinks, (unsigned long long)counts->excluded, seconds);
    for (uint64_t i = 0; i < all && i < LISTED; i++) {
        const struct faults_finding *finding = &run->findings[i];
        (void)fprintf(stream, "%s{\"seed\": %llu, \"kind\": \"%s\", \"text\": ", i > 0 ? ", " : "",
                      (unsigned long long)finding->seed, kind_names[finding->kind]);
        print_text(stream, finding->text);
        (void)fprintf(stream, ", \"setup\": ");
        print_text(stream, finding->setup);
        (void)fprintf(stream, "}");
    }
    (void)fprintf(stream, "]}\n");
}

/* ---- What was asked ------------------------------------------------------------------------------------------------------- */

static bool read_number(const char **text, int *number)
{
    char *end;
    if (**text < '0' || **text > '9') return false;
    long value = strtol(*text, &end, 10);
    *text = end;
    *number = (int)value;
    return value >= FAULTS_LEAST_RANKS && value <= FAULTS_MOST_RANKS;
}

/* Reads "8", "3-32" or "3..32". */
static int read_ranks(const char *text, struct run *run)
{
    const char *rest = text;
    bool good = read_number(&rest, &run->least);
    run->most = run->least;
    if (good && *rest != '\0') {
        size_t dots = strncmp(rest, "..", 2) == 0 ? 2 : *rest == '-' ? 1 : 0;
        rest += dots;
        good = dots > 0 && read_number(&rest, &run->most) && *rest == '\0' && run->least <= run->most;
    }
    if (good) return CLI_GO_ON;
    return cli_refuse("sim", "--ranks is '%s'; it takes a number of %d to %d, or two of them, such as 3-32", text,
                      FAULTS_LEAST_RANKS, FAULTS_MOST_RANKS);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int report(const struct sim_values *flags, const struct run *run, double seconds)
{
    FILE *json = NULL, *table = cli_is_stdout(flags->json) ? stderr : stdout;
    int status = sim_open(flags->json, &json);
    if (status != CLI_GO_ON) return status;
    print_found(table, run);
    print_figures(table, run, seconds);
    if (json != NULL) print_json(json, run, seconds);
    status = sim_close(flags->json, json);
    return status == CLI_OK && found_in_all(run) > 0 ? CLI_FAILED : status;
}

int sim_faults(const struct sim_values *flags)
{
    struct run asked = {.first = (uint64_t)flags->seed, .count = (uint64_t)flags->seeds};
    int status = read_ranks(flags->ranks, &asked);
    if (status == CLI_GO_ON) status = cli_check_output("sim", flags->json);
    if (status == CLI_GO_ON) status = cli_check_options("sim", 1);
    if (status != CLI_GO_ON) return status;
    while (strcmp(plants[asked.plant], flags->plant) != 0) asked.plant++;
    struct run *run = mmap(NULL, sizeof *run, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run == MAP_FAILED) return cli_fail("sim", "no memory: %s", strerror(errno));
    *run = asked;
    tutti_log_set_level(TUTTI_QUIET); /* ranks die, and leave when they are excluded, on purpose */
    (void)fflush(NULL);
    double began_s = now_s();
    status = run_seeds(run);
    if (status == CLI_OK) status = report(flags, run, now_s() - began_s);
    (void)munmap(run, sizeof *run);
    return status;
}
