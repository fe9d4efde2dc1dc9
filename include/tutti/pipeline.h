/* SPDX-License-Identifier: Apache-2.0
 *
 * Tutti: pipelines. A model, or anything else that is a row of stages, is cut over ranks; micro-batches go through all
 * stages and their gradients come back. Who does what in which order is a table, which is data: built here, read from a
 * file or made by hand, checked before it runs, drawn, and run with a user's own functions. Nothing here needs a model.
 *
 *     tutti_pipeline *table;
 *     if (tutti_pipeline_build("1f1b", 4, 1, 8, &table, &error) != TUTTI_OK) …
 *     tutti_pipeline_verdict verdict = {.struct_size = sizeof verdict};
 *     if (tutti_pipeline_check(table, NULL, 0, &verdict, &error) != TUTTI_OK) …     which step waits for what
 *     printf("%.1f%% idle\n", 100 * verdict.idle);
 *
 * Conventions are those of tutti.h. `error` gets the sentence that a comm has elsewhere; it may be NULL.
 */
#ifndef TUTTI_PIPELINE_H
#define TUTTI_PIPELINE_H

#include <stdbool.h>
#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tables ---------------------------------------------------------------------------------------------------- */
/* Every rank has the same number of chunks, a chunk is one stage, and the stages of a rank are its chunks 0, 1, … in order.
 * Of each stage and micro-batch there is one forward step and either one backward step or its two parts, each once: the
 * gradient of the stage's input, which the stage before waits for, and that of its weights, which nobody waits for. */

typedef enum tutti_pipeline_part {
    TUTTI_PIPELINE_FORWARD,  /* F */
    TUTTI_PIPELINE_BACKWARD, /* B: input and weights in one */
    TUTTI_PIPELINE_INPUT,    /* I */
    TUTTI_PIPELINE_WEIGHTS,  /* W */
    TUTTI_PIPELINE_PARTS
} tutti_pipeline_part;

typedef struct tutti_pipeline_step {
    tutti_pipeline_part part;
    int chunk; /* of this rank */
    int micro; /* micro-batch */
} tutti_pipeline_step;

typedef struct tutti_pipeline tutti_pipeline;

/* Tables that are known by name: "gpipe", "1f1b", "interleaved", "zb-h1" and "zb-v"; NULL at the end. */
TUTTI_API const char *tutti_pipeline_names(size_t index);
/* `chunks` 0: as many as that table has, 2 of interleaved and zb-v, else 1. What does not fit is refused with the nearest
 * that would, before anything is allocated. */
TUTTI_API tutti_status tutti_pipeline_build(const char *name, int ranks, int chunks, int micros,
                                            tutti_pipeline **pipeline, tutti_error *error);
/* A table without steps. stage_ranks[s] is the rank of stage s, (ranks * chunks) of them, every rank `chunks` times; NULL:
 * stage s is of rank s % ranks. */
TUTTI_API tutti_status tutti_pipeline_create(int ranks, int chunks, int micros, const int *stage_ranks,
                                             tutti_pipeline **pipeline, tutti_error *error);
/* Appends a step to those of a rank. */
TUTTI_API tutti_status tutti_pipeline_add(tutti_pipeline *pipeline, int rank, tutti_pipeline_step step,
                                          tutti_error *error);
/* A table from a file, as docs/pipelines.md has it; what is wrong there is named by file and line. */
TUTTI_API tutti_status tutti_pipeline_read(const char *path, tutti_pipeline **pipeline, tutti_error *error);
/* In the form that tutti_pipeline_read reads. Errors are the stream's. */
TUTTI_API void tutti_pipeline_write(const tutti_pipeline *pipeline, FILE *stream);
TUTTI_API void tutti_pipeline_free(tutti_pipeline *pipeline); /* NULL is ignored */

typedef struct tutti_pipeline_about {
    size_t struct_size;
    char name[32]; /* of the table that was built; "": one's own */
    int ranks, chunks, stages, micros;
    size_t steps; /* of all ranks */
} tutti_pipeline_about;

TUTTI_API void tutti_pipeline_describe(const tutti_pipeline *pipeline, tutti_pipeline_about *about);
/* The steps of a rank in order. NULL: no such rank, or it has none. */
TUTTI_API const tutti_pipeline_step *tutti_pipeline_steps(const tutti_pipeline *pipeline, int rank, size_t *count);
TUTTI_API int tutti_pipeline_stage(const tutti_pipeline *pipeline, int rank, int chunk);  /* -1: there is none */
TUTTI_API int tutti_pipeline_rank(const tutti_pipeline *pipeline, int stage, int *chunk); /* -1 likewise */
/* A step as files and errors have it: "F3", with several chunks "F3.1". 32 bytes are enough. Returns `text`. */
TUTTI_API char *tutti_pipeline_step_text(const tutti_pipeline *pipeline, tutti_pipeline_step step, char *text,
                                         size_t bytes);

/* ---- Checking -------------------------------------------------------------------------------------------------- */

/* How long the parts of one micro-batch take in one stage, in any unit; a backward step takes input + weights. */
typedef struct tutti_pipeline_times {
    double forward, input, weights;
} tutti_pipeline_times;

typedef struct tutti_pipeline_load { /* of one rank */
    double busy, idle;               /* time at work; the share of the makespan without work */
    int live;                        /* micro-batches of chunks whose activations it keeps at once, at most */
} tutti_pipeline_load;

typedef struct tutti_pipeline_span { /* when one step runs */
    double start, end;
} tutti_pipeline_span;

typedef struct tutti_pipeline_verdict {
    size_t struct_size;         /* to be set before the call, as are */
    tutti_pipeline_load *loads; /* (ranks), or NULL, */
    tutti_pipeline_span *spans; /* (steps of all ranks, rank by rank), or NULL; filled in: */
    double makespan;            /* from the start of the first step to the end of the last */
    double idle;                /* the bubble: the share of all ranks' time that is without work */
    int live;                   /* the most of any rank */
    bool ordered;               /* each stage's weights come in the order of micro-batches: so sums have one order */
} tutti_pipeline_verdict;

/* Proves that every step is there once, and that ranks which do theirs in this order never wait for each other in a round,
 * with no message buffered anywhere. `times`: of all stages where time_count is 1, of each where it is the number of stages;
 * 0: all parts take 1. ERR_ARGUMENT names the step, its rank (also in error->rank), what it waits for, and the round. */
TUTTI_API tutti_status tutti_pipeline_check(const tutti_pipeline *pipeline, const tutti_pipeline_times *times,
                                            size_t time_count, tutti_pipeline_verdict *verdict, tutti_error *error);

#ifdef __cplusplus
}
#endif
#endif
