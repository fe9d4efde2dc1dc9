/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Tables of pointers by number, few and many, against a plain array; and memory that runs out.
 */
#include "base/alloc.h"
#include "base/table.h"
#include "check.h"

#include <stdint.h>

enum { MOST = 70000 };

static char things[MOST];
static void *wanted[MOST];

static uint32_t random_below(uint32_t bound)
{
    static uint64_t state = 7;
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(state >> 33) % bound;
}

/* What is gone through is what is there, each once. */
static void check_all(const struct tti_table *table)
{
    int found = 0, there = 0;
    TTI_TABLE_EACH(place, table)
    {
        found++;
        CHECK(wanted[tti_table_number(table, place)] == table->values[place]);
    }
    for (int number = 0; number < table->size; number++) {
        there += wanted[number] != NULL;
        if (tti_table_get(table, number) != wanted[number]) CHECK_THAT(false, "number %d of %d", number, table->size);
    }
    CHECK(found == there);
}

/* Many numbers that are near each other or powers of two apart, as peers are, put in and taken out. */
static void check_table(int size, int changes)
{
    struct tti_table table = TTI_TABLE(size);
    CHECK(tti_table_get(&table, size - 1) == NULL && tti_table_next(&table, 0) == 0 && table.room == 0);
    for (int i = 0; i < changes; i++) {
        uint32_t any = random_below((uint32_t)size), power = (1u << random_below(17)) % (uint32_t)size;
        int number = (int)(i % 3 == 0 ? any : power);
        wanted[number] = random_below(4) == 0 ? NULL : &things[random_below(MOST)];
        CHECK(tti_table_set(&table, number, wanted[number]));
    }
    check_all(&table);
    if (changes < 100) CHECK(size <= TTI_TABLE_DIRECT || table.room <= 128);
    tti_table_free(&table);
    CHECK(table.room == 0 && tti_table_get(&table, 0) == NULL);
    for (int number = 0; number < size; number++) wanted[number] = NULL;
}

/* What could not be put in has changed nothing. */
static void check_memory(int size)
{
    struct tti_table table = TTI_TABLE(size);
    int refused = 0;
    for (int number = 0; number < 100; number++) {
        for (long allowed = 0;; allowed++) {
            tti_alloc_fail_after(allowed);
            bool set = tti_table_set(&table, number, &things[number]);
            tti_alloc_fail_after(-1);
            if (set) break;
            refused++;
            check_all(&table);
        }
        wanted[number] = &things[number];
    }
    check_all(&table);
    CHECK(refused > 0);
    tti_table_free(&table);
    for (int number = 0; number < 100; number++) wanted[number] = NULL;
}

int main(void)
{
    static const int sizes[] = {1, 2, 5, TTI_TABLE_DIRECT, TTI_TABLE_DIRECT + 1, 1000, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_table(sizes[i], 20);
        check_table(sizes[i], 5000);
        check_table(sizes[i], 3 * sizes[i]);
    }
    check_memory(100);
    check_memory(1000);
    return check_end();
}
