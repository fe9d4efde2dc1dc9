/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that stands in for service threads which are held up in a GPU's driver.
 */
#ifndef TTI_COLLECTIVE_STANDBY_H
#define TTI_COLLECTIVE_STANDBY_H

#include "collective/op/turn.h"

/* Has the comm's flying ops watched from now on, until `leave`, which waits while one is taken forward. If there is no memory or
 * no thread, they are watched by service threads alone. */
void tti_standby_join(struct tti_streams *streams);
void tti_standby_leave(struct tti_streams *streams);

#endif
