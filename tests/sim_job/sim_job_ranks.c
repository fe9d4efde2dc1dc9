/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank does: it takes steps with all others, and goes on with them after a loss.
 */
#include "sim_job/sim_job_state.h"

#include <stdio.h>
#include <stdlib.h>

enum { PAUSE_MS = 5 };

static void set_number(const char *name, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    setenv(name, text, 1);
}

/* Nothing else runs until the process has read its environment. */
static void set_environment(const struct process *process)
{
    const struct sim_host *host = &sim.hosts[process->host];
    setenv("TUTTI_JOB", "launched", 1);
    setenv("TUTTI_TRANSPORT", "tcp", 1);
    setenv("TUTTI_BOARD", host->board_name, 1);
    setenv("TUTTI_KEY", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", 1);
    setenv("TUTTI_MASTER_ADDR", host->launch.place.master_addr, 1);
    set_number("TUTTI_MASTER_PORT", host->launch.place.master_port);
    set_number("TUTTI_RANK", process->rank);
    set_number("TUTTI_SIZE", sim.world);
}

/* All ranks must see the same in each step of an epoch. */
static void check_step(const struct process *process, uint64_t epoch, uint32_t index, const int *words)
{
    const int word = words[0] * 2 + words[2];
    if (words[1] != sim.world)
        blame("rank %d: a sum of %d ranks in epoch %llu", process->rank, words[1], (unsigned long long)epoch);
    for (int i = 0; i < sim.sum_count; i++) {
        if (sim.sums[i].epoch != epoch || sim.sums[i].index != index) continue;
        if (sim.sums[i].word != word)
            blame("step %u of epoch %llu gave %d to rank %d, and %d to rank %d", index, (unsigned long long)epoch, word,
                  process->rank, sim.sums[i].word, sim.sums[i].rank);
        return;
    }
    if (sim.sum_count == SUMS) return;
    sim.sums[sim.sum_count].epoch = epoch;
    sim.sums[sim.sum_count].index = index;
    sim.sums[sim.sum_count].rank = process->rank;
    sim.sums[sim.sum_count++].word = word;
}

/* Returns its exit status. */
static int take_steps(struct process *process, tutti_comm **world)
{
    tutti_comm *next;
    int step = -1;
    for (uint32_t index = 0;; index++) {
        int mine[3] = {step, process->rank + 1, sim.stop}, words[3] = {0};
        if (tutti_all_reduce(*world, mine, words, 3, TUTTI_I32, TUTTI_MAX) == TUTTI_OK) {
            check_step(process, tutti_epoch(*world), index, words);
            step = words[0] + 1;
            if (words[2]) return 0;
            tti_sim_sleep((int64_t)(tti_sim_random() % (2 * (uint64_t)PAUSE_MS * MS)));
            continue;
        }
        tutti_status status = tutti_comm_rebuild(*world, &next);
        if (status != TUTTI_OK) {
            if (status != TUTTI_ERR_EXCLUDED && !sim.hosts[process->host].excluded)
                blame("rank %d on host %d: rebuild gave %s: %s", process->rank, process->host,
                      tutti_status_name(status), tutti_comm_error(*world)->text);
            return 1;
        }
        *world = next;
        index = UINT32_MAX;
        sim.rebuilt++;
    }
}

void *rank_live(void *argument)
{
    struct process *process = argument;
    tutti_comm *world = NULL;
    set_environment(process);
    tutti_status status = tutti_join(&world);
    process->status = 1;
    if (status == TUTTI_OK)
        process->status = take_steps(process, &world);
    else if (!sim.hosts[process->host].excluded)
        blame("rank %d on host %d: join gave %s: %s", process->rank, process->host, tutti_status_name(status),
              tutti_comm_error(world)->text);
    if (getenv("VERBOSE") != NULL)
        printf("%9.3f s: rank %d on host %d (pid %d) ends with %d%s\n", (double)tti_sim_now_ns() / 1e9, process->rank,
               process->host, process->pid, process->status, sim.hosts[process->host].excluded ? ", excluded" : "");
    tutti_leave(world);
    process->ended = true;
    return NULL;
}
