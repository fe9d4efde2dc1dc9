/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of launchers. A launcher is found by variables that it sets for each process it starts, and that a job
 * script which starts a program by itself does not have. Slurm, for one, describes a job to its script as well, but
 * gives a step and a number within it only to processes that srun starts.
 */
#include "world/launch.h"

#include "base/clock.h"
#include "base/options.h"
#include "base/status.h"
#include "transport/socket.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIZE_MOST = 65536,
    FD_MOST = 1 << 30,
    STEP_MOST = 0x7fffffff, /* the highest of srun's steps; other steps have numbers above */
    PORT_FIRST = 20000,     /* Slurm: ports by the job's number, below those that systems choose by themselves */
    PORT_COUNT = 12000
};

enum { BY_TUTTI, BY_TORCHRUN, BY_OPENMPI, BY_MPICH, BY_SLURM, BY_HAND, LAUNCHERS };

struct launcher {
    bool (*found)(void);
    tutti_status (*read)(const tutti_options *options, tutti_launch *launch, tutti_error *error);
};

/* ---- Variables ------------------------------------------------------------------------------------------------- */

static const char *text_of(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? text : "";
}

static bool has(const char *name)
{
    return text_of(name)[0] != '\0';
}

static bool has_all(const char *const *names)
{
    while (*names != NULL && has(*names)) names++;
    return *names == NULL;
}

static bool parse(const char *text, long long low, long long high, long long *number)
{
    char *end;
    if (text[0] < '0' || text[0] > '9') return false;
    long long value = strtoll(text, &end, 10); /* a number that is too large becomes LLONG_MAX, which is out of range */
    if (*end != '\0' || value < low || value > high) return false;
    *number = value;
    return true;
}

static tutti_status number_of(const char *name, int low, int high, int *number, tutti_error *error)
{
    long long value;
    if (!parse(text_of(name), low, high, &value))
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "%s is \"%s\"; the launcher should set it to %d to %d", name,
                             text_of(name), low, high);
    *number = (int)value;
    return TUTTI_OK;
}

/* Reads a number that is useful but not needed. */
static int number_or(const char *name, int otherwise)
{
    long long value;
    return parse(text_of(name), 0, SIZE_MOST, &value) ? (int)value : otherwise;
}

static tutti_status read_place(const char *rank, const char *size, tutti_launch *launch, tutti_error *error)
{
    TTI_TRY(number_of(size, 1, SIZE_MOST, &launch->size, error));
    TTI_TRY(number_of(rank, 0, launch->size - 1, &launch->rank, error));
    return TUTTI_OK;
}

__attribute__((format(printf, 3, 4))) static tutti_status name_job(tutti_launch *launch, tutti_error *error,
                                                                   const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(launch->job, sizeof launch->job, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < sizeof launch->job) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_OPTION, 0, "the launcher's name for the job is longer than %zu bytes: %.64s…",
                         sizeof launch->job - 1, launch->job);
}

static tutti_status name_host(tutti_launch *launch, const char *host, tutti_error *error)
{
    if (strlen(host) >= sizeof launch->host)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "the name of rank 0's host is longer than %zu bytes: %.64s…",
                             sizeof launch->host - 1, host);
    strcpy(launch->host, host);
    return TUTTI_OK;
}

/* ---- tutti run, or TUTTI_ variables set by hand ------------------------------------------------------------------ */

static bool found_tutti(void)
{
    return has("TUTTI_JOB") || has("TUTTI_RANK") || has("TUTTI_SIZE");
}

static tutti_status read_tutti(const tutti_options *options, tutti_launch *launch, tutti_error *error)
{
    if (options->job[0] != '\0' && options->ticket >= 0) {
        launch->waits = true;
        return name_job(launch, error, "%s", options->job);
    }
    if (options->job[0] == '\0' || options->rank < 0 || options->size < 1)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "TUTTI_JOB, TUTTI_RANK and TUTTI_SIZE must be set together, as `tutti run` does");
    if (options->rank >= options->size)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "TUTTI_RANK is %d of a job of %d: ranks go from 0 to %d",
                             (int)options->rank, (int)options->size, (int)options->size - 1);
    launch->rank = (int)options->rank;
    launch->size = (int)options->size;
    launch->local_rank = number_or("LOCAL_RANK", -1);
    launch->local_size = number_or("LOCAL_WORLD_SIZE", -1);
    launch->node_rank = number_or("GROUP_RANK", -1);
    launch->node_count = number_or("GROUP_WORLD_SIZE", -1);
    launch->one_host = options->master_addr[0] == '\0';
    return name_job(launch, error, "%s", options->job);
}

