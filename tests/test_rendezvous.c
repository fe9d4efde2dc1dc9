/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: timeout=120 labels=asan,tsan waits */
/* The rendezvous: everyone gets everybody's bytes, or everyone an error that names who is missing or in trouble. Ranks are
 * threads here; every one of them has sockets of its own, as processes would. */
#include "world/rendezvous.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "port.h"
#include "ranks.h"
#include "transport/proof.h"
#include "transport/socket.h"
#include "world/meeting.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* PATIENCE_MS: where somebody is waited for in vain; all others must come within it. */
enum { MOST = 24, PATIENCE_MS = SANITIZED ? 2000 : 1200 };

/* Where rank 0 says its address, for the others to find. */
struct board {
    pthread_mutex_t lock;
    pthread_cond_t said;
    char text[TTI_PLACE_BYTES];
};

struct guest {
    pthread_t thread;
    struct tti_rendezvous where;
    int rounds;
    size_t bytes; /* of rank 0's; the others give a little more each */
    bool absent, abandons;
    tutti_status status;
    tutti_error error;
    int64_t ended_ns, offset_ns;
};

static int case_number;
static char job_name[64];
static struct tti_key right_key = {{1, 2, 3}}, wrong_key = {{1, 2, 4}};

static tutti_status board_publish(void *context, const char *text, tutti_error *error)
{
    struct board *board = context;
    (void)error;
    pthread_mutex_lock(&board->lock);
    snprintf(board->text, sizeof board->text, "%s", text);
    pthread_cond_broadcast(&board->said);
    pthread_mutex_unlock(&board->lock);
    return TUTTI_OK;
}

static tutti_status board_lookup(void *context, char *text, size_t bytes, int64_t deadline_ns, tutti_error *error)
{
    struct board *board = context;
    (void)error;
    (void)deadline_ns; /* rank 0 of these tests always publishes */
    pthread_mutex_lock(&board->lock);
    while (board->text[0] == '\0') pthread_cond_wait(&board->said, &board->lock);
    snprintf(text, bytes, "%s", board->text);
    pthread_mutex_unlock(&board->lock);
    return TUTTI_OK;
}

static unsigned char byte_of(int rank, int round, size_t at)
{
    return (unsigned char)(31 * rank + 7 * round + (int)(at % 251));
}

static size_t bytes_of(const struct guest *guest, int rank)
{
    size_t bytes = guest->bytes + (guest->bytes > 0 ? (size_t)rank : 0);
    return bytes > TTI_BLOB_MOST ? TTI_BLOB_MOST : bytes;
}

static bool all_there(const struct guest *guest, const struct tti_blobs *all, int round)
{
    for (int rank = 0; rank < guest->where.size; rank++) {
        size_t bytes;
        const unsigned char *blob = tti_blob(all, rank, &bytes);
        if (bytes != bytes_of(guest, rank)) return false;
        for (size_t i = 0; i < bytes; i++)
            if (blob[i] != byte_of(rank, round, i)) return false;
    }
    return all->count == guest->where.size;
}

static tutti_status meet(struct guest *guest, struct tti_meeting *meeting)
{
    static const tutti_error trouble = {
        .status = TUTTI_ERR_MEMORY, .peer = -1, .text = "this rank has no memory\033[2J\nand is\r"};
    for (int round = 0; round < guest->rounds; round++) {
        size_t bytes = bytes_of(guest, guest->where.rank);
        unsigned char *mine = malloc(bytes + 1);
        struct tti_blobs all;
        for (size_t i = 0; i < bytes; i++) mine[i] = byte_of(guest->where.rank, round, i);
        tutti_status status = tti_meeting_exchange(meeting, mine, bytes, &all, &guest->error);
        free(mine);
        if (status != TUTTI_OK) return status;
        bool right = all_there(guest, &all, round);
        tti_blobs_free(&all);
        if (!right) return TUTTI_ERR_MISMATCH;
    }
    if (guest->abandons) tti_meeting_abandon(meeting, &trouble);
    return TUTTI_OK;
}

static void *run_guest(void *argument)
{
    struct guest *guest = argument;
    struct tti_meeting *meeting;
    guest->status = tti_meeting_open(&guest->where, &meeting, &guest->error);
    if (guest->status == TUTTI_OK) {
        guest->status = meet(guest, meeting);
        tti_meeting_close(meeting);
    }
    guest->ended_ns = tti_now_ns();
    return NULL;
}

