/* SPDX-License-Identifier: Apache-2.0
 *
 * Tutti: collectives between the ranks of a world, whether they are threads or processes.
 *
 *     static int work(tutti_comm *world, int argc, char **argv)
 *     {
 *         float *x = tutti_alloc(world, 4 * sizeof *x);
 *         ...
 *         if (tutti_all_reduce(world, x, x, 4, TUTTI_F32, TUTTI_SUM) != TUTTI_OK)
 *             return tutti_explain(world, stderr);
 *         return 0;
 *     }
 *     int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
 *
 * The header goes from simple to expert: what the program above needs comes first, up to the messages between two ranks.
 * Then come comms of some ranks and further collectives, ops that run in the background, and last what few programs need:
 * reductions of their own, statistics, and joining with options set by hand.
 *
 * Conventions of all headers
 *     Names     `count` is in elements, `bytes` in bytes, `_ms` in milliseconds. Outputs come last. What one creates or
 *               opens one frees with the function that ends in _free; NULL is ignored there.
 *     Structs   One whose first field is struct_size is given with that field set to its sizeof, so that it can grow. Others
 *               are values, which stay as they are, or are filled in by the library only.
 *     Errors    A function that can fail returns TUTTI_OK or a negative status, and describes the failure in a
 *               tutti_error. It has a last parameter `error` for that, which may be NULL. It has none where it is called
 *               on a comm, or on a mesh, an op, a redistribution or a ddp, which stand on a comm: there the comm keeps the
 *               error (tutti_comm_error). A model and a trainer keep theirs too (tutti_model_error, tutti_trainer_error).
 *               tutti_explain prints what comms and trainers keep, tutti_model_explain what a model keeps.
 *     Process   The library never exits, never prints to stdout and installs no signal handler.
 *     Threads   Different comms, also of one rank, may be used at the same time. Calls on one comm are made one at a time,
 *               by whichever thread. Functions that take the handle of an op (tutti_wait, tutti_test, tutti_drop …) may be
 *               called beside them: for each handle by one thread at a time, tutti_cancel by any.
 */
#ifndef TUTTI_H
#define TUTTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0

#ifndef TUTTI_API
#define TUTTI_API __attribute__((visibility("default")))
#endif

/* ---- Status ---------------------------------------------------------------------------------------------------- */

/* name, value, group, text. Enum, names, texts and docs/errors.md all come from this list. */
#define TUTTI_STATUS_LIST(X)                                                                                           \
    X(OK, 0, "none", "success")                                                                                        \
    X(IN_PROGRESS, 1, "none", "the operation has not ended yet")                                                       \
    X(ERR_ARGUMENT, -1, "argument", "an argument is missing or out of range")                                          \
    X(ERR_TYPE, -2, "argument", "the element type is unknown, or the reduction is not defined for it")                 \
    X(ERR_COUNT, -3, "argument", "a count is more than can be addressed, or than its buffer has")                      \
    X(ERR_RANK, -4, "argument", "a root or peer is not a rank of this comm")                                           \
    X(ERR_OVERLAP, -5, "argument",                                                                                     \
      "buffers of a call overlap and are not in its in-place form, or outputs of two ranks do")                        \
    X(ERR_OPTION, -6, "argument", "an option has an unknown name or a value out of range")                             \
    X(ERR_HANDLE, -7, "argument", "no op has this handle: waited for, dropped, never given, or its comm is gone")      \
    X(ERR_MEMORY, -20, "resource", "memory could not be allocated")                                                    \
    X(ERR_LIMIT, -21, "resource", "a limit of the system is too low for this world")                                   \
    X(ERR_SYSTEM, -22, "resource", "a system call failed")                                                             \
    X(ERR_UNSUPPORTED, -23, "resource", "this build or this machine cannot do what was asked")                         \
    X(ERR_PEER_LOST, -40, "peer", "a rank died or ended without leaving")                                              \
    X(ERR_TRUNCATED, -41, "peer", "a message is longer than the buffer it was received into")                          \
    X(ERR_MISMATCH, -42, "peer", "ranks made different calls")                                                         \
    X(ERR_TIMEOUT, -43, "peer", "a deadline passed")                                                                   \
    X(ERR_CANCELLED, -44, "peer", "the operation was cancelled")                                                       \
    X(ERR_JOIN, -60, "world", "the world could not be formed")                                                         \
    X(ERR_BROKEN, -61, "world", "the comm was broken by an earlier error")                                             \
    X(ERR_FORKED, -62, "world", "the handle belongs to the parent process and cannot be used after fork")              \
    X(ERR_EPOCH, -63, "world", "it was made before the world was rebuilt, and has to be made again")                   \
    X(ERR_EXCLUDED, -64, "world", "the other ranks go on without this one")                                            \
    X(ERR_DAMAGED, -80, "training", "a file is not what was saved")                                                    \
    X(ERR_DIVERGED, -81, "training", "a loss or a gradient is no finite number any more")                              \
    X(ERR_DEVICE, -100, "device", "a device has failed, and nothing on it works any more in this process")             \
    X(ERR_STALE, -101, "device", "a buffer, stream or mark was freed, or its device was shut down or opened again")    \
    X(ERR_ACTOR, -120, "actor", "no actor has this name, it has stopped, or it gave no answer")                        \
    X(ERR_FULL, -121, "actor", "the mailbox of an actor has no room for a request")

typedef enum tutti_status {
#define TUTTI_STATUS_ENUM(name, value, group, text) TUTTI_##name = (value),
    TUTTI_STATUS_LIST(TUTTI_STATUS_ENUM)
#undef TUTTI_STATUS_ENUM
} tutti_status;

TUTTI_API const char *tutti_status_name(tutti_status status);  /* "TUTTI_ERR_PEER_LOST" */
TUTTI_API const char *tutti_status_text(tutti_status status);  /* "a rank died or ended without leaving" */
TUTTI_API const char *tutti_status_group(tutti_status status); /* "argument", "resource", "peer", "world" … */

/* ---- A world and its ranks ------------------------------------------------------------------------------------- */

typedef struct tutti_comm tutti_comm; /* an ordered set of ranks that can do collectives; the first is the world */

typedef int tutti_work(tutti_comm *world, int argc, char **argv);

