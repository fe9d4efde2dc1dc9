/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher's event loop: reports of the guard, signals, output, and one clock. A job that must end goes down one
 * ladder, whatever the cause, with --grace-ms between the steps:
 *     GRACE  the others may notice by themselves and report (on a signal: they are sent that signal)
 *     TERM   SIGTERM to what is left
 *     KILL   SIGKILL, until the guard finds nothing left
 *     LEAVE  something cannot be killed (a driver that does not return): say so, and leave it to the guard
 */
#include "cli/cli.h"
#include "cli/cli_run.h"
#include "cli/job_table.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { UNKILLABLE_MS = 5000, SUSPECT_MS = 100, LISTED_RANKS = 8, SHOWN_RANKS = 32, SIGNAL_STATUS = 128 };

enum step { STEP_RUN, STEP_GRACE, STEP_TERM, STEP_KILL, STEP_LEAVE };

/* How likely a rank is the first that failed. Others may notice its end, and end before it. */
enum likely {
    LIKELY_NOT,   /* it has not failed */
    LIKELY_LATER, /* it knew that another rank was the cause */
    LIKELY_FIRST, /* as far as is known */
    LIKELY_SURELY, /* killed by a signal other than that of abort(), which is no answer to what happened to another rank */
};

/* The rank that failed first, as far as is known. */
struct suspect {
    enum likely likely;
    const char *host;
    int rank, pid, wait_status;
    int64_t until_ms; /* then it was the first */
};

/* The first rank that ended with status 0: where it has not left, that may be why others fail. */
struct quiet {
    int rank, pid; /* 0: there is none */
};

struct job {
    const struct run_values *values;
    const struct launch *launch;
    struct output *output;
    int control, signals;
    pid_t guard;
    enum step step;
    int64_t deadline_ms; /* when the next step is due; meaningless in STEP_RUN */
    int ranks_left;
    int restarts; /* so far */
    bool *ended;  /* [size] */
    bool *begun;  /* [size]: hosts whose launcher has said so */
    bool orphan;  /* the launcher that started this one is gone */
    struct suspect suspect;
    struct quiet quiet;
    tutti_board *board; /* the guard's; NULL: not known */
    bool decided;       /* the exit status is: by the first failure, or a signal */
    int status;
    int signals_seen;
    bool guard_gone, empty; /* `empty`: the guard said that nothing is left */
};

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- Words ----------------------------------------------------------------------------------------------------- */

/* "exited with status 3" or "was killed by signal 9 (Killed)" */
static const char *describe(int wait_status, char text[96])
{
    if (WIFSIGNALED(wait_status)) {
        int signal = WTERMSIG(wait_status);
        (void)snprintf(text, 96, "was killed by signal %d (%s)", signal, strsignal(signal));
    } else {
        (void)snprintf(text, 96, "exited with status %d", WEXITSTATUS(wait_status));
    }
    return text;
}

/* "; rank 1 (pid 4711) ended with status 0", where all that have failed point to another rank; else "". */
static const char *describe_quiet(const struct job *job, char text[96])
{
    text[0] = '\0';
    if (job->suspect.likely == LIKELY_LATER && job->quiet.pid != 0)
        (void)snprintf(text, 96, "; rank %d (pid %d) ended with status 0", job->quiet.rank, job->quiet.pid);
    return text;
}

