/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of one contestant. The worker reads commands from its own FIFO, times what they ask for, and answers on
 * the contestant's reply FIFO. Between commands it is blocked in read(): no library call is open, so a contestant
 * that is not being measured takes nothing from the one that is.
 */
#ifndef PEERS_WORKER_HPP
#define PEERS_WORKER_HPP

#include "cells.hpp"

#include <stdexcept>
#include <string>

#include <sched.h>

namespace peers
{

/* The command line of a worker; the driver writes it. */
struct settings {
    std::string folder; /* holds ctl.RANK and reply; private to this contestant */
    std::string job;    /* a name no other contestant has */
    int ranks = 1;
    int rank = -1;               /* -1: the launcher knows */
    std::size_t bytes = 0;       /* the largest cell */
    bool bind = false;           /* rank i on the i-th allowed core, counted round */
    bool shared_buffers = false; /* memory from the library under test, where it has such a thing */
    bool huge_pages = false;     /* for private buffers */
    cpu_set_t cores{};           /* the allowed ones, before anything was bound */
};

/* For main: also ties the worker's life to its launcher's. */
settings parse_settings(int argc, char **argv);

/* Puts the calling thread on its core. Threads that the library starts afterwards inherit it. */
void bind_to_core(const settings &wanted, int rank);

/* The buffers of one rank. A broadcast is in place in `out` for everyone, as MPI knows no other form. */
struct buffers {
    float *in;
    float *out;
};

/* A library under test, as one rank sees it. Failures are thrown. */
class adapter
{
  public:
    virtual ~adapter() = default;

    /* Room for two buffers; called once. The default is private memory, aligned and touched. */
    virtual buffers allocate(const settings &wanted, std::size_t bytes);

    /* Before the first call of a cell, not timed. False: the library has no such operation. */
    virtual bool prepare(const call &wanted, const buffers &memory) = 0;

    /* `times` prepared calls back to back: of ping_pong, round trips, of window, windows, and of these only ranks 0 and 1
     * are asked. */
    virtual void repeat(int times) = 0;

    virtual void barrier() = 0;

    /* False: its results are not checked. */
    virtual bool has_results() const
    {
        return true;
    }

    /* Where the result of the prepared call lies. */
    virtual const float *result(const buffers &memory) const
    {
        return memory.out;
    }
};

/* Serves the driver until it says quit. Returns the exit status. */
int serve(adapter &library, const settings &wanted, int rank);

} // namespace peers
#endif
