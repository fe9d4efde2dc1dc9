/* SPDX-License-Identifier: Apache-2.0
 *
 * The reduction kernels against a naive serial reference: every type, reduction, instruction set and shape of call.
 */
#include "check.h"
#include "reduce_reference.h"

#include "collective/reduce/copy.h"
#include "collective/reduce/reduce.h"
#include "collective/reduce/reduce_kernels.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCES_MAX = 17, DSTS_MAX = 9, COUNT_MAX = 4097, GUARD = 128, SCALED = TUTTI_REDUCTION_COUNT, FUNCTION, KINDS };
enum { APART = 5 * 64, PAGE = 4096 };

static const struct tti_kernels *const sets[] = {
    &tti_kernels_portable,
#if defined(__x86_64__)
    &tti_kernels_avx2,
    &tti_kernels_avx512,
#endif
};
enum { SETS = sizeof sets / sizeof *sets };

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * 0x2545f4914f6cdd1du;
}

static unsigned pick(unsigned below)
{
    return (unsigned)((random_bits() >> 33) % below);
}

/* A function whose result tells the order of its calls: bytes of left * 3 + right, as bytes. */
static void mix(void *context, void *left, const void *right, size_t count, tutti_type type)
{
    unsigned char *l = left;
    const unsigned char *r = right;
    if ((uintptr_t)left % tutti_type_bytes(type) || (uintptr_t)right % tutti_type_bytes(type)) ++*(int *)context;
    for (size_t i = 0; i < count * tutti_type_bytes(type); i++) l[i] = (unsigned char)(l[i] * 3 + r[i]);
}

static unsigned char mix_tree(const unsigned char *leaves, int count)
{
    if (count == 1) return leaves[0];
    int half = 1;
    while (half * 2 < count) half *= 2;
    return (unsigned char)(mix_tree(leaves, half) * 3 + mix_tree(leaves + half, count - half));
}

/* ---- Cases ----------------------------------------------------------------------------------------------------- */

static unsigned char *sources[SOURCES_MAX]; /* COUNT_MAX elements of 8 bytes */
static unsigned char *expected;
static unsigned char *work[SOURCES_MAX + DSTS_MAX]; /* with guards */
static double factors[SOURCES_MAX];
static struct tti_reducer reducers[TUTTI_TYPE_COUNT][KINDS];
static bool defined[TUTTI_TYPE_COUNT][KINDS];
static int misaligned_calls;

static void fill_float(unsigned char *at, tutti_type type)
{
    static const double special[] = {0.0, -0.0, 1.0, -1.0, 448, -448, 464, 480, 65504, 65520, -65536, 57344, 61440};
    unsigned what = pick(8);
    uint64_t bits = random_bits();
    union value value = {.bits = bits};
    if ((what == 2 || what == 3) &&
        type != TUTTI_F8E4M3) { /* large ones that cancel, so that small ones tell the order */
        static const double far[] = {49152, -49152, 49152, -49152, 0x1p-14, 3 * 0x1p-16, 0x1p30, -0x1p30};
        double chosen = far[pick(type == TUTTI_F16 || type == TUTTI_F8E5M2 ? 6 : 8)];
        value.f64 = chosen;
        if (type != TUTTI_F64) value.f32 = (float)chosen;
        put(at, type, value);
        return;
    }
    double plain = what == 0 ? special[pick(sizeof special / sizeof *special)]
                             : ldexp((double)(int64_t)bits * 0x1p-63, (int)pick(12) - 4);
    if (what == 1) { /* any bits: NaN, infinity and subnormals too */
        memcpy(at, &bits, tutti_type_bytes(type));
        return;
    }
    if (type == TUTTI_F64)
        value.f64 = plain;
    else
        value.f32 = (float)plain;
    put(at, type, value);
}

static void fill_sources(tutti_type type)
{
    size_t bytes = tutti_type_bytes(type);
    for (int s = 0; s < SOURCES_MAX; s++) {
        factors[s] = is_integer(type) ? (double)pick(100) - (is_signed(type) ? 50 : 0) : (double)pick(4096) / 256 - 7.3;
        for (size_t i = 0; i < COUNT_MAX; i++) {
            uint64_t bits = random_bits();
            unsigned char *at = sources[s] + i * bytes;
            if (!is_integer(type) && type != TUTTI_BOOL)
                fill_float(at, type);
            else if (type == TUTTI_BOOL && bits % 5 != 0)
                *at = (unsigned char)(bits % 5 > 2 ? 1 : 0);
            else
                memcpy(at, &bits, bytes);
        }
    }
}

