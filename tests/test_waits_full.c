/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=3600 labels=full
 *
 * Deadlocks of blocking calls in simulated time: every program of up to three ranks and six calls, and 100,000 random ones.
 */
#include "blocking.h"
#include "ranks.h"

enum { CALLS = 6, RANDOM = 100000 };

int main(void)
{
    tutti_log_set_level(TUTTI_QUIET);
    for (int ranks = 2; ranks <= 3; ranks++) {
        blocking_every(ranks, CALLS);
        blocking_end(ranks == 2 ? "programs of two ranks" : "programs of three ranks");
    }
    blocking_slowly = true;
    for (uint64_t seed = 0; seed < RANDOM; seed++) {
        struct blocking_program program;
        blocking_random(&program, seed);
        blocking_add(&program);
    }
    blocking_end("random programs");
    return check_end();
}
