/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: timeout=120 labels=asan waits */
/* Jobs on several hosts, which are network namespaces here, joined by virtual cables: IPv4, IPv6 only, a host of many
 * addresses, one that falls silent, hosts that cannot reach each other. Skipped where namespaces may not be made. */
#include "check_hosts.h"
#include "ranks.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOSTS = 3, EACH = 2, PARTS = HOSTS * EACH };

static char job[64];

/* ---- Namespaces ------------------------------------------------------------------------------------------------ */

static void skip(const char *why)
{
    printf("skipped: %s\n", why);
    exit(77);
}

__attribute__((format(printf, 1, 2))) static bool command(const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return system(line) == 0;
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)!write(fd, text, strlen(text));
    close(fd);
}

/* A network of this test's own, where it is root. */
static void enter_namespaces(void)
{
    char map[64];
    uid_t user = geteuid();
    gid_t group = getegid();
    if (unshare((user == 0 ? 0 : CLONE_NEWUSER) | CLONE_NEWNET | CLONE_NEWUTS) != 0)
        skip("network namespaces may not be made here");
    if (user != 0) {
        write_file("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "0 %d 1", (int)user);
        write_file("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "0 %d 1", (int)group);
        write_file("/proc/self/gid_map", map);
    }
    if (!command("ip link add tt0 type veth peer name tt1 2> /dev/null && ip link del tt0"))
        skip("virtual cables (ip link add type veth) cannot be made here");
}

/* One host: a process that holds a namespace until its pipe closes, and what runs there. */
struct host {
    pid_t keeper;
    int release;
};

static struct host make_host(int number)
{
    int ready[2], release[2];
    char byte = 0, name[16];
    if (pipe(ready) != 0 || pipe(release) != 0) abort();
    fflush(stdout);
    struct host host = {.keeper = fork(), .release = release[1]};
    if (host.keeper == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        snprintf(name, sizeof name, "host%c", 'A' + number);
        bool made = unshare(CLONE_NEWNET | CLONE_NEWUTS) == 0 && sethostname(name, strlen(name)) == 0 &&
                    command("ip link set lo up");
        close(release[1]);
        (void)!write(ready[1], made ? "y" : "n", 1);
        (void)!read(release[0], &byte, 1);
        _exit(0);
    }
    close(release[0]);
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1 || byte != 'y') skip("a namespace for a host cannot be made here");
    close(ready[0]);
    return host;
}

static void end_hosts(struct host *hosts, int count)
{
    for (int i = 0; i < count; i++) {
        close(hosts[i].release);
        kill(hosts[i].keeper, SIGKILL);
        waitpid(hosts[i].keeper, NULL, 0);
    }
}

static bool enter_host(const struct host *host)
{
    static const char *const kinds[] = {"net", "uts"};
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)host->keeper, kinds[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || setns(fd, 0) != 0) return false;
        close(fd);
    }
    return true;
}

/* A cable between two hosts, its ends named cable<n>, with these addresses ("10.9.0.1/24", "fd00::1/64"). */
static void lay_cable(const struct host *a, const struct host *b, int number, const char *at_a, const char *at_b)
{
    const struct host *ends[] = {a, b};
    const char *addresses[] = {at_a, at_b};
    CHECK(command("ip link add cable%d netns %d type veth peer name cable%d netns %d", number, (int)a->keeper, number,
                  (int)b->keeper));
    for (int i = 0; i < 2; i++) {
        const char *more = strchr(addresses[i], ':') != NULL ? "nodad" : "";
        CHECK(command("nsenter -t %d -n sh -c 'ip addr add %s dev cable%d %s && ip link set cable%d up'",
                      (int)ends[i]->keeper, addresses[i], number, more, number));
    }
}

/* ---- Parts ----------------------------------------------------------------------------------------------------- */

static struct host_part part_of(int process, int count, int each, const char *address)
{
    struct host_part part = {.options = host_options(), .frames = 30};
    part.launch = (struct tti_cluster_launch){
        .job = job, .process = process, .process_count = count, .ranks_each = each, .address = address};
    return part;
}

struct started {
    pid_t child;
    int pipe;
};

