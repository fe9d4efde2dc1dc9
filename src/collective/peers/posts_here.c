/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that the ranks of one host share in a comm over several hosts.
 */
#include "base/alloc.h"
#include "base/round.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/peers/net.h"
#include "collective/peers/posts.h"
#include <unistd.h>

size_t tti_posts_bytes_here(int count)
{
    size_t each = sizeof(struct tti_post) + sizeof(struct tti_slot) + sizeof(struct tti_call);
    return tti_whole_lines(sizeof(struct tti_area)) + (size_t)count * each;
}

static void find_parts(struct tti_posts *memory, int rank, char *base)
{
    memory->count = tti_ranks_on(memory->hosts, memory->hosts->host_of[rank]);
    memory->place = memory->hosts->place_of[rank];
    memory->bytes = tti_posts_bytes_here(memory->count);
    memory->area = (struct tti_area *)(void *)base;
    memory->posts = (struct tti_post *)(void *)(base + tti_whole_lines(sizeof *memory->area));
    memory->slots = (char *)(memory->posts + memory->count);
    memory->slot_stride = sizeof(struct tti_slot);
    memory->calls = (struct tti_call *)(void *)(memory->slots + (size_t)memory->count * memory->slot_stride);
    memory->window = 1;
    memory->posts[memory->place].pid = (int32_t)getpid();
    if (!tti_fence_setup()) atomic_store_explicit(&memory->area->full_fences, 1, memory_order_seq_cst);
}

tutti_status tti_posts_create_here(tutti_comm *comm, const struct tti_here_setup *setup, tutti_error *error)
{
    struct tti_posts *memory = comm->memory = tti_calloc(1, sizeof *memory);
    if (memory != NULL) memory->shown = tti_calloc(1, sizeof *memory->shown);
    bool made = memory != NULL && memory->shown != NULL;
    if (made && setup->hosts == NULL) {
        memory->own_hosts = tti_calloc(1, sizeof *memory->own_hosts);
        made = memory->own_hosts != NULL && tti_hosts_make(memory->own_hosts, setup->host_of, comm->size) == TUTTI_OK;
    }
    if (!made)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a comm of %d ranks on several hosts",
                             comm->size);
    memory->hosts = setup->hosts != NULL ? setup->hosts : memory->own_hosts;
    memory->given = setup->given;
    memory->one_process = setup->one_process;
    find_parts(memory, comm->rank, setup->area);
    return TUTTI_OK;
}

bool tti_posts_cover(const tutti_comm *comm, enum tti_kind kind)
{
    const struct tti_hosts *hosts = comm->memory == NULL ? NULL : comm->memory->hosts;
    return hosts != NULL && tti_hosts_pay(hosts) && tti_hosts_cover(kind);
}

uint64_t tti_posts_mark(const tutti_comm *comm, int rank)
{
    const struct tti_hosts *hosts = comm->memory == NULL ? NULL : comm->memory->hosts;
    if (hosts == NULL || hosts->host_of[rank] != hosts->host_of[comm->rank]) return 0;
    return atomic_load_explicit(&comm->memory->posts[hosts->place_of[rank]].progress, memory_order_relaxed);
}

static bool is_nowhere(void)
{
    return tti_sim != NULL && tti_sim_setup_of()->sizes_only;
}

void *tti_temp_alloc(tutti_comm *comm, size_t bytes)
{
    tutti_error ignored = {0};
    if (is_nowhere()) return tti_sim_nowhere(bytes);
    if (comm->memory == NULL || comm->memory->one_process) return tti_calloc(1, bytes);
    return tti_arena_alloc(comm->world->arena, bytes, &ignored);
}

void tti_temp_release(tutti_comm *comm, void *memory, bool in_use)
{
    tutti_error ignored = {0};
    if (is_nowhere()) return;
    if (comm->memory == NULL || comm->memory->one_process) {
        if (in_use)
            tti_net_keep(comm->lanes->net, memory);
        else
            tti_free(memory);
    } else if (in_use) {
        tti_arena_quarantine(comm->world->arena, memory);
    } else if (memory != NULL) {
        tti_arena_free(comm->world->arena, memory, &ignored);
    }
}
