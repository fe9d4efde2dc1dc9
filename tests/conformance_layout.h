/* SPDX-License-Identifier: Apache-2.0
 *
 * What one rank passes to the call of a case, and what must come out of it: pure arithmetic. Element p of rank r's input
 * is table->in[r][p]; outputs are blocks of inputs or of reductions.
 */
#ifndef TESTS_CONFORMANCE_LAYOUT_H
#define TESTS_CONFORMANCE_LAYOUT_H

#include "conformance.h"

struct conf_block {
    size_t target, source, count; /* elements; where in the output, and of which elements of the inputs */
    int from;                     /* rank, or -1: reduced over ranks 0..last */
    int last;
};

enum conf_inside { CONF_APART, CONF_SAME, CONF_IN_INSIDE, CONF_OUT_INSIDE };

struct conf_layout {
    bool in_used, out_used;
    size_t in_count, out_count; /* elements that the buffers span */
    enum conf_inside inside;    /* how buffers lie in place; CONF_APART: this rank cannot */
    size_t own;                 /* where the rank's own block begins, for that */
    bool in_given, out_given;   /* v-forms: offsets are passed */
    size_t in_counts[CONF_RANKS_MOST], in_offsets[CONF_RANKS_MOST];
    size_t out_counts[CONF_RANKS_MOST], out_offsets[CONF_RANKS_MOST];
    int to, from; /* of messages */
    int blocks;
    struct conf_block block[CONF_RANKS_MOST];
};

void conf_layout_of(const struct conf_case *one, int size, int rank, struct conf_layout *layout);
/* The collective itself, as a blocking call; none of barrier and messages. */
tutti_status conf_call(tutti_comm *comm, const struct conf_case *one, const struct conf_layout *l, const void *in,
                       void *out);

#endif
