/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds how much memory there is, and how much can still be committed. It allocates nothing, since it is asked when
 * memory is short.
 */
#include "base/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { FILE_BYTES = 8192, PATH_BYTES = 512 };

/* The two generations of control groups differ in their mount points and in the names of their files. */
static const struct generation {
    const char *entry; /* the text behind the number in its line of /proc/self/cgroup */
    const char *mount, *limit, *usage;
    const char *cache[2]; /* rows of memory.stat for the page cache, which is freed when memory is needed */
} generations[] = {
    {"::", "/sys/fs/cgroup", "memory.max", "memory.current", {"\ninactive_file ", "\nactive_file "}},
    {":memory:",
     "/sys/fs/cgroup/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"\ntotal_inactive_file ", "\ntotal_active_file "}},
};

/* Reads a file behind a newline, so that every row can be found as "\nname "; returns false if it cannot be read. */
static bool read_text(const char *path, char text[FILE_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t length = 1;
    text[0] = '\n';
    for (;;) {
        ssize_t got = read(fd, text + length, FILE_BYTES - 1 - length);
        if (got <= 0) break;
        length += (size_t)got;
    }
    close(fd);
    text[length] = '\0';
    return length > 1;
}

static bool read_number(const char *folder, const char *file, uint64_t *number)
{
    char path[PATH_BYTES + 64], text[FILE_BYTES], *end;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (!read_text(path, text)) return false;
    *number = strtoull(text + 1, &end, 10); /* "max" is no number, and means no limit */
    return end != text + 1;
}

static uint64_t row_of(const char *text, const char *row)
{
    const char *found = strstr(text, row);
    return found == NULL ? 0 : strtoull(found + strlen(row), NULL, 10);
}

static uint64_t folder_left(const char *folder, const struct generation *generation)
{
    uint64_t limit, usage, cache = 0;
    char path[PATH_BYTES + 64], text[FILE_BYTES];
    if (!read_number(folder, generation->limit, &limit) || !read_number(folder, generation->usage, &usage))
        return UINT64_MAX;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (read_text(path, text)) cache = row_of(text, generation->cache[0]) + row_of(text, generation->cache[1]);
    usage = usage > cache ? usage - cache : 0;
    return limit > usage ? limit - usage : 0;
}

/* Returns what the tightest of the group's limits and those of the groups around it leaves. In a container the path may
 * name folders that only its host sees; the walk then ends at the container's own root. */
static uint64_t group_left(const struct generation *generation, const char *groups)
{
    char folder[PATH_BYTES];
    const char *entry = strstr(groups, generation->entry);
    if (entry == NULL) return UINT64_MAX;
    entry += strlen(generation->entry);
    int length = snprintf(folder, sizeof folder, "%s%.*s", generation->mount, (int)strcspn(entry, "\n"), entry);
    if (length < 0 || (size_t)length >= sizeof folder) return UINT64_MAX;

    uint64_t left = UINT64_MAX;
    for (size_t root = strlen(generation->mount);;) {
        uint64_t here = folder_left(folder, generation);
        if (here < left) left = here;
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < root) return left;
        *slash = '\0';
    }
}

uint64_t tti_memory_total(void)
{
    struct sysinfo machine;
    if (sysinfo(&machine) != 0) return UINT64_MAX;
    return ((uint64_t)machine.totalram + (uint64_t)machine.totalswap) * machine.mem_unit;
}

size_t tti_memory_left(void)
{
    char text[FILE_BYTES];
    uint64_t left = UINT64_MAX;
    if (read_text("/proc/meminfo", text) && strstr(text, "\nMemAvailable:") != NULL)
        left = row_of(text, "\nMemAvailable:") * 1024;
    if (read_text("/proc/self/cgroup", text))
        for (size_t i = 0; i < sizeof generations / sizeof *generations; i++) {
            uint64_t here = group_left(&generations[i], text);
            if (here < left) left = here;
        }
    return left > SIZE_MAX ? SIZE_MAX : (size_t)left;
}
