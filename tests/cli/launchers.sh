#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=300 waits
# One program under every launcher that is installed here; what is not is said.
source "$(dirname "$0")/run.bash"

cat >hello.c <<'END'
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>
static int work(tutti_comm *world, int argc, char **argv)
{
    int x = tutti_rank(world), fails = argc > 1 && strcmp(argv[1], "fail") == 0;
    if (tutti_all_reduce(world, &x, &x, 1, TUTTI_I32, TUTTI_SUM) != TUTTI_OK) return tutti_explain(world, stderr);
    printf("rank %d of %d: %d in %s\n", tutti_rank(world), tutti_size(world), x, tutti_job(world));
    return fails && tutti_rank(world) == 1 ? 7 : 0;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
END
compile hello

# launched WHAT SIZE COMMAND...: ranks of one world, and in order; leaves OUT, ERR and STATUS
launched() {
    local what=$1 size=$2 sum=$(($2 * ($2 - 1) / 2)) wanted='' rank
    shift 2
    timeout -k 1 240 "$@" >out.txt 2>err.txt
    STATUS=$?
    OUT=$(cat out.txt)
    ERR=$(cat err.txt)
    for ((rank = 0; rank < size; rank++)); do wanted+="rank $rank of $size: $sum"$'\n'; done
    check "$what: status" 0 $STATUS
    check "$what" "${wanted%$'\n'}" "$(sed 's/^\[[0-9]*\] //; s/^\[default[0-9]*\]://; s/ in .*//' out.txt | sort -V)"
    [ $STATUS = 0 ] || echo "$ERR"
}

launched 'nobody' 1 ./hello
launched 'threads' 3 env TUTTI_RANKS=3 ./hello
launched 'tutti run' 4 "$TUTTI" run -n 4 ./hello
launched 'tutti run, 2 threads each' 6 env TUTTI_RANKS=2 "$TUTTI" run -n 3 ./hello
launched 'tutti run, 3 threads of 1 process' 3 env TUTTI_RANKS=3 "$TUTTI" run -n 1 ./hello

# ---- Open MPI
mpirun=$(command -v mpirun.openmpi || true)
if [ -n "$mpirun" ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpirun=("$mpirun" --oversubscribe --mca btl_base_warn_component_unused 0)
    launched 'Open MPI' 4 "${mpirun[@]}" -n 4 ./hello
    matches 'the job is the namespace' 'in openmpi-[0-9a-z@-]+$' "$OUT"
    launched 'Open MPI, 2 threads each' 4 env TUTTI_RANKS=2 "${mpirun[@]}" -n 2 ./hello
    timeout 240 "${mpirun[@]}" -n 2 ./hello fail >out.txt 2>&1
    check 'Open MPI: a rank fails' 7 $?
    OUT=$(timeout 240 "${mpirun[@]}" -n 2 "$TUTTI" doctor 2>&1)
    check 'doctor under Open MPI' 2 "$(grep -c "^ok .*Open MPI's mpirun, by PMIX_NAMESPACE" <<<"$OUT")"
    OUT=$(timeout 240 "${mpirun[@]}" -n 3 "$TUTTI" bench barrier -n 2 -m 2 --floor 0 2>&1)
    matches 'bench under Open MPI' '3 ranks as processes' "$OUT"
    check 'and one report' 1 "$(grep -c '^# tutti bench' <<<"$OUT")"
    launched 'tutti run within Open MPI' 2 "${mpirun[@]}" -n 1 "$TUTTI" run -n 2 ./hello
    timeout 240 "${mpirun[@]}" -n 2 env TUTTI_LAUNCHER=none ./hello >out.txt 2>&1
    check 'nobody, when told so' 2 "$(grep -c '^rank 0 of 1' out.txt)"
else
    echo 'not tested: Open MPI (mpirun.openmpi is not installed)'
fi

# ---- MPICH
if command -v mpiexec.hydra >/dev/null; then
    launched 'MPICH' 4 "$HYDRA" -n 4 ./hello
    matches 'the job is the key-value space' 'in mpich-kvs_' "$OUT"
    check 'MPICH: nothing is complained of' '' "$ERR"
    launched 'MPICH, 2 threads each' 4 env TUTTI_RANKS=2 "$HYDRA" -n 2 ./hello
    OUT=$(timeout 240 "$HYDRA" -n 2 "$TUTTI" doctor 2>&1)
    check 'doctor under MPICH' 2 "$(grep -c "^ok .*MPICH's mpiexec (hydra), by PMI_FD" <<<"$OUT")"
    timeout 240 "$HYDRA" -n 2 ./hello fail >out.txt 2>&1
    check 'MPICH: a rank fails' 7 $?
    timeout 240 "$HYDRA" -n 1 bash -c 'PMI_FD=200 ./hello' >out.txt 2>&1
    check 'a process manager that is not there' 1 $?
    matches 'and it is said' 'descriptor 200 \(PMI_FD\) did not answer init' "$(cat out.txt)"
else
    echo 'not tested: MPICH (mpiexec.hydra is not installed)'
fi

# ---- torchrun: its environment, and itself where it is. Slurm's srun for real is in slurm.sh.
# emulated WHAT COMMAND...: two processes at once, with what a launcher sets for each; {} is the rank
emulated() {
    local what=$1 rank
    shift
    for rank in 0 1; do timeout 240 env "${@//\{\}/$rank}" ./hello >"out.$rank" 2>&1 & done
    wait
    check "$what" $'rank 0 of 2: 1\nrank 1 of 2: 1' "$(sed 's/ in .*//' out.0 out.1)"
}
emulated "torchrun's environment" RANK={} WORLD_SIZE=2 LOCAL_RANK={} LOCAL_WORLD_SIZE=2 GROUP_RANK=0 MASTER_ADDR=localhost \
    MASTER_PORT=29512 TORCHELASTIC_RUN_ID=test$$ TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_USE_AGENT_STORE=True
emulated 'variables set by hand' RANK={} WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000))
emulated "srun's environment" SLURM_JOB_ID=$$ SLURM_STEP_ID=1 SLURM_PROCID={} SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID={} \
    SLURM_STEP_NODELIST=localhost SLURM_STEP_NUM_NODES=1