static int exit_status(int wait_status)
{
    return WIFSIGNALED(wait_status) ? SIGNAL_STATUS + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

/* "rank 2", "ranks 0, 1, 3", "hosts a, b", "ranks 0, 1, … and 5 more": those that have not ended. */
static const char *list_left(const struct job *job, char *text, size_t bytes)
{
    const struct hosts *hosts = job->launch->hosts;
    int used = snprintf(text, bytes, "%s%s", hosts != NULL ? "host" : "rank", job->ranks_left == 1 ? "" : "s");
    int listed = 0;
    for (int i = 0; i < job->launch->size && listed < LISTED_RANKS; i++) {
        char name[32];
        if (job->ended[i]) continue;
        (void)snprintf(name, sizeof name, "%d", job->launch->place.first + i);
        used += snprintf(text + used, bytes - (size_t)used, "%s%.64s", listed == 0 ? " " : ", ",
                         hosts != NULL ? hosts_name(hosts, i) : name);
        listed++;
    }
    if (job->ranks_left > listed) {
        (void)snprintf(text + used, bytes - (size_t)used, " and %d more", job->ranks_left - listed);
    }
    return text;
}

/* ---- The ranks' table ------------------------------------------------------------------------------------------ */

/* The guard has made it before it starts the first rank. */
static void open_board(struct job *job)
{
    if (job->board != NULL || job->launch->hosts != NULL) return;
    (void)tutti_board_attach((int)job->guard, &job->board, NULL); /* without one nothing is known of the ranks */
}

/* On SIGUSR1. Other hosts' launchers are asked, and show theirs. */
static void on_asked(struct job *job)
{
    if (job->launch->hosts != NULL)
        hosts_signal(job->launch->hosts, SIGUSR1);
    else
        job_table_say(job->output, job->board, 0);
}

/* ---- The ladder ------------------------------------------------------------------------------------------------ */

/* Names the rank that failed first, if one has. */
static void settle(struct job *job)
{
    const struct suspect *first = &job->suspect;
    char text[96], earlier[96];
    if (job->decided || first->likely == LIKELY_NOT) return;
    job->decided = true;
    job->status = exit_status(first->wait_status);
    if (job->launch->remote) {
        int follows = first->likely == LIKELY_LATER;
        struct remote_report report = {REMOTE_ENDED, first->rank, first->pid, first->wait_status, follows};
        output_write_report(job->output, &report);
    } else {
        output_say(job->output, "rank %d%s%s (pid %d) %s%s", first->rank, first->host != NULL ? " on " : "",
                   first->host != NULL ? first->host : "", first->pid, describe(first->wait_status, text),
                   describe_quiet(job, earlier));
    }
    job_table_say(job->output, job->board, SHOWN_RANKS);
}

static void decide(struct job *job, int status)
{
    settle(job);
    if (job->decided) return;
    job->decided = true;
    job->status = status;
}

static void send_order(struct job *job, enum guard_order order, int value)
{
    struct guard_command command = {(int32_t)order, value};
    (void)send(job->control, &command, sizeof command, MSG_NOSIGNAL); /* a guard that is gone is noticed by its EOF */
}

/* To ranks by the guard; to those of other hosts by their launchers, who need the remote shells for it. */
static void send_signal(struct job *job, int signal)
{
    if (job->launch->hosts != NULL)
        hosts_signal(job->launch->hosts, signal);
    else
        send_order(job, GUARD_SIGNAL, signal);
}

static void say_step(struct job *job)
{
    char ranks[LISTED_RANKS * 68 + 64];
    bool left = job->ranks_left > 0;
    (void)list_left(job, ranks, sizeof ranks);
    if (job->step == STEP_TERM && left) {
        output_say(job->output, "ending %s", ranks);
    } else if (job->step == STEP_TERM) {
        output_say(job->output, "ending processes that ranks left running");
    } else if (job->step == STEP_KILL && left) {
        output_say(job->output, "killing %s", ranks);
    } else if (job->step == STEP_LEAVE) {
        output_say(job->output, "%s cannot be killed; leaving what remains to the guard (pid %d)",
                   left ? ranks : "a process", (int)job->guard);
    }
}

/* Goes to `step`, if that is further down. */
static void go_down(struct job *job, enum step step)
{
    if (step <= job->step) return;
    if (step >= STEP_TERM) settle(job); /* who is killed from now on is so by the launcher */
    job->step = step;
    job->deadline_ms = now_ms() + (step == STEP_KILL ? UNKILLABLE_MS : job->values->grace_ms);
    say_step(job);
    if (step == STEP_TERM) send_signal(job, SIGTERM);
    if (step == STEP_KILL) send_signal(job, SIGKILL);
    if (step == STEP_LEAVE) {
        send_order(job, GUARD_SIGNAL, SIGKILL); /* hosts: the shells have had their time */
        decide(job, CLI_FAILED);
    }
}

/* ---- Events ---------------------------------------------------------------------------------------------------- */

static enum likely how_likely(int wait_status, bool follows)
{
    if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) != SIGABRT) return LIKELY_SURELY;
    return follows ? LIKELY_LATER : LIKELY_FIRST;
}

/* On this host or another. While all that have failed point to somebody else, that one is waited for. */
static void on_rank_failed(struct job *job, const char *host, int rank, int pid, int wait_status, bool follows)
{
    enum likely likely = how_likely(wait_status, follows);
    if (job->decided || likely <= job->suspect.likely) return;
    int64_t until_ms = likely == LIKELY_LATER ? INT64_MAX : now_ms() + SUSPECT_MS;
    job->suspect = (struct suspect){likely, host, rank, pid, wait_status, until_ms};
    if (likely == LIKELY_SURELY) settle(job);
    go_down(job, STEP_GRACE);
}

