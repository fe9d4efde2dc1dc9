/* SPDX-License-Identifier: Apache-2.0
 *
 * Who started this process, and as which of how many: the one place that reads a launcher's environment.
 *
 * Launchers are rows of a table, in order of precedence; docs/launchers.md says the same in words, and `tutti doctor`
 * shows it. What a launcher does not tell is found by its store: rank 0 publishes where it waits, the others look it up.
 */
#ifndef TTI_WORLD_LAUNCH_H
#define TTI_WORLD_LAUNCH_H

#include <stdint.h>
#include <tutti/experimental.h>

/* Reads the environment, and asks the launcher where its environment does not say enough. With options->launcher other
 * than "auto", that launcher's and no other. */
tutti_status tti_launch_read(const tutti_options *options, tutti_launch *launch, tutti_error *error);

/* Gives `value` (at most 255 bytes of text without white space) to all processes of the job, by launch->store: rank 0
 * calls with `value` filled in, all others find it there afterwards. Collective under "pmi". */
tutti_status tti_launch_share(const tutti_launch *launch, char value[256], int64_t deadline_ns, tutti_error *error);

/* Ends what talk there was with the launcher, in order; the environment and what it told stay good. */
void tti_launch_done(const tutti_launch *launch);

/* ---- The stores: for launch.c only ---- */

/* PMI-1: the conversation with a process manager over the descriptor that PMI_FD names. */
tutti_status tti_pmi_open(char *kvsname, size_t bytes, int64_t deadline_ns, tutti_error *error);
tutti_status tti_pmi_share(int rank, char value[256], int64_t deadline_ns, tutti_error *error);
void tti_pmi_close(void);

/* The key-value store of torch.distributed, which torchrun's agent keeps at host:port. */
tutti_status tti_c10d_share(const char *host, int port, const char *key, int rank, char value[256], int64_t deadline_ns,
                            tutti_error *error);

#endif
