#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 labels=asan
# tutti key makes a key that only its owner can read, and never replaces one.
source "$(dirname "$0")/run.bash"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

tool key "$dir/one"
check 'status' 0 $STATUS
check 'output' '' "$OUT$ERR"
check 'who can read it' 600 "$(stat -c %a "$dir/one")"
matches 'what is in it' '^[0-9a-f]{64}$' "$(cat "$dir/one")"
tool key "$dir/two"
check 'keys differ' 1 "$(cmp -s "$dir/one" "$dir/two" && echo 0 || echo 1)"
before=$(cat "$dir/one")
tool key "$dir/one"
check 'status for a file that is there' 2 $STATUS
matches 'message for a file that is there' '^tutti key: .*/one cannot be made, since a key is never replaced; give another name \(File exists\)$' "$ERR"
check 'the file that was there' "$before" "$(cat "$dir/one")"
tool key "$dir/missing/one"
check 'status for a missing folder' 2 $STATUS
for arguments in '' 'a b'; do
    # shellcheck disable=SC2086 # words
    tool key $arguments
    check "status of: key $arguments" 2 $STATUS
    matches "message of: key $arguments" '^tutti key: one file is made at a time; usage: tutti key FILE$' "$ERR"
done
finish
