/* SPDX-License-Identifier: Apache-2.0
 *
 * Where ranks' buffers lie for the launcher. What is in another process is mapped here when it is first used, and stays so:
 * a buffer is known by a number that no other one of its process ever has, so that a mapping is never taken for another's.
 */
#include "base/alloc.h"
#include "base/status.h"
#include "collective/stream/cuda_engine.h"
#include "device/buffer.h"
#include "device/find.h"
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAPPED_MOST = 1024 }; /* buffers of others; then all are let go */

struct tti_cuda_place tti_cuda_place_of(const struct tti_cuda_engine *engine, const void *pointer, uint64_t bytes)
{
    struct tti_cuda_place place = {.reach = TTI_CUDA_HERE, .bytes = bytes, .at = (uint64_t)(uintptr_t)pointer};
    struct tti_found found;
    tutti_error ignored = {0};
    int fd = -1;
    if (bytes == 0) return (struct tti_cuda_place){.reach = TTI_CUDA_UNUSED};
    if (engine->near) return place;
    tti_memory_find(pointer, &found);
    place.reach = TTI_CUDA_UNREACHABLE;
    if (found.buffer != NULL && found.buffer->memory.kind == TUTTI_MEMORY_SHARED &&
        tti_buffer_offer(found.buffer, &fd, &place.id, &ignored) == TUTTI_OK) {
        place.reach = TTI_CUDA_OFFERED;
        place.fd = fd;
        place.bytes = found.buffer->memory.bytes;
        place.at = (uint64_t)((const char *)pointer - found.buffer->memory.base);
    }
    tti_found_give(&found);
    return place;
}

static struct tti_cuda_mapped *find(const struct tti_cuda_engine *engine, int rank, uint64_t id)
{
    struct tti_cuda_mapped *mapped = engine->mapped;
    while (mapped != NULL && (mapped->rank != rank || mapped->id != id)) mapped = mapped->next;
    return mapped;
}

void tti_cuda_places_free(struct tti_cuda_engine *engine)
{
    while (engine->mapped != NULL) {
        struct tti_cuda_mapped *mapped = engine->mapped;
        engine->mapped = mapped->next;
        engine->device->ops->free(engine->device, &mapped->memory, NULL);
        tti_free(mapped);
    }
}

/* The descriptor, in this process. */
static tutti_status fetch(const struct tti_cuda_engine *engine, int rank, int there, int *fd, tutti_error *error)
{
    const tutti_comm *comm = engine->comm;
    const struct tti_process *process = &comm->world->processes[tti_info_of(comm, rank)->process];
    *fd = (int)syscall(SYS_pidfd_getfd, process->pidfd, there, 0);
    if (*fd >= 0) return TUTTI_OK;
    return tti_error_set(
        error, TUTTI_ERR_SYSTEM, errno,
        "rank %d may not take over the memory of rank %d (pidfd_getfd: %s); allow processes of one user "
        "to trace each other, or use TUTTI_DEVICE_PROVIDER=staged",
        comm->rank, rank, strerror(errno));
}

static tutti_status map(struct tti_cuda_engine *engine, int rank, const struct tti_cuda_place *place,
                        struct tti_cuda_mapped **made, tutti_error *error)
{
    int fd = -1, mapped = 0;
    for (const struct tti_cuda_mapped *one = engine->mapped; one != NULL; one = one->next) mapped++;
    if (mapped >= MAPPED_MOST)
        return tti_error_set(error, TUTTI_ERR_LIMIT, 0, "more than %d buffers of other processes were used", mapped);
    struct tti_cuda_mapped *one = tti_calloc(1, sizeof *one);
    if (one == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for one more mapped buffer");
    tutti_status status = fetch(engine, rank, place->fd, &fd, error);
    if (status == TUTTI_OK) {
        status = engine->device->ops->map(engine->device, fd, place->bytes, &one->memory, error);
        close(fd);
    }
    if (status != TUTTI_OK) {
        tti_free(one);
        return status;
    }
    one->rank = rank;
    one->id = place->id;
    one->next = engine->mapped;
    *made = engine->mapped = one;
    return TUTTI_OK;
}

tutti_status tti_cuda_place_resolve(struct tti_cuda_engine *engine, int rank, const struct tti_cuda_place *place,
                                    char **at, tutti_error *error)
{
    *at = NULL;
    if (place->reach == TTI_CUDA_UNUSED) return TUTTI_OK;
    if (place->reach == TTI_CUDA_HERE) {
        *at = (char *)(uintptr_t)place->at;
        return TUTTI_OK;
    }
    struct tti_cuda_mapped *mapped = find(engine, rank, place->id);
    if (mapped == NULL) TTI_TRY(map(engine, rank, place, &mapped, error));
    *at = mapped->memory.base + place->at;
    return TUTTI_OK;
}
