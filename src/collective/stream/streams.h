/* SPDX-License-Identifier: Apache-2.0
 *
 * What a comm keeps for calls on streams (turn.h), and which provider carries them out.
 */
#ifndef TTI_COLLECTIVE_STREAMS_H
#define TTI_COLLECTIVE_STREAMS_H

#include "collective/op/turn.h"

/* What the option device_provider may be. */
enum { TTI_BY_ITSELF, TTI_BY_STAGING, TTI_BY_CUDA, TTI_BY_NCCL, TTI_STREAMS_WORDS };
extern const char *const tti_streams_words[TTI_STREAMS_WORDS];

/* Collective, at a comm's first call on a stream: sets comm->queue.streams, which takes `data` over on success. */
tutti_status tti_streams_open(tutti_comm *comm, tutti_comm *data, struct tti_device *device);
/* When nothing that was put on streams is in flight any more; `data` is the caller's. */
void tti_streams_free(struct tti_streams *streams);
/* For what is exchanged when it is opened: a failure is told as one of `comm`. */
tutti_status tti_streams_all_gather(tutti_comm *comm, tutti_comm *data, const void *mine, void *all, size_t bytes);
/* How opening a provider went on a rank; each provider's own struct begins with it. */
struct tti_opening {
    int32_t status;
    char text[240];
};
void tti_opening_note(struct tti_opening *opening, tutti_status status, const tutti_error *error);
/* Every rank says how it went, and all learn of the first failure. `bytes` of the providers' structs, `all` has one of each. */
tutti_status tti_streams_agree(tutti_comm *comm, struct tti_streams *streams, const struct tti_opening *mine, void *all,
                               size_t bytes, tutti_error *error);
/* Of a v-form: whether what each rank sends is what the other receives, by the rows of all. */
tutti_status tti_streams_check_counts(const struct tti_shape *shape, const uint64_t *rows, tutti_error *error);
/* Who carries the op out, as far as that is known before the ranks have met: NULL is the host. ERR_UNSUPPORTED, on all ranks
 * alike: a provider was asked for that does not have it. */
tutti_status tti_streams_choose(const struct tti_streams *streams, const struct tti_op *op,
                                const struct tti_device_provider **provider, tutti_error *error);

/* The provider for ranks that share a GPU (cuda_provider.c). Collective; *error, if it fails, is the same on all ranks. */
tutti_status tti_cuda_engine_open(tutti_comm *comm, struct tti_streams *streams, tutti_error *error);
extern const struct tti_device_provider tti_device_provider_cuda;

/* The provider for ranks with a GPU each (nccl_provider.c). The same. */
tutti_status tti_nccl_engine_open(tutti_comm *comm, struct tti_streams *streams, tutti_error *error);
extern const struct tti_device_provider tti_device_provider_nccl;

#endif
