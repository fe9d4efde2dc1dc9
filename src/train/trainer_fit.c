/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that all ranks fit into the memory of their hosts, before they take any: each plans its own part
 * (trainer_plan.c), and those of a host share its free memory. If they do not fit, the error says what would help, or
 * how large a model may be.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/memory.h"
#include "base/status.h"
#include "train/ledger.h"
#include "train/optimizer.h"
#include "train/trainer.h"
#include "train/trainer_copy.h"
#include <string.h>

/* ---- The largest that fits ------------------------------------------------------------------------------------- */

/* Returns the bytes of the model on a rank that has an even part of everything that is shared out. */
static uint64_t model_bytes(const struct tutti_trainer *t, uint64_t elements)
{
    const uint64_t replicas = t->mesh.sizes[TTI_MESH_SHARD] > 1 ? (uint64_t)t->mesh.sizes[TTI_MESH_DATA] : 1;
    struct tti_ledger_sizes sizes = {.elements = elements,
                                     .owned = elements / (uint64_t)t->size * replicas,
                                     .states = TTI_OPTIMIZER_STATES,
                                     .zero = (int)t->options.zero,
                                     .bf16 = tti_trainer_is_bf16(t)};
    struct tti_ledger ledger = tti_ledger_of(&sizes);
    return tti_ledger_sum(&ledger);
}

/* Returns the bytes of a model of these sizes on one rank; 0: there is no such model. */
static uint64_t bytes_of(const struct tutti_trainer *t, const tutti_train_options *sizes)
{
    tutti_model *model = NULL;
    tutti_error ignored;
    uint64_t bytes = 0;
    if (tti_model_make(sizes, t->about.vocabulary, t->about.features, &model, &ignored) == TUTTI_OK &&
        tti_trainer_cut(t, model, &ignored) == TUTTI_OK)
        bytes = model_bytes(t, tutti_model_elements(model) / (uint64_t)t->mesh.sizes[TTI_MESH_PIPE]);
    tutti_model_free(model);
    return bytes;
}

/* Returns the largest multiple of `unit` below `size` (of `sizes`) that fits; 0: none. */
static int64_t largest(const struct tutti_trainer *t, tutti_train_options *sizes, int64_t *size, int64_t unit,
                       uint64_t left)
{
    int64_t given = *size, fits = 0, too_large = given / unit;
    while (too_large - fits > 1) {
        int64_t middle = fits + (too_large - fits) / 2;
        *size = middle * unit;
        uint64_t bytes = bytes_of(t, sizes);
        if (bytes != 0 && bytes <= left)
            fits = middle;
        else
            too_large = middle;
    }
    *size = given;
    return fits * unit;
}

static void say_size(char text[64], const char *name, int64_t size)
{
    if (size > 0)
        snprintf(text, 64, "%s up to %lld fits", name, (long long)size);
    else
        snprintf(text, 64, "%s 1 does not", name);
}

tutti_status tti_trainer_fits(const struct tutti_trainer *t, tutti_error *error)
{
    tutti_train_options sizes = t->options;
    const bool own = t->own.make != NULL; /* the options do not say how large that is */
    const uint64_t needed = own ? model_bytes(t, tutti_model_elements(t->model)) : bytes_of(t, &sizes),
                   left = (uint64_t)tti_memory_left() / (uint64_t)t->host_ranks;
    if (needed <= left) return TUTTI_OK;
    char wanted[TTI_BYTES_TEXT], had[TTI_BYTES_TEXT], widths[64], layers[64];
    if (own)
        return tti_error_set(
            error, TUTTI_ERR_MEMORY, 0,
            "model %.100s does not fit: its %zu parameters with gradients and the optimizer's state take "
            "%s in each rank, and the system has %s left for each of %d",
            t->own.name, tutti_model_parameters(t->model), tti_bytes_text(needed, wanted), tti_bytes_text(left, had),
            t->host_ranks);
    say_size(widths, "width", largest(t, &sizes, &sizes.width, t->table ? 1 : sizes.heads, left));
    say_size(layers, "layers", largest(t, &sizes, &sizes.layers, 1, left));
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0,
                         "the model does not fit: %zu parameters with gradients and the optimizer's state take %s in "
                         "each rank, and the system has %s left for each of %d; with layers %lld, %s; with width %lld, "
                         "%s",
                         tutti_model_parameters(t->model), tti_bytes_text(needed, wanted), tti_bytes_text(left, had),
                         t->host_ranks, (long long)sizes.layers, widths, (long long)sizes.width, layers);
}