/* ---- torchrun ---------------------------------------------------------------------------------------------------- */

static bool found_torchrun(void)
{
    static const char *const names[] = {"TORCHELASTIC_RUN_ID", "RANK",        "WORLD_SIZE",
                                        "MASTER_ADDR",         "MASTER_PORT", NULL};
    return has_all(names);
}

/* Reads the variables that PyTorch's programs read, whoever sets them. */
static tutti_status read_torch(tutti_launch *launch, tutti_error *error)
{
    TTI_TRY(read_place("RANK", "WORLD_SIZE", launch, error));
    TTI_TRY(number_of("MASTER_PORT", 1, 65535, &launch->port, error));
    TTI_TRY(name_host(launch, text_of("MASTER_ADDR"), error));
    launch->local_rank = number_or("LOCAL_RANK", -1);
    launch->local_size = number_or("LOCAL_WORLD_SIZE", -1);
    launch->node_rank = number_or("GROUP_RANK", -1);
    launch->node_count = number_or("GROUP_WORLD_SIZE", -1);
    launch->one_host = launch->local_size == launch->size;
    return TUTTI_OK;
}

/* torchrun's agent keeps a store at MASTER_PORT; older ones leave the port to rank 0. The run's name is often "none":
 * the address tells jobs apart, and the restart count one attempt from the next. */
static tutti_status read_torchrun(const tutti_options *options, tutti_launch *launch, tutti_error *error)
{
    (void)options;
    TTI_TRY(read_torch(launch, error));
    if (strcasecmp(text_of("TORCHELASTIC_USE_AGENT_STORE"), "true") == 0) launch->store = "c10d";
    return name_job(launch, error, "torchrun-%d-%d-%.60s-%.32s", number_or("TORCHELASTIC_RESTART_COUNT", 0),
                    launch->port, launch->host, text_of("TORCHELASTIC_RUN_ID"));
}

/* ---- Open MPI ---------------------------------------------------------------------------------------------------- */

static bool found_openmpi(void)
{
    static const char *const names[] = {"PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL};
    return has_all(names);
}

static tutti_status read_openmpi(const tutti_options *options, tutti_launch *launch, tutti_error *error)
{
    (void)options;
    TTI_TRY(read_place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", launch, error));
    launch->local_rank = number_or("OMPI_COMM_WORLD_LOCAL_RANK", -1);
    launch->local_size = number_or("OMPI_COMM_WORLD_LOCAL_SIZE", -1);
    launch->node_count = number_or("OMPI_MCA_orte_num_nodes", -1);
    launch->one_host = launch->local_size == launch->size;
    launch->store = "pmix";
    return name_job(launch, error, "openmpi-%s", text_of("PMIX_NAMESPACE"));
}

/* ---- MPICH's hydra, and other process managers that speak PMI-1 --------------------------------------------------- */

static bool found_mpich(void)
{
    static const char *const names[] = {"PMI_FD", "PMI_RANK", "PMI_SIZE", NULL};
    return has_all(names);
}

static tutti_status read_mpich(const tutti_options *options, tutti_launch *launch, tutti_error *error)
{
    char kvsname[100];
    int fd;
    TTI_TRY(read_place("PMI_RANK", "PMI_SIZE", launch, error));
    TTI_TRY(number_of("PMI_FD", 0, FD_MOST, &fd, error));
    int64_t deadline_ns = tti_now_ns() + options->join_timeout_ms * 1000000;
    TTI_TRY(tti_pmi_open(fd, kvsname, sizeof kvsname, deadline_ns, error));
    launch->local_rank = number_or("MPI_LOCALRANKID", -1);
    launch->local_size = number_or("MPI_LOCALNRANKS", -1);
    launch->one_host = launch->local_size > 0 ? launch->local_size == launch->size : tti_pmi_one_host(deadline_ns);
    launch->store = "pmi";
    return name_job(launch, error, "mpich-%s", kvsname);
}

/* ---- Slurm's srun ------------------------------------------------------------------------------------------------ */

static bool found_slurm(void)
{
    static const char *const names[] = {"SLURM_JOB_ID",         "SLURM_STEP_ID",       "SLURM_PROCID",
                                        "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", NULL};
    long long step;
    return has_all(names) && parse(text_of("SLURM_STEP_ID"), 0, STEP_MOST, &step);
}

/* Returns the first host of "node[01-03,7],other": "node01". Reads only as much of the notation as that takes. */
static void first_host(const char *list, char *host, size_t bytes)
{
    size_t length = 0;
    bool inside = false, copying = true; /* within brackets; within the first of the numbers there */
    for (; *list != '\0' && (inside || *list != ',') && length + 1 < bytes; list++) {
        if (*list == '[' || *list == ']')
            inside = *list == '[', copying = true;
        else if (inside && (*list == '-' || *list == ','))
            copying = false;
        else if (copying)
            host[length++] = *list;
    }
    host[length] = '\0';
}

static tutti_status read_slurm(const tutti_options *options, tutti_launch *launch, tutti_error *error)
{
    int job, step;
    (void)options;
    TTI_TRY(read_place("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", launch, error));
    TTI_TRY(number_of("SLURM_JOB_ID", 0, STEP_MOST, &job, error));
    TTI_TRY(number_of("SLURM_STEP_ID", 0, STEP_MOST, &step, error));
    first_host(text_of("SLURM_STEP_NODELIST"), launch->host, sizeof launch->host);
    if (launch->host[0] == '\0')
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "SLURM_STEP_NODELIST is \"%.128s\", which names no host",
                             text_of("SLURM_STEP_NODELIST"));
    launch->port = PORT_FIRST + (int)((8LL * job + step) % PORT_COUNT);
    launch->local_rank = number_or("SLURM_LOCALID", -1);
    launch->node_rank = number_or("SLURM_NODEID", -1);
    launch->node_count = number_or("SLURM_STEP_NUM_NODES", -1);
    launch->one_host = launch->node_count == 1;
    if (launch->one_host) launch->local_size = launch->size;
    return name_job(launch, error, "slurm-%d.%d", job, step);
}

/* ---- By hand, or a cluster that describes jobs as PyTorch's programs expect it ------------------------------------ */

static bool found_by_hand(void)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", NULL};
    return has_all(names) && !found_tutti() && !found_torchrun(); /* these set the variables, too */
}

