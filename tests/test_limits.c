/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=300 labels=asan
 *
 * Limits: a thousand ranks; low limits of the system give clear errors; nothing depends on /dev/shm; and whichever
 * allocation fails, in joining or in an operation, there is an error, no leak, no crash, and no hang for the others.
 */
#include "base/alloc.h"
#include "fault.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tutti/nn.h>
#include <unistd.h>

/* ---- A child of one's own -------------------------------------------------------------------------------------- */

/* Runs `body` in a child; its exit status (or 1000 + signal), what it took, and its peak memory. */
static int run_child(void (*body)(void), unsigned seconds, int64_t *took_ns, long *peak_kib)
{
    struct rusage usage;
    int status = 0;
    fflush(stdout);
    int64_t began = fault_now_ns();
    pid_t pid = fork();
    if (pid == 0) {
        alarm(seconds);
        body();
        exit(0);
    }
    if (!CHECK(pid > 0 && wait4(pid, &status, 0, &usage) == pid)) return -1;
    if (took_ns != NULL) *took_ns = fault_now_ns() - began;
    if (peak_kib != NULL) *peak_kib = usage.ru_maxrss;
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- A thousand ranks ------------------------------------------------------------------------------------------ */

enum { MANY = SANITIZED ? 100 : 1000, MANY_SECONDS = 200 };

static _Atomic int ranks_done;

static int call_everything(tutti_comm *comm, int argc, char **argv)
{
    (void)argc, (void)argv;
    struct fault_buffers buffers;
    CHECK(tutti_size(comm) == MANY);
    if (!fault_buffers_make(&buffers, comm, 3, true)) return 1;
    for (int op = 0; op < FAULT_OPS; op++) {
        fault_op_spoil(&buffers);
        tutti_status status = fault_op(op, &buffers);
        const tutti_error *error = tutti_comm_error(comm);
        if (!CHECK_THAT(status == TUTTI_OK, "%s on rank %d: %s", fault_op_name(op), buffers.rank,
                        error == NULL ? "" : error->text))
            return 1;
        CHECK_THAT(fault_op_right(op, &buffers), "%s on rank %d", fault_op_name(op), buffers.rank);
    }
    fault_buffers_free(&buffers);
    atomic_fetch_add(&ranks_done, 1);
    return 0;
}

static void be_many(void)
{
    char text[16];
    char *arguments[] = {text, NULL};
    snprintf(text, sizeof text, "%d", MANY);
    setenv("TUTTI_RANKS", text, 1);
    int result = tutti_main(call_everything, 1, arguments);
    CHECK(result == 0 && atomic_load(&ranks_done) == MANY);
    exit(result);
}

static void test_many(void)
{
    int64_t took = 0;
    long peak = 0;
    check_title("%d ranks", MANY);
    CHECK(run_child(be_many, 2 * MANY_SECONDS, &took, &peak) == 0);
    printf("%d ranks as threads: join, every operation, leave: %.2f s, peak %.2f GiB\n", MANY, (double)took / 1e9,
           (double)peak / 1048576);
    CHECK(took < MANY_SECONDS * INT64_C(1000000000));
    if (!SANITIZED) CHECK(peak < 4L * 1048576);
}

/* ---- Low limits ------------------------------------------------------------------------------------------------ */

static void set_limit(__rlimit_resource_t what, rlim_t most)
{
    struct rlimit limit = {most, most};
    CHECK(setrlimit(what, &limit) == 0);
}

static char logged[512];

static void keep_log(void *context, tutti_log_level level, const char *line)
{
    (void)context, (void)level;
    if (logged[0] == '\0') snprintf(logged, sizeof logged, "%s", line);
}

static int never_begin(tutti_comm *comm, int argc, char **argv)
{
    (void)argc, (void)argv;
    CHECK_THAT(false, "rank %d began", tutti_rank(comm));
    return 2;
}

static void expect_no_world(const char *ranks, const char *word, const char *other)
{
    char *arguments[] = {logged, NULL};
    setenv("TUTTI_RANKS", ranks, 1);
    tutti_log_to(keep_log, NULL);
    int result = tutti_main(never_begin, 1, arguments);
    CHECK_THAT(result != 0, "a world was made");
    CHECK_THAT(strstr(logged, word) != NULL || strstr(logged, other) != NULL, "%s", logged);
    printf("%s: %s\n", check_titled(), logged);
    fflush(stdout);
}

/* All or nothing: those that were started do not begin. */
static void be_few_threads(void)
{
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) exit(77); /* root is above this limit */
    set_limit(RLIMIT_NPROC, 4);
    expect_no_world("16", "ulimit -u", "ulimit -u");
}

