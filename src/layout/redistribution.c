/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes redistributions. redistribution_run.c runs them.
 */
#define TUTTI_NO_CALL_SITES
#include "layout/redistribution.h"

#include "base/alloc.h"
#include "base/latest.h"
#include "base/status.h"
#include "collective/comm/comm.h"
#include "layout/layout_inside.h"
#include <string.h>

/* ---- What is asked for ----------------------------------------------------------------------------------------- */

static tutti_status check_mesh(const tutti_mesh *mesh, const tutti_layout *layout, tutti_error *error)
{
    char text[160];
    int dimensions = tutti_mesh_dimensions(mesh);
    bool fits = layout->mesh_dimensions == dimensions;
    for (int m = 0; fits && m < dimensions; m++) {
        const char *name = tutti_mesh_name(mesh, m);
        fits = strcmp(layout->along[m].name, name) == 0 && layout->along[m].size == tutti_mesh_size(mesh, name);
    }
    if (fits) return TUTTI_OK;
    tutti_layout_describe(layout, text, sizeof text);
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "redistribution: %s is not on this mesh, which has %d dimensions, %s %d first; "
                         "tutti_layout_init takes them from the mesh",
                         text, dimensions, tutti_mesh_name(mesh, 0), tutti_mesh_size(mesh, tutti_mesh_name(mesh, 0)));
}

static tutti_status check(const struct tutti_redistribution *r, tutti_error *error)
{
    TTI_TRY(tutti_layout_check(&r->from, error));
    TTI_TRY(tutti_layout_check(&r->to, error));
    TTI_TRY(check_mesh(r->mesh, &r->from, error));
    TTI_TRY(check_mesh(r->mesh, &r->to, error));
    if (r->bytes == 0)
        return tti_error_set(error, TUTTI_ERR_TYPE, 0, "redistribution: there is no type %d", (int)r->type);
    bool same = r->from.dimensions == r->to.dimensions;
    for (int d = 0; same && d < r->from.dimensions; d++) same = r->from.shape[d] == r->to.shape[d];
    if (same) return TUTTI_OK;
    char from[160], to[160];
    tutti_layout_describe(&r->from, from, sizeof from);
    tutti_layout_describe(&r->to, to, sizeof to);
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "redistribution: from %s to %s: the shapes differ", from, to);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static void *allocate(struct tutti_redistribution *r, size_t elements)
{
    if (elements == 0) return NULL;
    r->memory_bytes += elements * r->bytes;
    return tutti_alloc(r->all, elements * r->bytes);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Places sums in `out` at once if they stay there in one piece. */
static void place_held(struct tutti_redistribution *r)
{
    const struct tti_movement *movement = &r->movement;
    size_t from;
    r->held_in_out = movement->sums && movement->move.kind == TTI_TRANSFER_NONE &&
                     movement->keep_in.count == movement->held_count &&
                     tti_selection_is_piece(&movement->keep_in, &from) &&
                     tti_selection_is_piece(&movement->keep_out, &r->held_offset);
}

static tutti_status make_memory(struct tutti_redistribution *r, tutti_error *error)
{
    const struct tti_transfer *sum = &r->movement.sum, *move = &r->movement.move;
    size_t packed = larger(sum->in_direct ? 0 : sum->in_count, move->in_direct ? 0 : move->in_count);
    size_t arrived = larger(sum->out_direct ? 0 : sum->out_count, move->out_direct ? 0 : move->out_count);
    place_held(r);
    size_t held = r->held_in_out ? 0 : r->movement.held_count;
    r->packed = allocate(r, packed);
    r->arrived = allocate(r, arrived);
    r->held = allocate(r, held);
    if ((packed > 0 && r->packed == NULL) || (arrived > 0 && r->arrived == NULL) || (held > 0 && r->held == NULL))
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "redistribution: no memory for %zu elements on their way",
                             packed + arrived + held);
    return TUTTI_OK;
}

/* Makes the parts that this rank can make by itself. */
static tutti_status prepare(struct tutti_redistribution *r, tutti_error *error)
{
    TTI_TRY(check(r, error));
    if (tti_movement_make(&r->from, &r->to, tutti_rank(r->all), &r->movement) != TUTTI_OK)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "redistribution: no memory for its plan");
    return make_memory(r, error);
}

/* ---- Comms ----------------------------------------------------------------------------------------------------- */

/* Returns the mesh's comm along some of its dimensions. */
static tutti_status comm_along(tutti_mesh *mesh, unsigned along, tutti_comm **comm)
{
    char names[TUTTI_MESH_DIMENSIONS_MAX * (TUTTI_MESH_NAME_BYTES + 1)] = "";
    size_t used = 0;
    if (along == 0) return TUTTI_OK;
    for (int m = 0; m < tutti_mesh_dimensions(mesh); m++)
        if ((along >> m & 1) != 0)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used == 0 ? "" : ",",
                                     tutti_mesh_name(mesh, m));
    return tutti_mesh_comm(mesh, names, comm);
}

static tutti_status find_comms(struct tutti_redistribution *r)
{
    TTI_TRY(comm_along(r->mesh, r->movement.sum.along, &r->sum_comm));
    return comm_along(r->mesh, r->movement.move.along, &r->move_comm);
}

/* ---- Making and freeing ---------------------------------------------------------------------------------------- */

