/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti run: the command's page, and everything that is checked and prepared before the first rank is started.
 */
#include "cli/cli_run.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- The page -------------------------------------------------------------------------------------------------- */

static const struct cli_flag run_flags[] = {
    {.row = {"ranks", TUTTI_OPTION_INT, "", 1, 65536,
             "how many ranks to start on this host, one process each; 1 if not said"},
     .offset = offsetof(struct run_values, ranks),
     .short_name = "n"},
    {.row = {"bind", TUTTI_OPTION_TEXT, "none", 0, 0,
             "core: give each rank a core of its own, in topology order, from those that may be used; with more ranks "
             "than cores they share, after a warning. none: leave it to the system, which suits hosts that several "
             "jobs share"},
     .offset = offsetof(struct run_values, bind),
     .choices = "core|none"},
    {.row = {"grace_ms", TUTTI_OPTION_MS, "1000", 0, 86400000,
             "when a rank fails, how long the others may take to notice and report before they get SIGTERM, and then "
             "before SIGKILL"},
     .offset = offsetof(struct run_values, grace_ms)},
    {.row =
         {"keep_going", TUTTI_OPTION_BOOL, "0", 0, 1,
          "a rank that is killed by a signal, or on several hosts one that is lost, does not end the job while others "
          "run: for programs that go on without it (tutti_comm_shrink)"},
     .offset = offsetof(struct run_values, keep_going),
     .is_switch = true},
    {.row = {"max_restarts", TUTTI_OPTION_INT, "0", 0, 1000000,
             "a rank that fails is started again, as often as this in all: for programs that go on with it "
             "(tutti_comm_rebuild)"},
     .offset = offsetof(struct run_values, max_restarts)},
    {.row = {"spare", TUTTI_OPTION_INT, "0", 0, 65535,
             "with --max-restarts: the last so many of --hosts, or with --nnodes N so many nodes more, from "
             "--node-rank N on, "
             "wait, and take the ranks of a host that is lost"},
     .offset = offsetof(struct run_values, spare)},
    {.row = {"max_ranks", TUTTI_OPTION_INT, "", 1, 65536,
             "the job may grow to so many ranks: others join it by --join, and are taken in by tutti_comm_grow; on one "
             "host"},
     .offset = offsetof(struct run_values, max_ranks)},
    {.row = {"join", TUTTI_OPTION_TEXT, "", 0, 0,
             "start -n processes that wait to join this job, which runs on this host with --max-ranks: its name as "
             "tutti top shows it, or the name's beginning, or the pid of its launcher"},
     .offset = offsetof(struct run_values, join),
     .value = "JOB"},
    {.row = {"log_dir", TUTTI_OPTION_TEXT, "", 0, 0,
             "write each rank's output to DIR/rank-R.out and DIR/rank-R.err instead; DIR is made if it is missing"},
     .offset = offsetof(struct run_values, log_dir),
     .value = "DIR"},
    {.row = {"tee", TUTTI_OPTION_BOOL, "0", 0, 1, "with --log-dir: print the output as well"},
     .offset = offsetof(struct run_values, tee),
     .is_switch = true},
    {.row =
         {"nnodes", TUTTI_OPTION_INT, "", 1, 65536,
          "how many hosts the job has, 1 if not said; `tutti run` is to be started on each, with its own "
          "--node-rank; with --max-restarts or --keep-going the launcher of node 0 decides for all of them, and they "
          "meet at the port behind --master-port"},
     .offset = offsetof(struct run_values, nnodes)},
    {.row = {"nproc_per_node", TUTTI_OPTION_INT, "", 1, 65536, "as -n, with torchrun's name"},
     .offset = offsetof(struct run_values, nproc_per_node)},
    {.row = {"node_rank", TUTTI_OPTION_INT, "", 0, 65535, "with --nnodes: which of the hosts this is, from 0"},
     .offset = offsetof(struct run_values, node_rank)},
    {.row = {"master_addr", TUTTI_OPTION_TEXT, "", 0, 0, "with --nnodes: name or address of the host of rank 0"},
     .offset = offsetof(struct run_values, master_addr),
     .value = "HOST"},
    {.row = {"master_port", TUTTI_OPTION_INT, "", 1, 65535,
             "the port where rank 0 waits for the other hosts; with --nnodes 29500 if not said, with --hosts a random "
             "one"},
     .offset = offsetof(struct run_values, master_port)},
    {.row = {"hosts", TUTTI_OPTION_TEXT, "", 0, 0,
             "start the job on these hosts, as a,b:2,user@c: over ssh, as many ranks on each as follow the colon, or "
             "else -n"},
     .offset = offsetof(struct run_values, hosts),
     .value = "LIST"},
    {.row = {"ssh", TUTTI_OPTION_TEXT, "ssh -o BatchMode=yes", 0, 0,
             "with --hosts: the remote shell's command; the host and one command line are added to it"},
     .offset = offsetof(struct run_values, ssh),
     .value = "COMMAND"},
    {.row = {"remote_tutti", TUTTI_OPTION_TEXT, "", 0, 0,
             "with --hosts: where this tool is there; at the same place as here if not said"},
     .offset = offsetof(struct run_values, remote_tutti),
     .value = "PATH"},
    {.row = {"env", TUTTI_OPTION_TEXT, "", 0, 0,
             "with --hosts: variables to pass on besides TUTTI_…, by name, with commas between"},
     .offset = offsetof(struct run_values, env),
     .value = "NAMES"},
    {.row = {"from_stdin", TUTTI_OPTION_BOOL, "0", 0, 1,
             "what --hosts starts on the hosts: reads all else from stdin, and ends the job when that closes"},
     .offset = offsetof(struct run_values, from_stdin),
     .is_switch = true},
    {.row = {"no_prefix", TUTTI_OPTION_BOOL, "0", 0, 1, "print lines without the rank in front"},
     .offset = offsetof(struct run_values, no_prefix),
     .is_switch = true},
    {.row = {.name = NULL}},
};

