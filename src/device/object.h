/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles of users, and the counted objects behind them. A handle holds a place in a table and how often that place was
 * used before, in the form of a pointer that is never followed: a handle that was freed is refused, even if its place
 * is used again.
 *
 * Invariant: an object is destroyed when nothing refers to it any more. A valid handle is one reference; looking it up
 * gives another one in the same step.
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
    void (*destroy)(struct tti_object *object); /* called by the thread that gave the last reference; must not wait */
    void *handle;                               /* NULL: none, it is only used inside the library */
    uint64_t process;                           /* the process in which it was made; see tti_object_process */
};

/* Initialises an object with one reference, the caller's. */
void tti_object_init(struct tti_object *object, enum tti_object_kind kind, void (*destroy)(struct tti_object *object));
/* Makes a handle, which takes the caller's reference. Returns false if there is no memory; the reference is still the
 * caller's then. */
bool tti_object_publish(struct tti_object *object);

void tti_object_keep(struct tti_object *object); /* takes one more reference */
void tti_object_give(struct tti_object *object); /* gives one back; NULL is ignored */

/* Returns the object behind a handle, with a reference for the caller. NULL: the handle is void, of another kind, or of
 * the process from which this one was forked; `error` (may be NULL) says which. */
struct tti_object *tti_object_take(const void *handle, enum tti_object_kind kind, tutti_error *error);
/* Does the same, and the handle is void from now on: its reference is dropped, the caller's remains. */
struct tti_object *tti_object_revoke(const void *handle, enum tti_object_kind kind, tutti_error *error);

/* Returns a number that changes with every fork in the child. */
uint64_t tti_object_process(void);

#endif
