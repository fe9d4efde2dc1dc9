#!/bin/bash
# ctest: timeout=120 labels=asan
# tutti sim: what it predicts, that the seed decides it, its other outputs, and what it refuses.
. "$(dirname "$0")/run.bash"

tool sim all_reduce --ranks-per-host 4 --bytes 64K --local 10G:1us --overhead 0ns
check "one host: status" 0 "$STATUS"
matches "one host: what it is" '^all_reduce of 64 KiB, 4 ranks on 1 host, memory 10 GB/s and 1.00 us' "$OUT"
# 16 KiB from 4 inputs to 4 outputs at 10 GB/s is 11.5 us; meeting and leaving take 1 us each
matches "one host: direct is chosen, and takes as long as its bytes" '^ \* direct +13\.5 us +4\.8' "$OUT"
matches "one host: chunks" '^   chunks +[0-9.]+ us' "$OUT"
check "one host: one is chosen" 1 "$(grep -c '^ \* [a-z]*.*GB/s\|^ \* direct' <<<"$OUT")"

tool sim barrier --ranks-per-host 128 --local 10G:1us --overhead 0ns
matches "barrier: seven rounds" '^ \* dissemination +7.00 us' "$OUT"

tool sim barrier --hosts 2
matches "barrier between hosts: no size" '^barrier, 16 ranks on 2 hosts' "$OUT"
matches "barrier between hosts: no rate" '^ \* hosts, rounds +[0-9.]+ us +-  each host' "$OUT"
matches "barrier between hosts: by messages" '^   dissemination +[0-9.]+ us +-  messages in a log' "$OUT"
tool sim --json - barrier --hosts 2
check "barrier between hosts: JSON" 0 "$(grep -vc '"op": "barrier", "bytes": 0, ' <<<"$OUT")"
table=$ERR
first=$(sed 's/"real_s.*//' <<<"$OUT")
for words in 'barrier --hosts 2 --json' 'barrier --json --hosts 2' '--json --hosts 2 barrier' 'barrier --hosts 2 --json=-' \
    '--hosts 2 --json -- barrier'; do
    # shellcheck disable=SC2086 # words
    tool sim $words
    check "$words: the same on stdout" "$first" "$(sed 's/"real_s.*//' <<<"$OUT")"
    check "$words: and on stderr" "$table" "$ERR"
done
tool sim barrier --hosts 2 --json lines
check "json in a file" "$first" "$(sed 's/"real_s.*//' lines)"
check "json in a file: the table stays on stdout" "$table" "$OUT"
refused '^tutti sim: --json barrier: that is an operation, .*\(tutti sim barrier --json\), or ./barrier for a file' \
    sim --json barrier --hosts 2
refused '^tutti sim: --json: the value is empty' sim barrier --json=
check "none of these are files" 'lines' "$(ls -- *barrier* lines - 2>/dev/null)"
for op in gather_v scatter_v all_to_all_v; do
    tool sim "$op" --hosts 2 --bytes 64K
    matches "$op between hosts" '^ \* straight +[0-9.]+ us +[0-9.]+  one message from each' "$OUT"
done
# one way: 1 KiB at 12.5 GB/s is 0.08 us, and the heads of frames
tool sim ping_pong --hosts 2 --ranks-per-host 1 --bytes 1K --link 100G:5us --local 10G:1us --overhead 0ns
matches "ping_pong: half of there and back" '^ \* message +5\.[01][0-9] us +[0-9.]+  between two ranks' "$OUT"
check "ping_pong: nothing else" 4 "$(wc -l <<<"$OUT")"