static const struct cli_example run_examples[] = {
    {"tutti run -n 4 ./hello", "four ranks on this host; each line of output starts with its rank"},
    {"tutti run -n 8 --bind core ./train --steps 100", "a core for each rank; words after the program are its own"},
    {"tutti run -n 2 --log-dir logs --tee ./hello", "output on the terminal, and in logs/rank-0.out, .err and so on"},
    {"tutti run --hosts a,b -n 2 ./hello", "two ranks on each of two hosts, started over ssh"},
    {"tutti run --hosts a,b,c --spare 1 --max-restarts 3 -n 2 ./heal",
     "four ranks on a and b, started again when they are lost; c takes those of a host that is lost"},
    {"tutti run --nnodes 2 --node-rank 0 --nproc-per-node 2 --master-addr a --key-file key ./hello",
     "the same without ssh: this on host a, and on the other host with --node-rank 1"},
    {"tutti run --nnodes 2 --spare 1 --node-rank 2 --max-restarts 3 --nproc-per-node 2 --master-addr a --key-file key "
     "./heal",
     "a third host that waits, until one of nodes 0 and 1, started with the same flags, is lost"},
    {"tutti run -n 2 --max-ranks 4 ./grow", "two ranks, and room for two more, which may join while the job runs"},
    {"tutti run --join 4711 -n 2 ./grow", "two processes that join the job whose launcher has the pid 4711"},
    {"tutti run -n 4 --join-timeout-ms 5s ./hello", "an option of the library: the ranks see TUTTI_JOIN_TIMEOUT_MS=5s"},
    {NULL, NULL},
};

