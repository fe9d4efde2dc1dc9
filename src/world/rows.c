/* SPDX-License-Identifier: Apache-2.0 */
#include "world/rows.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "world/board.h"
#include <string.h>

#define SECOND INT64_C(1000000000)
enum { ATTEMPTS = 100 };

struct tti_row_handle {
    struct tti_board board;
    struct tti_rows *rows;
    struct tti_row *row;
};

size_t tti_rows_bytes(int count)
{
    return sizeof(struct tti_rows) + (size_t)count * sizeof(struct tti_row);
}

void tti_rows_init(struct tti_rows *rows, int first, int count, int each)
{
    rows->first = first;
    rows->count = count;
    rows->each = each;
}

/* Each word is stored after the version became odd, and loaded before it is compared: words that were read in between
 * are consistent. */
static void write_row(struct tti_row *row, const struct tti_row_facts *facts)
{
    uint64_t words[TTI_ROW_WORDS];
    /* it may be odd already, if a writer has died */
    uint32_t version = atomic_load_explicit(&row->version, memory_order_relaxed) | 1;
    memcpy(words, facts, sizeof words);
    atomic_store_explicit(&row->version, version, memory_order_relaxed);
    for (int i = 0; i < TTI_ROW_WORDS; i++) atomic_store_explicit(&row->words[i], words[i], memory_order_release);
    atomic_store_explicit(&row->version, version + 1, memory_order_seq_cst);
}

void tti_rows_clear(struct tti_rows *rows, int process)
{
    struct tti_row_facts none = {.awaited = TTI_ROW_NOBODY, .blamed = TTI_ROW_NOBODY};
    int at = process * rows->each - rows->first;
    for (int i = at; i < at + rows->each; i++)
        if (i >= 0 && i < rows->count) write_row(&rows->rows[i], &none);
}

bool tti_rows_read(const struct tti_rows *rows, int rank, struct tti_row_facts *facts)
{
    const struct tti_row *row = &rows->rows[rank - rows->first];
    uint64_t words[TTI_ROW_WORDS];
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        uint32_t version = atomic_load_explicit(&row->version, memory_order_acquire);
        for (int i = 0; i < TTI_ROW_WORDS; i++) words[i] = atomic_load_explicit(&row->words[i], memory_order_acquire);
        if (version % 2 == 0 && atomic_load_explicit(&row->version, memory_order_relaxed) == version) break;
    }
    memcpy(facts, words, sizeof *facts);
    facts->op[sizeof facts->op - 1] = facts->told[sizeof facts->told - 1] = facts->device[sizeof facts->device - 1] =
        '\0';
    return facts->pid != 0;
}

void tti_rows_watch(struct tti_rows *rows, int seconds)
{
    uint32_t until = (uint32_t)(tti_now_ns() / SECOND + 1 + seconds);
    atomic_store_explicit(&rows->watched, until, memory_order_relaxed);
}

bool tti_rows_are_watched(const struct tti_rows *rows)
{
    return (uint32_t)(tti_now_ns() / SECOND) <= atomic_load_explicit(&rows->watched, memory_order_relaxed);
}

void tti_rows_write(struct tti_rows *rows, int rank, const struct tti_row_facts *facts)
{
    int at = rank - rows->first;
    if (at >= 0 && at < rows->count) write_row(&rows->rows[at], facts);
}

/* ---- A rank's own ---------------------------------------------------------------------------------------------------- */

static struct tti_row *find_row(struct tti_rows *rows, const tutti_options *options, int rank)
{
    int each = options->ranks < 1 ? 1 : (int)options->ranks, thread = rank % each;
    int at = rank / each * rows->each + thread - rows->first;
    return thread < rows->each && at >= 0 && at < rows->count ? &rows->rows[at] : NULL;
}

struct tti_row_handle *tti_row_open(const tutti_options *options, int rank)
{
    if (options->board[0] == '\0') return NULL;
    struct tti_row_handle *handle = tti_calloc(1, sizeof *handle);
    if (handle == NULL) return NULL;
    handle->rows = tti_board_open_rows(&handle->board, options->board, options->job);
    if (handle->rows != NULL) handle->row = find_row(handle->rows, options, rank);
    if (handle->row != NULL) return handle;
    tti_row_close(handle);
    return NULL;
}

void tti_row_close(struct tti_row_handle *handle)
{
    if (handle == NULL) return;
    tti_board_close(&handle->board);
    tti_free(handle);
}

const _Atomic uint32_t *tti_row_watched(const struct tti_row_handle *handle)
{
    return &handle->rows->watched;
}

bool tti_row_is_watched(const struct tti_row_handle *handle)
{
    uint32_t until = atomic_load_explicit(&handle->rows->watched, memory_order_relaxed);
    if (until == 0) return false;
    if ((uint32_t)(tti_now_ns() / SECOND) <= until) return true;
    atomic_compare_exchange_strong_explicit(&handle->rows->watched, &until, 0, memory_order_relaxed,
                                            memory_order_relaxed);
    return false;
}

void tti_row_write(struct tti_row_handle *handle, const struct tti_row_facts *facts)
{
    write_row(handle->row, facts);
}
