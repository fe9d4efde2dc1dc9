/* SPDX-License-Identifier: Apache-2.0
 *
 * A serial reference for reductions, written from docs/reductions.md alone: small floats are decoded by arithmetic and
 * encoded by search, the tree is followed by recursion, one element at a time.
 */
#ifndef TESTS_CONFORMANCE_REFERENCE_H
#define TESTS_CONFORMANCE_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

enum { CONF_RANKS_MOST = 17 };

/* Reductions as columns: the built-in ones by their own numbers, then a scaled sum and a registered function. */
enum { CONF_SCALED = TUTTI_REDUCTION_COUNT, CONF_USER, CONF_COLUMNS };

/* Counter-based random numbers: the same on every rank. */
uint64_t conf_hash(uint64_t a, uint64_t b);

/* Once, before any world: registers the reductions. */
void conf_reference_prepare(void);
bool conf_defined(tutti_type type, int column);
tutti_reduction conf_reduction(int column, int rank);
const char *conf_column_name(int column);

/* What `size` ranks contribute, and what reductions of it are: element i of a rank's input is in[rank][i]. */
struct conf_table {
    tutti_type type;
    int size;
    size_t count;
    unsigned char *in[CONF_RANKS_MOST];                    /* count elements each */
    unsigned char *reduced[CONF_COLUMNS][CONF_RANKS_MOST]; /* [column][last]: over ranks 0..last; NULL: not asked */
};

enum conf_values {
    CONF_NEAR, /* floats of about one size */
    CONF_WIDE, /* floats of very different exponents, where every order of additions gives other bits; not for products */
    CONF_WHOLE, /* floats that are small whole numbers: sums and products of up to eight ranks are exact in any order */
};
void conf_table_fill(struct conf_table *table, tutti_type type, int size, size_t count, uint64_t seed,
                     enum conf_values values);
/* Computes reduced[column][last] unless it is there. */
void conf_table_reduce(struct conf_table *table, int column, int last);
void conf_table_free(struct conf_table *table);

#endif
