/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries out a pipeline's table without any of the library's arithmetic: ranks that do their steps in order, and messages
 * that go over when the sender has done the step and the receiver has posted the receive, and are kept nowhere else.
 */
#ifndef TEST_PIPELINE_BRUTE_H
#define TEST_PIPELINE_BRUTE_H

#include <tutti/pipeline.h>

/* Whether all that belongs to the table was done, each once. Ranks take their turns as the seed has it. */
bool pipeline_brute_ends(const tutti_pipeline *pipeline, unsigned seed);

/* When the last step ends, by going over all steps until nothing changes. Of a table that ends. */
double pipeline_brute_makespan(const tutti_pipeline *pipeline, const tutti_pipeline_times *times);

#endif
