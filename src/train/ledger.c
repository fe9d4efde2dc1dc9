/* SPDX-License-Identifier: Apache-2.0 */
#include "train/ledger.h"

enum { F32 = 4, BF16 = 2 };

struct tti_ledger tti_ledger_of(const struct tti_ledger_sizes *sizes)
{
    uint64_t state = sizes->zero >= TTI_ZERO_STATE ? sizes->owned : sizes->elements;
    uint64_t gradients = sizes->zero >= TTI_ZERO_GRADIENTS ? sizes->owned : sizes->elements;
    uint64_t parameters = sizes->zero >= TTI_ZERO_PARAMETERS ? sizes->owned : sizes->elements;
    return (struct tti_ledger){.parameters = parameters * (sizes->bf16 ? BF16 : F32),
                               .gradients = gradients * F32,
                               .masters = sizes->bf16 ? state * F32 : 0,
                               .states = state * (uint64_t)sizes->states * F32};
}

uint64_t tti_ledger_sum(const struct tti_ledger *ledger)
{
    return ledger->parameters + ledger->gradients + ledger->masters + ledger->states;
}
