/* SPDX-License-Identifier: Apache-2.0
 *
 * Restarts what has failed. One launcher decides: that of the host, or with --hosts the one that the user started,
 * which the others ask. It counts restarts, and this count, the generation, reaches every host's board in the same
 * order: ranks that join meet those that have seen the same count.
 *
 * A host is lost when its launcher is not heard any more. Invariant: before another host gets its ranks, they have
 * ended. Each launcher reports its time again and again. The answer, which repeats it, extends the lease of its ranks;
 * when the lease runs out, the guard there ends them. Here a host is lost only some time after its lease has run out,
 * counted from the same report. A host that waits ends when it hears nothing for a while; so an order to take ranks is
 * obeyed within that time or never, and the lease begins then.
 */
#include "cli/cli.h"
#include "cli/job.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { BEAT_MS = 200, BLAMED_MS = 2000, MARGIN_MS = GUARD_EXCLUDED_MS + 300, TIME_MASK = 0x3fffffff };

/* Returns true if this launcher has started those of other hosts, and watches them. */
static bool rules_hosts(const struct job *job)
{
    return job->heal.hosts != NULL && job->heal.heartbeat_ms > 0;
}

/* Returns true if another launcher decides for this one. */
static bool is_ruled(const struct job *job)
{
    return job->launch->remote && job->launch->heals;
}

bool heal_open(struct job *job)
{
    struct heal *heal = &job->heal;
    const struct launch *launch = job->launch;
    tutti_options options;
    heal->began_ms = job_now_ms();
    heal->asked = calloc((size_t)launch->most, sizeof *heal->asked);
    if (launch->hosts != NULL) {
        heal->hosts = calloc((size_t)launch->size, sizeof *heal->hosts);
        heal->ranks = calloc((size_t)launch->place.world, sizeof *heal->ranks);
        job->launch->lives = calloc((size_t)launch->place.world, sizeof *launch->lives);
    }
    for (int host = launch->place.nodes; heal->hosts != NULL && host < launch->size; host++)
        heal->hosts[host].waits = true;
    if (launch->heals)
        heal->heartbeat_ms = tutti_options_init(&options, NULL) == TUTTI_OK ? options.heartbeat_ms : 2000;
    if (launch->hosts == NULL) return heal->asked != NULL;
    return heal->asked != NULL && heal->hosts != NULL && heal->ranks != NULL && launch->lives != NULL;
}

void heal_close(struct job *job)
{
    free(job->heal.hosts);
    free(job->heal.ranks);
    free(job->heal.asked);
    if (job->launch->hosts != NULL) free(job->launch->lives);
}

bool heal_is_apart(const struct job *job, int host)
{
    return job->heal.hosts != NULL && (job->heal.hosts[host].waits || job->heal.hosts[host].lost);
}

/* ---- Who is started again -------------------------------------------------------------------------------------- */

/* Returns why nothing can be restarted now, or NULL if it can. */
static const char *reason_against(const struct job *job, bool joined)
{
    if (!joined) return "not all ranks had joined, so there is no world to rebuild";
    return job->restarts < job->values->max_restarts ? NULL : "all restarts are used up (--max-restarts)";
}

static const char *reason_against_rank(const struct job *job, int wait_status, bool follows, bool joined)
{
    if (joined && job_follows(wait_status, follows))
        return "it knew that another rank was lost, and ended; --max-restarts is for programs that call "
               "tutti_comm_rebuild then";
    return reason_against(job, joined);
}

/* Decides if a rank is restarted, counts the restart, and reports the decision. */
static bool decide_rank(struct job *job, const char *host, const struct guard_report *report, int rank)
{
    char text[96];
    const char *against = reason_against_rank(job, report->value, report->follows != 0, report->joined != 0);
    if (report->orphan != 0) against = "tutti run --join, which has started it, has ended";
    const char *on = host == NULL ? "" : " on ", *where = host == NULL ? "" : host;
    (void)job_describe(report->value, text);
    if (against != NULL) {
        output_say(job->output, "rank %d%s%s (pid %d) %s and is not started again: %s", rank, on, where, report->pid,
                   text, against);
        return false;
    }
    job->restarts++;
    output_say(job->output, "rank %d%s%s (pid %d) %s and is started again (restart %d of %lld)", rank, on, where,
               report->pid, text, job->restarts, (long long)job->values->max_restarts);
    return true;
}

