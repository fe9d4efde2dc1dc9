/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that join while the job runs (tutti run --join). The guard starts them as its own, so that they are ended,
 * watched and restarted like all others. They wait with a ticket on the board; once the job's ranks have taken one in,
 * it is a rank.
 *
 * Invariant: a waiter's place here has the number of its ticket, and it keeps both until its process has ended or is a
 * rank.
 */
#include "cli/guard.h"
#include "cli/join_talk.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JOINERS_MOST = JOIN_POLLS - 1 };

extern char **environ;

/* The command, environment and output of a process that joins. */
struct program {
    int joiner;  /* the command that has started it: its place in struct joining; -1: gone, or none */
    int index;   /* its number among the processes of that command */
    bool joined; /* it is such a process */
    char *text;  /* the memory that the next two point into */
    char **argv; /* ends with NULL */
    char **envp; /* ends with NULL */
    int folder, out, err;
};

/* A process that waits, or will be started. */
struct waiter {
    bool used;
    pid_t pid; /* 0: not started yet */
    bool ended;
    int status;
    struct program program;
};

struct joining {
    int listener;
    bool finished;
    int joiners[JOINERS_MOST]; /* sockets; -1: free */
    struct waiter *waiters;    /* [most], by ticket */
    struct program *programs;  /* [most], of ranks */
    int running;
};

static void drop_program(struct program *program)
{
    const int fds[] = {program->folder, program->out, program->err};
    for (int i = 0; i < 3 && program->joined; i++)
        if (fds[i] >= 0) (void)close(fds[i]);
    free(program->argv);
    free(program->text);
    *program = (struct program){.joiner = -1, .folder = -1, .out = -1, .err = -1};
}

static void tell(const struct guard *guard, int joiner, const struct join_message *message)
{
    if (joiner >= 0) /* a joiner that is gone is noticed when its socket closes */
        (void)join_send(guard->joining->joiners[joiner], message, NULL);
}

/* ---- Opening ------------------------------------------------------------------------------------------------------- */

static int listen_for_joiners(const struct guard *guard)
{
    struct sockaddr_un address;
    socklen_t bytes = join_address(guard->launch->job, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (bind(fd, (const struct sockaddr *)&address, bytes) == 0 && listen(fd, JOINERS_MOST) == 0) return fd;
    int why = errno;
    (void)close(fd);
    errno = why;
    return -1;
}

bool joining_open(struct guard *guard)
{
    const struct launch *launch = guard->launch;
    if (!launch->grows) return true;
    struct joining *joining = calloc(1, sizeof *joining);
    if (joining == NULL) return false;
    guard->joining = joining;
    for (int i = 0; i < JOINERS_MOST; i++) joining->joiners[i] = -1;
    joining->waiters = calloc((size_t)launch->most, sizeof *joining->waiters);
    joining->programs = calloc((size_t)launch->most, sizeof *joining->programs);
    if (joining->waiters == NULL || joining->programs == NULL) return false;
    for (int i = 0; i < launch->most; i++) {
        drop_program(&joining->waiters[i].program);
        drop_program(&joining->programs[i]);
    }
    joining->listener = listen_for_joiners(guard);
    return joining->listener >= 0;
}

/* ---- Starting ------------------------------------------------------------------------------------------------------ */

static void set_text(const char *name, const char *value)
{
    if (setenv(name, value, 1) != 0) _exit(127);
}

/* Adds the TUTTI_ variables of the job, unless the process that joins has its own. */
static void take_environment(char **envp)
{
    size_t count = 0;
    while (environ[count] != NULL) count++;
    char **before = calloc(count + 1, sizeof *before); /* a copy: setenv gives back the list that it made before */
    if (before == NULL) _exit(127);
    memcpy(before, environ, count * sizeof *before);
    environ = envp;
    for (size_t i = 0; i < count; i++) {
        char name[128];
        size_t length = strcspn(before[i], "=");
        if (strncmp(before[i], "TUTTI_", 6) != 0 || length >= sizeof name || before[i][length] == '\0') continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)length, before[i]);
        if (getenv(name) == NULL) set_text(name, before[i] + length + 1);
    }
    free(before);
}

static void become(const struct program *program)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    take_environment(program->envp);
    bool good = null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(program->out, STDOUT_FILENO) >= 0 &&
                dup2(program->err, STDERR_FILENO) >= 0 && fchdir(program->folder) == 0;
    if (!good) _exit(127);
}

