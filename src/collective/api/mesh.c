/* SPDX-License-Identifier: Apache-2.0
 *
 * A mesh: the arithmetic of a comm's ranks as an array, and the comms along its dimensions, made when they are asked
 * for. They are made from the mesh's own duplicate of the comm, so that it does not matter which of the two is freed
 * first.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/latest.h"
#include "base/status.h"
#include "collective/api/api.h"
#include "collective/api/inside.h"
#include "collective/comm/trace.h"
#include <stdio.h>
#include <string.h>

enum { DIMENSIONS = 16, NAME = 32 };

struct kept {
    unsigned along; /* a bit for each dimension */
    tutti_comm *comm;
    struct kept *next;
};

struct tutti_mesh {
    tutti_comm *comm; /* the mesh's own duplicate */
    tutti_comm *from; /* the comm it was made from, for errors; NULL: that comm was freed */
    tutti_mesh *next; /* the next mesh made from the same comm */
    int dimensions;
    int sizes[DIMENSIONS], coordinates[DIMENSIONS];
    char names[DIMENSIONS][NAME];
    struct kept *comms;
};

static int find(const tutti_mesh *mesh, const char *name, size_t length)
{
    for (int i = 0; i < mesh->dimensions; i++)
        if (strlen(mesh->names[i]) == length && memcmp(mesh->names[i], name, length) == 0) return i;
    return -1;
}

static tutti_status refuse(tutti_comm *comm, const char *why, const char *what)
{
    return tti_comm_refuse(comm, TTI_MESH, TUTTI_ERR_ARGUMENT, "mesh: %s%s", why, what);
}

/* Breaks the comm for lack of memory: the others wait for this rank and must know. */
static tutti_status no_memory(tutti_comm *comm)
{
    tutti_status status = tti_comm_break(comm, TTI_MESH, TUTTI_ERR_MEMORY, comm->rank,
                                         "rank %d has no memory for a mesh of %d ranks", comm->rank, comm->size);
    tti_call_end(comm);
    return status;
}

static tutti_status check_names(tutti_comm *comm, const char *const *names, int dimensions)
{
    for (int i = 0; i < dimensions; i++) {
        if (names[i] == NULL || names[i][0] == '\0' || strlen(names[i]) >= NAME || strchr(names[i], ',') != NULL)
            return refuse(comm, "a dimension's name is missing, longer than 31 bytes, or has a comma in it", "");
        for (int k = 0; k < i; k++)
            if (strcmp(names[k], names[i]) == 0) return refuse(comm, "two dimensions are named ", names[i]);
    }
    return TUTTI_OK;
}

/* Writes "data 2 x tensor 3", as much as there is room for. */
static void describe(const char *const *names, const int *sizes, int dimensions, char *text, size_t bytes)
{
    size_t used = 0;
    for (int i = 0; i < dimensions && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s %d", i == 0 ? "" : " x ", names[i], sizes[i]);
}

static tutti_status check(tutti_comm *comm, const char *const *names, const int *sizes, int dimensions)
{
    TTI_TRY(tti_api_begin(comm, TTI_MESH));
    TTI_TRY(tti_group_without(comm, TTI_MESH));
    if (names == NULL || sizes == NULL || dimensions < 1 || dimensions > DIMENSIONS)
        return refuse(comm, "it has 1 to 16 dimensions, each with a name and a size", "");
    TTI_TRY(check_names(comm, names, dimensions));
    int64_t product = 1;
    for (int i = 0; i < dimensions; i++) product *= sizes[i] < 1 || product > comm->size ? 0 : sizes[i];
    if (product == comm->size) return TUTTI_OK;
    char text[200] = "";
    describe(names, sizes, dimensions, text, sizeof text);
    return tti_comm_refuse(
        comm, TTI_MESH, TUTTI_ERR_ARGUMENT,
        "mesh: %s is not %d, the number of ranks of this comm; change a dimension or the number of ranks", text,
        comm->size);
}

static uint64_t digest_text(uint64_t hash, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) hash = tti_mix(hash, (unsigned char)text[i]);
    return tti_mix(hash, length);
}

static struct tti_split_call call_for(const char *const *names, const int *sizes, int dimensions)
{
    struct tti_split_call call = {.kind = TTI_MESH};
    for (int i = 0; i < dimensions; i++)
        call.digest = tti_mix(digest_text(call.digest, names[i], strlen(names[i])), (uint64_t)sizes[i]);
    describe(names, sizes, dimensions, call.said, sizeof call.said);
    return call;
}

static void set_dimensions(tutti_mesh *mesh, const char *const *names, const int *sizes, int dimensions)
{
    int rest = mesh->comm->rank;
    mesh->dimensions = dimensions;
    for (int i = dimensions; i-- > 0;) {
        snprintf(mesh->names[i], sizeof mesh->names[i], "%s", names[i]);
        mesh->sizes[i] = sizes[i];
        mesh->coordinates[i] = rest % sizes[i];
        rest /= sizes[i];
    }
}

