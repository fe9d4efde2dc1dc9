/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: timeout=30 labels=asan */
/* What is refused of a connection that knows the key, of one that says nothing, and of the head of a frame: each reason by
 * itself. And who knocks when its connection breaks. */
#include "base/clock.h"
#include "check.h"
#include "transport/door.h"
#include "transport/tcp_head.h"
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Proofs ---------------------------------------------------------------------------------------------------- */

struct attempt {
    enum tti_proof_purpose purpose;
    const char *name;
    unsigned char key;
    uint32_t epoch;
    int from, to, size;
    const char *why; /* of the one that accepts, which is rank 0 of 3, in epoch 5; NULL: both are content */
};

static const struct attempt attempts[] = {
    {TTI_PROOF_MESH, "job", 1, 5, 1, 0, 3, NULL},
    {TTI_PROOF_MESH, "job", 1, 5, 2, 0, 3, NULL},
    {TTI_PROOF_RENDEZVOUS, "job", 1, 5, 1, 0, 3, "came to the wrong port of the job"},
    {TTI_PROOF_MESH, "other", 1, 5, 1, 0, 3, "is from another job, or has another name for this one"},
    {TTI_PROOF_MESH, "job", 2, 5, 1, 0, 3, "has another key"},
    {TTI_PROOF_MESH, "job", 1, 4, 1, 0, 3, "is from another epoch of the job"},
    {TTI_PROOF_MESH, "job", 1, 5, 1, 2, 3, "was meant for another rank"},
    {TTI_PROOF_MESH, "job", 1, 5, 1, 0, 4, "is from a rank that was told another number of ranks"},
    {TTI_PROOF_MESH, "job", 1, 5, 0, 0, 3, "is from a rank out of range"},
    {TTI_PROOF_MESH, "job", 1, 5, 3, 0, 3, "is from a rank out of range"},
    {TTI_PROOF_MESH, "job", 1, 5, -1, 0, 3, "is from a rank out of range"},
};

/* What one has to say goes to the other. True if there was something. */
static bool pass(struct tti_proof *from, struct tti_proof *to)
{
    size_t bytes = from->out_bytes - from->out_used, wanted = to->in_needed - to->in_used;
    if (bytes > wanted) bytes = wanted;
    if (bytes == 0 || to->state != TTI_PROOF_RUNNING) return false;
    from->out_used += bytes;
    tti_proof_feed(to, from->out + from->out_used - bytes, bytes);
    return true;
}

static void test_attempt(const struct attempt *attempt)
{
    struct tti_key key = {{attempt->key}}, right = {{1}};
    struct tti_proof_job theirs, ours;
    struct tti_proof guest, host;
    tti_proof_setup(&theirs, &key, attempt->name, attempt->epoch, attempt->from, attempt->size);
    tti_proof_setup(&ours, &right, "job", 5, 0, 3);
    tti_proof_connect(&guest, &theirs, attempt->purpose, attempt->to, 0);
    tti_proof_accept(&host, &ours, TTI_PROOF_MESH);
    while (pass(&guest, &host) || pass(&host, &guest)) continue;
    if (attempt->why == NULL) {
        CHECK(guest.state == TTI_PROOF_DONE && host.known && host.hello.from == attempt->from);
        return;
    }
    CHECK(guest.state != TTI_PROOF_DONE && host.state != TTI_PROOF_DONE);
    const char *why = host.state == TTI_PROOF_FAILED ? host.why
                                                     : guest.why; /* of keys, the guest's is the first to know */
    CHECK_THAT(why != NULL && strcmp(why, attempt->why) == 0, "attempt %d: %s", (int)(attempt - attempts), why);
}