static void expect_mix(int source_count, size_t bytes, unsigned char *out)
{
    unsigned char leaves[SOURCES_MAX];
    for (size_t i = 0; i < bytes; i++) {
        for (int s = 0; s < source_count; s++) leaves[s] = sources[s][i];
        out[i] = mix_tree(leaves, source_count);
    }
}

static void expect(tutti_type type, int kind, int source_count, size_t count, unsigned char *out)
{
    size_t bytes = tutti_type_bytes(type);
    union value leaves[SOURCES_MAX];
    if (kind == FUNCTION) {
        expect_mix(source_count, count * bytes, out);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        for (int s = 0; s < source_count; s++) {
            leaves[s] = get(sources[s] + i * bytes, type);
            if (kind == SCALED) leaves[s] = scale(leaves[s], type, factors[s]);
        }
        union value value = tree(leaves, source_count, type, kind == SCALED ? TUTTI_SUM : kind);
        put(out + i * bytes, type, kind == TUTTI_AVG ? divide(value, type, source_count) : value);
    }
}

/* Bits, except that any NaN of f32 and f64 is as good as another. */
static bool same(const unsigned char *got, const unsigned char *want, size_t count, tutti_type type)
{
    size_t bytes = tutti_type_bytes(type);
    if (memcmp(got, want, count * bytes) == 0) return true;
    for (size_t i = 0; i < count; i++) {
        if (memcmp(got + i * bytes, want + i * bytes, bytes) == 0) continue;
        union value a = get(got + i * bytes, type), b = get(want + i * bytes, type);
        bool nans = (type == TUTTI_F64 && isnan(a.f64) && isnan(b.f64)) ||
                    (type == TUTTI_F32 && isnan(a.f32) && isnan(b.f32));
        if (!nans) {
            printf("element %zu: bits %llx, expected %llx\n", i, (unsigned long long)a.bits,
                   (unsigned long long)b.bits);
            return false;
        }
    }
    return true;
}

static bool guarded(const unsigned char *buffer, size_t begin, size_t bytes)
{
    for (size_t i = 0; i < GUARD; i++)
        if (buffer[begin - 1 - i] != 0xa5 || buffer[begin + bytes + i] != 0xa5) return false;
    return true;
}

/* A buffer of its own for every operand, at any offset from a line, with guards around it. */
static unsigned char *place(int which, size_t bytes, size_t shift, const unsigned char *content)
{
    unsigned char *begin = work[which] + GUARD + shift;
    memset(begin - GUARD, 0xa5, bytes + 2 * GUARD);
    if (content) memcpy(begin, content, bytes);
    return begin;
}

struct shape {
    int source_count, dst_count;
    size_t count;
    bool stream, in_place, aligned, apart;
};

/* Buffers are whole lines from each other if aligned; then they begin at the same line of a page, or apart. */
static size_t shift_of(const struct shape *shape, int which)
{
    if (!shape->aligned) return pick(64);
    return shape->apart ? (size_t)which * APART % PAGE : 0;
}

