/* SPDX-License-Identifier: Apache-2.0 */
#include "check_redistribution.h"

#include "conformance_world.h"
#include "train/shuffle.h"
#include "train/tree.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/layout.h>

enum { DIMENSIONS = 2, MESH = 4, PLACEMENTS = 4, SIZES = 5, RANKS = 8 };

/* ---- Layouts, element by element ------------------------------------------------------------------------------- */

struct point {
    int at[MESH]; /* coordinates of a rank */
};

static struct point point_of(const tutti_layout *layout, int rank)
{
    struct point point = {{0}};
    for (int m = layout->mesh_dimensions; m-- > 0; rank /= layout->along[m].size)
        point.at[m] = rank % layout->along[m].size;
    return point;
}

static tutti_placement kind(const tutti_layout *layout, int m)
{
    return layout->along[m].placement;
}

/* The coordinate along m of who has an element; only where m cuts the array. */
static int owner(const tutti_layout *layout, int m, int64_t element)
{
    for (int c = 0; c < layout->along[m].size; c++) /* along the other dimensions of the mesh: whoever it is */
        for (int r = 0; r < tutti_layout_ranks(layout); r++)
            if (point_of(layout, r).at[m] == c && tutti_layout_find(layout, r, element) >= 0) return c;
    return -1;
}

/* ---- One case -------------------------------------------------------------------------------------------------- */

struct test {
    tutti_mesh *mesh;
    tutti_layout from, to;
    int rank, ranks;
    int64_t elements;
    int *from_owner[MESH], *to_owner[MESH]; /* [elements] of the dimensions that cut */
    char name[520];
};

static void test_fill(struct test *test)
{
    char from[240], to[240];
    tutti_layout_describe(&test->from, from, sizeof from);
    tutti_layout_describe(&test->to, to, sizeof to);
    snprintf(test->name, sizeof test->name, "rank %d: %s to %s", test->rank, from, to);
    test->elements = 1;
    for (int d = 0; d < test->from.dimensions; d++) test->elements *= test->from.shape[d];
    for (int m = 0; m < test->from.mesh_dimensions; m++) {
        test->from_owner[m] = calloc((size_t)test->elements + 1, sizeof(int));
        test->to_owner[m] = calloc((size_t)test->elements + 1, sizeof(int));
        for (int64_t e = 0; e < test->elements; e++) {
            if (kind(&test->from, m) == TUTTI_SHARDED) test->from_owner[m][e] = owner(&test->from, m, e);
            if (kind(&test->to, m) == TUTTI_SHARDED) test->to_owner[m][e] = owner(&test->to, m, e);
        }
    }
}

static void test_clear(struct test *test)
{
    for (int m = 0; m < MESH; m++) {
        free(test->from_owner[m]);
        free(test->to_owner[m]);
    }
}

/* Whether a sum over dimension m of the mesh is taken. */
static bool sums(const struct test *test, int m)
{
    return kind(&test->from, m) == TUTTI_PARTIAL && kind(&test->to, m) != TUTTI_PARTIAL;
}

/* Whether the array becomes a sum along it, and a rank there contributes the element. */
static bool becomes_partial(const struct test *test, int m)
{
    return kind(&test->from, m) != TUTTI_PARTIAL && kind(&test->to, m) == TUTTI_PARTIAL;
}

static bool contributes(const struct test *test, struct point point, int64_t e)
{
    for (int m = 0; m < test->from.mesh_dimensions; m++) {
        int right = kind(&test->from, m) == TUTTI_SHARDED ? test->from_owner[m][e] : 0;
        if (becomes_partial(test, m) && point.at[m] != right) return false;
    }
    return true;
}

/* ---- Bits ------------------------------------------------------------------------------------------------------ */

/* Of very different sizes, so that another order of additions shows; some elements are −0.0 everywhere, which +0.0 among
 * the summands would change. `summand`: which of those that the array is the sum of. */
