#!/bin/bash
# bench/width_before.sh [ROUNDS [STEPS [COMMIT]]]: training with --width-grains 1 against the tool of a commit before there were any.
#
# Builds the tool of COMMIT (the one before layouts, 7ecd127^) from this repository's history, in build/width-before. Two models,
# small (4 layers, 4 heads, 128 wide, vocabulary 256, batch 16) and 124M (12 layers, 12 heads, 768 wide, vocabulary 50,257, batch
# 8), context 64, 8 grains, each on one rank and on two processes, take turns with both tools in each round. Printed are the medians
# of the tokens per second of all steps but the first two of each run, their ratio new over old, and the least and greatest ratio of
# one round; at the end whether all ratios are 0.97 or more. Needs about 6 GB and a quiet machine.
set -eu -o pipefail
rounds=${1:-3}
steps=${2:-8}
commit=${3:-7ecd127^}
root=$(cd "$(dirname "$0")/.." && pwd)
new=${TUTTI:-$root/build/tutti}
tree=$root/build/width-before
folder=$(mktemp -d /tmp/tutti-width.XXXXXX)
trap 'rm -rf "$folder"' EXIT
id=$(git -C "$root" rev-parse --verify "$commit^{commit}")
if [ "$(cat "$tree/commit" 2>/dev/null)" != "$id" ]; then
    rm -rf "$tree"
    mkdir -p "$tree"
    git -C "$root" archive "$id" | tar -x -C "$tree"
    (cd "$tree" && cmake --preset release && cmake --build --preset release --target tutti) >"$folder/build" 2>&1 ||
        { tail -n 20 "$folder/build" >&2; exit 1; }
    echo "$id" >"$tree/commit"
fi
if [ "$rounds" = 0 ]; then exit; fi # only built
old=$tree/build/tutti
python3 - "$folder" <<'END'
import array, random, sys
draw = random.Random(1)
for ids in (256, 50257):
    array.array('H', (draw.randrange(ids) for _ in range(400000))).tofile(open('%s/%d' % (sys.argv[1], ids), 'wb'))
END
small=(--data "u16:$folder/256" --layers 4 --heads 4 --width 128 --vocabulary 256 --batch 16)
large=(--data "u16:$folder/50257" --layers 12 --heads 12 --width 768 --vocabulary 50257 --batch 8)
run() { # TOOL NAME RANKS STEPS [FLAG...]
    "$1" run -n "$3" --no-prefix "$1" train gpt --context 64 --grains 8 --steps "$4" --val-every 0 --check-every 0 \
        --metrics "$folder/metrics" "${@:5}" >/dev/null
    tail -n +3 "$folder/metrics" >"$folder/$2.$round"
}
for round in $(seq "$rounds"); do
    for ranks in 1 2; do
        run "$old" "old-small-$ranks" "$ranks" $((10 * steps)) "${small[@]}"
        run "$new" "new-small-$ranks" "$ranks" $((10 * steps)) "${small[@]}" --width-grains 1
        run "$old" "old-124M-$ranks" "$ranks" "$steps" "${large[@]}"
        run "$new" "new-124M-$ranks" "$ranks" "$steps" "${large[@]}" --width-grains 1
    done
    echo "round $round of $rounds" >&2
done
python3 - "$folder" "$rounds" <<'END'
import json, statistics, sys
median = statistics.median
def rates(name, number):
    return [json.loads(line)['tokens_per_s'] for line in open('%s/%s.%d' % (sys.argv[1], name, number))]
rounds = range(1, int(sys.argv[2]) + 1)
met = True
for model in ('small', '124M'):
    for ranks in (1, 2):
        cell = '%s-%d' % (model, ranks)
        old, new = ([median(rates('%s-%s' % (tool, cell), number)) for number in rounds] for tool in ('old', 'new'))
        each = [b / a for a, b in zip(old, new)]
        ratio = median(each)
        met = met and ratio >= 0.97
        print('%-6s %d rank%s  %9.1f tokens/s before, %9.1f now: %.3f (%.3f to %.3f)' % (
            model, ranks, 's' if ranks > 1 else ' ', median(old), median(new), ratio, min(each), max(each)))
print('0.97 or more everywhere: %s' % ('met' if met else 'not met'))
sys.exit(0 if met else 1)
END
