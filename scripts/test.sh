#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/test.sh quick|full: what `make test` and `make test-full` do. Every step runs even when an earlier one
# failed; the last lines say which did.
set -eu -o pipefail
cd "$(dirname "$0")/.."
full=
[ "${1:-quick}" = quick ] || full=full

log=$(mktemp)
built=$(mktemp)
trap 'rm -f "$log" "$built"' EXIT
failed=()
skipped=()
step()
{
    local name=$1 start=$SECONDS rc=0
    shift
    printf '\n== %s\n' "$name"
    "$@" || rc=$?
    [ $rc = 0 ] || failed+=("$name")
    printf '== %s: %s (%d s)\n' "$name" "$([ $rc = 0 ] && echo passed || echo FAILED)" $((SECONDS - start))
}

build()
{
    cmake --preset "$1" > /dev/null && cmake --build --preset "$1" --target all build_tests -- --quiet
}

# Nobody's build fails by a warning that only his compiler gives, but the tests do. What was built before is not looked at.
without_warnings()
{
    ! grep -n 'warning:' "$built"
}

build_and_test() # build preset, test preset [, words before ctest…]
{
    local preset=$1 tests=$2
    shift 2
    build "$preset" 2>&1 | tee "$built" && "$@" ctest --preset "$tests"
}

# Thread sanitizers up to clang 14 cannot run under strong address randomisation; setarch turns it off where allowed.
tsan()
{
    local probe=build-tsan/probe
    mkdir -p build-tsan
    echo 'int main(void) { return 0; }' > $probe.c
    clang -fsanitize=thread -o $probe $probe.c || return 1
    if ./$probe 2> /dev/null; then
        build_and_test tsan "tsan${full:+-full}"
    elif setarch -R ./$probe 2> /dev/null; then
        build_and_test tsan "tsan${full:+-full}" setarch -R
    else
        skipped+=("tsan: its programs do not start here (address randomisation, and setarch -R is not allowed)")
        build tsan
    fi
}

format()
{
    if ! command -v clang-format-14 > /dev/null; then
        skipped+=("clang-format: clang-format-14 is not installed, and other versions format differently")
        return
    fi
    local rc=0
    scripts/sources.sh | xargs -P "$(nproc)" -n 16 clang-format-14 --dry-run -Werror > "$log" 2>&1 || rc=1
    head -n 60 "$log"
    return $rc
}

scripts()
{
    shellcheck --external-sources --severity=warning scripts/*.sh scripts/gpu/*.sh tests/cli/*.sh .ci/run
}

step "release: build and tests" build_and_test release "${full:-release}"
step "release: no warnings of the compiler" without_warnings
step "clang, address and undefined-behaviour sanitizers" build_and_test asan "asan${full:+-full}"
step "clang, thread sanitizer" tsan
step "clang-format" format
step "shellcheck" scripts

printf '\n'
for line in "${skipped[@]}"; do
    echo "skipped $line"
done
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "All steps passed in $SECONDS s."
