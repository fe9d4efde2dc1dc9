/* SPDX-License-Identifier: Apache-2.0
 *
 * A parameter server for gradients written by hand: some ranks learn a line through points, each at its own pace, and the last
 * rank keeps what they have learned. Nothing of the library's own layers is used.
 *
 *     TUTTI_RANKS=4 build/examples/server               three workers and a server, as threads
 *     tutti run -n 4 build/examples/server              as processes
 *     tutti run -n 4 build/examples/server 0            workers take every step together
 */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/train.h>

enum { POINTS = 64, STEPS = 400 };

/* Adds the gradient of one point's squared error to that of a x + b; the points lie near 3 x - 1. Returns the error. */
static double backward(const float line[2], float gradient[2], int point)
{
    float x = (float)(point * 37 % 100) / 50 - 1, noise = (float)(point * 61 % 21 - 10) / 100;
    float error = line[0] * x + line[1] - (3 * x - 1 + noise);
    gradient[0] += 2 * error * x;
    gradient[1] += 2 * error;
    return (double)error * (double)error;
}

static int learn(tutti_server *server, float line[2], float gradient[2], int rank)
{
    for (int step = 1; step <= STEPS; step++) {
        tutti_push push = {.struct_size = sizeof push, .rate = 0.02, .count = POINTS, .catch_up = step == STEPS};
        tutti_pushed pushed;
        gradient[0] = gradient[1] = 0;
        for (int i = 0; i < POINTS; i++) push.loss += backward(line, gradient, (step + rank) * POINTS + i);
        if (tutti_server_push(server, &push, &pushed) != TUTTI_OK || tutti_server_pull(server) != TUTTI_OK) {
            fprintf(stderr, "%s\n", tutti_server_error(server)->text);
            return 1;
        }
        if (rank == 0 && step % 100 == 0) printf("step %d: loss %.4f\n", step, pushed.loss);
    }
    printf("rank %d: %.1f x %+.1f\n", rank, (double)line[0], (double)line[1]);
    return 0;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    float line[2] = {0}, gradient[2] = {0};
    tutti_parameter parameters[] = {{"slope", &line[0], &gradient[0], 1, false},
                                    {"offset", &line[1], &gradient[1], 1, false}};
    tutti_optimizer_settings sgd;
    tutti_error error;
    tutti_server *server = NULL;
    if (tutti_optimizer_defaults("sgd", &sgd, &error) != TUTTI_OK) return 1;
    sgd.momentum = 0; /* gradients are of values that others have changed meanwhile: careful steps */
    tutti_server_options options = {
        .struct_size = sizeof options, .servers = 1, .staleness = argc > 1 ? atoi(argv[1]) : 4, .optimizer = &sgd};
    if (tutti_server_create(world, parameters, 2, &options, &server, &error) != TUTTI_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 2;
    }
    int status = 0;
    if (!tutti_server_serves(server)) {
        status = learn(server, line, gradient, tutti_rank(world));
    } else if (tutti_server_serve(server) != TUTTI_OK) {
        fprintf(stderr, "%s\n", tutti_server_error(server)->text);
        status = 1;
    }
    tutti_server_free(server);
    return status;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