static void become_waiter(const struct guard *guard, const struct program *program, int ticket, pid_t guard_pid)
{
    static const char *const unknown[] = {"TUTTI_RANK",        "TUTTI_SIZE", "TUTTI_LAUNCHER",  "TUTTI_MASTER_ADDR",
                                          "TUTTI_MASTER_PORT", "RANK",       "WORLD_SIZE",      "LOCAL_RANK",
                                          "LOCAL_WORLD_SIZE",  "GROUP_RANK", "GROUP_WORLD_SIZE"};
    char text[32];
    const struct launch *launch = guard->launch;
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard_pid) _exit(127); /* the guard died before the line above */
    become(program);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) (void)unsetenv(unknown[i]);
    (void)snprintf(text, sizeof text, "%d", ticket);
    set_text("TUTTI_JOB", launch->job);
    set_text("TUTTI_BOARD", guard->board_name);
    set_text("TUTTI_TICKET", text);
    (void)setrlimit(RLIMIT_NOFILE, &launch->files);
    (void)sigaction(SIGPIPE, &launch->pipe_action, NULL);
    (void)sigprocmask(SIG_SETMASK, &launch->mask, NULL);
    (void)execvp(program->argv[0], program->argv);
    tell(guard, program->joiner,
         &(struct join_message){.kind = JOIN_FAILED, .index = program->index, .value = errno, .more = JOIN_BY_EXEC});
    _exit(127);
}

static void start(struct guard *guard, int ticket)
{
    struct waiter *waiter = &guard->joining->waiters[ticket];
    struct program *program = &waiter->program;
    pid_t self = getpid(), pid = fork();
    if (pid == 0) become_waiter(guard, program, ticket, self);
    if (pid < 0) {
        tell(guard, program->joiner,
             &(struct join_message){.kind = JOIN_FAILED, .index = program->index, .value = errno});
        return;
    }
    (void)setpgid(pid, pid);
    waiter->pid = pid;
    guard->joining->running++;
    tell(guard, program->joiner,
         &(struct join_message){.kind = JOIN_STARTED, .index = program->index, .pid = (int32_t)pid});
    if (guard->launch->max_restarts > 0) return; /* the process may be restarted */
    (void)close(program->out);
    (void)close(program->err);
    program->out = program->err = -1;
}

bool joining_become(const struct guard *guard, int rank, char ***argv)
{
    const struct program *program = guard->joining == NULL ? NULL : &guard->joining->programs[rank];
    if (program == NULL || !program->joined) return false;
    become(program);
    *argv = program->argv;
    return true;
}

/* ---- What those say who start them --------------------------------------------------------------------------------- */

/* Gives places to all of a joiner's processes, or to none. */
static void welcome(struct guard *guard, int joiner, int count)
{
    struct joining *joining = guard->joining;
    int most = guard->launch->most, made = 0, used = guard_size(guard);
    for (int i = 0; i < most; i++) used += joining->waiters[i].used;
    bool fits = count > 0 && count <= most - used;
    for (int ticket; fits && made < count && (ticket = tutti_board_ticket_create(guard->board)) >= 0; made++) {
        joining->waiters[ticket] = (struct waiter){.used = true};
        drop_program(&joining->waiters[ticket].program);
        joining->waiters[ticket].program.joiner = joiner;
        joining->waiters[ticket].program.index = made;
    }
    struct join_message answer = {
        .kind = made == count && fits ? JOIN_WELCOME : JOIN_FULL, .value = most, .more = used};
    if (joining->finished) answer.kind = JOIN_ENDING;
    tell(guard, joiner, &answer);
}

/* Reads the words and the variables, each of which ends with a zero. */
static bool read_text(struct program *program, int fd, int words, int variables)
{
    struct stat about;
    if (fstat(fd, &about) != 0 || about.st_size < 1 || about.st_size > JOIN_TEXT_MOST || words < 1 || variables < 0 ||
        words > about.st_size || variables > about.st_size)
        return false;
    size_t bytes = (size_t)about.st_size, at = 0;
    program->text = malloc(bytes);
    program->argv = calloc((size_t)words + (size_t)variables + 2, sizeof *program->argv);
    if (program->text == NULL || program->argv == NULL || pread(fd, program->text, bytes, 0) != about.st_size)
        return false;
    program->envp = program->argv + words + 1;
    program->text[bytes - 1] = '\0';
    for (int i = 0; i < words + variables; i++) {
        if (at >= bytes) return false;
        program->argv[i < words ? i : i + 1] = program->text + at;
        at += strlen(program->text + at) + 1;
    }
    return true;
}

/* Variables that must be equal on all processes of a job, which otherwise cannot meet; with the value that means
 * none. */
