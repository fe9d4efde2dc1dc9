/* SPDX-License-Identifier: Apache-2.0
 *
 * Things that the tool needs and users may try. They may change between versions.
 */
#ifndef TUTTI_EXPERIMENTAL_H
#define TUTTI_EXPERIMENTAL_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Options as rows ------------------------------------------------------------------------------------------- */

typedef enum tutti_option_kind {
    TUTTI_OPTION_INT,
    TUTTI_OPTION_MS,    /* "250", "250ms", "3s", "2min" */
    TUTTI_OPTION_BYTES, /* "64", "64K", "1M", "2G": powers of 1024 */
    TUTTI_OPTION_BOOL,  /* "0", "1", "yes", "no", "on", "off" */
    TUTTI_OPTION_REAL,  /* "0.5", "3e-4" */
    TUTTI_OPTION_TEXT
} tutti_option_kind;

typedef struct tutti_option_row {
    const char *name; /* "join_timeout_ms": environment TUTTI_JOIN_TIMEOUT_MS, flag --join-timeout-ms */
    tutti_option_kind kind;
    const char *initial; /* default, as text */
    int64_t low, high;   /* accepted range of numbers */
    const char *help;
} tutti_option_row;

/* The library's own options (TUTTI_OPTION_LIST). */
TUTTI_API const tutti_option_row *tutti_option_rows(size_t *count);

/* Reads `text` as the row's kind. ERR_OPTION when it is not one or is out of range. */
TUTTI_API tutti_status tutti_option_parse(const tutti_option_row *row, const char *text, int64_t *number,
                                          tutti_error *error);
/* The same for the kind REAL, whose values are no whole numbers. */
TUTTI_API tutti_status tutti_option_parse_real(const tutti_option_row *row, const char *text, double *number,
                                               tutti_error *error);

/* Returns OK if ranks on this host could join a job of `hosts` hosts with these options: it checks names, ports and
 * files, those of the network only if it is used. 0 hosts: checks the names alone, for ranks that are elsewhere. */
TUTTI_API tutti_status tutti_options_check(const tutti_options *options, int hosts, tutti_error *error);

/* Returns the shortest of `words` that begins with `word`, else the nearest to it by edit distance, or NULL if none is
 * near. */
TUTTI_API const char *tutti_nearest(const char *word, const char *const *words, size_t count);

/* Makes text of others fit to be shown: what a terminal would act on (control characters, bytes that are no UTF-8,
 * marks that turn the direction of writing) becomes '?', in place. Returns `text`. Errors and log lines of the library
 * are printable. */
TUTTI_API char *tutti_text_printable(char *text);

/* A variable of the environment that begins with TUTTI_ but is no option, so it has no effect. */
typedef struct tutti_stray_option {
    char name[64];
    char nearest[64]; /* the option that may be meant; "": none is near */
} tutti_stray_option;
/* Finds the first of them from `*place` on, which begins with 0 and is moved behind it. Returns false if there are no
 * more. */
TUTTI_API bool tutti_options_stray(size_t *place, tutti_stray_option *stray);

/* ---- Switch-over sizes ----------------------------------------------------------------------------------------- */

/* name, kind, default, low, high, help. `tutti bench --tune` measures them and writes "name value" lines;
 * the option `tuning` reads that file, on rank 0, for all ranks. */