tutti_status tutti_mesh_create(tutti_comm *comm, const char *const *names, const int *sizes, int dimensions,
                               tutti_mesh **mesh)
{
    if (mesh == NULL)
        return tti_latest_stray("mesh", TUTTI_ERR_ARGUMENT, "mesh_create: `mesh` is NULL: it has no place to go");
    *mesh = NULL;
    TTI_TRY(check(comm, names, sizes, dimensions));
    tutti_mesh *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return no_memory(comm);
    struct tti_split_call call = call_for(names, sizes, dimensions);
    tutti_status status = tti_comm_make(comm, &call, &made->comm);
    if (status != TUTTI_OK) {
        tti_free(made);
        return status;
    }
    set_dimensions(made, names, sizes, dimensions);
    tti_trace_name(made->comm, "mesh");
    made->from = comm;
    made->next = comm->caller.meshes;
    comm->caller.meshes = made;
    *mesh = made;
    return TUTTI_OK;
}

/* What ranks tell each other when a mesh is made again: a rank that was started again knows nothing of it. */
struct told {
    int32_t dimensions; /* 0: nothing */
    int32_t sizes[DIMENSIONS];
    char names[DIMENSIONS][NAME];
};

static tutti_status gather(const tutti_mesh *old, tutti_comm *comm, struct told *all)
{
    struct told mine = {0};
    struct tti_site site = comm->caller.site;
    int64_t deadline_ms = comm->caller.deadline_ms;
    if (old != NULL) {
        mine.dimensions = old->dimensions;
        memcpy(mine.sizes, old->sizes, sizeof mine.sizes);
        memcpy(mine.names, old->names, sizeof mine.names);
    }
    TTI_TRY(tutti_all_gather(tti_inside(comm, "mesh_renew", "sizes"), &mine, all, sizeof mine, TUTTI_U8));
    comm->caller.site = site;
    comm->caller.deadline_ms = deadline_ms;
    return TUTTI_OK;
}

/* Uses this rank's own description or, if it has none, that of the first rank that has one. */
static tutti_status create_again(tutti_comm *comm, const struct told *all, tutti_mesh **mesh)
{
    const char *names[DIMENSIONS];
    const struct told *told = &all[comm->rank];
    for (int rank = 0; rank < comm->size && told->dimensions == 0; rank++) told = &all[rank];
    if (told->dimensions == 0)
        return refuse(comm, "no rank of this comm gives one to be made again", "; make it with tutti_mesh_create");
    for (int i = 0; i < told->dimensions; i++) names[i] = told->names[i];
    return tutti_mesh_create(comm, names, told->sizes, told->dimensions, mesh);
}

tutti_status tutti_mesh_renew(const tutti_mesh *old, tutti_comm *comm, tutti_mesh **mesh)
{
    if (mesh == NULL)
        return tti_latest_stray("mesh", TUTTI_ERR_ARGUMENT, "mesh_renew: `mesh` is NULL: it has no place to go");
    *mesh = NULL;
    TTI_TRY(tti_api_begin(comm, TTI_MESH));
    TTI_TRY(tti_group_without(comm, TTI_MESH));
    struct told *all = tti_calloc((size_t)comm->size, sizeof *all);
    if (all == NULL) return no_memory(comm);
    tutti_status status = gather(old, comm, all);
    if (status == TUTTI_OK) status = create_again(comm, all, mesh);
    tti_free(all);
    return status;
}

void tti_mesh_forget(tutti_comm *comm)
{
    for (tutti_mesh *mesh = comm->caller.meshes; mesh != NULL; mesh = mesh->next) mesh->from = NULL;
}

int tutti_mesh_size(const tutti_mesh *mesh, const char *name)
{
    int at = mesh == NULL || name == NULL ? -1 : find(mesh, name, strlen(name));
    return at < 0 ? -1 : mesh->sizes[at];
}

int tutti_mesh_coordinate(const tutti_mesh *mesh, const char *name)
{
    int at = mesh == NULL || name == NULL ? -1 : find(mesh, name, strlen(name));
    return at < 0 ? -1 : mesh->coordinates[at];
}

int tutti_mesh_dimensions(const tutti_mesh *mesh)
{
    return mesh == NULL ? 0 : mesh->dimensions;
}

const char *tutti_mesh_name(const tutti_mesh *mesh, int dimension)
{
    return dimension < 0 || dimension >= tutti_mesh_dimensions(mesh) ? NULL : mesh->names[dimension];
}

