/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank sends another one the data that it has of that one's piece: runs of floats, each after two words that say
 * where in the piece it goes and how many floats it has. So the rank that writes a piece need not know where its data
 * are.
 */
#define TUTTI_NO_CALL_SITES
#include "train/trainer_pieces.h"

#include "base/alloc.h"
#include "base/status.h"
#include "train/trainer.h"
#include <string.h>

/* words of one piece, if each float is a run of its own */
enum { HEAD = 2, MOST_WORDS = (HEAD + 1) * (TTI_PIECE_BYTES / 4) };

_Static_assert(sizeof(float) == sizeof(uint32_t), "floats are sent as words");

tutti_status tti_pieces_make(struct tutti_trainer *t, const struct tti_arrays *arrays,
                             const struct tti_range_plan *plan, struct tti_pieces *pieces, tutti_error *error)
{
    const size_t size = (size_t)tutti_size(t->comm);
    *pieces = (struct tti_pieces){
        .trainer = t, .arrays = arrays, .plan = plan, .rank = tutti_rank(t->comm), .size = (int)size};
    if (tti_arrays_whole(arrays)) return TUTTI_OK;
    pieces->received = tti_calloc(MOST_WORDS, sizeof *pieces->received);
    pieces->sent_counts = tti_calloc(4 * size, sizeof *pieces->sent_counts);
    if (pieces->received == NULL || pieces->sent_counts == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to save a checkpoint");
    pieces->sent_offsets = pieces->sent_counts + size;
    pieces->counts = pieces->sent_offsets + size;
    pieces->offsets = pieces->counts + size;
    return TUTTI_OK;
}

void tti_pieces_free(struct tti_pieces *pieces)
{
    tti_free(pieces->sent);
    tti_free(pieces->received);
    tti_free(pieces->sent_counts);
}

/* ---- Giving ---------------------------------------------------------------------------------------------------- */

static void count_run(void *context, size_t first, size_t count, float *values)
{
    struct tti_pieces *pieces = context;
    (void)first, (void)values;
    pieces->made += HEAD + count;
}

static void send_run(void *context, size_t first, size_t count, float *values)
{
    struct tti_pieces *pieces = context;
    uint32_t *to = pieces->sent + pieces->made;
    to[0] = (uint32_t)(pieces->at + first * sizeof(float));
    to[1] = (uint32_t)count;
    memcpy(to + HEAD, values, count * sizeof *values);
    pieces->made += HEAD + count;
}

static void copy_run(void *context, size_t first, size_t count, float *values)
{
    struct tti_pieces *pieces = context;
    memcpy(pieces->bytes + (pieces->at + first * sizeof(float)), values, count * sizeof *values);
}

/* The rank that gets the piece, and the function for this rank's runs of it. */
struct gift {
    struct tti_pieces *pieces;
    int to;
    tti_array_run *run;
};

static void give_tensor(void *context, const tutti_checkpoint_tensor *tensor, size_t first, size_t count, size_t at)
{
    const struct gift *gift = context;
    const struct tti_arrays *arrays = gift->pieces->arrays;
    const size_t index = (size_t)(tensor - arrays->list);
    if (!tti_arrays_give(arrays, index, gift->to)) return;
    gift->pieces->at = at - first * sizeof(float);
    tti_arrays_runs(arrays, index, (struct tti_span){first, first + count}, gift->run, gift->pieces);
}

static void give(struct tti_pieces *pieces, size_t round, size_t number, int to, tti_array_run *run)
{
    const struct tti_range_piece piece = tti_range_piece(pieces->plan, to, pieces->size, round, number);
    struct gift gift = {pieces, to, run};
    if (piece.file != NULL) tti_range_walk(&piece, give_tensor, &gift);
}

/* Sends the data for other ranks, rank by rank; data for this rank are taken at once. */
static void give_all(struct tti_pieces *pieces, size_t round, size_t number, tti_array_run *run)
{
    pieces->made = 0;
    for (int r = 0; r < pieces->size; r++) {
        pieces->sent_offsets[r] = pieces->made;
        if (r != pieces->rank && pieces->status == TUTTI_OK) give(pieces, round, number, r, run);
        pieces->sent_counts[r] = pieces->made - pieces->sent_offsets[r];
    }
}

static tutti_status make_room(struct tti_pieces *pieces)
{
    if (pieces->made <= pieces->sent_room) return TUTTI_OK;
    tti_free(pieces->sent);
    pieces->sent_room = pieces->made;
    pieces->sent = tti_calloc(pieces->sent_room, sizeof *pieces->sent);
    if (pieces->sent != NULL) return TUTTI_OK;
    pieces->sent_room = 0;
    return tti_error_set(&pieces->trainer->error, TUTTI_ERR_MEMORY, 0, "no memory to save a checkpoint");
}

/* ---- Taking ---------------------------------------------------------------------------------------------------- */

static void take(struct tti_pieces *pieces, size_t words)
{
    for (size_t i = 0; i < words; i += HEAD + pieces->received[i + 1])
        memcpy(pieces->bytes + pieces->received[i], pieces->received + i + HEAD,
               pieces->received[i + 1] * sizeof(float));
}

static tutti_status exchange(struct tti_pieces *pieces, size_t *words)
{
    struct tutti_trainer *t = pieces->trainer;
    TTI_TRY(tutti_all_to_all(tti_inside(tti_trainer_comm(t), "checkpoint", "counts"), pieces->sent_counts,
                             pieces->counts, 1, TUTTI_U64));
    *words = 0;
    for (int r = 0; r < pieces->size; r++) {
        pieces->offsets[r] = *words;
        *words += pieces->counts[r];
    }
    return tutti_all_to_all_v(tti_inside(tti_trainer_comm(t), "checkpoint", "pieces"), pieces->sent,
                              pieces->sent_counts, pieces->sent_offsets, pieces->received, pieces->counts,
                              pieces->offsets, TUTTI_U32);
}

tutti_status tti_pieces_bring(struct tti_pieces *pieces, size_t round, size_t number, struct tti_range_piece *mine,
                              char *bytes)
{
    *mine = tti_range_piece(pieces->plan, pieces->rank, pieces->size, round, number);
    pieces->bytes = bytes;
    if (mine->file != NULL) tti_range_header(mine, bytes);
    give(pieces, round, number, pieces->rank, copy_run);
    if (pieces->counts == NULL) return TUTTI_OK; /* every rank has everything */
    give_all(pieces, round, number, count_run);
    if (pieces->status == TUTTI_OK) pieces->status = make_room(pieces);
    give_all(pieces, round, number, send_run);
    size_t words = 0;
    tutti_status status = exchange(pieces, &words);
    if (status != TUTTI_OK) return tti_trainer_comm_failed(pieces->trainer, status);
    take(pieces, words);
    return TUTTI_OK;
}
