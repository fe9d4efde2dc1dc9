/* SPDX-License-Identifier: Apache-2.0
 *
 * The heat of a square plate whose upper edge is kept at 100 degrees and the others at 0, by Jacobi's iteration. The ranks
 * are a mesh; each has a tile of the plate with a border of its neighbours' cells, and works on the inside of its tile
 * while the borders are on their way.
 *
 *     build/examples/heat                               one rank
 *     TUTTI_RANKS=4 build/examples/heat                 four threads, 2 x 2
 *     tutti run -n 6 build/examples/heat                six processes, 2 x 3
 */
#include <math.h>
#include <stdio.h>

#include <tutti/tutti.h>

enum { CELLS = 100, STEPS = 400, OPS = 4 };

typedef struct tile {
    tutti_mesh *mesh;
    tutti_comm *column, *row; /* the ranks above and below this one; left and right of it */
    int height, width;        /* without the border */
    double *now, *next;       /* (height + 2, width + 2) */
    double *edges[2],
        *borders[2]; /* (height): the leftmost and rightmost cells, which are not side by side in memory */
} tile;

static double *cell(const tile *t, double *plate, int y, int x)
{
    return plate + y * (t->width + 2) + x;
}

/* This rank's share of the cells along one dimension. */
static int share(const tutti_mesh *mesh, const char *dimension)
{
    int size = tutti_mesh_size(mesh, dimension), at = tutti_mesh_coordinate(mesh, dimension);
    return CELLS * (at + 1) / size - CELLS * at / size;
}

/* As square as can be. */
static void choose_sizes(int ranks, int sizes[2])
{
    sizes[0] = (int)sqrt(ranks);
    while (ranks % sizes[0] != 0) sizes[0]--;
    sizes[1] = ranks / sizes[0];
}

static tutti_status make_mesh(tutti_comm *world, const int sizes[2], tile *t)
{
    static const char *const names[] = {"y", "x"};
    tutti_status status = tutti_mesh_create(world, names, sizes, 2, &t->mesh);
    if (status == TUTTI_OK) status = tutti_mesh_comm(t->mesh, "y", &t->column);
    if (status == TUTTI_OK) status = tutti_mesh_comm(t->mesh, "x", &t->row);
    return status;
}

static int make_tile(tutti_comm *world, tile *t)
{
    t->height = share(t->mesh, "y");
    t->width = share(t->mesh, "x");
    size_t bytes = (size_t)(t->height + 2) * (size_t)(t->width + 2) * sizeof(double);
    t->now = tutti_alloc(world, bytes); /* zeroed */
    t->next = tutti_alloc(world, bytes);
    for (int side = 0; side < 2; side++) {
        t->edges[side] = tutti_alloc(world, (size_t)t->height * sizeof(double));
        t->borders[side] = tutti_alloc(world, (size_t)t->height * sizeof(double));
        if (t->edges[side] == NULL || t->borders[side] == NULL) return 0;
    }
    if (t->now == NULL || t->next == NULL) return 0;
    for (int x = 0; x < t->width + 2 && tutti_rank(t->column) == 0; x++)
        *cell(t, t->now, 0, x) = *cell(t, t->next, 0, x) = 100;
    return 1;
}

/* With the neighbour that is `step` further on, or nobody at the edge of the plate, whose border stays as it is. */
static tutti_status trade(tutti_comm *line, int step, const double *edge, double *border, int count, tutti_op *op)
{
    int peer = tutti_rank(line) + step;
    if (peer < 0 || peer == tutti_size(line)) peer = TUTTI_NOBODY;
    return tutti_sendrecv_start(line, edge, (size_t)count, peer, 0, border, (size_t)count, peer, 0, TUTTI_F64, NULL,
                                op);
}

