/* SPDX-License-Identifier: Apache-2.0
 *
 * PMIx, the process manager's interface under Open MPI's mpirun: rank 0 puts the place where it waits, all meet in a
 * fence that carries it along, the others get it. libpmix is loaded at run time; only those parts of its interface are
 * used that are the same since its second version.
 *
 * Its calls may block without a bound, so a thread of their own makes them, and the caller waits for that thread until
 * its deadline. A conversation that is late belongs to its thread, which may never end, so it is never freed.
 *
 * The library counts its users: in a program that is an MPI program, too, MPI's conversation goes on around this one.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/task.h"
#include "base/wait.h"
#include "world/launch.h"
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- The interface --------------------------------------------------------------------------------------------- */

enum { DONE = 0, GLOBAL = 3, IS_BOOL = 1, IS_STRING = 3 };

struct process {
    char job[256];
    uint32_t rank;
};

struct value {
    uint16_t type;
    union {
        bool flag;
        char *string;
        void *widest[3];
    } is;
};

struct info {
    char key[512];
    uint32_t flags;
    struct value value;
};

static_assert(sizeof(struct value) == 4 * sizeof(void *), "as in pmix_common.h");

static struct {
    int (*init)(struct process *self, const struct info *infos, size_t count);
    int (*finalize)(const struct info *infos, size_t count);
    int (*put)(uint8_t scope, const char *key, struct value *value);
    int (*commit)(void);
    int (*fence)(const struct process *processes, size_t process_count, const struct info *infos, size_t count);
    int (*get)(const struct process *process, const char *key, const struct info *infos, size_t count,
               struct value **value);
    const char *(*error_text)(int status);
} pmix;

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static bool loaded;

/* Loads the functions. An MPI program has a library already, maybe another one than this system's. */
static bool load_from(void *library)
{
    const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"PMIx_Init", &pmix.init},
        {"PMIx_Finalize", &pmix.finalize},
        {"PMIx_Put", &pmix.put},
        {"PMIx_Commit", &pmix.commit},
        {"PMIx_Fence", &pmix.fence},
        {"PMIx_Get", &pmix.get},
        {"PMIx_Error_string", &pmix.error_text},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(library, functions[i].name);
        if (found == NULL) return false;
        memcpy(functions[i].function, &found, sizeof found); /* C has no cast for function pointers */
    }
    return true;
}

static void load(void)
{
    loaded = load_from(RTLD_DEFAULT);
    void *library = loaded ? NULL : dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library != NULL) loaded = load_from(library);
}

/* ---- The conversation ------------------------------------------------------------------------------------------ */

struct talk {
    struct tti_task task;
    bool publishes;
    int number; /* counts this process's conversations, the same in all processes */
    tti_bell over;
    const char *failed; /* the function that failed, or NULL */
    int status;
    char text[TTI_LAUNCH_TEXT];
};

static bool step(struct talk *talk, const char *function, int status)
{
    if (status == DONE) return true;
    if (talk->failed == NULL) talk->failed = function, talk->status = status;
    return false;
}

static bool put(struct talk *talk, const char *key)
{
    struct value value = {.type = IS_STRING, .is.string = talk->text};
    return step(talk, "PMIx_Put", pmix.put(GLOBAL, key, &value)) && step(talk, "PMIx_Commit", pmix.commit());
}

static bool fence(struct talk *talk, const struct process *self)
{
    enum { ALL = UINT32_MAX - 1 };
    struct process all = *self;
    struct info collect = {.key = "pmix.collect", .value = {.type = IS_BOOL, .is.flag = true}};
    all.rank = (uint32_t)ALL;
    return step(talk, "PMIx_Fence", pmix.fence(&all, 1, &collect, 1));
}

static bool get(struct talk *talk, const char *key, const struct process *self)
{
    struct process root = *self;
    struct value *value = NULL;
    root.rank = 0;
    if (!step(talk, "PMIx_Get", pmix.get(&root, key, NULL, 0, &value))) return false;
    bool fits = value != NULL && value->type == IS_STRING && value->is.string != NULL &&
                strlen(value->is.string) < sizeof talk->text;
    if (fits) strcpy(talk->text, value->is.string);
    if (value != NULL && value->type == IS_STRING) free(value->is.string);
    free(value);
    return step(talk, "PMIx_Get", fits ? DONE : -EBADMSG);
}