static const struct cli_foreign run_foreign[] = {
    {"-H", "--hosts"},
    {"-N", "--nproc-per-node"},
    {"--hostfile", "name the hosts, as in --hosts a,b:2"},
    {"--machinefile", "name the hosts, as in --hosts a,b:2"},
    {"--bind-to", "--bind"},
    {"--rdzv-backend", "leave it out: ranks meet at --master-addr and --master-port"},
    {"--rdzv-endpoint", "say it as --master-addr and --master-port"},
    {"-x", "variables are passed on to ranks of this host; for other hosts see --env"},
    {"--oversubscribe", "leave it out: more ranks than cores may be started"},
    {"--standalone", "leave it out: without --nnodes and --hosts a job has one host"},
    {"--no-python", "leave it out: the program is run as it is"},
    {"--version", "see tutti --version"},
    {"--verbose", "--log"},
    {"-v", "--log"},
    {NULL, NULL},
};

const struct cli_page cli_run_page = {
    .usage = "tutti run [flags] PROGRAM [ARGUMENT]...",
    .about =
        "Starts PROGRAM as the ranks of one job, and ends them together: when one fails, the others get a moment to "
        "notice and report, and are then ended. One that ends before it has joined, in whatever way, is named to those "
        "that are joining, at once. The exit status is that of the first rank that failed. When the "
        "launcher ends in any way, also by SIGKILL, a guard process sees to it that nothing is left: no rank, no child "
        "of a rank, no process that a rank put in the background. The same holds at the ordinary end of the job.\n\n"
        "Ranks find TUTTI_JOB, TUTTI_RANK and TUTTI_SIZE in their environment, and the customary RANK, WORLD_SIZE, "
        "LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK and GROUP_WORLD_SIZE (hosts). With TUTTI_RANKS=k each process is k "
        "ranks, its threads, in programs that use tutti_main; the numbers are then those of processes.\n\n"
        "On several hosts: --hosts starts a launcher on each over ssh, in the folder of the same name, and passes the "
        "job's key on over ssh, never on a command line; or `tutti run` is started on every host with torchrun's "
        "flags, "
        "and --key-file names a copy of the same key. When one of the launchers ends, all of the job ends; with "
        "--max-restarts and --spare a host that waits takes the ranks of one whose launcher has ended or is silent.\n\n"
        "With --max-ranks the job can grow: `tutti run --join JOB` has its launcher start more processes, which wait "
        "in "
        "tutti_join until the job's ranks call tutti_comm_grow. They are ranks like the others then: what fails ends "
        "the job, or is started again. Those that are not taken in end with the job, with an error. When the command "
        "that has started them ends, they end.\n\n"
        "With more than one rank, lines of output are printed whole, with the rank in front; a line longer than 32 KiB "
        "is printed as several. A single rank writes to the launcher's stdout and stderr itself. Rank 0 reads the "
        "launcher's stdin, unless that is a terminal (ranks are background processes, which may not read from one); "
        "the others read /dev/null. Ctrl-C is passed on to the ranks; a second one kills them at once.",
    .examples = run_examples,
    .flags = run_flags,
    .foreign = run_foreign,
    .operands = true,
    .library_options = true,
};

/* ---- Checks ---------------------------------------------------------------------------------------------------- */

/* Returns 0 if `path` can be executed, or an errno. */
static int check_file(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) return errno;
    if (S_ISDIR(info.st_mode)) return EISDIR;
    return access(path, X_OK) == 0 ? 0 : errno;
}

/* Looks for the first program of that name on PATH, as execvp does. Returns 0 or an errno. */
static int search_path(const char *program)
{
    const char *path = getenv("PATH");
    int worst = ENOENT;
    if (path == NULL) path = "/bin:/usr/bin";
    for (;;) {
        char file[4096];
        int length = (int)strcspn(path, ":");
        (void)snprintf(file, sizeof file, "%.*s%s%s", length, path, length > 0 ? "/" : "", program);
        int error = check_file(file);
        if (error == 0) return 0;
        /* the program exists; a folder that cannot be searched is passed over */
        if (error == EACCES && access(file, F_OK) == 0) worst = EACCES;
        if (path[length] == '\0') return worst;
        path += length + 1;
    }
}