static void check_reduce(const char *set, tutti_type type, int kind, const struct shape *shape)
{
    size_t bytes = shape->count * tutti_type_bytes(type), shifts[SOURCES_MAX + DSTS_MAX];
    const void *in[SOURCES_MAX];
    void *out[DSTS_MAX];
    for (int s = 0; s < shape->source_count; s++) {
        shifts[s] = shift_of(shape, s);
        in[s] = place(s, bytes, shifts[s], sources[s]);
    }
    for (int k = 0; k < shape->dst_count; k++) {
        shifts[SOURCES_MAX + k] = shift_of(shape, SOURCES_MAX + k);
        out[k] = place(SOURCES_MAX + k, bytes, shifts[SOURCES_MAX + k], NULL);
    }
    int taken = (int)pick((unsigned)shape->source_count);
    for (int k = 0; shape->in_place && k < shape->dst_count && k < shape->source_count; k++)
        out[k] = work[(taken + k) % shape->source_count] + GUARD + shifts[(taken + k) % shape->source_count];
    tti_reduce(&reducers[type][kind], in, kind == SCALED ? factors : NULL, shape->source_count, out, shape->dst_count,
               shape->count, shape->stream);
    bool right = true;
    for (int k = 0; k < shape->dst_count; k++) right = right && same(out[k], expected, shape->count, type);
    for (int s = 0; s < shape->source_count; s++)
        right = right && guarded(work[s], GUARD + shifts[s], bytes) &&
                (shape->in_place || memcmp(in[s], sources[s], bytes) == 0);
    for (int k = 0; k < shape->dst_count; k++)
        right = right && guarded(work[SOURCES_MAX + k], GUARD + shifts[SOURCES_MAX + k], bytes);
    CHECK_THAT(right, "%s %s, reduction %d, %d sources, %d destinations, %zu elements%s%s", set, tutti_type_name(type),
               kind, shape->source_count, shape->dst_count, shape->count, shape->stream ? ", stream" : "",
               shape->in_place ? ", in place" : "");
}

static void check_shapes(tutti_type type, int kind, int source_count)
{
    static const size_t counts[] = {0, 1, 7, 8, 9, 63, 64, 65, 1000, COUNT_MAX};
    expect(type, kind, source_count, COUNT_MAX, expected);
    for (int set = 0; set < SETS; set++) {
        if (!tti_kernels_force(sets[set]->name)) continue;
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            for (int variant = 0; variant < 4; variant++) {
                if (counts[c] >= 1000 && variant != (int)pick(4)) continue; /* the long ones take turns */
                struct shape shape = {.source_count = source_count,
                                      .dst_count = 1 + (int)pick(DSTS_MAX),
                                      .count = counts[c],
                                      .stream = variant & 1,
                                      .in_place = variant & 2,
                                      .aligned = pick(3) > 0,
                                      .apart = pick(2)};
                check_reduce(sets[set]->name, type, kind, &shape);
            }
        }
    }
}

static void test_reduce(void)
{
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        fill_sources((tutti_type)type);
        for (int kind = 0; kind < KINDS; kind++)
            for (int n = 1; defined[type][kind] && n <= SOURCES_MAX; n++) check_shapes((tutti_type)type, kind, n);
    }
    CHECK_THAT(misaligned_calls == 0, "a user's function saw %d misaligned operands", misaligned_calls);
}

/* ---- Scans ----------------------------------------------------------------------------------------------------- */

static void check_scan(const char *set, tutti_type type, int kind, int n, bool exclusive, bool in_place, bool stream)
{
    size_t count = 1100, bytes = count * tutti_type_bytes(type);
    const void *in[SOURCES_MAX];
    void *out[SOURCES_MAX];
    static unsigned char *results[SOURCES_MAX];
    int skipped = n > 3 ? n / 2 : -1;
    for (int s = 0; s < n; s++) {
        if (!results[s]) results[s] = malloc(COUNT_MAX * 8);
        in[s] = place(s, bytes, pick(3) * 8, sources[s]);
        memset(results[s], 0xa5, COUNT_MAX * 8);
        out[s] = s == skipped ? NULL : in_place ? work[s] + ((const unsigned char *)in[s] - work[s]) : results[s];
    }
    tti_scan(&reducers[type][kind], in, kind == SCALED ? factors : NULL, n, out, exclusive, count, stream);
    bool right = true;
    for (int r = 0; r < n; r++) {
        if (exclusive && r == 0) {
            right = right && (in_place ? memcmp(out[0], sources[0], bytes) == 0 : results[0][0] == 0xa5);
        } else if (r != skipped) {
            expect(type, kind, exclusive ? r : r + 1, count, expected);
            right = right && same(out[r], expected, count, type);
        }
    }
    CHECK_THAT(right, "%s scan of %s, reduction %d, %d sources%s%s", set, tutti_type_name(type), kind, n,
               exclusive ? ", exclusive" : "", in_place ? ", in place" : "");
}

