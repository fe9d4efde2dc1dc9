/* SPDX-License-Identifier: Apache-2.0
 *
 * Meetings of the ranks that share a model's width. Layers themselves never wait for another rank: a pass does this for
 * them, between one layer and the next, once for all items.
 */
#define TUTTI_NO_CALL_SITES
#include "base/clock.h"
#include "collective/api/inside.h"
#include "nn/pass.h"

tutti_status tti_pass_met(struct tutti_pass *pass, const tutti_comm *comm, int64_t began_ns, tutti_status status)
{
    pass->meeting_seconds += (double)(tti_now_ns() - began_ns) * 1e-9;
    const tutti_error *why = status == TUTTI_OK ? NULL : tutti_comm_error(comm);
    if (why != NULL) pass->model->error = *why;
    return status;
}

tutti_status tti_pass_sum(struct tutti_pass *pass, const tutti_layer *layer, float *rows, int64_t width)
{
    const size_t count = tti_pass_rows(pass) * (size_t)width;
    if (count == 0 || pass->model->width.comm == NULL) return TUTTI_OK;
    tutti_comm *comm = tti_inside(pass->model->width.comm, "pass", layer->name);
    const int64_t began = tti_now_ns();
    return tti_pass_met(pass, comm, began, tutti_all_reduce(comm, rows, rows, count, TUTTI_F32, TUTTI_SUM));
}

tutti_status tti_pass_gather(struct tutti_pass *pass, const tutti_layer *layer)
{
    const size_t count = tti_pass_rows(pass) * (size_t)layer->gathers;
    if (count == 0 || pass->model->width.comm == NULL) return TUTTI_OK;
    tutti_comm *comm = tti_inside(pass->model->width.comm, "pass", layer->name);
    const float *mine = pass->gathered + (size_t)pass->model->width.rank * count;
    const int64_t began = tti_now_ns();
    return tti_pass_met(pass, comm, began, tutti_all_gather(comm, mine, pass->gathered, count, TUTTI_F32));
}

tutti_status tti_pass_all_gather(struct tutti_pass *pass, const tutti_layer *layer, const float *in, float *out,
                                 const size_t *counts, const size_t *offsets)
{
    tutti_comm *comm = tti_inside(pass->model->width.comm, "pass", layer->name);
    const int64_t began = tti_now_ns();
    return tti_pass_met(pass, comm, began, tutti_all_gather_v(comm, in, out, counts, offsets, TUTTI_F32));
}

tutti_status tti_pass_reduce_scatter(struct tutti_pass *pass, const tutti_layer *layer, const float *in, float *out,
                                     const size_t *counts)
{
    tutti_comm *comm = tti_inside(pass->model->width.comm, "pass", layer->name);
    const int64_t began = tti_now_ns();
    return tti_pass_met(pass, comm, began, tutti_reduce_scatter_v(comm, in, out, counts, TUTTI_F32, TUTTI_SUM));
}
