/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * The transport of simulated hosts: how long frames take alone and together, their order and their data, and what peers
 * learn of ranks that close or are dropped.
 */
#include "base/clock.h"
#include "base/sim.h"
#include "base/task.h"
#include "ranks.h"
#include "transport/sim_transport.h"
#include <stdlib.h>
#include <string.h>

enum { RANKS = 6, HOSTS = 3, EACH = 2, LATENCY_NS = 1000, FRAMES = 40, HEAD = TTI_SIM_FRAME_BYTES };
enum { LARGE = 1 << 22 };

struct node {
    struct tti_task task;
    struct tti_transport *transport;
    struct tti_sim_network *network;
    int rank;
    int posted, arrived, sent, failed; /* frames */
    int lost[RANKS];                   /* 1: in order, 2: dropped */
    bool closed;
    int64_t arrived_ns, lost_ns;
    uint64_t next[RANKS]; /* sequence expected from each */
    unsigned char *room;
    void (*work)(struct node *node);
};

static unsigned char data[LARGE];

static struct letter {
    struct tti_outgoing outgoing; /* the first member */
    struct node *node;
} letters[RANKS][FRAMES * RANKS];

/* ---- The layer above --------------------------------------------------------------------------------------------- */

static void *begin(void *context, int peer, const struct tti_frame_head *head, void **cookie)
{
    struct node *node = context;
    *cookie = node;
    CHECK(head->sequence == node->next[peer]++ && head->value == (uint64_t)peer * 1000);
    return node->room;
}

static void end(void *context, int peer, const struct tti_frame_head *head, void *cookie)
{
    struct node *node = context;
    (void)peer;
    CHECK(cookie == node);
    bool carried = head->bytes <= 4096 || !tti_sim_setup_of()->sizes_only;
    if (carried && head->bytes > 0) CHECK(memcmp(node->room, data + head->tag, head->bytes) == 0);
    node->arrived++;
    node->arrived_ns = tti_now_ns();
}

static void lost(void *context, int peer, bool closed, int system_errno, const char *text)
{
    struct node *node = context;
    CHECK(text[0] != '\0' && (system_errno == 0) == closed && node->lost[peer] == 0);
    node->lost[peer] = closed ? 1 : 2;
    node->lost_ns = tti_now_ns();
}

static void done(struct tti_outgoing *outgoing, tutti_status status)
{
    struct node *node = ((struct letter *)outgoing)->node;
    if (status == TUTTI_OK)
        node->sent++;
    else
        node->failed++;
}

static void send_frame(struct node *node, int to, uint64_t sequence, size_t bytes)
{
    struct letter *letter = &letters[node->rank][node->posted++];
    struct tti_outgoing *outgoing = &letter->outgoing;
    letter->node = node;
    int tag = bytes < LARGE / 2 ? (int)(sequence * 13) : 0;
    outgoing->head = (struct tti_frame_head){
        .bytes = bytes, .sequence = sequence, .tag = tag, .value = (uint64_t)node->rank * 1000};
    outgoing->data = data + tag;
    outgoing->done = done;
    node->transport->ops->send(node->transport, to, outgoing);
}

static void await(struct node *node, const int *counter, int count)
{
    int64_t until = tti_now_ns() + INT64_C(60000000000);
    while (*counter < count && tti_now_ns() < until)
        if (!node->transport->ops->progress(node->transport, TTI_ANYBODY))
            node->transport->ops->sleep(node->transport, 1000000000);
    CHECK(*counter >= count);
}

/* ---- Running nodes ----------------------------------------------------------------------------------------------- */

static struct node nodes[RANKS];
static void (*node_work)(struct node *node);
static int64_t start_ns;

static void *node_body(void *argument)
{
    struct node *node = argument;
    node_work(node);
    if (!node->closed) node->transport->ops->close(node->transport, 1000000000);
    return NULL;
}

static void *network_body(void *argument)
{
    struct tti_sim_network *network = NULL;
    tutti_error error;
    CHECK(tti_sim_network_create(HOSTS, EACH, 1.0, LATENCY_NS, &network, &error) == TUTTI_OK);
    memset(nodes, 0, sizeof nodes);
    start_ns = tti_now_ns();
    for (int rank = 0; rank < RANKS; rank++) {
        struct node *node = &nodes[rank];
        *node = (struct node){.rank = rank, .network = network, .room = malloc(LARGE)};
        node->transport = tti_sim_network_open(network, rank);
        node->transport->sink = (struct tti_sink){node, begin, end, lost};
        CHECK(node->transport->rank == rank && node->transport->size == RANKS);
        CHECK(tti_task_start(&node->task, node_body, node, &error) == TUTTI_OK);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        tti_task_join(&nodes[rank].task);
        free(nodes[rank].room);
    }
    tti_sim_network_free(network);
    (void)argument;
    return NULL;
}