static int check_program(const char *program)
{
    struct stat about;
    bool is_path = strchr(program, '/') != NULL;
    int error = is_path ? check_file(program) : search_path(program);
    if (program[0] == '\0') return cli_refuse("run", "the program's name is empty");
    if (error == 0) return CLI_GO_ON;
    if (!is_path && error == ENOENT && check_file(program) == 0) {
        return cli_refuse("run", "%s: not found on PATH; did you mean ./%s?", program, program);
    }
    if (error == ENOENT) return cli_refuse("run", "%s: not found%s", program, is_path ? "" : " on PATH");
    if (error == EISDIR) return cli_refuse("run", "%s: is a folder, not a program", program);
    if (error == EACCES && is_path && stat(program, &about) != 0)
        return cli_refuse("run", "%s: %s, for a folder that it is in", program, strerror(error));
    if (error == EACCES) return cli_refuse("run", "%s: not executable (chmod +x?)", program);
    return cli_refuse("run", "%s: %s", program, strerror(error));
}

static int check_process_limit(int size)
{
    enum { OWN = 2 }; /* the launcher and the guard */
    struct rlimit limit;
    bool exempt = geteuid() == 0;
    if (exempt || getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return CLI_GO_ON;
    if (limit.rlim_cur >= (rlim_t)size + OWN) return CLI_GO_ON;
    return cli_refuse("run", "%d ranks need %d processes, but the limit is %llu (RLIMIT_NPROC, ulimit -u)", size,
                      size + OWN, (unsigned long long)limit.rlim_cur);
}

/* Checks the descriptors needed: two pipes per rank, with both ends at first, and two log files. Raises the soft limit
 * if the hard one allows it; the ranks get the old limit back. */
static int check_file_limit(const struct run_values *values, struct launch *launch)
{
    enum { OWN = 64 };
    bool logs = values->log_dir[0] != '\0', pipes = !logs || values->tee != 0;
    rlim_t need = (rlim_t)launch->size * (pipes && logs ? 6U : pipes ? 4U : 2U) + OWN;
    if (getrlimit(RLIMIT_NOFILE, &launch->files) != 0) return cli_fail("run", "getrlimit: %s", strerror(errno));
    struct rlimit raised = {need, launch->files.rlim_max};
    if (launch->files.rlim_cur >= need) return CLI_GO_ON;
    if (launch->files.rlim_max >= need && setrlimit(RLIMIT_NOFILE, &raised) == 0) return CLI_GO_ON;
    rlim_t logged = 2 * (rlim_t)launch->size + OWN;
    bool fewer = launch->files.rlim_max >= logged && logged < need;
    return cli_refuse("run",
                      "%d rank%s need%s %llu open files, but the limit is %llu (RLIMIT_NOFILE, ulimit -n): raise it%s",
                      launch->size, launch->size == 1 ? "" : "s", launch->size == 1 ? "s" : "",
                      (unsigned long long)need, (unsigned long long)launch->files.rlim_max,
                      fewer ? ", or give --log-dir without --tee, which needs fewer" : "");
}

static int check_growth(const struct run_values *values, const struct launch *launch)
{
    if (values->max_ranks == 0) return CLI_GO_ON;
    if (values->hosts[0] != '\0' || launch->remote || launch->place.nodes > 1)
        return cli_refuse("run", "--max-ranks is for jobs of one host; leave it out, or --hosts and --nnodes");
    if (values->max_ranks >= launch->size) return CLI_GO_ON;
    return cli_refuse("run", "--max-ranks %lld is less than the %d ranks that the job begins with (-n)",
                      (long long)values->max_ranks, launch->size);
}

/* Checks what can be checked before the launchers of other hosts are met. */
static int check_flags(const struct run_values *values, const struct launch *launch)
{
    if (values->spare > 0 && values->hosts[0] == '\0' && launch->place.nodes < 2)
        return cli_refuse("run", "--spare needs --hosts, or --nnodes 2 or more");
    if (values->spare > 0 && values->max_restarts == 0)
        return cli_refuse("run", "--spare needs --max-restarts: how often ranks may be started again");
    if (values->tee != 0 && values->log_dir[0] == '\0') return cli_refuse("run", "--tee needs --log-dir");
    if (values->no_prefix != 0 && values->log_dir[0] != '\0' && values->tee == 0) {
        return cli_refuse("run", "--no-prefix has no meaning with --log-dir, unless with --tee");
    }
    int status = check_growth(values, launch);
    if (status == CLI_GO_ON && values->hosts[0] == '\0') status = check_program(launch->argv[0]);
    return status;
}

static int check_all(const struct run_values *values, struct launch *launch)
{
    launch->grows = values->max_ranks != 0;
    launch->most = launch->grows ? (int)values->max_ranks : launch->size;
    /* remote shells are not started again */
    launch->max_restarts = launch->hosts != NULL ? 0 : (int)values->max_restarts;
    launch->heals = (launch->hosts != NULL || launch->remote) && (values->max_restarts > 0 || values->keep_going);
    /* with --hosts, the launchers there check their own */
    int status = cli_check_options("run", launch->hosts != NULL ? 0 : launch->place.nodes);
    if (status == CLI_GO_ON) status = check_process_limit(launch->size);
    if (status == CLI_GO_ON) status = check_file_limit(values, launch);
    return status;
}

/* ---- Preparation ----------------------------------------------------------------------------------------------- */

/* Opens /dev/null for a closed stdin, stdout or stderr: otherwise one of the tool's pipes would get its number. */
static void fill_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        if (open("/dev/null", O_RDWR) < 0) return; /* it takes the lowest free number, which is fd */
    }
}