/* Runs `work` as a rank of the job that a launcher started (`tutti run -n 4 ./prog`, mpirun, srun, torchrun). Without a
 * launcher it runs alone, or as TUTTI_RANKS ranks, each a thread. tutti_main leaves the world when `work` has returned;
 * `work` itself does not. Returns the first non-zero value that a rank of this process returned, or 0. Returns 1 if all
 * returned 0 but ranks had made different calls, which was found when a rank left (see tutti_leave). If it could not
 * call `work` it prints a line on stderr and returns 2 if the environment is wrong (an option, or a launcher's
 * variable), 1 if the world could not be joined. */
TUTTI_API int tutti_main(tutti_work *work, int argc, char **argv);

TUTTI_API int tutti_rank(const tutti_comm *comm);
TUTTI_API int tutti_size(const tutti_comm *comm);
TUTTI_API int tutti_local_rank(const tutti_comm *comm); /* this rank's number among the world's ranks on its machine */

/* ---- Errors ---------------------------------------------------------------------------------------------------- */

typedef struct tutti_error {
    tutti_status status;
    int rank;          /* the rank that reports it */
    int peer;          /* the rank that it is about, or -1 */
    uint64_t sequence; /* number of the collective on this comm, from 1; 0: a message, or none has begun */
    int system_errno;  /* 0: none */
    uint64_t
        next_epoch;     /* if the error broke the comm: what goes on after it is of this epoch or a later one; else 0 */
    char operation[32]; /* "all_reduce" */
    char text[480];     /* one sentence: what, who, where, what to do */
} tutti_error;

/* Returns the last error of this comm, or NULL if its last operation succeeded (tutti_free and the like do not count,
 * so cleaning up loses no error). Valid until the next call on the comm, or until the next op that is waited for has
 * failed. */
TUTTI_API const tutti_error *tutti_comm_error(const tutti_comm *comm);

/* Prints that error to `stream` (NULL: stderr) for people. If this comm has none, it prints the latest error of this
 * rank: of another comm, of a void handle, of a mesh, a ddp or a trainer. Returns 1 if something has failed before,
 * else 0: `return tutti_explain(…)`. */
TUTTI_API int tutti_explain(const tutti_comm *comm, FILE *stream);

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Memory that every rank of this host can reach, aligned to 64 bytes, zeroed and committed: collectives on it move
 * bytes directly between ranks. Not collective. NULL (with the reason in tutti_comm_error) when it cannot be had.
 * 0 bytes give a pointer that may be freed. Ordinary memory works in every call too, with one copy more. */
TUTTI_API void *tutti_alloc(tutti_comm *comm, size_t bytes);
TUTTI_API tutti_status tutti_free(tutti_comm *comm, void *pointer); /* NULL is ignored; ERR_ARGUMENT: an op uses it */

/* ---- Elements and reductions ----------------------------------------------------------------------------------- */

/* name, bytes; the order is part of the interface */
/* clang-format off */
#define TUTTI_TYPE_LIST(X)                                                                                             \
    X(F64, 8) X(F32, 4) X(F16, 2) X(BF16, 2) X(F8E4M3, 1) X(F8E5M2, 1) X(I8, 1) X(U8, 1) X(I16, 2) X(U16, 2)           \
    X(I32, 4) X(U32, 4) X(I64, 8) X(U64, 8) X(BOOL, 1)
/* clang-format on */

typedef enum tutti_type {
#define TUTTI_TYPE_ENUM(name, bytes) TUTTI_##name,
    TUTTI_TYPE_LIST(TUTTI_TYPE_ENUM)
#undef TUTTI_TYPE_ENUM
        TUTTI_TYPE_COUNT
} tutti_type;

TUTTI_API size_t tutti_type_bytes(tutti_type type);     /* 0 for an unknown type */
TUTTI_API const char *tutti_type_name(tutti_type type); /* "f32" */

/* docs/reductions.md says what each pair of type and reduction does, and which pairs are errors. */
#define TUTTI_REDUCTION_LIST(X) X(SUM) X(PROD) X(MIN) X(MAX) X(AVG) X(AND) X(OR) X(XOR)

typedef enum tutti_reduction {
#define TUTTI_REDUCTION_ENUM(name) TUTTI_##name,
    TUTTI_REDUCTION_LIST(TUTTI_REDUCTION_ENUM)
#undef TUTTI_REDUCTION_ENUM
        TUTTI_REDUCTION_COUNT,
    TUTTI_REDUCTION_USER = 64 /* first number of registered and scaled reductions */
} tutti_reduction;

TUTTI_API const char *tutti_reduction_name(tutti_reduction reduction); /* "sum" */

/* ---- Collectives ----------------------------------------------------------------------------------------------- */
/* Every rank of the comm calls the same operations in the same order; the call returns when this rank's part has
 * ended. In place: all_reduce, reduce (root), broadcast, all_to_all, scan and exscan with in == out; all_gather and
 * gather (root) with in == the rank's own block of out; reduce_scatter and scatter (root) with out == the rank's own
 * block of in. Each rank chooses for itself, except in all_to_all: there all are in place, or none. Other overlaps are
 * ERR_OVERLAP, those of two ranks' outputs too: ranks that are threads share global and static variables. Count 0 takes
 * part. Offsets are in elements; NULL means blocks packed in rank order. Ranks that call different things get
 * ERR_MISMATCH, naming both calls. */

TUTTI_API tutti_status tutti_barrier(tutti_comm *comm);

TUTTI_API tutti_status tutti_all_reduce(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                        tutti_reduction reduction);
/* `out` is read and written at the root only; elsewhere it may be NULL. */
TUTTI_API tutti_status tutti_reduce(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                    tutti_reduction reduction, int root);
/* The root's `in` goes to every rank's `out`. `in` is read at the root only; elsewhere it may be NULL. */
TUTTI_API tutti_status tutti_broadcast(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                       int root);

/* `count`: elements of one rank's block. */
TUTTI_API tutti_status tutti_all_gather(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type);
TUTTI_API tutti_status tutti_gather(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                    int root);
TUTTI_API tutti_status tutti_scatter(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                     int root);
TUTTI_API tutti_status tutti_reduce_scatter(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                            tutti_reduction reduction);
TUTTI_API tutti_status tutti_all_to_all(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type);