static void test_scan(void)
{
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        fill_sources((tutti_type)type);
        for (int kind = 0; kind < KINDS; kind++) {
            for (int variant = 0; defined[type][kind] && variant < 4; variant++) {
                int set = (int)pick(SETS);
                if (tti_kernels_force(sets[set]->name))
                    check_scan(sets[set]->name, (tutti_type)type, kind, 1 + (int)pick(9), variant & 1, variant & 2,
                               pick(2));
            }
        }
    }
}

/* ---- Conversions ----------------------------------------------------------------------------------------------- */

static uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void check_decode(const struct tti_kernels *set, const struct format *format)
{
    enum { CODES = 65536 };
    static uint16_t wide[CODES];
    static uint8_t narrow[CODES];
    static float values[CODES];
    size_t bytes = tutti_type_bytes(format->type), codes = bytes == 2 ? CODES : 256;
    for (unsigned i = 0; i < codes; i++) {
        wide[i] = (uint16_t)i;
        narrow[i] = (uint8_t)i;
    }
    const void *in = bytes == 2 ? (const void *)wide : narrow;
    set->rows[format->type][TUTTI_SUM].load(values, &in, NULL, 1, codes);
    int wrong = 0;
    for (unsigned i = 0; i < codes; i++) {
        float want = reference_decode(format, i);
        wrong += !(isnan(want) ? isnan(values[i]) : f32_bits(want) == f32_bits(values[i]));
    }
    CHECK_THAT(wrong == 0, "%s decodes %d codes of %s wrongly", set->name, wrong, tutti_type_name(format->type));
}

enum { ROUNDINGS = 1 << 19 };
static float inputs[ROUNDINGS];

/* Every tie between neighbours and what lies next to it, every value and what lies next to it; then any bits. */
static void fill_roundings(const struct format *format)
{
    size_t used = 0;
    for (unsigned code = 0; code < format->infinity; code++) {
        float value = (float)magnitude(format, code);
        float tie = (float)((magnitude(format, code) + magnitude(format, code + 1)) / 2);
        float near[] = {value, nextafterf(value, INFINITY), nextafterf(value, 0),
                        tie,   nextafterf(tie, INFINITY),   nextafterf(tie, 0)};
        for (size_t i = 0; i < sizeof near / sizeof *near; i++) inputs[used++] = code % 2 ? -near[i] : near[i];
    }
    while (used < ROUNDINGS) {
        uint64_t bits = random_bits();
        uint32_t exponent = (uint32_t)(125 - format->bias - format->mantissa_bits);
        exponent += pick(2u * (unsigned)format->bias + 9);
        uint32_t chosen = used % 2 ? (uint32_t)bits : (uint32_t)(bits & 0x807fffffu) | (exponent & 0xff) << 23;
        memcpy(&inputs[used++], &chosen, sizeof chosen);
    }
}

static void check_encode(const struct tti_kernels *set, const struct format *format, const uint16_t *wanted)
{
    static uint16_t wide[ROUNDINGS];
    static uint8_t narrow[ROUNDINGS];
    bool two = tutti_type_bytes(format->type) == 2;
    const void *in = inputs;
    set->rows[format->type][TUTTI_SUM].store(two ? (void *)wide : narrow, &in, NULL, 1, ROUNDINGS);
    int wrong = 0;
    for (size_t i = 0; i < ROUNDINGS; i++) {
        unsigned got = two ? wide[i] : narrow[i];
        if (got != wanted[i] && wrong++ == 0)
            printf("%a is written as %x, expected %x\n", (double)inputs[i], got, wanted[i]);
    }
    CHECK_THAT(wrong == 0, "%s encodes %d values as %s wrongly", set->name, wrong, tutti_type_name(format->type));
}

static void test_conversions(void)
{
    static uint16_t wanted[ROUNDINGS];
    for (int f = 0; f < FORMATS; f++) {
        fill_roundings(&formats[f]);
        for (size_t i = 0; i < ROUNDINGS; i++) wanted[i] = (uint16_t)reference_encode(&formats[f], inputs[i]);
        for (int set = 0; set < SETS; set++) {
            if (!sets[set]->usable()) continue;
            check_decode(sets[set], &formats[f]);
            check_encode(sets[set], &formats[f], wanted);
        }
    }
}

/* ---- The registry ---------------------------------------------------------------------------------------------- */

