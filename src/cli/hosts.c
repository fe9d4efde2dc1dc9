/* SPDX-License-Identifier: Apache-2.0
 *
 * --hosts: a remote shell for each host, which starts this tool there with --from-stdin. This launcher treats the
 * shells like ranks: the guard owns them, and their output is printed. Each has a pipe to its stdin, which
 *     holds, before the shell is started, everything that the launcher there needs to know (text lines, see order()
 *     below),
 *     later carries orders, mostly signals, one to a line,
 *     and ends the job on that host when it closes, as it does however this launcher dies.
 * A spare host gets the rest of its order when it takes the place of one that is lost. The other launchers report to
 * this one by lines on stderr that begin with a mark.
 */
#include "cli/cli.h"
#include "cli/cli_run.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { WORDS_MOST = 64, KEY_BYTES = 32, PORT_FIRST = 20000, PORT_COUNT = 12000, RANKS_MOST = 65536 };

struct host {
    char *name;                /* as given, with user@ */
    int slots;                 /* ranks; spares have none */
    int node, first;           /* its number among the hosts that have ranks, and its first rank */
    char *command[WORDS_MOST]; /* the remote shell's argv */
    int input, control;        /* the shell's end of the pipe, and the launcher's */
};

struct hosts {
    struct host *list;
    int count;
    char *key;    /* the order's line with the job's key, or "" */
    char *words;  /* the remote shell's command, split into words */
    char *remote; /* the command to run there, quoted for a shell */
};

extern char **environ;

/* ---- The list ------------------------------------------------------------------------------------------------------ */

static int refuse_host(const char *word)
{
    return cli_refuse("run", "--hosts: '%s' is not understood; hosts are given as a,b:2,user@c", word);
}

/* Reads a host such as "b:2"; an address that contains colons is in brackets. */
static int read_host(char *word, int usual, struct host *host)
{
    char *name = word, *end = word[0] == '[' ? strchr(word, ']') : word + strcspn(word, ":");
    host->slots = usual;
    if (end == NULL || word[0] == '\0' || word[0] == '-') return refuse_host(word);
    if (*end == ']') {
        *end++ = '\0';
        name = word + 1;
    }
    if (*end == ':') {
        char *digits = end + 1, *rest = NULL;
        long slots = strtol(digits, &rest, 10);
        if (!isdigit((unsigned char)digits[0]) || *rest != '\0' || slots < 1 || slots > RANKS_MOST)
            return refuse_host(word);
        host->slots = (int)slots;
    } else if (*end != '\0') {
        return refuse_host(word);
    }
    *end = '\0';
    if (name[0] == '\0' || name[strlen(name) - 1] == '@') return refuse_host(word);
    host->name = strdup(name);
    return host->name == NULL ? cli_fail("run", "out of memory") : CLI_GO_ON;
}

static int read_hosts(struct hosts *hosts, const char *text, int usual)
{
    int commas = 0, status = CLI_GO_ON;
    for (const char *c = text; *c != '\0'; c++) commas += *c == ',';
    char *copy = strdup(text), *rest = copy;
    hosts->list = calloc((size_t)commas + 1, sizeof *hosts->list);
    if (copy == NULL || hosts->list == NULL) status = cli_fail("run", "out of memory");
    for (int i = 0; i <= commas && status == CLI_GO_ON; i++) {
        hosts->list[i].input = hosts->list[i].control = -1;
        hosts->count = i + 1;
        status = read_host(strsep(&rest, ","), usual, &hosts->list[i]);
    }
    free(copy);
    return status;
}

/* ---- The command --------------------------------------------------------------------------------------------------- */

/* Quotes text for the shell there: within single quotes only these themselves are special. */
static char *quote(const char *text)
{
    char *quoted = malloc(4 * strlen(text) + 64), *to = quoted;
    if (quoted == NULL) return NULL;
    to += sprintf(to, "exec '");
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            to += sprintf(to, "'\\''");
        else
            *to++ = *text;
    }
    (void)sprintf(to, "' run --from-stdin");
    return quoted;
}

