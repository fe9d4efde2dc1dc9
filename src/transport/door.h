/* SPDX-License-Identifier: Apache-2.0
 *
 * The two ways to a proven connection. A door listens, and admits connections that prove the job's key; a knock tries
 * all the addresses of one door until one of them admits it. Neither blocks: the caller polls.
 *
 * A door bounds the resources that strangers can use: at most TTI_STRANGERS connections that have not shown a hello
 * made with the key, 136 bytes from each, TTI_PROOF_NS of time. When one more comes, the oldest is closed: a flood of
 * silent connections does not keep ranks out, whose hello arrives together with their connection.
 *
 * A hello made with the key may be a recording. It opens the door once, since the door remembers the last TTI_HEARD of
 * them, and gives its connection no more than a moment before others: when all places are taken, a connection that has
 * had TTI_ANSWER_NS and not proved its key is closed.
 */
#ifndef TTI_TRANSPORT_DOOR_H
#define TTI_TRANSPORT_DOOR_H

#include "transport/proof.h"
#include "transport/socket.h"
#include <poll.h>

enum { TTI_STRANGERS = 64, TTI_GUESTS = 192, TTI_LISTENERS = TTI_ADDRESSES, TTI_HEARD = 4096 };
#define TTI_PROOF_NS ((int64_t)5 * 1000000000)
#define TTI_ANSWER_NS ((int64_t)500 * 1000000) /* for the answer to a challenge, when others wait for the place */

struct tti_guest {
    int fd;          /* -1: the place is free */
    uint64_t number; /* in the order in which guests came */
    int64_t since_ns;
    struct tti_address from;
    bool heard; /* its hello is among those that the door remembers */
    struct tti_proof proof;
};

struct tti_door {
    const struct tti_proof_job *job;
    enum tti_proof_purpose purpose;
    int (*accept)(int listener, struct tti_address *from); /* tti_accept unless set otherwise */
    int listeners[TTI_LISTENERS], listener_count;
    struct tti_guest guests[TTI_GUESTS];
    uint64_t came;
    uint64_t heard[TTI_HEARD],
        heard_count;   /* the first bytes of the nonces of hellos made with the key; the oldest is replaced */
    int refused;       /* strangers that were turned away */
    int other_keys;    /* those of them with another key, which may be ranks that were given a wrong one */
    char refusal[160]; /* the last of these, else the last that sent something, and why it was turned away */
    int system_errno;  /* why no connection can be accepted at the moment; 0: there is no reason */
};

void tti_door_init(struct tti_door *door, const struct tti_proof_job *job, enum tti_proof_purpose purpose);
/* Listens at the addresses of `interface` (NULL or "": at all, with one port per family), and sets them in `list`. */
tutti_status tti_door_open(struct tti_door *door, const char *interface, uint16_t low, uint16_t high,
                           struct tti_address_list *list, tutti_error *error);
/* Listens at "HOST:PORT", too, as far as that is this host and it does not listen there yet. */
tutti_status tti_door_add(struct tti_door *door, const char *text, struct tti_address_list *list, tutti_error *error);
/* Returns the next connection that has proved its key, and whose it is; -1: none at the moment. */
int tti_door_next(struct tti_door *door, struct tti_hello *who);
/* Fills in descriptors to poll for, at most TTI_LISTENERS + TTI_GUESTS. */
int tti_door_poll_set(const struct tti_door *door, struct pollfd *set);
void tti_door_close(struct tti_door *door);

enum tti_attempt_state { TTI_ATTEMPT_IDLE, TTI_ATTEMPT_CONNECTING, TTI_ATTEMPT_PROVING, TTI_ATTEMPT_FAILED };

struct tti_attempt {
    enum tti_attempt_state state;
    int fd;
    int64_t since_ns;
    int system_errno;
    const char *why;
    struct tti_proof proof;
};

struct tti_knock {
    const struct tti_proof_job *job;
    enum tti_proof_purpose purpose;
    int to, stream;
    struct tti_address_list list;
    int started;     /* attempts that were started in this round */
    int refusals;    /* refusals in a row: the other end did not accept the hello, or sent none */
    int64_t next_ns; /* when to start another attempt or the next round */
    int rounds;
    bool other_service;            /* something else than a rank has answered */
    int64_t other_key_ns;          /* when another key was first shown there; 0: never */
    struct tti_attempt attempts[]; /* one for each address */
};

/* Starts a knock. NULL: no memory. */
struct tti_knock *tti_knock_new(const struct tti_proof_job *job, enum tti_proof_purpose purpose, int to, int stream,
                                const struct tti_address_list *list);
/* Returns the connection once it is proven (*used gets its address); -1: not yet. */
int tti_knock_step(struct tti_knock *knock, struct tti_address *used);
/* Returns true if the other end has another key, and no other address may succeed. */
bool tti_knock_wrong_key(const struct tti_knock *knock);
int tti_knock_poll_set(const struct tti_knock *knock, struct pollfd *set); /* at most one for each address */
void tti_knock_free(struct tti_knock *knock);
/* Writes the last attempts and how they ended: "10.0.0.1:5000 Connection refused, …". */
const char *tti_knock_text(const struct tti_knock *knock, char *text, size_t bytes);

#endif
