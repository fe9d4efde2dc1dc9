/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles only where our own declarations of NCCL's interface agree with nccl.h.
 */
#include "device/nccl_api.h"
#include <nccl.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is not " #theirs)
SAME(TTI_NCCL_OK, ncclSuccess);
SAME(TTI_NCCL_CUDA_ERROR, ncclUnhandledCudaError);
SAME(TTI_NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(TTI_NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(TTI_NCCL_I8, ncclInt8);
SAME(TTI_NCCL_U8, ncclUint8);
SAME(TTI_NCCL_I32, ncclInt32);
SAME(TTI_NCCL_U32, ncclUint32);
SAME(TTI_NCCL_I64, ncclInt64);
SAME(TTI_NCCL_U64, ncclUint64);
SAME(TTI_NCCL_F16, ncclFloat16);
SAME(TTI_NCCL_F32, ncclFloat32);
SAME(TTI_NCCL_F64, ncclFloat64);
SAME(TTI_NCCL_BF16, ncclBfloat16);
SAME(TTI_NCCL_SUM, ncclSum);
SAME(TTI_NCCL_PROD, ncclProd);
SAME(TTI_NCCL_MAX, ncclMax);
SAME(TTI_NCCL_MIN, ncclMin);
SAME(TTI_NCCL_AVG, ncclAvg);
SAME(TTI_NCCL_SCALAR_ON_HOST, ncclScalarHostImmediate);
SAME(sizeof(struct tti_nccl_id), sizeof(ncclUniqueId));
SAME(offsetof(struct tti_nccl_config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(struct tti_nccl_config, version), offsetof(ncclConfig_t, version));
SAME(offsetof(struct tti_nccl_config, blocking), offsetof(ncclConfig_t, blocking));
