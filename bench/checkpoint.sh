#!/bin/bash
# bench/checkpoint.sh [ROUNDS [RANKS]]: checkpoints by all ranks against a plain sequential write, and in the background.
#
# A GPT of 124 M parameters with AdamW's state (1,484 MB) on RANKS processes. In each round: one save that is waited for, one
# write of as many zeros by dd into the same folder with fsync, and one save with --save-async, which says how long training
# waited. Printed are each round's figures and the medians of the two ratios. FOLDER in the environment says where to; needs
# 5 GB of memory, 4 GB of disk and a quiet machine.
set -eu -o pipefail
rounds=${1:-3}
ranks=${2:-2}
tutti=${TUTTI:-$(dirname "$0")/../build/tutti}
folder=$(mktemp -d "${FOLDER:-/tmp}/tutti-checkpoint.XXXXXX")
trap 'rm -rf "$folder"' EXIT
python3 - "$folder" <<'END'
import array, random, sys
draw = random.Random(1)
array.array('H', (draw.randrange(50257) for _ in range(40000))).tofile(open(sys.argv[1] + '/data', 'wb'))
END

# The last line about a checkpoint: its megabytes and seconds.
save() {
    rm -rf "$folder/save"
    "$tutti" run -n "$ranks" --no-prefix "$tutti" train gpt --data "u16:$folder/data" --layers "${LAYERS:-12}" --heads 12 \
        --width 768 --vocabulary 50257 --context 16 --batch "$ranks" --grains "$ranks" --steps 1 --val-every 0 \
        --check-every 0 --zero 1 --save "$folder/save" "$@" |
        sed -nE 's/.*: ([0-9.]+) MB, (written in|training waited for) ([0-9.]+) s.*/\1 \3/p'
}

for round in $(seq "$rounds"); do
    read -r megabytes blocking < <(save)
    rm -rf "$folder/save"
    began=$(date +%s.%N)
    dd if=/dev/zero of="$folder/plain" bs=1M count="${megabytes%.*}" conv=fsync status=none
    plain=$(python3 -c "print($(date +%s.%N) - $began)")
    rm "$folder/plain"
    read -r _ waited < <(save --save-async)
    echo "$megabytes $blocking $plain $waited" >>"$folder/rounds"
    echo "round $round of $rounds" >&2
done
python3 - "$folder/rounds" <<'END'
import statistics, sys
rows = [[float(number) for number in line.split()] for line in open(sys.argv[1])]
print('    MB  all ranks s  plain s  ratio  in background s  of blocking')
for megabytes, blocking, plain, waited in rows:
    print('%6.0f  %11.2f  %7.2f  %5.2f  %15.3f  %10.1f%%' %
          (megabytes, blocking, plain, plain / blocking, waited, 100 * waited / blocking))
print('medians: %.2f times a plain write; in the background %.1f%% of the time of a save that is waited for' %
      (statistics.median(r[2] / r[1] for r in rows), 100 * statistics.median(r[3] / r[1] for r in rows)))
END
