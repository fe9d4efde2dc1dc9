/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Who started this process: every launcher's environment, which of several wins, what is none, what contradicts itself;
 * and the two stores, against small servers that speak their protocols.
 */
#include "base/clock.h"
#include "check.h"
#include "port.h"
#include "world/launch.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Environments ---------------------------------------------------------------------------------------------- */

#define TORCH                                                                                                          \
    "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 GROUP_WORLD_SIZE=2 MASTER_ADDR=head "            \
    "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=3 TORCHELASTIC_USE_AGENT_STORE=True"
#define OPENMPI                                                                                                        \
    "PMIX_NAMESPACE=1376714753 PMIX_RANK=2 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 "                             \
    "OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=3"
#define BY_HAND "RANK=1 WORLD_SIZE=4 MASTER_PORT=29501"
#define SLURM                                                                                                          \
    "SLURM_JOB_ID=77 SLURM_STEP_ID=2 SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 "            \
    "SLURM_NODEID=2 SLURM_STEP_NUM_NODES=4 SLURM_STEP_NODELIST=node[03-05,9],spare"
#define TUTTI "TUTTI_JOB=mine TUTTI_RANK=0 TUTTI_SIZE=2"

static void set_environment(const char *words)
{
    char copy[1024], *rest = NULL;
    (void)clearenv();
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        *value = '\0';
        setenv(word, value + 1, 1);
    }
}

static tutti_status read_environment(const char *words, tutti_launch *launch, tutti_error *error)
{
    set_environment(words);
    return tutti_launch_read(launch, error);
}

static const struct row {
    const char *environment;
    const char *launcher; /* NULL: none */
    const char *job;
    int rank, size, local_rank, local_size, one_host;
    const char *host;
    int port;
    const char *store;
} found[] = {
    {"", NULL, "", 0, 1, -1, -1, 1, "", 0, ""},
    {TUTTI, "tutti", "mine", 0, 2, -1, -1, 1, "", 0, ""},
    {TUTTI " TUTTI_MASTER_ADDR=h TUTTI_MASTER_PORT=7 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1", "tutti", "mine", 0, 2, 0, 1, 0,
     "h", 7, ""},
    {TORCH, "torchrun", "torchrun-3-29500-head-none", 1, 4, 1, 2, 0, "head", 29500, "c10d"},
    {"TUTTI_MASTER_ADDR=other TUTTI_MASTER_PORT=5 " TORCH, "torchrun", "torchrun-3-29500-head-none", 1, 4, 1, 2, 0,
     "other", 5, ""},
    {OPENMPI, "openmpi", "openmpi-1376714753", 2, 3, 2, 3, 1, "", 0, "pmix"},
    {OPENMPI " OMPI_COMM_WORLD_LOCAL_SIZE=1", "openmpi", "openmpi-1376714753", 2, 3, 2, 1, 0, "", 0, "pmix"},
    {SLURM, "slurm", "slurm-77.2", 5, 8, 1, -1, 0, "node03", 20618, ""},
    {SLURM " TUTTI_MASTER_PORT=4000", "slurm", "slurm-77.2", 5, 8, 1, -1, 0, "node03", 4000, ""},
    {BY_HAND " MASTER_ADDR=head", "env", "env-29501-head", 1, 4, -1, -1, 0, "head", 29501, ""},
    {BY_HAND " MASTER_ADDR=head LOCAL_WORLD_SIZE=4", "env", "env-29501-head", 1, 4, -1, 4, 1, "head", 29501, ""},
    {BY_HAND " MASTER_ADDR=127.0.0.1", "env", "env-29501-127.0.0.1", 1, 4, -1, -1, 1, "127.0.0.1", 29501, ""},
    /* several at once */
    {BY_HAND " MASTER_ADDR=head " SLURM, "slurm", "slurm-77.2", 5, 8, 1, -1, 0, "node03", 20618, ""},
    {TUTTI " " TORCH " " OPENMPI " " SLURM, "tutti", "mine", 0, 2, 1, 2, 1, "", 0, ""},
    {TORCH " " OPENMPI " " SLURM, "torchrun", "torchrun-3-29500-head-none", 1, 4, 1, 2, 0, "head", 29500, "c10d"},
    {OPENMPI " " SLURM, "openmpi", "openmpi-1376714753", 2, 3, 2, 3, 1, "", 0, "pmix"},
    {"TUTTI_LAUNCHER=slurm " TORCH " " OPENMPI " " SLURM, "slurm", "slurm-77.2", 5, 8, 1, -1, 0, "node03", 20618, ""},
    {"TUTTI_LAUNCHER=none " TUTTI " " SLURM, NULL, "", 0, 1, -1, -1, 1, "", 0, ""},
    /* a job that is described, but no launcher that started this process */
    {"SLURM_JOB_ID=77 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_NODELIST=a,b SLURM_LOCALID=0 SLURM_NODEID=0", NULL, "", 0,
     1, -1, -1, 1, "", 0, ""},
    {"SLURM_JOB_ID=77 SLURM_STEP_ID=4294967291 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NODELIST=a", NULL, "",
     0, 1, -1, -1, 1, "", 0, ""},
    {"RANK=1 WORLD_SIZE=4", NULL, "", 0, 1, -1, -1, 1, "", 0, ""},
    {"PMIX_NAMESPACE=x PMIX_RANK=1", NULL, "", 0, 1, -1, -1, 1, "", 0, ""},
    {"PMI_RANK=1 PMI_SIZE=2", NULL, "", 0, 1, -1, -1, 1, "", 0, ""},
};

