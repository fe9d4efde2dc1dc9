/* SPDX-License-Identifier: Apache-2.0
 *
 * Random programs: a seed makes a list of actions that all ranks of a world carry out in its order, and of which every rank
 * knows what must come out of them. program_make.c makes the list, program_run.c carries it out on one rank.
 *
 * No program can hang, for three reasons that program_make.c keeps: what an action blocks in needs the other ranks to come
 * to this action and no further; an op is waited for only after the action in which the last rank has started its part;
 * a message is taken by its own receive, or by one of several of the same action that may have it.
 */
#ifndef TESTS_PROGRAM_H
#define TESTS_PROGRAM_H

#include "conformance.h"
#include "conformance_layout.h"
#include <tutti/device.h>
#include <tutti/experimental.h>

enum {
    PROGRAM_RANKS = 9,
    PROGRAM_FAMILIES = 64, /* made in one program */
    PROGRAM_ITEMS = 256,
    PROGRAM_ACTIONS = 400,
    PROGRAM_PIECES = 10,   /* of one coalesced call */
    PROGRAM_LETTERS = 12,  /* of one item */
    PROGRAM_TOGETHER = 16, /* items that are waited for together */
    PROGRAM_ASIDES = 2
};

/* Comms that one call has made, of which a rank is in one at most. */
struct program_family {
    int from;                 /* the family whose comms were cut up; -1: the world */
    int group[PROGRAM_RANKS]; /* of each rank of the world: which of the comms it is in; -1: none */
    int place[PROGRAM_RANKS]; /* and its rank there */
    int size[PROGRAM_RANKS];  /* and how many these are */
    int sibling;              /* made from the same mesh, and freed with it; -1: none */
    bool tolerant;            /* its comms have messages only */
    enum conf_tuning tuning;  /* at the action that is being made */
    bool live;                /* likewise */
};

/* What letters of an item are sent and received by. */
enum program_post {
    POST_SERIAL,     /* blocking calls, in the same order everywhere */
    POST_STAR,       /* blocking calls, all to one rank */
    POST_SENDRECV,   /* around a ring; can be started and prepared */
    POST_GROUP,      /* in one group; can be started */
    POST_EACH,       /* each one started by itself */
    POST_RECV_FIRST, /* likewise, receives in one action, sends in a later one */
    POST_SEND_FIRST,
    POSTS
};

enum program_content {
    CONTENT_COLLECTIVE,
    CONTENT_MANY,
    CONTENT_LETTERS,
    CONTENT_ORPHAN /* a receive that nobody answers, or a send that nobody receives */
};

/* Whose handles are given up as soon as there are any: no rank waits for these letters, the other side does for its own. */
enum program_drops { DROPS_NONE, DROPS_SENDS, DROPS_RECEIVES };

/* Something that is called, or started and ends later. */
struct program_item {
    enum program_content content;
    int number, family;
    struct conf_case one; /* collectives; of pieces, the largest; of letters, type and largest count */
    int pieces;           /* coalesced */
    enum program_post post;
    int letters, tag;
    bool any_source, any_tag; /* receives take what comes; with both, a barrier follows */
    bool large;               /* of which table its data are */
    bool huge;                /* cut into parts on its way */
    enum program_drops drops;
    bool sends; /* an orphan */
    bool prepared;
    bool notified;  /* callbacks count its ends */
    bool on_stream; /* of device host; a collective */
    uint64_t seed;
};

enum program_kind {
    DO_RUN, /* a blocking call */
    DO_START,
    DO_SECOND, /* the other half of letters */
    DO_PREPARE,
    DO_AGAIN, /* starts what was prepared */
    DO_WAIT,  /* for several items */
    DO_DROP,  /* the handle */
    DO_CANCEL,
    DO_MAKE, /* a family; two of a mesh */
    DO_FREE,
    DO_TUNE,
    DO_BY_HOST,
    DO_STATS,
    DO_JOIN, /* a thread that does an action aside */
    DO_GROUP /* collectives and letters of several comms in one group */
};