static float value(int64_t e, int summand)
{
    uint64_t draw = tti_draw((uint64_t)summand + 17, (uint64_t)e);
    if (e % 5 == 3) return -0.0F;
    float sign = draw & 1 ? -1 : 1, small = (float)(draw >> 40) / (float)(1 << 24) + 0.5F;
    return sign * small * (float)(UINT64_C(1) << (draw >> 8) % 30);
}

/* The number of a rank among those that hold summands of `layout`. */
static int summand_of(const tutti_layout *layout, struct point point)
{
    int number = 0;
    for (int m = 0; m < layout->mesh_dimensions; m++)
        if (kind(layout, m) == TUTTI_PARTIAL) number = number * layout->along[m].size + point.at[m];
    return number;
}

/* Contribution number `leaf` of the sum that the rank at `point` needs. */
static float leaf_value(const struct test *test, struct point point, int64_t e, int leaf)
{
    for (int m = test->from.mesh_dimensions; m-- > 0;) {
        if (!sums(test, m)) continue;
        point.at[m] = leaf % test->from.along[m].size;
        leaf /= test->from.along[m].size;
    }
    return value(e, summand_of(&test->from, point));
}

static float tree(const struct test *test, struct point point, int64_t e, int lo, int hi)
{
    if (hi - lo == 1) return leaf_value(test, point, e, lo);
    int half = lo + (int)tti_tree_half((size_t)(hi - lo));
    return tree(test, point, e, lo, half) + tree(test, point, e, half, hi);
}

static float expected(const struct test *test, struct point point, int64_t e)
{
    int leaves = 1;
    for (int m = 0; m < test->from.mesh_dimensions; m++)
        if (sums(test, m)) leaves *= test->from.along[m].size;
    return contributes(test, point, e) ? tree(test, point, e, 0, leaves) : -0.0F;
}

static void check_bits(const struct test *test, tutti_redistribution *redistribution, float *in, float *out)
{
    size_t before = tutti_layout_local(&test->from, test->rank, NULL);
    size_t after = tutti_layout_local(&test->to, test->rank, NULL), wrong = 0;
    struct point here = point_of(&test->from, test->rank);
    for (size_t i = 0; i < before; i++)
        in[i] = value(tutti_layout_global(&test->from, test->rank, (int64_t)i), summand_of(&test->from, here));
    memset(out, 0x7f, (after + 1) * sizeof *out);
    tutti_status status = tutti_redistribution_run(redistribution, in, out);
    CHECK_THAT(status == TUTTI_OK, "%s: %s", test->name, tutti_status_name(status));
    for (size_t i = 0; i < after; i++) {
        float right = expected(test, here, tutti_layout_global(&test->to, test->rank, (int64_t)i));
        wrong += memcmp(&right, &out[i], sizeof right) != 0;
    }
    unsigned behind;
    memcpy(&behind, &out[after], sizeof behind);
    CHECK_THAT(wrong == 0 && behind == 0x7f7f7f7f, "%s: %zu of %zu elements have other bits", test->name, wrong, after);
    for (size_t i = 0; i < before; i++) {
        float right = value(tutti_layout_global(&test->from, test->rank, (int64_t)i), summand_of(&test->from, here));
        wrong += memcmp(&right, &in[i], sizeof right) != 0;
    }
    CHECK_THAT(wrong == 0, "%s: its input was changed", test->name);
}

/* ---- Bytes ----------------------------------------------------------------------------------------------------- */

/* Whether the rank gets the element, other than as the identity. */
static bool needs(const struct test *test, int rank, int64_t e)
{
    return tutti_layout_find(&test->to, rank, e) >= 0 && contributes(test, point_of(&test->to, rank), e);
}

/* Ranks between which nothing goes: they have different coordinates along a dimension where each has what it needs. */
static bool apart(const struct test *test, int a, int b)
{
    struct point p = point_of(&test->from, a), q = point_of(&test->from, b);
    for (int m = 0; m < test->from.mesh_dimensions; m++) {
        bool own = kind(&test->from, m) == TUTTI_REPLICATED ||
                   (kind(&test->from, m) == TUTTI_PARTIAL && !sums(test, m));
        if (own && p.at[m] != q.at[m]) return true;
    }
    return false;
}

