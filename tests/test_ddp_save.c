/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan
 *
 * Checkpoints of a ddp, whose parameters are the user's own: saved by all ranks at any stage of zero, in f32 and bf16, on any number
 * of ranks, they are the same files; each of them goes on everywhere. What is refused, and failures that all ranks learn of.
 */
#include "base/hash.h"
#include "conformance_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tutti/train.h>
#include <unistd.h>

enum { PARAMETERS = 5, SAVED = 2, STEPS = 4 };
static const size_t sizes[PARAMETERS] = {5, 1000, 9000, 1, 4100};
static const char *const names[PARAMETERS] = {"a", "b", "c", "d", "e"};
static char folder[] = "/tmp/tutti-ddp-save-XXXXXX";

struct layout {
    int ranks, zero, replicas;
    bool bf16;
};

static const struct layout layouts[] = {
    {1, 0, 0, false}, {3, 0, 0, false}, {2, 1, 0, false}, {5, 2, 0, false}, {3, 3, 0, false},
    {4, 1, 2, false}, {4, 3, 2, false}, {2, 0, 0, true},  {3, 3, 0, true},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* The weights that ranks hold in the end, in memory that all share: of f32, and of bf16. */
static uint64_t *hashes;

struct learner {
    tutti_comm *comm;
    tutti_parameter list[PARAMETERS];
    float *values[PARAMETERS], *gradients[PARAMETERS];
    tutti_ddp *ddp;
    tutti_optimizer *optimizer;
};

static bool worked(const struct learner *l, const struct layout *layout, tutti_status status, const char *text)
{
    return CHECK_THAT(status == TUTTI_OK, "rank %d of %d, zero %d, %d replicas%s: %s: %s", tutti_rank(l->comm),
                      layout->ranks, layout->zero, layout->replicas, layout->bf16 ? ", bf16" : "",
                      tutti_status_name(status), text);
}

static bool make(struct learner *l, const struct layout *layout)
{
    tutti_ddp_options options = {
        .struct_size = sizeof options, .zero = layout->zero, .replicas = layout->replicas, .bf16 = layout->bf16};
    tutti_optimizer_settings settings;
    tutti_error error = {0};
    const tutti_parameter *owned;
    for (int i = 0; i < PARAMETERS; i++) {
        l->values[i] = calloc(sizes[i], sizeof(float));
        l->gradients[i] = calloc(sizes[i], sizeof(float));
        l->list[i] = (tutti_parameter){names[i], l->values[i], l->gradients[i], sizes[i], i % 2 == 0};
        for (size_t k = 0; k < sizes[i]; k++) l->values[i][k] = (float)sin((double)(k + (size_t)i));
    }
    if (!worked(l, layout, tutti_ddp_create(l->comm, l->list, PARAMETERS, &options, &l->ddp, &error), error.text))
        return false;
    const size_t count = tutti_ddp_owned(l->ddp, &owned);
    return worked(l, layout, tutti_optimizer_defaults("adam", &settings, &error), error.text) &&
           worked(l, layout, tutti_optimizer_create(&settings, owned, count, &l->optimizer, &error), error.text);
}

static void drop(struct learner *l)
{
    tutti_optimizer_free(l->optimizer);
    tutti_ddp_free(l->ddp);
    for (int i = 0; i < PARAMETERS; i++) {
        free(l->values[i]);
        free(l->gradients[i]);
    }
}

/* Rank 0 alone has gradients that are not 0, so that any number of ranks has the same sums. */
static bool step(struct learner *l, uint64_t number)
{
    double all = 0;
    bool good = tutti_ddp_begin(l->ddp, true) == TUTTI_OK;
    for (size_t i = PARAMETERS; good && i-- > 0;) {
        float *gradient = NULL;
        good = tutti_ddp_gradient(l->ddp, i, &gradient) == TUTTI_OK;
        for (size_t k = 0; good && k < sizes[i]; k++)
            gradient[k] = tutti_rank(l->comm) > 0 ? 0 : (float)cos((double)(k * (i + 2) + number));
        good = good && tutti_ddp_ready(l->ddp, i) == TUTTI_OK;
    }
    good = good && tutti_ddp_end(l->ddp, tutti_rank(l->comm) == 0, &all) == TUTTI_OK;
    if (good) tutti_optimizer_step(l->optimizer, 0.01, 1 / all);
    return CHECK(good && tutti_ddp_spread(l->ddp) == TUTTI_OK);
}

static uint64_t hash_of(struct learner *l)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < PARAMETERS; i++) {
        const float *values = NULL;
        CHECK(tutti_ddp_need(l->ddp, i, &values) == TUTTI_OK);
        hash = tti_hash_bytes(hash, values, sizes[i] * sizeof *values);
        tutti_ddp_done(l->ddp, i);
    }
    return hash;
}

static void path_of(const struct layout *layout, char path[96])
{
    snprintf(path, 96, "%s/%td", folder, layout - layouts);
}

