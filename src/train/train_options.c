/* SPDX-License-Identifier: Apache-2.0 */
#include "train/train_options.h"

#include "base/status.h"

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

static void set_real(char *field, double real)
{
    memcpy(field, &real, sizeof real);
}

static void set_number(char *field, tutti_option_kind kind, int64_t number)
{
    bool truth = number != 0;
    if (kind == TUTTI_OPTION_BOOL)
        memcpy(field, &truth, sizeof truth);
    else
        memcpy(field, &number, sizeof number);
}

void tutti_train_options_init(tutti_train_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    for (size_t i = 0; i < tti_train_row_count; i++) {
        const struct tti_train_row *row = &tti_train_rows[i];
        char *field = (char *)options + row->offset;
        const char *text = row->row.initial;
        if (row->row.kind == TUTTI_OPTION_TEXT)
            memcpy(field, &text, sizeof text);
        else if (row->row.kind == TUTTI_OPTION_REAL)
            set_real(field, strtod(text, NULL));
        else
            set_number(field, row->row.kind, strtoll(text, NULL, 10));
    }
}

tutti_status tti_train_read(tutti_train_options *options, const struct tti_train_row *row, const char *text,
                            tutti_error *error)
{
    char *field = (char *)options + row->offset;
    int64_t number = 0;
    double real = 0;
    if (row->row.kind == TUTTI_OPTION_REAL) {
        TTI_TRY(tutti_option_parse_real(&row->row, text, &real, error));
        set_real(field, real);
    } else {
        TTI_TRY(tutti_option_parse(&row->row, text, &number, error));
        set_number(field, row->row.kind, number);
    }
    return TUTTI_OK;
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
    if (row->row.kind == TUTTI_OPTION_BOOL)
        value = *(const bool *)field;
    else
        memcpy(&value, field, sizeof value);
    (void)snprintf(text, TTI_TRAIN_TEXT, "%" PRId64, value);
    return text;
}
