/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of what happens where nobody listens, while other programs open ports.
 */
#ifndef TEST_PORT_H
#define TEST_PORT_H

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

/* A port that is taken, so that no other program comes to listen there, and where nobody listens. */
static inline int take_port(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&address, length) != 0) abort();
    getsockname(fd, (struct sockaddr *)&address, &length);
    *port = ntohs(address.sin_port);
    return fd;
}

#endif
