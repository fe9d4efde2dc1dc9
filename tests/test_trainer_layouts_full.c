/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=3600 labels=full
 *
 * test_trainer_layouts on every mesh of up to 8 ranks, with every stage of zero and each of the five tables; the tensors of each
 * checkpoint are compared too.
 */
#define FULL 1
#include "test_trainer_layouts.c"
