/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=240 labels=asan,tsan
 *
 * Redistributions on 1 to 8 ranks of every kind; a part of all cases, test_redistribute_full.c has the rest. What they say
 * of themselves; buffers, types and errors.
 */
#include "check_redistribution.h"
#include "conformance_world.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/layout.h>

static void run_cases(tutti_comm *comm, void *context)
{
    redistribution_cases(comm, *(const int *)context);
}

/* Of 8 ranks three dimensions have 2 each, of 6 there are 2 and 3. */
static void run_draws(tutti_comm *comm, void *context)
{
    redistribution_draws(comm, *(const int *)context, 1);
}

/* ---- What one says of itself ----------------------------------------------------------------------------------- */

static const char *const names[] = {"data", "tensor"};

static tutti_mesh *mesh_of(tutti_comm *comm, int first, int second)
{
    tutti_mesh *mesh = NULL;
    const int sizes[] = {first, second};
    CHECK_THAT(tutti_mesh_create(comm, names, sizes, 2, &mesh) == TUTTI_OK, "mesh");
    return mesh;
}

static tutti_layout layout_of(const tutti_mesh *mesh, tutti_placement data, tutti_placement tensor, int dimension)
{
    const int64_t shape[] = {12, 8};
    tutti_layout layout;
    tutti_layout_init(&layout, mesh, 2, shape, NULL);
    tutti_layout_place(&layout, "data", data, 0, NULL);
    tutti_layout_place(&layout, "tensor", tensor, dimension, NULL);
    return layout;
}

/* The collectives that carry it out, and what it needs. */
static void says(tutti_mesh *mesh, const tutti_layout *from, const tutti_layout *to, const char *sums,
                 const char *moves, size_t memory, bool in_place)
{
    tutti_redistribution *made = NULL;
    tutti_redistribution_about about = {.struct_size = sizeof about};
    CHECK_THAT(tutti_redistribution_create(mesh, from, to, TUTTI_F32, &made, NULL) == TUTTI_OK, "create");
    tutti_redistribution_describe(made, &about);
    CHECK_THAT(strcmp(about.sums, sums) == 0 && strcmp(about.moves, moves) == 0 && about.memory_bytes == memory &&
                   about.in_place == in_place,
               "%s and %s, not %s and %s; %llu bytes, not %zu; in place: %d", about.sums, about.moves, sums, moves,
               (unsigned long long)about.memory_bytes, memory, about.in_place);
    tutti_redistribution_free(made);
}

static void run_says(tutti_comm *comm, void *context)
{
    (void)context;
    tutti_mesh *mesh = mesh_of(comm, 1, 4);
    const tutti_placement any = TUTTI_REPLICATED;
    tutti_layout whole = layout_of(mesh, any, TUTTI_REPLICATED, 0), sum = layout_of(mesh, any, TUTTI_PARTIAL, 0);
    tutti_layout rows = layout_of(mesh, any, TUTTI_SHARDED, 0), columns = layout_of(mesh, any, TUTTI_SHARDED, 1);
    const size_t all = 12 * 8 * sizeof(float);
    says(mesh, &rows, &rows, "none", "none", 0, true);
    says(mesh, &whole, &columns, "none", "none", 0, false);
    says(mesh, &rows, &whole, "none", "all_gather", 0, false); /* where they lie */
    says(mesh, &columns, &whole, "none", "all_gather", all, false);
    says(mesh, &sum, &whole, "all_reduce", "none", 0, true);
    says(mesh, &sum, &rows, "reduce_scatter", "none", 0, false);
    says(mesh, &sum, &columns, "reduce_scatter", "none", all, false);
    says(mesh, &rows, &columns, "none", "all_to_all", 3 * 6 * sizeof(float), false);
    says(mesh, &rows, &sum, "none", "none", 0, false);
    tutti_mesh_free(mesh);
}