static struct started start_on(const struct host *host, const struct host_part *part)
{
    int ends[2];
    if (pipe(ends) != 0) abort();
    fflush(stdout);
    struct started started = {.child = fork(), .pipe = ends[0]};
    if (started.child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!enter_host(host)) _exit(3);
        struct host_report report = host_run(part);
        exit(write(ends[1], &report, sizeof report) != sizeof report);
    }
    close(ends[1]);
    return started;
}

static struct host_report collect(struct started *started)
{
    struct host_report report = {.status = TUTTI_IN_PROGRESS};
    int status = 1;
    CHECK(read(started->pipe, &report, sizeof report) == sizeof report);
    close(started->pipe);
    waitpid(started->child, &status, 0);
    CHECK(status == 0);
    return report;
}

/* Process i runs on host where[i]. */
static void run_parts(const struct host *hosts, const int *where, const struct host_part *parts,
                      struct host_report *reports, int count)
{
    struct started started[PARTS];
    for (int i = 0; i < count; i++) started[i] = start_on(&hosts[where[i]], &parts[i]);
    for (int i = 0; i < count; i++) reports[i] = collect(&started[i]);
}

static bool says(const char *text, const char *words)
{
    if (strstr(text, words) != NULL) return true;
    printf("expected \"%s\" in: %s\n", words, text);
    return false;
}

static void next_job(void)
{
    static int number;
    snprintf(job, sizeof job, "netns-%d-%d", (int)getpid(), number++);
}

/* ---- Cases ----------------------------------------------------------------------------------------------------- */

/* Two hosts of two processes of two ranks, in an order that goes to and fro between the hosts. */
static void test_mixed(const char *at_a, const char *at_b, const char *address, bool only_v6)
{
    static const int where[] = {0, 1, 1, 0};
    struct host hosts[2] = {make_host(0), make_host(1)};
    struct host_part parts[4];
    struct host_report reports[4];
    next_job();
    lay_cable(&hosts[0], &hosts[1], 1, at_a, at_b);
    for (int i = 0; i < 2 && only_v6; i++)
        CHECK(command("nsenter -t %d -n ip addr del 127.0.0.1/8 dev lo", (int)hosts[i].keeper));
    for (int streams = 1; streams <= 3; streams += 2) {
        for (int i = 0; i < 4; i++) {
            parts[i] = part_of(i, 4, 2, address);
            parts[i].options.streams = streams;
        }
        run_parts(hosts, where, parts, reports, 4);
        for (int i = 0; i < 4; i++) {
            CHECK(reports[i].status == TUTTI_OK && reports[i].hosts == 2 && reports[i].local_size == 4);
            if (reports[i].status != TUTTI_OK) printf("process %d: %s\n", i, reports[i].error.text);
            CHECK(reports[i].wrong == 0 && reports[i].ended == 2 * 4 * 30);
            CHECK(reports[i].apart == 2 && reports[i].machines == 1);
        }
        next_job();
    }
    end_hosts(hosts, 2);
}

/* Of many addresses of a host the last one alone is good. */
static void test_many_addresses(void)
{
    enum { OTHERS = 20 };
    static const int where[] = {0, 1};
    struct host hosts[2] = {make_host(0), make_host(1)};
    struct host_part parts[2];
    struct host_report reports[2];
    int keeper = (int)hosts[0].keeper;
    next_job();
    CHECK(command("ip link add spare0 netns %d type veth peer name spare1 netns %d", keeper, keeper));
    CHECK(command("nsenter -t %d -n sh -c 'ip link set spare0 up && ip link set spare1 up'", keeper));
    for (int i = 0; i < OTHERS; i++) CHECK(command("nsenter -t %d -n ip addr add 10.77.%d.1/24 dev spare0", keeper, i));
    lay_cable(&hosts[0], &hosts[1], 1, "10.9.0.1/24", "10.9.0.2/24");
    for (int i = 0; i < 2; i++) parts[i] = part_of(i, 2, 1, "10.9.0.1:5000");
    run_parts(hosts, where, parts, reports, 2);
    for (int i = 0; i < 2; i++) {
        CHECK(reports[i].status == TUTTI_OK && reports[i].hosts == 2 && reports[i].wrong == 0);
        if (reports[i].status != TUTTI_OK) printf("process %d: %s\n", i, reports[i].error.text);
    }
    end_hosts(hosts, 2);
}

