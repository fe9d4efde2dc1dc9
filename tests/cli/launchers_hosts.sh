#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=600 waits
# Launchers of others across two hosts, which are network namespaces with names of their own: mpirun and mpiexec start
# their daemons there by a remote shell, which enters the namespace. Skipped where namespaces may not be made.
own=(unshare --net --uts --mount)
[ "$(id -u)" = 0 ] || own+=(--map-root-user)
if [ -z "${TUTTI_TEST_INSIDE:-}" ]; then
    "${own[@]}" sh -c 'mount --bind /dev/null /etc/hosts && ip link add x0 type veth peer name x1' 2>/dev/null ||
        { echo 'skip: namespaces for hosts, and a cable between them, cannot be made here'; exit 77; }
    TUTTI_TEST_INSIDE=1 exec "${own[@]}" bash "$0"
fi
unset TUTTI_TEST_INSIDE
source "$(dirname "$0")/run.bash"
: "${SRC:?}" "${BUILD:?}"

# ---- The hosts
ip link set lo up
for host in a b; do
    unshare --net --uts setpriv --pdeathsig KILL bash -c \
        "hostname $host && ip link set lo up && echo \$\$ >$host.up && exec sleep 3000" &
    disown
done
within 60 lines_in a.up 1 && within 60 lines_in b.up 1 || exit 1
a=$(cat a.up) b=$(cat b.up)
trap 'kill -KILL $a $b; rm -rf "$DIR"' EXIT
ip link add cable netns "$a" type veth peer name cable netns "$b"
nsenter -t "$a" -n sh -c 'ip addr add 10.9.0.1/24 dev cable && ip link set cable up'
nsenter -t "$b" -n sh -c 'ip addr add 10.9.0.2/24 dev cable && ip link set cable up'
printf '127.0.0.1 localhost\n10.9.0.1 a\n10.9.0.2 b\n' >hosts
mount --bind hosts /etc/hosts
cat >shell <<END
#!/usr/bin/env bash
# shell HOST COMMAND...
case \$1 in a) host=$a ;; b) host=$b ;; *) echo "no host \$1" >&2; exit 255 ;; esac
shift
exec nsenter -t \$host -n -u bash -c "\$*"
END
chmod +x shell
at_a=(nsenter -t "$a" -n -u)

cat >hello.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>
static int once(const char *what)
{
    char host[64] = "";
    tutti_comm *world;
    gethostname(host, sizeof host - 1);
    if (tutti_join(&world) != TUTTI_OK) return fprintf(stderr, "%s\n", tutti_comm_error(world)->text), 1;
    int x = tutti_rank(world), rank = x;
    if (tutti_all_reduce(world, &x, &x, 1, TUTTI_I32, TUTTI_SUM) != TUTTI_OK) return tutti_explain(world, stderr);
    printf("rank %d of %d on %s: %d\n", rank, tutti_size(world), host, x);
    fflush(stdout);
    tutti_leave(world);
    return strcmp(what, "fail") == 0 && rank == 3 ? 7 : 0;
}
#ifdef WITH_MPI
#include <mpi.h>
int main(int argc, char **argv)
{
    int before = argc > 1 && strcmp(argv[1], "before") == 0, one = 1, sum = 0;
    if (before && once("") != 0) return 1;
    MPI_Init(&argc, &argv);
    if (!before && once("") != 0) return 1;
    if (once("") != 0) return 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return sum == 4 ? 0 : 1;
}
#else
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "", *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (strcmp(what, "stay") == 0 && rank != NULL && strcmp(rank, "3") == 0) return pause();
    return once(what) | (strcmp(what, "twice") == 0 ? once("") : 0);
}
#endif
END
compile hello
all=$'rank 0 of 4 on a: 6\nrank 1 of 4 on a: 6\nrank 2 of 4 on b: 6\nrank 3 of 4 on b: 6'
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent=$DIR/shell
export OMPI_MCA_btl_base_warn_component_unused=0
export OMPI_MCA_odls_base_sigkill_timeout=0 # how long it gives those it ends
"$TUTTI" key key >/dev/null
export TUTTI_KEY_FILE=$DIR/key

# launch COMMAND...: on host a; leaves OUT, in order, ERR and STATUS
launch() {
    "${at_a[@]}" timeout -k 1 240 "$@" >out.txt 2>err.txt </dev/null
    STATUS=$?
    OUT=$(sort out.txt)
    ERR=$(cat err.txt)
}
# launched WHAT COMMAND...: four ranks on two hosts
launched() {
    local what=$1
    shift
    launch "$@"
    check "$what: status" 0 $STATUS
    check "$what" "$all" "$OUT"
    [ $STATUS = 0 ] || echo "$ERR"
}

