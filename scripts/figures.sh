#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/figures.sh [TREE|COMMIT]…: prints how large the core of a tree is, for this one or for others: the lines of the
# files that hold the mechanisms of the core, the widest structs, the sizes of its tables, and the lengths of functions.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)

# The mechanisms of the core: the files that hold them now, and all that ever did, by name alone, wherever below
# src/collective they lie. What is not there counts nothing, and a file counts for the first mechanism that names it. The
# list is kept by hand: whoever renames, splits or merges one of these files adds the new names here, or lines vanish that
# are still written. Not in it, since no form of it was there before: agreement (posts_agree.c, wire_agree.c), callbacks, groups,
# tolerant comms, and streams.
mechanisms='
walking plans:              executor.c host_run.c run.h run.c provider_shared.c provider_net.c parts.c plan_cache.c
entering and publishing:    steps_post.c comm.h local.h local.c posts.h posts.c posts_here.c posts_area.c
steps that move data:       move.c host_data.c steps_memory.c steps_link.c
links over a transport:     lane.c message_frames.c message.c message_large.c message_at_once.c net.h link.h link.c link_send.c link_receive.c
calls that differ:          differ.c mismatch.c
fencing and leaving:        shared.c host.c message_fence.c wire.c
waits and deadlocks:        watch.c lane_waits.c waits.h waits.c deadlock.h deadlock.c liveness.c
taking ops forward:         op.c queue.c queue_wait.c queue_close.c queue_hand.c thread_local_op.c queue_message.c pending.c
'

# Lines of each mechanism and of all.
print_mechanisms() # tree
{
    local subject files name path lines found all=0 counted=' '
    while IFS=: read -r subject files; do
        [ -n "$subject" ] || continue
        lines=0 found=
        for name in $files; do
            path=$(find "$1/src/collective" -name "$name" -print -quit)
            if [ -n "$path" ] && [[ $counted != *" $name "* ]]; then
                lines=$((lines + $(wc -l < "$path")))
                counted+="$name "
                found+=" $name"
            fi
        done
        all=$((all + lines))
        printf '    %-26s %6d %s\n' "$subject" $lines "$found"
    done <<< "$mechanisms"
    printf '    %-26s %6d  of %d in src/collective\n' together $all \
        "$(find "$1/src/collective" -name '*.[ch]' -exec cat {} + | wc -l)"
}

# Prints "FIELDS NAME FILE" for every struct and union: declarators, so that `int a, b;` are two; an embedded struct is one,
# the members of one without a name are its parent's.
struct_fields() # folder…
{
    find "$@" -name '*.[ch]' -print0 | sort -z | xargs -0 awk '
    FNR == 1 { level = in_comment = continues = 0; before = last = "" }
    continues || /^[ \t]*#/ { continues = /\\$/; next }
    {
        gsub(/"([^"\\]|\\.)*"|'"'"'([^'"'"'\\]|\\.)'"'"'/, " text ")
        line = ""
        while ($0 != "") {
            if (in_comment) {
                if (!(end = index($0, "*/"))) break
                $0 = substr($0, end + 2)
                in_comment = 0
            } else if (at = index($0, "/*")) {
                line = line substr($0, 1, at - 1) " "
                $0 = substr($0, at + 2)
                in_comment = 1
            } else {
                line = line $0
                $0 = ""
            }
        }
        sub(/\/\/.*/, "", line)
        gsub(/[][{}();,=*]/, " & ", line)
        count = split(line, tokens, " ")
        for (i = 1; i <= count; i++) take(tokens[i])
    }
    function take(token)
    {
        if (token == "{") begin_body()
        else if (token == "}") end_body()
        else if (level > 0 && is_struct[level]) take_member(token)
        before = last
        last = token
    }
    function begin_body()
    {
        level++
        is_struct[level] = before == "struct" || before == "union" || last == "struct" || last == "union"
        names[level] = before == "struct" || before == "union" ? last : "(unnamed)"
        fields[level] = 0
        begin_member()
    }
    function begin_member()
    {
        words[level] = commas[level] = parentheses[level] = unnamed[level] = 0
        is_member[level] = 1
    }
    function end_body()
    {
        if (is_struct[level]) print fields[level], names[level], FILENAME
        level--
        if (level > 0 && is_struct[level]) {
            words[level] = 0
            unnamed[level] = is_struct[level + 1] ? fields[level + 1] : 0
        }
    }
    function take_member(token)
    {
        if (token == ";" && parentheses[level] == 0) {
            if (words[level] > 0 && is_member[level]) fields[level] += 1 + commas[level]
            else fields[level] += unnamed[level]
            begin_member()
            return
        }
        if (token == "_Static_assert" && words[level] == 0) is_member[level] = 0
        words[level]++
        if (token == "(" || token == "[") parentheses[level]++
        else if (token == ")" || token == "]") parentheses[level]--
        else if (token == "," && parentheses[level] == 0) commas[level]++
    }'
}

