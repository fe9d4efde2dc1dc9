/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds which rank has, adds up, holds and needs which elements.
 *
 * Rules decide this along each dimension of the mesh, from the placements before and after:
 *
 *     before       after        has      adds     holds    needs    gets
 *     replicated   replicated   anyone   anyone   anyone   anyone   anyone
 *                  sharded      anyone   to       anyone   to       to
 *                  partial      anyone   first    anyone   first    anyone
 *     sharded      replicated   from     from     from     anyone   anyone
 *                  sharded      from     from     from     to       to
 *                  partial      from     from     from     from     anyone
 *     partial      replicated   anyone   anyone   adder    anyone   anyone
 *                  sharded      anyone   anyone   to       to       to
 *                  partial      anyone   anyone   anyone   anyone   anyone
 *
 * has and gets are the arrays before and after. A rank that needs an element has it from the one that holds it: along
 * dimensions where anyone holds it, from its own coordinate. So data cross a dimension of the mesh only where holds and
 * needs differ, and of every element a rank gets one copy, and none of those that it holds. Along dimensions that are
 * summed over, an element is added up at a rank that needs it, if one does, and at no other one.
 */
#include "layout/movement.h"

#include "base/alloc.h"
#include "base/share.h"
#include "base/status.h"
#include "layout/layout_inside.h"
#include "layout/stretches.h"
#include <string.h>

struct maker {
    tutti_layout from, to;
    struct tti_stretches stretches;
    struct tti_rule has, adds, holds, needs, gets;
    int here[TUTTI_MESH_DIMENSIONS_MAX]; /* this rank's coordinates */
    unsigned summed;                     /* dimensions of the mesh that are summed over */
    unsigned free;                       /* dimensions of `summed` along which no rule says which rank adds up */
    unsigned crossed;                    /* dimensions that data cross after the sum */
    struct tti_movement *made;
};

/* ---- Rules ----------------------------------------------------------------------------------------------------- */

/* Returns the placement along a dimension; one with a single rank is replicated, since that rank has all of it, and the
 * sum. */
static tutti_placement placement_of(const tutti_layout *layout, int m)
{
    return layout->along[m].size == 1 ? TUTTI_REPLICATED : layout->along[m].placement;
}

static enum tti_owner needs_of(tutti_placement from, tutti_placement to)
{
    if (to == TUTTI_SHARDED) return TTI_TO;
    if (to == TUTTI_REPLICATED || from == TUTTI_PARTIAL) return TTI_ANYONE;
    return from == TUTTI_SHARDED ? TTI_FROM : TTI_FIRST;
}

static enum tti_owner holds_of(tutti_placement from, tutti_placement to)
{
    if (from == TUTTI_SHARDED) return TTI_FROM;
    if (from == TUTTI_REPLICATED || to == TUTTI_PARTIAL) return TTI_ANYONE;
    return to == TUTTI_SHARDED ? TTI_TO : TTI_ADDER;
}

static enum tti_owner adds_of(tutti_placement from, tutti_placement to)
{
    if (from == TUTTI_SHARDED) return TTI_FROM;
    return from == TUTTI_REPLICATED ? needs_of(from, to) : TTI_ANYONE;
}

static bool crosses(const struct maker *maker, int m)
{
    enum tti_owner holds = maker->holds.along[m], needs = maker->needs.along[m];
    if (holds == TTI_ANYONE || holds == needs) return false;
    return needs != TTI_TO || !tti_stretches_agree(&maker->stretches, m);
}

static void set_rules(struct maker *maker)
{
    for (int m = 0; m < maker->from.mesh_dimensions; m++) {
        tutti_placement from = placement_of(&maker->from, m), to = placement_of(&maker->to, m);
        maker->has.along[m] = from == TUTTI_SHARDED ? TTI_FROM : TTI_ANYONE;
        maker->gets.along[m] = to == TUTTI_SHARDED ? TTI_TO : TTI_ANYONE;
        maker->needs.along[m] = needs_of(from, to);
        maker->holds.along[m] = holds_of(from, to);
        maker->adds.along[m] = adds_of(from, to);
        if (from == TUTTI_PARTIAL && to != TUTTI_PARTIAL) maker->summed |= 1u << m;
        if (from == TUTTI_PARTIAL && to == TUTTI_REPLICATED) maker->free |= 1u << m;
        if (from != TUTTI_PARTIAL && to == TUTTI_PARTIAL) maker->made->fills = true;
        if (crosses(maker, m)) maker->crossed |= 1u << m;
    }
}

/* ---- Selections ------------------------------------------------------------------------------------------------ */

