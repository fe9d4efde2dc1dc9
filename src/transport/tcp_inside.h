/* SPDX-License-Identifier: Apache-2.0
 *
 * The internal structs of a tcp endpoint; for tcp*.c only.
 */
#ifndef TTI_TRANSPORT_TCP_INSIDE_H
#define TTI_TRANSPORT_TCP_INSIDE_H

#include "transport/door.h"
#include "transport/tcp.h"
#include "transport/tcp_head.h"
#include <stdatomic.h>

#define TTI_TCP_WAKE UINT64_MAX /* epoll's mark for wake_fd, in place of a connection */

/* One connection. It sends one piece at a time: a head and some data. */
struct tti_tcp_stream {
    int fd;
    uint8_t index;
    bool blocked;       /* the system takes no more at the moment */
    bool ended;         /* nothing more comes on it; if it is the first one, the peer is lost */
    bool paused;        /* its next head must wait for another connection */
    bool near;          /* within a host */
    uint32_t head_left; /* bytes of the head that were not sent yet */
    struct tti_tcp_head head;
    const char *data; /* data that were not sent yet */
    uint64_t data_left;
    struct tti_outgoing *of; /* the frame of the piece; NULL: none, or a goodbye */
    /* for receiving: */
    unsigned char *buffer;
    uint32_t buffer_bytes, start, end;
    char *into;     /* where the data go; NULL: they are dropped */
    uint64_t wants; /* data of the piece that have not come */
};

struct tti_tcp_peer {
    int rank;
    bool connected; /* false: the peer is lost */
    int stream_count;
    struct tti_tcp_stream streams[TTI_TCP_STREAMS];
    int live_fd; /* the connection that carries nothing; -1: none */
    char host[TTI_TCP_HOST];
    /* for sending: */
    struct tti_outgoing *first, *last; /* frames that were not sent completely */
    struct tti_outgoing *next;         /* the first of them that was not given to connections completely */
    uint64_t given;                    /* bytes of it that were given */
    bool announced;                    /* its head was given */
    uint64_t send_number;
    int send_errno; /* sending failed: reading will find the reason */
    /* for receiving: */
    uint64_t number; /* the next frame, or the one being received */
    bool striped;
    bool goodbye;
    bool parting;   /* goodbye was sent to it */
    bool resume;    /* a connection that was paused has bytes in its buffer */
    uint64_t come;  /* bytes of a striped frame that have come */
    uint64_t asked; /* bytes of chunks that have begun */
    char *into;
    void *cookie;
    struct tti_frame_head frame;
};

/* One peer while the endpoint connects. */
struct tti_tcp_link {
    int rank;
    bool near;                  /* on this host, in this network */
    int stream_count, fd_count; /* the connection that carries nothing comes after the others */
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
    struct tti_tcp_peer **peers; /* by rank; NULL: not connected */
    int *connected;              /* the connected ranks, in order */
    int connected_count;
    /* there are few enough peers to read their sockets without asking epoll, which costs senders time while it
     * watches */
    bool direct;
    int epoll_fd, wake_fd;
    atomic_int woken;
    unsigned polls, awake; /* calls of progress(), in all and since a thread slept */
    _Atomic bool watched;  /* epoll watches all connections */
    _Atomic bool sleepy;   /* epoll should watch them: a thread wants to sleep */
    atomic_int sleepers;
    _Atomic bool has_events; /* epoll has events */
    _Atomic bool due;        /* done() of a frame is due: for a sleeper, which may be another thread */
    bool prune;              /* a peer was lost */
    bool closing;
    struct tti_outgoing *finished, **finished_end; /* frames whose done() is due; `sent` holds the status */
    struct tti_outgoing *sending;                  /* the frame that send() sends: its done() will not be called */
    struct tti_tcp *next_endpoint;                 /* the next endpoint of the process */
    /* the rest is used only until it is connected */
    struct tti_proof_job proof;
    struct tti_door *door;
    struct tti_address_list addresses;
    struct tti_tcp_link *links;
    int link_count;
};

/* tcp_send.c */
bool tti_tcp_send(struct tti_transport *transport, int peer, struct tti_outgoing *outgoing);
void tti_tcp_keep(struct tti_transport *transport, int peer, struct tti_outgoing *outgoing, const void *copy);
/* Gives queued pieces to the system; returns true if it took anything. */
bool tti_tcp_push(struct tti_tcp *tcp, struct tti_tcp_peer *peer);
void tti_tcp_drop_queue(struct tti_tcp *tcp, struct tti_tcp_peer *peer, tutti_status status);
void tti_tcp_say_goodbye(struct tti_tcp *tcp, struct tti_tcp_peer *peer);

/* tcp_receive.c. Reads what is there; returns true if anything was. */
bool tti_tcp_receive(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream);

/* tcp.c */
void tti_tcp_lose(struct tti_tcp *tcp, struct tti_tcp_peer *peer, int system_errno, const char *why);
/* Takes over a peer's connections, after a failure, too. */
tutti_status tti_tcp_adopt(struct tti_tcp *tcp, struct tti_tcp_link *link, tutti_error *error);
/* Tells epoll which events of a connection to watch. */
void tti_tcp_watch(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream);
void tti_tcp_unwatch(struct tti_tcp *tcp, struct tti_tcp_stream *stream);
void tti_tcp_free(struct tti_tcp *tcp);
/* tcp_fork.c. Lists endpoints whose connections must end with this process, whatever it has forked. */
void tti_tcp_enlist(struct tti_tcp *tcp);
void tti_tcp_delist(struct tti_tcp *tcp); /* ignores one that is not on the list */
/* Closes the descriptor unless it is -1, and sets it to -1. */
void tti_tcp_close(int *fd);
/* tcp_connect.c */
void tti_tcp_free_links(struct tti_tcp *tcp);
extern const struct tti_transport_ops tti_tcp_ops;

#endif
