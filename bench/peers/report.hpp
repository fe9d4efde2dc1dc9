/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures of one cell, as a table row for people and as JSON lines for programs.
 */
#ifndef PEERS_REPORT_HPP
#define PEERS_REPORT_HPP

#include "options.hpp"

#include <cstdio>
#include <string>
#include <vector>

namespace peers
{

/* One contestant in one cell. The rounds of all contestants correspond: round r was taken together. */
struct entry {
    std::string name, settings, status; /* "ok", "missing", "failed", "absent" */
    std::vector<double> round_us;       /* per round: its best sample */
    std::size_t wrong = 0;
    int disturbed = 0, retaken = 0; /* rounds, turns */
    int batch = 0;
};

struct cell {
    op what;
    std::size_t bytes;
    std::vector<entry> entries;
    std::vector<double> crossing_us; /* of a cache line, before each round and after the last */
};

double quantile(std::vector<double> values, double part); /* of a non-empty list */

/* Per round, `entry` divided by `base`: above 1 means that base is faster. */
std::vector<double> ratios(const entry &each, const entry &base);

class report
{
  public:
    report(const options &wanted, const std::vector<std::string> &contestants);
    ~report();
    report(const report &) = delete;
    report &operator=(const report &) = delete;

    void add(const cell &measured);
    void finish() const;

  private:
    void print_row(const cell &measured);
    void print_ratios(const cell &measured);
    void write_json(const cell &measured) const;

    const options &wanted;
    std::vector<std::string> names;
    FILE *json = nullptr;
    int compared = 0, faster = 0;
    std::vector<std::string> notes;
};

} // namespace peers
#endif
