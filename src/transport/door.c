/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/door.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { ACCEPTED_AT_ONCE = 256, OTHER_KEYS_TOLD = 4 };

void tti_door_init(struct tti_door *door, const struct tti_proof_job *job, enum tti_proof_purpose purpose)
{
    memset(door, 0, sizeof *door);
    door->job = job;
    door->purpose = purpose;
    door->accept = tti_accept;
    for (int i = 0; i < TTI_GUESTS; i++) door->guests[i].fd = -1;
}

/* ---- Listening ------------------------------------------------------------------------------------------------- */

static const char widen[] = "widen the option ports: each rank of a host listens at its own";

static tutti_status cannot_listen(const struct tti_door *door, const struct tti_address *address, uint16_t low,
                                  uint16_t high, tutti_error *error)
{
    char text[TTI_ADDRESS_TEXT];
    if (errno == EADDRINUSE && low == 0)
        return tti_error_set(
            error, TUTTI_ERR_JOIN, errno,
            "no port of this host is free: a closed connection keeps its own for a minute; wait, or name "
            "other ports by the option ports");
    if (errno == EADDRINUSE && low == high)
        return tti_error_set(error, TUTTI_ERR_JOIN, errno, "port %u of this host is taken; %s", low,
                             door->purpose == TTI_PROOF_RENDEZVOUS ? "choose another (--master-port, TUTTI_MASTER_PORT)"
                                                                   : widen);
    if (errno == EADDRINUSE)
        return tti_error_set(error, TUTTI_ERR_JOIN, errno, "all ports from %u to %u are taken; %s", low, high, widen);
    if (errno == EMFILE || errno == ENFILE)
        return tti_error_set(error, TUTTI_ERR_LIMIT, errno, "file descriptors ran out: raise the limit (ulimit -n)");
    return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "cannot listen at %s", tti_address_text(address, text));
}

static tutti_status listen_at(struct tti_door *door, struct tti_address *address, uint16_t low, uint16_t high,
                              tutti_error *error)
{
    int fd = tti_listen(address, low, high);
    if (fd < 0) return cannot_listen(door, address, low, high, error);
    door->listeners[door->listener_count++] = fd;
    return TUTTI_OK;
}

static tutti_status listen_at_each(struct tti_door *door, uint16_t low, uint16_t high, struct tti_address_list *list,
                                   tutti_error *error)
{
    for (int i = 0; i < list->count; i++) TTI_TRY(listen_at(door, &list->at[i], low, high, error));
    return TUTTI_OK;
}

/* Opens one socket for each family of which this host has addresses. */
static tutti_status listen_at_all(struct tti_door *door, uint16_t low, uint16_t high, struct tti_address_list *list,
                                  tutti_error *error)
{
    for (uint8_t family = 4; family <= 6; family += 2) {
        struct tti_address any = {.family = family};
        for (int i = 0; i < list->count; i++) {
            if (list->at[i].family != family) continue;
            if (any.port == 0) TTI_TRY(listen_at(door, &any, low, high, error));
            list->at[i].port = any.port;
        }
    }
    return TUTTI_OK;
}

tutti_status tti_door_open(struct tti_door *door, const char *interface, uint16_t low, uint16_t high,
                           struct tti_address_list *list, tutti_error *error)
{
    bool all = interface == NULL || interface[0] == '\0';
    TTI_TRY(tti_addresses_here(interface, list, error));
    tutti_status status = all ? listen_at_all(door, low, high, list, error)
                              : listen_at_each(door, low, high, list, error);
    if (status != TUTTI_OK) tti_door_close(door);
    return status;
}

static bool is_in(const struct tti_address_list *list, const struct tti_address *address)
{
    for (int i = 0; i < list->count; i++)
        if (memcmp(&list->at[i], address, sizeof *address) == 0) return true;
    return false;
}

tutti_status tti_door_add(struct tti_door *door, const char *text, struct tti_address_list *list, tutti_error *error)
{
    struct tti_address_list more;
    tutti_error why;
    if (tti_addresses_of(text, &more, &why) != TUTTI_OK) return TUTTI_OK;
    for (int i = 0; i < more.count; i++) {
        struct tti_address *address = &more.at[i];
        if (list->count == TTI_ADDRESSES || is_in(list, address)) continue;
        tutti_status status = listen_at(door, address, address->port, address->port, &why);
        if (status == TUTTI_OK) {
            list->at[list->count++] = *address;
        } else if (why.system_errno != EADDRNOTAVAIL) {
            *error = why;
            return status;
        }
    }
    return TUTTI_OK;
}

/* ---- Guests ---------------------------------------------------------------------------------------------------- */

/* Logged at once, since the rank that was given a wrong key will not come; only the first few, since strangers can
 * cause this, too. */
static void note_other_key(struct tti_door *door, const char *from, int rank)
{
    snprintf(door->refusal, sizeof door->refusal,
             "a connection from %s, as rank %d, has another key; compare TUTTI_KEY_FILE there and here", from, rank);
    if (door->other_keys++ < OTHER_KEYS_TOLD) tti_log(TUTTI_WARN, "%s", door->refusal);
}

static void turn_away(struct tti_door *door, struct tti_guest *guest, const char *why)
{
    char text[TTI_ADDRESS_TEXT];
    const char *from = guest->from.family == 0 ? "this host" : tti_address_text(&guest->from, text);
    door->refused++;
    if (guest->proof.other_key)
        note_other_key(door, from, guest->proof.hello.from);
    else if (guest->proof.in_used > 0 && door->other_keys == 0)
        snprintf(door->refusal, sizeof door->refusal, "a connection from %s %s", from, why);
    close(guest->fd);
    guest->fd = -1;
}

