/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is here: how a rank sees the other ranks of a comm, tells them things, and sleeps until one of them moves. A comm
 * has one such table: `posts` where its ranks share memory, `wire` where they exchange frames over a transport. Waits,
 * failures and messages know peers by this table only. The thread that is busy with the comm calls it, one thread at a
 * time; wake may come from any thread. Only sleep blocks.
 */
#ifndef TTI_COLLECTIVE_PEERS_H
#define TTI_COLLECTIVE_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

#include "collective/plan/kind.h"

struct tti_wait_record;
struct tti_waitable;

/* One agreement: the value that a rank gives, and the values that all get. */
struct tti_agreement {
    enum tti_kind kind; /* kind of the call that it is a part of: the same on all ranks */
    uint64_t mine;
    int64_t deadline_ms;
    bool kills;       /* a process that has not come when the deadline passes is killed, and so lost */
    uint64_t *values; /* (size) the value of each rank that took part: the same on all of them */
    bool *present;    /* (size) true if the rank took part; one that died later did, too */
    int peer;         /* after a failure: the rank that it is about */
    bool differs;     /* true if rank `peer` made another call */
};

enum tti_presence {
    TTI_PEER_HERE,
    TTI_PEER_LEAVING, /* it starts nothing more on the comm, and has said what it still sends and receives */
    TTI_PEER_LEFT,    /* all that it had started has ended */
    TTI_PEER_LOST     /* it died or ended without leaving */
};

/* News that a rank sends to all others. */
enum tti_news {
    TTI_NEWS_BROKE,          /* it has just broken the comm */
    TTI_NEWS_STARTS_NO_MORE, /* it starts nothing more; its collectives and messages are still under way */
    TTI_NEWS_CALLS_NO_MORE,  /* it starts nothing more, and its collectives have ended */
    TTI_NEWS_LEFT,           /* it starts nothing more, and its collectives and messages have ended */
    TTI_NEWS_EPOCH /* it is in another epoch from now on, and takes nothing of this one; told to the transport alone */
};

/* Agreements of ranks: which of them are lost, and on values. */
struct tti_decision_ops {
    /* Called by the rank that breaks the comm, before anyone can read the failure: fixes which ranks are lost, for
     * all. */
    void (*settle_lost)(tutti_comm *comm);
    /* Returns true if that rank is lost as the last decision has it: the one that broke the comm, or the last agreement
     * that this rank took part in. The same on all ranks that know of the same decision. */
    bool (*was_lost)(tutti_comm *comm, int rank);
    /* Blocks until every rank of the comm, which may be broken, has given its value, has left, or is lost. All that
     * take part get the same outcome: OK with the same values, ERR_TIMEOUT or ERR_MISMATCH; after these two nobody
     * agrees on the comm any more. ERR_EXCLUDED: the others go on without this rank, or are too few. ERR_MEMORY is
     * told. */
    tutti_status (*agree)(tutti_comm *comm, struct tti_agreement *agreement);
};

struct tti_peers_ops {
    const char *name;
    /* Returns the first rank from `first` on that is known to be lost, or -1, and writes who it was, for people: "pid
     * 17". `polls`: asks the system too. */
    int (*find_lost)(const tutti_comm *comm, int first, bool polls, char *who, size_t bytes);
    enum tti_presence (*presence)(const tutti_comm *comm, int rank);
    /* Returns a rank without which the running collective cannot end and that never comes to it, or -1. `awaited`: the
     * rank that the collective waits for now. */
    int (*find_absent)(const tutti_comm *comm, int awaited);
    /* Writes "rank 2's last call was #7 barrier at a.c:10". */
    void (*describe)(const tutti_comm *comm, int rank, char *text, size_t bytes);
    /* Called every few milliseconds of a long wait, after a poll: shows this rank's wait to the others, and reads the
     * waits of the ranks that it waits for (waits.h). `stand` changes when the call has moved on. NULL: the wait has
     * ended. */
    void (*show_wait)(tutti_comm *comm, const struct tti_wait_record *now, uint64_t stand);
    /* Gets what is known of a rank's present wait. Returns a number that changes when the rank is seen to move. */
    uint64_t (*read_wait)(const tutti_comm *comm, int rank, struct tti_wait_record *record);
    /* Sleeps at most `timeout_ns`, in a wait of `waited_ns` so far, unless something has come after all: announces
     * itself, polls once more, sleeps. Returns what the poll did. */
    tutti_status (*sleep)(tutti_comm *comm, const struct tti_waitable *waitable, int64_t waited_ns, int64_t timeout_ns);
    /* Ends another thread's sleep. */
    void (*wake)(tutti_comm *comm);
    /* Called by the service thread alone, before it polls the comm for the last time and sleeps on its rank's bell or
     * on the transport, and when it has woken. In between whoever brings something for the comm wakes it. After waking,
     * returns true if somebody did. */
    bool (*doze)(tutti_comm *comm, bool dozes);
    /* With more ranks than cores: returns true if another thread must get this core for the wait to end. */
    bool (*gives_way)(const tutti_comm *comm, const struct tti_waitable *waitable);
    void (*notify)(tutti_comm *comm, enum tti_news news);
    const struct tti_decision_ops *decisions;
    /* Frees what is kept for the comm. */
    void (*close)(tutti_comm *comm);
};

extern const struct tti_peers_ops tti_peers_posts, tti_peers_wire;

#endif
