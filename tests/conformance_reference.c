/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance_reference.h"

#include "reference_value.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t conf_hash(uint64_t a, uint64_t b)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) + b * UINT64_C(0xd1342543de82ef95) + UINT64_C(0x632be59bd9b4e019);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* ---- Small floats ---------------------------------------------------------------------------------------------- */

struct format {
    int exponent_bits, mantissa_bits, bias;
    unsigned end; /* the first code that is not a finite number */
    unsigned nan; /* the one that is written */
    bool has_infinity;
};

static const struct format formats[TUTTI_TYPE_COUNT] = {
    [TUTTI_F16] = {5, 10, 15, 0x7c00, 0x7e00, true},
    [TUTTI_BF16] = {8, 7, 127, 0x7f80, 0x7fc0, true},
    [TUTTI_F8E4M3] = {4, 3, 7, 0x7f, 0x7f, false},
    [TUTTI_F8E5M2] = {5, 2, 15, 0x7c, 0x7f, true},
};

static double *sizes[TUTTI_TYPE_COUNT]; /* value of each code from 0 to `end`, of small floats */

static bool is_small_float(tutti_type type)
{
    return formats[type].exponent_bits != 0;
}

static double size_of_code(const struct format *format, unsigned code)
{
    int exponent = (int)(code >> format->mantissa_bits);
    double mantissa = ldexp((double)(code & ((1u << format->mantissa_bits) - 1)), -format->mantissa_bits);
    return exponent != 0 ? ldexp(1 + mantissa, exponent - format->bias) : ldexp(mantissa, 1 - format->bias);
}

static float decode(tutti_type type, unsigned code)
{
    const struct format *format = &formats[type];
    unsigned sign = 1u << (format->exponent_bits + format->mantissa_bits), size = code & (sign - 1);
    double value = size < format->end ? sizes[type][size] : (double)NAN;
    if (size == format->end && format->has_infinity) value = (double)INFINITY;
    return (float)((code & sign) != 0 ? -value : value);
}

/* The nearest code, the even one of two that are as near. */
static unsigned encode(tutti_type type, float value)
{
    const struct format *format = &formats[type];
    unsigned sign = signbit(value) ? 1u << (format->exponent_bits + format->mantissa_bits) : 0;
    if (isnan(value)) return format->nan;
    double size = fabs((double)value);
    unsigned low = 0, high = format->end;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (sizes[type][middle] <= size)
            low = middle;
        else
            high = middle;
    }
    double below = size - sizes[type][low], above = sizes[type][low + 1] - size;
    unsigned code = below < above || (below == above && low % 2 == 0) ? low : low + 1;
    if (code < format->end) return code | sign;
    return format->has_infinity ? format->end | sign : format->nan;
}

/* ---- One element ----------------------------------------------------------------------------------------------- */

static union value load(tutti_type type, const unsigned char *at)
{
    union value value = {.bits = 0};
    memcpy(&value.bits, at, tutti_type_bytes(type)); /* little-endian */
    if (is_small_float(type))
        value.f32 = decode(type, (unsigned)value.bits);
    else if (is_integer(type))
        value.bits = wrap(type, value.bits);
    else if (type == TUTTI_BOOL)
        value.bits = value.bits != 0;
    return value;
}

static void store(tutti_type type, union value value, unsigned char *at)
{
    if (is_small_float(type)) value.bits = encode(type, value.f32);
    memcpy(at, &value.bits, tutti_type_bytes(type));
}

static double smaller_or_larger(double x, double y, bool larger)
{
    if (isnan(x) || isnan(y)) return (double)NAN;
    if (x == y) return (signbit(x) != 0) == larger ? y : x; /* -0 is below +0 */
    return (x > y) == larger ? x : y;
}

static union value fold_float(tutti_type type, int column, union value x, union value y)
{
    bool extreme = column == TUTTI_MIN || column == TUTTI_MAX;
    if (type == TUTTI_F64) {
        if (extreme) return (union value){.f64 = smaller_or_larger(x.f64, y.f64, column == TUTTI_MAX)};
        return (union value){.f64 = column == TUTTI_PROD ? x.f64 * y.f64 : x.f64 + y.f64};
    }
    union value result = {.bits = 0};
    if (extreme)
        result.f32 = (float)smaller_or_larger((double)x.f32, (double)y.f32, column == TUTTI_MAX);
    else
        result.f32 = column == TUTTI_PROD ? x.f32 * y.f32 : x.f32 + y.f32;
    return result;
}

