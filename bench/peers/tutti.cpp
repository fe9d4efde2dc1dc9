/* SPDX-License-Identifier: Apache-2.0
 *
 * Tutti as a contestant: ranks as processes that join by name (--rank given), or as threads of tutti_main. Only the
 * public header is used, in the way a program would use it, call sites included.
 */
#include "worker.hpp"

#include <cstdio>
#include <cstdlib>

#include <tutti/tutti.h>

namespace
{

using peers::op;

class tutti_adapter final : public peers::adapter
{
  public:
    explicit tutti_adapter(tutti_comm *given_world) : world(given_world), rank(tutti_rank(world))
    {
    }

    peers::buffers allocate(const peers::settings &given, size_t bytes) override
    {
        if (!given.shared_buffers) return peers::adapter::allocate(given, bytes);
        const peers::buffers given_memory = {static_cast<float *>(tutti_alloc(world, bytes)),
                                             static_cast<float *>(tutti_alloc(world, bytes))};
        if (given_memory.in == nullptr || given_memory.out == nullptr) throw std::runtime_error(reason());
        return given_memory;
    }

    bool prepare(const peers::call &wanted, const peers::buffers &given) override
    {
        what = wanted.what;
        count = wanted.block;
        memory = given;
        return true;
    }

    void barrier() override
    {
        check(tutti_barrier(world));
    }

    void repeat(int times) override
    {
        for (int i = 0; i < times; i++) check(once());
    }

  private:
    tutti_status once() const
    {
        switch (what) {
        case op::all_reduce: return tutti_all_reduce(world, memory.in, memory.out, count, TUTTI_F32, TUTTI_SUM);
        case op::all_gather: return tutti_all_gather(world, memory.in, memory.out, count, TUTTI_F32);
        case op::reduce_scatter: return tutti_reduce_scatter(world, memory.in, memory.out, count, TUTTI_F32, TUTTI_SUM);
        case op::broadcast: return tutti_broadcast(world, memory.out, memory.out, count, TUTTI_F32, 0);
        case op::all_to_all: return tutti_all_to_all(world, memory.in, memory.out, count, TUTTI_F32);
        case op::ping_pong: return round_trip();
        case op::barrier: return tutti_barrier(world);
        case op::window: return window();
        }
        return TUTTI_ERR_ARGUMENT;
    }

    tutti_status round_trip() const
    {
        const int peer = 1 - rank;
        tutti_status status = TUTTI_OK;
        if (rank == 0) status = tutti_send(world, memory.in, count, TUTTI_F32, peer, 0);
        if (status == TUTTI_OK) status = tutti_recv(world, memory.out, count, TUTTI_F32, peer, 0, nullptr);
        if (rank == 1 && status == TUTTI_OK) status = tutti_send(world, memory.in, count, TUTTI_F32, peer, 0);
        return status;
    }

    tutti_status window() const
    {
        tutti_op all[peers::window_size];
        for (tutti_op &one : all)
            check(rank == 0 ? tutti_send_start(world, memory.in, count, TUTTI_F32, 1, 0, &one)
                            : tutti_recv_start(world, memory.out, count, TUTTI_F32, 0, 0, nullptr, &one));
        check(tutti_wait_all(all, peers::window_size));
        return rank == 0 ? tutti_recv(world, memory.out, 1, TUTTI_F32, 1, 0, nullptr)
                         : tutti_send(world, memory.in, 1, TUTTI_F32, 0, 0);
    }

    void check(tutti_status status) const
    {
        if (status != TUTTI_OK) throw std::runtime_error(reason());
    }

    std::string reason() const
    {
        const tutti_error *error = tutti_comm_error(world);
        return error != nullptr ? error->text : "tutti failed and left no error";
    }

    tutti_comm *world;
    int rank;
    op what = op::barrier;
    size_t count = 0;
    peers::buffers memory{};
};

peers::settings wanted; /* set by main before there are ranks */

int work(tutti_comm *world, int, char **)
{
    peers::bind_to_core(wanted, tutti_rank(world));
    tutti_adapter library(world);
    return peers::serve(library, wanted, tutti_rank(world));
}

int join_and_work()
{
    peers::bind_to_core(wanted, wanted.rank);
    tutti_comm *world = nullptr;
    const tutti_status joined = tutti_join_as(wanted.job.c_str(), wanted.rank, wanted.ranks, nullptr, &world);
    const int status = joined == TUTTI_OK ? work(world, 0, nullptr) : tutti_explain(world, stderr);
    tutti_leave(world);
    return status;
}

} // namespace

int main(int argc, char **argv)
{
    wanted = peers::parse_settings(argc, argv);
    if (wanted.rank >= 0) return join_and_work();
    return tutti_main(work, argc, argv);
}
