/* SPDX-License-Identifier: Apache-2.0
 *
 * A client of the key-value store of torch.distributed (TCPStore). torchrun's agent keeps one at MASTER_PORT, so rank 0
 * cannot wait there itself. A connection begins with a number that proves that it is meant for the store; then come
 * questions of one byte and their arguments, texts with their length before them, in the byte order of the machine.
 * This is the same for both servers of torch 2.1 and later.
 *
 * Older servers know no proof, and count questions from one less. They take the proof for a text to be set, and the
 * bytes behind it for the rest of its length, and close the connection over a length that is impossible. So the proof
 * comes first; a server that closes the connection is asked again in the old way. The bytes behind the proof make the
 * length larger than any address space, since the server would allocate that much memory if it could.
 */
#include "base/clock.h"
#include "base/status.h"
#include "transport/socket.h"
#include "world/launch.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum question { VALIDATE = 0, SET = 1, GET = 3, CHECK = 5, WAIT = 6 };
enum { READY = 0, MESSAGE_BYTES = 2048, PAUSE_MS = 20 };

static const uint32_t proof = 0x3C85F7CE;

struct message {
    char bytes[MESSAGE_BYTES];
    size_t length;
    bool old;
};

struct store {
    const char *host;
    int port, fd;
    int64_t deadline_ns;
    bool old;    /* a server from before torch 2.1 */
    bool closed; /* closed by the other end */
    tutti_error *error;
};

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static void add(struct message *message, const void *bytes, size_t count)
{
    memcpy(message->bytes + message->length, bytes, count);
    message->length += count;
}

static void add_question(struct message *message, enum question question)
{
    uint8_t byte = (uint8_t)(message->old ? question - 1 : question);
    add(message, &byte, sizeof byte);
}

static void add_number(struct message *message, uint64_t number)
{
    add(message, &number, sizeof number);
}

static void add_text(struct message *message, const char *text)
{
    add_number(message, strlen(text));
    add(message, text, strlen(text));
}

/* ---- The socket -------------------------------------------------------------------------------------------------- */

static tutti_status failed(struct store *store, int why)
{
    store->closed = why == EPIPE;
    if (why == EPIPE)
        return tti_error_set(store->error, TUTTI_ERR_JOIN, 0,
                             "the store of torchrun at %s:%d (MASTER_ADDR, MASTER_PORT) closed the connection; is it "
                             "torchrun's agent that listens there?",
                             store->host, store->port);
    return tti_error_set(store->error, TUTTI_ERR_JOIN, why,
                         "the store of torchrun at %s:%d (MASTER_ADDR, MASTER_PORT) could not be asked where rank 0 "
                         "waits",
                         store->host, store->port);
}

