/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a list of cases on one rank: fill the buffers and what lies around them, call, compare every byte.
 */
#include "collective/comm/comm.h"
#include "conformance.h"
#include "conformance_layout.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/device.h>

enum { GUARD = 192, BATCH_MOST = 8 };

/* A buffer with all that surrounds it. */
struct stretch {
    unsigned char *memory;
    size_t bytes, in_at, out_at; /* where the call's buffers begin in it */
    bool has_in, has_out;
};

/* One operation between its preparation and its verification. */
struct active {
    const struct conf_case *one;
    struct conf_layout layout;
    struct stretch in, out; /* in place: both in `out` */
    const void *in_pointer;
    void *out_pointer;
    unsigned char pattern;
    size_t received;
    int path;
};

/* Where the list runs on a device: what the calls get instead of the memory of each slot, which mirrors it. */
struct place {
    tutti_device *device;
    tutti_stream *streams[2]; /* used in turn */
    tutti_buffer *mirrors[BATCH_MOST][2][2];
    size_t bytes; /* of each */
    unsigned calls;
    tutti_error error;
};

struct runner {
    tutti_comm *comm;
    struct place *place; /* NULL: on the host */
    const struct conf_list *list;
    int rank, size;
    enum conf_tuning tuning;
    unsigned long barriers;
    unsigned char *memory[BATCH_MOST][2][2]; /* [slot][private][out] */
    unsigned char *want;
    struct active active[BATCH_MOST];
};

/* ---- What memory holds before and after ------------------------------------------------------------------------ */

static void write_image(const struct runner *runner, const struct active *active, const struct stretch *stretch,
                        bool after, unsigned char *image)
{
    const struct conf_layout *layout = &active->layout;
    const struct conf_table *table = &runner->list->tables[active->one->type];
    size_t element = tutti_type_bytes(active->one->type);
    memset(image, active->pattern, stretch->bytes);
    if (stretch->has_in && layout->in_used && layout->in_count > 0)
        memcpy(image + stretch->in_at, table->in[runner->rank], layout->in_count * element);
    for (int i = 0; i < layout->blocks && after && stretch->has_out; i++) {
        const struct conf_block *block = &layout->block[i];
        const unsigned char *source = block->from < 0 ? table->reduced[active->one->column][block->last]
                                                      : table->in[block->from];
        if (block->count > 0)
            memcpy(image + stretch->out_at + block->target * element, source + block->source * element,
                   block->count * element);
    }
}

static const char *names_of(const struct conf_case *one, char *text, size_t bytes)
{
    static const char *const places[] = {"out of place", "in place", "in place on odd ranks"};
    static const char *const memories[] = {"shared", "private", "mixed", "split"};
    static const char *const tuning_names[] = {"default", "small", "bounced", "attached", "tree"};
    snprintf(text, bytes, "%s %s %s count=%zu root=%d %s %s tuning=%s seed=%llu", tti_kind_name(one->kind),
             tutti_type_name(one->type), conf_kind_reduces(one->kind) ? conf_column_name(one->column) : "", one->count,
             one->root, places[one->place], memories[one->memory], tuning_names[one->tuning],
             (unsigned long long)one->seed);
    return text;
}

static void compare(const struct runner *runner, const struct active *active, const struct stretch *stretch)
{
    write_image(runner, active, stretch, true, runner->want);
    if (memcmp(stretch->memory, runner->want, stretch->bytes) == 0) {
        CHECK_THAT(true, " ");
        return;
    }
    size_t at = 0, wrong = 0;
    for (size_t i = stretch->bytes; i-- > 0;)
        if (stretch->memory[i] != runner->want[i]) at = i, wrong++;
    char text[256];
    CHECK_THAT(false, "%s: rank %d of %d (%s), path %d, %s: byte %ld of the output is %02x, not %02x; %zu bytes wrong",
               names_of(active->one, text, sizeof text), runner->rank, runner->size, runner->list->label, active->path,
               stretch->has_out ? "output" : "input",
               (long)at - (long)(stretch->has_out ? stretch->out_at : stretch->in_at), stretch->memory[at],
               runner->want[at], wrong);
}

