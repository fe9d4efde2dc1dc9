#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What `make demo` shows, after building: every collective between 4 processes, then how fast they are on this machine
# beside the floor, which is what the same bytes cost without any library.
set -eu
cd "$(dirname "$0")/.."

show()
{
    printf '\n$ %s\n' "$*"
    "$@"
}

show build/tutti run -n 4 build/examples/collectives
show build/tutti bench all_reduce -b 8 -e 16M -f 16 -n 30 --ranks 2 --as processes
