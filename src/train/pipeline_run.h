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

/* Gradients for the stage before have memory apart from the slots, and some more of it, since nothing else tells when
 * they were received: that stage may be busy for long. */
enum { TTI_PIPELINE_SPARE_GRADIENTS = 2 };
struct tti_pipeline_gradient {
    char *to_previous; /* NULL: this is the first stage */
    uint32_t send;     /* the number of the send; 0: none */
};

/* The other boundaries of one micro-batch in one stage; NULL: there is no stage on that side. */
struct tti_pipeline_slot {
    char *in, *out, *out_gradient;
    tutti_op in_op, out_gradient_op; /* receives; id 0: none, or it was waited for */
    uint32_t out_send;               /* number of the send; 0: none */
    tutti_message in_message, out_gradient_message;
};

struct tti_pipeline_chunk {
    int stage, slot_count;
    size_t in_bytes, out_bytes;              /* 0: there is no stage on that side */
    struct tti_pipeline_slot *slots;         /* [slot_count] */
    struct tti_pipeline_gradient *gradients; /* [slot_count + TTI_PIPELINE_SPARE_GRADIENTS], used in turn */
    int *gradient_of;                        /* [micros] */
    int *slot_of;                            /* [micros] */
    int *next_of;                            /* [micros]: the micro-batch that has the slot next, or -1 */
    char *memory;                            /* memory of all boundaries */
    int64_t spent_ns[3]; /* in this run: forward, input, weights; half of a backward step's time each */
};

struct tti_pipeline_send {
    tutti_op op;
    _Atomic bool claimed; /* a thread waits for it, or it has ended */
    _Atomic int status;   /* IN_PROGRESS until it has ended */
};

struct tti_pipeline_sends {
    struct tti_task task;
    bool runs;
    struct tti_pipeline_send *list;  /* the sends of one run, in the order of their start */
    _Atomic uint32_t started, ended; /* ended: sends that the task has seen ending */
    tti_bell work, progress;         /* rung when one was started, and when one has ended */
    _Atomic uint32_t stop;
};

struct tutti_pipeline_runner {
    tutti_comm *comm; /* a duplicate, whose tags only the runner uses; NULL: it is only planned */
    const tutti_comm *users;
    struct tti_here here;
    const struct tutti_pipeline *pipeline;
    tutti_pipeline_settings settings;
    int rank;
    struct tti_pipeline_chunk *chunks; /* [chunks] */
    size_t bytes;
    struct tti_pipeline_sends sends;
    _Atomic int cancelled;

    /* for the run: */
    int64_t began_ns, busy_ns;
    int64_t elapsed_ns;  /* until this rank knew that all have ended */
    int64_t drawn_ns;    /* the same for the run that a timeline shows: the last one that was not `unseen` */
    bool unseen;         /* a run that timelines leave out, such as a validation's */
    tutti_status failed; /* the failure of this rank's stage, or cancelled */
    bool follows;        /* an empty message came: another rank has failed */
    tutti_status broken; /* the comm's error: nothing more can be sent */
    tutti_error error;   /* explains either of them */
    int64_t *spans;      /* [2 steps]: start and end, from the run's begin on */
    int64_t *records;    /* (ranks, record_count): what ranks tell each other at the end */
    size_t record_count;
    double *idle, *predicted_idle; /* [ranks] */
};

/* Makes a runner for that rank of the table, with its slots and their `bytes`, but without a comm and memory for
 * boundaries: for tutti_pipeline_slots, _bytes and _runner_free. */
tutti_status tti_pipeline_plan(const tutti_pipeline *pipeline, int rank, const size_t *bytes,
                               tutti_pipeline_runner **runner, tutti_error *error);

/* Decides which micro-batch has which slot when, and makes memory for them. */
tutti_status tti_pipeline_make_slots(struct tutti_pipeline_runner *runner, tutti_error *error);
void tti_pipeline_free_slots(struct tutti_pipeline_runner *runner);

/* Makes room for `most` sends of a run. */
tutti_status tti_pipeline_sends_create(struct tti_pipeline_sends *sends, size_t most, tutti_error *error);
void tti_pipeline_sends_free(struct tti_pipeline_sends *sends);
/* begins a run; all sends of the last one have ended */
void tti_pipeline_sends_begin(struct tti_pipeline_sends *sends);
/* Adds a send. Its number, from 1 on, is valid until the next run. */
uint32_t tti_pipeline_sends_add(struct tti_pipeline_sends *sends, tutti_op op);
/* Waits until it has ended; returns its status. */
tutti_status tti_pipeline_sends_await(struct tti_pipeline_sends *sends, uint32_t number);
/* Waits until all have ended, and no thread waits for them any more; returns the first failure, or OK. */
tutti_status tti_pipeline_sends_await_all(struct tti_pipeline_sends *sends);

/* Returns the comm, for a message or collective that is a part of the run. */
tutti_comm *tti_pipeline_inside(const struct tutti_pipeline_runner *runner, const char *what);

/* These functions do nothing once runner->broken is set, and set it if the comm fails. This one posts the receives of
 * all slots. */
void tti_pipeline_begin_slots(struct tutti_pipeline_runner *runner);
/* Waits for the inputs of the step, and until its outputs may be written. */
void tti_pipeline_await_step(struct tutti_pipeline_runner *runner, tutti_pipeline_step step);
/* Sends the outputs of the step, empty if the run has failed, and posts the receives of the micro-batch that has the
 * slot next. */
void tti_pipeline_send_step(struct tutti_pipeline_runner *runner, tutti_pipeline_step step);
/* Waits for all that is in flight; if the comm is broken, cancels it first. */
void tti_pipeline_end_slots(struct tutti_pipeline_runner *runner);

#endif
