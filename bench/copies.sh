#!/bin/bash
# bench/copies.sh [ROUNDS [small|large]]: what the copies that training survives a loss with cost a step.
#
# Small is a GPT of 0.8 M parameters (4 layers, 4 heads, 128 wide, context 64, batch 16) on 4 processes; large is one of 124 M
# (12 layers, 12 heads, 768 wide, vocabulary 50,257, context 64, batch 8) on 2 processes; both with --zero 1. Each run has
# --copy-every 2: the copy after an even step is made while the odd one behind it computes, and has ended when that one ends. So
# odd steps have a copy and even ones have none, by turns within one run. Printed are the medians of both, the share that a copy
# adds to a step (the median of the rounds, with the least and the most), and the bytes of rank 0 by purpose. Without a word behind
# the rounds both models take turns. Large needs about 12 GB. Needs a quiet machine.
set -eu -o pipefail
rounds=${1:-5}
models=${2:-small large}
tutti=${TUTTI:-$(dirname "$0")/../build/tutti}
folder=$(mktemp -d /tmp/tutti-copies.XXXXXX)
trap 'rm -rf "$folder"' EXIT
python3 - "$folder" <<'END'
import array, random, sys
draw = random.Random(1)
array.array('H', (draw.randrange(50257) for _ in range(400000))).tofile(open(sys.argv[1] + '/data', 'wb'))
END
train() { # MODEL RANKS FLAG...
    local model=$1 ranks=$2
    shift 2
    "$tutti" run -n "$ranks" --max-restarts 1 --no-prefix "$tutti" train gpt --context 64 --val-every 0 --check-every 0 --zero 1 \
        --copy-every 2 --metrics "$folder/$model.$round" "$@" >/dev/null
}
for round in $(seq "$rounds"); do
    for model in $models; do
        case $model in
        small) train small 4 --data markov:order=2,states=64 --layers 4 --heads 4 --width 128 --batch 16 --steps 204 ;;
        large) train large 2 --data "u16:$folder/data" --layers 12 --heads 12 --width 768 --vocabulary 50257 --batch 8 --grains 8 \
            --steps 16 ;;
        *)
            echo "bench/copies.sh: '$model' is neither small nor large" >&2
            exit 2
            ;;
        esac
    done
    echo "round $round of $rounds" >&2
done
python3 - "$folder" "$rounds" "$models" <<'END'
import json, statistics, sys
folder, rounds = sys.argv[1], int(sys.argv[2])
first = 5  # images get their pages in the first two copies
for model in sys.argv[3].split():
    shares, withs, withouts = [], [], []
    for round in range(1, rounds + 1):
        lines = [json.loads(line) for line in open('%s/%s.%d' % (folder, model, round))]
        took = [[1 / line['tokens_per_s'] for line in lines if line['step'] > first and line['step'] % 2 == odd] for odd in (0, 1)]
        tokens = (16 if model == 'small' else 8) * 64 * 1e3
        without, copied = (statistics.median(seconds) * tokens for seconds in took)
        withouts.append(without)
        withs.append(copied)
        shares.append(100 * (copied / without - 1))
    print('%s: a step with a copy %.1f ms, without %.1f ms: %+.1f%% (%+.1f to %+.1f in %d rounds)' %
          (model, statistics.median(withs), statistics.median(withouts), statistics.median(shares), min(shares), max(shares), rounds))
    print('    bytes of rank 0: ' + ', '.join('%s %.1f MB' % (name, count / 1e6) for name, count in lines[-1]['bytes'].items() if count))
END
