/* SPDX-License-Identifier: Apache-2.0
 *
 * A device as an actor. The actor is the stable address and the queue; below it are the device and a stream, which the
 * handler opens again when the device has failed, or on request: requests that come meanwhile wait in the mailbox.
 *
 * Invariant: the device is opened by `start` and closed by `stop`, which is called once, since the actor is never
 * restarted.
 */
#define TUTTI_NO_CALL_SITES
#include "actor/actors.h"

#include "base/alloc.h"
#include "base/sized.h"
#include "base/status.h"
#include <stdio.h>
#include <string.h>

enum { SYNC_MS = 30000, RESTARTS = 3 };

struct device_actor {
    tutti_actors *actors;
    char device_name[64];
    int64_t sync_ms;
    tutti_device *device; /* NULL: it is not open */
    tutti_stream *stream;
    int restarts; /* how often in a row the device is opened again */
    int failures; /* failures since work was done last */
};

/* The data of a request: a function of this process. */
struct work {
    tutti_device_work *work; /* NULL: opens the device again */
    void *context;
};

/* ---- The state --------------------------------------------------------------------------------------------------- */

static tutti_status failed(tutti_actor *self, tutti_status status, const tutti_error *error)
{
    return tutti_actor_fail(self, status, error->text);
}

static tutti_status open_device(tutti_actor *self, void *context, void **state)
{
    struct device_actor *own = context;
    tutti_error error = {0};
    *state = own;
    tutti_status status = tutti_device_open(own->device_name, &own->device, &error);
    if (status == TUTTI_OK) status = tutti_stream_create(own->device, &own->stream, &error);
    return status == TUTTI_OK ? TUTTI_OK : failed(self, status, &error);
}

static tutti_status open_again(struct device_actor *own, tutti_error *error)
{
    tutti_error ignored;
    if (own->stream != NULL) (void)tutti_stream_free(own->stream, &ignored);
    own->stream = NULL;
    tutti_status status = tutti_device_reopen(own->device, error);
    return status == TUTTI_OK ? tutti_stream_create(own->device, &own->stream, error) : status;
}

static void free_all(struct device_actor *own)
{
    tutti_error error;
    if (own->stream != NULL) (void)tutti_stream_free(own->stream, &error);
    if (own->device != NULL) (void)tutti_device_free(own->device, &error);
    tti_free(own);
}

static void close_device(tutti_actor *self, void *state)
{
    (void)self;
    free_all(state);
}

