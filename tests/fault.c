/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_MS = 60000, MARK_MS = 30000, CHILD_SECONDS = 150, LOADED = 4 };
enum { TIMES_MOST = 32, TIMES_JUDGED = 10 };

struct fault_shared *fault_shared;

static bool expected_end[FAULT_RANKS];
static int world_number;
static int64_t still_ns; /* the longest time for which the test itself had no turn on a core while its world ran */

static struct {
    const char *name;
    int64_t worst_ns, total_ns, promised_ms;
    int count, judged, kept;
    char worst[256];
} times[TIMES_MOST];

/* ---- The test program --------------------------------------------------------------------------------------------- */

void fault_begin(unsigned seconds)
{
    fault_shared = mmap(NULL, sizeof *fault_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (fault_shared == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    alarm(LOADED * seconds);
}

int fault_end(void)
{
    for (int i = 0; i < TIMES_MOST && times[i].name != NULL; i++) {
        printf("%s: mean %.2f ms, worst %.2f ms of %d, promised %lld ms, kept %d times of %d (worst: %s)\n",
               times[i].name, (double)times[i].total_ns / 1e6 / times[i].count, (double)times[i].worst_ns / 1e6,
               times[i].count, (long long)times[i].promised_ms, times[i].kept, times[i].judged, times[i].worst);
        check_title("%s", times[i].name);
        if (!SANITIZED && times[i].judged >= TIMES_JUDGED) CHECK(10 * times[i].kept >= 9 * times[i].judged);
    }
    return check_end();
}

int64_t fault_now_ns(void)
{
    return world_now_ns();
}

void fault_sleep_ms(int64_t ms)
{
    struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR) continue;
}

tutti_options fault_join_options(int64_t join_timeout_ms)
{
    tutti_options options;
    CHECK(tutti_options_init(&options, NULL) == TUTTI_OK);
    options.join_timeout_ms = join_timeout_ms;
    options.arena_bytes = 64 << 20;
    return options;
}

uint64_t fault_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Where the test itself had no turn for half of what is promised, its ranks may have had none either. */
void fault_time(const char *name, int64_t ns, int64_t promised_ms)
{
    bool judged = still_ns <= promised_ms * 1000000 / 2;
    for (int i = 0; i < TIMES_MOST; i++) {
        if (times[i].name != NULL && strcmp(times[i].name, name) != 0) continue;
        times[i].name = name;
        times[i].promised_ms = promised_ms;
        times[i].total_ns += ns;
        times[i].count++;
        times[i].judged += judged;
        times[i].kept += judged && ns <= promised_ms * 1000000;
        if (ns < times[i].worst_ns) break;
        times[i].worst_ns = ns;
        snprintf(times[i].worst, sizeof times[i].worst, "%s", check_titled());
        break;
    }
    CHECK_THAT(ns <= (promised_ms + FAULT_SLACK_MS) * 1000000, "%s took %.1f ms", name, (double)ns / 1e6);
}

/* ---- Worlds ---------------------------------------------------------------------------------------------------- */

static struct fault_world *running; /* in the child */

static void take_turn(useconds_t us)
{
    int64_t began_ns = fault_now_ns();
    usleep(us);
    int64_t away_ns = fault_now_ns() - began_ns;
    if (running == NULL && away_ns > still_ns) still_ns = away_ns; /* ranks may be threads: none of them notes it */
}

static int run_work(tutti_comm *comm, int argc, char **argv)
{
    (void)argc, (void)argv;
    struct fault_rank *self = &fault_shared->ranks[tutti_rank(comm)];
    self->joined = true;
    running->body(comm, self);
    self->finished = true;
    return 0;
}

static void apply_settings(const struct fault_world *world)
{
    for (size_t i = 0; i < sizeof world->settings / sizeof *world->settings && world->settings[i] != NULL; i++)
        putenv((char *)(uintptr_t)world->settings[i]);
}

/* What tutti_main does for a launched rank, watching what is left behind. */
static int be_rank(void)
{
    struct world_holds before = world_holds();
    int rank = atoi(getenv("TUTTI_RANK"));
    struct fault_rank *self = &fault_shared->ranks[rank];
    tutti_comm *comm;
    tutti_status status = tutti_join(&comm);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_OK, "rank %d could not join: %s", rank, error == NULL ? "" : error->text);
    if (status == TUTTI_OK) run_work(comm, 0, NULL);
    int64_t began = fault_now_ns();
    CHECK(tutti_leave(comm) == TUTTI_OK);
    self->leave_ns = fault_now_ns() - began;
    if (running->after != NULL) running->after();
    struct world_holds after = world_holds();
    self->fds_left = after.descriptors - before.descriptors;
    self->mappings_left = after.mappings - before.mappings;
    if (!running->keeps_files)
        CHECK_THAT(self->fds_left == 0, "rank %d has %d descriptors more than before it joined", rank, self->fds_left);
    CHECK_THAT(self->mappings_left == 0, "rank %d has %d mappings more than before it joined", rank,
               self->mappings_left);
    CHECK_THAT(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "rank %d has children", rank);
    return status == TUTTI_OK ? 0 : 1;
}

