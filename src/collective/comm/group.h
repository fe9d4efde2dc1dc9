/* SPDX-License-Identifier: Apache-2.0
 *
 * A group that has begun and not ended: calls that were checked and noted, of one or several comms of this rank.
 * api_group.c says what is done with them; a refused call spoils its group wherever that happens.
 */
#ifndef TTI_COLLECTIVE_GROUP_H
#define TTI_COLLECTIVE_GROUP_H

#include "collective/plan/kind.h"
#include <tutti/tutti.h>

struct tti_message_request;
struct tti_started;

/* The calls on one of the group's comms. */
struct tti_group_comm {
    tutti_comm *comm;
    struct tti_message_request *requests; /* messages, which are posted together */
    int request_count, request_room;
    struct tti_started *first, *last; /* collectives, in order */
    int op_count;
};

struct tti_group {
    struct tti_group_comm *comms; /* the one that it was begun on comes first */
    int comm_count;
    int calls;          /* noted so far */
    tutti_error error;  /* error of the first call that was refused, */
    int refused;        /* its number, from 1; 0: none, and the error is about something else */
    tutti_error broken; /* error of the first call that found its comm broken, */
    int broken_at;      /* its number, from 1; 0: none */
};

/* Called when a call on the comm was refused: spoils the group if it holds such calls. */
void tti_group_spoil(tutti_comm *comm, enum tti_kind kind);
/* Called when a call has found the comm broken. Calls on other comms go on, as they do if the comm breaks a moment
 * later. */
void tti_group_miss(tutti_comm *comm, enum tti_kind kind);

#endif
