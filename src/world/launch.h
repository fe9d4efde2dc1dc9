/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds out who started this process, and as which of how many: the one place that reads a launcher's environment.
 *
 * Launchers are rows of a table, in order of precedence; docs/launchers.md describes them, and `tutti doctor` shows the
 * table. Facts that a launcher does not tell are found by its store: rank 0 publishes where it waits, the others look
 * it up.
 */
#ifndef TTI_WORLD_LAUNCH_H
#define TTI_WORLD_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <tutti/experimental.h>

/* Reads the environment, and asks the launcher if its environment does not say enough. With options->launcher other
 * than "auto", it reads that launcher's and no other. */
tutti_status tti_launch_read(const tutti_options *options, tutti_launch *launch, tutti_error *error);

/* Returns OK if this may be the option launcher: a launcher's name, auto, none, or nothing. */
tutti_status tti_launcher_check(const char *name, tutti_error *error);

enum { TTI_LAUNCH_TEXT = 1024 };

/* Uses launch->store: process 0 publishes a text without white space, every other looks it up, once in a job. Both wait
 * until the deadline if they can. The text and its zero take TTI_LAUNCH_TEXT bytes at most. */
tutti_status tti_launch_publish(const tutti_launch *launch, const char *text, int64_t deadline_ns, tutti_error *error);
tutti_status tti_launch_lookup(const tutti_launch *launch, char *text, size_t bytes, int64_t deadline_ns,
                               tutti_error *error);

/* Ends any conversation with the launcher, in order; the environment and what it told stay valid. */
void tti_launch_done(const tutti_launch *launch);

/* ---- The stores: for launch.c only ---- */

/* PMI-1: the conversation with a process manager over the descriptor in PMI_FD. */
tutti_status tti_pmi_open(int fd, char *kvsname, size_t bytes, int64_t deadline_ns, tutti_error *error);
/* Returns true if the process manager says that all processes are on one host. Called once it is open. */
bool tti_pmi_one_host(int64_t deadline_ns);
tutti_status tti_pmi_publish(const char *text, int64_t deadline_ns, tutti_error *error);
tutti_status tti_pmi_lookup(char *text, size_t bytes, int64_t deadline_ns, tutti_error *error);
void tti_pmi_close(void);

/* PMIx: the store of Open MPI's mpirun, by libpmix. */
tutti_status tti_pmix_publish(const char *text, int64_t deadline_ns, tutti_error *error);
tutti_status tti_pmix_lookup(char *text, size_t bytes, int64_t deadline_ns, tutti_error *error);

/* The key-value store of torch.distributed, which torchrun's agent keeps at host:port. */
struct tti_c10d {
    const char *host;
    int port;
    const char *key;
    int64_t deadline_ns;
};
tutti_status tti_c10d_publish(const struct tti_c10d *at, const char *text, tutti_error *error);
tutti_status tti_c10d_lookup(const struct tti_c10d *at, char *text, size_t bytes, tutti_error *error);

#endif
