#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures this tree beside another commit of it, and that commit beside itself; README.md says how to read what it prints.
set -eu

usage()
{
    cat << 'END'
Usage: bench/peers/before.sh COMMIT [OPTION]… [-- DRIVER OPTION…]
Builds this tree and COMMIT, and prints per cell: old time / new time, and how far the old tree is from itself.

  --quick        8 B, 64 KiB and 1 MiB only: about 3 minutes; otherwise 1 KiB, 16 MiB and 64 MiB too: about 15
  --twice        measures a second time what was below 0.93, and says what is below both times
  --json FILE    appends one object per cell
  -- …           goes to every run of the driver, such as --rounds 9 --cells all_reduce,window:8
END
}

die()
{
    echo "before.sh: $*" >&2
    exit 1
}

commit='' json='' quick='' twice=''
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=yes ;;
    --twice) twice=yes ;;
    --json)
        [ $# -gt 1 ] || die "--json needs the name of a file"
        json=$(realpath -- "$2")
        shift
        ;;
    --help)
        usage
        exit
        ;;
    --)
        shift
        break
        ;;
    -*) die "unknown option $1 (try --help)" ;;
    *)
        [ -z "$commit" ] || die "two commits, $commit and $1: the new tree is always this one"
        commit=$1
        ;;
    esac
    shift
done
[ -n "$commit" ] || die "which commit is the old one? For instance: bench/peers/before.sh main --quick"
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
old=$(git -C "$root" rev-parse --verify --quiet "$commit^{commit}") || die "$commit is no commit of $root"
new=$(git -C "$root" describe --always --dirty --abbrev=12)

build=$root/build
(cd "$root" && cmake --preset release > /dev/null && cmake --build --preset release --target tutti_static -- --quiet) >&2
make -s -C "$here" tutti BUILD="$build/peers" LIBTUTTI="$build/libtutti.a" BEFORE="$old"
mkdir -p "$build/bench"
log=$build/bench/before.log # the driver's own tables
: > "$log"

sizes=8,1K,64K,1M,16M,64M
[ -z "$quick" ] || sizes=8,64K,1M
everything=all_reduce,all_gather,reduce_scatter,broadcast,all_to_all,ping_pong,barrier,window:8

figures=$build/bench/before.json

measure() # ranks, transport, buffers, DRIVER OPTION…
{
    local start=$SECONDS
    "$build/peers/driver" --ranks "$1" --transport "$2" --buffers "$3" --sizes "$sizes" --jobs fresh \
        --rounds 5 --only tutti,tutti-before,tutti-before-again --add tutti-before-again:tutti-before: \
        --json "$figures" "${@:4}" >> "$log"
    echo "$1 ranks, transport $2, $3 buffers: $((SECONDS - start)) s. $(tail -n 1 "$log")" >&2
}

compare() # file for the cells that are below
{
    awk -v old="${old:0:12}" -v new="$new" -v below="$1" -v json="$json" -f "$here/before.awk" "$figures"
}

first=$build/bench/before.below second=$build/bench/before.below.again
rm -f "$figures" # the driver appends
for ranks in 2 4; do
    for transport in any tcp; do
        for buffers in shared private; do
            measure $ranks $transport $buffers --cells $everything "$@"
        done
    done
done
compare "$first"
[ -n "$twice" ] && [ -s "$first" ] || exit 0

printf '\nThe second time:\n'
rm -f "$figures"
while read -r ranks transport buffers cells; do
    measure "$ranks" "$transport" "$buffers" "$@" --cells "${cells// /,}" < /dev/null
done < <(awk '{ at = $1 " " $2 " " $3; cells[at] = cells[at] " " $4 }
    END { for (at in cells) print at cells[at] }' "$first" | sort)
compare "$second"
awk '{ at = $1 " " $2 " " $3 " " $4 }
    NR == FNR { explained[at] = $5; next }
    at in explained {
        count++
        wide = ($5 == "yes") + (explained[at] == "yes")
        text = text "    " at (wide == 0 ? "" : " (the old tree was as far from itself, " (wide == 1 ? "once)" : "both times)")) "\n"
    }
    END { printf "\nBelow 0.93 both times: %d cells\n%s", count, text }' "$first" "$second"