enum program_make { MAKE_DUPLICATE, MAKE_SPLIT, MAKE_SELECT, MAKE_MESH, MAKE_TOLERANT, MAKES };

struct program_action {
    enum program_kind kind;
    int family, other; /* it is on; and the one that is made */
    int items[PROGRAM_TOGETHER], count;
    bool aside;   /* by a thread of its own, number `other`, until it is joined */
    int together; /* with so many actions behind it, in any order: all start something, on different comms */
    enum program_make make;
    enum conf_tuning tuning;
    uint64_t seed;
};

/* What goes wrong, once, when the victim has come to a certain action. */
enum program_fault_kind {
    FAULT_NONE,
    FAULT_KILL,   /* its process is killed, and maybe another one */
    FAULT_END,    /* its process, or its thread, ends without leaving */
    FAULT_STOP,   /* its process is stopped for a while */
    FAULT_CALL,   /* it makes a call that nobody else makes */
    FAULT_CANCEL, /* it cancels a collective */
    FAULT_LATE,   /* its next call on a comm has little time */
    FAULT_FREE,   /* it frees a comm that others go on to use */
    FAULT_LEAVE,  /* it leaves the world */
    FAULT_KINDS
};

struct program_fault {
    enum program_fault_kind kind;
    int victim, at; /* rank and action */
    unsigned gone;  /* ranks that will not come back, as bits */
    bool thread;    /* that ends, not its process */
};

struct program {
    uint64_t seed;
    int size;
    struct program_fault fault;
    const char *test; /* the name of the test program */
    struct program_family families[PROGRAM_FAMILIES];
    struct program_item items[PROGRAM_ITEMS];
    struct program_action actions[PROGRAM_ACTIONS];
    int family_count, item_count, action_count;
    const char *world; /* that it runs on, in words */
    int per_host;      /* ranks of a host there; 0: all */
    bool messages;     /* there are any */
    bool threads;      /* a rank may have several */
    bool withdraws;    /* sends are taken back */
};

/* ---- program_make.c ---------------------------------------------------------------------------------------------- */

void program_make(struct program *program, uint64_t seed);
/* "all_reduce f32 sum …", for people. */
const char *program_action_text(const struct program *program, const struct program_action *action, char *text,
                                size_t bytes);
/* Which of `bound` things. */
int program_pick(uint64_t seed, uint64_t what, int bound);
/* The case of a piece on a comm of this size: its own root and count. */
struct conf_case program_case(const struct program_item *item, int piece, int group, int size);

/* ---- program_family.c -------------------------------------------------------------------------------------------- */

/* How to cut up a comm of `size` ranks: colour and key of one; where this is in a list, or -1; sizes of a mesh. */
void program_split(const struct program_action *action, int group, int place, int *colour, int *key);
int program_selected(const struct program_action *action, int group, int size, int place);
int program_mesh_first(const struct program_action *action, int group, int size);
/* The families that an action makes, and the first of all. */
void program_form(struct program *program, const struct program_action *action);
void program_form_world(struct program *program);

/* ---- program_data.c ---------------------------------------------------------------------------------------------- */

enum { PROGRAM_SMALL = 6000, PROGRAM_LARGE = 65536, PROGRAM_SHIFTS = 512 };

/* Before the worlds: computes what the program's reductions give. */
void program_data_prepare(const struct program *program);
const struct conf_table *program_table(const struct program_item *item);

/* A stretch of memory that is used by a call, with what surrounds it. */
struct program_region {
    unsigned char *memory;
    size_t bytes, in_at, out_at;
    bool has_in, has_out;
    int how;              /* it was allocated */
    tutti_buffer *buffer; /* or NULL */
    void *base;
    size_t base_bytes;
};

/* What one rank gives to a call, and what must come out. */
struct program_piece {
    struct conf_case one;
    struct conf_layout layout;
    const struct conf_table *table;
    tutti_device *device; /* all its memory is there; NULL: it is the host's */
    int rank;
    size_t shift; /* where its data begin in the table */
    unsigned char pattern;
    struct program_region in, out; /* in place: all is in `out` */
    const void *in_pointer;
    void *out_pointer;
    int letter; /* messages */
    bool sends;
};