#define TUTTI_TUNING_LIST(X)                                                                                           \
    X(one_shot, BYTES, 256, 0, 8192, "collectives in which all need all: up to here staged and taken without meeting") \
    X(staged, BYTES, 1024, 0, 8192, "collectives with a root: up to here likewise; the root waits for nobody")         \
    X(one_shot_crowded, BYTES, 2048, 0, 8192, "more ranks than cores: in place of one_shot")                           \
    X(staged_crowded, BYTES, 8192, 0, 8192, "more ranks than cores: in place of staged")                               \
    X(stream, BYTES, 0, 0, 1125899906842624,                                                                           \
      "all ranks' buffers: past the caches from here, of copies half up to 1.5 times this; 0: last cache, at most "    \
      "32M")                                                                                                           \
    X(stream_to_all, BYTES, 0, 0, 1125899906842624,                                                                    \
      "broadcast, all_gather: in place of the above; 0: twice that, or half of the last cache if nothing is set")      \
    X(chunk, BYTES, 131072, 4096, 1048576, "private buffers: bytes staged at a time")                                  \
    X(attach, BYTES, 32768, 0, 1125899906842624,                                                                       \
      "private buffers of processes: from here on cross-memory attach, all_reduce from twice this on")                 \
    X(tree, BYTES, 65536, 0, 1125899906842624,                                                                         \
      "private broadcast to more than 4 ranks: from here on a pipelined tree")                                         \
    X(eager, BYTES, 4096, 0, 4096,                                                                                     \
      "send: up to here, over tcp 16 times this, of private buffers of processes twice, a message is sent before "     \
      "it is received")                                                                                                \
    X(dissemination, INT, 128, 2, 65536, "barrier: from this many ranks on by dissemination")                          \
    X(message_flat, INT, 4, 1, 65536,                                                                                  \
      "over messages, small data: up to this many ranks a root hears all others directly, and with fewer sends to "    \
      "them all")                                                                                                      \
    X(message_paired, BYTES, 0, 0, 1125899906842624,                                                                   \
      "over messages: up to here half of the ranks exchange for all, which saves messages, and broadcasts are not "    \
      "cut into pieces; 0: never, or up to 512K if ranks share cores")                                                 \
    X(message_tree, BYTES, 32768, 0, 1125899906842624,                                                                 \
      "over messages, collectives with a root: up to here along a tree of whole messages; more with many ranks")       \
    X(message_doubling, BYTES, 1048576, 0, 1125899906842624,                                                           \
      "over messages, all_reduce of two ranks: up to here by recursive doubling; above, each rank owns a slice")       \
    X(message_halving, INT, 64, 2, 65536,                                                                              \
      "over messages, large all_reduce: from this many ranks on by recursive halving")                                 \
    X(message_bruck, BYTES, 8192, 0, 1125899906842624,                                                                 \
      "over messages, all_gather and all_to_all: up to here in a logarithmic number of rounds; more with many ranks")  \
    X(message_chunk, BYTES, 1048576, 64, 16777216, "over messages: most bytes that are reduced or passed on at a time")

typedef struct tutti_tuning {
    size_t struct_size;
#define TUTTI_TUNING_FIELD(name, kind, initial, low, high, help) int64_t name;
    TUTTI_TUNING_LIST(TUTTI_TUNING_FIELD)
#undef TUTTI_TUNING_FIELD
} tutti_tuning;

TUTTI_API const tutti_option_row *tutti_tuning_rows(size_t *count);
TUTTI_API void tutti_tuning_get(const tutti_comm *comm, tutti_tuning *tuning);

/* Collective: all ranks must give the same table. */
TUTTI_API tutti_status tutti_tuning_set(tutti_comm *comm, const tutti_tuning *tuning);

/* ---- Who started this process ------------------------------------------------------------------------------------ */

typedef struct tutti_launcher_row {
    const char *name;      /* "openmpi": a value of the option `launcher` */
    const char *title;     /* "Open MPI's mpirun" */
    const char *variables; /* the variables that it sets, parted by spaces */
} tutti_launcher_row;

/* Returns the known launchers in order of precedence: the first that is found has started this process. */
TUTTI_API const tutti_launcher_row *tutti_launcher_rows(size_t *count);
/* Returns true if the environment shows that this launcher started the process. */
TUTTI_API bool tutti_launcher_found(const tutti_launcher_row *row);

typedef struct tutti_launch {
    size_t struct_size;
    const tutti_launcher_row *launcher; /* NULL: nobody; this process is a job of its own */
    char job[128];
    int rank, size;             /* of processes */
    int local_rank, local_size; /* among those of this host; -1: not told */
    int node_rank, node_count;  /* hosts; -1: not told */
    bool one_host;              /* all processes are on this host */
    char host[256];             /* several hosts: where rank 0 waits for the others; "": by `store`, or not told */
    int port;
    const char *store; /* several hosts: by which rank 0 tells where it waits: "c10d", "pmi", "pmix" or "" */
    bool waits;        /* to be taken into a job that runs: rank and size are not known before (0, 1) */
} tutti_launch;

/* Reads the environment. ERR_OPTION or ERR_JOIN when it contradicts itself. */
TUTTI_API tutti_status tutti_launch_read(tutti_launch *launch, tutti_error *error);

