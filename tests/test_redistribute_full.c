/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=1200 labels=full
 *
 * Every redistribution of test_redistribute.c, on 1 to 8 threads, and many more on meshes of three and four dimensions.
 */
#include "check_redistribution.h"
#include "conformance_world.h"

static void run_cases(tutti_comm *comm, void *context)
{
    (void)context;
    redistribution_cases(comm, 1);
    redistribution_draws(comm, 4000, 2);
}

int main(void)
{
    conf_begin();
    for (int size = 1; size <= 8; size++) {
        struct conf_world world = {
            .ranks = WORLD_THREADS, .size = size, .direct = 1, .attach = 1, .limit_s = 1200, .body = run_cases};
        conf_world_run(&world);
    }
    return check_end();
}
