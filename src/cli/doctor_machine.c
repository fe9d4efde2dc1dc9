/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti doctor: the machine, and what the system allows.
 */
#include "cli/cli.h"
#include "cli/doctor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <linux/membarrier.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Version, cores, memory ---------------------------------------------------------------------------------------- */

void doctor_version(struct doctor *doctor)
{
    struct utsname system = {0};
    (void)uname(&system);
    doctor_add(doctor, FOUND_GOOD, "version", NULL, "tutti %d.%d.%d on %s %s, %s", TUTTI_VERSION_MAJOR,
               TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH, system.sysname, system.release, system.machine);
}

/* Returns the first number of a file, or -1, also if it says "max". */
static int64_t number_in(const char *path, int64_t *second)
{
    int64_t number = -1, other = -1;
    FILE *file = fopen(path, "re");
    if (file == NULL) return -1;
    if (fscanf(file, "%" SCNd64 " %" SCNd64, &number, &other) < 1) number = -1;
    (void)fclose(file);
    if (second != NULL) *second = other;
    return number;
}

void doctor_cores(struct doctor *doctor)
{
    cpu_set_t set;
    int64_t period = 0, quota = number_in("/sys/fs/cgroup/cpu.max", &period);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int mine = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)online;
    const char *kernels = tutti_kernels();
    doctor_add(doctor, FOUND_GOOD, "cores", NULL, "%d of %ld that are online; kernels %s", mine, online, kernels);
    if (quota > 0 && period > 0 && quota < mine * period)
        doctor_add(doctor, FOUND_WARNING, "cores", "raise the limit of the container or cgroup, or use fewer ranks",
                   "the cgroup allows %.1f cores' worth of time (cpu.max): ranks that wait take it from the others",
                   (double)quota / (double)period);
}

static int64_t memory_row(const char *name)
{
    char line[256];
    int64_t kib = -1;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        size_t length = strlen(name);
        if (strncmp(line, name, length) != 0 || line[length] != ':') continue;
        kib = strtoll(line + length + 1, NULL, 10);
        break;
    }
    if (file != NULL) (void)fclose(file);
    return kib;
}

void doctor_memory(struct doctor *doctor)
{
    const double gib = 1024.0 * 1024.0 * 1024.0;
    int64_t total = memory_row("MemTotal"), left = memory_row("MemAvailable");
    int64_t limit = number_in("/sys/fs/cgroup/memory.max", NULL);
    if (total < 0)
        doctor_add(doctor, FOUND_WARNING, "memory", "mount /proc", "/proc/meminfo cannot be read: %s", strerror(errno));
    else
        doctor_add(doctor, FOUND_GOOD, "memory", NULL, "%.1f GiB, %.1f of them free or easily freed",
                   (double)total * 1024 / gib, (double)left * 1024 / gib);
    if (limit > 0)
        doctor_add(doctor, FOUND_NOTE, "memory", NULL, "the cgroup allows %.1f GiB (memory.max)", (double)limit / gib);
}

/* ---- Limits -------------------------------------------------------------------------------------------------------- */

static void text_of(rlim_t value, char text[32])
{
    if (value == RLIM_INFINITY)
        (void)snprintf(text, 32, "unlimited");
    else
        (void)snprintf(text, 32, "%llu", (unsigned long long)value);
}

static void check_descriptors(struct doctor *doctor)
{
    enum { ENOUGH = 1024, SPARE = 32 };
    struct rlimit limit = {0, 0};
    char soft[32], hard[32], fix[64];
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    text_of(limit.rlim_cur, soft);
    text_of(limit.rlim_max, hard);
    (void)snprintf(fix, sizeof fix, "ulimit -n %s", hard);
    rlim_t ranks = limit.rlim_cur > SPARE ? (limit.rlim_cur - SPARE) / 2 : 0;
    bool raise = limit.rlim_cur < ENOUGH && limit.rlim_max > limit.rlim_cur;
    if (ranks < 2)
        doctor_add(doctor, FOUND_BAD, "descriptors", fix, "%s: too few for two processes to join", soft);
    else
        doctor_add(doctor, raise ? FOUND_WARNING : FOUND_GOOD, "descriptors", raise ? fix : NULL,
                   "%s (hard limit %s): enough for about %llu processes of one job on this host", soft, hard,
                   (unsigned long long)(ranks > 65536 ? 65536 : ranks));
}

