/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers by posts: ranks of a comm see each other in memory that they share.
 *
 * Shared memory of a comm (its area), one post per rank. Everything in a post is written by its rank alone, except the
 * bell. A rank takes part in operation s by writing its call into slot s % window and then the entry word: (s << 32 |
 * signature | private mark). Invariant of the window: a rank writes slot s only when all ranks have entered operation s
 * - window + 1, so that nobody can still need what the slot held; ranks may run ahead of each other by that much. A
 * small window stays in the caches; ranks that share cores get a large one, so that a turn on a core lasts longer.
 *
 * In a comm over several hosts the ranks of one host have posts too, with a place each in the order of their numbers,
 * and carry out the local steps of host-aware plans there (plan_hosts.h). All else goes by messages, as with ranks of
 * other hosts. A post has one slot there, and that is enough: all meet in such an operation, and if it uses buffers
 * nobody enters the next one before all have left. No rank writes to another's memory. A rank that sleeps until another
 * publishes sleeps in its transport, where a frame (NUDGE) wakes it. After a failure buffers are their owner's again
 * when no thread of its own process can still read them: other processes read memory that stays mapped, or read by
 * attach, and their operation fails as well.
 */
#ifndef TTI_COLLECTIVE_POSTS_H
#define TTI_COLLECTIVE_POSTS_H

#include "collective/comm/comm.h"
#include "collective/plan/plan_hosts.h"

enum { TTI_WINDOW = 8, TTI_WINDOW_CROWDED = 256 };
enum { TTI_SCRATCH_BYTES = 65536, TTI_WAIT_WORDS = sizeof(struct tti_wait_record) / sizeof(uint64_t) };
#define TTI_FAILED UINT32_C(0x80000000) /* published in place of TTI_LEFT by a rank whose operation failed */

/* The part of a rank's call that others need to move its data. */
struct tti_met {
    struct tti_place in, out;
    uint32_t can_attach;
};

/* A slot. Small data, or the places of large data, are in the cache line of the entry word: often one line is all that
 * crosses. */
struct tti_slot {
    _Alignas(64) _Atomic uint64_t entry;
    union {
        unsigned char payload[TTI_PAYLOAD_BYTES];
        struct tti_met met;
    };
};
_Static_assert(sizeof(struct tti_slot) == 64, "what others need to move data lies in the entry word's line");

/* Larger staged data lie behind the slot if there is room, else in the rank's grains. An operation takes one, two, four
 * or eight of these in one half of them, and the next operation in the other half, so that no rank waits for one that
 * is still in the operation before. Operations of a size use so many places in turn that all have 8 KiB, two at least:
 * data that are written and read again so soon are in the writer's first cache when they are read, and cross in less
 * time. Behind data there is as much memory that nobody uses: a reader fetches the lines that follow too, and must not
 * take lines that are being written. With more ranks than cores slots have room for everything, so that the rank on a
 * core can go on for long. */
enum {
    TTI_SLOT_ROOM = 256,
    TTI_GRAIN_BYTES = 1024,
    TTI_GRAIN_STRIDE = 2 * TTI_GRAIN_BYTES,
    TTI_GRAINS = 16,
    TTI_STAGES_BYTES = TTI_GRAINS * TTI_GRAIN_STRIDE
};

