/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of calls, and their names in messages.
 */
#ifndef TTI_COLLECTIVE_KIND_H
#define TTI_COLLECTIVE_KIND_H

/* id, name in messages */
#define TTI_KIND_LIST(X)                                                                                               \
    X(BARRIER, "barrier")                                                                                              \
    X(ALL_REDUCE, "all_reduce")                                                                                        \
    X(REDUCE, "reduce")                                                                                                \
    X(BROADCAST, "broadcast")                                                                                          \
    X(ALL_GATHER, "all_gather")                                                                                        \
    X(GATHER, "gather")                                                                                                \
    X(SCATTER, "scatter")                                                                                              \
    X(REDUCE_SCATTER, "reduce_scatter")                                                                                \
    X(ALL_TO_ALL, "all_to_all")                                                                                        \
    X(ALL_GATHER_V, "all_gather_v")                                                                                    \
    X(GATHER_V, "gather_v")                                                                                            \
    X(SCATTER_V, "scatter_v")                                                                                          \
    X(REDUCE_SCATTER_V, "reduce_scatter_v")                                                                            \
    X(ALL_TO_ALL_V, "all_to_all_v")                                                                                    \
    X(SCAN, "scan")                                                                                                    \
    X(EXSCAN, "exscan")                                                                                                \
    X(ALL_REDUCE_MANY, "all_reduce_many")                                                                              \
    X(BROADCAST_MANY, "broadcast_many")                                                                                \
    X(ALL_GATHER_MANY, "all_gather_many")                                                                              \
    X(REDUCE_SCATTER_MANY, "reduce_scatter_many")                                                                      \
    X(TUNING, "tuning_set")                                                                                            \
    X(LEAVE, "leave")                                                                                                  \
    X(SEND, "send")                                                                                                    \
    X(RECV, "recv")                                                                                                    \
    X(SENDRECV, "sendrecv")                                                                                            \
    X(PROBE, "probe")                                                                                                  \
    X(GROUP, "group")                                                                                                  \
    X(COMM_SPLIT, "comm_split")                                                                                        \
    X(COMM_DUPLICATE, "comm_duplicate")                                                                                \
    X(COMM_SELECT, "comm_select")                                                                                      \
    X(COMM_BY_HOST, "comm_by_host")                                                                                    \
    X(COMM_TOLERANT, "comm_tolerant")                                                                                  \
    X(MESH, "mesh")                                                                                                    \
    X(ALLOC, "alloc")                                                                                                  \
    X(FREE, "free")                                                                                                    \
    X(STATS, "comm_stats")                                                                                             \
    X(JOIN, "join")                                                                                                    \
    X(DDP_END, "ddp_end")                                                                                              \
    X(ACTORS, "actors_create")                                                                                         \
    X(ACTOR_ASK, "actor_ask")                                                                                          \
    X(ACTOR_TELL, "actor_tell")                                                                                        \
    X(ACTOR_WATCH, "actor_watch")                                                                                      \
    X(COMM_LOST, "comm_lost")                                                                                          \
    X(COMM_AGREE, "comm_agree")                                                                                        \
    X(COMM_REVOKE, "comm_revoke")                                                                                      \
    X(COMM_SHRINK, "comm_shrink")                                                                                      \
    X(COMM_REBUILD, "comm_rebuild")                                                                                    \
    X(COMM_GROW, "comm_grow")                                                                                          \
    X(COMM_RENEW, "comm_renew")

enum tti_kind {
#define TTI_KIND_ENUM(id, name) TTI_##id,
    TTI_KIND_LIST(TTI_KIND_ENUM)
#undef TTI_KIND_ENUM
};
const char *tti_kind_name(enum tti_kind kind);

#endif
