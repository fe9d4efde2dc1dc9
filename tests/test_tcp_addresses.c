/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: timeout=60 labels=asan,tsan */
/* Where ranks listen and how they are found: interfaces, addresses that lead nowhere, ranges of ports. */
#include "base/clock.h"
#include "ranks.h"
#include "tcp_mesh.h"
#include <pthread.h>
#include <unistd.h>

static void test_addresses(void)
{
    struct tcp_mesh mesh;
    tutti_error error;
    tcp_mesh_init(&mesh, 2, 1);
    mesh.interface = "nothere7";
    CHECK(tcp_mesh_listen(&mesh, 0, &error) == TUTTI_ERR_OPTION && check_says(error.text, "lo 127.0.0.1"));
    mesh.interface = "lo";
    for (int rank = 0; rank < 2; rank++) CHECK(tcp_mesh_listen(&mesh, rank, &error) == TUTTI_OK);
    struct tti_tcp_peer_info peer_info = mesh.peer_infos[0];
    size_t bytes = mesh.peer_info_bytes[0];
    for (size_t i = 0; i < bytes; i++) /* half a peer info, or one of nonsense */
        CHECK(tti_tcp_expect(mesh.endpoints[1], 0, &peer_info, i, &error) == TUTTI_ERR_JOIN);
    peer_info.count = 200;
    CHECK(tti_tcp_expect(mesh.endpoints[1], 0, &peer_info, bytes, &error) == TUTTI_ERR_JOIN);
    peer_info = mesh.peer_infos[0];
    peer_info.network++; /* as if of another host: loopback leads nowhere */
    CHECK(tti_tcp_expect(mesh.endpoints[1], 0, &peer_info, bytes, &error) == TUTTI_OK);
    tutti_status status = tti_tcp_connect(&mesh.endpoints[1], 1, &mesh.key, tti_now_ns() + 300 * MS, NULL, NULL,
                                          &error);
    CHECK(status == TUTTI_ERR_JOIN && check_says(error.text, "no address that other hosts can use"));
    tcp_mesh_close(&mesh, 0);
    tcp_mesh_close(&mesh, 1);

    tcp_mesh_init(&mesh, 2, 1); /* one whose door is closed */
    for (int rank = 0; rank < 2; rank++) CHECK(tcp_mesh_listen(&mesh, rank, &error) == TUTTI_OK);
    tcp_mesh_expect(&mesh, 1);
    tcp_mesh_close(&mesh, 0);
    status = tti_tcp_connect(&mesh.endpoints[1], 1, &mesh.key, tti_now_ns() + 300 * MS, NULL, NULL, &error);
    CHECK(status == TUTTI_ERR_JOIN && check_says(error.text, "no route between rank 1 on ") &&
          check_says(error.text, "and rank 0 on ") && check_says(error.text, "127.0.0.1:") &&
          check_says(error.text, "Connection refused"));
    tcp_mesh_close(&mesh, 1);
}

static void test_ports(void)
{
    static const char *const bad[] = {"x", "1-", "-5", "70000", "10-5", "0", "1-70000", "1 2"};
    struct tti_tcp_settings settings = {.job = "ports", .size = 2, .interface = "127.0.0.1", .streams = 1};
    struct tti_tcp *first, *second, *third;
    tutti_error error;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        settings.ports = bad[i];
        CHECK(tti_tcp_listen(&settings, &first, &error) == TUTTI_ERR_OPTION && check_says(error.text, "LOW-HIGH"));
    }
    struct tti_tcp_peer_info peer_info;
    char range[32];
    settings.ports = "";
    CHECK(tti_tcp_listen(&settings, &first, &error) == TUTTI_OK);
    tti_tcp_peer_info(first, &peer_info); /* a port that is taken now */
    snprintf(range, sizeof range, "%u", peer_info.at[0].port);
    settings.ports = range;
    CHECK(tti_tcp_listen(&settings, &second, &error) == TUTTI_ERR_JOIN && check_says(error.text, "is taken; widen"));
    snprintf(range, sizeof range, "%u-%u", peer_info.at[0].port,
             peer_info.at[0].port < 65435 ? peer_info.at[0].port + 100 : 65535);
    CHECK(tti_tcp_listen(&settings, &second, &error) == TUTTI_OK);
    struct tti_tcp_peer_info other;
    tti_tcp_peer_info(second, &other);
    CHECK(other.at[0].port > peer_info.at[0].port && other.at[0].port <= peer_info.at[0].port + 100);
    snprintf(range, sizeof range, "%u-%u", peer_info.at[0].port, other.at[0].port);
    if (other.at[0].port == peer_info.at[0].port + 1)
        CHECK(tti_tcp_listen(&settings, &third, &error) == TUTTI_ERR_JOIN && check_says(error.text, "each rank of a"));
    tti_tcp_transport(first)->ops->close(tti_tcp_transport(first), 0);
    tti_tcp_transport(second)->ops->close(tti_tcp_transport(second), 0);
}

/* Many that look for a port of the same range at the same moment: each finds one of its own. */
struct seeker {
    pthread_t thread;
    pthread_barrier_t *start;
    uint16_t low, high, port;
    int fd;
};

static void *seek_port(void *argument)
{
    struct seeker *seeker = argument;
    struct tti_address address = {.family = 4, .ip = {127, 0, 0, 1}};
    pthread_barrier_wait(seeker->start);
    seeker->fd = tti_listen(&address, seeker->low, seeker->high);
    seeker->port = address.port;
    return NULL;
}

static void test_port_race(void)
{
    enum { SEEKERS = 8, ROUNDS = 50, RANGE = 500 };
    struct seeker seekers[SEEKERS];
    pthread_barrier_t start;
    struct tti_address any = {.family = 4, .ip = {127, 0, 0, 1}};
    int fd = tti_listen(&any, 0, 0);
    uint16_t low = any.port < 65536 - RANGE ? any.port : 65536 - RANGE;
    pthread_barrier_init(&start, NULL, SEEKERS);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SEEKERS; i++) {
            seekers[i] = (struct seeker){.start = &start, .low = low, .high = (uint16_t)(low + RANGE - 1)};
            CHECK(pthread_create(&seekers[i].thread, NULL, seek_port, &seekers[i]) == 0);
        }
        for (int i = 0; i < SEEKERS; i++) pthread_join(seekers[i].thread, NULL);
        for (int i = 0; i < SEEKERS; i++) {
            CHECK(seekers[i].fd >= 0);
            for (int j = 0; j < i; j++) CHECK(seekers[i].port != seekers[j].port);
        }
        for (int i = 0; i < SEEKERS; i++) close(seekers[i].fd);
    }
    pthread_barrier_destroy(&start);
    close(fd);
}

/* Of a long name there is as much as there is room for. */
static void test_host_name(void)
{
    char whole[256], part[2];
    tti_host_name(whole, sizeof whole);
    tti_host_name(part, sizeof part);
    CHECK(part[0] == whole[0] && part[1] == '\0');
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    test_host_name();
    test_addresses();
    test_ports();
    test_port_race();
    return check_end();
}
