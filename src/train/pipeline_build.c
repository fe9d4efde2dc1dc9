/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables with names. For p ranks, m micro-batches and v chunks, with all parts of one length:
 *
 *   gpipe        all forwards, then all backwards: 3(m+p-1), m live
 *   1f1b         rank r begins with p-1-r forwards, then one of each in turn: 3(m+p-1), p-r live
 *   interleaved  1f1b in groups of p micro-batches over v chunks, each of which takes 1/v: 3m+3(p-1)/v, (v+1)p-1-2r
 *                chunks live; m is a multiple of p
 *   zb-h1        1f1b with backward in parts: rank r puts each weights part off until r more inputs are behind, which
 *                fills the end of the pipeline: 3m+p-1, p live
 *   zb-v         pipeline_zb_v.c
 *
 * In every table the weights of a stage come in the order of micro-batches.
 */
#include "train/pipeline_table.h"

#include "base/alloc.h"
#include "base/status.h"
#include <string.h>
#include <tutti/experimental.h>

/* Appends a step. There is room: `steps_of` was called for the rank. */
static void put(struct tti_pipeline_steps *list, tutti_pipeline_part part, int chunk, int micro)
{
    list->steps[list->count++] = (tutti_pipeline_step){part, chunk, micro};
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* ---- The tables ------------------------------------------------------------------------------------------------ */

static void fill_gpipe(const struct tutti_pipeline *pipeline, int rank, struct tti_pipeline_steps *list)
{
    (void)rank;
    for (int i = 0; i < pipeline->micros; i++) put(list, TUTTI_PIPELINE_FORWARD, 0, i);
    for (int i = 0; i < pipeline->micros; i++) put(list, TUTTI_PIPELINE_BACKWARD, 0, i);
}

static void fill_1f1b(const struct tutti_pipeline *pipeline, int rank, struct tti_pipeline_steps *list)
{
    int forwards = least(pipeline->micros, pipeline->ranks - 1 - rank);
    for (int i = 0; i < forwards; i++) put(list, TUTTI_PIPELINE_FORWARD, 0, i);
    for (int i = 0; i < pipeline->micros; i++) {
        if (forwards < pipeline->micros) put(list, TUTTI_PIPELINE_FORWARD, 0, forwards++);
        put(list, TUTTI_PIPELINE_BACKWARD, 0, i);
    }
}

/* Appends forward number k of a rank: groups of p micro-batches, each through all chunks; backwards go through them the
 * other way. */
static void put_interleaved(const struct tutti_pipeline *pipeline, struct tti_pipeline_steps *list,
                            tutti_pipeline_part part, int k)
{
    int ranks = pipeline->ranks, group = ranks * pipeline->chunks;
    int chunk = k % group / ranks, micro = k / group * ranks + k % ranks;
    put(list, part, part == TUTTI_PIPELINE_FORWARD ? chunk : pipeline->chunks - 1 - chunk, micro);
}

static void fill_interleaved(const struct tutti_pipeline *pipeline, int rank, struct tti_pipeline_steps *list)
{
    int ranks = pipeline->ranks, all = pipeline->micros * pipeline->chunks;
    int forwards = least(all, 2 * (ranks - 1 - rank) + (pipeline->chunks - 1) * ranks);
    for (int k = 0; k < forwards; k++) put_interleaved(pipeline, list, TUTTI_PIPELINE_FORWARD, k);
    for (int k = 0; k < all; k++) {
        if (forwards < all) put_interleaved(pipeline, list, TUTTI_PIPELINE_FORWARD, forwards++);
        put_interleaved(pipeline, list, TUTTI_PIPELINE_BACKWARD, k);
    }
}

static void fill_zb_h1(const struct tutti_pipeline *pipeline, int rank, struct tti_pipeline_steps *list)
{
    int forwards = least(pipeline->micros, pipeline->ranks - rank), weights = 0;
    for (int i = 0; i < forwards; i++) put(list, TUTTI_PIPELINE_FORWARD, 0, i);
    for (int i = 0; i < pipeline->micros; i++) {
        put(list, TUTTI_PIPELINE_INPUT, 0, i);
        if (i >= rank) put(list, TUTTI_PIPELINE_WEIGHTS, 0, weights++);
        if (forwards < pipeline->micros) put(list, TUTTI_PIPELINE_FORWARD, 0, forwards++);
    }
    while (weights < pipeline->micros) put(list, TUTTI_PIPELINE_WEIGHTS, 0, weights++);
}

typedef void fill_rank(const struct tutti_pipeline *pipeline, int rank, struct tti_pipeline_steps *list);

static const struct table {
    const char *name;
    fill_rank *fill; /* NULL: zb-v, which fills all ranks at once */
    int chunks;      /* the default */
    int parts;       /* steps for each stage and micro-batch */
} tables[] = {
    {"gpipe", fill_gpipe, 1, 2}, {"1f1b", fill_1f1b, 1, 2}, {"interleaved", fill_interleaved, 2, 2},
    {"zb-h1", fill_zb_h1, 1, 3}, {"zb-v", NULL, 2, 3},
};

enum { TABLES = sizeof tables / sizeof *tables };

const char *tutti_pipeline_names(size_t index)
{
    return index < TABLES ? tables[index].name : NULL;
}

/* ---- Building one ---------------------------------------------------------------------------------------------- */

int tti_pipeline_usual_chunks(const char *name)
{
    for (size_t i = 0; i < TABLES; i++)
        if (strcmp(name, tables[i].name) == 0) return tables[i].chunks;
    return 1;
}

static tutti_status find_table(const char *name, const struct table **table, tutti_error *error)
{
    const char *names[TABLES];
    for (size_t i = 0; i < TABLES; i++) {
        *table = &tables[i];
        names[i] = tables[i].name;
        if (name != NULL && strcmp(name, names[i]) == 0) return TUTTI_OK;
    }
    const char *near = name == NULL ? NULL : tutti_nearest(name, names, TABLES);
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "pipeline: '%.64s' is none of gpipe, 1f1b, interleaved, zb-h1 and zb-v%s%s",
                         name == NULL ? "" : name, near == NULL ? "" : "; did you mean ", near == NULL ? "" : near);
}