/* All that a guest once said, said again. */
static void test_recording(void)
{
    struct tti_key key = {{1}};
    struct tti_proof_job theirs, ours;
    struct tti_proof guest, host, again;
    tti_proof_setup(&theirs, &key, "job", 5, 1, 3);
    tti_proof_setup(&ours, &key, "job", 5, 0, 3);
    tti_proof_connect(&guest, &theirs, TTI_PROOF_MESH, 0, 0);
    tti_proof_accept(&host, &ours, TTI_PROOF_MESH);
    while (pass(&guest, &host) || pass(&host, &guest)) continue;
    CHECK(guest.state == TTI_PROOF_DONE);
    tti_proof_accept(&again, &ours, TTI_PROOF_MESH);
    tti_proof_feed(&again, &guest.hello, sizeof guest.hello);
    CHECK(again.greeted && !again.known && again.in_needed == sizeof guest.proof); /* it is challenged */
    again.out_used = again.out_bytes;
    tti_proof_feed(&again, guest.proof, sizeof guest.proof);
    CHECK(again.state == TTI_PROOF_FAILED && strcmp(again.why, "has another key") == 0);
}

/* ---- Heads of frames ------------------------------------------------------------------------------------------- */

enum { MAGIC = TTI_TCP_MAGIC, VERSION = TTI_TCP_VERSION };

/* Frame 9 of epoch 5 is next, or it is under way in chunks. */
enum receiver { IDLE, SECOND, STRIPED };
static const struct tti_tcp_expected receivers[] = {
    [IDLE] = {.epoch = 5, .number = 9, .first_stream = true},
    [SECOND] = {.epoch = 5, .number = 9},
    [STRIPED] = {.epoch = 5, .number = 9, .first_stream = true, .striped = true, .bytes = 1000, .come = 600},
};

static const struct look {
    uint16_t magic;
    uint8_t version, kind;
    uint32_t epoch;
    uint64_t number, bytes, offset;
    enum receiver receiver;
    enum tti_tcp_verdict verdict;
    const char *why;
} looks[] = {
    {MAGIC, VERSION, TTI_TCP_FRAME, 5, 9, 8, 0, IDLE, TTI_TCP_TAKE, NULL},
    {1, VERSION, TTI_TCP_FRAME, 5, 9, 8, 0, IDLE, TTI_TCP_BAD, "sent something that is no frame"},
    {MAGIC, 99, TTI_TCP_FRAME, 5, 9, 8, 0, IDLE, TTI_TCP_BAD, "runs another version of the library"},
    {MAGIC, VERSION, TTI_TCP_FRAME, 4, 9, 8, 0, IDLE, TTI_TCP_BAD, "is in another epoch"},
    {MAGIC, VERSION, 77, 5, 9, 8, 0, IDLE, TTI_TCP_BAD, "sent a frame of unknown kind"},
    {MAGIC, VERSION, TTI_TCP_FRAME, 5, 9, 8, 0, SECOND, TTI_TCP_BAD, "sent a frame on a connection for chunks"},
    {MAGIC, VERSION, TTI_TCP_FRAME, 5, 9, UINT64_MAX, 0, IDLE, TTI_TCP_BAD, "sent a frame of impossible size"},
    {MAGIC, VERSION, TTI_TCP_STRIPED, 5, 9, 0, 0, IDLE, TTI_TCP_BAD, "sent a frame of impossible size"},
    {MAGIC, VERSION, TTI_TCP_FRAME, 5, 8, 8, 0, IDLE, TTI_TCP_BAD, "lost a frame"},
    {MAGIC, VERSION, TTI_TCP_FRAME, 5, 10, 8, 0, IDLE, TTI_TCP_BAD, "lost a frame"},
    {MAGIC, VERSION, TTI_TCP_FRAME, 5, 9, 8, 0, STRIPED, TTI_TCP_BAD, "lost a frame"},
    {MAGIC, VERSION, TTI_TCP_FRAME, 5, 10, 8, 0, STRIPED, TTI_TCP_LATER, NULL},
    {MAGIC, VERSION, TTI_TCP_CHUNK, 5, 9, 400, 0, STRIPED, TTI_TCP_TAKE, NULL},
    {MAGIC, VERSION, TTI_TCP_CHUNK, 5, 9, 400, 600, STRIPED, TTI_TCP_TAKE, NULL},
    {MAGIC, VERSION, TTI_TCP_CHUNK, 5, 9, 401, 0, STRIPED, TTI_TCP_BAD, "sent a chunk that does not fit its frame"},
    {MAGIC, VERSION, TTI_TCP_CHUNK, 5, 9, 400, 601, STRIPED, TTI_TCP_BAD, "sent a chunk that does not fit its frame"},
    {MAGIC, VERSION, TTI_TCP_CHUNK, 5, 9, 2, UINT64_MAX, STRIPED, TTI_TCP_BAD,
     "sent a chunk that does not fit its frame"},
    {MAGIC, VERSION, TTI_TCP_CHUNK, 5, 9, 0, 0, STRIPED, TTI_TCP_BAD, "sent a chunk of impossible size"},
    {MAGIC, VERSION, TTI_TCP_CHUNK, 5, 8, 1, 0, STRIPED, TTI_TCP_BAD, "sent a chunk of a frame that has ended"},
    {MAGIC, VERSION, TTI_TCP_CHUNK, 5, 10, 1, 0, STRIPED, TTI_TCP_LATER, NULL},
    {MAGIC, VERSION, TTI_TCP_CHUNK, 5, 9, 1, 0, IDLE, TTI_TCP_LATER, NULL},
    {MAGIC, VERSION, TTI_TCP_CHUNK, 4, 9, 1, 0, STRIPED, TTI_TCP_BAD, "is in another epoch"},
};

