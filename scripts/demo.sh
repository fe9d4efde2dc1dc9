#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What `make demo` shows, after building: every collective between 4 processes; a small GPT that learns this repository's
# own sources on 2 ranks, and writes some more; and how fast its all_reduces are on this machine, beside the floor, which is
# what the same bytes cost without any library.
set -eu
cd "$(dirname "$0")/.."
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT

show()
{
    printf '\n$ %s\n' "$*" | sed "s|$run|run|g"
    "$@"
}

show build/tutti run -n 4 build/examples/collectives
show build/tutti train gpt --data src --steps 1000 --lr 0.004 --ranks 2 --save "$run/demo"
show build/tutti sample "$run/demo" --prompt static --tokens 300 --seed 2
show build/tutti bench all_reduce -b 512K -e 4M -f 2 -n 20 --ranks 2

cat << 'END'

To try next:
    build/tutti train gpt --data src --steps 5000 --ranks 2 --save run      longer; Ctrl-C saves and stops
    build/tutti train gpt --data src --steps 5000 --ranks 1 --save run --resume
                                                                           goes on, on any number of ranks
    build/tutti run -n 2 build/tutti train gpt --data src --steps 100       as processes: the same weights, bit for bit
    build/tutti sample run --prompt 'struct '
    build/tutti train --help                                               other models, data and settings
    build/examples/ddp                                                     gradients written by hand, see examples/ddp.c
    build/examples/model                                                   a model of one's own, see examples/model.c
    build/examples/layer                                                   a layer and a loss of one's own, see examples/layer.c
    docs/training.md
END