static void join_and_work(const char *job, int rank)
{
    tutti_comm *comm;
    CHECK(tutti_join_as(job, rank, running->size, NULL, &comm) == TUTTI_OK);
    if (tutti_size(comm) > 0) run_work(comm, 0, NULL);
    CHECK(tutti_leave(comm) == TUTTI_OK);
    if (running->after != NULL) running->after();
}

/* The process of one rank, or of all. */
static void be_child(struct fault_world *world, int rank, const char *job)
{
    running = world;
    if (world->processes)
        world_be(job, rank, world->size, 1);
    else
        world_be(NULL, 0, world->size, world->size);
    apply_settings(world);
    setenv("TUTTI_JOIN_TIMEOUT_MS", "45000", 0);
    setenv("TUTTI_ARENA_BYTES", "1G", 0);
    setenv("TUTTI_FENCE_MS", "5s", 0); /* who is not to be killed may wait long for its turn on a loaded machine */
    if (world->joins) world_run_joined(job, world->size, join_and_work);
    if (world->joins) exit(0);
    exit(world->processes ? be_rank() : tutti_main(run_work, 0, NULL)); /* not _exit: for the leak checker */
}

static int child_count(const struct fault_world *world)
{
    return world->processes ? world->size : 1;
}

static void start(struct fault_world *world)
{
    char job[64];
    snprintf(job, sizeof job, "fault-%d-%d", (int)getpid(), world_number++);
    memset(fault_shared->ranks, 0, sizeof fault_shared->ranks);
    memset(&fault_shared->log, 0, sizeof fault_shared->log);
    atomic_store(&fault_shared->go, 0);
    memset(expected_end, 0, sizeof expected_end);
    still_ns = 0;
    for (int rank = 0; rank < FAULT_RANKS; rank++) world->pids[rank] = -1;
    for (int rank = 0; rank < child_count(world); rank++) {
        world->pids[rank] = world_fork(CHILD_SECONDS);
        if (world->pids[rank] == 0) be_child(world, rank, job);
    }
    for (int rank = 1; !world->processes && rank < world->size; rank++) world->pids[rank] = world->pids[0];
}

void fault_expect_end(int rank)
{
    expected_end[rank] = true;
}

/* What the test sees while it waits. */
struct awaited {
    struct fault_world *world;
    bool well;
};

static void note_end(void *context, int rank, int status)
{
    struct awaited *awaited = context;
    char end[32];
    awaited->world->pids[rank] = -1;
    fault_shared->ranks[rank].exit_status = status;
    if (expected_end[rank]) return;
    awaited->well &= CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the process of rank %d ended with %s",
                                rank, world_end_text(status, end));
}

static void note_hang(void *context, int rank)
{
    struct awaited *awaited = context;
    const struct fault_rank *self = &fault_shared->ranks[rank];
    CHECK_THAT(false, "rank %d hangs (joined %d, mark %d, %d calls ended, finished %d)", rank, self->joined,
               atomic_load(&self->mark), self->steps_done, self->finished);
    awaited->world->pids[rank] = -1;
    awaited->well = false;
}

