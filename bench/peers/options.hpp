/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PEERS_OPTIONS_HPP
#define PEERS_OPTIONS_HPP

#include "cells.hpp"

#include <string>
#include <vector>

namespace peers
{

struct options {
    int ranks = 2;
    bool threads = false;
    bool shared = true;
    bool tcp = false; /* everybody over TCP on loopback; otherwise what each chooses by itself */
    std::vector<op> ops;
    std::vector<std::size_t> sizes;
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
    bool wants(const std::string &contestant) const;
};

/* Throws std::runtime_error for what it does not know. Prints help and exits for --help. */
options parse_options(int argc, char **argv);

int core_count(); /* that this process may use */

} // namespace peers
#endif
