/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/blas_areas.h"

#include "base/alloc.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/wait.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define AREA_BYTES ((size_t)128 << 20)   /* the largest size with which OpenBLAS is built by default */
#define LIBRARY_BYTES ((size_t)64 << 20) /* code, data and the libraries it needs: 42 MiB with 0.3.21 */
#define STACK_BYTES ((size_t)8 << 20)

typedef void *take_function(int position);
typedef void give_back_function(void *area);

static take_function *take;
static give_back_function *give_back;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int reserved; /* threads for which areas were found or made */

/* Returns how many threads OpenBLAS starts: the first of these variables that is a number says how many, otherwise
 * there is one for each core. */
static size_t threads_of_its_own(void)
{
    static const char *const variables[] = {"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"};
    uint64_t cores[TTI_CORE_WORDS];
    tti_cores_mine(cores);
    int most = tti_cores_count(cores);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = getenv(variables[i]);
        int asked = text == NULL ? 0 : atoi(text);
        if (asked > 0) return (size_t)(asked < most ? asked : most) - 1;
    }
    return most > 0 ? (size_t)most - 1 : 0;
}

tutti_status tti_areas_room_to_load(tutti_error *error)
{
    tutti_error why = {.status = TUTTI_OK};
    tutti_status status = tti_mapping_try(LIBRARY_BYTES + threads_of_its_own() * (AREA_BYTES + STACK_BYTES), &why);
    if (status == TUTTI_OK) return TUTTI_OK;
    return tti_error_set(
        error, status, 0,
        "OpenBLAS, which does the matrix products, is not loaded, since it might hang: %.300s; it needs "
        "less with OPENBLAS_NUM_THREADS=1",
        why.text);
}

void tti_areas_find(void *library)
{
    void *taker = dlsym(library, "blas_memory_alloc"), *giver = dlsym(library, "blas_memory_free");
    if (taker == NULL || giver == NULL) return;
    memcpy(&take, &taker, sizeof taker); /* C has no cast from object pointers to function pointers */
    memcpy(&give_back, &giver, sizeof giver);
}

/* Takes `count` areas at once, so that as many are mapped, and gives them back. Each is only taken if there is room for
 * it. */
static tutti_status map_areas(int count, tutti_error *error)
{
    tutti_status status = TUTTI_OK;
    int taken = 0;
    void **areas = tti_calloc((size_t)count, sizeof *areas);
    if (areas == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a list of work areas");
    for (; taken < count; taken++) {
        status = tti_mapping_try(AREA_BYTES, error);
        if (status != TUTTI_OK) break;
        areas[taken] = take(0);
    }
    while (taken > 0) give_back(areas[--taken]);
    tti_free(areas);
    return status;
}

static tutti_status reserve(int threads, int most, tutti_error *error)
{
    int count = threads < 2 * most ? threads : 2 * most;
    if (count <= reserved) return TUTTI_OK;
    tutti_error why = {.status = TUTTI_OK};
    /* There are areas for twice as many threads as may multiply at once, and other threads may have taken theirs. */
    bool can_hold = take != NULL && threads <= most;
    tutti_status status = can_hold ? map_areas(count, &why)
                                   : tti_mapping_try((size_t)(count - reserved) * AREA_BYTES, &why);
    if (status == TUTTI_OK) {
        reserved = count;
        return TUTTI_OK;
    }
    char each[TTI_BYTES_TEXT];
    return tti_error_set(error, status, 0,
                         "OpenBLAS maps %s for every thread that multiplies (here %d), and would hang: %.300s",
                         tti_bytes_text(AREA_BYTES, each), count, why.text);
}

tutti_status tti_areas_reserve(int threads, int most, tutti_error *error)
{
    pthread_mutex_lock(&lock);
    tutti_status status = reserve(threads, most, error);
    pthread_mutex_unlock(&lock);
    return status;
}
