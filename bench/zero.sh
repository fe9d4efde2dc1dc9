#!/bin/bash
# bench/zero.sh [ROUNDS [STEPS]]: training with --zero 1, 2 and 3 against plain data parallel, on 2 processes.
#
# A GPT of 124 M parameters (12 layers, 12 heads, 768 wide, vocabulary 50,257, context 64, batch 8, 8 grains). The four take
# turns in each round; printed are the medians of the tokens per second of all steps but the first of each run, and their
# ratios to --zero 0, with the bytes of rank 0 by purpose. Needs about 6 GB and a quiet machine.
set -eu -o pipefail
rounds=${1:-3}
steps=${2:-6}
tutti=${TUTTI:-$(dirname "$0")/../build/tutti}
folder=$(mktemp -d /tmp/tutti-zero.XXXXXX)
trap 'rm -rf "$folder"' EXIT
python3 - "$folder" <<'END'
import array, random, sys
draw = random.Random(1)
array.array('H', (draw.randrange(50257) for _ in range(400000))).tofile(open(sys.argv[1] + '/data', 'wb'))
END
for round in $(seq "$rounds"); do
    for zero in 0 1 2 3; do
        "$tutti" run -n 2 --no-prefix "$tutti" train gpt --data "u16:$folder/data" --layers 12 --heads 12 --width 768 \
            --vocabulary 50257 --context 64 --batch 8 --grains 8 --steps "$steps" --val-every 0 --check-every 0 \
            --zero "$zero" --metrics "$folder/metrics" >/dev/null
        tail -n +2 "$folder/metrics" >>"$folder/zero$zero"
    done
    echo "round $round of $rounds" >&2
done
python3 - "$folder" <<'END'
import json, statistics, sys
rows = {}
for zero in range(4):
    lines = [json.loads(line) for line in open('%s/zero%d' % (sys.argv[1], zero))]
    rows[zero] = (statistics.median(line['tokens_per_s'] for line in lines), lines[-1])
print('zero  tokens/s  ratio  bytes of rank 0')
for zero, (rate, line) in rows.items():
    sizes = ', '.join('%s %.0f MB' % (name, count / 1e6) for name, count in line['bytes'].items())
    print('%4d  %8.1f  %5.3f  %s' % (zero, rate, rate / rows[0][0], sizes))
END
