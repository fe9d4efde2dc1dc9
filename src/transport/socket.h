/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets between hosts: this host's addresses, listening, connecting, resolving names, and addresses as text. All
 * descriptors are non-blocking and close-on-exec.
 */
#ifndef TTI_TRANSPORT_SOCKET_H
#define TTI_TRANSPORT_SOCKET_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

enum { TTI_ADDRESSES = 64, TTI_ADDRESS_TEXT = 64 };

/* Sent as it is in memory; the port is little-endian. */
struct tti_address {
    uint8_t family; /* 4 or 6 */
    uint8_t loopback;
    uint16_t port;
    unsigned char ip[16]; /* 4 bytes of it for IPv4 */
};

struct tti_address_list {
    int count;
    struct tti_address at[TTI_ADDRESSES];
};

/* Writes "10.0.0.1:5000" or "[fd00::1]:5000"; returns `text`. */
const char *tti_address_text(const struct tti_address *address, char text[TTI_ADDRESS_TEXT]);

/* Lists the addresses of this host that others may use (without link-local ones), ports 0; those of interfaces with a
 * cable first, loopback last. If there are more than TTI_ADDRESSES, the last ones are left out with a warning.
 * `interface` (NULL or "": all) is a name or an address; the error for one that does not exist lists those that do. */
tutti_status tti_addresses_here(const char *interface, struct tti_address_list *list, tutti_error *error);

/* Resolves "host:port", "[::1]:port", or several of them with commas between: returns all their addresses. */
tutti_status tti_addresses_of(const char *text, struct tti_address_list *list, tutti_error *error);
/* Returns true if all of them are written as addresses of this host that no other host can reach: "localhost", "127.…",
 * "::1". A name that only this host resolves to one of these does not count: others may know it by an address of the
 * network. */
bool tti_addresses_are_here(const char *text);
/* Does the same for a host without a port. */
bool tti_host_is_here(const char *host);
/* Reads the port at the end of "host:port"; returns false if there is none. */
bool tti_port_of(const char *text, uint16_t *port);
/* Reads "LOW-HIGH" or "PORT"; "": 0-0, which is any port. */
tutti_status tti_ports_parse(const char *text, uint16_t *low, uint16_t *high, tutti_error *error);

/* Listens at the first free port of the range (0-0: any); address->port gets it. A zero ip is any address of that
 * family. Returns -1 with errno after a failure. */
int tti_listen(struct tti_address *address, uint16_t low, uint16_t high);
int tti_accept(int listener, struct tti_address *from);
/* Begins to connect; the socket is writable when it is connected. Returns -1 with errno after a failure. */
int tti_connect(const struct tti_address *address);
/* Returns 0 once connected, EINPROGRESS, or the errno of the failure. */
int tti_connect_result(int fd);
/* Writes this host's name; never empty. */
void tti_host_name(char *name, size_t bytes);
/* Returns a number that is the same for all processes of a running system, whatever their namespaces. */
uint64_t tti_system_here(void);
/* Returns a number that is the same for all processes with the same network: system and network namespace. */
uint64_t tti_network_here(void);
/* For poll: returns the milliseconds until the deadline, rounded up, at most a second. */
int tti_poll_ms(int64_t deadline_ns);
/* Do what poll does; in a simulated run simulated time passes meanwhile. */
int tti_poll(struct pollfd *set, nfds_t count, int timeout_ms);
int tti_poll_ns(struct pollfd *set, nfds_t count, int64_t timeout_ns);
/* Waits for one of these events of poll. Returns 0, ETIMEDOUT, or an errno. */
int tti_poll_until(int fd, short events, int64_t deadline_ns);

#endif