/* The least number of elements that must go from rank to rank for one element and the ranks that are not apart from
 * `first`: whoever needs it and lacks it gets it once; a sum needs all summands but one at one place, best where the sum is
 * needed. */
static int64_t least_for(const struct test *test, int first, int64_t e, bool summed)
{
    int summands = 0, needing = 0, having = 0;
    for (int r = 0; r < test->ranks; r++) {
        if (apart(test, first, r)) continue;
        bool has = tutti_layout_find(&test->from, r, e) >= 0, need = needs(test, r, e);
        summands += has;
        needing += need;
        having += has && need;
    }
    if (needing == 0) return 0;
    return summed ? summands - 1 + needing - (having > 0) : needing - having;
}

static int64_t least(const struct test *test)
{
    int64_t sum = 0;
    bool summed = false;
    for (int m = 0; m < test->from.mesh_dimensions; m++)
        summed = summed || (sums(test, m) && test->from.along[m].size > 1);
    for (int first = 0; first < test->ranks; first++) {
        bool counted = false;
        for (int r = 0; r < first; r++) counted = counted || !apart(test, first, r);
        for (int64_t e = 0; !counted && e < test->elements; e++) sum += least_for(test, first, e, summed);
    }
    return sum;
}

static void check_bytes(const struct test *test, tutti_comm *comm, const tutti_redistribution *redistribution)
{
    tutti_redistribution_about about = {.struct_size = sizeof about};
    tutti_redistribution_describe(redistribution, &about);
    uint64_t moved[2] = {about.sent_bytes, about.received_bytes};
    CHECK_THAT(tutti_all_reduce(comm, moved, moved, 2, TUTTI_U64, TUTTI_SUM) == TUTTI_OK, "sum");
    if (test->rank != 0) return;
    uint64_t right = (uint64_t)least(test) * sizeof(float);
    CHECK_THAT(moved[0] == right && moved[1] == right,
               "%s: sends %llu and receives %llu bytes; %llu are needed (%s, %s)", test->name,
               (unsigned long long)moved[0], (unsigned long long)moved[1], (unsigned long long)right, about.sums,
               about.moves);
}

/* ---- Adjoints -------------------------------------------------------------------------------------------------- */

/* An array in a layout: small whole numbers, the same ones where it is replicated. */
static void fill_integers(const tutti_layout *layout, int rank, int64_t salt, int64_t *values)
{
    int summand = summand_of(layout, point_of(layout, rank));
    for (size_t i = 0; i < tutti_layout_local(layout, rank, NULL); i++) {
        int64_t e = tutti_layout_global(layout, rank, (int64_t)i);
        values[i] = (int64_t)(tti_draw((uint64_t)(summand + salt), (uint64_t)e) % 200) - 100;
    }
}

