/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sim_stack.h"

#include "base/alloc.h"
#include "base/round.h"
#include <sys/mman.h>
#include <unistd.h>

enum {
    SLAB_STACKS = 64,      /* stacks that are mapped together */
    GUARDED_STACKS = 8192, /* the most stacks with guard pages, if each of these is a mapping of its own */
    GUARD_INSTALL = 102    /* MADV_GUARD_INSTALL, from Linux 6.13 on */
};

struct tti_slab {
    struct tti_slab *next;
    char *base;
    size_t bytes;
};

void tti_stacks_init(struct tti_stacks *stacks, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *stacks = (struct tti_stacks){.bytes = tti_round_up(bytes, page), .page = page};
}

void tti_stacks_free(struct tti_stacks *stacks)
{
    while (stacks->slabs != NULL) {
        struct tti_slab *slab = stacks->slabs;
        stacks->slabs = slab->next;
        munmap(slab->base, slab->bytes);
        tti_free(slab);
    }
}

char *tti_stacks_map(struct tti_stacks *stacks, size_t bytes)
{
    struct tti_slab *slab = tti_calloc(1, sizeof *slab);
    if (slab == NULL) return NULL;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    slab->base = tti_alloc_allowed() ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) : MAP_FAILED;
    if (slab->base == MAP_FAILED) {
        tti_free(slab);
        return NULL;
    }
    slab->bytes = bytes;
    slab->next = stacks->slabs;
    stacks->slabs = slab;
    madvise(slab->base, bytes, MADV_NOHUGEPAGE); /* most of a stack is never touched */
    return slab->base;
}

static char **next_of(const struct tti_stacks *stacks, char *stack)
{
    return (char **)(stack + stacks->bytes - sizeof(char *));
}

void tti_stack_give(struct tti_stacks *stacks, char *stack)
{
    *next_of(stacks, stack) = stacks->free;
    stacks->free = stack;
}

/* Makes a guard page. On systems with MADV_GUARD_INSTALL it is no mapping of its own; of others a process may have some
 * 65,000. */
static bool guard(struct tti_stacks *stacks, char *page)
{
    if (!stacks->canaries && madvise(page, stacks->page, GUARD_INSTALL) == 0) return true;
    if (!stacks->canaries && stacks->count > 0) return false;
    stacks->canaries = true;
    if (stacks->count < GUARDED_STACKS) mprotect(page, stacks->page, PROT_NONE);
    return true;
}

static bool make_some(struct tti_stacks *stacks)
{
    size_t each = stacks->bytes + stacks->page;
    char *base = tti_stacks_map(stacks, each * SLAB_STACKS);
    if (base == NULL) return false;
    for (size_t i = SLAB_STACKS; i-- > 0; stacks->count++) {
        char *stack = base + i * each + stacks->page;
        if (!guard(stacks, stack - stacks->page)) return false;
        tti_stack_give(stacks, stack);
    }
    return true;
}

char *tti_stack_take(struct tti_stacks *stacks)
{
    if (stacks->free == NULL && !make_some(stacks)) return NULL;
    char *stack = stacks->free;
    stacks->free = *next_of(stacks, stack);
    for (size_t i = 0; i < TTI_CANARY_WORDS && stacks->canaries; i++) ((uint64_t *)stack)[i] = TTI_CANARY;
    return stack;
}