static void look_again(void)
{
    take_turn(500);
}

static bool await_children(struct fault_world *world)
{
    struct awaited awaited = {world, true};
    struct world_process processes[FAULT_RANKS];
    struct world_watch watch = {.limit_ms = world->limit_ms > 0 ? world->limit_ms : LIMIT_MS,
                                .context = &awaited,
                                .ended = note_end,
                                .hangs = note_hang,
                                .between = look_again};
    for (int rank = 0; rank < child_count(world); rank++) processes[rank].pid = world->pids[rank];
    world_await(processes, child_count(world), &watch);
    return awaited.well;
}

bool fault_run(struct fault_world *world)
{
    start(world);
    if (world->meanwhile != NULL) world->meanwhile(world);
    return await_children(world);
}

void fault_run_set(const char *title, fault_body *body, int size, bool processes, const char *setting)
{
    check_title("%s, %d %s%s%s", title, size, processes ? "processes" : "threads", setting == NULL ? "" : ", ",
                setting == NULL ? "" : setting);
    struct fault_world world = {.size = size, .processes = processes, .body = body, .settings = {setting}};
    fault_run(&world);
}

void fault_run_body(const char *title, fault_body *body, int size, bool processes, bool over_tcp)
{
    fault_run_set(title, body, size, processes, over_tcp ? "TUTTI_TRANSPORT=tcp" : NULL);
}

void fault_everywhere(void (*run_all)(bool processes), bool *over_tcp)
{
    for (int way = 0; way < 4; way++) {
        *over_tcp = way / 2;
        run_all(way % 2);
    }
}

bool fault_await_mark(int rank, int mark)
{
    int64_t until = fault_now_ns() + MARK_MS * INT64_C(1000000);
    while (atomic_load(&fault_shared->ranks[rank].mark) < mark) {
        if (fault_now_ns() > until) return CHECK_THAT(false, "rank %d did not come to mark %d", rank, mark);
        take_turn(50);
    }
    return true;
}

void fault_meet(const tutti_comm *comm)
{
    int64_t until = fault_now_ns() + MARK_MS * INT64_C(1000000);
    int number = atomic_fetch_add(&fault_shared->ranks[tutti_rank(comm)].met, 1) + 1;
    for (int rank = 0; rank < tutti_size(comm); rank++)
        while (atomic_load(&fault_shared->ranks[rank].met) < number) {
            if (!CHECK_THAT(fault_now_ns() < until, "rank %d did not come", rank)) return;
            usleep(50);
        }
}

/* ---- Reports --------------------------------------------------------------------------------------------------- */

tutti_status fault_did(struct fault_rank *self, const tutti_comm *comm, int line, tutti_status status)
{
    struct fault_step *step = &self->steps[self->steps_done < FAULT_STEPS ? self->steps_done : FAULT_STEPS - 1];
    step->ended_ns = fault_now_ns();
    step->began_ns = self->began_ns;
    step->status = status;
    step->line = line;
    const tutti_error *error = tutti_comm_error(comm);
    if (error != NULL) step->error = *error;
    step->done = true;
    self->steps_done++;
    return status;
}

