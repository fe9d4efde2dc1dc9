/* SPDX-License-Identifier: Apache-2.0 */
#define TUTTI_NO_CALL_SITES
#include "train/trainer_mesh.h"

#include "base/status.h"
#include "collective/api/inside.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[TTI_MESH_DIMENSIONS] = {
    [TTI_MESH_DATA] = "data", [TTI_MESH_SHARD] = "shard", [TTI_MESH_PIPE] = "pipe", [TTI_MESH_TENSOR] = "tensor"};

/* ---- Reading --------------------------------------------------------------------------------------------------- */

static int find_name(const char *name, size_t length)
{
    for (int i = 0; i < TTI_MESH_DIMENSIONS; i++)
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0) return i;
    return -1;
}

/* Reads one "pipe=2"; sizes that were not read yet are 0. */
static tutti_status read_dimension(const char *text, const char *word, size_t length, int *sizes, tutti_error *error)
{
    const char *equals = memchr(word, '=', length);
    int dimension = equals == NULL ? -1 : find_name(word, (size_t)(equals - word));
    char *end = NULL;
    long size = dimension < 0 ? 0 : strtol(equals + 1, &end, 10);
    if (dimension < 0 || end != word + length || end == equals + 1 || size < 1 || size > INT_MAX)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "mesh %.64s: '%.*s' is no dimension; give data, shard, pipe or tensor, = and a size from "
                             "1 on, with commas between them: data=2,pipe=2",
                             text, (int)(length < 64 ? length : 64), word);
    if (sizes[dimension] != 0)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "mesh %.64s: %s is there twice", text, names[dimension]);
    sizes[dimension] = (int)size;
    return TUTTI_OK;
}

/* Refuses the number of ranks, and names the nearest ones that would do. `needed`: ranks of the whole mesh, or without
 * `data` if its size is not given. */
static tutti_status refuse_ranks(const char *text, int ranks, int64_t needed, int data, tutti_error *error)
{
    char nearest[64] = "";
    const int64_t below = ranks / needed * needed, each = data > 0 ? needed / data : needed;
    if (data > 0 && ranks % each == 0)
        (void)snprintf(nearest, sizeof nearest, "; data=%lld would do", (long long)(ranks / each));
    else if (data == 0 && below > 0)
        (void)snprintf(nearest, sizeof nearest, "; %lld or %lld would do", (long long)below,
                       (long long)(below + needed));
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "mesh %.64s needs %s%lld ranks; this job has %d%s", text,
                         data > 0 ? "" : "a multiple of ", (long long)needed, ranks, nearest);
}

/* Completes the sizes: `data` gets the ranks that are left if its size is not given. */
static tutti_status fit_ranks(const char *text, int ranks, int *sizes, tutti_error *error)
{
    const int data = sizes[TTI_MESH_DATA];
    int64_t needed = 1;
    for (int i = 0; i < TTI_MESH_DIMENSIONS; i++) {
        if (sizes[i] == 0) sizes[i] = 1;
        needed = needed > INT_MAX ? needed : needed * sizes[i];
    }
    if (data > 0 ? needed != ranks : ranks % needed != 0) return refuse_ranks(text, ranks, needed, data, error);
    if (data == 0) sizes[TTI_MESH_DATA] = ranks / (int)needed;
    return TUTTI_OK;
}

tutti_status tti_trainer_mesh_read(const char *text, int ranks, struct tti_trainer_mesh *mesh, tutti_error *error)
{
    *mesh = (struct tti_trainer_mesh){0};
    for (const char *word = text; *word != '\0';) {
        size_t length = strcspn(word, ",");
        TTI_TRY(read_dimension(text, word, length, mesh->sizes, error));
        word += length;
        if (*word == ',' && *++word == '\0')
            return tti_error_set(error, TUTTI_ERR_OPTION, 0, "mesh %.64s ends with a comma", text);
    }
    return fit_ranks(text, ranks, mesh->sizes, error);
}

/* ---- Comms ----------------------------------------------------------------------------------------------------- */

int tti_trainer_mesh_at(const struct tti_trainer_mesh *mesh, int rank, enum tti_mesh_dimension dimension)
{
    for (int i = TTI_MESH_DIMENSIONS - 1; i > (int)dimension; i--) rank /= mesh->sizes[i];
    return rank % mesh->sizes[dimension];
}

int tti_trainer_mesh_batch_rank(const struct tti_trainer_mesh *mesh, int rank)
{
    return tti_trainer_mesh_at(mesh, rank, TTI_MESH_DATA) * mesh->sizes[TTI_MESH_SHARD] +
           tti_trainer_mesh_at(mesh, rank, TTI_MESH_SHARD);
}

void tti_trainer_mesh_place(struct tti_trainer_mesh *mesh, int rank)
{
    for (int i = 0; i < TTI_MESH_DIMENSIONS; i++)
        mesh->at[i] = tti_trainer_mesh_at(mesh, rank, (enum tti_mesh_dimension)i);
}

static tutti_status make_comms(tutti_comm *comm, struct tti_trainer_mesh *mesh)
{
    TTI_TRY(
        tutti_mesh_create(tti_inside(comm, "trainer", "mesh"), names, mesh->sizes, TTI_MESH_DIMENSIONS, &mesh->mesh));
    TTI_TRY(tutti_mesh_comm(mesh->mesh, "data,shard", &mesh->batch));
    TTI_TRY(tutti_mesh_comm(mesh->mesh, "pipe,tensor", &mesh->model));
    for (int i = 0; i < TTI_MESH_DIMENSIONS; i++) TTI_TRY(tutti_mesh_comm(mesh->mesh, names[i], &mesh->along[i]));
    return TUTTI_OK;
}

tutti_status tti_trainer_mesh_make(tutti_comm *comm, const char *text, struct tti_trainer_mesh *mesh,
                                   tutti_error *error)
{
    mesh->batch = comm;
    tutti_status status = text[0] == '\0' ? TUTTI_OK : make_comms(comm, mesh);
    if (status != TUTTI_OK && tutti_comm_error(comm) != NULL) *error = *tutti_comm_error(comm);
    return status;
}

void tti_trainer_mesh_error(const tutti_comm *comm, const struct tti_trainer_mesh *mesh, tutti_error *error)
{
    const tutti_error *why = tutti_comm_error(comm);
    if (why == NULL && mesh->batch != NULL) why = tutti_comm_error(mesh->batch);
    if (why == NULL && mesh->model != NULL) why = tutti_comm_error(mesh->model);
    for (int i = 0; i < TTI_MESH_DIMENSIONS && why == NULL; i++)
        if (mesh->along[i] != NULL) why = tutti_comm_error(mesh->along[i]);
    if (why != NULL) *error = *why;
}

void tti_trainer_mesh_free(struct tti_trainer_mesh *mesh)
{
    tutti_mesh_free(mesh->mesh);
    *mesh = (struct tti_trainer_mesh){0};
}
