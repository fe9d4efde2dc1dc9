/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks of simulated tasks, tens of thousands of them: mapped many at a time, used again, and each with a guard page
 * below it if the system has enough of them. Otherwise the lowest words show whether a stack was large enough.
 */
#ifndef TTI_BASE_SIM_STACK_H
#define TTI_BASE_SIM_STACK_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TTI_CANARY_WORDS = 8 };
#define TTI_CANARY UINT64_C(0x5afe57ac5afe57ac)

struct tti_slab;

struct tti_stacks {
    size_t bytes, page; /* the size of a stack, in whole pages; and the size of a page */
    size_t count;       /* stacks that were made */
    char *free;         /* a list through their topmost words */
    bool canaries;
    struct tti_slab *slabs;
};

void tti_stacks_init(struct tti_stacks *stacks, size_t bytes);
void tti_stacks_free(struct tti_stacks *stacks); /* frees all that was mapped */
/* Maps memory that takes no room until it is touched, and stays until tti_stacks_free. NULL: there is none. */
char *tti_stacks_map(struct tti_stacks *stacks, size_t bytes);

char *tti_stack_take(struct tti_stacks *stacks); /* returns its lowest byte; NULL: no memory */
void tti_stack_give(struct tti_stacks *stacks, char *stack);

static inline void tti_stack_check(const struct tti_stacks *stacks, const char *stack)
{
    for (size_t i = 0; i < TTI_CANARY_WORDS && stacks->canaries; i++)
        assert(((const uint64_t *)stack)[i] == TTI_CANARY && "a simulated rank's stack is too small: give stack_bytes");
    (void)stack;
}

#endif
