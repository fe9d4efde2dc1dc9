/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/status.h"
#include "world/apart.h"
#include "world/join.h"
#include "world/rendezvous.h"
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A rank 0 that waits for others answers at once; one that has just formed its world never answers. */
#define ANSWER_NS ((int64_t)1000 * 1000000)

static tutti_status describe(const struct tti_apart *apart, const char *others, tutti_error *error)
{
    const tutti_options *options = apart->options;
    char own[64];
    snprintf(own, sizeof own, "TUTTI_TRANSPORT=%.8s", options->transport);
    if (options->host_processes > 0)
        snprintf(own, sizeof own, "TUTTI_HOST_PROCESSES=%lld", (long long)options->host_processes);
    error->peer = apart->process * apart->ranks_each;
    return tti_error_set(error, TUTTI_ERR_JOIN, 0, "rank %d has %s, rank 0 has %s; they must be the same for all ranks",
                         error->peer, own, others);
}

tutti_status tti_apart_poll_join(const struct tti_apart *apart, tutti_error *error)
{
    struct tti_wire_verdict verdict;
    int fd = apart == NULL ? -1 : tti_wire_connect(apart->job, SOCK_SEQPACKET);
    if (fd < 0) return TUTTI_OK;
    tutti_error before = *error;
    struct tti_join join = {.job = apart->job,
                            .title = apart->job,
                            .process = apart->process,
                            .process_count = apart->process_count,
                            .ranks_each = apart->ranks_each,
                            .deadline_ns = tti_now_ns() + ANSWER_NS,
                            .error = error};
    describe(apart, "TUTTI_TRANSPORT=auto or shm, and no TUTTI_HOST_PROCESSES", error);
    int why = tti_join_complain(&join, fd, &verdict);
    tti_wire_close(fd);
    if (why == 0) return tti_join_take_verdict(&join, &verdict);
    *error = before;
    return TUTTI_OK;
}

static bool is_listening(const char *job)
{
    char name[300];
    snprintf(name, sizeof name, "%s/meeting", job);
    int fd = tti_wire_connect(name, SOCK_STREAM);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

tutti_status tti_apart_poll_meeting(const struct tti_apart *apart, tutti_error *error)
{
    if (apart == NULL || !is_listening(apart->job)) return TUTTI_OK;
    struct tti_rendezvous where = {.job = apart->job,
                                   .rank = apart->process,
                                   .size = apart->process_count,
                                   .ranks_each = apart->ranks_each,
                                   .deadline_ns = tti_now_ns() + ANSWER_NS};
    struct tti_meeting *meeting;
    tutti_error unheard = *error;
    if (tti_meeting_open(&where, &meeting, &unheard) != TUTTI_OK) return TUTTI_OK;
    tutti_status status = describe(apart, "TUTTI_TRANSPORT=tcp or a TUTTI_HOST_PROCESSES", error);
    tti_meeting_abandon(meeting, error);
    tti_meeting_close(meeting);
    return status;
}
