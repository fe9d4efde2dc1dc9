/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Mappings and arenas: what is handed out is committed, aligned, zero and nobody else's; what cannot be had is an
 * error.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/memory.h"
#include "check.h"
#include "sanitized.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define TIB ((size_t)1 << 40)

static bool is_filled(const char *at, size_t bytes, char with)
{
    return bytes == 0 || (at[0] == with && memcmp(at, at + 1, bytes - 1) == 0);
}

static size_t resident_bytes(void)
{
    size_t pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (statm == NULL || fscanf(statm, "%*u %zu", &pages) != 1) pages = 0;
    if (statm != NULL) fclose(statm);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- Mappings -------------------------------------------------------------------------------------------------- */

/* What there is of it; what is read comes to be, so this is asked first. */
static size_t committed_bytes(int fd)
{
    struct stat file;
    return fstat(fd, &file) == 0 ? (size_t)file.st_blocks * 512 : 0;
}

static void test_mapping_shared(void)
{
    tutti_error error = {0};
    struct tti_mapping one, other;
    CHECK(tti_mapping_create(&one, 3 * MIB + 1, true, true, &error) == TUTTI_OK);
    CHECK(one.bytes == 3 * MIB + (size_t)sysconf(_SC_PAGESIZE));
    CHECK(committed_bytes(one.fd) >= one.bytes);
    CHECK(is_filled(one.base, one.bytes, 0));
    CHECK(fcntl(one.fd, F_GETFD) == FD_CLOEXEC);
    CHECK(ftruncate(one.fd, 0) != 0); /* nobody can take it away */

    CHECK(tti_mapping_open(&other, dup(one.fd), one.bytes, &error) == TUTTI_OK);
    one.base[MIB] = 7;
    CHECK(other.base[MIB] == 7);
    tti_mapping_close_fd(&other);
    tti_mapping_close_fd(&other);
    CHECK(other.fd == -1 && other.base[MIB] == 7);
    tti_mapping_destroy(&one);
    CHECK(one.base == NULL && one.fd == -1 && other.base[MIB] == 7);
    tti_mapping_destroy(&other);
    tti_mapping_destroy(&other);
}

static void test_mapping_errors(void)
{
    tutti_error error = {0};
    struct tti_mapping mapping;
    CHECK(tti_mapping_create(&mapping, TIB * 1024 * 1024, false, false, &error) == TUTTI_ERR_LIMIT);
    CHECK(mapping.base == NULL && mapping.bytes == 0 && mapping.fd == -1);
    CHECK(tti_mapping_create(&mapping, SIZE_MAX, true, true, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(tti_mapping_create(&mapping, 0, true, true, &error) == TUTTI_ERR_ARGUMENT);
    for (int shared = 0; shared < 2; shared++) {
        CHECK(tti_mapping_create(&mapping, TIB, shared, true, &error) == TUTTI_ERR_MEMORY);
        CHECK(mapping.base == NULL && mapping.fd == -1);
        CHECK(strstr(error.text, "1.0 TiB") != NULL);
    }
    int fd = memfd_create("test", MFD_CLOEXEC); /* not sealed: its owner could make us die of SIGBUS */
    CHECK(ftruncate(fd, (off_t)MIB) == 0);
    CHECK(tti_mapping_open(&mapping, fd, MIB, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(fcntl(fd, F_GETFD) == -1); /* taken over and closed */
    struct tti_mapping small;
    CHECK(tti_mapping_create(&small, MIB, true, false, &error) == TUTTI_OK);
    CHECK(tti_mapping_open(&mapping, dup(small.fd), 2 * MIB, &error) == TUTTI_ERR_ARGUMENT);
    tti_mapping_destroy(&small);
}

static void test_left(void)
{
    size_t left = tti_memory_left();
    int64_t start = tti_now_ns();
    for (int i = 0; i < 100; i++) tti_memory_left();
    printf("memory left: %zu MiB, found in %.1f us\n", left / MIB, (double)(tti_now_ns() - start) / 1e5);
    CHECK(left > MIB);
    CHECK(left <= (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE));
    char text[TTI_BYTES_TEXT];
    CHECK(strcmp(tti_bytes_text(0, text), "0 bytes") == 0);
    CHECK(strcmp(tti_bytes_text(1536, text), "1.5 KiB") == 0);
    CHECK(strcmp(tti_bytes_text(UINT64_MAX, text), "16.0 EiB") == 0);
}

/* ---- Arenas ---------------------------------------------------------------------------------------------------- */

static void test_arena_basic(bool shared)
{
    tutti_error error = {0};
    struct tti_arena arena;
    CHECK(tti_arena_create(&arena, 64 * MIB, shared, &error) == TUTTI_OK);
    CHECK(tti_arena_contains(&arena, arena.mapping.base, 64 * MIB));
    CHECK(!tti_arena_contains(&arena, arena.mapping.base + 1, 64 * MIB));
    CHECK(!tti_arena_contains(&arena, arena.mapping.base - 1, 1));
    CHECK(!tti_arena_contains(&arena, arena.mapping.base + 1, SIZE_MAX));
    CHECK(!tti_arena_contains(&arena, &error, 1));

    char *first = tti_arena_alloc(&arena, 3 * MIB + 5, &error);
    CHECK(!shared || committed_bytes(arena.mapping.fd) >= 3 * MIB + 5);
    CHECK(tti_arena_free(&arena, first, &error) == TUTTI_OK);
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4095, 4096, 4097, 65535, 65536, 100000, MIB - 1, MIB, 3 * MIB + 5};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    char *blocks[COUNT];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) {
            blocks[i] = tti_arena_alloc(&arena, sizes[i], &error);
            CHECK(blocks[i] != NULL && (uintptr_t)blocks[i] % 64 == 0);
            CHECK(sizes[i] < 4096 || (uintptr_t)blocks[i] % 4096 == 0);
            CHECK(is_filled(blocks[i], sizes[i], 0));
            memset(blocks[i], 0x5a, sizes[i] > 0 ? sizes[i] : 1);
        }
        for (int i = 0; i < COUNT; i++) CHECK(is_filled(blocks[i], sizes[i], 0x5a));
        for (int i = 0; i < COUNT; i++) CHECK(tti_arena_free(&arena, blocks[(i * 5) % COUNT], &error) == TUTTI_OK);
    }
    /* All is one block again. */
    char *all = tti_arena_alloc(&arena, 64 * MIB, &error);
    CHECK(all == arena.mapping.base && is_filled(all, 64 * MIB, 0));
    CHECK(tti_arena_free(&arena, all, &error) == TUTTI_OK);
    tti_arena_destroy(&arena);
    tti_arena_destroy(&arena);
}

static void test_arena_errors(bool shared)
{
    tutti_error error = {0};
    struct tti_arena arena;
    CHECK(tti_arena_create(&arena, 8 * MIB, shared, &error) == TUTTI_OK);
    char *block = tti_arena_alloc(&arena, 1000, &error);
    CHECK(tti_arena_free(&arena, NULL, &error) == TUTTI_OK);
    CHECK(tti_arena_free(&arena, block + 64, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(tti_arena_free(&arena, &error, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(tti_arena_free(&arena, block, &error) == TUTTI_OK);
    CHECK(tti_arena_free(&arena, block, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(error.text, "freed already") != NULL);

    CHECK(tti_arena_alloc(&arena, 8 * MIB + 1, &error) == NULL && error.status == TUTTI_ERR_MEMORY);
    CHECK(strstr(error.text, "arena_bytes") != NULL);
    CHECK(tti_arena_alloc(&arena, TIB, &error) == NULL && strstr(error.text, "1.0 TiB") != NULL);
    CHECK(tti_arena_alloc(&arena, SIZE_MAX, &error) == NULL);
    CHECK(strstr(error.text, "the system has") != NULL && strstr(error.text, "arena_bytes") == NULL);
    CHECK(tti_arena_alloc(&arena, SIZE_MAX - 63, &error) == NULL);

    int count = 0;
    while (tti_arena_alloc(&arena, 100000, &error) != NULL && count < 1000) count++;
    CHECK(count == 81); /* 25 pages each */
    CHECK(error.status == TUTTI_ERR_MEMORY);
    tti_arena_destroy(&arena);
}

/* Where it was asked to begin, unless there is no room for that; and nothing of it is lost. */
static void test_arena_shifted(bool shared)
{
    tutti_error error = {0};
    struct tti_arena arena;
    CHECK(tti_arena_create(&arena, 64 * MIB, shared, &error) == TUTTI_OK);
    static const size_t sizes[] = {4096, 65536, MIB, 2 * MIB, 5 * MIB + 3},
                        shifts[] = {0, 64, 4096, 4096 + 320, 131008};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    char *blocks[COUNT];
    for (int round = 0; round < COUNT; round++) {
        for (int i = 0; i < COUNT; i++) {
            size_t shift = shifts[(i + round) % COUNT], align = sizes[i] >= 2 * MIB ? 2 * MIB : 4096;
            blocks[i] = tti_arena_alloc_shifted(&arena, sizes[i], shift, &error);
            CHECK(blocks[i] != NULL && is_filled(blocks[i], sizes[i], 0));
            CHECK((size_t)(blocks[i] - arena.mapping.base) % align == shift % align);
            memset(blocks[i], 0x5a, sizes[i]);
        }
        for (int i = 0; i < COUNT; i++) CHECK(is_filled(blocks[i], sizes[i], 0x5a));
        for (int i = 0; i < COUNT; i++) CHECK(tti_arena_free(&arena, blocks[(i * 2) % COUNT], &error) == TUTTI_OK);
    }
    char *small = tti_arena_alloc_shifted(&arena, 4095, 64, &error);
    CHECK(small == arena.mapping.base && tti_arena_free(&arena, small, &error) == TUTTI_OK);
    char *all = tti_arena_alloc_shifted(&arena, 64 * MIB, 4096, &error);
    CHECK(all == arena.mapping.base && is_filled(all, 64 * MIB, 0));
    tti_arena_destroy(&arena);
}

static void test_arena_quarantine(void)
{
    tutti_error error = {0};
    struct tti_arena arena;
    CHECK(tti_arena_create(&arena, 8 * MIB, true, &error) == TUTTI_OK);
    char *one = tti_arena_alloc(&arena, 2 * MIB, &error), *two = tti_arena_alloc(&arena, 2 * MIB, &error);
    memset(one, 1, 2 * MIB);
    tti_arena_quarantine(&arena, one + MIB); /* a buffer in the middle of the block */
    tti_arena_quarantine(&arena, &error);
    tti_arena_quarantine(&arena, NULL);
    CHECK(tti_arena_free(&arena, one, &error) == TUTTI_OK);
    CHECK(tti_arena_free(&arena, one, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(tti_arena_free(&arena, two, &error) == TUTTI_OK);
    CHECK(is_filled(one, 2 * MIB, 1));
    for (char *block; (block = tti_arena_alloc(&arena, MIB, &error)) != NULL;)
        CHECK(block + MIB <= one || block >= one + 2 * MIB);
    tti_arena_destroy(&arena);
}

/* More than there is: an error, though the arena itself is large enough; and all of it can be had again afterwards. */
static void test_arena_absurd(bool shared)
{
    tutti_error error = {0};
    struct tti_arena arena;
    if (tti_arena_create(&arena, 4 * TIB, shared, &error) != TUTTI_OK) {
        CHECK(SANITIZED && error.status == TUTTI_ERR_LIMIT); /* a sanitizer leaves little address space */
        return;
    }
    CHECK(tti_arena_alloc(&arena, TIB, &error) == NULL);
    CHECK(error.status == TUTTI_ERR_MEMORY && strstr(error.text, "1.0 TiB") != NULL);
    char *block = tti_arena_alloc(&arena, 1000, &error);
    CHECK(block != NULL && tti_arena_free(&arena, block, &error) == TUTTI_OK);
    tti_arena_destroy(&arena);
    CHECK(tti_arena_create(&arena, 512 * TIB, shared, &error) == TUTTI_ERR_LIMIT);
    CHECK(tti_arena_create(&arena, SIZE_MAX, shared, &error) == TUTTI_ERR_LIMIT);
    CHECK(tti_arena_create(&arena, 0, shared, &error) == TUTTI_OK);
    CHECK(arena.mapping.bytes >= 64 * MIB);
    tti_arena_destroy(&arena);
}

static void test_arena_returns_memory(bool shared)
{
    tutti_error error = {0};
    struct tti_arena arena;
    CHECK(tti_arena_create(&arena, GIB, shared, &error) == TUTTI_OK);
    char *block = tti_arena_alloc(&arena, 64 * MIB, &error);
    CHECK(block != NULL);
    memset(block, 1, 64 * MIB);
    size_t before = resident_bytes();
    CHECK(tti_arena_free(&arena, block, &error) == TUTTI_OK);
    CHECK(SANITIZED || resident_bytes() + 60 * MIB < before);
    block = tti_arena_alloc(&arena, 64 * MIB, &error);
    CHECK(block != NULL && is_filled(block, 64 * MIB, 0));
    tti_arena_destroy(&arena);
}

/* ---- Random use ------------------------------------------------------------------------------------------------ */

struct stress {
    struct tti_arena *arena;
    uint64_t seed;
    int rounds;
    int wrong;
};

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static size_t random_size(uint64_t *seed)
{
    size_t most = (size_t)64 << (next_random(seed) % 16); /* 64 B to 2 MiB */
    return next_random(seed) % most + 1;
}

static void *stress_body(void *argument)
{
    struct stress *stress = argument;
    enum { SLOTS = 48 };
    char *blocks[SLOTS] = {NULL}, marks[SLOTS] = {0};
    size_t sizes[SLOTS] = {0};
    tutti_error error;
    for (int round = 0; round < stress->rounds; round++) {
        size_t slot = next_random(&stress->seed) % SLOTS;
        if (blocks[slot] != NULL) {
            if (!is_filled(blocks[slot], sizes[slot], marks[slot])) stress->wrong++;
            if (tti_arena_free(stress->arena, blocks[slot], &error) != TUTTI_OK) stress->wrong++;
            blocks[slot] = NULL;
            continue;
        }
        sizes[slot] = random_size(&stress->seed);
        marks[slot] = (char)(next_random(&stress->seed) | 1);
        blocks[slot] = tti_arena_alloc(stress->arena, sizes[slot], &error);
        if (blocks[slot] == NULL) continue; /* full for the moment */
        if (!is_filled(blocks[slot], sizes[slot], 0)) stress->wrong++;
        memset(blocks[slot], marks[slot], sizes[slot]);
    }
    for (size_t slot = 0; slot < SLOTS; slot++)
        if (tti_arena_free(stress->arena, blocks[slot], &error) != TUTTI_OK) stress->wrong++;
    return NULL;
}

static void test_stress(bool shared, int threads, int rounds)
{
    tutti_error error = {0};
    struct tti_arena arena;
    struct stress stress[8];
    pthread_t thread[8];
    CHECK(tti_arena_create(&arena, 48 * MIB, shared, &error) == TUTTI_OK);
    for (int i = 0; i < threads; i++) {
        stress[i] = (struct stress){&arena, 0x9E3779B97F4A7C15u * (uint64_t)(i + 1), rounds, 0};
        CHECK(pthread_create(&thread[i], NULL, stress_body, &stress[i]) == 0);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
        CHECK(stress[i].wrong == 0);
    }
    char *all = tti_arena_alloc(&arena, 48 * MIB, &error);
    CHECK(all != NULL && is_filled(all, 48 * MIB, 0)); /* nothing leaked, all merged */
    tti_arena_destroy(&arena);
}

/* Thousands of live blocks, so that lookups and searches show if they are linear. */
static void test_many(void)
{
    enum { COUNT = 20000 };
    tutti_error error = {0};
    struct tti_arena arena;
    char **blocks = calloc(COUNT, sizeof *blocks);
    CHECK(blocks != NULL && tti_arena_create(&arena, GIB, true, &error) == TUTTI_OK);
    int64_t start = tti_now_ns();
    for (int i = 0; i < COUNT; i++) blocks[i] = tti_arena_alloc(&arena, 64 + (size_t)(i % 50) * 64, &error);
    int64_t middle = tti_now_ns();
    for (int i = 0; i < COUNT; i++) /* every other one first, so that nothing merges */
        CHECK(tti_arena_free(&arena, blocks[(i * 2) % COUNT + (i * 2 >= COUNT)], &error) == TUTTI_OK);
    int64_t end = tti_now_ns();
    printf("%d small blocks: %.2f us each to allocate, %.2f us to free\n", COUNT,
           (double)(middle - start) / 1e3 / COUNT, (double)(end - middle) / 1e3 / COUNT);
    CHECK(SANITIZED || end - start < (int64_t)COUNT * 50000);
    free(blocks);
    tti_arena_destroy(&arena);
}

static void report_speed(bool shared)
{
    static const size_t sizes[] = {64, 4096, 65536, MIB / 2, MIB, 16 * MIB};
    tutti_error error = {0};
    struct tti_arena arena;
    CHECK(tti_arena_create(&arena, GIB, shared, &error) == TUTTI_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t taken[2] = {INT64_MAX, INT64_MAX};
        for (int round = 0; round < 50; round++) {
            int64_t start = tti_now_ns();
            void *block = tti_arena_alloc(&arena, sizes[i], &error);
            int64_t middle = tti_now_ns();
            tti_arena_free(&arena, block, &error);
            int64_t end = tti_now_ns();
            if (middle - start < taken[0]) taken[0] = middle - start;
            if (end - middle < taken[1]) taken[1] = end - middle;
        }
        printf("%s %8zu bytes: %.2f us to allocate again, %.2f us to free\n", shared ? "shared " : "private", sizes[i],
               (double)taken[0] / 1e3, (double)taken[1] / 1e3);
    }
    tti_arena_destroy(&arena);
}

/* ---- Failures -------------------------------------------------------------------------------------------------- */

static bool use_arena(bool shared)
{
    tutti_error error = {0};
    struct tti_arena arena;
    if (tti_arena_create(&arena, 16 * MIB, shared, &error) != TUTTI_OK) return false;
    char *one = tti_arena_alloc(&arena, 100, &error), *two = tti_arena_alloc(&arena, 2 * MIB, &error);
    char *three = tti_arena_alloc(&arena, 5000, &error);
    bool all = one != NULL && two != NULL && three != NULL;
    CHECK(tti_arena_free(&arena, one, &error) == TUTTI_OK && tti_arena_free(&arena, two, &error) == TUTTI_OK);
    CHECK(tti_arena_free(&arena, three, &error) == TUTTI_OK);
    tti_arena_destroy(&arena);
    return all;
}

static void test_countdown(bool shared)
{
    long allowed = 0;
    for (bool done = false; !done && allowed < 100; allowed++) {
        tti_alloc_fail_after(allowed);
        done = use_arena(shared);
        tti_alloc_fail_after(-1);
    }
    CHECK(allowed > 5 && allowed < 50);
}

/* Runs `body` in a child with one limit lowered. */
static void with_limit(__rlimit_resource_t what, size_t limit, int (*body)(void))
{
    pid_t child = fork();
    if (child == 0) {
        struct rlimit low = {limit, limit};
        if (setrlimit(what, &low) != 0) _exit(100);
        _exit(body());
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) printf("child ended with %#x\n", (unsigned)status);
}

static int explicit_and_default(bool shared, const char *word)
{
    tutti_error error = {0};
    struct tti_arena arena;
    if (tti_arena_create(&arena, 64 * GIB, shared, &error) != TUTTI_ERR_LIMIT) return 1;
    if (strstr(error.text, word) == NULL) return printf("%s\n", error.text), 2;
    if (tti_arena_create(&arena, 0, shared, &error) != TUTTI_OK) return printf("%s\n", error.text), 3;
    if (arena.mapping.bytes < 64 * MIB || arena.mapping.bytes > GIB) return 4;
    if (tti_arena_alloc(&arena, MIB, &error) == NULL) return printf("%s\n", error.text), 5;
    tti_arena_destroy(&arena);
    return 0;
}

static int limited_space(void)
{
    int result = explicit_and_default(true, "ulimit -v");
    return result != 0 ? result : explicit_and_default(false, "ulimit -v");
}

static int limited_data(void)
{
    return explicit_and_default(false, "ulimit -d");
}

static int limited_file(void)
{
    return explicit_and_default(true, "ulimit -f");
}

static int limited_fds(void)
{
    tutti_error error = {0};
    struct tti_mapping mapping;
    if (tti_mapping_create(&mapping, MIB, true, true, &error) != TUTTI_ERR_LIMIT) return 1;
    return strstr(error.text, "ulimit -n") == NULL;
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    test_mapping_shared();
    test_mapping_errors();
    test_left();
    for (int shared = 0; shared < 2; shared++) {
        test_arena_basic(shared);
        test_arena_errors(shared);
        test_arena_absurd(shared);
        test_arena_returns_memory(shared);
        test_stress(shared, 1, SANITIZED ? 3000 : 20000);
        test_stress(shared, 4, SANITIZED ? 1000 : 5000);
        test_countdown(shared);
    }
    test_arena_shifted(false);
    test_arena_shifted(true);
    test_arena_quarantine();
    test_many();
    if (!SANITIZED) {
        report_speed(true);
        report_speed(false);
        with_limit(RLIMIT_AS, GIB, limited_space);
        with_limit(RLIMIT_DATA, GIB, limited_data);
        with_limit(RLIMIT_FSIZE, 512 * MIB, limited_file);
    }
    with_limit(RLIMIT_NOFILE, 3, limited_fds);
    return check_end();
}