/* OpenBLAS raises SIGINT then: it must not end the process, nor be taken for Ctrl-C. */
static void be_without_threads(void)
{
    setenv("OPENBLAS_NUM_THREADS", "4", 1);
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) exit(77);
    set_limit(RLIMIT_NPROC, 1);
    if (tutti_blas_load(NULL) != TUTTI_OK) exit(77);
}

static void be_small_space(void)
{
    set_limit(RLIMIT_AS, (rlim_t)96 << 20);
    expect_no_world("1000", "ulimit -v", "memory");
}

static void be_tiny_space(void)
{
    set_limit(RLIMIT_AS, (rlim_t)24 << 20);
    expect_no_world("4", "ulimit -v", "memory");
}

static void test_low_limits(void)
{
    static const struct {
        const char *title;
        void (*body)(void);
    } limits[] = {{"few threads", be_few_threads},
                  {"OpenBLAS without threads", be_without_threads},
                  {"96 MiB of address space, 1000 ranks", be_small_space},
                  {"24 MiB of address space, 4 ranks", be_tiny_space}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits && !SANITIZED; i++) {
        int64_t took;
        check_title("%s", limits[i].title);
        int result = run_child(limits[i].body, 100, &took, NULL);
        if (result == 77)
            printf("%s: not tried, no other user can be taken, or there is no OpenBLAS\n", limits[i].title);
        CHECK_THAT(result == 0 || result == 77, "exit %d", result);
        fault_time("low limits", took, 4000);
    }
}

/* Processes: the rank with the low limit says which, and the others are told by whom. */
static int low_rank;
static const char *low_word;
static bool low_files;

struct joined {
    tutti_status status;
    tutti_error error;
};
static struct joined *joined;

static void join_with_low_limit(int rank, const char *job)
{
    tutti_options options;
    tutti_comm *comm = NULL;
    alarm(100);
    CHECK(tutti_options_init(&options, NULL) == TUTTI_OK);
    options.join_timeout_ms = 30000;
    if (rank == low_rank) set_limit(low_files ? RLIMIT_NOFILE : RLIMIT_AS, low_files ? 8 : (rlim_t)24 << 20);
    joined[rank].status = tutti_join_as(job, rank, 3, &options, &comm);
    if (tutti_comm_error(comm) != NULL) joined[rank].error = *tutti_comm_error(comm);
    CHECK(tutti_leave(comm) == TUTTI_OK);
    exit(0);
}

static void join_three(void)
{
    char job[64];
    pid_t pids[3];
    snprintf(job, sizeof job, "low-%d-%d-%d", (int)getpid(), low_rank, low_files);
    fflush(stdout);
    for (int rank = 0; rank < 3; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) join_with_low_limit(rank, job);
    }
    for (int rank = 0; rank < 3; rank++) {
        int status;
        CHECK_THAT(waitpid(pids[rank], &status, 0) == pids[rank] && status == 0, "rank %d: %x", rank, (unsigned)status);
    }
    for (int rank = 0; rank < 3; rank++) {
        const struct joined *one = &joined[rank];
        bool low = rank == low_rank;
        CHECK_THAT(low ? one->status == TUTTI_ERR_LIMIT || one->status == TUTTI_ERR_MEMORY
                       : one->status == TUTTI_ERR_JOIN,
                   "rank %d: %s: %s", rank, tutti_status_name(one->status), one->error.text);
        char who[16];
        snprintf(who, sizeof who, "rank %d", low_rank);
        CHECK_THAT(strstr(one->error.text, low_word) != NULL && (low || strstr(one->error.text, who) != NULL),
                   "rank %d: %s", rank, one->error.text);
    }
    printf("%s: %s\n", check_titled(), joined[(low_rank + 1) % 3].error.text);
}

static void test_low_process(void)
{
    for (int files = 0; files < 2; files++)
        for (low_rank = 0; low_rank < 3; low_rank++) {
            if (SANITIZED && !files) continue;
            low_files = files != 0;
            low_word = low_files ? "ulimit -n" : "ulimit -v";
            check_title("rank %d of 3 processes has a low %s", low_rank, files ? "RLIMIT_NOFILE" : "RLIMIT_AS");
            join_three();
        }
}

/* ---- /dev/shm -------------------------------------------------------------------------------------------------- */

