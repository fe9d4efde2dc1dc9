/* SPDX-License-Identifier: Apache-2.0
 *
 * Structs of the public headers that begin with `size_t struct_size`. A caller sets it to the size that his header gives, so
 * that a later library reads no more of the struct than he has, and an earlier one no more than it knows. */
#ifndef TTI_SIZED_H
#define TTI_SIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Copies from `given` the fields that both sides know. Returns false, and copies nothing, if its struct_size is not set. */
static inline bool tti_sized_take(void *known, size_t known_bytes, const void *given)
{
    size_t given_bytes;
    memcpy(&given_bytes, given, sizeof given_bytes);
    if (given_bytes < sizeof given_bytes) return false;
    memcpy(known, given, given_bytes < known_bytes ? given_bytes : known_bytes);
    return true;
}

/* Fills in a struct that the caller gave for results, as far as both sides know it. What only the caller knows is 0. */
static inline void tti_sized_give(void *given, const void *known, size_t known_bytes)
{
    size_t given_bytes;
    const size_t head = sizeof given_bytes;
    memcpy(&given_bytes, given, head);
    if (given_bytes <= head) return;
    size_t bytes = given_bytes < known_bytes ? given_bytes : known_bytes;
    memset((char *)given + head, 0, given_bytes - head);
    memcpy((char *)given + head, (const char *)known + head, bytes - head);
}

#endif