/* Returns a bit for each name of "data,tensor"; 0 if one is not a dimension. */
static unsigned parse(const tutti_mesh *mesh, const char *names)
{
    unsigned along = 0;
    while (names != NULL) {
        const char *comma = strchr(names, ',');
        int at = find(mesh, names, comma == NULL ? strlen(names) : (size_t)(comma - names));
        if (at < 0) return 0;
        along |= 1u << at;
        names = comma == NULL ? NULL : comma + 1;
    }
    return along;
}

/* Returns the position of this rank in all other dimensions: the same for exactly those ranks that share the comm. */
static int colour_of(const tutti_mesh *mesh, unsigned along)
{
    int colour = 0;
    for (int i = 0; i < mesh->dimensions; i++)
        if ((along >> i & 1) == 0) colour = colour * mesh->sizes[i] + mesh->coordinates[i];
    return colour;
}

/* Names the comm "mesh data,tensor", as much as there is room for. */
static void name_comm(const tutti_mesh *mesh, unsigned along, tutti_comm *comm)
{
    char name[TTI_TRACE_NAME] = "mesh";
    const char *separator = " ";
    for (int i = 0; i < mesh->dimensions; i++) {
        size_t used = strlen(name);
        if ((along >> i & 1) == 0) continue;
        snprintf(name + used, sizeof name - used, "%s%s", separator, mesh->names[i]);
        separator = ",";
    }
    tti_trace_name(comm, name);
}

/* Makes the comm along these dimensions. All ranks must ask for the same. */
static tutti_status make_comm(tutti_mesh *mesh, unsigned along, tutti_comm **comm)
{
    struct tti_split_call call = {.kind = TTI_MESH, .colour = colour_of(mesh, along), .digest = along};
    size_t used = (size_t)snprintf(call.said, sizeof call.said, "comm along");
    for (int i = 0; i < mesh->dimensions && used < sizeof call.said; i++)
        if ((along >> i & 1) != 0)
            used += (size_t)snprintf(call.said + used, sizeof call.said - used, " %s", mesh->names[i]);
    TTI_TRY(tti_api_begin(mesh->comm, TTI_MESH));
    return tti_comm_make(mesh->comm, &call, comm);
}

/* Copies an error of the mesh's own comm to the comm on which the caller can ask for it. */
static tutti_status report(const tutti_mesh *mesh, tutti_status status)
{
    if (mesh->from == NULL || status == TUTTI_OK) return status;
    mesh->from->errors.call = mesh->comm->errors.call;
    atomic_store_explicit(&mesh->from->errors.shows_ended, false, memory_order_relaxed);
    return status;
}

static tutti_status no_such(const tutti_mesh *mesh, const char *names)
{
    const char *list[DIMENSIONS];
    char text[200] = "";
    for (int i = 0; i < mesh->dimensions; i++) list[i] = mesh->names[i];
    describe(list, mesh->sizes, mesh->dimensions, text, sizeof text);
    return tti_comm_refuse(mesh->comm, TTI_MESH, TUTTI_ERR_ARGUMENT,
                           "mesh_comm: \"%.100s\" does not name dimensions of this mesh, which is %s; give one, or "
                           "several with commas between",
                           names == NULL ? "" : names, text);
}

tutti_status tutti_mesh_comm(tutti_mesh *mesh, const char *names, tutti_comm **comm)
{
    if (mesh == NULL || comm == NULL)
        return tti_latest_stray("mesh", TUTTI_ERR_ARGUMENT, "mesh_comm: `mesh` or `comm` is NULL");
    *comm = NULL;
    unsigned along = parse(mesh, names);
    if (along == 0) return report(mesh, no_such(mesh, names));
    for (struct kept *kept = mesh->comms; kept != NULL; kept = kept->next)
        if (kept->along == along) *comm = kept->comm;
    if (*comm != NULL) return TUTTI_OK;
    struct kept *kept = tti_calloc(1, sizeof *kept);
    if (kept == NULL) return report(mesh, no_memory(mesh->comm));
    tutti_status status = make_comm(mesh, along, comm);
    if (status != TUTTI_OK) {
        tti_free(kept);
        return report(mesh, status);
    }
    name_comm(mesh, along, *comm);
    (*comm)->traits.of_mesh = true;
    *kept = (struct kept){.along = along, .comm = *comm, .next = mesh->comms};
    mesh->comms = kept;
    return TUTTI_OK;
}

static void take_off(tutti_mesh *mesh)
{
    if (mesh->from == NULL) return;
    tutti_mesh **link = &mesh->from->caller.meshes;
    while (*link != mesh) link = &(*link)->next;
    *link = mesh->next;
}

void tutti_mesh_free(tutti_mesh *mesh)
{
    if (mesh == NULL) return;
    take_off(mesh);
    while (mesh->comms != NULL) {
        struct kept *kept = mesh->comms;
        mesh->comms = kept->next;
        kept->comm->traits.of_mesh = false;
        tutti_comm_free(kept->comm);
        tti_free(kept);
    }
    tutti_comm_free(mesh->comm);
    tti_free(mesh);
}