static uint64_t fold_bits(tutti_type type, int column, uint64_t x, uint64_t y)
{
    bool less = is_signed(type) ? (int64_t)x < (int64_t)y : x < y;
    switch (column) {
    case TUTTI_PROD: return wrap(type, x * y);
    case TUTTI_MIN: return less ? x : y;
    case TUTTI_MAX: return less ? y : x;
    case TUTTI_AND: return x & y;
    case TUTTI_OR: return x | y;
    case TUTTI_XOR: return x ^ y;
    case TUTTI_AVG: return x + y; /* in 64 bits */
    default: return wrap(type, x + y);
    }
}

static uint64_t fold_truth(int column, bool x, bool y)
{
    if (column == TUTTI_XOR) return x != y;
    bool all = column == TUTTI_PROD || column == TUTTI_MIN || column == TUTTI_AND;
    return all ? x && y : x || y;
}

/* A function that is not commutative: each byte of left times 3 plus that of right. */
static uint64_t mix_bytes(uint64_t x, uint64_t y, size_t bytes)
{
    uint64_t result = 0;
    for (size_t i = 0; i < bytes; i++) result |= (((x >> (8 * i)) * 3 + (y >> (8 * i))) & 255) << (8 * i);
    return result;
}

static void mix(void *context, void *left, const void *right, size_t count, tutti_type type)
{
    (void)context;
    unsigned char *l = left;
    const unsigned char *r = right;
    for (size_t i = 0; i < count * tutti_type_bytes(type); i++) l[i] = (unsigned char)(l[i] * 3 + r[i]);
}

static union value fold(tutti_type type, int column, union value x, union value y)
{
    if (column == CONF_USER) return (union value){.bits = mix_bytes(x.bits, y.bits, tutti_type_bytes(type))};
    if (type == TUTTI_BOOL) return (union value){.bits = fold_truth(column, x.bits != 0, y.bits != 0)};
    if (is_integer(type)) return (union value){.bits = fold_bits(type, column, x.bits, y.bits)};
    return fold_float(type, column, x, y);
}

static union value tree(tutti_type type, int column, const union value *leaves, int count)
{
    if (count == 1) return leaves[0];
    int left = 1;
    while (left * 2 < count) left *= 2;
    return fold(type, column, tree(type, column, leaves, left), tree(type, column, leaves + left, count - left));
}

/* ---- Scaling and averaging ------------------------------------------------------------------------------------- */

static double factor_of(int rank)
{
    return (double)(rank % 5 + 1);
}

static union value scale(tutti_type type, union value x, double factor)
{
    if (is_integer(type))
        x.bits = wrap(type, x.bits * (uint64_t)factor);
    else if (type == TUTTI_F64)
        x.f64 *= factor;
    else
        x.f32 *= (float)factor;
    return x;
}

static void reduce_element(const struct conf_table *table, int column, int last, size_t i, unsigned char *out)
{
    size_t bytes = tutti_type_bytes(table->type);
    union value leaves[CONF_RANKS_MOST];
    for (int rank = 0; rank <= last; rank++) {
        const unsigned char *at = table->in[rank] + i * bytes;
        if (column == CONF_USER) {
            leaves[rank].bits = 0;
            memcpy(&leaves[rank].bits, at, bytes);
            continue;
        }
        leaves[rank] = load(table->type, at);
        if (column == CONF_SCALED) leaves[rank] = scale(table->type, leaves[rank], factor_of(rank));
    }
    union value result = tree(table->type, column, leaves, last + 1);
    if (column == TUTTI_AVG) result = divide(result, table->type, last + 1);
    if (column == CONF_USER)
        memcpy(out, &result.bits, bytes);
    else
        store(table->type, result, out);
}

/* ---- Reductions by column -------------------------------------------------------------------------------------- */

static tutti_reduction scaled[CONF_RANKS_MOST], user;

void conf_reference_prepare(void)
{
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        if (!is_small_float((tutti_type)type) || sizes[type] != NULL) continue;
        sizes[type] = calloc(formats[type].end + 1, sizeof(double));
        for (unsigned code = 0; code <= formats[type].end; code++)
            sizes[type][code] = size_of_code(&formats[type], code);
    }
    for (int rank = 0; rank < CONF_RANKS_MOST; rank++) tutti_reduction_scaled_sum(factor_of(rank), &scaled[rank], NULL);
    tutti_reduction_register("conformance_mix", mix, NULL, &user, NULL);
}