/* Sums that are needed by all and go elsewhere behind that: ranks share the work evenly. */
static void run_balanced(tutti_comm *comm, void *context)
{
    (void)context;
    tutti_mesh *mesh = mesh_of(comm, 2, 2);
    tutti_layout from = layout_of(mesh, TUTTI_PARTIAL, TUTTI_SHARDED, 0);
    tutti_layout to = layout_of(mesh, TUTTI_REPLICATED, TUTTI_SHARDED, 1);
    tutti_redistribution *made = NULL;
    tutti_redistribution_about about = {.struct_size = sizeof about};
    CHECK_THAT(tutti_redistribution_create(mesh, &from, &to, TUTTI_F32, &made, NULL) == TUTTI_OK, "create");
    tutti_redistribution_describe(made, &about);
    const uint64_t summands = 6 * 8 / 2, sums = 12 * 4 - 6 * 4 / 2; /* of its half; all but those of its own */
    CHECK_THAT(about.received_bytes == (summands + sums) * sizeof(float) && strcmp(about.sums, "reduce_scatter") == 0,
               "%s: %llu bytes are received", about.sums, (unsigned long long)about.received_bytes);
    tutti_redistribution_free(made);
    tutti_mesh_free(mesh);
}

/* What a comm counts of the collective is what the redistribution says that it moves. */
static void run_counted(tutti_comm *comm, void *context)
{
    (void)context;
    tutti_mesh *mesh = mesh_of(comm, 2, 2);
    tutti_layout from = layout_of(mesh, TUTTI_SHARDED, TUTTI_SHARDED, 1), to = from;
    from.sections[1] = 2; /* half of the columns change hands, packed */
    tutti_redistribution *made = NULL;
    tutti_redistribution_about about = {.struct_size = sizeof about};
    tutti_stats before = {.struct_size = sizeof before}, after = before;
    float in[24] = {0}, out[24];
    tutti_comm *tensor = NULL, *data = NULL;
    CHECK_THAT(tutti_redistribution_create(mesh, &from, &to, TUTTI_F32, &made, NULL) == TUTTI_OK, "create");
    CHECK_THAT(tutti_mesh_comm(mesh, "tensor", &tensor) == TUTTI_OK && tutti_mesh_comm(mesh, "data", &data) == TUTTI_OK,
               "comms");
    tutti_redistribution_describe(made, &about);
    tutti_comm_stats(tensor, &before);
    CHECK_THAT(tutti_redistribution_run(made, in, out) == TUTTI_OK, "run");
    tutti_comm_stats(tensor, &after);
    CHECK_THAT(after.operations == before.operations + 1 &&
                   after.bytes - before.bytes == about.sent_bytes + about.received_bytes,
               "%llu operations of %llu bytes; %llu are sent, %llu received",
               (unsigned long long)(after.operations - before.operations),
               (unsigned long long)(after.bytes - before.bytes), (unsigned long long)about.sent_bytes,
               (unsigned long long)about.received_bytes);
    tutti_comm_stats(data, &after);
    CHECK_THAT(after.operations == 0, "%llu operations along data", (unsigned long long)after.operations);
    tutti_redistribution_free(made);
    tutti_mesh_free(mesh);
}

/* ---- Types ----------------------------------------------------------------------------------------------------- */