void doctor_limits(struct doctor *doctor)
{
    struct rlimit processes = {0, 0}, locked = {0, 0};
    char text[32];
    check_descriptors(doctor);
    (void)getrlimit(RLIMIT_NPROC, &processes);
    text_of(processes.rlim_cur, text);
    doctor_add(doctor, FOUND_GOOD, "processes", NULL, "%s (ulimit -u)%s", text,
               geteuid() == 0 ? "; does not hold for root" : "");
    (void)getrlimit(RLIMIT_MEMLOCK, &locked);
    text_of(locked.rlim_cur, text);
    doctor_add(doctor, FOUND_GOOD, "memlock", NULL, "%s bytes (ulimit -l); tcp and shared memory need none", text);
}

/* ---- What the kernel lets do --------------------------------------------------------------------------------------- */

/* Checks that one child may read another's memory, as ranks do. Returns 0, or an errno. */
static int try_attach(void)
{
    static int word = 4711;
    pid_t reader, owner = fork();
    int status = -1;
    if (owner == 0) {
        (void)pause();
        _exit(0);
    }
    if (owner < 0) return errno;
    reader = fork();
    if (reader == 0) {
        int copy = 0;
        struct iovec to = {&copy, sizeof copy}, from = {&word, sizeof word};
        bool read = process_vm_readv(owner, &to, 1, &from, 1, 0) == (ssize_t)sizeof copy && copy == word;
        _exit(read ? 0 : errno);
    }
    if (reader > 0) (void)waitpid(reader, &status, 0);
    (void)kill(owner, SIGKILL);
    (void)waitpid(owner, NULL, 0);
    return reader > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : EAGAIN;
}

static void check_attach(struct doctor *doctor)
{
    int64_t scope = number_in("/proc/sys/kernel/yama/ptrace_scope", NULL);
    char where[64] = "no ptrace_scope";
    int why = try_attach();
    if (scope >= 0) (void)snprintf(where, sizeof where, "ptrace_scope %d", (int)scope);
    if (why == EAGAIN)
        doctor_add(
            doctor, FOUND_WARNING, "attach", "raise the limit of processes (ulimit -u)",
            "whether processes can read each other's private buffers was not tried: no process could be started");
    else if (why == 0)
        doctor_add(doctor, FOUND_GOOD, "attach", NULL, "processes can read each other's private buffers (%s)", where);
    else
        doctor_add(doctor, FOUND_WARNING, "attach",
                   "sysctl kernel.yama.ptrace_scope=0, or in a container --cap-add SYS_PTRACE; or use tutti_alloc",
                   "processes cannot read each other's private buffers: %s (%s); these are copied twice, and on "
                   "several hosts go by tcp",
                   strerror(why), where);
}

