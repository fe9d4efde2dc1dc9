/* SPDX-License-Identifier: Apache-2.0 */
#include "process.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace peers
{

static volatile std::sig_atomic_t signal_came = 0;

static void on_signal(int)
{
    signal_came = 1;
}

void take_charge()
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    struct sigaction action {
    };
    action.sa_handler = on_signal; /* no SA_RESTART: every wait ends */
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
    signal(SIGPIPE, SIG_IGN);
}

void check_interrupt()
{
    if (signal_came != 0) throw interrupted();
}

void sleep_ms(int ms)
{
    const timespec nap{ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&nap, nullptr);
}

/* ---- Folder ---------------------------------------------------------------------------------------------------- */

temporary_folder::temporary_folder()
{
    const char *chosen = getenv("TMPDIR");
    std::string base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : chosen != nullptr ? chosen : "/tmp";
    path = base + "/tutti-peers.XXXXXX";
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("cannot make " + path + ": " + strerror(errno));
}

temporary_folder::~temporary_folder()
{
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
}

/* ---- Starting -------------------------------------------------------------------------------------------------- */

static std::vector<char *> pointers(const std::vector<std::string> &texts)
{
    std::vector<char *> list;
    for (const std::string &text : texts) list.push_back(const_cast<char *>(text.c_str()));
    list.push_back(nullptr);
    return list;
}

static void redirect(const char *path, int flags, int target)
{
    const int descriptor = open(path, flags, 0600);
    if (descriptor >= 0) dup2(descriptor, target);
    if (descriptor > 2) close(descriptor);
}

pid_t launch(const std::vector<std::string> &arguments, const std::vector<std::string> &environment,
             const std::string &log)
{
    const std::vector<char *> argv = pointers(arguments), added = pointers(environment);
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error(std::string("fork: ") + strerror(errno));
    if (child > 0) return child;
    setpgid(0, 0); /* Ctrl-C is the driver's to answer */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    redirect("/dev/null", O_RDONLY, 0);
    redirect(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 1);
    dup2(1, 2);
    for (std::size_t i = 0; i + 1 < added.size(); i++) putenv(added[i]);
    execvp(argv[0], argv.data());
    dprintf(2, "cannot start %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* ---- Ending ---------------------------------------------------------------------------------------------------- */

bool has_ended(pid_t child)
{
    const pid_t got = waitpid(child, nullptr, WNOHANG);
    return got == child || (got < 0 && errno == ECHILD);
}

/* Parent of every process, from /proc/PID/stat: "PID (name) state PARENT". */
static std::multimap<pid_t, pid_t> children_by_parent()
{
    std::multimap<pid_t, pid_t> found;
    std::error_code ignored;
    for (const auto &entry : std::filesystem::directory_iterator("/proc", ignored)) {
        const pid_t process = atoi(entry.path().filename().c_str());
        FILE *file = process > 0 ? fopen((entry.path() / "stat").c_str(), "re") : nullptr;
        if (file == nullptr) continue;
        char line[512] = "";
        const char *after_name = fgets(line, sizeof line, file) != nullptr ? strrchr(line, ')') : nullptr;
        int parent = 0;
        char state = 0;
        if (after_name != nullptr && sscanf(after_name + 1, " %c %d", &state, &parent) == 2)
            found.emplace(parent, process);
        fclose(file);
    }
    return found;
}

static void add_descendants(const std::multimap<pid_t, pid_t> &children, pid_t parent, std::vector<pid_t> &list)
{
    const auto range = children.equal_range(parent);
    for (auto child = range.first; child != range.second; ++child) {
        list.push_back(child->second);
        add_descendants(children, child->second, list);
    }
}

static void reap_all()
{
    while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
}

void kill_trees(const std::vector<pid_t> &roots)
{
    const auto children = children_by_parent();
    std::vector<pid_t> ours, doomed;
    add_descendants(children, getpid(), ours);
    for (const pid_t root : roots) {
        if (std::find(ours.begin(), ours.end(), root) == ours.end()) continue; /* ended; its number may be another's */
        doomed.push_back(root);
        add_descendants(children, root, doomed);
    }
    for (const pid_t process : doomed) kill(process, SIGKILL);
    for (const pid_t root : roots)
        for (int tries = 0; tries < 200 && !has_ended(root); tries++) sleep_ms(5);
}

void kill_descendants()
{
    for (int tries = 0; tries < 200; tries++) {
        std::vector<pid_t> left;
        reap_all();
        add_descendants(children_by_parent(), getpid(), left);
        if (left.empty()) return;
        for (const pid_t process : left) kill(process, SIGKILL);
        sleep_ms(5);
    }
}

/* ---- The rest of the machine ----------------------------------------------------------------------------------- */

static double seconds_used(int who)
{
    rusage used{};
    getrusage(who, &used);
    return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

bystanders::bystanders() : start(now())
{
}

bystanders::times bystanders::now()
{
    double user = 0, nice = 0, system = 0, idle = 0, disk = 0, irq = 0, softirq = 0, steal = 0;
    std::string name;
    std::ifstream("/proc/stat") >> name >> user >> nice >> system >> idle >> disk >> irq >> softirq >> steal;
    const double tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
    const double busy = (user + nice + system + irq + softirq) * tick;
    const double all = busy + (idle + disk + steal) * tick;
    return {busy, steal * tick, all, seconds_used(RUSAGE_SELF) + seconds_used(RUSAGE_CHILDREN)};
}

bystanders::share bystanders::since() const
{
    const times end = now();
    const double all = std::max(end.all - start.all, 1e-9);
    const double others = (end.busy - start.busy) - (end.ours - start.ours);
    return {std::max(0.0, others / all), (end.stolen - start.stolen) / all};
}

} // namespace peers
