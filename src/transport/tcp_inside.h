/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a tcp endpoint; for tcp*.c only.
 */
#ifndef TTI_TRANSPORT_TCP_INSIDE_H
#define TTI_TRANSPORT_TCP_INSIDE_H

#include "transport/door.h"
#include "transport/tcp.h"
#include "transport/tcp_head.h"
#include <stdatomic.h>

#define TTI_TCP_WAKE UINT64_MAX /* what epoll says of wake_fd, in place of a connection */

/* One connection. What is being sent on it is one piece: a head and some data. */
struct tti_tcp_stream {
    int fd;
    uint8_t index;
    bool blocked;       /* the system takes no more at the moment */
    bool ended;         /* nothing more comes on it; of the first one: the peer is lost */
    bool paused;        /* its next head must wait for another connection */
    bool near;          /* within a host */
    uint32_t head_left; /* bytes of the head that are still to be sent */
    struct tti_tcp_head head;
    const char *data; /* still to be sent */
    uint64_t data_left;
    struct tti_outgoing *of; /* the frame it belongs to; NULL: none, or a goodbye */
    /* receiving */
    unsigned char *buffer;
    uint32_t buffer_bytes, start, end;
    char *into;     /* where the data go; NULL: dropped */
    uint64_t wants; /* data of the piece that have not come */
};

struct tti_tcp_peer {
    int rank;
    bool connected; /* else it is lost */
    int stream_count;
    struct tti_tcp_stream streams[TTI_TCP_STREAMS];
    int live_fd; /* carries nothing; -1: none */
    char host[TTI_TCP_HOST];
    /* sending */
    struct tti_outgoing *first, *last; /* not yet sent */
    struct tti_outgoing *next;         /* the first of them that has not been given to connections entirely */
    uint64_t given;                    /* bytes of it that have */
    bool announced;                    /* its head has */
    uint64_t send_number;
    int send_errno; /* sending failed: reading will tell why */
    /* receiving */
    uint64_t number; /* of the next frame, or of the one under way */
    bool striped;
    bool goodbye;
    bool parting;   /* it has been told goodbye */
    bool resume;    /* a connection that was paused has something in its buffer */
    uint64_t come;  /* of a striped frame: bytes that are there */
    uint64_t asked; /* bytes of chunks that have begun */
    char *into;
    void *cookie;
    struct tti_frame_head frame;
};

/* One peer while connecting. */
struct tti_tcp_link {
    int rank;
    bool near;                  /* on this host, in this network */
    int stream_count, fd_count; /* the one that carries nothing comes after the others */
    char host[TTI_TCP_HOST];
    struct tti_address_list list;
    struct tti_knock *knocks[TTI_TCP_STREAMS + 1]; /* NULL: not knocking */
    int fds[TTI_TCP_STREAMS + 1];
    int have;
    int64_t since_ns;
};

struct tti_tcp {
    struct tti_transport base;
    char job[256];
    uint32_t epoch;
    int streams;
    bool streams_asked;
    int64_t heartbeat_ms;
    char host[TTI_TCP_HOST];
    struct tti_tcp_peer **peers; /* by rank; NULL: not connected to */
    int *connected;              /* ranks that are, in order */
    int connected_count;
    /* few enough to read their sockets without asking epoll, which costs the sender when it is told of them */
    bool direct;
    int epoll_fd, wake_fd;
    atomic_int woken;
    unsigned polls, awake; /* progress() was called, and since somebody slept */
    _Atomic bool watched;  /* epoll is told of all connections */
    _Atomic bool sleepy;   /* and is to be: somebody would sleep */
    atomic_int sleepers;
    _Atomic bool has_events; /* epoll has something to say */
    _Atomic bool due;        /* done() of a frame is: for a sleeper, who may be another thread */
    bool prune;              /* somebody was lost */
    bool closing;
    struct tti_outgoing *finished, **finished_end; /* done() is due; `sent` holds the status */
    struct tti_outgoing *sending;                  /* send() is busy with it: done() will not be due */
    struct tti_tcp *next_endpoint;                 /* of the process */
    /* only until it is connected */
    struct tti_proof_job proof;
    struct tti_door *door;
    struct tti_address_list addresses;
    struct tti_tcp_link *links;
    int link_count;
};

/* tcp_send.c */
bool tti_tcp_send(struct tti_transport *transport, int peer, struct tti_outgoing *outgoing);
void tti_tcp_keep(struct tti_transport *transport, int peer, struct tti_outgoing *outgoing, const void *copy);
/* Gives what is queued to the system; true if it took anything. */
bool tti_tcp_push(struct tti_tcp *tcp, struct tti_tcp_peer *peer);
void tti_tcp_drop_queue(struct tti_tcp *tcp, struct tti_tcp_peer *peer, tutti_status status);
void tti_tcp_say_goodbye(struct tti_tcp *tcp, struct tti_tcp_peer *peer);

/* tcp_receive.c: reads what is there; true if anything was. */
bool tti_tcp_receive(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream);

/* tcp.c */
void tti_tcp_lose(struct tti_tcp *tcp, struct tti_tcp_peer *peer, int system_errno, const char *why);
/* Takes over a peer's connections, also on failure. */
tutti_status tti_tcp_adopt(struct tti_tcp *tcp, struct tti_tcp_link *link, tutti_error *error);
/* Tells epoll what to look for on a connection. */
void tti_tcp_watch(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream);
void tti_tcp_unwatch(struct tti_tcp *tcp, struct tti_tcp_stream *stream);
void tti_tcp_free(struct tti_tcp *tcp);
/* tcp_fork.c: whose connections end with this process, whatever it has forked. */
void tti_tcp_enlist(struct tti_tcp *tcp);
void tti_tcp_delist(struct tti_tcp *tcp); /* one that is not there is ignored */
/* Closes it unless it is -1, which it is after this. */
void tti_tcp_close(int *fd);
/* tcp_connect.c */
void tti_tcp_free_links(struct tti_tcp *tcp);
extern const struct tti_transport_ops tti_tcp_ops;

#endif