static const struct {
    const char *name, *none;
} alike[] = {{"TUTTI_TRANSPORT", "auto"}, {"TUTTI_HOST_PROCESSES", "0"}};

/* Returns false if the variables differ from those that the job was given. */
static bool meets(char **envp)
{
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
        const char *said = getenv(alike[i].name);
        size_t length = strlen(alike[i].name);
        for (char **each = envp; *each != NULL; each++) {
            bool is = strncmp(*each, alike[i].name, length) == 0 && (*each)[length] == '=';
            if (is && strcmp(*each + length + 1, said != NULL ? said : alike[i].none) != 0) return false;
        }
    }
    return true;
}

static void start_one(struct guard *guard, int joiner, const struct join_message *message, const int *fds)
{
    struct joining *joining = guard->joining;
    int ticket = 0;
    for (; ticket < guard->launch->most; ticket++) {
        const struct waiter *waiter = &joining->waiters[ticket];
        bool meant = waiter->used && waiter->pid == 0 && waiter->program.joiner == joiner;
        if (meant && waiter->program.index == message->index) break;
    }
    struct join_message failed = {.kind = JOIN_FAILED, .index = message->index, .value = EINVAL};
    bool whole = fds[JOIN_FD_TEXT] >= 0 && fds[JOIN_FD_ERR] >= 0;
    if (ticket == guard->launch->most || !whole) {
        for (int i = 0; i < JOIN_FDS; i++)
            if (fds[i] >= 0) (void)close(fds[i]);
        if (!whole) failed.value = EMFILE; /* the system drops descriptors for which this process has no room */
        tell(guard, joiner, &failed);
        return;
    }
    struct program *program = &joining->waiters[ticket].program;
    program->joined = true;
    program->folder = fds[JOIN_FD_FOLDER];
    program->out = fds[JOIN_FD_OUT];
    program->err = fds[JOIN_FD_ERR];
    bool good = read_text(program, fds[JOIN_FD_TEXT], message->value, message->more);
    (void)close(fds[JOIN_FD_TEXT]);
    if (good && !meets(program->envp)) failed.more = JOIN_BY_TRANSPORT;
    if (good && failed.more == JOIN_BY_ERRNO)
        start(guard, ticket);
    else
        tell(guard, joiner, &failed);
}

/* Sends a signal to each process that was started over this socket, those that are ranks by now included. */
static void signal_all(struct guard *guard, int joiner, int signal)
{
    struct joining *joining = guard->joining;
    for (int i = 0; i < guard->launch->most; i++) {
        const struct waiter *waiter = &joining->waiters[i];
        bool waits = waiter->used && waiter->program.joiner == joiner && waiter->pid > 0 && !waiter->ended;
        if (waits) (void)kill(-waiter->pid, signal);
        if (joining->programs[i].joiner == joiner && guard->pids[i] > 0) (void)kill(-guard->pids[i], signal);
    }
}

/* Frees the place of a process that does not need it. */
static void free_place(struct guard *guard, int ticket)
{
    struct waiter *waiter = &guard->joining->waiters[ticket];
    tutti_board_ticket_free(guard->board, ticket);
    drop_program(&waiter->program);
    waiter->used = false;
}

/* Kills the processes of a joiner that has ended. */
static void on_joiner_gone(struct guard *guard, int joiner)
{
    struct joining *joining = guard->joining;
    signal_all(guard, joiner, SIGKILL);
    for (int i = 0; i < guard->launch->most; i++) {
        struct waiter *waiter = &joining->waiters[i];
        if (waiter->used && waiter->program.joiner == joiner && waiter->pid == 0) free_place(guard, i);
        if (waiter->program.joiner == joiner) waiter->program.joiner = -1;
        if (joining->programs[i].joiner == joiner) joining->programs[i].joiner = -1;
    }
    (void)close(joining->joiners[joiner]);
    joining->joiners[joiner] = -1;
}

static void hear(struct guard *guard, int joiner)
{
    struct join_message message;
    int fds[JOIN_FDS];
    int why = join_receive(guard->joining->joiners[joiner], &message, fds);
    if (why == EAGAIN) return;
    bool starts = why == 0 && message.kind == JOIN_START;
    for (int i = 0; i < JOIN_FDS && !starts; i++)
        if (fds[i] >= 0) (void)close(fds[i]);
    if (why != 0)
        on_joiner_gone(guard, joiner);
    else if (starts)
        start_one(guard, joiner, &message, fds);
    else if (message.kind == JOIN_HELLO)
        welcome(guard, joiner, message.value);
    else if (message.kind == JOIN_SIGNAL && message.value > 0 && message.value < NSIG)
        signal_all(guard, joiner, message.value);
}

