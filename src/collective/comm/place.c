/* SPDX-License-Identifier: Apache-2.0
 *
 * Where buffers of ranks lie, reading and writing those of other processes, and waking ranks that sleep.
 */
#include "base/status.h"
#include "collective/comm/comm.h"
#include "collective/comm/epoch.h"
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- Places ---------------------------------------------------------------------------------------------------- */

char *tti_place_resolve(const tutti_comm *comm, struct tti_place place, bool of_this_process)
{
    if (place.reach == TTI_ARENA) return tti_world_translate(comm->world, place.process, place.value, 0);
    return place.reach == TTI_PRIVATE && of_this_process ? (char *)(uintptr_t)place.value : NULL;
}

/* Returns true if this process has such memory, to be read or `written`: the system tries it, page by page. */
static bool is_own_memory(char *here, size_t bytes, bool written)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char byte;
    for (size_t at = 0; at < bytes; at += page - ((uintptr_t)here + at) % page) {
        struct iovec local = {written ? here + at : &byte, 1}, remote = {here + at, 1};
        if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) < 0 && errno == EFAULT) return false;
    }
    return true;
}

static tutti_status bad_buffer(tutti_comm *comm, enum tti_kind kind, int rank, uintptr_t address, size_t bytes)
{
    char doing[192] = "";
    bool message = kind > TTI_LEAVE;
    if (!message) comm->peers->describe(comm, rank, doing, sizeof doing);
    return tti_comm_break(
        comm, kind, TUTTI_ERR_ARGUMENT, rank,
        "rank %d gave a buffer%s that is not memory of its process: %zu bytes at %p, or some of them, are "
        "not; it was freed, or is smaller than the count says%s%s",
        rank, message ? " for a message" : "", bytes, (void *)address, message ? "" : "; ", doing);
}

tutti_status tti_attach_failed(tutti_comm *comm, enum tti_kind kind, int rank, const struct tti_attached *what, int why)
{
    if (why == EFAULT && !is_own_memory(what->here, what->bytes, !what->writes))
        return bad_buffer(comm, kind, comm->rank, (uintptr_t)what->here, what->bytes);
    if (why == EFAULT) return bad_buffer(comm, kind, rank, (uintptr_t)what->address, what->bytes);
    return tti_comm_break(comm, kind, TUTTI_ERR_SYSTEM, rank,
                          "rank %d could not %s %zu bytes of rank %d's memory (%s), as processes of one host do; tutti "
                          "doctor says whether they may, and %s=0 does without",
                          comm->rank, what->writes ? "write" : "read", what->bytes, rank, strerror(why),
                          comm->lanes == NULL ? "TUTTI_ATTACH" : "TUTTI_HOST_AWARE");
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

bool tti_place_is_old(const tutti_comm *comm, struct tti_place place)
{
    return place.reach != TTI_NOWHERE && place.epoch != comm->traits.era.made;
}

static tutti_status attach(tutti_comm *comm, enum tti_kind kind, int rank, uint64_t address, char *here, size_t bytes,
                           bool writes)
{
    int why = tti_attach(tti_info_of(comm, rank)->pid, address, here, bytes, writes);
    if (why == 0) return TUTTI_OK;
    if (why == ESRCH)
        tti_world_mark(comm->world, tti_member(comm, rank),
                       TTI_RANK_LOST); /* the process has no memory any more: it is ending */
    TTI_TRY(tti_comm_health(comm, kind, true));
    return tti_attach_failed(comm, kind, rank, &(struct tti_attached){address, here, bytes, writes}, why);
}

tutti_status tti_place_fetch(tutti_comm *comm, enum tti_kind kind, int rank, struct tti_place place, uint64_t offset,
                             void *target, size_t bytes)
{
    if (tti_place_is_old(comm, place)) return tti_epoch_refuse(comm, kind, rank, "a buffer", place.epoch);
    return attach(comm, kind, rank, place.value + offset, target, bytes, false);
}

tutti_status tti_place_store(tutti_comm *comm, enum tti_kind kind, int rank, struct tti_place place, uint64_t offset,
                             const void *source, size_t bytes)
{
    if (tti_place_is_old(comm, place)) return tti_epoch_refuse(comm, kind, rank, "a buffer", place.epoch);
    return attach(comm, kind, rank, place.value + offset, (char *)(uintptr_t)source, bytes, true);
}