static tutti_decision end_it(void *context, const tutti_error *error)
{
    (void)context, (void)error;
    return TUTTI_STOP;
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* Does the work, and waits until the stream is empty, whatever the work has returned. */
static tutti_status do_work(struct device_actor *own, const struct work *work, tutti_error *error)
{
    tutti_error ignored = {0};
    tutti_status status = work->work(own->device, own->stream, work->context, error);
    tutti_status synced = tutti_stream_sync(own->stream, own->sync_ms, status == TUTTI_OK ? error : &ignored);
    return status == TUTTI_OK ? synced : status;
}

/* Opens the device again; if that fails, the actor ends with the reason. */
static tutti_status renew(tutti_actor *self, struct device_actor *own, tutti_request *request)
{
    tutti_error error = {0};
    tutti_status status = open_again(own, &error);
    return status == TUTTI_OK ? tutti_request_answer(request, NULL, 0) : failed(self, status, &error);
}

/* Recovers from a failure of the device. The work is answered before the device is opened again. */
static tutti_status recover(tutti_actor *self, struct device_actor *own, tutti_request *request, tutti_error *error)
{
    (void)tutti_request_refuse(request, TUTTI_ERR_DEVICE, error->text[0] == '\0' ? NULL : error->text);
    if (own->failures++ >= (own->restarts < 0 ? 0 : own->restarts)) return failed(self, TUTTI_ERR_DEVICE, error);
    tutti_status status = open_again(own, error);
    return status == TUTTI_OK ? TUTTI_OK : failed(self, status, error);
}

static tutti_status handle(tutti_actor *self, void *state, tutti_request *request)
{
    struct device_actor *own = state;
    struct work work;
    tutti_error error = {0};
    if (request->kind != TUTTI_ASKED || request->bytes != sizeof work || request->rank != own->actors->comm->rank)
        return tutti_request_refuse(request, TUTTI_ERR_ARGUMENT,
                                    "a device does the work of its own rank (tutti_device_do)");
    memcpy(&work, request->data, sizeof work);
    if (work.work == NULL) return renew(self, own, request);
    tutti_status status = do_work(own, &work, &error);
    if (status == TUTTI_ERR_DEVICE) return recover(self, own, request, &error);
    if (status != TUTTI_OK) return tutti_request_refuse(request, status, error.text[0] == '\0' ? NULL : error.text);
    own->failures = 0;
    return tutti_request_answer(request, NULL, 0);
}

/* ---- For users --------------------------------------------------------------------------------------------------- */

static tutti_status refuse(tutti_actors *actors, const char *call, const char *text)
{
    tutti_error error;
    (void)tti_actors_describe(actors, &error, TTI_ACTORS, TUTTI_ERR_ARGUMENT, -1, "%s: %s", call, text);
    return tti_actors_refuse(actors, &error);
}

tutti_status tutti_device_actor(tutti_actors *actors, const char *name, const tutti_device_actor_options *given)
{
    tutti_device_actor_options options = {0};
    if (actors == NULL) return TUTTI_ERR_ARGUMENT;
    if (given != NULL && !tti_sized_take(&options, sizeof options, given))
        return refuse(actors, "device_actor", "set struct_size to sizeof(tutti_device_actor_options)");
    if (options.device == NULL || strlen(options.device) >= sizeof((struct device_actor *)0)->device_name)
        return refuse(actors, "device_actor", "it needs the name of a device, such as \"host\" or \"cuda:0\"");
    if (options.sync_ms < 0 || options.queue < 0)
        return refuse(actors, "device_actor", "sync_ms and queue must be 0, for the default, or more");
    struct device_actor *own = tti_calloc(1, sizeof *own);
    if (own == NULL) return TUTTI_ERR_MEMORY;
    own->actors = actors;
    own->restarts = options.restarts == 0 ? RESTARTS : options.restarts;
    own->sync_ms = options.sync_ms == 0 ? SYNC_MS : options.sync_ms;
    (void)snprintf(own->device_name, sizeof own->device_name, "%s", options.device);
    tutti_actor_options actor = {.struct_size = sizeof actor,
                                 .name = name,
                                 .context = own,
                                 .handle = handle,
                                 .start = open_device,
                                 .stop = close_device,
                                 .decide = end_it,
                                 .mailbox = options.queue,
                                 .pinned = true};
    tutti_status status = tutti_actor_create(actors, &actor);
    if (status != TUTTI_OK) free_all(own);
    return status;
}

tutti_status tutti_device_do_start(tutti_actors *actors, const char *name, tutti_device_work *work, void *context,
                                   int64_t deadline_ms, tutti_op *op)
{
    const struct work request = {work, context};
    if (actors == NULL) return TUTTI_ERR_ARGUMENT;
    if (work == NULL) return refuse(actors, "device_do", "there is no work");
    return tutti_actor_ask_start(actors, actors->comm->rank, name, &request, sizeof request, NULL, 0, NULL, deadline_ms,
                                 op);
}

tutti_status tutti_device_do(tutti_actors *actors, const char *name, tutti_device_work *work, void *context,
                             int64_t deadline_ms)
{
    const struct work request = {work, context};
    if (actors == NULL) return TUTTI_ERR_ARGUMENT;
    if (work == NULL) return refuse(actors, "device_do", "there is no work");
    return tutti_actor_ask(actors, actors->comm->rank, name, &request, sizeof request, NULL, 0, NULL, deadline_ms);
}

tutti_status tutti_device_renew_start(tutti_actors *actors, const char *name, int64_t deadline_ms, tutti_op *op)
{
    const struct work request = {0};
    if (actors == NULL) return TUTTI_ERR_ARGUMENT;
    return tutti_actor_ask_start(actors, actors->comm->rank, name, &request, sizeof request, NULL, 0, NULL, deadline_ms,
                                 op);
}
