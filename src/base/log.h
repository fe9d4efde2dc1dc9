/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTI_BASE_LOG_H
#define TTI_BASE_LOG_H

#include <stdbool.h>
#include <tutti/tutti.h>

void tti_log(tutti_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

enum { TTI_LOG_LEVELS = 5 };
extern const char *const tti_log_level_names[TTI_LOG_LEVELS]; /* by tutti_log_level */

/* Sets the level by its name; returns false for any other word. */
bool tti_log_set_level_name(const char *name);

#endif