/* ---- Keys ------------------------------------------------------------------------------------------------------ */

/* Makes a new file with a random key for jobs of several hosts (option key_file), readable by its owner alone. Copy it
 * to every host. A file that is there already is left alone: ERR_SYSTEM. */
TUTTI_API tutti_status tutti_key_create(const char *path, tutti_error *error);

/* ---- Simulation ------------------------------------------------------------------------------------------------ */
/* All ranks of a world in the calling thread, each with a stack of its own, in simulated time. The library runs as
 * always: every collective, message, deadline and failure. A run is a function of its setup: the same seed gives the
 * same order of events, another seed gives another order of events that may happen in any. */

typedef struct tutti_sim_death {
    int rank;
    int64_t at_ns; /* after the start */
} tutti_sim_death;

/* What else may happen to ranks and hosts. Sets of hosts have a bit for each of the first 64. */
typedef enum tutti_sim_fault_kind {
    /* Nothing comes from the hosts `from` to the hosts `to` for so long (sets). What was sent meanwhile comes then; but ranks
     * that have not heard each other for the options' heartbeat_ms, or up to half as long again, have lost each other. */
    TUTTI_SIM_CUT,
    /* The connection of rank `from` to rank `to` ends: what has not left is lost. The other one hears of it behind what has. */
    TUTTI_SIM_BREAK,
    /* Rank `from` does nothing for so long. */
    TUTTI_SIM_STOP,
    /* The clocks of the hosts `from` (a set) show so much more from now on, or less. */
    TUTTI_SIM_JUMP
} tutti_sim_fault_kind;

typedef struct tutti_sim_fault {
    tutti_sim_fault_kind kind;
    uint64_t from, to;
    int64_t at_ns, for_ns; /* after the start; for how long, or by how much */
} tutti_sim_fault;

/* How long something takes for so many bytes. */
typedef struct tutti_sim_point {
    uint64_t bytes;
    int64_t ns;
} tutti_sim_point;

typedef struct tutti_sim_setup {
    size_t struct_size;
    uint64_t seed;
    int hosts, ranks_per_host;
    double link_bytes_per_s;  /* of each host, in each direction; shared by what its ranks send and receive */
    int64_t link_latency_ns;  /* from host to host */
    double local_bytes_per_s; /* at which one rank copies in memory */
    int64_t local_latency_ns; /* until a rank that waits sees what another one of its host has written */
    int64_t overhead_ns;      /* for each step that moves data and each message */
    /* Times for which a message to another host keeps its sender's core busy, and its receiver's: growing sizes, linear
     * between and beyond them; NULL: not at all. */
    const tutti_sim_point *copy;
    size_t copy_count;
    /* Times by which it comes later than by all else, while no core is busy with it; sizes as above. */
    const tutti_sim_point *delay;
    size_t delay_count;
    int64_t noise_ns;              /* every duration is longer by up to this much, as the seed has it */
    bool sizes_only;               /* data take their time but are not moved: buffers keep what they hold */
    size_t stack_bytes;            /* of each rank; 0: 128 KiB */
    int64_t limit_ms;              /* processor time it may take: ERR_LIMIT then, and what ranks held is lost; 0: any */
    const tutti_options *options;  /* NULL: defaults and environment */
    const tutti_sim_death *deaths; /* ranks that end where they stand; NULL: none */
    size_t death_count;
    const tutti_sim_fault *faults; /* at most 1024 ranks then; NULL: none */
    size_t fault_count;
    /* When everything up to `inspect_ns` of the clock has happened, `inspect` gets a hash of the plans that ranks of
     * several hosts have begun. Where it returns false the run ends with ERR_CANCELLED. NULL: the run is not inspected. */
    int64_t inspect_ns;
    bool (*inspect)(void *context, uint64_t plans);
} tutti_sim_setup;

typedef struct tutti_sim_report {
    size_t struct_size; /* to be set before the run: sizeof(tutti_sim_report) */
    int result;         /* 0, or the first non-zero value that a rank returned */
    int64_t time_ns;    /* simulated, of the whole run */
    uint64_t events;
    uint64_t trace; /* a hash of all events in order */
} tutti_sim_report;

typedef int tutti_sim_work(tutti_comm *world, void *context);

