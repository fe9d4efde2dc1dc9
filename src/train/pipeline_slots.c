/* SPDX-License-Identifier: Apache-2.0
 *
 * The boundaries of a rank's stages, and the messages that fill them.
 *
 * Invariant: a micro-batch has one slot of its chunk from its forward step to the end of its backward step, and the
 * receives of both its inputs are posted when it gets it. Receives of all slots are posted before the first step. A
 * message's tag says which stage and micro-batch it goes to and in which direction, since with two ranks the one before
 * and the one behind are the same. Data that are sent stay in their place until the slot's next micro-batch writes
 * there, and that waits for the send. Between stages of one rank data are copied: forward by the receiver, which gets
 * its slot only then, backward by the sender, whose receiver has its slot already.
 */
#define TUTTI_NO_CALL_SITES
#include "train/pipeline_run.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/round.h"
#include "base/status.h"
#include <string.h>

enum { TO_NEXT, TO_PREVIOUS };

/* ---- Who has which slot ---------------------------------------------------------------------------------------- */

/* Assigns slots along the rank's steps; `last` (slots' most recent micro-batches) and `free_slots` have room for all
 * micro-batches. */
static void assign_slots(const struct tutti_pipeline *pipeline, int rank, int number, struct tti_pipeline_chunk *chunk,
                         int *last, int *free_slots)
{
    const struct tti_pipeline_steps *list = &pipeline->of_rank[rank];
    int free_count = 0;
    for (size_t i = 0; i < list->count; i++) {
        tutti_pipeline_step step = list->steps[i];
        if (step.chunk != number) continue;
        if (step.part == TUTTI_PIPELINE_FORWARD) {
            int slot = free_count > 0 ? free_slots[--free_count] : chunk->slot_count++;
            chunk->slot_of[step.micro] = slot;
            chunk->next_of[step.micro] = -1;
            if (last[slot] >= 0) chunk->next_of[last[slot]] = step.micro;
            last[slot] = step.micro;
        }
        if (step.part == TUTTI_PIPELINE_BACKWARD || step.part == TUTTI_PIPELINE_WEIGHTS)
            free_slots[free_count++] = chunk->slot_of[step.micro];
    }
}

/* Assigns gradients in the order in which they are filled in. So the weights part of a micro-batch finds its own there,
 * too. */
static void assign_gradients(const struct tutti_pipeline *pipeline, int rank, int number,
                             struct tti_pipeline_chunk *chunk)
{
    const struct tti_pipeline_steps *list = &pipeline->of_rank[rank];
    int filled = 0;
    for (size_t i = 0; i < list->count; i++) {
        tutti_pipeline_step step = list->steps[i];
        if (step.chunk != number || (step.part != TUTTI_PIPELINE_BACKWARD && step.part != TUTTI_PIPELINE_INPUT))
            continue;
        chunk->gradient_of[step.micro] = filled++ % (chunk->slot_count + TTI_PIPELINE_SPARE_GRADIENTS);
    }
}

static char *cut(char **memory, size_t bytes)
{
    char *from = *memory;
    *memory += tti_whole_lines(bytes);
    return bytes == 0 ? NULL : from;
}

static tutti_status make_memory(struct tutti_pipeline_runner *runner, struct tti_pipeline_chunk *chunk,
                                tutti_error *error)
{
    size_t in = tti_whole_lines(chunk->in_bytes), each = in + 2 * tti_whole_lines(chunk->out_bytes);
    size_t slots = (size_t)chunk->slot_count, gradients = slots + TTI_PIPELINE_SPARE_GRADIENTS;
    size_t bytes = each * slots + in * gradients;
    if (chunk->in_bytes > SIZE_MAX / 16 / gradients || chunk->out_bytes > SIZE_MAX / 16 / gradients)
        return tti_error_set(error, TUTTI_ERR_COUNT, 0,
                             "pipeline: boundaries of %zu and %zu bytes of stage %d are too large", chunk->in_bytes,
                             chunk->out_bytes, chunk->stage);
    chunk->slots = tti_calloc(slots, sizeof *chunk->slots);
    chunk->gradients = tti_calloc(gradients, sizeof *chunk->gradients);
    runner->bytes += bytes;
    if (runner->comm == NULL) return TUTTI_OK;
    chunk->memory = tutti_alloc(runner->comm, bytes);
    if (chunk->slots == NULL || chunk->gradients == NULL || chunk->memory == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0,
                             "pipeline: no memory for %zu slots of stage %d, %zu bytes each", slots, chunk->stage,
                             each);
    char *memory = chunk->memory;
    for (size_t i = 0; i < slots; i++) {
        struct tti_pipeline_slot *slot = &chunk->slots[i];
        slot->in = cut(&memory, chunk->in_bytes);
        slot->out = cut(&memory, chunk->out_bytes);
        slot->out_gradient = cut(&memory, chunk->out_bytes);
    }
    for (size_t i = 0; i < gradients; i++) chunk->gradients[i].to_previous = cut(&memory, chunk->in_bytes);
    return TUTTI_OK;
}