struct tti_post {
    _Alignas(64) _Atomic uint64_t progress; /* s << 32 | number published in operation s; 0: entered */
    _Atomic uint32_t left;                  /* TTI_STAYS…: how far the rank has left the comm */
    _Atomic uint32_t stopped;               /* the comm is broken, and the rank touches no message of a peer any more */
    struct tti_place temp;                  /* over several hosts: other memory that ranks of this host read */
    _Alignas(64) tti_bell bell;
    _Atomic int32_t core; /* where the rank last entered; kept up with more ranks than cores only; rarely written */
    /* 0: awake; rank + 1: asleep until that rank publishes; -1: until anyone does. */
    _Atomic int32_t waiting_for;
    _Atomic uint32_t dozes;        /* its service thread sleeps on the rank's bell; the first to ring clears it */
    _Atomic uint32_t wait_version; /* odd while it changes: */
    _Atomic uint64_t wait[TTI_WAIT_WORDS]; /* struct tti_wait_record */
    /* s << 32 | TTI_LEFT when the rank's part in operation s is done, by any rank. It has its own line, since all
     * others poll it. */
    _Alignas(64) _Atomic uint64_t done;
    _Alignas(64) _Atomic uint64_t claimed; /* s << 32 | 1 + the rank that does it; only ranks on its core touch it */
    /* Words that do not change have their own line, since others read them in every operation: */
    _Alignas(64) _Atomic uint32_t epoch; /* the epoch in which the rank made its side of the comm */
    int32_t pid;
    struct tti_transport *endpoint; /* for a simulated rank, over several hosts: the transport that it sleeps in */
    /* Rarely written: */
    _Atomic uint64_t agreed;   /* number << 32 | kind of the last agreement that the rank came to */
    _Atomic uint64_t given[2]; /* its values there and in the agreement before, by the number's lowest bit */
    _Atomic uint32_t lost;     /* the rank was lost when the comm broke, as the breaking rank found */
};

/* A comm's shared memory as this rank has mapped it, and what it has seen there. */
struct tti_posts {
    struct tti_area *area; /* address of the memory */
    size_t bytes;          /* size of the memory */
    bool owned;       /* for a comm that was split off: the memory is in this process's arena, given by this rank */
    bool given;       /* for a comm that was split off: the memory is given back when all have freed their side */
    bool one_process; /* the ranks that share it are threads of this process */
    int count, place; /* how many ranks share it, and this rank's place among them: its number if all ranks do */
    const struct tti_hosts *hosts; /* the comm's hosts, if it has several; NULL: all ranks share it */
    struct tti_hosts *own_hosts;   /* the same, to be freed; NULL: owned elsewhere */
    struct tti_post *posts;        /* (count) */
    char *slots;                   /* struct tti_slot: `window` of each rank */
    size_t slot_stride;            /* bytes from one slot to the next */
    size_t slot_room;              /* bytes of it behind the slot */
    struct tti_call *calls;        /* `window` of each rank; apart from the slots: peers read them for errors only */
    uint64_t *shown;               /* (window) editions of the calls in this rank's slots */
    uint64_t window;               /* a power of two, the same on all ranks */
    uint64_t all_entered;          /* the last operation that all ranks are known to have entered */
    struct tti_own_wait own;       /* the wait that this rank's post shows */
    int64_t since_ns;              /* the time from which the post shows it */
    _Atomic uint64_t *channels;    /* size * size: see message_routes.c */
    char *stages;                  /* for providers: the stage of each rank */
    uint64_t *tables;              /* for providers: the counts and offsets that each rank gives in v-forms */
    char *bounce;                  /* `bounce_bytes` for data that others cannot reach; NULL: none */
    size_t bounce_bytes;
};

/* Bytes of shared memory that a comm of `size` ranks needs. */
size_t tti_posts_bytes(int size, bool bounce);
size_t tti_posts_bytes_small(int size, bool bounce); /* bytes for a comm that was split off */
/* Finds the parts of a comm's memory. Returns false if there is no memory for it. */
bool tti_posts_create(tutti_comm *comm, void *area, size_t bytes);
void tti_posts_free(tutti_comm *comm);

/* Memory that a comm's ranks of this host share, if it has several hosts. */
struct tti_here_setup {
    const int *host_of;            /* (size) the host of each rank of the comm; or: */
    const struct tti_hosts *hosts; /* the hosts, which outlast the comm */
    void *area;                    /* tti_posts_bytes_here bytes, zeroed */
    bool given, one_process;
};
size_t tti_posts_bytes_here(int count);
tutti_status tti_posts_create_here(tutti_comm *comm, const struct tti_here_setup *setup, tutti_error *error);

/* For a comm over several hosts: returns true if operations of this kind go by host-aware plans. */
bool tti_posts_cover(const tutti_comm *comm, enum tti_kind kind);
/* Returns what a rank of this host has published last; 0: it is on another host. */
uint64_t tti_posts_mark(const tutti_comm *comm, int rank);

