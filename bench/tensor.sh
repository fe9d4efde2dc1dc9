#!/bin/bash
# bench/tensor.sh [ROUNDS [STEPS [small]]]: what width grains cost one rank, and tensor=2 against data=2 on 2 processes.
#
# A GPT of 124 M parameters (12 layers, 12 heads, 768 wide, vocabulary 50,257, context 64, batch 8, 8 grains), or with `small`
# one of 4 layers, 4 heads, 128 wide and a vocabulary of 256. The five take turns in each round; printed are the medians of
# the tokens per second of all steps but the first of each run, the ratios to the first of their kind, and the least and
# greatest ratio of one round. Needs about 6 GB (small: little) and a quiet machine.
set -eu -o pipefail
rounds=${1:-3}
steps=${2:-6}
model=(--layers 12 --heads 12 --width 768 --vocabulary 50257 --context 64 --batch 8 --grains 8)
if [ "${3:-}" = small ]; then model=(--layers 4 --heads 4 --width 128 --vocabulary 256 --context 64 --batch 16 --grains 8); fi
ids=50257
if [ "${3:-}" = small ]; then ids=256; fi
tutti=${TUTTI:-$(dirname "$0")/../build/tutti}
folder=$(mktemp -d /tmp/tutti-tensor.XXXXXX)
trap 'rm -rf "$folder"' EXIT
python3 - "$folder" "$ids" <<'END'
import array, random, sys
draw = random.Random(1)
array.array('H', (draw.randrange(int(sys.argv[2])) for _ in range(400000))).tofile(open(sys.argv[1] + '/data', 'wb'))
END
run() { # NAME RANKS [FLAG...]
    "$tutti" run -n "$2" --no-prefix "$tutti" train gpt --data "u16:$folder/data" "${model[@]}" --steps "$steps" \
        --val-every 0 --check-every 0 --metrics "$folder/metrics" "${@:3}" >/dev/null
    tail -n +2 "$folder/metrics" >"$folder/$1.$round"
}
for round in $(seq "$rounds"); do
    run one 1 --width-grains 1
    run grains 1 --width-grains 0
    run data 2 --mesh data=2 --width-grains 1
    run data_grains 2 --mesh data=2 --width-grains 0
    run tensor 2 --mesh tensor=2 --width-grains 0
    echo "round $round of $rounds" >&2
done
python3 - "$folder" "$rounds" <<'END'
import json, statistics, sys
def rates(name, number):
    return [json.loads(line)['tokens_per_s'] for line in open('%s/%s.%d' % (sys.argv[1], name, number))]
rounds = range(1, int(sys.argv[2]) + 1)
kinds = [('one', 'one', '1 rank, 1 width grain'), ('grains', 'one', '1 rank, width grains of the model'),
         ('data', 'data', 'data=2, 1 width grain'), ('data_grains', 'data', 'data=2, width grains of the model'),
         ('tensor', 'data', 'tensor=2, width grains of the model')]
median = statistics.median
for name, base, text in kinds:
    mine = median(rate for number in rounds for rate in rates(name, number))
    other = median(rate for number in rounds for rate in rates(base, number))
    each = [median(rates(name, number)) / median(rates(base, number)) for number in rounds]
    print('%-36s %9.1f tokens/s  %.3f (%.3f to %.3f)' % (text, mine, mine / other, min(each), max(each)))
END