/* A slice becomes a summand and comes back: every type keeps its bits, −0.0 and all else. */
static void run_types(tutti_comm *comm, void *context)
{
    (void)context;
    tutti_mesh *mesh = mesh_of(comm, 1, tutti_size(comm));
    tutti_layout rows = layout_of(mesh, TUTTI_REPLICATED, TUTTI_SHARDED, 0);
    tutti_layout sum = layout_of(mesh, TUTTI_REPLICATED, TUTTI_PARTIAL, 0);
    size_t count = tutti_layout_local(&rows, tutti_rank(comm), NULL);
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        unsigned char in[96 * 8], back[96 * 8], summands[96 * 8];
        size_t bytes = tutti_type_bytes((tutti_type)type);
        if (type == TUTTI_BOOL) continue;
        for (size_t i = 0; i < sizeof in; i++) in[i] = (unsigned char)(i % 3 == 0 ? 0x80 : i % 2);
        for (size_t i = bytes - 1; i < sizeof in; i += bytes) in[i] = i % 4 == 0 ? 0x80 : 0x30; /* finite */
        tutti_status there = tutti_redistribute(mesh, &rows, in, &sum, summands, (tutti_type)type, NULL);
        tutti_status again = tutti_redistribute(mesh, &sum, summands, &rows, back, (tutti_type)type, NULL);
        CHECK_THAT(there == TUTTI_OK && again == TUTTI_OK && memcmp(in, back, count * bytes) == 0, "%s changes: %s",
                   tutti_type_name((tutti_type)type), tutti_status_name(again));
    }
    tutti_mesh_free(mesh);
}

/* ---- Errors ---------------------------------------------------------------------------------------------------- */

static void run_refused(tutti_comm *comm, void *context)
{
    (void)context;
    tutti_mesh *mesh = mesh_of(comm, 1, tutti_size(comm)), *other = mesh_of(comm, tutti_size(comm), 1);
    tutti_layout rows = layout_of(mesh, TUTTI_REPLICATED, TUTTI_SHARDED, 0);
    tutti_layout whole = layout_of(mesh, TUTTI_REPLICATED, TUTTI_REPLICATED, 0), odd = whole;
    tutti_redistribution *made = NULL;
    tutti_error error = {0};
    float memory[12 * 8 * 2];
    odd.shape[1] = 9;
    CHECK_THAT(tutti_redistribution_create(mesh, &rows, &odd, TUTTI_F32, &made, &error) == TUTTI_ERR_ARGUMENT &&
                   strstr(error.text, "12x8 data=1:replicated tensor=") != NULL &&
                   strstr(error.text, "to 12x9 ") != NULL && strstr(error.text, "shapes differ") != NULL,
               "shapes: %s", error.text);
    CHECK_THAT(tutti_redistribution_create(other, &rows, &whole, TUTTI_F32, &made, &error) == TUTTI_ERR_ARGUMENT &&
                   strstr(error.text, "is not on this mesh") != NULL,
               "mesh: %s", error.text);
    CHECK_THAT(tutti_redistribution_create(mesh, &rows, &whole, TUTTI_TYPE_COUNT, &made, &error) == TUTTI_ERR_TYPE,
               "type: %s", error.text);
    CHECK_THAT(tutti_redistribution_create(NULL, &rows, &whole, TUTTI_F32, &made, &error) == TUTTI_ERR_ARGUMENT,
               "NULL");
    CHECK_THAT(tutti_redistribution_adjoint(NULL, &made, NULL) == TUTTI_ERR_ARGUMENT && made == NULL, "NULL");
    CHECK_THAT(tutti_redistribution_create(mesh, &rows, &whole, TUTTI_F32, &made, &error) == TUTTI_OK, "create");
    CHECK_THAT(tutti_redistribution_end(made) == TUTTI_ERR_ARGUMENT, "an end without a start");
    CHECK_THAT(tutti_redistribution_run(made, memory, memory + 1) == TUTTI_ERR_OVERLAP, "overlap");
    CHECK_THAT(tutti_redistribution_run(made, memory, memory) == TUTTI_ERR_OVERLAP, "in place");
    CHECK_THAT(tutti_redistribution_run(made, memory, NULL) == TUTTI_ERR_ARGUMENT, "no output");
    CHECK_THAT(tutti_redistribution_start(made, memory, memory + 96) == TUTTI_OK, "start");
    CHECK_THAT(tutti_redistribution_start(made, memory, memory + 96) == TUTTI_ERR_ARGUMENT, "two starts");
    CHECK_THAT(tutti_redistribution_end(made) == TUTTI_OK, "end");
    CHECK_THAT(tutti_redistribution_start(made, memory, memory + 96) == TUTTI_OK, "start");
    tutti_redistribution_free(made); /* which ends it */
    tutti_mesh_free(mesh);
    tutti_mesh_free(other);
}

