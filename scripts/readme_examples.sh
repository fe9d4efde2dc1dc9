#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/readme_examples.sh FILE.md DIR: writes each C block of FILE.md that has a main to DIR/example_1.c, …
set -eu
mkdir -p "$2"
awk -v dir="$2" '
    /^```c$/ { inside = 1; text = ""; next }
    /^```$/ && inside {
        inside = 0
        if (text ~ /main\(/) { file = dir "/example_" ++count ".c"; printf "%s", text > file; close(file) }
        next
    }
    inside { text = text $0 "\n" }
    END { if (!count) { print FILENAME ": no C block with a main" > "/dev/stderr"; exit 1 } }
' "$1"
