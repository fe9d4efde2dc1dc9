/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares Tutti with its peers on this host. The machine's speed drifts, so a figure means something only beside
 * one taken in the same moment: all contestants are alive at once, asleep in read(), and take turns within every
 * round of every cell. The ratio of a round is what is compared; the report shows the median of the ratios.
 */
#include "contestant.hpp"
#include "process.hpp"
#include "report.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>

namespace {

using peers::cell;
using peers::contestant;
using peers::entry;
using peers::op;
using peers::outcome;
using peers::turn;

using team = std::vector<std::unique_ptr<contestant>>;

void say_problem(const contestant &who, const char *when)
{
    fprintf(stderr, "%s: %s: %s\n", who.how.name.c_str(), when, who.problem.c_str());
}

/* A contestant that failed in one cell may begin the next one anew. */
void revive(team &all)
{
    for (const auto &each : all)
        if (!each->alive()) each->start();
}

/* The round's figure is its best sample: what else runs on the machine can only add time. */
bool take_turn(contestant &who, const turn &asked, entry &into)
{
    const outcome result = who.take(asked);
    into.wrong += result.wrong;
    if (result.state == outcome::done) {
        into.round_us.push_back(*std::min_element(result.sample_us.begin(), result.sample_us.end()));
        return true;
    }
    into.status = result.state == outcome::missing ? "missing" : "failed";
    into.round_us.clear();
    if (result.state == outcome::failed)
        say_problem(who, (std::string(op_name(asked.what)) + " " + std::to_string(asked.bytes)).c_str());
    return false;
}

/* Checks the result of one call, and finds how long a call takes once it is warm. */
double try_out(contestant &who, const cell &place, entry &into)
{
    if (!take_turn(who, {place.what, place.bytes, 0, 1, 2, true}, into)) return 0;
    double us = into.round_us.back();
    const int batch = std::max(1, static_cast<int>(1000.0 / std::max(us, 0.01)));
    if (batch > 1 && take_turn(who, {place.what, place.bytes, 0, std::min(batch, 500), 3, false}, into))
        us = into.round_us.back();
    into.round_us.clear();
    return us;
}

/* The same batch for all contestants, so that the fastest one's sample is long enough to be timed well. Who is a
 * hundred times slower is out of the running, and gets a batch that does not hold up everybody. */
void choose_batches(const peers::options &wanted, const std::vector<double> &call_us, cell &place)
{
    double fastest = 0;
    for (const double us : call_us)
        if (us > 0 && (fastest == 0 || us < fastest)) fastest = us;
    for (std::size_t i = 0; i < call_us.size(); i++) {
        constexpr double patience_us = 100000;
        double batch = wanted.sample_us / std::max(fastest, 0.001);
        if (call_us[i] > 100 * fastest) batch = std::min(batch, patience_us / call_us[i]);
        place.entries[i].batch = std::max(1, static_cast<int>(batch + 0.5));
    }
}

void run_rounds(const peers::options &wanted, team &all, const std::vector<double> &call_us, cell &place)
{
    constexpr double long_sample_us = 50000;
    const std::size_t count = all.size();
    for (int round = 0; round < wanted.rounds; round++) {
        for (std::size_t step = 0; step < count; step++) {
            const std::size_t who = (step + static_cast<std::size_t>(round)) % count; /* nobody is always first */
            entry &into = place.entries[who];
            if (into.status != "ok") continue;
            const int samples = call_us[who] * into.batch > long_sample_us ? 1 : wanted.samples;
            const int warm = std::max(1, into.batch / 8);
            take_turn(*all[who], {place.what, place.bytes, warm, into.batch, samples, false}, into);
        }
    }
}

cell measure(const peers::options &wanted, team &all, op what, std::size_t bytes)
{
    cell place{what, bytes, {}};
    std::vector<double> call_us;
    for (const auto &each : all) {
        place.entries.push_back({each->how.name, each->how.text(), each->alive() ? "ok" : "absent", {}, 0, 1});
        call_us.push_back(each->alive() ? try_out(*each, place, place.entries.back()) : 0);
    }
    choose_batches(wanted, call_us, place);
    run_rounds(wanted, all, call_us, place);
    return place;
}

void tell_bystanders(const peers::bystanders &watch)
{
    const peers::bystanders::share rest = watch.since();
    printf("Meanwhile other processes took %.0f %% of the cores' time, and the host %.0f %%.%s\n", 100 * rest.others,
           100 * rest.host, rest.others + rest.host > 0.05 ? " Such figures are disturbed; take the ratios only." : "");
}

void run_all(const peers::options &wanted)
{
    const peers::bystanders watch;
    const peers::temporary_folder folder;
    team all;
    std::vector<std::string> names;
    for (const peers::recipe &each : peers::recipes(wanted, folder.path)) {
        all.push_back(std::make_unique<contestant>(each, wanted, folder.path));
        names.push_back(each.name);
        if (!all.back()->start()) say_problem(*all.back(), "cannot start");
    }
    peers::report figures(wanted, names);
    for (const op what : wanted.ops) {
        for (const std::size_t bytes : wanted.sizes) {
            revive(all);
            figures.add(measure(wanted, all, what, what == op::barrier ? 0 : bytes));
            if (what == op::barrier) break;
        }
    }
    figures.finish();
    all.clear();
    peers::kill_descendants();
    tell_bystanders(watch);
}

} // namespace

int main(int argc, char **argv)
{
    peers::take_charge();
    int status = 0;
    try {
        run_all(peers::parse_options(argc, argv));
    } catch (const std::exception &problem) {
        fprintf(stderr, "driver: %s\n", problem.what());
        status = 1;
    }
    peers::kill_descendants();
    return status;
}