/* The last rank has another layout: all get the same sentence, and the mesh is as good as before. Then it has one that
 * cannot be, and the others learn of that. */
static void run_differ(tutti_comm *comm, void *context)
{
    (void)context;
    int last = tutti_size(comm) - 1;
    tutti_mesh *mesh = mesh_of(comm, 1, last + 1);
    tutti_layout from = layout_of(mesh, TUTTI_REPLICATED, TUTTI_SHARDED, 0);
    tutti_layout to = layout_of(mesh, TUTTI_REPLICATED, TUTTI_REPLICATED, 0), mine = from;
    tutti_redistribution *made = NULL;
    tutti_error error = {0};
    char words[64];
    if (tutti_rank(comm) == last) mine.along[1].dimension = 1;
    tutti_status status = tutti_redistribution_create(mesh, &mine, &to, TUTTI_F32, &made, &error);
    snprintf(words, sizeof words, "rank %d from 12x8 ", last);
    CHECK_THAT(status == TUTTI_ERR_MISMATCH && error.peer == last && strstr(error.text, words) != NULL &&
                   strstr(error.text, "sharded(1) to") != NULL && strstr(error.text, "rank 0 from 12x8") != NULL &&
                   strstr(error.text, "sharded(0) to") != NULL && strstr(error.text, "as f32") != NULL,
               "%s: %s", tutti_status_name(status), error.text);
    if (tutti_rank(comm) == last) mine.along[1].dimension = 2;
    status = tutti_redistribution_create(mesh, &mine, &to, TUTTI_F32, &made, &error);
    CHECK_THAT(status == TUTTI_ERR_ARGUMENT && error.rank == last &&
                   strstr(error.text, "tensor cuts dimension 2") != NULL,
               "%s: %s", tutti_status_name(status), error.text);
    status = tutti_redistribution_create(mesh, &from, &to, TUTTI_F32, &made, &error);
    CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), error.text);
    tutti_redistribution_free(made);
    tutti_mesh_free(mesh);
}

static void run(enum world_ranks ranks, int size, void (*body)(tutti_comm *, void *), void *context)
{
    struct conf_world world = {
        .ranks = ranks, .size = size, .direct = 1, .attach = 1, .body = body, .context = context};
    conf_world_run(&world);
}

int main(void)
{
    bool slow = SANITIZED != 0;
    int strides[] = {slow ? 149 : 31, slow ? 1999 : 499};
    conf_begin();
    for (int size = 1; size <= 8; size++) run(WORLD_THREADS, size, run_cases, &strides[size > 4 && slow]);
    int drawn = slow ? 32 : 160;
    for (int size = 4; size <= 8; size += 2) run(WORLD_THREADS, size, run_draws, &drawn);
    run(WORLD_PROCESSES, 3, run_cases, &strides[1]);
    run(WORLD_PROCESSES, 4, run_cases, &strides[1]);
    run(WORLD_PAIRS, 6, run_cases, &strides[1]);
    run(WORLD_THREADS, 4, run_says, NULL);
    run(WORLD_THREADS, 4, run_balanced, NULL);
    run(WORLD_THREADS, 4, run_counted, NULL);
    run(WORLD_THREADS, 3, run_types, NULL);
    run(WORLD_THREADS, 2, run_refused, NULL);
    run(WORLD_THREADS, 3, run_differ, NULL);
    run(WORLD_PROCESSES, 2, run_differ, NULL);
    setenv("TUTTI_TRANSPORT", "tcp", 1);
    run(WORLD_PROCESSES, 4, run_cases, &strides[1]);
    run(WORLD_PROCESSES, 2, run_differ, NULL);
    return check_end();
}
