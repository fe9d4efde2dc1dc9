/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti train --drill: kills ranks on purpose, and repeats the training without kills, to compare.
 */
#include "cli/cli_train.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    tutti_train_phase phase;
} phases[] = {{"step", TUTTI_TRAIN_AT_STEP},
              {"gradients", TUTTI_TRAIN_AT_GRADIENTS},
              {"update", TUTTI_TRAIN_AT_UPDATE},
              {"save", TUTTI_TRAIN_AT_SAVE}};

enum { PHASES = sizeof phases / sizeof *phases };

/* ---- Reading --------------------------------------------------------------------------------------------------- */

/* Reads "2@step=50", after "kill=". */
static bool read_kill(const char *word, struct train_kill *kill)
{
    char *at, *end;
    long rank = strtol(word, &at, 10);
    if (at == word || *at != '@' || rank < 0 || rank > 1000000) return false;
    at++;
    if (strncmp(at, "end", 3) == 0 && (at[3] == ',' || at[3] == '\0')) {
        *kill = (struct train_kill){.rank = (int)rank, .at_end = true};
        return true;
    }
    const size_t length = strcspn(at, "=");
    for (int i = 0; i < PHASES; i++) {
        if (strlen(phases[i].name) != length || strncmp(phases[i].name, at, length) != 0 || at[length] != '=') continue;
        long long step = strtoll(at + length + 1, &end, 10);
        *kill = (struct train_kill){.rank = (int)rank, .phase = phases[i].phase, .step = (uint64_t)step};
        return end != at + length + 1 && step > 0 && (*end == ',' || *end == '\0');
    }
    return false;
}

static int check_kill(const struct train_values *values, const struct train_kill *kill)
{
    const tutti_train_options *options = &values->options;
    if (kill->at_end && options->server > 0)
        return cli_refuse("train", "--drill %s: with --server each worker ends by itself; kill it at a step",
                          values->drill);
    if (kill->at_end) return CLI_GO_ON;
    if (kill->step > (uint64_t)options->steps)
        return cli_refuse("train", "--drill %s: step %" PRIu64 " is not taken: --steps says %lld", values->drill,
                          kill->step, (long long)options->steps);
    const bool saves = kill->step == (uint64_t)options->steps ||
                       (options->save_every > 0 && kill->step % (uint64_t)options->save_every == 0);
    if (kill->phase == TUTTI_TRAIN_AT_SAVE && (options->save[0] == '\0' || !saves))
        return cli_refuse("train", "--drill %s: nothing is saved at step %" PRIu64 "; --save and --save-every say when",
                          values->drill, kill->step);
    return CLI_GO_ON;
}

int train_read_drill(struct train_values *values)
{
    for (const char *word = values->drill; *word != '\0';) {
        if (values->kill_count == TRAIN_KILLS)
            return cli_refuse("train", "--drill: more than %d ranks are to be killed", TRAIN_KILLS);
        struct train_kill *kill = &values->kills[values->kill_count++];
        if (strncmp(word, "kill=", 5) != 0 || !read_kill(word + 5, kill))
            return cli_refuse(
                "train",
                "--drill '%s': give kill=RANK@step=STEP, or gradients, update or save in place of step, or "
                "kill=RANK@end, with commas between several",
                word);
        int status = check_kill(values, kill);
        if (status != CLI_GO_ON) return status;
        word += strcspn(word, ",");
        if (*word == ',') word++;
    }
    return CLI_GO_ON;
}

int train_check_world(const struct train_values *values, tutti_comm *world)
{
    const bool says = tutti_rank(world) == 0;
    if (values->kill_count > 0 && !tutti_comm_can_rebuild(world))
        return says ? cli_refuse("train", "--drill needs a launcher that starts lost ranks again: tutti run "
                                          "--max-restarts 3 -n 4 tutti train … --drill …")
                    : CLI_USAGE;
    for (int i = 0; i < values->kill_count; i++)
        if (values->kills[i].rank >= tutti_size(world))
            return says ? cli_refuse("train", "--drill %s: there is no rank %d; the job has %d", values->drill,
                                     values->kills[i].rank, tutti_size(world))
                        : CLI_USAGE;
    for (int i = 0; i < values->kill_count; i++)
        if (values->kills[i].rank >= tutti_size(world) - values->options.server &&
            values->kills[i].phase != TUTTI_TRAIN_AT_UPDATE)
            return says ? cli_refuse("train",
                                     "--drill %s: rank %d is a parameter server, which takes no steps: "
                                     "kill=%d@update=N kills it behind its N-th update",
                                     values->drill, values->kills[i].rank, values->kills[i].rank)
                        : CLI_USAGE;
    return CLI_GO_ON;
}

/* ---- Doing it -------------------------------------------------------------------------------------------------- */

void train_watch_drill(void *context, tutti_train_phase phase, uint64_t step)
{
    const struct train_victim *victim = context;
    for (int i = 0; i < victim->values->kill_count; i++) {
        const struct train_kill *kill = &victim->values->kills[i];
        if (kill->rank == victim->rank && !kill->at_end && kill->phase == phase && kill->step == step)
            (void)raise(SIGKILL);
    }
}

void train_kill_at_end(const struct train_victim *victim)
{
    for (int i = 0; i < victim->values->kill_count; i++)
        if (victim->values->kills[i].rank == victim->rank && victim->values->kills[i].at_end) (void)raise(SIGKILL);
}

bool train_kills_at_end_only(const struct train_values *values)
{
    for (int i = 0; i < values->kill_count; i++)
        if (!values->kills[i].at_end) return false;
    return values->kill_count > 0;
}

tutti_status train_undisturbed(const struct train_values *values, tutti_comm *world, uint64_t *hash, tutti_error *error)
{
    tutti_train_options options = values->options;
    tutti_trainer *trainer = NULL;
    options.save = "";
    options.save_async = false;
    options.copy_every = 0;
    tutti_status status = tutti_trainer_create(world, &options, &trainer, error);
    const bool serves = status == TUTTI_OK && tutti_trainer_serves(trainer);
    if (serves) status = tutti_trainer_serve(trainer);
    for (int64_t i = 0; i < options.steps && status == TUTTI_OK && !serves; i++)
        status = tutti_trainer_step(trainer, NULL);
    if (status != TUTTI_OK && trainer != NULL) *error = *tutti_trainer_error(trainer);
    *hash = status == TUTTI_OK && !serves ? tutti_trainer_hash(trainer) : 0;
    tutti_trainer_free(trainer);
    return status;
}
