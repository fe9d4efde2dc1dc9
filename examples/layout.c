/* SPDX-License-Identifier: Apache-2.0
 *
 * A matrix that ranks have together. Its columns lie on different ranks; each rank multiplies its own part of a vector with
 * them, which gives a summand of the product; the summands become rows of the product, which all ranks then gather. What
 * goes from rank to rank follows from the layouts alone.
 *
 *     build/examples/layout                             one rank
 *     TUTTI_RANKS=3 build/examples/layout               three threads
 *     tutti run -n 4 build/examples/layout              four processes
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/layout.h>

enum { ROWS = 5, COLUMNS = 7 };

static float element(int64_t row, int64_t column)
{
    return (float)(row * COLUMNS + column);
}

/* The product of this rank's columns with its part of the vector, which is 1, 2, 3 … */
static void multiply(const tutti_layout *columns, int rank, float *summand)
{
    int64_t from, to;
    tutti_layout_range(columns, rank, 1, 0, &from, &to);
    for (int64_t row = 0; row < ROWS; row++) {
        summand[row] = 0;
        for (int64_t column = from; column < to; column++) summand[row] += element(row, column) * (float)(column + 1);
    }
}

/* From one layout to another, and what that takes. */
static int move(tutti_mesh *mesh, const tutti_layout *from, const float *in, const tutti_layout *to, float *out)
{
    tutti_redistribution *redistribution;
    tutti_redistribution_about about = {.struct_size = sizeof about};
    tutti_error error;
    char before[100], after[100];
    if (tutti_redistribution_create(mesh, from, to, TUTTI_F32, &redistribution, &error) != TUTTI_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    tutti_status status = tutti_redistribution_run(redistribution, in, out);
    tutti_redistribution_describe(redistribution, &about);
    tutti_layout_describe(from, before, sizeof before);
    tutti_layout_describe(to, after, sizeof after);
    if (tutti_mesh_coordinate(mesh, "tensor") == 0)
        printf("%s to %s: %s and %s, %llu bytes come to rank 0\n", before, after, about.sums, about.moves,
               (unsigned long long)about.received_bytes);
    tutti_redistribution_free(redistribution);
    return status == TUTTI_OK ? 0 : 1;
}

static int multiply_together(tutti_comm *world, tutti_mesh *mesh)
{
    const int64_t matrix[] = {ROWS, COLUMNS}, vector[] = {ROWS};
    tutti_layout columns, whole, sum, rows;
    float summand[ROWS], slice[ROWS], product[ROWS];
    tutti_layout_init(&columns, mesh, 2, matrix, NULL);
    tutti_layout_place(&columns, "tensor", TUTTI_SHARDED, 1, NULL);
    tutti_layout_init(&whole, mesh, 1, vector, NULL);
    sum = rows = whole;
    tutti_layout_place(&sum, "tensor", TUTTI_PARTIAL, 0, NULL);
    tutti_layout_place(&rows, "tensor", TUTTI_SHARDED, 0, NULL);
    multiply(&columns, tutti_rank(world), summand);
    if (move(mesh, &sum, summand, &rows, slice) != 0 || move(mesh, &rows, slice, &whole, product) != 0)
        return tutti_explain(world, stderr);
    if (tutti_rank(world) == 0)
        for (int row = 0; row < ROWS; row++) printf("%g%s", (double)product[row], row + 1 < ROWS ? " " : "\n");
    return 0;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    (void)argc, (void)argv;
    const char *names[] = {"tensor"};
    const int sizes[] = {tutti_size(world)};
    tutti_mesh *mesh;
    if (tutti_mesh_create(world, names, sizes, 1, &mesh) != TUTTI_OK) return tutti_explain(world, stderr);
    int failed = multiply_together(world, mesh);
    tutti_mesh_free(mesh);
    return failed;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
