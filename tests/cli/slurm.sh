#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120 waits
# Under Slurm's srun, for real: a cluster of this one host, with everything in a private folder. Its daemons start as root
# only; elsewhere the environment that they make is tested by itself (launch, cli.launchers).
source "$(dirname "$0")/run.bash"
PATH=$PATH:/usr/sbin
for need in slurmctld slurmd srun sbatch sinfo; do
    command -v $need >/dev/null || { echo "skip: $need is not installed (Debian: slurmctld slurmd slurm-client)"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo 'skip: the daemons of Slurm need root'; exit 77; }

cat >hello.c <<'END'
#include <stdio.h>
#include <tutti/tutti.h>
static int work(tutti_comm *world, int argc, char **argv)
{
    int x = tutti_rank(world);
    (void)argc, (void)argv;
    if (tutti_all_reduce(world, &x, &x, 1, TUTTI_I32, TUTTI_SUM) != TUTTI_OK) return tutti_explain(world, stderr);
    printf("rank %d of %d: %d in %s\n", tutti_rank(world), tutti_size(world), x, tutti_job(world));
    return 0;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
END
compile hello

is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
port=$((20000 + RANDOM % 10000))
until is_free $port && is_free $((port + 1)); do port=$((port + 2)); done
host=$(hostname -s)
mkdir state spool
cat >slurm.conf <<END
ClusterName=test$$
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$DIR/state
SlurmdSpoolDir=$DIR/spool
SlurmctldPidFile=$DIR/ctld.pid
SlurmdPidFile=$DIR/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=5 State=UP
END
export SLURM_CONF=$DIR/slurm.conf
slurmctld -D -i -f slurm.conf >ctld.out 2>&1 &
controller=$!
slurmd -D -f slurm.conf >slurmd.out 2>&1 &
daemon=$!
trap 'kill $daemon $controller 2>/dev/null; wait $daemon $controller 2>/dev/null; rm -rf "$DIR"' EXIT
is_up() { sinfo -h -o %t 2>/dev/null | grep -q idle; }
has_ended() { ! kill -0 $controller 2>/dev/null || ! kill -0 $daemon 2>/dev/null; }
is_decided() { is_up || has_ended; }
within 60 is_decided >/dev/null
if ! is_up; then
    echo 'skip: a Slurm of one host does not start here:'
    tail -n 3 ctld.out slurmd.out
    exit 77
fi

OUT=$(timeout 240 srun -n 3 ./hello 2>&1)
check 'srun' 0 $?
check 'ranks of one world' $'rank 0 of 3: 3\nrank 1 of 3: 3\nrank 2 of 3: 3' "$(sed 's/ in .*//' <<<"$OUT" | sort)"
matches 'the job is the step' ' in slurm-[0-9]+\.0$' "$OUT"
OUT=$(TUTTI_RANKS=2 timeout 240 srun -n 2 ./hello 2>&1)
check 'srun, 2 threads each' 4 "$(grep -c 'of 4: 6' <<<"$OUT")"
OUT=$(timeout 240 srun --mpi=pmi2 -n 2 ./hello 2>&1)
check 'srun that speaks PMI' 2 "$(grep -c 'of 2: 1 in mpich-' <<<"$OUT")"
[ "$(grep -c 'of 2: 1 in mpich-' <<<"$OUT")" = 2 ] || echo "$OUT"
OUT=$(timeout 240 srun -n 2 "$TUTTI" doctor 2>&1)
check 'doctor' 2 "$(grep -c "^ok .*Slurm's srun, by SLURM_JOB_ID.* of 2 in job slurm-.*, on this host" <<<"$OUT")"
cat >job <<'END'
#!/bin/bash
./hello
srun ./hello
srun -n 1 ./hello & srun -n 1 ./hello & wait
END
timeout 240 sbatch -n 2 -o job.out -W job >/dev/null
check 'a job script' 0 $?
check 'what the script itself starts is alone, as are its steps of one task' 3 "$(grep -c '^rank 0 of 1: 0' job.out)"
check 'what its srun starts is not' 2 "$(grep -c 'of 2: 1 in slurm-' job.out)"
finish