static void prepare_reducers(void)
{
    tutti_reduction scaled, function;
    char why[200];
    CHECK_THAT(tutti_reduction_scaled_sum(3, &scaled, NULL) == TUTTI_OK, "scaled sum");
    CHECK_THAT(tutti_reduction_register("mix", mix, &misaligned_calls, &function, NULL) == TUTTI_OK, "register");
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        for (int kind = 0; kind < KINDS; kind++) {
            tutti_reduction reduction = kind == SCALED ? scaled : kind == FUNCTION ? function : (tutti_reduction)kind;
            bool bits = kind == TUTTI_AND || kind == TUTTI_OR || kind == TUTTI_XOR;
            bool number = is_integer((tutti_type)type), truth = type == TUTTI_BOOL;
            defined[type][kind] = truth ? kind != TUTTI_AVG && kind != SCALED : number || !bits;
            why[0] = 0;
            tutti_status status = tti_reducer_init(&reducers[type][kind], (tutti_type)type, reduction, why, sizeof why);
            CHECK_THAT((status == TUTTI_OK) == defined[type][kind] && (status == TUTTI_OK) == !why[0], "%s %s: %d %s",
                       tutti_type_name((tutti_type)type), tutti_reduction_name(reduction), (int)status, why);
            for (int set = 0; set < SETS && kind != FUNCTION; set++)
                CHECK_THAT((sets[set]->rows[type][kind].accumulator_bytes != 0) == defined[type][kind],
                           "%s: the rows of %s", sets[set]->name, tutti_type_name((tutti_type)type));
        }
    }
}

static tutti_status scaled_status(double factor, tutti_type type)
{
    tutti_reduction reduction;
    struct tti_reducer reducer;
    char why[200] = "";
    if (tutti_reduction_scaled_sum(factor, &reduction, NULL) != TUTTI_OK) return TUTTI_ERR_SYSTEM;
    tutti_status status = tti_reducer_init(&reducer, type, reduction, why, sizeof why);
    return (status == TUTTI_OK) == !why[0] ? status : TUTTI_ERR_SYSTEM;
}

static void test_factors(void)
{
    CHECK_THAT(scaled_status(0.5, TUTTI_F32) == TUTTI_OK, "a half");
    CHECK_THAT(scaled_status(0.5, TUTTI_I32) == TUTTI_ERR_ARGUMENT, "a half of an integer");
    CHECK_THAT(scaled_status(-128, TUTTI_I8) == TUTTI_OK, "the smallest i8");
    CHECK_THAT(scaled_status(128, TUTTI_I8) == TUTTI_ERR_ARGUMENT, "too large for i8");
    CHECK_THAT(scaled_status(-1, TUTTI_U64) == TUTTI_ERR_ARGUMENT, "negative for u64");
    CHECK_THAT(scaled_status(0x1p64, TUTTI_U64) == TUTTI_ERR_ARGUMENT, "too large for u64");
    CHECK_THAT(scaled_status(0x1p63, TUTTI_U64) == TUTTI_OK, "fits u64");
    CHECK_THAT(scaled_status(0x1p63, TUTTI_I64) == TUTTI_ERR_ARGUMENT, "too large for i64");
    CHECK_THAT(scaled_status(1e300, TUTTI_BF16) == TUTTI_ERR_ARGUMENT, "too large for f32");
    CHECK_THAT(scaled_status(1e300, TUTTI_F64) == TUTTI_OK, "fits f64");
    CHECK_THAT(scaled_status(1, TUTTI_BOOL) == TUTTI_ERR_TYPE, "bool");
    tutti_reduction reduction;
    CHECK_THAT(tutti_reduction_scaled_sum((double)NAN, &reduction, NULL) == TUTTI_ERR_ARGUMENT, "NaN");
    CHECK_THAT(tutti_reduction_scaled_sum((double)INFINITY, &reduction, NULL) == TUTTI_ERR_ARGUMENT, "infinity");
}

