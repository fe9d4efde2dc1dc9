# SPDX-License-Identifier: Apache-2.0
#
# awk -v old=NAME -v new=NAME -v below=FILE -v json=FILE -f before.awk DRIVERS_JSON
#
# Prints, for each cell that the driver has measured with tutti (the new tree), tutti-before (the old one) and
# tutti-before-again (the old one once more), old time / new time and old time / old time, then a summary. Writes the cells
# that are below the limit to `below`, and, if it is named, appends one object per cell to `json`.

BEGIN {
    limit = 0.93
    printf "old: %s, new: %s; old time / new time: above 1 the new tree is faster\n", old, new
    printf "%5s %-4s %-7s %-14s %8s %10s %10s  %-22s %-22s\n", "ranks", "via", "buffers", "operation", "bytes", "old us",
        "new us", "old / new", "old / old"
    printf "" > below
}

function field(name,    rest) # a string or a number of this line's object
{
    if (!match($0, "\"" name "\":(\"[^\"]*\"|[^,}]*)")) return ""
    rest = substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
    gsub(/"/, "", rest)
    return rest
}

function rounds_of(who,    count, list, i) # of this line's contestant, into us[who, 1…]
{
    if (!match($0, /"round_us":\[[^\]]*\]/)) return 0
    count = split(substr($0, RSTART + 12, RLENGTH - 13), list, ",")
    for (i = 1; i <= count; i++) us[who, i] = list[i] + 0
    return count
}

function sort_values(n,    i, j, value)
{
    for (i = 2; i <= n; i++) {
        value = values[i]
        for (j = i - 1; j >= 1 && values[j] > value; j--) values[j + 1] = values[j]
        values[j + 1] = value
    }
}

function quantile(n, part,    place, low) # of values[1…n], sorted
{
    place = 1 + part * (n - 1)
    low = int(place)
    return low >= n ? values[n] : values[low] + (values[low + 1] - values[low]) * (place - low)
}

function median_us(who, n,    i)
{
    for (i = 1; i <= n; i++) values[i] = us[who, i]
    sort_values(n)
    return quantile(n, 0.5)
}

# Ratios of the rounds of two contestants: middle, least and most.
function take_ratios(over, under, n,    i)
{
    for (i = 1; i <= n; i++) values[i] = us[over, i] / us[under, i]
    sort_values(n)
    middle = quantile(n, 0.5)
    least = values[1]
    most = values[n]
}

# The old tree is as far from itself in two rounds at least: a single one may have been disturbed. Which of the two is
# divided by the other is chance.
function is_explained(ratio, n,    i, far)
{
    for (i = 1; i <= n; i++) far += values[i] <= ratio || values[i] >= 1 / ratio
    return far >= (n < 2 ? n : 2)
}

function size_name(bytes)
{
    if (bytes == 0) return "-"
    if (bytes % 1048576 == 0) return bytes / 1048576 " MiB"
    return bytes % 1024 == 0 ? bytes / 1024 " KiB" : bytes " B"
}

function end_of_cell(    n, note, ratio, low, high, explained)
{
    n = rounds["tutti"]
    where = ranks " " transport " " buffers " " op (bytes > 0 ? ":" bytes : "")
    if (n == 0 || rounds["tutti-before"] != n || rounds["tutti-before-again"] != n) {
        printf "%5d %-4s %-7s %-14s %8s  not measured: see before.log\n", ranks, via, buffers, op, size_name(bytes)
        unmeasured++
        return
    }
    take_ratios("tutti-before", "tutti", n)
    ratio = middle
    low = least
    high = most
    take_ratios("tutti-before-again", "tutti-before", n)
    explained = ratio < limit && is_explained(ratio, n)
    note = ratio >= limit ? "" : explained ? "below, as is the old one" : "BELOW"
    cells++
    all_ratios[cells] = ratio
    all_selves[cells] = middle
    if (ratio < limit) {
        lows++
        explained_lows += explained
        print(where " " (explained ? "yes" : "no")) > below
        if (!explained) unexplained = unexplained sprintf("    %s: %.2f\n", where, ratio)
    }
    write_json(n, ratio, low, high, explained)
    printf "%5d %-4s %-7s %-14s %8s %10.4g %10.4g  %-22s %-22s %s\n", ranks, via, buffers, op, size_name(bytes),
        median_us("tutti-before", n), median_us("tutti", n), sprintf("%.2f (%.2f .. %.2f)", ratio, low, high),
        sprintf("%.2f (%.2f .. %.2f)", middle, least, most), note
}

function write_json(n, ratio, low, high, explained)
{
    if (json == "") return
    printf("{\"old\":\"%s\",\"new\":\"%s\",\"ranks\":%d,\"transport\":\"%s\",\"buffers\":\"%s\"", old, new, ranks,
        transport, buffers) >> json
    printf(",\"op\":\"%s\",\"bytes\":%d,\"rounds\":%d", op, bytes, n) >> json
    printf(",\"ratio_p50\":%.6g,\"ratio_min\":%.6g,\"ratio_max\":%.6g", ratio, low, high) >> json
    printf(",\"self_p50\":%.6g,\"self_min\":%.6g,\"self_max\":%.6g", middle, least, most) >> json
    printf(",\"below\":%s,\"explained\":%s}\n", ratio < limit ? "true" : "false", explained ? "true" : "false") >> json
}

{
    at = field("ranks") " " field("transport") " " field("buffers") " " field("op") " " field("bytes")
    if (NR > 1 && at != last) end_of_cell()
    if (at != last) for (who in rounds) rounds[who] = 0
    last = at
    ranks = field("ranks")
    transport = field("transport")
    via = transport == "any" ? "shm" : transport
    buffers = field("buffers")
    op = field("op")
    bytes = field("bytes")
    rounds[field("contestant")] = field("status") == "ok" && field("wrong") == 0 ? rounds_of(field("contestant")) : 0
}

function summary(name, all,    i)
{
    for (i = 1; i <= cells; i++) values[i] = all[i]
    sort_values(cells)
    printf "%s, median of %d cells: %.3f; quartiles %.3f, %.3f; least %.2f, most %.2f\n", name, cells,
        quantile(cells, 0.5), quantile(cells, 0.25), quantile(cells, 0.75), values[1], values[cells]
}

END {
    if (NR > 0) end_of_cell()
    if (cells == 0) {
        print "Nothing was measured."
        exit 1
    }
    summary("Old / new", all_ratios)
    summary("Old / old", all_selves)
    printf "Below %.2f: %d cells; in %d of them the old tree is as far from itself.%s\n%s", limit, lows, explained_lows,
        unexplained == "" ? "" : " The others:", unexplained
    if (unmeasured == 0) exit 0
    printf "Not measured: %d cells\n", unmeasured
    exit 1
}
