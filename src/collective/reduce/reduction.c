/* SPDX-License-Identifier: Apache-2.0
 *
 * The reductions that exist, and the types on which they may be used: the one table behind docs/reductions.md, and the
 * registry of the reductions that programs add.
 *
 * Invariant: an entry of the registry never changes once `registered` counts it, so only adding takes the lock.
 */
#include "collective/reduce/reduce.h"

#include "base/latest.h"
#include "base/status.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- Types ----------------------------------------------------------------------------------------------------- */

enum type_class { CLASS_FLOAT, CLASS_INTEGER, CLASS_BOOL, CLASS_COUNT };

struct type_row {
    const char *name;
    enum type_class class;
    double low, high; /* factors of a scaled sum: low <= factor < high */
};

static const struct type_row types[TUTTI_TYPE_COUNT] = {
    [TUTTI_F64] = {.name = "f64", .class = CLASS_FLOAT},
    [TUTTI_F32] = {.name = "f32", .class = CLASS_FLOAT},
    [TUTTI_F16] = {.name = "f16", .class = CLASS_FLOAT},
    [TUTTI_BF16] = {.name = "bf16", .class = CLASS_FLOAT},
    [TUTTI_F8E4M3] = {.name = "f8e4m3", .class = CLASS_FLOAT},
    [TUTTI_F8E5M2] = {.name = "f8e5m2", .class = CLASS_FLOAT},
    [TUTTI_I8] = {.name = "i8", .class = CLASS_INTEGER, .low = -0x1p7, .high = 0x1p7},
    [TUTTI_U8] = {.name = "u8", .class = CLASS_INTEGER, .low = 0, .high = 0x1p8},
    [TUTTI_I16] = {.name = "i16", .class = CLASS_INTEGER, .low = -0x1p15, .high = 0x1p15},
    [TUTTI_U16] = {.name = "u16", .class = CLASS_INTEGER, .low = 0, .high = 0x1p16},
    [TUTTI_I32] = {.name = "i32", .class = CLASS_INTEGER, .low = -0x1p31, .high = 0x1p31},
    [TUTTI_U32] = {.name = "u32", .class = CLASS_INTEGER, .low = 0, .high = 0x1p32},
    [TUTTI_I64] = {.name = "i64", .class = CLASS_INTEGER, .low = -0x1p63, .high = 0x1p63},
    [TUTTI_U64] = {.name = "u64", .class = CLASS_INTEGER, .low = 0, .high = 0x1p64},
    [TUTTI_BOOL] = {.name = "bool", .class = CLASS_BOOL},
};

static const unsigned char type_bytes[TUTTI_TYPE_COUNT] = {
#define TYPE_BYTES(name, bytes) [TUTTI_##name] = (bytes),
    TUTTI_TYPE_LIST(TYPE_BYTES)
#undef TYPE_BYTES
};

static bool type_known(tutti_type type)
{
    return (unsigned)type < TUTTI_TYPE_COUNT;
}

size_t tutti_type_bytes(tutti_type type)
{
    return type_known(type) ? type_bytes[type] : 0;
}

const char *tutti_type_name(tutti_type type)
{
    return type_known(type) ? types[type].name : "unknown";
}

/* ---- What each pair does --------------------------------------------------------------------------------------- */

static const char *const built_in_names[TUTTI_REDUCTION_COUNT] = {
    [TUTTI_SUM] = "sum", [TUTTI_PROD] = "prod", [TUTTI_MIN] = "min", [TUTTI_MAX] = "max",
    [TUTTI_AVG] = "avg", [TUTTI_AND] = "and",   [TUTTI_OR] = "or",   [TUTTI_XOR] = "xor",
};

static const char scaled_sum_name[] = "scaled_sum";

/* One sentence for each pair that is an error; NULL: the pair is defined. The column past the built-in ones is the
 * scaled sum. */
enum { COLUMN_SCALED_SUM = TUTTI_REDUCTION_COUNT, COLUMNS };

#define NO_BITS "and, or and xor take integers and bool; floats take sum, prod, min, max, avg or a scaled sum"
static const char *const refused[CLASS_COUNT][COLUMNS] = {
    [CLASS_FLOAT] = {[TUTTI_AND] = NO_BITS, [TUTTI_OR] = NO_BITS, [TUTTI_XOR] = NO_BITS},
    [CLASS_BOOL] = {[TUTTI_AVG] = "an average of truth values is not one: bool takes sum, prod, min, max, and, or, xor",
                    [COLUMN_SCALED_SUM] = "truth values cannot be scaled: a scaled sum takes floats and integers"},
};

