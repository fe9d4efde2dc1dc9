#!/bin/bash
# ctest: timeout=60
# Includes point one way only: a file may include files of its own layer and of the layers below it. The tool includes
# nothing but public headers, its own files and bench/floor.h. The folders of src/collective are ordered in the same way. A
# name of a type stands for one thing in all layers.
set -eu
declare -A height=([base]=0 [transport]=1 [device]=2 [world]=3 [collective]=4 [actor]=5 [layout]=6 [nn]=7 [train]=8 [cli]=9)
declare -A inside=([reduce]=0 [gpu]=1 [plan]=2 [comm]=3 [peers]=4 [message]=5 [engine]=6 [op]=7 [stream]=8 [api]=9) # of collective

resolve() # tree, file, what it includes → found: the included file's path below the tree
{
    local candidate
    found=
    for candidate in "${2%/*}/$3" "$1/src/$3" "$1/$3" "$1/include/$3"; do
        [ -e "$candidate" ] || continue
        found=${candidate#"$1"/}
        [[ $3 != *..* ]] || found=$(realpath --relative-to="$1" "$candidate")
        return
    done
}

judge_inside() # path below src/collective, and that of the included file → wrong: what is, or nothing
{
    local folder=${1%%/*} other=${2%%/*}
    if [ -z "${inside[$folder]-}" ]; then
        wrong="but is in no folder of collective"
    elif [ -z "${inside[$other]-}" ]; then
        wrong="which is in no folder of collective"
    elif [ "${inside[$other]}" -gt "${inside[$folder]}" ]; then
        wrong="which is above it"
    fi
}

judge() # layer, included path → wrong: what is, or nothing
{
    local other
    wrong=
    case $2 in
    '') wrong="which does not exist" ;;
    include/tutti/*) ;;
    bench/floor.h) [ "$1" = cli ] || wrong="which only the tool may" ;;
    src/*/*)
        other=${2#src/}
        other=${other%%/*}
        if [ -z "${height[$other]-}" ]; then
            wrong="which is in no layer"
        elif [ "$1" = cli ] && [ "$other" != cli ]; then
            wrong="but the tool may use public headers only"
        elif [ "${height[$other]}" -gt "${height[$1]}" ]; then
            wrong="which is above it"
        fi
        ;;
    *) wrong="which is outside include/ and src/" ;;
    esac
}

check() # tree → prints every wrong include
{
    local file layer included found wrong
    while IFS=: read -r file included; do
        layer=${file#"$1"/src/}
        layer=${layer%%/*}
        if [ -z "${height[$layer]-}" ]; then
            echo "$file is in no layer"
            continue
        fi
        resolve "$1" "$file" "$included"
        judge "$layer" "$found"
        [ -n "$wrong" ] || [[ $layer != collective || $found != src/collective/* ]] ||
            judge_inside "${file#"$1"/src/collective/}" "${found#src/collective/}"
        [ -z "$wrong" ] || echo "$file includes $included, $wrong"
    done < <(grep -rHoE --include='*.[ch]' '^ *# *include *("[^"]+"|<tutti/[^>]+>)' "$1/src" |
        sed -E 's/: *# *include */:/; s/["<>]//g')
}

# The check itself: it must see each kind of wrong include, and accept each kind of right one.
tree=$(realpath "$(mktemp -d)")
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/src/{base,world,collective/{plan,op,odd},cli,odd} "$tree"/include/tutti "$tree"/bench
touch "$tree"/src/{base/wait.h,world/world.h,collective/{plan/plan.h,op/queue.h,odd/y.h},cli/cli.h,odd/x.h} "$tree"/include/tutti/tutti.h \
    "$tree"/bench/floor.h
printf '#include <stdio.h>\n#include <tutti/tutti.h>\n#include "base/wait.h"\n#include "plan.h"\n' > "$tree/src/collective/plan/good.c"
printf '#include "collective/plan/plan.h"\n#include "queue.h"\n' > "$tree/src/collective/op/good.c"
printf '#include <tutti/tutti.h>\n#include "cli.h"\n#include "bench/floor.h"\n' > "$tree/src/cli/good.c"
[ -z "$(check "$tree")" ] || { echo "right includes are refused:"; check "$tree"; exit 1; }
printf '#include "collective/plan/plan.h"\n#include "../world/world.h"\n' > "$tree/src/base/bad.c"
printf '#include "collective/op/queue.h"\n#include "collective/odd/y.h"\n' > "$tree/src/collective/plan/bad.c"
printf '#include "collective/plan/plan.h"\n' > "$tree/src/collective/odd/bad.c"
printf '#include "base/wait.h"\n#  include "../world/world.h"\n' > "$tree/src/cli/bad.c"
printf '#include "bench/floor.h"\n#include "missing.h"\n#include "odd/x.h"\n' > "$tree/src/world/bad.c"
[ "$(check "$tree" | wc -l)" = 10 ] || { echo "10 wrong includes were made, these were seen:"; check "$tree"; exit 1; }

wrong=$(check "$SRC")
[ -z "$wrong" ] || { echo "$wrong"; exit 1; }

twice=$(grep -rhoE --include='*.h' '^(struct|enum|union) tti_[a-z0-9_]+ [{]' "$SRC/src" | sort | uniq -d)
[ -z "$twice" ] || { echo "defined in two headers: $twice"; exit 1; }

same=$(find "$SRC/src" "$SRC/include" "$SRC/tests" -name '*.[ch]' -printf '%f\n' | sort | uniq -d)
[ -z "$same" ] || { echo "two files have one name: $same"; exit 1; }
