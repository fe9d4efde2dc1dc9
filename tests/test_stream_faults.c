/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60
 *
 * Calls of the GPU's driver that fail inside of calls on streams, on the fake libcuda (tests/fake/cuda.c), which is told which:
 * out of memory is an ordinary error on all ranks; after a failure for good all that is put on the device is ERR_DEVICE.
 * tests/cli/cuda_memory.sh runs it; with one more argument it runs first calls alone, by the provider that the environment names.
 */
#include "stream_place.h"

#include <dlfcn.h>
#include <stdio.h>

enum { COUNT = 1000 };

static const struct row {
    const char *provider, *fault;
    tutti_status status; /* of the call, on all ranks */
    const char *words;   /* in what all ranks are told */
    bool usable;         /* so is the comm afterwards, and a call like it is right */
} rows[] = {
    {"cuda", "cuModuleLoadDataEx:1:2", TUTTI_ERR_MEMORY, "cuda:0 has no memory left: CUDA_ERROR_OUT_OF_MEMORY (2)",
     true},
    {"cuda", "cuLaunchKernel:1:2", TUTTI_ERR_MEMORY, "has no memory left", true},
    {"cuda", "cuLaunchKernel:1:400", TUTTI_ERR_ARGUMENT, "a stream or context of cuda:0 was destroyed by its owner",
     true},
    {"cuda", "cuLaunchKernel:1:701", TUTTI_ERR_SYSTEM, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)", true},
    {"cuda", "cuLaunchKernel:1:719", TUTTI_ERR_DEVICE, "CUDA_ERROR_LAUNCH_FAILED (719) from libcuda", false},
    {"cuda", "cuLaunchKernel:1:214", TUTTI_ERR_DEVICE, "CUDA_ERROR_ECC_UNCORRECTABLE (214) from libcuda", false},
    {"cuda", "cuLaunchKernel:1:226", TUTTI_ERR_DEVICE, "CUDA_ERROR_CONTAINED (226) from libcuda", false},
    {"cuda", "cuStreamWaitEvent:1:721", TUTTI_ERR_DEVICE, "CUDA_ERROR_TENSOR_MEMORY_LEAK (721)", false},
    {"cuda", "cuStreamWriteValue64:1:810", TUTTI_ERR_DEVICE, "CUDA_ERROR_MPS_CLIENT_TERMINATED (810)", false},
    {"staged", "cuMemcpyAsync:2:911", TUTTI_ERR_DEVICE, "CUDA_ERROR_EXTERNAL_DEVICE (911)", false},
    {"cuda", "cuEventRecord:1:719", TUTTI_ERR_DEVICE, "CUDA_ERROR_LAUNCH_FAILED (719)", false},
    {"cuda", "cuStreamWriteValue64:1:700", TUTTI_ERR_DEVICE, "CUDA_ERROR_ILLEGAL_ADDRESS (700)", false},
    {"staged", "cuMemHostRegister:1:2", TUTTI_ERR_MEMORY, "has no memory left", true},
    {"staged", "cuMemHostRegister:3:2", TUTTI_ERR_MEMORY, "has no memory left", true},
    {"staged", "cuMemHostRegister:1:2,cuMemHostRegister:2:2,cuMemHostRegister:3:2", TUTTI_ERR_MEMORY,
     "has no memory left", true},
    {"staged", "cuMemcpyAsync:1:214", TUTTI_ERR_DEVICE, "CUDA_ERROR_ECC_UNCORRECTABLE (214)", false},
    {"staged", "cuMemcpyAsync:4:719", TUTTI_ERR_DEVICE, "CUDA_ERROR_LAUNCH_FAILED (719)", false},
};

static void (*tell)(const char *fault);
static void *library;

static const char *said(const tutti_comm *comm)
{
    const tutti_error *error = tutti_comm_error(comm);
    return error == NULL ? "" : error->text;
}

/* A failure that is seen later is told by a later call. */
static tutti_status call(tutti_comm *comm, struct place *place, bool often)
{
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < (often ? 500 : 1) && status == TUTTI_OK; i++) {
        status = tutti_all_reduce(tutti_on(comm, place->stream), place->x, place->y, COUNT, TUTTI_I32, TUTTI_SUM);
        if (status == TUTTI_OK && often) status = tutti_stream_sync(place->stream, LONG_MS, &place->error);
        if (often) fault_sleep_ms(2);
    }
    return status;
}

static void goes_wrong(tutti_comm *comm, struct fault_rank *self)
{
    const struct row *row = &rows[(int)fault_shared->scratch[0]];
    struct place place;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    fill(&place, place.in, COUNT, 1);
    CHECK(tutti_barrier(tutti_on(comm, place.stream)) == TUTTI_OK);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    fault_meet(comm);
    if (tutti_rank(comm) == 0) tell(row->fault);
    fault_meet(comm);
    tutti_status status = call(comm, &place, !row->usable);
    const char *text = status == TUTTI_ERR_DEVICE && strstr(said(comm), row->words) == NULL ? place.error.text
                                                                                            : said(comm);
    CHECK_THAT(status == row->status && strstr(text, row->words) != NULL, "%s: %s: %s", row->fault,
               tutti_status_name(status), text);
    fault_meet(comm);
    if (!row->usable) {
        CHECK(tutti_barrier(tutti_on(comm, place.stream)) < 0);
        (void)tutti_device_free(place.device, &place.error);
        return;
    }
    status = call(comm, &place, false);
    CHECK_THAT(status == TUTTI_OK, "%s: %s", row->fault, said(comm));
    CHECK(count_wrong(&place, place.out, COUNT, tutti_size(comm)) == 0);
    close_place(&place);
}

