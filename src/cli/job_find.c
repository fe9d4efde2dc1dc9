/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/job_find.h"
#include "cli/cli.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JOBS_MOST = 64 };

struct jobs {
    struct job_found list[JOBS_MOST];
    int count, others; /* jobs of this user; those of other users */
};

static bool read_line(int pid, const char *file, char *text, size_t bytes)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    FILE *stream = fopen(path, "re");
    if (stream == NULL) return false;
    bool good = fgets(text, (int)bytes, stream) != NULL;
    (void)fclose(stream);
    return good;
}

bool job_is_guard(int pid)
{
    char name[32];
    return read_line(pid, "comm", name, sizeof name) && strcmp(name, "tutti-guard\n") == 0;
}

static int parent_of(int pid)
{
    char text[512];
    int parent = 0;
    if (!read_line(pid, "stat", text, sizeof text)) return 0;
    const char *fields = strrchr(text, ')');
    return fields != NULL && sscanf(fields, ") %*c %d", &parent) == 1 ? parent : 0;
}

/* Adds a guard's job. If a guard's board cannot be read, it is about to end. */
static void add_job(struct jobs *jobs, int pid)
{
    char path[64];
    struct stat about;
    (void)snprintf(path, sizeof path, "/proc/%d", pid);
    if (stat(path, &about) != 0 || !job_is_guard(pid)) return;
    if (about.st_uid != geteuid()) {
        jobs->others++;
        return;
    }
    struct job_found *job = &jobs->list[jobs->count];
    if (jobs->count == JOBS_MOST || tutti_board_attach(pid, &job->board, NULL) != TUTTI_OK) return;
    tutti_board_describe(job->board, &job->about);
    job->launcher = parent_of(pid);
    jobs->count++;
}

static int find_jobs(const char *command, struct jobs *jobs)
{
    DIR *folder = opendir("/proc");
    if (folder == NULL) return cli_fail(command, "/proc cannot be read: %s", strerror(errno));
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (isdigit((unsigned char)entry->d_name[0])) add_job(jobs, atoi(entry->d_name));
    (void)closedir(folder);
    return CLI_GO_ON;
}

static bool has_pid(const struct job_found *job, const char *name)
{
    char pid[16];
    (void)snprintf(pid, sizeof pid, "%d", job->launcher);
    return name != NULL && strcmp(pid, name) == 0;
}

/* Returns true if another board shows this one's ranks with those of all hosts, and this one is not meant by its pid. */
static bool is_part(const struct jobs *jobs, const struct job_found *job, const char *name)
{
    bool part = false;
    for (int i = 0; i < jobs->count; i++)
        part |= jobs->list[i].about.gathers && strcmp(jobs->list[i].about.job, job->about.job) == 0;
    return part && !job->about.gathers && !has_pid(job, name);
}

static bool is_meant(const struct job_found *job, const char *name)
{
    return has_pid(job, name) || strncmp(job->about.job, name, strlen(name)) == 0;
}

static void list_jobs(const struct jobs *jobs)
{
    for (int i = 0; i < jobs->count; i++) {
        const struct job_found *job = &jobs->list[i];
        (void)fprintf(stderr, "  %-32s launcher %d, %d rank%s here\n", job->about.job, job->launcher, job->about.ranks,
                      job->about.ranks == 1 ? "" : "s");
    }
}

/* Chooses the job that `name` means; without a name the only one. Returns NULL after a message. */
static const struct job_found *choose(const char *command, const struct jobs *jobs, const char *name)
{
    const struct job_found *chosen = NULL;
    int meant = 0;
    char others[80] = "";
    if (jobs->others > 0)
        (void)snprintf(others, sizeof others, "; %d of other users cannot be looked at", jobs->others);
    for (int i = 0; i < jobs->count; i++) {
        if (name != NULL && !is_meant(&jobs->list[i], name)) continue;
        if (is_part(jobs, &jobs->list[i], name)) continue;
        chosen = &jobs->list[i];
        meant++;
    }
    if (meant == 1) return chosen;
    if (jobs->count == 0)
        (void)cli_refuse(command, "no job of this user that `tutti run` has started is running on this host%s", others);
    else if (meant == 0)
        (void)cli_refuse(command, "there is no job '%s' of this user on this host, but:", name);
    else
        (void)cli_refuse(command, "%d jobs are running; say which one, by its name or its launcher's pid:", meant);
    list_jobs(jobs);
    return NULL;
}

int job_find(const char *command, const char *name, struct job_found *found)
{
    static struct jobs jobs;
    int status = find_jobs(command, &jobs);
    if (status != CLI_GO_ON) return status;
    const struct job_found *chosen = choose(command, &jobs, name);
    if (chosen != NULL) *found = *chosen;
    for (int i = 0; i < jobs.count; i++)
        if (&jobs.list[i] != chosen) tutti_board_free(jobs.list[i].board);
    return chosen == NULL ? CLI_USAGE : CLI_GO_ON;
}