static tutti_status create(tutti_mesh *mesh, const tutti_layout *from, const tutti_layout *to, tutti_type type,
                           tutti_redistribution **made, tutti_error *error)
{
    tutti_comm *all = NULL;
    unsigned every = (1u << tutti_mesh_dimensions(mesh)) - 1;
    tutti_status status = comm_along(mesh, every, &all);
    if (status != TUTTI_OK)
        return tti_error_set(error, status, 0, "redistribution: the mesh has no comm of all its ranks");
    struct tutti_redistribution *r = tti_calloc(1, sizeof *r);
    struct tutti_redistribution unmade = {.all = all, .type = type, .from = *from, .to = *to};
    if (r == NULL) {
        status = tti_error_set(error, TUTTI_ERR_MEMORY, 0, "redistribution: no memory");
        return tti_redistribution_agree(&unmade, status, error);
    }
    *r = unmade;
    r->mesh = mesh;
    r->bytes = tutti_type_bytes(type);
    error->rank = tutti_rank(all);
    status = tti_redistribution_agree(r, prepare(r, error), error);
    if (status == TUTTI_OK) {
        status = find_comms(r);
        if (status != TUTTI_OK) tti_error_set(error, status, 0, "redistribution: a comm of the mesh could not be made");
    }
    if (status != TUTTI_OK) {
        tti_comm_note(all, error);
        tutti_redistribution_free(r);
        return status;
    }
    *made = r;
    return TUTTI_OK;
}

tutti_status tutti_redistribution_create(tutti_mesh *mesh, const tutti_layout *from, const tutti_layout *to,
                                         tutti_type type, tutti_redistribution **made, tutti_error *error)
{
    tutti_error unused;
    if (error == NULL) error = &unused;
    *error = (tutti_error){.rank = -1, .peer = -1, .operation = "redistribution_create"};
    if (made != NULL) *made = NULL;
    if (mesh == NULL || from == NULL || to == NULL || made == NULL) {
        tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "redistribution: it needs a mesh, two layouts and a place to go");
        return tti_latest_stray("redistribution", TUTTI_ERR_ARGUMENT, "%s", error->text);
    }
    return create(mesh, from, to, type, made, error);
}

tutti_status tutti_redistribution_adjoint(const tutti_redistribution *redistribution, tutti_redistribution **made,
                                          tutti_error *error)
{
    if (redistribution == NULL) return tutti_redistribution_create(NULL, NULL, NULL, TUTTI_F32, made, error);
    tutti_layout from, to;
    tutti_layout_dual(&redistribution->to, &from);
    tutti_layout_dual(&redistribution->from, &to);
    return tutti_redistribution_create(redistribution->mesh, &from, &to, redistribution->type, made, error);
}

void tutti_redistribution_free(tutti_redistribution *redistribution)
{
    if (redistribution == NULL) return;
    if (redistribution->op.id != 0) (void)tutti_wait(redistribution->op);
    (void)tutti_free(redistribution->all, redistribution->packed);
    (void)tutti_free(redistribution->all, redistribution->arrived);
    (void)tutti_free(redistribution->all, redistribution->held);
    tti_movement_free(&redistribution->movement);
    tti_free(redistribution);
}

/* ---- About it -------------------------------------------------------------------------------------------------- */

/* Returns true if it works in place: the same elements are at the same places before and after. */
static bool is_in_place(const struct tutti_redistribution *r)
{
    const struct tti_movement *movement = &r->movement;
    const struct tti_transfer *sum = &movement->sum;
    size_t from, to;
    if (movement->fills || movement->sums || movement->in_count != movement->out_count) return false;
    if (movement->move.kind != TTI_TRANSFER_NONE) return false;
    if (sum->kind == TTI_TRANSFER_ALL_REDUCE)
        return sum->in_direct && sum->out_direct && sum->in_offset == sum->out_offset;
    return tti_selection_is_piece(&movement->keep_in, &from) && tti_selection_is_piece(&movement->keep_out, &to) &&
           from == to;
}

void tutti_redistribution_describe(const tutti_redistribution *redistribution, tutti_redistribution_about *about)
{
    static const char *const names[] = {[TTI_TRANSFER_NONE] = "none",
                                        [TTI_TRANSFER_ALL_REDUCE] = "all_reduce",
                                        [TTI_TRANSFER_REDUCE_SCATTER] = "reduce_scatter",
                                        [TTI_TRANSFER_ALL_GATHER] = "all_gather",
                                        [TTI_TRANSFER_ALL_TO_ALL] = "all_to_all"};
    const struct tti_movement *movement = &redistribution->movement;
    tutti_redistribution_about all = {.struct_size = about->struct_size,
                                      .sums = names[movement->sum.kind],
                                      .moves = names[movement->move.kind],
                                      .sent_bytes = movement->sent * redistribution->bytes,
                                      .received_bytes = movement->received * redistribution->bytes,
                                      .memory_bytes = redistribution->memory_bytes,
                                      .in_place = is_in_place(redistribution)};
    memcpy(about, &all, about->struct_size < sizeof all ? about->struct_size : sizeof all);
}

tutti_redistribution *tutti_redistribution_at(tutti_redistribution *redistribution, const char *file, int line)
{
    if (redistribution != NULL) redistribution->here = (struct tti_here){file, line};
    return redistribution;
}
