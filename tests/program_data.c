/* SPDX-License-Identifier: Apache-2.0
 *
 * What random programs move. There are two tables of random numbers for each type, a small and a large one, the same for all
 * programs; every call takes its data from a place of its own in them, so that what was left by another call is seen. What is
 * longer than a table goes round in it.
 */
#include "check_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct conf_table tables[2][TUTTI_TYPE_COUNT];

const struct conf_table *program_table(const struct program_item *item)
{
    return &tables[item->large][item->one.type];
}

static struct conf_table *filled(const struct program_item *item)
{
    struct conf_table *table = &tables[item->large][item->one.type];
    size_t count = (item->large ? PROGRAM_LARGE : PROGRAM_SMALL) + PROGRAM_SHIFTS;
    if (table->size == 0) conf_table_fill(table, item->one.type, PROGRAM_RANKS, count, 77 + item->large, CONF_NEAR);
    return table;
}

void program_data_prepare(const struct program *program)
{
    for (int i = 0; i < program->item_count; i++) {
        const struct program_item *item = &program->items[i];
        const struct program_family *family = &program->families[item->family];
        struct conf_table *table = filled(item);
        bool prefixes = item->one.kind == TTI_SCAN || item->one.kind == TTI_EXSCAN;
        if (item->content > CONTENT_MANY || !conf_kind_reduces(item->one.kind)) continue;
        for (int rank = 0; rank < program->size; rank++)
            for (int last = prefixes ? 0 : family->size[rank] - 1; last < family->size[rank]; last++)
                if (last >= 0) conf_table_reduce(table, item->one.column, last);
    }
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

enum how { SHARED, HEAP, HEAP_TIGHT, PAGES, HOWS, DEVICE };
enum { GUARD = 64 };

static bool is_private(const struct program_piece *piece, bool out)
{
    switch (piece->one.memory) {
    case CONF_PRIVATE: return true;
    case CONF_MIXED: return piece->rank % 2 == 1;
    case CONF_SPLIT: return out;
    default: return false;
    }
}

/* PAGES: what follows cannot be read. HEAP_TIGHT: nor there, where the address sanitizer looks. */
static bool allocate(struct program_region *region, tutti_comm *world, tutti_device *device)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    region->base_bytes = region->bytes + 1;
    if (region->how == DEVICE) {
        tutti_memory kind = region->bytes % 2 == 0 ? TUTTI_MEMORY_LOCAL : TUTTI_MEMORY_SHARED;
        if (tutti_buffer_create(device, kind, TUTTI_U8, region->base_bytes, &region->buffer, NULL) != TUTTI_OK)
            return false;
        region->base = tutti_buffer_at(region->buffer, 0, region->base_bytes);
    } else if (region->how == SHARED) {
        region->base = tutti_alloc(world, region->base_bytes);
    } else if (region->how == PAGES) {
        region->base_bytes = (region->bytes + page - 1) / page * page + page;
        region->base = mmap(NULL, region->base_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (region->base == MAP_FAILED) region->base = NULL;
    } else {
        if (region->how == HEAP_TIGHT && region->bytes > 0) region->base_bytes = region->bytes;
        region->base = malloc(region->base_bytes);
    }
    region->memory = region->base;
    if (region->base == NULL || region->how != PAGES) return region->base != NULL;
    region->memory = (unsigned char *)region->base + region->base_bytes - page - region->bytes;
    return mprotect((char *)region->base + region->base_bytes - page, page, PROT_NONE) == 0;
}

static void release(struct program_region *region, tutti_comm *world)
{
    if (region->base == NULL) return;
    if (region->how == DEVICE)
        tutti_buffer_free(region->buffer, NULL);
    else if (region->how == SHARED)
        tutti_free(world, region->base);
    else if (region->how == PAGES)
        munmap(region->base, region->base_bytes);
    else
        free(region->base);
    region->base = NULL;
}

static bool goes_in_place(const struct program_piece *piece)
{
    if (piece->layout.inside == CONF_APART) return false;
    /* all_to_all: on all ranks or on none */
    if (piece->one.place == CONF_IN_PLACE_ODD) return piece->one.kind != TTI_ALL_TO_ALL && piece->rank % 2 == 1;
    return piece->one.place == CONF_IN_PLACE;
}

static struct program_region region_of(const struct program_piece *piece, bool out, uint64_t seed)
{
    size_t element = tutti_type_bytes(piece->one.type);
    size_t count = out ? piece->layout.out_count : piece->layout.in_count;
    size_t before = (GUARD / 8 + (size_t)program_pick(seed, 11, 40)) * element;
    struct program_region region = {.in_at = before, .out_at = before, .has_in = !out, .has_out = out};
    region.how = is_private(piece, out) ? 1 + program_pick(seed, 12 + out, HOWS - 1) : SHARED;
    if (piece->device != NULL) region.how = DEVICE;
    region.bytes = before + count * element + (region.how == SHARED || region.how == HEAP ? GUARD : 0);
    return region;
}

bool program_piece_place(struct program_piece *piece, tutti_comm *world, uint64_t seed)
{
    const struct conf_layout *layout = &piece->layout;
    size_t element = tutti_type_bytes(piece->one.type), own = layout->own * element;
    struct program_region *in = &piece->in, *out = &piece->out;
    *in = region_of(piece, false, seed);
    *out = region_of(piece, true, seed);
    piece->pattern = (unsigned char)(0xa0 + seed % 64);
    if (goes_in_place(piece)) {
        if (layout->inside == CONF_IN_INSIDE) out->in_at += own;
        if (layout->inside == CONF_OUT_INSIDE) out->out_at += own;
        if (layout->in_count > layout->out_count) out->bytes += (layout->in_count - layout->out_count) * element;
        out->has_in = true;
        *in = (struct program_region){.how = HEAP};
    }
    if (!allocate(in, world, piece->device) || !allocate(out, world, piece->device)) return false;
    piece->in_pointer = out->has_in ? out->memory + out->in_at : in->memory + in->in_at;
    piece->out_pointer = out->memory + out->out_at;
    /* what is not used may be missing */
    if ((!layout->in_used || layout->in_count == 0) && seed >> 32 & 1 && !out->has_in) piece->in_pointer = NULL;
    if ((!layout->out_used || layout->out_count == 0) && seed >> 33 & 1 && !out->has_in) piece->out_pointer = NULL;
    return true;
}

void program_piece_free(struct program_piece *piece, tutti_comm *world)
{
    release(&piece->in, world);
    release(&piece->out, world);
}

/* ---- What memory holds before and after -------------------------------------------------------------------------- */

static void copy_round(unsigned char *target, const struct conf_table *table, const unsigned char *row, size_t first,
                       size_t count)
{
    size_t element = tutti_type_bytes(table->type);
    while (count > 0) {
        size_t at = first % table->count, now = count < table->count - at ? count : table->count - at;
        memcpy(target, row + at * element, now * element);
        target += now * element;
        first += now;
        count -= now;
    }
}

static void write_image(const struct program_piece *piece, const struct program_region *region, bool after,
                        unsigned char *image)
{
    const struct conf_layout *layout = &piece->layout;
    size_t element = tutti_type_bytes(piece->one.type);
    if (region->bytes > 0) memset(image, piece->pattern, region->bytes);
    if (region->has_in && layout->in_used)
        copy_round(image + region->in_at, piece->table, piece->table->in[piece->rank], piece->shift, layout->in_count);
    for (int i = 0; i < layout->blocks && after && region->has_out; i++) {
        const struct conf_block *block = &layout->block[i];
        const unsigned char *source = block->from < 0 ? piece->table->reduced[piece->one.column][block->last]
                                                      : piece->table->in[block->from];
        copy_round(image + region->out_at + block->target * element, piece->table, source, block->source + piece->shift,
                   block->count);
    }
}

void program_piece_fill(struct program_piece *piece, size_t shift)
{
    piece->shift = shift;
    write_image(piece, &piece->in, false, piece->in.memory);
    write_image(piece, &piece->out, false, piece->out.memory);
}

static bool is_right(const struct program_piece *piece, const struct program_region *region, char *text, size_t bytes)
{
    unsigned char *want = malloc(region->bytes + 1);
    size_t at = 0, wrong = 0, begin = region->has_out ? region->out_at : region->in_at;
    write_image(piece, region, true, want);
    bool right = region->bytes == 0 || memcmp(region->memory, want, region->bytes) == 0;
    for (size_t i = region->bytes; i-- > 0 && !right;)
        if (region->memory[i] != want[i]) at = i, wrong++;
    if (!right)
        snprintf(text, bytes, "byte %ld of the %s is %02x, not %02x; %zu bytes of %zu wrong", (long)at - (long)begin,
                 region->has_out ? "output" : "input", region->memory[at], want[at], wrong, region->bytes);
    free(want);
    return right;
}

bool program_piece_check(const struct program_piece *piece, char *text, size_t bytes)
{
    return is_right(piece, &piece->in, text, bytes) && is_right(piece, &piece->out, text, bytes);
}