static int64_t dot(const int64_t *a, const int64_t *b, size_t count)
{
    int64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

/* <A x, y> = <x, A^T y>, over all ranks. */
static void check_adjoint(const struct test *test, tutti_comm *comm)
{
    tutti_redistribution *forward = NULL, *backward = NULL;
    tutti_error error = {0};
    size_t before = tutti_layout_local(&test->from, test->rank, NULL);
    size_t after = tutti_layout_local(&test->to, test->rank, NULL);
    int64_t *x = calloc(2 * (before + after) + 4, sizeof *x), *y = x + before + 1, *ax = y + after + 1,
            *aty = ax + after + 1;
    tutti_layout dual;
    tutti_layout_dual(&test->to, &dual);
    fill_integers(&test->from, test->rank, 1, x);
    fill_integers(&dual, test->rank, 1000, y);
    if (CHECK_THAT(tutti_redistribution_create(test->mesh, &test->from, &test->to, TUTTI_I64, &forward, &error) ==
                           TUTTI_OK &&
                       tutti_redistribution_adjoint(forward, &backward, &error) == TUTTI_OK,
                   "%s: %s", test->name, error.text)) {
        CHECK_THAT(tutti_redistribution_start(forward, x, ax) == TUTTI_OK, "start");
        CHECK_THAT(tutti_redistribution_end(forward) == TUTTI_OK, "end");
        CHECK_THAT(tutti_redistribution_run(backward, y, aty) == TUTTI_OK, "run");
        int64_t products[2] = {dot(ax, y, after), dot(x, aty, before)};
        CHECK_THAT(tutti_all_reduce(comm, products, products, 2, TUTTI_I64, TUTTI_SUM) == TUTTI_OK, "sum");
        CHECK_THAT(products[0] == products[1], "%s: <Ax, y> is %lld, <x, A'y> %lld", test->name, (long long)products[0],
                   (long long)products[1]);
    }
    tutti_redistribution_free(forward);
    tutti_redistribution_free(backward);
    free(x);
}

/* ---- All cases ------------------------------------------------------------------------------------------------- */

static void run_test(struct test *test, tutti_comm *comm)
{
    tutti_redistribution *redistribution = NULL;
    tutti_error error = {0};
    test_fill(test);
    size_t before = tutti_layout_local(&test->from, test->rank, NULL);
    size_t after = tutti_layout_local(&test->to, test->rank, NULL);
    float *in = malloc((before + 1) * sizeof *in), *out = malloc((after + 1) * sizeof *out);
    tutti_status status = tutti_redistribution_create(test->mesh, &test->from, &test->to, TUTTI_F32, &redistribution,
                                                      &error);
    if (CHECK_THAT(status == TUTTI_OK, "%s: %s", test->name, error.text)) {
        for (int again = 0; again < 2; again++) check_bits(test, redistribution, in, out);
        check_bytes(test, comm, redistribution);
        check_adjoint(test, comm);
    }
    tutti_redistribution_free(redistribution);
    free(in);
    free(out);
    test_clear(test);
}

/* Placements by number: replicated, partial, sharded on dimension 0, on dimension 1. */
static void place(tutti_layout *layout, int number)
{
    for (int m = 0; m < layout->mesh_dimensions; m++, number /= PLACEMENTS) {
        int which = number % PLACEMENTS;
        layout->along[m].placement = which == 0 ? TUTTI_REPLICATED : which == 1 ? TUTTI_PARTIAL : TUTTI_SHARDED;
        layout->along[m].dimension = which > 2 ? 1 : 0;
    }
}

/* The array of a case: its sizes, sections and grains follow from the number. */
static void shape(struct test *test, int number, int ranks)
{
    static const int64_t primes[] = {13, 3};
    const int64_t sizes[SIZES] = {0, 1, ranks - 1, ranks + 1, primes[number / SIZES % 2]};
    int sections = number / SIZES % 2 == 0 ? 1 : 3, dimension = number / (2 * SIZES) % 2;
    int64_t extents[DIMENSIONS] = {2, 2};
    extents[dimension] = sizes[number % SIZES] * sections;
    (void)tutti_layout_init(&test->from, test->mesh, DIMENSIONS, extents, NULL);
    test->from.sections[dimension] = sections;
    test->to = test->from;
    test->from.grains[dimension] = number / (4 * SIZES) % 2 == 0 ? 0 : 2;
    if (number / (8 * SIZES) % 2 != 0) test->to.sections[dimension] = 1;
}

static const char *const names[MESH] = {"one", "two", "three", "four"};

static void run_mesh(tutti_comm *comm, int dimensions, const int *sizes, int stride, int *number)
{
    struct test test = {.rank = tutti_rank(comm), .ranks = tutti_size(comm)};
    int layouts = dimensions == 1 ? PLACEMENTS : PLACEMENTS * PLACEMENTS;
    if (!CHECK_THAT(tutti_mesh_create(comm, names, sizes, dimensions, &test.mesh) == TUTTI_OK, "mesh")) return;
    for (int array = 0; array < 16 * SIZES; array++)
        for (int pair = 0; pair < layouts * layouts; pair++) {
            if ((*number)++ % stride != 0) continue;
            shape(&test, array, test.ranks);
            place(&test.from, pair % layouts);
            place(&test.to, pair / layouts);
            run_test(&test, comm);
        }
    tutti_mesh_free(test.mesh);
}

void redistribution_cases(tutti_comm *comm, int stride)
{
    int ranks = tutti_size(comm), number = 0;
    run_mesh(comm, 1, &ranks, stride > 7 ? stride / 7 : 1, &number);
    for (int first = 1; first <= ranks; first++) {
        const int sizes[2] = {first, ranks / first};
        if (ranks % first == 0) run_mesh(comm, 2, sizes, stride, &number);
    }
}

/* ---- More dimensions ------------------------------------------------------------------------------------------- */

/* The same numbers on every rank. */
struct dice {
    uint64_t seed, drawn;
};

static int draw(struct dice *dice, int below)
{
    return (int)(tti_draw(dice->seed, dice->drawn++) % (uint64_t)below);
}

/* Sizes whose product is the number of ranks, some of them 1. */
static void draw_mesh(struct dice *dice, int ranks, int dimensions, int *sizes)
{
    for (int m = 0; m < dimensions; m++) sizes[m] = 1;
    for (int factor = 2; ranks > 1; factor++)
        for (; ranks % factor == 0; ranks /= factor) sizes[draw(dice, dimensions)] *= factor;
}

static void draw_placements(struct dice *dice, tutti_layout *layout)
{
    for (int m = 0; m < layout->mesh_dimensions; m++) {
        const int which = draw(dice, 2 + layout->dimensions);
        layout->along[m].placement = which == 0 ? TUTTI_REPLICATED : which == 1 ? TUTTI_PARTIAL : TUTTI_SHARDED;
        layout->along[m].dimension = which > 1 ? which - 2 : 0;
    }
}

static void draw_layouts(struct dice *dice, struct test *test)
{
    enum { ARRAY = 3, LARGEST = 7 };
    int64_t extents[ARRAY];
    int sections[ARRAY];
    const int dimensions = 1 + 2 * draw(dice, 2);
    for (int d = 0; d < dimensions; d++) {
        sections[d] = 1 + draw(dice, 2);
        extents[d] = (draw(dice, 12) == 0 ? 0 : 1 + draw(dice, dimensions == 1 ? 5 * LARGEST : LARGEST)) * sections[d];
    }
    (void)tutti_layout_init(&test->from, test->mesh, dimensions, extents, NULL);
    test->to = test->from;
    for (int d = 0; d < dimensions; d++) {
        test->from.sections[d] = sections[d];
        test->to.sections[d] = draw(dice, 2) == 0 ? sections[d] : 1;
        test->from.grains[d] = draw(dice, 3) == 0 ? 2 : 0;
    }
    draw_placements(dice, &test->from);
    draw_placements(dice, &test->to);
}

void redistribution_draws(tutti_comm *comm, int count, uint64_t seed)
{
    enum { EACH = 8 };
    struct dice dice = {seed, 0};
    for (int i = 0; i < count; i += EACH) {
        struct test test = {.rank = tutti_rank(comm), .ranks = tutti_size(comm)};
        const int dimensions = 3 + draw(&dice, 2);
        int sizes[MESH];
        draw_mesh(&dice, test.ranks, dimensions, sizes);
        if (!CHECK_THAT(tutti_mesh_create(comm, names, sizes, dimensions, &test.mesh) == TUTTI_OK, "mesh")) return;
        for (int k = 0; k < EACH; k++) {
            draw_layouts(&dice, &test);
            run_test(&test, comm);
        }
        tutti_mesh_free(test.mesh);
    }
}