/* ---- What would help ------------------------------------------------------------------------------------------- */

struct shortage {
    const struct tutti_trainer *trainer;
    size_t needed, free; /* this rank's need; and an even part of what its host has left */
    bool helped;         /* one of the proposals is enough */
    char text[160];      /* "; --recompute saves 3.9 GiB, --zero 1 saves 1.2 GiB" */
};

/* Adds an option to the text if it saves something; returns true if it is enough. */
static bool propose(struct shortage *shortage, const tutti_train_options *options, const char *flag)
{
    tutti_train_about about;
    tutti_error ignored;
    char saved[TTI_BYTES_TEXT];
    const size_t used = strlen(shortage->text);
    if (tti_trainer_plan_like(shortage->trainer, options, &about, &ignored) != TUTTI_OK) return false;
    const size_t needed = tti_about_bytes(&about);
    if (needed >= shortage->needed) return false;
    (void)snprintf(shortage->text + used, sizeof shortage->text - used, "%s %s saves %s", used == 0 ? ";" : ",", flag,
                   tti_bytes_text(shortage->needed - needed, saved));
    return needed <= shortage->free;
}

/* Proposes no copies; recomputation; and the first stage of zero that is enough, or else the last one. */
static void propose_all(struct shortage *shortage)
{
    const struct tutti_trainer *t = shortage->trainer;
    tutti_train_options options = t->options;
    options.copy_every = 0;
    shortage->helped = propose(shortage, &options, "--copy-every 0");
    options = t->options;
    options.recompute = true;
    if (!t->options.recompute && propose(shortage, &options, "--recompute")) shortage->helped = true;
    options = t->options;
    char before[sizeof shortage->text];
    memcpy(before, shortage->text, sizeof before);
    for (bool enough = false; t->size > 1 && !enough && options.zero < TTI_ZERO_PARAMETERS;) {
        char flag[32];
        (void)snprintf(flag, sizeof flag, "--zero %lld", (long long)++options.zero);
        memcpy(shortage->text, before, sizeof before);
        enough = propose(shortage, &options, flag);
        if (enough) shortage->helped = true;
    }
}

/* Writes what takes most memory: "activations 5.2 GiB". */
static void say_most(const tutti_train_about *about, char *text, size_t bytes)
{
    const struct {
        const char *name;
        size_t bytes;
    } rows[] = {{"weights", about->parameter_bytes},
                {"gradients", about->gradient_bytes},
                {"optimizer", about->optimizer_bytes},
                {"activations", about->activation_bytes},
                {"buffers", about->communication_bytes},
                {"a copy to save", about->saving_bytes},
                {"copies", about->copy_bytes}};
    int most = 0;
    for (int i = 1; i < (int)(sizeof rows / sizeof *rows); i++)
        if (rows[i].bytes > rows[most].bytes) most = i;
    char had[TTI_BYTES_TEXT];
    (void)snprintf(text, bytes, "%s %s", rows[most].name, tti_bytes_text(rows[most].bytes, had));
}

/* Writes "(stage 1)" or "(stages 0 and 3)". */
static void say_stages(const struct tutti_trainer *t, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int chunk = 0; t->pipeline != NULL && chunk < t->pipeline->about.chunks && used < bytes; chunk++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%d",
                                 chunk > 0                        ? " and "
                                 : t->pipeline->about.chunks == 1 ? " (stage "
                                                                  : " (stages ",
                                 tutti_pipeline_stage(t->pipeline->table, t->mesh.at[TTI_MESH_PIPE], chunk));
    if (used > 0 && used < bytes) (void)snprintf(text + used, bytes - used, ")");
}

/* Returns the bytes to take: images that are held from before a loss need not be made again. */
static size_t bytes_to_take(const struct tutti_trainer *t, const tutti_train_about *about)
{
    const size_t held = tti_held_bytes(t->held);
    return tti_about_bytes(about) - (held < about->copy_bytes ? held : about->copy_bytes);
}