/* ---- On a device ----------------------------------------------------------------------------------------------- */

static bool placed(struct runner *runner, tutti_status status)
{
    return CHECK_THAT(status == TUTTI_OK, "rank %d of %d (%s): %s", runner->rank, runner->size, runner->list->label,
                      runner->place->error.text);
}

/* The mirror of the memory that a stretch or a pointer lies in. */
static tutti_buffer *mirror_of(const struct runner *runner, const unsigned char *pointer, size_t *offset)
{
    for (size_t i = 0; i < BATCH_MOST * 4; i++) {
        const unsigned char *memory = runner->memory[i / 4][i / 2 % 2][i % 2];
        if (memory == NULL || pointer < memory || pointer >= memory + runner->place->bytes) continue;
        *offset = (size_t)(pointer - memory);
        return runner->place->mirrors[i / 4][i / 2 % 2][i % 2];
    }
    return NULL;
}

static void *on_device(const struct runner *runner, const void *pointer)
{
    size_t offset = 0;
    tutti_buffer *mirror = pointer == NULL ? NULL : mirror_of(runner, pointer, &offset);
    return mirror == NULL ? NULL : tutti_buffer_at(mirror, offset, 0);
}

static void copy_stretch(struct runner *runner, const struct stretch *stretch, bool back)
{
    struct place *place = runner->place;
    size_t offset = 0;
    if (place == NULL || stretch->bytes == 0) return;
    tutti_buffer *mirror = mirror_of(runner, stretch->memory, &offset);
    tutti_stream *stream = place->streams[0];
    placed(runner, back ? tutti_buffer_get(mirror, offset, stretch->memory, stretch->bytes, stream, &place->error)
                        : tutti_buffer_put(mirror, offset, stretch->memory, stretch->bytes, stream, &place->error));
    placed(runner, tutti_stream_sync(stream, 60000, &place->error));
}

static void close_place(struct runner *runner)
{
    struct place *place = runner->place;
    if (place == NULL) return;
    for (size_t i = 0; i < BATCH_MOST * 4; i++)
        placed(runner, tutti_buffer_free(place->mirrors[i / 4][i / 2 % 2][i % 2], &place->error));
    for (int i = 0; i < 2; i++) placed(runner, tutti_stream_free(place->streams[i], &place->error));
    placed(runner, tutti_device_free(place->device, &place->error));
    free(place);
}

/* Memory that is private on the host is the device's own, the other is shared with processes. */
static bool open_place(struct runner *runner, size_t slots, size_t bytes)
{
    if (runner->list->device == NULL) return true;
    struct place *place = runner->place = calloc(1, sizeof *place);
    place->bytes = bytes;
    bool own = strcmp(runner->list->device, "cuda") == 0; /* each rank has the one of its number */
    bool good = placed(runner, own ? tutti_device_open_for(runner->comm, "cuda", &place->device, &place->error)
                                   : tutti_device_open(runner->list->device, &place->device, &place->error));
    for (int i = 0; i < 2 && good; i++)
        good = placed(runner, tutti_stream_create(place->device, &place->streams[i], &place->error));
    for (size_t i = 0; i < slots * 4 && good; i++)
        good = placed(runner,
                      tutti_buffer_create(place->device, i / 2 % 2 == 0 ? TUTTI_MEMORY_SHARED : TUTTI_MEMORY_LOCAL,
                                          TUTTI_U8, bytes, &place->mirrors[i / 4][i / 2 % 2][i % 2], &place->error));
    return good;
}

/* ---- Before the call ------------------------------------------------------------------------------------------- */

static bool goes_in_place(const struct runner *runner, const struct conf_case *one, const struct conf_layout *layout)
{
    if (layout->inside == CONF_APART) return false;
    /* all_to_all: on all ranks or on none */
    if (one->place == CONF_IN_PLACE_ODD) return one->kind != TTI_ALL_TO_ALL && runner->rank % 2 == 1;
    return one->place == CONF_IN_PLACE;
}

static bool is_private(const struct runner *runner, const struct conf_case *one, bool out)
{
    switch (one->memory) {
    case CONF_PRIVATE: return true;
    case CONF_MIXED: return runner->rank % 2 == 1;
    case CONF_SPLIT: return out;
    default: return false;
    }
}

