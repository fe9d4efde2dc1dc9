/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport of simulated hosts (base/sim.h): frames take the time that links would take.
 *
 * Each host has one link with a rate and a latency, the same for all, through which its ranks send and, apart from
 * that, receive; the network between the links is never a bottleneck. Frames that a host's ranks send share its link
 * evenly; frames that come to a host pass its link in order of arrival. So a frame's last byte arrives after
 *     latency + (bytes of frames with it or before it on either link, and its own) / rate.
 * Between ranks of one host a frame takes the local latency and rate of the run, for each receiver one after the other.
 * Sending and receiving a frame cost the sender's and the receiver's time the run's overhead each; if their cores have
 * to copy data (`copy` of the run), neither does anything else meanwhile, and the receiver copies what the sender has
 * copied already. A link takes TTI_SIM_FRAME_BYTES more than a frame's data.
 */
#ifndef TTI_TRANSPORT_SIM_TRANSPORT_H
#define TTI_TRANSPORT_SIM_TRANSPORT_H

#include "transport/transport.h"
#include <tutti/experimental.h>

enum { TTI_SIM_FRAME_BYTES = sizeof(struct tti_frame_head) };

struct tti_sim_network;

/* Makes a network for `hosts` times `ranks_per_host` ranks, numbered host by host. Only inside a run, which must
 * outlast it. */
tutti_status tti_sim_network_create(int hosts, int ranks_per_host, double link_ns_per_byte, int64_t link_latency_ns,
                                    struct tti_sim_network **network, tutti_error *error);
/* Frees the network; all endpoints must be closed or dropped. */
void tti_sim_network_free(struct tti_sim_network *network);

/* Plans the cuts and the ends of connections among `faults`, whose times count from now, and ignores other faults. Two
 * ranks of which one has not heard the other for `heartbeat_ms`, or up to half as long again, each pair its own time, lose
 * each other: their connection ends, and stays so after the cut. To be called once, before endpoints are opened. */
tutti_status tti_sim_network_disturb(struct tti_sim_network *network, const tutti_sim_fault *faults, size_t count,
                                     int64_t heartbeat_ms, tutti_error *error);

/* Returns the endpoint of a rank: one at a time. */
struct tti_transport *tti_sim_network_open(struct tti_sim_network *network, int rank);

/* Ends a rank: frames that it had not sent are lost, and its peers learn of it after the latency of the link. Its
 * endpoint must still be closed, when the rank's memory is freed. */
void tti_sim_network_drop(struct tti_sim_network *network, int rank);

#endif
