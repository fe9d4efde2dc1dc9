/* SPDX-License-Identifier: Apache-2.0
 *
 * The runner inside.
 *   pipeline_run.c       steps, and what ranks tell each other at the end
 *   pipeline_slots.c     the memory of boundaries, and the messages that fill it
 *   pipeline_sends.c     a task that waits for sends while the rank computes
 */
#ifndef TTI_TRAIN_PIPELINE_RUN_H
#define TTI_TRAIN_PIPELINE_RUN_H

#include "base/task.h"
#include "base/wait.h"
#include "collective/api/inside.h"
#include "train/pipeline_table.h"

/* What is sent to the stage before: apart from the slots, and some more of them, since nothing else tells when it has been
 * received: that one may be at work for long. */
enum { TTI_PIPELINE_SPARE_GRADIENTS = 2 };
struct tti_pipeline_gradient {
    char *to_previous; /* NULL: this is the first stage */
    uint32_t send;     /* its number; 0: none */
};

/* The other boundaries of one micro-batch in one stage; NULL: no stage is on that side. */
struct tti_pipeline_slot {
    char *in, *out, *out_gradient;
    tutti_op in_op, out_gradient_op; /* receives; id 0: none, or it was waited for */
    uint32_t out_send;               /* number of the send; 0: none */
    tutti_message in_message, out_gradient_message;
};

struct tti_pipeline_chunk {
    int stage, slot_count;
    size_t in_bytes, out_bytes;              /* 0: no stage is on that side */
    struct tti_pipeline_slot *slots;         /* [slot_count] */
    struct tti_pipeline_gradient *gradients; /* [slot_count + TTI_PIPELINE_SPARE_GRADIENTS], used in turn */
    int *gradient_of;                        /* [micros] */
    int *slot_of;                            /* [micros] */
    int *next_of;                            /* [micros]: the micro-batch that has the slot next, or -1 */
    char *memory;                            /* of all boundaries */
    int64_t spent_ns[3]; /* in this run: forward, input, weights; of a backward step half of it each */
};

struct tti_pipeline_send {
    tutti_op op;
    _Atomic bool claimed; /* somebody waits for it, or it has ended */
    _Atomic int status;   /* IN_PROGRESS until it has ended */
};

struct tti_pipeline_sends {
    struct tti_task task;
    bool runs;
    struct tti_pipeline_send *list;  /* of one run, in the order of their start */
    _Atomic uint32_t started, ended; /* how many; ended: those that the task has looked at */
    tti_bell work, progress;         /* rung when one was started, and when one has ended */
    _Atomic uint32_t stop;
};

struct tutti_pipeline_runner {
    tutti_comm *comm; /* a duplicate: tags are the runner's alone; NULL: it is only planned */
    const tutti_comm *users;
    struct tti_here here;
    const struct tutti_pipeline *pipeline;
    tutti_pipeline_settings settings;
    int rank;
    struct tti_pipeline_chunk *chunks; /* [chunks] */
    size_t bytes;
    struct tti_pipeline_sends sends;
    _Atomic int cancelled;

    /* of the run */
    int64_t began_ns, busy_ns;
    int64_t elapsed_ns;  /* until this rank knew that all have ended */
    int64_t drawn_ns;    /* the same, of the run that a timeline shows: the last one that was not */
    bool unseen;         /* such as a validation's */
    tutti_status failed; /* of this rank's stage, or cancelled */
    bool follows;        /* a message came empty: another rank has failed */
    tutti_status broken; /* of the comm: nothing more can be sent */
    tutti_error error;   /* of either */
    int64_t *spans;      /* [2 steps]: start and end, from the run's begin */
    int64_t *records;    /* (ranks, record_count): what ranks tell each other at the end */
    size_t record_count;
    double *idle, *predicted_idle; /* [ranks] */
};

/* A runner of that rank of the table that has its slots and their `bytes`, but no comm and no memory for boundaries: for
 * tutti_pipeline_slots, _bytes and _runner_free. */
tutti_status tti_pipeline_plan(const tutti_pipeline *pipeline, int rank, const size_t *bytes,
                               tutti_pipeline_runner **runner, tutti_error *error);

/* Which micro-batch has which slot when, and memory for them. */
tutti_status tti_pipeline_make_slots(struct tutti_pipeline_runner *runner, tutti_error *error);
void tti_pipeline_free_slots(struct tutti_pipeline_runner *runner);

/* Room for `most` sends of a run. */
tutti_status tti_pipeline_sends_create(struct tti_pipeline_sends *sends, size_t most, tutti_error *error);
void tti_pipeline_sends_free(struct tti_pipeline_sends *sends);
void tti_pipeline_sends_begin(struct tti_pipeline_sends *sends); /* a run; all of the last one have ended */
/* Hands a send over. Its number, from 1 on, is good until the next run. */
uint32_t tti_pipeline_sends_add(struct tti_pipeline_sends *sends, tutti_op op);
/* Until it has ended: its status. */
tutti_status tti_pipeline_sends_await(struct tti_pipeline_sends *sends, uint32_t number);
/* Until all have, and nobody waits for them any more: the first failure, or OK. */
tutti_status tti_pipeline_sends_await_all(struct tti_pipeline_sends *sends);

/* The comm, for a message or collective that is a part of the run. */
tutti_comm *tti_pipeline_inside(const struct tutti_pipeline_runner *runner, const char *what);

/* Each does nothing once runner->broken is set, and sets it where the comm fails. Posts the receives of all slots. */
void tti_pipeline_begin_slots(struct tutti_pipeline_runner *runner);
/* Waits for what the step needs, and until its outputs may be written. */
void tti_pipeline_await_step(struct tutti_pipeline_runner *runner, tutti_pipeline_step step);
/* Sends what the step gave, empty where the run has failed, and posts the receives of whose slot it is next. */
void tti_pipeline_send_step(struct tutti_pipeline_runner *runner, tutti_pipeline_step step);
/* Waits for all that is in flight; where the comm is broken, cancels it first. */
void tti_pipeline_end_slots(struct tutti_pipeline_runner *runner);

#endif
