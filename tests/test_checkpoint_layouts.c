/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=240 labels=asan
 *
 * Saved on one layout, loaded on another: the same files, and the same weights after the next step, as one rank makes. Files
 * of several parts, which ranks share out. A folder that ranks do not share.
 */
#include "conformance_world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tutti/train.h>
#include <unistd.h>

static char folder[64] = "/dev/shm/tutti-layouts-XXXXXX"; /* no disk where there is such a folder: many small saves */

struct layout {
    int ranks;
    const char *mesh;
    int64_t zero, width_grains;
};

static const struct layout layouts[] = {
    {1, "", 0, 1},
    {3, "", 0, 1},
    {2, "", 1, 1},
    {5, "", 2, 1},
    {3, "", 3, 1},
    {4, "data=2,shard=2", 3, 1},
    {2, "pipe=2", 0, 1},
    {4, "data=2,pipe=2", 1, 1},
    {8, "data=2,pipe=2,tensor=2", 1, 4},
    {2, "tensor=2", 0, 4},
    {4, "tensor=4", 3, 4},
    {8, "data=2,shard=2,tensor=2", 2, 4},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts, MADE = 2, SAVED, STEPS };

/* What one rank comes to after the last step, by the width grains that saved and that loaded; shared by all processes. */
struct outcomes {
    uint64_t hashes[2][2];
    uint64_t hash; /* of the run that ended last */
};
static struct outcomes *outcomes;

static int grains_index(const struct layout *layout)
{
    return layout->width_grains > 1;
}

static void path_of(const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s", folder, name);
}

static tutti_train_options small(const struct layout *layout)
{
    tutti_train_options options;
    tutti_train_options_init(&options);
    options.data = "markov:order=1,states=31,length=2000";
    options.layers = 2;
    options.heads = 4;
    options.width = 40; /* pieces that end with padding, and tensors of several blocks */
    options.context = 8;
    options.batch = 8;
    options.grains = 8;
    options.dropout = 0.1;
    options.steps = STEPS;
    options.warmup = 2;
    options.lr = 0.01;
    options.val_every = 0;
    options.check_every = 0;
    options.keep = 0;
    options.mesh = layout->mesh;
    options.zero = layout->zero;
    options.width_grains = layout->width_grains;
    return options;
}

static bool worked(tutti_comm *comm, tutti_status status, const char *text)
{
    return CHECK_THAT(status == TUTTI_OK, "rank %d: %s: %s", tutti_rank(comm), tutti_status_name(status), text);
}

/* A run: from the newest checkpoint of its folder, or the beginning, to a step. */
struct part {
    const struct layout *layout;
    const char *name;
    bool resume, save_first;
    uint64_t until;
};

static bool take_part(tutti_comm *comm, tutti_trainer *trainer, const struct part *part)
{
    tutti_train_about about;
    bool good = true;
    if (part->save_first) good = worked(comm, tutti_trainer_save(trainer), tutti_trainer_error(trainer)->text);
    tutti_trainer_describe(trainer, &about);
    for (uint64_t step = about.step; good && step < part->until; step++) {
        tutti_train_step taken;
        good = worked(comm, tutti_trainer_step(trainer, &taken), tutti_trainer_error(trainer)->text);
    }
    if (good && !part->save_first) good = worked(comm, tutti_trainer_save(trainer), tutti_trainer_error(trainer)->text);
    const uint64_t hash = good ? tutti_trainer_hash(trainer) : 0;
    if (tutti_rank(comm) == 0) outcomes->hash = hash;
    return good;
}

static void run_part(tutti_comm *comm, void *context)
{
    const struct part *part = context;
    tutti_train_options options = small(part->layout);
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    char path[128];
    path_of(part->name, path);
    options.save = path;
    options.resume = part->resume;
    if (worked(comm, tutti_trainer_create(comm, &options, &trainer, &error), error.text))
        take_part(comm, trainer, part);
    tutti_trainer_free(trainer);
}