/* ---- Out of memory at a comm's first call ---------------------------------------------------------------------------- */

/* What the first call on a stream takes for itself, by any provider. */
static const char *const takes[] = {"cuMemHostRegister:1:2",       "cuStreamCreate:1:2", "cuStreamCreate:4:2",
                                    "cuMemAllocFromPoolAsync:1:2", "cuEventCreate:1:2",  "cuEventCreate:20:2"};

/* The call says so, on all ranks or on the one that had too little, and is right when it is made again. */
static void opens(tutti_comm *comm, struct fault_rank *self)
{
    const char *fault = takes[(int)fault_shared->scratch[0]];
    int rank = tutti_rank(comm), refusals = 0;
    struct place place;
    open_place_for(comm, &place, TUTTI_MEMORY_SHARED, COUNT);
    fill(&place, place.in, COUNT, 1);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    fault_meet(comm);
    if (rank == 0) tell(fault);
    fault_meet(comm);
    tutti_status status;
    while ((status = call(comm, &place, false)) == TUTTI_ERR_MEMORY && ++refusals < 3)
        CHECK_THAT(strstr(said(comm), "memory") != NULL, "%s: %s", fault, said(comm));
    CHECK_THAT(status == TUTTI_OK, "%s: %s", fault, said(comm));
    CHECK(count_wrong(&place, place.out, COUNT, tutti_size(comm)) == 0);
    self->numbers[0] = refusals;
    fault_meet(comm);
    int64_t all = 0;
    for (int i = 0; i < tutti_size(comm); i++) all += fault_shared->ranks[i].numbers[0];
    CHECK_THAT(all > 0 || strncmp(fault, "cuStreamCreate:1", 16) != 0, "%s was not met", fault);
    CHECK(call(comm, &place, false) == TUTTI_OK);
    close_place(&place);
}

static void run_openings(void)
{
    struct fault_world world = {.size = 3, .keeps_files = true, .body = opens};
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
        fault_shared->scratch[0] = (char)i;
        check_title("first call, %s", takes[i]);
        CHECK(fault_run(&world));
    }
}

/* Whose a pointer is cannot be asked of a GPU that has failed: that is what is told, and not that it is host memory. */
static void asks(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    int32_t here[4] = {0};
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    CHECK(tutti_barrier(tutti_on(comm, place.stream)) == TUTTI_OK);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    tell("cuPointerGetAttributes:1:700");
    refused_with(comm, tutti_all_reduce(tutti_on(comm, place.stream), here, here, 1, TUTTI_I32, TUTTI_SUM),
                 TUTTI_ERR_DEVICE, "seen in cuPointerGetAttributes");
    (void)tutti_device_free(place.device, &place.error);
}

/* A context of the caller's own was destroyed: that is told, and neither it nor the GPU counts as failed. */
static void owner_ends(tutti_comm *comm, struct fault_rank *self)
{
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(library, "cuDevicePrimaryCtxRetain");
    static const int codes[] = {201, 400, 709};
    struct place place;
    tutti_device *own = NULL;
    tutti_stream *stream = NULL;
    void *context = NULL;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    CHECK(retain != NULL && retain(&context, 0) == 0);
    GOOD(&place, tutti_device_adopt("cuda", context, &own, &place.error));
    GOOD(&place, tutti_stream_create(own, &stream, &place.error));
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        char fault[40];
        snprintf(fault, sizeof fault, "cuStreamWriteValue64:1:%d", codes[i]);
        tell(fault);
        tutti_status status = tutti_stream_sync(stream, LONG_MS, &place.error);
        CHECK_THAT(status == TUTTI_ERR_ARGUMENT && strstr(place.error.text, "destroyed by its owner") != NULL, "%d: %s",
                   codes[i], place.error.text);
    }
    GOOD(&place, tutti_stream_sync(stream, LONG_MS, &place.error));
    CHECK(tutti_barrier(tutti_on(comm, place.stream)) == TUTTI_OK);
    GOOD(&place, tutti_stream_free(stream, &place.error));
    GOOD(&place, tutti_device_free(own, &place.error));
    close_place(&place);
}

static void run_row(size_t i)
{
    char provider[64];
    struct fault_world world = {.size = 3, .keeps_files = true, .body = goes_wrong, .settings = {provider}};
    snprintf(provider, sizeof provider, "TUTTI_DEVICE_PROVIDER=%s", rows[i].provider);
    fault_shared->scratch[0] = (char)i;
    check_title("%s, %s", rows[i].provider, rows[i].fault);
    CHECK(fault_run(&world));
}

int main(int argc, char **argv)
{
    tutti_library found = {.struct_size = sizeof found};
    tutti_error error;
    if (argc > 1) device_name = argv[1];
    if (argc > 1 && tutti_library_find("cuda", &found, &error) == TUTTI_OK) library = dlopen(found.path, RTLD_NOW);
    if (library != NULL) tell = (void (*)(const char *))dlsym(library, "fake_cuda_fault");
    if (tell == NULL) {
        printf("skipped: tests/cli/cuda_memory.sh runs it, on a libcuda that fails when it is told to\n");
        return 77;
    }
    fault_begin(170);
    run_openings();
    if (argc > 2) return fault_end();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) run_row(i);
    run_body("its owner ends a context", owner_ends, 1, false, false);
    run_body("asks", asks, 1, false, false);
    return fault_end();
}
