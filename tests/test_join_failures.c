/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=240 labels=asan,tsan waits
 *
 * Worlds that do not form: every rank gets an error that names who is at fault, in time. And strangers on the socket,
 * who change nothing.
 */
#include "base/clock.h"
#include "ranks.h"
#include "world/build.h"
#include "world/rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Worlds that do not ---------------------------------------------------------------------------------------- */

static void check_errors(const struct report *reports, int count, const char *words, int64_t within_ms)
{
    for (int i = 0; i < count; i++) {
        CHECK(reports[i].status == TUTTI_ERR_JOIN);
        CHECK(check_says(reports[i].error.text, words));
        CHECK(reports[i].took_ns < within_ms * MS);
    }
}

/* Those who come must have the time to: a machine that is loaded gets more of it. */
static int64_t run_some(struct part *parts, struct report *reports, int count, const char *words)
{
    for (int64_t patience_ms = 300;; patience_ms *= 4) {
        bool known = true;
        for (int i = 0; i < count; i++) {
            parts[i].timeout_ms = parts[i].timeout_ms == LONG_MS ? LONG_MS : patience_ms;
            snprintf(parts[i].job, sizeof parts[i].job, "%s", rank_part(0, 1).job);
        }
        ranks_run(parts, reports, count);
        for (int i = 0; i < count; i++) known = known && strstr(reports[i].error.text, words) != NULL;
        if (known || patience_ms > LONG_MS / 4) return patience_ms;
    }
}

/* Rank 0 stays a while for those that are late. On a loaded machine one may be later still: then all try again. */
static void run_all(struct part *parts, struct report *reports, int count)
{
    for (int attempt = 0; attempt < 3; attempt++) {
        bool late = false;
        for (int i = 0; i < count; i++) snprintf(parts[i].job, sizeof parts[i].job, "%s", rank_part(0, 1).job);
        ranks_run(parts, reports, count);
        for (int i = 0; i < count; i++) late = late || strstr(reports[i].error.text, "has not opened job") != NULL;
        if (!late) return;
    }
}

static void test_missing(void)
{
    struct part parts[8];
    struct report reports[8];
    static const int come[] = {0, 1, 3, 4, 6};
    static const char some[] = "ranks 2, 5 and 7 of 8 did not join", one[] = "rank 2 of 3 did not join";
    for (int i = 0; i < 5; i++) {
        parts[i] = rank_part(come[i], 8);
        parts[i].timeout_ms = 0;
    }
    check_errors(reports, 5, some, run_some(parts, reports, 5, some) + SLACK_MS);

    ranks_fill(parts, 3); /* the shortest patience counts for all */
    parts[1].timeout_ms = 0;
    check_errors(reports, 2, one, run_some(parts, reports, 2, one) + SLACK_MS);
    CHECK(reports[0].error.peer == 2 && reports[1].error.peer == 2 && reports[1].error.rank == 1);

    ranks_fill(parts, 3); /* rank 0 does not come */
    for (int i = 0; i < 3; i++) parts[i].timeout_ms = 200;
    ranks_run(parts + 1, reports, 2);
    check_errors(reports, 2, "rank 0 has not opened job", 200 + SLACK_MS);
    CHECK(check_says(reports[0].error.text, "within 200 ms"));
}

