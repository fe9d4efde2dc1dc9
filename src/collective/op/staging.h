/* SPDX-License-Identifier: Apache-2.0
 *
 * An op on memory of a device that the host carries out: its data are copied to pinned memory, the ranks do the
 * collective there, and the results are copied back. Large ones go in rounds, each an operation of the comm like any
 * other: while the host works on one round, the next ones are copied in and the ones before are copied out.
 *
 * Invariant: what makes a round follows from counts that all ranks know alike, so all run the same rounds. A slot of
 * pinned memory is one round's until its results have been copied out.
 */
#ifndef TTI_COLLECTIVE_STAGING_H
#define TTI_COLLECTIVE_STAGING_H

#include "collective/op/turn.h"

struct tti_staging;

/* Makes the staging of an op whose ranks have met. NULL: *error says why. */
struct tti_staging *tti_staging_make(struct tti_started *started, tutti_error *error);
/* Called once its stream has come: takes it as far as it goes. OK at its end, IN_PROGRESS, or the error that broke the
 * comm. Never waits for the device. */
tutti_status tti_staging_progress(struct tti_started *started);
/* Returns true if copies are under way, which use the op's memory. On streams these end whatever becomes of the op,
 * unless the device has failed and does nothing any more. */
bool tti_staging_is_copying(struct tti_staging *staging);
/* Frees it; memory that copies may still use is not given back. */
void tti_staging_free(struct tti_staging *staging);

/* The state that a comm keeps for staging. */
/* The comm outlasts it. */
tutti_status tti_stager_make(struct tti_device *device, tutti_comm *comm, struct tti_stager **stager,
                             tutti_error *error);
void tti_stager_free(struct tti_stager *stager);
/* Makes its streams and slots anew after the device was opened again. No op may use it. May be called again after a
 * failure. */
tutti_status tti_stager_renew(struct tti_stager *stager, tutti_error *error);

#endif
