/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: timeout=120 labels=asan,tsan waits */
/* Who may not connect, what strangers can use up, and what a peer can do wrong: an error for that peer, nothing else. */
#include "base/clock.h"
#include "ranks.h"
#include "tcp_mesh.h"
#include "transport/door.h"
#include "transport/tcp_head.h"
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Rank 0 connects in a thread, with whoever comes as rank 1 ------------------------------------------------ */

struct opening {
    pthread_t thread;
    struct tcp_mesh *mesh;
    int64_t timeout_ms;
    tutti_status status;
    tutti_error error;
};

static void *open_rank_0(void *argument)
{
    struct opening *opening = argument;
    opening->status = tti_tcp_connect(&opening->mesh->endpoints[0], 1, &opening->mesh->key,
                                      tti_now_ns() + opening->timeout_ms * MS, NULL, NULL, &opening->error);
    return NULL;
}

static void begin_opening(struct opening *opening, struct tcp_mesh *mesh, int size, int streams, int64_t timeout_ms)
{
    tutti_error error;
    tcp_mesh_init(mesh, size, streams);
    for (int rank = 0; rank < size; rank++) CHECK(tcp_mesh_listen(mesh, rank, &error) == TUTTI_OK);
    tcp_mesh_expect(mesh, 0);
    *opening = (struct opening){.mesh = mesh, .timeout_ms = timeout_ms};
    CHECK(pthread_create(&opening->thread, NULL, open_rank_0, opening) == 0);
}

static void end_opening(struct opening *opening)
{
    struct tcp_mesh *mesh = opening->mesh;
    pthread_join(opening->thread, NULL);
    if (opening->status == TUTTI_OK) mesh_node_init(&mesh->nodes[0], tti_tcp_transport(mesh->endpoints[0]), SIZE_MAX);
}

static void close_all(struct tcp_mesh *mesh)
{
    for (int rank = 0; rank < mesh->size; rank++) tcp_mesh_close(mesh, rank);
}

