/* SPDX-License-Identifier: Apache-2.0
 *
 * The guard: a process between the launcher and the ranks, which makes sure that nothing of the job is left behind.
 *
 * Invariant: every process of the job is a descendant of the guard as long as the guard lives, because the guard is a
 * subreaper: orphans, also those that changed their session, become its children. The guard ends only when it has no
 * child left. It kills everything when its socket to the launcher closes, which happens however the launcher dies.
 *     launcher dies    the guard sees its socket close, and kills
 *     guard dies       the kernel kills the ranks (PR_SET_PDEATHSIG); the launcher, a subreaper too, kills the rest
 * Only direct children are ever signalled, singly or by their group: their numbers cannot have been given to other
 * processes, since nobody but the guard reaps them. What they leave behind is signalled in the next round. The guard
 * has a session of its own and blocks all signals, so that neither Ctrl-C nor a hangup reaches it.
 */
#include "cli/guard.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- Children, from /proc -------------------------------------------------------------------------------------- */

struct process {
    pid_t pid, parent, group;
    char state;
};

struct children {
    struct process *list;
    size_t count, room;
};

/* Children that this process had before the job, such as those of a shell that then became the launcher. */
static struct children spared;

static bool read_process(pid_t pid, struct process *process)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t length = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (length <= 0) return false;
    text[length] = '\0';
    const char *fields = strrchr(text, ')'); /* the name before it may hold any character */
    int parent = 0, group = 0;
    process->pid = pid;
    if (fields == NULL || sscanf(fields, ") %c %d %d", &process->state, &parent, &group) != 3) return false;
    process->parent = parent;
    process->group = group;
    return true;
}

static bool add_child(struct children *children, const struct process *process)
{
    if (children->count == children->room) {
        size_t room = children->room == 0 ? 64 : 2 * children->room;
        struct process *list = realloc(children->list, room * sizeof *list);
        if (list == NULL) return false; /* the next round finds the child */
        children->list = list;
        children->room = room;
    }
    children->list[children->count++] = *process;
    return true;
}

static bool is_spared(pid_t pid)
{
    for (size_t i = 0; i < spared.count; i++) {
        if (spared.list[i].pid == pid) return true;
    }
    return false;
}

/* Finds the living children of this process, without those spared. Returns false if /proc cannot be read. */
static bool find_children(struct children *children)
{
    pid_t self = getpid();
    children->count = 0;
    DIR *directory = opendir("/proc");
    if (directory == NULL) return false;
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        struct process process;
        if (!isdigit((unsigned char)entry->d_name[0])) continue;
        if (!read_process((pid_t)strtol(entry->d_name, NULL, 10), &process)) continue;
        if (process.parent != self || process.state == 'Z' || is_spared(process.pid)) continue;
        if (!add_child(children, &process)) break;
    }
    (void)closedir(directory);
    return true;
}

/* Returns true if the group of child i is signalled through its leader or an earlier child. */
static bool group_done(const struct children *children, size_t i)
{
    const struct process *list = children->list;
    for (size_t j = 0; j < children->count; j++) {
        if (list[j].pid == list[i].group || (j < i && list[j].group == list[i].group)) return true;
    }
    return false;
}

/* Sends a signal to every child and its group, once. A group of this session or a later one has only our own
 * processes. */
static void signal_children(const struct children *children, int signal)
{
    pid_t own = getpgrp();
    for (size_t i = 0; i < children->count; i++) {
        const struct process *child = &children->list[i];
        bool leader = child->group == child->pid;
        if (child->group <= 1 || child->group == own) {
            (void)kill(child->pid, signal);
        } else if (leader || !group_done(children, i)) {
            (void)kill(-child->group, signal);
        }
    }
}

/* ---- Reaping --------------------------------------------------------------------------------------------------- */

static void tell(struct guard *guard, const struct guard_report *message)
{
    if (send(guard->control, message, sizeof *message, MSG_NOSIGNAL) < 0) guard->launcher_gone = true;
}

void guard_report(struct guard *guard, enum guard_event event, int rank, pid_t pid, int value)
{
    tell(guard, &(struct guard_report){(int32_t)event, rank, (int32_t)pid, value, 0, 0, 0});
}

static void report_end(struct guard *guard, int rank, pid_t pid, int status)
{
    bool follows = guard->board != NULL && tutti_board_follows(guard->board, guard->launch->place.first + rank);
    bool joined = guard->board != NULL && tutti_board_formed(guard->board);
    bool orphan = joining_is_orphan(guard, rank);
    tell(guard, &(struct guard_report){GUARD_ENDED, rank, (int32_t)pid, status, follows, joined, orphan});
}