/* Names the job, unless it is one of several hosts: its name is the one that its launchers agree on. */
static void name_job(struct launch *launch)
{
    if (launch->job[0] != '\0') return;
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) random = (uint64_t)(uintptr_t)launch;
    (void)snprintf(launch->job, sizeof launch->job, "%d-%016llx", (int)getpid(), (unsigned long long)random);
}

static void add_unless_ignored(sigset_t *set, int signal)
{
    struct sigaction action;
    /* ignored by nohup, or by a script's "&" */
    if (sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN) return;
    (void)sigaddset(set, signal);
}

int run_take_signals(struct launch *launch)
{
    sigset_t set;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, standard = {.sa_handler = SIG_DFL};
    (void)sigemptyset(&set);
    add_unless_ignored(&set, SIGINT);
    add_unless_ignored(&set, SIGHUP);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGUSR1); /* asks for a table of the ranks */
    (void)sigprocmask(SIG_BLOCK, &set, &launch->mask);
    (void)sigaction(SIGPIPE, &ignore, &launch->pipe_action);
    (void)sigaction(SIGCHLD, &standard, NULL); /* an ignored SIGCHLD would hide how ranks ended */
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int start_and_serve(const struct run_values *values, struct launch *launch, struct output *output)
{
    int sockets[2], signals = run_take_signals(launch);
    if (signals < 0) return cli_fail("run", "signalfd: %s", strerror(errno));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        return cli_fail("run", "socketpair: %s", strerror(errno));
    }
    guard_spare_children();
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* if the guard dies, its orphans become children of this process */
    pid_t guard = fork();
    if (guard == 0) {
        (void)close(sockets[0]);
        (void)close(signals);
        hosts_close_controls(launch->hosts);
        output_close(output);
        _exit(guard_main(launch, sockets[1]));
    }
    (void)close(sockets[1]);
    if (guard < 0) {
        return cli_fail("run", "cannot start the guard: %s (RLIMIT_NPROC, ulimit -u?)", strerror(errno));
    }
    output_started(launch);
    hosts_close_inputs(launch->hosts);
    return job_serve(values, launch, output, guard, sockets[0], signals);
}

