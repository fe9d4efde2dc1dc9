/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti run --from-stdin: the launcher of one host, started over a remote shell by one that was given --hosts. It reads
 * an order from stdin (lines of a kind and a text; hosts.c writes them), and after it further orders, one to a line. A
 * spare host gets only the beginning of its order, and the rest when it is needed. A launcher that was started by hand
 * gets all that over a connection (nodes.c).
 */
#include "cli/cli.h"
#include "cli/cli_run.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ORDER_MS = 30000, LINE_BYTES = 1 << 20, NUMBER_MOST = 1 << 20 };

struct order {
    struct launch *launch;
    char **argv; /* ends with NULL */
    int argc;
    char *host, *master;
    int protocol;
    int waits;           /* a spare host: it has ended if nothing comes for so many milliseconds; 0: none */
    int restarts, keeps; /* over a connection: as the launcher of node 0 was told */
    bool done, over;
};

const char *const remote_order_words[] = {
    [ORDER_SIGNAL] = "signal", [ORDER_ALIVE] = "alive", [ORDER_MOVE] = "move",    [ORDER_RESTART] = "restart",
    [ORDER_NOTE] = "note",     [ORDER_LATE] = "late",   [ORDER_GONE_AS] = "gone", [ORDER_SETTLED] = "settled",
    [ORDER_OVER] = "over",     [ORDER_WATCH] = "watch"};

/* It lives as long as the process: `launch` and the command line point into it. */
static struct order order;
/* where orders come from */
static int orders = STDIN_FILENO;

int remote_fd(void)
{
    return orders;
}

/* ---- Lines ----------------------------------------------------------------------------------------------------------- */

/* Blames whoever gives the orders. */
static int no_order(const char *what)
{
    if (orders == STDIN_FILENO) return cli_fail("run", "--from-stdin: %s", what);
    return cli_fail("run", "%s over the connection to the launcher of node 0: it has ended, or does not answer", what);
}

/* Reads a line byte by byte, since others read what follows the order. Returns 0, or an exit status after a message. */
static int read_line(char *line, int waits_ms)
{
    size_t length = 0;
    for (;;) {
        struct pollfd polled = {orders, POLLIN, 0};
        int ready = poll(&polled, 1, waits_ms != 0 && length == 0 ? waits_ms : ORDER_MS);
        if (ready < 0 && errno == EINTR) continue;
        if (ready == 0) return no_order("no order came in time");
        ssize_t got = read(orders, &line[length], 1);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got <= 0 && waits_ms != 0 && length == 0 && orders == STDIN_FILENO) return CLI_FAILED; /* not needed */
        if (got <= 0) return no_order(orders == STDIN_FILENO ? "stdin ended within the order" : "orders ended");
        if (line[length] == '\n') break;
        if (++length == LINE_BYTES) return cli_fail("run", "--from-stdin: a line of the order is too long");
    }
    line[length] = '\0';
    return 0;
}

/* Decodes %0A and the like, in place. */
static void decode(char *text)
{
    char *to = text;
    for (; *text != '\0'; text++) {
        if (*text == '%' && isxdigit((unsigned char)text[1]) && isxdigit((unsigned char)text[2])) {
            const char digits[] = {text[1], text[2], '\0'};
            *to++ = (char)strtol(digits, NULL, 16);
            text += 2;
        } else {
            *to++ = *text;
        }
    }
    *to = '\0';
}

/* ---- What lines say -------------------------------------------------------------------------------------------------- */

static bool add_word(struct order *kept, const char *text)
{
    char **argv = realloc(kept->argv, ((size_t)kept->argc + 2) * sizeof *argv);
    if (argv == NULL) return false;
    kept->argv = argv;
    argv[kept->argc] = strdup(text);
    argv[kept->argc + 1] = NULL;
    return argv[kept->argc++] != NULL;
}

static bool set_variable(const char *text)
{
    if (strchr(text, '=') == NULL) return false;
    char *copy = strdup(text);
    if (copy == NULL) return false;
    char *value = strchr(copy, '=');
    *value = '\0';
    bool good = setenv(copy, value + 1, 1) == 0;
    explicit_bzero(value + 1, strlen(value + 1));
    free(copy);
    return good;
}