# Prints "LINES NAME FILE" for every function, from the first line of its head to its last brace, as the formatter sets it.
function_lines() # folder
{
    find "$1" -name '*.[ch]' -o -name '*.inc' | sort | xargs awk '
    FNR == 1 { head = ""; inside = 0 }
    !inside && /^\{/ && head != "" { inside = 1; next }
    inside && /^\}/ {
        gsub(/__attribute__ *\(\([^)]*\)\)/, "", head)
        match(head, /[A-Za-z_0-9]+\(/)
        print FNR - first + 1, substr(head, RSTART, RLENGTH - 1), FILENAME
        inside = 0
        head = ""
        next
    }
    inside { next }
    /^[A-Za-z_]/ && head == "" { first = FNR }
    /^[A-Za-z_]/ || (head != "" && /^[ \t]/) { head = head $0; if (/;$/) head = ""; next }
    { head = "" }'
}

print_structs() # tree
{
    struct_fields "$1/src/collective" | sed "s|$1/src/||" | sort -rn -k1,1 | awk '
        NR <= 8 { widest = widest sprintf("    %3d  %-24s %s\n", $1, $2, $3) }
        $1 > 25 { wide++ }
        $1 > 30 { wider++ }
        $2 == "tutti_comm" { comm = $1 }
        $2 == "tti_provider_ops" || $2 == "tti_peers_ops" { entries = entries sprintf(", %s %d", substr($2, 5), $1) }
        END {
            printf "fields of tutti_comm: %d\n", comm
            printf "structs of src/collective with more than 25 fields: %d; with more than 30: %d; the widest:\n%s", wide,
                wider, widest
            printf "entries of tables, their names included: %s\n", substr(entries, 3)
        }'
}

print_functions() # tree
{
    function_lines "$1/src" | sed "s|$1/||" | sort -n -k1,1 | awk '
        { lines[NR] = $1; longest = $1 " (" $2 ", " $3 ")"; long += $1 > 70 }
        END {
            printf "functions of src: %d; lines: median %d, 90th percentile %d, longest %s; longer than 70: %d\n", NR,
                lines[int((NR + 1) / 2)], lines[int(NR * 0.9 + 0.999)], longest, long
        }'
}

print_tree() # folder, name
{
    [ -d "$1/src/collective" ] || { echo "figures.sh: $2 has no src/collective" >&2; exit 1; }
    echo "$2"
    echo "lines of the mechanisms of the core:"
    print_mechanisms "$1"
    print_structs "$1"
    print_functions "$1"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ $# -gt 0 ] || set -- "$root"
for tree in "$@"; do
    if [ -d "$tree" ]; then
        print_tree "$(cd "$tree" && pwd)" "$tree"
    elif git -C "$root" rev-parse --verify --quiet "$tree^{commit}" > /dev/null; then
        rm -rf "$scratch/tree"
        mkdir "$scratch/tree"
        git -C "$root" archive "$tree" src | tar -x -C "$scratch/tree"
        print_tree "$scratch/tree" "$tree"
    else
        echo "figures.sh: $tree is neither a folder nor a commit" >&2
        exit 1
    fi
done
