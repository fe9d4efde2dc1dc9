/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=1200 labels=full
 *
 * test_checkpoint_layouts with every pair.
 */
#define TEST_MAIN test_all
static void test_all(void);
#include "test_checkpoint_layouts.c"

static void test_all(void)
{
    for (int i = 0; i < LAYOUTS; i++)
        for (int k = 0; k < LAYOUTS; k++) load_on(i, k);
}
