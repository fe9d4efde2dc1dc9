/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti doctor: the environment that a program would have, and a trial.
 */
#include "cli/cli.h"
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* ---- Options ------------------------------------------------------------------------------------------------------- */

/* Warns of misspelt options, which would be ignored silently. */
static void check_names(struct doctor *doctor)
{
    tutti_stray_option stray;
    char fix[96];
    for (size_t place = 0; tutti_options_stray(&place, &stray);) {
        bool near = stray.nearest[0] != '\0';
        (void)snprintf(fix, sizeof fix, near ? "did you mean %s?" : "unset it", stray.nearest);
        doctor_add(doctor, FOUND_WARNING, "options", fix, "%s is set, but is no option", stray.name);
    }
}

static int count_variables(void)
{
    int set = 0;
    for (char **variable = environ; *variable != NULL; variable++) set += strncmp(*variable, "TUTTI_", 6) == 0;
    return set;
}

void doctor_options(struct doctor *doctor)
{
    tutti_options options;
    tutti_error error;
    int set = count_variables();
    check_names(doctor);
    if (tutti_options_init(&options, &error) != TUTTI_OK)
        doctor_add(doctor, FOUND_BAD, "options", "see tutti help --options", "%s", error.text);
    else
        doctor_add(doctor, FOUND_GOOD, "options", NULL, "%d TUTTI_ variables are set", set);
}

/* ---- The launcher -------------------------------------------------------------------------------------------------- */

static void add_order(struct doctor *doctor)
{
    char order[256] = "";
    size_t count, used = 0;
    const tutti_launcher_row *rows = tutti_launcher_rows(&count);
    for (size_t i = 0; i < count && used < sizeof order; i++)
        used += (size_t)snprintf(order + used, sizeof order - used, "%s%s", i == 0 ? "" : ", ", rows[i].name);
    doctor_add(doctor, FOUND_NOTE, "launcher", NULL, "order of precedence: %s; TUTTI_LAUNCHER chooses another, or none",
               order);
}

static void add_found(struct doctor *doctor, const tutti_launch *launch)
{
    char where[400] = "";
    const tutti_launcher_row *row = launch->launcher;
    if (launch->one_host)
        (void)snprintf(where, sizeof where, "on this host");
    else if (launch->store[0] != '\0')
        (void)snprintf(where, sizeof where, "on several hosts, which meet by the launcher's store (%s)", launch->store);
    else
        (void)snprintf(where, sizeof where, "on several hosts, which meet at %s:%d", launch->host, launch->port);
    doctor_add(doctor, FOUND_GOOD, "launcher", NULL, "%s, by %s: process %d of %d in job %s, %s", row->title,
               row->variables, launch->rank, launch->size, launch->job, where);
}

/* Adds launchers that were found but not taken. */
static void add_others(struct doctor *doctor, const tutti_launcher_row *taken)
{
    size_t count;
    const tutti_launcher_row *rows = tutti_launcher_rows(&count);
    for (size_t i = 0; i < count; i++) {
        if (&rows[i] == taken || !tutti_launcher_found(&rows[i])) continue;
        doctor_add(doctor, FOUND_NOTE, "launcher", NULL,
                   "%s is there too, by %s, and not taken; TUTTI_LAUNCHER=%s does", rows[i].title, rows[i].variables,
                   rows[i].name);
    }
}

void doctor_launcher(struct doctor *doctor)
{
    tutti_launch launch;
    tutti_error error;
    tutti_status status = tutti_launch_read(&launch, &error);
    if (status != TUTTI_OK)
        doctor_add(doctor, FOUND_BAD, "launcher", "mend the variable, or set TUTTI_LAUNCHER=none to run alone", "%s",
                   error.text);
    else if (launch.launcher != NULL)
        add_found(doctor, &launch);
    else
        doctor_add(doctor, FOUND_GOOD, "launcher", NULL,
                   "none: a program started here is alone, or TUTTI_RANKS threads");
    if (status == TUTTI_OK) add_others(doctor, launch.launcher);
    add_order(doctor);
}

/* ---- The key ------------------------------------------------------------------------------------------------------- */

/* Returns true if there is a key, as the library reads it; the other options are left out, since other lines check
 * them. */
static bool holds_key(tutti_error *error)
{
    enum { SEVERAL_HOSTS = 2 };
    tutti_options options;
    (void)tutti_options_init(&options, NULL);
    options.interface = options.ports = options.tuning = options.trace = "";
    options.log = "warn";
    options.transport = options.launcher = "auto";
    return tutti_options_check(&options, SEVERAL_HOSTS, error) == TUTTI_OK;
}

