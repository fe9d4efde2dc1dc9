/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * A trainer's mesh: what is read, what is refused and with which words, and where each rank is.
 */
#include "check.h"

#include "train/trainer_mesh.h"
#include <string.h>

static bool reads(const char *text, int ranks, int data, int shard, int pipe, int tensor)
{
    struct tti_trainer_mesh mesh;
    tutti_error error = {0};
    const int wanted[] = {data, shard, pipe, tensor};
    tutti_status status = tti_trainer_mesh_read(text, ranks, &mesh, &error);
    bool right = status == TUTTI_OK && memcmp(mesh.sizes, wanted, sizeof wanted) == 0;
    if (!right) printf("\"%s\" on %d ranks: %s\n", text, ranks, error.text);
    return right;
}

static bool refuses(const char *text, int ranks, tutti_status wanted, const char *complaint)
{
    struct tti_trainer_mesh mesh;
    tutti_error error = {0};
    tutti_status status = tti_trainer_mesh_read(text, ranks, &mesh, &error);
    bool right = status == wanted && strstr(error.text, complaint) != NULL;
    if (!right) printf("\"%s\" on %d ranks: %s: %s\n", text, ranks, tutti_status_name(status), error.text);
    return right;
}

static void test_reading(void)
{
    CHECK(reads("", 5, 5, 1, 1, 1));
    CHECK(reads("data=6", 6, 6, 1, 1, 1));
    CHECK(reads("data=3,pipe=1,tensor=1", 3, 3, 1, 1, 1));
    CHECK(refuses("pipe=2,tensor=2", 6, TUTTI_ERR_ARGUMENT,
                  "mesh pipe=2,tensor=2 needs a multiple of 4 ranks; this job has 6; 4 or 8 would do"));
    CHECK(refuses("data=2,pipe=2", 6, TUTTI_ERR_ARGUMENT,
                  "mesh data=2,pipe=2 needs 4 ranks; this job has 6; data=3 would do"));
    CHECK(refuses("pipe=2,tensor=2", 3, TUTTI_ERR_ARGUMENT, "needs a multiple of 4 ranks; this job has 3"));
    CHECK(refuses("data=2147483647,pipe=2147483647,tensor=2147483647", 1, TUTTI_ERR_ARGUMENT, "this job has 1"));
    const char *const bad[] = {"data", "data=", "data=0", "data=-1", "data=2x", "rows=2", "=2", ",,", "data=2,,pipe=2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(refuses(bad[i], 4, TUTTI_ERR_OPTION, "is no dimension"));
    CHECK(refuses("data=99999999999", 4, TUTTI_ERR_OPTION, "is no dimension"));
    CHECK(refuses("data=2,pipe=2,data=2", 4, TUTTI_ERR_OPTION, "data is there twice"));
    CHECK(refuses("data=4,", 4, TUTTI_ERR_OPTION, "ends with a comma"));
    CHECK(reads("shard=2", 4, 2, 2, 1, 1));
}

/* The last dimension varies fastest. */
static void test_places(void)
{
    const struct tti_trainer_mesh mesh = {.sizes = {3, 2, 5, 2}};
    int rank = 0;
    for (int data = 0; data < 3; data++)
        for (int shard = 0; shard < 2; shard++)
            for (int pipe = 0; pipe < 5; pipe++)
                for (int tensor = 0; tensor < 2; tensor++, rank++) {
                    CHECK(tti_trainer_mesh_at(&mesh, rank, TTI_MESH_DATA) == data);
                    CHECK(tti_trainer_mesh_at(&mesh, rank, TTI_MESH_SHARD) == shard);
                    CHECK(tti_trainer_mesh_at(&mesh, rank, TTI_MESH_PIPE) == pipe);
                    CHECK(tti_trainer_mesh_at(&mesh, rank, TTI_MESH_TENSOR) == tensor);
                    CHECK(tti_trainer_mesh_batch_rank(&mesh, rank) == 2 * data + shard);
                }
}

int main(void)
{
    test_reading();
    test_places();
    return check_end();
}
