/* SPDX-License-Identifier: Apache-2.0 */
#include "options.hpp"

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <stdexcept>

#include <sched.h>
#include <unistd.h>

namespace peers
{

bool options::wants(const std::string &contestant) const
{
    if (only.empty()) return contestant != "tutti-before"; /* it is no peer, and may be left from an older build */
    return std::find(only.begin(), only.end(), contestant) != only.end();
}

std::vector<std::size_t> options::sizes_of(const named_cell &named) const
{
    if (named.what == op::barrier) return {0};
    return named.bytes ? std::vector<std::size_t>{*named.bytes} : sizes;
}

std::size_t options::largest() const
{
    std::size_t most = 0;
    for (const named_cell &each : cells)
        for (const std::size_t bytes : sizes_of(each)) most = std::max(most, bytes);
    return most;
}

int core_count()
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

static std::vector<std::string> split(const std::string &text)
{
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');)
        if (!part.empty()) parts.push_back(part);
    return parts;
}

static int parse_int(const std::string &text, int low, int high)
{
    char *end = nullptr;
    const long number = strtol(text.c_str(), &end, 10);
    if (end == text.c_str() || *end != 0 || number < low || number > high)
        throw std::runtime_error("'" + text + "' is not a number from " + std::to_string(low) + " to " +
                                 std::to_string(high));
    return static_cast<int>(number);
}

static std::size_t parse_size(const std::string &text)
{
    char *end = nullptr;
    const unsigned long long number = strtoull(text.c_str(), &end, 10);
    const std::string unit = end;
    if (end != text.c_str())
        for (const auto &[name, shift] : {std::pair{"", 0}, {"K", 10}, {"M", 20}, {"G", 30}})
            if (unit == name) return number << shift;
    throw std::runtime_error("'" + text + "' is not a size such as 8, 64K or 1M");
}

static bool parse_choice(const std::string &text, const char *yes, const char *no)
{
    if (text != yes && text != no) throw std::runtime_error("'" + text + "' is neither " + yes + " nor " + no);
    return text == yes;
}

static op parse_op(const std::string &text)
{
    const auto found = op_named(text);
    if (!found) throw std::runtime_error("no operation is named '" + text + "'");
    return *found;
}

/* OP or OP:SIZE */
static named_cell parse_cell(const std::string &text)
{
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos) return {parse_op(text), std::nullopt};
    return {parse_op(text.substr(0, colon)), parse_size(text.substr(colon + 1))};
}

template <typename Parse> static auto parse_list(const std::string &text, Parse parse)
{
    std::vector<decltype(parse(text))> list;
    for (const std::string &part : split(text)) list.push_back(parse(part));
    return list;
}

/* One option is one row. */
struct row {
    const char *name, *value, *help;
    std::function<void(options &, const std::string &)> set;
};

static const std::vector<row> &rows()
{
    static const std::vector<row> list = {
        {"--ranks", "N", "ranks of every contestant [2]",
         [](options &o, const std::string &text) { o.ranks = parse_int(text, 2, 1024); }},
        {"--as", "threads|processes", "what Tutti's ranks are; a peer's are always processes [processes]",
         [](options &o, const std::string &text) { o.threads = parse_choice(text, "threads", "processes"); }},
        {"--buffers", "shared|private", "Tutti's buffers: tutti_alloc or malloc; a peer's are malloc [shared]",
         [](options &o, const std::string &text) { o.shared = parse_choice(text, "shared", "private"); }},
        {"--transport", "any|tcp", "any: what each chooses on one host; tcp: everybody over TCP on loopback [any]",
         [](options &o, const std::string &text) { o.tcp = parse_choice(text, "tcp", "any"); }},
        {"--cells", "OP,OP:SIZE...", "operations, at all sizes or at one; also window [all others]",
         [](options &o, const std::string &text) { o.cells = parse_list(text, parse_cell); }},
        {"--sizes", "N,N...", "sizes [8,1K,64K,1M,16M,64M]",
         [](options &o, const std::string &text) { o.sizes = parse_list(text, parse_size); }},
        {"--jobs", "kept|fresh",
         "kept: contestants live through all cells; fresh: every round starts them anew,\n"
         "                                  goes through all cells, and ends them [kept]",
         [](options &o, const std::string &text) { o.fresh = parse_choice(text, "fresh", "kept"); }},
        {"--rounds", "N", "turns of every contestant in a cell [7]",
         [](options &o, const std::string &text) { o.rounds = parse_int(text, 1, 1000); }},
        {"--samples", "N", "samples in a turn [5]",
         [](options &o, const std::string &text) { o.samples = parse_int(text, 1, 100); }},
        {"--sample-us", "US", "length of the fastest contestant's sample [2000]",
         [](options &o, const std::string &text) { o.sample_us = parse_int(text, 1, 10000000); }},
        {"--deadline-s", "S", "a turn that takes longer fails its contestant [30]",
         [](options &o, const std::string &text) { o.deadline_s = parse_int(text, 1, 3600); }},
        {"--bind", "core|none", "core: rank i on core i, counted round [core]",
         [](options &o, const std::string &text) { o.bind = parse_choice(text, "core", "none") ? "core" : "none"; }},
        {"--memory", "tuned|plain", "tuned: huge pages for malloc, and large blocks stay mapped when freed [tuned]",
         [](options &o, const std::string &text) { o.tuned_memory = parse_choice(text, "tuned", "plain"); }},
        {"--only", "NAME,NAME...",
         "contestants: tutti, openmpi, openmpi-ucx, openmpi-sm, mpich, gloo, floor [all];\n"
         "                                  and tutti-before, which takes part only if it is named",
         [](options &o, const std::string &text) { o.only = split(text); }},
        {"--add", "NAME:BASE:WORD...",
         "another contestant: BASE with NAME=VALUE in its environment, bind=core|none,\n"
         "                                  or anything else as an argument of its launcher; may be repeated",
         [](options &o, const std::string &text) { o.additions.push_back(text); }},
        {"--json", "FILE", "append one object per line, for every cell and contestant",
         [](options &o, const std::string &text) { o.json = text; }},
    };
    return list;
}

static void print_help()
{
    printf("Usage: driver [OPTION VALUE]…\nTimes Tutti and its peers on this host, turn by turn.\n\n");
    for (const row &each : rows()) printf("  %-12s %-18s %s\n", each.name, each.value, each.help);
}

static std::string own_folder()
{
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    const std::string whole(path, length > 0 ? static_cast<std::size_t>(length) : 0);
    return whole.substr(0, whole.rfind('/'));
}

options parse_options(int argc, char **argv)
{
    options parsed;
    parsed.workers = own_folder();
    for (std::size_t i = 0; i < op_names.size(); i++)
        if (static_cast<op>(i) != op::window) parsed.cells.push_back({static_cast<op>(i), std::nullopt});
    parsed.sizes = {8, 1024, 65536, std::size_t{1} << 20, std::size_t{16} << 20, std::size_t{64} << 20};
    for (int i = 1; i < argc; i++) {
        const std::string name = argv[i];
        if (name == "--help") {
            print_help();
            exit(0);
        }
        const auto found = std::find_if(rows().begin(), rows().end(), [&](const row &r) { return name == r.name; });
        if (found == rows().end()) throw std::runtime_error("unknown option " + name + " (try --help)");
        if (++i == argc) throw std::runtime_error(name + " needs a value: " + found->value);
        found->set(parsed, argv[i]);
    }
    return parsed;
}

} // namespace peers
