/* SPDX-License-Identifier: Apache-2.0 */
#include "contestant.hpp"

#include "process.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace peers
{

using steady = std::chrono::steady_clock;

contestant::contestant(recipe given, const options &chosen, const std::string &parent_folder)
    : how(std::move(given)), wanted(chosen), folder(parent_folder + "/" + how.name)
{
}

contestant::~contestant()
{
    stop();
}

/* ---- Starting and ending --------------------------------------------------------------------------------------- */

bool contestant::make_pipes()
{
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    if (mkdir(folder.c_str(), 0700) != 0) return false;
    std::vector<std::string> names = {"reply"};
    for (int rank = 0; rank < wanted.ranks; rank++) names.push_back("ctl." + std::to_string(rank));
    for (const std::string &name : names) {
        const std::string path = folder + "/" + name;
        if (mkfifo(path.c_str(), 0600) != 0) return false;
        /* Both ends, so that neither opening nor a worker's end disturbs the driver; the driver's end reaches all. */
        const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
        if (descriptor < 0) return false;
        if (name == "reply")
            replies = descriptor;
        else
            controls.push_back(descriptor);
    }
    return true;
}

void contestant::spawn()
{
    const std::string job = "peers-" + std::to_string(getpid()) + "-" + how.name + "-" + std::to_string(starts++);
    std::vector<std::string> command = how.launcher;
    const std::vector<std::string> worker = {
        how.worker,
        "--folder",
        folder,
        "--job",
        job,
        "--ranks",
        std::to_string(wanted.ranks),
        "--bytes",
        std::to_string(wanted.largest()),
        "--bind",
        how.bind,
        "--buffers",
        wanted.buffers_name(),
        "--memory",
        wanted.memory_name(),
    };
    command.insert(command.end(), worker.begin(), worker.end());
    const bool all_at_once = how.one_process || !how.launcher.empty();
    for (int rank = 0; rank < (all_at_once ? 1 : wanted.ranks); rank++) {
        std::vector<std::string> arguments = command;
        if (!all_at_once) arguments.insert(arguments.end(), {"--rank", std::to_string(rank)});
        processes.push_back(launch(arguments, how.environment, folder + "/log"));
    }
}

bool contestant::start()
{
    constexpr int most_failures = 4;
    if (access(how.worker.c_str(), X_OK) != 0) {
        problem = "not built";
        return false;
    }
    if (failures == most_failures) return false;
    if (!make_pipes()) {
        fail(std::string("cannot make its pipes: ") + strerror(errno));
        return false;
    }
    spawn();
    std::vector<std::string> lines;
    if (!collect("hello", 60, lines)) {
        failures = most_failures; /* what cannot start now never will */
        return false;
    }
    problem.clear();
    return true;
}

void contestant::close_pipes()
{
    for (const int descriptor : controls) close(descriptor);
    controls.clear();
    if (replies >= 0) close(replies);
    replies = -1;
    heard.clear();
}

void contestant::stop()
{
    for (const int descriptor : controls)
        if (write(descriptor, "quit\n", 5) < 0) break;
    for (int tries = 0; tries < 300 && !processes.empty(); tries++) {
        processes.erase(std::remove_if(processes.begin(), processes.end(), has_ended), processes.end());
        if (!processes.empty()) sleep_ms(10);
    }
    if (!processes.empty()) kill_trees(processes);
    processes.clear();
    close_pipes();
}

std::string contestant::log_tail() const
{
    std::ifstream file(folder + "/log");
    std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    return all.size() > 1500 ? all.substr(all.size() - 1500) : all;
}

outcome contestant::fail(const std::string &reason)
{
    failures++;
    problem = reason;
    const std::string tail = log_tail();
    if (!tail.empty()) problem += "\n" + tail;
    kill_trees(processes);
    processes.clear();
    close_pipes();
    return {};
}

/* ---- Talking --------------------------------------------------------------------------------------------------- */

bool contestant::some_ended()
{
    return std::any_of(processes.begin(), processes.end(), has_ended);
}

bool contestant::read_some(int wait_ms)
{
    pollfd watched{replies, POLLIN, 0};
    const int ready = poll(&watched, 1, wait_ms);
    check_interrupt();
    if (ready <= 0) return false;
    char chunk[4096];
    const ssize_t got = read(replies, chunk, sizeof chunk);
    if (got > 0) heard.append(chunk, static_cast<std::size_t>(got));
    return got > 0;
}

static const std::string missing_line = "missing";

static bool begins(const std::string &line, const std::string &word)
{
    return line.compare(0, word.size(), word) == 0;
}

/* One line from every rank: what follows this verb, in no order, or `missing_line`. */
bool contestant::collect(const std::string &verb, int seconds, std::vector<std::string> &lines)
{
    const auto deadline = steady::now() + std::chrono::seconds(seconds);
    while (lines.size() < static_cast<std::size_t>(wanted.ranks)) {
        const std::size_t end = heard.find('\n');
        if (end != std::string::npos) {
            const std::string line = heard.substr(0, end);
            heard.erase(0, end + 1);
            if (begins(line, verb + " "))
                lines.push_back(line.substr(verb.size() + 1));
            else if (begins(line, missing_line))
                lines.push_back(missing_line);
            else
                return fail("said: " + line), false;
        } else if (!read_some(200) && some_ended()) {
            return fail("a process of it ended"), false;
        } else if (steady::now() > deadline) {
            return fail("no answer within " + std::to_string(seconds) + " s"), false;
        }
    }
    return true;
}

outcome contestant::take(const turn &asked)
{
    std::ostringstream line;
    line << "run " << op_name(asked.what) << ' ' << asked.bytes << ' ' << asked.warm << ' ' << asked.batch << ' '
         << asked.samples << ' ' << asked.check << '\n';
    const std::string text = line.str();
    for (const int descriptor : controls)
        if (write(descriptor, text.data(), text.size()) < 0) return fail("cannot be written to");
    std::vector<std::string> lines;
    if (!collect("done", wanted.deadline_s, lines)) return {};
    if (lines.front() == missing_line) return {outcome::missing, {}, 0};
    outcome result{outcome::done, std::vector<outcome::sample>(static_cast<std::size_t>(asked.samples)), 0};
    const double calls = static_cast<double>(asked.batch) * parts_of(asked.what);
    for (const std::string &each : lines) {
        std::istringstream words(each);
        int rank = 0;
        std::size_t wrong = 0;
        words >> rank >> wrong;
        result.wrong += wrong;
        for (outcome::sample &each_sample : result.samples) {
            double ns = 0, lost_ns = 0;
            char colon = 0;
            words >> ns >> colon >> lost_ns;
            each_sample.us = std::max(each_sample.us, ns / 1000.0 / calls);
            each_sample.lost = std::max(each_sample.lost, lost_ns / std::max(ns, 1.0));
        }
    }
    return result;
}

/* ---- Who takes part -------------------------------------------------------------------------------------------- */

std::string recipe::text() const
{
    std::string joined;
    for (const auto *words : {&environment, &launcher})
        for (const std::string &word : *words) joined += (joined.empty() ? "" : " ") + word;
    return joined;
}

recipe recipe::varied(const std::string &new_name, const std::vector<std::string> &words) const
{
    recipe copy = *this;
    copy.name = new_name;
    for (const std::string &word : words) {
        const std::size_t equals = word.find('=');
        if (word.compare(0, 5, "bind=") == 0)
            copy.bind = word.substr(5);
        else if (equals != std::string::npos && word[0] != '-')
            copy.environment.push_back(word);
        else
            copy.launcher.push_back(word);
    }
    return copy;
}

/* A call on 64 MiB makes MPI allocate buffers that glibc would map and unmap every time: three quarters of its time
 * were page faults. Nobody is to win by that, so freed blocks stay mapped, in huge pages; for Tutti alike. */
static const char *const malloc_settings = "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=4294967296:"
                                           "glibc.malloc.trim_threshold=8589934592:glibc.malloc.hugetlb=1";

/* Open MPI chooses vader with cross-memory attach by itself on one host; its files go to the driver's folder, which
 * lies in memory and is removed whatever happens. */
static recipe open_mpi(const recipe &base, const std::string &ranks, const std::string &folder, bool crowded)
{
    recipe made = base.varied("openmpi",
                              {"mpirun.openmpi", "-n", ranks, "--bind-to", "none", "OMPI_ALLOW_RUN_AS_ROOT=1",
                               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_orte_tmpdir_base=" + folder,
                               "OMPI_MCA_btl_vader_backing_directory=" + folder});
    made.worker += "openmpi";
    return crowded ? made.varied(made.name, {"--oversubscribe", "--mca", "mpi_yield_when_idle", "1"}) : made;
}

static void add_varied(std::vector<recipe> &list, const std::string &addition)
{
    std::istringstream stream(addition);
    std::string name, base;
    std::getline(stream, name, ':');
    std::getline(stream, base, ':');
    const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
    const auto found = std::find_if(list.begin(), list.end(), [&](const recipe &each) { return each.name == base; });
    if (found == list.end()) throw std::runtime_error("--add: no contestant is named '" + base + "'");
    list.push_back(found->varied(name, words));
}

/* Tutti as it was at another commit, with the same settings; only its program differs. */
static recipe before(const recipe &tutti)
{
    recipe made = tutti.varied("tutti-before", {});
    made.worker += "-before";
    return made;
}

/* Over TCP nobody may use memory that is shared. */
static std::vector<recipe> over_tcp(const recipe &tutti, const recipe &openmpi, const recipe &openmpi_ucx,
                                    const recipe &mpich, const recipe &gloo, const recipe &floor)
{
    const std::vector<std::string> ucx = {"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"};
    return {tutti.varied("tutti", {"TUTTI_TRANSPORT=tcp"}),
            openmpi.varied("openmpi",
                           {"--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"}),
            openmpi_ucx.varied("openmpi-ucx", ucx),
            mpich.varied("mpich", ucx).varied("mpich", {"MPIR_CVAR_NOLOCAL=1"}),
            gloo,
            floor};
}

std::vector<recipe> recipes(const options &wanted, const std::string &folder)
{
    const std::string ranks = std::to_string(wanted.ranks);
    const bool crowded = wanted.ranks > core_count();
    recipe base{"", wanted.workers + "/worker-", {}, {}, wanted.bind, false, false};
    if (wanted.tuned_memory) base.environment.push_back(malloc_settings);

    recipe tutti = base.varied("tutti", {});
    tutti.worker += "tutti";
    tutti.one_process = wanted.threads;
    if (wanted.threads) tutti.environment.push_back("TUTTI_RANKS=" + ranks);

    const recipe openmpi = open_mpi(base, ranks, folder, crowded);
    /* Without the two lists below, Open MPI refuses UCX where there is no InfiniBand. */
    const recipe openmpi_ucx = openmpi.varied("openmpi-ucx", {"--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls",
                                                              "any", "--mca", "opal_common_ucx_devices", "any"});
    const recipe openmpi_sm = openmpi.varied("openmpi-sm", {"--mca", "coll_sm_priority", "100"});

    recipe mpich = base.varied("mpich", {"mpirun.mpich", "-n", ranks, "-bind-to", "none"});
    mpich.worker += "mpich";
    recipe gloo = base.varied("gloo", {});
    gloo.worker += "gloo";
    gloo.has_helpers = true;

    recipe floor = base.varied("floor", {});
    floor.worker += wanted.tcp ? "sockets" : "floor";
    floor.one_process = true;

    std::vector<recipe> all = {tutti, openmpi, openmpi_ucx, openmpi_sm, mpich, gloo, floor}, chosen;
    if (wanted.tcp) all = over_tcp(tutti, openmpi, openmpi_ucx, mpich, gloo, floor);
    all.insert(all.begin() + 1, before(all.front()));
    for (const std::string &addition : wanted.additions) add_varied(all, addition);
    std::copy_if(all.begin(), all.end(), std::back_inserter(chosen),
                 [&](const recipe &each) { return wanted.wants(each.name); });
    return chosen;
}

} // namespace peers
