/* SPDX-License-Identifier: Apache-2.0 */
#include "check_mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct frame {
    struct tti_outgoing outgoing;
    struct mesh_node *node;
    int peer;
    uint64_t number;
    unsigned char data[];
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t seed_of(int from, int to, uint64_t number)
{
    return mix((uint64_t)from * 1000003 + (uint64_t)to * 7919 + number * 65537 + 1);
}

static size_t size_of(int from, int to, uint64_t number, size_t largest)
{
    static const size_t sizes[] = {0,    1,    7,     8,     56,     100,    512,     513,
                                   1000, 4096, 32712, 40000, 300000, 600000, 2000000, 6000000};
    size_t count = sizeof sizes / sizeof *sizes;
    uint64_t seed = seed_of(from, to, number);
    size_t at = (size_t)(seed % (count + 24)); /* most are small */
    size_t bytes = at < count ? sizes[at] : (size_t)(seed >> 32) % 200;
    return bytes < largest ? bytes : largest;
}

/* Every byte depends on its place: byte i is seed + i + 7 * (i / 256). By blocks, which is cheap under sanitizers too. */
enum { BLOCK = 256 };
#define FOUR(n) n, n + 1, n + 2, n + 3
#define SIXTEEN(n) FOUR(n), FOUR(n + 4), FOUR(n + 8), FOUR(n + 12)
#define SIXTY_FOUR(n) SIXTEEN(n), SIXTEEN(n + 16), SIXTEEN(n + 32), SIXTEEN(n + 48)
#define ALL SIXTY_FOUR(0), SIXTY_FOUR(64), SIXTY_FOUR(128), SIXTY_FOUR(192)

static const unsigned char *block_of(uint64_t seed, size_t at)
{
    static const unsigned char ramp[2 * BLOCK] = {ALL, ALL};
    return ramp + (seed + at / BLOCK * 7) % BLOCK;
}

static size_t block_bytes(size_t bytes, size_t at)
{
    return bytes - at < BLOCK ? bytes - at : BLOCK;
}

static void fill(unsigned char *data, size_t bytes, uint64_t seed)
{
    for (size_t at = 0; at < bytes; at += BLOCK) memcpy(data + at, block_of(seed, at), block_bytes(bytes, at));
}

static bool is_filled(const unsigned char *data, size_t bytes, uint64_t seed)
{
    for (size_t at = 0; at < bytes; at += BLOCK)
        if (memcmp(data + at, block_of(seed, at), block_bytes(bytes, at)) != 0) return false;
    return true;
}

static bool is_dropped(uint64_t number)
{
    return number % 7 == 3;
}

/* ---- The sink -------------------------------------------------------------------------------------------------- */

static void *begin(void *context, int peer, const struct tti_frame_head *head, void **cookie)
{
    struct mesh_node *node = context;
    uint64_t number = node->begun[peer]++;
    bool right = head->sequence == number && head->bytes == size_of(peer, node->rank, number, node->largest) &&
                 head->comm == 0x01020304 && head->kind == 5 && head->type == 6 && head->tag == -7 &&
                 head->signature == (uint32_t)peer && head->value == seed_of(peer, node->rank, number) &&
                 node->ended[peer] == number;
    if (!right) node->wrong++;
    if (is_dropped(number)) return NULL;
    *cookie = malloc(head->bytes + 1);
    if (*cookie == NULL) abort();
    node->memory[peer] = *cookie;
    return *cookie;
}

static void end(void *context, int peer, const struct tti_frame_head *head, void *cookie)
{
    struct mesh_node *node = context;
    uint64_t number = node->ended[peer]++;
    if (number + 1 != node->begun[peer]) node->wrong++;
    if (!is_dropped(number) && !is_filled(cookie, head->bytes, head->value)) node->wrong++;
    free(cookie);
    node->memory[peer] = NULL;
}

static void lost(void *context, int peer, bool closed, int system_errno, const char *text)
{
    struct mesh_node *node = context;
    if (node->lost[peer]) node->wrong++;
    free(node->memory[peer]);
    node->memory[peer] = NULL;
    node->lost[peer] = true;
    node->closed[peer] = closed;
    node->lost_errno[peer] = system_errno;
    snprintf(node->text[peer], sizeof node->text[peer], "%s", text);
}

void mesh_node_init(struct mesh_node *node, struct tti_transport *transport, size_t largest)
{
    memset(node, 0, sizeof *node);
    node->transport = transport;
    node->rank = transport->rank;
    node->size = transport->size;
    node->largest = largest;
    transport->sink = (struct tti_sink){.context = node, .begin = begin, .end = end, .lost = lost};
}

/* ---- Sending --------------------------------------------------------------------------------------------------- */

static void done(struct tti_outgoing *outgoing, tutti_status status)
{
    struct frame *frame = (struct frame *)outgoing;
    struct mesh_node *node = frame->node;
    if (frame->number != node->done[frame->peer] + node->failed[frame->peer]) node->wrong++; /* in order */
    if (status == TUTTI_OK)
        node->done[frame->peer]++;
    else
        node->failed[frame->peer]++;
    free(frame);
}

void mesh_send(struct mesh_node *node, int peer)
{
    uint64_t number = node->sent[peer]++, seed = seed_of(node->rank, peer, number);
    size_t bytes = size_of(node->rank, peer, number, node->largest);
    struct frame *frame = malloc(sizeof *frame + bytes);
    if (frame == NULL) abort();
    frame->node = node;
    frame->peer = peer;
    frame->number = number;
    fill(frame->data, bytes, seed);
    frame->outgoing = (struct tti_outgoing){.head = {.comm = 0x01020304,
                                                     .kind = 5,
                                                     .type = 6,
                                                     .tag = -7,
                                                     .signature = (uint32_t)node->rank,
                                                     .sequence = number,
                                                     .value = seed,
                                                     .bytes = bytes},
                                            .data = frame->data,
                                            .done = done};
    uint64_t before = node->done[peer] + node->failed[peer];
    bool taken = node->transport->ops->send(node->transport, peer, &frame->outgoing);
    if (node->done[peer] + node->failed[peer] != before) node->wrong++; /* never from within send() */
    if (taken) done(&frame->outgoing, TUTTI_OK);
}

bool mesh_progress(struct mesh_node *node)
{
    return node->transport->ops->progress(node->transport, TTI_ANYBODY);
}

bool mesh_complete(const struct mesh_node *node, uint64_t frames)
{
    for (int peer = 0; peer < node->size; peer++) {
        if (peer == node->rank || node->apart[peer]) continue;
        if (node->done[peer] < node->sent[peer] || node->ended[peer] < frames) return false;
    }
    return true;
}
