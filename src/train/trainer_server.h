/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer whose last ranks are parameter servers (server.h). Each of the others, the workers, is a trainer with a
 * comm of its one rank, with its part of the grains; push and pull replace sums, optimizer and spread. On a server's
 * rank the trainer is only planned: it knows the parameters, and has no memory for them.
 *
 * Invariant: between two meetings at the servers (tti_server_meet) no worker pushes. Everything that workers do
 * together, such as a validation, lies between two meetings; a lost worker is not waited for.
 */
#ifndef TTI_TRAIN_TRAINER_SERVER_H
#define TTI_TRAIN_TRAINER_SERVER_H

#include "train/optimizer.h"
#include "train/server.h"

struct tti_trainer_server {
    tutti_server *server; /* NULL while it is being made */
    tutti_comm *all;      /* workers and servers */
    tutti_comm *own;      /* a worker's: a world of its own */
    int workers;
    struct tti_server_watch watch;       /* for the server's updates */
    uint64_t updates;                    /* at least so many updates are in the values that this worker has pulled */
    double seconds;                      /* time in pushes, pulls and meetings */
    float *states[TTI_OPTIMIZER_STATES]; /* (elements), while a checkpoint is saved or read */
};

/* Refuses options that do not go together, as far as one rank can tell. */
tutti_status tti_trainer_server_check(const struct tutti_trainer *trainer, tutti_error *error);
/* Collective: makes everything: workers, and servers with initial values or those of a checkpoint; or, where other ranks
 * have kept them through the loss of this one, joins these. */
tutti_status tti_trainer_server_create(struct tutti_trainer *trainer, tutti_error *error);
/* Collective: goes on in a world that was rebuilt, while ranks that were started again make their trainers. If one of
 * them is a server, nobody has its part any more: all begin anew, from the newest checkpoint. */
tutti_status tti_trainer_server_restore(struct tutti_trainer *trainer, tutti_comm *comm, tutti_error *error);
void tti_trainer_server_free(struct tutti_trainer *trainer);
/* Has a server's updates watched as a worker's are, if anybody watches this trainer. */
void tti_trainer_server_watch(struct tutti_trainer *trainer);

/* The worker's calls. This one pushes and then pulls, after a step's backward. */
tutti_status tti_trainer_server_step(struct tutti_trainer *trainer, tutti_train_step *step);
tutti_status tti_trainer_server_validate(struct tutti_trainer *trainer, double *loss);
/* Returns true if this rank saves now; its values and states are those of the servers until
 * tti_trainer_server_saved. */
tutti_status tti_trainer_server_save(struct tutti_trainer *trainer, bool *saves);
void tti_trainer_server_saved(struct tutti_trainer *trainer);
/* All workers wait for each other and pull the same values. */
tutti_status tti_trainer_server_sync(const struct tutti_trainer *trainer);
/* Refuses a worker's call on a server's rank. */
tutti_status tti_trainer_refuse_server(struct tutti_trainer *trainer, const char *call);

#endif
