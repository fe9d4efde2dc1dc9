/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=3600 labels=full
 *
 * Every stage of zero on 1 to 8 ranks and in replicas, with 8 and 13 grains, 1 to 4 passes, 1 and 2 threads.
 */
static void test_full(void);
#define TEST_MAIN test_full
#include "test_trainer_zero.c" /* NOLINT: its trials */

static void test_full(void)
{
    for (int64_t grains = 8; grains <= 13; grains += 5)
        for (int64_t passes = 1; passes <= 4; passes++)
            for (int64_t threads = 1; threads <= 2; threads++) {
                struct trial trial = {0, passes, threads, "adamw", NULL, grains, 500};
                run(WORLD_THREADS, 1, run_alone, &trial);
                for (int size = 1; size <= 8; size++) run(WORLD_THREADS, size, run_all, &trial);
                run(WORLD_PROCESSES, 3, run_all, &trial);
                static const char *const meshes[] = {"data=2,shard=2", "data=3,shard=2", "data=2,shard=3",
                                                     "data=2,shard=4"};
                static const int ranks[] = {4, 6, 6, 8};
                for (int i = 0; i < 4; i++) {
                    trial.mesh = meshes[i];
                    run(WORLD_THREADS, ranks[i], run_all, &trial);
                }
            }
    struct trial usual = {0, 1, 1, "adamw", NULL, 0, 0};
    run(WORLD_THREADS, 1, run_alone, &usual);
    test_saved();
}
