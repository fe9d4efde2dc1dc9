/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of transports: endpoints that send each other frames whose sizes and bytes follow from who sends the how-manieth
 * to whom, so that the receiver knows what must come.
 */
#ifndef TEST_MESH_H
#define TEST_MESH_H

#include "transport/transport.h"
#include <stdatomic.h>

enum { MESH_MOST = 12 };

struct mesh_node {
    struct tti_transport *transport;
    int rank, size;
    bool apart[MESH_MOST];      /* has nothing to do with this peer */
    size_t largest;             /* bytes of a frame at most */
    uint64_t sent[MESH_MOST];   /* frames given to send(), by peer */
    uint64_t done[MESH_MOST];   /* that done() was called for with OK */
    uint64_t failed[MESH_MOST]; /* with another status */
    uint64_t begun[MESH_MOST], ended[MESH_MOST];
    void *memory[MESH_MOST]; /* of the frame that has begun and not ended */
    uint64_t wrong;          /* frames that were not what they must be */
    bool lost[MESH_MOST], closed[MESH_MOST];
    int lost_errno[MESH_MOST];
    char text[MESH_MOST][200];
};

void mesh_node_init(struct mesh_node *node, struct tti_transport *transport, size_t largest);
/* Sends the next frame to a peer. */
void mesh_send(struct mesh_node *node, int peer);
bool mesh_progress(struct mesh_node *node);
/* Whether all frames it sent have been done, and `frames` have come from every peer. */
bool mesh_complete(const struct mesh_node *node, uint64_t frames);

#endif
