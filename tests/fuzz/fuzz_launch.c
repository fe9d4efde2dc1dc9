/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz: runs=20000 */
/* What launchers tell: the answers of a process manager, those of torchrun's store, and the variables of all launchers. Any
 * bytes are taken or refused with a sentence, and texts that are taken end within their place. The first byte chooses.
 *
 * The two conversations are compiled in once more, by other names: what they keep of one is forgotten before the next. */
#include "base/clock.h"
#include "base/options.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>

#define tti_pmi_open fuzzed_pmi_open
#define tti_pmi_one_host fuzzed_pmi_one_host
#define tti_pmi_publish fuzzed_pmi_publish
#define tti_pmi_lookup fuzzed_pmi_lookup
#define tti_pmi_close fuzzed_pmi_close
#define failed pmi_failed
#include "world/launch_pmi.c"
#undef tti_pmi_open
#undef tti_pmi_one_host
#undef tti_pmi_publish
#undef tti_pmi_lookup
#undef tti_pmi_close
#undef failed

#define tti_c10d_publish fuzzed_c10d_publish
#define tti_c10d_lookup fuzzed_c10d_lookup
#include "world/launch_c10d.c"
#undef tti_c10d_publish
#undef tti_c10d_lookup

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(bool holds)
{
    if (!holds) abort();
}

/* A descriptor from which these bytes come, and then the end. */
static int one_who_says(const char *opening, const uint8_t *data, size_t bytes, int *other)
{
    int ends[2];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    must(write(ends[1], opening, strlen(opening)) == (ssize_t)strlen(opening));
    must(write(ends[1], data, bytes) == (ssize_t)bytes);
    shutdown(ends[1], SHUT_WR);
    *other = ends[1];
    return ends[0];
}

static void check(tutti_status status, const tutti_error *error, const char *text, size_t bytes)
{
    if (status == TUTTI_OK)
        must(memchr(text, '\0', bytes) != NULL);
    else
        must(error->status == status && error->text[0] != '\0');
}

static void talk_to_manager(const uint8_t *data, size_t bytes, bool opened)
{
    static const char opening[] =
        "cmd=response_to_init rc=0\ncmd=maxes\ncmd=my_kvsname kvsname=k\ncmd=get_result value=";
    char name[100], text[TTI_LAUNCH_TEXT];
    tutti_error error = {0};
    int other, fd = one_who_says(opened ? opening : "", data, bytes, &other);
    int64_t deadline_ns = tti_now_ns() + INT64_C(60000000000);
    memset(&pmi, 0, sizeof pmi);
    tutti_status status = fuzzed_pmi_open(fd, name, sizeof name, deadline_ns, &error);
    check(status, &error, name, sizeof name);
    if (status == TUTTI_OK) {
        (void)fuzzed_pmi_one_host(deadline_ns);
        check(fuzzed_pmi_lookup(text, sizeof text, deadline_ns, &error), &error, text, sizeof text);
        (void)fuzzed_pmi_publish("127.0.0.1:1", deadline_ns, &error);
        fuzzed_pmi_close();
    }
    close(fd);
    close(other);
}

static void talk_to_store(const uint8_t *data, size_t bytes, bool old)
{
    char text[300];
    tutti_error error = {0};
    int other;
    struct store store = {.host = "h", .port = 1, .old = old, .error = &error};
    store.deadline_ns = tti_now_ns() + INT64_C(60000000000);
    store.fd = one_who_says("", data, bytes, &other);
    check(look_up(&store, "/tutti/job", text, sizeof text), &error, text, sizeof text);
    close(store.fd);
    close(other);
}

/* What launchers set where all is well. */
static const char *const launchers[][8] = {
    {"TORCHELASTIC_RUN_ID=r", "RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=a", "MASTER_PORT=5"},
    {"PMIX_NAMESPACE=n", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"},
    {"SLURM_JOB_ID=7", "SLURM_STEP_ID=1", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NODELIST=n[1-2]",
     "SLURM_STEP_NUM_NODES=2"},
    {"TUTTI_JOB=j", "TUTTI_RANK=1", "TUTTI_SIZE=2"},
    {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=5"},
    {NULL},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

static void begin_environment(unsigned launcher)
{
    (void)clearenv();
    for (int i = 0; i < 8 && launchers[launcher][i] != NULL; i++) putenv((char *)(uintptr_t)launchers[launcher][i]);
}

/* The line's first byte says which: one of any launcher's, or of this one's; as it is, or longer than any text is kept. */
static void set_variable(const char *name, const char *line, unsigned launcher)
{
    const char *own = launchers[launcher][(unsigned char)line[0] / 4 % 8], *value = line + 1;
    char text[8192], own_name[64];
    size_t length = strlen(value), used = 0;
    bool repeated = (line[0] & 2) != 0;
    if (own != NULL) snprintf(own_name, sizeof own_name, "%.*s", (int)strcspn(own, "="), own);
    do used += (size_t)snprintf(text + used, sizeof text - used, "%s", value);
    while (repeated && length > 0 && used + length < sizeof text);
    setenv((line[0] & 1) != 0 && own != NULL ? own_name : name, text, 1);
}

/* Values by lines, the first of each line choosing the variable. */
static void read_environment(const uint8_t *data, size_t bytes, unsigned launcher)
{
    static const char *const names[] = {"TORCHELASTIC_RUN_ID",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "LOCAL_WORLD_SIZE",
                                        "PMIX_NAMESPACE",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_PROCID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_STEP_NODELIST",
                                        "SLURM_STEP_NUM_NODES",
                                        "TUTTI_JOB",
                                        "TUTTI_RANK",
                                        "TUTTI_SIZE",
                                        "TUTTI_LAUNCHER",
                                        "TUTTI_MASTER_ADDR",
                                        "TUTTI_MASTER_PORT",
                                        "LOCAL_RANK",
                                        "TUTTI_DEADLINE_MS",
                                        "TUTTI_ARENA_BYTES",
                                        "TUTTI_LOG",
                                        "TORCHELASTIC_RESTART_COUNT"};
    enum { NAMES = sizeof names / sizeof *names };
    char copy[4097], *rest = NULL;
    tutti_error error = {0};
    tutti_launch launch;
    begin_environment(launcher);
    memcpy(copy, data, bytes);
    copy[bytes] = '\0';
    for (char *line = strtok_r(copy, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        set_variable(names[(unsigned char)line[0] % NAMES], line, launcher);
    tutti_status status = tutti_launch_read(&launch, &error);
    must(status == TUTTI_OK || error.text[0] != '\0');
    if (status != TUTTI_OK) return;
    must(launch.rank >= 0 && launch.rank < launch.size);
    must(memchr(launch.job, '\0', sizeof launch.job) != NULL && memchr(launch.host, '\0', sizeof launch.host) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2 || bytes > 4096) return 0;
    if (data[0] % 4 == 0)
        talk_to_manager(data + 1, bytes - 1, data[0] >= 64);
    else if (data[0] % 4 == 1)
        talk_to_store(data + 1, bytes - 1, data[0] >= 128);
    else
        read_environment(data + 1, bytes - 1, (data[0] >> 2) % LAUNCHERS);
    return 0;
}
