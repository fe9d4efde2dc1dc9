/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that a rank forks have copies of its descriptors, and while one of them keeps a copy open, the rank's death
 * ends no connection: no peer would notice it. So every fork closes the copies in the child.
 *
 * Invariant: the list holds endpoints whose connections are made; a descriptor is taken out of its endpoint before it
 * is closed, so that the child closes none that belongs to another file by then.
 */
#include "transport/tcp_inside.h"

#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct tti_tcp *endpoints;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void tti_tcp_close(int *fd)
{
    int closed = *fd;
    *fd = -1;
    if (closed >= 0) close(closed);
}

static void before(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void close_copies(struct tti_tcp *tcp)
{
    for (int rank = 0; rank < tcp->base.size; rank++) {
        struct tti_tcp_peer *peer = tcp->peers[rank];
        if (peer == NULL) continue;
        for (int i = 0; i < peer->stream_count; i++) tti_tcp_close(&peer->streams[i].fd);
        tti_tcp_close(&peer->live_fd);
    }
    tti_tcp_close(&tcp->epoll_fd);
    tti_tcp_close(&tcp->wake_fd);
}

static void in_child(void)
{
    for (struct tti_tcp *tcp = endpoints; tcp != NULL; tcp = tcp->next_endpoint) close_copies(tcp);
    endpoints = NULL;
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    pthread_atfork(before, in_parent, in_child);
}

void tti_tcp_enlist(struct tti_tcp *tcp)
{
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    tcp->next_endpoint = endpoints;
    endpoints = tcp;
    pthread_mutex_unlock(&lock);
}

void tti_tcp_delist(struct tti_tcp *tcp)
{
    pthread_mutex_lock(&lock);
    struct tti_tcp **link = &endpoints;
    while (*link != NULL && *link != tcp) link = &(*link)->next_endpoint;
    if (*link != NULL) *link = tcp->next_endpoint;
    pthread_mutex_unlock(&lock);
}
