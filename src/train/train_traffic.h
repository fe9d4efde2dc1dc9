/* SPDX-License-Identifier: Apache-2.0
 *
 * What a planned trainer sends in one step.
 */
#ifndef TTI_TRAIN_TRAIN_TRAFFIC_H
#define TTI_TRAIN_TRAIN_TRAFFIC_H

#include "train/trainer.h"

struct tti_train_traffic {
    const tutti_train_costs *costs;
    size_t operations;
    double sent_bytes, seconds;
};

/* Gradients and values between ranks that share the batch, and the tied weight along the pipe. */
void tti_traffic_batch(struct tti_train_traffic *traffic, const struct tutti_trainer *trainer);
/* Of one micro-batch of `rows` rows in these layers: meetings of ranks that share the width. */
void tti_traffic_forward(struct tti_train_traffic *traffic, const tutti_model *model, struct tti_layers layers,
                         double rows);
void tti_traffic_backward(struct tti_train_traffic *traffic, const tutti_model *model, struct tti_layers layers,
                          double rows);
/* One message. */
void tti_traffic_send(struct tti_train_traffic *traffic, size_t bytes);

#endif