/* ---- The registry ---------------------------------------------------------------------------------------------- */

enum { REGISTRY_MAX = 4096, NAME_BYTES = 64 };

struct entry {
    char name[NAME_BYTES];
    tutti_reduce_function *function; /* NULL: a scaled sum */
    void *context;
    double factor;
    uint32_t signature;
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry registry[REGISTRY_MAX];
static atomic_int registered; /* entries in use */

/* FNV-1a: ranks of different processes compare reductions by name, in 32 bits. */
static uint32_t name_hash(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

static const struct entry *find_entry(tutti_reduction reduction)
{
    int index = (int)reduction - TUTTI_REDUCTION_USER;
    if (index < 0 || index >= atomic_load_explicit(&registered, memory_order_acquire)) return NULL;
    return &registry[index];
}

const char *tutti_reduction_name(tutti_reduction reduction)
{
    if ((unsigned)reduction < TUTTI_REDUCTION_COUNT) return built_in_names[reduction];
    const struct entry *entry = find_entry(reduction);
    return entry ? entry->name : "unknown";
}

/* Returns true if a reduction has this hash already: two names that ranks could not tell apart must not both exist. */
static bool signature_taken(uint32_t signature, int count)
{
    for (int i = 0; i < TUTTI_REDUCTION_COUNT; i++)
        if (signature == name_hash(built_in_names[i])) return true;
    for (int i = 0; i < count; i++)
        if (registry[i].function && signature == registry[i].signature) return true;
    return signature == name_hash(scaled_sum_name);
}

/* Reports an error. There is no comm that could keep the reason. */
static tutti_status decline(tutti_status status, const char *what, const char *name, const char *why,
                            tutti_error *error)
{
    tti_error_set(error, status, 0, "tutti_reduction_%s: \"%.64s\": %s", what, name, why);
    return tti_latest_stray("reduction", status, "tutti_reduction_%s: \"%.64s\": %s", what, name, why);
}

static tutti_status decline_one_more(const char *what, const char *name, tutti_error *error)
{
    return decline(TUTTI_ERR_LIMIT, what, name, "this process has registered as many reductions as it can, 4096",
                   error);
}

static tutti_status add_function(const char *name, tutti_reduce_function *function, void *context,
                                 tutti_reduction *reduction, tutti_error *error)
{
    int count = atomic_load_explicit(&registered, memory_order_relaxed);
    uint32_t signature = name_hash(name);
    for (int i = 0; i < count; i++) { /* ranks that are threads each register their reductions */
        const struct entry *entry = &registry[i];
        if (entry->function != function || entry->context != context || strcmp(entry->name, name) != 0) continue;
        *reduction = (tutti_reduction)(TUTTI_REDUCTION_USER + i);
        return TUTTI_OK;
    }
    if (signature_taken(signature, count))
        return decline(TUTTI_ERR_ARGUMENT, "register", name,
                       "a built-in reduction, or one with another function or context, has this name or its hash",
                       error);
    if (count == REGISTRY_MAX) return decline_one_more("register", name, error);
    struct entry *entry = &registry[count];
    memcpy(entry->name, name, strlen(name) + 1);
    entry->function = function;
    entry->context = context;
    entry->signature = signature;
    atomic_store_explicit(&registered, count + 1, memory_order_release);
    *reduction = (tutti_reduction)(TUTTI_REDUCTION_USER + count);
    return TUTTI_OK;
}

tutti_status tutti_reduction_register(const char *name, tutti_reduce_function *function, void *context,
                                      tutti_reduction *reduction, tutti_error *error)
{
    if (!name || !function || !reduction)
        return decline(TUTTI_ERR_ARGUMENT, "register", name ? name : "",
                       "name, function and the place for the reduction must not be NULL", error);
    if (!name[0] || strlen(name) >= NAME_BYTES)
        return decline(TUTTI_ERR_ARGUMENT, "register", name, "a name has 1 to 63 bytes", error);
    pthread_mutex_lock(&registry_lock);
    tutti_status status = add_function(name, function, context, reduction, error);
    pthread_mutex_unlock(&registry_lock);
    return status;
}

static tutti_status add_factor(double factor, const char *text, tutti_reduction *reduction, tutti_error *error)
{
    int count = atomic_load_explicit(&registered, memory_order_relaxed);
    int index = 0;
    while (index < count && (registry[index].function || memcmp(&registry[index].factor, &factor, sizeof factor) != 0))
        index++;
    if (index == REGISTRY_MAX) return decline_one_more(scaled_sum_name, text, error);
    if (index == count) {
        struct entry *entry = &registry[count];
        snprintf(entry->name, sizeof entry->name, "%s(%s)", scaled_sum_name, text);
        entry->factor = factor;
        entry->signature = name_hash(scaled_sum_name);
        atomic_store_explicit(&registered, count + 1, memory_order_release);
    }
    *reduction = (tutti_reduction)(TUTTI_REDUCTION_USER + index);
    return TUTTI_OK;
}

tutti_status tutti_reduction_scaled_sum(double factor, tutti_reduction *reduction, tutti_error *error)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", factor);
    if (!reduction)
        return decline(TUTTI_ERR_ARGUMENT, scaled_sum_name, text, "the place for the reduction is NULL", error);
    if (!isfinite(factor)) return decline(TUTTI_ERR_ARGUMENT, scaled_sum_name, text, "a factor must be finite", error);
    pthread_mutex_lock(&registry_lock);
    tutti_status status = add_factor(factor, text, reduction, error);
    pthread_mutex_unlock(&registry_lock);
    return status;
}

/* ---- A reduction checked against a type ------------------------------------------------------------------------ */

static tutti_status refuse(tutti_status status, tutti_type type, tutti_reduction reduction, const char *text, char *why,
                           size_t why_bytes)
{
    if (why && why_bytes)
        snprintf(why, why_bytes, "%s of %s: %s", tutti_reduction_name(reduction), tutti_type_name(type), text);
    return status;
}

static const char *factor_problem(double factor, tutti_type type)
{
    if (types[type].class == CLASS_INTEGER) {
        bool whole = floor(factor) == factor && factor >= types[type].low && factor < types[type].high;
        return whole ? NULL : "with an integer type the factor must be a whole number that the type can represent";
    }
    if (type != TUTTI_F64 && isinf((float)factor)) return "the factor is used as an f32, and is too large for one";
    return NULL;
}

static const char *entry_problem(const struct entry *entry, tutti_type type)
{
    if (entry->function) return NULL;
    const char *problem = refused[types[type].class][COLUMN_SCALED_SUM];
    return problem ? problem : factor_problem(entry->factor, type);
}

tutti_status tti_reducer_init(struct tti_reducer *reducer, tutti_type type, tutti_reduction reduction, char *why,
                              size_t why_bytes)
{
    if (!type_known(type))
        return refuse(TUTTI_ERR_TYPE, type, reduction, "there is no such type; TUTTI_F64 to TUTTI_BOOL are accepted",
                      why, why_bytes);
    if ((unsigned)reduction < TUTTI_REDUCTION_COUNT) {
        const char *problem = refused[types[type].class][reduction];
        if (problem) return refuse(TUTTI_ERR_TYPE, type, reduction, problem, why, why_bytes);
        *reducer = (struct tti_reducer){
            .type = type, .code = (int)reduction, .signature = name_hash(built_in_names[reduction])};
        return TUTTI_OK;
    }
    const struct entry *entry = find_entry(reduction);
    if (!entry)
        return refuse(TUTTI_ERR_ARGUMENT, type, reduction,
                      "no such reduction; TUTTI_SUM to TUTTI_XOR and what this process registered are accepted", why,
                      why_bytes);
    const char *problem = entry_problem(entry, type);
    if (problem)
        return refuse(types[type].class == CLASS_BOOL ? TUTTI_ERR_TYPE : TUTTI_ERR_ARGUMENT, type, reduction, problem,
                      why, why_bytes);
    *reducer = (struct tti_reducer){.type = type,
                                    .code = entry->function ? TTI_REDUCE_FUNCTION : TTI_REDUCE_SCALED_SUM,
                                    .factor = entry->factor,
                                    .function = entry->function,
                                    .context = entry->context,
                                    .signature = entry->signature};
    return TUTTI_OK;
}