int guard_size(const struct guard *guard)
{
    tutti_board_about about;
    if (guard->joining == NULL) return guard->launch->place.world;
    tutti_board_describe(guard->board, &about);
    return about.processes_of_job;
}

/* Reports a rank as lost, to those that agree on who is, only when no process of its group can continue. With --hosts
 * the launcher that was typed gives the end its number on all boards. */
static void count_end(struct guard *guard, int rank)
{
    struct end *end = &guard->ends[rank];
    if (!end->runs || guard->board == NULL || kill(-end->pid, 0) == 0 || errno != ESRCH) return;
    end->runs = false;
    if (guard->launch->remote)
        guard_report(guard, GUARD_GONE, rank, end->pid, 0);
    else
        tutti_board_end(guard->board, guard->launch->place.first + rank, 0);
}

void guard_note_end(struct guard *guard, int rank, pid_t pid, int status)
{
    bool again = guard->launch->max_restarts > 0;
    guard->ends[rank] = (struct end){pid, status, again, true};
    count_end(guard, rank);
    report_end(guard, rank, pid, status);
    if (!again) joining_tell_end(guard, rank, status);
}

static void note_end(struct guard *guard, pid_t pid, int status)
{
    for (int rank = 0; rank < guard->launch->most; rank++) {
        if (guard->pids[rank] != pid) continue;
        guard->pids[rank] = 0;
        guard->ranks_running--;
        guard_note_end(guard, rank, pid, status);
        return;
    }
    if (joining_ended(guard, pid, status)) return;
    if (guard->sweeping && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) guard->kills++;
}

/* Returns true if this process has children that are no ranks: those that ended ranks left running. This is quicker
 * than find_children; if the system has no such file, the groups of the ended ranks tell nearly as much. */
static bool has_orphans(const struct guard *guard)
{
    int count = 0, pid;
    FILE *children = fopen("/proc/thread-self/children", "re");
    if (children == NULL) return false;
    while (fscanf(children, "%d", &pid) == 1) count++;
    (void)fclose(children);
    return count > guard->ranks_running + joining_running(guard);
}

/* Tells ranks that are joining which others will not come. A process that a rank left running may still join in its
 * place; when it ends, the guard gets here again. */
static void note_ends(struct guard *guard)
{
    bool looked = false;
    for (int rank = 0; rank < guard->launch->most && guard->board != NULL; rank++) {
        struct end *end = &guard->ends[rank];
        if (end->pid != 0) count_end(guard, rank);
        if (end->pid == 0 || end->held || kill(-end->pid, 0) == 0 || errno != ESRCH) continue;
        if (!looked && has_orphans(guard)) return;
        looked = true;
        tutti_board_note(guard->board, guard->launch->place.first + rank, end->pid, end->status);
        end->pid = 0;
    }
}

/* Reaps children that have ended; `guard` may be NULL. Returns false if there is no child left. */
static bool reap(struct guard *guard)
{
    for (;;) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid == 0) return true;
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) return false;
        if (guard == NULL) continue;
        joining_sync(guard);
        note_end(guard, pid, status);
    }
}

static void sweep(struct guard *guard)
{
    struct children children = {0};
    siginfo_t info;
    while (reap(guard)) {
        if (!find_children(&children)) break; /* the ranks die when the guard ends */
        if (children.count == 0 && spared.count > 0) break;
        signal_children(&children, SIGKILL);
        (void)waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
    }
    free(children.list);
}

void guard_sweep(void)
{
    sweep(NULL);
}

void guard_spare_children(void)
{
    siginfo_t info;
    bool none = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0; /* ECHILD: the usual case, and quick */
    if (!none) (void)find_children(&spared);
}

/* ---- Starting ranks -------------------------------------------------------------------------------------------- */

static void set_variable(const char *name, long value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%ld", value);
    if (setenv(name, text, 1) != 0) _exit(127);
}

