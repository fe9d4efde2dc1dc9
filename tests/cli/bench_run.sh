#!/bin/bash
# ctest: timeout=300
# Small runs of tutti bench as threads and as processes: the table, the lines of JSON, no wrong result.
. "$(dirname "$0")/run.bash"

quick=(-n 4 --rounds 2 -w 1 -m 2)

# number NAME LINE: the field's value
number() { sed -E "s/.*\"$1\":([-+.0-9eE]+)[,}].*/\1/" <<<"$2"; }

# Every line one object with the same fields, and times that can be.
check_json() { # WHAT FILE LINES
    check "$1: lines of JSON" "$3" "$(wc -l <"$2")"
    local text='"[a-z0-9_+]+"' real='-?[0-9.]+(e[-+]?[0-9]+)?' line
    local fields="\"op\":$text,\"ranks\":[0-9]+,\"as\":$text,\"transport\":$text,\"buffers\":$text"
    fields+=",\"device\":null,\"provider\":null,\"bytes\":[0-9]+"
    fields+=",\"count\":[0-9]+,\"dtype\":$text,\"redop\":($text|null),\"root\":([0-9]+|null),\"in_place\":(true|false)"
    fields+=",\"samples\":[0-9]+,\"batch\":[0-9]+,\"min_us\":$real,\"p50_us\":$real,\"p99_us\":$real,\"algbw\":$real"
    fields+=",\"busbw\":$real,\"floor_us\":($real|null),\"floor_min_us\":($real|null),\"wrong\":([0-9]+|null)"
    check "$1: lines that are no such object" 0 "$(grep -Ecv "^\{$fields\}\$" "$2")"
    check "$1: lines with wrong results" 0 "$(grep -cv '"wrong":0}' "$2")"
    check "$1: min <= p50 <= p99, and a floor" 0 "$(while read -r line; do
        awk -v a="$(number min_us "$line")" -v b="$(number p50_us "$line")" -v c="$(number p99_us "$line")" \
            -v f="$(number floor_us "$line")" 'BEGIN { if (!(0 < a && a <= b && b <= c && 0 < f)) print "odd" }'
    done <"$2" | wc -l)"
}

for as in threads processes; do
    tool bench all_reduce -b 8 -e 4K -f 8 --ranks 2 --as $as "${quick[@]}" --json out.json
    check "$as: status" 0 "$STATUS"
    check "$as: stderr" "" "$ERR"
    matches "$as: header" "^# tutti bench .*2 ranks as $as" "$OUT"
    matches "$as: a row" "^ +512 +128 +f32 +sum +-1 " "$OUT"
    matches "$as: verdict" "^# wrong elements: 0" "$OUT"
    check_json "$as" out.json 8

    tool bench all -b 300 -e 300 --ranks 3 --as $as "${quick[@]}" --json - -r 1
    check "$as, standard set: status" 0 "$STATUS"
    matches "$as, standard set: the table is on stderr" "^# ping_pong" "$ERR"
    check_json "$as, standard set" out.txt 22

    for op in all_gather_v gather_v scatter_v reduce_scatter_v all_to_all_v; do
        tool bench -b 1000 -e 1000 $op --ranks 3 --as $as "${quick[@]}" -d bf16 --buffers private --warmup_iters 2
        check "$as, $op: status" 0 "$STATUS"
        matches "$as, $op: rounded to whole blocks" "^ +996 +166 +bf16 " "$OUT"
    done
done

# The table has the figures of the JSON, and these follow from each other: of three ranks a bus moves two thirds.
tool bench all_gather -b 3000 -e 3000 --ranks 3 "${quick[@]}" --json out.json
{
    while read -r line; do
        for field in p50_us min_us p99_us algbw busbw floor_us wrong; do number $field "$line"; done | paste -sd ' '
    done <out.json
    grep -E '^ +3000 ' <<<"$OUT"
    grep '^# average busbw' <<<"$OUT"
} | awk 'function near(what, a, b, slack) { d = a - b; if ((d < 0 ? -d : d) > b / 100 + slack) print what, a, b }
    NR < 3 { for (i = 1; i < 8; i++) json[NR, i] = $i; bus += $5 / 2 }
    NR < 3 { near("algbw", $4, 3 / $1, 1e-5); near("busbw", $5, $4 * 2 / 3, 1e-5) }
    NR == 3 { for (k = 1; k < 3; k++) {
        at = 8 * k - 3
        for (i = 1; i < 7; i++) near("column " i, $(at + i), json[k, i], 6e-4)
        near("%fl", $(at + 7), 100 * json[k, 6] / json[k, 1], 0.6); near("#wr", $(at + 8), json[k, 7], 0) } }
    NR == 4 { near("average", $4, bus, 6e-4); print "compared" }' >odd.txt
