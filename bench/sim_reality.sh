#!/bin/bash
# The simulator against reality: all_reduce between ranks over TCP on this host, measured, and predicted from the figures of
# links that tutti bench --tune measures. Both in turns, since machines drift; the median of all rounds is printed.
#   bench/sim_reality.sh [RANKS [ROUNDS [TUTTI]]]
set -euo pipefail
ranks=${1:-2} rounds=${2:-5} tutti=${3:-build/tutti}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sizes="65536 262144 1048576 4194304 16777216 67108864"

for ((round = 0; round < rounds; round++)); do
    "$tutti" bench --tune "$folder/links" --ranks "$ranks" --as processes --transport tcp > /dev/null
    "$tutti" bench all_reduce -b 64K -e 64M -f 4 --ranks "$ranks" --as processes --transport tcp --floor 0 -c 0 \
        --json "$folder/real" > /dev/null
    grep '"in_place":false' "$folder/real" |
        sed 's/.*"bytes":\([0-9]*\),.*"p50_us":\([0-9.]*\),.*/\1 \2/' > "$folder/real.txt"
    for bytes in $sizes; do
        predicted=$("$tutti" sim all_reduce --hosts "$ranks" --ranks-per-host 1 --bytes "$bytes" --links "$folder/links" \
            --json - 2> /dev/null | sed -n 's/.*"chosen": true, "time_ns": \([0-9]*\),.*/\1/p')
        awk -v bytes="$bytes" -v ns="$predicted" \
            '$1 == bytes { printf "%d %.1f %.1f %.3f\n", bytes, $2, ns / 1000, ns / 1000 / $2 }' "$folder/real.txt"
    done | tee -a "$folder/rows" >&2
done

middle() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
echo "$ranks ranks, median of $rounds rounds"
printf '%10s %12s %12s %10s\n' bytes "real us" "predicted us" "ratio"
for bytes in $sizes; do
    printf '%10s' "$bytes"
    for column in 2 3 4; do
        printf ' %12s' "$(awk -v bytes="$bytes" -v column="$column" '$1 == bytes { print $column }' "$folder/rows" | middle)"
    done
    echo
done
