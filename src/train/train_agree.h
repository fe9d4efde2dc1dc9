/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTI_TRAIN_TRAIN_AGREE_H
#define TTI_TRAIN_TRAIN_AGREE_H

#include <tutti/tutti.h>

/* Collective: the failure of the lowest rank that has one becomes that of all ranks; OK if all are. Ranks that make
 * something in parts call it before the others would wait for one that has failed. Without a comm: `status`. */
tutti_status tti_agree(tutti_comm *comm, tutti_status status, tutti_error *error);

#endif