static void test_look(const struct look *look)
{
    struct tti_tcp_head head = {.magic = look->magic,
                                .version = look->version,
                                .kind = look->kind,
                                .epoch = look->epoch,
                                .number = look->number,
                                .frame = {.bytes = look->bytes, .value = look->offset}};
    const char *why = NULL;
    int row = (int)(look - looks);
    CHECK_THAT(tti_tcp_judge(&head, &receivers[look->receiver], &why) == look->verdict, "row %d", row);
    CHECK_THAT(look->why == NULL ? why == NULL : why != NULL && strcmp(why, look->why) == 0, "row %d: %s", row, why);
}

/* What fills a head up to a line is for later versions. */
static void test_filled_head(void)
{
    struct tti_tcp_head head = {
        .magic = MAGIC, .version = VERSION, .kind = TTI_TCP_FRAME, .epoch = 5, .number = 9, .frame = {.zero = 1}};
    const char *why = NULL;
    CHECK(tti_tcp_judge(&head, &receivers[IDLE], &why) == TTI_TCP_BAD);
    CHECK(why != NULL && strcmp(why, "sent a head that is damaged") == 0);
}

/* ---- Silence --------------------------------------------------------------------------------------------------- */

static struct tti_guest *guest_of(struct tti_door *door)
{
    struct tti_hello who;
    CHECK(tti_door_next(door, &who) < 0);
    for (int i = 0; i < TTI_GUESTS; i++)
        if (door->guests[i].fd >= 0) return &door->guests[i];
    return NULL;
}

