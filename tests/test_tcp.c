/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: timeout=120 labels=asan,tsan waits */
/* The tcp transport: every frame arrives once, whole and in order; and what is told of peers that end. */
#include "base/alloc.h"
#include "base/clock.h"
#include "ranks.h"
#include "tcp_mesh.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t soon(void)
{
    return tti_now_ns() + BOUND_MS * MS;
}

static bool all_complete(const struct tcp_mesh *mesh, uint64_t frames)
{
    for (int rank = 0; rank < mesh->size; rank++)
        if (!mesh_complete(&mesh->nodes[rank], frames)) return false;
    return true;
}

static void check_well(const struct tcp_mesh *mesh)
{
    for (int rank = 0; rank < mesh->size; rank++) {
        const struct mesh_node *node = &mesh->nodes[rank];
        CHECK(node->wrong == 0);
        for (int peer = 0; peer < mesh->size; peer++) {
            CHECK(!node->lost[peer] && node->failed[peer] == 0);
            if (node->lost[peer]) printf("rank %d: %s\n", rank, node->text[peer]);
        }
    }
}

/* ---- Frames ---------------------------------------------------------------------------------------------------- */

/* All endpoints in this thread, in turn; every pair in both directions, some frames ahead of each other. */
static void test_frames(int size, int streams, uint64_t frames, size_t largest)
{
    struct tcp_mesh mesh;
    tutti_error error;
    tcp_mesh_init(&mesh, size, streams);
    tutti_status status = tcp_mesh_open(&mesh, largest, &error);
    CHECK(status == TUTTI_OK);
    if (status != TUTTI_OK) {
        printf("%s\n", error.text);
        return;
    }
    int64_t deadline_ns = soon();
    for (uint64_t n = 0; !all_complete(&mesh, frames) && tti_now_ns() < deadline_ns; n++) {
        for (int rank = 0; rank < size; rank++) {
            for (int peer = 0; peer < size && n < frames; peer++)
                if (peer != rank) mesh_send(&mesh.nodes[rank], peer);
            mesh_progress(&mesh.nodes[rank]);
        }
    }
    CHECK(all_complete(&mesh, frames));
    check_well(&mesh);
    for (int rank = 0; rank < size; rank++) tcp_mesh_close(&mesh, rank);
}

/* Each endpoint in a thread that sleeps when there is nothing to do. */
struct worker {
    pthread_t thread;
    struct tcp_mesh *mesh;
    int rank;
    uint64_t frames;
    atomic_int *complete;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct mesh_node *node = &worker->mesh->nodes[worker->rank];
    int64_t deadline_ns = soon();
    bool complete = false;
    for (uint64_t n = 0; tti_now_ns() < deadline_ns; n++) {
        for (int peer = 0; peer < node->size && n < worker->frames; peer++)
            if (peer != node->rank) mesh_send(node, peer);
        bool moved = mesh_progress(node);
        if (!complete && mesh_complete(node, worker->frames)) {
            complete = true;
            atomic_fetch_add(worker->complete, 1);
            for (int rank = 0; rank < node->size; rank++) {
                struct tti_transport *other = tti_tcp_transport(worker->mesh->endpoints[rank]);
                other->ops->wake(other);
            }
        }
        if (atomic_load(worker->complete) == node->size) break;
        if (!moved && n >= worker->frames) node->transport->ops->sleep(node->transport, BOUND_MS * MS);
    }
    return NULL;
}

static void test_threads(int size, int streams, uint64_t frames)
{
    struct tcp_mesh mesh;
    struct worker workers[MESH_MOST];
    tutti_error error;
    atomic_int complete = 0;
    tcp_mesh_init(&mesh, size, streams);
    CHECK(tcp_mesh_open(&mesh, 5000000, &error) == TUTTI_OK);
    for (int rank = 0; rank < size; rank++) {
        workers[rank] = (struct worker){.mesh = &mesh, .rank = rank, .frames = frames, .complete = &complete};
        CHECK(pthread_create(&workers[rank].thread, NULL, work, &workers[rank]) == 0);
    }
    for (int rank = 0; rank < size; rank++) pthread_join(workers[rank].thread, NULL);
    CHECK(atomic_load(&complete) == size);
    check_well(&mesh);
    for (int rank = 0; rank < size; rank++) tcp_mesh_close(&mesh, rank);
}