/* Sets who the rank is, regardless of how this launcher was itself started. */
static void set_environment(const struct guard *guard, int rank)
{
    const struct launch *launch = guard->launch;
    const struct place *place = &launch->place;
    if (setenv("TUTTI_JOB", launch->job, 1) != 0 || setenv("TUTTI_BOARD", guard->board_name, 1) != 0) _exit(127);
    set_variable("TUTTI_RANK", place->first + rank);
    int size = guard_size(guard), here = guard->joining != NULL ? size : launch->size;
    set_variable("TUTTI_SIZE", size);
    set_variable("RANK", place->first + rank);
    set_variable("WORLD_SIZE", size);
    set_variable("LOCAL_RANK", rank);
    set_variable("LOCAL_WORLD_SIZE", here);
    set_variable("GROUP_RANK", place->node);
    set_variable("GROUP_WORLD_SIZE", place->nodes);
    (void)unsetenv("TUTTI_TICKET");
    (void)unsetenv("TUTTI_LAUNCHER");
    (void)unsetenv("TUTTI_MASTER_ADDR");
    (void)unsetenv("TUTTI_MASTER_PORT");
    if (place->nodes == 1) return;
    if (setenv("TUTTI_MASTER_ADDR", guard->master[0] != '\0' ? guard->master : place->master_addr, 1) != 0) _exit(127);
    set_variable("TUTTI_MASTER_PORT", place->master_port);
}

static void set_descriptors(const struct launch *launch, int rank)
{
    const struct launch_rank *ends = &launch->ranks[rank];
    if (launch->hosts != NULL) {
        if (dup2(hosts_input(launch->hosts, rank), STDIN_FILENO) < 0) _exit(127);
    } else if (rank != 0 || !launch->pass_input) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null < 0 || dup2(null, STDIN_FILENO) < 0) _exit(127);
    }
    if (ends->out >= 0 && dup2(ends->out, STDOUT_FILENO) < 0) _exit(127);
    if (ends->err >= 0 && dup2(ends->err, STDERR_FILENO) < 0) _exit(127);
}

/* Runs in the rank's process, until exec. All other descriptors of the tool are close-on-exec. */
static void become_rank(struct guard *guard, int rank, pid_t guard_pid)
{
    const struct launch *launch = guard->launch;
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard_pid) _exit(127); /* the guard died before the line above */
    char **argv = launch->hosts != NULL ? hosts_command(launch->hosts, rank) : launch->argv;
    if (!joining_become(guard, rank, &argv)) set_descriptors(launch, rank);
    if (launch->hosts == NULL) set_environment(guard, rank);
    (void)setrlimit(RLIMIT_NOFILE, &launch->files);
    bool bound = launch->cores != NULL && rank < launch->size; /* those that have joined have no cores of their own */
    if (bound && sched_setaffinity(0, sizeof launch->cores[rank], &launch->cores[rank]) != 0) {
        guard_report(guard, GUARD_EXEC_FAILED, rank, getpid(), errno);
        _exit(127);
    }
    (void)sigaction(SIGPIPE, &launch->pipe_action, NULL);
    (void)sigprocmask(SIG_SETMASK, &launch->mask, NULL);
    if (launch->hosts != NULL && hosts_link(launch->hosts, rank) >= 0)
        _exit(nodes_pump(hosts_link(launch->hosts, rank)));
    (void)execvp(argv[0], argv);
    guard_report(guard, GUARD_EXEC_FAILED, rank, getpid(), errno);
    _exit(127);
}

static void make_board(struct guard *guard)
{
    const struct launch *launch = guard->launch;
    const struct place *place = &launch->place;
    if (launch->hosts != NULL) {
        if (tutti_board_create(launch->job, 0, place->world, place->world, &guard->gathered, NULL) != TUTTI_OK) return;
        tutti_board_gather(guard->gathered);
        return;
    }
    tutti_status status = launch->grows
                              ? tutti_board_create_to_grow(launch->job, launch->size, launch->most, &guard->board, NULL)
                              : tutti_board_create(launch->job, place->first, launch->size, place->world, &guard->board,
                                                   NULL);
    if (status != TUTTI_OK) return;
    tutti_board_allow(guard->board, launch->max_restarts);
    if (launch->remote) tutti_board_link(guard->board, launch->heals);
    for (int rank = 0; launch->lives != NULL && rank < place->world; rank++)
        for (int life = 0; life < launch->lives[rank]; life++)
            tutti_board_end(guard->board, rank, (unsigned)launch->ends);
    if (launch->generation > 0) tutti_board_move(guard->board, (unsigned)launch->generation, NULL);
    tutti_board_name(guard->board, guard->board_name, sizeof guard->board_name);
}