static const char *host_hint(int wait_status)
{
    enum { NOT_FOUND = 127 };
    if (!WIFEXITED(wait_status)) return "";
    switch (WEXITSTATUS(wait_status)) {
    case 0: return "; does the shell of this user there carry out the command that it is given?";
    case NOT_FOUND: return "; is tutti at the same place as here? (--remote-tutti)";
    default: return "; does it answer, and let this user in without a password?";
    }
}

/* A remote shell has failed and no rank of its host was said to have. Before the launcher there said that it has begun, it
 * is the shell's own failure, as when there is no such host; whatever its status, no rank has run. */
static void on_host_failed(struct job *job, int host, int wait_status)
{
    char text[96];
    const char *name = hosts_name(job->launch->hosts, host), *shell = hosts_command(job->launch->hosts, host)[0];
    if (job->decided || job->suspect.likely != LIKELY_NOT) return;
    if (job->begun[host]) {
        output_say(job->output, "the launcher on %s %s", name, describe(wait_status, text));
        decide(job, exit_status(wait_status));
    } else {
        output_say(job->output, "host %s: %s %s before the job began there%s", name, shell, describe(wait_status, text),
                   host_hint(wait_status));
        decide(job, CLI_USAGE);
    }
    go_down(job, STEP_GRACE);
}

static void on_remote_report(void *context, int host, const struct remote_report *report)
{
    struct job *job = context;
    if (report->event == REMOTE_STARTED) job->begun[host] = true;
    if (report->event != REMOTE_ENDED || report->value == 0) return;
    on_rank_failed(job, hosts_name(job->launch->hosts, host), report->rank, report->pid, report->value,
                   report->follows != 0);
}

/* Why a rank that has failed is not started again, where ranks are; NULL: it is. */
static const char *reason_against(const struct job *job, const struct guard_report *report)
{
    if (report->joined == 0) return "not all ranks had joined, so there is no world to rebuild";
    if (how_likely(report->value, report->follows != 0) == LIKELY_LATER)
        return "it knew that another rank was lost, and ended; --max-restarts is for programs that call "
               "tutti_comm_rebuild then";
    return job->restarts < job->launch->max_restarts ? NULL : "all restarts are used up (--max-restarts)";
}

/* Tells the guard what becomes of a rank that has ended, where ranks are started again. True if this one is. */
static bool starts_again(struct job *job, const struct guard_report *report)
{
    char text[96];
    int rank = job->launch->place.first + report->rank;
    if (job->launch->max_restarts == 0) return false;
    bool failed = job->step == STEP_RUN && report->value != 0;
    const char *against = failed ? reason_against(job, report) : "";
    send_order(job, against == NULL ? GUARD_RESTART : GUARD_NOTE, report->rank);
    if (!failed) return false;
    (void)describe(report->value, text);
    if (against != NULL) {
        output_say(job->output, "rank %d (pid %d) %s and is not started again: %s", rank, report->pid, text, against);
        return false;
    }
    job->restarts++;
    output_say(job->output, "rank %d (pid %d) %s and is started again (restart %d of %d)", rank, report->pid, text,
               job->restarts, job->launch->max_restarts);
    return true;
}

/* True if the job goes on without a rank that has ended so: others run, and nothing has ended the job yet. */
static bool goes_on_without(struct job *job, const struct guard_report *report)
{
    char text[96];
    bool survived = job->values->keep_going && WIFSIGNALED(report->value) && job->ranks_left > 0;
    if (!survived || job->step != STEP_RUN) return false;
    output_say(job->output, "rank %d (pid %d) %s; the others go on", job->launch->place.first + report->rank,
               report->pid, describe(report->value, text));
    return true;
}

static void on_ended(struct job *job, const struct guard_report *report)
{
    const struct place *place = &job->launch->place;
    output_drain_rank(job->output, report->rank);
    if (starts_again(job, report)) return;
    job->ended[report->rank] = true;
    job->ranks_left--;
    if (goes_on_without(job, report)) return;
    if (job->launch->hosts != NULL && (report->value != 0 || !job->begun[report->rank]))
        on_host_failed(job, report->rank, report->value);
    else if (report->value != 0)
        on_rank_failed(job, place->host, place->first + report->rank, report->pid, report->value, report->follows != 0);
    else if (job->launch->hosts == NULL && job->quiet.pid == 0)
        job->quiet = (struct quiet){place->first + report->rank, report->pid};
    if (job->ranks_left > 0) return;
    settle(job);
    go_down(job, STEP_GRACE); /* for what ranks left running */
}

