/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTI_BASE_QUARTILE_H
#define TTI_BASE_QUARTILE_H

#include <stddef.h>

/* Returns the lower quartile of measured times: about the time without disturbances. Sorts `times`. */
double tti_lower_quartile(double *times, size_t count);

#endif