/* One host and one rank, a link of 100 Gbit/s and 5 us, memory of 10 GB/s and 200 ns, 100 ns of overhead, no noise. */
TUTTI_API void tutti_sim_setup_init(tutti_sim_setup *setup);

/* Runs `work` on every rank; the world is left when it has returned, and not by it. Rates are 1 to 1e18, times up to
 * 1e15 ns, stacks 16 KiB to 1 GiB; else ERR_ARGUMENT. OK when all ranks have ended, whatever they returned. `report` and
 * `error` may be NULL. */
TUTTI_API tutti_status tutti_sim_run(const tutti_sim_setup *setup, tutti_sim_work *work, void *context,
                                     tutti_sim_report *report, tutti_error *error);

/* The clock that deadlines go by, in nanoseconds: simulated inside of a simulation. */
TUTTI_API int64_t tutti_clock_ns(void);

/* The time of the simulation, whatever the clock of the rank's host shows by now; elsewhere the same as the clock. */
TUTTI_API int64_t tutti_sim_time_ns(void);

/* Lets time pass for the calling rank as if it computed: simulated inside of a simulation, real elsewhere. */
TUTTI_API void tutti_spend_ns(int64_t ns);

/* ---- Libraries of GPUs ------------------------------------------------------------------------------------------ */

typedef struct tutti_library {
    size_t struct_size; /* to be set before the call: sizeof(tutti_library) */
    char path[512];     /* as it was loaded; a bare name was found by the loader itself */
    char version[32];   /* of cuda: the newest CUDA that the driver can run */
    char has[320];      /* of nccl: what that version can do, and what is staged; for people. Else empty */
} tutti_library;

/* Loads "cuda" (the driver's), "nvrtc" or "nccl" from where people have it: TUTTI_CUDA_PATH, the loader's path, CUDA_HOME,
 * Python's packages. ERR_UNSUPPORTED says where it was looked for and how to get it. It stays loaded. */
TUTTI_API tutti_status tutti_library_find(const char *name, tutti_library *library, tutti_error *error);

/* ---- For launchers --------------------------------------------------------------------------------------------- */

/* A board: memory in which a launcher notes which processes of a job, of those it has started on this host, have ended.
 * Ranks that are joining and find its name in TUTTI_BOARD tell at once who will not come, instead of at the end of the
 * join's time. It lives as long as the process that made it. Processes `first` to `first + count - 1` of `size` are
 * this launcher's. */
typedef struct tutti_board tutti_board;
TUTTI_API tutti_status tutti_board_create(const char *job, int first, int count, int size, tutti_board **board,
                                          tutti_error *error);
/* Writes the value that TUTTI_BOARD must have; to be called by the process that keeps the board. 64 bytes are
 * enough. */
TUTTI_API void tutti_board_name(const tutti_board *board, char *text, size_t bytes);
/* Notes how a process ended; `wait_status` is waitpid's. To be called once no process is left that could join in its
 * place. */
TUTTI_API void tutti_board_note(tutti_board *board, int process, int pid, int wait_status);
/* Notes that the process has ended and nothing is left of it that could go on, so that ranks can agree that it is lost.
 * To be called each time that it ends. `number`: of this end among all of the job, from 1; 0: the next one here. */
TUTTI_API void tutti_board_end(tutti_board *board, int process, unsigned number);
/* For launchers of several hosts that tell each other who has ended. link: tutti_board_end is called for every process of
 * the job, with the same numbers on all hosts; `decides`: one of the launchers says who goes on, and ends who does not.
 * asked: returns the epoch of which ranks want to know who was lost in it, plus 1, or 0; to be asked when the keeper of
 * the board gets SIGUSR1. settle: those up to this number were lost in this epoch, on all hosts. */
TUTTI_API void tutti_board_link(tutti_board *board, bool decides);
TUTTI_API unsigned tutti_board_asked(const tutti_board *board);
TUTTI_API void tutti_board_settle(tutti_board *board, unsigned epoch, unsigned number);
/* Returns true if that process was told, in an operation, that another rank is the cause: it is not the first that
 * failed. */
