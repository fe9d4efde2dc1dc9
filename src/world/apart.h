/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of one host that were told different ways to each other wait for rank 0 at different sockets: those that share memory
 * alone at the job's, those that meet first at that of its meeting. Who does not find rank 0 at its own looks for it at the
 * other, and says there why it does not come, which all are then told.
 */
#ifndef TTI_WORLD_APART_H
#define TTI_WORLD_APART_H

#include <tutti/tutti.h>

/* Who looks. */
struct tti_apart {
    const char *job;
    int process, process_count, ranks_each;
    const tutti_options *options;
};

/* OK: rank 0 is not there, or does not answer. Else ERR_JOIN: it was told. NULL: nobody looks. */
tutti_status tti_apart_poll_join(const struct tti_apart *apart, tutti_error *error);
tutti_status tti_apart_poll_meeting(const struct tti_apart *apart, tutti_error *error);

#endif