# Some versions take no other way with output than to a log and from there to stdout.
if timeout 240 torchrun --help 2>/dev/null | grep -q no_python; then
    torchrun=(torchrun --standalone --no_python --nproc_per_node 2 --monitor_interval 0.05 -r 1 -t 1 --log_dir "$DIR/logs")
    launched 'torchrun' 2 "${torchrun[@]}" ./hello
    timeout 240 "${torchrun[@]}" ./hello fail >out.txt 2>&1
    check 'torchrun: a rank fails' 1 $?
    matches 'it is torchrun that says which' 'exitcode *: 7' "$(cat out.txt)"
else
    echo 'not tested: torchrun itself (it is not installed, or does not start)'
fi

# ---- Not launched: a job script of Slurm's, which has the job in its environment, but is no task of srun's
launched "Slurm's job script" 1 env SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 \
    SLURM_JOB_NODELIST='a[1-2]' ./hello
launched 'RANK and WORLD_SIZE alone' 1 env RANK=1 WORLD_SIZE=4 ./hello

# ---- An environment that cannot be meant: ranks, and processes of several of them, do not begin
# contradicts PATTERN VARIABLE=VALUE...
contradicts() {
    local pattern=$1 ranks
    shift
    for ranks in 1 2; do
        OUT=$(env "$@" TUTTI_RANKS=$ranks timeout 60 ./hello 2>&1)
        check "status of $* with $ranks ranks" 2 $?
        matches "what is said of $*" "$pattern" "$OUT"
    done
}
contradicts 'TUTTI_RANK is 2 of a job of 2' TUTTI_JOB=x TUTTI_RANK=2 TUTTI_SIZE=2
contradicts 'must be set together' TUTTI_RANK=0 TUTTI_SIZE=2
contradicts 'RANK is "2"; the launcher should set it to 0 to 1' RANK=2 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1
contradicts "the launcher's name for the job is longer than 127 bytes" TUTTI_JOB="$(printf '%0200d' 0)" TUTTI_RANK=0 TUTTI_SIZE=1
contradicts 'TUTTI_LAUNCHER is "slurm", but this process was not' TUTTI_LAUNCHER=slurm
OUT=$(TUTTI_JOB=j TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_RANKS=65536 timeout 60 ./hello 2>&1)
check 'more ranks than there can be: status' 2 $?
matches 'more ranks than there can be' '2 processes of 65536 ranks each' "$OUT"
finish
