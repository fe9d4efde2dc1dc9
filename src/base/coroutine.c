/* SPDX-License-Identifier: Apache-2.0 */
#include "base/coroutine.h"

#include <stdint.h>
#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#elif __has_feature(thread_sanitizer)
#define HAVE_TSAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define HAVE_TSAN 1
#endif
#ifdef HAVE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef HAVE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/* ---- What sanitizers want to know ------------------------------------------------------------------------------ */

static void leaving(struct tti_coroutine *from, struct tti_coroutine *to, bool for_good)
{
    (void)from, (void)to, (void)for_good;
#ifdef HAVE_ASAN
    __sanitizer_start_switch_fiber(for_good ? NULL : &from->fake_stack, to->bottom, to->bytes);
#endif
#ifdef HAVE_TSAN
    if (from->fiber == NULL) from->fiber = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->fiber, 0);
#endif
}

/* Tells the sanitizer that a switch has ended. `from`: the stack that was left; the bounds of the thread's own stack
 * become known when it is left first. */
static void arrived(struct tti_coroutine *here, struct tti_coroutine *from)
{
    (void)here, (void)from;
#ifdef HAVE_ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(here->fake_stack, &bottom, &bytes);
    if (from != NULL && from->bottom == NULL) {
        from->bottom = bottom;
        from->bytes = bytes;
    }
#endif
}

/* The two sides of the last switch, for the first moment on a new stack. */
static _Thread_local struct tti_coroutine *switched_from, *switched_to;

/* Not inlined: the compiler must not keep a thread-local address across a switch, and this function is entered on the
 * new stack. */
__attribute__((noinline)) static void begin(void)
{
    struct tti_coroutine *here = switched_to;
    arrived(here, switched_from);
    here->body(here->argument);
    abort(); /* a body ends with tti_coroutine_finish and never returns */
}

/* ---- The switch ------------------------------------------------------------------------------------------------ */

#ifdef TTI_COROUTINE_PORTABLE

static void prepare(struct tti_coroutine *made, char *stack, size_t bytes)
{
    getcontext(&made->context);
    made->context.uc_stack.ss_sp = stack;
    made->context.uc_stack.ss_size = bytes;
    made->context.uc_link = NULL;
    makecontext(&made->context, begin, 0);
}

static void jump(struct tti_coroutine *from, struct tti_coroutine *to)
{
    swapcontext(&from->context, &to->context);
}

#else

/* Stores the registers that a called function must keep on the old stack, and loads them from the new one. */
void tti_stack_switch(void **save, void *load);

#if defined(__x86_64__)
enum { KEPT_WORDS = 6 };
__asm__(".text\n"
        ".p2align 4\n"
        ".globl tti_stack_switch\n"
        ".hidden tti_stack_switch\n"
        ".type tti_stack_switch, @function\n"
        "tti_stack_switch:\n"
        "    .cfi_startproc\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size tti_stack_switch, . - tti_stack_switch\n");

/* The return address lies above the kept registers; the room above it makes the stack as aligned as a call does. */
static void prepare(struct tti_coroutine *made, char *stack, size_t bytes)
{
    uintptr_t top = ((uintptr_t)stack + bytes) & ~(uintptr_t)15;
    void **place = (void **)(top - 16);
    place[0] = (void *)(uintptr_t)begin;
    place[1] = NULL;
    for (int i = 1; i <= KEPT_WORDS; i++) place[-i] = NULL;
    made->stack_pointer = place - KEPT_WORDS;
}
#else
enum { KEPT_WORDS = 20, LINK_WORD = 11 };
__asm__(".text\n"
        ".p2align 4\n"
        ".globl tti_stack_switch\n"
        ".hidden tti_stack_switch\n"
        ".type tti_stack_switch, %function\n"
        "tti_stack_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size tti_stack_switch, . - tti_stack_switch\n");

static void prepare(struct tti_coroutine *made, char *stack, size_t bytes)
{
    uintptr_t top = ((uintptr_t)stack + bytes) & ~(uintptr_t)15;
    void **place = (void **)top - KEPT_WORDS;
    for (int i = 0; i < KEPT_WORDS; i++) place[i] = NULL;
    place[LINK_WORD] = (void *)(uintptr_t)begin;
    made->stack_pointer = place;
}
#endif

static void jump(struct tti_coroutine *from, struct tti_coroutine *to)
{
    tti_stack_switch(&from->stack_pointer, to->stack_pointer);
}

#endif

void tti_coroutine_make(struct tti_coroutine *made, void *stack, size_t bytes, void (*body)(void *argument),
                        void *argument)
{
    made->body = body;
    made->argument = argument;
    made->bottom = stack;
    made->bytes = bytes;
    made->fake_stack = NULL;
    made->fiber = NULL;
#ifdef HAVE_TSAN
    made->fiber = __tsan_create_fiber(0);
#endif
    prepare(made, stack, bytes);
}

static void go(struct tti_coroutine *from, struct tti_coroutine *to, bool for_good)
{
    switched_from = from;
    switched_to = to;
    leaving(from, to, for_good);
    jump(from, to);
    arrived(from, NULL);
}

void tti_coroutine_switch(struct tti_coroutine *from, struct tti_coroutine *to)
{
    go(from, to, false);
}

void tti_coroutine_finish(struct tti_coroutine *from, struct tti_coroutine *to)
{
    go(from, to, true);
}

void tti_coroutine_free(struct tti_coroutine *coroutine)
{
#ifdef HAVE_ASAN
    /* the stack of one that never ended is still marked */
    __asan_unpoison_memory_region(coroutine->bottom, coroutine->bytes);
#endif
#ifdef HAVE_TSAN
    if (coroutine->fiber != NULL) __tsan_destroy_fiber(coroutine->fiber);
#endif
    coroutine->fiber = NULL;
}
