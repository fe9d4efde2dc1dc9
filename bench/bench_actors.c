/* SPDX-License-Identifier: Apache-2.0
 *
 * What a request to an actor costs, and beside each figure its floor, in turns: the same bytes without an actor.
 *
 *     build/bench_actors [ROUNDS]                              in a process; requests a second; restarts
 *     tutti run -n 2 build/bench_actors [ROUNDS]               between processes
 *     tutti run -n 2 --transport tcp build/bench_actors        over tcp
 *
 * Both sides are awake: requests follow each other at once. Prints medians, and the time that 99 of 100 take at most.
 */
#include "median.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/actor.h>
#include <tutti/experimental.h>

enum { BYTES = 64, ROUNDS = 20000, WARM_UP = 1000, BLOCK = 100, WINDOW = 64, CLIENTS = 2, RESTARTS = 1000 };

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void must(tutti_comm *comm, tutti_status status)
{
    if (status != TUTTI_OK) exit(tutti_explain(comm, stderr));
}

static void print(const char *what, double *us, int count)
{
    double middle = median(us, count); /* sorts */
    printf("%-48s median %8.2f us   99%% %8.2f us\n", what, middle, us[count * 99 / 100]);
}

/* ---- Actors ---------------------------------------------------------------------------------------------------- */

static tutti_status echo(tutti_actor *self, void *state, tutti_request *request)
{
    (void)self, (void)state;
    return request->kind == TUTTI_ASKED ? tutti_request_answer(request, request->data, request->bytes) : TUTTI_OK;
}

static tutti_status fail(tutti_actor *self, void *state, tutti_request *request)
{
    (void)self, (void)state;
    return request->bytes == 0 ? TUTTI_ERR_LIMIT : tutti_request_answer(request, NULL, 0);
}

static void create(tutti_comm *world, tutti_actors *actors, const char *name, bool fails)
{
    tutti_actor_options options = {.struct_size = sizeof options,
                                   .name = name,
                                   .handle = fails ? fail : echo,
                                   .mailbox = 1 << 20,
                                   .restarts = 1 << 20,
                                   .pinned = true};
    must(world, tutti_actor_create(actors, &options));
}

/* ---- One after the other --------------------------------------------------------------------------------------- */

struct pair {
    tutti_comm *world, *comm;
    tutti_actors *actors;
    int rank; /* who answers */
    int rounds;
};

static double ask_us(struct pair *pair)
{
    char out[BYTES] = {1}, in[BYTES];
    double began = now_us();
    must(pair->world, tutti_actor_ask(pair->actors, pair->rank, "echo", out, BYTES, in, BYTES, NULL, 0));
    return now_us() - began;
}

static double message_us(struct pair *pair)
{
    char out[BYTES] = {1}, in[BYTES];
    double began = now_us();
    must(pair->comm, tutti_send(pair->comm, out, BYTES, TUTTI_U8, pair->rank, 1));
    must(pair->comm, tutti_recv(pair->comm, in, BYTES, TUTTI_U8, pair->rank, 1, NULL));
    return now_us() - began;
}

/* A thread that copies what is put down for it, and says so. */
struct slot {
    _Alignas(64) _Atomic uint32_t asked;
    char out[BYTES];
    _Alignas(64) _Atomic uint32_t answered;
    char in[BYTES];
    uint32_t round, rounds;
};

static void await_number(_Atomic uint32_t *number, uint32_t wanted)
{
    for (int i = 0; atomic_load_explicit(number, memory_order_acquire) != wanted; i++)
        if (i % 1000 == 999) sched_yield();
}

static void *copy_all(void *argument)
{
    struct slot *slot = argument;
    for (uint32_t i = 1; i <= slot->rounds; i++) {
        await_number(&slot->asked, i);
        memcpy(slot->in, slot->out, BYTES);
        atomic_store_explicit(&slot->answered, i, memory_order_release);
    }
    return NULL;
}

static double slot_us(struct slot *slot)
{
    char out[BYTES] = {1}, in[BYTES];
    double began = now_us();
    memcpy(slot->out, out, BYTES);
    atomic_store_explicit(&slot->asked, ++slot->round, memory_order_release);
    await_number(&slot->answered, slot->round);
    memcpy(in, slot->in, BYTES);
    return now_us() - began;
}

