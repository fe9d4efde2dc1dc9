/* SPDX-License-Identifier: Apache-2.0 */
#include "base/quartile.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double tti_lower_quartile(double *times, size_t count)
{
    qsort(times, count, sizeof *times, compare);
    return times[(count - 1) / 4];
}
