/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives as data: the contents of requests to actors.
 */
#ifndef TTI_ACTOR_COLLECTIVE_CALLS_H
#define TTI_ACTOR_COLLECTIVE_CALLS_H

#include <tutti/actor.h>

/* Returns NULL, or what is wrong with the calls as far as it can be seen without a comm. */
const char *tti_collective_check(const tutti_collective_call *calls, size_t count);
/* Makes the calls, as a group if there are several. stream NULL: on the host. The comm has the error. */
tutti_status tti_collective_make(tutti_comm *comm, tutti_stream *stream, const tutti_collective_call *calls,
                                 size_t count, int64_t deadline_ms);

/* Return when a request's deadline is, and how much time is left: at least 1 ms. */
int64_t tti_until_ns(const tutti_actors *actors, int64_t deadline_ms);
int64_t tti_left_ms(int64_t until_ns);

#endif
