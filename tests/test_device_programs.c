/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Random programs over streams, marks, words, gates and buffers that are used on several streams. A buffer makes a stream
 * wait for its other uses by itself, so the results must be those of the same calls done one after the other, in whatever
 * order the streams get there: with delays, with queues that are nearly always full, with queues that streams share, and in
 * simulated time.
 *
 *     test_device_programs [DEVICE [SEED[:COUNT]]]
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/sim.h"
#include "base/task.h"
#include "device/gate.h"
#include "device/host_fault.h"
#include "device_check.h"

enum { STREAMS = 5, BUFFERS = 4, WORDS = 3, MARKS = 3, COUNT_MOST = 400, STEPS_MOST = 120, TURNS_MOST = STEPS_MOST };

/* What a get has read and should have. */
struct slot {
    size_t count;
    int32_t got[COUNT_MOST], wanted[COUNT_MOST];
};

struct program {
    uint64_t seed, random;
    tutti_device *device;
    struct tti_device *inside;
    int streams;
    size_t count;
    tutti_stream *stream[STREAMS];
    tutti_buffer *buffer[BUFFERS];
    int32_t value[BUFFERS][COUNT_MOST]; /* what it holds when all before is done */
    tutti_mark *mark[MARKS];
    bool recorded[MARKS];
    struct tti_word *word[WORDS];
    uint64_t raised[WORDS];
    struct tti_gate gate[STREAMS];
    _Atomic uint64_t turns[STREAMS]; /* put at that gate */
    uint64_t opened[STREAMS];
    _Atomic uint32_t stop; /* for whoever opens gates */
    struct tti_kernel kernel;
    int gets, puts;
    struct slot slots[STEPS_MOST];
    int32_t sources[STEPS_MOST][COUNT_MOST];
    int failed;
};

static uint64_t draw(struct program *program, uint64_t below)
{
    return tti_stir(program->random += UINT64_C(0x9e3779b97f4a7c15)) % below;
}

#define DO(call) (program->failed += (call) != TUTTI_OK)

/* ---- Steps ----------------------------------------------------------------------------------------------------------- */

struct range {
    size_t offset, count;
};

static struct range draw_range(struct program *program)
{
    struct range range = {.offset = draw(program, program->count)};
    range.count = draw(program, program->count - range.offset + 1);
    return range;
}

static void step_fill(struct program *program, tutti_stream *stream, size_t b)
{
    struct range range = draw_range(program);
    int32_t value = (int32_t)draw(program, 1000000);
    DO(tutti_buffer_fill(program->buffer[b], range.offset, range.count, &value, stream, &error));
    for (size_t i = 0; i < range.count; i++) program->value[b][range.offset + i] = value;
}

static void step_put(struct program *program, tutti_stream *stream, size_t b)
{
    struct range range = draw_range(program);
    int32_t *source = program->sources[program->puts++];
    for (size_t i = 0; i < range.count; i++) source[i] = (int32_t)draw(program, 1000000);
    DO(tutti_buffer_put(program->buffer[b], range.offset, source, range.count, stream, &error));
    memcpy(program->value[b] + range.offset, source, range.count * sizeof *source);
}

static void get(struct program *program, tutti_stream *stream, size_t b, struct range range)
{
    struct slot *slot = &program->slots[program->gets++];
    slot->count = range.count;
    memcpy(slot->wanted, program->value[b] + range.offset, range.count * sizeof *slot->wanted);
    DO(tutti_buffer_get(program->buffer[b], range.offset, slot->got, range.count, stream, &error));
}

static void step_copy(struct program *program, tutti_stream *stream, size_t b)
{
    struct range range = draw_range(program);
    size_t from = draw(program, BUFFERS), at = draw(program, program->count - range.count + 1);
    if (from == b && at < range.offset + range.count && range.offset < at + range.count) return;
    DO(tutti_buffer_copy(program->buffer[b], range.offset, program->buffer[from], at, range.count, stream, &error));
    memmove(program->value[b] + range.offset, program->value[from] + at, range.count * sizeof(int32_t));
}

static void step_launch(struct program *program, tutti_stream *stream, size_t b)
{
    struct range range = draw_range(program);
    size_t from = (b + 1 + draw(program, BUFFERS - 1)) % BUFFERS;
    int32_t factor = (int32_t)draw(program, 1000), add = (int32_t)draw(program, 1000);
    struct mix_arguments arguments = {tutti_buffer_at(program->buffer[b], range.offset, range.count),
                                      tutti_buffer_at(program->buffer[from], range.offset, range.count), range.count,
                                      factor, add};
    DO(tutti_buffer_begin(program->buffer[from], TUTTI_READS, stream, &error));
    DO(tutti_buffer_begin(program->buffer[b], TUTTI_WRITES, stream, &error));
    DO(mix_launch(&program->kernel, &arguments, stream));
    DO(tutti_buffer_end(program->buffer[from], TUTTI_READS, stream, &error));
    DO(tutti_buffer_end(program->buffer[b], TUTTI_WRITES, stream, &error));
    mix(program->value[b] + range.offset, program->value[from] + range.offset, range.count, factor, add);
}

