/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a request of 64 bytes and its answer take between two ranks whose service threads both sleep: nobody waits in a call
 * of the library, callbacks of tutti_when_ended answer. Beside it, in turns, the floor: two wake-ups by a futex, from one thread
 * to another and back.
 *
 *     tutti run -n 2 build/bench_request [ROUNDS]
 *
 * Prints medians, and the time that 99 of 100 rounds take at most. Both ranks rest between rounds, so that all threads sleep.
 */
#include "median.h"
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <tutti/experimental.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { BYTES = 64, ROUNDS = 1000, WARM_UP = 20, REST_US = 3000 };
enum { REQUEST = 1, ANSWER };

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = REST_US * 1000}, NULL);
}

static void must(tutti_comm *comm, tutti_status status)
{
    if (status == TUTTI_OK) return;
    exit(tutti_explain(comm, stderr));
}

/* ---- A word that a thread sleeps on -------------------------------------------------------------------------------- */

static void word_ring(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    syscall(SYS_futex, (void *)word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void word_await(_Atomic uint32_t *word, uint32_t wanted)
{
    for (uint32_t seen; (seen = atomic_load(word)) < wanted;)
        syscall(SYS_futex, (void *)word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

/* ---- The floor ------------------------------------------------------------------------------------------------------ */

struct echo {
    _Atomic uint32_t asked, answered;
    uint32_t rounds;
};

static void *answer_all(void *argument)
{
    struct echo *echo = argument;
    for (uint32_t i = 1; i <= echo->rounds; i++) {
        word_await(&echo->asked, i);
        word_ring(&echo->answered);
    }
    return NULL;
}

static double floor_us(struct echo *echo, uint32_t round)
{
    rest();
    double began = now_us();
    word_ring(&echo->asked);
    word_await(&echo->answered, round);
    return now_us() - began;
}

/* ---- Requests ------------------------------------------------------------------------------------------------------- */

struct side {
    tutti_comm *comm;
    char in[BYTES], out[BYTES];
    _Atomic uint32_t ended; /* rounds */
    uint32_t rounds;
    double ended_us;
};

/* Whoever makes a call here is alone in doing so: the server's callbacks follow each other, the client waits for its own. */
static void hear(struct side *side, int tag, tutti_ended *ended)
{
    tutti_op op;
    must(side->comm, tutti_recv_start(side->comm, side->in, BYTES, TUTTI_U8, TUTTI_ANY_SOURCE, tag, NULL, &op));
    must(side->comm, tutti_when_ended(op, ended, side));
    must(side->comm, tutti_drop(op));
}

static void say(struct side *side, int peer, int tag)
{
    tutti_op op;
    must(side->comm, tutti_send_start(side->comm, side->out, BYTES, TUTTI_U8, peer, tag, &op));
    must(side->comm, tutti_drop(op));
}

static void was_asked(void *context, tutti_status status, const tutti_error *error)
{
    struct side *side = context;
    if (status != TUTTI_OK) fprintf(stderr, "%s\n", error->text);
    memcpy(side->out, side->in, BYTES);
    bool last = atomic_load(&side->ended) + 1 == side->rounds;
    if (!last) hear(side, REQUEST, was_asked);
    say(side, 0, ANSWER);
    word_ring(&side->ended);
}

static void was_answered(void *context, tutti_status status, const tutti_error *error)
{
    struct side *side = context;
    if (status != TUTTI_OK) fprintf(stderr, "%s\n", error->text);
    side->ended_us = now_us();
    word_ring(&side->ended);
}

static double request_us(struct side *side, uint32_t round)
{
    hear(side, ANSWER, was_answered);
    rest();
    double began = now_us();
    say(side, 1, REQUEST);
    word_await(&side->ended, round);
    return side->ended_us - began;
}

/* ---- All of it ------------------------------------------------------------------------------------------------------ */

static void print(const char *what, double *us, int count)
{
    double middle = median(us, count); /* sorts */
    printf("%-34s median %7.1f us   99%% %7.1f us\n", what, middle, us[count * 99 / 100]);
}

static void measure(struct side *side, int rounds)
{
    struct echo echo = {.rounds = side->rounds};
    pthread_t thread;
    double *requests = calloc((size_t)rounds, sizeof *requests), *floors = calloc((size_t)rounds, sizeof *floors);
    if (requests == NULL || floors == NULL || pthread_create(&thread, NULL, answer_all, &echo) != 0) exit(1);
    for (int i = -WARM_UP; i < rounds; i++) {
        uint32_t round = (uint32_t)(i + WARM_UP + 1);
        double request = request_us(side, round), floor = floor_us(&echo, round);
        if (i < 0) continue;
        requests[i] = request;
        floors[i] = floor;
    }
    pthread_join(thread, NULL);
    print("request and answer, 64 bytes", requests, rounds);
    print("floor: two wake-ups by a futex", floors, rounds);
    free(requests);
    free(floors);
}

static int work(tutti_comm *world, int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : ROUNDS;
    struct side side = {.rounds = (uint32_t)(rounds + WARM_UP)};
    if (tutti_size(world) != 2 || rounds < 1) {
        fprintf(stderr, "bench_request [ROUNDS] is for two ranks: tutti run -n 2 build/bench_request\n");
        return 2;
    }
    must(world, tutti_comm_tolerant(world, &side.comm));
    if (tutti_rank(world) == 1) hear(&side, REQUEST, was_asked);
    must(world, tutti_barrier(world));
    if (tutti_rank(world) == 0)
        measure(&side, rounds);
    else
        word_await(&side.ended, side.rounds);
    must(world, tutti_barrier(world));
    must(world, tutti_comm_free(side.comm));
    return 0;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
