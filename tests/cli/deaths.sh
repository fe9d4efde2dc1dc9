#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120 waits
# Ranks that end or stop in an actor's handler, in a push to a parameter server and in agreement, in every way; a restart without
# descriptors, the launcher killed while the world is rebuilt, a full disk for the logs. (In collectives and in rebuild: rebuild.sh.)
source "$(dirname "$0")/run.bash"
if [ -n "$SANITIZE" ]; then echo 'skip: programs are compiled without sanitizers'; exit 77; fi

cat >deaths.c <<'C'
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/actor.h>
#include <tutti/train.h>
#include <unistd.h>

static const char *how;

/* A process stops, and is made to go on by one that it has forked. */
static void stop_for_a_while(void)
{
    pid_t self = getpid(), other = fork();
    if (other == 0) {
        usleep(200000);
        kill(self, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    waitpid(other, NULL, 0);
}

static void end(void)
{
    volatile int *nowhere = NULL;
    if (strcmp(how, "kill") == 0) raise(SIGKILL);
    if (strcmp(how, "abort") == 0) abort();
    if (strcmp(how, "segv") == 0) *nowhere = 1;
    if (strcmp(how, "exit") == 0) _exit(3);
    stop_for_a_while();
}

static void *end_later(void *unused)
{
    usleep(3000);
    end();
    return unused;
}

static void arrange_end(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, end_later, NULL) != 0) exit(1);
    pthread_detach(thread);
}

static tutti_status handle(tutti_actor *self, void *state, tutti_request *request)
{
    (void)self, (void)state;
    end();
    return tutti_request_answer(request, "well", 4);
}

static int in_handler(tutti_comm *world)
{
    tutti_actors *actors;
    tutti_actor_options actor = {.struct_size = sizeof actor, .name = "ends", .handle = handle};
    char answer[8];
    if (tutti_actors_create(world, NULL, &actors) != TUTTI_OK) return tutti_explain(world, stderr);
    if (tutti_rank(world) == 2 && tutti_actor_create(actors, &actor) != TUTTI_OK) return 1;
    if (tutti_barrier(world) != TUTTI_OK) return tutti_explain(world, stderr);
    if (tutti_rank(world) == 0) {
        tutti_status status = tutti_actor_ask(actors, 2, "ends", "x", 1, answer, sizeof answer, NULL, 20000);
        printf("answer: %s\n", tutti_status_name(status));
        fflush(stdout);
    }
    tutti_barrier(world); /* fails where rank 2 is lost */
    tutti_actors_free(actors);
    return 0;
}

/* Rank 1 ends while it pushes; rank 2 keeps the parameters. */
static int in_push(tutti_comm *world)
{
    static float values[64], gradients[64];
    tutti_parameter parameter = {"values", values, gradients, 64, false};
    tutti_optimizer_settings sgd;
    tutti_error error;
    tutti_server *server;
    tutti_status status = TUTTI_OK;
    if (tutti_optimizer_defaults("sgd", &sgd, &error) != TUTTI_OK) return 1;
    tutti_server_options options = {.struct_size = sizeof options, .servers = 1, .staleness = 2, .optimizer = &sgd};
    if (tutti_server_create(world, &parameter, 1, &options, &server, &error) != TUTTI_OK) return 1;
    if (tutti_rank(world) == 1) arrange_end();
    for (int step = 0; step < 2000 && status == TUTTI_OK && tutti_rank(world) < 2; step++) {
        tutti_push push = {.struct_size = sizeof push, .rate = 0.01, .count = 1};
        tutti_pushed pushed;
        status = tutti_server_push(server, &push, &pushed);
    }
    if (tutti_rank(world) == 2) status = tutti_server_serve(server);
    printf("rank %d: %s\n", tutti_rank(world), tutti_status_name(status));
    fflush(stdout);
    tutti_server_free(server);
    return 0;
}

static int in_agreement(tutti_comm *world)
{
    uint64_t all = 0;
    tutti_status status = TUTTI_OK;
    if (tutti_rank(world) == 2) arrange_end();
    for (int i = 0; i < 3000 && status == TUTTI_OK; i++)
        status = tutti_comm_agree(tutti_within(world, 20000), 7, &all);
    printf("rank %d: %s %d\n", tutti_rank(world), tutti_status_name(status), (int)all);
    fflush(stdout);
    return 0;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    how = argv[argc - 1];
    if (strcmp(argv[argc - 2], "handler") == 0) return in_handler(world);
    return strcmp(argv[argc - 2], "push") == 0 ? in_push(world) : in_agreement(world);
}

