/* SPDX-License-Identifier: Apache-2.0
 *
 * The floor over TCP as a contestant: bare non-blocking sockets over loopback, whose ranks are threads of one process and
 * never sleep. Nothing is framed, checked or matched: each rank knows what comes next on each connection. Between two
 * ranks no library over sockets can pass it by much; between more it is a bound for large calls only, as every rank speaks
 * with every other.
 */
#include "worker.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <thread>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

extern "C" {
#include "bench/floor.h"
}

namespace
{

using peers::op;

/* Connections between two ranks: what one carries never waits for what the other does. The first two have as much room as the
 * system gives them, the others so much that what is on its way stays in the caches. */
constexpr int lanes = 4, narrow = 2, narrow_bytes = 256 << 10;
constexpr std::size_t line = 64, tile = 16384;

/* ---- Connections ------------------------------------------------------------------------------------------------ */

int listening(sockaddr_in &where)
{
    const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof where;
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto *address = reinterpret_cast<sockaddr *>(&where);
    if (bind(descriptor, address, length) != 0 || listen(descriptor, 1) != 0 ||
        getsockname(descriptor, address, &length) != 0)
        throw std::runtime_error("the floor cannot listen");
    return descriptor;
}

/* `room`: for what is on its way; 0: as the system sees fit. */
std::array<int, 2> connected(int room)
{
    sockaddr_in where{};
    const int listener = listening(where), one = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (connect(one, reinterpret_cast<sockaddr *>(&where), sizeof where) != 0)
        throw std::runtime_error("the floor cannot connect");
    const int other = accept4(listener, nullptr, nullptr, 0);
    close(listener);
    for (const int each : {one, other}) {
        setsockopt(each, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        if (room > 0) setsockopt(each, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    }
    return {one, other};
}

/* By rank, peer and lane. */
class mesh
{
  public:
    explicit mesh(const peers::settings &wanted)
        : ranks(wanted.ranks), crowded(ranks > CPU_COUNT(&wanted.cores)),
          descriptors(static_cast<std::size_t>(ranks * ranks * lanes))
    {
        for (int a = 0; a < ranks; a++)
            for (int b = 0; b < a; b++)
                for (int lane = 0; lane < lanes; lane++) {
                    const std::array<int, 2> ends = connected(lane < narrow ? 0 : narrow_bytes);
                    descriptors[place(a, b, lane)] = ends[0], descriptors[place(b, a, lane)] = ends[1];
                }
    }
    int at(int rank, int peer, int lane) const
    {
        return descriptors[place(rank, peer, lane)];
    }

    const int ranks;
    const bool crowded;

  private:
    std::size_t place(int rank, int peer, int lane) const
    {
        return static_cast<std::size_t>((rank * ranks + peer) * lanes + lane);
    }
    std::vector<int> descriptors;
};

/* ---- One call --------------------------------------------------------------------------------------------------- */

/* Bytes on their way over one connection, of which `ready` may go so far. */
struct flow {
    int descriptor;
    char *bytes;
    std::size_t size, ready, done;
};

/* How much a system call may move, over which lane or, with `spread`, half over the next one. */
struct way {
    int lane = 0;
    bool spread = false;
    std::size_t piece = 1 << 20;
};
constexpr std::array<way, 8> ways = {{{0, false, 1 << 17},
                                      {0, false, 1 << 20},
                                      {0, true, 1 << 17},
                                      {0, true, 1 << 20},
                                      {narrow, false, 1 << 17},
                                      {narrow, false, 1 << 20},
                                      {narrow, true, 1 << 17},
                                      {narrow, true, 1 << 20}}};
constexpr std::size_t ways_from = 65536;

class sockets_adapter final : public peers::adapter
{
  public:
    sockets_adapter(const mesh &given, int given_rank) : net(given), rank(given_rank)
    {
    }

    peers::buffers allocate(const peers::settings &wanted, std::size_t bytes) override
    {
        constexpr std::size_t huge_page = std::size_t{1} << 21;
        const std::size_t lines = bytes + static_cast<std::size_t>(wanted.ranks) * line;
        const std::size_t rounded = (lines + huge_page - 1) / huge_page * huge_page;
        landing = static_cast<char *>(std::aligned_alloc(huge_page, rounded));
        if (landing == nullptr) throw std::runtime_error("no memory for what arrives");
        madvise(landing, rounded, MADV_HUGEPAGE);
        std::memset(landing, 0, rounded);
        return peers::adapter::allocate(wanted, bytes);
    }

    bool prepare(const peers::call &given, const peers::buffers &given_memory) override
    {
        if (given.what == op::window) return false;
        what = given.what, block = given.block * sizeof(float), whole = given.whole() * sizeof(float);
        in = reinterpret_cast<char *>(given_memory.in), out = reinterpret_cast<char *>(given_memory.out);
        chosen = {};
        if (block >= ways_from && (!is_for_two(what) || rank < 2)) choose_way();
        return true;
    }

    void repeat(int times) override
    {
        for (int i = 0; i < times; i++) once();
    }

    /* By dissemination. */
    void barrier() override
    {
        for (int step = 1; step < net.ranks; step *= 2)
            exchange_bytes((rank + step) % net.ranks, (rank + net.ranks - step) % net.ranks);
    }

  private:
    /* Of all ranks, since all must take the same; each tells the others how long it took. */
    void choose_way()
    {
        double least = 1e9;
        way best = ways[0];
        for (const way &each : ways) {
            chosen = each;
            double took = 1e9;
            for (int again = 0; again < 3; again++) {
                const auto start = now();
                once();
                took = std::min(took, now() - start);
            }
            took = slowest(took);
            if (took < least) least = took, best = each;
        }
        chosen = best;
    }

    static double now()
    {
        timespec time;
        clock_gettime(CLOCK_MONOTONIC, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    }

    double slowest(double own)
    {
        const int party = is_for_two(what) ? 2 : net.ranks;
        std::vector<double> theirs(static_cast<std::size_t>(party));
        begin();
        for (int peer = 0; peer < party; peer++) {
            if (peer == rank) continue;
            add_send(peer, 0, reinterpret_cast<char *>(&own), sizeof own);
            add_receive(peer, 0, reinterpret_cast<char *>(&theirs[static_cast<std::size_t>(peer)]), sizeof own);
        }
        finish();
        for (const double each : theirs) own = std::max(own, each);
        return own;
    }

    void once()
    {
        switch (what) {
        case op::all_reduce: all_reduce(); break;
        case op::reduce_scatter: reduce_scatter(); break;
        case op::all_gather:
        case op::all_to_all: blocks(); break;
        case op::broadcast: broadcast(); break;
        case op::ping_pong: ping_pong(); break;
        case op::barrier: barrier(); break;
        case op::window: break;
        }
    }

    /* ---- Flows ---- */

    void begin()
    {
        sends.clear();
        receives.clear();
    }
    void add_send(int peer, int lane, char *bytes, std::size_t size)
    {
        sends.push_back({net.at(rank, peer, chosen.lane + lane), bytes, size, size, 0});
    }
    void add_receive(int peer, int lane, char *bytes, std::size_t size)
    {
        receives.push_back({net.at(rank, peer, chosen.lane + lane), bytes, size, size, 0});
    }

    /* Over two lanes, if that is the way. */
    template <typename Add> void spread(std::size_t size, const Add &add)
    {
        const std::size_t first = chosen.spread && size >= ways_from ? size / 2 / line * line : size;
        add(0, std::size_t{0}, first);
        if (first < size) add(1, first, size - first);
    }
    void send_block(int peer, char *bytes, std::size_t size)
    {
        spread(size, [&](int lane, std::size_t at, std::size_t part) { add_send(peer, lane, bytes + at, part); });
    }
    void receive_block(int peer, char *bytes, std::size_t size)
    {
        spread(size, [&](int lane, std::size_t at, std::size_t part) { add_receive(peer, lane, bytes + at, part); });
    }

    bool move(flow &each, bool sending)
    {
        const std::size_t rest = std::min(each.ready - each.done, chosen.piece);
        if (rest == 0) return false;
        const ssize_t moved = sending ? send(each.descriptor, each.bytes + each.done, rest, MSG_DONTWAIT | MSG_NOSIGNAL)
                                      : recv(each.descriptor, each.bytes + each.done, rest, MSG_DONTWAIT);
        if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR))
            throw std::runtime_error("a rank of the floor has gone");
        if (moved > 0) each.done += static_cast<std::size_t>(moved);
        return moved > 0;
    }

    /* One attempt at everything; false: all is done. */
    bool turn()
    {
        bool moved = false, open = false;
        for (flow &each : sends) moved |= move(each, true);
        for (flow &each : receives) moved |= move(each, false);
        for (const flow &each : sends) open |= each.done < each.size;
        for (const flow &each : receives) open |= each.done < each.size;
        if (open && !moved && net.crowded) std::this_thread::yield();
        return open;
    }
    void finish()
    {
        while (turn()) {}
    }

    void exchange_bytes(int to, int from)
    {
        char byte = 0, received = 0;
        begin();
        add_send(to, 0, &byte, 1);
        add_receive(from, 0, &received, 1);
        finish();
    }

    /* ---- Operations ---- */

    /* A part of everybody's vector, in whole lines. */
    std::size_t slice_at(int part) const
    {
        return (block + line - 1) / line * static_cast<std::size_t>(part) / static_cast<std::size_t>(net.ranks) * line;
    }
    std::size_t slice_end(int part) const
    {
        return part + 1 == net.ranks ? block : slice_at(part + 1);
    }

    static void add(const char *one, const char *other, char *to, std::size_t bytes)
    {
        const std::array<const char *, 2> both = {one, other};
        if ((reinterpret_cast<std::uintptr_t>(one) | reinterpret_cast<std::uintptr_t>(other)) % line == 0) {
            floor_add(both.data(), to, (bytes + line - 1) / line * line);
            return;
        }
        for (std::size_t at = 0; at < bytes; at += sizeof(float)) { /* small blocks */
            std::array<float, 2> terms;
            std::memcpy(&terms[0], one + at, sizeof(float));
            std::memcpy(&terms[1], other + at, sizeof(float));
            terms[0] += terms[1];
            std::memcpy(to + at, &terms[0], sizeof(float));
        }
    }

    /* to = from + what came of all peers, as far as all of it has come. */
    static void add_up(char *to, const char *from, const std::vector<char *> &landed, std::size_t begin_at,
                       std::size_t end)
    {
        for (std::size_t at = begin_at; at < end; at += tile)
            for (std::size_t k = 0; k < landed.size(); k++)
                add(landed[k] + at, k == 0 ? from + at : to + at, to + at, std::min(tile, end - at));
    }

    /* Slices to their owners over one lane, sums to all over the other as soon as they are there. Small vectors whole. */
    void all_reduce()
    {
        if (block < ways_from && net.ranks == 2) {
            exchange_whole();
            return;
        }
        const std::size_t at = slice_at(rank), end = slice_end(rank);
        std::vector<char *> landed;
        begin();
        for (int peer = 0; peer < net.ranks; peer++) {
            if (peer == rank) continue;
            landed.push_back(landing + landed.size() * ((end - at + line - 1) / line) * line);
            add_send(peer, 0, in + slice_at(peer), slice_end(peer) - slice_at(peer));
            add_receive(peer, 0, landed.back(), end - at);
        }
        const std::size_t first_phase = sends.size();
        for (int peer = 0; peer < net.ranks; peer++) {
            if (peer == rank) continue;
            add_send(peer, 1, out + at, end - at);
            sends.back().ready = 0;
            add_receive(peer, 1, out + slice_at(peer), slice_end(peer) - slice_at(peer));
        }
        std::size_t added = 0;
        while (turn()) {
            std::size_t come = end - at;
            for (std::size_t k = 0; k < first_phase; k++) come = std::min(come, receives[k].done);
            if (come < end - at) come = come / line * line;
            if (come == added) continue;
            add_up(out + at, in + at, landed, added, come);
            added = come;
            for (std::size_t k = first_phase; k < sends.size(); k++) sends[k].ready = come;
        }
    }

    void exchange_whole()
    {
        begin();
        add_send(1 - rank, 0, in, block);
        add_receive(1 - rank, 0, landing, block);
        finish();
        add_up(out, in, {landing}, 0, block);
    }

    void reduce_scatter()
    {
        std::vector<char *> landed;
        begin();
        for (int peer = 0; peer < net.ranks; peer++) {
            if (peer == rank) continue;
            landed.push_back(landing + landed.size() * ((block + line - 1) / line) * line);
            send_block(peer, in + static_cast<std::size_t>(peer) * block, block);
            receive_block(peer, landed.back(), block);
        }
        finish();
        add_up(out, in + static_cast<std::size_t>(rank) * block, landed, 0, block);
    }

    void blocks()
    {
        const bool gathers = what == op::all_gather;
        begin();
        for (int k = 1; k < net.ranks; k++) {
            const int to = (rank + k) % net.ranks, from = (rank + net.ranks - k) % net.ranks;
            send_block(to, gathers ? in : in + static_cast<std::size_t>(to) * block, block);
            receive_block(from, out + static_cast<std::size_t>(from) * block, block);
        }
        const std::size_t own = static_cast<std::size_t>(rank) * block;
        turn();
        std::memcpy(out + own, gathers ? in : in + own, block);
        finish();
    }

    void broadcast()
    {
        begin();
        if (rank != 0) receive_block(0, out, block);
        for (int peer = 1; rank == 0 && peer < net.ranks; peer++) send_block(peer, out, block);
        finish();
    }

    void ping_pong()
    {
        for (int half = 0; half < 2; half++) {
            begin();
            if (half == rank)
                send_block(1 - rank, in, block);
            else
                receive_block(1 - rank, out, block);
            finish();
        }
    }

    const mesh &net;
    const int rank;
    op what = op::barrier;
    std::size_t block = 0, whole = 0;
    char *in = nullptr, *out = nullptr, *landing = nullptr;
    way chosen;
    std::vector<flow> sends, receives;
};

} // namespace

int main(int argc, char **argv)
{
    const peers::settings wanted = peers::parse_settings(argc, argv);
    const mesh net(wanted);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < wanted.ranks; rank++)
        ranks.emplace_back([&, rank] {
            peers::bind_to_core(wanted, rank);
            sockets_adapter loops(net, rank);
            peers::serve(loops, wanted, rank);
        });
    for (std::thread &each : ranks) each.join();
    return 0;
}
