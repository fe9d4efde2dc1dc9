#!/usr/bin/env bash
# docs/errors.md and docs/options.md are what the tool prints from its lists.
set -euo pipefail
: "${TUTTI:?}" "${SRC:?}"
failed=0
for name in errors options; do
    if diff -u "$SRC/docs/$name.md" <("$TUTTI" help "--$name"); then
        continue
    fi
    echo "docs/$name.md is out of date: build/tutti help --$name > docs/$name.md"
    failed=1
done
exit $failed
