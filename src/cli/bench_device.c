/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti bench --device: calls are put on a stream, on buffers of the device. Inputs are made and results are checked on
 * the host, in other buffers (bench_case.host_in, host_out).
 */
#include "cli/bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WAIT_MS = 600000 };

/* ---- Opening and closing ----------------------------------------------------------------------------------------- */

int bench_device_failed(struct bench_rank *self)
{
    const struct bench_device *device = self->device;
    if (device == NULL || device->error.status == TUTTI_OK) return bench_failed(self);
    return cli_fail("bench", "rank %d: %s", self->rank, device->error.text);
}

static tutti_status make_buffers(struct bench_rank *self, struct bench_device *device)
{
    bool shared = !self->settings->buffers_private && device->about.shares;
    tutti_memory memory = shared ? TUTTI_MEMORY_SHARED : TUTTI_MEMORY_LOCAL;
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < 2 && status == TUTTI_OK; i++) {
        status = tutti_buffer_create(device->device, memory, TUTTI_U8, self->max_bytes, &device->buffers[i],
                                     &device->error);
        device->at[i] = status == TUTTI_OK ? tutti_buffer_at(device->buffers[i], 0, self->max_bytes) : NULL;
    }
    return status;
}

static tutti_status open_own(struct bench_rank *self, struct bench_device *device)
{
    device->about.struct_size = sizeof device->about;
    tutti_status status = tutti_device_open_for(self->world, NULL, &device->device, &device->error);
    if (status == TUTTI_OK) status = tutti_device_describe(device->device, &device->about, &device->error);
    if (status == TUTTI_OK) status = tutti_stream_create(device->device, &device->stream, &device->error);
    return status == TUTTI_OK ? make_buffers(self, device) : status;
}

/* Tells devices apart. Numbers of GPUs are the same in every process. */
struct identity {
    unsigned char uuid[16];
    int32_t number;
};

static struct identity identity_of(const struct bench_device *device)
{
    static const unsigned char none[16];
    struct identity own = {.number = -1};
    memcpy(own.uuid, device->about.uuid, sizeof own.uuid);
    if (memcmp(own.uuid, none, sizeof none) == 0) own.number = device->about.number;
    return own;
}

static bool is_first(const struct identity *all, int rank)
{
    for (int i = 0; i < rank; i++)
        if (memcmp(&all[i], &all[rank], sizeof *all) == 0) return false;
    return true;
}

static int find_mates(struct bench_rank *self, struct bench_device *device)
{
    struct identity own = identity_of(device), *all = calloc((size_t)self->ranks, sizeof *all);
    int status = bench_agree(self, all != NULL);
    if (status == CLI_GO_ON && tutti_all_gather(self->world, &own, all, sizeof own, TUTTI_U8) != TUTTI_OK)
        status = bench_failed(self);
    for (int i = 0; i < self->ranks && status == CLI_GO_ON; i++) {
        device->mates += memcmp(&all[i], &own, sizeof own) == 0;
        device->devices += is_first(all, i);
    }
    device->first = status == CLI_GO_ON && is_first(all, self->rank);
    free(all);
    return status;
}

int bench_device_open(struct bench_rank *self)
{
    self->device = calloc(1, sizeof *self->device);
    struct bench_device *device = self->device;
    bool opened = device != NULL && open_own(self, device) == TUTTI_OK;
    if (!opened) (void)bench_device_failed(self);
    int status = bench_agree(self, opened);
    if (status == CLI_GO_ON) status = find_mates(self, device);
    if (status != CLI_GO_ON) return status;
    if (tutti_barrier(bench_on(self)) != TUTTI_OK) return bench_failed(self);
    device->provider = tutti_comm_provider(self->world, &device->why);
    return CLI_GO_ON;
}

void bench_device_close(struct bench_rank *self)
{
    struct bench_device *device = self->device;
    if (device == NULL) return;
    for (int i = 0; i < 2; i++) (void)tutti_buffer_free(device->buffers[i], NULL);
    (void)tutti_stream_free(device->stream, NULL);
    (void)tutti_device_free(device->device, NULL);
    free(device);
    self->device = NULL;
}