/* `one`, `layout`, `table`, `rank` are set; the seed is this rank's own. False: no memory. */
bool program_piece_place(struct program_piece *piece, tutti_comm *world, uint64_t seed);
/* For a call with data that begin there. */
void program_piece_fill(struct program_piece *piece, size_t shift);
/* False: `text` says what is wrong. */
bool program_piece_check(const struct program_piece *piece, char *text, size_t bytes);
void program_piece_free(struct program_piece *piece, tutti_comm *world);

/* ---- program_run.c ----------------------------------------------------------------------------------------------- */

/* An item on its way. */
struct program_live {
    const struct program_item *item;
    tutti_comm *comm;
    int rank, size; /* there, also when it is gone */
    struct program_piece pieces[2 * PROGRAM_LETTERS];
    int piece_count;
    tutti_op ops[2 * PROGRAM_LETTERS];
    int op_count;
    tutti_message got[2 * PROGRAM_LETTERS];
    size_t received;
    int turn; /* of what was prepared */
    bool started, dropped;
    bool failed; /* some of its calls */
    int watched; /* how many of its ops have callbacks */
};

/* The ends of an item's ops, as its callbacks have seen them. */
struct program_ends {
    int expected;
    atomic_int calls, wrong;
};

struct program_run {
    struct program *program;
    const struct program_action *action;
    tutti_comm *memory; /* of which memory is taken: the world, or the comm that this thread has for itself */
    tutti_comm *world, *comms[PROGRAM_FAMILIES];
    tutti_mesh *meshes[PROGRAM_FAMILIES]; /* by the first family of each */
    struct program_live **live;           /* by number; an item is one thread's at a time */
    struct program_aside *asides[PROGRAM_ASIDES];
    struct program_ends *ends;     /* by number of the item */
    struct program_device *device; /* device host and a stream of it, if the program uses them */
    int rank;
    struct program_state *state; /* of the rank, also of its threads */
    int64_t began_ns;            /* the action */
    struct program_run *kept;
};