static void on_start_failed(struct job *job, const struct guard_report *report)
{
    const char *hint = report->value == EAGAIN
                           ? "; the limit of processes is reached (RLIMIT_NPROC, ulimit -u, or the cgroup's pids.max)"
                           : "";
    output_say(job->output, "cannot start %s %d: %s%s",
               job->launch->hosts != NULL ? "the remote shell of host" : "rank",
               job->launch->place.first + report->rank, strerror(report->value), hint);
    decide(job, CLI_FAILED);
    go_down(job, STEP_KILL);
}

static void on_exec_failed(struct job *job, const struct guard_report *report)
{
    const struct hosts *hosts = job->launch->hosts;
    const char *why = strerror(report->value);
    if (!job->decided && hosts != NULL)
        output_say(job->output, "host %s: the remote shell %s cannot be executed: %s (--ssh)",
                   hosts_name(hosts, report->rank), hosts_command(hosts, report->rank)[0], why);
    else if (!job->decided)
        output_say(job->output, "rank %d: cannot execute %s: %s", job->launch->place.first + report->rank,
                   job->launch->argv[0], why);
    decide(job, CLI_USAGE);
    go_down(job, STEP_KILL);
}

static void on_report(struct job *job, const struct guard_report *report)
{
    if (report->event != GUARD_ENDED) settle(job);
    switch ((enum guard_event)report->event) {
    case GUARD_STARTED: open_board(job); break;
    case GUARD_START_FAILED: on_start_failed(job, report); break;
    case GUARD_EXEC_FAILED: on_exec_failed(job, report); break;
    case GUARD_ENDED: on_ended(job, report); break;
    case GUARD_EMPTY:
        job->empty = true;
        if (report->value > 0 && !job->decided) {
            output_say(job->output, "killed %d process%s that ranks left running", report->value,
                       report->value == 1 ? "" : "es");
        }
        break;
    }
}

static void read_reports(struct job *job)
{
    for (;;) {
        struct guard_report report;
        ssize_t length = recv(job->control, &report, sizeof report, MSG_DONTWAIT);
        if (length < 0 && errno == EINTR) continue;
        if (length < 0 && errno == EAGAIN) return;
        if (length != (ssize_t)sizeof report) {
            job->guard_gone = true;
            return;
        }
        on_report(job, &report);
    }
}

static void on_signal(struct job *job, int signal)
{
    settle(job);
    job->signals_seen++;
    if (job->signals_seen > 1 || job->step >= STEP_TERM) {
        output_say(job->output, "killing the job on signal %d (%s)", signal, strsignal(signal));
        decide(job, SIGNAL_STATUS + signal);
        go_down(job, STEP_KILL);
        return;
    }
    output_say(job->output, "ending the job on signal %d (%s)", signal, strsignal(signal));
    decide(job, SIGNAL_STATUS + signal);
    if (signal == SIGTERM) {
        go_down(job, STEP_TERM);
    } else {
        send_signal(job, signal);
        go_down(job, STEP_GRACE);
    }
}

static void read_signals(struct job *job)
{
    struct signalfd_siginfo info;
    while (read(job->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGUSR1)
            on_asked(job);
        else
            on_signal(job, (int)info.ssi_signo);
    }
}

/* What the launcher that started this one asks for. Its end is the end of the job. */
static void read_remote(struct job *job)
{
    for (int signal; (signal = remote_next_signal()) != 0;) {
        if (signal == SIGUSR1) {
            on_asked(job);
            continue;
        }
        if (signal < 0) job->orphan = true;
        if (signal < 0 || signal == SIGTERM || signal == SIGKILL) {
            decide(job, SIGNAL_STATUS + (signal < 0 ? SIGHUP : signal));
            go_down(job, signal == SIGKILL ? STEP_KILL : STEP_TERM);
        } else {
            decide(job, SIGNAL_STATUS + signal);
            send_signal(job, signal);
            go_down(job, STEP_GRACE);
        }
        if (signal < 0) return;
    }
}

static void check_output(struct job *job)
{
    const char *target = NULL;
    int error = output_error(job->output, &target);
    if (error == 0 || job->step >= STEP_TERM) return;
    settle(job);
    output_say(job->output, "cannot write to %s: %s; ending the job", target, strerror(error));
    decide(job, error == EPIPE ? SIGNAL_STATUS + SIGPIPE : CLI_FAILED);
    go_down(job, STEP_TERM);
}

