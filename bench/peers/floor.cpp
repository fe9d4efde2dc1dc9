/* SPDX-License-Identifier: Apache-2.0
 *
 * The floor as a contestant: the bare loops of bench/floor.c, whose ranks are threads of one process with memory in huge
 * pages. What no contestant can pass by much shows how far a peer leaves room for anybody. It computes no results that
 * could be checked.
 */
#include "worker.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <thread>
#include <vector>

#include <sys/mman.h>

extern "C" {
#include "bench/floor.h"
}

namespace
{

using peers::op;

constexpr int pair_size = 2; /* of ping_pong, in which the other ranks have no part, not even a barrier */

/* What all ranks share. */
class arena
{
  public:
    arena(const peers::settings &wanted, std::size_t given_bytes)
        : bytes(given_bytes), crowded(wanted.ranks > CPU_COUNT(&wanted.cores)), whole(map(wanted.ranks)),
          pair(map(pair_size)), seconds(static_cast<std::size_t>(wanted.ranks))
    {
    }

    const std::size_t bytes; /* of the largest buffer */
    const bool crowded;
    void *const whole, *const pair;
    std::vector<std::array<double, FLOOR_WAYS>> seconds; /* of one sample of each way, by rank */

  private:
    void *map(int ranks) const
    {
        const std::size_t region = floor_region_bytes(ranks, bytes);
        void *memory = mmap(nullptr, region, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::runtime_error("no memory for the floor's buffers");
        madvise(memory, region, MADV_HUGEPAGE);
        return memory;
    }
};

floor_op shape_of(op what)
{
    switch (what) {
    case op::all_reduce: return FLOOR_ALL_REDUCE;
    case op::all_gather: return FLOOR_ALL_GATHER;
    case op::reduce_scatter: return FLOOR_REDUCE_SCATTER;
    case op::broadcast: return FLOOR_BROADCAST;
    case op::all_to_all: return FLOOR_ALL_TO_ALL;
    case op::ping_pong: return FLOOR_PING_PONG;
    case op::barrier:
    case op::window: break;
    }
    return FLOOR_BARRIER;
}

class floor_adapter final : public peers::adapter
{
  public:
    floor_adapter(arena &given, int given_rank) : shared(given), rank(given_rank)
    {
    }

    bool has_results() const override
    {
        return false;
    }

    peers::buffers allocate(const peers::settings &wanted, std::size_t) override
    {
        floor_attach(&everyone, shared.whole, rank, wanted.ranks, shared.bytes, shared.crowded);
        if (rank < pair_size) floor_attach(&two, shared.pair, rank, pair_size, shared.bytes, false);
        return {nullptr, nullptr};
    }

    bool prepare(const peers::call &wanted, const peers::buffers &) override
    {
        if (wanted.what == op::window) return false;
        asked = {shape_of(wanted.what), wanted.whole() * sizeof(float), wanted.what == op::broadcast, 0};
        self = wanted.what == op::ping_pong ? &two : &everyone;
        if (rank < self->ranks) choose_way();
        return true;
    }

    void repeat(int times) override
    {
        take(asked, chosen, static_cast<std::uint64_t>(times) * (asked.op == FLOOR_PING_PONG ? 2 : 1));
    }

    void barrier() override
    {
        take({FLOOR_BARRIER, 0, false, 0}, FLOOR_PLAIN, 1);
    }

  private:
    double take(const floor_call &call, floor_way way, std::uint64_t batch)
    {
        const double elapsed = floor_sample(self, &call, way, batch);
        if (elapsed < 0) throw std::runtime_error("a rank of the floor did not come");
        return elapsed;
    }

    /* The fastest right now, judged by the slowest rank, and by all ranks alike. */
    void choose_way()
    {
        const std::uint64_t batch = asked.bytes < 1 << 20 ? 64 : 2;
        for (int way = 0; way < FLOOR_WAYS; way++) {
            double &own = shared.seconds[static_cast<std::size_t>(rank)][static_cast<std::size_t>(way)];
            own = 1e9;
            if (!floor_has_way(self, &asked, static_cast<floor_way>(way))) continue;
            for (int again = 0; again < 4; again++) /* the first ones warm up */
                own = std::min(own, take(asked, static_cast<floor_way>(way), batch));
        }
        barrier();
        const auto slowest = [this](std::size_t way) {
            double most = 0;
            for (int each = 0; each < self->ranks; each++)
                most = std::max(most, shared.seconds[static_cast<std::size_t>(each)][way]);
            return most;
        };
        std::size_t best = FLOOR_PLAIN;
        for (std::size_t way = 1; way < FLOOR_WAYS; way++)
            if (slowest(way) < slowest(best)) best = way;
        chosen = static_cast<floor_way>(best);
        barrier(); /* before anybody writes its times again */
    }

    arena &shared;
    const int rank;
    floor_rank everyone{}, two{};
    floor_rank *self = &everyone;
    floor_call asked{};
    floor_way chosen = FLOOR_PLAIN;
};

} // namespace

int main(int argc, char **argv)
{
    const peers::settings wanted = peers::parse_settings(argc, argv);
    arena shared(wanted, std::max(wanted.bytes, static_cast<std::size_t>(wanted.ranks) * sizeof(float)));
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < wanted.ranks; rank++)
        ranks.emplace_back([&, rank] {
            peers::bind_to_core(wanted, rank);
            floor_adapter loops(shared, rank);
            peers::serve(loops, wanted, rank);
        });
    for (std::thread &each : ranks) each.join();
    return 0;
}