static void test_disagreement(void)
{
    struct part parts[4];
    struct report reports[4];
    ranks_fill(parts, 3);
    parts[3] = parts[1];
    for (int i = 0; i < 4; i++) parts[i].timeout_ms = 3000;
    ranks_run(parts, reports, 4);
    int told = 0; /* the fourth may come when all is over; then it waits in vain, or is one too many in time */
    for (int i = 0; i < 4; i++) told += reports[i].status == TUTTI_ERR_JOIN;
    CHECK(told == 4 || told == 1);
    for (int i = 0; i < 3 && told == 4; i++)
        CHECK(strstr(reports[i].error.text, "has not opened job") != NULL ||
              check_says(reports[i].error.text, "rank 1 of job"));

    ranks_fill(parts, 4); /* rank 3 never comes: rank 1 twice is certain to be seen */
    parts[3] = parts[1];
    run_all(parts, reports, 4);
    check_errors(reports, 4, "is taken twice, by process", SLACK_MS);

    ranks_fill(parts, 3);
    parts[2].size = 4;
    run_all(parts, reports, 3);
    check_errors(reports, 3, "rank 2 says that job", SLACK_MS);
    CHECK(check_says(reports[1].error.text, "has 4 ranks, rank 0 says 3"));

    ranks_fill(parts, 3);
    parts[1].area_bytes++;
    run_all(parts, reports, 3);
    check_errors(reports, 3, "rank 1 of job", SLACK_MS);
    CHECK(check_says(reports[0].error.text, "another version of the library"));

    ranks_fill(parts, 3); /* two ranks 0; rank 2 does not come */
    parts[2] = parts[0];
    run_all(parts, reports, 3);
    check_errors(reports, 3, "rank 0 of job", SLACK_MS);
    CHECK(check_says(reports[0].error.text, "is taken twice") && check_says(reports[2].error.text, "is taken twice"));
}

/* How many sockets have the job's name: that of rank 0, and one for each who has come to it. */
static int sockets_of(const char *job)
{
    FILE *list = fopen("/proc/net/unix", "r");
    char line[512], name[TTI_WIRE_JOB + 8];
    int count = 0;
    snprintf(name, sizeof name, "-%s\n", job);
    while (list != NULL && fgets(line, sizeof line, list) != NULL) count += strstr(line, name) != NULL;
    if (list != NULL) fclose(list);
    return count;
}

/* A rank is killed when it has come and waits for the last; those who are left hear of it at once. True if they did. */
static bool kill_after(int victim, int64_t pause_ms)
{
    enum { SIZE = 4 };
    struct part parts[SIZE];
    struct process processes[SIZE];
    char words[32];
    bool named = true;
    ranks_fill(parts, SIZE);
    for (int rank = 0; rank < SIZE - 1; rank++)
        processes[rank] = rank_start(&parts[rank]); /* the last one stays away */
    int64_t deadline_ns = tti_now_ns() + BOUND_MS * MS;
    while (sockets_of(parts[0].job) < SIZE - 1 && tti_now_ns() < deadline_ns) usleep(1000);
    poll(NULL, 0, (int)pause_ms);
    kill(processes[victim].pid, SIGKILL);
    int64_t killed = tti_now_ns();
    snprintf(words, sizeof words, "rank %d ", victim);
    for (int rank = 0; rank < SIZE - 1; rank++) {
        if (rank == victim) continue;
        struct report report = rank_report(&processes[rank]);
        CHECK(report.status == TUTTI_ERR_JOIN);
        named = check_says(report.error.text, words) && named;
    }
    named = named && tti_now_ns() - killed < SLACK_MS * MS;
    for (int rank = 0; rank < SIZE - 1; rank++) CHECK(rank_finish(&processes[rank]));
    rank_job_number++;
    return named;
}

/* It has said who it is soon after it has come; a machine that is loaded gets more time for that. */
static void kill_one(int victim)
{
    bool named = false;
    for (int64_t pause_ms = 100; !named && pause_ms < LONG_MS; pause_ms *= 8) named = kill_after(victim, pause_ms);
    CHECK(named);
}

/* All come, one is killed somewhere on the way: either a world formed, or all the others hear why it did not. */
static void kill_on_the_way(int victim, int64_t after_us)
{
    enum { SIZE = 4 };
    struct part parts[SIZE];
    struct process processes[SIZE];
    struct report reports[SIZE];
    int joined = 0;
    ranks_fill(parts, SIZE);
    for (int rank = 0; rank < SIZE; rank++) parts[rank].timeout_ms = 2000;
    for (int rank = 0; rank < SIZE; rank++) processes[rank] = rank_start(&parts[rank]);
    usleep((useconds_t)after_us);
    kill(processes[victim].pid, SIGKILL);
    for (int rank = 0; rank < SIZE; rank++)
        if (rank != victim) reports[rank] = rank_report(&processes[rank]);
    for (int rank = 0; rank < SIZE; rank++) {
        if (rank == victim) continue;
        CHECK(reports[rank].status == TUTTI_OK || reports[rank].status == TUTTI_ERR_JOIN);
        CHECK(reports[rank].took_ns < (2000 + SLACK_MS) * MS);
        joined += reports[rank].status == TUTTI_OK;
    }
    CHECK(joined == 0 || joined == SIZE - 1 || victim == 0); /* rank 0 can die in the midst of saying go */
    for (int rank = 0; rank < SIZE; rank++) CHECK(rank_finish(&processes[rank]));
    rank_job_number++;
}

