#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# must_fail.bash PROGRAM: runs a test with a mistake planted in the library, and fails unless a check of it does.
"$1" >out.$$ 2>&1
status=$?
found=$(grep -m 1 -E '^[a-z_0-9]+\.c:[0-9]+: ' out.$$ | cut -c1-300)
tail -n 1 out.$$
rm -f out.$$
echo "status $status: ${found:-no check has failed}"
[ -n "$found" ]
