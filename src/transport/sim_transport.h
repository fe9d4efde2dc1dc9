/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport of simulated hosts (base/sim.h): frames take the time that links would take.
 *
 * Each host has one link with a rate and a latency, the same for all, through which its ranks send and, apart from that,
 * receive; between the links is nothing that could be a bottleneck. What a host's ranks send shares its link evenly; what
 * comes to a host passes its link in order of arrival. A frame's last byte so arrives after
 *     latency + (what was with it or before it on either link, and itself) / rate.
 * Between ranks of one host a frame takes the local latency and rate of the run, for each receiver one after the other.
 * Sending and receiving a frame cost the sender's and the receiver's time the run's overhead each; where data have to be
 * copied by their cores (`copy` of the run), neither does anything else meanwhile, and one copies what the
 * other has copied already. A link takes TTI_SIM_FRAME_BYTES more than a frame's data.
 */
#ifndef TTI_TRANSPORT_SIM_TRANSPORT_H
#define TTI_TRANSPORT_SIM_TRANSPORT_H

#include "transport/transport.h"

enum { TTI_SIM_FRAME_BYTES = sizeof(struct tti_frame_head) };

struct tti_sim_network;

/* `hosts` times `ranks_per_host` ranks, numbered host by host. Only inside a run, which must outlast it. */
tutti_status tti_sim_network_create(int hosts, int ranks_per_host, double link_ns_per_byte, int64_t link_latency_ns,
                                    struct tti_sim_network **network, tutti_error *error);
/* All endpoints must be closed or dropped. */
void tti_sim_network_free(struct tti_sim_network *network);

/* The endpoint of a rank: one at a time. */
struct tti_transport *tti_sim_network_open(struct tti_sim_network *network, int rank);

/* The rank is no more: what it had not sent is lost, and its peers learn of it after the latency of the link. Its endpoint
 * still has to be closed, by whoever frees what was the rank's. */
void tti_sim_network_drop(struct tti_sim_network *network, int rank);

#endif