/* The elements that this rank's coordinates choose by two rules. */
struct array {
    struct tti_asked asked[2];
};

static struct array array_of(const struct maker *maker, const struct tti_rule *a, const struct tti_rule *b)
{
    return (struct array){{{a, maker->here}, {b, maker->here}}};
}

static struct array array_before(const struct maker *maker)
{
    return array_of(maker, &maker->has, &maker->has);
}

static struct array array_held(const struct maker *maker)
{
    return maker->made->sums ? array_of(maker, &maker->adds, &maker->holds) : array_before(maker);
}

static struct array array_after(const struct maker *maker)
{
    return array_of(maker, &maker->gets, &maker->gets);
}

/* Selects the elements that one rank holds and another one needs, in an array of this rank. */
static tutti_status held_and_needed(const struct maker *maker, struct array array, const int *holder, const int *needer,
                                    struct tti_selection *selection)
{
    const struct tti_asked which[2] = {{&maker->holds, holder}, {&maker->needs, needer}};
    return tti_stretches_select(&maker->stretches, array.asked, which, selection);
}

/* ---- Transfers ------------------------------------------------------------------------------------------------- */

/* Sets the coordinates of member `member` of this rank's comm along some dimensions. */
static void member_at(const struct maker *maker, unsigned along, int member, int *coordinates)
{
    memcpy(coordinates, maker->here, sizeof maker->here);
    for (int m = maker->from.mesh_dimensions; m-- > 0;) {
        if ((along >> m & 1) == 0) continue;
        coordinates[m] = member % maker->from.along[m].size;
        member /= maker->from.along[m].size;
    }
}

static tutti_status transfer_begin(const struct maker *maker, enum tti_transfer_kind kind, unsigned along,
                                   struct tti_transfer *transfer)
{
    bool one_in = kind == TTI_TRANSFER_ALL_REDUCE || kind == TTI_TRANSFER_ALL_GATHER;
    bool one_out = kind == TTI_TRANSFER_ALL_REDUCE || kind == TTI_TRANSFER_REDUCE_SCATTER;
    *transfer = (struct tti_transfer){.kind = kind, .along = along, .size = 1};
    for (int m = 0; m < maker->from.mesh_dimensions; m++) {
        if ((along >> m & 1) == 0) continue;
        transfer->size *= maker->from.along[m].size;
        transfer->rank = transfer->rank * maker->from.along[m].size + maker->here[m];
    }
    transfer->in_selections = one_in ? 1 : transfer->size;
    transfer->out_selections = one_out ? 1 : transfer->size;
    transfer->in = tti_calloc((size_t)transfer->in_selections, sizeof *transfer->in);
    transfer->out = tti_calloc((size_t)transfer->out_selections, sizeof *transfer->out);
    transfer->counts = tti_calloc(4 * (size_t)transfer->size, sizeof *transfer->counts);
    if (transfer->in == NULL || transfer->out == NULL || transfer->counts == NULL) return TUTTI_ERR_MEMORY;
    transfer->offsets = transfer->counts + transfer->size;
    transfer->out_counts = transfer->offsets + transfer->size;
    transfer->out_offsets = transfer->out_counts + transfer->size;
    return TUTTI_OK;
}

/* Sets the counts and offsets of some selections in their array, if each is one piece of it (`in_row`: and each begins
 * where the one before it ends), else in memory where they lie packed, one after the other. Returns true if they are in
 * their array. */
static bool lay_out(const struct tti_selection *selections, int count, bool in_row, size_t *counts, size_t *offsets,
                    size_t *all)
{
    bool direct = true;
    size_t end = 0, offset;
    *all = 0;
    for (int k = 0; k < count; k++) {
        counts[k] = selections[k].count;
        *all += selections[k].count;
        direct = direct && tti_selection_is_piece(&selections[k], &offset);
        if (!direct || selections[k].count == 0) continue;
        direct = !in_row || *all == selections[k].count || offset == end;
        end = offset + selections[k].count;
        offsets[k] = offset;
    }
    for (size_t k = 0, at = 0; !direct && k < (size_t)count; at += counts[k++]) offsets[k] = at;
    return direct;
}

/* Returns where the first selection that is not empty begins. */
static size_t begins(const size_t *counts, const size_t *offsets, int selections)
{
    for (int k = 0; k < selections; k++)
        if (counts[k] > 0) return offsets[k];
    return 0;
}