static bool until_lost(struct mesh_node *node, int peer)
{
    int64_t deadline_ns = soon();
    while (!node->lost[peer] && tti_now_ns() < deadline_ns)
        if (!mesh_progress(node)) node->transport->ops->sleep(node->transport, 1000 * MS);
    return node->lost[peer];
}

static void test_sleep(void)
{
    struct tcp_mesh mesh;
    tutti_error error;
    tcp_mesh_init(&mesh, 2, 1);
    CHECK(tcp_mesh_open(&mesh, 100, &error) == TUTTI_OK);
    struct tti_transport *transport = mesh.nodes[0].transport;
    transport->ops->sleep(transport, 30 * MS); /* may return at once */
    mesh_progress(&mesh.nodes[0]);
    int64_t start_ns = tti_now_ns();
    transport->ops->sleep(transport, 30 * MS);
    CHECK(tti_now_ns() - start_ns >= 30 * MS);
    start_ns = tti_now_ns();
    transport->ops->wake(transport); /* one that comes before the sleep is not lost */
    transport->ops->wake(transport);
    transport->ops->sleep(transport, LONG_MS * MS);
    CHECK(tti_now_ns() - start_ns < LONG_MS * MS / 2);
    start_ns = tti_now_ns();
    transport->ops->sleep(transport, 30 * MS); /* and is used up */
    CHECK(tti_now_ns() - start_ns >= 30 * MS);
    start_ns = tti_now_ns();
    mesh_send(&mesh.nodes[1], 0);
    transport->ops->sleep(transport, LONG_MS * MS);
    CHECK(tti_now_ns() - start_ns < LONG_MS * MS / 2);
    tcp_mesh_close(&mesh, 1);
    CHECK(until_lost(&mesh.nodes[0], 1));
    mesh_send(&mesh.nodes[0], 1); /* done() is due */
    start_ns = tti_now_ns();
    transport->ops->sleep(transport, LONG_MS * MS);
    CHECK(tti_now_ns() - start_ns < LONG_MS * MS / 2);
    tcp_mesh_close(&mesh, 0);
}

/* A peer that does not read for longer than the heartbeat is slow, not lost. */
static void test_slow_reader(void)
{
    enum { FRAMES = 400 };
    struct tcp_mesh mesh;
    tutti_error error;
    tcp_mesh_init(&mesh, 2, 1);
    CHECK(tcp_mesh_open(&mesh, 2000000, &error) == TUTTI_OK);
    for (int n = 0; n < FRAMES; n++) mesh_send(&mesh.nodes[0], 1);
    int64_t until_ns = tti_now_ns() + 2500 * MS;
    while (tti_now_ns() < until_ns) {
        mesh_progress(&mesh.nodes[0]);
        mesh.nodes[0].transport->ops->sleep(mesh.nodes[0].transport, until_ns - tti_now_ns());
    }
    CHECK(mesh.nodes[0].done[1] > 0 && mesh.nodes[0].done[1] < FRAMES); /* it was blocked indeed */
    int64_t deadline_ns = soon();
    while (mesh.nodes[1].ended[0] < FRAMES && tti_now_ns() < deadline_ns)
        for (int rank = 0; rank < 2; rank++) mesh_progress(&mesh.nodes[rank]);
    CHECK(mesh.nodes[1].ended[0] == FRAMES && mesh.nodes[0].done[1] == FRAMES);
    check_well(&mesh);
    for (int rank = 0; rank < 2; rank++) tcp_mesh_close(&mesh, rank);
}

/* ---- Ends ------------------------------------------------------------------------------------------------------ */

static bool says(const struct mesh_node *node, int peer, const char *words)
{
    if (strstr(node->text[peer], words) != NULL) return true;
    printf("expected \"%s\" in: %s\n", words, node->text[peer]);
    return false;
}

