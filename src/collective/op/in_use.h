/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds buffers that ops in flight use, which must not be freed before these have ended.
 */
#ifndef TTI_COLLECTIVE_IN_USE_H
#define TTI_COLLECTIVE_IN_USE_H

#include "collective/comm/comm.h"

/* Returns true if an op in flight uses a buffer that begins in this memory: on this comm, or on another comm of the
 * process that no other thread is busy with. `text` names it. */
bool tti_is_in_use(tutti_comm *comm, const void *memory, size_t bytes, char *text, size_t text_bytes);

#endif
