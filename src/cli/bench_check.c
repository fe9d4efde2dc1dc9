/* SPDX-License-Identifier: Apache-2.0
 *
 * Inputs are small whole numbers that follow from (rank, index), so that every rank knows what every other put in and
 * computes the result serially. They are chosen so that results are whole numbers that every type holds exactly:
 * the comparison is of bits, and no order of additions can excuse a difference.
 */
#include "cli/bench.h"

#include <string.h>

enum { PATTERN_VALUES = 256, POISON = 0xa5 };

struct pattern {
    tutti_reduction reduction; /* for a scaled sum, the sum */
    uint32_t factor;           /* the result is multiplied by this */
    int ranks;
    bool boolean;
    bool prefixes;   /* the operation reduces some of the ranks */
    uint32_t span;   /* the largest value */
    uint32_t stride; /* in sums of many ranks in small types, only every stride-th rank puts in more than 0 */
    size_t bytes;    /* bytes of an element */
    uint64_t bits[PATTERN_VALUES]; /* each number in the type's bits */
};

/* ---- Numbers as the types write them ----------------------------------------------------------------------------- */

/* Returns the bits of a whole number as a float of that shape; exact if the mantissa is long enough. */
static uint64_t float_bits(uint32_t number, int mantissa_bits, uint64_t bias)
{
    if (number == 0) return 0;
    int exponent = 0;
    while (number >> (exponent + 1)) exponent++;
    uint64_t fraction = (uint64_t)number << 32 << mantissa_bits >> exponent;
    return (((uint64_t)exponent + bias) << mantissa_bits) + ((fraction >> 32) - ((uint64_t)1 << mantissa_bits));
}

static uint64_t number_bits(tutti_type type, uint32_t number)
{
    switch (type) {
    case TUTTI_F64: {
        double wide = number;
        uint64_t bits;
        memcpy(&bits, &wide, sizeof bits);
        return bits;
    }
    case TUTTI_F32: return float_bits(number, 23, 127);
    case TUTTI_F16: return float_bits(number, 10, 15);
    case TUTTI_BF16: return float_bits(number, 7, 127);
    case TUTTI_F8E4M3: return float_bits(number, 3, 7);
    case TUTTI_F8E5M2: return float_bits(number, 2, 15);
    default: return number;
    }
}

/* Returns the number up to which the type holds every whole number, as far as patterns need them. */
static uint32_t exact_up_to(tutti_type type)
{
    switch (type) {
    case TUTTI_F8E5M2: return 8;
    case TUTTI_F8E4M3: return 16;
    case TUTTI_I8: return 127;
    case TUTTI_BOOL: return 1;
    default: return PATTERN_VALUES - 1;
    }
}

/* ---- The pattern ------------------------------------------------------------------------------------------------- */

static void pattern_init(struct pattern *pattern, const struct bench_case *c, int ranks)
{
    bool scaled = c->reduction >= TUTTI_REDUCTION_USER;
    uint32_t factor = scaled ? BENCH_FACTOR : 1, limit = exact_up_to(c->type) / factor, n = (uint32_t)ranks;
    *pattern = (struct pattern){.reduction = scaled ? TUTTI_SUM : c->reduction,
                                .factor = factor,
                                .ranks = ranks,
                                .boolean = c->type == TUTTI_BOOL};
    pattern->prefixes = c->op->shape == FLOOR_SCAN || c->op->shape == FLOOR_EXSCAN;
    bool adds = c->op->reduces && (pattern->reduction == TUTTI_SUM || pattern->reduction == TUTTI_AVG) &&
                !pattern->boolean;
    pattern->span = adds ? limit / n : limit;
    if (pattern->span > 7) pattern->span = 7;
    if (pattern->span == 0) pattern->span = 1;
    pattern->stride = adds ? (n + limit - 1) / limit : 1;
    pattern->bytes = tutti_type_bytes(c->type);
    for (uint32_t i = 0; i < PATTERN_VALUES; i++) pattern->bits[i] = number_bits(c->type, i);
}

static inline uint32_t mix(uint32_t rank, size_t index)
{
    uint32_t x = (uint32_t)index * 2654435761u ^ (uint32_t)(index >> 32) ^ (rank + 1) * 2246822519u;
    x = (x ^ (x >> 15)) * 2246822519u;
    return x >> 16;
}

/* Returns a rank's value for an average, which must be whole: ranks 2k and 2k+1 put in c+e and c-e, where c and e
 * depend on the index only. Averages of prefixes are whole only if all put in the same. */
