#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan
#
# examples/gpu.c on device `host`, as threads and as processes, by each provider.
set -eu
want=$(printf 'rank %d of 3 on host: 3\n' 0 1 2)
export TUTTI_DEVICE=host
for provider in auto cuda staged; do
    export TUTTI_DEVICE_PROVIDER=$provider
    [ "$(TUTTI_RANKS=3 "$BUILD"/examples/gpu | sort)" = "$want" ]
    [ "$("$TUTTI" run -n 3 "$BUILD"/examples/gpu | sed 's/^\[[0-9]*\] //' | sort)" = "$want" ]
done
unset TUTTI_DEVICE
rc=0
said=$("$BUILD"/examples/gpu cuda:99 2>&1) || rc=$?
[ $rc = 1 ] && grep -q 'cuda' <<< "$said"
