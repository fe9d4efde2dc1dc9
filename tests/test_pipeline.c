/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan
 *
 * Tables of pipelines: how long those known by name take and what they keep, what is refused, and that the check agrees with
 * carrying tables out: all small ones, those with steps swapped, dropped and doubled, and random ones.
 */
#include "check.h"
#include "pipeline_brute.h"
#include "sanitized.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static tutti_pipeline *build(const char *name, int ranks, int chunks, int micros)
{
    tutti_pipeline *made = NULL;
    tutti_error error;
    tutti_status status = tutti_pipeline_build(name, ranks, chunks, micros, &made, &error);
    CHECK_THAT(status == TUTTI_OK, "%s", error.text);
    return made;
}

/* ---- Known by name ----------------------------------------------------------------------------------------------- */

/* In lengths of a part of one chunk. */
static double known_makespan(const char *name, int p, int m, int v)
{
    if (strcmp(name, "interleaved") == 0) return 3.0 * m * v + 3 * (p - 1);
    if (strcmp(name, "zb-h1") == 0) return 3.0 * m + p - 1;
    return strcmp(name, "zb-v") == 0 ? 6.0 * m + p - 1 : 3.0 * (m + p - 1);
}

static int known_live(const char *name, int p, int m, int v, int rank)
{
    int warm = (v + 1) * p - 1 - 2 * rank;
    if (strcmp(name, "gpipe") == 0) return m;
    if (strcmp(name, "1f1b") == 0) return p - rank;
    if (strcmp(name, "interleaved") == 0) return warm < m * v ? warm : m * v;
    return strcmp(name, "zb-h1") == 0 ? p : 2 * p;
}

static void check_known(const char *name, int p, int m, int v)
{
    tutti_pipeline *table = build(name, p, v, m);
    tutti_pipeline_load loads[8];
    tutti_pipeline_verdict verdict = {.struct_size = sizeof verdict, .loads = loads};
    tutti_error error;
    tutti_status status = tutti_pipeline_check(table, NULL, 0, &verdict, &error);
    CHECK_THAT(status == TUTTI_OK, "%s p=%d m=%d v=%d: %s", name, p, m, v, error.text);
    double known = known_makespan(name, p, m, v);
    CHECK_THAT(verdict.makespan == known, "%s p=%d m=%d v=%d: %g, not %g", name, p, m, v, verdict.makespan, known);
    CHECK(fabs(verdict.idle - (1 - 3.0 * m * v / known)) < 1e-12);
    CHECK(verdict.ordered);
    for (int rank = 0; rank < p; rank++) {
        int live = known_live(name, p, m, v, rank);
        bool fits = strcmp(name, "zb-v") == 0 ? loads[rank].live <= live : loads[rank].live == live;
        CHECK_THAT(fits, "%s p=%d m=%d v=%d rank %d: %d live, not %d", name, p, m, v, rank, loads[rank].live, live);
        CHECK(loads[rank].busy == 3.0 * m * v && fabs(loads[rank].idle - verdict.idle) < 1e-12);
    }
    CHECK(pipeline_brute_ends(table, (unsigned)(p * m)));
    tutti_pipeline_free(table);
}

static void test_known(void)
{
    static const int sizes[] = {2, 3, 4, 8};
    for (size_t i = 0; i < 4; i++) {
        for (int times = 1; times <= 4; times *= 2) {
            int p = sizes[i], m = times * p;
            check_known("gpipe", p, m, 1);
            check_known("1f1b", p, m, 1);
            check_known("zb-h1", p, m, 1);
            check_known("zb-v", p, m, 2);
            for (int v = 2; v <= 4; v++) check_known("interleaved", p, m, v);
        }
    }
}

/* Every size that is taken gives a table that ends, zb-v within 3% of the bound and in its memory. */
static void test_all_sizes(void)
{
    int most = SANITIZED ? 6 : 20;
    for (int p = 1; p <= most; p++) {
        for (int m = 1; m <= 3 * p + 1; m += p < 8 ? 1 : 5) {
            const char *name;
            for (size_t i = 0; (name = tutti_pipeline_names(i)) != NULL; i++) {
                tutti_pipeline *table = NULL;
                tutti_error error;
                tutti_pipeline_verdict verdict = {.struct_size = sizeof verdict};
                bool fits = strcmp(name, "interleaved") != 0 || m % p == 0;
                tutti_status status = tutti_pipeline_build(name, p, 0, m, &table, &error);
                CHECK(status == (fits ? TUTTI_OK : TUTTI_ERR_ARGUMENT));
                if (status != TUTTI_OK) continue;
                status = tutti_pipeline_check(table, NULL, 0, &verdict, &error);
                CHECK_THAT(status == TUTTI_OK && verdict.ordered, "%s p=%d m=%d: %s", name, p, m, error.text);
                if (strcmp(name, "zb-v") == 0 && m >= 2 * p)
                    CHECK_THAT(verdict.makespan <= 1.03 * (6 * m + p - 1) && verdict.live <= 2 * p, "p=%d m=%d: %g, %d",
                               p, m, verdict.makespan, verdict.live);
                tutti_pipeline_free(table);
            }
        }
    }
}

