/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * A checkpoint notes the order of sums that it was made with. Going on from one that was made with another order is said where
 * that changes bits, and only there.
 */
#include "conformance_world.h"

#include "train/trainer.h"
#include "train/trainer_arrays.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64] = "/tmp/tutti-sums-XXXXXX";

struct row {
    const char *model;
    int64_t width_grains;
    bool fast;
    int64_t layers;
    const char *noted; /* NULL: as checkpoints were before there was a note */
    bool said;
};

static const struct row rows[] = {
    {"gpt", 1, false, 1, NULL, true},  {"gpt", 1, false, 1, "1", false}, {"gpt", 1, false, 1, "3", false},
    {"gpt", 4, false, 1, "1", true},   {"gpt", 4, false, 1, NULL, true}, {"gpt", 4, false, 1, "2", false},
    {"mlp", 1, false, 2, NULL, false}, {"gpt", 1, true, 1, NULL, false}, {"mlp", 4, false, 1, "2", false},
    {"mlp", 4, false, 2, "2", true},   {"mlp", 4, false, 2, "3", false},
};

static char heard[4096];
static void listen(void *context, tutti_log_level level, const char *line)
{
    (void)context, (void)level;
    strncat(heard, line, sizeof heard - strlen(heard) - 1);
}

/* The notes of a checkpoint, with another one in the place of layout.sums. */
static size_t read_notes(const tutti_checkpoint *checkpoint, const char *sums, tutti_note *notes)
{
    static const char *const names[] = {
        "model", "layers", "heads", "width", "context", "loss", "optimizer", "batch", "layout.width_grains"};
    size_t count = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        notes[count++] = (tutti_note){names[i], tutti_checkpoint_note(checkpoint, names[i])};
    CHECK(tutti_checkpoint_note(checkpoint, "layout.sums") != NULL);
    if (sums != NULL) notes[count++] = (tutti_note){"layout.sums", sums};
    return count;
}

/* Writes the newest checkpoint of `from` once more, into `to`, with these sums noted. */
static void note(const tutti_trainer *trainer, const char *from, const char *to, const char *sums)
{
    struct tti_arrays arrays;
    tutti_checkpoint *checkpoint = NULL;
    tutti_note notes[16];
    tutti_error error = {0};
    if (!CHECK_THAT(tti_arrays_make(trainer, &arrays, &error) == TUTTI_OK, "%s", error.text)) return;
    for (size_t i = 0; i < arrays.list_count; i++) {
        size_t count = 1;
        for (int d = 0; d < arrays.list[i].dimensions; d++) count *= (size_t)arrays.list[i].shape[d];
        arrays.list[i].values = calloc(count, sizeof(float));
    }
    CHECK_THAT(tutti_checkpoint_open(from, true, &checkpoint, &error) == TUTTI_OK &&
                   tutti_checkpoint_load(checkpoint, arrays.list, arrays.list_count, &error) == TUTTI_OK &&
                   tutti_checkpoint_save(to, 1, 0, notes, read_notes(checkpoint, sums, notes), arrays.list,
                                         arrays.list_count, &error) == TUTTI_OK,
               "%s", error.text);
    for (size_t i = 0; i < arrays.list_count; i++) free(arrays.list[i].values);
    tutti_checkpoint_free(checkpoint);
    tti_arrays_free(&arrays);
}

static void resume(tutti_comm *comm, const tutti_train_options *options, const struct row *row)
{
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    heard[0] = '\0';
    tutti_log_to(listen, NULL);
    CHECK_THAT(tutti_trainer_create(comm, options, &trainer, &error) == TUTTI_OK, "%s", error.text);
    tutti_log_to(NULL, NULL);
    CHECK_THAT((strstr(heard, "another order of sums") != NULL) == row->said,
               "%s, %lld width grains%s, noted %s: \"%s\"", row->model, (long long)row->width_grains,
               row->fast ? ", fast" : "", row->noted == NULL ? "nothing" : row->noted, heard);
    tutti_trainer_free(trainer);
}

static void run_row(tutti_comm *comm, void *context)
{
    const struct row *row = context;
    char from[96], to[96], table[96];
    tutti_train_options options;
    tutti_trainer *trainer = NULL;
    tutti_train_step step;
    tutti_error error = {0};
    snprintf(from, sizeof from, "%s/from%td", folder, row - rows);
    snprintf(to, sizeof to, "%s/to%td", folder, row - rows);
    snprintf(table, sizeof table, "%s/table", folder);
    tutti_train_options_init(&options);
    options.model = row->model;
    options.data = strcmp(row->model, "gpt") == 0 ? "markov:states=11,length=4000" : table;
    options.layers = row->layers;
    options.heads = 4;
    options.width = 32;
    options.context = 8;
    options.batch = 4;
    options.width_grains = row->width_grains;
    options.fast = row->fast;
    options.save = from;
    if (!CHECK_THAT(tutti_trainer_create(comm, &options, &trainer, &error) == TUTTI_OK, "%s", error.text)) return;
    CHECK(tutti_trainer_step(trainer, &step) == TUTTI_OK && tutti_trainer_save(trainer) == TUTTI_OK);
    note(trainer, from, to, row->noted);
    tutti_trainer_free(trainer);
    options.save = to;
    options.resume = true;
    resume(comm, &options, row);
}

int main(void)
{
    char command[128];
    conf_begin();
    CHECK(mkdtemp(folder) != NULL);
    snprintf(command, sizeof command, "seq 40 | awk '{ print $1 %% 7 \",\" $1 %% 5 \",\" $1 %% 2 }' >%s/table", folder);
    CHECK(system(command) == 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct conf_world world = {.ranks = WORLD_THREADS,
                                   .size = 1,
                                   .direct = 1,
                                   .attach = 1,
                                   .body = run_row,
                                   .context = (void *)(uintptr_t)&rows[i]};
        conf_world_run(&world);
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    return check_end();
}
