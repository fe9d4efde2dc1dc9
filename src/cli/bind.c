/* SPDX-License-Identifier: Apache-2.0
 *
 * --bind core: gives each rank one core, in topology order, so that neighbours share caches.
 */
#include "cli/cli.h"
#include "cli/cli_run.h"

#if TUTTI_HAVE_HWLOC

#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <stdlib.h>

/* Loads what this process may use only, by cgroups (hwloc's default) and by its own binding, as with taskset. */
static int load(hwloc_topology_t *topology)
{
    if (hwloc_topology_init(topology) != 0) return cli_fail(NULL, "--bind core: hwloc cannot be initialised");
    if (hwloc_topology_set_flags(*topology,
                                 HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM | HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING) == 0 &&
        hwloc_topology_load(*topology) == 0) {
        return CLI_GO_ON;
    }
    hwloc_topology_destroy(*topology);
    return cli_fail(NULL, "--bind core: hwloc cannot read this machine's topology");
}

static int choose(hwloc_topology_t topology, int size, cpu_set_t *cores)
{
    hwloc_obj_type_t type = HWLOC_OBJ_CORE;
    if (hwloc_get_nbobjs_by_type(topology, type) <= 0) type = HWLOC_OBJ_PU; /* some virtual machines show no cores */
    int count = hwloc_get_nbobjs_by_type(topology, type);
    if (count <= 0) return cli_fail(NULL, "--bind core: hwloc finds no core that may be used");
    if (size > count) (void)cli_fail(NULL, "warning: %d ranks share %d cores (--bind core)", size, count);
    for (int rank = 0; rank < size; rank++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(topology, type, (unsigned)(rank % count));
        if (hwloc_cpuset_to_glibc_sched_affinity(topology, core->cpuset, &cores[rank], sizeof cores[rank]) != 0) {
            return cli_fail(NULL, "--bind core: the cores of rank %d cannot be expressed as a CPU set", rank);
        }
    }
    return CLI_GO_ON;
}

int bind_cores(int size, cpu_set_t **cores)
{
    hwloc_topology_t topology;
    int status = load(&topology);
    if (status != CLI_GO_ON) return status;
    cpu_set_t *sets = calloc((size_t)size, sizeof *sets);
    status = sets == NULL ? cli_fail(NULL, "out of memory") : choose(topology, size, sets);
    hwloc_topology_destroy(topology);
    if (status == CLI_GO_ON) {
        *cores = sets;
    } else {
        free(sets);
    }
    return status;
}

#else

int bind_cores(int size, cpu_set_t **cores)
{
    (void)size;
    (void)cores;
    return cli_refuse(NULL, "--bind core: this tool was built without hwloc (Debian: libhwloc-dev), which it needs");
}

#endif
