/* SPDX-License-Identifier: Apache-2.0 */
#include "device/library.h"

#include "base/status.h"
#include "device/nccl_api.h"
#include "device/nvrtc.h"
#include "device/open.h"
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACES_TEXT = 360, REASON_TEXT = 200 };

/* The state of one search. */
struct search {
    const struct tti_library *library;
    void *handle;
    char *path;
    char places[PLACES_TEXT]; /* the places that were searched */
    char reason[REASON_TEXT]; /* why a file that exists could not be loaded */
};

/* ---- Trying one place -------------------------------------------------------------------------------------------- */

static void add_place(struct search *search, const char *format, const char *place)
{
    size_t used = strlen(search->places);
    if (used > 0 && used < sizeof search->places - 2) {
        (void)snprintf(search->places + used, sizeof search->places - used, ", ");
        used += 2;
    }
    (void)snprintf(search->places + used, sizeof search->places - used, format, place);
}

static bool try_file(struct search *search, const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL) {
        search->handle = handle;
        (void)snprintf(search->path, TTI_LIBRARY_PATH, "%s", path);
        return true;
    }
    const char *reason = dlerror();
    if (strchr(path, '/') != NULL && access(path, F_OK) == 0 && reason != NULL)
        (void)snprintf(search->reason, sizeof search->reason, "%s", reason);
    return false;
}

static bool try_folder(struct search *search, const char *folder)
{
    char path[TTI_LIBRARY_PATH];
    for (int i = 0; i < TTI_LIBRARY_FILES && search->library->files[i] != NULL; i++) {
        (void)snprintf(path, sizeof path, "%.480s/%s", folder, search->library->files[i]);
        if (access(path, F_OK) == 0 && try_file(search, path)) return true;
    }
    return false;
}

static bool try_glob(struct search *search, const char *pattern)
{
    glob_t found;
    bool loaded = false;
    if (glob(pattern, 0, NULL, &found) != 0) return false;
    for (size_t i = 0; i < found.gl_pathc && !loaded; i++) loaded = try_folder(search, found.gl_pathv[i]);
    globfree(&found);
    return loaded;
}

/* ---- The places -------------------------------------------------------------------------------------------------- */

/* Tries TUTTI_CUDA_PATH: folders with colons between them, or files whose name is one of the library's. */
static bool try_cuda_path(struct search *search)
{
    tutti_options options;
    (void)tutti_options_init(&options, NULL);
    if (options.cuda_path[0] == '\0') return false;
    add_place(search, "TUTTI_CUDA_PATH (%.80s)", options.cuda_path);
    for (const char *at = options.cuda_path; *at != '\0';) {
        char one[TTI_LIBRARY_PATH];
        size_t length = strcspn(at, ":");
        struct stat about;
        (void)snprintf(one, sizeof one, "%.*s", (int)length, at);
        at += length + (at[length] == ':');
        if (stat(one, &about) != 0) continue;
        if (S_ISDIR(about.st_mode) && try_folder(search, one)) return true;
        const char *base = strrchr(one, '/') == NULL ? one : strrchr(one, '/') + 1;
        for (int i = 0; i < TTI_LIBRARY_FILES && search->library->files[i] != NULL; i++)
            if (strcmp(base, search->library->files[i]) == 0 && try_file(search, one)) return true;
    }
    return false;
}

static bool try_loader(struct search *search)
{
    add_place(search, "%s", "the loader's path");
    for (int i = 0; i < TTI_LIBRARY_FILES && search->library->files[i] != NULL; i++)
        if (try_file(search, search->library->files[i])) return true;
    return false;
}

/* Tries where a toolkit has its libraries, without the folder of stubs, which are only for linking. */
static bool try_toolkit(struct search *search, const char *format, const char *home)
{
    static const char *const below[] = {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "compat"};
    add_place(search, format, home);
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        char folder[TTI_LIBRARY_PATH];
        (void)snprintf(folder, sizeof folder, "%.400s/%s", home, below[i]);
        if (try_folder(search, folder)) return true;
    }
    return false;
}

/* Tries the toolkits that variables name, or the usual one. Conda installs a toolkit in its environment itself. */
static bool try_toolkits(struct search *search)
{
    const char *home = getenv("CUDA_HOME"), *path = getenv("CUDA_PATH"), *conda = getenv("CONDA_PREFIX");
    bool has_home = home != NULL && home[0] != '\0', has_path = path != NULL && path[0] != '\0';
    if (has_home && try_toolkit(search, "CUDA_HOME (%.80s)", home)) return true;
    if (has_path && try_toolkit(search, "CUDA_PATH (%.80s)", path)) return true;
    if (!has_home && !has_path && try_toolkit(search, "%s", "/usr/local/cuda")) return true;
    return conda != NULL && conda[0] != '\0' && try_toolkit(search, "CONDA_PREFIX (%.80s)", conda);
}

/* Tries the nvidia packages of an environment: PREFIX/lib/python3.12/site-packages/nvidia/nccl/lib. Debian has its own
 * packages in dist-packages, and those installed besides below PREFIX/local. */
static bool try_python(struct search *search, const char *prefix)
{
    static const char *const below[] = {"lib/python3*/site-packages", "lib/python3*/dist-packages",
                                        "local/lib/python3*/dist-packages"};
    char pattern[TTI_LIBRARY_PATH];
    if (prefix == NULL || prefix[0] == '\0') return false;
    add_place(search, "Python's packages below %.60s", prefix);
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        (void)snprintf(pattern, sizeof pattern, "%.400s/%s/nvidia/*/lib", prefix, below[i]);
        if (try_glob(search, pattern)) return true;
    }
    return false;
}

