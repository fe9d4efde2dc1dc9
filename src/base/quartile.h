/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTI_BASE_QUARTILE_H
#define TTI_BASE_QUARTILE_H

#include <stddef.h>

/* What measured times are about where nobody disturbs them: a quarter of them is less. Sorts them. */
double tti_lower_quartile(double *times, size_t count);

#endif