static void test_registry(void)
{
    tutti_reduction a, b, unknown = (tutti_reduction)40000;
    struct tti_reducer x, y;
    char why[200];
    CHECK_THAT(tutti_reduction_scaled_sum(0.25, &a, NULL) == TUTTI_OK, "a factor");
    CHECK_THAT(tutti_reduction_scaled_sum(0.25, &b, NULL) == TUTTI_OK && a == b, "the same factor");
    CHECK_THAT(tutti_reduction_scaled_sum(0.75, &b, NULL) == TUTTI_OK && a != b, "another factor");
    tti_reducer_init(&x, TUTTI_F32, a, why, sizeof why);
    tti_reducer_init(&y, TUTTI_F32, b, why, sizeof why);
    CHECK_THAT(x.signature == y.signature && x.factor == 0.25 && y.factor == 0.75, "factors may differ");
    tti_reducer_init(&y, TUTTI_F32, TUTTI_SUM, why, sizeof why);
    CHECK_THAT(x.signature != y.signature, "a scaled sum is not a sum");
    CHECK_THAT(tutti_reduction_register("mix", mix, NULL, &a, NULL) == TUTTI_ERR_ARGUMENT, "the same name again");
    CHECK_THAT(tutti_reduction_register("sum", mix, NULL, &a, NULL) == TUTTI_ERR_ARGUMENT, "a built-in name");
    CHECK_THAT(tutti_reduction_register("", mix, NULL, &a, NULL) == TUTTI_ERR_ARGUMENT, "no name");
    CHECK_THAT(tutti_reduction_register(NULL, mix, NULL, &a, NULL) == TUTTI_ERR_ARGUMENT, "NULL name");
    CHECK_THAT(tutti_reduction_register("none", NULL, NULL, &a, NULL) == TUTTI_ERR_ARGUMENT, "NULL function");
    CHECK_THAT(tutti_reduction_register("other", mix, NULL, &a, NULL) == TUTTI_OK && a >= TUTTI_REDUCTION_USER,
               "another name");
    CHECK_THAT(strcmp(tutti_reduction_name(a), "other") == 0, "a registered name");
    CHECK_THAT(strcmp(tutti_reduction_name(TUTTI_MAX), "max") == 0, "a built-in name");
    CHECK_THAT(tti_reducer_init(&x, TUTTI_F32, unknown, why, sizeof why) == TUTTI_ERR_ARGUMENT, "unknown reduction");
    CHECK_THAT(tti_reducer_init(&x, TUTTI_TYPE_COUNT, TUTTI_SUM, why, sizeof why) == TUTTI_ERR_TYPE, "unknown type");
    CHECK_THAT(tutti_type_bytes(TUTTI_TYPE_COUNT) == 0 && tutti_type_bytes(TUTTI_BF16) == 2, "type bytes");
    test_factors();
    tutti_status status = TUTTI_OK;
    for (int i = 0; status == TUTTI_OK && i < 100000; i++) status = tutti_reduction_scaled_sum(1000 + i, &a, NULL);
    CHECK_THAT(status == TUTTI_ERR_LIMIT, "a full registry gives %d", (int)status);
    CHECK_THAT(tutti_reduction_scaled_sum(1000, &a, NULL) == TUTTI_OK, "what is registered stays usable");
}

/* ---- Copies ---------------------------------------------------------------------------------------------------- */

static void test_copy(void)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 127, 129, 4096, 30001};
    for (int set = 0; set < SETS; set++) {
        if (!tti_kernels_force(sets[set]->name)) continue;
        CHECK_THAT(strcmp(tti_kernels_name(), sets[set]->name) == 0, "forced %s", sets[set]->name);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            for (int variant = 0; variant < 9; variant++) {
                size_t shift = pick(64);
                unsigned char *to = place(0, sizes[i], shift, NULL);
                tti_copy(to, sources[1] + pick(64), 0, (enum tti_store)(variant % 3));
                const unsigned char *from = sources[1] + pick(64);
                tti_copy(to, from, sizes[i], (enum tti_store)(variant % 3));
                CHECK_THAT(memcmp(to, from, sizes[i]) == 0 && guarded(work[0], GUARD + shift, sizes[i]),
                           "%s, %zu bytes", sets[set]->name, sizes[i]);
            }
        }
    }
    CHECK_THAT(!tti_kernels_force("none"), "unknown kernels");
    CHECK_THAT(tti_kernels_force(NULL), "the best kernels");
}