/* ---- Messages between two ranks -------------------------------------------------------------------------------- */
/* A receive gets the first message that fits it, in the order in which they were sent; so messages between two ranks
 * with one tag arrive in order. A small message is sent at once; a large one when it is received, without a copy in
 * between. Types must be the same on both sides (ERR_MISMATCH); a message longer than `count` is ERR_TRUNCATED, which
 * says both lengths, and stays to be received. Tags are 0 or larger. A call that waits for a peer that has left, or for
 * any peer when all have left, gets ERR_MISMATCH; a receive that was started gets it once it is waited for or tested.
 *
 * Ranks in blocking calls on a comm, messages or collectives, that wait for each other and can never go on are all told
 * at once (ERR_MISMATCH), unless one of them waits for an op that it has started, or waits over a transport for any of
 * more than 64 ranks. Then the deadline ends the wait, and ERR_TIMEOUT says who waits for whom. */

/* Taken as the peer or tag of a receive or probe: any message matches, and senders take turns. */
#define TUTTI_ANY_SOURCE (-100)
#define TUTTI_ANY_TAG (-101)
/* Taken as the peer of a send or receive, in every form: there is no neighbour, so ranks at a border need no calls of
 * their own. Nothing is sent; a receive gets no elements and TUTTI_NOBODY as its source. */
#define TUTTI_NOBODY (-102)

/* `in` may be changed when the call has returned. */
TUTTI_API tutti_status tutti_send(tutti_comm *comm, const void *in, size_t count, tutti_type type, int peer, int tag);
/* `count` is the room in `out`; `received` (may be NULL) gets the elements that came. */
TUTTI_API tutti_status tutti_recv(tutti_comm *comm, void *out, size_t count, tutti_type type, int peer, int tag,
                                  size_t *received);
/* Sends and receives at once: neither waits for the other to end. The buffers must not overlap. */
TUTTI_API tutti_status tutti_sendrecv(tutti_comm *comm, const void *in, size_t in_count, int to, int in_tag, void *out,
                                      size_t out_count, int from, int out_tag, tutti_type type, size_t *received);

/* ---- Comms of some ranks --------------------------------------------------------------------------------------- */
/* These calls are collective over `comm` and make blocking calls on it; *made is NULL on ranks that are in none of the
 * new comms. Every comm is freed by itself, in any order; one that is still there when the world is left stays good for
 * its ranks. */

/* Makes one comm for each colour, its ranks ordered by key, then by rank in `comm`. A rank with a negative colour is in
 * none. */
TUTTI_API tutti_status tutti_comm_split(tutti_comm *comm, int colour, int key, tutti_comm **made);
/* Makes a comm of the same ranks: ops on one do not wait for ops on the other. */
TUTTI_API tutti_status tutti_comm_duplicate(tutti_comm *comm, tutti_comm **made);
/* Makes a comm of these ranks of `comm`, in this order; every rank of `comm` gives the same list, else all get
 * ERR_MISMATCH. */
TUTTI_API tutti_status tutti_comm_select(tutti_comm *comm, const int *ranks, int count, tutti_comm **made);
/* Makes a comm of the ranks on this rank's host. */
TUTTI_API tutti_status tutti_comm_by_host(tutti_comm *comm, tutti_comm **made);
TUTTI_API tutti_status tutti_comm_free(tutti_comm *comm); /* waits as tutti_leave does; NULL is ignored */
/* Returns the number in the world of rank `rank` of this comm, or -1 if there is no such rank. Ranks are numbered from
 * 0 in every comm, in errors too. */
TUTTI_API int tutti_world_rank(const tutti_comm *comm, int rank);

/* A comm's ranks as an array of named dimensions, the last one varying fastest: in a mesh of {"data" 2, "tensor" 4},
 * ranks 0 to 3 are the first row. Collective over `comm`; every rank gives the same names and sizes, else all get
 * ERR_MISMATCH. The mesh has a duplicate of `comm`: either can be freed first. */
typedef struct tutti_mesh tutti_mesh;
TUTTI_API tutti_status tutti_mesh_create(tutti_comm *comm, const char *const *names, const int *sizes, int dimensions,
                                         tutti_mesh **mesh);
TUTTI_API int tutti_mesh_size(const tutti_mesh *mesh, const char *name);       /* -1: no such dimension */
TUTTI_API int tutti_mesh_coordinate(const tutti_mesh *mesh, const char *name); /* this rank's; -1 likewise */
TUTTI_API int tutti_mesh_dimensions(const tutti_mesh *mesh);                   /* how many; 0 for NULL */
TUTTI_API const char *tutti_mesh_name(const tutti_mesh *mesh, int dimension);  /* "tensor"; NULL: no such dimension */
/* Gives the comm of this rank along one dimension, "tensor", or several, "data,tensor": the ranks that differ from it
 * only there, in the mesh's order. The first call for a set is collective over the mesh's ranks, and gets ERR_MISMATCH
 * if they ask for different sets; the comm that the mesh was made from has the details, as long as it is there. The
 * comm belongs to the mesh: tutti_comm_free refuses it. */
TUTTI_API tutti_status tutti_mesh_comm(tutti_mesh *mesh, const char *names, tutti_comm **comm);
TUTTI_API void tutti_mesh_free(tutti_mesh *mesh); /* frees its comms too; NULL is ignored */

/* ---- More collectives: blocks of different sizes, scans, many tensors at once ---------------------------------- */

/* The v-forms: counts[r] elements belong to rank r. In all_gather_v and reduce_scatter_v every rank gives the same
 * counts; in gather_v and scatter_v the root gives all and every rank its own; in all_to_all_v what a rank sends to
 * a peer must equal what the peer receives from it. In place as the forms above; all_to_all_v has no such form. Blocks
 * of `out` must lie apart (ERR_OVERLAP), in any order; those of `in` may overlap. */
TUTTI_API tutti_status tutti_all_gather_v(tutti_comm *comm, const void *in, void *out, const size_t *counts,
                                          const size_t *offsets, tutti_type type);
TUTTI_API tutti_status tutti_gather_v(tutti_comm *comm, const void *in, size_t count, void *out, const size_t *counts,
                                      const size_t *offsets, tutti_type type, int root);
