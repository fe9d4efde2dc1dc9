/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * The agreement of ranks that exchange messages, as a state machine: in every order of messages, with ranks that die at any moment,
 * also in the midst of telling the others, all that come to an outcome come to the same. Where ranks that live are given up for their
 * silence, too, two sides never both go on.
 */
#include "check.h"
#include "sanitized.h"
#include "world/agree.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 7, ROUNDS = 4, QUEUE = 4096 };

struct packet {
    size_t bytes;
    void *data;
};

/* From one rank to another, in order. */
struct link {
    struct packet packets[QUEUE];
    int first, count;
};

struct node {
    int rank;
    struct tti_agree *agree;
    bool dead;
    uint32_t number; /* of the agreement that it waits for; 0: none */
    int round;
    uint64_t outcomes[ROUNDS]; /* the AND of all values */
};

static struct link links[MOST][MOST];
static struct node nodes[MOST];
/* Ranks that live are given up, too, and the larger part decides. */
static bool by_majority;
static int size, sends_left; /* until the rank that sends now dies in the midst of it; -1: it does not */
static uint64_t state;

static uint64_t random_below(uint64_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % limit;
}

static void put(void *context, int to, const void *message, size_t bytes)
{
    struct node *node = context;
    struct link *link = &links[node->rank][to];
    if (node->dead) return;
    if (sends_left == 0) {
        node->dead = true;
        return;
    }
    if (sends_left > 0) sends_left--;
    if (!CHECK(link->count < QUEUE)) return;
    struct packet *packet = &link->packets[(link->first + link->count++) % QUEUE];
    packet->bytes = bytes;
    packet->data = malloc(bytes);
    memcpy(packet->data, message, bytes);
}

static void take_outcome(struct node *node)
{
    struct tti_agree_result result;
    if (node->dead || node->number == 0 || !tti_agree_result(node->agree, node->number, &result)) return;
    if (by_majority && result.outcome == TTI_AGREE_EXCLUDED) {
        node->dead = true; /* as who is told that others go on without it, or are too few, should */
        return;
    }
    CHECK_THAT(result.outcome == TTI_AGREED, "rank %d, round %d: outcome %d", node->rank, node->round, result.outcome);
    uint64_t all = UINT64_MAX;
    for (int rank = 0; rank < size; rank++)
        if (tti_agree_was_present(node->agree, rank)) all &= result.values[rank];
    node->outcomes[node->round++] = all;
    node->number = 0;
}

static bool deliver(int from, int to)
{
    struct link *link = &links[from][to];
    if (link->count == 0) return false;
    struct packet packet = link->packets[link->first];
    link->first = (link->first + 1) % QUEUE;
    link->count--;
    if (!nodes[to].dead) tti_agree_hear(nodes[to].agree, from, packet.data, packet.bytes);
    free(packet.data);
    take_outcome(&nodes[to]);
    return true;
}

/* One event of those that may happen; false if it was none. */
static bool step(int *deaths_left)
{
    struct node *node = &nodes[random_below((uint64_t)size)];
    int other = (int)random_below((uint64_t)size);
    switch (random_below(by_majority ? 9 : 8)) {
    case 0: /* it takes part in the next agreement */
        if (node->dead || node->number != 0 || node->round == ROUNDS) return false;
        node->number = tti_agree_start(node->agree, 1, ~(UINT64_C(1) << node->rank) & ~((uint64_t)node->round << 32));
        take_outcome(node);
        return true;
    case 1: /* it dies, or will soon, in the midst of sending */
        if (node->dead || *deaths_left == 0 || random_below(12) != 0) return false;
        (*deaths_left)--;
        sends_left = (int)random_below(4);
        if (random_below(2) == 0 || !deliver(other, node->rank)) node->dead = true;
        node->dead = true;
        sends_left = -1;
        return true;
    case 2: /* it notices a death: what the dead one had sent may come before or never */
        if (node->dead || !nodes[other].dead) return false;
        if (links[other][node->rank].count > 0 && random_below(2) == 0) return false;
        while (links[other][node->rank].count > 0) {
            struct link *link = &links[other][node->rank];
            free(link->packets[link->first].data);
            link->first = (link->first + 1) % QUEUE;
            link->count--;
        }
        tti_agree_gone(node->agree, other, true);
        take_outcome(node);
        return true;
    case 8: /* it gives up waiting */
        if (node->dead || node->number == 0 || random_below(40) != 0) return false;
        tti_agree_expire(node->agree, true);
        take_outcome(node);
        return true;
    default: return deliver(other, node->rank);
    }
}

static bool is_done(void)
{
    for (int rank = 0; rank < size; rank++)
        if (!nodes[rank].dead && nodes[rank].round < ROUNDS) return false;
    return true;
}

/* What two ranks came to is the same as far as both came, also of one that is dead now. */
static void compare(void)
{
    for (int one = 0; one < size; one++)
        for (int other = 0; other < one; other++)
            for (int round = 0; round < nodes[one].round && round < nodes[other].round; round++)
                CHECK_THAT(nodes[one].outcomes[round] == nodes[other].outcomes[round],
                           "round %d: rank %d %llx, rank %d %llx", round, one,
                           (unsigned long long)nodes[one].outcomes[round], other,
                           (unsigned long long)nodes[other].outcomes[round]);
}

static void run(uint64_t seed)
{
    state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    size = 2 + (int)random_below(MOST - 1);
    int deaths = (int)random_below((uint64_t)size);
    by_majority = seed % 3 == 0;
    check_title("seed %llu, %d ranks, %d deaths%s", (unsigned long long)seed, size, deaths,
                by_majority ? ", by majority" : "");
    sends_left = -1;
    memset(nodes, 0, sizeof nodes);
    for (int rank = 0; rank < size; rank++) {
        nodes[rank].rank = rank;
        nodes[rank].agree = tti_agree_create(rank, size, by_majority, put, &nodes[rank]);
        CHECK(nodes[rank].agree != NULL);
    }
    int idle = 0;
    while (!is_done() && idle < 20000) idle = step(&deaths) ? 0 : idle + 1;
    CHECK_THAT(is_done(), "it hangs");
    compare();
    for (int one = 0; one < size; one++)
        for (int other = 0; other < size; other++)
            while (links[one][other].count > 0) {
                struct link *link = &links[one][other];
                free(link->packets[link->first].data);
                link->first = (link->first + 1) % QUEUE;
                link->count--;
            }
    for (int rank = 0; rank < size; rank++) tti_agree_free(nodes[rank].agree);
}

int main(int argc, char **argv)
{
    uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 0) : SANITIZED ? 2000 : 20000;
    for (uint64_t seed = 1; seed <= seeds; seed++) run(seed);
    return check_end();
}