static void send_order(struct job *job, enum guard_order order, int value, int generation, const char *master)
{
    struct guard_command command = {.order = (int32_t)order, .value = value, .generation = generation};
    (void)snprintf(command.text, sizeof command.text, "%s", master);
    job_send_order(job, &command);
}

static void send_number(struct job *job, enum guard_order order, int value, int number)
{
    job_send_order(job, &(struct guard_command){.order = (int32_t)order, .value = value, .number = number});
}

/* Asks the launcher that decides about a failed rank. */
static void ask(struct job *job, const struct guard_report *report)
{
    struct remote_report failed = {.event = REMOTE_FAILED,
                                   .rank = job->launch->place.first + report->rank,
                                   .pid = report->pid,
                                   .value = report->value,
                                   .follows = report->follows,
                                   .joined = report->joined};
    job->heal.asked[report->rank] = *report;
    output_write_report(job->output, &failed);
}

bool heal_takes(struct job *job, const struct guard_report *report)
{
    if (job->launch->max_restarts == 0) return false;
    bool failed = job->step == STEP_RUN && report->value != 0;
    if (failed && is_ruled(job)) {
        ask(job, report);
        return true;
    }
    bool again = failed && decide_rank(job, NULL, report, job->launch->place.first + report->rank);
    send_order(job, again ? GUARD_RESTART : GUARD_NOTE, report->rank, job->restarts, "");
    return again;
}

/* ---- What is told from host to host ---------------------------------------------------------------------------- */

void heal_on_late(struct job *job, int rank)
{
    struct remote_report late = {.event = REMOTE_LATE, .rank = rank};
    if (is_ruled(job)) output_write_report(job->output, &late);
}

void heal_on_gone(struct job *job, const struct guard_report *report)
{
    struct remote_report gone = {
        .event = REMOTE_GONE, .rank = job->launch->place.first + report->rank, .pid = report->pid};
    output_write_report(job->output, &gone);
}

void heal_on_asked(struct job *job, int epoch)
{
    struct remote_report asked = {.event = REMOTE_ASKED, .value = epoch};
    output_write_report(job->output, &asked);
}

void heal_on_excluded(struct job *job)
{
    output_say(
        job->output,
        "this host has not heard the job's launcher for %lld ms, and the job may go on without it: its ranks are ended",
        (long long)job->heal.heartbeat_ms);
    job_fail(job, CLI_FAILED);
}

void heal_on_empty(struct job *job)
{
    struct remote_report none = {.event = REMOTE_EMPTY};
    if (is_ruled(job)) output_write_report(job->output, &none);
}

/* Extends the lease: the launcher that decides has heard this one's time `heard`, and until a while after it considers
 * this host alive. */
static void renew_lease(struct job *job, int heard)
{
    int64_t now = job_now_ms(), age = (now - job->heal.began_ms - heard) & TIME_MASK;
    job_send_order(job, &(struct guard_command){.order = GUARD_LEASE, .until_ms = now - age + job->heal.heartbeat_ms});
}

void heal_obey(struct job *job, const struct remote_order *order)
{
    int rank = order->rank - job->launch->place.first;
    bool mine = rank >= 0 && rank < job->launch->size;
    if (order->kind == ORDER_GONE_AS)
        send_number(job, GUARD_COUNT, order->rank, order->value);
    else if (order->kind == ORDER_SETTLED)
        send_number(job, GUARD_SETTLE, order->rank, order->value);
    if (!is_ruled(job)) return;
    switch (order->kind) {
    case ORDER_ALIVE: renew_lease(job, order->value); break;
    case ORDER_MOVE: send_order(job, GUARD_MOVE, 0, order->value, order->text); break;
    case ORDER_RESTART:
        if (mine) send_order(job, GUARD_RESTART, rank, order->value, order->text);
        break;
    case ORDER_LATE:
        if (mine) send_order(job, GUARD_END, rank, 0, "");
        break;
    case ORDER_NOTE:
        if (!mine || job->heal.asked[rank].pid == 0) break;
        send_order(job, GUARD_NOTE, rank, 0, "");
        job_take_end(job, &job->heal.asked[rank]);
        break;
    default: break;
    }
}

