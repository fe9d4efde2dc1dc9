/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti doctor: other libraries and their versions, as they report them. Loading a library runs its code, so each is
 * tried in a process of its own.
 */
#include "cli/cli.h"
#include "cli/doctor.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/train.h>
#include <unistd.h>

enum { TEXT_BYTES = 768, MPI_TEXT_MOST = 8192, SECONDS_MOST = 10 };

typedef void version_teller(void *function, char *text);

static void tell_text(void *function, char *text)
{
    const char *(*version)(void) = (const char *(*)(void))function;
    (void)snprintf(text, TEXT_BYTES, "%s", version());
}

/* The number is 0xMMmmpp. */
static void tell_hwloc(void *function, char *text)
{
    unsigned (*version)(void) = (unsigned (*)(void))function;
    unsigned number = version();
    (void)snprintf(text, TEXT_BYTES, "%u.%u.%u (API)", number >> 16, number >> 8 & 0xff, number & 0xff);
}

/* MPI allows this call before MPI_Init. */
static void tell_mpi(void *function, char *text)
{
    static char whole[MPI_TEXT_MOST + 1];
    int (*version)(char *, int *) = (int (*)(char *, int *))function, length = 0;
    if (version(whole, &length) != 0) return;
    (void)snprintf(text, TEXT_BYTES, "%.*s", (int)strcspn(whole, ",\n"), whole);
    for (char *c = text; *c != '\0'; c++) *c = *c == '\t' ? ' ' : *c;
}

static const struct library {
    const char *name, *file, *function;
    version_teller *tell;
    const char *package; /* its package in Debian */
    const char *use;
    bool later; /* nothing in this version uses it */
} libraries[] = {
    {"libsodium", "libsodium.so.23", "sodium_version_string", tell_text, "libsodium23", "keys between hosts", false},
    {"hwloc", "libhwloc.so.15", "hwloc_get_api_version", tell_hwloc, "libhwloc15", "tutti run --bind core", false},
    {"OpenBLAS", "libopenblas.so.0", "openblas_get_config", tell_text, "libopenblas0", "matrix products", false},
    {"UCX", "libucp.so.0", "ucp_get_version_string", tell_text, "libucx0", "networks with remote memory access", true},
    {"PMIx", "libpmix.so.2", "PMIx_Get_version", tell_text, "libpmix2", "Open MPI's mpirun on several hosts", false},
    {"Open MPI", "libmpi.so.40", "MPI_Get_library_version", tell_mpi, "libopenmpi3", "comparison, programs with MPI",
     false},
    {"MPICH", "libmpich.so.12", "MPI_Get_library_version", tell_mpi, "libmpich12", "comparison, programs with MPI",
     false},
};

/* In the child: writes the version. Returns false if there is no such library. */
static bool load(const struct library *library, char *text)
{
    void *handle = dlopen(library->file, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) return false;
    void *function = dlsym(handle, library->function);
    (void)snprintf(text, TEXT_BYTES, "there, of unknown version");
    if (function != NULL) library->tell(function, text);
    return true;
}

/* In the child: writes which kernels OpenBLAS uses when the library loads it, as "state|sentence|what to do". */
static bool load_blas(const struct library *unused, char *text)
{
    tutti_blas_about about;
    (void)unused;
    if (tutti_blas_load(NULL) != TUTTI_OK) return false;
    tutti_blas_describe(&about);
    (void)snprintf(text, TEXT_BYTES, "%d|%s, %s|%s",
                   !about.old    ? FOUND_GOOD
                   : about.asked ? FOUND_NOTE
                                 : FOUND_WARNING,
                   about.kernels, about.why, about.fix);
    return true;
}

typedef bool loader(const struct library *library, char *text);

/* Reads what a process of its own writes; returns false if it writes nothing. */
static bool ask(loader *load_it, const struct library *library, char text[TEXT_BYTES])
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (null >= 0) (void)dup2(null, STDERR_FILENO); /* some libraries complain if there is no device */
        (void)alarm(SECONDS_MOST);
        if (load_it(library, text)) (void)!write(ends[1], text, strlen(text));
        _exit(0);
    }
    (void)close(ends[1]);
    ssize_t length = child < 0 ? 0 : read(ends[0], text, TEXT_BYTES - 1); /* the child's alarm bounds it */
    (void)close(ends[0]);
    if (child > 0) (void)waitpid(child, NULL, 0);
    if (length <= 0) return false;
    text[length] = '\0';
    return true;
}

static void tell_of(struct doctor *doctor, const struct library *library)
{
    char text[TEXT_BYTES];
    const char *package = library->package;
    bool here = ask(load, library, text);
    if (here && !library->later)
        doctor_add(doctor, FOUND_GOOD, "library", NULL, "%s: %s (%s)", library->name, text, library->use);
    else if (here)
        doctor_add(doctor, FOUND_NOTE, "library", NULL, "%s: %s; not used by this version, it would be for %s",
                   library->name, text, library->use);
    else if (library->later)
        doctor_add(doctor, FOUND_NOTE, "library", NULL, "%s: not here, nor used by this version; it would be for %s",
                   library->name, library->use);
    else
        doctor_add(doctor, FOUND_NOTE, "library", NULL, "%s: not here (%s%s%s); for %s", library->name, library->file,
                   package == NULL ? "" : ", Debian: ", package == NULL ? "" : package, library->use);
}

/* Reports the kernels of OpenBLAS. Without OpenBLAS it says nothing: that has its own line. */
static void tell_of_kernels(struct doctor *doctor)
{
    char text[TEXT_BYTES], *rest = text;
    if (!ask(load_blas, NULL, text)) return;
    const char *state = strsep(&rest, "|"), *sentence = strsep(&rest, "|"), *fix = rest;
    if (sentence == NULL || fix == NULL) return;
    doctor_add(doctor, (enum finding)atoi(state), "kernels", fix, "matrix products by those of OpenBLAS for %s",
               sentence);
}

void doctor_libraries(struct doctor *doctor)
{
    (void)fflush(stdout);
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) tell_of(doctor, &libraries[i]);
    tell_of_kernels(doctor);
}
