/* SPDX-License-Identifier: Apache-2.0
 *
 * The middle one of so many samples, which are sorted for it.
 */
#ifndef BENCH_MEDIAN_H
#define BENCH_MEDIAN_H

#include <stdlib.h>

static int compare_samples(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static double median(double *samples, int count)
{
    qsort(samples, (size_t)count, sizeof *samples, compare_samples);
    return samples[count / 2];
}

#endif