static void test_death(void)
{
    for (int victim = 0; victim < 3; victim++) kill_one(victim);
    for (int victim = 0; victim < 4; victim += 3)
        for (int64_t after = 0; after < 6000; after += SANITIZED ? 1500 : 400) kill_on_the_way(victim, after);
}

static void test_limits(void)
{
    struct part parts[3];
    struct report reports[3];
    for (int victim = 0; victim < 2; victim++) {
        ranks_fill(parts, 3);
        parts[victim].limit_fds = 16;
        run_all(parts, reports, 3);
        CHECK(reports[victim].status == TUTTI_ERR_LIMIT && check_says(reports[victim].error.text, "ulimit -n"));
        for (int rank = 0; rank < 3; rank++) {
            if (rank == victim) continue;
            CHECK(reports[rank].status == TUTTI_ERR_JOIN && check_says(reports[rank].error.text, "ulimit -n"));
            CHECK(
                check_says(reports[rank].error.text, victim == 0 ? "rank 0 could not join" : "rank 1 could not join"));
            CHECK(reports[rank].error.peer == victim && reports[rank].took_ns < SLACK_MS * MS);
        }
    }
    if (SANITIZED) return; /* sanitizers want address space without bounds */
    ranks_fill(parts, 3);
    parts[1].limit_space = (size_t)600 << 20; /* its own arena fits, the others' do not */
    run_all(parts, reports, 3);
    CHECK(reports[1].status == TUTTI_ERR_LIMIT && check_says(reports[1].error.text, "ulimit -v"));
    CHECK(reports[0].status == TUTTI_ERR_JOIN && check_says(reports[0].error.text, "rank 1 could not join"));
    CHECK(reports[2].status == TUTTI_ERR_JOIN && check_says(reports[2].error.text, "ulimit -v"));

    ranks_fill(parts, 3); /* unasked, arenas are as small as the limit wants them */
    for (int i = 0; i < 3; i++) parts[i].limit_space = (size_t)600 << 20;
    for (int i = 0; i < 3; i++) parts[i].arena_bytes = 0;
    for (int i = 0; i < 3; i++) parts[i].then = rank_use_world;
    run_all(parts, reports, 3);
    for (int i = 0; i < 3; i++) CHECK(reports[i].status == TUTTI_OK);
}

static void test_countdown(int victim)
{
    struct part parts[3];
    struct report reports[3];
    long allowed = 0;
    for (; allowed < 60; allowed++) {
        ranks_fill(parts, 3);
        parts[victim].allowed = allowed;
        run_all(parts, reports, 3);
        if (reports[victim].status == TUTTI_OK) break;
        CHECK(reports[victim].status == TUTTI_ERR_MEMORY);
        for (int rank = 0; rank < 3; rank++) {
            if (rank == victim) continue;
            CHECK(reports[rank].status == TUTTI_ERR_JOIN && reports[rank].took_ns < SLACK_MS * MS);
            CHECK(
                check_says(reports[rank].error.text, victim == 0 ? "rank 0 could not join" : "rank 2 could not join"));
        }
    }
    CHECK(allowed > 5 && allowed < 60);
    for (int rank = 0; rank < 3; rank++) CHECK(reports[rank].status == TUTTI_OK);
}

/* Connects to the job's socket as anyone could; -1 until rank 0 is there. */
static int knock(const char *job)
{
    int64_t deadline = tti_now_ns() + BOUND_MS * MS;
    for (;;) {
        int fd = tti_wire_connect(job, SOCK_SEQPACKET);
        if (fd >= 0 || tti_now_ns() > deadline) return fd;
        poll(NULL, 0, 1);
    }
}