/* Returns when the ranks of a host have ended, if it is not heard any more. */
static int64_t ended_by_ms(const struct job *job, int host)
{
    const struct job_host *of = &job->heal.hosts[host];
    int64_t limit_ms = of->heard_ms + job->heal.heartbeat_ms + MARGIN_MS;
    return of->unheard ? limit_ms + job->heal.heartbeat_ms + SPARE_MORE_MS : limit_ms;
}

/* ---- Hosts ----------------------------------------------------------------------------------------------------- */

/* Sends an order to every host that has ranks. */
static void tell_all_hosts(struct job *job, enum remote_order_kind kind, int rank, int value)
{
    const struct remote_order order = {.kind = kind, .rank = rank, .value = value};
    for (int host = 0; host < job->launch->size; host++)
        if (!heal_is_apart(job, host)) hosts_order(job->launch->hosts, host, &order);
}

/* Counts the end of a process of which nothing runs any more: it gets the next number, on all hosts. */
static void count_end(struct job *job, int rank, int pid)
{
    struct launch *launch = job->launch;
    struct ended_rank *ended = &job->heal.ranks[rank];
    if (ended->gone || (pid != 0 && ended->pid == pid)) return; /* known already, and perhaps restarted since */
    ended->gone = true;
    ended->pid = pid;
    launch->ends++;
    launch->lives[rank]++;
    tell_all_hosts(job, ORDER_GONE_AS, rank, launch->ends);
}

static void on_gone(struct job *job, const struct remote_report *report)
{
    if (report->rank >= 0 && report->rank < job->launch->place.world) count_end(job, report->rank, report->pid);
}

/* Settles who was lost in an epoch when the first host asks: for all hosts, the ranks whose ends are known by now. */
static void on_asked(struct job *job, int epoch)
{
    if (epoch < 0 || (unsigned)epoch < job->heal.settled) return;
    job->heal.settled = (unsigned)epoch + 1;
    tell_all_hosts(job, ORDER_SETTLED, epoch, job->launch->ends);
}

/* Tells every host of a restart: the one that has the rank to restart it, the others to move. */
static void tell_restart(struct job *job, int with, int rank, const char *master)
{
    struct hosts *hosts = job->launch->hosts;
    for (int host = 0; host < job->launch->size; host++) {
        struct remote_order order = {
            .kind = host == with ? ORDER_RESTART : ORDER_MOVE, .rank = rank, .value = job->restarts};
        (void)snprintf(order.text, sizeof order.text, "%s", master);
        if (!heal_is_apart(job, host)) hosts_order(hosts, host, &order);
    }
}

static void on_failed(struct job *job, int host, const struct remote_report *report)
{
    const struct guard_report end = {.rank = report->rank,
                                     .pid = report->pid,
                                     .value = report->value,
                                     .follows = report->follows,
                                     .joined = job->heal.formed};
    const char *name = hosts_name(job->launch->hosts, host);
    if (report->rank < 0 || report->rank >= job->launch->place.world) return;
    if (job->step == STEP_RUN && decide_rank(job, name, &end, report->rank)) {
        count_end(job, report->rank, report->pid); /* its host ends what it has left running before it obeys */
        tell_restart(job, host, report->rank, "");
        job->heal.ranks[report->rank].gone = false;
    } else {
        hosts_order(job->launch->hosts, host, &(struct remote_order){.kind = ORDER_NOTE, .rank = report->rank});
    }
}

/* Orders the end of a rank for which others have waited too long. If two hosts do not hear each other, and both are
 * heard here, each blames the other: the one that is blamed first is not believed for a while. */