/* Arrivals at barriers, in memory of all processes; by program_reset set to 0 before each world. */
extern atomic_ulong (*program_arrivals)[PROGRAM_RANKS];
void program_begin(void);
void program_reset(void);
/* The body of a world. */
void program_run(tutti_comm *world, void *program);
/* Counts; a failure is told with all that is needed to see it again. */
bool program_check(const struct program_run *run, bool condition, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool program_ok(const struct program_run *run, tutti_comm *comm, tutti_status status, const char *call);
/* Gives back an item and its memory. */
void program_lay_down(struct program_run *run, struct program_live *live);
/* What was dropped has ended when the comm is freed, and collectives when a blocking one behind them has. */
bool program_settle(struct program_run *run, int family, bool freed);
/* Ends what a thread does aside. */
bool program_join_aside(struct program_run *run, int slot);
/* Whether that one makes calls, and takes up items for them. */
bool program_is_calling(const struct program_run *run, int slot);

/* ---- program_more.c ---------------------------------------------------------------------------------------------- */

/* Device host with a stream, opened when first asked for. NULL: it could not be, which was told. */
struct program_device {
    tutti_device *device;
    tutti_stream *stream;
};
struct program_device *program_device(struct program_run *run);
/* Waits until the stream has done all. */
bool program_device_sync(struct program_run *run);
void program_device_close(struct program_run *run);
/* Has the ends of those of its ops counted that have none of that yet; of one that was prepared, at each start: */
bool program_ends_watch(struct program_run *run, struct program_live *live);
void program_ends_expect(struct program_run *run, const struct program_live *live);
/* When all ops have ended: every callback was called once for each end. */
bool program_ends_check(struct program_run *run);
bool program_group_run(struct program_run *run, const struct program_action *action);
/* For that: takes up an item, fills in its data, and looks at what came out of it. */
struct program_live *program_item_take(struct program_run *run, int number);
bool program_item_place(struct program_run *run, struct program_live *live);
bool program_item_check(struct program_run *run, struct program_live *live);
void program_item_fill(struct program_run *run, struct program_live *live);
bool program_item_is_message(const struct program_item *item);

/* ---- program_comms.c --------------------------------------------------------------------------------------------- */

/* The comms of the action at hand, from this one. */
bool program_comms_make(struct program_run *run, tutti_comm *comm);
bool program_comms_free(struct program_run *run);
/* Those of its ranks that are on this one's host, in their order. */
bool program_comms_by_host(struct program_run *run, tutti_comm *comm);

/* ---- program_fault.c --------------------------------------------------------------------------------------------- */

struct program_state {
    atomic_bool broken[PROGRAM_FAMILIES]; /* this rank was told so */
    atomic_bool vague[PROGRAM_FAMILIES];  /* or maybe it was */
    atomic_bool failed;                   /* some check */
};

/* What the processes of a world tell each other, and the test, about the fault. */
struct program_faulted {
    atomic_bool reached; /* the victim has come to the action */
    atomic_int family;   /* that is hit, if not all those of the victim */
    _Atomic int64_t struck_ns, ended_ns;
    atomic_char made[PROGRAM_FAMILIES][PROGRAM_RANKS];
};
extern struct program_faulted *program_faulted;

/* The longest times until a call failed, over all worlds, by kind of fault. */
extern _Atomic int64_t (*program_fault_worst)[FAULT_KINDS];

const char *program_fault_text(const struct program *program, char *text, size_t bytes);
/* By whoever has the processes: kills or stops. */
void program_fault_meanwhile(const struct conf_world *world, const pid_t *pids);
/* By the victim. False: it does no more. */
bool program_fault_strike(struct program_run *run);
/* Whether a call on this family's comm may fail with that, and says so with the right words. */
bool program_fault_excuses(const struct program_run *run, int family, tutti_status status, const char *call);
/* Whether calls on this rank's comm of the family may fail. */
bool program_fault_hits(const struct program_run *run, int family);
bool program_fault_has_broken(const struct program_run *run, int family);
/* Something has failed, which may be on this family's comm: whether it may. */
bool program_fault_suspects(const struct program_run *run, int family);
/* A comm that is broken says so. */
bool program_fault_stays(struct program_run *run, int family);
/* Whether all ranks that are still there have made their comms of the family, as this one has or not. */
bool program_fault_made(struct program_run *run, int family, int from, bool here);
/* What may be in use for good is not freed. */
void program_fault_keep(struct program_run *run);

/* ---- program_place.c --------------------------------------------------------------------------------------------- */

enum { PROGRAM_PLACES = 9 };

struct program_place {
    const char *name;
    enum world_ranks ranks;
    bool tcp, hosts, messages;
    int turn; /* in `make test`, seeds take turns on some of these: 0 is all of them, else those of 1 and of 2 */
};
extern const struct program_place program_places[PROGRAM_PLACES];

/* Ranks of a process there. */
int program_threads(const struct program *program, const struct program_place *place);
/* False: something failed, which was told. */
bool program_run_at(struct program *program, const struct program_place *place, const char *trace);

/* ---- program_call.c ---------------------------------------------------------------------------------------------- */

/* A collective whose pieces are placed. `op` NULL: blocking; else started, or prepared where the comm was told so. */
tutti_status program_call(struct program_live *live, tutti_op *op);

/* ---- program_letters.c ------------------------------------------------------------------------------------------- */

/* Posts letters, and with blocking calls sees them through; `second`: the half that comes later. False: something failed. */
bool program_letters_post_in_group(struct program_run *run, struct program_live *live);
bool program_letters_post(struct program_run *run, struct program_live *live, bool second);
bool program_letters_again(struct program_run *run, struct program_live *live);
bool program_letters_check(struct program_run *run, struct program_live *live);

#endif