static void let_in(struct guard *guard)
{
    struct joining *joining = guard->joining;
    for (int fd; (fd = accept4(joining->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
        int place = 0;
        while (place < JOINERS_MOST && joining->joiners[place] >= 0) place++;
        if (place < JOINERS_MOST && join_is_own(fd))
            joining->joiners[place] = fd;
        else
            (void)close(fd);
    }
}

size_t joining_poll(const struct guard *guard, struct pollfd *polls)
{
    const struct joining *joining = guard->joining;
    size_t count = 0;
    if (joining == NULL) return 0;
    polls[count++] = (struct pollfd){joining->listener, POLLIN, 0};
    for (int i = 0; i < JOINERS_MOST; i++) polls[count++] = (struct pollfd){joining->joiners[i], POLLIN, 0};
    return count;
}

void joining_serve(struct guard *guard, const struct pollfd *polls, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (polls[i].fd >= 0 && polls[i].revents != 0) hear(guard, (int)i - 1);
    if (count > 0 && polls[0].revents != 0) let_in(guard);
}

/* ---- What becomes of them ------------------------------------------------------------------------------------------ */

/* Makes the waiting process this rank. */
static void make_rank(struct guard *guard, int ticket, int rank)
{
    struct joining *joining = guard->joining;
    struct waiter waiter = joining->waiters[ticket];
    joining->waiters[ticket].used = false;
    tutti_board_ticket_free(guard->board, ticket);
    drop_program(&joining->programs[rank]);
    joining->programs[rank] = waiter.program;
    joining->waiters[ticket].program = (struct program){.joiner = -1, .folder = -1, .out = -1, .err = -1};
    guard->pids[rank] = waiter.ended ? 0 : waiter.pid;
    guard->ends[rank] = (struct end){0};
    guard->ranks_running += !waiter.ended;
    joining->running -= !waiter.ended;
    guard_report(guard, GUARD_JOINED, rank, waiter.pid, 0);
    tell(guard, waiter.program.joiner,
         &(struct join_message){.kind = JOIN_TAKEN, .index = waiter.program.index, .value = rank});
    if (waiter.ended) guard_note_end(guard, rank, waiter.pid, waiter.status);
}

/* Tells the joiner about the end of a process that was not a rank yet. */
static void tell_waiter_end(const struct guard *guard, const struct waiter *waiter)
{
    tell(guard, waiter->program.joiner,
         &(struct join_message){
             .kind = JOIN_ENDED, .index = waiter->program.index, .pid = (int32_t)waiter->pid, .value = waiter->status});
}

void joining_sync(struct guard *guard)
{
    for (int i = 0; guard->joining != NULL && i < guard->launch->most; i++) {
        const struct waiter *waiter = &guard->joining->waiters[i];
        int rank;
        if (!waiter->used || waiter->pid == 0) continue;
        tutti_ticket_state state = tutti_board_ticket_look(guard->board, i, &rank);
        if (state == TUTTI_TICKET_LATE && !waiter->ended) (void)kill(-waiter->pid, SIGKILL);
        if (state == TUTTI_TICKET_TAKEN) {
            make_rank(guard, i, rank);
        } else if (waiter->ended && state != TUTTI_TICKET_CALLED) {
            tell_waiter_end(guard, waiter);
            free_place(guard, i);
        }
    }
}

bool joining_ended(struct guard *guard, pid_t pid, int status)
{
    for (int i = 0; guard->joining != NULL && i < guard->launch->most; i++) {
        struct waiter *waiter = &guard->joining->waiters[i];
        if (!waiter->used || waiter->pid != pid || waiter->ended) continue;
        waiter->ended = true;
        waiter->status = status;
        guard->joining->running--;
        tutti_board_ticket_end(guard->board, i);
        joining_sync(guard);
        return true;
    }
    return false;
}

int joining_running(const struct guard *guard)
{
    return guard->joining == NULL ? 0 : guard->joining->running;
}

void joining_tell_end(struct guard *guard, int rank, int status)
{
    if (guard->joining == NULL) return;
    const struct program *program = &guard->joining->programs[rank];
    tell(guard, program->joiner, &(struct join_message){.kind = JOIN_ENDED, .index = program->index, .value = status});
}

bool joining_is_orphan(const struct guard *guard, int rank)
{
    if (guard->joining == NULL) return false;
    const struct program *program = &guard->joining->programs[rank];
    return program->joined && program->joiner < 0;
}

void joining_finish(struct guard *guard)
{
    if (guard->joining == NULL) return;
    guard->joining->finished = true;
    tutti_board_finish(guard->board);
}
