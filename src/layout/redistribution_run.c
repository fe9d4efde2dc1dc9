/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries out a movement: pack, one collective that sums, one that moves, unpack.
 *
 * Invariant: at most one collective runs, r->op; meanwhile nothing touches the memory that it reads or writes. Elements
 * that stay on this rank are copied meanwhile, to other elements of `out`.
 */
#define TUTTI_NO_CALL_SITES
#include "base/latest.h"
#include "base/status.h"
#include "collective/comm/comm.h"
#include "layout/redistribution.h"
#include <string.h>

/* ---- The identity ---------------------------------------------------------------------------------------------- */

void tti_fill_identity(void *values, size_t count, tutti_type type)
{
    size_t bytes = tutti_type_bytes(type);
    bool is_float = type == TUTTI_F64 || type == TUTTI_F32 || type == TUTTI_F16 || type == TUTTI_BF16 ||
                    type == TUTTI_F8E4M3 || type == TUTTI_F8E5M2;
    unsigned char *at = values;
    if (count == 0) return;
    memset(values, 0, count * bytes);
    /* sets the sign, which is in the last byte on little-endian machines */
    for (size_t i = 0; is_float && i < count; i++) at[i * bytes + bytes - 1] = 0x80;
}

/* ---- One collective -------------------------------------------------------------------------------------------- */

static void pack(const struct tutti_redistribution *r, const struct tti_transfer *transfer, const char *array)
{
    char *packed = r->packed;
    for (int k = 0; k < transfer->in_selections; k++) {
        tti_selection_pack(&transfer->in[k], array, packed, r->bytes);
        packed += transfer->in[k].count * r->bytes;
    }
}

static void unpack(const struct tutti_redistribution *r, const struct tti_transfer *transfer, char *array)
{
    const char *arrived = r->arrived;
    for (int k = 0; k < transfer->out_selections; k++) {
        tti_selection_unpack(&transfer->out[k], arrived, array, r->bytes);
        arrived += transfer->out[k].count * r->bytes;
    }
}

/* Starts the transfer from elements of one array of this rank to those of another. */
static tutti_status transfer_start(struct tutti_redistribution *r, const struct tti_transfer *t, tutti_comm *comm,
                                   const char *from, char *to)
{
    static char nothing[1]; /* for arrays without elements */
    if (!t->in_direct) pack(r, t, from);
    const char *in = t->in_direct ? from : r->packed;
    char *out = t->out_direct ? to : r->arrived;
    in = in == NULL ? nothing : in + (t->in_direct ? t->in_offset * r->bytes : 0);
    out = out == NULL ? nothing : out + (t->out_direct ? t->out_offset * r->bytes : 0);
    comm = tti_inside(tutti_at(comm, r->here.file, r->here.line), "redistribution", NULL);
    switch (t->kind) {
    case TTI_TRANSFER_ALL_REDUCE: return tutti_all_reduce_start(comm, in, out, t->in_count, r->type, TUTTI_SUM, &r->op);
    case TTI_TRANSFER_REDUCE_SCATTER:
        return tutti_reduce_scatter_v_start(comm, in, out, t->counts, r->type, TUTTI_SUM, &r->op);
    case TTI_TRANSFER_ALL_GATHER:
        return tutti_all_gather_v_start(comm, in, out, t->out_counts, t->out_offsets, r->type, &r->op);
    case TTI_TRANSFER_ALL_TO_ALL:
        return tutti_all_to_all_v_start(comm, in, t->counts, t->offsets, out, t->out_counts, t->out_offsets, r->type,
                                        &r->op);
    case TTI_TRANSFER_NONE: break;
    }
    return TUTTI_OK;
}

static tutti_status transfer_end(struct tutti_redistribution *r, const struct tti_transfer *transfer, char *to)
{
    if (r->op.id == 0) return TUTTI_OK;
    tutti_op op = r->op;
    r->op = (tutti_op){0};
    TTI_TRY(tutti_wait(op));
    if (!transfer->out_direct) unpack(r, transfer, to);
    return TUTTI_OK;
}

/* ---- A run ----------------------------------------------------------------------------------------------------- */

static char *held_array(const struct tutti_redistribution *r)
{
    return r->held_in_out ? r->out + r->held_offset * r->bytes : r->held;
}