static tutti_status refuse(const struct tutti_trainer *t, const tutti_train_about *about, size_t free,
                           tutti_error *error)
{
    struct shortage shortage = {.trainer = t, .needed = bytes_to_take(t, about), .free = free};
    char wanted[TTI_BYTES_TEXT], had[TTI_BYTES_TEXT], stages[64], most[64];
    propose_all(&shortage);
    if (!shortage.helped && tti_trainer_fits(t, error) != TUTTI_OK) {
        const size_t used = strlen(error->text);
        (void)snprintf(error->text + used, sizeof error->text - used, "%s", shortage.text);
        return error->status;
    }
    say_stages(t, stages, sizeof stages);
    say_most(about, most, sizeof most);
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "rank %d%s needs %s, %s are free: %s%s", t->world_rank, stages,
                         tti_bytes_text(shortage.needed, wanted), tti_bytes_text(free, had), most, shortage.text);
}

/* ---- All ranks of a host --------------------------------------------------------------------------------------- */

/* The need of one rank, and the free memory of the host that it sees. */
struct share {
    uint64_t needed, left;
};

/* Gathers those of this host, in order. Freed with tti_free. */
static tutti_status gather_shares(tutti_comm *host, struct share mine, struct share **all, tutti_error *error)
{
    const size_t ranks = (size_t)tutti_size(host);
    *all = tti_calloc(ranks, sizeof **all);
    tutti_status status = TUTTI_OK;
    if (*all == NULL)
        status = tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for what %zu ranks of a host need", ranks);
    TTI_TRY(tti_agree(host, status, error)); /* the others would gather without this rank */
    status = tutti_all_gather(tti_inside(host, "trainer", "memory"), &mine, *all, 2, TUTTI_U64);
    if (status != TUTTI_OK) *error = *tutti_comm_error(host);
    return status;
}

/* If ranks do not fit together, the one that needs most is refused. */
static tutti_status check_host(const struct tutti_trainer *t, const tutti_train_about *about,
                               const struct share *shares, int rank, tutti_error *error)
{
    double needed = 0; /* the sum may be too large for integers */
    uint64_t left = UINT64_MAX;
    int most = 0;
    for (int r = 0; r < t->host_ranks; r++) {
        needed += (double)shares[r].needed;
        if (shares[r].left < left) left = shares[r].left;
        if (shares[r].needed > shares[most].needed) most = r;
    }
    if (needed <= (double)left || rank != most) return TUTTI_OK;
    return refuse(t, about, (size_t)(left / (uint64_t)t->host_ranks), error);
}

static tutti_status check_shares(struct tutti_trainer *t, const tutti_train_about *about, tutti_error *error)
{
    const struct share mine = {bytes_to_take(t, about), tti_memory_left()};
    struct share *shares = NULL;
    tutti_comm *host = NULL, *comm = tti_trainer_comm(t);
    tutti_status status = tutti_comm_by_host(tti_inside(comm, "trainer", "memory"), &host);
    if (status != TUTTI_OK) {
        *error = *tutti_comm_error(comm);
        return status;
    }
    t->host_ranks = tutti_size(host);
    status = gather_shares(host, mine, &shares, error);
    if (status == TUTTI_OK) status = check_host(t, about, shares, tutti_rank(host), error);
    tti_free(shares);
    (void)tutti_comm_free(host);
    return status;
}

tutti_status tti_trainer_check_memory(struct tutti_trainer *t, tutti_error *error)
{
    tutti_train_about about = {0};
    t->host_ranks = 1;
    if (tti_trainer_is_planned(t)) return TUTTI_OK;
    if (t->server != NULL) { /* workers and servers have no plan */
        t->host_ranks = tutti_size(t->comm);
        return TUTTI_OK;
    }
    TTI_TRY(tti_copies_find_places(t, error));
    TTI_TRY(tti_agree(tti_trainer_comm(t), tti_trainer_plan_like(t, &t->options, &about, error), error));
    const tutti_status status = check_shares(t, &about, error);
    return tti_agree(tti_trainer_comm(t), status, error);
}
