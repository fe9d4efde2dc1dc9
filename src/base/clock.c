/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include "base/sim.h"
#include <time.h>

int64_t tti_now_ns(void)
{
    if (tti_sim != NULL) return tti_sim_clock_ns();
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