tool sim --json - --seed 5 broadcast --bytes 1M --noise 300ns
first=$(sed 's/"real_s.*//' <<<"$OUT")
check "json: every line is chosen or not" "$(wc -l <<<"$OUT")" "$(grep -c '"chosen": \(true\|false\)' <<<"$OUT")"
matches "json: the table goes to stderr" "what the library chooses" "$ERR"
tool sim --json - --seed 5 broadcast --bytes 1M --noise 300ns
check "the same seed gives the same" "$first" "$(sed 's/"real_s.*//' <<<"$OUT")"
tool sim --json - --seed 6 broadcast --bytes 1M --noise 300ns
[ "$first" != "$(sed 's/"real_s.*//; s/"seed": 6/"seed": 5/' <<<"$OUT")" ]
check "another seed gives something else" 0 $?

# two hosts: one message of 1 KiB each way at once, 12.5 GB/s and 5 us; then the sum
tool sim all_reduce --hosts 2 --ranks-per-host 1 --bytes 1K --link 100G:5us --local 10GB:1us --overhead 0ns
check "two hosts: status" 0 "$STATUS"
matches "two hosts: what it is" '2 ranks on 2 hosts, links 100 Gbit/s and 5.00 us' "$OUT"
matches "two hosts: one round" '^ \* rounds +5\.[2-5][0-9] us' "$OUT"
tool sim all_reduce --hosts 4 --ranks-per-host 2 --bytes 8M --link 12.5GB:5us --overhead 0ns
matches "four hosts: slices between them are chosen" '^ \* hosts, slices' "$OUT"
matches "four hosts: by messages alone too" '^   slices' "$OUT"

# what is simulated is whole elements, and is said so
tool sim all_gather --hosts 2 --ranks-per-host 3 --bytes 10 -d f64
matches "bytes: one element of each rank at least" '^all_gather of 48 B, 6 ranks' "$OUT"
tool sim --json - all_reduce --bytes 7
check "bytes: none that are part of an element" 0 "$(grep -vc '"bytes": 4, ' <<<"$OUT")"

# by halving goes an all_reduce and nothing else
tool sim all_to_all --hosts 4 --ranks-per-host 4 --bytes 1M
matches "all_to_all: blocks to their owners" '^ \* slices' "$OUT"
check "all_to_all: nothing is halved" 0 "$(grep -c halving <<<"$OUT")"
tool sim scan --hosts 4 --ranks-per-host 2 --bytes 8K
check "four hosts: a scan goes by messages alone" 0 "$(grep -c '^ [ *] hosts, ' <<<"$OUT")"
tool sim --json - scan --hosts 4 --ranks-per-host 2 --bytes 8K
check "json: the type's name is that of tutti bench" 0 "$(grep -vc '"dtype": "f32"' <<<"$OUT")"
check "json: one is chosen" 1 "$(grep -c '"chosen": true' <<<"$OUT")"
check "json: what is chosen is there once" 1 "$(sed 's/.*"algorithm"//; s/.*"time_ns": \([0-9]*\).*"trace": "\([0-9a-f]*\)".*/\1 \2/' <<<"$OUT" | sort | uniq -c | awk '{print $1}' | sort -u)"
check "json: memory" 0 "$(grep -vc '"peak_bytes": [1-9][0-9]*}$' <<<"$OUT")"
tool sim all_reduce --hosts 64 --ranks-per-host 1 --bytes 1G --limit 2s
matches "many messages: named before they are sent" '^   slices +- +- +there would be [1-9][0-9]+ messages, which take [1-9][0-9]* s or more to simulate, not 2$' "$OUT"
matches "many messages: what to do" '^ - not simulated: takes a larger --limit' "$OUT"
# cores that copy: 3 us to send, and 3 us to receive what has come after 5 us
printf '# link 100G:5us\n# local 10GB:1us\nchunk 4096\n# copy 0:1us,1K:3us\n' > links.txt
for flags in "--links links.txt" "--link 100G:5us --local 10G:1us --copy 0:1us,1K:3us"; do
    tool sim all_reduce --hosts 2 --ranks-per-host 1 --bytes 1K --overhead 0ns $flags
    check "copying: status" 0 "$STATUS"
    matches "copying: one round" '^ \* rounds +8\.[2-5][0-9] us' "$OUT"
done
cp links.txt late.txt
printf '# delay 0:0ns,2K:4us,4K:0ns\n' >> late.txt
tool sim all_reduce --hosts 2 --ranks-per-host 1 --bytes 1K --overhead 0ns --links late.txt
matches "delay: one round" '^ \* rounds +10\.[2-5] us' "$OUT"
printf '# far 1024\n# local_far 10G:1us\n# copy_far 0:2us,1K:6us\n' >> links.txt
tool sim all_reduce --hosts 2 --ranks-per-host 1 --bytes 1K --overhead 0ns --links links.txt
matches "copying past the caches: one round" '^ \* rounds +1[12]\.[0-9] us' "$OUT"
tool sim broadcast --hosts 4 --ranks-per-host 2 --sweep --bytes 64K --svg -
check "sweep over hosts: a line for each number" 3 "$(grep -c '<polyline' <<<"$OUT")"
matches "sweep over hosts: the table has a column for each" '^ +hosts +1 +2 +4$' "$ERR"

for op in $("$TUTTI" bench --list | awk '{print $1}'); do
    tool sim "$op" --ranks-per-host 5 --bytes 10K
    check "$op: status" 0 "$STATUS"
    check "$op: nothing on stderr" "" "$ERR"
    matches "$op: something is chosen" '^ \* [a-z]+.* [0-9.]+ (ns|us) ' "$OUT"
done

tool sim all_gather --sweep --bytes 1M --svg picture.svg
check "sweep: status" 0 "$STATUS"
check "sweep: 8 bytes to 1 MiB" 7 "$(grep -Ec '^ +[0-9]+ (B|KiB|MiB) +[0-9.]+ (ns|us|ms)$' <<<"$OUT")"
matches "svg: begins" '^<svg ' "$(cat picture.svg)"
matches "svg: ends" '^</svg>$' "$(cat picture.svg)"
check "svg: a line for each number of ranks" 1 "$(grep -c '<polyline' picture.svg)"
tool sim barrier --hosts 8 --sweep --svg picture.svg
check "svg of what has no size: over numbers of ranks" 4 "$(grep -c '<circle' picture.svg)"
matches "svg of what has no size: its title" 'barrier: predicted time over ranks' "$(cat picture.svg)"

refuses() { # WHAT PATTERN ARGUMENT...
    local what=$1 pattern=$2
    shift 2
    tool sim "$@"
    check "$what: status" 2 "$STATUS"
    check "$what: nothing on stdout" "" "$OUT"
    matches "$what: the reason" "$pattern" "$ERR"
}
refuses "no operation" "which operation"
refuses "operation" "did you mean 'all_reduce'" all_redcue
refuses "two operations" "one operation at a time" all_reduce reduce
refuses "link without a time" "RATE:TIME" all_reduce --link 400G
refuses "link of nothing" "RATE:TIME" all_reduce --link 0G:5us
refuses "link with an odd time" "RATE:TIME" all_reduce --link 400G:5parsec
refuses "local with an odd rate" "bytes per second" all_reduce --local fast:5us
refuses "time without a unit" "100ns" all_reduce --overhead 100
printf '# delay 1K:0ns,1K:4us\n' >> late.txt
refuses "delays of the same size twice" "growing sizes" all_reduce --hosts 2 --links late.txt
refuses "copying at no rate" "bytes per second, such as 5G" all_reduce --copy slow
refuses "copying of shrinking sizes" "growing sizes" all_reduce --copy 64K:5us,1K:6us
refuses "copying for no time" "growing sizes" all_reduce --copy 64K:,1M:6us
refuses "figures that never end" "a line that is no text, or too long" all_reduce --links /dev/zero
refuses "figures that are not there" "cannot read no/such/file" all_reduce --links no/such/file
echo "chunk 4096" > tuning.txt
refuses "figures of no links" "tutti bench --tune tuning.txt --transport tcp" all_reduce --links tuning.txt
refuses "too many ranks" "65536" all_reduce --hosts 65536 --ranks-per-host 2
refuses "root" "ranks are 0 to 7" broadcast --root 8
refuses "two kinds of output on stdout" "both write to stdout" all_reduce --sweep --svg - --json -
refuses "picture of one size" "add --sweep" all_reduce --svg x.svg
refuses "type" "did you mean 'f32'" all_reduce -d f23
refuses "a reduction that the type has not" "and of f32" all_reduce --op and
refuses "a link below the limits" "8 to 1e\+18 bits per second, and up to 1000000s" all_reduce --link 1:1s
refuses "a link above the limits" "8 to 1e\+18 bits per second, and up to 1000000s" all_reduce --link 1G:2000000s
refuses "one rank has nobody to write to" "two ranks" ping_pong --ranks-per-host 1
tool sim all_reduce --sweep --svg no/such/folder/x.svg
check "a file that cannot be written: status" 2 "$STATUS"
matches "a file that cannot be written: why" "cannot write no/such/folder/x.svg" "$ERR"

tool sim all_reduce --hosts 64 --limit 1
check "nothing that can be simulated: status" 1 "$STATUS"
matches "nothing that can be simulated: why" "^tutti sim: nothing could be predicted$" "$ERR"

# it simulates in processes of its own, and is ended alone
"$TUTTI" sim all_reduce --hosts 2048 --ranks-per-host 8 --bytes 1G >out.txt 2>err.txt &
simulation=$!
works() { [ -n "$(children_of $simulation)" ]; }
within 60 works
children_of $simulation >pids
kill -TERM $simulation
ended $simulation
check "ended while it simulates: status" 143 "$STATUS"
within 20 gone pids
check "ended while it simulates: nothing is left" 0 $?

finish
