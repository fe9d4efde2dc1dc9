/* SPDX-License-Identifier: Apache-2.0
 *
 * PMI-1, as process managers of MPICH's kind speak it: lines of "cmd=… name=value …" on an inherited descriptor, one
 * question and its answer at a time.
 *
 * The conversation lasts from the first join of this process to its end, and is held once: its answers are kept. If the
 * program is an MPI program, too, MPI opens and ends it, and questions are asked only in between.
 */
#include "base/clock.h"
#include "base/status.h"
#include "transport/socket.h"
#include "world/launch.h"
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEY "tutti-rank-0"

enum { LINE_BYTES = 1024 }; /* process managers read no longer lines */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int fd;
    bool known, open; /* known: `kvsname` is; open: questions may be asked */
    bool mapped, one_host;
    char kvsname[LINE_BYTES];
} pmi;

static tutti_status failed(tutti_error *error, int why, const char *command)
{
    return tti_error_set(error, TUTTI_ERR_JOIN, why,
                         "the process manager at descriptor %d (PMI_FD) did not answer %s; was this process started by "
                         "mpiexec itself? TUTTI_LAUNCHER=none joins nobody",
                         pmi.fd, command);
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

/* Reads byte by byte, so that the next user of the descriptor finds it at the start of a line. */
static int read_line(char *line, int64_t deadline_ns)
{
    for (size_t length = 0; length < LINE_BYTES;) {
        int why = tti_poll_until(pmi.fd, POLLIN, deadline_ns);
        if (why != 0) return why;
        ssize_t got = read(pmi.fd, &line[length], 1);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got <= 0) return got == 0 ? EPIPE : errno;
        if (line[length] == '\n') {
            line[length] = '\0';
            return 0;
        }
        length++;
    }
    return EBADMSG;
}

static int write_line(const char *line)
{
    size_t length = strlen(line);
    while (length > 0) {
        ssize_t sent = send(pmi.fd, line, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == ENOTSOCK) sent = write(pmi.fd, line, length);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return errno;
        line += sent;
        length -= (size_t)sent;
    }
    return 0;
}

/* Finds the value of `name` in "cmd=x name=value …"; returns false if it is not there. */
static bool value_in(const char *line, const char *name, char *value, size_t bytes)
{
    size_t length = strlen(name);
    for (const char *word = line; word != NULL; word = strchr(word, ' ')) {
        word += strspn(word, " ");
        if (strncmp(word, name, length) != 0 || word[length] != '=') continue;
        const char *from = word + length + 1;
        size_t part = strcspn(from, " ");
        if (part >= bytes) return false;
        memcpy(value, from, part);
        value[part] = '\0';
        return true;
    }
    return false;
}

/* Asks `question`, and expects an answer whose cmd is `expected`, without an error code. */
static tutti_status ask(const char *question, const char *expected, char *answer, int64_t deadline_ns,
                        tutti_error *error)
{
    char command[64] = "", word[64], code[16] = "0";
    (void)value_in(question, "cmd", command, sizeof command);
    command[strcspn(command, "\n")] = '\0';
    int why = write_line(question);
    if (why == 0) why = read_line(answer, deadline_ns);
    if (why != 0) return failed(error, why, command);
    (void)value_in(answer, "rc", code, sizeof code);
    if (value_in(answer, "cmd", word, sizeof word) && strcmp(word, expected) == 0 && strcmp(code, "0") == 0)
        return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_JOIN, 0, "the process manager (PMI_FD) answered %s with \"%.200s\"", command,
                         answer);
}

/* ---- The conversation ------------------------------------------------------------------------------------------ */

static bool is_mpi_program(void)
{
    return dlsym(RTLD_DEFAULT, "MPI_Init") != NULL;
}

static tutti_status open_locked(int fd, int64_t deadline_ns, tutti_error *error)
{
    char answer[LINE_BYTES];
    if (pmi.known) return TUTTI_OK;
    pmi.fd = fd;
    if (!is_mpi_program())
        TTI_TRY(ask("cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", answer, deadline_ns, error));
    TTI_TRY(ask("cmd=get_maxes\n", "maxes", answer, deadline_ns, error));
    TTI_TRY(ask("cmd=get_my_kvsname\n", "my_kvsname", answer, deadline_ns, error));
    if (!value_in(answer, "kvsname", pmi.kvsname, sizeof pmi.kvsname))
        return tti_error_set(error, TUTTI_ERR_JOIN, 0, "the process manager (PMI_FD) gave the job no name: \"%.200s\"",
                             answer);
    pmi.known = pmi.open = true;
    return TUTTI_OK;
}