static void prepare(struct runner *runner, size_t slot, const struct conf_case *one)
{
    struct active *active = &runner->active[slot];
    *active = (struct active){.one = one, .pattern = (unsigned char)(0xa0 + slot), .received = SIZE_MAX};
    struct conf_layout *layout = &active->layout;
    conf_layout_of(one, runner->size, runner->rank, layout);
    size_t element = tutti_type_bytes(one->type);
    uint64_t hash = conf_hash(one->seed, 99 + (uint64_t)runner->rank);
    size_t begin = GUARD + hash % 32 * element, own = layout->own * element;
    unsigned char *const *in = runner->memory[slot][is_private(runner, one, false)];
    unsigned char *const *out = runner->memory[slot][is_private(runner, one, true)];
    active->in = (struct stretch){in[0], begin + layout->in_count * element + GUARD, begin, begin, true, false};
    active->out = (struct stretch){out[1], begin + layout->out_count * element + GUARD, begin, begin, false, true};
    if (goes_in_place(runner, one, layout)) {
        struct stretch *both = &active->out;
        if (layout->inside == CONF_IN_INSIDE) both->in_at += own;
        if (layout->inside == CONF_OUT_INSIDE) both->out_at += own;
        if (active->in.bytes > both->bytes) both->bytes = active->in.bytes;
        both->has_in = true;
        active->in = (struct stretch){.memory = both->memory};
    }
    active->in_pointer = active->out.has_in ? active->out.memory + active->out.in_at : active->in.memory + begin;
    active->out_pointer = active->out.memory + active->out.out_at;
    write_image(runner, active, &active->in, false, active->in.memory);
    write_image(runner, active, &active->out, false, active->out.memory);
    copy_stretch(runner, &active->in, false);
    copy_stretch(runner, &active->out, false);
    /* what is not used may be missing */
    if ((!layout->in_used || layout->in_count == 0) && hash >> 32 & 1 && !active->out.has_in) active->in_pointer = NULL;
    if ((!layout->out_used || layout->out_count == 0) && hash >> 33 & 1 && !active->out.has_in)
        active->out_pointer = NULL;
}

/* ---- The call -------------------------------------------------------------------------------------------------- */

static tutti_status call_equal(tutti_comm *comm, const struct conf_case *one, const void *in, void *out)
{
    size_t count = one->count;
    tutti_type type = one->type;
    tutti_reduction reduction = conf_reduction(one->column, tutti_rank(comm));
    switch (one->kind) {
    case TTI_ALL_REDUCE: return tutti_all_reduce(comm, in, out, count, type, reduction);
    case TTI_REDUCE: return tutti_reduce(comm, in, out, count, type, reduction, one->root);
    case TTI_BROADCAST: return tutti_broadcast(comm, in, out, count, type, one->root);
    case TTI_ALL_GATHER: return tutti_all_gather(comm, in, out, count, type);
    case TTI_GATHER: return tutti_gather(comm, in, out, count, type, one->root);
    case TTI_SCATTER: return tutti_scatter(comm, in, out, count, type, one->root);
    case TTI_REDUCE_SCATTER: return tutti_reduce_scatter(comm, in, out, count, type, reduction);
    case TTI_ALL_TO_ALL: return tutti_all_to_all(comm, in, out, count, type);
    case TTI_SCAN: return tutti_scan(comm, in, out, count, type, reduction);
    case TTI_EXSCAN: return tutti_exscan(comm, in, out, count, type, reduction);
    default: return TUTTI_ERR_UNSUPPORTED;
    }
}

