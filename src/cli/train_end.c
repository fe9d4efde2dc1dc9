/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti train: how ranks that have done everything part, where one may still be lost and started again.
 */
#include "cli/cli_train.h"

tutti_status train_meet(tutti_comm *world, const struct train_end *mine, struct train_end *all)
{
    uint64_t numbers[] = {mine->hash, mine->step};
    tutti_status status = tutti_all_reduce(world, numbers, numbers, 2, TUTTI_U64, TUTTI_MAX);
    *all = status == TUTTI_OK ? (struct train_end){numbers[0], numbers[1]} : (struct train_end){0};
    return status;
}

bool train_all_here(tutti_comm *world)
{
    uint64_t unused = 0;
    int lost = 0;
    if (!tutti_comm_can_rebuild(world)) return true;
    return tutti_comm_agree(world, 1, &unused) == TUTTI_OK && tutti_comm_lost(world, NULL, 0, &lost) == TUTTI_OK &&
           lost == 0;
}