/* A connection that has said nothing, or half a hello, for the time it has to prove its key is closed. */
static void test_silence(size_t bytes)
{
    struct tti_key key = {{1}};
    struct tti_proof_job job;
    struct tti_proof hello;
    struct tti_door door;
    struct tti_address_list list;
    tutti_error error;
    char byte;
    tti_proof_setup(&job, &key, "job", 0, 0, 2);
    tti_proof_connect(&hello, &job, TTI_PROOF_MESH, 0, 0);
    tti_door_init(&door, &job, TTI_PROOF_MESH);
    CHECK(tti_door_open(&door, "127.0.0.1", 0, 0, &list, &error) == TUTTI_OK);
    int fd = tti_connect(&list.at[0]);
    while (tti_connect_result(fd) == EINPROGRESS) continue;
    CHECK(send(fd, hello.out, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    struct tti_guest *guest = guest_of(&door);
    CHECK(guest != NULL && guest_of(&door) == guest);
    CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    if (guest != NULL) guest->since_ns -= TTI_PROOF_NS + 1; /* as if it had come that much earlier */
    CHECK(guest_of(&door) == NULL && recv(fd, &byte, 1, 0) <= 0);
    close(fd);
    tti_door_close(&door);
}

/* As many silent connections as there is room for may stay while nobody else comes; one more, and the oldest goes. */
static void test_full_house(void)
{
    struct tti_key key = {{1}};
    struct tti_proof_job job;
    struct tti_door door;
    struct tti_address_list list;
    struct tti_hello who;
    tutti_error error;
    int fds[TTI_STRANGERS + 1];
    tti_proof_setup(&job, &key, "job", 0, 0, 2);
    tti_door_init(&door, &job, TTI_PROOF_MESH);
    CHECK(tti_door_open(&door, "127.0.0.1", 0, 0, &list, &error) == TUTTI_OK);
    for (int i = 0; i <= TTI_STRANGERS; i++) {
        fds[i] = tti_connect(&list.at[0]);
        while (door.came <= (uint64_t)i) CHECK(tti_door_next(&door, &who) < 0);
        CHECK(tti_door_next(&door, &who) < 0);
        CHECK_THAT(door.refused == (i == TTI_STRANGERS), "%d refused of %d", door.refused, i + 1);
    }
    for (int i = 0; i <= TTI_STRANGERS; i++) close(fds[i]);
    tti_door_close(&door);
}

/* ---- Knocking -------------------------------------------------------------------------------------------------- */

static int64_t in_ms(int64_t ms)
{
    return tti_now_ns() + ms * 1000000;
}

/* A connection that breaks between the two proofs, when no other address has been tried yet: all are tried again. */
static void test_broken_knock(void)
{
    struct tti_key key = {{1}};
    struct tti_proof_job inside, outside;
    struct tti_door door;
    struct tti_address_list list;
    struct tti_address used;
    struct tti_hello who;
    tutti_error error;
    int fd = -1, let_in = -1;
    tti_proof_setup(&inside, &key, "job", 0, 0, 2);
    tti_proof_setup(&outside, &key, "job", 0, 1, 2);
    tti_door_init(&door, &inside, TTI_PROOF_MESH);
    CHECK(tti_door_open(&door, "127.0.0.1", 0, 0, &list, &error) == TUTTI_OK && list.count == 1);
    list.at[list.count++] = list.at[0];
    struct tti_knock *knock = tti_knock_new(&outside, TTI_PROOF_MESH, 0, 0, &list);
    for (int64_t until = in_ms(20000); !knock->attempts[0].proof.known && tti_now_ns() < until;) {
        CHECK(tti_knock_step(knock, &used) < 0);
        if (!knock->attempts[0].proof.known) (void)tti_door_next(&door, &who);
    }
    for (int i = 0; i < TTI_GUESTS; i++)
        if (door.guests[i].fd >= 0) shutdown(door.guests[i].fd, SHUT_RDWR);
    for (int64_t until = in_ms(20000); (fd < 0 || let_in < 0) && tti_now_ns() < until;) {
        if (fd < 0) fd = tti_knock_step(knock, &used);
        if (let_in < 0) let_in = tti_door_next(&door, &who);
    }
    CHECK(fd >= 0 && let_in >= 0);
    close(fd);
    close(let_in);
    tti_knock_free(knock);
    tti_door_close(&door);
}

/* This host is the same one when no descriptor is left. */
static void test_here(void)
{
    struct rlimit limit, none;
    uint64_t before = tti_network_here();
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    uint64_t after = tti_network_here();
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0 && before == after);
}

int main(void)
{
    tutti_error error;
    CHECK(tti_key_setup(&error) == TUTTI_OK);
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++) test_attempt(&attempts[i]);
    test_recording();
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) test_look(&looks[i]);
    test_filled_head();
    test_silence(0);
    test_silence(sizeof(struct tti_hello) / 2);
    test_full_house();
    test_broken_knock();
    test_here();
    return check_end();
}
