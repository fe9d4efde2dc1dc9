#!/bin/bash
# bench/plan.sh [RANKS [BEST [SPREAD]]]: how near the times of tutti plan are, for a small GPT on this machine.
#
# Plans for RANKS ranks (2), runs the BEST (3) fastest layouts and SPREAD (20) others, evenly spread over the rest from fast to
# slow, and prints predicted over measured for each of them. The verdict: all times within 25%, and the fastest that was measured
# among the plan's first three. Needs a core for each rank and a quiet machine; a layout takes one to three seconds.
set -eu -o pipefail
ranks=${1:-2}
best=${2:-3}
spread=${3:-20}
tutti=${TUTTI:-$(dirname "$0")/../build/tutti}
folder=$(mktemp -d /tmp/tutti-plan.XXXXXX)
trap 'rm -rf "$folder"' EXIT
"$tutti" plan gpt --data "${DATA:-$(dirname "$0")/../src}" --ranks "$ranks" --measure "$best" --spread "$spread" \
    --json "$folder/plan.json" >"$folder/out" || tail -n 3 "$folder/out" >&2
python3 - "$folder/plan.json" <<'END'
import json, statistics, sys
plan = json.load(open(sys.argv[1]))
fitting = [layout for layout in plan['layouts'] if layout.get('fits')]
rows = [(number, layout) for number, layout in enumerate(fitting, 1) if 'measured_seconds' in layout]
if not rows:
    sys.exit('nothing was measured')
for number, layout in rows:
    print('%4d  %.3f  predicted %8.2f ms, measured %8.2f ms  %s' % (
        number, layout['seconds'] / layout['measured_seconds'], 1e3 * layout['seconds'], 1e3 * layout['measured_seconds'],
        layout['command'].split('tutti train ')[-1]))
ratios = [layout['seconds'] / layout['measured_seconds'] for _, layout in rows]
errors = [abs(ratio - 1) for ratio in ratios]
fastest = min(rows, key=lambda row: row[1]['measured_seconds'])[0]
near = sum(error <= 0.25 for error in errors)
print('%d of %d layouts measured; predicted over measured %.3f to %.3f, median error %.1f%%' % (
    len(rows), len(fitting), min(ratios), max(ratios), 100 * statistics.median(errors)))
print('within 25%%: %d of %d: %s' % (near, len(rows), 'met' if near == len(rows) else 'not met'))
print('the fastest that was measured is number %d: %s' % (fastest, 'met' if fastest <= 3 else 'not met'))
sys.exit(0 if near == len(rows) and fastest <= 3 else 1)
END