/* Address NULL: on this host by name. "board": any port, told through the board. */
static void prepare(struct guest *guests, int size, const char *address, struct board *board, int64_t timeout_ms)
{
    bool told = address != NULL && strcmp(address, "board") == 0;
    snprintf(job_name, sizeof job_name, "meet-%d-%d", (int)getpid(), case_number++);
    memset(guests, 0, (size_t)size * sizeof *guests);
    for (int rank = 0; rank < size; rank++) {
        guests[rank].rounds = 2;
        guests[rank].bytes = 100;
        guests[rank].where = (struct tti_rendezvous){.job = job_name,
                                                     .rank = rank,
                                                     .size = size,
                                                     .address = told ? NULL : address,
                                                     .key = address == NULL ? NULL : &right_key,
                                                     .deadline_ns = tti_now_ns() + timeout_ms * MS};
        if (!told) continue;
        *board = (struct board){PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, ""};
        guests[rank].where.context = board;
        guests[rank].where.publish = board_publish;
        guests[rank].where.lookup = board_lookup;
    }
}

/* Rank 0 is to be the first who gives up, on a loaded machine too: the others wait longer. */
static void outlast(struct guest *guests, int first, int last)
{
    for (int i = first; i <= last; i++) guests[i].where.deadline_ns += LONG_MS * MS;
}

static void run(struct guest *guests, int size)
{
    for (int i = 0; i < size; i++)
        if (!guests[i].absent) CHECK(pthread_create(&guests[i].thread, NULL, run_guest, &guests[i]) == 0);
    for (int i = 0; i < size; i++)
        if (!guests[i].absent) pthread_join(guests[i].thread, NULL);
}

static bool says(const struct guest *guest, const char *words)
{
    if (strstr(guest->error.text, words) != NULL) return true;
    printf("rank %d: expected \"%s\" in: %s\n", guest->where.rank, words, guest->error.text);
    return false;
}

static void all_well(const struct guest *guests, int size)
{
    for (int i = 0; i < size; i++) {
        CHECK(guests[i].status == TUTTI_OK);
        if (guests[i].status != TUTTI_OK) printf("rank %d: %s\n", guests[i].where.rank, guests[i].error.text);
    }
}

static bool has_ipv6(void)
{
    struct tti_address any = {.family = 6, .ip = {[15] = 1}};
    int fd = tti_listen(&any, 0, 0);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static void test_meetings(void)
{
    static const int sizes[] = {1, 2, 5, MOST};
    static const size_t bytes[] = {0, 1, 1000, TTI_BLOB_MOST};
    struct guest guests[MOST];
    struct board board;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int kind = 0; kind < 3; kind++) {
            if (kind == 2 && !has_ipv6()) continue;
            prepare(guests, sizes[i], kind == 0 ? NULL : "board", &board, LONG_MS);
            for (int rank = 0; rank < sizes[i]; rank++) {
                guests[rank].bytes = bytes[i];
                guests[rank].where.interface = kind == 1 ? "127.0.0.1" : kind == 2 ? "::1" : NULL;
            }
            run(guests, sizes[i]);
            all_well(guests, sizes[i]);
        }
    }
}

/* Some of five never come. Those who do must have the time to: a machine that is loaded gets more of it. */
static void run_without(struct guest *guests, const bool absent[5], const char *words)
{
    enum { SIZE = 5 };
    for (int64_t patience_ms = PATIENCE_MS; patience_ms < LONG_MS; patience_ms *= 4) {
        prepare(guests, SIZE, NULL, NULL, patience_ms);
        for (int rank = 0; rank < SIZE; rank++) guests[rank].absent = absent[rank];
        if (!absent[0]) outlast(guests, 1, SIZE - 1);
        run(guests, SIZE);
        if (absent[0] || strstr(guests[0].error.text, words) != NULL) break;
    }
    for (int rank = 0; rank < SIZE; rank++)
        if (!absent[rank]) CHECK(guests[rank].status == TUTTI_ERR_JOIN && says(&guests[rank], words));
}

