#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds and runs the standard comparison; tables to stdout, JSON lines to build/bench/. Build Tutti first.
# Arguments go to every run of the driver: bench/peers/run.sh --cells all_reduce --rounds 15
set -eu

here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD:-$here/../../build}
mkdir -p "$build/bench"
build=$(cd "$build" && pwd)

make -s -C "$here" BUILD="$build/peers" LIBTUTTI="${LIBTUTTI:-$build/libtutti.a}"

# run RANKS AS BUFFERS [ARGUMENT…]
run() {
    ranks=$1 as=$2 buffers=$3
    shift 3
    json="$build/bench/peers-$ranks-$as-$buffers$suffix.json"
    rm -f "$json"
    "$build/peers/driver" --ranks "$ranks" --as "$as" --buffers "$buffers" --json "$json" "$@"
    echo
}

suffix=
run 2 threads shared "$@"
run 2 processes shared "$@"
run 2 processes private "$@"
run 4 processes shared "$@"
run 4 threads shared "$@"
suffix=-tcp
run 2 processes shared --transport tcp "$@"
run 4 processes shared --transport tcp "$@"
echo "JSON: $build/bench/peers-*.json"
