/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the data that a planned trainer sends in one step, and to how many hosts.
 */
#ifndef TTI_TRAIN_TRAIN_TRAFFIC_H
#define TTI_TRAIN_TRAIN_TRAFFIC_H

#include "train/trainer.h"

struct tti_train_traffic {
    const tutti_train_costs *costs;
    const struct tutti_trainer *trainer;
    int pipe; /* the coordinate of the counted rank along the pipe; its other coordinates are the trainer's */
    size_t operations;
    double sent_bytes, seconds;
};

/* Counts gradients and values between ranks that share the batch, and the tied weight along the pipe. */
void tti_traffic_batch(struct tti_train_traffic *traffic);
/* Counts one micro-batch of `rows` rows in these layers: meetings of ranks that share the width. */
void tti_traffic_forward(struct tti_train_traffic *traffic, struct tti_layers layers, double rows);
/* Counts what backward makes again with recompute. */
void tti_traffic_again(struct tti_train_traffic *traffic, struct tti_layers layers, double rows);
void tti_traffic_backward(struct tti_train_traffic *traffic, struct tti_layers layers, double rows);
/* Counts one message, to another coordinate along the pipe. */
void tti_traffic_send(struct tti_train_traffic *traffic, int to, size_t bytes);

#endif
