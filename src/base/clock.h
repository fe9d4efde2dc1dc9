/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTI_BASE_CLOCK_H
#define TTI_BASE_CLOCK_H

#include <stdint.h>

/* Returns the time in monotonic nanoseconds; inside a simulated run (sim.h), the time of that run. */
int64_t tti_now_ns(void);

#endif