tutti_status conf_call(tutti_comm *comm, const struct conf_case *one, const struct conf_layout *l, const void *in,
                       void *out)
{
    const size_t *in_offsets = l->in_given ? l->in_offsets : NULL, *out_offsets = l->out_given ? l->out_offsets : NULL;
    bool root = tutti_rank(comm) == one->root;
    switch (one->kind) {
    case TTI_ALL_GATHER_V: return tutti_all_gather_v(comm, in, out, l->out_counts, out_offsets, one->type);
    case TTI_GATHER_V:
        return tutti_gather_v(comm, in, l->in_count, out, root ? l->out_counts : NULL, root ? out_offsets : NULL,
                              one->type, one->root);
    case TTI_SCATTER_V:
        return tutti_scatter_v(comm, in, root ? l->in_counts : NULL, root ? in_offsets : NULL, out, l->out_count,
                               one->type, one->root);
    case TTI_REDUCE_SCATTER_V:
        return tutti_reduce_scatter_v(comm, in, out, l->in_counts, one->type,
                                      conf_reduction(one->column, tutti_rank(comm)));
    case TTI_ALL_TO_ALL_V:
        return tutti_all_to_all_v(comm, in, l->in_counts, in_offsets, out, l->out_counts, out_offsets, one->type);
    default: return call_equal(comm, one, in, out);
    }
}

static tutti_status call_messages(tutti_comm *comm, struct active *active)
{
    const struct conf_case *one = active->one;
    const struct conf_layout *l = &active->layout;
    int rank = tutti_rank(comm), tag = (int)(one->seed % 3);
    tutti_tuning tuning = conf_tuning_of(one->tuning);
    bool to_self_at_once = l->in_count * tutti_type_bytes(one->type) <= (size_t)tuning.eager;
    if (one->kind == TTI_SENDRECV || (l->to == rank && !to_self_at_once))
        return tutti_sendrecv(comm, active->in_pointer, l->in_count, l->to, tag, active->out_pointer, l->out_count,
                              l->from, tag, one->type, &active->received);
    tutti_status status = TUTTI_OK;
    for (int turn = 0; turn < 2 && status == TUTTI_OK; turn++) {
        if ((turn == 0) == (rank <= l->to))
            status = tutti_send(comm, active->in_pointer, l->in_count, one->type, l->to, tag);
        else
            status = tutti_recv(comm, active->out_pointer, l->out_count, one->type, l->from, tag, &active->received);
    }
    return status;
}

static tutti_status call_barrier(struct runner *runner)
{
    unsigned long least = ++runner->barriers * (unsigned long)runner->size;
    atomic_fetch_add_explicit(&conf_totals->arrivals, 1, memory_order_relaxed);
    tutti_status status = tutti_barrier(runner->comm);
    unsigned long arrived = atomic_load_explicit(&conf_totals->arrivals, memory_order_relaxed);
    CHECK_THAT(status != TUTTI_OK || arrived >= least, "rank %d of %d (%s): barrier %lu ended when %lu of %lu had come",
               runner->rank, runner->size, runner->list->label, runner->barriers, arrived, least);
    return status;
}

/* Which ways were taken, to be sure that all were. */
static void note_path(struct runner *runner, struct active *active)
{
    const struct tti_shape *shape = &runner->comm->op.shape;
    if (active->one->kind >= TTI_TUNING || shape->kind != active->one->kind) return;
    active->path = (int)shape->path;
    bool tree = shape->kind == TTI_BROADCAST && shape->path == TTI_BOUNCE && shape->size > 4 && shape->count > 0 &&
                tti_shape_bytes(shape) >= (uint64_t)shape->tuning->tree;
    atomic_fetch_add_explicit(&conf_totals->paths[shape->kind][tree ? 4 : active->path], 1, memory_order_relaxed);
}

static tutti_status call_on_stream(struct runner *runner, struct active *active)
{
    struct place *place = runner->place;
    tutti_stream *stream = place->streams[place->calls++ / 3 % 2];
    tutti_status status = conf_call(tutti_on(runner->comm, stream), active->one, &active->layout,
                                    on_device(runner, active->in_pointer), on_device(runner, active->out_pointer));
    return status;
}

