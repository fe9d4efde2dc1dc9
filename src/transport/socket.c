/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/socket.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/sim.h"
#include "base/status.h"
#include "transport/sim_socket.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BACKLOG = 4096, HOST_BYTES = 256 };

union any_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage storage;
};

/* ---- Addresses ------------------------------------------------------------------------------------------------- */

static socklen_t to_system(const struct tti_address *address, union any_address *out)
{
    memset(out, 0, sizeof *out);
    if (address->family == 4) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = htons(address->port);
        memcpy(&out->v4.sin_addr, address->ip, 4);
        return sizeof out->v4;
    }
    out->v6.sin6_family = AF_INET6;
    out->v6.sin6_port = htons(address->port);
    memcpy(&out->v6.sin6_addr, address->ip, 16);
    return sizeof out->v6;
}

/* Returns false for other families than the two. */
static bool from_system(const struct sockaddr *in, struct tti_address *address)
{
    memset(address, 0, sizeof *address);
    if (in == NULL) return false;
    if (in->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)in;
        address->family = 4;
        address->port = ntohs(v4->sin_port);
        memcpy(address->ip, &v4->sin_addr, 4);
        address->loopback = address->ip[0] == 127;
        return true;
    }
    if (in->sa_family != AF_INET6) return false;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)in;
    address->family = 6;
    address->port = ntohs(v6->sin6_port);
    memcpy(address->ip, &v6->sin6_addr, 16);
    address->loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) != 0;
    return true;
}

const char *tti_address_text(const struct tti_address *address, char text[TTI_ADDRESS_TEXT])
{
    char ip[INET6_ADDRSTRLEN] = "?";
    inet_ntop(address->family == 4 ? AF_INET : AF_INET6, address->ip, ip, sizeof ip);
    snprintf(text, TTI_ADDRESS_TEXT, address->family == 4 ? "%s:%u" : "[%s]:%u", ip, (unsigned)address->port);
    return text;
}

/* Adds an address; returns false if there is no room for it. */
static bool add_address(struct tti_address_list *list, const struct tti_address *address)
{
    for (int i = 0; i < list->count; i++)
        if (memcmp(&list->at[i], address, sizeof *address) == 0) return true;
    if (list->count == TTI_ADDRESSES) return false;
    list->at[list->count++] = *address;
    return true;
}

static bool is_link_local(const struct tti_address *address)
{
    return address->family == 6 && address->ip[0] == 0xfe && (address->ip[1] & 0xc0) == 0x80;
}

static bool is_usable(const struct ifaddrs *one, const char *interface, struct tti_address *address)
{
    if ((one->ifa_flags & IFF_UP) == 0 || !from_system(one->ifa_addr, address) || is_link_local(address)) return false;
    if (interface == NULL || interface[0] == '\0') return true;
    char ip[INET6_ADDRSTRLEN];
    inet_ntop(one->ifa_addr->sa_family, address->ip, ip, sizeof ip);
    return strcmp(interface, one->ifa_name) == 0 || strcmp(interface, ip) == 0;
}

/* Writes the interfaces that exist: "lo 127.0.0.1, eth0 10.0.0.2". */
static void list_interfaces(const struct ifaddrs *all, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (const struct ifaddrs *one = all; one != NULL && used < bytes; one = one->ifa_next) {
        struct tti_address address;
        char ip[INET6_ADDRSTRLEN];
        if (!is_usable(one, NULL, &address)) continue;
        inet_ntop(one->ifa_addr->sa_family, address.ip, ip, sizeof ip);
        int wrote = snprintf(text + used, bytes - used, "%s%s %s", used > 0 ? ", " : "", one->ifa_name, ip);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
}

enum preference { WITH_CABLE, WITHOUT_CABLE, LOOPBACK, PREFERENCES };

static enum preference preference_of(const struct ifaddrs *one, const struct tti_address *address)
{
    if (address->loopback) return LOOPBACK;
    return (one->ifa_flags & IFF_RUNNING) != 0 ? WITH_CABLE : WITHOUT_CABLE;
}

static void list_addresses(const struct ifaddrs *all, const char *interface, struct tti_address_list *list)
{
    int left_out = 0;
    list->count = 0;
    for (enum preference wanted = 0; wanted < PREFERENCES; wanted++) {
        for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
            struct tti_address address;
            if (is_usable(one, interface, &address) && preference_of(one, &address) == wanted)
                left_out += !add_address(list, &address);
        }
    }
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (left_out > 0 && !atomic_flag_test_and_set_explicit(&told, memory_order_relaxed))
        tti_log(TUTTI_WARN,
                "this host has %d addresses, and others are told of %d; if they cannot reach it by those, choose an "
                "interface (TUTTI_INTERFACE)",
                TTI_ADDRESSES + left_out, TTI_ADDRESSES);
}