# ---- Open MPI
if mpirun=$(command -v mpirun.openmpi); then
    mpirun=("$mpirun" --host 'a:2,b:2' -n 4)
    launched 'Open MPI' "${mpirun[@]}" ./hello
    launch "${mpirun[@]}" ./hello twice
    check 'Open MPI, a second time' 1 $STATUS
    matches 'is refused' 'a process under mpirun can join ranks of other hosts once' "$ERR"
    launch env TUTTI_JOIN_TIMEOUT_MS=500 "${mpirun[@]}" ./hello stay
    check 'Open MPI, one that does not join' 1 $STATUS
    matches 'is told of' 'not all processes of the job have come to mpirun.s fence in time' "$ERR"
    launch "${mpirun[@]}" ./hello fail
    check 'Open MPI: a rank fails' 7 $STATUS
    OUT=$("${at_a[@]}" timeout 240 "${mpirun[@]::3}" -n 3 "$TUTTI" doctor 2>&1)
    check 'doctor' 3 "$(grep -c '^ok .*on several hosts, which meet by the launcher.s store (pmix)' <<<"$OUT")"
    if command -v mpicc.openmpi >/dev/null &&
        mpicc.openmpi -DWITH_MPI -I "$SRC/include" hello.c -o mpi -L "$BUILD" -ltutti "-Wl,-rpath,$BUILD"; then
        all=$(sort <<<"$all"$'\n'"$all")
        launched 'an MPI program, before MPI_Init and again' "${mpirun[@]}" ./mpi before
        launched 'an MPI program, after MPI_Init and again' "${mpirun[@]}" ./mpi after
        all=$(uniq <<<"$all")
    else
        echo 'not tested: MPI programs under mpirun (mpicc.openmpi is not installed)'
    fi
else
    echo 'not tested: Open MPI (mpirun.openmpi is not installed)'
fi

# ---- MPICH
if command -v mpiexec.hydra >/dev/null; then
    mpiexec=("$HYDRA" -launcher rsh -launcher-exec "$DIR/shell" -hosts 'a:2,b:2' -n 4)
    launched 'MPICH' "${mpiexec[@]}" ./hello
    check 'MPICH: nothing is complained of' '' "$ERR"
    launch "${mpiexec[@]}" ./hello fail
    check 'MPICH: a rank fails' 7 $STATUS
    launch "${mpiexec[@]}" env TUTTI_KEY_FILE= ./hello
    check 'MPICH, no key' 1 $STATUS
    matches 'and how to make one' 'make one with `tutti key FILE`' "$ERR"
else
    echo 'not tested: MPICH (mpiexec.hydra is not installed)'
fi

# ---- torchrun: an agent on each host, which holds the port where the ranks would meet. Some versions take no other way
# with output than to a log and from there to stdout.
# agents WHAT FLAG...: FLAG for both; {} is the number of the host
agents() {
    local what=$1
    shift
    set -- torchrun --no_python --nnodes 2 --nproc_per_node 2 --monitor_interval 0.05 -r 1 -t 1 --log_dir "$DIR/logs" "$@"
    nsenter -t "$b" -n -u timeout -k 1 240 "${@//\{\}/1}" ./hello >b.txt 2>b.err &
    "${at_a[@]}" timeout -k 1 240 "${@//\{\}/0}" ./hello >a.txt 2>a.err
    check "$what: status" 0 $?
    wait %%
    check "$what: status of the other" 0 $?
    check "$what" "$all" "$(sed 's/^\[default[0-9]*\]://' a.txt b.txt | sort)"
}
if timeout 240 torchrun --help 2>/dev/null | grep -q no_python; then
    agents 'torchrun, static' --node_rank {} --master_addr 10.9.0.1 --master_port 29500
    agents 'torchrun, c10d' --rdzv_backend c10d --rdzv_endpoint 10.9.0.1:29400 --rdzv_id test
else
    echo 'not tested: torchrun (it is not installed, or does not start)'
fi

# ---- tutti run itself
launched 'tutti run --hosts' "$TUTTI" run --hosts a,b --ssh "$DIR/shell" --no-prefix -n 2 ./hello
launch env TUTTI_RANKS=2 "$TUTTI" run --hosts a,b --ssh "$DIR/shell" -n 2 "$TUTTI" bench all -b 8 -e 64K -f 64 -n 2 -w 1 -m 1 \
    --floor 0
check 'every operation, of threads of processes of both: status' 0 $STATUS
matches 'of eight ranks' '8 ranks as .*, transport shm\+tcp,' "$OUT"
matches 'with nothing wrong' '# wrong elements: 0$' "$OUT"
finish