/* A word is held for only after it was raised, by order of the calls. */
static void step_word(struct program *program, tutti_stream *handle)
{
    size_t w = draw(program, WORDS);
    struct tti_stream *stream = tti_stream_take(handle, &error);
    if (draw(program, 2) == 0)
        DO(tti_stream_hold(stream, program->word[w], program->raised[w] - draw(program, 3), &error));
    else if (draw(program, 2) == 0) { /* by one stream, so that it only grows */
        tti_object_give(&stream->object);
        stream = tti_stream_take(program->stream[w % (size_t)program->streams], &error);
        DO(tti_stream_raise(stream, program->word[w], ++program->raised[w], &error));
    }
    tti_object_give(&stream->object);
}

static void step_mark(struct program *program, tutti_stream *stream)
{
    size_t m = draw(program, MARKS);
    if (draw(program, 2) == 0) {
        DO(tutti_mark_record(program->mark[m], stream, &error));
        program->recorded[m] = true;
    } else if (program->recorded[m]) {
        DO(tutti_stream_after(stream, program->mark[m], &error));
    } else {
        program->failed += tutti_stream_after(stream, program->mark[m], &error) != TUTTI_ERR_ARGUMENT;
    }
}

static void step_gate(struct program *program, size_t s)
{
    struct tti_stream *stream = tti_stream_take(program->stream[s], &error);
    uint64_t turn = 0;
    DO(tti_gate_put(&program->gate[s], stream, &turn, &error));
    atomic_store(&program->turns[s], turn);
    tti_object_give(&stream->object);
}

static void make_program_buffer(struct program *program, size_t b)
{
    tutti_memory memory = (tutti_memory)draw(program, 3);
    int32_t value = (int32_t)draw(program, 1000);
    DO(tutti_buffer_create(program->device, memory, TUTTI_I32, program->count, &program->buffer[b], &error));
    DO(tutti_buffer_fill(program->buffer[b], 0, program->count, &value,
                         program->stream[draw(program, (uint64_t)program->streams)], &error));
    for (size_t i = 0; i < program->count; i++) program->value[b][i] = value;
}

static void remake(struct program *program, size_t s, size_t b)
{
    if (draw(program, 3) != 0) {
        DO(tutti_buffer_free(program->buffer[b], &error));
        make_program_buffer(program, b);
    } else {
        DO(tutti_stream_free(program->stream[s], &error));
        DO(tutti_stream_create(program->device, &program->stream[s], &error));
    }
}

static void step(struct program *program)
{
    size_t s = draw(program, (uint64_t)program->streams), b = draw(program, BUFFERS);
    tutti_stream *stream = program->stream[s];
    switch (draw(program, 12)) {
    case 0:
    case 1: step_fill(program, stream, b); break;
    case 2: step_put(program, stream, b); break;
    case 3: get(program, stream, b, draw_range(program)); break;
    case 4:
    case 5: step_copy(program, stream, b); break;
    case 6:
    case 7: step_launch(program, stream, b); break;
    case 8: step_word(program, stream); break;
    case 9: step_mark(program, stream); break;
    case 10: step_gate(program, s); break;
    default:
        if (draw(program, 2) == 0)
            remake(program, s, b);
        else
            DO(tutti_stream_sync(stream, LONG_MS, &error));
    }
}

/* ---- Programs -------------------------------------------------------------------------------------------------------- */

/* The host's part of the gates: opens each when its stream has come. */
static void *open_gates(void *argument)
{
    struct program *program = argument;
    for (bool all = false; !all;) {
        all = atomic_load(&program->stop) != 0;
        for (int s = 0; s < program->streams; s++) {
            uint64_t next = program->opened[s] + 1;
            if (next > atomic_load(&program->turns[s])) continue;
            all = false;
            if (!tti_gate_reached(&program->gate[s], next)) continue;
            tti_gate_open(&program->gate[s], next);
            program->opened[s] = next;
        }
        tti_wait_turn();
    }
    return NULL;
}

