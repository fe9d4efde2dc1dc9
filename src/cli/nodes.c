/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers that were started one by one, with --nnodes, of a job that goes on after losses: one of them must decide. They
 * meet at the port behind the ranks' one and prove the job's key. The launcher of node 0 is then what the one of --hosts
 * is: it has no ranks, and starts a launcher for those of its own host. The others get their orders over the connection,
 * and report over it. In the launcher of node 0 a process of its guard stands for each of them, as a remote shell does.
 */
#include "cli/cli.h"
#include "cli/cli_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOST_STATUS = 255, PUMP_BYTES = 65536, LINE_MOST = 1024, LAST_MS = 3000, PORT_MOST = 65535 };

/* What launchers tell each other when they meet. */
struct node_hello {
    int32_t version, slots;
};

/* ---- Meeting --------------------------------------------------------------------------------------------------------- */

bool nodes_are_linked(const struct run_values *values, const struct launch *launch)
{
    bool heals = values->max_restarts > 0 || values->keep_going;
    return !launch->remote && values->hosts[0] == '\0' && launch->place.nodes > 1 && heals;
}

static int check_hellos(const struct node_hello *all, int count)
{
    for (int i = 0; i < count; i++) {
        if (all[i].version != ORDER_VERSION)
            return cli_refuse("run", "the launchers are of different versions (order %d on node %d, here %d)",
                              all[i].version, i, ORDER_VERSION);
        if (all[i].slots != all[0].slots)
            return cli_refuse("run",
                              "node %d was to start %d ranks, and node 0 %d: give all of them the same "
                              "--nproc-per-node",
                              i, all[i].slots, all[0].slots);
    }
    return CLI_GO_ON;
}

static int meet(const struct run_values *values, struct launch *launch, int count, int *links)
{
    const struct place *place = &launch->place;
    const struct node_hello mine = {ORDER_VERSION, launch->size};
    struct node_hello *all = calloc((size_t)count, sizeof *all);
    char address[300], job[300];
    tutti_error error = {0};
    if (all == NULL) return cli_fail("run", "out of memory");
    (void)snprintf(address, sizeof address, "%s:%d", values->master_addr, place->master_port + 1);
    (void)snprintf(job, sizeof job, "%.200s/launchers", launch->job);
    tutti_status met = tutti_launchers_meet(job, place->node, count, address, &mine, sizeof mine, all, links, &error);
    int status = met == TUTTI_OK ? check_hellos(all, count) : cli_blame("run", &error);
    free(all);
    return status;
}

int nodes_open(struct run_values *values, struct launch *launch)
{
    int count = launch->place.nodes + (int)values->spare;
    if (launch->place.master_port >= PORT_MOST)
        return cli_refuse("run", "--master-port %d: the launchers need the next port, too", launch->place.master_port);
    int *links = malloc((size_t)count * sizeof *links);
    if (links == NULL) return cli_fail("run", "out of memory");
    for (int i = 0; i < count; i++) links[i] = -1;
    int status = meet(values, launch, count, links);
    if (status == CLI_GO_ON && launch->place.node == 0) {
        status = hosts_open_links(values, launch, links);
    } else if (status == CLI_GO_ON) {
        launch->link = links[0];
        status = remote_read_link(values, launch);
    }
    free(links);
    return status;
}

/* ---- In place of a remote shell -------------------------------------------------------------------------------------- */

struct pump {
    int link, status;
    bool closed; /* stdin has ended */
    char orders[PUMP_BYTES];
    size_t used;
    char line[LINE_MOST]; /* of a report */
    size_t length;
};

/* Keeps a report, or passes it on. */
static void end_line(struct pump *pump)
{
    struct remote_report report;
    bool known = hosts_read_report(pump->line, pump->length, &report);
    if (known && report.event == REMOTE_EXIT) pump->status = report.value;
    pump->line[pump->length++] = '\n';
    if (known && report.event != REMOTE_EXIT) (void)!write(STDERR_FILENO, pump->line, pump->length);
    pump->length = 0;
}

/* Returns false when the other launcher has ended, or its connection. */
static bool take_reports(struct pump *pump)
{
    char bytes[4096];
    ssize_t got = recv(pump->link, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    for (ssize_t i = 0; i < got; i++) {
        if (bytes[i] == '\n')
            end_line(pump);
        else if (pump->length < sizeof pump->line - 1)
            pump->line[pump->length++] = bytes[i];
    }
    return got > 0;
}

static bool send_orders(struct pump *pump)
{
    ssize_t sent = send(pump->link, pump->orders, pump->used, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    pump->used -= (size_t)sent;
    memmove(pump->orders, pump->orders + sent, pump->used);
    return true;
}

static void take_orders(struct pump *pump)
{
    ssize_t got = read(STDIN_FILENO, pump->orders + pump->used, sizeof pump->orders - pump->used);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    pump->used += got > 0 ? (size_t)got : 0;
    pump->closed = got <= 0;
}

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits until something can be done. Returns false when the other end has had its time. */
static bool step(struct pump *pump, int64_t until_ms)
{
    bool room = !pump->closed && pump->used < sizeof pump->orders;
    struct pollfd polls[2] = {{room ? STDIN_FILENO : -1, POLLIN, 0},
                              {pump->link, (short)(POLLIN | (pump->used > 0 ? POLLOUT : 0)), 0}};
    int64_t left_ms = until_ms == 0 ? -1 : until_ms - now_ms();
    if (until_ms != 0 && left_ms <= 0) return false;
    if (poll(polls, 2, (int)left_ms) < 0) return errno == EINTR;
    if (polls[0].revents != 0) take_orders(pump);
    if ((polls[1].revents & POLLOUT) != 0 && !send_orders(pump)) return false;
    return (polls[1].revents & ~POLLOUT) == 0 || take_reports(pump);
}

int nodes_pump(int link)
{
    enum { LINK = 3 };
    static struct pump pump;
    int64_t until_ms = 0;
    bool shut = false;
    /* nothing of the other nodes may stay open here, or their ends would not be seen */
    if (link != LINK && dup2(link, LINK) < 0) return LOST_STATUS;
    (void)syscall(SYS_close_range, LINK + 1, ~0U, 0);
    pump.link = LINK;
    pump.status = LOST_STATUS;
    while (step(&pump, until_ms)) {
        if (!pump.closed) continue;
        if (until_ms == 0) until_ms = now_ms() + LAST_MS;
        if (pump.used == 0 && !shut) shut = shutdown(pump.link, SHUT_WR) == 0;
    }
    return pump.status;
}

/* ---- The end --------------------------------------------------------------------------------------------------------- */

/* Closing with bytes that were not read would reset the connection, and the last report be lost: so this waits for the
 * other end to close. */
void nodes_close(struct launch *launch, int status)
{
    const struct remote_report last = {.event = REMOTE_EXIT, .value = status};
    char rest[512], line[LINE_MOST];
    int64_t until_ms = now_ms() + LAST_MS;
    if (launch->link == 0) return;
    hosts_write_report(&last, line, sizeof line - 1);
    (void)strcat(line, "\n");
    (void)send(launch->link, line, strlen(line), MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)shutdown(launch->link, SHUT_WR);
    for (;;) {
        ssize_t got = recv(launch->link, rest, sizeof rest, MSG_DONTWAIT);
        int64_t left_ms = until_ms - now_ms();
        struct pollfd polled = {launch->link, POLLIN, 0};
        if (got == 0 || left_ms <= 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
        if (got < 0) (void)poll(&polled, 1, (int)left_ms);
    }
    (void)close(launch->link);
    launch->link = 0;
}
