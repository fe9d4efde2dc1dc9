/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks of one's own within one thread, and the switch between them. Written by hand for x86-64 and aarch64; elsewhere,
 * and where TTI_COROUTINE_PORTABLE is defined, by the system's ucontext. Sanitizers are told of every switch.
 */
#ifndef TTI_BASE_COROUTINE_H
#define TTI_BASE_COROUTINE_H

#include <stdbool.h>
#include <stddef.h>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(TTI_COROUTINE_PORTABLE)
#define TTI_COROUTINE_PORTABLE
#endif
#ifdef TTI_COROUTINE_PORTABLE
#include <ucontext.h>
#endif

/* Where one stack stands. A zeroed one is the thread's own, until it is switched away from. */
struct tti_coroutine {
#ifdef TTI_COROUTINE_PORTABLE
    ucontext_t context;
#else
    void *stack_pointer;
#endif
    void (*body)(void *argument);
    void *argument;
    const void *bottom; /* of the stack: its lowest address */
    size_t bytes;
    void *fake_stack; /* the address sanitizer's */
    void *fiber;      /* the thread sanitizer's */
};

/* To be run on the given stack by the first switch to it. `body` never returns: it ends with tti_coroutine_finish. */
void tti_coroutine_make(struct tti_coroutine *made, void *stack, size_t bytes, void (*body)(void *argument),
                        void *argument);
void tti_coroutine_switch(struct tti_coroutine *from, struct tti_coroutine *to);
/* The last switch away from a stack: it may then be freed. */
void tti_coroutine_finish(struct tti_coroutine *from, struct tti_coroutine *to);
/* Forgets one that will not be switched to any more. */
void tti_coroutine_free(struct tti_coroutine *coroutine);

#endif
