/* SPDX-License-Identifier: Apache-2.0
 *
 * A world of threads as an actor: whoever has work for four ranks asks one address for it. In the third request one rank gives
 * up; the world is made anew, and the request is tried again.
 *
 *     build/examples/world
 */
#include <stdio.h>
#include <tutti/actor.h>

enum { RANKS = 4 };

struct job {
    int round;
    double result[RANKS];
};

/* What each rank does: its part of a sum. The first attempt of the third round is a rank short. */
static tutti_status add(const tutti_world_place *place, void *context, tutti_error *error)
{
    struct job *job = context;
    double *x = &job->result[place->rank];
    *x = job->round * (place->rank + 1);
    if (job->round == 3 && place->rank == 2 && place->attempt == 1) {
        snprintf(error->text, sizeof error->text, "rank 2 gives up");
        return TUTTI_ERR_PEER_LOST;
    }
    tutti_status status = tutti_all_reduce(place->comm, x, x, 1, TUTTI_F64, TUTTI_SUM);
    if (status != TUTTI_OK) *error = *tutti_comm_error(place->comm);
    return status;
}

static int ask(tutti_actors *actors, int round)
{
    struct job job = {.round = round};
    tutti_world_request request = {
        .struct_size = sizeof request, .work = add, .context = &job, .retries = 1, .deadline_ms = 10000};
    if (tutti_world_do(actors, "world", &request) != TUTTI_OK) {
        fprintf(stderr, "%s\n", tutti_actors_error(actors)->text);
        return 1;
    }
    printf("round %d: %g\n", round, job.result[0]);
    return 0;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    tutti_actors *actors;
    tutti_world_actor_options options = {.struct_size = sizeof options, .ranks = RANKS};
    int failed = 0;
    (void)argc, (void)argv;
    if (tutti_actors_create(world, NULL, &actors) != TUTTI_OK) return tutti_explain(world, stderr);
    if (tutti_world_actor(actors, "world", &options) != TUTTI_OK) {
        fprintf(stderr, "%s\n", tutti_actors_error(actors)->text);
        failed = 1;
    }
    for (int round = 1; !failed && round <= 4; round++) failed = ask(actors, round);
    return tutti_actors_free(actors) == TUTTI_OK ? failed : 1;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
