/* SPDX-License-Identifier: Apache-2.0
 *
 * gloo over TCP on the loopback device, the only transport of its package for one host. Options and buffers are made
 * once per cell, outside the timing, which is as well as a gloo program can do.
 *
 * reduce_scatter exists only as the older ReduceScatterHalvingDoubling, which works in place and overwrites its
 * input. It is measured as it is: the copy that would make it out of place is not charged to it.
 */
#include "worker.hpp"

#include <functional>
#include <memory>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace
{

using peers::op;

std::shared_ptr<gloo::Context> connect(const peers::settings &wanted)
{
    gloo::transport::tcp::attr where("127.0.0.1");
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(where);
    gloo::rendezvous::FileStore store(wanted.folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(wanted.rank, wanted.ranks);
    context->connectFullMesh(store, device);
    return context;
}

void sum(void *out, const void *left, const void *right, size_t count)
{
    gloo::sum<float>(out, left, right, count);
}

class gloo_adapter final : public peers::adapter
{
  public:
    explicit gloo_adapter(const peers::settings &wanted) : context(connect(wanted)), meeting(context)
    {
    }

    bool prepare(const peers::call &wanted, const peers::buffers &memory) override
    {
        what = wanted.what;
        const size_t count = wanted.block, whole = wanted.whole();
        switch (what) {
        case op::all_reduce: once = all_reduce(memory, count); break;
        case op::all_gather: once = gather_like<gloo::AllgatherOptions, gloo::allgather>(memory, count, whole); break;
        case op::all_to_all: once = gather_like<gloo::AlltoallOptions, gloo::alltoall>(memory, whole, whole); break;
        case op::reduce_scatter: once = reduce_scatter(memory, count); break;
        case op::broadcast: once = broadcast(memory, count); break;
        case op::ping_pong: once = ping_pong(memory, count); break;
        case op::barrier: once = [this] { gloo::barrier(meeting); }; break;
        case op::window: return false;
        }
        return true;
    }

    void repeat(int times) override
    {
        for (int i = 0; i < times; i++) once();
    }

    void barrier() override
    {
        gloo::barrier(meeting);
    }

    const float *result(const peers::buffers &memory) const override
    {
        return what == op::reduce_scatter ? memory.in : memory.out;
    }

  private:
    std::function<void()> all_reduce(const peers::buffers &memory, size_t count)
    {
        auto options = std::make_shared<gloo::AllreduceOptions>(context);
        options->setInput(memory.in, count);
        options->setOutput(memory.out, count);
        options->setReduceFunction(sum);
        const size_t bytes = count * sizeof(float);
        if (bytes >= least_bcube && bytes <= most_bcube)
            options->setAlgorithm(gloo::AllreduceOptions::Algorithm::BCUBE);
        return [options] { gloo::allreduce(*options); };
    }

    template <typename Options, void (*function)(Options &)>
    std::function<void()> gather_like(const peers::buffers &memory, size_t in_count, size_t out_count)
    {
        auto options = std::make_shared<Options>(context);
        options->setInput(memory.in, in_count);
        options->setOutput(memory.out, out_count);
        return [options] { function(*options); };
    }

    std::function<void()> reduce_scatter(const peers::buffers &memory, size_t block)
    {
        const std::vector<int> blocks(static_cast<size_t>(context->size), static_cast<int>(block));
        auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
            context, std::vector<float *>{memory.in}, static_cast<int>(block) * context->size, blocks);
        return [algorithm] { algorithm->run(); };
    }

    std::function<void()> broadcast(const peers::buffers &memory, size_t count)
    {
        auto options = std::make_shared<gloo::BroadcastOptions>(context);
        options->setOutput(memory.out, count);
        options->setRoot(0);
        return [options] { gloo::broadcast(*options); };
    }

    std::function<void()> ping_pong(const peers::buffers &memory, size_t count)
    {
        const int peer = 1 - context->rank;
        std::shared_ptr<gloo::transport::UnboundBuffer> in = context->createUnboundBuffer(memory.in,
                                                                                          count * sizeof(float));
        std::shared_ptr<gloo::transport::UnboundBuffer> out = context->createUnboundBuffer(memory.out,
                                                                                           count * sizeof(float));
        constexpr uint64_t slot = 1;
        if (peer == 1)
            return [=] {
                out->recv(peer, slot);
                in->send(peer, slot);
                in->waitSend();
                out->waitRecv();
            };
        return [=] {
            out->recv(peer, slot);
            out->waitRecv();
            in->send(peer, slot);
            in->waitSend();
        };
    }

    /* Between these, up to twice as fast here as the ring that gloo takes unless told. */
    static constexpr size_t least_bcube = 1024, most_bcube = size_t{2} << 20;

    std::shared_ptr<gloo::Context> context;
    gloo::BarrierOptions meeting;
    op what = op::barrier;
    std::function<void()> once;
};

} // namespace

int main(int argc, char **argv)
{
    const peers::settings wanted = peers::parse_settings(argc, argv);
    peers::bind_to_core(wanted, wanted.rank);
    gloo_adapter library(wanted);
    return peers::serve(library, wanted, wanted.rank);
}
