/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors name the file and line of the call they are about: each function below is also a macro that says where it is
 * called. The other headers include this one at their end; nobody else needs to. A program that wants the functions alone
 * defines TUTTI_NO_CALL_SITES before it includes any of them.
 *
 * A header's macros may follow its declarations only. So each header has a section here, and defines the name that opens it
 * when all its functions are declared.
 */
#include <tutti/tutti.h>

#ifndef TUTTI_NO_CALL_SITES

/* ---- tutti.h ---- */
#if defined TUTTI_DECLARED && !defined TUTTI_HERE
#define TUTTI_HERE(comm) tutti_at((comm), __FILE__, __LINE__)
#define tutti_barrier(comm) tutti_barrier(TUTTI_HERE(comm))
#define tutti_all_reduce(comm, ...) tutti_all_reduce(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_reduce(comm, ...) tutti_reduce(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_broadcast(comm, ...) tutti_broadcast(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_all_gather(comm, ...) tutti_all_gather(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_gather(comm, ...) tutti_gather(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_scatter(comm, ...) tutti_scatter(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_reduce_scatter(comm, ...) tutti_reduce_scatter(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_all_to_all(comm, ...) tutti_all_to_all(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_all_gather_v(comm, ...) tutti_all_gather_v(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_gather_v(comm, ...) tutti_gather_v(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_scatter_v(comm, ...) tutti_scatter_v(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_reduce_scatter_v(comm, ...) tutti_reduce_scatter_v(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_all_to_all_v(comm, ...) tutti_all_to_all_v(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_scan(comm, ...) tutti_scan(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_exscan(comm, ...) tutti_exscan(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_all_reduce_many(comm, ...) tutti_all_reduce_many(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_broadcast_many(comm, ...) tutti_broadcast_many(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_all_gather_many(comm, ...) tutti_all_gather_many(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_reduce_scatter_many(comm, ...) tutti_reduce_scatter_many(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_send(comm, ...) tutti_send(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_recv(comm, ...) tutti_recv(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_sendrecv(comm, ...) tutti_sendrecv(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_recv_message(comm, ...) tutti_recv_message(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_probe(comm, ...) tutti_probe(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_try_probe(comm, ...) tutti_try_probe(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_group_begin(comm) tutti_group_begin(TUTTI_HERE(comm))
#define tutti_group_end(comm) tutti_group_end(TUTTI_HERE(comm))
#define tutti_group_add(comm, other) tutti_group_add(TUTTI_HERE(comm), other)
#define tutti_comm_split(comm, ...) tutti_comm_split(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_comm_duplicate(comm, ...) tutti_comm_duplicate(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_comm_select(comm, ...) tutti_comm_select(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_comm_by_host(comm, ...) tutti_comm_by_host(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_comm_agree(comm, ...) tutti_comm_agree(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_comm_revoke(comm) tutti_comm_revoke(TUTTI_HERE(comm))
#define tutti_comm_shrink(comm, made) tutti_comm_shrink(TUTTI_HERE(comm), made)
#define tutti_comm_rebuild(comm, made) tutti_comm_rebuild(TUTTI_HERE(comm), made)
#define tutti_comm_grow(comm, made) tutti_comm_grow(TUTTI_HERE(comm), made)
#define tutti_comm_renew(old, world, made) tutti_comm_renew(old, TUTTI_HERE(world), made)
#define tutti_mesh_renew(old, comm, mesh) tutti_mesh_renew(old, TUTTI_HERE(comm), mesh)
#define tutti_mesh_create(comm, ...) tutti_mesh_create(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_leave(comm) tutti_leave(TUTTI_HERE(comm))
#define tutti_group_end_start(comm, op) tutti_group_end_start(TUTTI_HERE(comm), op)
#define tutti_send_start(comm, ...) tutti_send_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_recv_start(comm, ...) tutti_recv_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_sendrecv_start(comm, ...) tutti_sendrecv_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_barrier_start(comm, op) tutti_barrier_start(TUTTI_HERE(comm), op)
#define tutti_all_reduce_start(comm, ...) tutti_all_reduce_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_reduce_start(comm, ...) tutti_reduce_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_broadcast_start(comm, ...) tutti_broadcast_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_all_gather_start(comm, ...) tutti_all_gather_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_gather_start(comm, ...) tutti_gather_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_scatter_start(comm, ...) tutti_scatter_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_reduce_scatter_start(comm, ...) tutti_reduce_scatter_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_all_to_all_start(comm, ...) tutti_all_to_all_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_all_gather_v_start(comm, ...) tutti_all_gather_v_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_gather_v_start(comm, ...) tutti_gather_v_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_scatter_v_start(comm, ...) tutti_scatter_v_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_reduce_scatter_v_start(comm, ...) tutti_reduce_scatter_v_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_all_to_all_v_start(comm, ...) tutti_all_to_all_v_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_scan_start(comm, ...) tutti_scan_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_exscan_start(comm, ...) tutti_exscan_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_all_reduce_many_start(comm, ...) tutti_all_reduce_many_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_broadcast_many_start(comm, ...) tutti_broadcast_many_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_all_gather_many_start(comm, ...) tutti_all_gather_many_start(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_reduce_scatter_many_start(comm, ...) tutti_reduce_scatter_many_start(TUTTI_HERE(comm), __VA_ARGS__)
#endif