static tutti_status make_chunk(struct tutti_pipeline_runner *runner, int number, tutti_error *error)
{
    const struct tutti_pipeline *pipeline = runner->pipeline;
    struct tti_pipeline_chunk *chunk = &runner->chunks[number];
    size_t micros = (size_t)pipeline->micros;
    chunk->stage = pipeline->rank_stages[runner->rank * pipeline->chunks + number];
    if (chunk->stage > 0) chunk->in_bytes = runner->settings.bytes[chunk->stage - 1];
    if (chunk->stage < pipeline->stages - 1) chunk->out_bytes = runner->settings.bytes[chunk->stage];
    chunk->slot_of = tti_calloc(micros, sizeof(int));
    chunk->next_of = tti_calloc(micros, sizeof(int));
    chunk->gradient_of = tti_calloc(micros, sizeof(int));
    int *last = tti_calloc(micros, sizeof(int)), *free_slots = tti_calloc(micros, sizeof(int));
    bool fine = chunk->slot_of != NULL && chunk->next_of != NULL && chunk->gradient_of != NULL && last != NULL &&
                free_slots != NULL;
    for (size_t i = 0; fine && i < micros; i++) last[i] = -1;
    if (fine) assign_slots(pipeline, runner->rank, number, chunk, last, free_slots);
    if (fine) assign_gradients(pipeline, runner->rank, number, chunk);
    tti_free(last);
    tti_free(free_slots);
    if (!fine)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "pipeline: no memory for lists of %zu micro-batch%s", micros,
                             micros == 1 ? "" : "es");
    return make_memory(runner, chunk, error);
}

tutti_status tti_pipeline_make_slots(struct tutti_pipeline_runner *runner, tutti_error *error)
{
    int count = runner->pipeline->chunks;
    runner->chunks = tti_calloc((size_t)count, sizeof *runner->chunks);
    if (runner->chunks == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "pipeline: no memory for %d chunks", count);
    for (int number = 0; number < count; number++) TTI_TRY(make_chunk(runner, number, error));
    if (runner->comm == NULL) return TUTTI_OK;
    return tti_pipeline_sends_create(&runner->sends, 2 * (size_t)count * (size_t)runner->pipeline->micros, error);
}

void tti_pipeline_free_slots(struct tutti_pipeline_runner *runner)
{
    tti_pipeline_sends_free(&runner->sends);
    for (int number = 0; runner->chunks != NULL && number < runner->pipeline->chunks; number++) {
        struct tti_pipeline_chunk *chunk = &runner->chunks[number];
        (void)tutti_free(runner->comm, chunk->memory);
        tti_free(chunk->slots);
        tti_free(chunk->gradients);
        tti_free(chunk->gradient_of);
        tti_free(chunk->slot_of);
        tti_free(chunk->next_of);
    }
    tti_free(runner->chunks);
    runner->chunks = NULL;
}

/* ---- Messages -------------------------------------------------------------------------------------------------- */

tutti_comm *tti_pipeline_inside(const struct tutti_pipeline_runner *runner, const char *what)
{
    tutti_comm *comm = tti_inside(tutti_at(runner->comm, runner->here.file, runner->here.line), "pipeline", what);
    if (runner->settings.deadline_ms <= 0) return comm; /* 0: no deadline; below: all ranks will refuse it */
    int64_t left_ms = runner->settings.deadline_ms - (tti_now_ns() - runner->began_ns) / 1000000;
    return tutti_within(comm, left_ms > 1 ? left_ms : 1);
}

static int tag_of(const struct tutti_pipeline_runner *runner, int to_stage, int micro, int direction)
{
    return 2 * (int)tti_pipeline_cell(runner->pipeline, to_stage, micro) + direction;
}

