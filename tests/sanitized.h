/* SPDX-License-Identifier: Apache-2.0
 *
 * SANITIZED: whether this is a build with a sanitizer, which is slower and needs more memory. SANITIZED_THREADS: with the one
 * for threads.
 */
#ifndef TEST_SANITIZED_H
#define TEST_SANITIZED_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZED_THREADS 1
#elif __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define SANITIZED_THREADS 1
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#endif
#ifndef SANITIZED_THREADS
#define SANITIZED_THREADS 0
#endif
#ifndef SANITIZED
#define SANITIZED SANITIZED_THREADS
#endif

#endif
