/* SPDX-License-Identifier: Apache-2.0
 *
 * A group that has begun and not ended: calls that were checked and noted, of one or several comms of this rank. What is done
 * with them is in api_group.c; a call that is refused spoils its group wherever that happens.
 */
#ifndef TTI_COLLECTIVE_GROUP_H
#define TTI_COLLECTIVE_GROUP_H

#include "collective/plan/kind.h"
#include <tutti/tutti.h>

struct tti_message_request;
struct tti_started;

/* What was called on one of its comms. */
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
    tutti_error error;  /* of the first call that was refused, */
    int refused;        /* and which one it was, from 1; 0: none, the error is about something else */
    tutti_error broken; /* of the first call that has found its comm broken, */
    int broken_at;      /* and which one it was, from 1; 0: none */
};

/* A call on the comm was refused: if its group holds such calls, that is spoiled. */
void tti_group_spoil(tutti_comm *comm, enum tti_kind kind);
/* A call has found the comm broken: what is called on others goes on, as it does where the comm breaks a moment later. */
void tti_group_miss(tutti_comm *comm, enum tti_kind kind);

#endif
