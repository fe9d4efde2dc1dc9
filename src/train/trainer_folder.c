/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of checkpoints: one run has it at a time, and all its ranks see the same one, since all write into it.
 */
#define TUTTI_NO_CALL_SITES
#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "train/checkpoint.h"
#include "train/trainer.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

tutti_status tti_trainer_take_folder(struct tutti_trainer *t, tutti_error *error)
{
    if (tti_trainer_is_planned(t) || t->world_rank != 0 || tutti_rank(tti_trainer_all(t)) != 0 ||
        t->options.save[0] == '\0')
        return TUTTI_OK;
    if (!t->options.resume) TTI_TRY(tti_checkpoint_folder(t->options.save, error));
    TTI_TRY(tti_checkpoint_lock(t->options.save, &t->lock, error));
    t->locked = true;
    return TUTTI_OK;
}

/* Names a file that only this run makes. The next save removes it if this run ended before it could. */
static void probe_name(const struct tutti_trainer *t, uint64_t token, char path[PATH_MAX])
{
    (void)snprintf(path, PATH_MAX, "%s/" TTI_SAVING_PREFIX "shared-%016llx", t->options.save,
                   (unsigned long long)token);
}

static tutti_status make_probe(const struct tutti_trainer *t, uint64_t token, tutti_error *error)
{
    char path[PATH_MAX];
    probe_name(t, token, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "nothing can be saved into the folder %.300s",
                             t->options.save);
    (void)close(fd);
    return TUTTI_OK;
}

static tutti_status find_probe(const struct tutti_trainer *t, uint64_t token, tutti_error *error)
{
    char path[PATH_MAX], host[64] = "?";
    probe_name(t, token, path);
    if (t->options.save[0] != '\0' && access(path, F_OK) == 0) return TUTTI_OK;
    (void)gethostname(host, sizeof host - 1);
    return tti_error_set(
        error, TUTTI_ERR_ARGUMENT, 0,
        "save: on host %s the folder \"%.200s\" is not the one that rank 0 saves into: all ranks write "
        "their part, so give a folder that all hosts share, under the same path",
        host, t->options.save);
}

tutti_status tti_trainer_share_folder(struct tutti_trainer *t, tutti_error *error)
{
    const bool first = tutti_rank(t->comm) == 0;
    uint64_t token = t->options.save[0] == '\0' ? 0 : tti_stir((uint64_t)tti_now_ns() ^ (uint64_t)getpid() << 40) | 1;
    if (tutti_size(t->comm) == 1) return TUTTI_OK;
    tutti_status status = tutti_broadcast(tti_inside(tti_trainer_comm(t), "checkpoint", "folder"), &token, &token, 1,
                                          TUTTI_U64, 0);
    if (status != TUTTI_OK) tti_trainer_mesh_error(t->comm, &t->mesh, error);
    if (status != TUTTI_OK || token == 0) return status;
    TTI_TRY(tti_agree(tti_trainer_comm(t), first ? make_probe(t, token, error) : TUTTI_OK, error));
    status = tti_agree(tti_trainer_comm(t), find_probe(t, token, error), error);
    char path[PATH_MAX];
    probe_name(t, token, path);
    if (first) (void)unlink(path);
    return status;
}
