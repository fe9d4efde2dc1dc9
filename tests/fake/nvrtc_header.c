/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles only where our own declarations of NVRTC agree with nvrtc.h.
 */
#include "device/nvrtc.h"
#include <nvrtc.h>

_Static_assert(TTI_NVRTC_OK == (int)NVRTC_SUCCESS, "success");
_Static_assert(sizeof(nvrtcResult) == sizeof(int) && sizeof(nvrtcProgram) == sizeof(void *), "sizes");

/* Every function is one that nvrtc.h declares under that name, with as many parameters of these sizes. */
#define SAME(field, symbol, parameters) int(*fake_##field) parameters = (int(*) parameters)symbol;
TTI_NVRTC_FUNCTIONS(SAME)
