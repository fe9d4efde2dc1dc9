/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=1200 labels=full serial
 *
 * test_trainer_memory with a GPT of 124M parameters: what the process grows by is within 2% of the ledgers, of f32 and bf16, with
 * every stage of zero. Needs 6 GB.
 */
#define FULL 1
#include "test_trainer_memory.c"