tutti_status tti_pmi_open(int fd, char *kvsname, size_t bytes, int64_t deadline_ns, tutti_error *error)
{
    pthread_mutex_lock(&lock);
    tutti_status status = open_locked(fd, deadline_ns, error);
    if (status == TUTTI_OK && strlen(pmi.kvsname) >= bytes)
        status = tti_error_set(error, TUTTI_ERR_JOIN, 0, "the process manager's name for the job is too long: %.100s…",
                               pmi.kvsname);
    if (status == TUTTI_OK) strcpy(kvsname, pmi.kvsname);
    pthread_mutex_unlock(&lock);
    return status;
}

/* Returns true if the mapping has one host. "(vector,(0,2,4))" means "from host 0 on, 2 hosts of 4 processes each";
 * several such triples may follow each other. */
static bool is_one_host(const char *mapping)
{
    const char *triple = strstr(mapping, ",(");
    if (strncmp(mapping, "(vector", 7) != 0 || triple == NULL) return false;
    for (int end; *triple == ','; triple += end) {
        int host, hosts, each;
        end = 0; /* stays 0 if the last bracket is missing */
        if (sscanf(triple, ",(%d,%d,%d)%n", &host, &hosts, &each, &end) != 3 || end == 0) return false;
        if (host != 0 || hosts != 1) return false;
    }
    return true;
}

bool tti_pmi_one_host(int64_t deadline_ns)
{
    char question[2 * LINE_BYTES], answer[LINE_BYTES], mapping[LINE_BYTES];
    tutti_error unused = {0};
    pthread_mutex_lock(&lock);
    if (pmi.open && !pmi.mapped) {
        snprintf(question, sizeof question, "cmd=get kvsname=%s key=PMI_process_mapping\n", pmi.kvsname);
        pmi.mapped = true;
        pmi.one_host = ask(question, "get_result", answer, deadline_ns, &unused) == TUTTI_OK &&
                       value_in(answer, "value", mapping, sizeof mapping) && is_one_host(mapping);
    }
    bool one_host = pmi.one_host;
    pthread_mutex_unlock(&lock);
    return one_host;
}

/* Lets all processes meet: rank 0 puts before it, the others get after it. */
static tutti_status meet(int64_t deadline_ns, tutti_error *error)
{
    char answer[LINE_BYTES];
    return ask("cmd=barrier_in\n", "barrier_out", answer, deadline_ns, error);
}

static tutti_status check_open(tutti_error *error)
{
    if (pmi.open) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                         "a process under mpiexec can join ranks of other hosts once; its conversation with the "
                         "process manager has ended");
}

static tutti_status put(const char *text, int64_t deadline_ns, tutti_error *error)
{
    char question[2 * LINE_BYTES], answer[LINE_BYTES];
    TTI_TRY(check_open(error));
    int length = snprintf(question, sizeof question, "cmd=put kvsname=%s key=" KEY " value=%s\n", pmi.kvsname, text);
    if (length >= LINE_BYTES)
        return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                             "rank 0 has more addresses than the process manager takes; choose with TUTTI_INTERFACE");
    TTI_TRY(ask(question, "put_result", answer, deadline_ns, error));
    return meet(deadline_ns, error);
}

static tutti_status get(char *text, size_t bytes, int64_t deadline_ns, tutti_error *error)
{
    char question[2 * LINE_BYTES], answer[LINE_BYTES];
    TTI_TRY(check_open(error));
    TTI_TRY(meet(deadline_ns, error));
    snprintf(question, sizeof question, "cmd=get kvsname=%s key=" KEY "\n", pmi.kvsname);
    TTI_TRY(ask(question, "get_result", answer, deadline_ns, error));
    if (value_in(answer, "value", text, bytes)) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_JOIN, 0, "the process manager (PMI_FD) does not tell where rank 0 waits");
}

tutti_status tti_pmi_publish(const char *text, int64_t deadline_ns, tutti_error *error)
{
    pthread_mutex_lock(&lock);
    tutti_status status = put(text, deadline_ns, error);
    pthread_mutex_unlock(&lock);
    return status;
}

tutti_status tti_pmi_lookup(char *text, size_t bytes, int64_t deadline_ns, tutti_error *error)
{
    pthread_mutex_lock(&lock);
    tutti_status status = get(text, bytes, deadline_ns, error);
    pthread_mutex_unlock(&lock);
    return status;
}

void tti_pmi_close(void)
{
    enum { ANSWER_MS = 1000 }; /* an end that is not answered counts as an end, too */
    char answer[LINE_BYTES];
    tutti_error unused = {0};
    pthread_mutex_lock(&lock);
    if (pmi.open && !is_mpi_program())
        (void)ask("cmd=finalize\n", "finalize_ack", answer, tti_now_ns() + (int64_t)ANSWER_MS * 1000000, &unused);
    pmi.open = false;
    pthread_mutex_unlock(&lock);
}
