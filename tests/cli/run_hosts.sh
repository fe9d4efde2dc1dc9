#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan timeout=120 waits
# Jobs on several hosts: who ranks are told to be, output, statuses, ends, and command lines that are not accepted. The
# remote shell is a script that runs its command here, or hands it to a process that is no child of the launcher.
source "$(dirname "$0")/run.bash"

cat >shell <<'END'
#!/usr/bin/env bash
case $1 in
refused) echo 'connect to host refused: Connection refused' >&2; exit 255 ;;
esac
tr '\0' '\n' </proc/$$/cmdline >>commands
env >>commands
unset KEPT LOST
exec bash -c "$2"
END
chmod +x shell

# ---- Who ranks are
identity='echo "$TUTTI_RANK/$TUTTI_SIZE $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE"'
tool run --hosts a,user@b:2,[fd00::1]:1 --ssh ./shell -n 1 sh -c "$identity"
check 'status' 0 $STATUS
check 'ranks, hosts with their own numbers of ranks, output with ranks in front' \
    $'[0] 0/4 0/4 0/1 0/3\n[1] 1/4 1/4 0/2 1/3\n[2] 2/4 2/4 1/2 1/3\n[3] 3/4 3/4 0/1 2/3' "$(sort <<<"$OUT")"
check 'nothing else is said' '' "$ERR"

shown='echo "$TUTTI_JOB $TUTTI_MASTER_ADDR:$TUTTI_MASTER_PORT $TUTTI_KEY $TUTTI_FENCE_MS $KEPT ${LOST-none} $PWD $1"'
KEPT=k LOST=l tool run --hosts user@a,b --ssh ./shell --env KEPT --fence-ms 5s --no-prefix sh -c "$shown" sh "two
words' %0A"
check 'what both hosts say is the same' 1 "$(paste -sd ' ' <<<"$OUT" | sed 's/^\(.*\) \1$/same/' | grep -c same)"
matches 'the environment, and words as they were' \
    "^hosts-[0-9a-f-]+ a:[0-9]+ [0-9a-f]{64} 5s k none $DIR two\$" "$OUT"
matches 'and the second line of a word' "^words' %0A\$" "$OUT"
key=$(grep -oE '[0-9a-f]{64}' <<<"$OUT" | head -1)
check 'the key is on no command line and in no shell' 0 "$(grep -c "$key" commands)"
TUTTI_KEY_FILE=/some/file tool run --hosts a --ssh ./shell sh -c 'echo "${TUTTI_KEY-none} $TUTTI_KEY_FILE"'
check 'a key that is given holds' 'none /some/file' "$OUT"

tool key k
tool run --nnodes 2 --node-rank 1 --nproc-per-node 2 --master-addr localhost --key-file k sh -c "$identity"
check 'one host of two, by hand' $'[2] 2/4 2/4 0/2 1/2\n[3] 3/4 3/4 1/2 1/2' "$(sort <<<"$OUT")"
tool run --nnodes 2 --node-rank 1 --master-addr '[::1]' --key-file k sh -c 'echo "$TUTTI_MASTER_ADDR"'
check 'an address in brackets' '[1] [::1]' "$OUT"
tool run --nnodes 1 --node-rank 0 --nproc-per-node 2 --master-addr a --master-port 29500 sh -c "$identity; echo \${TUTTI_MASTER_ADDR-none}"
check 'one of one' $'[0] 0/2 0/2 0/2 0/1\n[0] none\n[1] 1/2 1/2 1/2 0/1\n[1] none' "$(sort <<<"$OUT")"
TUTTI_MASTER_ADDR=x TUTTI_LAUNCHER=none tool run sh -c 'echo "${TUTTI_MASTER_ADDR-none} ${TUTTI_LAUNCHER-none}"'
check 'the launcher says who a rank is, not what it was started with' 'none none' "$OUT"
tool run --hosts a,b --ssh ./shell --log-dir logs sh -c 'echo $RANK; echo e$RANK >&2'
check 'logs have the ranks of the job' '0 1 e0 e1' "$(cat logs/rank-0.out logs/rank-1.out logs/rank-0.err logs/rank-1.err | paste -sd ' ')"

