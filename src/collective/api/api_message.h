/* SPDX-License-Identifier: Apache-2.0
 *
 * What the entry points for messages share.
 */
#ifndef TTI_COLLECTIVE_API_MESSAGE_H
#define TTI_COLLECTIVE_API_MESSAGE_H

#include "collective/api/api.h"
#include "collective/message/message_request.h"

/* Waits until all have ended, or the comm has broken and nobody can touch their buffers any more. The caller reads the
 * statuses of single letters. */
tutti_status tti_letters_wait(tutti_comm *comm, enum tti_kind kind, struct tti_letter *const *letters, int count,
                              int64_t deadline_ms);

/* Puts copies of the messages of a checked call into the comm's group. */
tutti_status tti_group_post(tutti_comm *comm, enum tti_kind kind, const struct tti_message_request *requests, int count,
                            const tutti_op *handle);

/* For a tolerant comm: posts the messages of a blocking call as an op, and waits for it. */
tutti_status tti_message_requests_run(tutti_comm *comm, enum tti_kind kind, struct tti_message_request *requests,
                                      int count);

#endif
