/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Conformance where processes may not read each other's memory, as in many containers: process_vm_readv is refused by a
 * filter of system calls. Private buffers go by bounce buffers within a host; on several hosts, whose processes would have
 * to attach to each other, by messages.
 */
#include "collective/peers/posts.h"
#include "conformance.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Holds for this process and all that it starts. */
static bool forbid_attach(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof rules / sizeof *rules, .filter = rules};
    char from = 1, to = 0;
    struct iovec local = {&to, 1}, remote = {&from, 1};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0) return false;
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) < 0 && errno == EPERM;
}

static void run_list(tutti_comm *comm, void *list)
{
    CHECK_THAT(!comm->traits.can_attach && !tti_posts_cover(comm, TTI_ALL_REDUCE), "rank %d takes attach to be allowed",
               tutti_rank(comm));
    conf_list_run(comm, list);
}

static void run(enum world_ranks ranks, int size, const char *host_processes, uint64_t seed)
{
    struct conf_list list = {.size = size, .batch = 4, .label = "no attach"};
    for (int tuning = 0; tuning < CONF_TUNINGS; tuning++)
        for (size_t kind = 0; kind < conf_kind_count; kind++) {
            conf_list_add_random(&list, conf_kinds[kind], (enum conf_tuning)tuning, seed++,
                                 tuning == CONF_DEFAULT ? 300000 : 20000);
            list.cases[list.count - 1].memory = kind % 2 == 0 ? CONF_PRIVATE : CONF_MIXED;
        }
    conf_list_prepare(&list, seed, false);
    setenv("TUTTI_HOST_PROCESSES", host_processes, 1);
    struct conf_world world = {
        .ranks = ranks, .size = size, .direct = 1, .attach = 1, .body = run_list, .context = &list};
    conf_world_run(&world);
    conf_list_free(&list);
}

int main(void)
{
    if (!forbid_attach()) {
        printf("skipped: system calls cannot be filtered here\n");
        return 77;
    }
    conf_begin();
    conf_reference_prepare();
    run(WORLD_PROCESSES, 3, "0", 1000);
    run(WORLD_PROCESSES, 4, "2", 2000);
    run(WORLD_PAIRS, 6, "2", 3000);
    return check_end();
}