static void check_membarrier(struct doctor *doctor)
{
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    bool there = commands >= 0 && (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0;
    doctor_add(doctor, there ? FOUND_GOOD : FOUND_WARNING, "membarrier",
               there ? NULL
                     : "Linux 4.16 or later, and no "
                       "seccomp filter against it",
               there ? "there" : "not there: every publication costs a fence");
}

/* Reports what is missing and prevents processes from joining. */
static void check_needed(struct doctor *doctor)
{
    int memory = memfd_create("tutti-doctor", MFD_CLOEXEC), process = (int)syscall(SYS_pidfd_open, getpid(), 0);
    int why = errno;
    if (memory < 0)
        doctor_add(doctor, FOUND_BAD, "memfd", "allow memfd_create in the container's seccomp filter",
                   "shared memory cannot be made: %s", strerror(why));
    if (process < 0)
        doctor_add(doctor, FOUND_BAD, "pidfd", "Linux 5.3 or later, and no seccomp filter against pidfd_open",
                   "deaths of processes cannot be seen: %s", strerror(why));
    if (memory >= 0 && process >= 0)
        doctor_add(doctor, FOUND_GOOD, "kernel", NULL, "memfd and pidfd are there; nothing is kept in /dev/shm");
    if (memory >= 0) (void)close(memory);
    if (process >= 0) (void)close(process);
}

void doctor_kernel(struct doctor *doctor)
{
    check_needed(doctor);
    check_attach(doctor);
    check_membarrier(doctor);
}

/* ---- Interfaces ---------------------------------------------------------------------------------------------------- */

static bool address_text(const struct ifaddrs *at, char *text, size_t bytes)
{
    if (at->ifa_addr == NULL) return false;
    if (at->ifa_addr->sa_family == AF_INET)
        return inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)at->ifa_addr)->sin_addr, text, (socklen_t)bytes) !=
               NULL;
    if (at->ifa_addr->sa_family == AF_INET6)
        return inet_ntop(AF_INET6, &((struct sockaddr_in6 *)(void *)at->ifa_addr)->sin6_addr, text, (socklen_t)bytes) !=
               NULL;
    return false;
}

/* Lists all addresses of one interface; returns true if there is one. */
static bool list_addresses(const struct ifaddrs *list, const char *name, char *text, size_t bytes)
{
    size_t used = 0;
    char one[INET6_ADDRSTRLEN];
    text[0] = '\0';
    for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
        if (strcmp(at->ifa_name, name) != 0 || !address_text(at, one, sizeof one)) continue;
        int length = snprintf(text + used, bytes - used, " %s", one);
        if (length < 0 || used + (size_t)length >= bytes) break;
        used += (size_t)length;
    }
    return used > 0;
}

static bool is_first_of_name(const struct ifaddrs *list, const struct ifaddrs *at)
{
    while (list != at && strcmp(list->ifa_name, at->ifa_name) != 0) list = list->ifa_next;
    return list == at;
}

/* Returns true if an interface has the wanted name or address (TUTTI_INTERFACE). */
static bool has_interface(const struct ifaddrs *list, const char *wanted)
{
    char one[INET6_ADDRSTRLEN];
    for (; list != NULL; list = list->ifa_next) {
        if (strcmp(list->ifa_name, wanted) == 0) return true;
        if (address_text(list, one, sizeof one) && strcmp(one, wanted) == 0) return true;
    }
    return false;
}

void doctor_interfaces(struct doctor *doctor)
{
    struct ifaddrs *list = NULL;
    char addresses[512];
    const char *wanted = getenv("TUTTI_INTERFACE");
    int others = 0;
    if (getifaddrs(&list) != 0) {
        doctor_add(doctor, FOUND_WARNING, "interface", NULL, "interfaces cannot be listed: %s", strerror(errno));
        return;
    }
    for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
        bool up = (at->ifa_flags & IFF_UP) != 0, loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
        if (!is_first_of_name(list, at) || !list_addresses(list, at->ifa_name, addresses, sizeof addresses)) continue;
        others += up && !loopback;
        doctor_add(doctor, up ? FOUND_GOOD : FOUND_NOTE, "interface", NULL, "%s:%s%s%s", at->ifa_name, addresses,
                   up ? "" : ", down", loopback ? ", reaches this host only" : "");
    }
    if (others == 0)
        doctor_add(doctor, FOUND_NOTE, "interface", NULL, "none that reaches other hosts; jobs stay on this one");
    if (wanted != NULL && wanted[0] != '\0' && !has_interface(list, wanted))
        doctor_add(doctor, FOUND_BAD, "interface", "set TUTTI_INTERFACE to one of the above, or unset it",
                   "TUTTI_INTERFACE is \"%s\", which is not there", wanted);
    freeifaddrs(list);
}