TUTTI_API bool tutti_board_follows(const tutti_board *board, int process);
/* For a launcher that watches its processes: it counts all ends, ends processes that are late, and may start them
 * again. allow: says how often at most, 0: never; to be called before the first one is started. restart: it is about to
 * start this one again. move: tells how often processes of the job were started again so far, on any host, and where
 * process 0 waits from now on (NULL: as before). exclude: the launcher that decides does not hear this host any more.
 * formed: returns true if the job's world was ever formed. late: returns true if the others have waited too long for
 * this process, which may be of another host and is to be ended then; to be asked when the keeper of the board gets
 * SIGUSR1. */
TUTTI_API void tutti_board_allow(tutti_board *board, int restarts_most);
TUTTI_API void tutti_board_restart(tutti_board *board, int process);
TUTTI_API void tutti_board_move(tutti_board *board, unsigned generation, const char *master);
TUTTI_API void tutti_board_exclude(tutti_board *board);
TUTTI_API bool tutti_board_formed(const tutti_board *board);
TUTTI_API bool tutti_board_late(const tutti_board *board, int process);
/* On the side of the ranks, by TUTTI_BOARD and TUTTI_JOB: true if the job's world was formed already. A process that
 * has not joined it was started again then. */
TUTTI_API bool tutti_board_was_formed(const char *name, const char *job);
TUTTI_API void tutti_board_free(tutti_board *board); /* NULL is ignored */

/* Of a job that may grow, all on this host: it has `count` processes at first and `most` at most. Those that are to be
 * taken in are started with a ticket in TUTTI_TICKET, and wait in tutti_join; the ranks take them in by
 * tutti_comm_grow. create: gives a ticket, -1: as many processes as there can be are there or wait. end: its process has
 * ended. look: what became of it, with its process's number once it is TAKEN; to be asked when the keeper of the board
 * gets SIGUSR1, and before it tells of any end. free: it is not used any more; a TAKEN one when the keeper knows the
 * number. finish: the job ends, and whoever waits is told so. */
TUTTI_API tutti_status tutti_board_create_to_grow(const char *job, int count, int most, tutti_board **board,
                                                  tutti_error *error);
typedef enum tutti_ticket_state {
    TUTTI_TICKET_WAITS,  /* or is on its way */
    TUTTI_TICKET_CALLED, /* and it is not decided yet whether it is taken in */
    TUTTI_TICKET_TAKEN,
    TUTTI_TICKET_LATE /* it did not come when it was called: the process is to be ended */
} tutti_ticket_state;
TUTTI_API int tutti_board_ticket_create(tutti_board *board);
TUTTI_API void tutti_board_ticket_end(tutti_board *board, int ticket);
TUTTI_API tutti_ticket_state tutti_board_ticket_look(const tutti_board *board, int ticket, int *process);
TUTTI_API void tutti_board_ticket_free(tutti_board *board, int ticket);
TUTTI_API void tutti_board_finish(tutti_board *board);

/* Launchers of a job that were started one by one meet, and prove the job's key to each other (options key_file, key):
 * number 0 of `count` listens at `address`, "HOST:PORT", where HOST is its host, and the others come to it. All or nothing,
 * within the option join_timeout_ms. Each gives `bytes` bytes, 4096 at most, and `all` gets those of all by their
 * numbers. `fds` gets connections that are the caller's: number 0 one to each by its number, and -1 for itself; the
 * others one, to number 0. */
TUTTI_API tutti_status tutti_launchers_meet(const char *job, int number, int count, const char *address,
                                            const void *mine, size_t bytes, void *all, int *fds, tutti_error *error);

/* Opens the board that a process of this user keeps: the guard of `tutti run`. ERR_SYSTEM: there is none, or it may not
 * be read. To be freed; it can be read also when the job has ended. */
TUTTI_API tutti_status tutti_board_attach(int keeper, tutti_board **board, tutti_error *error);

typedef struct tutti_board_about {
    size_t struct_size;
    char job[256];
    int keeper;                      /* process that keeps it */
    int processes, processes_of_job; /* on this host, and in all */
    int first_rank, ranks;           /* of this host, which have rows */
    int restarts, restarts_most;     /* of all processes together, so far; 0: they are not started again */
    bool formed;                     /* all have joined, once at least */
    unsigned epoch;                  /* the latest that was formed */
    int waiting, processes_most;     /* those that wait to be taken in; 0: the job does not grow */
    bool gathers;                    /* its rows are those of other hosts (tutti_board_gather) */
} tutti_board_about;
TUTTI_API void tutti_board_describe(const tutti_board *board, tutti_board_about *about);

