/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/blas.h"

#include "base/clock.h"
#include "base/status.h"
#include "nn/blas_areas.h"
#include "nn/blas_core.h"
#include "nn/pool.h"
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROW_MAJOR = 101, AS_IS = 111, TRANSPOSED = 112 };

typedef void sgemm_function(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                            const float *a, int stride_a, const float *b, int stride_b, float beta, float *c,
                            int stride_c);
typedef void set_threads_function(int count);
typedef char *describe_function(void);

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static tutti_error load_error;
static sgemm_function *sgemm;
static char description[256];

/* OpenBLAS has work areas for twice as many threads as it was built for, and ends the process when more multiply at
 * once. If the pools have more threads than it was built for, only that many at a time have a turn: together with those
 * that began before there were so many, no more than twice as many. */
static int room = 32;
static sem_t turns;

static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};

static char why[200]; /* why it cannot be loaded: the system's message for the first name, which most systems have */

static void *open_library(void)
{
    void *library = NULL;
    for (size_t i = 0; library == NULL && i < sizeof names / sizeof *names; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        const char *said = library == NULL ? dlerror() : NULL;
        if (i == 0) snprintf(why, sizeof why, "%s", said == NULL ? "" : said);
    }
    return library;
}

static bool lacks_threads; /* OpenBLAS could not start all of its own threads: unloading it would wait for them */

/* OpenBLAS raises SIGINT when it cannot make the threads that nobody here uses. That is no reason to end: the signal is
 * taken back, and one that came from elsewhere meanwhile is passed on. */
static void *open_without_interrupt(void *unused)
{
    const struct timespec at_once = {0, 0};
    sigset_t interrupt, before;
    siginfo_t came;
    bool pass_on = false;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    (void)unused;
    void *library = open_library();
    while (sigtimedwait(&interrupt, &came, &at_once) == SIGINT) {
        if (came.si_pid != getpid()) pass_on = true;
        if (came.si_pid == getpid()) lacks_threads = true;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pass_on) kill(getpid(), SIGINT);
    return library;
}

/* A library may take long to load. It is loaded in a thread of its own, so that Ctrl-C reaches a thread that does not
 * block it; if no thread can be made, in this one. */
static void *open_apart(void)
{
    pthread_t thread;
    void *library = NULL;
    if (pthread_create(&thread, NULL, open_without_interrupt, NULL) != 0) return open_without_interrupt(NULL);
    pthread_join(thread, &library);
    return library;
}

/* Finds a function. The pointer of dlsym is copied through memory: C has no cast from object pointers to function
 * pointers. */
static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static void make_room(void)
{
    const char *built_for = strstr(description, "MAX_THREADS=");
    int threads = built_for == NULL ? 0 : atoi(built_for + strlen("MAX_THREADS="));
    if (threads > 0) room = threads;
    sem_init(&turns, 0, (unsigned)room);
}

/* Sets the error. The system's loader says "…: failed to map segment from shared object" if memory is short. */
static void set_load_error(void)
{
    bool no_room = strstr(why, "map segment") != NULL || strstr(why, "allocate") != NULL;
    tti_error_set(&load_error, no_room ? TUTTI_ERR_LIMIT : TUTTI_ERR_UNSUPPORTED, 0,
                  "OpenBLAS, which does the matrix products, cannot be loaded (%.160s); %s", why,
                  no_room ? "raise the limit of address space (ulimit -v) or lower the option arena_bytes"
                          : "install it (Debian: apt-get install libopenblas0-pthread) or put its folder into "
                            "LD_LIBRARY_PATH");
}

