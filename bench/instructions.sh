#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How many instructions a rank carries out in one all_reduce of 8 B, in this tree and in others: for programs that ask for
# nothing else. Needs valgrind.
#     bench/instructions.sh [COMMIT...]
# Two ranks in shared memory, threads of one process, since valgrind runs one thread at a time and knows no pidfd. Counted is the
# rank that comes last, so that it finds all it needs: "at once", while the other one still polls (the fewest of ROUNDS calls), and
# "wakes", when it sleeps and is woken (what most calls take).
set -euo pipefail
cd "$(dirname "$0")/.."
ROUNDS=${ROUNDS:-200}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/one.c" <<'C'
#include <tutti/tutti.h>
#include <stdlib.h>
#include <unistd.h>
static __attribute__((noinline)) tutti_status measured(tutti_comm *world, double *x)
{
    return tutti_all_reduce(world, x, x, 1, TUTTI_F64, TUTTI_SUM);
}
static int work(tutti_comm *world, int argc, char **argv)
{
    int rounds = atoi(argv[argc - 1]), last = tutti_rank(world) == 1;
    double *x = tutti_alloc(world, sizeof *x);
    *x = 1;
    for (int i = -32; i < rounds; i++) { /* first as the pages come, and the cores are counted */
        if (last && i >= 0) usleep(5000);
        tutti_status status = last && i >= 0 ? measured(world, x)
                                             : tutti_all_reduce(world, x, x, 1, TUTTI_F64, TUTTI_SUM);
        if (status != TUTTI_OK) return tutti_explain(world, stderr);
    }
    return 0;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C

# count TREE: prints both numbers
count() {
    cmake -S "$1" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=gcc >/dev/null
    cmake --build "$folder/build" --target tutti_static -- ${NINJAFLAGS:-} >/dev/null
    gcc -O2 -I "$1/include" "$folder/one.c" -o "$folder/one" "$folder/build/libtutti.a" -lsodium -ljansson -lm -ldl -lpthread
    TUTTI_RANKS=2 valgrind --tool=callgrind --separate-threads=yes --callgrind-out-file="$folder/out" \
        --toggle-collect=measured --dump-after=measured "$folder/one" "$ROUNDS" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
    sed -n 's/^totals: \([1-9]\)/\1/p' "$folder"/out* | sort -n >"$folder/counts"
    rm -rf "$folder"/out* "$folder/build"
    echo "$(head -1 "$folder/counts") $(uniq -c "$folder/counts" | sort -rn | awk 'NR == 1 { print $2 }')"
}

printf '%-50s %8s %8s\n' tree 'at once' wakes
for commit in "$@"; do
    mkdir "$folder/tree"
    git archive "$commit" | tar -x -C "$folder/tree"
    printf '%-50.50s %8d %8d\n' "$(git log -1 --format='%h %s' "$commit")" $(count "$folder/tree")
    rm -rf "$folder/tree"
done
printf '%-50s %8d %8d\n' "this tree" $(count "$PWD")
