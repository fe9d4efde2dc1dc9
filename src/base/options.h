/* SPDX-License-Identifier: Apache-2.0
 *
 * Options and switch-over sizes inside the library; the public half is in tutti.h and experimental.h.
 */
#ifndef TTI_BASE_OPTIONS_H
#define TTI_BASE_OPTIONS_H

#include <stddef.h>

#include <tutti/experimental.h>

/* Fills in the defaults of TUTTI_TUNING_LIST. ERR_ARGUMENT for NULL. */
tutti_status tti_tuning_defaults(tutti_tuning *tuning);

/* Reads lines "name value" ('#' starts a comment) over the values in `tuning`; names that the file does not give stay
 * as they are. ERR_OPTION names the file and line, and `tuning` is unchanged then. */
tutti_status tti_tuning_read(const char *path, tutti_tuning *tuning, tutti_error *error);

/* Sets the defaults, and over them the file that the option tuning names; "": none. */
tutti_status tti_tuning_load(const char *path, tutti_tuning *tuning, tutti_error *error);

/* Returns OK if `value` is one of the words; else ERR_OPTION, with a sentence that lists them and names the nearest. */
tutti_status tti_option_word(const char *name, const char *value, const char *const *words, size_t count,
                             tutti_error *error);

#endif