static void test_found(void)
{
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        const struct row *row = &found[i];
        tutti_launch launch;
        tutti_error error = {0};
        tutti_status status = read_environment(row->environment, &launch, &error);
        const char *name = launch.launcher == NULL ? "" : launch.launcher->name;
        CHECK_THAT(status == TUTTI_OK, "%zu: %s", i, error.text);
        CHECK_THAT(strcmp(name, row->launcher == NULL ? "" : row->launcher) == 0, "%zu: %s", i, name);
        CHECK_THAT(strcmp(launch.job, row->job) == 0, "%zu: %s", i, launch.job);
        CHECK_THAT(launch.rank == row->rank && launch.size == row->size, "%zu: %d of %d", i, launch.rank, launch.size);
        CHECK_THAT(launch.local_rank == row->local_rank && launch.local_size == row->local_size, "%zu: %d of %d", i,
                   launch.local_rank, launch.local_size);
        CHECK_THAT(launch.one_host == row->one_host, "%zu: one host %d", i, launch.one_host);
        CHECK_THAT(strcmp(launch.host, row->host) == 0 && launch.port == row->port, "%zu: %s:%d", i, launch.host,
                   launch.port);
        CHECK_THAT(strcmp(launch.store, row->store) == 0, "%zu: %s", i, launch.store);
    }
}