static void run(const struct layout *layout, enum world_ranks ranks, void (*body)(tutti_comm *, void *), void *context)
{
    struct conf_world world = {
        .ranks = ranks, .size = layout->ranks, .direct = 1, .attach = 1, .body = body, .context = context};
    conf_world_run(&world);
}

static bool copy(const char *from, const char *to)
{
    char command[400];
    snprintf(command, sizeof command, "rm -rf %s/%s && cp -r %s/%s %s/%s", folder, to, folder, from, folder, to);
    return system(command) == 0;
}

static bool same_files(const char *a, const char *b, int step)
{
    char command[600];
    snprintf(command, sizeof command,
             "cd %s && cmp %s/step-%08d/model.safetensors %s/step-%08d/model.safetensors && cmp "
             "%s/step-%08d/optimizer.safetensors %s/step-%08d/optimizer.safetensors",
             folder, a, step, b, step, a, step, b, step);
    return system(command) == 0;
}

/* ---- Pairs ----------------------------------------------------------------------------------------------------- */

static const struct layout one[2] = {{1, "", 0, 1}, {1, "", 0, 4}};

/* Folders "made", "one-0" and "one-1": what one rank makes, and its next step with either number of width grains. */
static void make_references(void)
{
    struct part begin = {&one[0], "made", false, false, MADE};
    run(&one[0], WORLD_THREADS, run_part, &begin);
    for (int a = 0; a < 2; a++) {
        const char *name = a == 0 ? "one-0" : "one-1";
        struct part next = {&one[a], name, true, false, SAVED};
        CHECK(copy("made", name));
        run(&one[a], WORLD_THREADS, run_part, &next);
        for (int b = 0; b < 2; b++) {
            struct part last = {&one[b], "copy", true, true, STEPS};
            CHECK(copy(name, "copy"));
            run(&one[b], WORLD_THREADS, run_part, &last);
            outcomes->hashes[a][b] = outcomes->hash;
        }
    }
    CHECK(outcomes->hashes[0][0] != outcomes->hashes[1][1]);
}

/* Each layout loads what one rank has made, and saves the next step. */
static void save_on(int layout)
{
    const int grains = grains_index(&layouts[layout]);
    char name[16];
    snprintf(name, sizeof name, "saved-%d", layout);
    struct part part = {&layouts[layout], name, true, false, SAVED};
    check_title("saved on %d ranks, mesh %s, zero %lld", layouts[layout].ranks, layouts[layout].mesh,
                (long long)layouts[layout].zero);
    CHECK(copy("made", name));
    run(&layouts[layout], layout % 4 == 3 ? WORLD_PROCESSES : WORLD_THREADS, run_part, &part);
    CHECK(same_files(name, grains ? "one-1" : "one-0", SAVED));
}

/* What is loaded is saved again as it was; then one step. */
static void load_on(int from, int to)
{
    char name[16];
    snprintf(name, sizeof name, "saved-%d", from);
    struct part part = {&layouts[to], "copy", true, true, STEPS};
    check_title("saved on %d ranks, mesh %s, zero %lld; loaded on %d, mesh %s, zero %lld", layouts[from].ranks,
                layouts[from].mesh, (long long)layouts[from].zero, layouts[to].ranks, layouts[to].mesh,
                (long long)layouts[to].zero);
    CHECK(copy(name, "copy"));
    run(&layouts[to], WORLD_THREADS, run_part, &part);
    CHECK(same_files(name, "copy", SAVED));
    CHECK(outcomes->hash == outcomes->hashes[grains_index(&layouts[from])][grains_index(&layouts[to])]);
}

/* ---- Several parts --------------------------------------------------------------------------------------------- */

/* 71 MB of weights, 142 MB of state: five parts, and tensors of cut rows that go on in the next piece. */
struct large {
    struct layout layout;
    const char *name;
    bool resume; /* and take no step */
};