/* The library cannot be started again once its last user is gone: after a second start its daemon may lose a fence. So
 * if MPI will be started later, one user stays until the program ends, since mpirun takes a program for failed that
 * ends with a conversation open; without MPI there is only one conversation. */
static void finalize_late(void)
{
    (void)pmix.finalize(NULL, 0);
}

enum mpi { NO_MPI, MPI_TO_COME, MPI_HERE };

static enum mpi look_for_mpi(void)
{
    int (*initialized)(int *) = NULL, flag = 1;
    void *found = dlsym(RTLD_DEFAULT, "MPI_Initialized");
    if (found == NULL) return NO_MPI;
    memcpy(&initialized, &found, sizeof found);
    return initialized(&flag) == 0 && flag == 0 ? MPI_TO_COME : MPI_HERE;
}

static void *hold(void *argument)
{
    struct talk *talk = argument;
    struct process self;
    char key[32];
    snprintf(key, sizeof key, "tutti-rank-0.%d", talk->number);
    memset(&self, 0, sizeof self);
    if (step(talk, "PMIx_Init", pmix.init(&self, NULL, 0))) {
        bool there = (!talk->publishes || put(talk, key)) && fence(talk, &self);
        if (there && !talk->publishes) get(talk, key, &self);
        bool stays = look_for_mpi() == MPI_TO_COME && atexit(finalize_late) == 0;
        if (!stays) step(talk, "PMIx_Finalize", pmix.finalize(NULL, 0));
    }
    atomic_store_explicit(&talk->over, 1, memory_order_release);
    tti_bell_ring(&talk->over, false);
    return NULL;
}

static bool await(struct talk *talk, int64_t deadline_ns)
{
    while (atomic_load_explicit(&talk->over, memory_order_acquire) == 0) {
        int64_t left_ns = deadline_ns - tti_now_ns();
        if (left_ns <= 0) return false;
        tti_bell_sleep(&talk->over, 0, left_ns, false);
    }
    tti_task_join(&talk->task);
    return true;
}

static tutti_status judge(const struct talk *talk, tutti_error *error)
{
    if (talk->failed == NULL) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                         "mpirun's store did not tell where rank 0 waits: %s failed with %d (%.100s); set "
                         "TUTTI_MASTER_ADDR and TUTTI_MASTER_PORT to do without it",
                         talk->failed, talk->status, pmix.error_text(talk->status));
}

static tutti_status too_late(tutti_error *error)
{
    return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                         "not all processes of the job have come to mpirun's fence in time (option join_timeout_ms); "
                         "does every one of them join?");
}

static tutti_status converse(bool publishes, char *text, size_t bytes, int64_t deadline_ns, tutti_error *error)
{
    static atomic_int numbers;
    int number = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed);
    if (number > 0 && look_for_mpi() == NO_MPI)
        return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                             "a process under mpirun can join ranks of other hosts once; its conversation with mpirun "
                             "has ended. TUTTI_MASTER_ADDR and TUTTI_MASTER_PORT do without it");
    pthread_once(&load_once, load);
    if (!loaded)
        return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                             "ranks of several hosts find each other by PMIx under mpirun, and libpmix.so.2 does not "
                             "load here; install it (Debian: apt-get install libpmix2), put its folder into "
                             "LD_LIBRARY_PATH, or set TUTTI_MASTER_ADDR and TUTTI_MASTER_PORT");
    struct talk *talk = tti_calloc(1, sizeof *talk);
    if (talk == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a talk with mpirun");
    talk->publishes = publishes;
    talk->number = number;
    if (publishes) snprintf(talk->text, sizeof talk->text, "%s", text);
    tutti_status status = tti_task_start(&talk->task, hold, talk, error);
    if (status == TUTTI_OK && !await(talk, deadline_ns)) return too_late(error);
    if (status == TUTTI_OK) status = judge(talk, error);
    if (status == TUTTI_OK && !publishes) snprintf(text, bytes, "%s", talk->text);
    tti_free(talk);
    return status;
}

tutti_status tti_pmix_publish(const char *text, int64_t deadline_ns, tutti_error *error)
{
    char copy[TTI_LAUNCH_TEXT];
    snprintf(copy, sizeof copy, "%s", text);
    return converse(true, copy, sizeof copy, deadline_ns, error);
}

tutti_status tti_pmix_lookup(char *text, size_t bytes, int64_t deadline_ns, tutti_error *error)
{
    return converse(false, text, bytes, deadline_ns, error);
}