bool conf_defined(tutti_type type, int column)
{
    bool bits = column == TUTTI_AND || column == TUTTI_OR || column == TUTTI_XOR;
    if (type == TUTTI_BOOL) return column != TUTTI_AVG && column != CONF_SCALED;
    return is_integer(type) || !bits;
}

tutti_reduction conf_reduction(int column, int rank)
{
    if (column == CONF_SCALED) return scaled[rank];
    return column == CONF_USER ? user : (tutti_reduction)column;
}

const char *conf_column_name(int column)
{
    if (column == CONF_SCALED) return "scaled_sum";
    return column == CONF_USER ? "function" : tutti_reduction_name((tutti_reduction)column);
}

/* ---- Tables ---------------------------------------------------------------------------------------------------- */

/* Floats of 8 bits hold every whole number up to 8 or 16. */
static double whole_float(tutti_type type, int size, uint64_t bits)
{
    bool tiny = type == TUTTI_F8E4M3 || type == TUTTI_F8E5M2;
    int most = tiny && size > 4 ? 1 : 2;
    return (double)(int)(bits % (uint64_t)(2 * most + 1)) - most;
}

static double random_float(tutti_type type, uint64_t bits, bool wide)
{
    static const int widths[TUTTI_TYPE_COUNT] = {[TUTTI_F64] = 600,  [TUTTI_F32] = 160,  [TUTTI_F16] = 26,
                                                 [TUTTI_BF16] = 100, [TUTTI_F8E4M3] = 9, [TUTTI_F8E5M2] = 24};
    int width = wide ? widths[type] : 6;
    double number = 1 + (double)(bits >> 12) * 0x1p-52;
    number = ldexp(number, (int)(bits % 4093 % (uint64_t)width) - width / 2);
    if (bits % 61 == 0) number = 0;
    return (bits >> 11 & 1) != 0 ? -number : number;
}

static union value float_of(tutti_type type, double number)
{
    union value value = {.bits = 0};
    if (type == TUTTI_F64)
        value.f64 = number;
    else
        value.f32 = (float)number;
    return value;
}

static void fill_rank(struct conf_table *table, int rank, uint64_t seed, enum conf_values values)
{
    size_t bytes = tutti_type_bytes(table->type);
    for (size_t i = 0; i < table->count; i++) {
        uint64_t bits = conf_hash(seed + (uint64_t)rank * 1000003, i);
        unsigned char *at = table->in[rank] + i * bytes;
        if (table->type == TUTTI_BOOL)
            *at = bits % 3 == 0 ? 0 : (unsigned char)(bits % 7 == 0 ? bits >> 56 | 1 : 1); /* any byte is true */
        else if (is_integer(table->type))
            memcpy(at, &bits, bytes);
        else if (values == CONF_WHOLE)
            store(table->type, float_of(table->type, whole_float(table->type, table->size, bits)), at);
        else
            store(table->type, float_of(table->type, random_float(table->type, bits, values == CONF_WIDE)), at);
    }
}

void conf_table_fill(struct conf_table *table, tutti_type type, int size, size_t count, uint64_t seed,
                     enum conf_values values)
{
    memset(table, 0, sizeof *table);
    table->type = type;
    table->size = size;
    table->count = count;
    for (int rank = 0; rank < size; rank++) {
        table->in[rank] = malloc(count * tutti_type_bytes(type) + 1);
        fill_rank(table, rank, seed, values);
    }
}

void conf_table_reduce(struct conf_table *table, int column, int last)
{
    unsigned char **out = &table->reduced[column][last];
    if (*out != NULL || !conf_defined(table->type, column)) return;
    size_t bytes = tutti_type_bytes(table->type);
    *out = malloc(table->count * bytes + 1);
    for (size_t i = 0; i < table->count; i++) reduce_element(table, column, last, i, *out + i * bytes);
}

void conf_table_free(struct conf_table *table)
{
    for (int rank = 0; rank < CONF_RANKS_MOST; rank++) {
        free(table->in[rank]);
        for (int column = 0; column < CONF_COLUMNS; column++) free(table->reduced[column][rank]);
    }
    memset(table, 0, sizeof *table);
}
