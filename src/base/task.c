/* SPDX-License-Identifier: Apache-2.0 */
#include "base/task.h"

#include "base/alloc.h"
#include "base/sim.h"
#include "base/status.h"
#include <errno.h>

tutti_status tti_task_start(struct tti_task *task, void *(*body)(void *argument), void *argument, tutti_error *error)
{
    task->simulated = NULL;
    if (tti_sim != NULL) {
        task->simulated = tti_sim_task_start(body, argument);
        if (task->simulated != NULL) return TUTTI_OK;
        return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for the stack of a simulated task");
    }
    int failure = tti_alloc_allowed() ? pthread_create(&task->thread, NULL, body, argument) : ENOMEM;
    if (failure == 0) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_LIMIT, failure,
                         "a thread could not be started; check `ulimit -u`, `ulimit -v` and the memory left");
}

void tti_task_join(struct tti_task *task)
{
    if (task->simulated != NULL) {
        tti_sim_task_join(task->simulated);
        return;
    }
    pthread_join(task->thread, NULL);
}
