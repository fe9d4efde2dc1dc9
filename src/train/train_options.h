/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of training as rows.
 */
#ifndef TTI_TRAIN_TRAIN_OPTIONS_H
#define TTI_TRAIN_TRAIN_OPTIONS_H

#include <tutti/experimental.h>
#include <tutti/train.h>

struct tti_train_row {
    tutti_option_row row;
    size_t offset; /* the offset in tutti_train_options */
};

extern const struct tti_train_row tti_train_rows[];
extern const size_t tti_train_row_count;

/* Writes the value as text that is read back as the same value. */
enum { TTI_TRAIN_TEXT = 40 };
const char *tti_train_text(const tutti_train_options *options, const struct tti_train_row *row,
                           char text[TTI_TRAIN_TEXT]);

/* Sets the field of this row, a number or a truth value, from `text`. */
tutti_status tti_train_read(tutti_train_options *options, const struct tti_train_row *row, const char *text,
                            tutti_error *error);

#endif