/* Completes a transfer. A collective that all ranks of its comm know to be empty is left out. */
static void transfer_seal(struct tti_transfer *transfer)
{
    bool scatters = transfer->kind == TTI_TRANSFER_REDUCE_SCATTER;
    transfer->in_direct = lay_out(transfer->in, transfer->in_selections, scatters, transfer->counts, transfer->offsets,
                                  &transfer->in_count);
    transfer->out_direct = lay_out(transfer->out, transfer->out_selections, false, transfer->out_counts,
                                   transfer->out_offsets, &transfer->out_count);
    if (transfer->in_direct && transfer->kind != TTI_TRANSFER_ALL_TO_ALL)
        transfer->in_offset = begins(transfer->counts, transfer->offsets, transfer->in_selections);
    if (transfer->out_direct && transfer->out_selections == 1) transfer->out_offset = transfer->out_offsets[0];
    if (transfer->kind != TTI_TRANSFER_ALL_TO_ALL && transfer->in_count + transfer->out_count == 0)
        transfer->kind = TTI_TRANSFER_NONE;
}

/* ---- Sums ------------------------------------------------------------------------------------------------------ */

static tutti_status make_all_reduce(struct maker *maker)
{
    struct tti_transfer *sum = &maker->made->sum;
    struct array summed = array_of(maker, &maker->adds, &maker->has),
                 needed = array_of(maker, &maker->needs, &maker->gets);
    TTI_TRY(transfer_begin(maker, TTI_TRANSFER_ALL_REDUCE, maker->summed, sum));
    TTI_TRY(tti_stretches_select(&maker->stretches, array_before(maker).asked, summed.asked, &sum->in[0]));
    TTI_TRY(tti_stretches_select(&maker->stretches, array_after(maker).asked, needed.asked, &sum->out[0]));
    transfer_seal(sum);
    return TUTTI_OK;
}

static tutti_status make_reduce_scatter(struct maker *maker)
{
    struct tti_transfer *sum = &maker->made->sum;
    int adder[TUTTI_MESH_DIMENSIONS_MAX];
    TTI_TRY(tti_stretches_share(&maker->stretches, maker->free));
    TTI_TRY(transfer_begin(maker, TTI_TRANSFER_REDUCE_SCATTER, maker->summed, sum));
    for (int k = 0; k < sum->size; k++) {
        member_at(maker, maker->summed, k, adder);
        const struct tti_asked which[2] = {{&maker->adds, maker->here}, {&maker->holds, adder}};
        TTI_TRY(tti_stretches_select(&maker->stretches, array_before(maker).asked, which, &sum->in[k]));
    }
    struct array held = array_held(maker);
    TTI_TRY(tti_stretches_select(&maker->stretches, held.asked, held.asked, &sum->out[0]));
    maker->made->held_count = sum->out[0].count;
    transfer_seal(sum);
    return TUTTI_OK;
}

/* ---- Moves ----------------------------------------------------------------------------------------------------- */

static tutti_status make_keep(struct maker *maker)
{
    TTI_TRY(held_and_needed(maker, array_held(maker), maker->here, maker->here, &maker->made->keep_in));
    return held_and_needed(maker, array_after(maker), maker->here, maker->here, &maker->made->keep_out);
}

/* Returns true if every rank that takes part needs all that the others hold. */
static bool all_need_all(const struct maker *maker)
{
    for (int m = 0; m < maker->from.mesh_dimensions; m++)
        if ((maker->crossed >> m & 1) != 0 && maker->needs.along[m] != TTI_ANYONE) return false;
    return true;
}

static tutti_status make_all_gather(struct maker *maker)
{
    struct tti_transfer *move = &maker->made->move;
    int holder[TUTTI_MESH_DIMENSIONS_MAX];
    TTI_TRY(transfer_begin(maker, TTI_TRANSFER_ALL_GATHER, maker->crossed, move));
    TTI_TRY(held_and_needed(maker, array_held(maker), maker->here, maker->here, &move->in[0]));
    for (int k = 0; k < move->size; k++) {
        member_at(maker, maker->crossed, k, holder);
        TTI_TRY(held_and_needed(maker, array_after(maker), holder, maker->here, &move->out[k]));
    }
    transfer_seal(move);
    return TUTTI_OK;
}

static tutti_status make_all_to_all(struct maker *maker)
{
    struct tti_transfer *move = &maker->made->move;
    int peer[TUTTI_MESH_DIMENSIONS_MAX];
    TTI_TRY(transfer_begin(maker, TTI_TRANSFER_ALL_TO_ALL, maker->crossed, move));
    for (int k = 0; k < move->size; k++) {
        if (k == move->rank) continue; /* the own elements are kept */
        member_at(maker, maker->crossed, k, peer);
        TTI_TRY(held_and_needed(maker, array_held(maker), maker->here, peer, &move->in[k]));
        TTI_TRY(held_and_needed(maker, array_after(maker), peer, maker->here, &move->out[k]));
    }
    transfer_seal(move);
    return make_keep(maker);
}

