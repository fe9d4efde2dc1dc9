/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <tutti/experimental.h>

static const struct row {
    tutti_status status;
    const char *name, *group, *text;
} rows[] = {
#define ROW(name, value, group, text) {TUTTI_##name, "TUTTI_" #name, group, text},
    TUTTI_STATUS_LIST(ROW)
#undef ROW
};

static const struct row *row_of(tutti_status status)
{
    static const struct row unknown = {TUTTI_ERR_ARGUMENT, "TUTTI_UNKNOWN", "argument", "not a status of this library"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].status == status) return &rows[i];
    return &unknown;
}

const char *tutti_status_name(tutti_status status)
{
    return row_of(status)->name;
}

const char *tutti_status_text(tutti_status status)
{
    return row_of(status)->text;
}

const char *tutti_status_group(tutti_status status)
{
    return row_of(status)->group;
}

tutti_status tti_error_set(tutti_error *error, tutti_status status, int system_errno, const char *format, ...)
{
    if (error == NULL) return status; /* the caller wants no error */
    error->status = status;
    error->system_errno = system_errno;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    if (system_errno != 0 && length >= 0 && (size_t)length < sizeof error->text)
        snprintf(error->text + length, sizeof error->text - (size_t)length, " (%s)", strerror(system_errno));
    tutti_text_printable(error->text); /* the text may quote a peer or a file */
    return status;
}