static tutti_status check_chunks(const struct table *table, int chunks, tutti_error *error)
{
    if (table->fill == fill_interleaved) {
        if (chunks > 1) return TUTTI_OK;
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "interleaved: %d chunk per rank is nothing to interleave; take 2 or more, or 1f1b",
                             chunks);
    }
    if (chunks == table->chunks) return TUTTI_OK;
    if (table->chunks == 1)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "%s has 1 chunk per rank, not %d; interleaved and, with 2, zb-v have several", table->name,
                             chunks);
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%s has %d chunks per rank, not %d", table->name, table->chunks,
                         chunks);
}

static tutti_status check_micros(const struct table *table, int ranks, int micros, tutti_error *error)
{
    if (table->fill != fill_interleaved || micros % ranks == 0) return TUTTI_OK;
    int below = micros / ranks * ranks;
    char smaller[32] = "";
    if (below > 0) (void)snprintf(smaller, sizeof smaller, "%d or ", below);
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "interleaved: %d micro-batch%s no multiple of pipe=%d; %s%d would do", micros,
                         micros == 1 ? " is" : "es are", ranks, smaller, below + ranks);
}

static bool fill_all(struct tutti_pipeline *pipeline, const struct table *table)
{
    size_t steps = (size_t)pipeline->chunks * (size_t)pipeline->micros * (size_t)table->parts;
    for (int rank = 0; rank < pipeline->ranks; rank++) {
        struct tti_pipeline_steps *list = &pipeline->of_rank[rank];
        list->steps = tti_malloc(steps, sizeof *list->steps);
        if (list->steps == NULL) return false;
        list->room = steps;
        if (table->fill != NULL) table->fill(pipeline, rank, list);
    }
    return table->fill != NULL || tti_pipeline_fill_zb_v(pipeline);
}

/* Places stages there and back: rank 0 has the first and the last stage. Returns false if there is no memory. */
static bool place_as_v(int ranks, int **stage_ranks)
{
    *stage_ranks = tti_calloc(2 * (size_t)ranks, sizeof(int));
    for (int rank = 0; *stage_ranks != NULL && rank < ranks; rank++)
        (*stage_ranks)[rank] = (*stage_ranks)[2 * ranks - 1 - rank] = rank;
    return *stage_ranks != NULL;
}

static tutti_status build(const struct table *table, int ranks, int chunks, int micros, tutti_pipeline **pipeline,
                          tutti_error *error)
{
    int *stage_ranks = NULL;
    struct tutti_pipeline *made = NULL;
    if (table->fill == NULL && !place_as_v(ranks, &stage_ranks))
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "pipeline: no memory for %d stages", 2 * ranks);
    tutti_status status = tutti_pipeline_create(ranks, chunks, micros, stage_ranks, &made, error);
    tti_free(stage_ranks);
    TTI_TRY(status);
    (void)snprintf(made->name, sizeof made->name, "%s", table->name);
    if (!fill_all(made, table)) {
        tutti_pipeline_free(made);
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%s: no memory for %d micro-batch%s of %d ranks", table->name,
                             micros, micros == 1 ? "" : "es", ranks);
    }
    *pipeline = made;
    return TUTTI_OK;
}

tutti_status tutti_pipeline_build(const char *name, int ranks, int chunks, int micros, tutti_pipeline **pipeline,
                                  tutti_error *error)
{
    const struct table *table;
    tutti_error unused;
    error = tti_pipeline_error(error, &unused, "pipeline_build");
    if (pipeline == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "pipeline: a place to go is needed");
    TTI_TRY(find_table(name, &table, error));
    if (chunks == 0) chunks = table->chunks;
    TTI_TRY(tti_pipeline_check_sizes(table->name, ranks, chunks, micros, error));
    TTI_TRY(check_chunks(table, chunks, error));
    TTI_TRY(check_micros(table, ranks, micros, error));
    return build(table, ranks, chunks, micros, pipeline, error);
}