static void look_for_shm(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    struct fault_buffers buffers;
    char path[64], target[256], line[512];
    if (!fault_buffers_make(&buffers, comm, 100000, true)) return;
    CHECK(fault_op(FAULT_ALL_REDUCE, &buffers) == TUTTI_OK && fault_op(FAULT_SENDRECV, &buffers) == TUTTI_OK);
    for (int fd = 0; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length < 0) continue;
        target[length] = '\0';
        CHECK_THAT(strstr(target, "/dev/shm") == NULL, "%s", target);
    }
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        CHECK_THAT(strstr(line, "/dev/shm") == NULL, "%s", line);
    if (maps != NULL) fclose(maps);
    fault_buffers_free(&buffers);
}

static void test_no_shm(void)
{
    struct fault_world world = {.size = 2, .processes = true, .body = look_for_shm};
    check_title("/dev/shm");
    fault_run(&world);
}

/* ---- Allocations that fail in joining -------------------------------------------------------------------------- */

enum { JOIN_MS = 1500 };

static void test_countdown_alone(void)
{
    tutti_options options = fault_join_options(JOIN_MS);
    long count = 0;
    for (; count < 1000; count++) {
        tutti_comm *comm = NULL;
        check_title("joining alone with %ld allocations", count);
        tti_alloc_fail_after(count);
        tutti_status status = tutti_join_as("alone", 0, 1, &options, &comm);
        tti_alloc_fail_after(-1);
        if (status == TUTTI_OK) {
            CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_leave(comm) == TUTTI_OK);
            break;
        }
        CHECK_THAT(status == TUTTI_ERR_MEMORY || status == TUTTI_ERR_LIMIT, "%s", tutti_status_name(status));
        CHECK(comm == NULL || (tutti_comm_error(comm) != NULL && tutti_comm_error(comm)->status == status));
        CHECK(tutti_leave(comm) == TUTTI_OK);
    }
    printf("joining alone takes %ld allocations\n", count);
    CHECK(count > 0 && count < 1000);
}

struct pair {
    int rank;
    const char *job;
    tutti_comm *comm;
    tutti_status status, met;
    int64_t took_ns;
};

static void *join_pair(void *argument)
{
    struct pair *pair = argument;
    tutti_options options = fault_join_options(JOIN_MS);
    int64_t began = fault_now_ns();
    pair->status = tutti_join_as(pair->job, pair->rank, 2, &options, &pair->comm);
    pair->took_ns = fault_now_ns() - began;
    return NULL;
}

static void *meet_pair(void *argument)
{
    struct pair *pair = argument;
    if (pair->status == TUTTI_OK) pair->met = tutti_barrier(tutti_within(pair->comm, 60000));
    return NULL;
}

static void run_pair(struct pair pairs[2], void *(*body)(void *))
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, body, &pairs[i]) == 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

static bool join_with(long count)
{
    char job[64];
    struct pair pairs[2] = {{.rank = 0, .job = job}, {.rank = 1, .job = job}};
    snprintf(job, sizeof job, "pair-%d-%ld", (int)getpid(), count);
    check_title("joining two with %ld allocations", count);
    tti_alloc_fail_after(count);
    run_pair(pairs, join_pair);
    tti_alloc_fail_after(-1);
    bool both = pairs[0].status == TUTTI_OK && pairs[1].status == TUTTI_OK;
    run_pair(pairs, meet_pair);
    for (int i = 0; i < 2; i++) {
        fault_time("joining two, allocations failing, limit 1500 ms", pairs[i].took_ns, 2000);
        tutti_status expected = both ? TUTTI_OK : TUTTI_ERR_PEER_LOST;
        if (pairs[i].status == TUTTI_OK)
            CHECK_THAT(pairs[i].met == expected, "rank %d: %s", i, tutti_status_name(pairs[i].met));
        else
            CHECK_THAT(pairs[i].comm == NULL || tutti_comm_error(pairs[i].comm) != NULL, "rank %d", i);
        CHECK(tutti_leave(pairs[i].comm) == TUTTI_OK);
    }
    return both;
}

static void test_countdown_pair(void)
{
    long count = 0;
    while (count < 1000 && !join_with(count)) count++;
    printf("joining two ranks takes %ld allocations\n", count);
    CHECK(count > 0 && count < 1000);
}

/* ---- The limit itself ------------------------------------------------------------------------------------------ */

enum { LIMIT_ROUNDS = 200000 };

static void *ask_always(void *stop)
{
    while (!atomic_load((_Atomic bool *)stop)) tti_alloc_allowed();
    return NULL;
}

