/* SPDX-License-Identifier: Apache-2.0
 *
 * One pass of a model that ranks share by its width, and comparing it with that of one rank.
 */
#ifndef TUTTI_TESTS_WIDTH_PASS_H
#define TUTTI_TESTS_WIDTH_PASS_H

#include <stdbool.h>
#include <tutti/train.h>

enum { WIDTH_SAMPLES = 5, WIDTH_GRAINS = 3 };

struct width_shape {
    const char *name;
    tutti_gpt gpt; /* heads 0: an MLP of these */
    tutti_mlp mlp;
    int width_grains;
    bool whole_numbers; /* then all sums are exact */
    bool fast, split, recompute;
};

/* A model, its values and its gradients in their global shapes, and the losses of its grains. */
struct width_result {
    tutti_model *model;
    float **values, **gradients; /* by tensor */
    tutti_loss losses[WIDTH_GRAINS];
    uint64_t operations, rows; /* rows: a hash of all rows that are whole */
};

/* A splitmix64 sequence. */
uint64_t width_next(uint64_t *state);

size_t width_count(const tutti_tensor *tensor); /* elements of the whole tensor */
void width_free(struct width_result *result);
/* Checks a status, and says what the model's error is. */
bool width_good(const tutti_model *model, tutti_status status);
/* Forward and backward, with losses, and how often ranks have met. */
bool width_run_pass(const struct width_shape *shape, int threads, struct width_result *result);
/* Values and gradients in their global shapes; of what is not here, those of `base` (NULL: 0). */
void width_collect(struct width_result *result, const struct width_result *base);
void width_compare_bits(const struct width_shape *shape, const struct width_result *a, const struct width_result *b,
                        const char *with);
/* But for rounding. */
void width_compare_nearly(const struct width_shape *shape, const struct width_result *a, const struct width_result *b);

#endif