static bool start_rank(struct guard *guard, int rank)
{
    pid_t self = getpid(), pid = fork();
    if (pid == 0) become_rank(guard, rank, self);
    if (pid < 0) {
        guard_report(guard, GUARD_START_FAILED, rank, 0, errno);
        return false;
    }
    (void)setpgid(pid, pid); /* the rank does the same itself; one of them is first */
    if (guard->launch->hosts != NULL) hosts_close_link(guard->launch->hosts, rank);
    guard->pids[rank] = pid;
    guard->ranks_running++;
    guard_report(guard, GUARD_STARTED, rank, pid, 0);
    return true;
}

static void start_ranks(struct guard *guard)
{
    for (int rank = 0; rank < guard->launch->size && !guard->launcher_gone; rank++)
        if (!start_rank(guard, rank)) return;
}

/* Tells the ranks that processes were restarted, here or on other hosts: those that are joining begin again. */
static void move(struct guard *guard, const struct guard_command *command)
{
    if (command->text[0] != '\0') (void)snprintf(guard->master, sizeof guard->master, "%s", command->text);
    const char *master = command->text[0] != '\0' ? command->text : NULL;
    if (guard->board != NULL) tutti_board_move(guard->board, (unsigned)command->generation, master);
}

/* Restarts a rank. Processes that the old one has left running in its group are killed first: they could still write
 * into memory of the others. */
static void restart_rank(struct guard *guard, const struct guard_command *command)
{
    int rank = command->value;
    struct end *end = &guard->ends[rank];
    if (end->pid == 0 || guard->pids[rank] != 0) return;
    (void)kill(-end->pid, SIGKILL);
    if (guard->board != NULL && end->runs && !guard->launch->remote) /* else it was counted before it was ordered */
        tutti_board_end(guard->board, guard->launch->place.first + rank, 0);
    *end = (struct end){0};
    if (guard->board != NULL) tutti_board_restart(guard->board, guard->launch->place.first + rank);
    move(guard, command);
    start_rank(guard, rank);
}

/* Kills a rank, and what it has left running if it has ended itself. */
static void end_rank(const struct guard *guard, int rank)
{
    if (rank < 0 || rank >= guard->launch->most) return;
    const struct end *end = &guard->ends[rank];
    if (guard->pids[rank] > 0) (void)kill(-guard->pids[rank], SIGKILL);
    if (guard->pids[rank] == 0 && end->pid != 0 && end->runs) (void)kill(-end->pid, SIGKILL);
}

/* Kills ranks for which others say they have waited too long; their end is handled like any other. Late ranks of other
 * hosts are reported to the launcher. */
static void end_late(struct guard *guard)
{
    const struct place *place = &guard->launch->place;
    for (int rank = 0; guard->board != NULL && rank < guard_size(guard); rank++) {
        if (!tutti_board_late(guard->board, rank)) continue;
        bool here = rank >= place->first && rank < place->first + guard->launch->most;
        if (here)
            end_rank(guard, rank - place->first);
        else
            guard_report(guard, GUARD_LATE, rank, 0, 0);
    }
}

/* Asks the launcher that was typed, for ranks of several hosts, who was lost in an epoch: it settles that for all
 * hosts. */
static void pass_question(struct guard *guard)
{
    unsigned asked = guard->board != NULL && guard->launch->remote ? tutti_board_asked(guard->board) : 0;
    if (asked > guard->asked) guard_report(guard, GUARD_ASKED, -1, 0, (int)(asked - 1));
    if (asked > guard->asked) guard->asked = asked;
}

/* Closes the ranks' ends of their output, so that the launcher sees when the ranks close theirs. They are kept if ranks
 * may be restarted. */
static void drop_descriptors(const struct launch *launch)
{
    if (launch->max_restarts > 0) return;
    for (int rank = 0; rank < launch->size; rank++) {
        if (launch->ranks[rank].out >= 0) (void)close(launch->ranks[rank].out);
        if (launch->ranks[rank].err >= 0) (void)close(launch->ranks[rank].err);
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++) (void)dup2(null, fd);
}

/* ---- The guard's life ------------------------------------------------------------------------------------------ */

static void signal_all(struct guard *guard, int signal)
{
    struct children children = {0};
    if (signal == SIGKILL) {
        guard->sweeping = true;
        return;
    }
    if (find_children(&children)) signal_children(&children, signal);
    free(children.list);
}

