/* SPDX-License-Identifier: Apache-2.0
 *
 * Marks. A mark that was never recorded stands for nothing, and waiting for it is an error: on GPUs it would succeed
 * silently.
 */
#include "base/alloc.h"
#include "base/status.h"
#include "device/open.h"
#include "device/stream.h"
#include <errno.h>

static void destroy(struct tti_object *object)
{
    struct tti_mark *mark = TTI_LIST_OF(object, struct tti_mark, object);
    struct tti_device *device = mark->device;
    struct tti_stream *stream = mark->stream;
    device->ops->mark_close(mark);
    tti_free(mark);
    if (stream != NULL) tti_object_give(&stream->object);
    tti_object_give(&device->object);
}

tutti_status tti_mark_make(struct tti_device *device, struct tti_mark **made, tutti_error *error)
{
    struct tti_mark *mark = tti_calloc(1, sizeof *mark);
    if (mark == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a mark");
    mark->device = device;
    mark->generation = tti_device_generation(device);
    tti_list_init(&mark->link);
    tutti_status status = device->ops->mark_open(mark, error);
    if (status != TUTTI_OK) {
        tti_free(mark);
        return status;
    }
    tti_object_keep(&device->object);
    tti_object_init(&mark->object, TTI_OBJECT_MARK, destroy);
    *made = mark;
    return TUTTI_OK;
}

tutti_status tti_mark_renew(struct tti_mark *mark, tutti_error *error)
{
    uint64_t now = tti_device_generation(mark->device);
    if (mark->generation == now) return TUTTI_OK;
    TTI_TRY(mark->device->ops->mark_open(mark, error));
    mark->generation = now;
    return TUTTI_OK;
}

tutti_status tutti_mark_create(tutti_device *handle, tutti_mark **mark, tutti_error *error)
{
    tutti_error none;
    struct tti_mark *made = NULL;
    error = tti_error_begin(error, &none, "mark_create");
    if (mark == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "where the mark shall go is NULL");
    *mark = NULL;
    struct tti_device *device = tti_device_take(handle, error);
    if (device == NULL) return error->status;
    tutti_status status = tti_device_usable(device, tti_device_generation(device), "handle", error);
    if (status == TUTTI_OK) status = tti_mark_make(device, &made, error);
    if (status == TUTTI_OK && !tti_object_publish(&made->object)) {
        tti_object_give(&made->object);
        status = tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a mark's handle");
    }
    if (status == TUTTI_OK) *mark = made->object.handle;
    tti_object_give(&device->object);
    return status;
}

tutti_status tutti_mark_record(tutti_mark *handle, tutti_stream *stream_handle, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "mark_record");
    struct tti_stream *stream = tti_stream_take(stream_handle, error);
    struct tti_object *object = stream == NULL ? NULL : tti_object_take(handle, TTI_OBJECT_MARK, error);
    tutti_status status = error->status;
    if (object != NULL) {
        struct tti_mark *mark = TTI_LIST_OF(object, struct tti_mark, object);
        status = tti_device_usable(mark->device, mark->generation, "mark", error);
        if (status == TUTTI_OK) status = tti_stream_record(stream, mark, error);
    }
    tti_object_give(object);
    if (stream != NULL) tti_object_give(&stream->object);
    return status;
}

tutti_status tutti_mark_free(tutti_mark *handle, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "mark_free");
    if (handle == NULL) return TUTTI_OK;
    struct tti_object *object = tti_object_revoke(handle, TTI_OBJECT_MARK, error);
    if (object == NULL) return error->status;
    tti_object_give(object);
    return TUTTI_OK;
}
