/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher's event loop: reports of the guard, signals, output, and one clock. A job that must end goes through the
 * same steps, whatever the cause, with --grace-ms between them:
 *     GRACE  the others may notice by themselves and report (on a signal: they are sent that signal)
 *     TERM   SIGTERM to what is left
 *     KILL   SIGKILL, until the guard finds nothing left
 *     LEAVE  something cannot be killed (a driver that does not return): say so, and leave it to the guard
 */
#include "cli/job.h"
#include "cli/cli.h"
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

int64_t job_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- Words ----------------------------------------------------------------------------------------------------- */

/* "exited with status 3" or "was killed by signal 9 (Killed)" */
const char *job_describe(int wait_status, char text[96])
{
    if (WIFSIGNALED(wait_status)) {
        int signal = WTERMSIG(wait_status);
        (void)snprintf(text, 96, "was killed by signal %d (%s)", signal, strsignal(signal));
    } else {
        (void)snprintf(text, 96, "exited with status %d", WEXITSTATUS(wait_status));
    }
    return text;
}

const char *job_describe_host(const struct job *job, int host, int wait_status, char text[96])
{
    enum { LOST_STATUS = 255 };
    bool lost = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == LOST_STATUS;
    if (!lost || !hosts_is_linked(job->launch->hosts, host)) return job_describe(wait_status, text);
    (void)snprintf(text, 96, "has ended, or its connection was lost");
    return text;
}

/* Returns "; rank 1 (pid 4711) ended with status 0" if all failed ranks point to another one; otherwise "". */
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

