/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan
 *
 * Processes that meet, connect by tcp and exchange frames, in simulated time, generation after generation, as those of a world that is
 * rebuilt do: connections end by themselves and are made again while they prove their key, and a process dies at some moment and is
 * replaced by another one. All end within the deadline; without faults all join; and where all have joined and no connection was lost
 * that both ends had, all that was sent comes.
 */
#include "base/clock.h"
#include "base/sim.h"
#include "base/task.h"
#include "check.h"
#include "sanitized.h"
#include "transport/proof.h"
#include "transport/sim_socket.h"
#include "transport/tcp.h"
#include "world/rendezvous.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS INT64_C(1000000)
enum { MOST = 7, GENERATIONS = 4, DEADLINE_MS = 3000, USE_MS = 500, PORT = 5000, GRACE_MS = 1500 };

struct process {
    struct tti_task task;
    int rank;
    tutti_status status;
    int64_t ended_ns;
    int came[MOST], lost; /* frames of each peer; peers that it has lost */
    uint32_t in[MOST], out[MOST];
    struct tti_outgoing outgoing[MOST];
    int sent;
    tutti_error error;
};

static int size, generation;
static struct tti_key key;
static struct process processes[MOST];

/* ---- Using what was made ------------------------------------------------------------------------------------------- */

static void *begin(void *context, int peer, const struct tti_frame_head *head, void **cookie)
{
    struct process *process = context;
    CHECK(head->bytes == sizeof process->in[peer]);
    *cookie = NULL;
    return &process->in[peer];
}

static void end(void *context, int peer, const struct tti_frame_head *head, void *cookie)
{
    struct process *process = context;
    (void)head, (void)cookie;
    process->came[peer]++;
    CHECK(process->in[peer] == (uint32_t)(generation * 100 + peer * 10 + process->rank));
}

static void lose(void *context, int peer, bool closed, int system_errno, const char *text)
{
    struct process *process = context;
    (void)peer, (void)system_errno, (void)text;
    if (!closed) process->lost++;
}

static void done(struct tti_outgoing *outgoing, tutti_status status)
{
    (void)outgoing, (void)status;
}

static bool has_all(const struct process *process)
{
    for (int peer = 0; peer < size; peer++)
        if (peer != process->rank && process->came[peer] == 0) return false;
    return true;
}

static void use(struct process *process, struct tti_transport *transport)
{
    transport->sink = (struct tti_sink){.context = process, .begin = begin, .end = end, .lost = lose};
    for (int peer = 0; peer < size; peer++) {
        if (peer == process->rank) continue;
        process->out[peer] = (uint32_t)(generation * 100 + process->rank * 10 + peer);
        process->outgoing[peer] = (struct tti_outgoing){
            .head = {.bytes = sizeof process->out[peer]}, .data = &process->out[peer], .done = done};
        transport->ops->send(transport, peer, &process->outgoing[peer]);
    }
    int64_t until_ns = tti_now_ns() + USE_MS * MS;
    while ((!has_all(process) && process->lost == 0) && tti_now_ns() < until_ns)
        if (!transport->ops->progress(transport, TTI_ANYBODY)) transport->ops->sleep(transport, MS);
}

/* ---- Joining ------------------------------------------------------------------------------------------------------- */

static tutti_status connect_all(struct process *process, struct tti_tcp *tcp, const struct tti_blobs *all,
                                int64_t deadline_ns)
{
    tutti_status status = TUTTI_OK;
    for (int peer = 0; peer < size && status == TUTTI_OK; peer++) {
        size_t bytes;
        const void *peer_info = tti_blob(all, peer, &bytes);
        if (peer != process->rank) status = tti_tcp_expect(tcp, peer, peer_info, bytes, &process->error);
    }
    return status != TUTTI_OK ? status : tti_tcp_connect(&tcp, 1, &key, deadline_ns, NULL, NULL, &process->error);
}

/* The second exchange tells all whether all are connected. */
static tutti_status join(struct process *process, struct tti_meeting *meeting, struct tti_tcp *tcp, int64_t deadline_ns)
{
    struct tti_tcp_peer_info peer_info;
    struct tti_blobs all = {0}, again = {0};
    size_t bytes = tti_tcp_peer_info(tcp, &peer_info);
    tutti_status status = tti_meeting_exchange(meeting, &peer_info, bytes, &all, &process->error);
    if (status != TUTTI_OK) return status;
    status = connect_all(process, tcp, &all, deadline_ns);
    if (status == TUTTI_OK)
        status = tti_meeting_exchange(meeting, "", 0, &again, &process->error);
    else
        tti_meeting_abandon(meeting, &process->error);
    tti_blobs_free(&all);
    tti_blobs_free(&again);
    return status;
}

