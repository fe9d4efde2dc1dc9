/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks plans over messages without running them: those of all ranks are interpreted together, on memory whose cells
 * (one element each; a partial of one takes as many as its accumulator does) hold symbols: "element i of rank r's input",
 * "the subtree of ranks a..b at element i", "the result over ranks 0..k at element i".
 *
 * A message moves when its send and its receive are posted, and not before: that is the least a transport does. It reads
 * the sender's memory and writes the receiver's at any time between posting and the AWAIT or DRAIN that covers it. A plan
 * is wrong when
 *   - an output is not exactly what the operation promises, or anything else is changed,
 *   - a fold's parts are not what the plan says they are, are not in rank order without gaps, or the result is no subtree,
 *   - memory is read, sent, or written in which data may be arriving,
 *   - memory is changed that may still be sent, except by what its receiver sent after having awaited it,
 *   - what is read was never written, a region is outside its buffer or TEMP, or misaligned,
 *   - a send and its receive have different lengths, one of them is missing, or the ranks wait for ever,
 *   - something that was posted is not settled at the end.
 * What a rank waits for stays true once it is, so one order of steps finds the deadlocks of all.
 */
#ifndef TESTS_MESSAGE_CHECK_H
#define TESTS_MESSAGE_CHECK_H

#include "collective/plan/plan_hosts.h"
#include "plan_check.h"

/* NULL, or what is wrong. `seed` chooses the order of ranks. */
const char *message_check_run(const struct plan_check_op *op, uint64_t seed);

/* The same for the phases of a host-aware operation, plans[rank][phase], in place of the op's plans. Before and after the
 * messages ranks may also read what others of their host did not write in the same phase. */
const char *message_check_hosts(const struct plan_check_op *op, const struct tti_hosts *hosts,
                                struct tti_plan (*plans)[TTI_PHASES], uint64_t seed);

#endif
