/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the cores of the ranks, and maps the memory in which the floor is measured: for threads anonymous memory of
 * the process, for processes a memfd of rank 0, which the others open through /proc.
 */
#include "cli/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Cores ------------------------------------------------------------------------------------------------------- */

int bench_cores_here(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    return count > 0 ? count : 1;
}

int bench_count_cores(struct bench_rank *self)
{
    uint64_t words[sizeof(cpu_set_t) / sizeof(uint64_t)] = {0};
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) memcpy(words, &set, sizeof words);
    size_t count = sizeof words / sizeof words[0];
    if (tutti_all_reduce(self->world, words, words, count, TUTTI_U64, TUTTI_OR) != TUTTI_OK) return bench_failed(self);
    memcpy(&set, words, sizeof words);
    self->cores = CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
    self->bound = self->settings->cores || (self->ranks > 1 && bench_cores_here() < self->cores);
    return CLI_GO_ON;
}

/* ---- The floor's region ------------------------------------------------------------------------------------------ */

struct region_key { /* tells the others where rank 0's region is */
    uint64_t address;
    int64_t pid, descriptor;
};

static void *map_region(size_t bytes, int descriptor)
{
    int flags = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
    if (region == MAP_FAILED) return NULL;
    /* as in Tutti's memory: without huge pages the floor would be too slow */
    if (descriptor < 0) madvise(region, bytes, MADV_HUGEPAGE);
    return region;
}

/* Maps rank 0's region. The descriptor stays open until the others have opened it. */
static void *region_create(size_t bytes, bool as_threads, struct region_key *key)
{
    int descriptor = -1;
    if (!as_threads) {
        descriptor = memfd_create("tutti-bench-floor", MFD_CLOEXEC);
        if (descriptor < 0) return NULL;
        if (ftruncate(descriptor, (off_t)bytes) != 0) {
            (void)close(descriptor);
            return NULL;
        }
    }
    void *region = map_region(bytes, descriptor);
    *key = (struct region_key){.address = (uint64_t)(uintptr_t)region, .pid = getpid(), .descriptor = descriptor};
    return region;
}

static int region_find(const struct region_key *key)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)key->pid, (long long)key->descriptor);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* Commits this rank's part, so that a lack of memory is an error here and not a signal later. */
static bool region_commit(struct bench_rank *self, int descriptor)
{
    size_t offset, bytes;
    floor_own_part(self->rank, self->ranks, self->max_bytes, &offset, &bytes);
    if (descriptor < 0) return true;
    return fallocate(descriptor, 0, (off_t)offset, (off_t)bytes) == 0;
}

static int floor_failed(struct bench_rank *self, int error)
{
    return cli_fail("bench",
                    "rank %d: no %zu MiB for the floor's buffers (%s); measure smaller sizes (-e) or without it "
                    "(--floor no)",
                    self->rank, self->floor_bytes >> 20, strerror(error));
}

/* Rank 0 maps and tells the others, and they map; `region` is NULL on a rank where it failed. */
static int share_region(struct bench_rank *self, void **region, int *descriptor)
{
    bool as_threads = tutti_all_threads(self->world);
    struct region_key key = {.descriptor = -1};
    *region = self->rank == 0 ? region_create(self->floor_bytes, as_threads, &key) : NULL;
    int error = errno;
    int64_t words[3] = {(int64_t)key.address, key.pid, key.descriptor};
    if (tutti_broadcast(self->world, words, words, 3, TUTTI_I64, 0) != TUTTI_OK) return bench_failed(self);
    key = (struct region_key){.address = (uint64_t)words[0], .pid = words[1], .descriptor = words[2]};
    *descriptor = (int)key.descriptor;
    if (key.address == 0) return self->rank == 0 ? floor_failed(self, error) : CLI_FAILED;
    if (self->rank == 0) return CLI_GO_ON;
    if (as_threads) {
        *region = (void *)(uintptr_t)key.address;
        return CLI_GO_ON;
    }
    *descriptor = region_find(&key);
    if (*descriptor >= 0) *region = map_region(self->floor_bytes, *descriptor);
    return CLI_GO_ON;
}

int bench_floor_open(struct bench_rank *self)
{
    void *region = NULL;
    int descriptor = -1;
    self->floor_bytes = floor_region_bytes(self->ranks, self->max_bytes);
    int status = share_region(self, &region, &descriptor);
    if (status != CLI_GO_ON) {
        self->floor_bytes = 0;
        return status;
    }
    bool ok = region && region_commit(self, descriptor);
    if (!ok) (void)floor_failed(self, errno);
    status = bench_agree(self, ok); /* now everyone has rank 0's region, and it may close its descriptor */
    if (descriptor >= 0) (void)close(descriptor);
    if (status == CLI_GO_ON) {
        floor_attach(&self->floor, region, self->rank, self->ranks, self->max_bytes, self->ranks > self->cores);
        return CLI_GO_ON;
    }
    if (region && (self->rank == 0 || descriptor >= 0)) (void)munmap(region, self->floor_bytes);
    self->floor_bytes = 0;
    return status;
}

/* Threads share rank 0's mapping: nobody may be in it when rank 0 takes it down, so it stays until the process ends. */
void bench_floor_close(struct bench_rank *self)
{
    if (self->floor_bytes && !tutti_all_threads(self->world)) (void)munmap(self->floor.region, self->floor_bytes);
    self->floor_bytes = 0;
}
