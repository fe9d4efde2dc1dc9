/* SPDX-License-Identifier: Apache-2.0
 *
 * The one way to start a task: a thread, or inside a simulated run (sim.h) a stack of its own.
 */
#ifndef TTI_BASE_TASK_H
#define TTI_BASE_TASK_H

#include <pthread.h>
#include <tutti/tutti.h>

struct tti_task {
    pthread_t thread;
    struct tti_sim_task *simulated; /* used instead in simulated runs */
};

tutti_status tti_task_start(struct tti_task *task, void *(*body)(void *argument), void *argument, tutti_error *error);
void tti_task_join(struct tti_task *task);

#endif
