/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks over a plan, for ranks that share memory and for those that have links. Steps are done in order as far as that
 * is possible without waiting. Over links the net's lock is held, except in steps that take time.
 */
#include "collective/engine/run.h"

#include "base/status.h"
#include "collective/comm/trace.h"
#include "collective/peers/net.h"

enum { BRIEF_BYTES = 1024 };

tutti_status tti_run_no_memory(struct tti_op *op)
{
    return tti_comm_break(op->comm, op->shape.kind, TUTTI_ERR_MEMORY, op->comm->rank,
                          "rank %d has no memory for the plan of %s", op->comm->rank, tti_kind_name(op->shape.kind));
}

__attribute__((noinline)) tutti_status tti_run_build(struct tti_op *op, const struct tti_shape *shape,
                                                     const struct tti_hosts *hosts)
{
    op->walk = (struct tti_walk){.plan = tti_plan_cache_get(&op->comm->engine->plans, shape, hosts)};
    op->state = TTI_OP_RUNNING;
    return op->walk.plan != NULL ? TUTTI_OK : tti_run_no_memory(op);
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

static inline tutti_status wait_step(struct tti_op *op, int peer, uint32_t number)
{
    if (peer != TTI_ALL) return tti_post_seen(op, peer, number);
    TTI_TRY(tti_post_seen_all(op, number));
    return number == 0 && op->comm->lanes != NULL ? tti_post_check_places(op) : TUTTI_OK;
}

/* Does one step. It is inlined, since most steps of a small operation take less time than a call. */
static inline __attribute__((always_inline)) tutti_status do_step(struct tti_op *op, const struct tti_step *step)
{
    switch ((enum tti_step_kind)step->kind) {
    case TTI_STEP_ENTER: tti_post_enter(op); return TUTTI_OK;
    case TTI_STEP_PUBLISH: tti_post_publish(op, step->value + op->walk.numbers); return TUTTI_OK;
    case TTI_STEP_LEAVE: tti_post_publish(op, TTI_LEFT); return TUTTI_OK;
    case TTI_STEP_WAIT: return wait_step(op, step->peer, step->value + op->walk.numbers);
    default: return tti_step_move(op, step);
    }
}

/* Does a step without the net's lock. Grants are sent together, before anything that takes time. A step that writes
 * past the caches is a piece of something large, beside which other messages travel. */
static __attribute__((noinline)) tutti_status do_unlocked(struct tti_op *op, const struct tti_step *step)
{
    struct tti_lanes *lanes = op->comm->lanes;
    if (lanes->grants != NULL) tti_lanes_grant(lanes);
    tti_net_unlock(lanes->net);
    tutti_status status = do_step(op, step);
    tti_net_lock(lanes->net);
    if (step->store == TTI_STREAMED) tti_net_move(lanes->net, TTI_ANYBODY);
    return status;
}

/* Returns true if the step takes less time than giving the lock back and taking it again. */
static bool is_brief(const struct tti_op *op, const struct tti_step *step)
{
    return step->bytes <= BRIEF_BYTES && op->reducer.code != TTI_REDUCE_FUNCTION && tti_sim == NULL;
}

static __attribute__((noinline)) tutti_status do_over_links(struct tti_op *op, const struct tti_step *step)
{
    const struct tti_lanes *lanes = op->comm->lanes;
    bool link = step->kind >= TTI_STEP_SEND;
    if (!link && step->kind != TTI_STEP_WAIT && !is_brief(op, step)) return do_unlocked(op, step);
    if (lanes->differs.peer >= 0 && !tti_comm_is_broken(op->comm)) return tti_link_mismatch(op);
    return link ? tti_link_step(op, step) : do_step(op, step);
}

/* ---- The walk -------------------------------------------------------------------------------------------------- */

/* Goes on after an AGAIN: all posted messages are done before the steps, or those after them, are done. */
static void go_on(struct tti_op *op, const struct tti_step *step)
{
    struct tti_walk *walk = &op->walk;
    bool again = ++walk->turn < step->value;
    walk->rounds++;
    walk->step = again ? step->first : walk->step + 1;
    walk->shift = again ? walk->shift + step->bytes : 0;
    walk->numbers = again ? walk->numbers + (uint32_t)step->sources : 0;
    if (!again) walk->turn = 0;
    tti_link_begin(op->comm->lanes);
}

tutti_status tti_run_to(struct tti_op *op, int kind)
{
    struct tti_walk *walk = &op->walk;
    const struct tti_plan *plan = walk->plan;
    bool links = op->comm->lanes != NULL;
    while (walk->step < plan->count && plan->steps[walk->step].kind != kind) {
        const struct tti_step *step = &plan->steps[walk->step];
        TTI_TRY(links ? do_over_links(op, step) : do_step(op, step));
        tti_trace_step(op, step);
        if (links && step->kind == TTI_STEP_AGAIN)
            go_on(op, step);
        else
            walk->step++;
    }
    return TUTTI_OK;
}
