#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan
# What a rank's process is given: stdin, descriptors, cores, signals; and how long starting takes.
source "$(dirname "$0")/run.bash"

OUT=$(echo hello | timeout 240 "$TUTTI" run -n 3 cat)
check 'rank 0 has the stdin, the others none' '[0] hello' "$OUT"
OUT=$(timeout 240 "$TUTTI" run -n 2 cat <&- 2>&1)
check 'a closed stdin is an empty one' '0:' "$?:$OUT"
OUT=$(timeout 240 "$TUTTI" run -n 2 sh -c 'echo x' 2>&1 >&-)
check 'a closed stdout' 0: "$?:$OUT"

# the descriptors a rank has when the launcher had 0, 1 and 2; `ls` itself opens 3
for path in /proc/$BASHPID/fd/*; do
    fd=${path##*/}
    [ "$fd" -le 2 ] || [ "$fd" -eq 255 ] || eval "exec $fd>&-" # 255 is bash's own, and close-on-exec
done
for flags in '' '--log-dir logs' '--log-dir logs --tee'; do
    # shellcheck disable=SC2086
    "$TUTTI" run -n 3 $flags sh -c 'ls /proc/self/fd >fds.$RANK' >/dev/null 2>&1
    check "no other descriptors ($flags)" '0 1 2 3' "$(cat fds.2 | xargs)"
done

tool run -n 2 sh -c 'grep -E "^Sig(Blk|Ign)" /proc/self/status'
grep -E '^Sig(Blk|Ign)' /proc/self/status >own.txt
check 'signals are blocked and ignored as before' "$(cat own.txt)" "$(sed -n 's/^\[1\] //p' <<<"$OUT")"

tool run -n 2 sh -c 'echo $$ $(cut -d" " -f5 /proc/$$/stat)'
check 'a rank leads its own group' 2 "$(awk '$2 == $3' out.txt | wc -l)"

before=$(date +%s%N)
"$TUTTI" run -n 8 true
echo "tutti run -n 8 true: $((($(date +%s%N) - before) / 1000)) us"

tool run -n 1 --bind core true
if grep -q 'built without hwloc' <<<"$ERR"; then
    echo 'no --bind core in this build'
    finish
fi
cores=$(nproc)
tool run -n $((cores + 1)) --bind core --no-prefix sh -c 'grep Cpus_allowed_list /proc/self/status'
check '--bind core' 0 $STATUS
matches 'more ranks than cores' "warning: $((cores + 1)) ranks share" "$ERR"
check 'all cores are used' "$(sed -n 's/.*ranks share \([0-9]*\) cores.*/\1/p' <<<"$ERR")" "$(sort -u out.txt | wc -l)"
[ "$cores" -le 2 ] || check '--bind core narrows' 0 "$(grep -c "	0-$((cores - 1))$" out.txt)"
command -v taskset >/dev/null || finish
cpu=$(taskset -cp $$ | sed 's/.*[^0-9]//')
OUT=$(taskset -c "$cpu" "$TUTTI" run -n 1 --bind core sh -c 'grep Cpus_allowed_list /proc/self/status')
matches '--bind core stays within what is allowed' "	$cpu$" "$OUT"

finish