/* What a rank showed when it last waited for some milliseconds or made a call while somebody watched, or what ranks
 * that wait for it know of it. */
typedef struct tutti_board_row {
    size_t struct_size;
    int rank, process, pid; /* pid 0: it has not joined yet */
    unsigned epoch;
    int restarts; /* of its process */
    bool ended;   /* as tutti_board_note has it, and is not started again: */
    int wait_status;
    int awaited;         /* rank, -1: it waits for nobody, -2: for any other rank */
    int64_t waits_ns;    /* so far; 0: it does not wait */
    int64_t age_ns;      /* since it showed this */
    uint64_t ops, bytes; /* collectives, and what their buffers hold, on all comms of the rank */
    int64_t waited_ns, skew_mean_ns,
        skew_max_ns; /* waits; of these for ranks that had not come, per collective, at most */
    char op[128];    /* the last call that it was seen in */
    char device[24];
    char host[24];        /* of a rank of another host, as its launcher told it; "": it is of this host. Then also: */
    int state;            /* its process's, as in /proc; 0: there is none */
    int64_t memory_bytes; /* of its process that are in the machine's memory */
} tutti_board_row;
/* Returns false if the board has no such rank. */
TUTTI_API bool tutti_board_row_read(const tutti_board *board, int rank, tutti_board_row *row);
/* Makes ranks show every collective for so many seconds, which costs each of them time; otherwise they show only
 * waits. is_watched: returns true for so long. */
TUTTI_API void tutti_board_watch(tutti_board *board, int seconds);
TUTTI_API bool tutti_board_is_watched(const tutti_board *board);
/* For a launcher that has no ranks, but whose board shows those of other hosts, as their launchers tell them while somebody
 * watches. gather: called once; write: writes what tutti_board_row_read gave there. */
TUTTI_API void tutti_board_gather(tutti_board *board);
TUTTI_API void tutti_board_row_write(tutti_board *board, const tutti_board_row *row);

/* ---- Faults on purpose ------------------------------------------------------------------------------------------ */

/* Called whenever a rank of this process has done a step of a collective's plan, by any thread of the process: to
 * die there, for instance. Comms that are made while it is set keep a trace, also if none is asked for, of as many
 * events as the option trace_events says. NULL: nothing is called. Set it before joining. */
TUTTI_API void tutti_on_step(void (*hook)(void));

/* ---- Comms that do without a rank that fails -------------------------------------------------------------------- */

/* A comm of the same ranks, made by all of them, that has messages and no collectives, which are refused, as are
 * comms made from it. What fails concerns one peer: its loss ends what was for it (ERR_PEER_LOST), with its number
 * in the error, a deadline (tutti_within) or tutti_cancel the op that it is about, and the comm goes on with the
 * others. A receive from any source survives a loss, and ends when nobody is left who could send. An op that was
 * started and has no deadline of its own waits for as long as its peer lives. Messages are always copied on their
 * way, and a buffer is its owner's again as soon as its op has ended. Of a message that was cancelled or late the
 * other side may have got some: it is told that the rest will not come, and its receive looks for another message; a
 * message that had begun to come for a receive that is ended is lost. It may be freed while peers are lost. */
TUTTI_API tutti_status tutti_comm_tolerant(tutti_comm *comm, tutti_comm **made);

/* ---- About a world --------------------------------------------------------------------------------------------- */

/* True if every rank of the comm is a thread of this process. */
TUTTI_API bool tutti_all_threads(const tutti_comm *comm);
/* What bytes of its operations move by: "thread" or "shm" within a host; "tcp" between all ranks; "shm+tcp": memory
 * within a host, tcp between hosts; "sim". The same on all ranks. */
TUTTI_API const char *tutti_comm_transport(const tutti_comm *comm);
/* "avx512", "avx2" or "portable": the reduction kernels in use. */
TUTTI_API const char *tutti_kernels(void);
/* The processor's name as the system tells it, or "unknown processor". */
TUTTI_API const char *tutti_cpu(void);

#define TUTTI_EXPERIMENTAL_DECLARED
#include <tutti/call_sites.h>

#ifdef __cplusplus
}
#endif
#endif