static tutti_status call(struct runner *runner, struct active *active)
{
    enum tti_kind kind = active->one->kind;
    tutti_status status = kind == TTI_BARRIER                        ? call_barrier(runner)
                          : kind == TTI_SEND || kind == TTI_SENDRECV ? call_messages(runner->comm, active)
                          : runner->place != NULL                    ? call_on_stream(runner, active)
                                                  : conf_call(runner->comm, active->one, &active->layout,
                                                              active->in_pointer, active->out_pointer);
    if (status == TUTTI_OK) {
        note_path(runner, active);
        return status;
    }
    char text[256];
    const tutti_error *error = tutti_comm_error(runner->comm);
    CHECK_THAT(false, "%s: rank %d of %d (%s): %s: %s", names_of(active->one, text, sizeof text), runner->rank,
               runner->size, runner->list->label, tutti_status_name(status), error == NULL ? "" : error->text);
    return status;
}

/* ---- A list ---------------------------------------------------------------------------------------------------- */

static void verify(struct runner *runner, struct active *active)
{
    for (int i = 0; i < 2 && runner->place != NULL; i++)
        placed(runner, tutti_stream_sync(runner->place->streams[i], 60000, &runner->place->error));
    copy_stretch(runner, &active->in, true);
    copy_stretch(runner, &active->out, true);
    compare(runner, active, &active->in);
    compare(runner, active, &active->out);
    if (active->one->kind != TTI_SEND && active->one->kind != TTI_SENDRECV) return;
    CHECK_THAT(active->received == active->layout.block[0].count, "rank %d received %zu elements of %zu", runner->rank,
               active->received, active->layout.block[0].count);
}

/* Ranks are not to go in step. */
static void dawdle(const struct runner *runner, const struct conf_case *one)
{
    uint64_t hash = conf_hash(one->seed + 5, (uint64_t)runner->rank);
    for (uint64_t i = 0; hash % 8 == 0 && i < hash / 8 % 4; i++) sched_yield();
}

static bool set_tuning(struct runner *runner, enum conf_tuning tuning)
{
    if (tuning == runner->tuning) return true;
    tutti_tuning table = conf_tuning_of(tuning);
    runner->tuning = tuning;
    return CHECK_THAT(tutti_tuning_set(runner->comm, &table) == TUTTI_OK, "tuning_set failed");
}

static bool run_batch(struct runner *runner, const struct conf_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) prepare(runner, i, &cases[i]);
    for (size_t i = 0; i < count; i++) {
        dawdle(runner, &cases[i]);
        if (!set_tuning(runner, cases[i].tuning) || call(runner, &runner->active[i]) != TUTTI_OK) return false;
    }
    for (size_t i = 0; i < count; i++) verify(runner, &runner->active[i]);
    return true;
}

static bool allocate(struct runner *runner, size_t slots, size_t bytes)
{
    for (size_t slot = 0; slot < slots; slot++)
        for (int out = 0; out < 2; out++) {
            runner->memory[slot][0][out] = tutti_alloc(runner->comm, bytes);
            runner->memory[slot][1][out] = malloc(bytes);
            const tutti_error *error = tutti_comm_error(runner->comm);
            if (!CHECK_THAT(runner->memory[slot][0][out] != NULL, "tutti_alloc: %s", error == NULL ? "" : error->text))
                return false;
        }
    runner->want = malloc(bytes);
    return true;
}

void conf_list_run(tutti_comm *comm, void *context)
{
    struct conf_list *list = context;
    struct runner *runner = calloc(1, sizeof *runner);
    runner->comm = comm;
    runner->list = list;
    runner->rank = tutti_rank(comm);
    runner->size = tutti_size(comm);
    size_t slots = list->batch < 1 ? 1 : list->batch > BATCH_MOST ? BATCH_MOST : list->batch;
    size_t bytes = list->most_bytes + 2 * GUARD + 512;
    bool good = allocate(runner, slots, bytes) && open_place(runner, slots, bytes);
    for (size_t i = 0; i < list->count && good;) {
        size_t count = slots == 1 ? 1 : 1 + (size_t)(conf_hash(i, 31) % slots);
        if (count > list->count - i) count = list->count - i;
        good = run_batch(runner, &list->cases[i], count);
        i += count;
    }
    for (size_t slot = 0; slot < slots; slot++)
        for (int out = 0; out < 2; out++) {
            free(runner->memory[slot][1][out]);
            tutti_free(comm, runner->memory[slot][0][out]);
        }
    close_place(runner);
    free(runner->want);
    free(runner);
}