/* Allocates memory that the ranks of this host can read, aligned to 64. Simulated ranks that move no data share one
 * piece. */
void *tti_temp_alloc(tutti_comm *comm, size_t bytes);
void tti_temp_release(tutti_comm *comm, void *memory, bool in_use);

/* Return the place of a rank that shares the memory, and the rank at a place. */
static inline int tti_place_here(const struct tti_posts *memory, int rank)
{
    return memory->hosts == NULL ? rank : memory->hosts->place_of[rank];
}

static inline int tti_rank_here(const tutti_comm *comm, int place)
{
    const struct tti_hosts *hosts = comm->memory->hosts;
    return hosts == NULL ? place : tti_rank_at(hosts, hosts->host_of[comm->rank], place);
}

static inline struct tti_slot *tti_slot_of(const tutti_comm *comm, int place, uint64_t sequence)
{
    uint64_t index = (uint64_t)place * comm->memory->window + (sequence & (comm->memory->window - 1));
    return (struct tti_slot *)(void *)(comm->memory->slots + index * comm->memory->slot_stride);
}

static inline struct tti_call *tti_call_of(const tutti_comm *comm, int place, uint64_t sequence)
{
    return &comm->memory->calls[(uint64_t)place * comm->memory->window + (sequence & (comm->memory->window - 1))];
}

/* To be called when this rank is about to sleep until that rank (-1: any rank) publishes; a last poll then sees what
 * was published before. And when it has slept. */
void tti_posts_announce(tutti_comm *comm, int waiting_for);
void tti_posts_awake(tutti_comm *comm);
/* As in peers.h (posts_agree.c). */
void tti_posts_settle_lost(tutti_comm *comm);
bool tti_posts_was_lost(tutti_comm *comm, int rank);
tutti_status tti_posts_agree(tutti_comm *comm, struct tti_agreement *agreement);
/* The same for its service thread, which sleeps until any rank brings something; see peers.h. */
bool tti_posts_doze(tutti_comm *comm, bool dozes);
/* Wakes the ranks that sleep until this rank publishes; `everyone`: all that sleep. */
void tti_comm_ring_sleepers(tutti_comm *comm, bool everyone);
static inline void tti_comm_ring(tutti_comm *comm, bool everyone)
{
    const struct tti_area *area = comm->memory->area;
    tti_fence_frequent(atomic_load_explicit(&area->full_fences, memory_order_relaxed) != 0);
    if (atomic_load_explicit(&area->sleepers, memory_order_relaxed) != 0) tti_comm_ring_sleepers(comm, everyone);
}
/* Wakes one rank if it sleeps, whatever it waits for. */
void tti_comm_wake(tutti_comm *comm, int rank);

/* For an operation that both have entered: returns true if `peer` and this rank had made different calls by then. */
static inline bool tti_peer_called_otherwise(const tutti_comm *comm, int peer, uint64_t sequence)
{
    uint64_t mine = atomic_load_explicit(&tti_slot_of(comm, comm->rank, sequence)->entry, memory_order_relaxed);
    uint64_t other = atomic_load_explicit(&tti_slot_of(comm, peer, sequence)->entry, memory_order_acquire);
    return mine >> 32 == other >> 32 && ((mine ^ other) & ~UINT64_C(1)) != 0;
}
/* Breaks the comm since this rank and `peer` have made different calls, and names the first of those that both still
 * hold. Over links it first asks the peer for its call: IN_PROGRESS. */
__attribute__((cold)) tutti_status tti_op_mismatch(struct tti_op *op, int peer);
/* This rank leaves by `call`. Reports if it has made another call than a peer and nobody may have noticed: a root may
 * have given data that the others have not taken. */
void tti_leave_compare(tutti_comm *comm, const struct tti_call *call);
/* For a v-form that all have entered: checks that what each rank sends is what the other receives. */
tutti_status tti_op_check_counts(struct tti_op *op);

#endif
