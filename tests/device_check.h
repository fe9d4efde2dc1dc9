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

/* The same for GPUs: the arguments are one struct, elements are dealt to all threads. */
static const char mix_code[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                               ".visible .entry mix(.param .align 8 .b8 a[32])\n{\n"
                               ".reg .pred %p;\n.reg .b32 %r<12>;\n.reg .b64 %d<8>;\n"
                               "ld.param.u64 %d0, [a];\nld.param.u64 %d1, [a+8];\nld.param.u64 %d2, [a+16];\n"
                               "ld.param.u32 %r0, [a+24];\nld.param.u32 %r1, [a+28];\n"
                               "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\n"
                               "mov.u32 %r5, %nctaid.x;\nmad.lo.u32 %r6, %r2, %r3, %r4;\ncvt.u64.u32 %d3, %r6;\n"
                               "mul.lo.u32 %r7, %r3, %r5;\ncvt.u64.u32 %d4, %r7;\n"
                               "NEXT:\nsetp.ge.u64 %p, %d3, %d2;\n@%p bra END;\n"
                               "shl.b64 %d5, %d3, 2;\nadd.u64 %d6, %d0, %d5;\nadd.u64 %d7, %d1, %d5;\n"
                               "ld.global.u32 %r8, [%d6];\nld.global.u32 %r9, [%d7];\n"
                               "mad.lo.u32 %r10, %r8, %r0, %r9;\nadd.u32 %r10, %r10, %r1;\n"
                               "st.global.u32 [%d6], %r10;\nadd.u64 %d3, %d3, %d4;\nbra NEXT;\n"
                               "END:\nret;\n}\n";

/* Ready for tti_stream_launch on the stream's device. */
static inline struct tti_kernel mix_kernel(tutti_device *handle)
{
    struct tti_kernel kernel = {.name = "mix", .function = mix_function};
    struct tti_device *device = tti_device_take(handle, &error);
    CHECK(device != NULL && device->ops->load(device, mix_code, &kernel, &error) == TUTTI_OK);
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
    if (device == NULL) exit(check_end() || 1);
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

/* Host memory that a copy need not wait for, in which `count` integers lie. */
struct pinned {
    tutti_buffer *buffer;
    int32_t *at;
};

static inline struct pinned make_pinned(tutti_device *device, size_t count)
{
    struct pinned pinned = {0};
    GOOD(tutti_buffer_create(device, TUTTI_MEMORY_PINNED, TUTTI_I32, count, &pinned.buffer, &error));
    pinned.at = tutti_buffer_at(pinned.buffer, 0, count);
    return pinned;
}

#endif
