/* SPDX-License-Identifier: Apache-2.0
 *
 * Where buffers of ranks lie, reading and writing those of other processes, and waking ranks that sleep.
 */
#include "base/status.h"
#include "collective/comm/comm.h"
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* ---- Places ---------------------------------------------------------------------------------------------------- */

struct tti_place tti_place_of(const tutti_comm *comm, const void *pointer, size_t bytes)
{
    const struct tti_world *world = comm->world;
    struct tti_place place = {.process = world->process};
    if (bytes == 0) return place;
    if (tti_arena_contains(&world->arena, pointer, bytes)) {
        place.reach = TTI_ARENA;
        place.value = (uint64_t)((const char *)pointer - world->arena.mapping.base);
    } else {
        place.reach = TTI_PRIVATE;
        place.value = (uint64_t)(uintptr_t)pointer;
    }
    return place;
}

char *tti_place_resolve(const tutti_comm *comm, int rank, struct tti_place place)
{
    if (place.reach == TTI_ARENA) return tti_world_translate(comm->world, place.process, place.value, 0);
    if (place.reach == TTI_NOWHERE) return NULL;
    if (rank == comm->rank) return (char *)(uintptr_t)place.value;
    return tti_info_of(comm, rank)->pid == tti_info_of(comm, comm->rank)->pid ? (char *)(uintptr_t)place.value : NULL;
}

static tutti_status attach_failed(tutti_comm *comm, enum tti_kind kind, int rank, bool writes, size_t bytes, int why)
{
    if (why == ESRCH)
        tti_world_mark(comm->world, tti_member(comm, rank),
                       TTI_RANK_LOST); /* it has no memory any more: it is ending */
    TTI_TRY(tti_comm_health(comm, kind, true));
    return tti_comm_break(comm, kind, why == EFAULT ? TUTTI_ERR_ARGUMENT : TUTTI_ERR_SYSTEM, rank,
                          "rank %d could not %s %zu bytes of rank %d's buffer (%s); check the buffer and count "
                          "that rank %d gave, or set TUTTI_ATTACH=0",
                          comm->rank, writes ? "write" : "read", bytes, rank, strerror(why), rank);
}

int tti_attach(int pid, uint64_t address, char *here, size_t bytes, bool writes)
{
    for (size_t done = 0; done < bytes;) {
        struct iovec local = {here + done, bytes - done};
        struct iovec remote = {(void *)(uintptr_t)(address + done), bytes - done};
        ssize_t got = writes ? process_vm_writev(pid, &local, 1, &remote, 1, 0)
                             : process_vm_readv(pid, &local, 1, &remote, 1, 0);
        if (got > 0)
            done += (size_t)got;
        else if (got == 0 || errno != EINTR)
            return got < 0 ? errno : EFAULT;
    }
    return 0;
}

static tutti_status attach(tutti_comm *comm, enum tti_kind kind, int rank, uint64_t address, char *here, size_t bytes,
                           bool writes)
{
    int why = tti_attach(tti_info_of(comm, rank)->pid, address, here, bytes, writes);
    return why == 0 ? TUTTI_OK : attach_failed(comm, kind, rank, writes, bytes, why);
}

tutti_status tti_place_fetch(tutti_comm *comm, enum tti_kind kind, int rank, struct tti_place place, uint64_t offset,
                             void *target, size_t bytes)
{
    return attach(comm, kind, rank, place.value + offset, target, bytes, false);
}

tutti_status tti_place_store(tutti_comm *comm, enum tti_kind kind, int rank, struct tti_place place, uint64_t offset,
                             const void *source, size_t bytes)
{
    return attach(comm, kind, rank, place.value + offset, (char *)(uintptr_t)source, bytes, true);
}
