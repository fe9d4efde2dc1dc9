/* SPDX-License-Identifier: Apache-2.0 */
#include "base/task.h"

#include "base/alloc.h"
#include "base/status.h"
#include <errno.h>

tutti_status tti_task_start(struct tti_task *task, void *(*body)(void *argument), void *argument, tutti_error *error)
{
    int failure = tti_alloc_allowed() ? pthread_create(&task->thread, NULL, body, argument) : ENOMEM;
    if (failure == 0) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_LIMIT, failure,
                         "a thread could not be started; check `ulimit -u`, `ulimit -v` and the memory left");
}

void tti_task_join(struct tti_task *task)
{
    pthread_join(task->thread, NULL);
}
