/* SPDX-License-Identifier: Apache-2.0 */
#include "report.hpp"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace peers
{

double quantile(std::vector<double> values, double part)
{
    std::sort(values.begin(), values.end());
    const double place = part * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (values[above] - values[below]) * (place - static_cast<double>(below));
}

std::vector<double> ratios(const entry &each, const entry &base)
{
    std::vector<double> list;
    const std::size_t rounds = std::min(each.round_us.size(), base.round_us.size());
    for (std::size_t i = 0; i < rounds; i++) list.push_back(each.round_us[i] / base.round_us[i]);
    return list;
}

/* Three significant digits. */
static std::string short_number(double number)
{
    char text[32];
    const int decimals = number >= 100 ? 0 : number >= 10 ? 1 : 2;
    snprintf(text, sizeof text, "%.*f", decimals, number);
    return text;
}

static std::string size_name(const cell &measured)
{
    if (measured.what == op::barrier) return "-";
    const std::size_t bytes = measured.bytes;
    if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return std::to_string(bytes >> 20) + " MiB";
    if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return std::to_string(bytes >> 10) + " KiB";
    return std::to_string(bytes) + " B";
}

static const entry *find(const cell &measured, const char *name)
{
    for (const entry &each : measured.entries)
        if (each.name == name && each.status == "ok") return &each;
    return nullptr;
}

/* A peer with a wrong result is no peer, nor is the floor. Where the tree before takes part, the tree is compared with it. */
static const entry *find_best_peer(const cell &measured)
{
    if (const entry *before = find(measured, "tutti-before")) return before;
    const entry *best = nullptr;
    for (const entry &each : measured.entries) {
        if (each.name == "tutti" || each.name == "floor" || each.status != "ok" || each.wrong > 0) continue;
        if (best == nullptr || quantile(each.round_us, 0.5) < quantile(best->round_us, 0.5)) best = &each;
    }
    return best;
}

/* ---- Table ----------------------------------------------------------------------------------------------------- */

/* Of a contestant's column. */
static int width(const std::string &name)
{
    return std::max(11, static_cast<int>(name.size()));
}

report::report(const options &chosen, const std::vector<std::string> &contestants) : wanted(chosen), names(contestants)
{
    if (!wanted.json.empty() && (json = fopen(wanted.json.c_str(), "ae")) == nullptr)
        throw std::runtime_error("cannot write " + wanted.json + ": " + strerror(errno));
    printf(
        "%d ranks on %d cores; bound: %s; memory: %s; transport: %s; Tutti's ranks: %s, buffers: %s; f32 sum; us per "
        "call, median of %d rounds%s\n",
        wanted.ranks, core_count(), wanted.bind.c_str(), wanted.memory_name(), wanted.transport_name(),
        wanted.as_name(), wanted.buffers_name(), wanted.rounds, wanted.fresh ? ", each with fresh jobs" : "");
    printf("%-15s %8s", "operation", "bytes");
    for (const std::string &name : names) printf(" %*s", width(name), name.c_str());
    printf("  %-11s  %s\n", "best peer", "best peer / tutti (least .. most), / floor; a line crosses in");
}

report::~report()
{
    if (json != nullptr) fclose(json);
}

void report::print_ratios(const cell &measured)
{
    const entry *tutti = find(measured, "tutti"), *floor = find(measured, "floor"), *best = find_best_peer(measured);
    printf("  %-11s  ", best != nullptr ? best->name.c_str() : "-");
    if (tutti != nullptr && best != nullptr) {
        const std::vector<double> list = ratios(*best, *tutti);
        const double middle = quantile(list, 0.5);
        printf("%s (%s .. %s)", short_number(middle).c_str(), short_number(quantile(list, 0)).c_str(),
               short_number(quantile(list, 1)).c_str());
        compared++;
        faster += middle > 1;
    }
    if (floor != nullptr && best != nullptr) printf(", %s", short_number(quantile(ratios(*best, *floor), 0.5)).c_str());
    printf("; %.2f to %.2f us\n", quantile(measured.crossing_us, 0), quantile(measured.crossing_us, 1));
}

void report::print_row(const cell &measured)
{
    printf("%-15s %8s", op_name(measured.what), size_name(measured).c_str());
    for (const entry &each : measured.entries) {
        std::string shown = each.status == "ok" ? short_number(quantile(each.round_us, 0.5)) : each.status;
        if (each.disturbed > wanted.rounds / 2) shown += "~";
        if (each.wrong > 0) {
            shown += "!";
            notes.push_back(std::string(op_name(measured.what)) + " " + size_name(measured) + ", " + each.name + ": " +
                            std::to_string(each.wrong) + " wrong elements");
        }
        printf(" %*s", width(each.name), shown.c_str());
    }
    print_ratios(measured);
    fflush(stdout);
}

void report::add(const cell &measured)
{
    print_row(measured);
    if (json != nullptr) write_json(measured);
}

void report::finish() const
{
    for (const std::string &note : notes) printf("WRONG: %s\n", note.c_str());
    if (compared > 0) printf("Tutti is faster than the best peer in %d of %d cells.\n", faster, compared);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static std::string quoted(const std::string &text)
{
    std::string result = "\"";
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') result += '\\';
        result += static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
    }
    return result + "\"";
}

static void write_list(FILE *file, const char *name, const std::vector<double> &values)
{
    fprintf(file, ",\"%s\":[", name);
    for (std::size_t i = 0; i < values.size(); i++) fprintf(file, "%s%.6g", i > 0 ? "," : "", values[i]);
    fprintf(file, "]");
}

void report::write_json(const cell &measured) const
{
    const entry *tutti = find(measured, "tutti"), *best = find_best_peer(measured);
    const std::size_t moved = make_call(measured.what, measured.bytes, wanted.ranks).whole() * sizeof(float);
    for (const entry &each : measured.entries) {
        fprintf(json, "{\"op\":\"%s\",\"bytes\":%zu,\"moved_bytes\":%zu,\"ranks\":%d,\"cores\":%d,\"bind\":%s",
                op_name(measured.what), measured.bytes, moved, wanted.ranks, core_count(), quoted(wanted.bind).c_str());
        fprintf(json, ",\"as\":\"%s\",\"buffers\":\"%s\",\"contestant\":%s,\"settings\":%s,\"status\":%s,\"wrong\":%zu",
                wanted.as_name(), wanted.buffers_name(), quoted(each.name).c_str(), quoted(each.settings).c_str(),
                quoted(each.status).c_str(), each.wrong);
        fprintf(json, ",\"transport\":\"%s\",\"memory\":\"%s\",\"jobs\":\"%s\",\"batch\":%d", wanted.transport_name(),
                wanted.memory_name(), wanted.jobs_name(), each.batch);
        fprintf(json, ",\"disturbed_rounds\":%d,\"best_peer\":%s", each.disturbed, &each == best ? "true" : "false");
        write_list(json, "crossing_us", measured.crossing_us);
        if (each.status == "ok") {
            fprintf(json, ",\"p50_us\":%.6g,\"min_us\":%.6g", quantile(each.round_us, 0.5), quantile(each.round_us, 0));
            write_list(json, "round_us", each.round_us);
        }
        if (each.status == "ok" && tutti != nullptr) {
            const std::vector<double> list = ratios(each, *tutti);
            fprintf(json, ",\"ratio_p50\":%.6g,\"ratio_p25\":%.6g,\"ratio_p75\":%.6g", quantile(list, 0.5),
                    quantile(list, 0.25), quantile(list, 0.75));
            write_list(json, "ratios", list);
        }
        fprintf(json, "}\n");
    }
    fflush(json);
}

} // namespace peers
