/* SPDX-License-Identifier: Apache-2.0
 *
 * A provider carries out whole collectives: `shared` on memory that all ranks of the comm can reach, `net` by messages
 * over a transport; `cuda` and `nccl` on streams of a device (turn.h). Ops, their queue and failures know an op that was
 * issued by tti_provider_ops only. The thread that is busy with the comm calls it, one at a time, and nothing blocks
 * unless it says so.
 *
 * How an op is issued differs. The host issues it when its turn in the queue has come; a comm has one host provider for
 * all its ops, and they end one after the other. A device provider is chosen for each op from what
 * all ranks know alike, issues it on streams when the ranks have met, and up to 64 of them go on at the same time. So
 * each kind has a table of its own, which begins with this one.
 */
#ifndef TTI_COLLECTIVE_PROVIDER_H
#define TTI_COLLECTIVE_PROVIDER_H

#include <stdbool.h>
#include <stdint.h>
#include <tutti/tutti.h>

struct tti_op;

struct tti_provider_ops {
    const char *name;
    /* Takes the op as far as it goes: OK at its end, IN_PROGRESS, or the error that broke the comm. */
    tutti_status (*progress)(struct tti_op *op);
    /* Called when the op failed and the comm is broken: from then on this rank touches no memory of the others. */
    void (*stop)(struct tti_op *op);
    /* Returns true once nobody can touch the failed op's buffers any more. Past `until_ns` it makes sure of that (it
     * may block then) or quarantines them, and returns true. */
    bool (*fence)(struct tti_op *op, int64_t until_ns);
};

struct tti_host_provider {
    struct tti_provider_ops ops;
    /* Takes an op that has begun as far as it goes without moving much, so that the others see this rank come. Returns
     * what progress does. */
    tutti_status (*issue)(struct tti_op *op);
};

extern const struct tti_host_provider tti_provider_shared, tti_provider_net;

#endif
