/* SPDX-License-Identifier: Apache-2.0 */
#include "worker.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sstream>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace peers
{

/* ---- Command line ---------------------------------------------------------------------------------------------- */

settings parse_settings(int argc, char **argv)
{
    settings parsed;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string name = argv[i], value = argv[i + 1];
        if (name == "--folder")
            parsed.folder = value;
        else if (name == "--job")
            parsed.job = value;
        else if (name == "--ranks")
            parsed.ranks = std::stoi(value);
        else if (name == "--rank")
            parsed.rank = std::stoi(value);
        else if (name == "--bytes")
            parsed.bytes = std::stoull(value);
        else if (name == "--bind")
            parsed.bind = value == "core";
        else if (name == "--buffers")
            parsed.shared_buffers = value == "shared";
        else if (name == "--memory")
            parsed.huge_pages = value == "tuned";
        else
            throw std::runtime_error("unknown option " + name);
    }
    if (parsed.folder.empty()) throw std::runtime_error("a worker is started by the driver, not by hand");
    sched_getaffinity(0, sizeof parsed.cores, &parsed.cores);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return parsed;
}

void bind_to_core(const settings &wanted, int rank)
{
    const int cores = CPU_COUNT(&wanted.cores);
    if (!wanted.bind || cores == 0) return;
    int skip = rank % cores;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &wanted.cores) || skip-- > 0) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

buffers adapter::allocate(const settings &wanted, std::size_t bytes)
{
    constexpr std::size_t huge_page = std::size_t{1} << 21;
    const std::size_t rounded = (bytes + huge_page - 1) / huge_page * huge_page;
    float *memory[2];
    for (float *&buffer : memory) {
        buffer = static_cast<float *>(std::aligned_alloc(huge_page, rounded));
        if (buffer == nullptr) throw std::runtime_error("no memory for the buffers");
        if (wanted.huge_pages) madvise(buffer, rounded, MADV_HUGEPAGE);
        std::memset(buffer, 0, rounded);
    }
    return {memory[0], memory[1]};
}

/* ---- Contents: small whole numbers, so that every order of summation gives the same float ----------------------- */

static float value(std::size_t rank, std::size_t index)
{
    return static_cast<float>((index * 5 + rank * 17) & 127);
}

static float sum_of_values(int ranks, std::size_t index)
{
    float sum = 0;
    for (int rank = 0; rank < ranks; rank++) sum += value(static_cast<std::size_t>(rank), index);
    return sum;
}

static void fill(const call &wanted, int rank, const buffers &memory)
{
    const bool holds_input_in_out = wanted.what == op::broadcast && rank == 0;
    for (std::size_t i = 0; i < wanted.whole(); i++) {
        memory.in[i] = value(static_cast<std::size_t>(rank), i);
        memory.out[i] = holds_input_in_out ? memory.in[i] : -1.0F;
    }
}

static float expected(const call &wanted, int rank, std::size_t index)
{
    const auto self = static_cast<std::size_t>(rank);
    switch (wanted.what) {
    case op::all_reduce: return sum_of_values(wanted.ranks, index);
    case op::reduce_scatter: return sum_of_values(wanted.ranks, self * wanted.block + index);
    case op::all_gather: return value(index / wanted.block, index % wanted.block);
    case op::all_to_all: return value(index / wanted.block, self * wanted.block + index % wanted.block);
    case op::broadcast: return value(0, index);
    case op::ping_pong: return value(1 - self, index);
    case op::window: return value(0, index);
    case op::barrier: break;
    }
    return 0;
}

static std::size_t count_wrong(const call &wanted, int rank, const float *result)
{
    if (wanted.what == op::barrier || (wanted.what == op::window && rank == 0)) return 0;
    const std::size_t count = wanted.what == op::reduce_scatter ? wanted.block : wanted.whole();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; i++) wrong += result[i] != expected(wanted, rank, i);
    return wrong;
}

/* ---- Timing ---------------------------------------------------------------------------------------------------- */