static void check_clock(struct job *job)
{
    if (job->suspect.likely != LIKELY_NOT && now_ms() >= job->suspect.until_ms) settle(job);
    if (job->step == STEP_RUN || job->step == STEP_LEAVE || now_ms() < job->deadline_ms) return;
    go_down(job, job->step + 1);
}

static int poll_timeout(const struct job *job)
{
    if (job->step == STEP_RUN) return -1;
    bool unsettled = job->suspect.likely != LIKELY_NOT && !job->decided && job->suspect.until_ms < job->deadline_ms;
    int64_t left = (unsettled ? job->suspect.until_ms : job->deadline_ms) - now_ms();
    return left < 0 ? 0 : left > 3600000 ? 3600000 : (int)left + 1;
}

/* ---- The loop and the end -------------------------------------------------------------------------------------- */

static void wait_for_events(struct job *job, struct pollfd *polls)
{
    enum { OWN = 3 };
    polls[0] = (struct pollfd){job->signals, POLLIN, 0};
    polls[1] = (struct pollfd){job->control, POLLIN, 0};
    polls[2] = (struct pollfd){job->launch->remote && !job->orphan ? STDIN_FILENO : -1, POLLIN, 0};
    size_t count = output_poll(job->output, polls + OWN);
    if (poll(polls, OWN + count, poll_timeout(job)) < 0) return; /* EINTR or ENOMEM: try again */
    if (polls[0].revents != 0) read_signals(job);
    output_serve(job->output, polls + OWN, count);
    if (polls[1].revents != 0) read_reports(job);
    if (polls[2].revents != 0) read_remote(job);
    check_output(job);
    check_clock(job);
}

/* The guard is gone without having said that nothing is left: the launcher does its work. */
static void replace_guard(struct job *job, int wait_status)
{
    char text[96];
    output_say(job->output, "the guard (pid %d) %s; ending the job", (int)job->guard, describe(wait_status, text));
    guard_sweep();
    decide(job, CLI_FAILED);
}

/* Prints what is queued, however long the reader takes, until a signal says not to; after a second one only what it takes at
 * once. */
static void flush_output(struct job *job, struct pollfd *polls)
{
    int timeout_ms = job->signals_seen > 1 ? 0 : -1;
    output_finish(job->output);
    while (output_pending(job->output)) {
        struct signalfd_siginfo info;
        polls[0] = (struct pollfd){job->signals, POLLIN, 0};
        size_t count = output_poll(job->output, polls + 1);
        int found = poll(polls, 1 + count, timeout_ms);
        if (found < 0) continue;
        if (found == 0 || read(job->signals, &info, sizeof info) > 0) return;
        output_serve(job->output, polls + 1, count);
    }
}

static void finish(struct job *job, struct pollfd *polls)
{
    int wait_status = 0;
    if (job->guard_gone) {
        while (waitpid(job->guard, &wait_status, 0) < 0 && errno == EINTR) continue;
        if (!job->empty) replace_guard(job, wait_status);
    }
    flush_output(job, polls);
    const char *target = NULL;
    if (output_error(job->output, &target) != 0) decide(job, CLI_FAILED);
}

int job_serve(const struct run_values *values, const struct launch *launch, struct output *output, pid_t guard,
              int control, int signals)
{
    struct job job = {.values = values,
                      .launch = launch,
                      .output = output,
                      .control = control,
                      .signals = signals,
                      .guard = guard,
                      .ranks_left = launch->size};
    struct pollfd *polls = calloc(3 + output_poll_room(output), sizeof *polls);
    job.ended = calloc((size_t)launch->size, sizeof *job.ended);
    job.begun = calloc((size_t)launch->size, sizeof *job.begun);
    if (polls == NULL || job.ended == NULL || job.begun == NULL) {
        free(polls);
        free(job.ended);
        free(job.begun);
        return cli_fail("run", "out of memory"); /* the guard ends the ranks when this process ends */
    }
    if (launch->hosts != NULL) output_on_report(output, on_remote_report, &job);
    while (!job.guard_gone && job.step != STEP_LEAVE) wait_for_events(&job, polls);
    finish(&job, polls);
    free(polls);
    free(job.ended);
    free(job.begun);
    tutti_board_free(job.board);
    return job.status;
}