check 'the table has the figures of the JSON' compared "$(cat odd.txt)"

tool bench reduce -b 64 -e 64 --ranks 2 -d all -o all "${quick[@]}" --floor 0 --json - 
check "all types and reductions: status" 0 "$STATUS"
check "all types and reductions: wrong" 0 "$(grep -cv '"wrong":0}' out.txt)"
check "all types and reductions: pairs" 115 "$(grep -c '"in_place":true' out.txt)"

for op in all_reduce exscan reduce_scatter_v; do
    tool bench $op -b 60K -e 60K --ranks 3 --as processes -o mulsum -d f16 "${quick[@]}" --floor 0 --json out.json
    check "pre-multiplied $op: status" 0 "$STATUS"
    matches "pre-multiplied $op: its name" "^ +61440 +[0-9]+ +f16 +mulsum " "$OUT"
    check "pre-multiplied $op: JSON" 2 "$(grep -c '"redop":"mulsum".*"wrong":0}' out.json)"
done
tool bench all_reduce -b 64 -e 64 --ranks 2 -o mulsum -d bool "${quick[@]}"
check "pre-multiplied truth values: status" 2 "$STATUS"

tool bench all_reduce -b 64 -e 64 --ranks 2 "${quick[@]}" -c 0 --json out.json
check "unchecked: status" 0 "$STATUS"
matches "unchecked: verdict" "^# results were not checked" "$OUT"
check "unchecked: JSON" 2 "$(grep -c '"wrong":null}' out.json)"

# calls of 64 bytes, out of place and in place, as the trace of two ranks counts them
traced() { # CHECKS
    TUTTI_TRACE=out.trace tool bench all_reduce -b 64 -e 64 --ranks 2 -n 1 --rounds 1 -w 0 -m 1 --floor 0 -c "$1"
    check "checked $1 times: status" 0 "$STATUS"
    CALLS=$(grep -c '"count":16,"type":"f32"' out.trace)
}
traced 1
once=$CALLS
traced 20
check "checked 20 times: calls more" $((2 * 2 * 19)) $((CALLS - once))
matches "checked 20 times: verdict" "^# wrong elements: 0" "$OUT"
for bad in -1 yes 1.5; do
    tool bench all_reduce -c $bad
    check "-c $bad: status" 2 "$STATUS"
done

tool bench broadcast -b 8 -e 8 --ranks 2 "${quick[@]}" --json /nonexistent/file
check "JSON that cannot be written: status" 2 "$STATUS"
matches "JSON that cannot be written: reason" "cannot write /nonexistent/file" "$ERR"

tool run -n 2 --no-prefix "$TUTTI" bench barrier "${quick[@]}"
check "ranks of a job: status" 0 "$STATUS"
matches "ranks of a job: what they are" "2 ranks as processes" "$OUT"

# used SAYS FLAG...: what the header and the JSON call the transport, whatever asked for it
used() {
    local says=$1
    shift
    tool bench barrier --floor 0 "${quick[@]}" --json out.json "$@"
    check "transport of $*: status" 0 "$STATUS"
    matches "transport of $*: header" ", transport ${says/+/\\+}, " "$OUT"
    check "transport of $*: JSON" 1 "$(grep -Fc "\"transport\":\"$says\"" out.json)"
}
used thread --ranks 2
used shm --ranks 2 --as processes
used tcp --ranks 2 --transport tcp
TUTTI_TRANSPORT=tcp used tcp --ranks 2
TUTTI_TRANSPORT=tcp used thread --ranks 2 --transport thread
TUTTI_HOST_PROCESSES=1 used tcp --ranks 2 --as processes
TUTTI_HOST_PROCESSES=2 used shm+tcp --ranks 4 --as processes
TUTTI_HOST_PROCESSES=2 TUTTI_HOST_AWARE=0 used tcp --ranks 4 --as processes

# rank 0's switch-over sizes hold for all: ranks that planned by their own would not understand each other
printf 'message_doubling 0\nmessage_bruck 0\nmessage_chunk 64\n' >odd.txt
# shellcheck disable=SC2016
tool run -n 3 --transport tcp sh -c '[ "$RANK" = 0 ] || export TUTTI_TUNING=odd.txt; exec "$0" "$@"' \
    "$TUTTI" bench all_reduce -b 4K -e 64K -f 16 --floor 0 "${quick[@]}"
check 'tuning of other ranks: status' 0 "$STATUS"
matches 'tuning of other ranks: verdict' '# wrong elements: 0' "$OUT"

finish
