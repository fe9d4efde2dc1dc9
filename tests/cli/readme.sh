#!/bin/bash
# ctest: timeout=120
# The programs in README.md compile without a warning and run, alone and with 4 ranks.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

sanitizers=()
case $SANITIZE in
asan) sanitizers=(-fsanitize=address -fsanitize=undefined) ;;
tsan) sanitizers=(-fsanitize=thread) ;;
esac

"$SRC/scripts/readme_examples.sh" "$SRC/README.md" "$dir"
for source in "$dir"/example_*.c; do
    program=${source%.c}
    "$CC" -std=c17 -Wall -Wextra -Werror "${sanitizers[@]}" -I "$SRC/include" -o "$program" \
        "$source" "$BUILD/libtutti.a" -pthread -lsodium -ljansson -lm
    for ranks in 1 4; do
        echo "$(basename "$program") with TUTTI_RANKS=$ranks:"
        TUTTI_RANKS=$ranks "$program" > "$dir/output"
        sort "$dir/output"
        if [ "$(wc -l < "$dir/output")" -lt $ranks ]; then
            echo "expected a line from each of $ranks ranks"
            exit 1
        fi
    done
done
