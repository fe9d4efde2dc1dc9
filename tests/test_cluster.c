/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: timeout=120 labels=asan,tsan waits */
/* Joining a cluster on one host, by memory and by tcp. Several hosts are in test_netns.c. */
#include "base/clock.h"
#include "check_hosts.h"
#include "ranks.h"
#include "world/board.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tutti/experimental.h>
#include <unistd.h>

enum { MOST = 8 };

static char job[64];

static void next_job(void)
{
    static int number;
    snprintf(job, sizeof job, "cluster-%d-%d", (int)getpid(), number++);
}

static struct host_part part_of(int process, int count, int each, const char *transport)
{
    struct host_part part = {.options = host_options(), .frames = 40};
    part.launch = (struct tti_cluster_launch){
        .job = job, .process = process, .process_count = count, .ranks_each = each, .one_host = true};
    part.options.transport = transport;
    return part;
}

/* Each part in a process of its own; reports come in order. */
static void run_processes(const struct host_part *parts, struct host_report *reports, int count)
{
    int ends[MOST][2];
    pid_t children[MOST];
    fflush(stdout);
    for (int i = 0; i < count; i++) {
        if (pipe(ends[i]) != 0) abort();
        children[i] = fork();
        if (children[i] != 0) continue;
        struct host_report report = host_run(&parts[i]);
        exit(write(ends[i][1], &report, sizeof report) != sizeof report);
    }
    for (int i = 0; i < count; i++) {
        int status = 1;
        memset(&reports[i], 0, sizeof reports[i]);
        reports[i].status = TUTTI_IN_PROGRESS;
        close(ends[i][1]);
        CHECK(read(ends[i][0], &reports[i], sizeof reports[i]) == sizeof reports[i]);
        close(ends[i][0]);
        waitpid(children[i], &status, 0);
        CHECK(status == 0);
    }
}

static void *run_thread(void *argument)
{
    struct host_report *report = malloc(sizeof *report);
    *report = host_run(argument);
    return report;
}

/* Each part in a thread of this process. */
static void run_threads(struct host_part *parts, struct host_report *reports, int count)
{
    pthread_t threads[MOST];
    for (int i = 0; i < count; i++) CHECK(pthread_create(&threads[i], NULL, run_thread, &parts[i]) == 0);
    for (int i = 0; i < count; i++) {
        void *report;
        pthread_join(threads[i], &report);
        memcpy(&reports[i], report, sizeof reports[i]);
        free(report);
    }
}

static void test_join(int count, int each, const char *transport, bool threads)
{
    struct host_part parts[MOST];
    struct host_report reports[MOST];
    bool tcp = strcmp(transport, "tcp") == 0;
    int size = count * each;
    next_job();
    for (int i = 0; i < count; i++) parts[i] = part_of(i, count, each, transport);
    if (threads)
        run_threads(parts, reports, count);
    else
        run_processes(parts, reports, count);
    for (int i = 0; i < count; i++) {
        CHECK(reports[i].status == TUTTI_OK);
        if (reports[i].status != TUTTI_OK) printf("process %d: %s\n", i, reports[i].error.text);
        CHECK(reports[i].hosts == (tcp ? size : 1) && reports[i].local_size == (tcp ? 1 : size));
        CHECK(reports[i].wrong == 0 && reports[i].apart == 1 && reports[i].machines == 1);
        CHECK(reports[i].ended == (tcp ? (uint64_t)each * 40 * (uint64_t)(size - 1) : 0));
    }
}

/* Two jobs at once, each on two hosts, with names as long as can be that differ at their ends. In the second, one process is
 * told not to combine in memory, which then holds for all. */
static void test_long_names(void)
{
    struct host_part parts[8];
    struct host_report reports[8];
    char names[2][128];
    next_job();
    for (int i = 0; i < 2; i++) snprintf(names[i], sizeof names[i], "%s-%0*d", job, (int)(126 - strlen(job)), i);
    for (int i = 0; i < 8; i++) {
        parts[i] = part_of(i % 4, 4, 1, "auto");
        parts[i].launch.job = names[i / 4];
        parts[i].options.host_processes = 2;
        parts[i].options.host_aware = i != 5;
    }
    run_processes(parts, reports, 8);
    for (int i = 0; i < 8; i++) {
        CHECK(i < 4 ? reports[i].shares == reports[0].shares : !reports[i].shares);
        CHECK(reports[i].status == TUTTI_OK && reports[i].hosts == 2 && reports[i].local_size == 2);
        if (reports[i].status != TUTTI_OK) printf("process %d: %s\n", i, reports[i].error.text);
        CHECK(reports[i].wrong == 0);
    }
}

static bool says(const struct host_report *report, const char *words)
{
    if (strstr(report->error.text, words) != NULL) return true;
    printf("expected \"%s\" in: %s\n", words, report->error.text);
    return false;
}