/* ---- Moving data ------------------------------------------------------------------------------------------------- */

tutti_status bench_device_sync(struct bench_rank *self)
{
    struct bench_device *device = self->device;
    return device == NULL ? TUTTI_OK : tutti_stream_sync(device->stream, WAIT_MS, &device->error);
}

tutti_status bench_device_put(struct bench_rank *self, size_t bytes)
{
    struct bench_device *device = self->device;
    if (device == NULL) return TUTTI_OK;
    tutti_error *error = &device->error;
    tutti_status status = tutti_buffer_put(device->buffers[0], 0, self->in_buffer, bytes, device->stream, error);
    if (status == TUTTI_OK)
        status = tutti_buffer_put(device->buffers[1], 0, self->out_buffer, bytes, device->stream, error);
    return status == TUTTI_OK ? bench_device_sync(self) : status;
}

tutti_status bench_device_get(struct bench_rank *self, size_t bytes)
{
    struct bench_device *device = self->device;
    if (device == NULL) return TUTTI_OK;
    tutti_error *error = &device->error;
    tutti_status status = tutti_buffer_get(device->buffers[0], 0, self->in_buffer, bytes, device->stream, error);
    if (status == TUTTI_OK)
        status = tutti_buffer_get(device->buffers[1], 0, self->out_buffer, bytes, device->stream, error);
    return status == TUTTI_OK ? bench_device_sync(self) : status;
}

/* ---- The floor --------------------------------------------------------------------------------------------------- */

/* Returns how many copies of `total` bytes move as much as the operation must: half of what all ranks together read and
 * write at least, since a copy does both. */
static double copies_of(const struct bench_op *op, int ranks)
{
    switch (op->shape) {
    case FLOOR_BARRIER: return 0;
    case FLOOR_GATHER:
    case FLOOR_SCATTER: return 1;
    case FLOOR_REDUCE:
    case FLOOR_REDUCE_SCATTER:
    case FLOOR_BROADCAST:
    case FLOOR_ALL_GATHER: return (ranks + 1) / 2.0;
    default: return ranks;
    }
}

static tutti_status put_copies(struct bench_device *device, size_t size, size_t bytes)
{
    tutti_status status = TUTTI_OK;
    while (bytes > 0 && status == TUTTI_OK) {
        size_t part = bytes < size ? bytes : size;
        status = tutti_buffer_copy(device->buffers[1], 0, device->buffers[0], 0, part, device->stream, &device->error);
        bytes -= part;
    }
    return status;
}

double bench_device_floor(struct bench_rank *self, const struct bench_case *c, uint64_t batch)
{
    struct bench_device *device = self->device;
    double share = copies_of(c->op, self->ranks) * device->mates / self->ranks;
    size_t bytes = device->first ? (size_t)(share * (double)c->bytes) : 0;
    struct timespec begin, end;
    tutti_status status = tutti_barrier(self->world);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint64_t i = 0; i < batch && status == TUTTI_OK; i++) status = put_copies(device, c->bytes, bytes);
    if (status == TUTTI_OK) status = bench_device_sync(self);
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (status != TUTTI_OK) return -1;
    return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}

/* ---- Who carries calls out --------------------------------------------------------------------------------------- */

const char *bench_device_carrier(struct bench_rank *self)
{
    static const char *const names[] = {"cuda", "nccl", "staged", "host"};
    struct bench_device *device = self->device;
    tutti_stats stats = {.struct_size = sizeof stats};
    if (device == NULL || tutti_comm_stats(self->world, &stats) != TUTTI_OK) return NULL;
    const uint64_t now[] = {stats.on_cuda, stats.on_nccl, stats.on_staging, stats.on_host};
    const char *carrier = NULL;
    for (int i = 0; i < 4; i++) {
        if (now[i] > device->carried[i]) carrier = names[i];
        device->carried[i] = now[i];
    }
    return carrier;
}