static tutti_status read_by_hand(const tutti_options *options, tutti_launch *launch, tutti_error *error)
{
    (void)options;
    TTI_TRY(read_torch(launch, error));
    launch->one_host = launch->one_host || tti_host_is_here(launch->host);
    return name_job(launch, error, "env-%d-%.60s", launch->port, launch->host);
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

/* In order of precedence: Tutti's own variables come first; then launchers that others start as well (mpirun and
 * mpiexec start their processes by srun if there is one), so that the innermost is found first. Last come variables
 * that scripts also set for themselves. */
static const tutti_launcher_row rows[LAUNCHERS] = {
    [BY_TUTTI] = {"tutti", "tutti run", "TUTTI_JOB TUTTI_RANK TUTTI_SIZE"},
    [BY_TORCHRUN] = {"torchrun", "torchrun", "TORCHELASTIC_RUN_ID RANK WORLD_SIZE MASTER_ADDR MASTER_PORT"},
    [BY_OPENMPI] = {"openmpi", "Open MPI's mpirun", "PMIX_NAMESPACE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE"},
    [BY_MPICH] = {"mpich", "MPICH's mpiexec (hydra)", "PMI_FD PMI_RANK PMI_SIZE"},
    [BY_SLURM] = {"slurm", "Slurm's srun",
                  "SLURM_JOB_ID SLURM_STEP_ID SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_STEP_NODELIST"},
    [BY_HAND] = {"env", "hand or a cluster, as for PyTorch's env://", "RANK WORLD_SIZE MASTER_ADDR MASTER_PORT"},
};

static const struct launcher launchers[LAUNCHERS] = {
    [BY_TUTTI] = {found_tutti, read_tutti},       [BY_TORCHRUN] = {found_torchrun, read_torchrun},
    [BY_OPENMPI] = {found_openmpi, read_openmpi}, [BY_MPICH] = {found_mpich, read_mpich},
    [BY_SLURM] = {found_slurm, read_slurm},       [BY_HAND] = {found_by_hand, read_by_hand},
};

const tutti_launcher_row *tutti_launcher_rows(size_t *count)
{
    if (count != NULL) *count = LAUNCHERS;
    return rows;
}

/* Returns the launcher's place in the table, or -1. */
static int find_name(const char *name)
{
    for (int i = 0; i < LAUNCHERS; i++)
        if (strcmp(rows[i].name, name) == 0) return i;
    return -1;
}

bool tutti_launcher_found(const tutti_launcher_row *row)
{
    int at = row == NULL ? -1 : find_name(row->name);
    return at >= 0 && launchers[at].found();
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

tutti_status tti_launcher_check(const char *name, tutti_error *error)
{
    const char *words[LAUNCHERS + 2] = {[0] = "auto", [LAUNCHERS + 1] = "none"};
    for (int i = 0; i < LAUNCHERS; i++) words[i + 1] = rows[i].name;
    return name[0] == '\0' ? TUTTI_OK : tti_option_word("TUTTI_LAUNCHER", name, words, LAUNCHERS + 2, error);
}

/* Chooses the launcher's place in the table; -1 with OK: none. */
static tutti_status choose(const char *name, int *chosen, tutti_error *error)
{
    *chosen = -1;
    TTI_TRY(tti_launcher_check(name, error));
    if (strcmp(name, "none") == 0) return TUTTI_OK;
    if (name[0] != '\0' && strcmp(name, "auto") != 0) {
        *chosen = find_name(name);
        if (launchers[*chosen].found()) return TUTTI_OK;
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "TUTTI_LAUNCHER is \"%s\", but this process was not started by %s: not all of %s are set",
                             name, rows[*chosen].title, rows[*chosen].variables);
    }
    for (int i = 0; i < LAUNCHERS && *chosen < 0; i++)
        if (launchers[i].found()) *chosen = i;
    return TUTTI_OK;
}

tutti_status tti_launch_read(const tutti_options *options, tutti_launch *launch, tutti_error *error)
{
    int chosen;
    *launch = (tutti_launch){.struct_size = sizeof *launch,
                             .size = 1,
                             .local_rank = -1,
                             .local_size = -1,
                             .node_rank = -1,
                             .node_count = -1,
                             .one_host = true,
                             .store = ""};
    TTI_TRY(choose(options->launcher, &chosen, error));
    if (chosen < 0) return TUTTI_OK;
    launch->launcher = &rows[chosen];
    TTI_TRY(launchers[chosen].read(options, launch, error));
    if (options->master_port != 0) launch->port = (int)options->master_port;
    if (options->master_addr[0] == '\0') return TUTTI_OK;
    launch->store = ""; /* the address was given explicitly */
    return name_host(launch, options->master_addr, error);
}

tutti_status tutti_launch_read(tutti_launch *launch, tutti_error *error)
{
    tutti_options options;
    if (launch == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the place for the launch is NULL");
    TTI_TRY(tutti_options_init(&options, error));
    tutti_status status = tti_launch_read(&options, launch, error);
    tti_launch_done(launch);
    return status;
}

/* ---- Telling where rank 0 is ------------------------------------------------------------------------------------- */

static tutti_status no_store(const tutti_launch *launch, tutti_error *error)
{
    return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                         "job %s is on several hosts, and its launcher has no way to tell where rank 0 waits; set "
                         "TUTTI_MASTER_ADDR and TUTTI_MASTER_PORT",
                         launch->job);
}

tutti_status tti_launch_publish(const tutti_launch *launch, const char *text, int64_t deadline_ns, tutti_error *error)
{
    char key[160];
    snprintf(key, sizeof key, "/tutti/%s", launch->job);
    struct tti_c10d c10d = {launch->host, launch->port, key, deadline_ns};
    if (strlen(text) >= TTI_LAUNCH_TEXT)
        return tti_error_set(error, TUTTI_ERR_JOIN, 0, "rank 0 has too many addresses to publish: %.64s…", text);
    if (strcmp(launch->store, "c10d") == 0) return tti_c10d_publish(&c10d, text, error);
    if (strcmp(launch->store, "pmi") == 0) return tti_pmi_publish(text, deadline_ns, error);
    if (strcmp(launch->store, "pmix") == 0) return tti_pmix_publish(text, deadline_ns, error);
    return no_store(launch, error);
}

tutti_status tti_launch_lookup(const tutti_launch *launch, char *text, size_t bytes, int64_t deadline_ns,
                               tutti_error *error)
{
    char key[160];
    snprintf(key, sizeof key, "/tutti/%s", launch->job);
    struct tti_c10d c10d = {launch->host, launch->port, key, deadline_ns};
    if (strcmp(launch->store, "c10d") == 0) return tti_c10d_lookup(&c10d, text, bytes, error);
    if (strcmp(launch->store, "pmi") == 0) return tti_pmi_lookup(text, bytes, deadline_ns, error);
    if (strcmp(launch->store, "pmix") == 0) return tti_pmix_lookup(text, bytes, deadline_ns, error);
    return no_store(launch, error);
}

void tti_launch_done(const tutti_launch *launch)
{
    if (launch->launcher == &rows[BY_MPICH]) tti_pmi_close();
}
