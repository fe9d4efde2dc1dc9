/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that the library makes itself, inside others: errors and traces tell them from the caller's own.
 */
#ifndef TTI_COLLECTIVE_INSIDE_H
#define TTI_COLLECTIVE_INSIDE_H

#include <tutti/tutti.h>

/* In place of tutti_named. `who`: what the call is a part of, "ddp"; `what`: what it is for; NULL or "": no more is said. */
tutti_comm *tti_inside(tutti_comm *comm, const char *who, const char *what);

#endif
