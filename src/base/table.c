/* SPDX-License-Identifier: Apache-2.0 */
#include "base/table.h"

#include "base/alloc.h"
#include <stdint.h>

enum { ROOM_FIRST = 16 }; /* a power of two */

/* Returns the place of the number, or the free place where it would be. */
static size_t place_of(const struct tti_table *table, int number)
{
    size_t mask = table->room - 1, place = (size_t)((uint32_t)number * UINT32_C(0x9e3779b1) >> 7) & mask;
    while (table->numbers[place] != 0 && table->numbers[place] != number + 1) place = (place + 1) & mask;
    return place;
}

void *tti_table_find(const struct tti_table *table, int number)
{
    return table->values[place_of(table, number)];
}

static bool make_room(struct tti_table *table, size_t room, bool hashed)
{
    struct tti_table made = {.size = table->size, .room = room, .used = table->used};
    made.values = tti_calloc(room, sizeof *made.values);
    made.numbers = hashed ? tti_calloc(room, sizeof *made.numbers) : NULL;
    if (made.values == NULL || (hashed && made.numbers == NULL)) {
        tti_table_free(&made);
        return false;
    }
    for (size_t i = 0; i < table->room; i++) {
        if (table->numbers[i] == 0) continue;
        size_t place = place_of(&made, table->numbers[i] - 1);
        made.numbers[place] = table->numbers[i];
        made.values[place] = table->values[i];
    }
    tti_table_free(table);
    *table = made;
    return true;
}

static bool is_hashed(const struct tti_table *table)
{
    return table->size > TTI_TABLE_DIRECT;
}

bool tti_table_prepare(struct tti_table *table)
{
    bool hashed = is_hashed(table);
    return table->room != 0 || make_room(table, hashed ? ROOM_FIRST : (size_t)table->size, hashed);
}

bool tti_table_set(struct tti_table *table, int number, void *value)
{
    if (value == NULL && tti_table_get(table, number) == NULL) return true;
    if (!tti_table_prepare(table)) return false;
    if (!is_hashed(table)) {
        table->values[number] = value;
        return true;
    }
    size_t place = place_of(table, number);
    if (table->numbers[place] == 0) {
        if ((table->used + 1) * 4 > table->room * 3) {
            if (!make_room(table, table->room * 2, true)) return false;
            place = place_of(table, number);
        }
        table->numbers[place] = number + 1;
        table->used++;
    }
    table->values[place] = value;
    return true;
}

size_t tti_table_next(const struct tti_table *table, size_t place)
{
    while (place < table->room && table->values[place] == NULL) place++;
    return place;
}

void tti_table_free(struct tti_table *table)
{
    tti_free(table->values);
    tti_free(table->numbers);
    *table = (struct tti_table){.size = table->size};
}
