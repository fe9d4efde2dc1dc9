/* SPDX-License-Identifier: Apache-2.0
 *
 * Marks between ranks of one process (cuda_engine.h).
 */
#include "base/status.h"
#include "collective/stream/cuda_engine.h"
#include "device/open.h"
#include "device/stream.h"

void tti_cuda_marks_give(struct tti_cuda_marks *marks)
{
    for (int i = 0; i < TTI_CUDA_SLOTS; i++)
        if (marks->slots[i] != NULL) tti_object_give(&marks->slots[i]->object);
    *marks = (struct tti_cuda_marks){0};
}

tutti_status tti_cuda_marks_make(struct tti_device *device, struct tti_cuda_marks *marks, uint64_t *handles,
                                 tutti_error *error)
{
    for (int i = 0; i < TTI_CUDA_SLOTS; i++) {
        struct tti_mark *mark = NULL;
        TTI_TRY(tti_mark_make(device, &mark, error));
        tti_object_keep(&mark->object);
        marks->slots[i] = mark;
        if (!tti_object_publish(&mark->object)) {
            tti_object_give(&mark->object);
            return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a mark's handle");
        }
        handles[i] = (uint64_t)(uintptr_t)mark->object.handle;
    }
    return TUTTI_OK;
}

void tti_cuda_marks_revoke(const uint64_t *handles)
{
    for (int i = 0; i < TTI_CUDA_SLOTS; i++)
        if (handles[i] != 0) tti_object_give(tti_object_revoke((void *)(uintptr_t)handles[i], TTI_OBJECT_MARK, NULL));
}

tutti_status tti_cuda_marks_take(struct tti_cuda_marks *marks, const uint64_t *handles, tutti_error *error)
{
    for (int i = 0; i < TTI_CUDA_SLOTS; i++) {
        struct tti_object *object = tti_object_take((void *)(uintptr_t)handles[i], TTI_OBJECT_MARK, error);
        if (object == NULL) return error->status;
        marks->slots[i] = TTI_LIST_OF(object, struct tti_mark, object);
    }
    return TUTTI_OK;
}

tutti_status tti_cuda_marks_renew(struct tti_cuda_marks *marks, tutti_error *error)
{
    for (int i = 0; i < TTI_CUDA_SLOTS; i++)
        if (marks->slots[i] != NULL) TTI_TRY(tti_mark_renew(marks->slots[i], error));
    return TUTTI_OK;
}
