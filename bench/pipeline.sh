#!/bin/bash
# bench/pipeline.sh [ROUNDS [STEPS [RANKS]]]: 1f1b and zb-h1 with real layers, one stage on each of RANKS processes (4).
#
# A GPT of 8 blocks (512 wide, 8 heads, vocabulary 4,096, context 128), 4 micro-batches per rank of one sample each. The tables
# take turns in each round. Printed for each: the medians of step times and of idle shares, as measured, and as
# tutti_pipeline_check has them for what the run's steps took; then how many percentage points these are apart, and the step of
# zb-h1 over that of 1f1b, with the least and greatest of one round. Needs a core for each rank, or exits with status 77:
# where ranks take turns, idle shares are the scheduler's. ANYWAY=1 runs it all the same, to see that it works.
set -eu -o pipefail
rounds=${1:-3}
steps=${2:-8}
ranks=${3:-4}
tutti=${TUTTI:-$(dirname "$0")/../build/tutti}
if [ "$(nproc)" -lt "$ranks" ] && [ -z "${ANYWAY:-}" ]; then
    echo "pipeline.sh: $ranks ranks need $ranks cores, here are $(nproc): their idle shares would be the scheduler's;" \
        "give fewer RANKS, or ANYWAY=1 to see that it works" >&2
    exit 77
fi
folder=$(mktemp -d /tmp/tutti-pipeline.XXXXXX)
trap 'rm -rf "$folder"' EXIT
python3 - "$folder" <<'END'
import array, random, sys
draw = random.Random(1)
array.array('H', (draw.randrange(4096) for _ in range(200000))).tofile(open(sys.argv[1] + '/data', 'wb'))
END
micros=$((4 * ranks))
for round in $(seq "$rounds"); do
    for table in 1f1b zb-h1; do
        "$tutti" run -n "$ranks" --no-prefix "$tutti" train gpt --data "u16:$folder/data" --layers 8 --heads 8 --width 512 \
            --vocabulary 4096 --context 128 --batch "$micros" --grains "$micros" --mesh "pipe=$ranks" --pipeline "$table" \
            --micro "$micros" --steps "$steps" --val-every 0 --check-every 0 --metrics "$folder/metrics" >/dev/null
        tail -n +2 "$folder/metrics" >"$folder/$table.$round"
    done
    echo "round $round of $rounds" >&2
done
python3 - "$folder" "$rounds" "$((128 * micros))" <<'END'
import json, statistics, sys
folder, rounds, tokens = sys.argv[1], range(1, int(sys.argv[2]) + 1), int(sys.argv[3])
def median_of(table, number, name):
    lines = [json.loads(line) for line in open('%s/%s.%d' % (folder, table, number))]
    return statistics.median(tokens / line['tokens_per_s'] if name == 'step' else 100 * line[name] for line in lines)
def spread(values, text):
    return text % (statistics.median(values), min(values), max(values))
for table in '1f1b', 'zb-h1':
    step, idle, predicted = ([median_of(table, n, name) for n in rounds] for name in ('step', 'idle', 'predicted_idle'))
    print(table + spread(step, ': step %.3f s (%.3f to %.3f)') + spread(idle, ', idle %.1f%% (%.1f to %.1f)') +
          spread(predicted, ', by its table %.1f%% (%.1f to %.1f)') +
          spread([a - b for a, b in zip(idle, predicted)], ', apart %+.1f points (%+.1f to %+.1f)'))
print(spread([median_of('zb-h1', n, 'step') / median_of('1f1b', n, 'step') for n in rounds],
             "zb-h1's step takes %.3f (%.3f to %.3f) times as long as 1f1b's"))
END