/* ---- What is refused --------------------------------------------------------------------------------------------- */

static void refused(const char *name, int ranks, int chunks, int micros, const char *words)
{
    tutti_pipeline *made = NULL;
    tutti_error error = {.text = ""};
    tutti_status status = tutti_pipeline_build(name, ranks, chunks, micros, &made, &error);
    CHECK_THAT(status == TUTTI_ERR_ARGUMENT && made == NULL && error.status == status, "%s is taken", words);
    CHECK_THAT(strstr(error.text, words) != NULL, "\"%s\" has no \"%s\"", error.text, words);
}

static void test_refusals(void)
{
    refused("interleaved", 4, 2, 6, "interleaved: 6 micro-batches are no multiple of pipe=4; 4 or 8 would do");
    refused("interleaved", 4, 2, 3, "interleaved: 3 micro-batches are no multiple of pipe=4; 4 would do");
    refused("interleaved", 4, 1, 8, "take 2 or more, or 1f1b");
    refused("1f1b", 4, 2, 8, "1f1b has 1 chunk per rank, not 2");
    refused("zb-v", 4, 3, 8, "zb-v has 2 chunks per rank, not 3");
    refused("1f1", 4, 1, 8, "did you mean 1f1b");
    refused("gpipe", 0, 1, 8, "gpipe: 0 ranks; 1 to 65536 can be");
    refused("gpipe", 4, 1, 0, "gpipe: 0 micro-batches; 1 to 1048576 can be");
    refused("gpipe", 4, -1, 8, "gpipe: -1 chunks per rank");
    refused("gpipe", 65536, 1, 1000, "gpipe: 1000 micro-batches through 65536 stages; at most 64 can be");
    refused("interleaved", 65536, 1000, 65536, "are 65536000 stages; 4194304 can be, which is 64 chunks each");
    tutti_pipeline *made = NULL;
    tutti_error error;
    CHECK(tutti_pipeline_create(2, 2, 1, (const int[]){0, 0, 0, 1}, &made, &error) == TUTTI_ERR_ARGUMENT);
    CHECK_THAT(strstr(error.text, "stage 2 is one more of rank 0, which has 2 already") != NULL, "%s", error.text);
    CHECK(tutti_pipeline_create(2, 1, 1, (const int[]){0, 2}, &made, &error) == TUTTI_ERR_RANK && made == NULL);
    CHECK(tutti_pipeline_build(NULL, 2, 1, 1, &made, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_pipeline_check(NULL, NULL, 0, NULL, NULL) == TUTTI_ERR_ARGUMENT);
    tutti_pipeline *table = build("1f1b", 2, 1, 2);
    const tutti_pipeline_times times[3] = {{1, 1, NAN}, {1, 1, 1}, {1, 1, 1}};
    CHECK(tutti_pipeline_check(table, times, 3, NULL, &error) == TUTTI_ERR_COUNT);
    CHECK(tutti_pipeline_check(table, times, 2, NULL, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_pipeline_check(table, times + 1, 2, NULL, &error) == TUTTI_OK);
    CHECK(tutti_pipeline_add(table, 2, (tutti_pipeline_step){0}, NULL) == TUTTI_ERR_RANK);
    CHECK(tutti_pipeline_add(table, 1, (tutti_pipeline_step){.micro = 2}, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_pipeline_add(table, 1, (tutti_pipeline_step){.chunk = 1}, NULL) == TUTTI_ERR_ARGUMENT);
    tutti_pipeline_free(table);
}

/* ---- The check against carrying it out --------------------------------------------------------------------------- */

static long ending, stuck;

/* Whether the weights of each chunk come in the order of micro-batches. */
static bool is_ordered(const tutti_pipeline *table)
{
    tutti_pipeline_about about = {.struct_size = sizeof about};
    tutti_pipeline_describe(table, &about);
    for (int rank = 0; rank < about.ranks; rank++) {
        size_t count;
        const tutti_pipeline_step *steps = tutti_pipeline_steps(table, rank, &count);
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < i; j++)
                if (steps[i].part >= TUTTI_PIPELINE_BACKWARD && steps[i].part != TUTTI_PIPELINE_INPUT &&
                    steps[j].part >= TUTTI_PIPELINE_BACKWARD && steps[j].part != TUTTI_PIPELINE_INPUT &&
                    steps[i].chunk == steps[j].chunk && steps[i].micro < steps[j].micro)
                    return false;
    }
    return true;
}

static void compare(const tutti_pipeline *table, const char *what)
{
    tutti_error error = {.text = ""};
    tutti_pipeline_verdict verdict = {.struct_size = sizeof verdict};
    bool fine = tutti_pipeline_check(table, NULL, 0, &verdict, &error) == TUTTI_OK;
    if (fine) CHECK_THAT(verdict.ordered == is_ordered(table), "%s: the check says ordered %d", what, verdict.ordered);
    bool ends = pipeline_brute_ends(table, (unsigned)(ending + stuck));
    CHECK_THAT(fine == ends, "%s: the check says %d (%s), but %d", what, fine, error.text, ends);
    CHECK(fine || (error.text[0] != '\0' && error.rank >= 0));
    ending += ends;
    stuck += !ends;
    if (fine != ends && check_failed() < 10) tutti_pipeline_write(table, stdout);
}

/* A table of these steps: list[rank] of `count` each. */
static tutti_pipeline *table_of(int ranks, int chunks, int micros, const int *stage_ranks,
                                const tutti_pipeline_step *const *list, size_t count)
{
    tutti_pipeline *made = NULL;
    CHECK(tutti_pipeline_create(ranks, chunks, micros, stage_ranks, &made, NULL) == TUTTI_OK);
    for (int rank = 0; rank < ranks; rank++)
        for (size_t i = 0; i < count; i++) CHECK(tutti_pipeline_add(made, rank, list[rank][i], NULL) == TUTTI_OK);
    return made;
}

/* The steps of a rank, in their order number `number` of all orders. */
static size_t order_of(int chunks, int micros, bool parts, long number, tutti_pipeline_step *steps)
{
    tutti_pipeline_step rest[16];
    size_t count = 0, left;
    for (int chunk = 0; chunk < chunks; chunk++) {
        for (int micro = 0; micro < micros; micro++) {
            rest[count++] = (tutti_pipeline_step){TUTTI_PIPELINE_FORWARD, chunk, micro};
            rest[count++] = (tutti_pipeline_step){parts ? TUTTI_PIPELINE_INPUT : TUTTI_PIPELINE_BACKWARD, chunk, micro};
            if (parts) rest[count++] = (tutti_pipeline_step){TUTTI_PIPELINE_WEIGHTS, chunk, micro};
        }
    }
    for (left = count; left > 0; left--) {
        size_t at = (size_t)(number % (long)left);
        number /= (long)left;
        steps[count - left] = rest[at];
        memmove(&rest[at], &rest[at + 1], (left - at - 1) * sizeof *rest);
    }
    return count;
}

static long orders_of(size_t count)
{
    return count == 0 ? 1 : (long)count * orders_of(count - 1);
}

/* All orders of all ranks, or every so many. */
static void test_every_order(int ranks, int chunks, int micros, bool parts, const int *stage_ranks, long stride)
{
    tutti_pipeline_step steps[3][16];
    const tutti_pipeline_step *list[3] = {steps[0], steps[1], steps[2]};
    long orders = orders_of((size_t)(chunks * micros) * (parts ? 3 : 2)), all = 1;
    for (int rank = 0; rank < ranks; rank++) all *= orders;
    for (long number = 0; number < all; number += stride) {
        size_t count = 0;
        long left = number;
        for (int rank = 0; rank < ranks; rank++, left /= orders)
            count = order_of(chunks, micros, parts, left % orders, steps[rank]);
        tutti_pipeline *table = table_of(ranks, chunks, micros, stage_ranks, list, count);
        compare(table, "small");
        tutti_pipeline_free(table);
    }
}

static void test_small(void)
{
    static const int there_and_back[] = {0, 1, 1, 0}, alone[] = {0, 0, 1, 1};
    long stride = SANITIZED ? 1009 : 3;
    test_every_order(1, 1, 2, true, NULL, 1);
    test_every_order(2, 1, 1, true, NULL, 1);
    test_every_order(2, 1, 2, false, NULL, 1);
    test_every_order(3, 1, 1, true, NULL, 1);
    test_every_order(3, 1, 2, false, NULL, 7);
    test_every_order(2, 2, 1, false, there_and_back, 1);
    test_every_order(2, 1, 2, true, NULL, stride);
    test_every_order(2, 2, 1, true, NULL, stride);
    test_every_order(2, 2, 1, true, there_and_back, stride);
    test_every_order(2, 2, 1, true, alone, stride);
    printf("small tables: %ld end, %ld do not\n", ending, stuck);
    CHECK(ending > 50 && stuck > 100);
}

/* The table with a change: step `at` of a rank is left out, done twice, or swapped with step `other`. */
enum change { DROPPED, DOUBLED, SWAPPED, CHANGES };

static tutti_pipeline *changed(const tutti_pipeline *table, int rank, enum change change, size_t at, size_t other)
{
    tutti_pipeline_about about = {.struct_size = sizeof about};
    int places[64];
    tutti_pipeline *made = NULL;
    tutti_pipeline_describe(table, &about);
    for (int stage = 0; stage < about.stages; stage++) places[stage] = tutti_pipeline_rank(table, stage, NULL);
    CHECK(tutti_pipeline_create(about.ranks, about.chunks, about.micros, places, &made, NULL) == TUTTI_OK);
    for (int r = 0; r < about.ranks; r++) {
        size_t count;
        const tutti_pipeline_step *steps = tutti_pipeline_steps(table, r, &count);
        for (size_t i = 0; i < count; i++) {
            size_t from = r != rank || change != SWAPPED ? i : i == at ? other : i == other ? at : i;
            if (r == rank && change == DROPPED && i == at) continue;
            CHECK(tutti_pipeline_add(made, r, steps[from], NULL) == TUTTI_OK);
            if (r == rank && change == DOUBLED && i == other) tutti_pipeline_add(made, r, steps[at], NULL);
        }
    }
    return made;
}

static void test_changes(int p, int m)
{
    static const char *const names[] = {"dropped", "doubled", "swapped"};
    const char *name;
    long before = stuck, ended = ending;
    for (size_t i = 0; (name = tutti_pipeline_names(i)) != NULL; i++) {
        tutti_pipeline *table = build(name, p, 0, m);
        for (int rank = 0; rank < p; rank++) {
            size_t count;
            (void)tutti_pipeline_steps(table, rank, &count);
            for (int change = 0; change < CHANGES; change++) {
                for (size_t at = 0; at < count; at++) {
                    size_t last = change == DROPPED ? at + 1 : count;
                    for (size_t other = at; other < last; other += SANITIZED ? 5 : 1) {
                        tutti_pipeline *made = changed(table, rank, (enum change)change, at, other);
                        compare(made, names[change]);
                        tutti_pipeline_free(made);
                    }
                }
            }
        }
        tutti_pipeline_free(table);
    }
    printf("changed tables of %d ranks: %ld end, %ld do not\n", p, ending - ended, stuck - before);
    CHECK(ending > ended && stuck > before);
}

static unsigned random_seed = 1;
static int random_below(int limit)
{
    return rand_r(&random_seed) % limit;
}

/* A table that ends: ranks go on in any order and do anything that can be done. Then some steps are swapped, perhaps. */
static tutti_pipeline *random_table(int swaps)
{
    int p = 1 + random_below(5), v = 1 + random_below(3), m = 1 + random_below(5), places[15];
    tutti_pipeline_step steps[5][128];
    size_t counts[5] = {0};
    int stages = p * v, done[15][5] = {{0}}; /* 1: F, 2: and I, 3: and W or B */
    for (int s = 0; s < stages; s++) places[s] = s % p;
    for (int s = stages; s-- > 1;) {
        int other = random_below(s + 1), keep = places[s];
        places[s] = places[other];
        places[other] = keep;
    }
    for (int left = 2 * stages * m; left > 0;) {
        int s = random_below(stages), micro = random_below(m), chunk = 0, rank = places[s], *now = &done[s][micro];
        for (int t = 0; t < s; t++) chunk += places[t] == rank;
        tutti_pipeline_part part;
        if (*now == 0 && (s == 0 || done[s - 1][micro] > 0)) {
            part = TUTTI_PIPELINE_FORWARD;
            *now = 1;
            left--;
        } else if (*now == 1 && (s == stages - 1 || done[s + 1][micro] > 1)) {
            bool whole = random_below(2) == 0;
            part = whole ? TUTTI_PIPELINE_BACKWARD : TUTTI_PIPELINE_INPUT;
            *now = whole ? 3 : 2;
            left -= whole;
        } else if (*now == 2) {
            part = TUTTI_PIPELINE_WEIGHTS;
            *now = 3;
            left--;
        } else {
            continue;
        }
        steps[rank][counts[rank]++] = (tutti_pipeline_step){part, chunk, micro};
    }
    for (; swaps > 0; swaps--) {
        int rank = random_below(p);
        size_t a = (size_t)random_below((int)counts[rank]), b = (size_t)random_below((int)counts[rank]);
        tutti_pipeline_step keep = steps[rank][a];
        steps[rank][a] = steps[rank][b];
        steps[rank][b] = keep;
    }
    tutti_pipeline *made = NULL;
    CHECK(tutti_pipeline_create(p, v, m, places, &made, NULL) == TUTTI_OK);
    for (int rank = 0; rank < p; rank++)
        for (size_t i = 0; i < counts[rank]; i++) tutti_pipeline_add(made, rank, steps[rank][i], NULL);
    return made;
}

static void test_random(void)
{
    long before = stuck, ended = ending;
    for (int i = 0; i < (SANITIZED ? 300 : 4000); i++) {
        int swaps = random_below(4);
        tutti_pipeline *table = random_table(swaps);
        tutti_pipeline_times times = {random_below(9) / 4.0, random_below(9) / 4.0, random_below(9) / 4.0};
        tutti_pipeline_verdict verdict = {.struct_size = sizeof verdict};
        compare(table, "random");
        tutti_status status = tutti_pipeline_check(table, &times, 1, &verdict, NULL);
        CHECK(swaps > 0 || status == TUTTI_OK);
        if (status == TUTTI_OK) {
            double known = pipeline_brute_makespan(table, &times);
            CHECK_THAT(verdict.makespan == known, "%g, not %g", verdict.makespan, known);
        }
        tutti_pipeline_free(table);
    }
    printf("random tables: %ld end, %ld do not\n", ending - ended, stuck - before);
    CHECK(ending > ended && stuck > before);
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static tutti_status parse(const char *text, tutti_pipeline **made, tutti_error *error)
{
    char path[] = "/tmp/tutti-test-pipeline-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    fputs(text, file);
    fclose(file);
    tutti_status status = tutti_pipeline_read(path, made, error);
    remove(path);
    return status;
}

/* The sentence names the line, and has these words. */
static void refused_text(const char *text, int line, const char *words)
{
    tutti_pipeline *made = NULL;
    tutti_error error = {.text = ""};
    char place[16];
    snprintf(place, sizeof place, ":%d: ", line);
    CHECK_THAT(parse(text, &made, &error) != TUTTI_OK && made == NULL, "taken: %s", text);
    CHECK_THAT(strstr(error.text, words) != NULL && (line == 0 || strstr(error.text, place) != NULL),
               "\"%s\" has no \"%s\" or %s", error.text, words, place);
}

/* Taken as a file, and refused by the check. */
static void refused_table(const char *text, int rank, const char *words)
{
    tutti_pipeline *made = NULL;
    tutti_error error = {.text = ""};
    tutti_status status = parse(text, &made, &error);
    CHECK_THAT(status == TUTTI_OK, "%s", error.text);
    if (status != TUTTI_OK) return;
    CHECK(tutti_pipeline_check(made, NULL, 0, NULL, &error) == TUTTI_ERR_ARGUMENT && error.rank == rank);
    CHECK_THAT(strstr(error.text, words) != NULL, "\"%s\" has no \"%s\"", error.text, words);
    tutti_pipeline_free(made);
}

static void test_files(void)
{
    refused_text("", 0, "has no steps");
    refused_text("ranks 2\n\nmicro x\n", 3, "'micro' needs a number from 1 to 1048576, not 'x'");
    refused_text("ranks 2\nranks 3\n", 2, "'ranks' is said twice");
    refused_text("ranks 2 3\n", 1, "'3' behind the number of 'ranks'");
    refused_text("micro 2\nrank 0: F0\n", 2, "'ranks' must be said before this, such as 'ranks 4'");
    refused_text("ranks 2\nmicro 2\nrank 2: F0\n", 3, "'rank 2:' names no rank");
    refused_text("ranks 2\nmicro 2\nrank 0 F0\n", 3, "'rank 0' names no rank");
    refused_text("ranks 2\nmicro 2\nrank 0: F0 X1\n", 3, "'X1' is no step");
    refused_text("ranks 2\nmicro 2\nrank 0: F0 F2\n", 3, "F2: there is no micro-batch 2; they are 0 to 1");
    refused_text("ranks 2\nmicro 2\nrank 0: F0 F1.1\n", 3, "F1.1: there is no chunk 1; chunks are 0 to 0");
    refused_text("ranks 2\nmicro 2\nrank 0: F0\nchunks 2\n", 4, "'chunks' must stand before the steps");
    refused_text("ranks 2\nmicro 2\nstages 0\n", 3, "1 stages; 2 ranks with 1 chunks each have 2");
    refused_text("ranks 2\nmicro 2\nstages 0 2\n", 3, "'2' is no rank");
    refused_text("ranks 2\nmicro 2\nstages 0 0\nrank 0: F0\n", 0, "stage 1 is one more of rank 0");
    refused_text("ranks 60000\nmicro 60\nrank 0: F0\n", 3, "need 7200000 steps at least");
    refused_text("ranks 70000\n", 1, "'ranks' needs a number from 1 to 65536, not '70000'");
    refused_text("rings 2\n", 1, "'rings' is none of ranks, chunks, micro, stages and rank");
    refused_table("ranks 2\nmicro 2\nrank 0: F0 F1 B0 B1\nrank 1: F0 B0 F1\n", 1,
                  "rank 1 has no step B1, nor I1 and W1");
    refused_table("ranks 1\nmicro 1\nrank 0: F0 I0\n", 0, "rank 0 has no step W0");
    refused_table("ranks 1\nmicro 1\nrank 0: F0 W0\n", 0, "rank 0 has no step I0");
    refused_table("ranks 1\nmicro 1\nrank 0: F0 B0 W0\n", 0, "rank 0 does B0 as its step 2 and W0 as its step 3");
    refused_table("ranks 1\nmicro 1\nrank 0: F0 I0 B0\n", 0, "rank 0 does I0 as its step 2 and B0 as its step 3");
    refused_table("ranks 1\nmicro 2\nrank 0: F0 F1 B0 B0 B1\n", 0, "rank 0 does B0 twice, as its steps 3 and 4");
    refused_table("ranks 2\nmicro 1 # one\nrank 0: B0 F0\nrank 1: F0 B0\n", 0,
                  "deadlock: rank 0's step 1, B0, waits for F0 of rank 0, its step 2");
    refused_table(
        "ranks 2\nmicro 2\nrank 0: F0 B0 F1 B1\nrank 1: F0 F1 B0 B1\n", 0,
        "deadlock: rank 0's step 2, B0, waits for B0 of rank 1, its step 3; rank 1's step 2, F1, waits for F1 of "
        "rank 0, its step 3");
    tutti_pipeline *made = NULL;
    CHECK(tutti_pipeline_read("/nowhere", &made, NULL) != TUTTI_OK && made == NULL);
}

/* What was written is read as the same table. */
static void test_written(const tutti_pipeline *table)
{
    char *text = NULL, *again = NULL;
    size_t bytes;
    tutti_pipeline *read = NULL;
    tutti_error error;
    FILE *stream = open_memstream(&text, &bytes);
    tutti_pipeline_write(table, stream);
    fclose(stream);
    tutti_status status = parse(text, &read, &error);
    CHECK_THAT(status == TUTTI_OK, "%s", error.text);
    if (status == TUTTI_OK) {
        stream = open_memstream(&again, &bytes);
        tutti_pipeline_write(read, stream);
        fclose(stream);
        const char *steps = text[0] == '#' ? strchr(text, '\n') + 1 : text;
        CHECK_THAT(strcmp(steps, again) == 0, "%s is read as %s", text, again);
    }
    tutti_pipeline_free(read);
    free(text);
    free(again);
}

static void test_round_trips(void)
{
    const char *name;
    for (size_t i = 0; (name = tutti_pipeline_names(i)) != NULL; i++) {
        tutti_pipeline *table = build(name, 4, 0, 8);
        test_written(table);
        tutti_pipeline_free(table);
    }
    for (int i = 0; i < 20; i++) {
        tutti_pipeline *table = random_table(2);
        test_written(table);
        tutti_pipeline_free(table);
    }
}

int main(void)
{
    test_known();
    test_all_sizes();
    test_refusals();
    test_small();
    test_changes(2, 4);
    test_changes(3, 3);
    test_random();
    test_files();
    test_round_trips();
    return check_end();
}
