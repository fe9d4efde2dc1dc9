/* SPDX-License-Identifier: Apache-2.0 */
#include "base/latest.h"

#include "base/alloc.h"
#include "base/wait.h"
#include <stdarg.h>
#include <stdio.h>

struct tti_latest {
    atomic_int users;
    atomic_bool failed;
    _Atomic uint32_t lock;
    uint64_t number; /* the error's number among all of the process; 0: there is none */
    struct tti_told told;
};

static struct tti_latest of_process;
static _Atomic uint64_t noted; /* how many errors were noted so far */

struct tti_latest *tti_latest_join(struct tti_latest *latest)
{
    if (latest == NULL) latest = tti_calloc(1, sizeof *latest);
    if (latest != NULL) atomic_fetch_add_explicit(&latest->users, 1, memory_order_relaxed);
    return latest;
}

void tti_latest_part(struct tti_latest *latest)
{
    if (latest != NULL && atomic_fetch_sub_explicit(&latest->users, 1, memory_order_acq_rel) == 1) tti_free(latest);
}

void tti_latest_forked(void)
{
    tti_unlock(&of_process.lock);
}

void tti_latest_note(struct tti_latest *latest, const struct tti_told *told)
{
    uint64_t number = atomic_fetch_add_explicit(&noted, 1, memory_order_relaxed) + 1;
    if (latest == NULL) latest = &of_process;
    tti_lock(&latest->lock);
    if (number > latest->number) {
        latest->number = number;
        latest->told = *told;
    }
    tti_unlock(&latest->lock);
}

tutti_status tti_latest_stray(const char *operation, tutti_status status, const char *format, ...)
{
    struct tti_told told = {.error = {.status = status, .rank = -1, .peer = -1}};
    snprintf(told.error.operation, sizeof told.error.operation, "%s", operation);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(told.error.text, sizeof told.error.text, format, arguments);
    va_end(arguments);
    tti_latest_note(NULL, &told);
    return status;
}

void tti_latest_fail(struct tti_latest *latest)
{
    atomic_store_explicit(&latest->failed, true, memory_order_relaxed);
}

bool tti_latest_failed(const struct tti_latest *latest)
{
    return atomic_load_explicit(&latest->failed, memory_order_relaxed);
}

static uint64_t take_newer(struct tti_latest *latest, uint64_t newest, struct tti_told *told)
{
    tti_lock(&latest->lock);
    uint64_t number = latest->number;
    if (number > newest) *told = latest->told;
    tti_unlock(&latest->lock);
    return number > newest ? number : newest;
}

bool tti_latest_find(struct tti_latest *latest, struct tti_told *told)
{
    uint64_t newest = latest == NULL ? 0 : take_newer(latest, 0, told);
    return take_newer(&of_process, newest, told) != 0;
}
