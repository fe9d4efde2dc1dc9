/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/siblings.h"

#include "base/alloc.h"
#include "collective/op/many.h"
#include "collective/peers/net.h"
#include <link.h>
#include <stdio.h>

struct tti_outputs {
    /* Identifies the comm: its area in memory that its ranks share; or its number among the comms of the process's
     * cluster, and its first rank, since comms without a common rank may have the same number. */
    const void *of;
    uint32_t id;
    int first;
    int users;
    struct tti_outputs *next;

    _Atomic uint64_t changes; /* changes of outputs so far */
    _Atomic uint32_t lock;    /* lock of `shown` */
    int count;
    struct {
        int rank;
        struct tti_output now, before;
    } shown[]; /* (count) */
};

static _Atomic uint32_t boards_lock;
static struct tti_outputs *boards;

void tti_siblings_forked(void)
{
    tti_unlock(&boards_lock);
}

/* ---- Making and freeing ---------------------------------------------------------------------------------------- */

static bool is_of(const struct tti_outputs *board, const struct tti_outputs *wanted)
{
    return board->of == wanted->of && board->id == wanted->id && board->first == wanted->first;
}

static struct tti_outputs *add_board(const struct tti_outputs *wanted)
{
    struct tti_outputs *board = tti_calloc(1, sizeof *board + (size_t)wanted->count * sizeof *board->shown);
    if (board == NULL) return NULL;
    board->of = wanted->of;
    board->id = wanted->id;
    board->first = wanted->first;
    board->count = wanted->count;
    board->next = boards;
    boards = board;
    return board;
}

/* Finds the board that the others of this process have made, or makes one. */
static struct tti_outputs *join_board(const struct tti_outputs *wanted)
{
    tti_lock(&boards_lock);
    struct tti_outputs *board = boards;
    while (board != NULL && !is_of(board, wanted)) board = board->next;
    if (board == NULL) board = add_board(wanted);
    if (board != NULL) board->users++;
    tti_unlock(&boards_lock);
    return board;
}

static void part_board(struct tti_outputs *board)
{
    tti_lock(&boards_lock);
    struct tti_outputs **link = &boards;
    while (*link != board) link = &(*link)->next;
    bool last = --board->users == 0;
    if (last) *link = board->next;
    tti_unlock(&boards_lock);
    if (last) tti_free(board);
}

bool tti_siblings_create(tutti_comm *comm)
{
    struct tti_outputs wanted = {.of = comm->area};
    int place = 0;
    if (tti_sim != NULL && tti_sim_setup_of()->sizes_only) return true; /* there are no data that could be wrong */
    if (comm->lanes != NULL) {
        wanted.of = comm->lanes->net->cluster;
        wanted.id = comm->lanes->id;
        wanted.first = tti_member(comm, 0);
    }
    for (int rank = 0; rank < comm->size; rank++) {
        if (rank == comm->rank) place = wanted.count;
        wanted.count += rank == comm->rank || tti_is_of_this_process(comm, rank);
    }
    if (wanted.count < 2) return true;
    comm->traits.siblings = tti_calloc(1, sizeof *comm->traits.siblings);
    struct tti_outputs *board = comm->traits.siblings == NULL ? NULL : join_board(&wanted);
    if (board == NULL) {
        tti_free(comm->traits.siblings);
        comm->traits.siblings = NULL;
        return false;
    }
    board->shown[place].rank = comm->rank;
    *comm->traits.siblings = (struct tti_siblings){.outputs = board, .changes = &board->changes, .place = place};
    return true;
}

void tti_siblings_free(tutti_comm *comm)
{
    if (comm->traits.siblings == NULL) return;
    part_board(comm->traits.siblings->outputs);
    tti_free(comm->traits.siblings);
    comm->traits.siblings = NULL;
}

/* ---- Outputs --------------------------------------------------------------------------------------------------- */

/* Returns where an op's output goes in the end, and its bytes; for packed pieces those of the first one. */
static uintptr_t output_of(const struct tti_op *op, uint64_t *bytes)
{
    *bytes = op->out_bytes;
    if (op->many == NULL || op->many->alone != TTI_PACKED || op->out_bytes == 0) return (uintptr_t)op->out;
    const tutti_piece *piece = tti_many_first(op);
    *bytes = piece->count * op->shape.element;
    return (uintptr_t)piece->out;
}