static long now_ns(clockid_t clock)
{
    timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* What this thread has done so far. */
struct moment {
    long wall = now_ns(CLOCK_MONOTONIC), own = now_ns(CLOCK_THREAD_CPUTIME_ID), preemptions = 0;

    moment()
    {
        rusage used{};
        getrusage(RUSAGE_THREAD, &used);
        preemptions = used.ru_nivcsw;
    }

    /* Time in which something else was run in its place, against its will. */
    long lost_since(const moment &start) const
    {
        return preemptions > start.preemptions ? std::max(0L, (wall - start.wall) - (own - start.own)) : 0;
    }
};

struct command {
    call wanted;
    int warm, batch, samples;
    bool check;
};

/* The ranks that have no part in it must not spin in a barrier beside it: they answer at once and go back to sleep,
 * and a round trip does for the two that remain. */
static void meet(adapter &library, const command &given)
{
    if (is_for_two(given.wanted.what))
        library.repeat(1);
    else
        library.barrier();
}

/* The samples, as the driver reads them. */
static std::string measure(adapter &library, const command &given)
{
    std::string samples;
    if (given.warm > 0) library.repeat(given.warm);
    for (int sample = 0; sample < given.samples; sample++) {
        meet(library, given);
        const moment before;
        const long start = now_ns(CLOCK_MONOTONIC);
        library.repeat(given.batch);
        const long elapsed = now_ns(CLOCK_MONOTONIC) - start;
        samples += " " + std::to_string(elapsed) + ":" + std::to_string(moment().lost_since(before));
    }
    return samples;
}

static std::string carry_out(adapter &library, const buffers &memory, const command &given, int rank)
{
    const std::string self = " " + std::to_string(rank) + " ";
    if (!library.prepare(given.wanted, memory)) return "missing" + self + "the library has no such operation";
    if (is_for_two(given.wanted.what) && rank > 1) {
        std::string idle = "done" + self + "0";
        for (int sample = 0; sample < given.samples; sample++) idle += " 0:0";
        return idle;
    }
    std::size_t wrong = 0;
    if (given.check && library.has_results()) {
        fill(given.wanted, rank, memory);
        meet(library, given);
        library.repeat(1);
        wrong = count_wrong(given.wanted, rank, library.result(memory));
    }
    return "done" + self + std::to_string(wrong) + measure(library, given);
}

/* ---- The driver's pipes ---------------------------------------------------------------------------------------- */

class pipes
{
  public:
    pipes(const std::string &folder, int rank)
        : control(open((folder + "/ctl." + std::to_string(rank)).c_str(), O_RDONLY | O_CLOEXEC)),
          reply(open((folder + "/reply").c_str(), O_WRONLY | O_CLOEXEC))
    {
        if (control < 0 || reply < 0)
            throw std::runtime_error(std::string("no pipe to the driver: ") + strerror(errno));
    }
    pipes(const pipes &) = delete;
    pipes &operator=(const pipes &) = delete;
    ~pipes()
    {
        close(control);
        close(reply);
    }

    /* One write: below PIPE_BUF it does not mix with the lines of other ranks. */
    void say(std::string line) const
    {
        line += '\n';
        if (write(reply, line.data(), line.size()) < 0) _exit(1);
    }

    /* A driver that has gone ends the worker at once: its peers may never answer again. */
    std::string hear()
    {
        for (;;) {
            const std::size_t end = heard.find('\n');
            if (end != std::string::npos) {
                std::string line = heard.substr(0, end);
                heard.erase(0, end + 1);
                return line;
            }
            char chunk[512];
            const ssize_t got = read(control, chunk, sizeof chunk);
            if (got > 0)
                heard.append(chunk, static_cast<std::size_t>(got));
            else if (got == 0 || errno != EINTR)
                _exit(1);
        }
    }

  private:
    int control, reply;
    std::string heard;
};

static command parse_command(const std::string &line, int ranks)
{
    std::istringstream words(line);
    std::string verb, name;
    std::size_t bytes = 0;
    command parsed{};
    words >> verb >> name >> bytes >> parsed.warm >> parsed.batch >> parsed.samples >> parsed.check;
    const auto what = op_named(name);
    if (!words || verb != "run" || !what) throw std::runtime_error("not a command: " + line);
    parsed.wanted = make_call(*what, bytes, ranks);
    return parsed;
}

int serve(adapter &library, const settings &wanted, int rank)
{
    pipes driver(wanted.folder, rank);
    try {
        const std::size_t least = static_cast<std::size_t>(wanted.ranks) * sizeof(float);
        const buffers memory = library.allocate(wanted, std::max(wanted.bytes, least));
        driver.say("hello " + std::to_string(rank) + " " + std::to_string(getpid()));
        for (;;) {
            const std::string line = driver.hear();
            if (line == "quit") return 0;
            driver.say(carry_out(library, memory, parse_command(line, wanted.ranks), rank));
        }
    } catch (const std::exception &problem) {
        driver.say("error " + std::to_string(rank) + " " + problem.what());
        return 1;
    }
}

} // namespace peers
