/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives as data: what requests to actors hold.
 */
#ifndef TTI_ACTOR_COLLECTIVE_CALLS_H
#define TTI_ACTOR_COLLECTIVE_CALLS_H

#include <tutti/actor.h>

/* NULL, or what is wrong with the calls that anybody can see. */
const char *tti_collective_check(const tutti_collective_call *calls, size_t count);
/* Makes them, together where they are several. stream NULL: on the host. The error is in the comm. */
tutti_status tti_collective_make(tutti_comm *comm, tutti_stream *stream, const tutti_collective_call *calls,
                                 size_t count, int64_t deadline_ms);

/* When a request's deadline is, and how much of it is left: 1 ms at least. */
int64_t tti_until_ns(const tutti_actors *actors, int64_t deadline_ms);
int64_t tti_left_ms(int64_t until_ns);

#endif
