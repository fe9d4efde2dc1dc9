#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How long it takes until a silent host is noticed, and until the world is whole again on the host that waits: bench/heal_silent.sh [ROUNDS].
# Needs root, for network namespaces, and sshd. The status is 1 if an error took more than 2.5 s, or the rebuild more than 5 s.
cd "$(dirname "$0")/.." || exit 1
BUILD=$PWD/build SRC=$PWD GATE=${1:-10} exec bash tests/cli/heal_silent.sh