TUTTI_API tutti_status tutti_scatter_v(tutti_comm *comm, const void *in, const size_t *counts, const size_t *offsets,
                                       void *out, size_t count, tutti_type type, int root);
TUTTI_API tutti_status tutti_reduce_scatter_v(tutti_comm *comm, const void *in, void *out, const size_t *counts,
                                              tutti_type type, tutti_reduction reduction);
TUTTI_API tutti_status tutti_all_to_all_v(tutti_comm *comm, const void *in, const size_t *in_counts,
                                          const size_t *in_offsets, void *out, const size_t *out_counts,
                                          const size_t *out_offsets, tutti_type type);

/* scan: out on rank r is the reduction of ranks 0..r. exscan: of ranks 0..r-1; rank 0's out is left as it is. */
TUTTI_API tutti_status tutti_scan(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                  tutti_reduction reduction);
TUTTI_API tutti_status tutti_exscan(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                    tutti_reduction reduction);

/* Many tensors in one call: each piece gets what a call of its own would give it, to the bit, in its own buffers and in
 * place where in and out are so. Small pieces travel together, so that a hundred of them cost little more than one;
 * large ones go one after the other, without a copy. Every rank gives as many pieces with the same counts (ERR_MISMATCH
 * says which differ). No piece, and pieces of count 0, take part. What one piece writes must not overlap another one.
 *     tutti_piece pieces[] = {{weights, weights, 4096}, {bias, bias, 64}};
 *     tutti_all_reduce_many(comm, pieces, 2, TUTTI_F32, TUTTI_AVG); */
typedef struct tutti_piece {
    const void *in;
    void *out;
    size_t count; /* elements, as in the call for one */
} tutti_piece;

TUTTI_API tutti_status tutti_all_reduce_many(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                             tutti_type type, tutti_reduction reduction);
TUTTI_API tutti_status tutti_broadcast_many(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                            tutti_type type, int root);
TUTTI_API tutti_status tutti_all_gather_many(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                             tutti_type type);
TUTTI_API tutti_status tutti_reduce_scatter_many(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                                 tutti_type type, tutti_reduction reduction);

/* ---- More messages: probes ------------------------------------------------------------------------------------- */

/* A message that was received, or that can be. */
typedef struct tutti_message {
    int source, tag;
    tutti_type type;
    size_t count;
} tutti_message;

/* Like recv, and describes the message that came. `message` may be NULL. */
TUTTI_API tutti_status tutti_recv_message(tutti_comm *comm, void *out, size_t count, tutti_type type, int peer, int tag,
                                          tutti_message *message);
/* Waits until a message that fits has come, and leaves it there: a receive of that source and tag gets it. */
TUTTI_API tutti_status tutti_probe(tutti_comm *comm, int peer, int tag, tutti_message *message);
/* The same without waiting: TUTTI_IN_PROGRESS if none has come yet, ERR_MISMATCH if none will, since that rank, or all
 * others, have left. The comm stays good in both cases. */
TUTTI_API tutti_status tutti_try_probe(tutti_comm *comm, int peer, int tag, tutti_message *message);

/* ---- Groups: calls that start and end together ----------------------------------------------------------------- */
/* A group: collectives and messages of this comm between begin and end only say what is to be done, and return at once;
 * end does them all together and returns when all have ended. Messages do not wait for each other, nor for collectives,
 * in whatever order they were called; collectives keep their order:
 *     tutti_group_begin(comm);
 *     for (int peer = 0; peer < size; peer++) {
 *         tutti_send(comm, out[peer], count, TUTTI_F32, peer, 0);
 *         tutti_recv(comm, in[peer], count, TUTTI_F32, peer, 0, NULL);
 *     }
 *     tutti_status status = tutti_group_end(comm);
 * Buffers must stay until end has returned; outputs must lie apart, and are set by then. Counts, offsets and lists of
 * pieces may change at once. If calls fail, end returns the error of the first one in their order and names it; the
 * others have been done, unless their comm is broken. If a call was refused, end starts nothing and returns that
 * refusal. On a comm that is in a group these are refused: calls with handles of their own, prepared ops, making comms
 * and meshes, and setting the tuning. A probe is not part of the group, and looks at once. */
TUTTI_API tutti_status tutti_group_begin(tutti_comm *comm);
TUTTI_API tutti_status tutti_group_end(tutti_comm *comm);
/* Another comm of this rank joins the group that was begun on `comm`, until its end: calls on it from now on belong to
 * the group too. Calls on different comms do not wait for each other, so ranks may make them in any order of comms.
 * `comm` keeps the group's error, in which ranks are numbered as in the comm of the failed call. A comm is in one group
 * at a time; if one is freed meanwhile its calls are gone, and end says so. */
TUTTI_API tutti_status tutti_group_add(tutti_comm *comm, tutti_comm *other);

/* ---- Ops: operations that go on while the caller does something else ------------------------------------------- */
/* Every operation has a form that only starts it and gives a handle. The buffers belong to the op until it has ended,
 * and counts and offsets of the v-forms and lists of pieces may change at once. Ops of one comm, and its blocking
 * calls, go in the order in which they were started; ops of different comms are independent. A thread that waits for an
 * op takes it forward; where nobody waits, a service thread of the process does.
 *
 * A handle is good until its op was waited for with success or failure, or dropped; after that it is ERR_HANDLE. An op
 * that failed leaves the details in its comm. A deadline (tutti_within) ends an op and breaks its comm; a wait that
 * times out leaves it running.
 *
 *     tutti_op op;
 *     tutti_all_reduce_start(world, gradient, gradient, count, TUTTI_F32, TUTTI_SUM, &op);
 *     ...                                                 compute
 *     if (tutti_wait(op) != TUTTI_OK) return tutti_explain(world, stderr);
 */
typedef struct tutti_op {
    uint64_t id; /* 0: no op; ignored by wait_any and wait_all */
} tutti_op;

/* Waits until the op has ended, and returns its status. The handle is void then. */
TUTTI_API tutti_status tutti_wait(tutti_op op);
/* The same for at most `timeout_ms` (negative: for ever). Returns IN_PROGRESS if the op has not ended by then; it goes
 * on. */