static struct tti_sim_totals run(void (*work)(struct node *node), struct tti_sim_setup setup)
{
    struct tti_sim_totals totals;
    tutti_error error;
    node_work = work;
    CHECK(tti_sim_run(&setup, network_body, NULL, &totals, &error) == TUTTI_OK);
    return totals;
}

static int64_t when(int rank)
{
    return nodes[rank].arrived_ns - start_ns;
}

static bool is_near(int64_t value, int64_t expected)
{
    if (value >= expected && value <= expected + 4) return true;
    printf("%lld ns instead of %lld\n", (long long)value, (long long)expected);
    return false;
}

/* ---- Times ------------------------------------------------------------------------------------------------------- */

/* Of one frame from host to host, and of one within a host, at 2 ns per byte there. */
static void alone(struct node *node)
{
    if (node->rank == 0) send_frame(node, 2, 0, 100000);
    if (node->rank == 4) send_frame(node, 5, 0, 5000);
    if (node->rank == 0 || node->rank == 4) await(node, &node->sent, 1);
    if (node->rank == 2 || node->rank == 5) await(node, &node->arrived, 1);
}

/* Both ranks of host 0 send to different hosts: they share the way out. */
static void share_out(struct node *node)
{
    if (node->rank < 2) send_frame(node, 2 + 2 * node->rank, 0, LARGE);
    if (node->rank == 2 || node->rank == 4) await(node, &node->arrived, 1);
}

/* One of them begins when half of the other's is gone, with a quarter: each has half of the way while both send. */
static void share_late(struct node *node)
{
    if (node->rank == 0) send_frame(node, 2, 0, LARGE);
    if (node->rank == 1) {
        tti_sim_sleep(LARGE / 2);
        send_frame(node, 4, 0, LARGE / 4);
    }
    if (node->rank == 2 || node->rank == 4) await(node, &node->arrived, 1);
}

/* Ranks 0 and 2 send to each other at once. */
static void exchange(struct node *node)
{
    if (node->rank != 0 && node->rank != 2) return;
    send_frame(node, 2 - node->rank, 0, 100000);
    await(node, &node->arrived, 1);
}

/* Hosts 1 and 2 send to host 0: they share the way in. A small frame that comes later does not wait for all of it. */
static void share_in(struct node *node)
{
    if (node->rank == 2 || node->rank == 4) send_frame(node, 0, 0, LARGE);
    if (node->rank == 5) {
        tti_sim_sleep(LARGE / 2);
        send_frame(node, 1, 0, 10);
    }
    if (node->rank == 0) await(node, &node->arrived, 2);
    if (node->rank == 1) await(node, &node->arrived, 1);
}

/* The same, and when both have left their hosts, and half of them has still to come in, one sends as much again. */
static void follow_in(struct node *node)
{
    if (node->rank == 2 || node->rank == 4) send_frame(node, 0, 0, LARGE);
    if (node->rank == 2) {
        await(node, &node->sent, 1);
        tti_sim_sleep(10);
        send_frame(node, 1, 0, LARGE);
    }
    if (node->rank == 0) await(node, &node->arrived, 2);
    if (node->rank == 1) await(node, &node->arrived, 1);
}

static void test_times(void)
{
    struct tti_sim_setup setup = {.seed = 1, .local_ns_per_byte = 2, .local_latency_ns = 300};
    run(alone, setup);
    CHECK(is_near(when(2), LATENCY_NS + HEAD + 100000) && is_near(when(5), 300 + 2 * 5000));
    setup.overhead_ns = 50; /* for the sender and for the receiver */
    run(alone, setup);
    CHECK(is_near(when(2), LATENCY_NS + HEAD + 100000 + 2 * 50) && is_near(when(5), 300 + 2 * 5000 + 2 * 50));
    setup.overhead_ns = 0;
    const tutti_sim_point fast[] = {{0, 0}, {1000, 500}}, slow[] = {{0, 0}, {50, 100}, {100, 300}, {1000, 3000}};
    setup.copy = fast,
    setup.copy_count = 2; /* faster than the link: both copy while it sends, and the receiver nothing else */
    run(alone, setup);
    CHECK(is_near(when(2), LATENCY_NS + HEAD + 100000));
    setup.copy = slow, setup.copy_count = 4; /* slower: one copies what the other has copied */
    run(alone, setup);
    CHECK(is_near(when(2), LATENCY_NS + 300000));
    run(exchange, setup); /* neither receives while it sends */
    CHECK(is_near(when(0), 600000) && is_near(when(2), 600000));
    const tutti_sim_point late[] = {{0, 0}, {200000, 14000}};
    setup.delay = late, setup.delay_count = 2; /* nobody is busy with it: what is copied by then is copied as before */
    run(alone, setup);
    CHECK(is_near(when(2), LATENCY_NS + 300000 + 7000));
    run(exchange, setup); /* it comes while the other still sends */
    CHECK(is_near(when(0), 600000) && is_near(when(2), 600000));
    setup.copy_count = 0;
    run(exchange, setup);
    CHECK(is_near(when(0), LATENCY_NS + HEAD + 100000 + 7000));
    setup.delay_count = 0;
    run(share_out, setup);
    int64_t both = LATENCY_NS + 2 * (HEAD + LARGE);
    int64_t first = when(2) < when(4) ? when(2) : when(4), second = when(2) < when(4) ? when(4) : when(2);
    CHECK(is_near(second, both) && first > both * 8 / 10); /* fairly: both end near the end */
    run(share_late, setup);
    CHECK(is_near(when(4), LATENCY_NS + LARGE / 2 + 2 * (HEAD + LARGE / 4)));
    CHECK(is_near(when(2), LATENCY_NS + LARGE + LARGE / 4 + 2 * HEAD));
    run(share_in, setup);
    CHECK(when(0) > both && when(0) < both + 1000 && when(1) < when(0) * 8 / 10);
    run(follow_in, setup);
    CHECK(is_near(when(0), both) && is_near(when(1), both + HEAD + LARGE));
}