/* Whatever way it takes: of these copies, which begin as on a machine with slow lines, some are timed. */
static void test_copy_across(void)
{
    static const size_t sizes[] = {0, 1023, 1024, 4095, 4097, 8192};
    struct tti_staged_copy staged_copy = {.pace = TTI_SLOW};
    for (int turn = 0; turn < 3000; turn++) {
        size_t bytes = sizes[turn % 6], shift = pick(64);
        unsigned char *to = place(0, bytes, shift, NULL);
        const unsigned char *from = sources[1] + pick(64);
        tti_copy_across(&staged_copy, to, from, bytes, turn % 2 == 0 ? TTI_ACROSS_FROM : TTI_ACROSS_FROM_IN_BURSTS);
        CHECK_THAT(memcmp(to, from, bytes) == 0 && guarded(work[0], GUARD + shift, bytes), "%zu bytes, turn %d", bytes,
                   turn);
    }
    CHECK_THAT(staged_copy.turn == 1500, "%u of them may go past the caches", staged_copy.turn);
}

/* To up to 9 places, the first of them the source itself. */
static void check_copy_to_all(const char *set, int dst_count, size_t bytes, enum tti_store store, bool aligned,
                              bool in_place)
{
    enum { MOST = 9 };
    size_t shifts[MOST];
    void *dsts[MOST];
    unsigned char *from = place(0, bytes, aligned ? 0 : pick(64), sources[1]);
    bool apart = pick(2);
    for (int k = 0; k < dst_count; k++) {
        shifts[k] = !aligned ? pick(64) : apart ? (size_t)(1 + k) * APART : 64;
        dsts[k] = k == 0 && in_place ? from : place(1 + k, bytes, shifts[k], NULL);
    }
    tti_copy_to_all(dsts, dst_count, from, bytes, store);
    for (int k = 0; k < dst_count; k++)
        CHECK_THAT(memcmp(dsts[k], sources[1], bytes) == 0 &&
                       ((k == 0 && in_place) || guarded(work[1 + k], GUARD + shifts[k], bytes)),
                   "%s, %zu bytes, %d of %d, store %d", set, bytes, k, dst_count, (int)store);
}

static void test_copy_to_all(void)
{
    static const size_t sizes[] = {0, 1, 64, 100, 129, 4096, 16384, 30001};
    for (int set = 0; set < SETS; set++) {
        if (!tti_kernels_force(sets[set]->name)) continue;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int dst_count = 1; dst_count <= 9; dst_count++)
                for (int variant = 0; variant < 12; variant++)
                    check_copy_to_all(sets[set]->name, dst_count, sizes[i], (enum tti_store)(variant % 3),
                                      variant / 3 % 2, variant / 6 % 2);
    }
    CHECK_THAT(tti_kernels_force(NULL), "the best kernels");
}

static void test_swap(void)
{
    static const size_t sizes[] = {0, 1, 64, 100, 129, 4096, 30001};
    for (int set = 0; set < SETS; set++) {
        if (!tti_kernels_force(sets[set]->name)) continue;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t bytes = sizes[i], one_shift = pick(64), other_shift = pick(64);
            unsigned char *one = place(0, bytes, one_shift, sources[1]);
            unsigned char *other = place(1, bytes, other_shift, sources[2]);
            tti_swap(one, other, bytes);
            CHECK_THAT(memcmp(one, sources[2], bytes) == 0 && memcmp(other, sources[1], bytes) == 0, "%zu bytes",
                       bytes);
            CHECK_THAT(guarded(work[0], GUARD + one_shift, bytes) && guarded(work[1], GUARD + other_shift, bytes),
                       "%zu bytes, around", bytes);
        }
    }
    CHECK_THAT(tti_kernels_force(NULL), "the best kernels");
}

int main(void)
{
    size_t bytes = COUNT_MAX * 8;
    expected = malloc(bytes);
    for (int s = 0; s < SOURCES_MAX; s++) sources[s] = calloc(bytes, 1);
    for (int i = 0; i < SOURCES_MAX + DSTS_MAX; i++)
        work[i] = aligned_alloc(PAGE, (bytes + 2 * GUARD) / PAGE * PAGE + 2 * PAGE);
    prepare_reducers();
    test_conversions();
    test_reduce();
    test_scan();
    test_copy();
    test_copy_across();
    test_copy_to_all();
    test_swap();
    test_registry();
    return check_end();
}