static void test_refused(void)
{
    static const struct {
        const char *environment, *words;
    } rows[] = {
        {"TUTTI_JOB=x", "must be set together"},
        {"TUTTI_RANK=1 TUTTI_SIZE=2", "must be set together"},
        {"TUTTI_JOB=x TUTTI_RANK=2 TUTTI_SIZE=2", "ranks go from 0 to 1"},
        {"TUTTI_LAUNCHER=pbs", "it takes auto, tutti, torchrun"},
        {"TUTTI_LAUNCHER=openmpi " SLURM, "was not started by Open MPI's mpirun"},
        {"PMIX_NAMESPACE=x OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_RANK is \"3\""},
        {"PMIX_NAMESPACE=x OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=0", "OMPI_COMM_WORLD_SIZE is \"0\""},
        {"PMIX_NAMESPACE=x OMPI_COMM_WORLD_RANK=1x OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK is \"1x\""},
        {TORCH " MASTER_PORT=70000", "MASTER_PORT is \"70000\""},
        {BY_HAND " MASTER_ADDR=a RANK=4", "RANK is \"4\""},
        {SLURM " SLURM_PROCID=-1", "SLURM_PROCID is \"-1\""},
        {SLURM " SLURM_STEP_NODELIST=,", "names no host"},
        {"PMI_FD=x PMI_RANK=0 PMI_SIZE=1", "PMI_FD is \"x\""},
        {"PMI_FD=77 PMI_RANK=0 PMI_SIZE=1", "descriptor 77 (PMI_FD) did not answer init"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tutti_launch launch;
        tutti_error error = {0};
        tutti_status status = read_environment(rows[i].environment, &launch, &error);
        CHECK_THAT(status != TUTTI_OK, "%zu", i);
        CHECK_THAT(strstr(error.text, rows[i].words) != NULL, "%zu: %s", i, error.text);
    }
}

static void test_hosts(void)
{
    static const char *const lists[][2] = {
        {"a", "a"},
        {"a,b", "a"},
        {"n[7]", "n7"},
        {"n[007-9,12],m", "n007"},
        {"n[1,3]-ib", "n1-ib"},
        {"a.b-c,d", "a.b-c"},
        {"r[1-2]n[04-05]", "r1n04"},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        tutti_launch launch;
        tutti_error error = {0};
        set_environment(SLURM);
        setenv("SLURM_STEP_NODELIST", lists[i][0], 1);
        CHECK_THAT(tutti_launch_read(&launch, &error) == TUTTI_OK, "%s", error.text);
        CHECK_THAT(strcmp(launch.host, lists[i][1]) == 0, "%s: %s", lists[i][0], launch.host);
    }
}

static void test_rows(void)
{
    size_t count = 0;
    const tutti_launcher_row *rows = tutti_launcher_rows(&count);
    set_environment(OPENMPI " " SLURM);
    for (size_t i = 0; i < count; i++) {
        bool there = strcmp(rows[i].name, "openmpi") == 0 || strcmp(rows[i].name, "slurm") == 0;
        CHECK_THAT((tutti_launcher_found(&rows[i]) != 0) == there, "%s", rows[i].name);
    }
    CHECK_THAT(count == 6 && tutti_launcher_found(NULL) == 0, "%zu", count);
    set_environment(TORCH); /* has all that is set by hand, too */
    for (size_t i = 0; i < count; i++)
        CHECK_THAT((tutti_launcher_found(&rows[i]) != 0) == (strcmp(rows[i].name, "torchrun") == 0), "%s",
                   rows[i].name);
}

/* ---- The store of torch ------------------------------------------------------------------------------------------ */

enum store_kind {
    NEW_STORE,
    OLD_STORE, /* as before torch 2.1: without a proof, and questions count from one less */
    NO_STORE   /* another server, which closes */
};

/* One key, any number of clients one after the other or waiting; ends when its listener is shut down. */
struct double_store {
    int listener, port, clients;
    enum store_kind kind;
    atomic_ullong refused; /* the least length of a text that was too long */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t set;
    char key[256], value[1024];
    bool there;
};

static bool take(int fd, void *into, size_t bytes)
{
    return recv(fd, into, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static bool take_text(struct double_store *store, int fd, char *text, size_t bytes)
{
    uint64_t length;
    if (!take(fd, &length, sizeof length)) return false;
    if (length >= bytes && (store->refused == 0 || length < store->refused)) store->refused = length;
    if (length >= bytes) return false;
    text[length] = '\0';
    return length == 0 || take(fd, text, length);
}

static bool take_keys(struct double_store *store, int fd, char *key, size_t bytes)
{
    uint64_t count;
    return take(fd, &count, sizeof count) && count == 1 && take_text(store, fd, key, bytes);
}

static bool answer_byte(int fd, uint8_t byte)
{
    return send(fd, &byte, 1, MSG_NOSIGNAL) == 1;
}

static bool answer(struct double_store *store, int fd, uint8_t question)
{
    char key[256], value[1024];
    uint32_t proof;
    switch (question) {
    case 0: return take(fd, &proof, sizeof proof) && proof == 0x3C85F7CE;
    case 1:
        if (!take_text(store, fd, key, sizeof key) || !take_text(store, fd, value, sizeof value)) return false;
        if (strncmp(key, "/tutti/hello", 12) == 0) return true;
        pthread_mutex_lock(&store->lock);
        strcpy(store->key, key);
        strcpy(store->value, value);
        store->there = true;
        pthread_cond_broadcast(&store->set);
        pthread_mutex_unlock(&store->lock);
        return true;
    case 5: return take_keys(store, fd, key, sizeof key) && answer_byte(fd, strcmp(key, store->key) == 0 ? 0 : 1);
    case 6:
        if (!take_keys(store, fd, key, sizeof key)) return false;
        pthread_mutex_lock(&store->lock);
        while (!store->there) pthread_cond_wait(&store->set, &store->lock);
        pthread_mutex_unlock(&store->lock);
        return answer_byte(fd, 0);
    case 3: {
        if (!take_text(store, fd, key, sizeof key) || strcmp(key, store->key) != 0) return false;
        uint64_t length = strlen(store->value);
        return send(fd, &length, sizeof length, MSG_NOSIGNAL) > 0 && send(fd, store->value, length, MSG_NOSIGNAL) > 0;
    }
    default: return false;
    }
}

struct client {
    struct double_store *store;
    int fd;
};

static void *serve_client(void *argument)
{
    struct client client = *(struct client *)argument;
    uint8_t question;
    bool first = true;
    free(argument);
    while (take(client.fd, &question, 1)) {
        if (client.store->kind == OLD_STORE)
            question++;
        else if (first && question != 0)
            break;
        if (!answer(client.store, client.fd, question)) break;
        first = false;
    }
    close(client.fd);
    return NULL;
}

static void *serve(void *argument)
{
    struct double_store *store = argument;
    pthread_t threads[8];
    int count = 0;
    for (int fd; count < store->clients && (fd = accept(store->listener, NULL, NULL)) >= 0;) {
        if (store->kind == NO_STORE) {
            close(fd);
            count++;
            continue;
        }
        struct client *client = malloc(sizeof *client);
        *client = (struct client){store, fd};
        pthread_create(&threads[count++], NULL, serve_client, client);
    }
    for (int i = 0; i < count && store->kind != NO_STORE; i++) pthread_join(threads[i], NULL);
    return NULL;
}

static void open_store(struct double_store *store, int clients, enum store_kind kind)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    memset(store, 0, sizeof *store);
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->set, NULL);
    store->clients = clients;
    store->kind = kind;
    store->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(store->listener, (struct sockaddr *)&address, length) != 0 || listen(store->listener, 8) != 0) abort();
    getsockname(store->listener, (struct sockaddr *)&address, &length);
    store->port = ntohs(address.sin_port);
    pthread_create(&store->thread, NULL, serve, store);
}

