/* SPDX-License-Identifier: Apache-2.0
 *
 * What a comm keeps for calls on streams (turn.h), and the choice of the provider that carries them out.
 */
#ifndef TTI_COLLECTIVE_STREAMS_H
#define TTI_COLLECTIVE_STREAMS_H

#include "collective/op/turn.h"

/* The values of the option device_provider. */
enum { TTI_BY_ITSELF, TTI_BY_STAGING, TTI_BY_CUDA, TTI_BY_NCCL, TTI_STREAMS_WORDS };
extern const char *const tti_streams_words[TTI_STREAMS_WORDS];

/* Sets comm->queue.streams, which takes `data` over on success. Collective, at a comm's first call on a stream. */
tutti_status tti_streams_open(tutti_comm *comm, tutti_comm *data, struct tti_device *device);
/* Called before each call on a stream. If this rank's device was opened again since the last one, waits until all ops before
 * have ended, and makes anew what is of the older generation. No other rank takes part. */
tutti_status tti_streams_renew(tutti_comm *comm, tutti_error *error);
/* Called when nothing that was put on streams is in flight any more; `data` stays the caller's. */
void tti_streams_free(struct tti_streams *streams);
/* For exchanges while it is opened: a failure is reported as one of `comm`. */
tutti_status tti_streams_all_gather(tutti_comm *comm, tutti_comm *data, const void *mine, void *all, size_t bytes);
/* The result of opening a provider on a rank; each provider's own struct begins with it. */
struct tti_opening {
    int32_t status;
    char text[240];
};
void tti_opening_note(struct tti_opening *opening, tutti_status status, const tutti_error *error);
/* Every rank tells its result, and all learn of the first failure. `bytes`: the size of the provider's struct; `all`
 * has one of each rank. */
tutti_status tti_streams_agree(tutti_comm *comm, struct tti_streams *streams, const struct tti_opening *mine, void *all,
                               size_t bytes, tutti_error *error);
/* For a v-form: checks by the rows of all that each rank sends what the other receives. */
tutti_status tti_streams_check_counts(const struct tti_shape *shape, const uint64_t *rows, tutti_error *error);
/* Chooses the provider that carries the op out, as far as it is known before the ranks have met: NULL is the host.
 * ERR_UNSUPPORTED, on all ranks alike: the provider that was asked for cannot do it. */
tutti_status tti_streams_choose(const struct tti_streams *streams, const struct tti_op *op,
                                const struct tti_device_provider **provider, tutti_error *error);

/* Opens the provider for ranks that share a GPU (cuda_provider.c). Collective; if it fails, *error is the same on all
 * ranks. */
tutti_status tti_cuda_engine_open(tutti_comm *comm, struct tti_streams *streams, tutti_error *error);
extern const struct tti_device_provider tti_device_provider_cuda;

/* Opens the provider for ranks with a GPU each (nccl_provider.c), in the same way. */
tutti_status tti_nccl_engine_open(tutti_comm *comm, struct tti_streams *streams, tutti_error *error);
extern const struct tti_device_provider tti_device_provider_nccl;

#endif
