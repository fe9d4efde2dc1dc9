/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of devices: checks of calls with their sentences, and kernels that run on any device.
 */
#ifndef TEST_DEVICE_CHECK_H
#define TEST_DEVICE_CHECK_H

#include "check.h"
#include "device/open.h"
#include "device/stream.h"
#include <stdlib.h>
#include <string.h>

enum { LONG_MS = 45000 }; /* that only a hang outlasts */
#define MS INT64_C(1000000)

static tutti_error error;

#define GOOD(call) CHECK_THAT((call) == TUTTI_OK, "%s", error.text)
/* `words` (may be "") must be in the sentence. */
#define FAILS(wanted, words, call)                                                                                     \
    do {                                                                                                               \
        tutti_status got_ = (call);                                                                                    \
        CHECK_THAT(got_ == (wanted) && error.status == got_ && strstr(error.text, (words)) != NULL, "%s: %s",          \
                   tutti_status_name(got_), error.text);                                                               \
        CHECK(error.rank == -1 && error.peer == -1 && error.operation[0] != '\0');                                     \
    } while (0)

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* y[i] = y[i] * factor + x[i] + add */
struct mix_arguments {
    int32_t *y;
    const int32_t *x;
    uint64_t count;
    int32_t factor, add;
};

static inline void mix(int32_t *y, const int32_t *x, size_t count, int32_t factor, int32_t add)
{
    for (size_t i = 0; i < count; i++)
        y[i] = (int32_t)((uint32_t)y[i] * (uint32_t)factor + (uint32_t)x[i] + (uint32_t)add);
}

static inline void mix_function(const void *arguments)
{
    const struct mix_arguments *of = arguments;
    mix(of->y, of->x, of->count, of->factor, of->add);
}

/* Ready for tti_stream_launch on the stream's device. */
static inline struct tti_kernel mix_kernel(tutti_device *handle)
{
    struct tti_kernel kernel = {.name = "mix", .function = mix_function};
    struct tti_device *device = tti_device_take(handle, &error);
    CHECK(device != NULL && device->ops->load(device, NULL, &kernel, &error) == TUTTI_OK);
    if (device != NULL) tti_object_give(&device->object);
    return kernel;
}

static inline tutti_status mix_launch(const struct tti_kernel *kernel, const struct mix_arguments *arguments,
                                      tutti_stream *handle)
{
    struct tti_launch_shape shape = {.grid = {32, 1, 1}, .block = {128, 1, 1}};
    struct tti_stream *stream = tti_stream_take(handle, &error);
    if (stream == NULL) return error.status;
    tutti_status status = tti_stream_launch(stream, kernel, &shape, arguments, sizeof *arguments, &error);
    tti_object_give(&stream->object);
    return status;
}

/* ---- One device, some streams ------------------------------------------------------------------------------------- */

static const char *device_name = "host"; /* under test */

static inline tutti_device *open_device(void)
{
    tutti_device *device = NULL;
    GOOD(tutti_device_open(device_name, &device, &error));
    if (device == NULL) exit(end_of_checks() || 1);
    return device;
}

static inline tutti_stream *make_stream(tutti_device *device)
{
    tutti_stream *stream = NULL;
    GOOD(tutti_stream_create(device, &stream, &error));
    return stream;
}

static inline tutti_buffer *make_buffer(tutti_device *device, tutti_type type, size_t count)
{
    tutti_buffer *buffer = NULL;
    GOOD(tutti_buffer_create(device, TUTTI_MEMORY_LOCAL, type, count, &buffer, &error));
    return buffer;
}

#endif