static int enter_folder(const struct order *kept, const char *folder)
{
    if (chdir(folder) == 0 && setenv("PWD", folder, 1) == 0) return 0;
    return cli_refuse("run", "the folder %s cannot be entered on %s: %s", folder,
                      kept->launch->place.host == NULL ? "this host" : kept->launch->place.host, strerror(errno));
}

/* Puts a copy at `place`, and returns it. */
static const char *keep(char **place, const char *text)
{
    free(*place);
    *place = strdup(text);
    return *place;
}

static int *number_named(struct order *kept, const char *kind)
{
    struct place *place = &kept->launch->place;
    if (strcmp(kind, "tutti") == 0) return &kept->protocol;
    if (strcmp(kind, "waits") == 0) return &kept->waits;
    if (strcmp(kind, "restarts") == 0) return &kept->restarts;
    if (strcmp(kind, "keeps") == 0) return &kept->keeps;
    if (strcmp(kind, "generation") == 0) return &kept->launch->generation;
    if (strcmp(kind, "ends") == 0) return &kept->launch->ends;
    if (strcmp(kind, "node") == 0) return &place->node;
    if (strcmp(kind, "nodes") == 0) return &place->nodes;
    if (strcmp(kind, "first") == 0) return &place->first;
    if (strcmp(kind, "world") == 0) return &place->world;
    if (strcmp(kind, "port") == 0) return &place->master_port;
    return NULL;
}

static bool take_number(int *number, const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < 0 || value > NUMBER_MOST) return false;
    *number = (int)value;
    return true;
}

/* Reads "3 2": rank 3 has ended twice before. The list is kept until the process ends. */
static bool take_lives(struct launch *launch, const char *text)
{
    int rank, lives;
    if (sscanf(text, "%d %d", &rank, &lives) != 2 || rank < 0 || rank >= launch->place.world) return false;
    if (launch->lives == NULL) launch->lives = calloc((size_t)launch->place.world, sizeof *launch->lives);
    if (launch->lives != NULL) launch->lives[rank] = lives;
    return launch->lives != NULL;
}

/* Handles one line of the order. Returns 0 or an exit status. */
static int take_line(struct order *kept, const char *kind, const char *text)
{
    struct launch *launch = kept->launch;
    int *number = number_named(kept, kind);
    bool good = true;
    if (number != NULL) {
        good = take_number(number, text);
    } else if (strcmp(kind, "folder") == 0) {
        return enter_folder(kept, text);
    } else if (strcmp(kind, "host") == 0) {
        launch->place.host = keep(&kept->host, text);
    } else if (strcmp(kind, "master") == 0) {
        launch->place.master_addr = keep(&kept->master, text);
    } else if (strcmp(kind, "job") == 0) {
        good = strlen(text) < sizeof launch->job;
        if (good) strcpy(launch->job, text);
    } else if (strcmp(kind, "lives") == 0) {
        good = take_lives(launch, text);
    } else if (strcmp(kind, "env") == 0) {
        good = set_variable(text);
    } else if (strcmp(kind, "arg") == 0) {
        good = add_word(kept, text);
    } else if (kept->waits != 0 && strcmp(kind, remote_order_words[ORDER_ALIVE]) == 0) {
        return 0; /* the other launcher lives */
    } else {
        kept->over = kept->waits != 0 && strcmp(kind, remote_order_words[ORDER_OVER]) == 0;
        kept->done = good = kept->over || strcmp(kind, "go") == 0;
    }
    return good ? 0 : cli_refuse("run", "a line of the order is not understood: '%s'", kind);
}

static int check_order(const struct order *kept)
{
    const struct place *place = &kept->launch->place;
    if (kept->protocol != ORDER_VERSION)
        return cli_refuse("run", "the launchers are of different versions (order %d, here %d)", kept->protocol,
                          ORDER_VERSION);
    bool linked = kept->launch->link != 0;
    if ((kept->argc < 2 && !linked) || place->world < 1 || place->master_addr == NULL || kept->launch->job[0] == '\0')
        return cli_refuse("run", "the order is not complete");
    return CLI_GO_ON;
}

/* Reports to the other launcher that this one has begun. */
static void tell_started(void)
{
    struct remote_report started = {.event = REMOTE_STARTED, .pid = (int)getpid()};
    char report[128];
    hosts_write_report(&started, report, sizeof report - 1);
    (void)strcat(report, "\n");
    (void)!write(order.launch->link != 0 ? order.launch->link : STDERR_FILENO, report, strlen(report));
}