/* Returns true for kinds in which only the root has an output. */
static bool is_alone(const struct tti_op *op)
{
    enum tti_kind kind = op->shape.kind;
    return op->out_bytes == 0 || kind == TTI_REDUCE || kind == TTI_GATHER || kind == TTI_GATHER_V;
}

/* Returns true if the peer's output is in use at the same time as this rank's in every operation of the kind. */
static bool is_met(const struct tti_op *op, int peer)
{
    return tti_call_depends(&op->call, op->comm->rank, peer) && tti_call_depends(&op->call, peer, op->comm->rank);
}

static bool overlap(const struct tti_output *one, const struct tti_output *other)
{
    return one->address < other->address + other->bytes && other->address < one->address + one->bytes;
}

struct search {
    uintptr_t address;
    bool found;
};

static int look_at_object(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct search *search = context;
    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && search->address - (info->dlpi_addr + part->p_vaddr) < part->p_memsz)
            search->found = true;
    }
    return search->found;
}

/* Returns true for memory of a variable that lives as long as the program: nobody frees it, and nobody else gets it. */
static bool is_static(uintptr_t address)
{
    struct search search = {.address = address};
    dl_iterate_phdr(look_at_object, &search);
    return search.found;
}

/* Returns what a sibling has shown for the running op, or before it and not changed since; NULL: nothing is known. */
static const struct tti_output *output_at(const struct tti_outputs *board, int place, uint64_t sequence)
{
    const struct tti_output *now = &board->shown[place].now, *before = &board->shown[place].before;
    const struct tti_output *output = now->since <= sequence ? now : before;
    return output->since == 0 || output->since > sequence ? NULL : output;
}

/* With the board's lock held: notes the first sibling whose output overlaps this rank's. `met`: only of those that it
 * meets. */
static void look_for_clash(struct tti_op *op, uint64_t sequence, bool met)
{
    struct tti_siblings *siblings = op->comm->traits.siblings;
    for (int place = 0; place < siblings->outputs->count && siblings->clash == 0; place++) {
        int peer = siblings->outputs->shown[place].rank;
        const struct tti_output *output = output_at(siblings->outputs, place, sequence);
        if (place == siblings->place || output == NULL || !overlap(&siblings->now, output)) continue;
        bool used = output->since == sequence && (!output->ended || is_static(output->address));
        if (is_met(op, peer) != met || (!met && !used)) continue;
        siblings->clash = peer + 1;
        siblings->clash_site = output->site;
    }
}

void tti_siblings_show_new(struct tti_op *op)
{
    struct tti_siblings *siblings = op->comm->traits.siblings;
    struct tti_outputs *board = siblings->outputs;
    uint64_t sequence = op->comm->sequence + 1; /* the number that it will have */
    struct tti_output output = {.since = sequence, .site = op->call.site};
    output.address = output_of(op, &output.bytes);
    bool same = output.address == siblings->now.address && output.bytes == siblings->now.bytes;
    if (same || is_alone(op)) return;
    tti_lock(&board->lock);
    board->shown[siblings->place].before = board->shown[siblings->place].now;
    board->shown[siblings->place].now = siblings->now = output;
    atomic_fetch_add_explicit(&board->changes, 1, memory_order_relaxed);
    look_for_clash(op, sequence, false);
    tti_unlock(&board->lock);
}

static tutti_status clash(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    int peer = comm->traits.siblings->clash - 1;
    char ours[112], theirs[112];
    tti_site_describe(&op->call.site, ours, sizeof ours);
    tti_site_describe(&comm->traits.siblings->clash_site, theirs, sizeof theirs);
    return tti_comm_break(
        comm, (enum tti_kind)op->call.kind, TUTTI_ERR_OVERLAP, peer,
        "rank %d%s and rank %d%s give the same memory as output; they are threads of one process, and "
        "share its global and static variables: give each rank memory of its own, by tutti_alloc, "
        "malloc or on its stack",
        comm->rank, ours, peer, theirs);
}

tutti_status tti_siblings_compare_new(struct tti_op *op)
{
    struct tti_siblings *siblings = op->comm->traits.siblings;
    struct tti_outputs *board = siblings->outputs;
    if (is_alone(op)) return TUTTI_OK;
    tti_lock(&board->lock);
    siblings->seen = atomic_load_explicit(&board->changes, memory_order_relaxed);
    if (siblings->now.since == op->comm->sequence) board->shown[siblings->place].now.ended = true;
    look_for_clash(op, op->comm->sequence, true);
    tti_unlock(&board->lock);
    return siblings->clash == 0 ? TUTTI_OK : clash(op);
}