static void load(void)
{
    if (tti_areas_room_to_load(&load_error) != TUTTI_OK) return;
    void *library = open_apart();
    if (library != NULL) library = tti_core_fit(library, lacks_threads ? NULL : open_apart);
    if (library == NULL) {
        set_load_error();
        return;
    }
    set_threads_function *set_threads;
    describe_function *describe;
    if (!find(library, "cblas_sgemm", &sgemm) || !find(library, "openblas_set_num_threads", &set_threads) ||
        !find(library, "openblas_get_config", &describe)) {
        tti_error_set(&load_error, TUTTI_ERR_UNSUPPORTED, 0,
                      "libopenblas.so.0 lacks cblas_sgemm, openblas_set_num_threads or openblas_get_config; install "
                      "OpenBLAS 0.3 or later (Debian: apt-get install libopenblas0-pthread)");
        return;
    }
    set_threads(1);
    strncpy(description, describe(), sizeof description - 1);
    make_room();
    tti_areas_find(library);
}

tutti_status tti_blas_load(tutti_error *error)
{
    pthread_once(&load_once, load);
    if (load_error.status != TUTTI_OK && error != NULL) *error = load_error;
    return load_error.status;
}

tutti_status tutti_blas_load(tutti_error *error)
{
    return tti_blas_load(error);
}

tutti_status tti_blas_reserve(tutti_error *error)
{
    return tti_areas_reserve(tti_pool_everyone(), room, error);
}

const char *tutti_blas_name(void)
{
    return description;
}

void tti_gemm(int64_t m, int64_t n, int64_t k, struct tti_matrix a, struct tti_matrix b, bool add, float *out,
              int64_t out_stride)
{
    if (m == 0 || n == 0) return;
    const bool in_turn = tti_pool_everyone() > room;
    while (in_turn && sem_wait(&turns) != 0) continue;
    sgemm(ROW_MAJOR, a.transposed ? TRANSPOSED : AS_IS, b.transposed ? TRANSPOSED : AS_IS, (int)m, (int)n, (int)k, 1.0f,
          a.data, (int)a.stride, b.data, (int)b.stride, add ? 1.0f : 0.0f, out, (int)out_stride);
    if (in_turn) sem_post(&turns);
}

/* ---- The machine's rate ---------------------------------------------------------------------------------------- */

enum { RATE_SIZE = 1024 };

struct rate {
    const float *a, *b;
    float *out; /* one matrix for each thread */
    int products;
};

static void rate_body(void *context, int thread, int threads)
{
    (void)threads;
    const struct rate *rate = context;
    struct tti_matrix a = {rate->a, RATE_SIZE, false}, b = {rate->b, RATE_SIZE, false};
    float *out = rate->out + (size_t)thread * RATE_SIZE * RATE_SIZE;
    for (int i = 0; i < rate->products; i++) tti_gemm(RATE_SIZE, RATE_SIZE, RATE_SIZE, a, b, false, out, RATE_SIZE);
}

static double rate_measure(struct tti_pool *pool, struct rate *rate, int threads, double seconds)
{
    const double flops = 2.0 * RATE_SIZE * RATE_SIZE * RATE_SIZE * threads * rate->products;
    double best = 0;
    int64_t start = tti_now_ns();
    do {
        int64_t before = tti_now_ns();
        tti_pool_run(pool, rate_body, rate);
        double took = (double)(tti_now_ns() - before);
        if (flops / took > best) best = flops / took;
    } while ((double)(tti_now_ns() - start) < seconds * 1e9);
    return best;
}

double tutti_blas_rate(int threads, double seconds)
{
    tutti_error error;
    if (threads < 1 || tti_blas_load(&error) != TUTTI_OK) return 0;
    const size_t square = (size_t)RATE_SIZE * RATE_SIZE;
    float *memory = calloc(square * (size_t)(threads + 2), sizeof *memory);
    struct tti_pool *pool = NULL;
    double best = 0;
    if (memory != NULL && tti_pool_create(threads, &pool, &error) == TUTTI_OK && tti_blas_reserve(&error) == TUTTI_OK) {
        for (size_t i = 0; i < 2 * square; i++) memory[i] = (float)(i % 7);
        struct rate rate = {.a = memory, .b = memory + square, .out = memory + 2 * square, .products = 2};
        best = rate_measure(pool, &rate, threads, seconds);
    }
    tti_pool_destroy(pool);
    free(memory);
    return best;
}