/* Tries the packages that `pip install --user` has installed. */
static bool try_user_python(struct search *search)
{
    const char *base = getenv("PYTHONUSERBASE"), *home = getenv("HOME");
    char prefix[TTI_LIBRARY_PATH];
    if (base != NULL && base[0] != '\0') return try_python(search, base);
    if (home == NULL || home[0] == '\0') return false;
    (void)snprintf(prefix, sizeof prefix, "%.400s/.local", home);
    return try_python(search, prefix);
}

/* Finds the prefix of the python3 that the shell would start. */
static bool python_prefix(char prefix[TTI_LIBRARY_PATH])
{
    const char *path = getenv("PATH");
    for (const char *at = path == NULL ? "" : path; *at != '\0';) {
        size_t length = strcspn(at, ":");
        char one[TTI_LIBRARY_PATH];
        (void)snprintf(one, sizeof one, "%.*s/python3", (int)(length < 400 ? length : 400), at);
        at += length + (at[length] == ':');
        if (access(one, X_OK) != 0) continue;
        *strrchr(one, '/') = '\0';
        char *folder = strrchr(one, '/');
        if (folder == NULL) continue;
        *folder = '\0';
        (void)snprintf(prefix, TTI_LIBRARY_PATH, "%s", one[0] == '\0' ? "/usr" : one);
        return true;
    }
    return false;
}

static bool try_pythons(struct search *search)
{
    char prefix[TTI_LIBRARY_PATH];
    const char *environment = getenv("VIRTUAL_ENV"), *conda = getenv("CONDA_PREFIX");
    if (try_python(search, environment) || try_python(search, conda)) return true;
    if (try_user_python(search)) return true;
    if (!python_prefix(prefix)) return false;
    if (environment != NULL && strcmp(prefix, environment) == 0) return false;
    return try_python(search, prefix);
}

tutti_status tti_library_open(const struct tti_library *library, void **handle, char path[TTI_LIBRARY_PATH],
                              tutti_error *error)
{
    struct search search = {.library = library, .path = path};
    if (try_cuda_path(&search) || try_loader(&search) || try_toolkits(&search) || try_pythons(&search)) {
        *handle = search.handle;
        return TUTTI_OK;
    }
    if (search.reason[0] != '\0')
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "%s cannot be loaded: %s", library->files[0],
                             search.reason);
    return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "%s was not found in %s: %s", library->files[0],
                         search.places, library->comes_with);
}

/* ---- The libraries ------------------------------------------------------------------------------------------------ */

/* Writes CUDA's version, which counts thousands and tens: 12040 is 12.4. */
static bool cuda_version(void *handle, char *text, size_t bytes)
{
    int (*version)(int *) = (int (*)(int *))dlsym(handle, "cuDriverGetVersion"), number = 0;
    if (version == NULL || version(&number) != 0) return false;
    (void)snprintf(text, bytes, "%d.%d", number / 1000, number % 1000 / 10);
    return true;
}

static bool nvrtc_version(void *handle, char *text, size_t bytes)
{
    int (*version)(int *, int *) = (int (*)(int *, int *))dlsym(handle, "nvrtcVersion"), major = 0, minor = 0;
    if (version == NULL || version(&major, &minor) != 0) return false;
    (void)snprintf(text, bytes, "%d.%d", major, minor);
    return true;
}

/* Writes NCCL's version: 22203 is 2.22.3. */
static bool nccl_version(void *handle, char *text, size_t bytes)
{
    int (*version)(int *) = (int (*)(int *))dlsym(handle, "ncclGetVersion"), number = 0;
    if (version == NULL || version(&number) != 0) return false;
    (void)snprintf(text, bytes, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
    return true;
}

const struct tti_library tti_library_cuda = {
    .name = "cuda",
    .files = {"libcuda.so.1"},
    .comes_with = "it comes with NVIDIA's driver; install that on a machine with a GPU",
    .version = cuda_version,
};

const struct tti_library tti_library_nvrtc = {
    .name = "nvrtc",
    .files = {"libnvrtc.so.13", "libnvrtc.so.12"},
    .comes_with = "it comes with the CUDA toolkit, and with Python's package nvidia-cuda-nvrtc",
    .version = nvrtc_version,
    .check = tti_nvrtc_check,
};

const struct tti_library tti_library_nccl = {
    .name = "nccl",
    .files = {"libnccl.so.2"},
    .comes_with = "Debian and Ubuntu have it as libnccl2 from NVIDIA, Python as nvidia-nccl-cu13 or -cu12",
    .version = nccl_version,
    .check = tti_nccl_check,
    .describe = tti_nccl_describe,
};

tutti_status tutti_library_find(const char *name, tutti_library *found, tutti_error *error)
{
    static const struct tti_library *const all[] = {&tti_library_cuda, &tti_library_nvrtc, &tti_library_nccl};
    tutti_error none;
    tutti_library about = {.struct_size = sizeof about};
    void *handle = NULL;
    error = tti_error_begin(error, &none, "library_find");
    if (name == NULL || found == NULL || found->struct_size < sizeof about)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the name is NULL, or struct_size is not set");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i]->name, name) != 0) continue;
        TTI_TRY(tti_library_open(all[i], &handle, about.path, error));
        if (all[i]->check != NULL) TTI_TRY(all[i]->check(handle, about.path, error));
        if (!all[i]->version(handle, about.version, sizeof about.version))
            return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                                 "%s does not tell its version: it is none of NVIDIA's", about.path);
        if (all[i]->describe != NULL) all[i]->describe(handle, about.has, sizeof about.has);
        memcpy(found, &about, sizeof about);
        return TUTTI_OK;
    }
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "\"%.32s\" is no library; give cuda, nvrtc or nccl", name);
}
