/* SPDX-License-Identifier: Apache-2.0 */
#include "crossing.hpp"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <sched.h>

namespace peers
{

static std::vector<int> allowed_cores()
{
    std::vector<int> list;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return list;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed)) list.push_back(core);
    return list;
}

/* One side of `turns` round trips; sides 0 and 1 take turns at adding 1. */
static void bounce(std::atomic<int> &line, int side, int turns, int core)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    for (int turn = 0; turn < turns; turn++) {
        const int expected = 2 * turn + side;
        for (int spins = 0; line.load(std::memory_order_acquire) != expected; spins++)
            if (spins == 1 << 14) sched_yield(), spins = 0; /* something else has the other core */
        line.store(expected + 1, std::memory_order_release);
    }
}

double crossing_us()
{
    constexpr int warm = 200, turns = 2000;
    const std::vector<int> cores = allowed_cores();
    if (cores.size() < 2) return 0;
    alignas(128) std::atomic<int> line{0};
    double us = 0;
    std::thread other([&] { bounce(line, 1, warm + turns, cores[1]); });
    std::thread self([&] {
        bounce(line, 0, warm, cores[0]);
        const auto start = std::chrono::steady_clock::now();
        for (int turn = warm; turn < warm + turns; turn++) {
            while (line.load(std::memory_order_acquire) != 2 * turn) {}
            line.store(2 * turn + 1, std::memory_order_release);
        }
        us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / turns / 2;
    });
    self.join();
    other.join();
    return us;
}

} // namespace peers