/* One that says hello and then nothing; another that says a word too much. */
static void test_mute(bool speaks)
{
    struct part part = rank_part(0, 2);
    part.timeout_ms = 1500;
    struct process root = rank_start(&part);
    int fd = knock(part.job);
    struct tti_mapping arena;
    tutti_error error;
    CHECK(fd >= 0 && tti_mapping_create(&arena, 4096, true, true, &error) == TUTTI_OK);
    struct tti_wire_hello hello = {
        .process = 1, .process_count = 2, .ranks_each = 1, .pid = getpid(), .area_bytes = AREA_BYTES};
    hello.arena_bytes = arena.bytes;
    hello.deadline_ns = tti_now_ns() + LONG_MS * MS;
    snprintf(hello.job, sizeof hello.job, "%s", part.job);
    CHECK(tti_wire_send(fd, TTI_WIRE_HELLO, &hello, sizeof hello, &arena.fd, 1, hello.deadline_ns) == 0);
    if (speaks) CHECK(tti_wire_send(fd, TTI_WIRE_HELLO, &hello, sizeof hello, NULL, 0, hello.deadline_ns) == 0);
    struct report report = rank_report(&root);
    CHECK(report.status == TUTTI_ERR_JOIN && report.took_ns < (1500 + SLACK_MS) * MS && report.error.peer == 1);
    CHECK(check_says(report.error.text, speaks ? "rank 1 of job" : "came but did not finish joining within 1500 ms"));
    CHECK(!speaks || check_says(report.error.text, "something unexpected"));
    CHECK(rank_finish(&root));
    close(fd);
    tti_mapping_destroy(&arena);
    rank_job_number++;
}

static pid_t ended_process(void)
{
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    CHECK(waitpid(pid, NULL, 0) == pid);
    return pid;
}

static int accept_one(int listener)
{
    struct pollfd polled = {.fd = listener, .events = POLLIN};
    CHECK(poll(&polled, 1, BOUND_MS) == 1);
    return tti_wire_accept(listener);
}

/* As rank 0 of three: hands out what rank 1 needs, with rank 2 gone by then, and tells that rank 0 could not join. */
static void hand_out(int fd, const struct part *part, pid_t ended)
{
    int64_t deadline = tti_now_ns() + BOUND_MS * MS;
    tutti_options options = rank_options(part);
    tutti_error error = {0};
    struct tti_world *world;
    struct tti_mapping arena;
    CHECK(tti_world_new(part->job, 3, 3, &options, &world, &error) == TUTTI_OK);
    CHECK(tti_world_make_segment(world, AREA_BYTES, true, &error) == TUTTI_OK);
    CHECK(tti_mapping_create(&arena, 4096, true, true, &error) == TUTTI_OK);
    struct tti_wire_world segment = {.segment_bytes = world->segment_mapping.bytes};
    struct tti_wire_arenas arenas = {.count = 3};
    struct tti_wire_verdict bad = {.status = TUTTI_ERR_JOIN, .peer = 0, .text = "rank 0 has cold feet"};
    int fds[3] = {arena.fd, arena.fd, arena.fd};
    for (int i = 0; i < 3; i++) {
        arenas.processes[i].bytes = arena.bytes;
        arenas.processes[i].pid = i < 2 ? getpid() : ended;
    }
    CHECK(tti_wire_send(fd, TTI_WIRE_WORLD, &segment, sizeof segment, &world->segment_mapping.fd, 1, deadline) == 0);
    CHECK(tti_wire_send(fd, TTI_WIRE_ARENAS, &arenas, sizeof arenas, fds, 3, deadline) == 0);
    CHECK(tti_wire_send(fd, TTI_WIRE_VERDICT, &bad, sizeof bad, NULL, 0, deadline) == 0);
    tti_mapping_destroy(&arena);
    tti_world_release(world);
}

/* Who ends because joining has failed is not named for it. */
static void test_gone_before(void)
{
    struct part part = rank_part(1, 3);
    int listener = tti_wire_listen(part.job, SOCK_SEQPACKET);
    CHECK(listener >= 0);
    struct process member = rank_start(&part);
    int fd = accept_one(listener);
    hand_out(fd, &part, ended_process());
    struct report report = rank_report(&member);
    CHECK(report.status == TUTTI_ERR_JOIN && report.error.peer == 0 &&
          check_says(report.error.text, "rank 0 has cold feet"));
    CHECK(rank_finish(&member));
    close(fd);
    close(listener);
    rank_job_number++;
}