static void close_store(struct double_store *store)
{
    pthread_join(store->thread, NULL);
    close(store->listener);
}

static tutti_launch torch_launch(int rank, int port)
{
    tutti_launch launch;
    tutti_error error = {0};
    char text[16];
    set_environment(TORCH " MASTER_ADDR=127.0.0.1");
    snprintf(text, sizeof text, "%d", port);
    setenv("MASTER_PORT", text, 1);
    snprintf(text, sizeof text, "%d", rank);
    setenv("RANK", text, 1);
    CHECK_THAT(tutti_launch_read(&launch, &error) == TUTTI_OK, "%s", error.text);
    return launch;
}

static int64_t in_ms(int64_t ms)
{
    return tti_now_ns() + ms * 1000000;
}

static void *look_up(void *argument)
{
    tutti_launch *launch = argument;
    char text[TTI_LAUNCH_TEXT];
    tutti_error error = {0};
    tutti_status status = tti_launch_lookup(launch, text, sizeof text, in_ms(45000), &error);
    return status == TUTTI_OK && strcmp(text, "10.0.0.1:4000,[fd00::1]:4000") == 0 ? launch : NULL;
}

static void test_store(bool old)
{
    struct double_store store;
    tutti_error error = {0};
    pthread_t early;
    void *found_early = NULL;
    open_store(&store, old ? 6 : 3, old ? OLD_STORE : NEW_STORE);
    tutti_launch first = torch_launch(0, store.port), second = torch_launch(1, store.port);
    pthread_create(&early, NULL, look_up, &second); /* waits, or comes later: both must do */
    tutti_status status = tti_launch_publish(&first, "10.0.0.1:4000,[fd00::1]:4000", in_ms(45000), &error);
    CHECK_THAT(status == TUTTI_OK, "%s", error.text);
    pthread_join(early, &found_early);
    CHECK_THAT(found_early != NULL, "looked up while it was published");
    CHECK_THAT(look_up(&second) != NULL, "looked up later");
    close_store(&store);
    CHECK_THAT(strcmp(store.key, "/tutti/torchrun-3-") > 0, "%s", store.key);
    /* what it is made to refuse must be more than it could ever take */
    CHECK_THAT(old ? store.refused >= 1ULL << 47 : store.refused == 0, "a text of %llx bytes",
               (unsigned long long)store.refused);
}

