/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank sends another one the data that it has of that one's piece: runs of floats, each after two words that say
 * where in the piece it goes and how many floats it has. So the rank that writes a piece need not know where its data
 * are.
 */
#define TUTTI_NO_CALL_SITES
#include "train/pieces.h"

#include "base/alloc.h"
#include "base/status.h"
#include "train/train_agree.h"
#include <string.h>

/* words of one piece, if each float is a run of its own */
enum { HEAD = 2, MOST_WORDS = (HEAD + 1) * (TTI_PIECE_BYTES / 4) };

_Static_assert(sizeof(float) == sizeof(uint32_t), "floats are sent as words");

static tutti_comm *comm_of(const struct tti_piece_source *source, const char *what)
{
    return tti_inside(tutti_at(source->comm, source->here.file, source->here.line), "checkpoint", what);
}

static tutti_status no_memory(tutti_error *error)
{
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to save a checkpoint");
}

tutti_status tti_pieces_make(const struct tti_piece_source *source, const struct tti_range_plan *plan,
                             struct tti_pieces *pieces, tutti_error *error)
{
    const size_t size = (size_t)tutti_size(source->comm);
    *pieces = (struct tti_pieces){.source = *source, .plan = plan, .rank = tutti_rank(source->comm), .size = (int)size};
    if (source->whole) return TUTTI_OK;
    pieces->received = tti_calloc(MOST_WORDS, sizeof *pieces->received);
    pieces->sent_counts = tti_calloc(4 * size, sizeof *pieces->sent_counts);
    if (pieces->received == NULL || pieces->sent_counts == NULL) return no_memory(error);
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
    const struct tti_piece_source *source = &gift->pieces->source;
    const size_t index = (size_t)(tensor - source->list);
    if (!source->gives(source->context, index, gift->to)) return;
    gift->pieces->at = at - first * sizeof(float);
    source->runs(source->context, index, (struct tti_span){first, first + count}, gift->run, gift->pieces);
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
    return no_memory(pieces->source.error);
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
    TTI_TRY(tutti_all_to_all(comm_of(&pieces->source, "counts"), pieces->sent_counts, pieces->counts, 1, TUTTI_U64));
    *words = 0;
    for (int r = 0; r < pieces->size; r++) {
        pieces->offsets[r] = *words;
        *words += pieces->counts[r];
    }
    return tutti_all_to_all_v(comm_of(&pieces->source, "pieces"), pieces->sent, pieces->sent_counts,
                              pieces->sent_offsets, pieces->received, pieces->counts, pieces->offsets, TUTTI_U32);
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
    const tutti_error *why = status == TUTTI_OK ? NULL : tutti_comm_error(pieces->source.comm);
    if (why != NULL) *pieces->source.error = *why;
    if (status == TUTTI_OK) take(pieces, words);
    return status;
}

/* ---- Writing --------------------------------------------------------------------------------------------------- */

/* Writes the pieces. A rank that cannot write goes on to give the others its data. */
static tutti_status write_pieces(struct tti_pieces *pieces, struct tti_range_writer *writer, char *bytes)
{
    const size_t rounds = tti_range_rounds(pieces->plan, pieces->size);
    for (size_t i = 0; i < rounds * TTI_PART_PIECES; i++) {
        struct tti_range_piece mine;
        TTI_TRY(tti_pieces_bring(pieces, i / TTI_PART_PIECES, i % TTI_PART_PIECES, &mine, bytes));
        if (mine.file != NULL && pieces->status == TUTTI_OK)
            pieces->status = tti_range_put(writer, &mine, bytes, pieces->source.error);
    }
    return TUTTI_OK;
}

tutti_status tti_pieces_write(struct tti_pieces *pieces, const struct tti_saving *saving, uint64_t *hashes)
{
    const struct tti_piece_source *source = &pieces->source;
    struct tti_range_writer writer = {.folder = saving->working, .hashes = hashes};
    tutti_error unused;
    char *bytes = tti_calloc(1, TTI_PIECE_BYTES);
    tutti_status status = tti_agree(tutti_at(source->comm, source->here.file, source->here.line),
                                    bytes == NULL ? no_memory(source->error) : TUTTI_OK, source->error);
    if (status == TUTTI_OK) status = write_pieces(pieces, &writer, bytes);
    if (status == TUTTI_OK) status = pieces->status;
    tutti_status closed = tti_range_close(&writer, status == TUTTI_OK ? source->error : &unused);
    tti_free(bytes);
    return status == TUTTI_OK ? closed : status;
}

/* For each part one rank has the hash, and the others 0. */
tutti_status tti_saving_finish(struct tti_saving *saving, uint64_t *hashes, tutti_comm *comm, int keep,
                               tutti_status written, tutti_error *error)
{
    TTI_TRY(tti_agree(comm, written, error));
    tutti_status status = tutti_all_reduce(tti_inside(comm, "checkpoint", "hashes"), hashes, hashes,
                                           saving->plan->parts, TUTTI_U64, TUTTI_XOR);
    if (status != TUTTI_OK && tutti_comm_error(comm) != NULL) *error = *tutti_comm_error(comm);
    TTI_TRY(status);
    if (tutti_rank(comm) == 0) status = tti_saving_commit(saving, hashes, keep, error);
    return tti_agree(comm, status, error);
}

/* ---- Reading --------------------------------------------------------------------------------------------------- */

enum { WINDOW = TTI_PIECE_BYTES / 4 }; /* elements that are read at a time */

/* A part of a tensor in the file. */
struct window {
    struct tti_span needed; /* from the first to the last of this rank's elements in it */
    const float *values;    /* values of `needed` */
};

static void extend_run(void *context, size_t first, size_t count, float *values)
{
    struct window *window = context;
    (void)values;
    if (first < window->needed.lo) window->needed.lo = first;
    if (first + count > window->needed.hi) window->needed.hi = first + count;
}

static void read_run(void *context, size_t first, size_t count, float *values)
{
    const struct window *window = context;
    memcpy(values, window->values + (first - window->needed.lo), count * sizeof *values);
}

static tutti_status read_tensor(const struct tti_piece_source *source, size_t tensor,
                                const tutti_checkpoint *checkpoint, float *buffer, tutti_error *error)
{
    const tutti_checkpoint_tensor *about = &source->list[tensor];
    const size_t count = tti_tensor_elements(about->dimensions, about->shape);
    for (size_t at = 0; at < count; at += WINDOW) {
        const struct tti_span within = {at, count - at < WINDOW ? count : at + WINDOW};
        struct window window = {.needed = {within.hi, within.lo}, .values = buffer};
        source->runs(source->context, tensor, within, extend_run, &window);
        if (window.needed.lo >= window.needed.hi) continue;
        TTI_TRY(tti_checkpoint_read(checkpoint, about, window.needed.lo, window.needed.hi - window.needed.lo, buffer,
                                    error));
        source->runs(source->context, tensor, within, read_run, &window);
    }
    return TUTTI_OK;
}

tutti_status tti_pieces_read(const struct tti_piece_source *source, const tutti_checkpoint *checkpoint,
                             tutti_error *error)
{
    float *buffer = tti_calloc(WINDOW, sizeof *buffer);
    tutti_status status = buffer != NULL ? TUTTI_OK
                                         : tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to read a checkpoint");
    if (status == TUTTI_OK) status = tti_checkpoint_has(checkpoint, source->list, source->count, error);
    for (size_t i = 0; i < source->count && status == TUTTI_OK; i++)
        status = read_tensor(source, i, checkpoint, buffer, error);
    tti_free(buffer);
    return status;
}
