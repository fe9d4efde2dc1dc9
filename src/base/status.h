/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills in a tutti_error: the sentence is written once, where the error is decided.
 */
#ifndef TTI_BASE_STATUS_H
#define TTI_BASE_STATUS_H

#include <tutti/tutti.h>

/* Sets status, errno and the sentence (errno's text is appended when not 0); leaves rank, peer, sequence and operation
 * as they are. Returns `status`, so that `return tti_error_set(…)` reads well. */
tutti_status tti_error_set(tutti_error *error, tutti_status status, int system_errno, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define TTI_TRY(call)                                                                                                  \
    do {                                                                                                               \
        tutti_status tti_try_status = (call);                                                                          \
        if (tti_try_status != TUTTI_OK) return tti_try_status;                                                         \
    } while (0)

#endif
