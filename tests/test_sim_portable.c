/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * The tests of simulated time once more, with the portable way to switch stacks: this program brings its own copy of both
 * files, which are then not taken from the library.
 */
#define TTI_COROUTINE_PORTABLE
#include "../src/base/coroutine.c"
#include "../src/base/sim.c"
#include "test_sim.c"