static tutti_train_options large_options(const struct large *large)
{
    tutti_train_options options = small(&large->layout);
    options.layers = 3;
    options.heads = 2;
    options.width = 256;
    options.vocabulary = 60000;
    options.batch = options.grains = 2;
    options.context = 4;
    options.resume = large->resume;
    return options;
}

static void run_large(tutti_comm *comm, void *context)
{
    const struct large *large = context;
    tutti_train_options options = large_options(large);
    tutti_trainer *trainer = NULL;
    tutti_train_step step;
    tutti_error error = {0};
    char path[128];
    path_of(large->name, path);
    options.save = path;
    bool good = worked(comm, tutti_trainer_create(comm, &options, &trainer, &error), error.text);
    if (good && !large->resume)
        good = worked(comm, tutti_trainer_step(trainer, &step), tutti_trainer_error(trainer)->text) &&
               worked(comm, tutti_trainer_save(trainer), tutti_trainer_error(trainer)->text);
    const uint64_t hash = good ? tutti_trainer_hash(trainer) : 0;
    if (tutti_rank(comm) == 0) outcomes->hash = hash;
    tutti_trainer_free(trainer);
}

static void test_large(void)
{
    struct large one_rank = {{1, "", 0, 2}, "large-one", false};
    struct large many = {{4, "data=2,tensor=2", 1, 2}, "large-many", false};
    check_title("files of several parts");
    run(&one_rank.layout, WORLD_THREADS, run_large, &one_rank);
    const uint64_t hash = outcomes->hash;
    run(&many.layout, WORLD_PROCESSES, run_large, &many);
    CHECK(hash != 0 && outcomes->hash == hash && same_files("large-one", "large-many", 1));
    many.resume = true;
    run(&many.layout, WORLD_PROCESSES, run_large, &many);
    CHECK(outcomes->hash == hash);
}

/* ---- A folder that is not shared ------------------------------------------------------------------------------- */

static void run_apart(tutti_comm *comm, void *context)
{
    tutti_train_options options = small(&one[0]);
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    char path[128];
    (void)context;
    path_of(tutti_rank(comm) == 2 ? "other" : "apart", path);
    options.save = path;
    CHECK(tutti_trainer_create(comm, &options, &trainer, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(trainer == NULL && error.rank == 2 && check_says(error.text, "give a folder that all hosts share"));
}

static void test_apart(void)
{
    static const struct layout three = {3, "", 0, 1};
    char path[128], command[160];
    check_title("folders that are not shared");
    path_of("other", path);
    CHECK(mkdir(path, 0777) == 0);
    run(&three, WORLD_THREADS, run_apart, NULL);
    path_of("apart", path);
    snprintf(command, sizeof command, "test -z \"$(ls -A %s)\"", path);
    CHECK_THAT(system(command) == 0, "the folder is left as it was");
}

/* ---- Which ----------------------------------------------------------------------------------------------------- */

#ifndef TEST_MAIN
#define TEST_MAIN test_some
/* Each layout loads from three others. */
static void test_some(void)
{
    for (int i = 0; i < LAYOUTS; i++)
        for (int k = 1; k < LAYOUTS; k += 4 + 8 * SANITIZED) load_on(i, (i + k) % LAYOUTS);
}
#endif

int main(void)
{
    char command[128];
    outcomes = mmap(NULL, sizeof *outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    conf_begin();
    if (mkdtemp(folder) == NULL) strcpy(folder, "/tmp/tutti-layouts-XXXXXX");
    CHECK_THAT((access(folder, W_OK) == 0 || mkdtemp(folder) != NULL) && outcomes != MAP_FAILED, "a folder and memory");
    make_references();
    for (int i = 0; i < LAYOUTS; i++) save_on(i);
    TEST_MAIN();
    test_large();
    test_apart();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_THAT(system(command) == 0, "%s", command);
    return check_end();
}
