/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of one host that were configured differently wait for rank 0 at different sockets: those that use shared memory
 * alone at the job's socket, those that meet first at the socket of the meeting. A rank that does not find rank 0 at
 * its own socket looks at the other one, and says there why it does not come; all are then told.
 */
#ifndef TTI_WORLD_APART_H
#define TTI_WORLD_APART_H

#include <tutti/tutti.h>

/* The rank that looks. */
struct tti_apart {
    const char *job;
    int process, process_count, ranks_each;
    const tutti_options *options;
};

/* Looks for rank 0 at the join's or the meeting's socket. OK: rank 0 is not there, or does not answer. ERR_JOIN: rank 0
 * was told. `apart` NULL: returns OK. */
tutti_status tti_apart_poll_join(const struct tti_apart *apart, tutti_error *error);
tutti_status tti_apart_poll_meeting(const struct tti_apart *apart, tutti_error *error);

#endif