/* Everything sent before the goodbye arrives, though the reader comes late and itself sends something unread. */
static void test_goodbye(int streams)
{
    enum { FRAMES = 30 };
    struct tcp_mesh mesh;
    tutti_error error;
    tcp_mesh_init(&mesh, 3, streams);
    CHECK(tcp_mesh_open(&mesh, 40000, &error) == TUTTI_OK);
    for (int n = 0; n < FRAMES; n++) mesh_send(&mesh.nodes[0], 1);
    mesh_send(&mesh.nodes[1], 0);
    tcp_mesh_close(&mesh, 0);
    CHECK(mesh.nodes[0].done[1] == FRAMES && mesh.nodes[0].failed[1] == 0);
    CHECK(until_lost(&mesh.nodes[1], 0) && mesh.nodes[1].closed[0] && mesh.nodes[1].ended[0] == FRAMES);
    CHECK(says(&mesh.nodes[1], 0, "rank 0 on ") && says(&mesh.nodes[1], 0, "has left"));
    CHECK(until_lost(&mesh.nodes[2], 0) && mesh.nodes[2].closed[0]);
    mesh_send(&mesh.nodes[1], 0);
    mesh_send(&mesh.nodes[1], 2); /* the others do not mind */
    int64_t deadline_ns = soon();
    while (mesh.nodes[2].ended[1] < 1 && tti_now_ns() < deadline_ns)
        for (int rank = 1; rank < 3; rank++) mesh_progress(&mesh.nodes[rank]);
    CHECK(mesh.nodes[1].failed[0] == 1 && mesh.nodes[1].done[0] == 1 && mesh.nodes[2].ended[1] == 1);
    CHECK(mesh.nodes[1].wrong == 0 && mesh.nodes[2].wrong == 0);
    for (int rank = 1; rank < 3; rank++) tcp_mesh_close(&mesh, rank);
}

static void *close_second(void *mesh)
{
    struct tti_transport *transport = tti_tcp_transport(((struct tcp_mesh *)mesh)->endpoints[1]);
    transport->ops->close(transport, BOUND_MS * MS);
    return NULL;
}

/* The same with large frames over several connections, which end at different times for a reader that reads meanwhile:
 * the systems' buffers need not hold them all. */
static void test_large_goodbye(int size)
{
    enum { FRAMES = 60 };
    struct tcp_mesh mesh;
    pthread_t closer;
    tutti_error error;
    tcp_mesh_init(&mesh, size, 4);
    CHECK(tcp_mesh_open(&mesh, SIZE_MAX, &error) == TUTTI_OK);
    for (int n = 0; n < FRAMES; n++) mesh_send(&mesh.nodes[1], 0);
    for (int n = 0; n < 20; n++) mesh_send(&mesh.nodes[0], 1);
    CHECK(pthread_create(&closer, NULL, close_second, &mesh) == 0);
    CHECK(until_lost(&mesh.nodes[0], 1) && mesh.nodes[0].closed[1]);
    CHECK(mesh.nodes[0].ended[1] == FRAMES && mesh.nodes[0].wrong == 0);
    pthread_join(closer, NULL);
    mesh.endpoints[1] = NULL;
    for (int rank = 0; rank < size; rank++) tcp_mesh_close(&mesh, rank);
}

/* One that never takes what it is sent: closing gives up in time, and says so of every frame. */
static void test_close_in_time(void)
{
    enum { FRAMES = 200 };
    struct tcp_mesh mesh;
    tutti_error error;
    tcp_mesh_init(&mesh, 2, 1);
    CHECK(tcp_mesh_open(&mesh, 2000000, &error) == TUTTI_OK);
    for (int n = 0; n < FRAMES; n++) mesh_send(&mesh.nodes[0], 1);
    int64_t start_ns = tti_now_ns();
    mesh.nodes[0].transport->ops->close(mesh.nodes[0].transport, 50 * MS);
    CHECK(tti_now_ns() - start_ns < (50 + SLACK_MS) * MS);
    CHECK(mesh.nodes[0].failed[1] > 0 && mesh.nodes[0].done[1] + mesh.nodes[0].failed[1] == FRAMES);
    CHECK(until_lost(&mesh.nodes[1], 0) && !mesh.nodes[1].closed[0] && mesh.nodes[1].wrong == 0);
    tcp_mesh_close(&mesh, 1);
}