/* Processes of two ranks each, of which one does not come: their ranks are named. */
static void test_missing_of_several(int missing, const char *words)
{
    enum { SIZE = 3 };
    struct guest guests[SIZE];
    for (int64_t patience_ms = PATIENCE_MS; patience_ms < LONG_MS; patience_ms *= 4) {
        prepare(guests, SIZE, NULL, NULL, patience_ms);
        for (int i = 0; i < SIZE; i++) guests[i].where.ranks_each = 2;
        guests[missing].absent = true;
        if (missing != 0) outlast(guests, 1, SIZE - 1);
        run(guests, SIZE);
        if (missing == 0 || strstr(guests[0].error.text, words) != NULL) break;
    }
    for (int i = 0; i < SIZE; i++)
        if (i != missing) CHECK(guests[i].error.rank == 2 * i && guests[i].error.peer == 2 * missing);
    CHECK(says(&guests[missing == 2 ? 1 : 2], words));
}

/* A rank that never comes, for every place it may have. */
static void test_missing(void)
{
    test_missing_of_several(0, "ranks 4 to 5 of job");
    test_missing_of_several(1, "ranks 2-3 of job");
    struct guest guests[5];
    for (int missing = 0; missing < 5; missing += 2) {
        char words[64];
        bool absent[5] = {false};
        absent[missing] = true;
        snprintf(words, sizeof words, missing == 0 ? "has not found rank %d" : "rank %d of job", missing);
        run_without(guests, absent, words);
        for (int rank = 0; rank < 5; rank++) CHECK(rank == missing || guests[rank].error.peer == missing);
    }
    run_without(guests, (const bool[5]){[1] = true, [3] = true, [4] = true}, "ranks 1, 3-4 of job");
}

static void test_trouble(void)
{
    enum { SIZE = 4 };
    struct guest guests[SIZE];
    struct board board;
    for (int who = 0; who < SIZE; who++) {
        prepare(guests, SIZE, "board", &board, LONG_MS);
        for (int rank = 0; rank < SIZE; rank++) guests[rank].where.interface = "lo";
        guests[who].rounds = 1;
        guests[who].abandons = true;
        run(guests, SIZE);
        for (int rank = 0; rank < SIZE; rank++) {
            if (rank == who) continue;
            CHECK(guests[rank].status == TUTTI_ERR_JOIN && says(&guests[rank], "this rank has no memory?[2J?and is?"));
        }
        prepare(guests, SIZE, NULL, NULL, LONG_MS); /* goes without a word */
        guests[who].rounds = 1;
        run(guests, SIZE);
        for (int rank = 0; rank < SIZE; rank++) {
            char words[128];
            if (rank == who) continue;
            snprintf(words, sizeof words, "rank %d of job %s ended", who, job_name);
            CHECK(guests[rank].status == TUTTI_ERR_JOIN && says(&guests[rank], words));
        }
    }
}

/* Two have one rank. Another that is on its way is told of it, as those who have come are: it starts when one of them was told;
 * on a loaded machine it may then be too late. */
static void test_late(void)
{
    enum { SIZE = 4 };
    static const char words[] = "two processes say that they are rank 1";
    struct guest guests[SIZE];
    bool told = false;
    for (int attempt = 0; attempt < 5 && !told; attempt++) {
        prepare(guests, SIZE, NULL, NULL, 3 * PATIENCE_MS);
        guests[3].where.rank = 1;
        for (int i = 0; i < SIZE; i++)
            if (i != 2) CHECK(pthread_create(&guests[i].thread, NULL, run_guest, &guests[i]) == 0);
        pthread_join(guests[1].thread, NULL);
        CHECK(pthread_create(&guests[2].thread, NULL, run_guest, &guests[2]) == 0);
        for (int i = 0; i < SIZE; i++)
            if (i != 1) pthread_join(guests[i].thread, NULL);
        for (int i = 0; i < SIZE; i++) CHECK(guests[i].status == TUTTI_ERR_JOIN && (i == 2 || says(&guests[i], words)));
        told = strstr(guests[2].error.text, words) != NULL;
    }
    CHECK(told);
}

static void count_line(void *context, tutti_log_level level, const char *line)
{
    if (level == TUTTI_WARN && strstr(line, "as rank 1, has another key") != NULL)
        atomic_fetch_add((atomic_int *)context, 1);
}

