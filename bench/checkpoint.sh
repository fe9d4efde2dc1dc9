#!/bin/bash
# bench/checkpoint.sh [ROUNDS [RANKS [STEPS]]]: what checkpoints by all ranks cost, at once and in the background.
#
# A GPT of 124 M parameters with AdamW's state (1,484 MB) on RANKS processes. In each round, one after the other:
#   a run of STEPS steps that saves after half of them, and waits for the save;
#   one write of the same bytes by dd into the same folder, with fsync;
#   the same run with --save-async.
# A run has lost what its second half takes longer than as many steps before the save (their median). Printed are the plain
# write's seconds over the save's, and what --save-async loses as a share of what the save that is waited for loses: each
# round, the medians, least and greatest. A run whose save is not written before its last step ends with an error: more STEPS
# are needed. FOLDER in the environment says where to, LAYERS how many (12). Needs 5 GB of memory, 4 GB of disk and a quiet
# machine.
set -eu -o pipefail
rounds=${1:-3}
ranks=${2:-2}
steps=${3:-24}
tutti=${TUTTI:-$(dirname "$0")/../build/tutti}
folder=$(mktemp -d "${FOLDER:-/tmp}/tutti-checkpoint.XXXXXX")
trap 'rm -rf "$folder"' EXIT
cat >"$folder/run.py" <<'END'
# run.py SAVE STEPS COMMAND...: megabytes and seconds of a save, and what training has lost by the one after half of the steps.
import os, re, statistics, subprocess, sys, time
save, steps, half = sys.argv[1], int(sys.argv[2]), int(sys.argv[2]) // 2
path = '%s/step-%08d' % (save, half)
times, written = [], False
with open(save + '.words', 'w+') as words:
    run = subprocess.Popen(sys.argv[3:], stdout=subprocess.PIPE, stderr=words, text=True)
    for line in run.stdout:
        times.append(time.monotonic())
        if len(times) == steps - 1:
            written = os.path.exists(path)
    words.seek(0)
    text = words.read()
if run.wait() != 0 or len(times) != steps:
    sys.exit('checkpoint.sh: the run has failed: ' + text[-500:])
if not written:
    sys.exit('checkpoint.sh: the save was not written within %d steps: give more' % (steps - 1 - half))
taken = [b - a for a, b in zip(times, times[1:])]  # taken[i]: step i + 2, and the save after it
usual = statistics.median(taken[1:half - 2])
after = taken[half - 2:steps - 2]  # step `half` and its save, to the last but one: after the last it is saved again
# What the run says at its end is of the save behind its last step.
megabytes, seconds = re.search(r'([0-9.]+) MB, (?:written in|training waited for) ([0-9.]+) s', text).groups()
print(megabytes, seconds, sum(after) - len(after) * usual)
END
python3 - "$folder" <<'END'
import array, random, sys
draw = random.Random(1)
array.array('H', (draw.randrange(50257) for _ in range(40000))).tofile(open(sys.argv[1] + '/data', 'wb'))
END

run() { # SAVE [FLAG...]
    python3 "$folder/run.py" "$1" "$steps" "$tutti" run -n "$ranks" --no-prefix "$tutti" train gpt --data "u16:$folder/data" \
        --layers "${LAYERS:-12}" --heads 12 --width 768 --vocabulary 50257 --context 64 --batch "$ranks" --grains "$ranks" \
        --steps "$steps" --val-every 0 --check-every 0 --zero 1 --save "$1" --save-every $((steps / 2)) --metrics - "${@:2}"
}

# Nothing is removed before the end: a disk may be far faster where something was written and removed just before.
for round in $(seq "$rounds"); do
    blocking=$(run "$folder/save.$round")
    began=$(date +%s.%N)
    for file in "$folder/save.$round"/step-*"$((steps / 2))"/*.safetensors; do
        dd if="$file" of="$folder/plain.$round.${file##*/}" bs=1M conv=fsync status=none
    done
    plain=$(python3 -c "print($(date +%s.%N) - $began)")
    background=$(run "$folder/background.$round" --save-async)
    echo "$blocking $plain $background" >>"$folder/rounds"
    echo "round $round of $rounds" >&2
done
python3 - "$folder/rounds" <<'END'
import statistics, sys
rows = [[float(number) for number in line.split()] for line in open(sys.argv[1])]
def spread(values, text):
    return text % (statistics.median(values), min(values), max(values))
print('    MB  save s  plain write s  ratio  lost s  lost with --save-async s  share')
for megabytes, save, lost, plain, _, _, background in rows:
    print('%6.0f  %6.2f  %13.2f  %5.2f  %6.2f  %24.2f  %4.0f%%' %
          (megabytes, save, plain, plain / save, lost, background, 100 * background / lost))
print(spread([r[3] / r[1] for r in rows], 'a save by all ranks: %.2f (%.2f to %.2f) times as fast as a plain write'))
print(spread([100 * r[6] / r[2] for r in rows], '--save-async loses %.1f%% (%.1f to %.1f%%) of what a save that is waited for does'))
END
