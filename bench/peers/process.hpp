/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes and folders the driver makes, and their certain end. The driver is the reaper of all its descendants, so
 * that ranks whose launcher died are still found and ended; nothing else is ever signalled.
 */
#ifndef PEERS_PROCESS_HPP
#define PEERS_PROCESS_HPP

#include <stdexcept>
#include <string>
#include <vector>

#include <sys/types.h>

namespace peers
{

/* Thrown from the driver's waits after Ctrl-C or SIGTERM. */
struct interrupted : std::runtime_error {
    interrupted() : std::runtime_error("interrupted")
    {
    }
};

/* Called once, first: becomes the reaper, catches SIGINT, SIGTERM and SIGHUP. */
void take_charge();

/* Throws `interrupted` if a signal came. */
void check_interrupt();

/* A private folder in memory where there is /dev/shm, removed with all it holds. */
class temporary_folder
{
  public:
    temporary_folder();
    ~temporary_folder();
    temporary_folder(const temporary_folder &) = delete;
    temporary_folder &operator=(const temporary_folder &) = delete;

    std::string path;
};

/* Starts a program with `environment` (NAME=VALUE) added, no input, and its output in the file `log`. */
pid_t launch(const std::vector<std::string> &arguments, const std::vector<std::string> &environment,
             const std::string &log);

/* True once this child has ended; it is reaped. */
bool has_ended(pid_t child);

/* Kills these processes and all their descendants, and reaps what is ours. */
void kill_trees(const std::vector<pid_t> &roots);

/* The same for everything this process started. */
void kill_descendants();

void sleep_ms(int ms);

/* What the cores did since it was made that was not for this process and its children. Exact once they are reaped. */
class bystanders
{
  public:
    bystanders();

    struct share {
        double others, host; /* parts of all cores' time: other processes; the hypervisor, for other machines */
    };
    share since() const;

  private:
    struct times {
        double busy, stolen, all, ours; /* seconds */
    };
    static times now();
    times start;
};

} // namespace peers
#endif