/* Joins a running job, whose own launcher decides everything else. */
static int check_join_flags(const struct run_values *values)
{
    const struct {
        bool given;
        const char *name;
    } flags[] = {{strcmp(values->bind, "none") != 0, "--bind"},
                 {values->keep_going, "--keep-going"},
                 {values->max_restarts != 0, "--max-restarts"},
                 {values->max_ranks != 0, "--max-ranks"},
                 {values->spare != 0, "--spare"},
                 {values->log_dir[0] != '\0', "--log-dir"},
                 {values->tee, "--tee"},
                 {values->nnodes != 0, "--nnodes"},
                 {values->node_rank >= 0, "--node-rank"},
                 {values->master_addr[0] != '\0', "--master-addr"},
                 {values->master_port != 0, "--master-port"},
                 {values->hosts[0] != '\0', "--hosts"},
                 {values->from_stdin, "--from-stdin"}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags && values->join[0] != '\0'; i++)
        if (flags[i].given)
            return cli_refuse("run",
                              "%s has no meaning with --join: what runs is the launcher of the job that is joined",
                              flags[i].name);
    return CLI_GO_ON;
}

static int prepare_and_join(const struct run_values *values, struct launch *launch)
{
    tutti_options options;
    launch->most = launch->size;
    if (tutti_options_init(&options, NULL) == TUTTI_OK && options.ranks > 1)
        return cli_refuse("run", "--join: a process that joins is one rank, not %lld (TUTTI_RANKS)",
                          (long long)options.ranks);
    int status = check_program(launch->argv[0]);
    if (status == CLI_GO_ON) status = check_file_limit(values, launch);
    if (status == CLI_GO_ON) status = cli_check_options("run", 1);
    return status == CLI_GO_ON ? join_run(values, launch) : status;
}

static int prepare_and_start(const struct run_values *values, struct launch *launch)
{
    int status = check_all(values, launch);
    if (status != CLI_GO_ON) return status;
    if (strcmp(values->bind, "core") == 0 && launch->hosts == NULL) {
        status = bind_cores(launch->size, &launch->cores);
        if (status != CLI_GO_ON) return status;
    }
    name_job(launch);
    launch->pass_input = isatty(STDIN_FILENO) == 0 && !launch->remote;
    struct output *output;
    status = output_open(values, launch, &output);
    if (status != CLI_GO_ON) return status;
    status = start_and_serve(values, launch, output);
    output_end_reports(output);
    output_close(output);
    return status;
}

static int parse(int argc, char **argv, struct run_values *values, struct launch *launch)
{
    int first = argc;
    *values = (struct run_values){.node_rank = -1};
    int status = cli_parse("run", &cli_run_page, argc, argv, values, &first);
    if (status != CLI_GO_ON || values->from_stdin != 0) return status;
    if (first == argc) return cli_refuse("run", "no program given; usage: %s", cli_run_page.usage);
    launch->argv = argv + first;
    return CLI_GO_ON;
}

/* Ends the connection to another launcher, if there is one. */
static int end(struct launch *launch, int status)
{
    nodes_close(launch, status);
    return status;
}

int cli_run(int argc, char **argv)
{
    struct run_values values;
    struct launch launch = {.size = 0};
    int status = parse(argc, argv, &values, &launch);
    fill_standard_descriptors();
    if (status == CLI_GO_ON && values.from_stdin != 0) {
        status = remote_read(&launch, &argc, &argv);
        if (status == CLI_GO_ON) status = parse(argc, argv, &values, &launch);
    }
    if (status == CLI_GO_ON) status = check_join_flags(&values);
    if (status == CLI_GO_ON) status = place_read(&values, &launch);
    if (status == CLI_GO_ON && values.join[0] == '\0') status = check_flags(&values, &launch);
    if (status == CLI_GO_ON && values.hosts[0] != '\0') status = hosts_open(&values, &launch);
    if (status == CLI_GO_ON && nodes_are_linked(&values, &launch)) status = nodes_open(&values, &launch);
    if (status != CLI_GO_ON) return end(&launch, status);
    launch.ranks = calloc((size_t)launch.size, sizeof *launch.ranks);
    if (launch.ranks == NULL)
        status = cli_fail("run", "out of memory");
    else
        status = values.join[0] != '\0' ? prepare_and_join(&values, &launch) : prepare_and_start(&values, &launch);
    hosts_close(launch.hosts);
    free(launch.cores);
    free(launch.ranks);
    return end(&launch, status);
}
