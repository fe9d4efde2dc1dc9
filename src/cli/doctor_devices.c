/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti doctor: GPUs, their libraries, and what each makes possible. This starts a driver, so it runs in a process of
 * its own, which sends its lines through a pipe.
 */
#include "cli/cli.h"
#include "cli/doctor.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/device.h>
#include <unistd.h>

enum { SECONDS_MOST = 30, LINE_BYTES = 1024, TEXT_MOST = 16384 };
static const char separator = '\t'; /* between finding, name, text and fix */

/* ---- In the child ------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 5, 6))) static void tell(int out, enum finding finding, const char *name, const char *fix,
                                                       const char *format, ...)
{
    char text[LINE_BYTES], line[2 * LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c != '\0'; c++)
        if (*c == separator || *c == '\n') *c = ' ';
    int length = snprintf(line, sizeof line, "%d\t%s\t%s\t%s\n", (int)finding, name, text, fix == NULL ? "" : fix);
    (void)!write(out, line, (size_t)length);
}

static const struct gpu_library {
    const char *name, *title, *use;
    bool later; /* nothing in this version uses it */
} libraries[] = {
    {"cuda", "CUDA", "devices cuda:N", false},
    {"nvrtc", "NVRTC", "collectives of ranks that share a GPU: their kernels are compiled here", false},
    {"nccl", "NCCL", "collectives of ranks with a GPU each", false},
};

static void tell_library(int out, const struct gpu_library *of)
{
    tutti_library found = {.struct_size = sizeof found};
    tutti_error error;
    const char *kind = of->later ? "; not used by this version, it would be for " : "; for ";
    if (tutti_library_find(of->name, &found, &error) != TUTTI_OK)
        tell(out, FOUND_NOTE, "library", NULL, "%s: not here%s%s. %s", of->title, kind, of->use, error.text);
    else
        tell(out, of->later ? FOUND_NOTE : FOUND_GOOD, "library", NULL, "%s: %s%s, %s%s%s", of->title,
             strcmp(of->name, "cuda") == 0 ? "driver for CUDA " : "", found.version, found.path, kind, of->use);
    if (found.has[0] != '\0') tell(out, FOUND_GOOD, "library", NULL, "%s %s: %s", of->title, found.version, found.has);
}

static void tell_gpu(int out, int number)
{
    const double gib = 1024.0 * 1024.0 * 1024.0;
    tutti_device_about about = {.struct_size = sizeof about};
    tutti_device *device = NULL;
    tutti_error error;
    char name[16];
    (void)snprintf(name, sizeof name, "cuda:%d", number);
    if (tutti_device_open(name, &device, &error) == TUTTI_OK &&
        tutti_device_describe(device, &about, &error) == TUTTI_OK)
        tell(out, FOUND_GOOD, "gpu", NULL, "%s: %s, capability %d.%d, %.1f GiB, %.1f of them free; memory %s", name,
             about.model, about.capability / 10, about.capability % 10, (double)about.memory_total / gib,
             (double)about.memory_free / gib,
             about.shares ? "can be shared between processes" : "cannot be shared between processes");
    else
        tell(out, FOUND_WARNING, "gpu", "look at nvidia-smi", "%s: %s", name, error.text);
    (void)tutti_device_free(device, NULL);
}

static tutti_device *open_gpu(int number)
{
    tutti_device *device = NULL;
    char name[16];
    (void)snprintf(name, sizeof name, "cuda:%d", number);
    (void)tutti_device_open(name, &device, NULL); /* a device that cannot be opened has been reported */
    return device;
}

/* Says which GPUs can access each other's memory. */
static void tell_reach(int out, int from, int gpus)
{
    tutti_device *device = open_gpu(from);
    char text[LINE_BYTES / 2] = "";
    size_t used = 0;
    for (int to = 0; to < gpus && used < sizeof text - 16; to++) {
        tutti_device *other = to == from ? NULL : open_gpu(to);
        if (tutti_device_reaches(device, other))
            used += (size_t)snprintf(text + used, sizeof text - used, "%s cuda:%d", used == 0 ? "" : ",", to);
        (void)tutti_device_free(other, NULL);
    }
    tell(out, used > 0 ? FOUND_GOOD : FOUND_NOTE, "gpu", NULL, "cuda:%d: reaches the memory of%s", from,
         used > 0 ? text : " no other GPU: copies to them go through the host");
    (void)tutti_device_free(device, NULL);
}