static void test_store_failures(void)
{
    struct double_store store;
    tutti_error error = {0};
    char text[TTI_LAUNCH_TEXT], small[8];
    open_store(&store, 2, NO_STORE);
    tutti_launch launch = torch_launch(1, store.port);
    CHECK_THAT(tti_launch_lookup(&launch, text, sizeof text, in_ms(45000), &error) == TUTTI_ERR_JOIN, "closed");
    CHECK_THAT(strstr(error.text, "closed the connection") != NULL, "%s", error.text);
    close_store(&store);
    int taken = take_port(&launch.port);
    CHECK_THAT(tti_launch_lookup(&launch, text, sizeof text, in_ms(500), &error) == TUTTI_ERR_JOIN, "nobody");
    CHECK_THAT(strstr(error.text, "could not be asked") != NULL, "%s", error.text);
    close(taken);

    open_store(&store, 2, NEW_STORE);
    tutti_launch zero = torch_launch(0, store.port);
    CHECK_THAT(tti_launch_publish(&zero, "10.0.0.1:4000", in_ms(45000), &error) == TUTTI_OK, "%s", error.text);
    CHECK_THAT(tti_launch_lookup(&zero, small, sizeof small, in_ms(45000), &error) == TUTTI_ERR_JOIN, "too long");
    close_store(&store);

    snprintf(launch.host, sizeof launch.host, "no-such-host.invalid");
    CHECK_THAT(tti_launch_lookup(&launch, text, sizeof text, in_ms(500), &error) == TUTTI_ERR_JOIN, "no host");
    CHECK_THAT(strstr(error.text, "does not resolve") != NULL, "%s", error.text);
    launch.store = "";
    CHECK_THAT(tti_launch_lookup(&launch, text, sizeof text, in_ms(500), &error) == TUTTI_ERR_JOIN, "no store");
    CHECK_THAT(strstr(error.text, "set TUTTI_MASTER_ADDR") != NULL, "%s", error.text);
}

/* ---- A job of torchrun on two hosts ---------------------------------------------------------------------------------- */

static void join_torchrun(int rank, int port)
{
    tutti_comm *world = NULL;
    char text[16];
    int sum = rank + 1;
    set_environment(TORCH
                    " MASTER_ADDR=127.0.0.1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 TUTTI_JOIN_TIMEOUT_MS=45s");
    snprintf(text, sizeof text, "%d", port);
    setenv("MASTER_PORT", text, 1);
    snprintf(text, sizeof text, "%d", rank);
    setenv("RANK", text, 1);
    setenv("TUTTI_KEY", "000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f", 1);
    tutti_status status = tutti_join(&world);
    if (status == TUTTI_OK) status = tutti_all_reduce(world, &sum, &sum, 1, TUTTI_I32, TUTTI_SUM);
    if (status != TUTTI_OK) tutti_explain(world, stdout);
    tutti_leave(world);
    exit(status == TUTTI_OK && sum == 3 ? 0 : 1);
}

/* The store has the port; rank 0 waits elsewhere and says so there. */
static void test_torchrun(void)
{
    struct double_store store;
    pid_t ranks[2];
    open_store(&store, 2, NEW_STORE);
    fflush(stdout);
    for (int rank = 0; rank < 2; rank++) {
        ranks[rank] = fork();
        if (ranks[rank] == 0) join_torchrun(rank, store.port);
    }
    for (int rank = 0; rank < 2; rank++) {
        int status = -1;
        CHECK_THAT(waitpid(ranks[rank], &status, 0) > 0 && status == 0, "rank %d: %d", rank, status);
    }
    close_store(&store);
}

/* ---- A process manager --------------------------------------------------------------------------------------------- */

/* Answers one process, and notes what it was asked. */
static void *manage(void *argument)
{
    int fd = *(int *)argument;
    static char asked[4096];
    char line[1024], value[512] = "";
    FILE *in = fdopen(fd, "r+");
    setvbuf(in, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, in) != NULL) {
        strncat(asked, line, sizeof asked - strlen(asked) - 1);
        const char *said = "cmd=unknown rc=-1\n";
        char got[700];
        if (strncmp(line, "cmd=init", 8) == 0) said = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
        if (strncmp(line, "cmd=get_maxes", 13) == 0) said = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
        if (strncmp(line, "cmd=get_my_kvsname", 18) == 0) said = "cmd=my_kvsname kvsname=kvs_1\n";
        if (strncmp(line, "cmd=put ", 8) == 0) {
            sscanf(strstr(line, "value="), "value=%511s", value);
            said = "cmd=put_result rc=0 msg=success\n";
        }
        if (strncmp(line, "cmd=barrier_in", 14) == 0) said = "cmd=barrier_out\n";
        if (strncmp(line, "cmd=get ", 8) == 0) {
            snprintf(got, sizeof got, "cmd=get_result rc=0 msg=success value=%s\n", value);
            said = got;
        }
        if (strncmp(line, "cmd=finalize", 12) == 0) said = "cmd=finalize_ack\n";
        fputs(said, in);
    }
    fclose(in);
    return asked;
}