/* ---- layout.h ---- */
#if defined TUTTI_LAYOUT_DECLARED && !defined TUTTI_REDISTRIBUTION_HERE
#define TUTTI_REDISTRIBUTION_HERE(redistribution) tutti_redistribution_at((redistribution), __FILE__, __LINE__)
#define tutti_redistribution_run(redistribution, ...)                                                                  \
    tutti_redistribution_run(TUTTI_REDISTRIBUTION_HERE(redistribution), __VA_ARGS__)
#define tutti_redistribution_start(redistribution, ...)                                                                \
    tutti_redistribution_start(TUTTI_REDISTRIBUTION_HERE(redistribution), __VA_ARGS__)
#define tutti_redistribution_end(redistribution) tutti_redistribution_end(TUTTI_REDISTRIBUTION_HERE(redistribution))
#endif

/* ---- pipeline.h ---- */
#if defined TUTTI_PIPELINE_DECLARED && !defined TUTTI_PIPELINE_HERE
#define TUTTI_PIPELINE_HERE(runner) tutti_pipeline_at((runner), __FILE__, __LINE__)
#define tutti_pipeline_runner_create(comm, ...) tutti_pipeline_runner_create(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_pipeline_run(runner, ...) tutti_pipeline_run(TUTTI_PIPELINE_HERE(runner), __VA_ARGS__)
#define tutti_pipeline_timeline(runner, ...) tutti_pipeline_timeline(TUTTI_PIPELINE_HERE(runner), __VA_ARGS__)
#endif

/* ---- train.h ---- */
#if defined TUTTI_TRAIN_DECLARED && !defined TUTTI_TRAINER_HERE
#define TUTTI_DDP_HERE(ddp) tutti_ddp_at((ddp), __FILE__, __LINE__)
#define TUTTI_TRAINER_HERE(trainer) tutti_trainer_at((trainer), __FILE__, __LINE__)
#define tutti_gradient_norm(comm, ...) tutti_gradient_norm(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_weights_compare(comm, ...) tutti_weights_compare(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_ddp_create(comm, ...) tutti_ddp_create(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_ddp_begin(ddp, last) tutti_ddp_begin(TUTTI_DDP_HERE(ddp), last)
#define tutti_ddp_ready(ddp, index) tutti_ddp_ready(TUTTI_DDP_HERE(ddp), index)
#define tutti_ddp_ready_run(ddp, ...) tutti_ddp_ready_run(TUTTI_DDP_HERE(ddp), __VA_ARGS__)
#define tutti_ddp_gradient(ddp, ...) tutti_ddp_gradient(TUTTI_DDP_HERE(ddp), __VA_ARGS__)
#define tutti_ddp_gradient_run(ddp, ...) tutti_ddp_gradient_run(TUTTI_DDP_HERE(ddp), __VA_ARGS__)
#define tutti_ddp_need(ddp, ...) tutti_ddp_need(TUTTI_DDP_HERE(ddp), __VA_ARGS__)
#define tutti_ddp_need_run(ddp, ...) tutti_ddp_need_run(TUTTI_DDP_HERE(ddp), __VA_ARGS__)
#define tutti_ddp_end(ddp, ...) tutti_ddp_end(TUTTI_DDP_HERE(ddp), __VA_ARGS__)
#define tutti_ddp_spread(ddp) tutti_ddp_spread(TUTTI_DDP_HERE(ddp))
#define tutti_ddp_save(ddp, ...) tutti_ddp_save(TUTTI_DDP_HERE(ddp), __VA_ARGS__)
#define tutti_ddp_load(ddp, ...) tutti_ddp_load(TUTTI_DDP_HERE(ddp), __VA_ARGS__)
#define tutti_ddp_norm(ddp, norm) tutti_ddp_norm(TUTTI_DDP_HERE(ddp), norm)
#define tutti_ddp_gather_owned(ddp, ...) tutti_ddp_gather_owned(TUTTI_DDP_HERE(ddp), __VA_ARGS__)
#define tutti_ddp_scatter_owned(ddp, ...) tutti_ddp_scatter_owned(TUTTI_DDP_HERE(ddp), __VA_ARGS__)
#define tutti_shards_create(comm, ...) tutti_shards_create(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_shards_step(shards, ...) tutti_shards_step(tutti_shards_at((shards), __FILE__, __LINE__), __VA_ARGS__)
#define tutti_trainer_create(comm, ...) tutti_trainer_create(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_trainer_create_model(comm, ...) tutti_trainer_create_model(TUTTI_HERE(comm), __VA_ARGS__)
#define tutti_trainer_restore(trainer, comm) tutti_trainer_restore(trainer, TUTTI_HERE(comm))
#define tutti_trainer_step(trainer, step) tutti_trainer_step(TUTTI_TRAINER_HERE(trainer), step)
#define tutti_trainer_save(trainer) tutti_trainer_save(TUTTI_TRAINER_HERE(trainer))
#define tutti_trainer_validate(trainer, loss) tutti_trainer_validate(TUTTI_TRAINER_HERE(trainer), loss)
#endif

/* ---- experimental.h ---- */
#if defined TUTTI_EXPERIMENTAL_DECLARED && !defined tutti_tuning_set
#define tutti_tuning_set(comm, tuning) tutti_tuning_set(TUTTI_HERE(comm), tuning)
#endif

#endif