/* Says what the library does by itself (docs/gpu.md), and what prevents more. */
static void tell_providers(int out, int gpus)
{
    const char *asked = getenv("TUTTI_DEVICE_PROVIDER"), *exact = getenv("TUTTI_EXACT");
    bool compiles = tutti_has("nvrtc"), has_nccl = tutti_has("nccl"),
         is_exact = exact != NULL && strcmp(exact, "1") == 0;
    if (gpus == 0) return;
    if (asked != NULL && asked[0] != '\0' && strcmp(asked, "auto") != 0) {
        tell(out, FOUND_NOTE, "streams", NULL,
             "calls on streams go by %s, as TUTTI_DEVICE_PROVIDER says; where it cannot serve they are refused", asked);
        return;
    }
    tell(out, compiles ? FOUND_GOOD : FOUND_NOTE, "streams", NULL, "ranks that share a GPU go by %s",
         compiles ? "cuda: one kernel for all" : "staged, through the host: there is no NVRTC to compile kernels");
    bool reach = compiles && gpus > 1;
    tell(out, has_nccl && !is_exact ? FOUND_GOOD : FOUND_NOTE, "streams", NULL, "ranks with a GPU each go by %s%s",
         reach && (!has_nccl || is_exact) ? "cuda where the first one's reaches all others, else " : "",
         !has_nccl  ? "staged, through the host: there is no NCCL"
         : is_exact ? "staged, through the host: TUTTI_EXACT=1, and NCCL sums in an order of its own"
                    : "nccl; its sums are not in canonical order, and TUTTI_EXACT=1 does without it");
}

static void look(int out)
{
    tutti_error error;
    int count = 0, null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) (void)dup2(null, STDERR_FILENO); /* drivers complain if there is no device */
    (void)alarm(SECONDS_MOST);
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) tell_library(out, &libraries[i]);
    if (tutti_device_count("cuda", &count, &error) != TUTTI_OK)
        tell(out, FOUND_NOTE, "gpu", NULL, "none can be used: %s", error.text);
    else if (count == 0)
        tell(out, FOUND_NOTE, "gpu", NULL, "the driver shows none");
    for (int i = 0; i < count; i++) tell_gpu(out, i);
    for (int i = 0; i < count && count > 1; i++) tell_reach(out, i, count);
    tell_providers(out, count);
    _exit(0);
}

/* ---- In the parent ------------------------------------------------------------------------------------------------ */

/* Cuts off the part up to the separator. */
static char *next_part(char **rest, char end)
{
    char *part = *rest, *stop = strchr(part, end);
    if (stop == NULL) return NULL;
    *stop = '\0';
    *rest = stop + 1;
    return part;
}

static void add_lines(struct doctor *doctor, char *text)
{
    static const char *const names[] = {"library", "gpu", "streams"};
    enum { NAMES = sizeof names / sizeof *names };
    for (char *finding; (finding = next_part(&text, separator)) != NULL;) {
        char *name = next_part(&text, separator), *said = name == NULL ? NULL : next_part(&text, separator);
        char *fix = said == NULL ? NULL : next_part(&text, '\n');
        size_t known = 0;
        while (fix != NULL && known < NAMES && strcmp(name, names[known]) != 0) known++;
        if (fix == NULL || known == NAMES) return;
        doctor_add(doctor, (enum finding)(finding[0] - '0'), names[known], fix[0] == '\0' ? NULL : fix, "%s", said);
    }
}

static size_t read_all(int from, char *text, size_t bytes)
{
    size_t used = 0;
    ssize_t length;
    while (used < bytes && (length = read(from, text + used, bytes - used)) > 0) used += (size_t)length;
    return used; /* the child's alarm bounds it */
}

void doctor_devices(struct doctor *doctor)
{
    static char text[TEXT_MOST + 1];
    int ends[2], status = 0;
    (void)fflush(stdout);
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    pid_t child = fork();
    if (child == 0) look(ends[1]);
    (void)close(ends[1]);
    text[child < 0 ? 0 : read_all(ends[0], text, TEXT_MOST)] = '\0';
    (void)close(ends[0]);
    if (child > 0) (void)waitpid(child, &status, 0);
    add_lines(doctor, text);
    if (child > 0 && status != 0)
        doctor_add(doctor, FOUND_WARNING, "gpu", "look at nvidia-smi and dmesg",
                   "the driver of the GPUs did not answer within %d s, or ended the process", SECONDS_MOST);
}