/* ---- Strangers on the socket ----------------------------------------------------------------------------------- */

static void send_garbage(const char *job, int kind)
{
    static char junk[4000];
    int fd = knock(job), fds[1] = {0};
    CHECK(fd >= 0);
    int64_t deadline = tti_now_ns() + BOUND_MS * MS;
    struct tti_wire_verdict verdict = {.status = TUTTI_OK};
    struct tti_wire_hello hello = {.process = 1, .process_count = 2, .ranks_each = 1};
    memset(junk, 0x41, sizeof junk);
    if (kind == 0) CHECK(send(fd, junk, sizeof junk, MSG_NOSIGNAL) > 0);
    if (kind == 1) CHECK(send(fd, junk, 1, MSG_NOSIGNAL) > 0);
    if (kind == 2) CHECK(tti_wire_send(fd, TTI_WIRE_VERDICT, &verdict, sizeof verdict, fds, 1, deadline) == 0);
    if (kind == 3) CHECK(tti_wire_send(fd, TTI_WIRE_HELLO, &hello, sizeof hello, fds, 0, deadline) == 0);
    if (kind == 4) CHECK(tti_wire_send(fd, TTI_WIRE_HELLO, &hello, sizeof hello, fds, 1, deadline) == 0); /* no job */
    if (kind >= 5) usleep(1000); /* comes, says nothing, goes */
    close(fd);
}

static void test_garbage(void)
{
    struct part parts[2];
    struct process processes[2];
    int silent[100];
    ranks_fill(parts, 2);
    parts[0].then = parts[1].then = rank_use_world;
    processes[0] = rank_start(&parts[0]);
    for (int i = 0; i < 100; i++) silent[i] = knock(parts[0].job);
    for (int kind = 0; kind < 6; kind++) send_garbage(parts[0].job, kind);
    processes[1] = rank_start(&parts[1]);
    for (int rank = 0; rank < 2; rank++) {
        struct report report = rank_report(&processes[rank]);
        CHECK(report.status == TUTTI_OK);
        if (report.status != TUTTI_OK) printf("%s\n", report.error.text);
        CHECK(rank_finish(&processes[rank]));
    }
    for (int i = 0; i < 100; i++) close(silent[i]);
    rank_job_number++;
}

/* Messages of another version may be of any length: they are heard, so that it can be told. */
static void test_other_version(void)
{
    struct tti_wire_packet packet;
    struct tti_wire_head head = {TTI_WIRE_MAGIC, TTI_WIRE_VERSION, TTI_WIRE_HELLO};
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    CHECK(send(ends[0], &head, sizeof head, 0) == sizeof head && tti_wire_receive(ends[1], &packet) == EBADMSG);
    head.version++;
    CHECK(send(ends[0], &head, sizeof head, 0) == sizeof head && tti_wire_receive(ends[1], &packet) == 0);
    close(ends[0]);
    close(ends[1]);
}

static void be_nobody(const char *job)
{
    if (setresuid(65534, 65534, 65534) != 0) _exit(0);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "tutti-0-%s", job);
    socklen_t bytes = (socklen_t)(sizeof(sa_family_t) + 1 + (size_t)length);
    for (int i = 0; i < BOUND_MS && connect(fd, (struct sockaddr *)&address, bytes) != 0; i++) usleep(1000);
    struct tti_wire_hello hello = {.process = 1, .process_count = 2, .ranks_each = 1, .pid = getpid()};
    snprintf(hello.job, sizeof hello.job, "%s", job);
    tti_wire_send(fd, TTI_WIRE_HELLO, &hello, sizeof hello, &fd, 1, tti_now_ns() + BOUND_MS * MS);
    char byte;
    _exit(recv(fd, &byte, 1, 0) > 0); /* dropped without a word */
}