static void set_up(struct program *program)
{
    program->inside = tti_device_take(program->device, &error);
    program->streams = (int)(1 + draw(program, STREAMS));
    program->count = 1 + draw(program, COUNT_MOST);
    program->kernel = mix_kernel(program->device);
    for (int s = 0; s < program->streams; s++) {
        DO(tutti_stream_create(program->device, &program->stream[s], &error));
        DO(tti_gate_make(program->inside, &program->gate[s], &error));
    }
    for (int m = 0; m < MARKS; m++) DO(tutti_mark_create(program->device, &program->mark[m], &error));
    for (int w = 0; w < WORDS; w++) {
        DO(tti_word_take(program->inside, &program->word[w], &error));
        program->raised[w] = atomic_load(&program->word[w]->value);
    }
    for (size_t b = 0; b < BUFFERS; b++) make_program_buffer(program, b);
}

static void tear_down(struct program *program)
{
    for (size_t b = 0; b < BUFFERS; b++) DO(tutti_buffer_free(program->buffer[b], &error));
    for (int m = 0; m < MARKS; m++) DO(tutti_mark_free(program->mark[m], &error));
    for (int s = 0; s < program->streams; s++) {
        DO(tutti_stream_free(program->stream[s], &error));
        tti_gate_free(&program->gate[s]);
    }
    for (int w = 0; w < WORDS; w++) tti_word_give(program->inside, program->word[w]);
    tti_object_give(&program->inside->object);
}

static int wrong_slots(const struct program *program)
{
    int wrong = 0;
    for (int i = 0; i < program->gets; i++) {
        const struct slot *slot = &program->slots[i];
        wrong += memcmp(slot->got, slot->wanted, slot->count * sizeof *slot->got) != 0;
    }
    return wrong;
}

static void run(struct program *program, const char *mode)
{
    struct tti_task opener;
    program->random = program->seed;
    set_up(program);
    CHECK(tti_task_start(&opener, open_gates, program, &error) == TUTTI_OK);
    int steps = 10 + (int)draw(program, STEPS_MOST - BUFFERS - 10);
    for (int i = 0; i < steps && program->failed == 0; i++) step(program);
    for (size_t b = 0; b < BUFFERS; b++)
        get(program, program->stream[b % (size_t)program->streams], b, (struct range){0, program->count});
    for (int s = 0; s < program->streams; s++) DO(tutti_stream_sync(program->stream[s], LONG_MS, &error));
    atomic_store(&program->stop, 1);
    tti_task_join(&opener);
    tear_down(program);
    int wrong = wrong_slots(program);
    CHECK_THAT(program->failed == 0 && wrong == 0, "%s, seed %llu: %d failed (%s), %d of %d wrong", mode,
               (unsigned long long)program->seed, program->failed, error.text, wrong, program->gets);
}

static void run_seed(uint64_t seed, const char *mode, int64_t delay_ns, size_t room, int queues)
{
    struct program *program = calloc(1, sizeof *program);
    program->seed = seed;
    program->device = open_device();
    tti_fault_delay(program->device, delay_ns);
    tti_fault_room(program->device, room);
    tti_fault_share(program->device, queues);
    run(program, mode);
    GOOD(tutti_device_free(program->device, &error));
    free(program);
}

static void *simulated_body(void *argument)
{
    uint64_t seed = *(uint64_t *)argument;
    run_seed(seed, "simulated", seed % 3 == 0 ? 1000 : 0, seed % 4 == 0 ? 2 : 0, seed % 5 == 0 ? 1 : 0);
    return NULL;
}

static struct tti_sim_totals simulate(uint64_t seed)
{
    struct tti_sim_totals totals = {0};
    struct tti_sim_setup setup = {.seed = seed, .local_latency_ns = 500, .local_ns_per_byte = 1, .noise_ns = 2000};
    setup.stack_bytes = 1 << 18;
    CHECK(tti_sim_run(&setup, simulated_body, &seed, &totals, &error) == TUTTI_OK);
    return totals;
}

int main(int argc, char **argv)
{
    uint64_t first = 1, count = 40;
    if (argc > 1) device_name = argv[1];
    if (argc > 2 && sscanf(argv[2], "%llu:%llu", (unsigned long long *)&first, (unsigned long long *)&count) < 1)
        return 2;
    tutti_log_set_level(TUTTI_QUIET);
    bool host = strncmp(device_name, "host", 4) == 0;
    for (uint64_t seed = first; seed < first + count; seed++) {
        run_seed(seed, "plain", 0, 0, 0);
        if (!host) continue;
        run_seed(seed, "delayed", 20000, 0, 0);
        run_seed(seed, "queues of 2", 0, 2, 0);
        run_seed(seed, "one queue", 0, 0, 1);
        run_seed(seed, "two queues of 1", 0, 1, 2);
        struct tti_sim_totals totals = simulate(seed), again = simulate(seed);
        CHECK_THAT(totals.trace == again.trace && totals.time_ns == again.time_ns,
                   "seed %llu differs when simulated again", (unsigned long long)seed);
    }
    return check_end();
}
