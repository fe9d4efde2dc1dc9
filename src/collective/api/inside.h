/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that the library makes itself, inside others. Errors and traces tell them apart from the caller's own.
 */
#ifndef TTI_COLLECTIVE_INSIDE_H
#define TTI_COLLECTIVE_INSIDE_H

#include "collective/plan/kind.h"
#include <tutti/tutti.h>

/* The place of the user's call, of which the library's own calls are a part: each of them is marked with it. */
struct tti_here {
    const char *file; /* like __FILE__ */
    int line;         /* 0: not known */
};
struct tti_here tti_here(const tutti_comm *comm); /* the place that was set for the next call */

/* Replaces tutti_named for such calls. `who`: the part of the library that calls, "ddp"; `what`: the purpose of the
 * call; NULL or "": none is given. */
tutti_comm *tti_inside(tutti_comm *comm, const char *who, const char *what);

/* Breaks the comm for all ranks, since this one cannot go on as the others expect it to. `operation`: the call that
 * found this. Returns `status`, or that of the error that has broken the comm before. */
tutti_status tti_inside_break(tutti_comm *comm, enum tti_kind operation, tutti_status status, const char *text);

/* Returns the first process of the job that is on this rank's host. */
int tti_host_of(const tutti_comm *comm);

#endif