/* One that cannot listen still comes to the meeting, and everyone is told why. */
static void test_unable(int bad)
{
    struct host_part parts[3];
    struct host_report reports[3];
    char who[32];
    next_job();
    for (int i = 0; i < 3; i++) parts[i] = part_of(i, 3, 1, "tcp");
    parts[bad].options.interface = "nothere7";
    run_processes(parts, reports, 3);
    CHECK(reports[bad].status == TUTTI_ERR_OPTION && says(&reports[bad], "nothere7"));
    snprintf(who, sizeof who, "process %d of job", bad);
    for (int i = 0; i < 3; i++)
        if (i != bad)
            CHECK(reports[i].status == TUTTI_ERR_JOIN && says(&reports[i], who) && says(&reports[i], "nothere7"));
}

/* Rank 0 stays a while for those that are late. On a loaded machine one may be later still: then all try again. */
static int64_t run_timed(struct host_part *parts, struct host_report *reports, int count)
{
    int64_t took_ns = 0;
    bool late = true;
    for (int attempt = 0; attempt < 3 && late; attempt++) {
        next_job();
        int64_t began_ns = tti_now_ns();
        run_processes(parts, reports, count);
        took_ns = tti_now_ns() - began_ns;
        late = false;
        for (int i = 0; i < count; i++) late = late || strstr(reports[i].error.text, "had it given up") != NULL;
    }
    return took_ns;
}

/* One is told another way to the others, and they wait for each other at different sockets. */
static void test_different(const char *transport, int64_t host_processes, int odd, const char *odd_transport)
{
    struct host_part parts[3];
    struct host_report reports[3];
    char by_odd[32];
    for (int i = 0; i < 3; i++) {
        parts[i] = part_of(i, 3, 1, i == odd ? odd_transport : transport);
        parts[i].options.host_processes = i == odd ? 0 : host_processes;
    }
    CHECK(run_timed(parts, reports, 3) < SLACK_MS * MS);
    snprintf(by_odd, sizeof by_odd, "rank %d has", odd);
    for (int i = 0; i < 3; i++) {
        CHECK(reports[i].status == TUTTI_ERR_JOIN && says(&reports[i], "rank 0 has TUTTI_TRANSPORT="));
        CHECK(odd == 0 || says(&reports[i], by_odd));
        CHECK(says(&reports[i], host_processes > 0 ? "TUTTI_HOST_PROCESSES" : odd_transport));
    }
}

/* On several hosts one has no room for its arena: all are told which, by its number in the job. */
static void test_no_room(int host_processes)
{
    struct host_part parts[4];
    struct host_report reports[4];
    char who[128];
    next_job();
    for (int i = 0; i < 4; i++) {
        parts[i] = part_of(i, 4, 1, "auto");
        parts[i].options.host_processes = host_processes;
    }
    parts[3].options.arena_bytes = INT64_C(1) << 50;
    run_processes(parts, reports, 4);
    snprintf(who, sizeof who, "rank 3 could not join job %s: 1.0 PiB", job);
    CHECK(reports[3].status == TUTTI_ERR_LIMIT && reports[3].error.rank == 3);
    for (int i = 0; i < 3; i++) {
        CHECK(reports[i].status == TUTTI_ERR_JOIN && says(&reports[i], who));
        CHECK(reports[i].error.rank == i && reports[i].error.peer == 3);
    }
}

/* One cannot even begin. The others must have the time to come: a machine that is loaded gets more of it. */
static void test_absent(void)
{
    struct host_part parts[3];
    struct host_report reports[3];
    bool known = false;
    for (int64_t patience_ms = SANITIZED ? 4000 : 1500; !known && patience_ms < LONG_MS; patience_ms *= 4) {
        next_job();
        for (int i = 0; i < 3; i++) parts[i] = part_of(i, 3, 1, i == 2 ? "avian" : "tcp");
        parts[0].options.join_timeout_ms = patience_ms; /* the first who gives up, and tells the other */
        run_processes(parts, reports, 3);
        known = says(&reports[0], "rank 2 of job") && says(&reports[1], "rank 2 of job");
    }
    CHECK(known && reports[0].status == TUTTI_ERR_JOIN && reports[1].status == TUTTI_ERR_JOIN);
    CHECK(reports[2].status == TUTTI_ERR_OPTION && says(&reports[2], "avian"));
}