bool fault_has(const struct fault_step *step, const char *format, ...)
{
    char words[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    return strstr(step->error.text, words) != NULL;
}

static void keep_line(void *context, tutti_log_level level, const char *line)
{
    (void)context, (void)level;
    int at = atomic_fetch_add(&fault_shared->log.count, 1);
    if (at < FAULT_LINES) snprintf(fault_shared->log.lines[at], sizeof *fault_shared->log.lines, "%s", line);
}

void fault_catch_log(void)
{
    tutti_log_to(keep_line, NULL);
}

bool fault_logged(const char *words)
{
    for (int i = 0; i < FAULT_LINES && i < atomic_load(&fault_shared->log.count); i++)
        if (strstr(fault_shared->log.lines[i], words) != NULL) return true;
    return false;
}

/* ---- Operations ------------------------------------------------------------------------------------------------ */

static const char *const op_names[FAULT_OPS] = {
    [FAULT_BARRIER] = "barrier",
    [FAULT_ALL_REDUCE] = "all_reduce",
    [FAULT_REDUCE] = "reduce",
    [FAULT_BROADCAST] = "broadcast",
    [FAULT_ALL_GATHER] = "all_gather",
    [FAULT_GATHER] = "gather",
    [FAULT_SCATTER] = "scatter",
    [FAULT_REDUCE_SCATTER] = "reduce_scatter",
    [FAULT_ALL_TO_ALL] = "all_to_all",
    [FAULT_ALL_GATHER_V] = "all_gather_v",
    [FAULT_GATHER_V] = "gather_v",
    [FAULT_SCATTER_V] = "scatter_v",
    [FAULT_REDUCE_SCATTER_V] = "reduce_scatter_v",
    [FAULT_ALL_TO_ALL_V] = "all_to_all_v",
    [FAULT_SCAN] = "scan",
    [FAULT_EXSCAN] = "exscan",
    [FAULT_SENDRECV] = "sendrecv",
    [FAULT_SEND] = "send and recv",
};

const char *fault_op_name(int op)
{
    return op_names[op];
}

static float input_of(int rank, size_t i)
{
    return (float)(rank * 100 + (int)(i % 97));
}

static size_t elements_of(const struct fault_buffers *b)
{
    return (size_t)b->size * b->count;
}

bool fault_buffers_make(struct fault_buffers *b, tutti_comm *comm, size_t count, bool shared)
{
    *b = (struct fault_buffers){.comm = comm, .count = count, .shared = shared};
    b->rank = tutti_rank(comm);
    b->size = tutti_size(comm);
    size_t bytes = elements_of(b) * sizeof *b->in;
    b->counts = malloc((size_t)b->size * sizeof *b->counts);
    b->in = shared ? tutti_alloc(comm, bytes) : malloc(bytes);
    b->out = shared ? tutti_alloc(comm, bytes) : malloc(bytes);
    if (!CHECK(b->counts != NULL && b->in != NULL && b->out != NULL)) return false;
    for (int rank = 0; rank < b->size; rank++) b->counts[rank] = count;
    for (size_t i = 0; i < elements_of(b); i++) b->in[i] = input_of(b->rank, i);
    return true;
}

void fault_buffers_free(struct fault_buffers *b)
{
    free(b->counts);
    if (b->shared) {
        CHECK(tutti_free(b->comm, b->in) == TUTTI_OK);
        CHECK(tutti_free(b->comm, b->out) == TUTTI_OK);
    } else {
        free(b->in);
        free(b->out);
    }
}

bool fault_inputs_intact(const struct fault_buffers *b)
{
    for (size_t i = 0; i < elements_of(b); i++)
        if (b->in[i] != input_of(b->rank, i)) return false;
    return true;
}

static tutti_status send_to_all(struct fault_buffers *b)
{
    tutti_status status = TUTTI_OK;
    if (b->rank > 0) return tutti_recv(b->comm, b->out, b->count, TUTTI_F32, 0, 5, NULL);
    for (int peer = 1; peer < b->size && status == TUTTI_OK; peer++)
        status = tutti_send(b->comm, b->in, b->count, TUTTI_F32, peer, 5);
    return status;
}

tutti_status fault_op(int op, struct fault_buffers *b)
{
    tutti_comm *comm = b->comm;
    const float *in = b->in;
    float *out = b->out;
    size_t count = b->count;
    int next = (b->rank + 1) % b->size, before = (b->rank + b->size - 1) % b->size;
    switch (op) {
    case FAULT_ALL_REDUCE: return tutti_all_reduce(comm, in, out, count, TUTTI_F32, TUTTI_SUM);
    case FAULT_REDUCE: return tutti_reduce(comm, in, out, count, TUTTI_F32, TUTTI_SUM, 0);
    case FAULT_BROADCAST: return tutti_broadcast(comm, in, out, count, TUTTI_F32, 0);
    case FAULT_ALL_GATHER: return tutti_all_gather(comm, in, out, count, TUTTI_F32);
    case FAULT_GATHER: return tutti_gather(comm, in, out, count, TUTTI_F32, 0);
    case FAULT_SCATTER: return tutti_scatter(comm, in, out, count, TUTTI_F32, 0);
    case FAULT_REDUCE_SCATTER: return tutti_reduce_scatter(comm, in, out, count, TUTTI_F32, TUTTI_SUM);
    case FAULT_ALL_TO_ALL: return tutti_all_to_all(comm, in, out, count, TUTTI_F32);
    case FAULT_ALL_GATHER_V: return tutti_all_gather_v(comm, in, out, b->counts, NULL, TUTTI_F32);
    case FAULT_GATHER_V: return tutti_gather_v(comm, in, count, out, b->counts, NULL, TUTTI_F32, 0);
    case FAULT_SCATTER_V: return tutti_scatter_v(comm, in, b->counts, NULL, out, count, TUTTI_F32, 0);
    case FAULT_REDUCE_SCATTER_V: return tutti_reduce_scatter_v(comm, in, out, b->counts, TUTTI_F32, TUTTI_SUM);
    case FAULT_ALL_TO_ALL_V: return tutti_all_to_all_v(comm, in, b->counts, NULL, out, b->counts, NULL, TUTTI_F32);
    case FAULT_SCAN: return tutti_scan(comm, in, out, count, TUTTI_F32, TUTTI_SUM);
    case FAULT_EXSCAN: return tutti_exscan(comm, in, out, count, TUTTI_F32, TUTTI_SUM);
    case FAULT_SENDRECV: return tutti_sendrecv(comm, in, count, next, 3, out, count, before, 3, TUTTI_F32, NULL);
    case FAULT_SEND: return send_to_all(b);
    default: return tutti_barrier(comm);
    }
}

static float sum_of(int ranks, size_t i)
{
    return (float)(100 * ranks * (ranks - 1) / 2 + ranks * (int)(i % 97));
}

/* What out[i] must be after a success; false where it is not defined. */
static bool expected(int op, const struct fault_buffers *b, size_t i, float *value)
{
    size_t mine = (size_t)b->rank * b->count;
    int block = (int)(i / b->count), before = (b->rank + b->size - 1) % b->size;
    bool first = i < b->count, root = b->rank == 0;
    switch (op) {
    case FAULT_ALL_REDUCE: *value = sum_of(b->size, i); return first;
    case FAULT_REDUCE: *value = sum_of(b->size, i); return first && root;
    case FAULT_BROADCAST: *value = input_of(0, i); return first;
    case FAULT_ALL_GATHER:
    case FAULT_ALL_GATHER_V: *value = input_of(block, i % b->count); return true;
    case FAULT_GATHER:
    case FAULT_GATHER_V: *value = input_of(block, i % b->count); return root;
    case FAULT_SCATTER:
    case FAULT_SCATTER_V: *value = input_of(0, mine + i); return first;
    case FAULT_REDUCE_SCATTER:
    case FAULT_REDUCE_SCATTER_V: *value = sum_of(b->size, mine + i); return first;
    case FAULT_ALL_TO_ALL:
    case FAULT_ALL_TO_ALL_V: *value = input_of(block, mine + i % b->count); return true;
    case FAULT_SCAN: *value = sum_of(b->rank + 1, i); return first;
    case FAULT_EXSCAN: *value = sum_of(b->rank, i); return first && !root;
    case FAULT_SENDRECV: *value = input_of(before, i); return first;
    case FAULT_SEND: *value = input_of(0, i); return first && !root;
    default: return false;
    }
}

static size_t stride_of(const struct fault_buffers *b)
{
    return elements_of(b) / 61 + 1;
}

void fault_op_spoil(struct fault_buffers *b)
{
    for (size_t i = 0; i < elements_of(b); i += stride_of(b)) b->out[i] = -12345;
}

bool fault_op_right(int op, const struct fault_buffers *b)
{
    float value = 0;
    for (size_t i = 0; i < elements_of(b); i += stride_of(b))
        if (expected(op, b, i, &value) && b->out[i] != value) return false;
    return true;
}
