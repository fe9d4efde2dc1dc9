/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_US = 500 };

const char *world_ranks_name(enum world_ranks ranks)
{
    static const char *const names[] = {"threads", "processes", "joined threads", "threads of processes",
                                        "simulated ranks"};
    return names[ranks];
}

int world_process_count(enum world_ranks ranks, int size)
{
    if (ranks == WORLD_PAIRS && size % 2 == 0) return size / 2;
    return ranks == WORLD_PROCESSES || ranks == WORLD_PAIRS ? size : 1;
}

/* ---- By the test ------------------------------------------------------------------------------------------------- */

int64_t world_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

pid_t world_fork(unsigned seconds)
{
    fflush(stdout);
    pid_t test = getpid(), pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != test) _exit(1); /* it has ended meanwhile */
    alarm(seconds);
    return 0;
}

bool world_reap(struct world_process *process)
{
    if (process->pid <= 0 || waitpid(process->pid, &process->status, WNOHANG) != process->pid) return false;
    process->pid = -1;
    return true;
}

static int give_up(struct world_process *processes, int count, const struct world_watch *watch)
{
    int killed = 0;
    for (int i = 0; i < count; i++) {
        struct world_process *process = &processes[i];
        if (process->pid <= 0) continue;
        if (watch->hangs != NULL) watch->hangs(watch->context, i);
        kill(process->pid, SIGKILL);
        waitpid(process->pid, &process->status, 0);
        process->pid = -1;
        killed++;
    }
    return killed;
}

int world_await(struct world_process *processes, int count, const struct world_watch *watch)
{
    int64_t until = world_now_ns() + watch->limit_ms * 1000000;
    int left = 0;
    for (int i = 0; i < count; i++) left += processes[i].pid > 0;
    while (left > 0 && world_now_ns() < until) {
        for (int i = 0; i < count; i++) {
            if (!world_reap(&processes[i])) continue;
            left--;
            if (watch->ended != NULL) watch->ended(watch->context, i, processes[i].status);
        }
        if (left > 0 && watch->between != NULL) watch->between();
        if (left > 0 && watch->between == NULL) usleep(LOOK_US);
    }
    return left == 0 ? 0 : give_up(processes, count, watch);
}

const char *world_end_text(int status, char text[32])
{
    if (WIFSIGNALED(status))
        snprintf(text, 32, "signal %d", WTERMSIG(status));
    else
        snprintf(text, 32, "status %d", WEXITSTATUS(status));
    return text;
}

/* ---- In a child -------------------------------------------------------------------------------------------------- */

static int open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = -3; /* ".", ".." and the folder itself */
    if (folder == NULL) return -1;
    while (readdir(folder) != NULL) count++;
    closedir(folder);
    return count;
}

struct world_holds world_holds(void)
{
    struct world_holds holds = {.descriptors = open_descriptors()};
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        holds.mappings += strstr(line, "memfd:tutti") != NULL;
    if (maps != NULL) fclose(maps);
    return holds;
}

void world_set(const char *name, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)number);
    setenv(name, text, 1);
}

void world_be(const char *job, int process, int size, int each)
{
    static const char *const foreign[] = {"TUTTI_JOB", "TUTTI_RANK", "TUTTI_SIZE"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) unsetenv(foreign[i]);
    if (job != NULL) {
        setenv("TUTTI_JOB", job, 1);
        world_set("TUTTI_RANK", process);
        world_set("TUTTI_SIZE", size / each);
    }
    if (job == NULL || each > 1) world_set("TUTTI_RANKS", each);
}

struct joiner {
    pthread_t thread;
    world_joins *joins;
    const char *job;
    int rank;
};

static void *run_joiner(void *argument)
{
    const struct joiner *joiner = argument;
    joiner->joins(joiner->job, joiner->rank);
    return NULL;
}

void world_run_joined(const char *job, int size, world_joins *joins)
{
    struct joiner joiners[WORLD_MOST];
    for (int rank = 0; rank < size; rank++) {
        joiners[rank] = (struct joiner){.joins = joins, .job = job, .rank = rank};
        if (pthread_create(&joiners[rank].thread, NULL, run_joiner, &joiners[rank]) != 0) abort();
    }
    for (int rank = 0; rank < size; rank++) pthread_join(joiners[rank].thread, NULL);
}