static void test_failures(void)
{
    struct host_part parts[3];
    struct host_report reports[3];
    test_absent();
    for (int bad = 0; bad < 3; bad += 2) test_unable(bad);
    for (int host_processes = 1; host_processes <= 2; host_processes++) test_no_room(host_processes);

    next_job();
    for (int i = 0; i < 3; i++) parts[i] = part_of(i, 3, 1 + (i == 1), "tcp");
    run_processes(parts, reports, 3);
    for (int i = 0; i < 3; i++) CHECK(reports[i].status == TUTTI_ERR_JOIN && says(&reports[i], "TUTTI_RANKS"));

    next_job();
    for (int i = 0; i < 3; i++) {
        parts[i] = part_of(i, 3, 1, i == 1 ? "tcp" : "auto");
        parts[i].options.host_processes = 2; /* so that all come to the meeting */
    }
    run_processes(parts, reports, 3);
    for (int i = 0; i < 3; i++) CHECK(reports[i].status == TUTTI_ERR_JOIN && says(&reports[i], "told to use tcp"));

    next_job();
    parts[0] = part_of(0, 1, 1, "avian");
    reports[0] = host_run(&parts[0]);
    CHECK(reports[0].status == TUTTI_ERR_OPTION && says(&reports[0], "auto, shm or tcp"));

    parts[0] = part_of(0, 2, 1, "auto"); /* several hosts, no key */
    parts[0].launch.one_host = false;
    parts[0].launch.address = "127.0.0.1:1";
    reports[0] = host_run(&parts[0]);
    CHECK(reports[0].status == TUTTI_ERR_JOIN && says(&reports[0], "tutti key FILE"));
    parts[0].launch.address = NULL;
    reports[0] = host_run(&parts[0]);
    CHECK(reports[0].status == TUTTI_ERR_JOIN && says(&reports[0], "MASTER_ADDR"));
    parts[0].options.transport = "shm";
    reports[0] = host_run(&parts[0]);
    CHECK(reports[0].status == TUTTI_ERR_OPTION && says(&reports[0], "ends at a host"));
}

/* Key files: made once, refused when others can read them. */
static void test_key_file(void)
{
    char folder[] = "/tmp/tutti-key-XXXXXX", path[64];
    tutti_error error;
    struct host_part part = part_of(0, 2, 1, "auto");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/key", folder);
    part.launch.one_host = false;
    part.launch.address = "127.0.0.1:1";
    part.options.key_file = path;
    struct host_report report = host_run(&part);
    CHECK(report.status == TUTTI_ERR_OPTION && says(&report, "cannot be opened") && says(&report, "tutti key"));
    CHECK(tutti_key_create(path, NULL) == TUTTI_OK);
    CHECK(tutti_key_create(path, &error) == TUTTI_ERR_SYSTEM && strstr(error.text, "exists") != NULL);
    struct stat info;
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    chmod(path, 0640);
    report = host_run(&part);
    CHECK(report.status == TUTTI_ERR_OPTION && says(&report, "chmod 600"));
    chmod(path, 0600);
    CHECK(truncate(path, 60) == 0);
    report = host_run(&part);
    CHECK(report.status == TUTTI_ERR_OPTION && says(&report, "does not hold a key"));
    unlink(path);
    setenv("TUTTI_KEY", "12", 1);
    part.options.key_file = "";
    report = host_run(&part);
    CHECK(report.status == TUTTI_ERR_OPTION && says(&report, "64 hexadecimal digits"));
    unsetenv("TUTTI_KEY");
    rmdir(folder);
}

/* Who has ended is looked up on the board of the own job only. */
static void test_board(void)
{
    tutti_board *made;
    struct tti_board board;
    char name[64];
    CHECK(tutti_board_create("job", 0, 2, 2, &made, NULL) == TUTTI_OK);
    tutti_board_name(made, name, sizeof name);
    for (int i = 0; i < 3; i++) tutti_board_note(made, 1, 1, 0); /* there is room for two */
    tti_board_open(&board, name, "job", 2, 1);
    CHECK(tti_board_ended(&board, 1) == 1 && tti_board_ended(&board, 2) == -1);
    tti_board_close(&board);
    tti_board_open(&board, name, "another", 2, 1);
    CHECK(tti_board_ended(&board, 0) == -1);
    tti_board_open(&board, name, "job", 3, 1);
    CHECK(tti_board_ended(&board, 0) == -1);
    tutti_board_free(made);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    test_join(1, 1, "auto", false);
    test_join(1, 1, "tcp", false);
    test_join(3, 1, "auto", false);
    test_join(2, 2, "shm", false);
    test_join(2, 1, "tcp", false);
    test_join(4, 1, "tcp", false);
    test_join(2, 3, "tcp", false);
    test_join(1, 4, "tcp", false);
    test_join(4, 1, "tcp", true);
    test_long_names();
    test_board();
    test_failures();
    test_different("shm", 0, 1, "tcp");
    test_different("tcp", 0, 2, "auto");
    test_different("tcp", 0, 0, "shm");
    test_different("auto", 0, 0, "tcp");
    test_different("auto", 2, 0, "auto");
    test_different("auto", 2, 2, "shm");
    test_key_file();
    return check_end();
}
