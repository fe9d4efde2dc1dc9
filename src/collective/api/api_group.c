/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: messages that are noted first and done together.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "collective/api/api_message.h"
#include "collective/comm/trace.h"
#include "collective/op/callback.h"
#include "collective/op/queue_message.h"
#include <string.h>

struct tti_group {
    struct tti_parcel *parcels;
    int count, room;
    tutti_error error; /* of the first message that was refused */
};

void tti_group_free(struct tti_group *group)
{
    if (group == NULL) return;
    tti_free(group->parcels);
    tti_free(group);
}

tutti_status tti_group_spoil(tutti_comm *comm, tutti_status status)
{
    if (comm->caller.group != NULL && comm->caller.group->error.status == TUTTI_OK)
        comm->caller.group->error = comm->errors.call;
    return status;
}

static bool make_room(struct tti_group *group)
{
    if (group->count < group->room) return true;
    int room = group->room == 0 ? 16 : 2 * group->room;
    struct tti_parcel *more = tti_calloc((size_t)room, sizeof *more);
    if (more == NULL) return false;
    if (group->count > 0) memcpy(more, group->parcels, (size_t)group->count * sizeof *more);
    tti_free(group->parcels);
    group->parcels = more;
    group->room = room;
    return true;
}

tutti_status tti_group_add(tutti_comm *comm, const struct tti_parcel *parcel)
{
    struct tti_group *group = comm->caller.group;
    enum tti_kind kind = parcel->sends ? TTI_SEND : TTI_RECV;
    if (comm->caller.starting != NULL)
        return tti_group_spoil(comm, tti_comm_refuse(comm, kind, TUTTI_ERR_ARGUMENT,
                                                     "%s: a message of a group has no handle of its own; use %s, and "
                                                     "tutti_group_end_start for one of the group",
                                                     tti_kind_name(kind), parcel->sends ? "tutti_send" : "tutti_recv"));
    if (!make_room(group))
        return tti_group_spoil(comm, tti_comm_refuse(comm, kind, TUTTI_ERR_MEMORY,
                                                     "no memory for message %d of a group", group->count + 1));
    group->parcels[group->count] = *parcel;
    group->parcels[group->count++].site = comm->caller.site;
    tti_call_end(comm);
    return TUTTI_OK;
}

tutti_status tutti_group_begin(tutti_comm *comm)
{
    TTI_TRY(tti_api_begin(comm, TTI_GROUP));
    if (comm->caller.group != NULL)
        return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_ARGUMENT,
                               "group_begin: a group of %d messages has begun on this comm and not ended",
                               comm->caller.group->count);
    comm->caller.group = tti_calloc(1, sizeof *comm->caller.group);
    if (comm->caller.group == NULL) return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_MEMORY, "no memory for a group");
    tti_call_end(comm);
    return TUTTI_OK;
}

/* ---- The end --------------------------------------------------------------------------------------------------- */

static tutti_status results(tutti_comm *comm, struct tti_group *group)
{
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < group->count; i++) {
        struct tti_parcel *parcel = &group->parcels[i];
        struct tti_letter *letter = tti_letter_of(parcel);
        if (letter->status != TUTTI_OK && status == TUTTI_OK) status = tti_group_explain(comm, letter, i);
        if (letter->status == TUTTI_OK && !parcel->sends)
            tti_recv_results(&parcel->recv, parcel->received, parcel->message);
    }
    return status;
}

static tutti_status do_together(tutti_comm *comm, struct tti_group *group)
{
    if (group->count == 0) return TUTTI_OK;
    struct tti_letter **letters = tti_calloc((size_t)group->count, sizeof(struct tti_letter *));
    if (letters == NULL)
        return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_MEMORY, "no memory for a group of %d messages", group->count);
    for (int i = 0; i < group->count; i++) letters[i] = tti_letter_of(&group->parcels[i]);
    int64_t deadline_ms = comm->caller.deadline_ms;
    tti_parcels_post(group->parcels, group->count);
    tutti_status status = tti_letters_wait(comm, TTI_GROUP, letters, group->count, deadline_ms);
    tti_free(letters);
    return status == TUTTI_OK ? results(comm, group) : status;
}

static tutti_status run(tutti_comm *comm, struct tti_group *group)
{
    if (group->error.status != TUTTI_OK) {
        comm->errors.call = group->error;
        return comm->errors.call.status;
    }
    if (comm->caller.starting != NULL) return tti_queue_mail(comm, TTI_GROUP, group->parcels, group->count);
    if (tti_is_in_callback()) return tti_callback_refuse(comm, TTI_GROUP);
    tti_queue_hold(comm);
    tti_trace_message_begin(comm);
    tutti_status status = do_together(comm, group);
    tti_trace_message_end(comm, TTI_GROUP, -1, 0, status);
    return tti_queue_let_go(comm, status);
}

tutti_status tutti_group_end(tutti_comm *comm)
{
    if (comm == NULL) return tti_api_no_comm(TTI_GROUP);
    if (tti_comm_is_stillborn(comm)) return comm->errors.call.status;
    struct tti_group *group = comm->caller.group;
    comm->caller.group = NULL;
    tutti_status status = tti_api_begin(comm, TTI_GROUP);
    if (status == TUTTI_OK && group == NULL)
        status = tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_ARGUMENT, "group_end: no group has begun on this comm");
    if (status == TUTTI_OK) status = run(comm, group);
    tti_call_end(comm);
    tti_group_free(group);
    return status;
}