/* Who has a wrong key learns it from rank 0's answer, not by waiting; for rank 0 it might be a stranger, so it goes on. */
static void test_keys(void)
{
    enum { SIZE = 3 };
    struct guest guests[SIZE];
    struct board board;
    atomic_int lines = 0;
    prepare(guests, SIZE, "board", &board, 2 * PATIENCE_MS);
    for (int rank = 0; rank < SIZE; rank++) guests[rank].where.interface = "127.0.0.1";
    guests[1].where.key = &wrong_key;
    outlast(guests, 1, 2);
    tutti_log_to(count_line, &lines);
    run(guests, SIZE);
    tutti_log_to(NULL, NULL);
    CHECK(lines == 1 && guests[1].ended_ns < guests[0].ended_ns && guests[0].ended_ns >= guests[0].where.deadline_ns);
    CHECK(guests[1].status == TUTTI_ERR_JOIN && says(&guests[1], "wrong key, compare TUTTI_KEY_FILE"));
    CHECK(says(&guests[1], "rank 1 on ") && says(&guests[1], "127.0.0.1:"));
    CHECK(guests[0].status == TUTTI_ERR_JOIN && says(&guests[0], "has another key") && says(&guests[0], "as rank 1"));
    CHECK(guests[2].status == TUTTI_ERR_JOIN && says(&guests[2], "has another key"));

    prepare(guests, SIZE, "127.0.0.1:1", &board, LONG_MS);
    for (int rank = 0; rank < SIZE; rank++) guests[rank].where.key = NULL;
    run(guests, SIZE);
    for (int rank = 0; rank < SIZE; rank++) CHECK(says(&guests[rank], "tutti key FILE"));

    prepare(guests, SIZE, NULL, NULL, PATIENCE_MS); /* told another size */
    guests[2].where.size = 4;
    guests[2].where.rank = 3;
    outlast(guests, 1, 1);
    run(guests, SIZE);
    CHECK(says(&guests[0], "another number of ranks") && guests[2].status == TUTTI_ERR_JOIN);
}

/* Rank 0 where somebody listens, who is gone afterwards. */
static void meet_where_taken(struct guest *guest, uint8_t last, const char *interface, char text[64])
{
    struct tti_address at = {.family = 4, .ip = {127, 0, 0, last}};
    int fd = tti_listen(&at, 0, 0);
    snprintf(text, 64, "127.0.0.%u:%u", last, at.port);
    prepare(guest, 2, text, NULL, PATIENCE_MS / 2);
    guest[0].where.interface = interface;
    guest[1].absent = true;
    run(guest, 2);
    CHECK(guest[0].status == TUTTI_ERR_JOIN && says(&guest[0], "is taken; choose another (--master-port"));
    close(fd);
}

/* They meet where they were told to, whatever interface was chosen for the data. */
static void test_other_interface(void)
{
    struct guest guest[2];
    char text[64];
    meet_where_taken(guest, 2, "127.0.0.1", text);
    prepare(guest, 2, text, NULL, LONG_MS);
    for (int rank = 0; rank < 2; rank++) guest[rank].where.interface = "127.0.0.1";
    run(guest, 2);
    all_well(guest, 2);
}

static bool is_open(uint8_t last, int port)
{
    struct tti_address at = {.family = 4, .ip = {127, 0, 0, last}, .port = (uint16_t)port};
    int fd = tti_connect(&at);
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    poll(&polled, 1, BOUND_MS);
    bool open = fd >= 0 && tti_connect_result(fd) == 0;
    if (fd >= 0) close(fd);
    return open;
}

/* With an address of this host alone, rank 0 listens there and nowhere else: here 127.0.0.2 stands for the network. */
static void test_loopback(const char *host, bool elsewhere)
{
    struct guest guest[2];
    char text[128];
    int port, taken = take_port(&port);
    close(taken);
    snprintf(text, sizeof text, "%s:%d", host, port);
    prepare(guest, 2, text, NULL, LONG_MS);
    CHECK(pthread_create(&guest[0].thread, NULL, run_guest, &guest[0]) == 0);
    int64_t deadline_ns = tti_now_ns() + BOUND_MS * MS;
    while (!is_open(1, port) && tti_now_ns() < deadline_ns) poll(NULL, 0, 1);
    CHECK(is_open(2, port) == elsewhere);
    CHECK(pthread_create(&guest[1].thread, NULL, run_guest, &guest[1]) == 0);
    for (int rank = 0; rank < 2; rank++) pthread_join(guest[rank].thread, NULL);
    all_well(guest, 2);
}

