/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: messages that are noted first and done together. Receives are posted before sends, each in the order of their
 * calls: matching depends on no other order, and what comes then finds its place at once.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "collective/api_message.h"
#include "collective/queue_message.h"
#include "collective/trace.h"

struct tti_group {
    struct tti_link parcels;
    int count;
    tutti_error error; /* of the first message that was refused */
};

void tti_group_free(struct tti_group *group)
{
    if (group == NULL) return;
    TTI_LIST_EACH(link, &group->parcels)
    {
        tti_list_remove(link);
        tti_free(TTI_LIST_OF(link, struct tti_parcel, on));
    }
    tti_free(group);
}

tutti_status tti_group_spoil(tutti_comm *comm, tutti_status status)
{
    if (comm->group != NULL && comm->group->error.status == TUTTI_OK) comm->group->error = comm->error;
    return status;
}

tutti_status tti_group_add(tutti_comm *comm, const struct tti_parcel *parcel)
{
    struct tti_parcel *copy = tti_calloc(1, sizeof *copy);
    enum tti_kind kind = parcel->sends ? TTI_SEND : TTI_RECV;
    if (copy == NULL)
        return tti_group_spoil(comm, tti_comm_refuse(comm, kind, TUTTI_ERR_MEMORY,
                                                     "no memory for message %d of a group", comm->group->count + 1));
    *copy = *parcel;
    copy->site = comm->site;
    struct tti_letter *letter = copy->sends ? &copy->send.letter : &copy->recv.letter;
    letter->site = &copy->site;
    tti_list_append(&comm->group->parcels, &copy->on);
    comm->group->count++;
    tti_api_end(comm);
    return TUTTI_OK;
}

tutti_status tutti_group_begin(tutti_comm *comm)
{
    TTI_TRY(tti_api_begin(comm, TTI_GROUP));
    if (comm->group != NULL)
        return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_ARGUMENT,
                               "group_begin: a group of %d messages has begun on this comm and not ended",
                               comm->group->count);
    comm->group = tti_calloc(1, sizeof *comm->group);
    if (comm->group == NULL) return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_MEMORY, "no memory for a group");
    tti_list_init(&comm->group->parcels);
    tti_api_end(comm);
    return TUTTI_OK;
}

/* ---- The end --------------------------------------------------------------------------------------------------- */

static struct tti_letter *letter_of(struct tti_parcel *parcel)
{
    return parcel->sends ? &parcel->send.letter : &parcel->recv.letter;
}

static void post(struct tti_group *group, bool sends)
{
    TTI_LIST_EACH(link, &group->parcels)
    {
        struct tti_parcel *parcel = TTI_LIST_OF(link, struct tti_parcel, on);
        if (parcel->sends != sends) continue;
        if (sends)
            tti_send_post(&parcel->send);
        else
            tti_recv_post(&parcel->recv);
    }
}

/* The sentence for the first message that failed. */
static tutti_status explain(tutti_comm *comm, struct tti_letter *letter, int number)
{
    char what[200], prefix[256];
    tti_letter_describe(letter, what, sizeof what);
    snprintf(prefix, sizeof prefix, "message %d of the group, %s: ", number, what);
    if (letter->status == TUTTI_ERR_TRUNCATED)
        return tti_recv_explain(TTI_LIST_OF(letter, struct tti_recv, letter), TTI_GROUP, prefix);
    if (letter->status == TUTTI_ERR_CANCELLED)
        return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_ARGUMENT,
                               "%sthe group has no counterpart for it, and would have waited for ever", prefix);
    return tti_comm_refuse(comm, TTI_GROUP, letter->status, "%s%s", prefix, tutti_status_text(letter->status));
}

static tutti_status results(tutti_comm *comm, struct tti_group *group)
{
    tutti_status status = TUTTI_OK;
    int number = 0;
    TTI_LIST_EACH(link, &group->parcels)
    {
        struct tti_parcel *parcel = TTI_LIST_OF(link, struct tti_parcel, on);
        struct tti_letter *letter = letter_of(parcel);
        number++;
        if (letter->status != TUTTI_OK && status == TUTTI_OK) status = explain(comm, letter, number);
        if (letter->status == TUTTI_OK && !parcel->sends)
            tti_recv_results(&parcel->recv, parcel->received, parcel->message);
    }
    return status;
}

static tutti_status run(tutti_comm *comm, struct tti_group *group)
{
    if (group->error.status != TUTTI_OK) {
        comm->error = group->error;
        return comm->error.status;
    }
    if (group->count == 0) return TUTTI_OK;
    struct tti_letter **letters = tti_calloc((size_t)group->count, sizeof(struct tti_letter *));
    if (letters == NULL)
        return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_MEMORY, "no memory for a group of %d messages", group->count);
    int count = 0;
    TTI_LIST_EACH(link, &group->parcels)
    letters[count++] = letter_of(TTI_LIST_OF(link, struct tti_parcel, on));
    int64_t deadline_ms = comm->next_deadline_ms;
    tti_queue_hold(comm);
    post(group, false);
    post(group, true);
    tutti_status status = tti_letters_wait(comm, TTI_GROUP, letters, count, deadline_ms);
    tti_free(letters);
    return tti_queue_let_go(comm, status == TUTTI_OK ? results(comm, group) : status);
}

tutti_status tutti_group_end(tutti_comm *comm)
{
    if (comm == NULL) return TUTTI_ERR_ARGUMENT;
    struct tti_group *group = comm->group;
    comm->group = NULL;
    tutti_status status = tti_api_begin(comm, TTI_GROUP);
    if (status == TUTTI_OK && group == NULL)
        status = tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_ARGUMENT, "group_end: no group has begun on this comm");
    if (status == TUTTI_OK) {
        tti_trace_message_begin(comm);
        status = run(comm, group);
        tti_trace_message_end(comm, TTI_GROUP, -1, 0, status);
    }
    tti_api_end(comm);
    tti_group_free(group);
    return status;
}