static void on_late(struct job *job, int from, int rank)
{
    const struct hosts *hosts = job->launch->hosts;
    int64_t blamed_ms = job->heal.hosts[from].blamed_ms;
    bool is_blamed = blamed_ms != 0 && job_now_ms() - blamed_ms < BLAMED_MS;
    for (int host = 0; host < job->launch->size; host++) {
        int before = rank - hosts_first(hosts, host);
        if (heal_is_apart(job, host) || before < 0 || before >= hosts_slots(hosts, host)) continue;
        if (is_blamed && host != from) return;
        if (host != from) job->heal.hosts[host].blamed_ms = job_now_ms();
        hosts_order(job->launch->hosts, host, &(struct remote_order){.kind = ORDER_LATE, .rank = rank});
    }
}

void heal_hear(struct job *job, int host, const struct remote_report *report)
{
    struct job_host *of = &job->heal.hosts[host];
    if (of->lost && !(of->dropped && report->event == REMOTE_GONE)) return;
    of->heard_ms = job_now_ms();
    of->unheard = false;
    job->heal.formed |= report->joined != 0;
    switch (report->event) {
    case REMOTE_STARTED: of->begun = true; break;
    case REMOTE_FAILED: on_failed(job, host, report); break;
    case REMOTE_LATE: on_late(job, host, report->rank); break;
    case REMOTE_GONE: on_gone(job, report); break;
    case REMOTE_ASKED: on_asked(job, report->value); break;
    case REMOTE_ALIVE: of->beat = report->value; break;
    case REMOTE_EMPTY: of->empty = true; break;
    case REMOTE_ENDED:
    case REMOTE_ROW:
    case REMOTE_EXIT: break;
    }
}

static int find_spare(const struct job *job)
{
    for (int host = 0; host < job->launch->size; host++)
        if (job->heal.hosts[host].waits && job->heal.hosts[host].begun && !job->heal.hosts[host].lost) return host;
    return -1;
}

/* Gives the ranks of a lost host to a spare one, and tells all others to move. Returns false if no spare host can be
 * told. */
static bool replace(struct job *job, int host)
{
    const char *before = job->launch->place.master_addr;
    int holder = host; /* the host that has these ranks, or should have taken them */
    for (int spare; (spare = find_spare(job)) >= 0;) {
        struct job_host *of = &job->heal.hosts[spare];
        if (!hosts_replace(job->values, job->launch, holder, spare, job->restarts)) {
            of->lost = true;
            holder = spare;
            continue;
        }
        const int first = hosts_first(job->launch->hosts, spare), count = hosts_slots(job->launch->hosts, spare);
        for (int rank = first; rank < first + count; rank++) job->heal.ranks[rank].gone = false;
        bool moved = job->launch->place.master_addr != before;
        tell_restart(job, -1, 0, moved ? job->launch->place.master_addr : "");
        of->waits = false;
        of->unheard = true;
        of->beat = 0;
        of->heard_ms = job_now_ms();
        output_say(job->output, "the ranks of %s are started again on %s (restart %d of %lld)",
                   hosts_name(job->launch->hosts, host), hosts_name(job->launch->hosts, spare), job->restarts,
                   (long long)job->values->max_restarts);
        return true;
    }
    return false;
}

/* Returns true if the job continues without a lost host: other hosts are left, and --keep-going was given. */
static bool goes_on_without(struct job *job, int host)
{
    if (!job->values->keep_going || job->ranks_left < 2 || job->step != STEP_RUN) return false;
    job->heal.hosts[host].lost = true;
    job->ranks_left--;
    return true;
}

bool heal_drops(struct job *job, int host, const struct remote_report *report)
{
    char text[96];
    if (!rules_hosts(job) || !WIFSIGNALED(report->value) || !goes_on_without(job, host)) return false;
    job->heal.hosts[host].dropped = true;
    output_say(job->output, "rank %d on %s (pid %d) %s, the last one there; the others go on", report->rank,
               hosts_name(job->launch->hosts, host), report->pid, job_describe(report->value, text));
    return true;
}

