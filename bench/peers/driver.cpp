/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares Tutti with its peers on this host. The machine's speed drifts, so a figure means something only beside
 * one taken in the same moment: all contestants are alive at once, asleep in read(), and take turns within every
 * round of every cell. The ratio of a round is what is compared; the report shows the median of the ratios.
 */
#include "contestant.hpp"
#include "crossing.hpp"
#include "process.hpp"
#include "report.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>

namespace
{

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

/* A contestant that cannot start is said once, not in every round. */
void start_anew(team &all)
{
    for (const auto &each : all) {
        const bool is_news = each->alive() || each->problem.empty();
        each->stop();
        if (!each->start() && is_news) say_problem(*each, "cannot start");
    }
}

/* A contestant that failed in one cell may begin the next one anew. */
void revive(team &all)
{
    for (const auto &each : all)
        if (!each->alive()) each->start();
}

bool is_disturbed(const outcome::sample &each)
{
    return each.lost > 0.02;
}

/* The better of two: undisturbed before disturbed, then the shorter. */
const outcome::sample &better(const outcome::sample &one, const outcome::sample &other)
{
    if (is_disturbed(one) != is_disturbed(other)) return is_disturbed(one) ? other : one;
    return one.us < other.us ? one : other;
}

/* False: it did not end well, which is noted and said. */
bool take(contestant &who, const turn &asked, entry &into, outcome &result)
{
    result = who.take(asked);
    into.wrong += result.wrong;
    if (result.state == outcome::done) return true;
    into.status = result.state == outcome::missing ? "missing" : "failed";
    into.round_us.clear();
    if (result.state == outcome::failed)
        say_problem(who, (std::string(op_name(asked.what)) + " " + std::to_string(asked.bytes)).c_str());
    return false;
}

/* Adds a round. Its figure is the best sample that nothing else on the machine disturbed; a turn without such a one is
 * taken again, where each rank has a core to itself, as long as that no more than doubles the time of the cell. */
bool take_turn(const peers::options &wanted, contestant &who, const turn &asked, entry &into)
{
    const bool can_judge = wanted.ranks <= peers::core_count() && !who.how.has_helpers;
    outcome result;
    if (!take(who, asked, into, result)) return false;
    outcome::sample best = result.samples.front();
    for (int tries = 0;; tries++) {
        for (const outcome::sample &each : result.samples) best = better(best, each);
        if (!can_judge || !is_disturbed(best) || tries == 3 || into.retaken == wanted.rounds) break;
        into.retaken++;
        if (!take(who, asked, into, result)) return false;
    }
    into.round_us.push_back(best.us);
    into.disturbed += can_judge && is_disturbed(best);
    return true;
}

/* Checks the result of one call, and finds how long a call takes once it is warm: 0 if it fails. */
double try_out(const peers::options &wanted, contestant &who, const cell &place, entry &into)
{
    entry trial = {into.name, into.settings, "ok", {}, 0, 0, 0, 1};
    take_turn(wanted, who, {place.what, place.bytes, 0, 1, 2, true}, trial);
    if (trial.status == "ok") {
        const double us = trial.round_us.back();
        const int batch = std::max(1, static_cast<int>(1000.0 / std::max(us, 0.01)));
        if (batch > 1) take_turn(wanted, who, {place.what, place.bytes, 0, std::min(batch, 500), 3, false}, trial);
    }
    into.status = trial.status;
    into.wrong += trial.wrong;
    return trial.status == "ok" ? trial.round_us.back() : 0;
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
        const double calls = peers::parts_of(place.what);
        double batch = wanted.sample_us / std::max(fastest, 0.001) / calls;
        if (call_us[i] > 100 * fastest) batch = std::min(batch, patience_us / call_us[i] / calls);
        place.entries[i].batch = std::max(1, static_cast<int>(batch + 0.5));
    }
}

/* One turn of every contestant. On a busy machine it matters after whom one's turn comes, so the order changes. */
void run_round(const peers::options &wanted, team &all, const std::vector<double> &call_us, cell &place)
{
    constexpr double long_sample_us = 50000;
    static std::mt19937 chance; /* the same orders in every run */
    std::vector<std::size_t> order(all.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), chance);
    place.crossing_us.push_back(peers::crossing_us());
    for (const std::size_t who : order) {
        entry &into = place.entries[who];
        if (into.status != "ok") continue;
        const int samples = call_us[who] * into.batch > long_sample_us ? 1 : wanted.samples;
        const int warm = std::max(1, into.batch / 8);
        take_turn(wanted, *all[who], {place.what, place.bytes, warm, into.batch, samples, false}, into);
    }
}

/* Adds so many rounds to the cell. Who has failed in it stays out of it. */
void measure(const peers::options &wanted, team &all, int rounds, cell &place)
{
    std::vector<double> call_us;
    for (std::size_t who = 0; who < all.size(); who++) {
        entry &into = place.entries[who];
        if (into.status == "ok" && !all[who]->alive()) into.status = "absent";
        call_us.push_back(into.status == "ok" ? try_out(wanted, *all[who], place, into) : 0);
    }
    choose_batches(wanted, call_us, place);
    for (int round = 0; round < rounds; round++) run_round(wanted, all, call_us, place);
    place.crossing_us.push_back(peers::crossing_us());
}

std::vector<cell> empty_cells(const peers::options &wanted, const team &all)
{
    std::vector<cell> made;
    for (const peers::named_cell &named : wanted.cells)
        for (const std::size_t bytes : wanted.sizes_of(named)) {
            made.push_back({named.what, bytes, {}, {}});
            for (const auto &each : all)
                made.back().entries.push_back({each->how.name, each->how.text(), "ok", {}, 0, 0, 0, 1});
        }
    return made;
}

/* Jobs that are kept take all rounds of a cell, one after the other; fresh ones take a single round of every cell. */
void run_cells(const peers::options &wanted, team &all, peers::report &figures)
{
    const int jobs = wanted.fresh ? wanted.rounds : 1, rounds = wanted.fresh ? 1 : wanted.rounds;
    std::vector<cell> cells = empty_cells(wanted, all);
    for (int job = 0; job < jobs; job++) {
        start_anew(all);
        for (cell &place : cells) {
            revive(all);
            measure(wanted, all, rounds, place);
            if (job + 1 == jobs) figures.add(place);
        }
    }
}

void tell_bystanders(const peers::bystanders &watch)
{
    const peers::bystanders::share rest = watch.since();
    printf("Meanwhile other processes took %.0f %% of the cores' time, and the host %.0f %%.%s\n", 100 * rest.others,
           100 * rest.host, rest.others + rest.host > 0.05 ? " Not to be quoted." : "");
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
    }
    peers::report figures(wanted, names);
    run_cells(wanted, all, figures);
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
