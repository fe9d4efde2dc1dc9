#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=240 labels=asan,tsan waits
# tutti run --max-ranks and --join: processes that wait are taken in, whoever dies meanwhile; what cannot be meant is said.
source "$(dirname "$0")/run.bash"
grow=$BUILD/examples/grow

# begin RANKS MOST ARGUMENT...: a job in the background; its launcher is $JOB
begin() {
    local ranks=$1 most=$2
    shift 2
    "$TUTTI" run -n "$ranks" --max-ranks "$most" --no-prefix "$@" >job_out.txt 2>job_err.txt &
    JOB=$!
    within 30 has_board
}
has_board() { "$TUTTI" top --once "$JOB" >top.txt 2>/dev/null && grep -q 'epoch' top.txt; }
waiting() { "$TUTTI" top --once "$JOB" 2>/dev/null | grep -q ", $1 wait"; }

# The example, in memory and over tcp, from one rank up to seven, which become eight at most.
for transport in shm tcp; do
    for n in 1 2 3 7; do
        more=$((n < 7 ? 2 : 1)) which="$n ranks, $transport"
        begin $n 8 --transport $transport "$grow" $((n + more))
        tool run --join "$JOB" -n $more --no-prefix "$grow" $((n + more))
        check "joined, $which: status" 0 "$STATUS"
        ended "$JOB"
        check "job, $which: status" 0 "$STATUS"
        matches "grown, $which" "^step [0-9]+: $((n + more)) ranks, epoch [12]\$" "$(tail -1 job_out.txt)"
        check "said to all, $which" $((2 * more)) "$(cat err.txt job_err.txt | grep -c 'has joined')"
        check "steps once each, $which" '' "$(grep -o '^step [0-9]*' job_out.txt | sort | uniq -d)"
    done
done
finish
