#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=400 labels=asan,tsan
# Collectives on streams, with all that can go wrong there, by the providers that are not chosen by themselves on device
# `host`; and a provider that there is not.
source "$(dirname "$0")/run.bash"
for provider in cuda staged; do
    beside "streams, $provider" TUTTI_DEVICE_PROVIDER=$provider "$BUILD/tests/test_streams"
    beside "ops, $provider" TUTTI_DEVICE_PROVIDER=$provider "$BUILD/tests/test_stream_ops"
done
together
OUT=$(TUTTI_DEVICE_PROVIDER=cude TUTTI_RANKS=2 "$BUILD/examples/collectives" 2>&1)
check 'an unknown provider is refused' 1 "$(($? != 0))"
matches 'an unknown provider: said' 'TUTTI_DEVICE_PROVIDER.*cuda' "$OUT"
finish
