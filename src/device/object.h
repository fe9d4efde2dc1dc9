/* SPDX-License-Identifier: Apache-2.0
 *
 * What users hold of a device: handles, and the counted objects behind them. A handle is a place in a table and how often
 * that place was used before, in the form of a pointer that is never followed: one that was freed is refused, also when
 * its place is used again.
 *
 * Invariant: an object is destroyed when nobody refers to it any more. A handle that is good is one reference; whoever
 * looks it up gets another in the same step.
 */
#ifndef TTI_DEVICE_OBJECT_H
#define TTI_DEVICE_OBJECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <tutti/tutti.h>

enum tti_object_kind { TTI_OBJECT_DEVICE = 1, TTI_OBJECT_STREAM, TTI_OBJECT_MARK, TTI_OBJECT_BUFFER };

struct tti_object {
    enum tti_object_kind kind;
    _Atomic uint32_t references;
    void (*destroy)(struct tti_object *object); /* by whoever gave the last reference; must not wait */
    void *handle;                               /* NULL: none, it is only used inside the library */
    uint64_t process;                           /* it was made in; see tti_object_process */
};

/* One reference, the caller's. */
void tti_object_init(struct tti_object *object, enum tti_object_kind kind, void (*destroy)(struct tti_object *object));
/* Makes a handle, which takes the caller's reference. False: no memory, and the reference is still the caller's. */
bool tti_object_publish(struct tti_object *object);

void tti_object_keep(struct tti_object *object); /* one reference more */
void tti_object_give(struct tti_object *object); /* one less; NULL is ignored */

/* The object behind a handle, with a reference for the caller. NULL: void, of another kind, or of the process that this
 * one was forked from; `error` (may be NULL) says which. */
struct tti_object *tti_object_take(const void *handle, enum tti_object_kind kind, tutti_error *error);
/* The same, and the handle is void from now on: its reference is dropped, the caller's remains. */
struct tti_object *tti_object_revoke(const void *handle, enum tti_object_kind kind, tutti_error *error);

/* Changes with every fork in the child. */
uint64_t tti_object_process(void);

#endif
