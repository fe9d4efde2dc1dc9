#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan timeout=120
# What tutti doctor finds: a line each, with the fix; status 1 only for what prevents joining.
source "$(dirname "$0")/run.bash"
for name in $(compgen -e | grep -E '^(TUTTI_|OMPI_|PMI|SLURM_|TORCHELASTIC_)'); do unset "$name"; done

tool doctor
check 'status' 0 $STATUS
check 'stderr' '' "$ERR"
for name in version cores memory descriptors processes memlock kernel attach membarrier interface library options \
    launcher key trial; do
    matches "a line about $name" "^(ok|note|warn) +$name " "$OUT"
done
matches 'the loopback' '^ok +interface +lo: 127.0.0.1' "$OUT"
matches 'a library' '^ok +library +libsodium: [0-9.]+ ' "$OUT"
matches 'UCX is not said to be used' '^note +library +UCX: .*(not|nor) used by this version' "$OUT"
matches 'the compiler of kernels' '^(ok|note) +library +NVRTC: ([0-9.]+, |not here).*; for collectives of ranks that share a GPU' "$OUT"
matches 'NCCL' '^(ok|note) +library +NCCL: .*for collectives of ranks with a GPU each' "$OUT"
matches 'the driver of GPUs' '^(ok|note) +library +CUDA: (driver for|not here)' "$OUT"
matches 'GPUs, or why there are none' '^(ok|note|warn) +gpu +(cuda:|none can be used: )' "$OUT"
matches 'no launcher' '^ok +launcher +none: ' "$OUT"
matches 'the order' '^note +launcher +order of precedence: tutti, torchrun, openmpi, mpich, slurm, env; ' "$OUT"
matches 'the trial' '^ok +trial +2 processes started, joined, added and left in' "$OUT"
lines=$(grep -vc '^ *fix: ' <<<"$OUT")

# found BAD-OR-NOT PATTERN VARIABLE=VALUE...: the environment has this line
found() {
    local status=$1 pattern=$2
    shift 2
    OUT=$(env "$@" timeout 240 "$TUTTI" doctor 2>&1)
    check "status with $*" "$status" $?
    matches "line with $*" "$pattern" "$OUT"
}
slurm=(SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 'SLURM_STEP_NODELIST=n[1-2]'
    SLURM_STEP_NUM_NODES=2)
openmpi=(PMIX_NAMESPACE=x OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2)
found 0 "^ok +launcher +Slurm's srun, by SLURM_JOB_ID .*: process 1 of 2 in job slurm-7.1, .* meet at n1:20057\$" \
    "${slurm[@]}"
found 0 "^ok +launcher +Open MPI's mpirun, by PMIX_NAMESPACE .*: process 0 of 2 in job openmpi-x, on this host\$" \
    "${openmpi[@]}" "${slurm[@]}"
matches 'the other is named' "^note +launcher +Slurm's srun is there too, by SLURM_.*TUTTI_LAUNCHER=slurm does\$" "$OUT"
found 1 '^bad +launcher +TUTTI_JOB, TUTTI_RANK and TUTTI_SIZE must be set together' TUTTI_RANK=1
found 1 '^bad +launcher +TUTTI_LAUNCHER is "x"; it takes' TUTTI_LAUNCHER=x
found 0 "^ok +launcher .*, on several hosts, which meet by the launcher's store \(pmix\)\$" "${openmpi[@]}" \
    OMPI_COMM_WORLD_LOCAL_SIZE=1
found 0 '^ok +launcher .*, on several hosts, which meet at localhost:5$' "${openmpi[@]}" OMPI_COMM_WORLD_LOCAL_SIZE=1 \
    TUTTI_MASTER_ADDR=localhost TUTTI_MASTER_PORT=5
found 0 '^ +fix: did you mean TUTTI_DEADLINE_MS\?$' TUTTI_DEADLNE_MS=5
found 1 '^bad +options +TUTTI_DEADLINE_MS: "5x" is not understood' TUTTI_DEADLINE_MS=5x
found 1 '^bad +interface +TUTTI_INTERFACE is "none0", which is not there' TUTTI_INTERFACE=none0
found 0 '^ok +interface +lo' TUTTI_INTERFACE=127.0.0.1

found 1 '^bad +key +the key file ./absent cannot be opened' TUTTI_KEY_FILE=./absent
echo x >open.key
chmod 644 open.key
found 1 '^bad +key +the key file open.key can be read by others' TUTTI_KEY_FILE=open.key
found 1 '^ +fix: chmod 600 open.key$' TUTTI_KEY_FILE=open.key
chmod 600 open.key
found 1 '^bad +key +the file open.key does not hold a key' TUTTI_KEY_FILE=open.key
printf '%064d\n' 7 >open.key
found 0 '^ok +key +file open.key' TUTTI_KEY_FILE=open.key
found 1 '^bad +key +TUTTI_KEY is no key' TUTTI_KEY=short
found 0 '^ok +key +from the launcher' TUTTI_KEY="$(printf '%064d' 7)"

OUT=$(ulimit -n 24 && "$TUTTI" doctor 2>&1)
check 'too few descriptors' 1 $?
matches 'and it is said' '^bad +(descriptors|trial) ' "$OUT"
if [ "$(id -u)" -ne 0 ]; then
    OUT=$(ulimit -u 1 && exec "$TUTTI" doctor 2>&1)
    check 'too few processes: status' 1 $?
    matches 'attach is not blamed' '^warn +attach +whether .* was not tried: no process could be started' "$OUT"
    matches 'and why none can join is said' '^bad +trial .*: a process cannot be started; raise the limit, ulimit -u' "$OUT"
fi
OUT=$(ulimit -Sn 512 && "$TUTTI" doctor 2>&1)
check 'few descriptors' 0 $?
matches 'the fix' '^ +fix: ulimit -n ' "$OUT"

tool doctor --json
check 'JSON: status' 0 $STATUS
check 'JSON: as many objects as lines' "$lines" "$(grep -c '"state": "' <<<"$OUT")"
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys; assert all(set(e) == {"state", "name", "text", "fix"} for e in json.load(sys.stdin))' \
        <<<"$OUT"
    check 'JSON can be read' 0 $?
fi
json=$(grep -v '"name": "\(memory\|trial\)"' <<<"$OUT") # what is free and how long joining took differ
tool doctor --json -
check 'JSON: - is the same' "$json" "$(grep -v '"name": "\(memory\|trial\)"' <<<"$OUT")"
tool doctor --json found.json
check 'JSON in a file: status' 0 $STATUS
check 'JSON in a file' "$json" "$(grep -v '"name": "\(memory\|trial\)"' found.json)"
check 'JSON in a file: the lines are printed' "$lines" "$(grep -c '^[a-z]' <<<"$OUT")"
refused '^tutti doctor: cannot write no/such/file: No such' doctor --json no/such/file
tool doctor now
check 'a word too many' 2 $STATUS
finish