static bool is_own(const struct tutti_pipeline_runner *runner, int stage)
{
    return runner->pipeline->stage_rank[stage] == runner->rank;
}

/* A call finds the comm broken if an op for which nobody has waited yet has failed: the op knows why. */
static void find_cause(struct tutti_pipeline_runner *runner, tutti_status status)
{
    if (status >= 0 || status == TUTTI_ERR_CANCELLED || runner->broken != TUTTI_ERR_BROKEN) return;
    const tutti_error *error = tutti_comm_error(runner->comm);
    runner->broken = status;
    if (error != NULL) runner->error = *error;
}

/* Keeps the first failure. From then on the comm is broken for all ranks: if an op could not be started for lack of
 * memory, the others do not know it yet. Once no other thread waits for an op of the comm, its error can be read. */
static void note(struct tutti_pipeline_runner *runner, tutti_status status)
{
    if (status == TUTTI_OK || runner->broken != TUTTI_OK) return;
    runner->broken = status;
    (void)tti_inside_break(runner->comm, TTI_RECV, status, "pipeline: a message could not be started");
    tutti_status sends = tti_pipeline_sends_await_all(&runner->sends);
    const tutti_error *error = tutti_comm_error(runner->comm);
    if (error != NULL) runner->error = *error;
    find_cause(runner, sends);
}

/* Waits until the data that were sent may be changed. */
static void await_send(struct tutti_pipeline_runner *runner, uint32_t *number)
{
    if (*number == 0 || runner->broken != TUTTI_OK) return;
    note(runner, tti_pipeline_sends_await(&runner->sends, *number));
    *number = 0;
}

static void start_receive(struct tutti_pipeline_runner *runner, void *to, size_t bytes, int from_stage, int tag,
                          const char *what, tutti_message *message, tutti_op *op)
{
    if (runner->broken != TUTTI_OK || bytes == 0 || is_own(runner, from_stage)) return;
    note(runner, tutti_recv_start(tti_pipeline_inside(runner, what), to, bytes, TUTTI_U8,
                                  runner->pipeline->stage_rank[from_stage], tag, message, op));
}

static void post(struct tutti_pipeline_runner *runner, struct tti_pipeline_chunk *chunk, int micro)
{
    struct tti_pipeline_slot *slot = &chunk->slots[chunk->slot_of[micro]];
    start_receive(runner, slot->in, chunk->in_bytes, chunk->stage - 1, tag_of(runner, chunk->stage, micro, TO_NEXT),
                  "activations", &slot->in_message, &slot->in_op);
    start_receive(runner, slot->out_gradient, chunk->out_bytes, chunk->stage + 1,
                  tag_of(runner, chunk->stage, micro, TO_PREVIOUS), "gradients", &slot->out_gradient_message,
                  &slot->out_gradient_op);
}

static void start_send(struct tutti_pipeline_runner *runner, const void *from, size_t bytes, int to_stage, int tag,
                       const char *what, uint32_t *number)
{
    bool empty = runner->failed != TUTTI_OK || runner->follows;
    tutti_op op = {0};
    if (runner->broken != TUTTI_OK || bytes == 0 || is_own(runner, to_stage)) return;
    tutti_status status = tutti_send_start(tti_pipeline_inside(runner, what), from, empty ? 0 : bytes, TUTTI_U8,
                                           runner->pipeline->stage_rank[to_stage], tag, &op);
    if (status == TUTTI_OK) *number = tti_pipeline_sends_add(&runner->sends, op);
    note(runner, status);
}

/* Takes a message. One that is shorter than its boundary is empty: its sender has failed, or has heard of a failure in
 * this way. */
static void take(struct tutti_pipeline_runner *runner, tutti_op *op, const tutti_message *message, size_t bytes)
{
    if (op->id == 0 || runner->broken != TUTTI_OK) return;
    tutti_status status = tutti_wait(*op);
    op->id = 0;
    note(runner, status);
    if (status == TUTTI_OK && message->count < bytes) runner->follows = true;
}