TUTTI_API tutti_status tutti_wait_for(tutti_op op, int64_t timeout_ms);
TUTTI_API tutti_status tutti_test(tutti_op op); /* without waiting */
/* Waits until one op has ended, and returns its status; *index says which one. Its handle is void: set its id to 0
 * before the next call. Returns IN_PROGRESS when the time is over, and OK with *index == count if there was no op to
 * wait for; prepared ops that are not started do not count. */
TUTTI_API tutti_status tutti_wait_any(const tutti_op *ops, size_t count, int64_t timeout_ms, size_t *index);
/* Waits until all ops have ended. Returns OK, or the first failure in their order. Their handles are void, as after
 * tutti_wait. If they are of several comms, the comm of the failed one has the details; tutti_explain finds them. */
TUTTI_API tutti_status tutti_wait_all(const tutti_op *ops, size_t count);
/* Asks an op to end: it ends with ERR_CANCELLED unless it had ended before. This breaks its comm, since the other ranks
 * would wait for this one. The comm stays whole if all its parts are messages that can be taken back: receives that no
 * message has come for, and sends that no receive has taken (between ranks that share memory: sends that the receiver
 * was not yet told of). The handle must still be waited for or dropped. */
TUTTI_API tutti_status tutti_cancel(tutti_op op);
/* Gives up the handle, not the op, which is finished and freed by itself. */
TUTTI_API tutti_status tutti_drop(tutti_op op);

/* ---- Ops: how each operation is started ------------------------------------------------------------------------ */

TUTTI_API tutti_status tutti_barrier_start(tutti_comm *comm, tutti_op *op);
TUTTI_API tutti_status tutti_all_reduce_start(tutti_comm *comm, const void *in, void *out, size_t count,
                                              tutti_type type, tutti_reduction reduction, tutti_op *op);
TUTTI_API tutti_status tutti_reduce_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                          tutti_reduction reduction, int root, tutti_op *op);
TUTTI_API tutti_status tutti_broadcast_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                             int root, tutti_op *op);
TUTTI_API tutti_status tutti_all_gather_start(tutti_comm *comm, const void *in, void *out, size_t count,
                                              tutti_type type, tutti_op *op);
TUTTI_API tutti_status tutti_gather_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                          int root, tutti_op *op);
TUTTI_API tutti_status tutti_scatter_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                           int root, tutti_op *op);
TUTTI_API tutti_status tutti_reduce_scatter_start(tutti_comm *comm, const void *in, void *out, size_t count,
                                                  tutti_type type, tutti_reduction reduction, tutti_op *op);
TUTTI_API tutti_status tutti_all_to_all_start(tutti_comm *comm, const void *in, void *out, size_t count,
                                              tutti_type type, tutti_op *op);
TUTTI_API tutti_status tutti_all_gather_v_start(tutti_comm *comm, const void *in, void *out, const size_t *counts,
                                                const size_t *offsets, tutti_type type, tutti_op *op);
TUTTI_API tutti_status tutti_gather_v_start(tutti_comm *comm, const void *in, size_t count, void *out,
                                            const size_t *counts, const size_t *offsets, tutti_type type, int root,
                                            tutti_op *op);
TUTTI_API tutti_status tutti_scatter_v_start(tutti_comm *comm, const void *in, const size_t *counts,
                                             const size_t *offsets, void *out, size_t count, tutti_type type, int root,
                                             tutti_op *op);
TUTTI_API tutti_status tutti_reduce_scatter_v_start(tutti_comm *comm, const void *in, void *out, const size_t *counts,
                                                    tutti_type type, tutti_reduction reduction, tutti_op *op);
TUTTI_API tutti_status tutti_all_to_all_v_start(tutti_comm *comm, const void *in, const size_t *in_counts,
                                                const size_t *in_offsets, void *out, const size_t *out_counts,
                                                const size_t *out_offsets, tutti_type type, tutti_op *op);
TUTTI_API tutti_status tutti_scan_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                        tutti_reduction reduction, tutti_op *op);
TUTTI_API tutti_status tutti_exscan_start(tutti_comm *comm, const void *in, void *out, size_t count, tutti_type type,
                                          tutti_reduction reduction, tutti_op *op);
TUTTI_API tutti_status tutti_all_reduce_many_start(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                                   tutti_type type, tutti_reduction reduction, tutti_op *op);
TUTTI_API tutti_status tutti_broadcast_many_start(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                                  tutti_type type, int root, tutti_op *op);
TUTTI_API tutti_status tutti_all_gather_many_start(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                                   tutti_type type, tutti_op *op);
TUTTI_API tutti_status tutti_reduce_scatter_many_start(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                                       tutti_type type, tutti_reduction reduction, tutti_op *op);

TUTTI_API tutti_status tutti_send_start(tutti_comm *comm, const void *in, size_t count, tutti_type type, int peer,
                                        int tag, tutti_op *op);
/* `message` (may be NULL) must stay until the op has ended. */
TUTTI_API tutti_status tutti_recv_start(tutti_comm *comm, void *out, size_t count, tutti_type type, int peer, int tag,
                                        tutti_message *message, tutti_op *op);
TUTTI_API tutti_status tutti_sendrecv_start(tutti_comm *comm, const void *in, size_t in_count, int to, int in_tag,
                                            void *out, size_t out_count, int from, int out_tag, tutti_type type,
                                            size_t *received, tutti_op *op);

/* Ends a group by only starting its calls; the op has ended when all of them have. The op belongs to `comm`, which
 * waits for it when it is freed; cancelling it cancels all calls. Buffers, `received` and `message` must stay until
 * then. A group that holds only messages of one comm can be prepared. */
TUTTI_API tutti_status tutti_group_end_start(tutti_comm *comm, tutti_op *op);

/* ---- Ops: callbacks, and ops that are prepared once ------------------------------------------------------------ */

/* Has `ended` called exactly once when the op has ended, with its status and its error (NULL: success). The thread that
 * ended the op calls it, holding no lock; if the op has ended already it is called at once; for a prepared op it is
 * called at every end. An op may have several callbacks. The handle stays good, and may be dropped. The callback may
 * start ops and messages on a comm on which nobody else makes calls meanwhile; it must not wait, which is refused.
 * Freeing a comm waits until its callbacks have returned. */