static double *new_times(int rounds)
{
    double *times = calloc((size_t)rounds + BLOCK, sizeof *times);
    if (times == NULL) exit(1);
    return times;
}

/* In blocks, so that both meet the same machine: the floor's thread is there for its blocks only. */
static void measure_here(struct pair *pair)
{
    double *asks = new_times(pair->rounds), *floors = new_times(pair->rounds);
    for (int i = 0; i < WARM_UP; i++) ask_us(pair);
    for (int done = 0; done < pair->rounds; done += BLOCK) {
        struct slot slot = {.rounds = BLOCK};
        pthread_t thread;
        for (int i = 0; i < BLOCK; i++) asks[done + i] = ask_us(pair);
        if (pthread_create(&thread, NULL, copy_all, &slot) != 0) exit(1);
        for (int i = 0; i < BLOCK; i++) floors[done + i] = slot_us(&slot);
        pthread_join(thread, NULL);
    }
    print("ask and answer, 64 B, in a process", asks, pair->rounds);
    print("  floor: two threads and a slot", floors, pair->rounds);
    free(asks);
    free(floors);
}

static void answer_messages(struct pair *pair)
{
    char data[BYTES];
    for (int i = 0; i < BLOCK; i++) {
        must(pair->comm, tutti_recv(pair->comm, data, BYTES, TUTTI_U8, 0, 1, NULL));
        must(pair->comm, tutti_send(pair->comm, data, BYTES, TUTTI_U8, 0, 1));
    }
}

/* The rank that answers waits in a call while requests come, and receives while messages do. */
static void measure_there(struct pair *pair)
{
    bool asks_here = tutti_rank(pair->world) == 0;
    double *asks = new_times(pair->rounds), *floors = new_times(pair->rounds);
    for (int i = 0; asks_here && i < WARM_UP; i++) ask_us(pair);
    for (int done = 0; done < pair->rounds; done += BLOCK) {
        for (int i = 0; asks_here && i < BLOCK; i++) asks[done + i] = ask_us(pair);
        must(pair->world, tutti_barrier(pair->world));
        if (!asks_here) answer_messages(pair);
        for (int i = 0; asks_here && i < BLOCK; i++) floors[done + i] = message_us(pair);
    }
    char what[80];
    snprintf(what, sizeof what, "ask and answer, 64 B, over %s", tutti_comm_transport(pair->comm));
    if (asks_here) print(what, asks, pair->rounds);
    if (asks_here) print("  floor: a message and one back", floors, pair->rounds);
    free(asks);
    free(floors);
}

/* ---- As many as it takes --------------------------------------------------------------------------------------- */

struct client {
    pthread_t thread;
    struct pair *pair;
    int rounds;
};

static void *ask_many(void *argument)
{
    struct client *client = argument;
    tutti_actors *actors = client->pair->actors;
    char out[BYTES] = {1}, in[WINDOW][BYTES];
    tutti_op ops[WINDOW];
    for (int done = 0; done < client->rounds; done += WINDOW) {
        for (int i = 0; i < WINDOW; i++)
            must(client->pair->world,
                 tutti_actor_ask_start(actors, 0, "echo", out, BYTES, in[i], BYTES, NULL, 0, &ops[i]));
        must(client->pair->world, tutti_wait_all(ops, WINDOW));
    }
    return NULL;
}

static void *tell_many(void *argument)
{
    struct client *client = argument;
    char out[BYTES] = {1};
    for (int i = 0; i < client->rounds; i++)
        while (tutti_actor_tell(client->pair->actors, 0, "echo", out, BYTES) == TUTTI_ERR_FULL) sched_yield();
    return NULL;
}

static double per_second(struct pair *pair, void *(*body)(void *))
{
    struct client clients[CLIENTS];
    int rounds = (pair->rounds * 10 + WINDOW - 1) / WINDOW * WINDOW;
    double began = now_us();
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.pair = pair, .rounds = rounds};
        if (pthread_create(&clients[i].thread, NULL, body, &clients[i]) != 0) exit(1);
    }
    for (int i = 0; i < CLIENTS; i++) pthread_join(clients[i].thread, NULL);
    ask_us(pair); /* behind all that was told */
    return CLIENTS * rounds / (now_us() - began) * 1e6;
}

