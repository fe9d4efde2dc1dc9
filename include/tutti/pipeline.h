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
 * Conventions are those of tutti.h.
 */
#ifndef TUTTI_PIPELINE_H
#define TUTTI_PIPELINE_H

#include <stdbool.h>
#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tables ---------------------------------------------------------------------------------------------------- */
/* Every rank has the same number of chunks, a chunk is one stage, and the stages of a rank are its chunks 0, 1, … in
 * order. Each stage and micro-batch has one forward step and either one backward step or its two parts, each once: the
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

/* Draws a table as SVG: a row per rank, a box per step, idle time between them. `spans`: of all steps, rank by rank, as a
 * check or a run gives them. Errors are the stream's. */
TUTTI_API void tutti_pipeline_picture(const tutti_pipeline *pipeline, const tutti_pipeline_span *spans,
                                      const char *title, FILE *stream);

/* ---- Running --------------------------------------------------------------------------------------------------- */
/* Carries a table out over a comm, rank r of the table as rank r of the comm, by messages. The stages are functions of the
 * user's own; what goes from one to the next lies in boundaries, memory of the runner's of given sizes: examples/pipeline.c.
 *
 *     tutti_pipeline_settings settings = {.struct_size = sizeof settings, .forward = forward, .backward = backward,
 *                                         .context = &model, .bytes = bytes};
 *     tutti_pipeline_runner_create(world, table, &settings, &runner, &error);
 *     while (… tutti_pipeline_run(runner, NULL, &error) == TUTTI_OK) …               one step of training
 */

enum { TUTTI_PIPELINE_REASON_BYTES = 256 };

/* One step, as a stage's function is given it. A boundary is NULL where there is no stage on that side. All four are
 * the same memory from the forward step of a micro-batch to the end of its backward step. */
typedef struct tutti_pipeline_call {
    tutti_pipeline_part part;
    int stage, chunk, micro;
    int slot;                 /* for what the stage keeps of the micro-batch: below tutti_pipeline_slots of the chunk */
    const void *in;           /* what the stage before gave */
    void *out;                /* for the next stage: to be filled in by the forward step */
    const void *out_gradient; /* what the next stage gave; not yet in the forward step */
    void *in_gradient;        /* for the stage before: to be filled in by the backward step or its input part */
    char *reason;             /* (TUTTI_PIPELINE_REASON_BYTES): a stage that fails may say why, for all ranks to read */
} tutti_pipeline_call;

/* Anything but TUTTI_OK ends the run, on all ranks, with that status and the reason. */
typedef tutti_status tutti_pipeline_function(void *context, const tutti_pipeline_call *call);

typedef struct tutti_pipeline_settings {
    size_t struct_size;
    /* A table with input and weights parts needs those two functions; one with backward steps `backward`, or those two,
     * which are then called one after the other. */
    tutti_pipeline_function *forward, *backward, *input, *weights;
    void *context;
    const size_t
        *bytes; /* (stages - 1): of the boundary behind each stage but the last, 1 or more; same on all ranks */
    int64_t deadline_ms; /* of a run; 0: each operation has that of the comm */
} tutti_pipeline_settings;

typedef struct tutti_pipeline_runner tutti_pipeline_runner;

/* Collective. The table is checked, and must be the same on all ranks, and outlive the runner. On failure *runner is
 * NULL and all ranks get the same status; error->rank says which one it is about. */
TUTTI_API tutti_status tutti_pipeline_runner_create(tutti_comm *comm, const tutti_pipeline *pipeline,
                                                    const tutti_pipeline_settings *settings,
                                                    tutti_pipeline_runner **runner, tutti_error *error);
TUTTI_API void tutti_pipeline_runner_free(tutti_pipeline_runner *runner); /* NULL is ignored */
TUTTI_API int tutti_pipeline_slots(const tutti_pipeline_runner *runner, int chunk);
TUTTI_API size_t tutti_pipeline_bytes(const tutti_pipeline_runner *runner); /* of the boundaries, on this rank */

/* Times of a run. The predicted ones hold if each step takes as long as the mean of its kind in its stage. */
typedef struct tutti_pipeline_report {
    size_t struct_size;                            /* to be set before the call */
    double seconds, predicted_seconds;             /* of the run on this rank, until it knows that all have ended */
    double idle, predicted_idle;                   /* share of all ranks' time */
    const double *rank_idle, *rank_predicted_idle; /* (ranks), until the next run */
} tutti_pipeline_report;

/* Collective: all steps once. `report` may be NULL. If a stage failed or a rank was cancelled, all ranks get that
 * status; error->rank names the rank, and the text says which stage, which step and why; the runner may run again. If a
 * rank died or a deadline passed, the comm is broken. */
TUTTI_API tutti_status tutti_pipeline_run(tutti_pipeline_runner *runner, tutti_pipeline_report *report,
                                          tutti_error *error);
/* Ends the run before this rank's next step, on all ranks: ERR_CANCELLED. If none runs, the next run ends so at once.
 * May be called from a signal handler and from other threads. */
TUTTI_API void tutti_pipeline_cancel(tutti_pipeline_runner *runner);
/* Collective: when each step of the last run ran, in seconds, (steps of all ranks, rank by rank), for a picture.
 * Ranks' clocks are compared at the end of the run. */
TUTTI_API tutti_status tutti_pipeline_timeline(tutti_pipeline_runner *runner, tutti_pipeline_span *spans,
                                               tutti_error *error);
/* Tells where its next call is, for errors; as tutti_at. */
TUTTI_API tutti_pipeline_runner *tutti_pipeline_at(tutti_pipeline_runner *runner, const char *file, int line);

#define TUTTI_PIPELINE_DECLARED
#include <tutti/call_sites.h>

#ifdef __cplusplus
}
#endif
#endif
