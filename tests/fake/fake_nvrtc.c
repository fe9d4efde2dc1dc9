/* SPDX-License-Identifier: Apache-2.0
 *
 * An NVRTC that compiles nothing: what it gives names the kernel `mix`, which tests/fake/cuda.c knows. tests/cli/nvrtc.sh
 * builds it. The environment says how it behaves:
 *     FAKE_NVRTC_VERSION=11      its major version
 *     FAKE_NVRTC_LOG=TEXT        it fails, with this log
 *     FAKE_NVRTC_CODE=TEXT       it gives this instead
 *     FAKE_NVRTC_COUNT=FILE      gets a line with the options for every program that was compiled
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *code(void)
{
    const char *told = getenv("FAKE_NVRTC_CODE");
    return told != NULL ? told : "// fake\n.entry mix\n";
}

static const char *fake_log(void)
{
    const char *told = getenv("FAKE_NVRTC_LOG");
    return told != NULL ? told : "";
}

int nvrtcVersion(int *major, int *minor)
{
    const char *told = getenv("FAKE_NVRTC_VERSION");
    *major = told != NULL ? atoi(told) : 13;
    *minor = 7;
    return 0;
}

int nvrtcGetNumSupportedArchs(int *count)
{
    *count = 3;
    return 0;
}

int nvrtcGetSupportedArchs(int *list)
{
    list[0] = 75;
    list[1] = 90;
    list[2] = 120;
    return 0;
}

int nvrtcCreateProgram(void **program, const char *source, const char *name, int headers, const char *const *texts,
                       const char *const *includes)
{
    (void)source, (void)name, (void)headers, (void)texts, (void)includes;
    *program = calloc(1, sizeof(int));
    return *program == NULL;
}

int nvrtcDestroyProgram(void **program)
{
    free(*program);
    *program = NULL;
    return 0;
}

int nvrtcCompileProgram(void *program, int count, const char *const *options)
{
    const char *path = getenv("FAKE_NVRTC_COUNT");
    FILE *file = path == NULL ? NULL : fopen(path, "a");
    for (int i = 0; i < count; i++) *(int *)program |= strncmp(options[i], "-arch=compute_", 14) == 0;
    for (int i = 0; i < count && file != NULL; i++) fprintf(file, i == count - 1 ? "%s\n" : "%s ", options[i]);
    if (file != NULL) fclose(file);
    return getenv("FAKE_NVRTC_LOG") != NULL ? 6 : 0;
}

int nvrtcGetProgramLogSize(void *program, size_t *bytes)
{
    (void)program;
    *bytes = strlen(fake_log()) + 1;
    return 0;
}

int nvrtcGetProgramLog(void *program, char *log)
{
    (void)program;
    strcpy(log, fake_log());
    return 0;
}

int nvrtcGetCUBINSize(void *program, size_t *bytes)
{
    *bytes = *(int *)program ? 0 : strlen(code());
    return 0;
}

int nvrtcGetCUBIN(void *program, char *to)
{
    (void)program;
    memcpy(to, code(), strlen(code()));
    return 0;
}

int nvrtcGetPTXSize(void *program, size_t *bytes)
{
    (void)program;
    *bytes = strlen(code()) + 1;
    return 0;
}

#ifndef FAKE_WITHOUT_PTX
int nvrtcGetPTX(void *program, char *to)
{
    (void)program;
    strcpy(to, code());
    return 0;
}
#endif