static void check_key_file(struct doctor *doctor, const char *path)
{
    struct stat info;
    char fix[400];
    tutti_error error;
    if (stat(path, &info) != 0) {
        (void)snprintf(fix, sizeof fix, "tutti key %.300s, then copy it to every host", path);
        doctor_add(doctor, FOUND_BAD, "key", fix, "the key file %s cannot be opened: %s", path, strerror(errno));
    } else if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        (void)snprintf(fix, sizeof fix, "chmod 600 %.300s", path);
        doctor_add(doctor, FOUND_BAD, "key", fix, "the key file %s can be read by others than its owner", path);
    } else if (!holds_key(&error)) {
        doctor_add(doctor, FOUND_BAD, "key", "make one with tutti key FILE, and copy it to every host", "%s",
                   error.text);
    } else {
        doctor_add(doctor, FOUND_GOOD, "key", NULL, "file %s, for its owner alone", path);
    }
}

void doctor_key(struct doctor *doctor)
{
    const char *file = getenv("TUTTI_KEY_FILE"), *key = getenv("TUTTI_KEY");
    if (file != NULL && file[0] != '\0') {
        check_key_file(doctor, file);
    } else if (key != NULL && key[0] != '\0') {
        bool good = strlen(key) == 64 && strspn(key, "0123456789abcdefABCDEF") == 64;
        doctor_add(doctor, good ? FOUND_GOOD : FOUND_BAD, "key", good ? NULL : "64 hexadecimal digits, or a key file",
                   good ? "from the launcher (TUTTI_KEY)" : "TUTTI_KEY is no key");
    } else {
        doctor_add(doctor, FOUND_NOTE, "key", NULL,
                   "none; jobs on several hosts need one: tutti key FILE makes it, TUTTI_KEY_FILE names it");
    }
}

/* ---- A trial ------------------------------------------------------------------------------------------------------- */

static int64_t now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Runs one rank, which writes the reason to `report` if it fails. */
static void try_rank(const char *job, int rank, int size, int report)
{
    tutti_options options;
    tutti_comm *world = NULL;
    char text[512];
    int sum = rank, wanted = size * (size - 1) / 2;
    if (tutti_options_init(&options, NULL) != TUTTI_OK) _exit(2); /* already reported */
    options.join_timeout_ms = 20000;
    options.master_addr = ""; /* all ranks of the trial are here */
    tutti_status status = tutti_join_as(job, rank, size, &options, &world);
    if (status == TUTTI_OK) status = tutti_all_reduce(world, &sum, &sum, 1, TUTTI_I32, TUTTI_SUM);
    if (status == TUTTI_OK && sum == wanted) {
        (void)tutti_leave(world);
        _exit(0);
    }
    const tutti_error *why = tutti_comm_error(world);
    (void)snprintf(text, sizeof text, "%s", why == NULL ? tutti_status_name(status) : why->text);
    (void)!write(report, text, strlen(text) + 1); /* only the first failure is read, up to its zero */
    _exit(1);
}

/* Starts all ranks and waits for their end; returns true if all ended well. */
static bool try_ranks(const char *job, int size, int report)
{
    static const char why[] = "a process cannot be started; raise the limit, ulimit -u";
    pid_t ranks[8];
    int started = 0;
    for (; started < size && (ranks[started] = fork()) >= 0; started++) {
        if (ranks[started] > 0) continue;
        (void)alarm(20);
        try_rank(job, started, size, report);
    }
    bool good = started == size;
    if (!good) (void)!write(report, why, sizeof why);
    for (int rank = 0; rank < started; rank++) {
        int status = -1;
        if (started < size) (void)kill(ranks[rank], SIGKILL); /* it would wait for the others */
        good &= waitpid(ranks[rank], &status, 0) > 0 && status == 0;
    }
    return good;
}

void doctor_trial(struct doctor *doctor)
{
    enum { SIZE = 2 };
    char job[64], text[512] = "a process died";
    int ends[2];
    (void)snprintf(job, sizeof job, "doctor-%d-%lld", (int)getpid(), (long long)now_us());
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        doctor_add(doctor, FOUND_BAD, "trial", "ulimit -n", "a pipe cannot be made: %s", strerror(errno));
        return;
    }
    (void)fflush(stdout);
    int64_t start = now_us();
    bool good = try_ranks(job, SIZE, ends[1]);
    int64_t took = now_us() - start;
    ssize_t length = read(ends[0], text, sizeof text - 1);
    if (length > 0) text[length] = '\0';
    (void)close(ends[0]);
    (void)close(ends[1]);
    if (good)
        doctor_add(doctor, FOUND_GOOD, "trial", NULL, "%d processes started, joined, added and left in %.1f ms", SIZE,
                   (double)took / 1000);
    else
        doctor_add(doctor, FOUND_BAD, "trial", NULL, "two processes of this host cannot join: %s", text);
}