/* Lists those that have not ended: "rank 2", "ranks 0, 1, 3", "hosts a, b", "ranks 0, 1, … and 5 more". */
static const char *list_left(const struct job *job, char *text, size_t bytes)
{
    const struct hosts *hosts = job->launch->hosts;
    const char *noun = hosts == NULL ? "rank" : hosts_are_nodes(hosts) ? "launcher" : "host";
    int used = snprintf(text, bytes, "%s%s", noun, job->ranks_left == 1 ? "" : "s");
    int listed = 0;
    for (int i = 0; i < job->launch->most && listed < LISTED_RANKS; i++) {
        char name[32];
        if (job->ended[i] || heal_is_apart(job, i)) continue;
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

/* Attaches to the board, which the guard has made before it starts the first rank. */
static void open_board(struct job *job)
{
    if (job->launch->hosts != NULL) rows_open(job);
    if (job->board != NULL || job->launch->hosts != NULL) return;
    (void)tutti_board_attach((int)job->guard, &job->board, NULL); /* without a board nothing is known of the ranks */
}

/* Shows the table of ranks on SIGUSR1. Launchers on other hosts are asked to show theirs. */
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
        struct remote_report report = {.event = REMOTE_ENDED,
                                       .rank = first->rank,
                                       .pid = first->pid,
                                       .value = first->wait_status,
                                       .follows = follows};
        output_write_report(job->output, &report);
    }
    if (!job->launch->remote || job->launch->link != 0) {
        output_say(job->output, "rank %d%s%s (pid %d) %s%s", first->rank, first->host != NULL ? " on " : "",
                   first->host != NULL ? first->host : "", first->pid, job_describe(first->wait_status, text),
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

void job_send_order(struct job *job, const struct guard_command *command)
{
    (void)send(job->control, command, sizeof *command, MSG_NOSIGNAL); /* a guard that is gone is noticed by its EOF */
}

static void send_order(struct job *job, enum guard_order order, int value)
{
    job_send_order(job, &(struct guard_command){.order = (int32_t)order, .value = value});
}

/* Sends a signal to the ranks through the guard. Ranks on other hosts get it from their launchers, which need their
 * remote shells for that. */
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

/* Goes to `step`, unless the job is already there or further. */
static void go_down(struct job *job, enum step step)
{
    if (step <= job->step) return;
    if (step >= STEP_TERM) settle(job); /* ranks that end from now on were killed by the launcher */
    heal_let_go(job);
    if (job->launch->grows) send_order(job, GUARD_FINISH, 0);
    job->step = step;
    job->deadline_ms = job_now_ms() + (step == STEP_KILL ? UNKILLABLE_MS : job->values->grace_ms);
    say_step(job);
    if (step == STEP_TERM) send_signal(job, SIGTERM);
    if (step == STEP_KILL) send_signal(job, SIGKILL);
    if (step == STEP_LEAVE) {
        send_order(job, GUARD_SIGNAL, SIGKILL); /* with --hosts, the shells have had their time */
        decide(job, CLI_FAILED);
    }
}

void job_fail(struct job *job, int status)
{
    decide(job, status);
    go_down(job, STEP_GRACE);
}

/* ---- Events ---------------------------------------------------------------------------------------------------- */

static enum likely how_likely(int wait_status, bool follows)
{
    if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) != SIGABRT) return LIKELY_SURELY;
    return follows ? LIKELY_LATER : LIKELY_FIRST;
}

bool job_follows(int wait_status, bool follows)
{
    return how_likely(wait_status, follows) == LIKELY_LATER;
}

/* Handles a failed rank of this host or another one. While all failed ranks point to another one, the launcher waits
 * for that one. */
static void on_rank_failed(struct job *job, const char *host, int rank, int pid, int wait_status, bool follows)
{
    enum likely likely = how_likely(wait_status, follows);
    if (job->decided || likely <= job->suspect.likely) return;
    int64_t until_ms = likely == LIKELY_LATER ? INT64_MAX : job_now_ms() + SUSPECT_MS;
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

/* Handles a remote shell that failed, with no failed rank reported from its host. If the launcher there has not
 * reported that it began, the shell itself failed, as when there is no such host; whatever its status, no rank has
 * run. */
static void on_host_failed(struct job *job, int host, int wait_status)
{
    char text[96], title[96];
    const struct hosts *hosts = job->launch->hosts;
    const bool linked = hosts_is_linked(hosts, host);
    if (job->decided || job->suspect.likely != LIKELY_NOT) return;
    if (job->heal.hosts[host].begun) {
        output_say(job->output, "the launcher on %s %s", hosts_name(hosts, host),
                   job_describe_host(job, host, wait_status, text));
        decide(job, exit_status(wait_status));
    } else {
        output_say(job->output, "%s: %s %s before the job began there%s", hosts_title(hosts, host, title),
                   linked ? "its launcher" : hosts_command(hosts, host)[0],
                   job_describe_host(job, host, wait_status, text), linked ? "" : host_hint(wait_status));
        decide(job, CLI_USAGE);
    }
    go_down(job, STEP_GRACE);
}

static void on_remote_report(void *context, int host, const struct remote_report *report)
{
    struct job *job = context;
    heal_hear(job, host, report);
    if (report->event == REMOTE_ROW && !job->heal.hosts[host].lost) rows_take(job, report->text);
    if (report->event != REMOTE_ENDED || report->value == 0 || heal_is_apart(job, host)) return;
    if (heal_drops(job, host, report)) return;
    on_rank_failed(job, hosts_name(job->launch->hosts, host), report->rank, report->pid, report->value,
                   report->follows != 0);
}

/* Returns true if the job continues without a rank that ended like this: others run, and nothing has ended the job
 * yet. */
static bool goes_on_without(struct job *job, const struct guard_report *report)
{
    char text[96];
    bool survived = job->values->keep_going && WIFSIGNALED(report->value) && job->ranks_left > 0;
    if (!survived || job->step != STEP_RUN) return false;
    const char *host = job->launch->place.host;
    output_say(job->output, "rank %d%s%s (pid %d) %s; the others go on", job->launch->place.first + report->rank,
               host == NULL ? "" : " on ", host == NULL ? "" : host, report->pid, job_describe(report->value, text));
    return true;
}

void job_take_end(struct job *job, const struct guard_report *report)
{
    const struct place *place = &job->launch->place;
    const struct job_host *host = job->heal.hosts == NULL ? NULL : &job->heal.hosts[report->rank];
    job->ended[report->rank] = true;
    if (host == NULL || !heal_is_apart(job, report->rank)) job->ranks_left--;
    if (host == NULL && goes_on_without(job, report)) return;
    if (host != NULL && (report->value != 0 || !host->begun))
        on_host_failed(job, report->rank, report->value);
    else if (report->value != 0)
        on_rank_failed(job, place->host, place->first + report->rank, report->pid, report->value, report->follows != 0);
    else if (host == NULL && job->quiet.pid == 0)
        job->quiet = (struct quiet){place->first + report->rank, report->pid};
    if (job->ranks_left > 0) return;
    settle(job);
    go_down(job, STEP_GRACE); /* for processes that ranks left running */
}

static void on_ended(struct job *job, const struct guard_report *report)
{
    output_drain_rank(job->output, report->rank);
    if (job->heal.hosts != NULL && heal_host_ended(job, report->rank, report->value)) return;
    if (job->heal.hosts == NULL && heal_takes(job, report)) return;
    job_take_end(job, report);
}

/* Handles a process that --join started. */
static void on_joined(struct job *job, const struct guard_report *report)
{
    job->ended[report->rank] = false;
    job->ranks_left++;
    output_say(job->output, "rank %d (pid %d) has joined", report->rank, report->pid);
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
    if (report->event != GUARD_ENDED && report->event != GUARD_JOINED && report->event != GUARD_GONE &&
        report->event != GUARD_ASKED)
        settle(job);
    switch ((enum guard_event)report->event) {
    case GUARD_STARTED: open_board(job); break;
    case GUARD_START_FAILED: on_start_failed(job, report); break;
    case GUARD_EXEC_FAILED: on_exec_failed(job, report); break;
    case GUARD_ENDED: on_ended(job, report); break;
    case GUARD_JOINED: on_joined(job, report); break;
    case GUARD_LATE: heal_on_late(job, report->rank); break;
    case GUARD_EXCLUDED: heal_on_excluded(job); break;
    case GUARD_GONE: heal_on_gone(job, report); break;
    case GUARD_ASKED: heal_on_asked(job, report->value); break;
    case GUARD_EMPTY:
        job->empty = true;
        heal_on_empty(job);
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
        /* a guard that ends before it has read an order resets the connection; its earlier reports are still there */
        if (length < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
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

/* Handles a signal from the launcher that started this one. */
static void on_remote_signal(struct job *job, int signal)
{
    if (signal == SIGUSR1) {
        on_asked(job);
        return;
    }
    decide(job, SIGNAL_STATUS + signal);
    if (signal == SIGTERM || signal == SIGKILL) {
        go_down(job, signal == SIGKILL ? STEP_KILL : STEP_TERM);
    } else {
        send_signal(job, signal);
        go_down(job, STEP_GRACE);
    }
}

/* Ends the job when the launcher that started this one is gone; at once if its ranks may continue elsewhere. */
static void on_orphaned(struct job *job)
{
    job->orphan = true;
    decide(job, SIGNAL_STATUS + SIGHUP);
    go_down(job, job->launch->heals ? STEP_KILL : STEP_TERM);
}

static void read_remote(struct job *job)
{
    for (;;) {
        struct remote_order order = remote_next_order();
        switch (order.kind) {
        case ORDER_NONE: return;
        case ORDER_GONE: on_orphaned(job); return;
        case ORDER_SIGNAL:
            if (order.value > 0 && order.value < NSIG) on_remote_signal(job, order.value);
            break;
        case ORDER_WATCH: rows_watch(job); break;
        default: heal_obey(job, &order); break;
        }
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
    heal_check_clock(job);
    if (job->suspect.likely != LIKELY_NOT && job_now_ms() >= job->suspect.until_ms) settle(job);
    if (job->step == STEP_RUN || job->step == STEP_LEAVE || job_now_ms() < job->deadline_ms) return;
    go_down(job, job->step + 1);
}

static int poll_timeout(struct job *job)
{
    int64_t rows_ms = rows_step(job);
    int64_t next_ms = job->step == STEP_RUN ? INT64_MAX : job->deadline_ms, heals_ms = heal_next_ms(job);
    bool unsettled = job->step != STEP_RUN && job->suspect.likely != LIKELY_NOT && !job->decided;
    if (unsettled && job->suspect.until_ms < next_ms) next_ms = job->suspect.until_ms;
    if (heals_ms < next_ms) next_ms = heals_ms;
    if (rows_ms < next_ms) next_ms = rows_ms;
    if (next_ms == INT64_MAX) return -1;
    int64_t left = next_ms - job_now_ms();
    return left < 0 ? 0 : left > 3600000 ? 3600000 : (int)left + 1;
}

/* ---- The loop and the end -------------------------------------------------------------------------------------- */

static void wait_for_events(struct job *job, struct pollfd *polls)
{
    enum { OWN = 3 };
    polls[0] = (struct pollfd){job->signals, POLLIN, 0};
    polls[1] = (struct pollfd){job->control, POLLIN, 0};
    polls[2] = (struct pollfd){job->launch->remote && !job->orphan ? remote_fd() : -1, POLLIN, 0};
    size_t count = output_poll(job->output, polls + OWN);
    if (poll(polls, OWN + count, poll_timeout(job)) < 0) return; /* EINTR or ENOMEM: try again */
    if (polls[0].revents != 0) read_signals(job);
    output_serve(job->output, polls + OWN, count);
    if (polls[1].revents != 0) read_reports(job);
    if (polls[2].revents != 0) read_remote(job);
    check_output(job);
    check_clock(job);
}

/* Takes over from a guard that is gone without having reported that nothing is left. */
static void replace_guard(struct job *job, int wait_status)
{
    char text[96];
    output_say(job->output, "the guard (pid %d) %s; ending the job", (int)job->guard, job_describe(wait_status, text));
    guard_sweep();
    decide(job, CLI_FAILED);
}

/* Prints everything queued, however long the reader takes, until a signal; after a second signal only what the reader
 * takes at once. */
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

int job_serve(const struct run_values *values, struct launch *launch, struct output *output, pid_t guard, int control,
              int signals)
{
    struct job job = {.values = values,
                      .launch = launch,
                      .output = output,
                      .control = control,
                      .signals = signals,
                      .guard = guard,
                      .ranks_left = launch->hosts != NULL ? launch->place.nodes : launch->size};
    struct pollfd *polls = calloc(3 + output_poll_room(output), sizeof *polls);
    job.ended = calloc((size_t)launch->most, sizeof *job.ended);
    if (polls == NULL || job.ended == NULL || !heal_open(&job)) {
        free(polls);
        free(job.ended);
        heal_close(&job);
        return cli_fail("run", "out of memory"); /* the guard ends the ranks when this process ends */
    }
    for (int rank = launch->size; rank < launch->most; rank++) job.ended[rank] = true;
    if (launch->hosts != NULL) output_on_report(output, on_remote_report, &job);
    while (!job.guard_gone && job.step != STEP_LEAVE) wait_for_events(&job, polls);
    heal_finish(&job);
    finish(&job, polls);
    free(polls);
    free(job.ended);
    heal_close(&job);
    tutti_board_free(job.board);
    tutti_board_free(job.rows.gathered);
    return job.status;
}