typedef void tutti_ended(void *context, tutti_status status, const tutti_error *error);
TUTTI_API tutti_status tutti_when_ended(tutti_op op, tutti_ended *ended, void *context);

/* An op that is prepared once and started many times. tutti_all_reduce_start(tutti_prepared(comm), …, &op) checks
 * everything and starts nothing; then come tutti_start(op) and tutti_wait(op), as often as wanted, and tutti_drop(op)
 * at the end. What was said about that call (tutti_named, tutti_within) holds for every start, unless something else is
 * said about the comm before that start. */
TUTTI_API tutti_comm *tutti_prepared(tutti_comm *comm);
TUTTI_API tutti_status tutti_start(tutti_op op);

/* ---- About the next call --------------------------------------------------------------------------------------- */
/* Each returns `comm`, so that it can stand in the call itself:
 *     tutti_all_reduce(tutti_named(world, "loss"), x, x, 1, TUTTI_F32, TUTTI_SUM);
 *     tutti_barrier(tutti_within(world, 500));            ends with ERR_TIMEOUT after 500 ms, and breaks the comm */
TUTTI_API tutti_comm *tutti_named(tutti_comm *comm, const char *name);
TUTTI_API tutti_comm *tutti_within(tutti_comm *comm, int64_t deadline_ms);
TUTTI_API tutti_comm *tutti_at(tutti_comm *comm, const char *file, int line);

/* ---- Reductions of one's own ----------------------------------------------------------------------------------- */

/* left[i] = left[i] (op) right[i] for `count` elements. `left` holds contributions of lower ranks than `right`. */
typedef void tutti_reduce_function(void *context, void *left, const void *right, size_t count, tutti_type type);

/* Registers a reduction of one's own, for any type it accepts. Ranks agree on it by name. The function must be
 * associative; it is applied in the canonical order. It is registered for the whole process: the same name, function
 * and context again, as given by ranks that are threads, give the same reduction; the same name with others is an
 * error. */
TUTTI_API tutti_status tutti_reduction_register(const char *name, tutti_reduce_function *function, void *context,
                                                tutti_reduction *reduction, tutti_error *error);

/* Registers the sum of contributions that each rank first multiplies by `factor`; ranks may use different factors. With
 * an integer type the factor must be a whole number of that type. It is registered for the whole process: two calls
 * with the same factor give the same reduction. */
TUTTI_API tutti_status tutti_reduction_scaled_sum(double factor, tutti_reduction *reduction, tutti_error *error);

/* ---- Going on after a loss --------------------------------------------------------------------------------------- */
/* A comm that has lost a rank is broken: every op on it fails. The survivors can agree on what to do, and go on without
 * the lost ranks (docs/healing.md):
 *     if (tutti_all_reduce(comm, …) != TUTTI_OK) {
 *         tutti_comm *next;
 *         if (tutti_comm_shrink(comm, &next) != TUTTI_OK) return tutti_explain(comm, stderr);
 *         comm = next;
 *     }
 * A rank is lost when its process, or its thread, has ended without leaving. Over tcp more than half of the ranks must
 * be left, or half of them with rank 0, since a silent rank may still live; the others get ERR_EXCLUDED. Under tutti run
 * on one host, and with --hosts and --keep-going or --max-restarts, this rule does not apply: the launcher knows which
 * ranks live, and decides. */

/* Tells which ranks of this comm are lost, in order: how many, and the numbers of the first `room` of them. They are
 * those that were lost when the comm broke, the same on every rank, or those that the last agreement of this rank has
 * found, the same on all ranks. Over tcp without tutti run the ranks decide the first, and this call waits for it for up
 * to 3 s; where others do not answer, it tells what this rank knows. `ranks` may be NULL if `room` is 0. A whole comm has
 * none. */
TUTTI_API tutti_status tutti_comm_lost(tutti_comm *comm, int *ranks, int room, int *count);

/* Agrees on the bitwise AND of the values that all ranks give that are not lost, also on a broken comm. All ranks get
 * the same outcome, also if some die meanwhile; the value that a rank gave before it died may be in it. Every rank of
 * the comm that lives must call it, unless it has left. ERR_TIMEOUT: a rank did not come within the deadline
 * (tutti_within, or that of the comm); all ranks get this, the late one too when it comes, and nobody can agree on this
 * comm any more. */
TUTTI_API tutti_status tutti_comm_agree(tutti_comm *comm, uint64_t mine, uint64_t *all);

/* Breaks the comm for all its ranks, on purpose: ops in flight end with ERR_CANCELLED, which names this rank. */
TUTTI_API tutti_status tutti_comm_revoke(tutti_comm *comm);

/* Makes a comm of all ranks that are left of the world, or of a comm that shrink has made, in the same order and of the
 * next epoch (tutti_epoch). All of them call it, on a comm that is broken or has lost a rank; on a whole one it is
 * ERR_ARGUMENT, and nothing changes. All or nothing: if one rank cannot, all get an error. Each rank's memory stays its
 * own; comms and handles that it made before are refused from then on (ERR_EPOCH), and have to be freed. A process that
 * does not come within the deadline is killed, since it could write into memory of the others, and is lost. A thread
 * cannot be killed: the others get ERR_TIMEOUT. Over tcp a late rank gets ERR_EXCLUDED when it comes. */
TUTTI_API tutti_status tutti_comm_shrink(tutti_comm *comm, tutti_comm **made);

/* Makes the world again, with all its ranks and their numbers, of a later epoch. The launcher starts lost processes
 * again (tutti run --max-restarts N); their `work` is called with a world of that epoch (tutti_epoch(world) > 0). All
 * other ranks call this when an op has failed, on the world or on what rebuild has made before. All or nothing; ranks
 * that are lost meanwhile are started again, too. A process that does not come within the deadline is killed and
 * started again. Threads share their process's fate. Each rank's memory stays its own; what it made before is refused
 * from then on (ERR_EPOCH), and has to be freed. On a whole comm it is ERR_ARGUMENT, and nothing changes.
 * ERR_UNSUPPORTED: the launcher does not start ranks again. ERR_JOIN: it has no restarts left, or a rank has done its
 * work and left. */
