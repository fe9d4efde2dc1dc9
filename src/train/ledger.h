/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that the parameters of a model take on one rank, by purpose. It is one formula, for allocations, for
 * refusals before these, and for plans.
 */
#ifndef TTI_TRAIN_LEDGER_H
#define TTI_TRAIN_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The parts of which each rank keeps only its own: none; the optimizer's state; gradients, too; parameters, too. */
enum { TTI_ZERO_NONE, TTI_ZERO_STATE, TTI_ZERO_GRADIENTS, TTI_ZERO_PARAMETERS };

struct tti_ledger_sizes {
    uint64_t elements; /* elements of all parameters */
    uint64_t owned;    /* elements that this rank owns */
    int states;        /* floats that the optimizer keeps per element */
    int zero;          /* TTI_ZERO_… */
    bool bf16;         /* parameters have 16 bits, and their owners keep them as f32, too. Gradients are f32 */
};

/* Sizes in bytes. */
struct tti_ledger {
    uint64_t parameters, gradients, masters, states;
};

struct tti_ledger tti_ledger_of(const struct tti_ledger_sizes *sizes);
uint64_t tti_ledger_sum(const struct tti_ledger *ledger);

#endif
