#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=400 labels=asan,tsan
#
# Collectives on streams, with all that can go wrong there, by the providers that are not chosen by themselves on device
# `host`; and a provider that there is not.
set -eu
for provider in cuda staged; do
    TUTTI_DEVICE_PROVIDER=$provider "$BUILD"/tests/test_streams
    TUTTI_DEVICE_PROVIDER=$provider "$BUILD"/tests/test_stream_ops
done
if said=$(TUTTI_DEVICE_PROVIDER=cude TUTTI_RANKS=2 "$BUILD"/examples/collectives 2>&1); then
    echo "an unknown provider was accepted"
    exit 1
fi
grep -q 'TUTTI_DEVICE_PROVIDER.*cuda' <<< "$said" || { echo "$said"; exit 1; }