/* Gives up a host whose ranks have ended, by its lease or its own report. */
static void lose(struct job *job, int host)
{
    const int first = hosts_first(job->launch->hosts, host), end = first + hosts_slots(job->launch->hosts, host);
    const char *against = reason_against(job, job->heal.formed);
    if (against == NULL && find_spare(job) < 0) against = "no other host waits (--spare)";
    job->heal.hosts[host].lost = true;
    hosts_close_control(job->launch->hosts, host);
    send_order(job, GUARD_END, host, 0, "");
    for (int rank = first; rank < end; rank++) count_end(job, rank, 0);
    if (against == NULL) {
        job->restarts++;
        if (replace(job, host)) return;
        against = "no other host can be told to";
    }
    if (job->heal.formed && goes_on_without(job, host)) {
        output_say(job->output, "the ranks of %s are lost; the others go on", hosts_name(job->launch->hosts, host));
        return;
    }
    output_say(job->output, "the ranks of %s are not started again: %s", hosts_name(job->launch->hosts, host), against);
    job->ranks_left--;
    job_fail(job, CLI_FAILED);
}

bool heal_host_ended(struct job *job, int host, int wait_status)
{
    struct job_host *of = &job->heal.hosts[host];
    char text[96];
    if (!rules_hosts(job)) return false;
    bool refused = !job->heal.formed && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == CLI_USAGE;
    bool ends = job->step != STEP_RUN, failed = !ends && of->begun && wait_status != 0 && !refused;
    if (!heal_is_apart(job, host) && (!failed || job->suspect.likely != LIKELY_NOT)) return false;
    job->ended[host] = true;
    if (of->lost || ends) return true;
    output_say(job->output, "the launcher on %s %s; %s", hosts_name(job->launch->hosts, host),
               job_describe_host(job, host, wait_status, text),
               of->waits ? "it does not wait any more" : "the host is lost");
    if (of->waits)
        of->lost = true;
    else
        of->gone_ms = of->empty ? job_now_ms() : ended_by_ms(job, host);
    return true;
}

static void let_go(struct hosts *hosts, int host)
{
    hosts_order(hosts, host, &(struct remote_order){.kind = ORDER_OVER, .rank = -1});
    hosts_close_control(hosts, host);
}

void heal_let_go(struct job *job)
{
    for (int host = 0; job->heal.hosts != NULL && host < job->launch->size; host++)
        if (job->heal.hosts[host].waits) let_go(job->launch->hosts, host);
}

void heal_finish(struct job *job)
{
    for (int host = 0; rules_hosts(job) && host < job->launch->size; host++)
        if (job->heal.hosts[host].gone_ms != 0 && !job->heal.hosts[host].lost && job->step == STEP_RUN) lose(job, host);
}

/* ---- Time ------------------------------------------------------------------------------------------------------ */

static void check_host(struct job *job, int host)
{
    struct job_host *of = &job->heal.hosts[host];
    int64_t now = job_now_ms();
    char title[96];
    if (!of->begun || heal_is_apart(job, host) || job->step != STEP_RUN) return;
    if (now < (of->gone_ms != 0 ? of->gone_ms : ended_by_ms(job, host))) return;
    if (of->gone_ms == 0)
        output_say(job->output, "%s has been silent for %lld ms and is lost",
                   hosts_title(job->launch->hosts, host, title), (long long)(now - of->heard_ms));
    lose(job, host);
}

static void beat(struct job *job)
{
    job->heal.beat_ms = job_now_ms() + BEAT_MS;
    if (is_ruled(job)) {
        bool formed = job->board != NULL && tutti_board_formed(job->board);
        struct remote_report alive = {
            .event = REMOTE_ALIVE, .value = (int)((job_now_ms() - job->heal.began_ms) & TIME_MASK), .joined = formed};
        output_write_report(job->output, &alive);
    }
    for (int host = 0; rules_hosts(job) && host < job->launch->size; host++) {
        struct remote_order alive = {.kind = ORDER_ALIVE, .value = job->heal.hosts[host].beat};
        if (job->heal.hosts[host].begun && !job->heal.hosts[host].lost) hosts_order(job->launch->hosts, host, &alive);
    }
}

void heal_check_clock(struct job *job)
{
    if (job->heal.heartbeat_ms == 0 || job_now_ms() < job->heal.beat_ms) return;
    beat(job);
    for (int host = 0; rules_hosts(job) && host < job->launch->size; host++) check_host(job, host);
}

int64_t heal_next_ms(const struct job *job)
{
    return job->heal.heartbeat_ms == 0 ? INT64_MAX : job->heal.beat_ms;
}