int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
compile deaths

# ends WHERE HOW: over $transport; leaves OUT, ERR and STATUS
ends() { tool run -n 3 --keep-going --grace-ms 60s --transport $transport --no-prefix ./deaths "$1" "$2"; }
for transport in shm tcp; do
    for how in kill abort segv exit; do
        ends handler $how
        matches "handler, $how, $transport" '^answer: TUTTI_ERR_PEER_LOST$' "$OUT"
        ends push $how
        matches "push, $how, $transport: the other worker" '^rank 0: TUTTI_OK$' "$OUT"
        matches "push, $how, $transport: the server" '^rank 2: TUTTI_OK$' "$OUT"
        ends agree $how
        check "agreement, $how, $transport" 2 "$(grep -c '^rank [01]: TUTTI_OK 7$' <<<"$OUT")"
    done
    for where in handler push agree; do
        ends $where cont
        check "$where, stopped for a while, $transport: status" 0 "$STATUS"
        check "$where, stopped for a while, $transport: all is well" 0 "$(grep -c ERR <<<"$OUT$ERR")"
    done
done

# A rank that is started again and has no descriptors left: it says so, all others are told, and the job ends.
cat >poor.c <<'C'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <tutti/tutti.h>
#include <unistd.h>
static int work(tutti_comm *world, int argc, char **argv)
{
    tutti_comm *next;
    (void)argc, (void)argv;
    if (tutti_rank(world) == 1) {
        fclose(fopen("again", "w"));
        raise(SIGKILL);
    }
    while (tutti_barrier(world) == TUTTI_OK) {}
    if (tutti_comm_rebuild(tutti_within(world, 20000), &next) == TUTTI_OK) return 0;
    return tutti_explain(world, stderr);
}
int main(int argc, char **argv)
{
    struct rlimit few = {6, 6};
    if (getenv("RANK")[0] == '1' && access("again", F_OK) == 0) setrlimit(RLIMIT_NOFILE, &few);
    return tutti_main(work, argc, argv);
}
C
compile poor
tool run -n 3 --max-restarts 3 --no-prefix ./poor
check 'no descriptors: fails' 1 "$((STATUS != 0 && STATUS != 124))"
matches 'no descriptors: said by the rank' 'ulimit -n|Too many open files' "$ERR"
check 'no descriptors: told to the others' 2 "$(grep -c '^tutti: rank [02]: comm_rebuild: TUTTI_ERR_JOIN' <<<"$ERR")"

# The launcher is killed while the world is rebuilt.
seed=77$$
"$TUTTI" run -n 4 --max-restarts 100000 --no-prefix "$BUILD/bench_rebuild" 10000 kill rebuild 1 $seed >out.txt 2>err.txt &
launcher=$!
within 60 grep -q 'restart 5 of' err.txt
guard=$(children_of $launcher)
kill -KILL $launcher
ended $launcher 2>/dev/null
check 'launcher killed in a rebuild' 137 $STATUS
nothing_left() { is_gone "$guard" && ! pgrep -f "bench_rebuild 10000 kill rebuild 1 $seed" >/dev/null; }
within 60 nothing_left
check 'launcher killed in a rebuild: nothing is left' 0 $?

# A full disk for the logs: of the launcher, which ends the job, and of a rank that is started again, which may go on.
if [ -w /dev/full ]; then
    mkdir logs
    ln -s /dev/full logs/rank-1.err
    tool run -n 2 --log-dir logs --tee bash -c 'echo much >&2; exec sleep 60'
    check 'full disk: status' 1 $STATUS
    matches 'full disk: said' 'cannot write to .*logs.*: No space left on device; ending the job' "$ERR"
    ln -sf /dev/full logs/rank-2.err
    tool run -n 4 --max-restarts 1 --log-dir logs "$BUILD/examples/heal" 2 3
    check 'full disk, ranks write themselves: status' 0 $STATUS
    matches 'full disk, ranks write themselves: healed' '^step 5: 4 ranks, epoch 1$' "$(cat logs/rank-0.out)"
fi
finish
