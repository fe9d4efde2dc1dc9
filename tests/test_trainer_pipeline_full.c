/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=1200 labels=full
 *
 * test_trainer_pipeline on every mesh of data and pipe of up to 8 ranks, with each of the five tables.
 */
#define FULL 1
#include "test_trainer_pipeline.c"
