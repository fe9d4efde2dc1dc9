/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets inside a simulated run (base/sim.h), for socket.c: joining and tcp go by them as they do elsewhere. They are
 * local sockets of the system, named by their port, so what is sent is there at once; simulated time passes for those
 * that wait. Connections can be made to end by themselves, as if the network had ended them: both ways, or one way
 * only.
 */
#ifndef TTI_TRANSPORT_SIM_SOCKET_H
#define TTI_TRANSPORT_SIM_SOCKET_H

#include "transport/socket.h"

/* As in socket.h. */
int tti_sim_listen(struct tti_address *address);
int tti_sim_connect(const struct tti_address *address);
int tti_sim_poll(struct pollfd *set, nfds_t count, int64_t timeout_ns);
/* Notes that the calling task's group has this socket, so that it ends with the group. Returns the socket. Does nothing
 * outside of a run. */
int tti_sim_own_socket(int fd);
/* Closes the sockets of a group that was killed, as the system does for a process. */
struct tti_sim_task;
void tti_sim_close_sockets(const struct tti_sim_task *leader);
/* Sets that from now on one of so many connections ends by itself within that time; 0: none does. With `unread` it does
 * so only once that many bytes wait at the end that has connected, and these are lost. */
void tti_sim_break_sockets(uint64_t one_in, int64_t within_ns, int unread);
/* Returns how many have ended so. */
int tti_sim_broken_sockets(void);

#endif