/* ---- Order and data ---------------------------------------------------------------------------------------------- */

static void all_to_all(struct node *node)
{
    for (uint64_t i = 0; i < FRAMES; i++)
        for (int to = 0; to < RANKS; to++) send_frame(node, to, i, (i * 97 + (uint64_t)to * 7) % 3000);
    await(node, &node->arrived, FRAMES * RANKS);
    await(node, &node->sent, FRAMES * RANKS);
    CHECK(node->failed == 0);
}

static void test_order(void)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct tti_sim_setup setup = {.seed = seed, .local_ns_per_byte = 2, .noise_ns = seed % 2 == 0 ? 0 : 5000};
        setup.sizes_only = seed % 3 == 0;
        struct tti_sim_totals one = run(all_to_all, setup), again = run(all_to_all, setup);
        CHECK(one.trace == again.trace && one.time_ns == again.time_ns);
        for (int rank = 0; rank < RANKS; rank++) CHECK(nodes[rank].arrived == FRAMES * RANKS);
    }
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

/* Rank 1 closes right after sending: everything still arrives, and then that it closed. */
static void close_early(struct node *node)
{
    if (node->rank == 1) {
        for (uint64_t i = 0; i < 5; i++) send_frame(node, 3, i, 100000);
        return;
    }
    if (node->rank != 3) return;
    await(node, &node->lost[1], 1);
    CHECK(node->arrived == 5 && node->lost[1] == 1);
    send_frame(node, 1, 0, 10);
    await(node, &node->failed, 1);
}

/* Rank 1 is dropped while its first frame is on its way out: that one never arrives. */
static void drop_early(struct node *node)
{
    if (node->rank == 1) {
        send_frame(node, 3, 0, 100);
        tti_sim_sleep(5000);
        for (uint64_t i = 1; i < 5; i++) send_frame(node, 3, i, 100000);
        tti_sim_sleep(1000000);
        CHECK(node->sent == 0 && node->failed == 0);
        node->transport->ops->close(node->transport, 1000000000);
        node->closed = true;
        CHECK(node->sent == 1 && node->failed == 4);
        return;
    }
    if (node->rank == 0) {
        tti_sim_sleep(55000);
        send_frame(node, 5, 0, 1000); /* waits behind rank 1's */
        tti_sim_network_drop(node->network, 1);
        await(node, &node->sent, 1);
    }
    if (node->rank == 5) await(node, &node->arrived, 1);
    if (node->rank != 3) return;
    await(node, &node->lost[1], 1);
    CHECK(node->arrived == 1 && node->lost[1] == 2);
    CHECK(is_near(node->lost_ns - start_ns, 55000 + LATENCY_NS));
}

/* Frames to a rank that has closed but is not known to have: they are lost, and nothing else is. */
static void send_too_late(struct node *node)
{
    if (node->rank != 0) return;
    tti_sim_sleep(100);
    for (uint64_t i = 0; i < 3; i++) send_frame(node, 5, i, LARGE / 4);
    await(node, &node->sent, 2);
    node->transport->ops->close(node->transport, 10); /* too short for the third */
    node->closed = true;
    CHECK(node->sent == 2 && node->failed == 1);
}

static void test_ends(void)
{
    struct tti_sim_setup setup = {.seed = 1, .local_ns_per_byte = 2, .local_latency_ns = 300};
    run(close_early, setup);
    run(drop_early, setup);
    run(send_too_late, setup);
}

int main(void)
{
    for (size_t i = 0; i < LARGE; i++) data[i] = (unsigned char)(i * 7 + i / 251);
    test_times();
    test_order();
    test_ends();
    return check_end();
}
