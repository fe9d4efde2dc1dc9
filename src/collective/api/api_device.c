/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses a rank's device.
 */
#define TUTTI_NO_CALL_SITES
#include "base/status.h"
#include "collective/api/api.h"
#include "collective/peers/net.h"
#include "device/open.h"
#include "world/cluster.h"
#include <string.h>
#include <tutti/device.h>

int tutti_local_rank(const tutti_comm *comm)
{
    if (comm == NULL || comm->world == NULL) return -1;
    if (comm->lanes == NULL) return tti_member(comm, comm->rank);
    return tti_cluster_place(comm->lanes->net->cluster, comm->job_rank);
}

/* Opens "cuda" with a number; the ranks of a host take the GPUs in turn. */
static tutti_status open_in_turn(const tutti_comm *comm, tutti_device **device, tutti_error *error)
{
    char name[32];
    int count = 0;
    TTI_TRY(tutti_device_count("cuda", &count, error));
    if (count == 0)
        return tti_error_set(
            error, TUTTI_ERR_UNSUPPORTED, 0,
            "the driver shows no GPU; see CUDA_VISIBLE_DEVICES, or take the device host (TUTTI_DEVICE=host)");
    snprintf(name, sizeof name, "cuda:%d", tutti_local_rank(comm) % count);
    return tutti_device_open(name, device, error);
}

tutti_status tutti_device_open_for(tutti_comm *comm, const char *name, tutti_device **device, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "device_open_for");
    if (device == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "where the device shall go is NULL");
    *device = NULL;
    if (comm == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the comm is NULL");
    if (tti_comm_is_stillborn(comm))
        return tti_error_set(error, comm->errors.call.status, 0, "%s", comm->errors.call.text);
    const char *told = comm->world->options.device;
    if (strcmp(told, "auto") != 0) name = told;
    if (name == NULL) name = tutti_has("cuda") ? "cuda" : "host";
    return strcmp(name, "cuda") == 0 ? open_in_turn(comm, device, error) : tutti_device_open(name, device, error);
}
