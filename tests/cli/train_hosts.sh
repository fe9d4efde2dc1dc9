#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=180 waits
# tutti train under tutti run --hosts --max-restarts: ranks of several hosts are killed, all of one host at once, and the host itself
# with another one waiting; the run goes on from memory and ends with the weights of an undisturbed one. The hosts are addresses of
# this one; the remote shell is a script that runs its command here.
source "$(dirname "$0")/run.bash"
[ -z "${SANITIZE:-}" ] || { echo 'skip: its parts are tested with sanitizers by heal_hosts and the tests of trainers'; exit 77; }
export TUTTI_HOST_PROCESSES=2 TUTTI_HEARTBEAT_MS=5000 # a loaded machine may be silent for a while
cat >shell <<'SHELL'
#!/usr/bin/env bash
echo "$$ $1" >>launchers
exec bash -c "$2"
SHELL
chmod +x shell
SMALL=(--data "markov:order=2,states=16" --layers 2 --heads 2 --width 32 --context 16 --batch 8)
two=(run --hosts '127.0.0.1,127.0.0.2' --ssh ./shell -n 2 --no-prefix --max-restarts 4)
three=(run --hosts '127.0.0.1,127.0.0.2,127.0.0.3' --spare 1 --ssh ./shell -n 2 --no-prefix --max-restarts 4)

tool train gpt "${SMALL[@]}" --steps 1
if [ "$STATUS" != 0 ] && grep -q 'OpenBLAS' <<<"$ERR"; then
    echo "skipped: $ERR"
    exit 77
fi

# drill KILLS WHERE ARGUMENT...: passes, and goes on WHERE, a regular expression
drill() {
    local kills=$1 where=$2
    shift 2
    tool "${two[@]}" "$TUTTI" train gpt "${SMALL[@]}" --steps 12 --drill "$kills" "$@"
    check "$kills $*: status" 0 "$STATUS"
    matches "$kills $*: goes on" "all go on $where" "$OUT"
    matches "$kills $*: says so" '^drill passed: .* equals that of an undisturbed run$' "$OUT"
    [ "$STATUS" = 0 ] || tail -3 <<<"$ERR"
}
drill kill=2@step=5,kill=0@update=9 'after step [0-9]+, from memory \(epoch 1\)$'
drill kill=0@step=7,kill=1@step=7 'after step [567], from memory' --zero 1 # both of a host: their copies are on the other one
drill kill=3@gradients=5 'after step [34], from memory' --mesh data=2,shard=2 --zero 3
drill kill=0@update=5 'after step [45], from memory' --mesh pipe=2,tensor=2 --width-grains 2

# lose HOST ARGUMENT...: the host is lost in the midst of a run, which goes on with the one that waits
lose() {
    local host=$1
    shift
    local job=("$TUTTI" train gpt "${SMALL[@]}" --steps 400 "$@")
    rm -f launchers steps.jsonl
    [ -n "${WEIGHTS:-}" ] || { tool "${two[@]}" "${job[@]}" && WEIGHTS=$(grep -o '^weights [0-9a-f]*' <<<"$OUT"); }
    rm -f launchers
    "$TUTTI" "${three[@]}" "${job[@]}" --metrics steps.jsonl >out.txt 2>err.txt &
    local pid=$!
    within 60 grep -q '"step": 20,' steps.jsonl
    kill -KILL "$(awk -v host="$host" '$2 == host {print $1}' launchers)"
    ended $pid
    check "$host $*: status" 0 "$STATUS"
    check "$host $*: the weights of an undisturbed run" "${WEIGHTS:-none}" "$(grep -o '^weights [0-9a-f]*' out.txt)"
    matches "$host $*: goes on" 'all go on after step [0-9]+, from memory \(epoch 1\)$' "$(cat out.txt)"
    matches "$host $*: where" "^tutti run: the ranks of $host are started again on 127.0.0.3" "$(cat err.txt)"
    check "$host $*: each step once" 400 "$(grep -o '^{"step": [0-9]*' steps.jsonl | sort -u | wc -l)"
}
lose 127.0.0.2 --zero 1
lose 127.0.0.1
finish