/* Returns where sums go: those of an all_reduce go to their places at once. */
static char *sum_array(const struct tutti_redistribution *r)
{
    return r->movement.sums ? held_array(r) : r->out;
}

static tutti_status move_start(struct tutti_redistribution *r)
{
    const struct tti_movement *movement = &r->movement;
    const char *from = movement->sums ? held_array(r) : r->in;
    TTI_TRY(transfer_start(r, &movement->move, r->move_comm, from, r->out));
    if (!r->held_in_out) tti_selection_copy(&movement->keep_in, from, &movement->keep_out, r->out, r->bytes);
    return TUTTI_OK;
}

static tutti_status refuse(tutti_redistribution *r, tutti_status status, const char *why)
{
    if (r == NULL) return tti_latest_stray("redistribution", status, "redistribution: %s", why);
    tutti_error error = {.rank = tutti_rank(r->all), .peer = -1, .operation = "redistribution"};
    char from[120], to[120];
    tutti_layout_describe(&r->from, from, sizeof from);
    tutti_layout_describe(&r->to, to, sizeof to);
    (void)tti_error_set(&error, status, 0,
                        "redistribution from %s to %s: %s; rank %d has %zu elements before, %zu after", from, to, why,
                        error.rank, r->movement.in_count, r->movement.out_count);
    tti_comm_note(r->all, &error);
    return status;
}

static bool overlap(const struct tutti_redistribution *r, const char *in, const char *out)
{
    size_t in_bytes = r->movement.in_count * r->bytes, out_bytes = r->movement.out_count * r->bytes;
    return in_bytes > 0 && out_bytes > 0 && in < out + out_bytes && out < in + in_bytes;
}

static tutti_status check_buffers(tutti_redistribution *r, const void *in, const void *out)
{
    tutti_redistribution_about about = {.struct_size = sizeof about};
    if (r == NULL) return refuse(r, TUTTI_ERR_ARGUMENT, "it is NULL");
    if (r->running) return refuse(r, TUTTI_ERR_ARGUMENT, "it was started and has not ended yet");
    if ((in == NULL && r->movement.in_count > 0) || (out == NULL && r->movement.out_count > 0))
        return refuse(r, TUTTI_ERR_ARGUMENT, "a buffer is NULL");
    if (!overlap(r, in, out)) return TUTTI_OK;
    tutti_redistribution_describe(r, &about);
    return in == out && about.in_place ? TUTTI_OK : refuse(r, TUTTI_ERR_OVERLAP, "the buffers overlap");
}

tutti_status tutti_redistribution_start(tutti_redistribution *r, const void *in, void *out)
{
    TTI_TRY(check_buffers(r, in, out));
    const struct tti_movement *movement = &r->movement;
    r->in = in;
    r->out = out;
    if (movement->fills) tti_fill_identity(out, movement->out_count, r->type);
    tutti_status status = movement->sum.kind == TTI_TRANSFER_NONE
                              ? move_start(r)
                              : transfer_start(r, &movement->sum, r->sum_comm, r->in, sum_array(r));
    r->running = status == TUTTI_OK;
    return status;
}

tutti_status tutti_redistribution_end(tutti_redistribution *r)
{
    if (r == NULL || !r->running) return refuse(r, TUTTI_ERR_ARGUMENT, "it was not started");
    const struct tti_movement *movement = &r->movement;
    r->running = false;
    if (movement->sum.kind != TTI_TRANSFER_NONE) {
        TTI_TRY(transfer_end(r, &movement->sum, sum_array(r)));
        TTI_TRY(move_start(r));
    }
    return transfer_end(r, &movement->move, r->out);
}

tutti_status tutti_redistribution_run(tutti_redistribution *redistribution, const void *in, void *out)
{
    TTI_TRY(tutti_redistribution_start(redistribution, in, out));
    return tutti_redistribution_end(redistribution);
}

tutti_status tutti_redistribute(tutti_mesh *mesh, const tutti_layout *from, const void *in, const tutti_layout *to,
                                void *out, tutti_type type, tutti_error *error)
{
    tutti_redistribution *made = NULL;
    TTI_TRY(tutti_redistribution_create(mesh, from, to, type, &made, error));
    tutti_status status = tutti_redistribution_run(made, in, out);
    if (status != TUTTI_OK && error != NULL)
        tti_error_set(error, status, 0, "%s; tutti_explain says more", tutti_status_text(status));
    tutti_redistribution_free(made);
    return status;
}
