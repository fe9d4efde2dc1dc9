/* SPDX-License-Identifier: Apache-2.0
 *
 * What the launcher of another host is told before it begins: lines of a kind and a text, which remote.c reads.
 */
#include "cli/cli.h"
#include "cli/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { KEY_BYTES = 32 };

extern char **environ;

/* Writes the line "kind text", with a newline in the text as %0A. */
static void tell(FILE *order, const char *kind, const char *text)
{
    (void)fprintf(order, "%s ", kind);
    for (; *text != '\0'; text++) {
        if (*text == '\n' || *text == '%')
            (void)fprintf(order, "%%%02X", (unsigned char)*text);
        else
            (void)fputc(*text, order);
    }
    (void)fputc('\n', order);
}

static void tell_number(FILE *order, const char *kind, int64_t number)
{
    (void)fprintf(order, "%s %lld\n", kind, (long long)number);
}

static int64_t heartbeat_ms(void)
{
    tutti_options options;
    return tutti_options_init(&options, NULL) == TUTTI_OK ? options.heartbeat_ms : 2000;
}

static bool is_listed(const char *names, const char *variable, size_t length)
{
    while (*names != '\0') {
        size_t part = strcspn(names, ",");
        if (part == length && strncmp(names, variable, length) == 0) return true;
        names += part + (names[part] == ',');
    }
    return false;
}

static void tell_environment(FILE *order, const struct run_values *values)
{
    for (char **variable = environ; *variable != NULL; variable++) {
        size_t length = strcspn(*variable, "=");
        if (strncmp(*variable, "TUTTI_", 6) == 0 || is_listed(values->env, *variable, length))
            tell(order, "env", *variable);
    }
}

static void tell_flags(FILE *order, const struct run_values *values, const struct host *host)
{
    tell(order, "arg", "run");
    tell(order, "arg", "--nproc-per-node");
    tell_number(order, "arg", host->slots);
    tell(order, "arg", "--grace-ms");
    tell_number(order, "arg", values->grace_ms);
    tell(order, "arg", "--bind");
    tell(order, "arg", values->bind);
    tell(order, "arg", "--max-restarts");
    tell_number(order, "arg", values->max_restarts);
    if (values->keep_going) tell(order, "arg", "--keep-going");
    if (values->log_dir[0] != '\0') {
        tell(order, "arg", "--log-dir");
        tell(order, "arg", values->log_dir);
    }
    if (values->tee != 0) tell(order, "arg", "--tee");
    if (values->no_prefix != 0) tell(order, "arg", "--no-prefix");
    tell(order, "arg", "--");
}

/* Writes what holds on all nodes; everything else is what the launcher there was given. */
static void tell_link(FILE *order, const struct run_values *values)
{
    tell_number(order, "restarts", values->max_restarts);
    tell_number(order, "keeps", values->keep_going);
    (void)fprintf(order, "env TUTTI_HEARTBEAT_MS=%lld\n", (long long)heartbeat_ms());
    (void)fprintf(order, "go\n");
}

void hosts_tell_all(FILE *stream, const struct run_values *values, const struct launch *launch, const struct host *host,
                    int generation)
{
    const struct place *place = &launch->place;
    tell(stream, "job", launch->job);
    tell_number(stream, "node", host->node);
    tell_number(stream, "nodes", place->nodes);
    tell_number(stream, "first", host->first);
    tell_number(stream, "world", place->world);
    tell_number(stream, "generation", generation);
    tell_number(stream, "ends", launch->ends);
    for (int rank = 0; launch->lives != NULL && rank < place->world; rank++)
        if (launch->lives[rank] > 0) (void)fprintf(stream, "lives %d %d\n", rank, launch->lives[rank]);
    tell_number(stream, "port", place->master_port);
    tell(stream, "master", place->master_addr);
    if (host->linked) {
        tell_link(stream, values);
        return;
    }
    if (launch->hosts->key[0] != '\0') tell(stream, "env", launch->hosts->key);
    tell_environment(stream, values);
    tell_flags(stream, values, host);
    for (char **word = launch->argv; *word != NULL; word++) tell(stream, "arg", *word);
    (void)fprintf(stream, "go\n");
}

/* Returns one host's order as text in memory; a spare host gets only its beginning. */
static char *order(const struct run_values *values, const struct launch *launch, const struct host *host,
                   const char *folder, size_t *bytes)
{
    char *text = NULL;
    FILE *stream = open_memstream(&text, bytes);
    if (stream == NULL) return NULL;
    tell_number(stream, "tutti", ORDER_VERSION);
    tell(stream, "host", host->name);
    if (!host->linked) tell(stream, "folder", folder);
    if (host->slots == 0)
        tell_number(stream, "waits", heartbeat_ms() + SPARE_MORE_MS);
    else
        hosts_tell_all(stream, values, launch, host, 0);
    if (fclose(stream) == 0) return text;
    free(text);
    return NULL;
}

/* Makes a new key, as "TUTTI_KEY=…", or "" if there is one already. */
static int make_key(struct hosts *hosts)
{
    unsigned char bytes[KEY_BYTES];
    char *text = hosts->key = calloc(1, 16 + 2 * KEY_BYTES);
    if (text == NULL) return cli_fail("run", "out of memory");
    const char *file = getenv("TUTTI_KEY_FILE"), *given = getenv("TUTTI_KEY");
    if ((file != NULL && file[0] != '\0') || (given != NULL && given[0] != '\0')) return CLI_GO_ON;
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return cli_fail("run", "no random numbers: %m");
    char *to = text + sprintf(text, "TUTTI_KEY=");
    for (int i = 0; i < KEY_BYTES; i++) to += sprintf(to, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof bytes);
    return CLI_GO_ON;
}

/* Writes the order into a new pipe, which must hold all of it: nobody reads it yet. */
static int send_order(struct host *host, const char *text, size_t bytes)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return cli_fail("run", "cannot make a pipe to a remote shell: %s", strerror(errno));
    host->input = ends[0];
    host->control = ends[1];
    (void)fcntl(host->control, F_SETFL, O_NONBLOCK);
    if (bytes > 65536) (void)fcntl(host->control, F_SETPIPE_SZ, (int)bytes);
    if (write(host->control, text, bytes) == (ssize_t)bytes) return CLI_GO_ON;
    return cli_refuse("run", "the command line and environment are too long to be passed on (%zu bytes)", bytes);
}

int hosts_send_orders(const struct run_values *values, struct launch *launch)
{
    char *folder = getcwd(NULL, 0); /* the ranks' working folder, too */
    if (folder == NULL) return cli_refuse("run", "the current folder: %s", strerror(errno));
    int status = make_key(launch->hosts);
    for (int i = 0; i < launch->hosts->count && status == CLI_GO_ON; i++) {
        size_t bytes = 0;
        struct host *host = &launch->hosts->list[i];
        char *text = order(values, launch, host, folder, &bytes);
        status = text == NULL ? cli_fail("run", "out of memory") : send_order(host, text, bytes);
        if (text != NULL) explicit_bzero(text, bytes);
        free(text);
    }
    free(folder);
    return status;
}