/* Two steps, saved, and two more. */
static void run_saved(tutti_comm *comm, void *context)
{
    const struct layout *layout = context;
    const tutti_note note = {"who", "mine"};
    struct learner l = {.comm = comm};
    tutti_error error = {0};
    char path[96];
    path_of(layout, path);
    bool good = make(&l, layout);
    for (uint64_t s = 0; good && s < SAVED; s++) good = step(&l, s);
    good = good && worked(&l, layout, tutti_ddp_save(l.ddp, path, SAVED, 0, l.optimizer, &note, 1, &error), error.text);
    for (uint64_t s = SAVED; good && s < STEPS; s++) good = step(&l, s);
    const uint64_t hash = good ? hash_of(&l) : 0;
    if (hashes[layout->bf16] == 0 && tutti_rank(comm) == 0) hashes[layout->bf16] = hash;
    good = good && CHECK(tutti_barrier(comm) == TUTTI_OK);
    CHECK_THAT(!good || hash == hashes[layout->bf16], "layout %td: other weights", layout - layouts);
    drop(&l);
}

struct pair {
    const struct layout *from, *to;
};

static void run_loaded(tutti_comm *comm, void *context)
{
    const struct pair *pair = context;
    struct learner l = {.comm = comm};
    tutti_error error = {0};
    uint64_t at = 0;
    char path[96];
    path_of(pair->from, path);
    bool good = make(&l, pair->to) &&
                step(&l, 7); /* what is there before is replaced, states and gathered values too */
    if (good && pair->to->zero == 3) (void)hash_of(&l);
    good = good && worked(&l, pair->to, tutti_ddp_load(l.ddp, path, l.optimizer, &at, &error), error.text);
    CHECK(!good || (at == SAVED && tutti_optimizer_steps(l.optimizer) == SAVED));
    for (uint64_t s = at; good && s < STEPS; s++) good = step(&l, s);
    CHECK_THAT(!good || hash_of(&l) == hashes[pair->to->bf16], "saved by layout %td, loaded by %td: other weights",
               pair->from - layouts, pair->to - layouts);
    drop(&l);
}

static void run(int ranks, int number, void (*body)(tutti_comm *, void *), const void *context)
{
    struct conf_world world = {.ranks = (number % 3 == 2 ? WORLD_PROCESSES : WORLD_THREADS),
                               .size = ranks,
                               .direct = 1,
                               .attach = 1,
                               .body = body,
                               .context = (void *)(uintptr_t)context};
    conf_world_run(&world);
}

static bool same_files(int layout)
{
    char command[400];
    snprintf(
        command, sizeof command,
        "for f in model optimizer; do cmp %s/0/step-%08d/$f.safetensors %s/%d/step-%08d/$f.safetensors || exit 1; done",
        folder, SAVED, folder, layout, SAVED);
    return system(command) == 0;
}

/* A folder that is none; one without checkpoints; another list. */
static void run_refused(tutti_comm *comm, void *context)
{
    static const struct layout layout = {3, 1, 0, false};
    struct learner l = {.comm = comm};
    tutti_error error = {0};
    char path[96];
    (void)context;
    if (!make(&l, &layout)) return;
    CHECK(tutti_ddp_save(l.ddp, NULL, 1, 0, l.optimizer, NULL, 0, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_ddp_load(NULL, folder, NULL, NULL, &error) == TUTTI_ERR_ARGUMENT);
    snprintf(path, sizeof path, "%s/nothing", folder);
    CHECK_THAT(tutti_ddp_load(l.ddp, path, l.optimizer, NULL, &error) != TUTTI_OK, "%s", error.text);
    snprintf(path, sizeof path, "/proc/tutti-cannot-be");
    CHECK_THAT(tutti_ddp_save(l.ddp, path, 1, 0, l.optimizer, NULL, 0, &error) != TUTTI_OK, "%s", error.text);
    CHECK_THAT(tutti_barrier(comm) == TUTTI_OK, "all learn of it, and the comm is still good");
    tutti_ddp *other = NULL;
    l.list[1].count -= 1;
    if (tutti_ddp_create(comm, l.list, PARAMETERS, NULL, &other, &error) == TUTTI_OK) {
        path_of(&layouts[0], path);
        const tutti_status status = tutti_ddp_load(other, path, NULL, NULL, &error);
        CHECK_THAT(status != TUTTI_OK && strstr(error.text, "b") != NULL, "%s: %s", tutti_status_name(status),
                   error.text);
    }
    tutti_ddp_free(other);
    l.list[1].count += 1;
    drop(&l);
}

int main(void)
{
    char command[96];
    hashes = mmap(NULL, 2 * sizeof *hashes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    conf_begin();
    CHECK(hashes != MAP_FAILED && mkdtemp(folder) != NULL);
    for (int i = 0; i < LAYOUTS; i++) {
        run(layouts[i].ranks, i, run_saved, &layouts[i]);
        CHECK_THAT(same_files(i), "layout %d saves other tensors", i);
    }
    for (int i = 0; i < LAYOUTS; i++)
        for (int j = 0; j < LAYOUTS; j += 1 + SANITIZED) {
            const struct pair pair = {&layouts[i], &layouts[j]};
            run(pair.to->ranks, i + j, run_loaded, &pair);
        }
    run(3, 0, run_refused, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    return check_end();
}
