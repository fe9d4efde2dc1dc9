/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashes for telling values apart, not for secrets.
 */
#ifndef TTI_BASE_HASH_H
#define TTI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Adds a value to a hash. */
static inline uint64_t tti_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

/* The finalizer of splitmix64: every bit of the value affects every bit of the result. */
static inline uint64_t tti_stir(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* FNV-1a; `hash` is TTI_HASH_START or the hash of the bytes before. */
#define TTI_HASH_START UINT64_C(0xcbf29ce484222325)
static inline uint64_t tti_hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

#endif
