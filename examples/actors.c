/* SPDX-License-Identifier: Apache-2.0
 *
 * Actors: rank 0 hands out pieces of work, and every rank asks for one after the other until there are none. The actor that hands
 * them out fails on purpose now and then; its supervisor restarts it, and nobody notices but the one whose request it was, who
 * asks again.
 *
 *     TUTTI_RANKS=3 build/examples/actors
 *     tutti run -n 3 build/examples/actors
 */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/actor.h>
#include <tutti/tutti.h>

enum { PIECES = 100 };

/* What outlives a restart. The state is made anew each time. */
struct desk {
    int next;
    int starts;
};

struct clerk {
    struct desk *desk;
    int given; /* since the last start */
};

static tutti_status start(tutti_actor *self, void *context, void **state)
{
    struct clerk *clerk = calloc(1, sizeof *clerk);
    if (clerk == NULL) return tutti_actor_fail(self, TUTTI_ERR_MEMORY, "no memory for a clerk");
    clerk->desk = context;
    clerk->desk->starts++;
    *state = clerk;
    return TUTTI_OK;
}

static void stop(tutti_actor *self, void *state)
{
    (void)self;
    free(state);
}

/* Answers with the number of the next piece, or -1 when there is none. */
static tutti_status hand_out(tutti_actor *self, void *state, tutti_request *request)
{
    struct clerk *clerk = state;
    if (clerk->given == 40) return tutti_actor_fail(self, TUTTI_ERR_LIMIT, "forty pieces are enough for one clerk");
    int piece = clerk->desk->next < PIECES ? clerk->desk->next++ : -1;
    clerk->given += piece >= 0;
    return tutti_request_answer(request, &piece, sizeof piece);
}

/* Asks for pieces until there are none: how many it got, or -1. */
static int take_pieces(tutti_actors *actors)
{
    int taken = 0, refused = 0;
    for (int piece = 0; piece >= 0;) {
        tutti_status status = tutti_actor_ask(actors, 0, "clerk", NULL, 0, &piece, sizeof piece, NULL, 5000);
        if (status == TUTTI_ERR_LIMIT && ++refused < 10) continue; /* the clerk was restarted */
        if (status != TUTTI_OK) return -1;
        taken += piece >= 0;
    }
    return taken;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    (void)argc, (void)argv;
    tutti_actors *actors;
    struct desk desk = {0};
    tutti_actor_options clerk = {.struct_size = sizeof clerk,
                                 .name = "clerk",
                                 .context = &desk,
                                 .handle = hand_out,
                                 .start = start,
                                 .stop = stop};
    tutti_log_set_level(TUTTI_ERROR); /* that it is restarted is logged as a warning */
    if (tutti_actors_create(world, NULL, &actors) != TUTTI_OK) return tutti_explain(world, stderr);
    if (tutti_rank(world) == 0 && tutti_actor_create(actors, &clerk) != TUTTI_OK) return tutti_explain(world, stderr);
    if (tutti_barrier(world) != TUTTI_OK) return tutti_explain(world, stderr);
    int taken = take_pieces(actors), total = 0;
    if (taken < 0) return tutti_explain(world, stderr);
    if (tutti_all_reduce(world, &taken, &total, 1, TUTTI_I32, TUTTI_SUM) != TUTTI_OK)
        return tutti_explain(world, stderr);
    if (tutti_rank(world) == 0)
        printf("%d of %d pieces were taken; the clerk was started %d times\n", total, PIECES, desk.starts);
    return tutti_actors_free(actors) == TUTTI_OK ? 0 : tutti_explain(world, stderr);
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