/* The floor: a list under a lock, an allocation for each, and one thread that takes them off. */
struct item {
    struct item *next;
    char data[BYTES];
};
static struct {
    pthread_mutex_t lock;
    struct item *first, **last;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *push_many(void *argument)
{
    const struct client *client = argument;
    for (int i = 0; i < client->rounds; i++) {
        struct item *item = calloc(1, sizeof *item);
        if (item == NULL) exit(1);
        pthread_mutex_lock(&queue.lock);
        *queue.last = item;
        queue.last = &item->next;
        pthread_mutex_unlock(&queue.lock);
    }
    return NULL;
}

static void *take_many(void *argument)
{
    long left = *(const long *)argument;
    while (left > 0) {
        pthread_mutex_lock(&queue.lock);
        struct item *item = queue.first;
        queue.first = NULL;
        queue.last = &queue.first;
        pthread_mutex_unlock(&queue.lock);
        if (item == NULL) sched_yield();
        for (struct item *next; item != NULL; item = next, left--) {
            next = item->next;
            free(item);
        }
    }
    return NULL;
}

static double floor_per_second(int rounds)
{
    struct client clients[CLIENTS];
    pthread_t consumer;
    long total = (long)CLIENTS * rounds;
    queue.last = &queue.first;
    double began = now_us();
    if (pthread_create(&consumer, NULL, take_many, &total) != 0) exit(1);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.rounds = rounds};
        if (pthread_create(&clients[i].thread, NULL, push_many, &clients[i]) != 0) exit(1);
    }
    for (int i = 0; i < CLIENTS; i++) pthread_join(clients[i].thread, NULL);
    pthread_join(consumer, NULL);
    return (double)total / (now_us() - began) * 1e6;
}

static void measure_rate(struct pair *pair)
{
    enum { TIMES = 5 };
    double asked[TIMES], told[TIMES], floor[TIMES];
    for (int i = 0; i < TIMES; i++) {
        asked[i] = per_second(pair, ask_many);
        told[i] = per_second(pair, tell_many);
        floor[i] = floor_per_second(pair->rounds * 10);
    }
    printf("one mailbox, 2 threads: asked %.2f, told %.2f million a second; floor, a queue with a lock: %.2f\n",
           median(asked, TIMES) / 1e6, median(told, TIMES) / 1e6, median(floor, TIMES) / 1e6);
}

/* ---- Restarts -------------------------------------------------------------------------------------------------- */

/* From the failing request on until the actor that was restarted for it has answered the next one. */
static void measure_restart(struct pair *pair)
{
    double *times = new_times(RESTARTS);
    tutti_log_set_level(TUTTI_ERROR);
    for (int i = 0; i < RESTARTS; i++) {
        double began = now_us();
        tutti_actor_ask(pair->actors, 0, "fail", NULL, 0, NULL, 0, NULL, 0);
        must(pair->world, tutti_actor_ask(pair->actors, 0, "fail", "x", 1, NULL, 0, NULL, 0));
        times[i] = now_us() - began;
    }
    print("a failure, the restart, and the next answer", times, RESTARTS);
    free(times);
}

static int work(tutti_comm *world, int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : ROUNDS, size = tutti_size(world);
    struct pair pair = {.world = world, .rank = size - 1, .rounds = rounds / BLOCK * BLOCK};
    if (size > 2 || rounds < BLOCK) {
        fprintf(stderr, "bench_actors [ROUNDS] is for one rank or two, and 100 rounds or more\n");
        return 2;
    }
    must(world, tutti_actors_create(world, NULL, &pair.actors));
    must(world, tutti_comm_tolerant(world, &pair.comm));
    if (tutti_rank(world) == pair.rank) create(world, pair.actors, "echo", false);
    must(world, tutti_barrier(world));
    if (size == 2) {
        measure_there(&pair);
    } else {
        create(world, pair.actors, "fail", true);
        measure_here(&pair);
        measure_rate(&pair);
        measure_restart(&pair);
    }
    must(world, tutti_barrier(world));
    must(world, tutti_actors_free(pair.actors));
    must(world, tutti_comm_free(pair.comm));
    return 0;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