static inline uint32_t value_for_average(const struct pattern *pattern, int rank, size_t index)
{
    uint32_t centre = 1 + mix(0, index) % pattern->span, away = mix(1, index) % 2;
    bool alone = rank % 2 == 0 && rank + 1 == pattern->ranks;
    if (alone || pattern->span == 1 || pattern->prefixes) return centre;
    return rank % 2 == 0 ? centre + away : centre - away;
}

/* Returns the value that `rank` has at `index` of its input. */
static inline uint32_t value_at(const struct pattern *pattern, int rank, size_t index)
{
    if (pattern->boolean) return mix((uint32_t)rank, index) % 2;
    switch (pattern->reduction) {
    case TUTTI_PROD: /* at most two factors of 2 */
        return index % (size_t)pattern->ranks == (size_t)rank || index / 3 % (size_t)pattern->ranks == (size_t)rank ? 2
                                                                                                                    : 1;
    case TUTTI_AVG: return value_for_average(pattern, rank, index);
    case TUTTI_SUM:
        if (pattern->stride > 1 && ((size_t)rank + index) % pattern->stride != 0) return 0;
        return 1 + mix((uint32_t)rank, index) % pattern->span;
    default: return mix((uint32_t)rank, index) % (pattern->span + 1);
    }
}

static inline uint32_t combine(const struct pattern *pattern, uint32_t a, uint32_t b)
{
    switch (pattern->reduction) {
    case TUTTI_SUM: return pattern->boolean ? a | b : a + b;
    case TUTTI_AVG: return a + b;
    case TUTTI_PROD: return a * b;
    case TUTTI_MIN: return a < b ? a : b;
    case TUTTI_MAX: return a > b ? a : b;
    case TUTTI_AND: return a & b;
    case TUTTI_OR: return a | b;
    case TUTTI_XOR: return a ^ b;
    default: return a;
    }
}

/* Returns the reduction of ranks 0..ranks-1 at `index`, before an average divides it. */
static inline uint32_t reduced_at(const struct pattern *pattern, int ranks, size_t index)
{
    uint32_t result = value_at(pattern, 0, index);
    for (int r = 1; r < ranks; r++) result = combine(pattern, result, value_at(pattern, r, index));
    return result;
}

/* ---- Filling and comparing --------------------------------------------------------------------------------------- */

static inline void element_put(char *to, const struct pattern *pattern, uint32_t number)
{
    uint64_t bits = pattern->bits[number];
    switch (pattern->bytes) {
    case 1: *(uint8_t *)to = (uint8_t)bits; break;
    case 2: {
        uint16_t word = (uint16_t)bits;
        memcpy(to, &word, 2);
        break;
    }
    case 4: {
        uint32_t word = (uint32_t)bits;
        memcpy(to, &word, 4);
        break;
    }
    default: memcpy(to, &bits, 8);
    }
}

static inline bool element_is(const char *from, const struct pattern *pattern, uint32_t number)
{
    uint64_t bits = 0; /* built in the element's own width, for either byte order */
    switch (pattern->bytes) {
    case 1: bits = *(const uint8_t *)from; break;
    case 2: {
        uint16_t word;
        memcpy(&word, from, 2);
        bits = word;
        break;
    }
    case 4: {
        uint32_t word;
        memcpy(&word, from, 4);
        bits = word;
        break;
    }
    default: memcpy(&bits, from, 8);
    }
    return number < PATTERN_VALUES && bits == pattern->bits[number];
}

/* Counts the wrong ones of `count` elements of `out` from `at` on, which must be those that `rank` put in from `index`
 * on. */
static uint64_t wrong_copies(const struct bench_case *c, const struct pattern *pattern, int rank, size_t index,
                             size_t at, size_t count)
{
    uint64_t wrong = 0;
    const char *out = c->host_out + at * pattern->bytes;
    for (size_t i = 0; i < count; i++)
        wrong += !element_is(out + i * pattern->bytes, pattern, value_at(pattern, rank, index + i));
    return wrong;
}

/* Counts the wrong ones of `count` elements of `out`, which must be the reduction of ranks 0..ranks-1 from `index`
 * on. */
