/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: redistributions between any two layouts, against gather-then-sum-then-slice element by element, with the bytes
 * that they move and their adjoints.
 */
#ifndef TESTS_REDISTRIBUTION_H
#define TESTS_REDISTRIBUTION_H

#include <tutti/tutti.h>

/* Every `stride`-th case of all meshes of one and two dimensions of the comm's ranks: both layouts with every placement
 * and dimension, sections, grains, and sizes 0, 1, one less and one more than the ranks, and a prime. */
void redistribution_cases(tutti_comm *comm, int stride);

/* So many cases that are drawn: meshes of three and four dimensions, arrays of one and three. */
void redistribution_draws(tutti_comm *comm, int count, uint64_t seed);

#endif