tutti_status tti_addresses_here(const char *interface, struct tti_address_list *list, tutti_error *error)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "this host's network interfaces cannot be listed");
    list_addresses(all, interface, list);
    char there[300];
    list_interfaces(all, there, sizeof there);
    freeifaddrs(all);
    if (list->count > 0) return TUTTI_OK;
    if (interface == NULL || interface[0] == '\0')
        return tti_error_set(error, TUTTI_ERR_SYSTEM, 0, "this host has no network interface that is up");
    return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                         "the option interface: \"%.64s\" is no network interface of this host that is up and has an "
                         "address; there are: %s",
                         interface, there);
}

/* ---- Names and ports ------------------------------------------------------------------------------------------- */

static bool parse_port(const char *text, size_t length, uint16_t *port)
{
    unsigned long value = 0;
    if (length == 0 || length > 5) return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        value = value * 10 + (unsigned long)(text[i] - '0');
    }
    *port = (uint16_t)value;
    return value <= 65535;
}

bool tti_port_of(const char *text, uint16_t *port)
{
    const char *colon = strrchr(text, ':');
    return colon != NULL && parse_port(colon + 1, strlen(colon + 1), port);
}

tutti_status tti_ports_parse(const char *text, uint16_t *low, uint16_t *high, tutti_error *error)
{
    *low = *high = 0;
    if (text == NULL || text[0] == '\0') return TUTTI_OK;
    const char *dash = strchr(text, '-');
    size_t first = dash == NULL ? strlen(text) : (size_t)(dash - text);
    bool good = parse_port(text, first, low);
    *high = *low;
    if (good && dash != NULL) good = parse_port(dash + 1, strlen(dash + 1), high);
    if (good && *low > 0 && *low <= *high) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                         "the option ports is \"%.64s\"; give LOW-HIGH, such as 40000-40999, within 1 to 65535", text);
}

static tutti_status resolve(const char *host, uint16_t port, struct tti_address_list *list, tutti_error *error)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC}, *found = NULL;
    int why = getaddrinfo(host, NULL, &hints, &found);
    if (why != 0)
        return tti_error_set(error, TUTTI_ERR_JOIN, why == EAI_SYSTEM ? errno : 0,
                             "the host name \"%.128s\" does not resolve to an address: %s", host, gai_strerror(why));
    for (const struct addrinfo *one = found; one != NULL; one = one->ai_next) {
        struct tti_address address;
        if (!from_system(one->ai_addr, &address)) continue;
        address.port = port;
        (void)add_address(list, &address);
    }
    freeaddrinfo(found);
    return TUTTI_OK;
}

/* Cuts "host:port" or "[address]:port" into `host`, and returns its name without brackets; NULL: it is neither. */
static const char *cut_part(const char *part, size_t length, char host[HOST_BYTES], uint16_t *port)
{
    snprintf(host, HOST_BYTES, "%.*s", (int)length, part);
    char *colon = strrchr(host, ':');
    if (length >= HOST_BYTES || colon == NULL || colon == host || !tti_port_of(host, port)) return NULL;
    *colon = '\0';
    bool bracketed = host[0] == '[' && colon[-1] == ']';
    if (bracketed) colon[-1] = '\0';
    return host + bracketed;
}

static tutti_status resolve_part(const char *part, size_t length, struct tti_address_list *list, tutti_error *error)
{
    char host[HOST_BYTES];
    uint16_t port = 0;
    const char *name = cut_part(part, length, host, &port);
    if (name != NULL) return resolve(name, port, list, error);
    return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                         "\"%.128s\" is no address to meet at; give HOST:PORT, or [ADDRESS]:PORT for IPv6", host);
}

