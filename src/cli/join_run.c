/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti run --join: asks the guard of a running job to start processes, prints their output, and waits for their end.
 * The processes belong to that job; this command is only their terminal.
 */
#include "cli/cli.h"
#include "cli/job.h"
#include "cli/job_find.h"
#include "cli/join_talk.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MS = 10000, SIGNAL_STATUS = 128 };

extern char **environ;

struct client {
    const struct launch *launch;
    struct output *output;
    const tutti_board_about *job;
    int socket, signals;
    int left;      /* processes that have not ended */
    int *ranks;    /* [size] ranks of those that were taken in; -1: not taken in */
    bool *ended;   /* [size] */
    int signalled; /* how many signals have come */
    int status;
    bool decided;
};

static void decide(struct client *client, int status)
{
    if (!client->decided) client->status = status;
    client->decided = true;
}

/* ---- The job ------------------------------------------------------------------------------------------------------- */

static int check_job(const struct job_found *job)
{
    if (job->about.processes_most > 0) return CLI_GO_ON;
    return cli_refuse("run", "--join: job %s cannot grow: start it by tutti run --max-ranks M", job->about.job);
}

static int connect_to(const tutti_board_about *job)
{
    struct sockaddr_un address;
    socklen_t bytes = join_address(job->job, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool connected = fd >= 0 && connect(fd, (const struct sockaddr *)&address, bytes) == 0;
    if (connected && join_is_own(fd)) return fd;
    int why = errno;
    if (fd >= 0) (void)close(fd);
    (void)cli_refuse("run", "--join: job %s does not answer: %s; has it just ended?", job->job,
                     connected ? "its socket is another user's" : strerror(why));
    return -1;
}

/* Asks for places for all processes. */
static int ask(struct client *client)
{
    struct join_message answer;
    int why = join_send(client->socket, &(struct join_message){.kind = JOIN_HELLO, .value = client->launch->size},
                        NULL);
    struct pollfd polled = {client->socket, POLLIN, 0};
    if (why == 0 && poll(&polled, 1, ANSWER_MS) == 0) why = ETIMEDOUT;
    if (why == 0) why = join_receive(client->socket, &answer, NULL);
    const char *name = client->job->job;
    if (why == EPROTO) return cli_refuse("run", "--join: job %s was started by another version of the tool", name);
    if (why != 0) return cli_refuse("run", "--join: job %s does not answer: %s", name, strerror(why));
    if (answer.kind == JOIN_WELCOME) return CLI_GO_ON;
    if (answer.kind == JOIN_ENDING) return cli_refuse("run", "--join: job %s is ending, and takes nobody in", name);
    return cli_refuse("run",
                      "--join: job %s has no room for %d process%s: %d of %d ranks are there or wait (--max-ranks)",
                      name, client->launch->size, client->launch->size == 1 ? "" : "es", answer.more, answer.value);
}

/* ---- Starting ------------------------------------------------------------------------------------------------------ */

/* Writes the words and the variables, each with its zero, as the guard reads them. Returns a descriptor; -1 with
 * errno. */
static int write_text(char **argv, int *words, int *variables)
{
    int fd = memfd_create("tutti-join", MFD_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(dup(fd), "w");
    *words = *variables = 0;
    for (; file != NULL && argv[*words] != NULL; ++*words)
        (void)fwrite(argv[*words], strlen(argv[*words]) + 1, 1, file);
    for (; file != NULL && environ[*variables] != NULL; ++*variables)
        (void)fwrite(environ[*variables], strlen(environ[*variables]) + 1, 1, file);
    if (file != NULL && fclose(file) == 0) return fd;
    if (fd >= 0) (void)close(fd);
    return -1;
}

static int start_all(const struct client *client)
{
    const struct launch *launch = client->launch;
    int words, variables, text = write_text(launch->argv, &words, &variables);
    int folder = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC), why = text < 0 || folder < 0 ? errno : 0;
    for (int i = 0; i < launch->size && why == 0; i++) {
        int out = launch->ranks[i].out, err = launch->ranks[i].err;
        const int fds[JOIN_FDS] = {text, folder, out >= 0 ? out : STDOUT_FILENO, err >= 0 ? err : STDERR_FILENO};
        const struct join_message start = {.kind = JOIN_START, .index = i, .value = words, .more = variables};
        why = join_send(client->socket, &start, fds);
    }
    if (text >= 0) (void)close(text);
    if (folder >= 0) (void)close(folder);
    return why == 0 ? CLI_GO_ON : cli_fail("run", "--join: the processes cannot be started: %s", strerror(why));
}

/* ---- What becomes of them ------------------------------------------------------------------------------------------ */

static void on_failed(struct client *client, const struct join_message *message)
{
    if (client->ended[message->index]) return;
    client->ended[message->index] = true;
    client->left--;
    if (message->more == JOIN_BY_TRANSPORT && !client->decided)
        output_say(client->output,
                   "--join: job %s was started with another TUTTI_TRANSPORT or TUTTI_HOST_PROCESSES; leave "
                   "it out here",
                   client->job->job);
    else if (message->more == JOIN_BY_EXEC && !client->decided)
        output_say(client->output, "cannot execute %s: %s", client->launch->argv[0], strerror(message->value));
    else if (!client->decided)
        output_say(client->output, "a process cannot be started: %s", strerror(message->value));
    decide(client, message->more != 0 ? CLI_USAGE : CLI_FAILED);
}

static void on_ended(struct client *client, const struct join_message *message)
{
    char text[96], who[64];
    int index = message->index, rank = client->ranks[index], status = message->value;
    output_drain_rank(client->output, index);
    if (client->ended[index]) return; /* reported already: it could not be executed */
    client->ended[index] = true;
    client->left--;
    if (status == 0) return;
    if (rank >= 0)
        (void)snprintf(who, sizeof who, "rank %d", rank);
    else
        (void)snprintf(who, sizeof who, "process %d, which was not taken in,", message->pid);
    if (!client->decided || client->left == 0) output_say(client->output, "%s %s", who, job_describe(status, text));
    decide(client, WIFSIGNALED(status) ? SIGNAL_STATUS + WTERMSIG(status) : WEXITSTATUS(status));
}

static void on_taken(struct client *client, const struct join_message *message)
{
    char name[16];
    (void)snprintf(name, sizeof name, "%d", message->value);
    output_drain_rank(client->output, message->index);
    output_name_rank(client->output, message->index, name);
    client->ranks[message->index] = message->value;
    output_say(client->output, "rank %d has joined job %s", message->value, client->job->job);
}

static void on_gone(struct client *client)
{
    if (client->left == 0) return;
    output_say(client->output, "job %s has ended, and its processes with it", client->job->job);
    client->left = 0;
    decide(client, CLI_FAILED);
}

static void hear(struct client *client)
{
    struct join_message message;
    for (int why; client->left > 0 && (why = join_receive(client->socket, &message, NULL)) != EAGAIN;) {
        if (why != 0) {
            on_gone(client);
            return;
        }
        if (message.index < 0 || message.index >= client->launch->size) continue;
        if (message.kind == JOIN_FAILED) on_failed(client, &message);
        if (message.kind == JOIN_TAKEN) on_taken(client, &message);
        if (message.kind == JOIN_ENDED) on_ended(client, &message);
    }
}

/* Passes signals on. After a second one this does not wait for anything: the guard kills what it has started for this
 * command. */
static void hear_signals(struct client *client)
{
    struct signalfd_siginfo info;
    while (read(client->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int signal = (int)info.ssi_signo;
        if (signal == SIGUSR1) continue;
        output_say(client->output, "ending the processes on signal %d (%s)", signal, strsignal(signal));
        decide(client, SIGNAL_STATUS + signal);
        (void)join_send(client->socket, &(struct join_message){.kind = JOIN_SIGNAL, .value = signal}, NULL);
        if (++client->signalled > 1) client->left = 0;
    }
}

/* Returns true if a signal has come that ends this command; its processes have ended. */
static bool takes_signal(const struct client *client)
{
    struct signalfd_siginfo info;
    bool ends = false;
    while (read(client->signals, &info, sizeof info) == (ssize_t)sizeof info) ends |= info.ssi_signo != SIGUSR1;
    return ends;
}

static void serve(struct client *client, struct pollfd *polls)
{
    enum { OWN = 2 };
    const char *target;
    while (client->left > 0) {
        polls[0] = (struct pollfd){client->signals, POLLIN, 0};
        polls[1] = (struct pollfd){client->socket, POLLIN, 0};
        size_t count = output_poll(client->output, polls + OWN);
        if (poll(polls, OWN + count, -1) < 0) continue;
        output_serve(client->output, polls + OWN, count);
        if (polls[1].revents != 0) hear(client);
        if (polls[0].revents != 0) hear_signals(client);
        if (output_error(client->output, &target) == 0) continue;
        output_say(client->output, "cannot write to %s", target);
        decide(client, CLI_FAILED);
        return;
    }
    output_finish(client->output);
    while (client->signalled < 2 && output_pending(client->output)) {
        polls[0] = (struct pollfd){client->signals, POLLIN, 0};
        size_t count = output_poll(client->output, polls + 1);
        if (poll(polls, 1 + count, -1) < 0) continue;
        if (polls[0].revents != 0 && takes_signal(client)) break;
        output_serve(client->output, polls + 1, count);
    }
    if (output_error(client->output, &target) != 0) decide(client, CLI_FAILED);
}

/* ---- The whole ----------------------------------------------------------------------------------------------------- */

static int serve_job(const struct run_values *values, struct launch *launch, struct client *client)
{
    struct run_values shown = *values;
    client->signals = run_take_signals(launch);
    if (client->signals < 0) return cli_fail("run", "signalfd: %s", strerror(errno));
    launch->place = (struct place){.world = client->job->processes_most, .nodes = 1};
    int status = output_open(&shown, launch, &client->output);
    if (status != CLI_GO_ON) return status;
    for (int i = 0; i < launch->size; i++) output_name_rank(client->output, i, "+");
    status = start_all(client);
    output_started(launch);
    struct pollfd *polls = calloc(2 + output_poll_room(client->output), sizeof *polls);
    if (polls == NULL) status = cli_fail("run", "out of memory");
    if (status == CLI_GO_ON) serve(client, polls);
    free(polls);
    output_close(client->output);
    return status == CLI_GO_ON ? client->status : status;
}

static int join_job(const struct run_values *values, struct launch *launch, const tutti_board_about *job)
{
    size_t size = (size_t)launch->size;
    struct client client = {.launch = launch, .job = job, .left = launch->size};
    client.socket = connect_to(job);
    if (client.socket < 0) return CLI_USAGE;
    client.ranks = calloc(size, sizeof *client.ranks);
    client.ended = calloc(size, sizeof *client.ended);
    bool made = client.ranks != NULL && client.ended != NULL;
    for (size_t i = 0; made && i < size; i++) client.ranks[i] = -1;
    int status = made ? ask(&client) : cli_fail("run", "out of memory");
    if (status == CLI_GO_ON) status = serve_job(values, launch, &client);
    free(client.ranks);
    free(client.ended);
    (void)close(client.socket); /* the guard ends the processes that are left */
    return status;
}

int join_run(const struct run_values *values, struct launch *launch)
{
    struct job_found job;
    int status = job_find("run", values->join, &job);
    if (status != CLI_GO_ON) return status;
    status = check_job(&job);
    if (status == CLI_GO_ON) status = join_job(values, launch, &job.about);
    tutti_board_free(job.board);
    return status;
}