/* A process that is killed in the middle of its frames. */
static void test_killed(int streams)
{
    struct tcp_mesh mesh;
    tutti_error error;
    tcp_mesh_init(&mesh, 2, streams);
    for (int rank = 0; rank < 2; rank++) CHECK(tcp_mesh_listen(&mesh, rank, &error) == TUTTI_OK);
    fflush(stdout);
    pid_t child = fork();
    int mine = child == 0;
    struct tti_transport *others = tti_tcp_transport(mesh.endpoints[1 - mine]);
    others->ops->close(others, 0); /* closes this process's copy of the sockets only */
    tcp_mesh_expect(&mesh, mine);
    tutti_status status = tti_tcp_connect(&mesh.endpoints[mine], 1, &mesh.key, soon(), NULL, NULL, &error);
    if (status == TUTTI_OK) mesh_node_init(&mesh.nodes[mine], tti_tcp_transport(mesh.endpoints[mine]), 2000000);
    if (child == 0) {
        while (status == TUTTI_OK) {
            mesh_send(&mesh.nodes[1], 0);
            mesh_progress(&mesh.nodes[1]);
        }
        _exit(1);
    }
    CHECK(status == TUTTI_OK);
    struct mesh_node *node = &mesh.nodes[0];
    int64_t deadline_ns = soon();
    while (node->ended[1] < 100 && tti_now_ns() < deadline_ns) mesh_progress(node);
    for (int n = 0; n < 20; n++) mesh_send(node, 1);
    kill(child, SIGKILL);
    int64_t start_ns = tti_now_ns();
    CHECK(until_lost(node, 1) && !node->closed[1]);
    printf("a killed peer was lost after %.2f ms: %s\n", (double)(tti_now_ns() - start_ns) / 1e6, node->text[1]);
    CHECK(tti_now_ns() - start_ns < (200 + SLACK_MS) * MS);
    mesh_send(node, 1);
    mesh_progress(node);
    CHECK(node->done[1] + node->failed[1] == 21 && node->failed[1] > 0 && node->wrong == 0);
    waitpid(child, NULL, 0);
    tcp_mesh_close(&mesh, 0);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static void test_memory(void)
{
    for (long allowed = 0;; allowed++) {
        struct tcp_mesh mesh;
        tutti_error error;
        tcp_mesh_init(&mesh, 2, 2);
        for (int rank = 0; rank < 2; rank++) CHECK(tcp_mesh_listen(&mesh, rank, &error) == TUTTI_OK);
        for (int rank = 0; rank < 2; rank++) tcp_mesh_expect(&mesh, rank);
        tti_alloc_fail_after(allowed);
        tutti_status status = tti_tcp_connect(mesh.endpoints, 2, &mesh.key, soon(), NULL, NULL, &error);
        tti_alloc_fail_after(-1);
        CHECK(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
        for (int rank = 0; rank < 2; rank++) tcp_mesh_close(&mesh, rank);
        if (status == TUTTI_OK || allowed > 40) {
            CHECK(allowed > 3 && allowed <= 40);
            break;
        }
    }
    for (long allowed = 0; allowed < 6; allowed++) {
        struct tcp_mesh mesh;
        tutti_error error;
        tcp_mesh_init(&mesh, 2, 2);
        tti_alloc_fail_after(allowed);
        tutti_status status = tcp_mesh_listen(&mesh, 0, &error);
        tti_alloc_fail_after(-1);
        CHECK(allowed < 5 ? status == TUTTI_ERR_MEMORY : status == TUTTI_OK);
        tcp_mesh_close(&mesh, 0);
    }
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    uint64_t frames = SANITIZED ? 100 : 300;
    test_frames(2, 1, frames, SIZE_MAX);
    test_frames(2, 2, frames, SIZE_MAX);
    test_frames(3, 4, frames / 2, SIZE_MAX);
    test_frames(2, 1, 10 * frames, 300);
    test_frames(6, 1, frames / 2, 100000); /* more than are read without asking epoll */
    test_frames(8, 2, frames / 4, SIZE_MAX);
    test_threads(2, 1, frames);
    test_threads(3, 2, frames);
    test_threads(7, 1, frames / 3);
    test_sleep();
    test_slow_reader();
    test_goodbye(1);
    test_goodbye(3);
    test_large_goodbye(2);
    test_large_goodbye(6);
    test_close_in_time();
    test_killed(1);
    test_killed(2);
    test_memory();
    return check_end();
}