static int make_commands(struct hosts *hosts, const struct run_values *values)
{
    char self[4096] = "", *words[WORDS_MOST], *rest = NULL;
    int count = 0;
    if (values->remote_tutti[0] == '\0' && readlink("/proc/self/exe", self, sizeof self - 1) <= 0)
        return cli_fail("run", "cannot tell where this tool is: %s; give --remote-tutti", strerror(errno));
    hosts->remote = quote(self[0] != '\0' ? self : values->remote_tutti);
    hosts->words = strdup(values->ssh);
    if (hosts->remote == NULL || hosts->words == NULL) return cli_fail("run", "out of memory");
    for (char *word = strtok_r(hosts->words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (count == WORDS_MOST - 3) return cli_refuse("run", "--ssh has more than %d words", count);
        words[count++] = word;
    }
    if (count == 0) return cli_refuse("run", "--ssh is empty");
    for (int i = 0; i < hosts->count; i++) {
        struct host *host = &hosts->list[i];
        memcpy(host->command, words, (size_t)count * sizeof *words);
        host->command[count] = host->name;
        host->command[count + 1] = hosts->remote;
    }
    return CLI_GO_ON;
}

/* ---- What the launcher there is told --------------------------------------------------------------------------------- */

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

/* Writes the places of its ranks, their command, and their settings. */
static void tell_all(FILE *stream, const struct run_values *values, const struct launch *launch,
                     const struct host *host, int generation)
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
    tell(stream, "folder", folder);
    if (host->slots == 0)
        tell_number(stream, "waits", 1);
    else
        tell_all(stream, values, launch, host, 0);
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

static int send_orders(const struct run_values *values, struct launch *launch)
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

/* ---- Opening and closing --------------------------------------------------------------------------------------------- */

/* Returns the address without the user before it. */
static const char *address_of(const struct host *host)
{
    const char *at = strrchr(host->name, '@');
    return at != NULL ? at + 1 : host->name;
}

/* Sets the place of the job: rank 0 is on the first host, and the last hosts are spare. */
static void set_place(const struct run_values *values, struct launch *launch)
{
    unsigned random = 0;
    (void)!getrandom(&random, sizeof random, 0);
    struct place *place = &launch->place;
    *place = (struct place){.nodes = launch->hosts->count - (int)values->spare};
    for (int i = 0; i < place->nodes; i++) {
        struct host *host = &launch->hosts->list[i];
        host->node = i;
        host->first = place->world;
        place->world += host->slots;
    }
    for (int i = place->nodes; i < launch->hosts->count; i++) launch->hosts->list[i].slots = 0;
    place->master_addr = values->master_addr[0] != '\0' ? values->master_addr : address_of(&launch->hosts->list[0]);
    place->master_port = values->master_port != 0 ? (int)values->master_port : PORT_FIRST + (int)(random % PORT_COUNT);
    (void)snprintf(launch->job, sizeof launch->job, "hosts-%d-%08x", (int)getpid(), random);
}

int hosts_open(const struct run_values *values, struct launch *launch)
{
    struct hosts *hosts = calloc(1, sizeof *hosts);
    if (hosts == NULL) return cli_fail("run", "out of memory");
    launch->hosts = hosts;
    int status = read_hosts(hosts, values->hosts, launch->size);
    if (status == CLI_GO_ON && values->spare >= hosts->count)
        status = cli_refuse("run", "--spare %lld of %d hosts leaves none for the ranks", (long long)values->spare,
                            hosts->count);
    if (status == CLI_GO_ON) status = make_commands(hosts, values);
    if (status == CLI_GO_ON) set_place(values, launch);
    if (status == CLI_GO_ON && launch->place.world > RANKS_MOST)
        status = cli_refuse("run", "--hosts has %d ranks; a job has %d at most", launch->place.world, RANKS_MOST);
    if (status == CLI_GO_ON) status = send_orders(values, launch);
    launch->size = hosts->count;
    if (status == CLI_GO_ON) return status;
    hosts_close(hosts);
    launch->hosts = NULL;
    return status;
}

static void close_end(int *fd)
{
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

void hosts_close_inputs(struct hosts *hosts)
{
    for (int i = 0; hosts != NULL && i < hosts->count; i++) close_end(&hosts->list[i].input);
}

void hosts_close_controls(struct hosts *hosts)
{
    for (int i = 0; hosts != NULL && i < hosts->count; i++) close_end(&hosts->list[i].control);
}

void hosts_close(struct hosts *hosts)
{
    if (hosts == NULL) return;
    hosts_close_inputs(hosts);
    hosts_close_controls(hosts);
    for (int i = 0; i < hosts->count; i++) free(hosts->list[i].name);
    if (hosts->key != NULL) explicit_bzero(hosts->key, strlen(hosts->key));
    free(hosts->key);
    free(hosts->list);
    free(hosts->words);
    free(hosts->remote);
    free(hosts);
}

/* ---- While it runs --------------------------------------------------------------------------------------------------- */

const char *hosts_name(const struct hosts *hosts, int host)
{
    return hosts->list[host].name;
}

char **hosts_command(const struct hosts *hosts, int host)
{
    return hosts->list[host].command;
}

int hosts_input(const struct hosts *hosts, int host)
{
    return hosts->list[host].input;
}

int hosts_first(const struct hosts *hosts, int host)
{
    return hosts->list[host].first;
}

int hosts_slots(const struct hosts *hosts, int host)
{
    return hosts->list[host].slots;
}

void hosts_close_control(struct hosts *hosts, int host)
{
    close_end(&hosts->list[host].control);
}

void hosts_order(struct hosts *hosts, int host, const struct remote_order *order)
{
    char line[512];
    int length = snprintf(line, sizeof line, "%s %d %d %s\n", remote_order_words[order->kind], order->rank,
                          order->value, order->text);
    if (hosts->list[host].control < 0) return;
    (void)!write(hosts->list[host].control, line, (size_t)length); /* a shell that is gone is noticed by its end */
}

void hosts_signal(struct hosts *hosts, int signal)
{
    struct remote_order order = {.kind = ORDER_SIGNAL, .value = signal};
    for (int i = 0; i < hosts->count; i++) {
        if (hosts->list[i].slots > 0) hosts_order(hosts, i, &order);
        if (signal == SIGKILL) close_end(&hosts->list[i].control);
    }
}

/* Writes the rest of a spare host's order, whose pipe is being read: if it is full, this waits for a moment. */
static bool send_rest(const struct host *host, const char *text, size_t bytes)
{
    enum { PAUSES = 200, PAUSE_MS = 10 };
    for (int pause = 0; bytes > 0 && pause < PAUSES; pause++) {
        ssize_t sent = write(host->control, text, bytes);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (sent < 0) poll(NULL, 0, PAUSE_MS);
        text += sent > 0 ? sent : 0;
        bytes -= sent > 0 ? (size_t)sent : 0;
    }
    return bytes == 0;
}

bool hosts_replace(const struct run_values *values, struct launch *launch, int lost, int spare, int generation)
{
    struct host *from = &launch->hosts->list[lost], *to = &launch->hosts->list[spare];
    size_t bytes = 0;
    char *text = NULL;
    to->node = from->node;
    to->first = from->first;
    to->slots = from->slots;
    from->slots = 0;
    if (to->node == 0 && values->master_addr[0] == '\0') launch->place.master_addr = address_of(to);
    FILE *stream = open_memstream(&text, &bytes);
    if (stream == NULL) return false;
    tell_all(stream, values, launch, to, generation);
    bool sent = fclose(stream) == 0 && to->control >= 0 && send_rest(to, text, bytes);
    if (text != NULL) explicit_bzero(text, bytes);
    free(text);
    return sent;
}

/* ---- Reports --------------------------------------------------------------------------------------------------------- */

static const char *const events[] = {
    [REMOTE_STARTED] = "started", [REMOTE_ENDED] = "ended", [REMOTE_FAILED] = "failed", [REMOTE_LATE] = "late",
    [REMOTE_ALIVE] = "alive",     [REMOTE_EMPTY] = "empty", [REMOTE_GONE] = "gone",     [REMOTE_ASKED] = "asked"};

void hosts_write_report(const struct remote_report *report, char *line, size_t bytes)
{
    (void)snprintf(line, bytes, "%c%s %d %d %d %d %d", REMOTE_MARK, events[report->event], report->rank, report->pid,
                   report->value, report->follows, report->joined);
}

bool hosts_read_report(const char *line, size_t length, struct remote_report *report)
{
    char copy[128], word[16];
    if (length < 1 || length >= sizeof copy || line[0] != REMOTE_MARK) return false;
    memcpy(copy, line + 1, length - 1);
    copy[length - 1] = '\0';
    *report = (struct remote_report){0};
    if (sscanf(copy, "%15s %d %d %d %d %d", word, &report->rank, &report->pid, &report->value, &report->follows,
               &report->joined) < 4)
        return false;
    for (int i = 0; i < (int)(sizeof events / sizeof *events); i++) {
        report->event = (enum remote_event)i;
        if (strcmp(events[i], word) == 0) return true;
    }
    return false;
}