static struct tti_guest *older(struct tti_guest *a, struct tti_guest *b)
{
    return a == NULL || b->number < a->number ? b : a;
}

/* Returns a place for one more guest: a free one, that of the oldest stranger, which must go, or that of the oldest
 * guest that has had the time to answer its challenge. NULL: there is none now. */
static struct tti_guest *place_for_one(struct tti_door *door, int64_t now_ns)
{
    struct tti_guest *room = NULL, *stranger = NULL, *slow = NULL;
    int strangers = 0;
    for (int i = 0; i < TTI_GUESTS; i++) {
        struct tti_guest *guest = &door->guests[i];
        if (guest->fd < 0) {
            room = guest;
        } else if (!guest->proof.greeted) {
            strangers++;
            stranger = older(stranger, guest);
        } else if (now_ns - guest->since_ns > TTI_ANSWER_NS) {
            slow = older(slow, guest);
        }
    }
    if (room != NULL && strangers < TTI_STRANGERS) return room;
    return stranger != NULL ? stranger : slow;
}

/* Returns true if the hello came before: nonces are never made twice. Without the key nobody can add to those
 * remembered. */
static bool is_repeated(struct tti_door *door, struct tti_guest *guest)
{
    uint64_t word;
    uint64_t count = door->heard_count < TTI_HEARD ? door->heard_count : TTI_HEARD;
    memcpy(&word, guest->proof.hello.nonce, sizeof word);
    for (uint64_t i = 0; i < count; i++)
        if (door->heard[i] == word) return true;
    door->heard[door->heard_count++ % TTI_HEARD] = word;
    guest->heard = true;
    return false;
}

static const char too_little[] = "said too little for too long";

/* Admits a connection. A guest is only turned away when another one has come. */
static bool admit(struct tti_door *door, int listener, int64_t now_ns)
{
    struct tti_guest *guest = place_for_one(door, now_ns);
    struct tti_address from;
    if (guest == NULL) return false;
    int fd = door->accept(listener, &from);
    if (fd < 0) {
        door->system_errno = errno == EAGAIN ? 0 : errno;
        return false;
    }
    if (guest->fd >= 0) turn_away(door, guest, too_little);
    guest->fd = fd;
    guest->from = from;
    guest->since_ns = now_ns;
    guest->number = door->came++;
    guest->heard = false;
    tti_proof_accept(&guest->proof, door->job, door->purpose);
    return true;
}

/* Returns the connection when it has proved its key, or -1. */
static int serve(struct tti_door *door, struct tti_guest *guest, int64_t now_ns, struct tti_hello *who)
{
    enum tti_proof_state state = tti_proof_step(&guest->proof, guest->fd);
    if (guest->proof.greeted && !guest->heard && is_repeated(door, guest)) {
        turn_away(door, guest, "repeats what was said on another one: it is a recording");
        return -1;
    }
    if (state == TTI_PROOF_DONE) {
        int fd = guest->fd;
        guest->fd = -1;
        *who = guest->proof.hello;
        return fd;
    }
    if (state == TTI_PROOF_FAILED)
        turn_away(door, guest, guest->proof.why);
    else if (now_ns - guest->since_ns > TTI_PROOF_NS)
        turn_away(door, guest, too_little);
    return -1;
}

static int serve_all(struct tti_door *door, int64_t now_ns, struct tti_hello *who)
{
    for (int i = 0; i < TTI_GUESTS; i++) {
        int fd = door->guests[i].fd < 0 ? -1 : serve(door, &door->guests[i], now_ns, who);
        if (fd >= 0) return fd;
    }
    return -1;
}

/* Returns the next proven connection. New ones are served right away, since their hello mostly is there already, and
 * before they can be displaced. */
int tti_door_next(struct tti_door *door, struct tti_hello *who)
{
    int64_t now_ns = tti_now_ns();
    int fd = serve_all(door, now_ns, who);
    for (int i = 0; fd < 0 && i < door->listener_count; i++) {
        for (int n = 0; fd < 0 && n < ACCEPTED_AT_ONCE && admit(door, door->listeners[i], now_ns); n++)
            if (n % TTI_STRANGERS == TTI_STRANGERS - 1) fd = serve_all(door, now_ns, who);
        if (fd < 0) fd = serve_all(door, now_ns, who);
    }
    return fd;
}

int tti_door_poll_set(const struct tti_door *door, struct pollfd *set)
{
    int count = 0;
    for (int i = 0; i < door->listener_count; i++)
        set[count++] = (struct pollfd){.fd = door->listeners[i], .events = POLLIN};
    for (int i = 0; i < TTI_GUESTS; i++) {
        const struct tti_guest *guest = &door->guests[i];
        bool out = guest->proof.out_used < guest->proof.out_bytes;
        if (guest->fd >= 0)
            set[count++] = (struct pollfd){.fd = guest->fd, .events = (short)(POLLIN | (out ? POLLOUT : 0))};
    }
    return count;
}

void tti_door_close(struct tti_door *door)
{
    for (int i = 0; i < door->listener_count; i++) close(door->listeners[i]);
    door->listener_count = 0;
    for (int i = 0; i < TTI_GUESTS; i++) {
        if (door->guests[i].fd >= 0) close(door->guests[i].fd);
        door->guests[i].fd = -1;
    }
}