static void test_where(void)
{
    static const struct {
        const char *text;
        bool here;
    } rows[] = {{"127.0.0.1:1", true},
                {"localhost:29500", true},
                {"[::1]:5", true},
                {"127.8.8.8:1,[::1]:1", true},
                {"127.0.0.1:1,10.0.0.1:1", false},
                {"10.0.0.1:1", false},
                {"127.example.com:1", false},
                {"head:1", false},
                {"0.0.0.0:1", false},
                {"[fd00::1]:1", false},
                {"127.0.0.1", false},
                {"", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) CHECK(tti_addresses_are_here(rows[i].text) == rows[i].here);
    char name[256];
    test_loopback("127.0.0.1", false);
    test_loopback("localhost", false);
    tti_host_name(name, sizeof name); /* as others may know it, even where it is loopback here */
    struct tti_address_list list;
    tutti_error error;
    char text[300];
    snprintf(text, sizeof text, "%s:1", name);
    if (strcmp(name, "localhost") != 0 && tti_addresses_of(text, &list, &error) == TUTTI_OK) test_loopback(name, true);
}

static void test_addresses(void)
{
    struct guest guest[2];
    char text[64];
    meet_where_taken(guest, 1, NULL, text);
    int port, taken = take_port(&port);
    snprintf(text, sizeof text, "127.0.0.1:%d", port);
    prepare(guest, 2, text, NULL, PATIENCE_MS / 2); /* nobody listens there */
    guest[0].absent = true;
    run(guest, 2);
    close(taken);
    CHECK(guest[1].status == TUTTI_ERR_JOIN && says(&guest[1], "Connection refused") && says(&guest[1], text));

    static const struct {
        const char *address, *words;
    } bad[] = {{"no-such-host.invalid:5000", "does not resolve"},
               {"127.0.0.1", "HOST:PORT"},
               {"127.0.0.1:x", "HOST:PORT"},
               {"127.0.0.1:70000", "HOST:PORT"},
               {":5000", "HOST:PORT"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        prepare(guest, 2, bad[i].address, NULL, 2000);
        guest[0].absent = true;
        run(guest, 2);
        CHECK(guest[1].status != TUTTI_OK && says(&guest[1], bad[i].words));
    }
    prepare(guest, 2, "127.0.0.1:0", NULL, PATIENCE_MS / 2);
    guest[0].where.interface = "nothere7";
    guest[1].absent = true;
    run(guest, 2);
    CHECK(says(&guest[0], "port other than 0"));
    guest[0].where.address = text;
    run(guest, 2);
    CHECK(says(&guest[0], "nothere7") && says(&guest[0], "lo 127.0.0.1"));
}

/* ---- Strangers ------------------------------------------------------------------------------------------------- */

static int connect_to(const char *place)
{
    struct tti_address_list list;
    tutti_error error;
    if (tti_addresses_of(place, &list, &error) != TUTTI_OK) return -1;
    int fd = tti_connect(&list.at[0]);
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    poll(&polled, 1, BOUND_MS);
    return fd;
}

/* Silent ones, some that say half a hello, some that say nonsense; then the ranks come. */
static void test_strangers(void)
{
    enum { SIZE = 6, STRANGERS = 300 };
    struct guest guests[SIZE];
    struct board board;
    char place[TTI_PLACE_BYTES], nonsense[200];
    int fds[STRANGERS];
    tutti_error error;
    memset(nonsense, 'x', sizeof nonsense);
    prepare(guests, SIZE, "board", &board, LONG_MS);
    for (int rank = 0; rank < SIZE; rank++) guests[rank].where.interface = "127.0.0.1";
    CHECK(pthread_create(&guests[0].thread, NULL, run_guest, &guests[0]) == 0);
    board_lookup(&board, place, sizeof place, 0, &error);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = connect_to(place);
        if (i % 3 > 0) (void)!send(fds[i], nonsense, i % 3 == 1 ? 50 : sizeof nonsense, MSG_NOSIGNAL);
    }
    for (int rank = 1; rank < SIZE; rank++)
        CHECK(pthread_create(&guests[rank].thread, NULL, run_guest, &guests[rank]) == 0);
    for (int rank = 0; rank < SIZE; rank++) pthread_join(guests[rank].thread, NULL);
    all_well(guests, SIZE);
    for (int i = 0; i < STRANGERS; i++)
        if (fds[i] >= 0) close(fds[i]);
}

/* Connections with a hello of rank 1's that somebody has recorded, more than rank 0 has places for; none says more. The real
 * ranks come behind them, and are not kept waiting until these have had their time. */
static void test_replayed_hellos(void)
{
    enum { SIZE = 3, REPLAYS = 2000 };
    struct guest guests[SIZE];
    struct board board;
    struct rlimit limit;
    char place[TTI_PLACE_BYTES];
    struct tti_proof_job job;
    struct tti_proof proof;
    tutti_error error;
    int *fds = calloc(REPLAYS, sizeof *fds);
    CHECK(fds != NULL && getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max; /* both ends are in this process */
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    prepare(guests, SIZE, "board", &board, BOUND_MS);
    for (int rank = 0; rank < SIZE; rank++) guests[rank].where.interface = "127.0.0.1";
    CHECK(pthread_create(&guests[0].thread, NULL, run_guest, &guests[0]) == 0);
    board_lookup(&board, place, sizeof place, 0, &error);
    tti_proof_setup(&job, &right_key, job_name, 0, 1, SIZE);
    tti_proof_connect(&proof, &job, TTI_PROOF_RENDEZVOUS, 0, 0);
    for (int i = 0; i < REPLAYS; i++) {
        fds[i] = connect_to(place);
        CHECK(fds[i] >= 0 && send(fds[i], &proof.hello, sizeof proof.hello, MSG_NOSIGNAL) == sizeof proof.hello);
    }
    int64_t began_ns = tti_now_ns();
    for (int rank = 1; rank < SIZE; rank++)
        CHECK(pthread_create(&guests[rank].thread, NULL, run_guest, &guests[rank]) == 0);
    for (int rank = 0; rank < SIZE; rank++) pthread_join(guests[rank].thread, NULL);
    int64_t took_ns = tti_now_ns() - began_ns;
    printf("two ranks came in %.1f ms behind %d hellos that were recorded\n", (double)took_ns / 1e6, REPLAYS);
    all_well(guests, SIZE);
    CHECK(took_ns < SLACK_MS * MS); /* five seconds for every 192: 30 and more */
    for (int i = 0; i < REPLAYS; i++) close(fds[i]);
    free(fds);
}

/* Something else that listens where rank 0 is looked for, until its socket is shut. */
struct service {
    pthread_t thread;
    int fd, answered;
    size_t bytes;
};

static void *run_service(void *argument)
{
    struct service *service = argument;
    char answer[200];
    memset(answer, ' ', sizeof answer);
    memcpy(answer, "HTTP/1.1 400 Bad Request\r\n", 26);
    struct pollfd polled = {.fd = service->fd, .events = POLLIN};
    while (poll(&polled, 1, BOUND_MS) == 1) {
        int fd = accept(service->fd, NULL, NULL);
        if (fd < 0 && errno == EINVAL) break;
        if (fd < 0) continue;
        struct pollfd asked = {.fd = fd, .events = POLLIN};
        poll(&asked, 1, BOUND_MS);
        if (recv(fd, &(char[256]){0}, 256, MSG_DONTWAIT) > 0)
            service->answered += send(fd, answer, service->bytes, MSG_NOSIGNAL) == (ssize_t)service->bytes;
        close(fd);
    }
    return NULL;
}

/* It has no key: a wrong one is not to be spoken of. */
static void test_other_service(void)
{
    static const size_t sizes[] = {20, 200}; /* less than an answer of rank 0, and more */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct guest guest[2];
        struct tti_address any = {.family = 4, .ip = {127, 0, 0, 1}};
        struct service service = {.fd = tti_listen(&any, 0, 0), .bytes = sizes[i]};
        char text[64];
        snprintf(text, sizeof text, "127.0.0.1:%u: something else than a rank answers there", any.port);
        CHECK(service.fd >= 0 && pthread_create(&service.thread, NULL, run_service, &service) == 0);
        char place[64];
        snprintf(place, sizeof place, "127.0.0.1:%u", any.port);
        prepare(guest, 2, place, NULL, LONG_MS);
        guest[0].absent = true;
        run(guest, 2);
        shutdown(service.fd, SHUT_RDWR);
        pthread_join(service.thread, NULL);
        close(service.fd);
        CHECK(guest[1].status == TUTTI_ERR_JOIN && says(&guest[1], text) && says(&guest[1], "MASTER_PORT"));
        CHECK(strstr(guest[1].error.text, "key") == NULL);
        CHECK(service.answered > 1); /* tried again: rank 0 may come there yet */
    }
}

static void *compare_clocks(void *argument)
{
    struct guest *guest = argument;
    struct tti_meeting *meeting;
    guest->status = tti_meeting_open(&guest->where, &meeting, &guest->error);
    if (guest->status != TUTTI_OK) return NULL;
    meeting->compared = true;
    meeting->clock.offset_ns = guest->where.rank * 5000000 * MS;
    guest->status = tti_meeting_compare_clocks(meeting, &guest->offset_ns, &guest->error);
    tti_meeting_close(meeting);
    return NULL;
}

/* Ranks that share a clock have compared it with rank 0's equally well, and found something else each: they go by one. */
static void test_clocks(void)
{
    enum { SIZE = 3 };
    struct guest guests[SIZE];
    prepare(guests, SIZE, NULL, NULL, LONG_MS);
    for (int i = 0; i < SIZE; i++) CHECK(pthread_create(&guests[i].thread, NULL, compare_clocks, &guests[i]) == 0);
    for (int i = 0; i < SIZE; i++) pthread_join(guests[i].thread, NULL);
    all_well(guests, SIZE);
    for (int i = 0; i < SIZE; i++) CHECK(guests[i].offset_ns == 0);
}

/* Every allocation fails once: an error on all ranks, nothing left behind. */
static void test_memory(void)
{
    struct guest guests[2];
    for (long allowed = 0;; allowed++) {
        prepare(guests, 2, NULL, NULL, 300);
        tti_alloc_fail_after(allowed);
        run(guests, 2);
        tti_alloc_fail_after(-1);
        bool well = guests[0].status == TUTTI_OK && guests[1].status == TUTTI_OK;
        if (well || allowed > 40) {
            CHECK(allowed > 4 && allowed < 40);
            break;
        }
        CHECK(guests[0].status != TUTTI_OK || guests[1].status != TUTTI_OK);
    }
}

/* Where one allocation fails, what was not opened is not closed. */
static void test_one_allocation(void)
{
    struct tti_rendezvous where = {.job = "one", .rank = 1, .size = 2, .key = &right_key};
    int before = fcntl(STDIN_FILENO, F_GETFD);
    for (long allowed = 0; allowed < 3; allowed++) {
        struct tti_meeting *meeting;
        tutti_error error = {0};
        tti_alloc_fail_once(allowed);
        CHECK(tti_meeting_open(&where, &meeting, &error) == TUTTI_ERR_MEMORY && meeting == NULL);
        CHECK(fcntl(STDIN_FILENO, F_GETFD) == before);
    }
    tti_alloc_fail_after(-1);
}

/* Rank 0 says at once that it cannot let so many in, instead of leaving some before the door until the deadline. */
static void test_limit(void)
{
    struct rlimit before, low;
    struct tti_meeting *meeting;
    tutti_error error = {0};
    getrlimit(RLIMIT_NOFILE, &before);
    low = before;
    low.rlim_cur = 100;
    setrlimit(RLIMIT_NOFILE, &low);
    struct tti_rendezvous where = {
        .job = "limit", .size = 60, .deadline_ns = tti_now_ns() + (int64_t)LONG_MS * 1000000, .key = &right_key};
    tutti_status status = tti_meeting_open(&where, &meeting, &error);
    setrlimit(RLIMIT_NOFILE, &before);
    CHECK(status == TUTTI_ERR_LIMIT && meeting == NULL);
    CHECK(strstr(error.text, "the limit is 100; raise it (ulimit -n)") != NULL);
    where.rank = 1; /* nor does who cannot come wait for it */
    low.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &low);
    int64_t began_ns = tti_now_ns();
    status = tti_meeting_open(&where, &meeting, &error);
    setrlimit(RLIMIT_NOFILE, &before);
    CHECK(status == TUTTI_ERR_LIMIT && meeting == NULL && strstr(error.text, "ulimit -n") != NULL);
    CHECK(tti_now_ns() - began_ns < (int64_t)LONG_MS * 1000000 / 2);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    test_meetings();
    test_missing();
    test_trouble();
    test_late();
    test_keys();
    test_where();
    test_addresses();
    test_other_interface();
    test_strangers();
    test_replayed_hellos();
    test_other_service();
    test_clocks();
    test_memory();
    test_one_allocation();
    test_limit();
    return check_end();
}
