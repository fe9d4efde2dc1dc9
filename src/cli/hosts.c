/* SPDX-License-Identifier: Apache-2.0
 *
 * --hosts: a remote shell for each host, which starts this tool there with --from-stdin. This launcher treats the
 * shells like ranks: the guard owns them, and their output is printed. Each has a pipe to its stdin, which
 *     holds, before the shell is started, everything that the launcher there needs to know (text lines,
 *     hosts_tell.c),
 *     later carries orders, mostly signals, one to a line,
 *     and ends the job on that host when it closes, as it does however this launcher dies.
 * Where the launcher there was started by hand and is connected (nodes.c), a process of the guard takes the shell's
 * place: it passes on what comes by the pipe.
 * A spare host gets the rest of its order when it takes the place of one that is lost. The other launchers report to
 * this one by lines on stderr that begin with a mark.
 */
#include "cli/hosts.h"
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT_FIRST = 20000, PORT_COUNT = 12000, RANKS_MOST = 65536 };

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
        hosts->list[i].input = hosts->list[i].control = hosts->list[i].link = -1;
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

/* ---- Opening and closing --------------------------------------------------------------------------------------------- */

/* Returns the address without the user before it. */
static const char *address_of(const struct host *host)
{
    const char *at = strrchr(host->name, '@');
    if (host->linked) return host->address;
    return at != NULL ? at + 1 : host->name;
}

/* Gives the hosts their ranks: the last hosts are spare. Returns how many ranks there are. */
static int place_ranks(const struct hosts *hosts, int nodes)
{
    int world = 0;
    for (int i = 0; i < nodes; i++) {
        struct host *host = &hosts->list[i];
        host->node = i;
        host->first = world;
        world += host->slots;
    }
    for (int i = nodes; i < hosts->count; i++) hosts->list[i].slots = 0;
    return world;
}

/* Sets the place of the job: rank 0 is on the first host. */
static void set_place(const struct run_values *values, struct launch *launch)
{
    unsigned random = 0;
    (void)!getrandom(&random, sizeof random, 0);
    struct place *place = &launch->place;
    *place = (struct place){.nodes = launch->hosts->count - (int)values->spare};
    place->world = place_ranks(launch->hosts, place->nodes);
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
    if (status == CLI_GO_ON) status = hosts_send_orders(values, launch);
    launch->size = hosts->count;
    if (status == CLI_GO_ON) return status;
    hosts_close(hosts);
    launch->hosts = NULL;
    return status;
}

/* Fills in one node: its launcher is connected, or it is this one, where a launcher is started without a shell. */
static int fill_node(struct hosts *hosts, int node, int slots, int link)
{
    static char run[] = "run", from_stdin[] = "--from-stdin";
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    struct host *host = &hosts->list[node];
    char name[32];
    (void)snprintf(name, sizeof name, "node %d", node);
    *host = (struct host){
        .name = strdup(name), .slots = slots, .input = -1, .control = -1, .linked = link >= 0, .link = link};
    hosts->count = node + 1;
    host->command[0] = hosts->remote;
    host->command[1] = run;
    host->command[2] = from_stdin;
    if (host->name == NULL) return cli_fail("run", "out of memory");
    if (link < 0) return CLI_GO_ON;
    int why = getpeername(link, (struct sockaddr *)&from, &length) != 0
                  ? EAI_SYSTEM
                  : getnameinfo((struct sockaddr *)&from, length, host->address, sizeof host->address, NULL, 0,
                                NI_NUMERICHOST);
    return why == 0 ? CLI_GO_ON : cli_fail("run", "the address of node %d: %s", node, gai_strerror(why));
}

int hosts_open_links(const struct run_values *values, struct launch *launch, const int *links)
{
    int count = launch->place.nodes + (int)values->spare, status = CLI_GO_ON;
    unsigned random = 0;
    char self[4096] = "";
    struct hosts *hosts = calloc(1, sizeof *hosts);
    if (hosts == NULL) return cli_fail("run", "out of memory");
    hosts->list = calloc((size_t)count, sizeof *hosts->list);
    if (readlink("/proc/self/exe", self, sizeof self - 1) > 0) hosts->remote = strdup(self);
    if (hosts->list == NULL || hosts->remote == NULL) status = cli_fail("run", "out of memory, or no /proc");
    for (int i = 0; i < count && status == CLI_GO_ON; i++) status = fill_node(hosts, i, launch->size, links[i]);
    (void)!getrandom(&random, sizeof random, 0);
    size_t used = strlen(launch->job);
    (void)snprintf(launch->job + used, sizeof launch->job - used, "-%08x", random);
    launch->hosts = hosts;
    if (status == CLI_GO_ON) {
        (void)place_ranks(hosts, launch->place.nodes);
        status = hosts_send_orders(values, launch);
    }
    launch->size = count;
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
    for (int i = 0; hosts != NULL && i < hosts->count; i++) {
        close_end(&hosts->list[i].input);
        hosts_close_link(hosts, i);
    }
}

void hosts_close_link(struct hosts *hosts, int host)
{
    close_end(&hosts->list[host].link);
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

int hosts_link(const struct hosts *hosts, int host)
{
    return hosts->list[host].link;
}

bool hosts_is_linked(const struct hosts *hosts, int host)
{
    return hosts->list[host].linked;
}

bool hosts_are_nodes(const struct hosts *hosts)
{
    return hosts->words == NULL;
}

const char *hosts_title(const struct hosts *hosts, int host, char text[96])
{
    (void)snprintf(text, 96, "%s%.80s", hosts_are_nodes(hosts) ? "" : "host ", hosts->list[host].name);
    return text;
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
    if (to->node == 0 && (to->linked || values->master_addr[0] == '\0')) launch->place.master_addr = address_of(to);
    FILE *stream = open_memstream(&text, &bytes);
    if (stream == NULL) return false;
    hosts_tell_all(stream, values, launch, to, generation);
    bool sent = fclose(stream) == 0 && to->control >= 0 && send_rest(to, text, bytes);
    if (text != NULL) explicit_bzero(text, bytes);
    free(text);
    return sent;
}
