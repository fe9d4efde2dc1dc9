/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines inside the library.
 *   pipeline_table.c           tables and their steps
 *   pipeline_build.c     tables with names; pipeline_zb_v.c: the one that is found by trying
 *   pipeline_file.c      tables as text
 *   pipeline_check.c     finds missing steps and cycles of waits; computes when each step runs
 *   pipeline_picture.c   a table, or measured times of it, as SVG
 *   pipeline_run.c       carries one out over a comm, with pipeline_slots.c and pipeline_sends.c (pipeline_run.h)
 */
#ifndef TTI_TRAIN_PIPELINE_TABLE_H
#define TTI_TRAIN_PIPELINE_TABLE_H

#include <tutti/pipeline.h>

enum {
    TTI_PIPELINE_RANKS_MOST = 1 << 16,
    TTI_PIPELINE_CHUNKS_MOST = 1 << 10,
    TTI_PIPELINE_MICROS_MOST = 1 << 20,
    TTI_PIPELINE_CELLS_MOST = 1 << 22, /* stages times micro-batches: all indices below fit into an int */
    TTI_PIPELINE_STEP_BYTES = 32
};

struct tti_pipeline_steps {
    tutti_pipeline_step *steps;
    size_t count, room;
};

struct tutti_pipeline {
    char name[32];
    int ranks, chunks, micros, stages;
    int *stage_rank, *stage_chunk;      /* [stages] */
    int *rank_stages;                   /* (ranks, chunks) */
    struct tti_pipeline_steps *of_rank; /* [ranks] */
};

/* Returns the index of a stage and a micro-batch in arrays of all pairs. */
static inline size_t tti_pipeline_cell(const struct tutti_pipeline *pipeline, int stage, int micro)
{
    return (size_t)stage * (size_t)pipeline->micros + (size_t)micro;
}

/* Refuses numbers that no table can have. `who`: the beginning of the sentence. */
/* Draws a table or times of it, with a line of text below the title. */
void tti_pipeline_picture(const tutti_pipeline *pipeline, const tutti_pipeline_span *spans, const char *title,
                          const char *about, FILE *stream);
/* Writes that line: `ranks`, and the micro-batches and stages of a table. */
enum { TTI_PIPELINE_ABOUT = 200 };
const char *tti_pipeline_about(const tutti_pipeline *pipeline, const char *ranks, char text[TTI_PIPELINE_ABOUT]);
/* Returns the chunks of a rank in a table with that name, if none are given. */
int tti_pipeline_usual_chunks(const char *name);
tutti_status tti_pipeline_check_sizes(const char *who, int ranks, int chunks, int micros, tutti_error *error);

/* Reads a table from text; `path` is for messages. */
tutti_status tti_pipeline_parse(const char *path, const char *text, size_t bytes, tutti_pipeline **pipeline,
                                tutti_error *error);

/* Fills in the steps of zb-v. Returns false if there is no memory. */
bool tti_pipeline_fill_zb_v(struct tutti_pipeline *pipeline);

/* For errors of functions that may be called without a comm: returns the error to fill in. */
tutti_error *tti_pipeline_error(tutti_error *error, tutti_error *unused, const char *operation);

#endif
