#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120 waits
# Workers that join a job with parameter servers (tutti run --join): one worker pauses the servers, all ranks take the new ones in, and
# everybody goes on; also where nobody waits, and where a worker dies and is started again before and after.
source "$(dirname "$0")/run.bash"
[ -z "$SANITIZE" ] || { echo 'skip: programs that are linked here with a library under a sanitizer do not start'; exit 77; }

cat >work.c <<'C'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train.h>
enum { COUNT = 100, MORE = 20, SERVERS = 2 };
static const float rate = 1.0f / 1024;
static int wanted, staleness, dies; /* ranks in the end; and whether rank 1 dies before they have come */
struct run {
    tutti_comm *comm;
    tutti_server *server;
    float values[COUNT], gradients[COUNT];
};
static int fail(const struct run *run, const char *what)
{
    const tutti_error *error = tutti_server_error(run->server);
    fprintf(stderr, "rank %d: %s: %s\n", tutti_rank(run->comm), what, error == NULL ? "" : error->text);
    return tutti_explain(run->comm, stderr), 1;
}
static tutti_status create(struct run *run)
{
    static tutti_parameter parameter = {.name = "values", .count = COUNT};
    static tutti_optimizer_settings sgd;
    tutti_error error = {0};
    parameter.value = run->values;
    parameter.gradient = run->gradients;
    if (tutti_optimizer_defaults("sgd", &sgd, &error) != TUTTI_OK) return TUTTI_ERR_ARGUMENT;
    sgd.momentum = 0;
    tutti_server_options options = {.struct_size = sizeof options, .servers = SERVERS, .staleness = staleness, .optimizer = &sgd};
    tutti_status status = tutti_server_create(run->comm, &parameter, 1, &options, &run->server, &error);
    if (status != TUTTI_OK) fprintf(stderr, "create: %s\n", error.text);
    return status;
}
/* After a pause, or a loss. If nobody has come the world stays as it is. */
static tutti_status go_on(struct run *run, tutti_status why, const tutti_comm *world)
{
    tutti_comm *before = run->comm, *next = NULL;
    tutti_status status = why == TUTTI_ERR_EPOCH ? tutti_comm_grow(before, &next) : TUTTI_ERR_BROKEN;
    if (status == TUTTI_ERR_BROKEN || status == TUTTI_ERR_PEER_LOST) status = tutti_comm_rebuild(before, &next);
    if (status == TUTTI_ERR_ARGUMENT || status == TUTTI_ERR_JOIN) return tutti_server_renew(run->server, before);
    if (status != TUTTI_OK) return status;
    run->comm = next;
    status = run->server == NULL ? create(run) : tutti_server_renew(run->server, next);
    if (before != world && run->server != NULL) tutti_comm_free(before);
    return status;
}
static int serve(struct run *run, const tutti_comm *world)
{
    for (tutti_status status; (status = tutti_server_serve(run->server)) != TUTTI_OK;)
        while (status != TUTTI_OK) {
            if (status != TUTTI_ERR_EPOCH && status != TUTTI_ERR_PEER_LOST) return fail(run, "serve");
            status = go_on(run, status, world);
        }
    return 0;
}
static int check(const struct run *run, uint64_t step)
{
    if (tutti_server_pull(run->server) != TUTTI_OK) return fail(run, "pull");
    for (int i = 0; i < COUNT && staleness == 0; i++)
        if (run->values[i] != 1 - (float)step * rate) return fprintf(stderr, "step %d: %g\n", (int)step, (double)run->values[i]), 1;
    return 0;
}
static int train(struct run *run, const tutti_comm *world)
{
    const bool first = tutti_rank(world) == 0;
    bool tried = false;
    uint64_t until = UINT64_MAX, step = 0;
    double workers = 0;
    while (step < until) {
        if (first && (step == 3 || tutti_comm_waiting(run->comm) > 0) && !tried) { /* at step 3 nobody may wait */
            tried = step == 3;
            if (tutti_server_pause(run->server) != TUTTI_OK) return fail(run, "pause");
        }
        if (dies && step == 6 && tutti_rank(world) == 1 && tutti_epoch(world) == 0) raise(SIGKILL);
        for (int i = 0; i < COUNT; i++) run->gradients[i] = 1;
        tutti_push push = {.struct_size = sizeof push, .rate = (double)rate, .count = 1};
        tutti_pushed pushed;
        tutti_status status = tutti_server_push(run->server, &push, &pushed);
        if (status == TUTTI_OK) {
            step = pushed.step;
            tried = step == 3;
            if (pushed.count > workers) workers = pushed.count;
            if (until == UINT64_MAX && tutti_size(run->comm) == wanted) until = step + MORE;
            if (check(run, step) != 0) return 1;
            continue;
        }
        while (status != TUTTI_OK) {
            if (status != TUTTI_ERR_EPOCH && status != TUTTI_ERR_PEER_LOST) return fail(run, "push");
            status = go_on(run, status, world);
        }
    }
    if (tutti_server_leave(run->server) != TUTTI_OK) return fail(run, "leave");
    printf("done: %g of %d ranks\n", workers, tutti_size(run->comm));
    return 0;
}
static int work(tutti_comm *world, int argc, char **argv)
{
    (void)argc;
    wanted = atoi(argv[1]), staleness = atoi(argv[2]), dies = atoi(argv[3]);
    struct run run = {.comm = world};
    for (int i = 0; i < COUNT; i++) run.values[i] = 1;
    if (create(&run) != TUTTI_OK) return 1;
    int status = tutti_server_serves(run.server) ? serve(&run, world) : train(&run, world);
    tutti_server_free(run.server);
    if (run.comm != world) tutti_comm_free(run.comm);
    return status;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
compile work
has_board() { "$TUTTI" top --once "$job" >top.txt 2>/dev/null && grep -q 'epoch' top.txt; }
# grows TRANSPORT STALENESS DIES: two workers and two servers, then two workers more
grows() {
    "$TUTTI" run -n 4 --max-ranks 6 --max-restarts 2 --transport "$1" --no-prefix ./work 6 "$2" "$3" >job_out.txt 2>job_err.txt &
    job=$!
    within 30 has_board
    tool run --join $job -n 2 --no-prefix ./work 6 "$2" "$3"
    check "$*: those that join" 0 "$STATUS"
    ended $job
    check "$*: the job" 0 "$STATUS"
    check "$*: all workers are done" 4 "$(cat out.txt job_out.txt | grep -c "^done: $([ "$2" = 0 ] && echo 4 || echo 1) of 6 ranks")"
    [ "$3" = 0 ] || matches "$*: one died" 'rank 1 .* is started again \(restart 1 of 2\)' "$(cat job_err.txt)"
    [ "$STATUS" = 0 ] || head -5 job_err.txt
}
for transport in shm tcp; do
    grows $transport 0 0
    grows $transport 2 0
    grows $transport 0 1
done
finish