/* The cable of one is pulled: both hosts find the other silent, with nobody sending anything. What they say is how long nothing
 * has come: since the cable was pulled, or somewhat longer where nothing was sent before. */
static void test_silence(int64_t busy_ms)
{
    static const int where[] = {0, 1};
    struct host hosts[2] = {make_host(0), make_host(1)};
    struct host_part parts[2];
    struct host_report reports[2];
    next_job();
    lay_cable(&hosts[0], &hosts[1], 1, "10.9.0.1/24", "10.9.0.2/24");
    for (int i = 0; i < 2; i++) {
        parts[i] = part_of(i, 2, 1, "10.9.0.1:5000");
        parts[i].stay = true;
        parts[i].busy_ms = busy_ms;
    }
    parts[1].then = "ip link set cable1 down";
    run_parts(hosts, where, parts, reports, 2);
    for (int i = 0; i < 2; i++) {
        int64_t took_ms = (reports[i].lost_ns - reports[1].ran_ns) / MS;
        CHECK(reports[i].status == TUTTI_OK && says(reports[i].lost, i == 0 ? "rank 1 on hostB" : "rank 0 on hostA"));
        const char *said = strstr(reports[i].lost, "answers no heartbeats, and has been silent for ");
        long long silence_ms = said == NULL ? -1 : atoll(strstr(said, "for ") + 4);
        printf("host%c found the silence after %lld ms: %s\n", 'A' + i, (long long)took_ms, reports[i].lost);
        CHECK(took_ms > 500 && took_ms < 2000 + SLACK_MS);
        CHECK(silence_ms > took_ms - 1500 && silence_ms < took_ms + (busy_ms > 0 ? 700 : 1500));
    }
    end_hosts(hosts, 2);
}

/* B and C reach A, where they meet, but not each other. */
static void test_no_route(void)
{
    static const int where[] = {0, 1, 2};
    struct host hosts[3] = {make_host(0), make_host(1), make_host(2)};
    struct host_part parts[3];
    struct host_report reports[3];
    next_job();
    lay_cable(&hosts[0], &hosts[1], 1, "10.9.1.1/24", "10.9.1.2/24");
    lay_cable(&hosts[0], &hosts[2], 2, "10.9.2.1/24", "10.9.2.2/24");
    for (int i = 0; i < 3; i++) parts[i] = part_of(i, 3, 1, i == 2 ? "10.9.2.1:5000" : "10.9.1.1:5000");
    run_parts(hosts, where, parts, reports, 3);
    for (int i = 0; i < 3; i++) {
        CHECK(reports[i].status == TUTTI_ERR_JOIN);
        CHECK(says(reports[i].error.text, "no route between rank 2 on hostC and rank 1 on hostB"));
        CHECK(says(reports[i].error.text, "10.9.1.2:") && says(reports[i].error.text, "Network is unreachable"));
    }
    next_job(); /* nor can one meet that has no cable */
    parts[0] = part_of(0, 2, 1, "10.9.1.1:5000");
    parts[1] = part_of(1, 2, 1, "10.9.1.1:5000");
    parts[0].options.join_timeout_ms = parts[1].options.join_timeout_ms = 1500;
    static const int apart[] = {0, 2};
    run_parts(hosts, apart, parts, reports, 2);
    CHECK(reports[0].status == TUTTI_ERR_JOIN && says(reports[0].error.text, "rank 1 of job"));
    CHECK(reports[1].status == TUTTI_ERR_JOIN && says(reports[1].error.text, "rank 1 on hostC cannot meet rank 0") &&
          says(reports[1].error.text, "Network is unreachable"));
    end_hosts(hosts, 3);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!command("ip -V > /dev/null 2>&1")) skip("ip (package iproute2) is not installed");
    enter_namespaces();
    setenv("TUTTI_KEY", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", 1);
    test_mixed("10.9.0.1/24", "10.9.0.2/24", "10.9.0.1:5000", false);
    test_mixed("fd00:9::1/64", "fd00:9::2/64", "[fd00:9::1]:5000", true);
    test_many_addresses();
    test_silence(0);
    test_silence(1500);
    test_no_route();
    return check_end();
}
