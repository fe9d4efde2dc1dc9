/* SPDX-License-Identifier: Apache-2.0
 *
 * Pointers by a number below `size`, for tables in which few of many numbers may be present: what one rank keeps about
 * each of the others. If `size` is small, the number is the place; otherwise places are found by a hash of the number,
 * so that the order of a walk through the table is the same in every run.
 */
#ifndef TTI_BASE_TABLE_H
#define TTI_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum { TTI_TABLE_DIRECT = 128 }; /* up to this size each number has its own place */

struct tti_table {
    int size;
    size_t room, used; /* places, and those in use; no memory is taken before the first */
    void **values;     /* (room) NULL: the place is empty */
    int *numbers;      /* (room) the number of each place + 1, or 0; NULL: each number has its own place */
};

#define TTI_TABLE(of) ((struct tti_table){.size = (of)})

void *tti_table_find(const struct tti_table *table, int number);

static inline void *tti_table_get(const struct tti_table *table, int number)
{
    if (table->numbers != NULL) return tti_table_find(table, number);
    return table->values == NULL ? NULL : table->values[number];
}

/* Sets a value; NULL removes the present one. Returns false if there is no memory; then nothing has changed. */
bool tti_table_set(struct tti_table *table, int number, void *value);

/* Takes memory before the first value comes; up to TTI_TABLE_DIRECT numbers, setting one cannot fail after it. Returns false if
 * there is no memory. */
bool tti_table_prepare(struct tti_table *table);

/* For walks: returns the next place in use from this one on, or `room`; tti_table_number returns its number. */
size_t tti_table_next(const struct tti_table *table, size_t place);
static inline int tti_table_number(const struct tti_table *table, size_t place)
{
    return table->numbers == NULL ? (int)place : table->numbers[place] - 1;
}
#define TTI_TABLE_EACH(place, table)                                                                                   \
    for (size_t place = tti_table_next(table, 0); place < (table)->room; place = tti_table_next(table, place + 1))

void tti_table_free(struct tti_table *table); /* frees the table, not its values */

#endif
