/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of one job that were started one by one: they meet as ranks of several hosts do, and keep the connections.
 */
#include "base/clock.h"
#include "base/status.h"
#include "world/rendezvous.h"
#include <string.h>
#include <tutti/experimental.h>

enum { GIVEN_MOST = 4096 };

static tutti_status exchange(struct tti_meeting *meeting, int count, const void *mine, size_t bytes, void *all,
                             tutti_error *error)
{
    struct tti_blobs blobs;
    TTI_TRY(tti_meeting_exchange(meeting, mine, bytes, &blobs, error));
    int differs = -1;
    for (int i = 0; i < count; i++) {
        size_t given;
        const void *blob = tti_blob(&blobs, i, &given);
        if (given == bytes) memcpy((char *)all + (size_t)i * bytes, blob, bytes);
        if (given != bytes && differs < 0) differs = i;
    }
    tti_blobs_free(&blobs);
    if (differs < 0) return TUTTI_OK;
    error->peer = differs;
    return tti_error_set(error, TUTTI_ERR_JOIN, 0, "node %d has another version of tutti than this one", differs);
}

static tutti_status meet(const struct tti_rendezvous *where, const void *mine, size_t bytes, void *all, int *fds,
                         tutti_error *error)
{
    struct tti_meeting *meeting;
    TTI_TRY(tti_meeting_open(where, &meeting, error));
    tutti_status status = exchange(meeting, where->size, mine, bytes, all, error);
    if (status == TUTTI_OK) tti_meeting_take(meeting, fds);
    tti_meeting_close(meeting);
    return status;
}

tutti_status tutti_launchers_meet(const char *job, int number, int count, const char *address, const void *mine,
                                  size_t bytes, void *all, int *fds, tutti_error *error)
{
    tutti_options options;
    tutti_error unused = {0};
    struct tti_key key;
    bool has_key = false;
    if (error == NULL) error = &unused;
    if (job == NULL || address == NULL || mine == NULL || all == NULL || fds == NULL || bytes > GIVEN_MOST || count < 2)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "launchers that meet: an argument is missing, or too large");
    TTI_TRY(tutti_options_init(&options, error));
    TTI_TRY(tti_key_find(&options, &key, &has_key, error));
    const struct tti_rendezvous where = {.job = job,
                                         .rank = number,
                                         .size = count,
                                         .each = "node",
                                         .deadline_ns = tti_now_ns() + options.join_timeout_ms * INT64_C(1000000),
                                         .address = address,
                                         .key = has_key ? &key : NULL,
                                         .interface = options.interface};
    tutti_status status = meet(&where, mine, bytes, all, fds, error);
    tti_key_forget(&key);
    return status;
}