static void *live(void *argument)
{
    struct process *process = argument;
    char job[32], address[32];
    int64_t deadline_ns = tti_now_ns() + DEADLINE_MS * MS;
    struct tti_meeting *meeting = NULL;
    struct tti_tcp *tcp = NULL;
    snprintf(job, sizeof job, "sim-%d", generation);
    snprintf(address, sizeof address, "127.0.0.1:%d", PORT + generation);
    struct tti_rendezvous where = {
        .job = job, .rank = process->rank, .size = size, .deadline_ns = deadline_ns, .address = address, .key = &key};
    struct tti_tcp_settings settings = {.job = job, .rank = process->rank, .size = size, .interface = "127.0.0.1"};
    tti_sim_sleep((int64_t)(tti_sim_random() % (50 * MS)));
    process->status = tti_meeting_open(&where, &meeting, &process->error);
    if (process->status == TUTTI_OK) process->status = tti_tcp_listen(&settings, &tcp, &process->error);
    if (process->status == TUTTI_OK) process->status = join(process, meeting, tcp, deadline_ns);
    if (process->status == TUTTI_OK) use(process, tti_tcp_transport(tcp));
    process->ended_ns = tti_sim_now_ns();
    tti_meeting_close(meeting);
    if (tcp != NULL) tti_tcp_transport(tcp)->ops->close(tti_tcp_transport(tcp), 100 * MS);
    return NULL;
}

/* ---- One generation ------------------------------------------------------------------------------------------------ */

static void check_generation(int64_t began_ns, int dead, bool faulty, bool whole)
{
    int joined = 0;
    for (int rank = 0; rank < size; rank++) {
        const struct process *process = &processes[rank];
        if (rank == dead) continue;
        CHECK_THAT(process->ended_ns - began_ns < (DEADLINE_MS + USE_MS + GRACE_MS) * MS, "rank %d: it took %.1f s",
                   rank, (double)(process->ended_ns - began_ns) / 1e9);
        joined += process->status == TUTTI_OK;
        CHECK_THAT(faulty || process->status == TUTTI_OK, "rank %d without faults: %s", rank, process->error.text);
    }
    for (int rank = 0; rank < size && joined == size && whole; rank++)
        CHECK_THAT(has_all(&processes[rank]) && processes[rank].lost == 0, "rank %d: %d peers are lost", rank,
                   processes[rank].lost);
}

static int joins_of_faulty, replaced, made_twice;

static void run_generation(bool faulty)
{
    int64_t began_ns = tti_sim_now_ns();
    bool twice = tti_sim_random() % 2 ==
                 0; /* connections end when one end has them, and the other one does not know it yet */
    tti_sim_break_sockets(faulty ? 1 + tti_sim_random() % 20 : 0, 3 * MS, twice ? TTI_MAC_BYTES : 0);
    int broken = tti_sim_broken_sockets();
    int dead = faulty && !twice && tti_sim_random() % 2 == 0 ? (int)(tti_sim_random() % (uint64_t)size) : -1;
    memset(processes, 0, sizeof processes);
    for (int rank = 0; rank < size; rank++) {
        tutti_error error;
        processes[rank].rank = rank;
        CHECK(tti_task_start(&processes[rank].task, live, &processes[rank], &error) == TUTTI_OK);
        tti_sim_task_lead(processes[rank].task.simulated);
    }
    if (dead >= 0) {
        tti_sim_sleep((int64_t)(tti_sim_random() % (100 * MS)));
        if (processes[dead].ended_ns != 0) dead = -1;
    }
    if (dead >= 0) tti_sim_task_kill(processes[dead].task.simulated);
    for (int rank = 0; rank < size; rank++) tti_task_join(&processes[rank].task);
    broken = tti_sim_broken_sockets() - broken;
    check_generation(began_ns, dead, faulty, twice || broken == 0);
    if (twice) made_twice += broken;
    for (int rank = 0; rank < size; rank++) joins_of_faulty += faulty && processes[rank].status == TUTTI_OK;
    replaced += dead >= 0;
}

static void *run_all(void *argument)
{
    (void)argument;
    for (generation = 1; generation <= GENERATIONS; generation++) run_generation(generation < GENERATIONS);
    return NULL;
}

/* In a process of its own: what the dead held is given back with it. */
static bool run_seed(uint64_t seed)
{
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        tutti_error error = {0};
        struct tti_sim_setup setup = {.seed = seed, .stack_bytes = 1 << 18};
        check_title("seed %llu", (unsigned long long)seed);
        size = 2 + (int)(seed % (MOST - 1));
        tutti_log_set_level(TUTTI_ERROR);
        CHECK_THAT(tti_sim_run(&setup, run_all, NULL, NULL, &error) == TUTTI_OK, "%s", error.text);
        printf("seed %llu: %d joined, %d died, %d connections were lost by one end\n", (unsigned long long)seed,
               joins_of_faulty, replaced, made_twice);
        fflush(NULL);
        _exit(check_end());
    }
    return CHECK_THAT(child > 0 && waitpid(child, &status, 0) == child && status == 0, "seed %llu",
                      (unsigned long long)seed);
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 0) : SANITIZED ? 20 : 100;
    memset(&key, 7, sizeof key);
    for (uint64_t seed = first; seed < first + seeds && run_seed(seed); seed++) {}
    return check_end();
}
