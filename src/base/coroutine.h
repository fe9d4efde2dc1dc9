/* SPDX-License-Identifier: Apache-2.0
 *
 * Several stacks within one thread, and the switch between them. Written in assembly for x86-64 and aarch64; elsewhere,
 * and if TTI_COROUTINE_PORTABLE is defined, the system's ucontext is used. Sanitizers are told of every switch.
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

/* The state of one stack. A zeroed one stands for the thread's own, until it is left. */
struct tti_coroutine {
#ifdef TTI_COROUTINE_PORTABLE
    ucontext_t context;
#else
    void *stack_pointer;
#endif
    void (*body)(void *argument);
    void *argument;
    const void *bottom; /* the lowest address of the stack */
    size_t bytes;
    void *fake_stack; /* the address sanitizer's */
    void *fiber;      /* the thread sanitizer's */
};

/* Prepares a stack on which the first switch runs `body`. `body` never returns: it ends with tti_coroutine_finish. */
void tti_coroutine_make(struct tti_coroutine *made, void *stack, size_t bytes, void (*body)(void *argument),
                        void *argument);
void tti_coroutine_switch(struct tti_coroutine *from, struct tti_coroutine *to);
/* Switches away from a stack for the last time: it may be freed after this. */
void tti_coroutine_finish(struct tti_coroutine *from, struct tti_coroutine *to);
/* Frees a coroutine that will not be switched to any more. */
void tti_coroutine_free(struct tti_coroutine *coroutine);

#endif