static tutti_status start_borders(tile *t, tutti_op ops[OPS])
{
    int last = t->height, right = t->width;
    for (int y = 0; y < t->height; y++) {
        t->edges[0][y] = *cell(t, t->now, y + 1, 1);
        t->edges[1][y] = *cell(t, t->now, y + 1, right);
    }
    tutti_status status = trade(t->column, -1, cell(t, t->now, 1, 1), cell(t, t->now, 0, 1), t->width, ops);
    if (status == TUTTI_OK)
        status = trade(t->column, 1, cell(t, t->now, last, 1), cell(t, t->now, last + 1, 1), t->width, ops + 1);
    if (status == TUTTI_OK) status = trade(t->row, -1, t->edges[0], t->borders[0], t->height, ops + 2);
    if (status == TUTTI_OK) status = trade(t->row, 1, t->edges[1], t->borders[1], t->height, ops + 3);
    return status;
}

static tutti_status end_borders(tile *t, const tutti_op ops[OPS])
{
    tutti_status status = tutti_wait_all(ops, OPS);
    for (int y = 0; y < t->height && status == TUTTI_OK; y++) { /* where there is nobody they are 0 */
        *cell(t, t->now, y + 1, 0) = t->borders[0][y];
        *cell(t, t->now, y + 1, t->width + 1) = t->borders[1][y];
    }
    return status;
}

/* The cells of these rows and columns, both included. Returns by how much the temperature of one has changed at most. */
static double relax(tile *t, int top, int bottom, int left, int right)
{
    double most = 0;
    for (int y = top; y <= bottom; y++) {
        for (int x = left; x <= right; x++) {
            const double *at = cell(t, t->now, y, x);
            double heat = 0.25 * (at[-1] + at[1] + at[-(t->width + 2)] + at[t->width + 2]);
            most = fmax(most, fabs(heat - *at));
            *cell(t, t->next, y, x) = heat;
        }
    }
    return most;
}

static double relax_edges(tile *t)
{
    int last = t->height, right = t->width;
    double rows = fmax(relax(t, 1, 1, 1, right), relax(t, last, last, 1, right));
    return fmax(rows, fmax(relax(t, 2, last - 1, 1, 1), relax(t, 2, last - 1, right, right)));
}

static tutti_status take_step(tile *t, double *change)
{
    tutti_op ops[OPS] = {{0}};
    tutti_status status = start_borders(t, ops);
    double inside = relax(t, 2, t->height - 1, 2, t->width - 1), *before = t->now;
    if (status == TUTTI_OK) status = end_borders(t, ops);
    *change = fmax(inside, relax_edges(t));
    t->now = t->next;
    t->next = before;
    return status;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    (void)argc, (void)argv;
    tile t = {0};
    double change = 0, sum = 0;
    int sizes[2];
    choose_sizes(tutti_size(world), sizes);
    if (sizes[1] > CELLS) {
        if (tutti_rank(world) == 0) fprintf(stderr, "heat: more ranks side by side than the %d cells\n", CELLS);
        return 2;
    }
    if (make_mesh(world, sizes, &t) != TUTTI_OK || !make_tile(world, &t)) return tutti_explain(world, stderr);
    for (int step = 0; step < STEPS; step++)
        if (take_step(&t, &change) != TUTTI_OK) return tutti_explain(world, stderr);
    for (int y = 1; y <= t.height; y++)
        for (int x = 1; x <= t.width; x++) sum += *cell(&t, t.now, y, x);
    if (tutti_all_reduce(tutti_named(world, "change"), &change, &change, 1, TUTTI_F64, TUTTI_MAX) != TUTTI_OK ||
        tutti_reduce(tutti_named(world, "heat"), &sum, &sum, 1, TUTTI_F64, TUTTI_SUM, 0) != TUTTI_OK)
        return tutti_explain(world, stderr);
    if (tutti_rank(world) == 0)
        printf("after %d steps the plate has %.4f degrees on average, and changes by %.4f a step\n", STEPS,
               sum / (CELLS * CELLS), change);
    tutti_mesh_free(t.mesh);
    return 0;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