static void test_process_manager(void)
{
    int ends[2];
    pthread_t manager;
    void *asked;
    char number[16], text[TTI_LAUNCH_TEXT] = "", longest[TTI_LAUNCH_TEXT];
    tutti_options options;
    tutti_launch launch;
    tutti_error error = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) abort();
    pthread_create(&manager, NULL, manage, &ends[1]);
    set_environment("PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0");
    snprintf(number, sizeof number, "%d", ends[0]);
    setenv("PMI_FD", number, 1);
    tutti_options_init(&options, NULL);
    CHECK_THAT(tti_launch_read(&options, &launch, &error) == TUTTI_OK, "%s", error.text);
    CHECK_THAT(strcmp(launch.job, "mpich-kvs_1") == 0 && launch.one_host == 0, "%s", launch.job);
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    CHECK_THAT(tti_launch_publish(&launch, longest, in_ms(45000), &error) == TUTTI_ERR_JOIN, "too long");
    CHECK_THAT(strstr(error.text, "more addresses") != NULL, "%s", error.text);
    CHECK_THAT(tti_launch_publish(&launch, "h:1,i:2", in_ms(45000), &error) == TUTTI_OK, "%s", error.text);
    CHECK_THAT(tti_launch_lookup(&launch, text, sizeof text, in_ms(45000), &error) == TUTTI_OK, "%s", error.text);
    CHECK_THAT(strcmp(text, "h:1,i:2") == 0, "%s", text);
    tti_launch_done(&launch);
    tti_launch_done(&launch);
    CHECK_THAT(tti_launch_lookup(&launch, text, sizeof text, in_ms(45000), &error) == TUTTI_ERR_JOIN, "after its end");
    CHECK_THAT(tti_launch_read(&options, &launch, &error) == TUTTI_OK, "%s", error.text);
    CHECK_THAT(strcmp(launch.job, "mpich-kvs_1") == 0, "%s", launch.job);
    shutdown(ends[0], SHUT_RDWR);
    pthread_join(manager, &asked);
    close(ends[0]);
    CHECK_THAT(strcmp(asked, "cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=get_my_kvsname\n"
                             "cmd=put kvsname=kvs_1 key=tutti-rank-0 value=h:1,i:2\ncmd=barrier_in\n"
                             "cmd=barrier_in\ncmd=get kvsname=kvs_1 key=tutti-rank-0\ncmd=finalize\n") == 0,
               "%s", (char *)asked);
}

/* ---- Where its processes are ----------------------------------------------------------------------------------------- */

/* Whether a process whose manager says this of the processes' places takes them for those of one host: 0 or 1. */
static void tell_one_host(const char *mapping)
{
    int ends[2];
    char said[1200], number[16];
    tutti_options options;
    tutti_launch launch;
    tutti_error error = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) abort();
    int length = snprintf(said, sizeof said,
                          "cmd=response_to_init rc=0\ncmd=maxes\ncmd=my_kvsname kvsname=k\n"
                          "cmd=get_result rc=0 value=%s\n",
                          mapping);
    if (write(ends[1], said, (size_t)length) != length) abort();
    set_environment("PMI_RANK=0 PMI_SIZE=4");
    snprintf(number, sizeof number, "%d", ends[0]);
    setenv("PMI_FD", number, 1);
    tutti_options_init(&options, NULL);
    if (tti_launch_read(&options, &launch, &error) != TUTTI_OK) _exit(2);
    _exit(launch.one_host);
}

static void test_mapping(void)
{
    static const struct {
        const char *mapping;
        int one_host;
    } rows[] = {
        {"(vector,(0,1,4))", 1}, {"(vector,(0,1,2),(0,1,2))", 1},
        {"(vector,(0,2,2))", 0}, {"(vector,(0,1,2),(1,1,2))", 0},
        {"(vector,(0,1,4", 0},   {"(vector,(0,1,2),(0,1,2", 0},
        {"(vector,(0,1", 0},     {"(vector)", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int status = -1;
        pid_t child = fork(); /* a process has one conversation */
        if (child == 0) tell_one_host(rows[i].mapping);
        if (waitpid(child, &status, 0) != child) abort();
        CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) == rows[i].one_host, "%s: %x", rows[i].mapping,
                   (unsigned)status);
    }
}

int main(void)
{
    test_mapping();
    test_found();
    test_refused();
    test_hosts();
    test_rows();
    test_store(false);
    test_store(true);
    test_store_failures();
    test_torchrun();
    test_process_manager();
    return check_end();
}
