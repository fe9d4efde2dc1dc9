/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/blas_core.h"

#include "base/log.h"
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* The features of a CPU that kernels need; each level includes all of the one below it. */
enum level { ANY, AVX, AVX2, AVX512, LEVELS };

static const struct {
    /* the features for people; and the value of OPENBLAS_CORETYPE for kernels that every CPU of the level can run */
    const char *features, *core;
} levels[LEVELS] = {
    [ANY] = {"", ""},
    [AVX] = {"AVX", "SANDYBRIDGE"},
    [AVX2] = {"AVX2 and FMA", "HASWELL"},
    [AVX512] = {"AVX-512", "SKYLAKEX"},
};

/* All kernels that OpenBLAS has for x86. An unknown CPU is never taken for one of AMD's Bulldozer family. */
static const struct {
    const char *name;
    enum level level;
} cores[] = {
    {"Katmai", ANY},        {"Coppermine", ANY},
    {"Northwood", ANY},     {"Prescott", ANY},
    {"Banias", ANY},        {"Atom", ANY},
    {"Core2", ANY},         {"Penryn", ANY},
    {"Dunnington", ANY},    {"Nehalem", ANY},
    {"Athlon", ANY},        {"Opteron", ANY},
    {"Opteron_SSE3", ANY},  {"Barcelona", ANY},
    {"Bobcat", ANY},        {"Nano", ANY},
    {"Sandybridge", AVX},   {"Bulldozer", AVX2},
    {"Piledriver", AVX2},   {"Steamroller", AVX2},
    {"Excavator", AVX2},    {"Haswell", AVX2},
    {"Zen", AVX2},          {"SkylakeX", AVX512},
    {"Cooperlake", AVX512}, {"SapphireRapids", AVX512},
};

static char kernels[64] = "unknown", why[320], fix[200];
static bool is_old, is_asked;

/* Returns the level of a core. A name that is not in the list is newer than the list. */
static enum level level_of(const char *core)
{
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++)
        if (strcasecmp(cores[i].name, core) == 0) return cores[i].level;
    return AVX512;
}

#if defined(__x86_64__)
static enum level level_of_cpu(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx")) return ANY;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return AVX;
    bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512vl");
    return wide ? AVX512 : AVX2;
}
#else
static enum level level_of_cpu(void)
{
    return ANY; /* here the library's own choice is trusted */
}
#endif

/* ---- The library ------------------------------------------------------------------------------------------------- */

static const char *ask(void *library, const char *function)
{
    char *(*tell)(void) = NULL;
    void *found = dlsym(library, function);
    memcpy(&tell, &found, sizeof found); /* C has no cast from object pointers to function pointers */
    return found == NULL ? NULL : tell();
}

/* Returns the name of the kernels that the library has chosen, or NULL. */
static const char *core_of(void *library)
{
    return ask(library, "openblas_get_corename");
}

/* Unloads the library. Returns false if the process uses it elsewhere, too, and it stays. */
static bool unload(void *library)
{
    struct link_map *map = NULL;
    char *path = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? strdup(map->l_name) : NULL;
    if (path == NULL) return false;
    dlclose(library);
    /* if it is still loaded, takes back the reference that dlclose gave up */
    void *still = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    free(path);
    return still == NULL;
}

/* Loads the library with OPENBLAS_CORETYPE in the environment. Ranks are threads, and others may be reading the
 * environment: setenv might move it while they read, and unsetenv might make them miss a variable. So the library sees
 * a copy with one more variable, which is in place while the library is loaded and never freed; readers find the one or
 * the other. A thread that sets a variable meanwhile makes an array of its own, which then stays. */
static void *open_as(const char *core, tti_core_open *open)
{
    static char **with, setting[64];
    char **before = environ;
    size_t count = 0;
    while (before != NULL && before[count] != NULL) count++;
    with = malloc((count + 2) * sizeof *with);
    if (with == NULL) return open();
    snprintf(setting, sizeof setting, "OPENBLAS_CORETYPE=%s", core);
    if (count > 0) memcpy(with, before, count * sizeof *with);
    with[count] = setting;
    with[count + 1] = NULL;
    environ = with;
    void *library = open();
    if (environ == with) environ = before;
    return library;
}

/* ---- What is said about them --------------------------------------------------------------------------------------- */