static tutti_status send_all(struct store *store, const struct message *message)
{
    for (size_t sent = 0; sent < message->length;) {
        ssize_t part = send(store->fd, message->bytes + sent, message->length - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        int why = part >= 0 || errno == EINTR ? 0
                  : errno == EAGAIN           ? tti_poll_until(store->fd, POLLOUT, store->deadline_ns)
                                              : errno;
        if (why != 0) return failed(store, why == ECONNRESET ? EPIPE : why);
        if (part > 0) sent += (size_t)part;
    }
    return TUTTI_OK;
}

static tutti_status receive(struct store *store, void *into, size_t bytes)
{
    for (size_t got = 0; got < bytes;) {
        ssize_t part = recv(store->fd, (char *)into + got, bytes - got, MSG_DONTWAIT);
        int why = part > 0 ? 0 : part == 0 ? EPIPE : errno == EINTR ? 0 : errno;
        if (why == EAGAIN) why = tti_poll_until(store->fd, POLLIN, store->deadline_ns);
        if (why != 0) return failed(store, why == ECONNRESET ? EPIPE : why);
        if (part > 0) got += (size_t)part;
    }
    return TUTTI_OK;
}

/* Tries one address. Returns 0 or an errno. */
static int try_address(struct store *store, const struct addrinfo *address)
{
    int why = 0;
    socklen_t length = sizeof why;
    store->fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (store->fd < 0) return errno;
    if (connect(store->fd, address->ai_addr, address->ai_addrlen) == 0) return 0;
    why = errno == EINPROGRESS ? tti_poll_until(store->fd, POLLOUT, store->deadline_ns) : errno;
    if (why == 0 && getsockopt(store->fd, SOL_SOCKET, SO_ERROR, &why, &length) != 0) why = errno;
    if (why == 0) return 0;
    close(store->fd);
    store->fd = -1;
    return why;
}

static tutti_status connect_store(struct store *store)
{
    char port[16];
    struct addrinfo *list = NULL, hints = {.ai_socktype = SOCK_STREAM};
    snprintf(port, sizeof port, "%d", store->port);
    int found = getaddrinfo(store->host, port, &hints, &list);
    if (found != 0)
        return tti_error_set(store->error, TUTTI_ERR_JOIN, 0, "MASTER_ADDR is \"%s\", which does not resolve: %s",
                             store->host, gai_strerror(found));
    int why = ECONNREFUSED;
    while (why != 0) {
        for (const struct addrinfo *at = list; at != NULL && why != 0; at = at->ai_next) why = try_address(store, at);
        if (why != ECONNREFUSED || tti_now_ns() >= store->deadline_ns) break;
        poll(NULL, 0, PAUSE_MS); /* the agent of another host may not be there yet */
    }
    freeaddrinfo(list);
    return why == 0 ? TUTTI_OK : failed(store, why);
}

/* ---- Questions --------------------------------------------------------------------------------------------------- */

/* A key of 128 bytes or more makes an old server read a length of at least 2^47. */
static void add_proof(struct message *message)
{
    char name[160];
    if (message->old) return;
    add_question(message, VALIDATE);
    add(message, &proof, sizeof proof);
    memset(name, '.', sizeof name);
    memcpy(name, "/tutti/hello", strlen("/tutti/hello"));
    name[sizeof name - 1] = '\0';
    add_question(message, SET);
    add_text(message, name);
    add_text(message, "");
}

/* The store does not answer a SET: it answers the question behind it, which shows that the store has taken the
 * value. */
static tutti_status publish(struct store *store, const char *key, const char *value)
{
    struct message message = {.old = store->old};
    uint8_t answer;
    add_proof(&message);
    add_question(&message, SET);
    add_text(&message, key);
    add_text(&message, value);
    add_question(&message, CHECK);
    add_number(&message, 1);
    add_text(&message, key);
    TTI_TRY(send_all(store, &message));
    TTI_TRY(receive(store, &answer, sizeof answer));
    return answer == READY ? TUTTI_OK : failed(store, EBADMSG);
}

static tutti_status look_up(struct store *store, const char *key, char *value, size_t bytes)
{
    struct message message = {.old = store->old};
    uint8_t answer;
    uint64_t length;
    add_proof(&message);
    add_question(&message, WAIT);
    add_number(&message, 1);
    add_text(&message, key);
    TTI_TRY(send_all(store, &message));
    TTI_TRY(receive(store, &answer, sizeof answer));
    message.length = 0;
    add_question(&message, GET);
    add_text(&message, key);
    TTI_TRY(send_all(store, &message));
    TTI_TRY(receive(store, &length, sizeof length));
    if (length >= bytes) return failed(store, EBADMSG);
    TTI_TRY(receive(store, value, (size_t)length));
    value[length] = '\0';
    return TUTTI_OK;
}

static struct store store_at(const struct tti_c10d *at, tutti_error *error)
{
    return (struct store){.host = at->host, .port = at->port, .fd = -1, .deadline_ns = at->deadline_ns, .error = error};
}

/* Does one of both. */
static tutti_status converse(struct store *store, const char *key, const char *tell, char *text, size_t bytes)
{
    TTI_TRY(connect_store(store));
    tutti_status status = tell != NULL ? publish(store, key, tell) : look_up(store, key, text, bytes);
    close(store->fd);
    return status;
}

static tutti_status converse_with_any(const struct tti_c10d *at, const char *tell, char *text, size_t bytes,
                                      tutti_error *error)
{
    struct store store = store_at(at, error);
    tutti_status status = converse(&store, at->key, tell, text, bytes);
    if (!store.closed) return status;
    store = store_at(at, error);
    store.old = true;
    return converse(&store, at->key, tell, text, bytes);
}

tutti_status tti_c10d_publish(const struct tti_c10d *at, const char *text, tutti_error *error)
{
    return converse_with_any(at, text, NULL, 0, error);
}

tutti_status tti_c10d_lookup(const struct tti_c10d *at, char *text, size_t bytes, tutti_error *error)
{
    return converse_with_any(at, NULL, text, bytes, error);
}