static uint64_t wrong_sums(const struct bench_case *c, const struct pattern *pattern, int ranks, size_t index,
                           size_t count)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t number = reduced_at(pattern, ranks, index + i) * pattern->factor;
        if (pattern->reduction == TUTTI_AVG) number /= (uint32_t)ranks;
        wrong += !element_is(c->host_out + i * pattern->bytes, pattern, number);
    }
    return wrong;
}

/* Counts changed elements of rank 0's output of exscan, which must be as it was: poison, or in place its input. */
static uint64_t wrong_untouched(const struct bench_case *c, const struct pattern *pattern)
{
    uint64_t wrong = 0;
    if (c->in_place) return wrong_copies(c, pattern, 0, 0, 0, c->count);
    for (size_t i = 0; i < c->bytes; i++) wrong += (uint8_t)c->host_out[i] != POISON;
    return wrong;
}

static uint64_t wrong_blocks(const struct bench_rank *self, const struct bench_case *c, const struct pattern *pattern)
{
    uint64_t wrong = 0;
    size_t at = 0;
    bool pairs = c->op->shape == FLOOR_ALL_TO_ALL;
    for (int p = 0; p < self->ranks; at += self->counts[p], p++) {
        size_t index = pairs ? bench_pair_offset(c, self->ranks, p, self->rank) : 0;
        wrong += wrong_copies(c, pattern, p, index, at, self->counts[p]);
    }
    return wrong;
}

static uint64_t wrong_results(const struct bench_rank *self, const struct bench_case *c, const struct pattern *pattern)
{
    size_t own = bench_block_offset(c, self->ranks, self->rank);
    size_t own_count = c->op->blocks ? self->counts[self->rank] : c->count;
    bool at_root = self->rank == c->root;
    switch (c->op->shape) {
    case FLOOR_BARRIER: return 0;
    case FLOOR_ALL_REDUCE: return wrong_sums(c, pattern, self->ranks, 0, c->count);
    case FLOOR_REDUCE: return at_root ? wrong_sums(c, pattern, self->ranks, 0, c->count) : 0;
    case FLOOR_REDUCE_SCATTER: return wrong_sums(c, pattern, self->ranks, own, own_count);
    case FLOOR_SCAN: return wrong_sums(c, pattern, self->rank + 1, 0, c->count);
    case FLOOR_EXSCAN:
        return self->rank > 0 ? wrong_sums(c, pattern, self->rank, 0, c->count) : wrong_untouched(c, pattern);
    case FLOOR_BROADCAST: return wrong_copies(c, pattern, c->root, 0, 0, c->count);
    case FLOOR_ALL_GATHER: return wrong_blocks(self, c, pattern);
    case FLOOR_GATHER: return at_root ? wrong_blocks(self, c, pattern) : 0;
    case FLOOR_SCATTER: return wrong_copies(c, pattern, c->root, own, 0, own_count);
    case FLOOR_ALL_TO_ALL: return wrong_blocks(self, c, pattern);
    case FLOOR_PING_PONG: return self->rank > 1 ? 0 : wrong_copies(c, pattern, 1 - self->rank, 0, 0, c->count);
    }
    return 0;
}

/* Returns how many elements this rank puts in. */
static size_t input_count(const struct bench_rank *self, const struct bench_case *c)
{
    bool own_block = c->op->shape == FLOOR_ALL_GATHER || c->op->shape == FLOOR_GATHER;
    return own_block ? self->counts[self->rank] : c->total;
}

static void fill(struct bench_rank *self, const struct bench_case *c, const struct pattern *pattern)
{
    memset(self->out_buffer, POISON, c->bytes);
    size_t count = input_count(self, c);
    for (size_t i = 0; i < count; i++)
        element_put(c->host_in + i * pattern->bytes, pattern, value_at(pattern, self->rank, i));
}

tutti_status bench_fill(struct bench_rank *self, const struct bench_case *c)
{
    struct pattern pattern;
    pattern_init(&pattern, c, self->ranks);
    fill(self, c, &pattern);
    return bench_device_put(self, c->bytes);
}

tutti_status bench_check(struct bench_rank *self, const struct bench_case *c, uint64_t *wrong)
{
    struct pattern pattern;
    pattern_init(&pattern, c, self->ranks);
    fill(self, c, &pattern);
    tutti_status status = bench_device_put(self, c->bytes);
    if (status == TUTTI_OK) status = c->op->call(self, c);
    if (status == TUTTI_OK) status = bench_device_get(self, c->bytes);
    *wrong = status == TUTTI_OK ? wrong_results(self, c, &pattern) : 0;
    return status;
}