TUTTI_API tutti_status tutti_comm_rebuild(tutti_comm *comm, tutti_comm **made);
/* True if the launcher starts lost processes of the comm's job again, as long as it has restarts left. */
TUTTI_API bool tutti_comm_can_rebuild(const tutti_comm *comm);

/* Makes the world again with processes that wait to join the job, of a later epoch: under tutti run --max-ranks M they
 * are started by tutti run --join JOB, and wait in tutti_join or tutti_main. All ranks of the world call it, while it is
 * whole; the old ones keep their numbers, those that wait now come behind them, up to M, and enter `work` with a world
 * of that epoch (tutti_epoch(world) > 0). All or nothing: a process that waits and dies meanwhile is left out, unless
 * nobody is left; one that does not come within the deadline (tutti_within, or else the option join_timeout_ms) is
 * ended. After any error the comm is as it was before. Each rank's memory stays its own; what it made before is refused
 * from then on (ERR_EPOCH), and has to be made again (tutti_comm_renew) or freed. ERR_ARGUMENT: nobody waits.
 * ERR_UNSUPPORTED: nobody can join this job. ERR_BROKEN: the comm has lost a rank, and has to be rebuilt first.
 * ERR_JOIN: somebody could not join. ERR_PEER_LOST: a rank that was there before died. */
TUTTI_API tutti_status tutti_comm_grow(tutti_comm *comm, tutti_comm **made);
/* Returns how many processes wait to join the comm's job at this moment. Ranks may see different numbers; it is the
 * call of tutti_comm_grow that decides who is taken in. */
TUTTI_API int tutti_comm_waiting(const tutti_comm *comm);

/* Makes a comm that was made from an earlier world again, with those of its ranks that `world` has, in its order: after
 * a rebuild all of them, after a shrink renumbered. Collective over `world`: each rank gives the comm that it was in,
 * of whatever ranks, which may answer ERR_EPOCH but not be freed yet; or NULL, as one must that was started again, or
 * was in none. `made` is NULL where none of the others was in one comm with this rank. ERR_MISMATCH: ranks that were in
 * one comm give different ones. */
TUTTI_API tutti_status tutti_comm_renew(tutti_comm *old, tutti_comm *world, tutti_comm **made);
/* The same for a mesh, over the comm that takes the place of the one that it was made from. ERR_ARGUMENT: that comm has
 * lost ranks, so the sizes do not fit any more, or all ranks give NULL. */
TUTTI_API tutti_status tutti_mesh_renew(const tutti_mesh *old, tutti_comm *comm, tutti_mesh **mesh);

/* ---- Statistics ------------------------------------------------------------------------------------------------ */
/* Statistics of this rank's side of a comm, since it was made. A wait counts once it is so long that the clock is read
 * anyway, after a microsecond or two, and from then on: short waits are not counted. Over messages a rank knows only of
 * the ranks that it hears from: a wait for one that waits in turn counts for that one, and not as skew. TUTTI_TRACE
 * shows single operations. */
typedef struct tutti_stats {
    size_t struct_size;           /* to be set before the call: sizeof(tutti_stats) */
    uint64_t operations, started; /* collectives called, and how many of them in a `_start` form */
    uint64_t bytes;               /* of their buffers on this rank, in and out */
    uint64_t waits;               /* long ones, for any rank, in collectives and messages */
    int64_t waited_ns;
    int64_t skew_mean_ns, skew_max_ns; /* per operation: waited for ranks that had not come yet */
    uint64_t memory_bytes;             /* this rank holds for the comm, without messages under way */
    uint64_t shared_bytes;             /* all its ranks share; of one host */
    uint64_t sent, received;           /* messages that have ended with success */
    uint64_t sent_bytes, received_bytes;
    uint64_t on_cuda, on_nccl; /* collectives on streams that were carried out by these providers (docs/gpu.md); */
    uint64_t on_staging;       /* through pinned memory, by the host; */
    uint64_t on_host;          /* by the host in place, on device "host" */
    uint64_t unordered;        /* of those on NCCL, sums and products, which are not in canonical order */
} tutti_stats;

TUTTI_API tutti_status tutti_comm_stats(tutti_comm *comm, tutti_stats *stats);
/* Tells how much of waited_ns was for each rank of the comm: tutti_size(comm) numbers. */
TUTTI_API tutti_status tutti_comm_waits(tutti_comm *comm, int64_t *waited_ns);

/* ---- Log ------------------------------------------------------------------------------------------------------- */

typedef enum tutti_log_level { TUTTI_QUIET, TUTTI_ERROR, TUTTI_WARN, TUTTI_INFO, TUTTI_DEBUG } tutti_log_level;
typedef void tutti_log_callback(void *context, tutti_log_level level, const char *line);

/* Sends log lines to `callback` instead of stderr (NULL: back to stderr), from any thread. */
TUTTI_API void tutti_log_to(tutti_log_callback *callback, void *context);
TUTTI_API void tutti_log_set_level(tutti_log_level level);

/* ---- Joining and leaving without tutti_main -------------------------------------------------------------------- */

/* One option is one row: field, kind, default, minimum, maximum, help. The struct below, the environment (TUTTI_ and
 * the name in capitals), the tool's flags and the man page derive from it. Kinds: INT, MS and BYTES are numbers
 * ("64M" is accepted for BYTES), BOOL is 0 or 1, TEXT is a string; a TEXT's default is given as a string. */