static struct tti_pipeline_slot *slot_of(const struct tutti_pipeline_runner *runner, int stage, int micro)
{
    const struct tti_pipeline_chunk *chunk = &runner->chunks[runner->pipeline->stage_chunk[stage]];
    return &chunk->slots[chunk->slot_of[micro]];
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

void tti_pipeline_begin_slots(struct tutti_pipeline_runner *runner)
{
    tti_pipeline_sends_begin(&runner->sends);
    for (int number = 0; number < runner->pipeline->chunks; number++) {
        struct tti_pipeline_chunk *chunk = &runner->chunks[number];
        const struct tti_pipeline_steps *list = &runner->pipeline->of_rank[runner->rank];
        int posted = 0;
        for (size_t i = 0; i < list->count && posted < chunk->slot_count; i++) {
            tutti_pipeline_step step = list->steps[i];
            if (step.chunk != number || step.part != TUTTI_PIPELINE_FORWARD) continue;
            if (chunk->slot_of[step.micro] != posted) continue; /* slots are first used in the order of their numbers */
            post(runner, chunk, step.micro);
            posted++;
        }
    }
}

void tti_pipeline_await_step(struct tutti_pipeline_runner *runner, tutti_pipeline_step step)
{
    struct tti_pipeline_chunk *chunk = &runner->chunks[step.chunk];
    struct tti_pipeline_slot *slot = &chunk->slots[chunk->slot_of[step.micro]];
    if (step.part == TUTTI_PIPELINE_FORWARD) {
        take(runner, &slot->in_op, &slot->in_message, chunk->in_bytes);
        await_send(runner, &slot->out_send);
        if (chunk->in_bytes > 0 && is_own(runner, chunk->stage - 1))
            memcpy(slot->in, slot_of(runner, chunk->stage - 1, step.micro)->out, chunk->in_bytes);
    } else if (step.part != TUTTI_PIPELINE_WEIGHTS) {
        take(runner, &slot->out_gradient_op, &slot->out_gradient_message, chunk->out_bytes);
        await_send(runner, &chunk->gradients[chunk->gradient_of[step.micro]].send);
    }
}

/* Receives are posted before anything is sent, since another thread waits for sends. */
void tti_pipeline_send_step(struct tutti_pipeline_runner *runner, tutti_pipeline_step step)
{
    struct tti_pipeline_chunk *chunk = &runner->chunks[step.chunk];
    struct tti_pipeline_slot *slot = &chunk->slots[chunk->slot_of[step.micro]];
    struct tti_pipeline_gradient *gradient = &chunk->gradients[chunk->gradient_of[step.micro]];
    int next = chunk->next_of[step.micro];
    bool ended = step.part == TUTTI_PIPELINE_BACKWARD || step.part == TUTTI_PIPELINE_WEIGHTS;
    if (ended && next >= 0) post(runner, chunk, next);
    if (step.part == TUTTI_PIPELINE_FORWARD) {
        start_send(runner, slot->out, chunk->out_bytes, chunk->stage + 1,
                   tag_of(runner, chunk->stage + 1, step.micro, TO_NEXT), "activations", &slot->out_send);
    } else if (step.part != TUTTI_PIPELINE_WEIGHTS) {
        if (chunk->in_bytes > 0 && is_own(runner, chunk->stage - 1))
            memcpy(slot_of(runner, chunk->stage - 1, step.micro)->out_gradient, gradient->to_previous, chunk->in_bytes);
        start_send(runner, gradient->to_previous, chunk->in_bytes, chunk->stage - 1,
                   tag_of(runner, chunk->stage - 1, step.micro, TO_PREVIOUS), "gradients", &gradient->send);
    }
}

/* Ends an op after the comm broke: it has ended or will at once, and then nothing writes to the slot any more. */
static void abandon(struct tutti_pipeline_runner *runner, tutti_op *op)
{
    if (op->id == 0) return;
    (void)tutti_cancel(*op);
    find_cause(runner, tutti_wait(*op));
    op->id = 0;
}

void tti_pipeline_end_slots(struct tutti_pipeline_runner *runner)
{
    if (runner->broken == TUTTI_OK) note(runner, tti_pipeline_sends_await_all(&runner->sends));
    for (int number = 0; number < runner->pipeline->chunks; number++) {
        struct tti_pipeline_chunk *chunk = &runner->chunks[number];
        for (int i = 0; i < chunk->slot_count; i++) {
            struct tti_pipeline_slot *slot = &chunk->slots[i];
            slot->out_send = 0;
            abandon(runner, &slot->in_op); /* there is none if the run was not broken */
            abandon(runner, &slot->out_gradient_op);
        }
        for (int i = 0; i < chunk->slot_count + TTI_PIPELINE_SPARE_GRADIENTS; i++) chunk->gradients[i].send = 0;
    }
}
