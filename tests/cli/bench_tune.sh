#!/bin/bash
# ctest: timeout=300
# tutti bench --tune writes every switch-over size within its range, and the library reads the file.
. "$(dirname "$0")/run.bash"

# reported WHAT FILE: every size that the file has was measured, or it is said why not
reported() {
    local name
    for name in $(sed '/^#/d; s/ .*//' "$2"); do matches "$1: $name is reported" "^$name [0-9]+(\$|  # )" "$OUT"; done
}

for as in threads processes; do
    tool bench --tune tuning.txt --ranks 2 --as $as
    check "$as: status" 0 "$STATUS"
    matches "$as: what was measured" "^# +all_reduce +1024 B .* us" "$OUT"
    for name in one_shot staged one_shot_crowded staged_crowded stream chunk attach tree eager dissemination; do
        matches "$as: $name" "^$name [0-9]+\$" "$(cat tuning.txt)"
    done
    reported "$as" tuning.txt
    tool bench all_reduce -b 64 -e 64 -n 2 --ranks 2 --as $as --tuning "$PWD/tuning.txt"
    check "$as: read back: status" 0 "$STATUS"
done

tool bench --tune links.txt --ranks 2 --as processes --transport tcp
check "tcp: status" 0 "$STATUS"
matches "tcp: what matters to messages" "^message_doubling [0-9]+\$" "$(cat links.txt)"
matches "tcp: the links" "^# link [0-9.]+G:[0-9]+ns\$" "$(cat links.txt)"
matches "tcp: the copying" "^# copy 0:[0-9]+ns,4096:[0-9]+ns,.*,4194304:[0-9]+ns\$" "$(cat links.txt)"
matches "tcp: the delays" "^# delay 0:0ns,4096:[0-9]+ns,.*,4194304:[0-9]+ns\$" "$(cat links.txt)"
matches "tcp: the same past the caches" "^# copy_far 0:[0-9]+ns,4096:[0-9]+ns" "$(cat links.txt)"
matches "tcp: chunks were tried" "^# +all_reduce +4194304 B .* us with 2097152\$" "$OUT"
reported tcp links.txt
tool bench all_reduce -b 64 -e 64 -n 2 --ranks 2 --tuning "$PWD/links.txt"
check "tcp: read back: status" 0 "$STATUS"
tool sim all_reduce --hosts 2 --ranks-per-host 1 --links links.txt
check "tcp: simulated: status" 0 "$STATUS"

ranks=$(($(nproc) < 3 ? 3 : $(nproc) + 1))
if [ "$ranks" -le 5 ]; then
    tool bench --tune shared.txt --ranks $ranks --transport tcp
    check "more ranks than cores: status" 0 "$STATUS"
    reported "more ranks than cores" shared.txt
    matches "more ranks than cores: trees are measured" "^# +reduce +65536 B .* us below it" "$OUT"
    [ "$ranks" -gt 3 ] ||
        check "what ranks that share cores go by is not for others" "message_paired 0" "$(grep paired shared.txt)"
fi

tool bench --tune /nonexistent/file --ranks 2
check "file that cannot be written: status" 2 "$STATUS"
matches "file that cannot be written: reason" "cannot write /nonexistent/file" "$ERR"
tool bench --tune made.txt --ranks 2 --tuning /nonexistent/file
check "refused for something else: status" 2 "$STATUS"
check "refused for something else: no file is left" no "$([ -e made.txt ] && echo yes || echo no)"

finish
