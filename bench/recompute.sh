#!/bin/bash
# bench/recompute.sh [ROUNDS [STEPS [small]]]: a step with --recompute against one without, on one process.
#
# A GPT of 124 M parameters (12 layers, 12 heads, 768 wide, vocabulary 50,257, context 64, batch 8, 8 grains), or with `small`
# one of 4 layers, 4 heads, 128 wide and a vocabulary of 256. The two take turns in each round, the first one by turns.
# Printed are the medians of the seconds of all steps but the first of each run and the bytes of activations; then the ratio
# of both, with the least and greatest of one round. Needs 3 GB (small: little) and a quiet machine.
set -eu -o pipefail
rounds=${1:-3}
steps=${2:-6}
model=(--layers 12 --heads 12 --width 768 --vocabulary 50257 --context 64 --batch 8 --grains 8)
ids=50257
if [ "${3:-}" = small ]; then
    model=(--layers 4 --heads 4 --width 128 --vocabulary 256 --context 64 --batch 16 --grains 8)
    ids=256
fi
tutti=${TUTTI:-$(dirname "$0")/../build/tutti}
folder=$(mktemp -d /tmp/tutti-recompute.XXXXXX)
trap 'rm -rf "$folder"' EXIT
python3 - "$folder" "$ids" <<'END'
import array, random, sys
draw = random.Random(1)
array.array('H', (draw.randrange(int(sys.argv[2])) for _ in range(400000))).tofile(open(sys.argv[1] + '/data', 'wb'))
END
run() { # NAME [FLAG...]
    "$tutti" train gpt --data "u16:$folder/data" "${model[@]}" --steps "$steps" --val-every 0 --check-every 0 \
        --metrics "$folder/metrics" "${@:2}" >/dev/null
    tail -n +2 "$folder/metrics" >"$folder/$1.$round"
}
for round in $(seq "$rounds"); do
    if [ $((round % 2)) = 1 ]; then run kept; fi
    run again --recompute
    if [ $((round % 2)) = 0 ]; then run kept; fi
    echo "round $round of $rounds" >&2
done
python3 - "$folder" "$rounds" <<'END'
import json, statistics, sys
folder, rounds, median = sys.argv[1], range(1, int(sys.argv[2]) + 1), statistics.median
def lines(name, number):
    return [json.loads(line) for line in open('%s/%s.%d' % (folder, name, number))]
def per_token(name, number):
    return median(1 / line['tokens_per_s'] for line in lines(name, number))
for name, text in ('kept', 'without'), ('again', '--recompute'):
    print('%-12s %9.1f tokens/s, activations %.1f MB' %
          (text, 1 / median(per_token(name, n) for n in rounds), lines(name, 1)[-1]['bytes']['activations'] / 1e6))
each = [per_token('again', n) / per_token('kept', n) for n in rounds]
print('a step with --recompute takes %.3f (%.3f to %.3f) times as long' % (median(each), min(each), max(each)))
END
