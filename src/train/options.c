/* SPDX-License-Identifier: Apache-2.0 */
#include "train/options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const struct tti_train_row tti_train_rows[] = {
#define ROW(name, kind, initial, low, high, help)                                                                      \
    {{#name, TUTTI_OPTION_##kind, initial, low, high, help}, offsetof(tutti_train_options, name)},
    TUTTI_TRAIN_LIST(ROW)
#undef ROW
};
const size_t tti_train_row_count = sizeof tti_train_rows / sizeof tti_train_rows[0];

void tutti_train_options_init(tutti_train_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    for (size_t i = 0; i < tti_train_row_count; i++) {
        const struct tti_train_row *row = &tti_train_rows[i];
        char *field = (char *)options + row->offset;
        int64_t number = strtoll(row->row.initial, NULL, 10);
        double real = strtod(row->row.initial, NULL);
        const char *text = row->row.initial;
        if (row->row.kind == TUTTI_OPTION_TEXT)
            memcpy(field, &text, sizeof text);
        else if (row->row.kind == TUTTI_OPTION_REAL)
            memcpy(field, &real, sizeof real);
        else
            memcpy(field, &number, sizeof number);
    }
}

const char *tti_train_text(const tutti_train_options *options, const struct tti_train_row *row,
                           char text[TTI_TRAIN_TEXT])
{
    const char *field = (const char *)options + row->offset;
    if (row->row.kind == TUTTI_OPTION_TEXT) {
        const char *value;
        memcpy(&value, field, sizeof value);
        return value;
    }
    if (row->row.kind == TUTTI_OPTION_REAL) {
        double value;
        memcpy(&value, field, sizeof value);
        (void)snprintf(text, TTI_TRAIN_TEXT, "%.17g", value);
        return text;
    }
    int64_t value;
    memcpy(&value, field, sizeof value);
    (void)snprintf(text, TTI_TRAIN_TEXT, "%" PRId64, value);
    return text;
}