static void note_kernels(const char *core)
{
    snprintf(kernels, sizeof kernels, "%s", core);
}

static void note_asked(const char *core, const char *asked, enum level best)
{
    const bool obeyed = strcasecmp(core, asked) == 0;
    is_old = level_of(core) < best;
    is_asked = obeyed;
    if (obeyed)
        snprintf(why, sizeof why, "as OPENBLAS_CORETYPE says");
    else
        snprintf(why, sizeof why, "OpenBLAS's own choice; it does not know OPENBLAS_CORETYPE=%.60s", asked);
    if (!obeyed) tti_log(TUTTI_WARN, "OpenBLAS does not know OPENBLAS_CORETYPE=%.60s; it took %s", asked, core);
    if (!is_old) return;
    snprintf(why + strlen(why), sizeof why - strlen(why), "; they are older than this CPU, whose %s allows %s",
             levels[best].features, levels[best].core);
    snprintf(fix, sizeof fix, "unset OPENBLAS_CORETYPE, or set it to %s", levels[best].core);
}

static void note_old(const char *reason, const char *remedy, enum level best)
{
    is_old = true;
    snprintf(why, sizeof why, "older than this CPU, whose %s allows %s: %s", levels[best].features, levels[best].core,
             reason);
    snprintf(fix, sizeof fix, "%s", remedy);
    tti_log(TUTTI_WARN, "OpenBLAS multiplies with its kernels for %s, %s; training is slow. To do: %s", kernels, why,
            fix);
}

static void note_chosen(const char *first, enum level best)
{
    snprintf(why, sizeof why, "chosen by this CPU's features (%s); by itself OpenBLAS took those for %.32s",
             levels[best].features, first);
    tti_log(TUTTI_INFO, "OpenBLAS multiplies with its kernels for %s, %s", kernels, why);
}

/* ---- Choosing ------------------------------------------------------------------------------------------------------ */

/* Tries the best kernels that the CPU can run, then lesser ones, since a library may have been built without some. */
static void *find_better(void *library, tti_core_open *reopen, enum level best)
{
    char first[sizeof kernels], remedy[160];
    memcpy(first, kernels, sizeof first);
    const enum level taken = level_of(first);
    enum level now = taken;
    for (enum level level = best; level > taken && now < level; level--) {
        if (!unload(library)) {
            snprintf(remedy, sizeof remedy, "set OPENBLAS_CORETYPE=%s before the program starts", levels[best].core);
            note_old("the program uses OpenBLAS itself, which chooses when it is first loaded", remedy, best);
            return library;
        }
        library = open_as(levels[level].core, reopen);
        const char *core = library == NULL ? NULL : core_of(library);
        if (core == NULL) return library;
        note_kernels(core);
        now = level_of(core);
    }
    if (now >= best)
        note_chosen(first, best);
    else
        note_old("this OpenBLAS has no better ones", "install a newer OpenBLAS, built for all CPUs (DYNAMIC_ARCH)",
                 best);
    return library;
}

void *tti_core_fit(void *library, tti_core_open *reopen)
{
    static const char remedy[] = "install one that was built for all CPUs, with DYNAMIC_ARCH (Debian: apt-get install "
                                 "libopenblas0-pthread)";
    const char *core = core_of(library), *config = ask(library, "openblas_get_config");
    const char *asked = getenv("OPENBLAS_CORETYPE");
    const enum level best = level_of_cpu();
    snprintf(why, sizeof why, "OpenBLAS's own choice for this CPU");
    if (core == NULL || config == NULL) return library;
    note_kernels(core);
    if (asked != NULL && asked[0] != '\0') {
        note_asked(core, asked, best);
        return library;
    }
    if (level_of(core) >= best) return library;
    if (strstr(config, "DYNAMIC_ARCH") == NULL)
        note_old("this OpenBLAS was built for one CPU alone", remedy, best);
    else if (reopen == NULL)
        note_old("OpenBLAS could not start its threads, and is not loaded again", "raise the limit, ulimit -u", best);
    else
        return find_better(library, reopen, best);
    return library;
}

void tutti_blas_describe(tutti_blas_about *about)
{
    *about = (tutti_blas_about){
        .struct_size = sizeof *about, .kernels = kernels, .why = why, .fix = fix, .old = is_old, .asked = is_asked};
}
