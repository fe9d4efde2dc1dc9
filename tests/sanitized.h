/* SPDX-License-Identifier: Apache-2.0
 *
 * SANITIZED: whether this is a build with a sanitizer, which is slower and needs more memory.
 */
#ifndef TEST_SANITIZED_H
#define TEST_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif
