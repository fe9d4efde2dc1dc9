/* SPDX-License-Identifier: Apache-2.0
 *
 * A mesh: the arithmetic of a comm's ranks as an array, and the comms along its dimensions, made when they are asked for.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "collective/api.h"
#include <stdio.h>
#include <string.h>

enum { DIMENSIONS = 16, NAME = 32 };

struct kept {
    unsigned along; /* a bit for each dimension */
    tutti_comm *comm;
    struct kept *next;
};

struct tutti_mesh {
    tutti_comm *comm;
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
    return tti_comm_refuse(comm, TTI_COMM_SPLIT, TUTTI_ERR_ARGUMENT, "mesh: %s%s", why, what);
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

static tutti_status check(tutti_comm *comm, const char *const *names, const int *sizes, int dimensions)
{
    TTI_TRY(tti_api_begin(comm, TTI_COMM_SPLIT));
    if (names == NULL || sizes == NULL || dimensions < 1 || dimensions > DIMENSIONS)
        return refuse(comm, "it has 1 to 16 dimensions, each with a name and a size", "");
    TTI_TRY(check_names(comm, names, dimensions));
    int64_t product = 1;
    for (int i = 0; i < dimensions; i++) product *= sizes[i] < 1 || product > comm->size ? 0 : sizes[i];
    if (product == comm->size) return TUTTI_OK;
    char text[200] = "";
    size_t used = 0;
    for (int i = 0; i < dimensions && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %d", i == 0 ? "" : " x ", names[i], sizes[i]);
    return tti_comm_refuse(
        comm, TTI_COMM_SPLIT, TUTTI_ERR_ARGUMENT,
        "mesh: %s is not %d, the number of ranks of this comm; change a dimension or the number of ranks", text,
        comm->size);
}

tutti_status tutti_mesh_create(tutti_comm *comm, const char *const *names, const int *sizes, int dimensions,
                               tutti_mesh **mesh)
{
    if (mesh == NULL) return TUTTI_ERR_ARGUMENT;
    *mesh = NULL;
    TTI_TRY(check(comm, names, sizes, dimensions));
    tutti_mesh *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_comm_refuse(comm, TTI_COMM_SPLIT, TUTTI_ERR_MEMORY, "mesh: no memory");
    made->comm = comm;
    made->dimensions = dimensions;
    int rest = comm->rank;
    for (int i = dimensions; i-- > 0;) {
        snprintf(made->names[i], sizeof made->names[i], "%s", names[i]);
        made->sizes[i] = sizes[i];
        made->coordinates[i] = rest % sizes[i];
        rest /= sizes[i];
    }
    tti_api_end(comm);
    *mesh = made;
    return TUTTI_OK;
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

/* "data,tensor" as a bit for each; 0 where one is not a dimension. */
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

/* Where this rank is in all other dimensions: the same for exactly those that share the comm. */
static int colour_of(const tutti_mesh *mesh, unsigned along)
{
    int colour = 0;
    for (int i = 0; i < mesh->dimensions; i++)
        if ((along >> i & 1) == 0) colour = colour * mesh->sizes[i] + mesh->coordinates[i];
    return colour;
}

tutti_status tutti_mesh_comm(tutti_mesh *mesh, const char *names, tutti_comm **comm)
{
    if (mesh == NULL || comm == NULL) return TUTTI_ERR_ARGUMENT;
    *comm = NULL;
    unsigned along = parse(mesh, names);
    if (along == 0)
        return refuse(mesh->comm, "not dimensions of it, with commas between: ", names == NULL ? "NULL" : names);
    for (struct kept *kept = mesh->comms; kept != NULL; kept = kept->next)
        if (kept->along == along) *comm = kept->comm;
    if (*comm != NULL) return TUTTI_OK;
    struct kept *kept = tti_calloc(1, sizeof *kept);
    if (kept == NULL) return tti_comm_refuse(mesh->comm, TTI_COMM_SPLIT, TUTTI_ERR_MEMORY, "mesh: no memory");
    tutti_status status = tutti_comm_split(mesh->comm, colour_of(mesh, along), 0, comm);
    if (status != TUTTI_OK) {
        tti_free(kept);
        return status;
    }
    *kept = (struct kept){.along = along, .comm = *comm, .next = mesh->comms};
    mesh->comms = kept;
    return TUTTI_OK;
}

void tutti_mesh_free(tutti_mesh *mesh)
{
    while (mesh != NULL && mesh->comms != NULL) {
        struct kept *next = mesh->comms->next;
        tutti_comm_free(mesh->comms->comm);
        tti_free(mesh->comms);
        mesh->comms = next;
    }
    tti_free(mesh);
}
