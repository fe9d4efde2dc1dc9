/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of the memory that a comm's ranks share.
 */
#include "base/alloc.h"
#include "base/round.h"
#include "collective/peers/posts.h"
#include <unistd.h>

enum { BOUNCE_BYTES = 1 << 20, BOUNCE_BYTES_CROWD = 1 << 18, CROWD = 128, FEW = 8, PAGE_BYTES = 4096 };

static size_t bounce_bytes(int size, bool small)
{
    size_t least = (size_t)size * 2 * 64; /* two halves, a line for every receiver */
    size_t usual = size <= CROWD && !small ? BOUNCE_BYTES : BOUNCE_BYTES_CROWD;
    return usual < least ? tti_round_up(least, PAGE_BYTES) : usual;
}

struct layout {
    size_t posts, slots, stages, calls, tables, channels, bounce, end;
};

/* Returns the largest window that there is room for: 2 MiB for each rank if it is 256. */
static size_t window_most(int size, bool small)
{
    return size <= FEW && !small ? TTI_WINDOW_CROWDED : TTI_WINDOW;
}

static size_t slot_room(size_t window)
{
    return window > TTI_WINDOW ? TTI_STAGE_ROOM : TTI_SLOT_ROOM;
}

static size_t slot_stride(size_t window)
{
    return sizeof(struct tti_slot) + slot_room(window);
}

static struct layout layout_of(int size, bool bounce, bool small)
{
    size_t n = (size_t)size, window = window_most(size, small);
    struct layout layout;
    layout.posts = tti_whole_lines(sizeof(struct tti_area));
    layout.slots = layout.posts + n * sizeof(struct tti_post);
    layout.stages = layout.slots + n * window * slot_stride(window);
    layout.calls = layout.stages + n * TTI_STAGES_BYTES;
    layout.tables = layout.calls + tti_whole_lines(n * window * sizeof(struct tti_call));
    layout.channels = layout.tables + tti_whole_lines(n * TTI_GIVEN * n * sizeof(uint64_t));
    layout.bounce = tti_round_up(layout.channels + n * n * sizeof(uint64_t), PAGE_BYTES);
    layout.end = layout.bounce + (bounce ? n * bounce_bytes(size, small) : 0);
    return layout;
}

size_t tti_posts_bytes(int size, bool bounce)
{
    return layout_of(size, bounce, false).end;
}

size_t tti_posts_bytes_small(int size, bool bounce)
{
    return layout_of(size, bounce, true).end;
}

bool tti_posts_create(tutti_comm *comm, void *area, size_t bytes)
{
    struct tti_posts *memory = comm->memory = tti_calloc(1, sizeof *memory);
    bool small = comm->members != NULL;
    struct layout layout = layout_of(comm->size, false, small);
    bool bounce = bytes > layout.end;
    char *base = area;
    comm->area = area;
    if (memory == NULL) return false;
    memory->area = area;
    memory->given = small;
    memory->one_process = comm->traits.all_threads;
    memory->count = comm->size;
    memory->place = comm->rank;
    memory->bytes = bytes;
    memory->posts = (struct tti_post *)(base + layout.posts);
    memory->slots = base + layout.slots;
    memory->stages = base + layout.stages;
    memory->calls = (struct tti_call *)(base + layout.calls);
    memory->window = comm->world->segment->crowded ? window_most(comm->size, small) : TTI_WINDOW;
    memory->slot_stride = slot_stride(memory->window);
    memory->slot_room = slot_room(memory->window);
    memory->tables = (uint64_t *)(base + layout.tables);
    memory->channels = (_Atomic uint64_t *)(base + layout.channels);
    memory->bounce = bounce ? base + layout.bounce : NULL;
    memory->bounce_bytes = bounce ? bounce_bytes(comm->size, small) : 0;
    memory->posts[comm->rank].pid = (int32_t)getpid();
    memory->shown = tti_calloc(memory->window, sizeof *memory->shown);
    return memory->shown != NULL;
}

void tti_posts_free(tutti_comm *comm)
{
    struct tti_posts *memory = comm->memory;
    if (memory == NULL) return;
    if (memory->own_hosts != NULL) tti_hosts_free(memory->own_hosts);
    tti_free(memory->own_hosts);
    tti_free(memory->shown);
    tti_free(memory);
    comm->memory = NULL;
}