/* Carries out one command of the launcher; returns false if the launcher is gone. */
static bool obey(struct guard *guard)
{
    struct guard_command command = {0};
    ssize_t length = recv(guard->control, &command, sizeof command, MSG_DONTWAIT);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (length != (ssize_t)sizeof command) return false;
    switch ((enum guard_order)command.order) {
    case GUARD_SIGNAL: signal_all(guard, command.value); break;
    case GUARD_RESTART: restart_rank(guard, &command); break;
    case GUARD_MOVE: move(guard, &command); break;
    case GUARD_NOTE:
        guard->ends[command.value].held = false;
        joining_tell_end(guard, command.value, guard->ends[command.value].status);
        break;
    case GUARD_FINISH: joining_finish(guard); break;
    case GUARD_END: end_rank(guard, command.value); break;
    case GUARD_LEASE: guard->lease_ms = command.until_ms; break;
    case GUARD_COUNT:
        if (guard->board != NULL) tutti_board_end(guard->board, command.value, (unsigned)command.number);
        break;
    case GUARD_SETTLE:
        if (guard->board != NULL) tutti_board_settle(guard->board, (unsigned)command.value, (unsigned)command.number);
        break;
    }
    return true;
}

/* Returns true if the launcher has yet to decide about a rank that has ended. */
static bool awaits_order(const struct guard *guard)
{
    for (int rank = 0; rank < guard->launch->most; rank++)
        if (guard->ends[rank].pid != 0 && guard->ends[rank].held) return true;
    return false;
}

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Kills the ranks once the lease has run out. They are told before, so that they report this as the reason. Returns the
 * time until the next check, as poll takes it. */
static int check_lease(struct guard *guard)
{
    if (guard->lease_ms == 0) return -1;
    int64_t left_ms = guard->lease_ms - now_ms();
    if (left_ms <= 0 && !guard->excluded) {
        guard->excluded = true;
        if (guard->board != NULL) tutti_board_exclude(guard->board);
        guard_report(guard, GUARD_EXCLUDED, -1, 0, 0);
    }
    if (guard->excluded) left_ms += GUARD_EXCLUDED_MS;
    if (left_ms <= 0) guard->sweeping = true;
    return left_ms < 0 ? 0 : (int)left_ms;
}

/* Begins the lease of this host's ranks: the other launcher counts from when this one began, heard here or not. */
static void begin_lease(struct guard *guard)
{
    tutti_options options;
    if (!guard->launch->remote || !guard->launch->heals) return;
    bool known = tutti_options_init(&options, NULL) == TUTTI_OK;
    guard->lease_ms = now_ms() + (known ? options.heartbeat_ms : 2000);
}

static void serve(struct guard *guard, int child_ended)
{
    struct pollfd polls[2 + JOIN_POLLS] = {{child_ended, POLLIN, 0}, {guard->control, POLLIN, 0}};
    struct signalfd_siginfo info;
    while ((reap(guard) || awaits_order(guard)) && !guard->launcher_gone && !guard->sweeping) {
        joining_sync(guard);
        note_ends(guard);
        size_t joining = joining_poll(guard, polls + 2);
        if (poll(polls, 2 + joining, check_lease(guard)) < 0) continue;
        while (read(child_ended, &info, sizeof info) > 0)
            if (info.ssi_signo == SIGUSR1) end_late(guard), pass_question(guard);
        if (polls[1].revents != 0 && !obey(guard)) guard->launcher_gone = true;
        joining_serve(guard, polls + 2, joining);
    }
    guard->sweeping = true;
    sweep(guard);
    guard_report(guard, GUARD_EMPTY, -1, 0, guard->kills);
}

int guard_main(const struct launch *launch, int control)
{
    struct guard guard = {.launch = launch, .control = control};
    sigset_t all, child;
    (void)sigfillset(&all);
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    (void)sigaddset(&child, SIGUSR1); /* from ranks: see end_late */
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)setsid();
    (void)prctl(PR_SET_NAME, "tutti-guard");
    guard.pids = calloc((size_t)launch->most, sizeof *guard.pids);
    guard.ends = calloc((size_t)launch->most, sizeof *guard.ends);
    int child_ended = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (guard.pids == NULL || guard.ends == NULL || child_ended < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        guard_report(&guard, GUARD_START_FAILED, 0, 0, errno);
        return 1;
    }
    make_board(&guard);
    begin_lease(&guard);
    if (launch->grows && (guard.board == NULL || !joining_open(&guard))) {
        guard_report(&guard, GUARD_START_FAILED, 0, 0, guard.board == NULL ? ENOMEM : errno);
        return 1;
    }
    start_ranks(&guard);
    drop_descriptors(launch);
    serve(&guard, child_ended);
    return 0;
}