bool tti_host_is_here(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (strcmp(host, "localhost") == 0) return true;
    if (inet_pton(AF_INET, host, &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool tti_addresses_are_here(const char *text)
{
    if (text == NULL || *text == '\0') return false;
    for (size_t length; *text != '\0'; text += length + (text[length] == ',')) {
        char host[HOST_BYTES];
        uint16_t port;
        length = strcspn(text, ",");
        const char *name = cut_part(text, length, host, &port);
        if (name == NULL || !tti_host_is_here(name)) return false;
    }
    return true;
}

tutti_status tti_addresses_of(const char *text, struct tti_address_list *list, tutti_error *error)
{
    list->count = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        TTI_TRY(resolve_part(text, length, list, error));
        text += length + (text[length] == ',');
    }
    if (list->count > 0) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_OPTION, 0, "there is no address to meet at; give HOST:PORT");
}

void tti_host_name(char *name, size_t bytes)
{
    char whole[256] = "";
    bool known = gethostname(whole, sizeof whole - 1) == 0 && whole[0] != '\0';
    snprintf(name, bytes, "%s", known ? whole : "unnamed");
}

/* Kept after it was read: it is compared several times while joining, and must not change when descriptors run out. */
uint64_t tti_system_here(void)
{
    static atomic_ullong known; /* 0: not known yet */
    uint64_t hash = atomic_load_explicit(&known, memory_order_relaxed);
    char boot[64];
    if (hash != 0) return hash;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, boot, sizeof boot);
    if (fd >= 0) close(fd);
    hash = tti_hash_bytes(TTI_HASH_START, boot, got > 0 ? (size_t)got : 0);
    if (got > 0) atomic_store_explicit(&known, hash, memory_order_relaxed);
    return hash;
}

uint64_t tti_network_here(void)
{
    uint64_t hash = tti_system_here();
    struct stat space;
    if (stat("/proc/self/ns/net", &space) != 0) return hash;
    hash = tti_hash_bytes(hash, &space.st_ino, sizeof space.st_ino);
    return tti_hash_bytes(hash, &space.st_dev, sizeof space.st_dev);
}

int tti_poll_ms(int64_t deadline_ns)
{
    int64_t left = (deadline_ns - tti_now_ns() + 999999) / 1000000;
    return left < 0 ? 0 : left > 1000 ? 1000 : (int)left;
}

int tti_poll_ns(struct pollfd *set, nfds_t count, int64_t timeout_ns)
{
    struct timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    if (tti_sim != NULL) return tti_sim_poll(set, count, timeout_ns);
    return ppoll(set, count, &timeout, NULL);
}

int tti_poll(struct pollfd *set, nfds_t count, int timeout_ms)
{
    return tti_poll_ns(set, count, (int64_t)timeout_ms * 1000000);
}

int tti_poll_until(int fd, short events, int64_t deadline_ns)
{
    struct pollfd polled = {.fd = fd, .events = events};
    for (;;) {
        int left_ms = tti_poll_ms(deadline_ns), ready = tti_poll(&polled, 1, left_ms);
        if (ready > 0) return 0;
        if (ready < 0 && errno != EINTR) return errno;
        if (left_ms == 0) return ETIMEDOUT;
    }
}

/* ---- Sockets --------------------------------------------------------------------------------------------------- */

static int close_failed(int fd)
{
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int open_socket(const struct tti_address *address)
{
    int one = 1;
    int fd = socket(address->family == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static int listen_at(struct tti_address *address)
{
    if (tti_sim != NULL) return tti_sim_listen(address);
    union any_address system;
    socklen_t length = to_system(address, &system);
    int one = 1, fd = open_socket(address);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (address->family == 6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, &system.any, length) != 0 || listen(fd, BACKLOG) != 0) return close_failed(fd);
    struct tti_address read_back;
    length = sizeof system;
    if (getsockname(fd, &system.any, &length) != 0 || !from_system(&system.any, &read_back)) return close_failed(fd);
    address->port = read_back.port;
    return fd;
}

/* Two processes may be bound to one port until one of them listens; so only listening shows that a port is free, and
 * each try takes a new socket. */
int tti_listen(struct tti_address *address, uint16_t low, uint16_t high)
{
    for (unsigned port = low; port <= high; port++) {
        address->port = (uint16_t)port;
        int fd = listen_at(address);
        if (fd >= 0 || errno != EADDRINUSE) return fd;
    }
    return -1;
}

int tti_accept(int listener, struct tti_address *from)
{
    union any_address system = {.any = {0}};
    socklen_t length = sizeof system;
    int one = 1, fd;
    do fd = accept4(listener, &system.any, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0) return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!from_system(&system.any, from)) memset(from, 0, sizeof *from);
    return tti_sim_own_socket(fd);
}

int tti_connect(const struct tti_address *address)
{
    if (tti_sim != NULL) return tti_sim_connect(address);
    union any_address system;
    socklen_t length = to_system(address, &system);
    int fd = open_socket(address);
    if (fd < 0) return -1;
    if (connect(fd, &system.any, length) == 0 || errno == EINPROGRESS || errno == EINTR) return fd;
    return close_failed(fd);
}

int tti_connect_result(int fd)
{
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    int why = 0;
    socklen_t length = sizeof why;
    if (poll(&polled, 1, 0) <= 0) return EINPROGRESS;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &length) != 0) return errno;
    return why;
}
