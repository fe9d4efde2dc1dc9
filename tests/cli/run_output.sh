#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan
# Lines of ranks: prefixed, aligned, whole, bounded.
source "$(dirname "$0")/run.bash"

tool run -n 2 sh -c 'echo out $TUTTI_RANK; echo err $TUTTI_RANK >&2'
check 'stdout has a prefix' $'[0] out 0\n[1] out 1' "$(sort <<<"$OUT")"
check 'stderr has a prefix' $'[0] err 0\n[1] err 1' "$(sort <<<"$ERR")"
check 'status' 0 $STATUS

tool run -n 11 sh -c 'echo x'
check 'prefixes are aligned' '[ 0] x' "$(sort <<<"$OUT" | head -1)"
matches 'prefixes are aligned' '^\[10\] x$' "$OUT"

tool run -n 2 --no-prefix echo x
check '--no-prefix' $'x\nx' "$OUT"

tool run -n 1 echo x
check 'a single rank has no prefix' x "$OUT"
tool run echo x
check 'one rank is the default' x "$OUT"

tool run -n 2 printf 'a\n\nb'
check 'empty lines, and a last line without newline' $'[0] a\n[0] \n[0] b' "$(grep '^\[0\]' <<<"$OUT")"

tool run -n 2 sh -c 'echo $TUTTI_RANK $TUTTI_SIZE $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE'
check 'environment' $'[0] 0 2 0 2 0 2\n[1] 1 2 1 2 1 2' "$(sort <<<"$OUT")"
tool run -n 2 --no-prefix sh -c 'echo $TUTTI_JOB'
check 'one job' 1 "$(sort -u <<<"$OUT" | wc -l)"
matches 'job name' '^[0-9]+-[0-9a-f]{16}$' "$OUT"
tool run -n 2 --no-prefix --join-timeout-ms 5s --direct=0 sh -c 'echo $TUTTI_JOIN_TIMEOUT_MS $TUTTI_DIRECT'
check 'library options' $'5s 0\n5s 0' "$OUT"

# four ranks write lines of 1 to 300 equal letters on both streams, all into one file
letters='s=$(printf "%301s" | tr " " "$1"); for i in $(seq 1 300); do echo "${s:0:$i}"; echo "${s:0:$i}" >&2; done'
timeout 240 "$TUTTI" run -n 4 --no-prefix bash -c 'set -- $(echo a b c d | cut -d" " -f$((RANK + 1))); '"$letters" \
    >both.txt 2>&1
check 'all lines came' 2400 "$(wc -l <both.txt)"
check 'lines are whole' 0 "$(grep -Evc '^(a+|b+|c+|d+)$' both.txt)"

# lines that are longer than a pipe takes at once, on both streams, into one pipe
timeout 240 "$TUTTI" run -n 2 --no-prefix bash -c 's=$(printf "%9000s" | tr " " $((2 * RANK))) t=${s//[02]/$((2 * RANK + 1))}
    for i in $(seq 40); do echo "$s"; echo "$t" >&2; done' 2>&1 | dd bs=4096 of=both.txt status=none
check 'all long lines came' 160 "$(wc -l <both.txt)"
check 'long lines are whole' 160 "$(grep -Exc '(0+|1+|2+|3+)' both.txt)"

head -c 100000 /dev/zero | tr '\0' x >long.txt
tool run -n 2 cat long.txt
check 'a long line is printed as several' 8 "$(wc -l <out.txt)"
check 'nothing of it is lost' 200000 "$(tr -cd x <out.txt | wc -c)"
check 'each has its prefix' 4 "$(grep -c '^\[1\] x' out.txt)"

# a rank's last words come before what is said about it
timeout 240 "$TUTTI" run -n 2 sh -c '[ $RANK = 0 ] || { echo last words >&2; exit 3; }' >both.txt 2>&1
check 'order of the last words' $'[1] last words' "$(head -1 both.txt)"

# nobody reads any more
timeout 240 "$TUTTI" run -n 2 yes 2>err.txt | head -1 >/dev/null
check 'a closed stdout ends the job' 141 "${PIPESTATUS[0]}"
matches 'and says so' 'cannot write to stdout: Broken pipe' "$(cat err.txt)"

# a reader who does not read does not keep the launcher from ending
mkfifo pipe
# the pipe is held open, not read
# shellcheck disable=SC2217
sleep 600 <pipe &
reader=$!
"$TUTTI" run -n 2 sh -c 'echo $$ >>pids; exec yes' >pipe 2>err.txt &
launcher=$!
within 60 lines_in pids 2
kill -TERM $launcher
within 60 gone pids
check 'ranks of a stuck reader end' 0 $?
kill -TERM $launcher
ended $launcher
check 'and the launcher' 143 $STATUS
kill $reader
finish
