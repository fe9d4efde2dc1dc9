/* SPDX-License-Identifier: Apache-2.0
 *
 * A provider carries out whole collectives of a comm. `shared` works on memory that all ranks of the comm can reach, `host`
 * by messages over a transport. The one executor's queue, waits and failures (op.c, queue.c, watch.c, failure.c) know
 * providers by this table only. Everything is called by whoever is busy with the comm, one thread at a time, and nothing
 * blocks unless it says so.
 */
#ifndef TTI_COLLECTIVE_PROVIDER_H
#define TTI_COLLECTIVE_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

struct tti_op;
struct tti_waitable;

/* Where a peer is that waits for this rank. */
struct tti_seen {
    int message;      /* kind + 1 of a call of messages; 0: in a collective */
    int tag, awaited; /* of that message, and who it waits for */
};

struct tti_provider_ops {
    const char *name;
    /* Takes an op that has begun as far as it goes: OK at its end, IN_PROGRESS, or the error that broke the comm. */
    tutti_status (*progress)(struct tti_op *op);
    /* As much of it as can be done without moving much, so that the others see this rank come. */
    tutti_status (*open)(struct tti_op *op);
    /* The op failed, the comm is broken: this rank touches nothing of the others any more. */
    void (*stop)(struct tti_op *op);
    /* Whether nobody can touch the failed op's buffers any more; past `until_ns` it must make sure of it (it may block then)
     * or quarantine them, and returns true. */
    bool (*is_fenced)(struct tti_op *op, int64_t until_ns);
    /* The comm has just been broken by this rank: the others must learn of it. */
    void (*spread)(tutti_comm *comm);
    /* A rank of the comm that is known to be lost, or -1; `look`: ask the system too. */
    int (*find_lost)(tutti_comm *comm, bool look);
    bool (*has_left)(const tutti_comm *comm, int rank);
    /* Whether it starts nothing more on the comm, and what it sends and receives was said before; so too when it has left. */
    bool (*is_leaving)(const tutti_comm *comm, int rank);
    /* A rank that calls no more collectives and has not called the one that runs: the one that is waited for in it, or
     * another that it cannot end without; or -1. */
    int (*find_absent)(const tutti_comm *comm, int awaited);
    /* Whom that rank itself waits for, as far as can be seen; else that rank. */
    int (*blame)(const tutti_comm *comm, int rank);
    /* A number that changes when the rank is seen to move. */
    uint64_t (*mark_of)(const tutti_comm *comm, int rank);
    /* "rank 2's last call was #7 barrier at a.c:10", and what it waits in where that is seen. */
    void (*describe)(const tutti_comm *comm, int rank, char *text, size_t bytes);
    /* Who a lost rank was, for people: "pid 17". */
    void (*identify)(const tutti_comm *comm, int rank, char *text, size_t bytes);
    /* Called every few milliseconds of a long wait; `first`: of this one. Whether the rank that it is for is seen in a
     * blocking collective, with nothing else in flight, that this rank has not called and that cannot end before it
     * has, or before another rank that waits so; or in a message that has met nothing, as this one (`seen`), in a
     * round of such waits. NULL: the wait has ended. */
    bool (*look)(tutti_comm *comm, const struct tti_waitable *waitable, bool first, struct tti_seen *seen);
    /* Sleeps at most `timeout_ns`, in a wait of `waited_ns` so far, unless something has come after all: announces
     * itself, polls once more, sleeps. Returns what the poll did. */
    tutti_status (*sleep)(tutti_comm *comm, const struct tti_waitable *waitable, int64_t waited_ns, int64_t timeout_ns);
    /* With more ranks than cores: whether somebody else on this core must get it for the wait to end. */
    bool (*gives_way)(const tutti_comm *comm, const struct tti_waitable *waitable);
    /* Ends another thread's sleep. The one call that may come from any thread. */
    void (*wake)(tutti_comm *comm);
    /* This rank starts nothing more on the comm, its messages are still on their way; `ended`: its collectives are not. Tells
     * the others. */
    void (*end_calls)(tutti_comm *comm, bool ended);
    /* This rank makes no more calls on the comm, and all it has called has ended: tells the others. */
    void (*leave)(tutti_comm *comm);
    /* Frees what the provider keeps for the comm. */
    void (*close)(tutti_comm *comm);
};

extern const struct tti_provider_ops tti_provider_shared, tti_provider_host;

#endif