static bool was_closed(int fd)
{
    char byte;
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    if (poll(&polled, 1, BOUND_MS) != 1) return false;
    return recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

/* ---- At the door ----------------------------------------------------------------------------------------------- */

static void count_line(void *context, tutti_log_level level, const char *line)
{
    if (level == TUTTI_WARN && strstr(line, "has another key") != NULL) atomic_fetch_add((atomic_int *)context, 1);
}

static void test_wrong_keys(void)
{
    struct tcp_mesh mesh;
    struct opening opening;
    struct tti_key wrong = {{9}};
    atomic_int lines = 0;
    tutti_log_to(count_line, &lines);
    begin_opening(&opening, &mesh, 2, 1, 2000);
    for (int i = 0; i < 6; i++) CHECK(tcp_mesh_impostor(&mesh, &wrong, 1, 0, 0, 50) < 0);
    int other = tcp_mesh_stranger(&mesh, 0);
    CHECK(send(other, "GET / HTTP/1.0\r\n", 16, MSG_NOSIGNAL) == 16 && close(other) == 0);
    end_opening(&opening);
    CHECK(opening.status == TUTTI_ERR_JOIN && opening.error.peer == 1);
    CHECK(check_says(opening.error.text, "rank 1 on ") &&
          check_says(opening.error.text, "has not connected to rank 0"));
    CHECK(check_says(opening.error.text, "a connection from 127.0.0.1"));
    CHECK(check_says(opening.error.text, "as rank 1, has another key; compare TUTTI_KEY_FILE"));
    CHECK(lines > 0 && lines <= 4); /* however often it is tried */
    tutti_log_to(NULL, NULL);
    close_all(&mesh);

    /* the other way: who connects finds someone without the key */
    tutti_error error;
    tcp_mesh_init(&mesh, 2, 1);
    for (int rank = 0; rank < 2; rank++) CHECK(tcp_mesh_listen(&mesh, rank, &error) == TUTTI_OK);
    for (int rank = 0; rank < 2; rank++) tcp_mesh_expect(&mesh, rank);
    tutti_status status = tti_tcp_connect(&mesh.endpoints[1], 1, &wrong, tti_now_ns() + 300 * MS, NULL, NULL, &error);
    CHECK(status == TUTTI_ERR_JOIN && error.peer == 0 && check_says(error.text, "no route between rank 1 on "));
    close_all(&mesh);
}

/* What rank 1 would say first. */
static void begin_hello(const struct tcp_mesh *mesh, struct tti_proof_job *job, struct tti_proof *proof)
{
    tti_proof_setup(job, &mesh->key, mesh->job, 0, 1, 2);
    tti_proof_connect(proof, job, TTI_PROOF_MESH, 0, 0);
}

/* Whether this hello is challenged. In the end it is refused, whatever is said then. */
static bool is_challenged(struct tcp_mesh *mesh, const struct tti_hello *hello)
{
    unsigned char challenge[sizeof(struct tti_challenge)], guess[TTI_MAC_BYTES] = {1};
    int fd = tcp_mesh_stranger(mesh, 0);
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    CHECK(send(fd, hello, sizeof *hello, MSG_NOSIGNAL) == sizeof *hello && poll(&polled, 1, BOUND_MS) == 1);
    ssize_t got = recv(fd, challenge, sizeof challenge, MSG_DONTWAIT);
    CHECK(got <= 0 || got == sizeof challenge);
    if (got > 0) CHECK(send(fd, guess, sizeof guess, MSG_NOSIGNAL) == sizeof guess);
    CHECK(was_closed(fd));
    close(fd);
    return got > 0;
}

/* A recorded hello, and one that was changed on the way. */
static void test_recordings(void)
{
    struct tcp_mesh mesh;
    struct opening opening;
    struct tti_proof_job job;
    struct tti_proof proof;
    begin_opening(&opening, &mesh, 2, 1, LONG_MS);
    begin_hello(&mesh, &job, &proof);
    for (size_t at = 0; at < sizeof proof.hello; at += 13) { /* any byte changed: refused */
        struct tti_hello changed = proof.hello;
        ((unsigned char *)&changed)[at] ^= 0x40;
        bool of_job = changed.magic == proof.hello.magic && changed.version == proof.hello.version &&
                      changed.job == proof.hello.job;
        CHECK(is_challenged(&mesh, &changed) ==
              of_job); /* challenged, as the recording is: nothing is learnt from that */
    }
    CHECK(is_challenged(&mesh, &proof.hello));
    int fds[2]; /* and the real one gets in */
    for (int i = 0; i < 2; i++) CHECK((fds[i] = tcp_mesh_impostor(&mesh, &mesh.key, 1, 0, i, LONG_MS)) >= 0);
    end_opening(&opening);
    CHECK(opening.status == TUTTI_OK);
    for (int i = 0; i < 2; i++) close(fds[i]);
    close_all(&mesh);
}

/* More connections than the door has places for, each with a hello that was made with the key: the same on all of them, or
 * one for each, as somebody may have recorded it. None says more, and all stay open. */
static void test_replayed_hellos(bool same)
{
    enum { REPLAYS = 2000 };
    struct tcp_mesh mesh;
    struct opening opening;
    struct tti_proof_job job;
    struct tti_proof proof;
    struct rlimit limit;
    int real[2];
    int *fds = calloc(REPLAYS, sizeof *fds);
    CHECK(fds != NULL && getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max; /* both ends are in this process */
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    begin_opening(&opening, &mesh, 2, 1, BOUND_MS);
    begin_hello(&mesh, &job, &proof);
    for (int i = 0; i < REPLAYS; i++) {
        fds[i] = tcp_mesh_stranger(&mesh, 0);
        CHECK(send(fds[i], &proof.hello, sizeof proof.hello, MSG_NOSIGNAL) == sizeof proof.hello);
        if (!same) begin_hello(&mesh, &job, &proof);
    }
    int64_t start_ns = tti_now_ns();
    for (int i = 0; i < 2; i++) CHECK((real[i] = tcp_mesh_impostor(&mesh, &mesh.key, 1, 0, i, BOUND_MS)) >= 0);
    end_opening(&opening);
    int64_t took_ns = tti_now_ns() - start_ns;
    printf("rank 1 came in %.1f ms behind %d hellos that were recorded\n", (double)took_ns / 1e6, REPLAYS);
    CHECK(opening.status == TUTTI_OK && took_ns < SLACK_MS * MS); /* five seconds for every 192: 30 and more */
    for (int i = 0; i < REPLAYS; i++) close(fds[i]);
    for (int i = 0; i < 2; i++) close(real[i]);
    free(fds);
    close_all(&mesh);
}

/* A flood of silent connections, and some that say one byte now and then. */
struct flood {
    pthread_t thread;
    struct tti_address at;
    atomic_bool stop;
    atomic_long made; /* attempts, once nobody listens there any more */
};

static void *run_flood(void *argument)
{
    enum { OPEN = 300 };
    struct flood *flood = argument;
    int fds[OPEN];
    for (int i = 0; i < OPEN; i++) fds[i] = -1;
    for (long n = 0; !atomic_load(&flood->stop); n++) {
        int *fd = &fds[n % OPEN];
        if (*fd >= 0) close(*fd);
        *fd = tti_connect(&flood->at);
        if (n % 5 == 0 && n > 0) (void)!send(fds[(n - 1) % OPEN], "tutt-tcp", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        atomic_store(&flood->made, n);
        if (n % 50 == 0) poll(NULL, 0, 1);
    }
    for (int i = 0; i < OPEN; i++)
        if (fds[i] >= 0) close(fds[i]);
    return NULL;
}

static void begin_flood(struct flood *flood, const struct tti_address *at)
{
    flood->at = *at;
    CHECK(pthread_create(&flood->thread, NULL, run_flood, flood) == 0);
    while (atomic_load(&flood->made) < 100) poll(NULL, 0, 1);
}

static void end_flood(struct flood *flood)
{
    atomic_store(&flood->stop, true);
    pthread_join(flood->thread, NULL);
}

/* While all ranks connect. */
static void test_flood(void)
{
    enum { SIZE = 4, FRAMES = 50 };
    struct tcp_mesh mesh;
    struct flood flood = {.stop = false};
    tutti_error error;
    tcp_mesh_init(&mesh, SIZE, 2);
    for (int rank = 0; rank < SIZE; rank++) CHECK(tcp_mesh_listen(&mesh, rank, &error) == TUTTI_OK);
    for (int rank = 0; rank < SIZE; rank++) tcp_mesh_expect(&mesh, rank);
    begin_flood(&flood, &mesh.peer_infos[0].at[0]);
    int64_t start_ns = tti_now_ns();
    tutti_status status = tti_tcp_connect(mesh.endpoints, SIZE, &mesh.key, start_ns + LONG_MS * MS, NULL, NULL, &error);
    printf("%d ranks connected in %.1f ms within a flood\n", SIZE, (double)(tti_now_ns() - start_ns) / 1e6);
    CHECK(status == TUTTI_OK);
    if (status != TUTTI_OK) printf("%s\n", error.text);
    bool complete = status != TUTTI_OK;
    int64_t deadline_ns = tti_now_ns() + BOUND_MS * MS;
    for (int rank = 0; rank < SIZE && !complete; rank++)
        mesh_node_init(&mesh.nodes[rank], tti_tcp_transport(mesh.endpoints[rank]), 100000);
    for (uint64_t n = 0; !complete && tti_now_ns() < deadline_ns; n++) { /* and traffic goes on */
        complete = true;
        for (int rank = 0; rank < SIZE; rank++) {
            for (int peer = 0; peer < SIZE && n < FRAMES; peer++)
                if (peer != rank) mesh_send(&mesh.nodes[rank], peer);
            mesh_progress(&mesh.nodes[rank]);
            complete &= n >= FRAMES && mesh_complete(&mesh.nodes[rank], FRAMES);
        }
    }
    CHECK(complete);
    end_flood(&flood);
    for (int rank = 0; rank < SIZE; rank++) CHECK(mesh.nodes[rank].wrong == 0);
    int fd = tti_connect(&mesh.peer_infos[0].at[0]); /* nobody listens any more */
    CHECK(fd < 0 || tti_connect_result(fd) == ECONNREFUSED);
    if (fd >= 0) close(fd);
    close_all(&mesh);
}

/* The same while two ranks join and then reduce, over and over, until the flood has come so many times more. */
struct reducer {
    pthread_t thread;
    int rank;
    const struct flood *flood;
    tutti_status status;
    long rounds, wrong;
};

enum { REDUCED = 5000, ROUNDS_LEAST = 200, FLOOD_MORE = 2000 };

static float element(int rank, long round, int i)
{
    return (float)((rank + 1) * (i % 97) + round % 1000);
}

/* The last element is above 0 as long as rank 0 wants more: so both end in the same round. */
static void reduce_once(struct reducer *self, tutti_comm *world, bool more, float *out)
{
    static _Thread_local float in[REDUCED];
    for (int i = 0; i < REDUCED; i++) in[i] = element(self->rank, self->rounds, i);
    in[REDUCED - 1] = more ? 1 : 0;
    self->status = tutti_all_reduce(world, in, out, REDUCED, TUTTI_F32, TUTTI_SUM);
    for (int i = 0; i < REDUCED - 1 && self->status == TUTTI_OK; i++)
        self->wrong += out[i] != element(0, self->rounds, i) + element(1, self->rounds, i);
    self->rounds++;
}

static void *run_reducer(void *argument)
{
    struct reducer *self = argument;
    static _Thread_local float out[REDUCED];
    tutti_options options;
    tutti_comm *world = NULL;
    char job[64];
    snprintf(job, sizeof job, "flooded-%d", (int)getpid());
    (void)tutti_options_init(&options, NULL);
    options.transport = "tcp";
    options.interface = "127.0.0.1";
    options.join_timeout_ms = LONG_MS;
    self->status = tutti_join_as(job, self->rank, 2, &options, &world);
    int64_t deadline_ns = tti_now_ns() + BOUND_MS / 2 * MS;
    long before = self->rank == 0 && self->status == TUTTI_OK ? atomic_load(&self->flood->made) : 0;
    for (bool more = true; more && self->status == TUTTI_OK;) {
        bool wants = self->rank == 0 && tti_now_ns() < deadline_ns &&
                     (self->rounds < ROUNDS_LEAST || atomic_load(&self->flood->made) < before + FLOOD_MORE);
        reduce_once(self, world, wants, out);
        more = out[REDUCED - 1] > 0;
    }
    if (self->status != TUTTI_OK) tutti_explain(world, stdout);
    tutti_leave(world);
    return NULL;
}

/* Where a rank of this process listens, as soon as it does. */
static bool find_listener(struct tti_address *at)
{
    enum { FDS = 256 };
    for (int64_t deadline_ns = tti_now_ns() + BOUND_MS * MS; tti_now_ns() < deadline_ns; poll(NULL, 0, 1))
        for (int fd = 3; fd < FDS; fd++) {
            struct sockaddr_in name;
            socklen_t bytes = sizeof name, size = sizeof(int);
            int listens = 0;
            if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
            if (getsockname(fd, (struct sockaddr *)&name, &bytes) != 0 || name.sin_family != AF_INET) continue;
            *at = (struct tti_address){.family = 4, .ip = {127, 0, 0, 1}, .port = ntohs(name.sin_port)};
            return true;
        }
    return false;
}

static void test_flooded_comm(void)
{
    struct flood flood = {.stop = false};
    struct tti_address at;
    struct reducer reducers[2] = {{.rank = 0, .flood = &flood}, {.rank = 1}};
    CHECK(pthread_create(&reducers[0].thread, NULL, run_reducer, &reducers[0]) == 0);
    bool found = find_listener(&at); /* rank 0 waits for rank 1 */
    CHECK(found);
    if (found) begin_flood(&flood, &at);
    CHECK(pthread_create(&reducers[1].thread, NULL, run_reducer, &reducers[1]) == 0);
    for (int rank = 0; rank < 2; rank++) pthread_join(reducers[rank].thread, NULL);
    if (found) end_flood(&flood);
    for (int rank = 0; rank < 2; rank++) {
        const struct reducer *self = &reducers[rank];
        printf("rank %d: %ld all_reduces within a flood\n", rank, self->rounds);
        CHECK(self->status == TUTTI_OK && self->wrong == 0 && self->rounds >= ROUNDS_LEAST);
    }
    CHECK(reducers[0].rounds == reducers[1].rounds);
}

/* What strangers hold is bounded: when more come than there are places, the first are gone. */
static void test_bounds(void)
{
    enum { STRANGERS = TTI_STRANGERS + 40 };
    struct tcp_mesh mesh;
    struct opening opening;
    int fds[STRANGERS], closed = 0;
    begin_opening(&opening, &mesh, 2, 1, LONG_MS);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = tcp_mesh_stranger(&mesh, 0);
        CHECK(send(fds[i], "t", 1, MSG_NOSIGNAL) == 1);
    }
    for (int i = 0; i < STRANGERS - TTI_STRANGERS; i++) closed += was_closed(fds[i]);
    CHECK(closed == STRANGERS - TTI_STRANGERS); /* the oldest, all of them */
    char byte;
    CHECK(recv(fds[STRANGERS - 1], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN); /* the youngest are still there */
    int real[2];
    for (int i = 0; i < 2; i++) CHECK((real[i] = tcp_mesh_impostor(&mesh, &mesh.key, 1, 0, i, LONG_MS)) >= 0);
    end_opening(&opening);
    CHECK(opening.status == TUTTI_OK && was_closed(fds[STRANGERS - 1]));
    for (int i = 0; i < STRANGERS; i++) close(fds[i]);
    for (int i = 0; i < 2; i++) close(real[i]);
    close_all(&mesh);
}

/* A hello that comes byte by byte is a hello. */
static void test_byte_by_byte(void)
{
    struct tcp_mesh mesh;
    struct opening opening;
    struct tti_proof_job job;
    struct tti_proof proof;
    begin_opening(&opening, &mesh, 2, 1, LONG_MS);
    begin_hello(&mesh, &job, &proof);
    int fd = tcp_mesh_stranger(&mesh, 0), other;
    for (; proof.out_used < proof.out_bytes; proof.out_used++) {
        CHECK(send(fd, proof.out + proof.out_used, 1, MSG_NOSIGNAL) == 1);
        if (proof.out_used % 16 == 0) poll(NULL, 0, 1); /* so that they do not all come at once */
    }
    int64_t deadline_ns = tti_now_ns() + BOUND_MS * MS;
    while (tti_proof_step(&proof, fd) == TTI_PROOF_RUNNING && tti_now_ns() < deadline_ns) poll(NULL, 0, 1);
    CHECK(proof.state == TTI_PROOF_DONE);
    CHECK((other = tcp_mesh_impostor(&mesh, &mesh.key, 1, 0, 1, LONG_MS)) >= 0);
    end_opening(&opening);
    CHECK(opening.status == TUTTI_OK);
    close(fd);
    close(other);
    close_all(&mesh);
}

/* ---- Peers that have the key and break the rules --------------------------------------------------------------- */

struct trick {
    const char *words; /* that must be told of it */
    size_t bytes;      /* sent of the head and what follows; 0: all of the head */
    struct tti_tcp_head head;
    int stream;
    bool half;    /* closes one direction only */
    bool striped; /* begins a striped frame of 1000000 bytes first */
    bool more;    /* and more follows than is read at once */
};

#define HEAD .magic = TTI_TCP_MAGIC, .version = TTI_TCP_VERSION

static const struct trick tricks[] = {
    {.words = "that is no frame", .head = {.magic = 0x1234}},
    {.words = "that is no frame", .more = true, .head = {.magic = 0x1234}},
    {.words = "another version", .head = {.magic = TTI_TCP_MAGIC, .version = 77}},
    {.words = "another epoch", .head = {HEAD, .kind = TTI_TCP_FRAME, .epoch = 5}},
    {.words = "unknown kind", .head = {HEAD, .kind = 99}},
    {.words = "lost a frame", .head = {HEAD, .kind = TTI_TCP_FRAME, .number = 3}},
    {.words = "impossible size", .head = {HEAD, .kind = TTI_TCP_FRAME, .frame = {.bytes = UINT64_MAX}}},
    {.words = "impossible size", .head = {HEAD, .kind = TTI_TCP_STRIPED}},
    {.words = "impossible size", .head = {HEAD, .kind = TTI_TCP_CHUNK}},
    {.words = "connection for chunks", .stream = 1, .head = {HEAD, .kind = TTI_TCP_FRAME}},
    {.words = "does not fit",
     .striped = true,
     .head = {HEAD, .kind = TTI_TCP_CHUNK, .frame = {.value = 999999, .bytes = 2}}},
    {.words = "does not fit",
     .striped = true,
     .head = {HEAD, .kind = TTI_TCP_CHUNK, .frame = {.value = UINT64_MAX, .bytes = 2}}},
    {.words = "does not fit", .striped = true, .head = {HEAD, .kind = TTI_TCP_CHUNK, .frame = {.bytes = 1000001}}},
    {.words = "without leaving", .bytes = 20, .head = {HEAD, .kind = TTI_TCP_FRAME}},
    {.words = "without leaving", .bytes = 20, .half = true, .head = {HEAD, .kind = TTI_TCP_FRAME}},
    {.words = "without leaving", .half = true, .head = {HEAD, .kind = TTI_TCP_FRAME, .frame = {.bytes = 100}}},
    {.words = "carries nothing", .stream = 2, .head = {HEAD, .kind = TTI_TCP_FRAME}},
};

static void *take_anything(void *context, int peer, const struct tti_frame_head *head, void **cookie)
{
    (void)peer;
    (void)cookie;
    return head->bytes <= 1000000 ? context : NULL;
}

static void end_anything(void *context, int peer, const struct tti_frame_head *head, void *cookie)
{
    (void)context;
    (void)peer;
    (void)head;
    (void)cookie;
}

static struct {
    int lost; /* how often it was told */
    bool closed;
    char text[200];
} seen;

static void see_lost(void *context, int peer, bool closed, int system_errno, const char *text)
{
    (void)context;
    (void)peer;
    (void)system_errno;
    seen.lost++;
    seen.closed = closed;
    snprintf(seen.text, sizeof seen.text, "%s", text);
}

/* Sends zeros, and waits until they lie in the other end's system, so that one read can fill a whole buffer. */
static void send_more(int fd)
{
    static const char zeros[100000];
    int left = 1;
    CHECK(send(fd, zeros, sizeof zeros, MSG_NOSIGNAL) == sizeof zeros);
    int64_t deadline_ns = tti_now_ns() + BOUND_MS * MS;
    while (left > 0 && tti_now_ns() < deadline_ns)
        if (ioctl(fd, SIOCOUTQ, &left) != 0) return;
}

static void play(const struct trick *trick, const int *fds)
{
    struct tti_tcp_head striped = {HEAD, .kind = TTI_TCP_STRIPED, .frame = {.bytes = 1000000}};
    size_t bytes = trick->bytes == 0 ? sizeof trick->head : trick->bytes;
    if (trick->striped) CHECK(send(fds[0], &striped, sizeof striped, MSG_NOSIGNAL) == sizeof striped);
    CHECK(send(fds[trick->stream], &trick->head, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    if (trick->more) send_more(fds[trick->stream]);
    if (trick->half)
        shutdown(fds[0], SHUT_WR);
    else if (trick->bytes > 0)
        close(fds[0]);
}

static void test_trick(const struct trick *trick)
{
    struct tcp_mesh mesh;
    struct opening opening;
    int fds[3];
    char *memory = malloc(1000000);
    begin_opening(&opening, &mesh, 2, 2, LONG_MS);
    for (int i = 0; i < 3; i++) CHECK((fds[i] = tcp_mesh_impostor(&mesh, &mesh.key, 1, 0, i, LONG_MS)) >= 0);
    end_opening(&opening);
    CHECK(opening.status == TUTTI_OK);
    struct tti_transport *transport = tti_tcp_transport(mesh.endpoints[0]);
    transport->sink = (struct tti_sink){memory, take_anything, end_anything, see_lost};
    memset(&seen, 0, sizeof seen);
    play(trick, fds);
    int64_t deadline_ns = tti_now_ns() + BOUND_MS * MS;
    while (seen.lost == 0 && tti_now_ns() < deadline_ns)
        if (!transport->ops->progress(transport, TTI_ANYBODY)) transport->ops->sleep(transport, 1000 * MS);
    CHECK(seen.lost == 1 && !seen.closed && check_says(seen.text, trick->words) && check_says(seen.text, "rank 1 on "));
    for (int i = 0; i < 3; i++)
        if (i > 0 || trick->bytes == 0 || trick->half) close(fds[i]);
    close_all(&mesh);
    free(memory);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    test_wrong_keys();
    test_recordings();
    test_replayed_hellos(true);
    test_replayed_hellos(false);
    test_flood();
    test_flooded_comm();
    test_bounds();
    test_byte_by_byte();
    for (size_t i = 0; i < sizeof tricks / sizeof *tricks; i++) test_trick(&tricks[i]);
    return check_end();
}
