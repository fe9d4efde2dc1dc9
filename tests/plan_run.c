/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_run.h"

#include "conformance_reference.h"
#include <stdlib.h>
#include <string.h>

struct message {
    const unsigned char *source; /* NULL: not posted */
    unsigned char *target;       /* likewise */
    uint64_t bytes;
    bool done;
};

struct queue {
    struct message *messages;
    size_t sent, received, capacity;
};

struct reference {
    struct queue *queue;
    size_t index;
};

struct progress {
    size_t step, sent, received;
    struct reference *sends, *receives;
};

struct runner {
    const struct plan_run_rank *ranks;
    int size;
    uint64_t seed;
    struct queue *queues; /* size * size, from-major */
    struct progress *progress;
};

static unsigned char *address(const struct runner *runner, const struct tti_region *region)
{
    const struct plan_run_rank *rank = &runner->ranks[region->rank];
    unsigned char *const spaces[] = {[TTI_IN] = rank->in, [TTI_OUT] = rank->out, [TTI_TEMP] = rank->temp};
    return spaces[region->space] + region->offset;
}

static struct message *message_at(struct queue *queue, size_t index)
{
    if (index >= queue->capacity) {
        size_t capacity = queue->capacity * 2 + 16;
        queue->messages = realloc(queue->messages, capacity * sizeof *queue->messages);
        memset(queue->messages + queue->capacity, 0, (capacity - queue->capacity) * sizeof *queue->messages);
        queue->capacity = capacity;
    }
    return &queue->messages[index];
}

static bool move(struct message *message)
{
    if (message->source == NULL || message->target == NULL) return false;
    if (!message->done && message->bytes > 0) memcpy(message->target, message->source, message->bytes);
    message->done = true;
    return true;
}

static void post(struct runner *runner, int me, const struct tti_step *step, bool sends)
{
    static unsigned char nothing;
    struct progress *progress = &runner->progress[me];
    struct queue *queue = &runner->queues[sends ? me * runner->size + step->peer : step->peer * runner->size + me];
    size_t index = sends ? queue->sent++ : queue->received++;
    struct message *message = message_at(queue, index);
    unsigned char *at = step->bytes == 0 ? &nothing : address(runner, sends ? &step->source : &step->target);
    if (sends) {
        message->source = at;
        progress->sends = realloc(progress->sends, (progress->sent + 1) * sizeof *progress->sends);
        progress->sends[progress->sent++] = (struct reference){queue, index};
    } else {
        message->target = at;
        progress->receives = realloc(progress->receives, (progress->received + 1) * sizeof *progress->receives);
        progress->receives[progress->received++] = (struct reference){queue, index};
    }
    message->bytes = step->bytes;
    if (conf_hash(runner->seed++, 1) % 2 == 0) move(message);
}

static bool settle(const struct reference *messages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!move(message_at(messages[i].queue, messages[i].index))) return false;
    return true;
}

static void fold(const struct runner *runner, const struct plan_run_rank *rank, const struct tti_step *step)
{
    struct tti_fold_source *sources = calloc((size_t)step->sources, sizeof *sources);
    for (int i = 0; i < step->sources; i++) {
        const struct tti_part *part = &rank->plan->parts[step->first + (uint32_t)i];
        sources[i] = (struct tti_fold_source){address(runner, &part->at), part->first, part->ranks, part->partial,
                                              runner->ranks[part->first].reducer->factor};
    }
    tti_fold(rank->reducer, sources, step->sources, (int)step->value, address(runner, &step->target),
             step->bytes / rank->element);
    free(sources);
}

static bool do_step(struct runner *runner, int me, const struct tti_step *step)
{
    const struct plan_run_rank *rank = &runner->ranks[me];
    switch ((enum tti_step_kind)step->kind) {
    case TTI_STEP_SEND: post(runner, me, step, true); return true;
    case TTI_STEP_RECV: post(runner, me, step, false); return true;
    case TTI_STEP_AWAIT: return settle(runner->progress[me].receives, step->value);
    case TTI_STEP_DRAIN: return settle(runner->progress[me].sends, step->value);
    case TTI_STEP_FOLD: fold(runner, rank, step); return true;
    default: {
        const unsigned char *source = address(runner, &step->source);
        unsigned char *target = address(runner, &step->target);
        if (target != source) memcpy(target, source, step->bytes);
        return true;
    }
    }
}

static bool advance(struct runner *runner, int me)
{
    const struct tti_plan *plan = runner->ranks[me].plan;
    struct progress *progress = &runner->progress[me];
    bool moved = false;
    for (; progress->step < plan->count && do_step(runner, me, &plan->steps[progress->step]); moved = true)
        progress->step++;
    return moved;
}

bool plan_run(const struct plan_run_rank *ranks, int size, uint64_t seed)
{
    struct runner runner = {.ranks = ranks, .size = size, .seed = seed};
    bool moved = true, ended = true;
    runner.queues = calloc((size_t)(size * size), sizeof *runner.queues);
    runner.progress = calloc((size_t)size, sizeof *runner.progress);
    while (moved) {
        moved = false;
        int first = (int)(conf_hash(seed++, 5) % (uint64_t)size);
        for (int k = 0; k < size; k++) moved = advance(&runner, (first + k) % size) || moved;
    }
    for (int rank = 0; rank < size; rank++) {
        ended = ended && runner.progress[rank].step == ranks[rank].plan->count;
        free(runner.progress[rank].sends);
        free(runner.progress[rank].receives);
    }
    for (int i = 0; i < size * size; i++) free(runner.queues[i].messages);
    free(runner.queues);
    free(runner.progress);
    return ended;
}
