/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that the library makes itself, inside others: errors and traces tell them from the caller's own.
 */
#ifndef TTI_COLLECTIVE_INSIDE_H
#define TTI_COLLECTIVE_INSIDE_H

#include "collective/plan/kind.h"
#include <tutti/tutti.h>

/* Where the user's call is that the library's own ones are a part of: said about each of them. */
struct tti_here {
    const char *file; /* as __FILE__ */
    int line;         /* 0: not known */
};
struct tti_here tti_here(const tutti_comm *comm); /* as was said about the next call */

/* In place of tutti_named. `who`: what the call is a part of, "ddp"; `what`: what it is for; NULL or "": no more is said. */
tutti_comm *tti_inside(tutti_comm *comm, const char *who, const char *what);

/* Breaks the comm for all ranks, since this one cannot go on as the others expect it to. `operation`: which call finds it.
 * Returns `status`, or that of the error that has broken the comm before. */
tutti_status tti_inside_break(tutti_comm *comm, enum tti_kind operation, tutti_status status, const char *text);

/* The first process of the job that is on this rank's host. */
int tti_host_of(const tutti_comm *comm);

#endif
