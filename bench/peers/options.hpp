/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PEERS_OPTIONS_HPP
#define PEERS_OPTIONS_HPP

#include "cells.hpp"

#include <string>
#include <vector>

namespace peers
{

/* `--cells` names an operation, which is measured at every one of `sizes`, or an operation and its one size. */
struct named_cell {
    op what;
    std::optional<std::size_t> bytes;
};

struct options {
    int ranks = 2;
    bool threads = false;
    bool shared = true;
    bool tcp = false; /* everybody over TCP on loopback; otherwise what each chooses by itself */
    std::vector<named_cell> cells;
    std::vector<std::size_t> sizes;
    bool fresh = false; /* every round starts all contestants anew */
    int rounds = 7;
    int samples = 5;
    int sample_us = 2000;
    int deadline_s = 30;
    std::string bind = "core";
    bool tuned_memory = true;
    std::string json;
    std::vector<std::string> only;
    std::vector<std::string> additions; /* NAME:BASE:WORD WORD…, see recipes */
    std::string workers;                /* folder of the worker programs: the driver's own */

    const char *as_name() const
    {
        return threads ? "threads" : "processes";
    }
    const char *buffers_name() const
    {
        return shared ? "shared" : "private";
    }
    const char *transport_name() const
    {
        return tcp ? "tcp" : "any";
    }
    const char *memory_name() const
    {
        return tuned_memory ? "tuned" : "plain";
    }
    const char *jobs_name() const
    {
        return fresh ? "fresh" : "kept";
    }
    bool wants(const std::string &contestant) const;
    std::vector<std::size_t> sizes_of(const named_cell &named) const; /* a barrier has the one size 0 */
    std::size_t largest() const;                                      /* bytes of a cell */
};

/* Throws std::runtime_error for what it does not know. Prints help and exits for --help. */
options parse_options(int argc, char **argv);

int core_count(); /* that this process may use */

} // namespace peers
#endif