/* Another user's connection is dropped, whatever it says. */
static void test_other_user(void)
{
    if (geteuid() != 0) {
        printf("not root: another user's connection is not tested\n");
        return;
    }
    struct part parts[2];
    ranks_fill(parts, 2);
    struct process first = rank_start(&parts[0]);
    fflush(stdout);
    struct process nobody = {.pid = fork(), .pipe = -1};
    if (nobody.pid == 0) be_nobody(parts[0].job);
    CHECK(rank_finish(&nobody));
    struct process second = rank_start(&parts[1]);
    CHECK(rank_report(&first).status == TUTTI_OK && rank_report(&second).status == TUTTI_OK);
    CHECK(rank_finish(&first));
    CHECK(rank_finish(&second));
    rank_job_number++;
}

/* Holds the name of the job's socket as another user, until it is killed. A byte on the pipe says that it does. */
static void hold_name(const char *name, int type, bool listens, int pipe)
{
    if (setresuid(65534, 65534, 65534) != 0) _exit(1);
    int fd = socket(AF_UNIX, type, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "tutti-0-%s", name);
    socklen_t bytes = (socklen_t)(sizeof(sa_family_t) + 1 + (size_t)length);
    if (bind(fd, (struct sockaddr *)&address, bytes) != 0 || (listens && listen(fd, 10) != 0)) _exit(1);
    if (write(pipe, "x", 1) != 1) _exit(1);
    for (;;) pause();
}

static pid_t start_holder(const char *name, int type, bool listens)
{
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) hold_name(name, type, listens, ends[1]);
    close(ends[1]);
    CHECK(read(ends[0], &byte, 1) == 1);
    close(ends[0]);
    return pid;
}

static void check_told(const tutti_error *error, const char *name, pid_t holder)
{
    struct report report = {.error = *error};
    char words[200];
    snprintf(words, sizeof words, "user 65534 (process %d) holds the name of job %s's socket, @tutti-0-%s", (int)holder,
             name, name);
    CHECK(error->status == TUTTI_ERR_JOIN && check_says(report.error.text, words) &&
          check_says(report.error.text, "TUTTI_JOB"));
}

/* Ranks that share memory, and those that meet to agree on a transport. */
static void test_name_taken(bool listens)
{
    struct part parts[2];
    struct report reports[2];
    ranks_fill(parts, 2);
    if (!listens)
        for (int i = 0; i < 2; i++) parts[i].timeout_ms = 300;
    pid_t holder = start_holder(parts[0].job, SOCK_SEQPACKET, listens);
    ranks_run(parts, reports, 2);
    for (int i = 0; i < 2 && listens; i++) {
        check_told(&reports[i].error, parts[i].job, holder);
        CHECK(reports[i].took_ns < SLACK_MS * MS); /* and at once */
    }
    if (!listens)
        CHECK(reports[0].status == TUTTI_ERR_JOIN &&
              check_says(reports[0].error.text, "does not answer holds the name"));
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    rank_job_number++;
}

static void test_meeting_taken(void)
{
    struct part part = rank_part(0, 2);
    char name[TTI_WIRE_JOB + 16];
    snprintf(name, sizeof name, "%s/meeting", part.job);
    pid_t holder = start_holder(name, SOCK_STREAM, true);
    for (int rank = 0; rank < 2; rank++) {
        struct tti_rendezvous where = {
            .job = part.job, .rank = rank, .size = 2, .deadline_ns = tti_now_ns() + LONG_MS * MS};
        struct tti_meeting *meeting = NULL;
        tutti_error error = {.status = TUTTI_OK};
        CHECK(tti_meeting_open(&where, &meeting, &error) == TUTTI_ERR_JOIN && meeting == NULL);
        check_told(&error, name, holder);
    }
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    rank_job_number++;
}

/* Another user was the first to take a name. */
static void test_names(void)
{
    if (geteuid() != 0) {
        printf("not root: names that another user has taken are not tested\n");
        return;
    }
    test_name_taken(true);
    test_name_taken(false);
    test_meeting_taken();
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    test_missing();
    test_disagreement();
    test_death();
    test_limits();
    for (int victim = 0; victim < 3; victim += 2) test_countdown(victim);
    test_mute(false);
    test_mute(true);
    test_gone_before();
    test_garbage();
    test_other_version();
    test_other_user();
    test_names();
    return check_end();
}