/* Reads all lines of the order. Returns 0 or an exit status. */
static int read_all(char *line)
{
    int status = 0;
    bool told = false;
    while (status == 0 && !order.done) {
        status = read_line(line, order.waits);
        if (status != 0) return status;
        char *text = line + strcspn(line, " ");
        if (*text == ' ') *text++ = '\0';
        decode(text);
        status = take_line(&order, line, text);
        if (order.waits != 0 && !told) tell_started();
        told = order.waits != 0;
    }
    if (status == 0 && !told) tell_started();
    return status;
}

/* Reads the order. Returns CLI_GO_ON or an exit status; OK: the job is over, and did not need this host. */
static int read_it(struct launch *launch)
{
    char *line = malloc(LINE_BYTES + 1);
    order.launch = launch;
    launch->remote = true;
    int status = line == NULL ? cli_fail("run", "out of memory") : read_all(line);
    if (line != NULL) explicit_bzero(line, LINE_BYTES);
    free(line);
    if (status != 0) return status;
    if (order.over) return CLI_OK;
    (void)fcntl(orders, F_SETFL, fcntl(orders, F_GETFL) | O_NONBLOCK);
    return check_order(&order);
}

int remote_read(struct launch *launch, int *argc, char ***argv)
{
    int status = read_it(launch);
    *argc = order.argc;
    *argv = order.argv;
    return status;
}

int remote_read_link(struct run_values *values, struct launch *launch)
{
    orders = launch->link;
    int status = read_it(launch);
    if (status == CLI_OK) (void)fprintf(stderr, "tutti run: the job has ended, and this node was not needed\n");
    values->max_restarts = order.restarts;
    values->keep_going = order.keeps != 0;
    return status;
}

static struct remote_order read_order(const char *line)
{
    struct remote_order read = {.kind = ORDER_NONE};
    char word[16];
    if (sscanf(line, "%15s %d %d %255s", word, &read.rank, &read.value, read.text) < 3) return read;
    for (int kind = ORDER_SIGNAL; kind <= ORDER_WATCH; kind++)
        if (strcmp(word, remote_order_words[kind]) == 0) read.kind = (enum remote_order_kind)kind;
    return read;
}

struct remote_order remote_next_order(void)
{
    static char line[512];
    static size_t length;
    for (;;) {
        ssize_t got = read(orders, &line[length], 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return (struct remote_order){.kind = ORDER_NONE};
        if (got <= 0) return (struct remote_order){.kind = ORDER_GONE};
        if (line[length] != '\n' && length + 1 < sizeof line) {
            length++;
            continue;
        }
        line[length] = '\0';
        length = 0;
        struct remote_order read = read_order(line);
        if (read.kind != ORDER_NONE) return read;
    }
}

/* ---- Reports --------------------------------------------------------------------------------------------------------- */

static const char *const events[] = {
    [REMOTE_STARTED] = "started", [REMOTE_ENDED] = "ended", [REMOTE_FAILED] = "failed", [REMOTE_LATE] = "late",
    [REMOTE_ALIVE] = "alive",     [REMOTE_EMPTY] = "empty", [REMOTE_GONE] = "gone",     [REMOTE_ASKED] = "asked",
    [REMOTE_EXIT] = "exit",       [REMOTE_ROW] = "row"};

/* Reads a report whose text goes on to the end of the line. */
static bool read_text(const char *line, size_t length, struct remote_report *report)
{
    static char text[REPORT_TEXT];
    const size_t head = 5; /* the mark, "row" and a blank */
    if (length <= head || length - head >= sizeof text || memcmp(line + 1, "row ", 4) != 0) return false;
    memcpy(text, line + head, length - head);
    text[length - head] = '\0';
    *report = (struct remote_report){.event = REMOTE_ROW, .text = text};
    return true;
}

void hosts_write_report(const struct remote_report *report, char *line, size_t bytes)
{
    (void)snprintf(line, bytes, "%c%s %d %d %d %d %d", REMOTE_MARK, events[report->event], report->rank, report->pid,
                   report->value, report->follows, report->joined);
}

bool hosts_read_report(const char *line, size_t length, struct remote_report *report)
{
    char copy[128], word[16];
    if (length < 1 || line[0] != REMOTE_MARK) return false;
    if (read_text(line, length, report)) return true;
    if (length >= sizeof copy) return false;
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
