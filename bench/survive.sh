#!/bin/bash
# bench/survive.sh [ROUNDS [FLAG...]]: how long training takes to go on after the loss of a rank.
#
# A small GPT on 4 processes. In each round one of them, by turns on plain data parallel, --zero 1, --zero 3 and a pipe, or with the
# given flags of tutti train, is killed (SIGKILL) at a random moment. Printed are the times from the kill until the next step in the
# rebuilt world was reported, and how many runs have ended with the weights of one that nothing happened to.
set -eu -o pipefail
rounds=${1:-50}
shift $(($# < 1 ? $# : 1))
TUTTI=${TUTTI:-$(realpath "$(dirname "$0")/../build/tutti")} exec python3 - "$rounds" "$*" <<'END'
import glob, json, os, random, re, signal, subprocess, sys, tempfile, time

rounds, flags, tutti = int(sys.argv[1]), sys.argv[2], os.environ['TUTTI']
layouts = [flags] if flags else ['', '--zero 1', '--zero 3', '--mesh pipe=4']
steps, ranks, draw = 400, 4, random.Random(1)
folder = tempfile.mkdtemp(prefix='tutti-survive.')
metrics = folder + '/steps.jsonl'


def start(layout):
    train = [tutti, 'train', 'gpt', '--data', 'markov:order=2,states=64', '--layers', '2', '--heads', '2', '--width', '64',
             '--context', '32', '--batch', '16', '--steps', str(steps), '--val-every', '0', '--metrics', metrics]
    return subprocess.Popen([tutti, 'run', '-n', str(ranks), '--max-restarts', '3', '--no-prefix'] + train + layout.split(),
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def pids():
    found = {}
    for path in glob.glob('/proc/[0-9]*/cmdline'):
        try:
            words = open(path).read().split('\0')
            if len(words) < 2 or words[1] != 'train' or metrics not in words: continue
            variables = open(path.replace('cmdline', 'environ')).read().split('\0')
            found[int(next(v for v in variables if v.startswith('TUTTI_RANK='))[11:])] = int(path.split('/')[2])
        except (OSError, StopIteration):
            pass
    return found


def lines():
    try:
        return [line for line in open(metrics) if line.endswith('\n')]
    except OSError:
        return []


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end: sys.exit('gave up waiting')
        time.sleep(0.002)


def weights(job):
    out, _ = job.communicate(timeout=120)
    found = re.search(r'^weights ([0-9a-f]{16})', out, re.M)
    return found.group(1) if found and job.returncode == 0 else None


wanted = {}
for layout in layouts:
    wanted[layout] = weights(start(layout))
took, equal = [], 0
while len(took) < rounds:
    layout = layouts[len(took) % len(layouts)]
    if os.path.exists(metrics): os.remove(metrics)
    job = start(layout)
    at = draw.randrange(1, steps // 2)
    until(lambda: len(lines()) >= at)
    victim = pids().get(draw.randrange(ranks))
    if victim is None: # it was done already
        weights(job)
        continue
    time.sleep(draw.random() * 0.01)
    began = time.monotonic()
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        weights(job)
        continue
    until(lambda: job.poll() is not None or any(json.loads(line)['epoch'] > 0 for line in lines()[-3:]))
    took.append(time.monotonic() - began)
    equal += weights(job) == wanted[layout] is not None
took.sort()
print('%d kills: next step done after %.0f ms (median), %.0f ms (99 of 100), %.0f ms (most); %d of %d with the weights of an '
      'undisturbed run' % (rounds, 1000 * took[rounds // 2], 1000 * took[min(rounds - 1, rounds * 99 // 100)], 1000 * took[-1],
                           equal, rounds))
if equal < rounds: sys.exit(1)
END
