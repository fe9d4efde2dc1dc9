/* SPDX-License-Identifier: Apache-2.0
 *
 * A contestant: n ranks of one library with one set of settings, alive for the whole run and asleep between its
 * turns. Whatever goes wrong with it ends in `problem`, never in a driver that waits.
 */
#ifndef PEERS_CONTESTANT_HPP
#define PEERS_CONTESTANT_HPP

#include "options.hpp"

#include <string>
#include <vector>

#include <sys/types.h>

namespace peers
{

/* How one is started. A launcher starts all ranks; without one, the driver starts a process per rank, or a single
 * one whose threads are the ranks. */
struct recipe {
    std::string name;
    std::string worker;                   /* its program */
    std::vector<std::string> launcher;    /* such as mpirun and its arguments */
    std::vector<std::string> environment; /* NAME=VALUE */
    std::string bind;                     /* "core" or "none" */
    bool one_process = false;
    bool has_helpers = false; /* threads of its own, that take its ranks' cores from them */

    std::string text() const; /* the settings, as shown to people */
    recipe varied(const std::string &new_name, const std::vector<std::string> &words) const; /* as --add has them */
};

std::vector<recipe> recipes(const options &wanted, const std::string &folder);

struct turn {
    op what;
    std::size_t bytes;
    int warm, batch, samples;
    bool check;
};

struct outcome {
    enum { done, missing, failed } state = failed;
    struct sample {
        double us = 0;   /* per call: the slowest rank's time, divided by the batch */
        double lost = 0; /* the largest part of a rank's time that went to other processes */
    };
    std::vector<sample> samples;
    std::size_t wrong = 0; /* elements, over all ranks */
};

class contestant
{
  public:
    contestant(recipe how, const options &wanted, const std::string &parent_folder);
    contestant(const contestant &) = delete;
    contestant &operator=(const contestant &) = delete;
    ~contestant();

    /* False: `problem` says why. Also after a failure, to begin anew. */
    bool start();
    outcome take(const turn &asked);
    void stop(); /* politely first */

    bool alive() const
    {
        return !processes.empty();
    }

    const recipe how;
    std::string problem;

  private:
    bool make_pipes();
    void spawn();
    bool collect(const std::string &verb, int seconds, std::vector<std::string> &lines);
    bool read_some(int wait_ms);
    bool some_ended();
    outcome fail(const std::string &reason);
    void close_pipes();
    std::string log_tail() const;

    const options &wanted;
    std::string folder;
    std::vector<pid_t> processes;
    std::vector<int> controls;
    int replies = -1;
    std::string heard;
    int starts = 0, failures = 0;
};

} // namespace peers
#endif
