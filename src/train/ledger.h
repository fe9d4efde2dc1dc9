/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parameters of a model take in one rank's memory, by purpose. One formula, for what is allocated, for what is
 * refused beforehand, and for plans.
 */
#ifndef TTI_TRAIN_LEDGER_H
#define TTI_TRAIN_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where each rank keeps only what it owns: nowhere; the optimizer's state; gradients too; parameters too. */
enum { TTI_ZERO_NONE, TTI_ZERO_STATE, TTI_ZERO_GRADIENTS, TTI_ZERO_PARAMETERS };

struct tti_ledger_sizes {
    uint64_t elements; /* of all parameters */
    uint64_t owned;    /* of these, by this rank */
    int states;        /* floats that the optimizer keeps per element */
    int zero;          /* TTI_ZERO_… */
    bool bf16;         /* parameters are of 16 bits, and their owners keep them as f32 too. Gradients are f32 */
};

/* Bytes. */
struct tti_ledger {
    uint64_t parameters, gradients, masters, states;
};

struct tti_ledger tti_ledger_of(const struct tti_ledger_sizes *sizes);
uint64_t tti_ledger_sum(const struct tti_ledger *ledger);

#endif