/* ---- All of it ------------------------------------------------------------------------------------------------- */

/* Returns true if no rank of this rank's comms needs anything of them, so that they need no collective: the array is
 * empty, or another coordinate contributes. */
static bool is_idle(const struct maker *maker)
{
    for (int d = 0; d < maker->from.dimensions; d++)
        if (maker->from.shape[d] == 0) return true;
    for (int m = 0; m < maker->from.mesh_dimensions; m++)
        if (maker->needs.along[m] == TTI_FIRST && maker->here[m] != 0) return true;
    return false;
}

static void count_moved(struct tti_movement *made)
{
    const struct tti_transfer *sum = &made->sum, *move = &made->move;
    if (sum->kind == TTI_TRANSFER_ALL_REDUCE) {
        struct tti_span slice = tti_share(sum->in_count, (size_t)sum->rank, (size_t)sum->size);
        size_t mine = slice.hi - slice.lo, others = (size_t)sum->size - 1;
        made->sent += sum->in_count - mine + others * mine;
        made->received += others * mine + sum->in_count - mine;
    } else if (sum->kind == TTI_TRANSFER_REDUCE_SCATTER) {
        made->sent += sum->in_count - made->held_count;
        made->received += ((uint64_t)sum->size - 1) * made->held_count;
    }
    if (move->kind == TTI_TRANSFER_ALL_GATHER) {
        made->sent += ((uint64_t)move->size - 1) * move->in_count;
        made->received += move->out_count - move->in_count;
    } else if (move->kind == TTI_TRANSFER_ALL_TO_ALL) {
        made->sent += move->in_count;
        made->received += move->out_count;
    }
}

static tutti_status make(struct maker *maker)
{
    struct tti_movement *made = maker->made;
    TTI_TRY(tti_stretches_make(&maker->from, &maker->to, &maker->stretches));
    set_rules(maker);
    const bool at_once = maker->summed != 0 && maker->free == maker->summed && (maker->crossed & ~maker->free) == 0;
    made->sum.along = maker->summed;
    made->move.along = at_once ? 0 : maker->crossed;
    if (is_idle(maker)) return TUTTI_OK;
    if (at_once) return make_all_reduce(maker);
    made->sums = maker->summed != 0;
    if (made->sums) TTI_TRY(make_reduce_scatter(maker));
    if (maker->crossed == 0) return make_keep(maker);
    return all_need_all(maker) ? make_all_gather(maker) : make_all_to_all(maker);
}

/* Returns the layout; an array without dimensions gets one dimension with one element. */
static tutti_layout with_dimension(const tutti_layout *layout)
{
    tutti_layout whole = *layout;
    if (whole.dimensions == 0) {
        whole.dimensions = 1;
        whole.shape[0] = 1;
        whole.sections[0] = 0;
        whole.grains[0] = 0;
    }
    return whole;
}

tutti_status tti_movement_make(const tutti_layout *from, const tutti_layout *to, int rank,
                               struct tti_movement *movement)
{
    struct maker maker = {.from = with_dimension(from), .to = with_dimension(to), .made = movement};
    *movement = (struct tti_movement){0};
    tti_layout_coordinates(&maker.from, rank, maker.here);
    movement->in_count = tutti_layout_local(from, rank, NULL);
    movement->out_count = tutti_layout_local(to, rank, NULL);
    tutti_status status = make(&maker);
    tti_stretches_free(&maker.stretches);
    if (status == TUTTI_OK)
        count_moved(movement);
    else
        tti_movement_free(movement);
    return status;
}

static void transfer_free(struct tti_transfer *transfer)
{
    for (int k = 0; transfer->in != NULL && k < transfer->in_selections; k++) tti_selection_free(&transfer->in[k]);
    for (int k = 0; transfer->out != NULL && k < transfer->out_selections; k++) tti_selection_free(&transfer->out[k]);
    tti_free(transfer->in);
    tti_free(transfer->out);
    tti_free(transfer->counts);
}

void tti_movement_free(struct tti_movement *movement)
{
    transfer_free(&movement->sum);
    transfer_free(&movement->move);
    tti_selection_free(&movement->keep_in);
    tti_selection_free(&movement->keep_out);
    *movement = (struct tti_movement){0};
}
