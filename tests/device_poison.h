/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: what a wrong kernel of a program does to its device, which fails for good.
 */
#ifndef TEST_DEVICE_POISON_H
#define TEST_DEVICE_POISON_H

#include "device/host_fault.h"
#include "device/ops.h"
#include "device/stream.h"
#include <stdlib.h>
#include <string.h>
#include <tutti/device.h>

static const char wild_code[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                ".visible .entry wild(.param .align 8 .b8 a[8])\n{\n.reg .b64 %d<2>;\n.reg .b32 %r;\n"
                                "ld.param.u64 %d0, [a];\nmov.u32 %r, 1;\nst.global.u32 [%d0], %r;\nret;\n}\n";

/* `name`: of the device, "host" or "cuda:0". */
static inline void poison_device(const char *name, tutti_device *device, tutti_stream *handle)
{
    struct tti_kernel kernel = {.name = "wild"};
    struct tti_launch_shape shape = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
    tutti_error error;
    uint64_t nowhere = 16;
    if (strncmp(name, "cuda", 4) != 0) {
        tti_fault_poison(device, 700, "an illegal address", "wild");
        return;
    }
    struct tti_stream *stream = tti_stream_take(handle, &error);
    if (stream == NULL || stream->device->ops->load(stream->device, wild_code, &kernel, &error) != TUTTI_OK ||
        tti_stream_launch(stream, &kernel, &shape, &nowhere, sizeof nowhere, &error) != TUTTI_OK)
        abort();
    tti_object_give(&stream->object);
}

#endif