#define TUTTI_OPTION_LIST(X)                                                                                           \
    X(ranks, INT, 1, 1, 65536, "ranks of each process, as threads; for programs that use tutti_main")                  \
    X(job, TEXT, "", 0, 0, "name of the job to join; set by the launcher")                                             \
    X(rank, INT, -1, -1, 65535, "this process's number in the job; set by the launcher")                               \
    X(size, INT, 0, 0, 65536, "number of processes in the job; set by the launcher")                                   \
    X(launcher, TEXT, "auto", 0, 0, "who started this process: auto, or one of docs/launchers.md; none: nobody")       \
    X(master_addr, TEXT, "", 0, 0, "jobs on several hosts: name or address of the host of rank 0")                     \
    X(master_port, INT, 0, 0, 65535, "jobs on several hosts: port where rank 0 waits for the others")                  \
    X(join_timeout_ms, MS, 30000, 1, 86400000, "how long joining may take before every rank gets an error")            \
    X(stall_report_ms, MS, 30000, 1, 86400000, "a waiting operation reports whom it waits for after this long")        \
    X(deadline_ms, MS, 1800000, 1, 604800000, "an operation that has not ended by then fails and breaks its comm")     \
    X(fence_ms, MS, 1000, 1, 86400000, "how long a failed operation waits for a peer that may still write to it")      \
    X(arena_bytes, BYTES, 0, 0, 1125899906842624, "address space of tutti_alloc, per process; 0: the memory's size")   \
    X(direct, BOOL, 1, 0, 1, "0: treat every buffer as private, as if no rank could reach another's memory")           \
    X(attach, BOOL, 1, 0, 1, "0: never use cross-memory attach for private buffers of processes")                      \
    X(tuning, TEXT, "", 0, 0, "file of switch-over sizes, as written by tutti bench --tune")                           \
    X(log, TEXT, "warn", 0, 0, "what is logged to stderr: quiet, error, warn, info or debug")                          \
    X(transport, TEXT, "auto", 0, 0,                                                                                   \
      "auto: memory within a host, tcp between hosts; tcp: between all ranks; shm: memory, on one host only")          \
    X(host_aware, BOOL, 1, 0, 1, "several hosts: ranks of one host combine in memory; 0: all by messages")             \
    X(host_processes, INT, 0, 0, 65536, "for trials: so many processes each count as a host of their own; 0: none")    \
    X(interface, TEXT, "", 0, 0, "tcp: the network interface to use, by name or address; all if not set")              \
    X(ports, TEXT, "", 0, 0, "tcp: ports to listen at, as LOW-HIGH; any if not set")                                   \
    X(key_file, TEXT, "", 0, 0, "file with the job's key, made by tutti key FILE; needed between hosts")               \
    X(streams, INT, 0, 0, 8,                                                                                           \
      "tcp: connections per pair of ranks that share messages of 4M and more; 0: one within a host, else by ranks")    \
    X(heartbeat_ms, MS, 2000, 2000, 86400000, "a host that has been silent for this long is lost")                     \
    X(trace, TEXT, "", 0, 0,                                                                                           \
      "file for a trace of all operations, for chrome://tracing or Perfetto; see docs/tracing.md")                     \
    X(trace_events, INT, 65536, 1, 268435456,                                                                          \
      "trace: the events that each rank keeps of a comm; older ones are dropped")                                      \
    X(board, TEXT, "", 0, 0, "where ranks that are joining see which others have ended; set by the launcher")          \
    X(ticket, INT, -1, -1, 65535, "which of those that wait to be taken in this process is; set by the launcher")      \
    X(cuda_path, TEXT, "", 0, 0, "folders, with colons between, where libcuda, NVRTC and NCCL are looked for first")   \
    X(cache, TEXT, "", 0, 0, "folder for compiled kernels; XDG_CACHE_HOME/tutti or ~/.cache/tutti if not set")         \
    X(device, TEXT, "auto", 0, 0,                                                                                      \
      "this rank's device for programs that ask (tutti_device_open_for): host, cuda:N, or cuda, where local ranks "    \
      "take turns; auto: as the program says")                                                                         \
    X(device_provider, TEXT, "auto", 0, 0,                                                                             \
      "who carries out calls on streams: auto, cuda (one kernel for ranks that share a GPU), nccl or staged (the "     \
      "host)")                                                                                                         \
    X(exact, BOOL, 0, 0, 1, "1: sums on GPUs have the same bits as on the host; NCCL's have not, so it is not used")

#define TUTTI_OPTION_TYPE_INT int64_t
#define TUTTI_OPTION_TYPE_MS int64_t
#define TUTTI_OPTION_TYPE_BYTES int64_t
#define TUTTI_OPTION_TYPE_BOOL bool
#define TUTTI_OPTION_TYPE_TEXT const char *

typedef struct tutti_options {
    size_t struct_size; /* set by tutti_options_init */
#define TUTTI_OPTION_FIELD(name, kind, initial, low, high, help) TUTTI_OPTION_TYPE_##kind name;
    TUTTI_OPTION_LIST(TUTTI_OPTION_FIELD)
#undef TUTTI_OPTION_FIELD
} tutti_options;

/* Sets the defaults, then reads the environment. On a bad value there: ERR_OPTION, which says what is accepted, and the
 * option keeps its default. */
TUTTI_API tutti_status tutti_options_init(tutti_options *options, tutti_error *error);

/* Joins, as one rank, the job that the environment describes (docs/launchers.md). If it describes none, makes a world
 * of one rank. */
TUTTI_API tutti_status tutti_join(tutti_comm **world);

/* Joins without an environment: all `size` ranks that name the same `job` form a world. `options` may be NULL.
 * All or nothing: if one rank cannot join, every rank gets an error that names it. On failure *world still is a
 * comm, good only for tutti_comm_error, tutti_explain and tutti_leave (or NULL when memory ran out). */
TUTTI_API tutti_status tutti_join_as(const char *job, int rank, int size, const tutti_options *options,
                                     tutti_comm **world);

/* Leaves the world and frees it with the memory that tutti_alloc gave for it. Waits for a peer only if a collective
 * that was started has not ended, or a message that the peer knows of, dropped ones too: until its deadline, 30 s at
 * most. Then it cancels them. NULL is ignored. ERR_MISMATCH, which is logged: the world was left, but ranks had made
 * different calls, such as a small broadcast from two roots, that nobody could notice before. Of two such ranks at
 * least the later one is told. ERR_SYSTEM: the world was left, but its trace, or part of it, could not be written (a
 * full disk). tutti_main returns 1 then if `work` returned 0. Every call refuses a world that was left
 * (ERR_ARGUMENT). */
TUTTI_API tutti_status tutti_leave(tutti_comm *world);

TUTTI_API const char *tutti_job(const tutti_comm *comm);
/* Returns how often the world had been rebuilt when the comm was made. What was made in an earlier epoch is refused:
 * ERR_EPOCH. */
TUTTI_API uint64_t tutti_epoch(const tutti_comm *comm);

#define TUTTI_DECLARED
#include <tutti/call_sites.h> /* errors name the file and line of the calls they are about */

#ifdef __cplusplus
}
#endif
#endif