/* A limit that is taken away while another thread asks does not come back. */
static void test_limit_ends(void)
{
    _Atomic bool stop = false;
    pthread_t thread;
    int kept = 0;
    check_title("a limit that ends");
    if (!CHECK(pthread_create(&thread, NULL, ask_always, &stop) == 0)) return;
    for (int i = 0; i < LIMIT_ROUNDS; i++) {
        tti_alloc_fail_after(i % 3);
        tti_alloc_fail_after(-1);
        for (int j = 0; j < 10; j++) kept += !tti_alloc_allowed();
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    tti_alloc_fail_after(-1);
    CHECK_THAT(kept == 0, "failed %d times", kept);
}

/* ---- Allocations that fail in operations ----------------------------------------------------------------------- */

static int the_op;
static size_t the_count;
static long allowed;

static void call_with_failures(tutti_comm *comm, struct fault_rank *self)
{
    struct fault_buffers buffers;
    bool processes = !tutti_all_threads(comm);
    if (!fault_buffers_make(&buffers, comm, the_count, true)) return;
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    fault_meet(comm);
    if (tutti_rank(comm) == 0) tti_alloc_fail_after(allowed); /* threads: of all ranks */
    fault_meet(comm);
    tutti_status status = FAULT_CALL(self, comm, fault_op(the_op, &buffers));
    bool right = status != TUTTI_OK || fault_op_right(the_op, &buffers);
    atomic_store(&self->mark, 1);
    for (int rank = 0; !processes && rank < tutti_size(comm); rank++)
        if (the_op < FAULT_SENDRECV) fault_await_mark(rank, 1);
    tti_alloc_fail_after(-1);
    /* a message that could not start leaves the comm whole: it can be sent again */
    if (the_op >= FAULT_SENDRECV && status == TUTTI_ERR_MEMORY)
        CHECK(fault_op(the_op, &buffers) == TUTTI_OK && fault_op_right(the_op, &buffers));
    FAULT_CALL(self, comm, tutti_barrier(comm));
    CHECK_THAT(right, "wrong data");
    CHECK(fault_inputs_intact(&buffers));
    fault_buffers_free(&buffers);
}

static bool run_with(bool processes)
{
    struct fault_world world = {.size = 2, .processes = processes, .body = call_with_failures};
    check_title("%s of %zu by %s with %ld allocations", fault_op_name(the_op), the_count,
                processes ? "processes" : "threads", allowed);
    fault_run(&world);
    const struct fault_rank *ranks = fault_shared->ranks;
    bool fine = ranks[0].steps[0].status == TUTTI_OK && ranks[1].steps[0].status == TUTTI_OK &&
                ranks[0].steps[1].status == TUTTI_OK && ranks[1].steps[1].status == TUTTI_OK;
    for (int rank = 0; rank < 2 && !fine; rank++) {
        const struct fault_step *steps = ranks[rank].steps;
        CHECK_THAT(steps[1].done, "rank %d", rank);
        if (the_op >= FAULT_SENDRECV) CHECK_THAT(steps[1].status == TUTTI_OK, "rank %d: %s", rank, steps[1].error.text);
        const struct fault_step *first = steps[0].status == TUTTI_OK ? &steps[1] : &steps[0];
        if (the_op >= FAULT_SENDRECV && first->status == TUTTI_OK) continue; /* the other's message waited for it */
        CHECK_THAT(first->status == TUTTI_ERR_MEMORY && fault_has(first, "memory"), "rank %d: %s: %s", rank,
                   tutti_status_name(first->status), first->error.text);
    }
    return fine;
}

static void test_countdown_operations(void)
{
    static const size_t counts[] = {2, 3000, 200000};
    long most = 0;
    for (int processes = 0; processes < 2; processes++)
        for (the_op = 0; the_op < FAULT_OPS; the_op++)
            for (size_t i = 0; i < 3; i++) {
                if (SANITIZED && i == 1) continue;
                the_count = counts[i];
                for (allowed = 0; allowed < 200 && !run_with(processes != 0); allowed++) continue;
                CHECK(allowed < 200);
                if (allowed > most) most = allowed;
            }
    printf("an operation takes up to %ld allocations\n", most);
}

int main(void)
{
    fault_begin(280);
    joined = (struct joined *)fault_shared->scratch;
    _Static_assert(sizeof(struct joined) * 3 <= sizeof fault_shared->scratch, "three reports");
    test_many();
    test_low_limits();
    test_low_process();
    test_no_shm();
    test_countdown_alone();
    test_countdown_pair();
    test_limit_ends();
    test_countdown_operations();
    return fault_end();
}
