/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets between hosts: which addresses this host has, listening, connecting, names to addresses and addresses to text.
 * All descriptors are non-blocking and close-on-exec.
 */
#ifndef TTI_TRANSPORT_SOCKET_H
#define TTI_TRANSPORT_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

enum { TTI_ADDRESSES = 64, TTI_ADDRESS_TEXT = 64 };

/* Travels as it lies; the port little-endian. */
struct tti_address {
    uint8_t family; /* 4 or 6 */
    uint8_t loopback;
    uint16_t port;
    unsigned char ip[16]; /* 4 of them for IPv4 */
};

struct tti_address_list {
    int count;
    struct tti_address at[TTI_ADDRESSES];
};

/* "10.0.0.1:5000" or "[fd00::1]:5000"; returns `text`. */
const char *tti_address_text(const struct tti_address *address, char text[TTI_ADDRESS_TEXT]);

/* The addresses of this host that others may use (link-local ones are left out), ports 0; those of interfaces with a cable
 * first, loopback last. Where there are more than TTI_ADDRESSES, those at the end are left out, and a warning says so.
 * `interface` (NULL or "": all) is a name or an address; one that is not there is an error that lists those that are. */
tutti_status tti_addresses_here(const char *interface, struct tti_address_list *list, tutti_error *error);

/* "host:port", "[::1]:port", several of them with commas between: all their addresses. */
tutti_status tti_addresses_of(const char *text, struct tti_address_list *list, tutti_error *error);
/* Whether all of them are written as addresses of this host that no other one can reach: "localhost", "127.…", "::1". A name
 * that this host alone takes for one of these is none: others may know it by an address of the network. */
bool tti_addresses_are_here(const char *text);
/* The same of a host without a port. */
bool tti_host_is_here(const char *host);
/* The port at the end of "host:port"; false when there is none. */
bool tti_port_of(const char *text, uint16_t *port);
/* "LOW-HIGH" or "PORT"; "": 0-0, which is any port. */
tutti_status tti_ports_parse(const char *text, uint16_t *low, uint16_t *high, tutti_error *error);

/* Listens at the first free port of the range (0-0: any); address->port gets it. A zero ip is any address of that family.
 * -1 with errno. */
int tti_listen(struct tti_address *address, uint16_t low, uint16_t high);
int tti_accept(int listener, struct tti_address *from);
/* Begins to connect; it can be written to when it is connected. -1 with errno. */
int tti_connect(const struct tti_address *address);
/* 0 once connected, EINPROGRESS, or why not. */
int tti_connect_result(int fd);
/* Text of this host's name; never empty. */
void tti_host_name(char *name, size_t bytes);
/* A number that all processes of a running system share, whatever their namespaces. */
uint64_t tti_system_here(void);
/* A number that all processes share which see the same network: system and network namespace. */
uint64_t tti_network_here(void);
/* For poll: milliseconds until the deadline, rounded up, at most a second. */
int tti_poll_ms(int64_t deadline_ns);
/* Until one of these events of poll's. 0, ETIMEDOUT, or an errno. */
int tti_poll_until(int fd, short events, int64_t deadline_ns);

#endif
