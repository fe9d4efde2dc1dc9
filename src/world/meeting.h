/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two sides of a rendezvous share; for rendezvous.c and meeting*.c only.
 *
 *     member                                 rank 0
 *     GIVE round, time left, its bytes  ->
 *                                       <-   ALL round, sizes, bytes         once everyone has given
 *     TROUBLE error                     ->                                   instead of a GIVE
 *                                       <-   TROUBLE error                   may come at any time; the last message
 *
 * All messages begin with a fixed head that bounds the rest before any memory is taken.
 */
#ifndef TTI_WORLD_MEETING_H
#define TTI_WORLD_MEETING_H

#include "transport/door.h"
#include "world/names.h"
#include "world/rendezvous.h"

#define TTI_MEETING_MAGIC 0x7474656du
enum tti_meeting_kind { TTI_MEETING_GIVE = 1, TTI_MEETING_ALL, TTI_MEETING_TROUBLE };

struct tti_meeting_head {
    uint32_t magic, kind, round;
    uint32_t left_ms; /* time left until the sender's deadline */
    uint64_t bytes;   /* bytes that follow */
    /* ALL: when this member's GIVE had come, and when this message was sent, by rank 0's clock */
    int64_t came_ns, sent_ns;
};

struct tti_meeting_trouble {
    int32_t status, peer, system_errno;
    char text[480];
};

/* One message that is being sent or received. */
struct tti_meeting_message {
    struct tti_meeting_head head;
    size_t head_done, body_done;
    unsigned char *body;
};

enum tti_meeting_message_state { TTI_MEETING_PARTLY, TTI_MEETING_WHOLE, TTI_MEETING_BROKEN };

/* Moves as much as possible. BROKEN: errno says why (EBADMSG: not one of these messages; EPIPE: the other end is
 * gone). */
enum tti_meeting_message_state tti_meeting_message_receive(struct tti_meeting_message *message, int fd, bool from_root,
                                                           int size);
enum tti_meeting_message_state tti_meeting_message_send(struct tti_meeting_message *message, int fd);
/* Makes a message with a body of `bytes` zeros; returns false if memory ran out. */
bool tti_meeting_message_make(struct tti_meeting_message *message, enum tti_meeting_kind kind, uint32_t round,
                              size_t bytes);
bool tti_meeting_message_trouble(struct tti_meeting_message *message, uint32_t round, const tutti_error *error);
void tti_meeting_message_drop(struct tti_meeting_message *message);
/* Takes the blobs from an ALL's body and checks them; the blobs own the body then. */
bool tti_blobs_take(struct tti_blobs *all, unsigned char *body, size_t bytes, int size);
tutti_status tti_meeting_take_trouble(const struct tti_meeting_message *message, tutti_error *error);

struct tti_meeting_member {
    int fd; /* -1: it has not come */
    bool given;
    bool ended;      /* it had come, and has ended */
    int64_t came_ns; /* when its last GIVE came */
    struct tti_meeting_message in;
    struct tti_meeting_message out;
};

/* The difference between this clock and rank 0's, as far as it is known; zeros on rank 0. */
struct tti_meeting_clock {
    uint64_t which;    /* the same for processes that share a clock */
    int64_t offset_ns; /* added to this clock to get rank 0's */
    int64_t error_ns;  /* the largest error: half of the fastest exchange's way there and back */
};

struct tti_meeting {
    struct tti_rendezvous where;
    char job[256];
    char place[TTI_PLACE_BYTES]; /* where rank 0 is, for messages */
    struct tti_proof_job proof;
    bool local; /* found by the job's name */
    bool failed;
    bool told;       /* rank 0: the others were told why it failed */
    bool ended_late; /* the launcher was asked once to end processes that are late */
    uint32_t round;
    int64_t deadline_ns; /* the earliest of all */
    int64_t gave_ns;     /* when this rank gave last */
    bool compared;
    struct tti_meeting_clock clock;
    struct tti_door door;               /* rank 0's */
    struct tti_meeting_member *members; /* rank 0: by rank; its own is empty. Others: one, for rank 0 */
    struct pollfd *polled;
};

/* Names one of those that meet by the ranks that it has, or returns the first of these. */
struct tti_ranks_name tti_meeting_name(const struct tti_meeting *meeting, int rank);
int tti_meeting_first(const struct tti_meeting *meeting, int rank);
/* Names the socket for those that meet on one host, by the job's name and the generation's number. */
enum { TTI_MEETING_SOCKET = 300 };
void tti_meeting_socket(const struct tti_meeting *meeting, char name[TTI_MEETING_SOCKET]);
/* Returns true if that process, which has not come, will be ended and started again; then the meeting has a little more
 * time, in which the board moves, or the connection ends. */
bool tti_meeting_end_late(struct tti_meeting *meeting, int rank);
/* Checks that the board allows going on, also in later exchanges of those that meet again; the other returns how long
 * they may sleep. */
tutti_status tti_meeting_check(const struct tti_meeting *meeting, tutti_error *error);
int tti_meeting_poll_ms(const struct tti_meeting *meeting, int poll_ms);
/* Returns the launcher's board while it must be read for processes that have ended, else NULL. */
const struct tti_board *tti_meeting_board(const struct tti_meeting *meeting);
tutti_status tti_meeting_open_root(struct tti_meeting *meeting, tutti_error *error);
tutti_status tti_meeting_open_member(struct tti_meeting *meeting, tutti_error *error);
tutti_status tti_meeting_root_exchange(struct tti_meeting *meeting, const void *mine, size_t bytes,
                                       struct tti_blobs *all, tutti_error *error);
tutti_status tti_meeting_member_exchange(struct tti_meeting *meeting, const void *mine, size_t bytes,
                                         struct tti_blobs *all, tutti_error *error);
/* Takes what this answer tells of rank 0's clock. */
void tti_meeting_compare(struct tti_meeting *meeting, const struct tti_meeting_head *head);
bool tti_meeting_root_trouble(struct tti_meeting *meeting, tutti_error *error);
bool tti_meeting_member_trouble(struct tti_meeting *meeting, tutti_error *error);
/* Lets rank 0 tell the reason to all that are here or come soon. */
void tti_meeting_root_notify(struct tti_meeting *meeting, const tutti_error *why);

#endif