# ---- Where they listen: with an address of this host alone, nowhere else. 0A: listening
listening() { # PID: the addresses that it listens at
    local inode
    for inode in $(stat -L -c %i /proc/"$1"/fd/* 2>/dev/null); do
        awk -v inode="$inode" '$4 == "0A" && $10 == inode {sub(":.*", "", $2); print $2}' /proc/net/tcp /proc/net/tcp6
    done
}
port=$((20000 + RANDOM % 12000))
"$TUTTI" run --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port $port --key-file k \
    bash -c "echo \$\$ >pid; exec '$TUTTI' bench barrier" >out.txt 2>err.txt &
launcher=$!
two() { [ "$(listening "$(cat pid 2>/dev/null)" | wc -l)" -ge 2 ]; }
within 60 two
check 'it listens, to meet and for data' 0 $?
check 'by 127.0.0.1: only loopback' '' "$(listening "$(cat pid)" | grep -vE '^(0100007F|00000000000000000000000001000000)$')"
kill -TERM $launcher
ended $launcher

# ---- Failures
tool run --hosts a,b --ssh ./shell -n 2 bash -c '
    [ $RANK = 3 ] && { until [ "$(ls up.* | wc -l)" = 3 ]; do sleep 0.02; done; exit 7; }
    touch up.$RANK; until [ -f stop ]; do sleep 0.02; done'
check 'the status is that of the first rank that failed' 7 $STATUS
matches 'which is named, with its host' '^tutti run: rank 3 on b \(pid [0-9]+\) exited with status 7$' "$ERR"
matches 'the others are ended, on their hosts' '^tutti run: ending hosts? a' "$ERR"
tool run --hosts a,b --ssh ./shell bash -c '[ $RANK = 0 ] || kill -9 $$; sleep 600' 
check 'the status of a signal' 137 $STATUS
matches 'said so' '^tutti run: rank 1 on b \(pid [0-9]+\) was killed by signal 9 \(Killed\)$' "$ERR"

sleeper='sleep 600'
refused '^tutti run: host refused: ./shell exited with status 255 before the job began there; does it answer' \
    run --hosts a,refused --ssh ./shell $sleeper
if command -v ssh >/dev/null; then
    refused '^tutti run: host no-such-host.invalid: ssh exited with status 255 before' \
        run --hosts no-such-host.invalid $sleeper
fi
refused '^tutti run: host [ab]: ./shell exited with status 127 .*is tutti at the same place' \
    run --hosts a,b --ssh ./shell --remote-tutti /no/such/tutti $sleeper
refused '^tutti run: host [ab]: the remote shell ./no-shell cannot be executed: No such file' run --hosts a,b --ssh ./no-shell $sleeper
refused '^tutti run: ./missing: not found$' run --hosts a --ssh ./shell ./missing
matches 'and on which host' '^tutti run: the launcher on a exited with status 2$' "$ERR"
refused "^tutti run: --hosts: 'a:x' is not understood" run --hosts a:x --ssh ./shell $sleeper
refused "^tutti run: --hosts: '' is not understood" run --hosts a,,b --ssh ./shell $sleeper
refused "^tutti run: --hosts: 'user@' is not understood" run --hosts a,user@ --ssh ./shell $sleeper
refused '^tutti run: host [ab]: true exited with status 0 before the job began there; does the shell of this user' \
    run --hosts a,b --ssh true $sleeper
refused "^tutti run: --hosts: '-oProxyCommand=x' is not understood" run --hosts -oProxyCommand=x --ssh ./shell $sleeper
refused '^tutti run: --hosts has 65537 ranks; a job has 65536 at most' run --hosts a:65536,b --ssh ./shell $sleeper
refused '^tutti run: --hosts starts all hosts by itself' run --hosts a --nnodes 2 $sleeper
refused '^tutti run: -n and --nproc-per-node mean the same' run -n 2 --nproc-per-node 2 $sleeper
refused '^tutti run: --nnodes 2 needs --node-rank: which of them this host is, from 0 to 1' run --nnodes 2 $sleeper
refused '^tutti run: --node-rank 2: with --nnodes 2 hosts go from 0 to 1' run --nnodes 2 --node-rank 2 $sleeper
refused '^tutti run: --nnodes 2 needs --master-addr' run --nnodes 2 --node-rank 0 $sleeper
refused '^tutti run: a job on several hosts needs a key: make one with `tutti key FILE`' \
    run --nnodes 2 --node-rank 0 --master-addr localhost $sleeper
refused "^tutti run: --master-addr: the host 'no-such-host.invalid' does not resolve" \
    run --nnodes 2 --node-rank 0 --master-addr no-such-host.invalid --key-file k $sleeper
refused '^tutti run: --node-rank 1 needs --nnodes' run --node-rank 1 $sleeper
refused '^tutti run: --node-rank 1: with --nnodes 1 hosts go from 0 to 0' run --nnodes 1 --node-rank 1 $sleeper
refused '^tutti run: --master-addr needs --nnodes or --hosts' run --master-addr a $sleeper
refused '^tutti run: --nnodes: "0" is out of range' run --nnodes 0 $sleeper
refused '^tutti run: 65536 hosts of 2 ranks' run -n 2 --nnodes 65536 --node-rank 0 --master-addr localhost --key-file k \
    $sleeper
ERR=$(echo nonsense | "$TUTTI" run --from-stdin 2>&1)
check 'an order that is none' 2 $?
ERR=$(printf 'tutti 1\nworld 1\nnodes 1\nmaster localhost\njob x\nenv A=0123456789\narg run\narg true\nfolder /none%%4\n' |
    "$TUTTI" run --from-stdin 2>&1)
matches 'half a number is none' "the folder /none%4 cannot be entered" "$ERR"
ERR=$("$TUTTI" run --from-stdin 2>&1 </dev/null)
check 'no order' 1 $?
matches 'said so' 'stdin ended within the order' "$ERR"

# ---- Ends. The hosts are processes of their own: nothing but the shell's stdin connects them with the launcher.
cat >far <<'END'
#!/usr/bin/env bash
# far HOST COMMAND: hands the command to the process that is the host, and carries stdin, stdout and stderr
exec 3<&0
echo "$2" >"$1.command"
cat <&3 >"$1.in" &
cat <"$1.out" &
cat <"$1.err" >&2
wait %2
until [ -s "$1.status" ]; do sleep 0.02; done
exit "$(cat "$1.status")"
END
chmod +x far
# host NAME: serves one command
host() {
    rm -f "$1".*
    mkfifo "$1.command" "$1.in" "$1.out" "$1.err"
    setsid bash -c 'echo $$ >>hosts; read -r command <"$0.command"
        bash -c "$command" <"$0.in" >"$0.out" 2>"$0.err"; echo $? >"$0.status"' "$1" >/dev/null 2>&1 </dev/null &
    disown
}
# start ...: a job of ranks that would run for minutes, two on each of the far hosts a and b; LAUNCHER is its pid
start() {
    rm -f pids
    host a
    host b
    "$TUTTI" run --hosts a,b --ssh ./far -n 2 --grace-ms 300 bash -c 'echo $$ >>pids; exec sleep 600' >out.txt 2>err.txt &
    LAUNCHER=$!
    within 60 lines_in pids 4
}
cleared() {
    within 60 gone pids && within 60 gone hosts
    check "$1: nothing is left" 0 $?
    gone hosts || xargs kill -9 <hosts
    rm -f hosts
}
start
kill -INT $LAUNCHER
ended $LAUNCHER
check 'Ctrl-C' 130 $STATUS
cleared 'Ctrl-C'
start
kill -KILL $LAUNCHER
ended $LAUNCHER
cleared 'the launcher is killed'
start
kill -KILL "$(head -1 pids)"
ended $LAUNCHER
check 'a rank is killed' 137 $STATUS
matches 'it is named' '^tutti run: rank [0-3] on [ab] \(pid [0-9]+\) was killed by signal 9' "$(cat err.txt)"
cleared 'a rank is killed'
finish
