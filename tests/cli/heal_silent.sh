#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120 waits
# A host that falls silent: three hosts, which are network namespaces joined by virtual cables, and a fourth for the launcher, which
# reaches them by a real ssh. A cable is pulled: the others are told, and go on with the host that waits; the ranks that are cut off
# are told so and ended, and do not go on when the cable is back.
self=$(realpath "$0")
[ -z "${SANITIZE:-}" ] || { echo 'skip: what it measures is the time of programs without sanitizers'; exit 77; }
sshd=$(PATH=$PATH:/usr/sbin:/sbin command -v sshd) || { echo 'skip: sshd is not installed (Debian: openssh-server)'; exit 77; }
for need in ssh ssh-keygen ip nsenter unshare; do
    command -v $need >/dev/null || { echo "skip: $need is not installed (Debian: openssh-client, iproute2, util-linux)"; exit 77; }
done
if [ "${1:-}" != inside ]; then
    [ "$(id -u)" = 0 ] || { echo 'skip: only root may lay cables between namespaces and serve ssh there'; exit 77; }
    unshare --net --mount true 2>/dev/null || { echo 'skip: namespaces may not be made here'; exit 77; }
    exec unshare --net --mount bash "$self" inside
fi
source "$(dirname "$self")/run.bash"
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$DIR"' EXIT

# ---- Hosts
mount -t tmpfs none /run && mkdir /run/sshd
for key in host user; do ssh-keygen -q -t ed25519 -N '' -f $key || exit 1; done
cat >sshd.conf <<END
HostKey $DIR/host
AuthorizedKeysFile $DIR/user.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
END
printf 'Host *\n  IdentityFile %s\n  IdentitiesOnly yes\n  UserKnownHostsFile %s\n  GlobalKnownHostsFile /dev/null\n' \
    "$DIR/user" "$DIR/known" >config
ip link add br0 type bridge 2>/dev/null || { echo 'skip: bridges (ip link add type bridge) cannot be made here'; exit 77; }
ip addr add 10.77.0.254/24 dev br0 && ip link set br0 up && ip link set lo up
for number in 1 2 3; do
    unshare --net sleep 600 &
    HOLDER=$!
    elsewhere() { [ "$(readlink "/proc/$HOLDER/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
    within 20 elsewhere
    ip link add cable$number type veth peer name eth0 netns $HOLDER || exit 1
    ip link set cable$number master br0 up
    nsenter -t $HOLDER -n sh -c "ip addr add 10.77.0.$number/24 dev eth0; ip link set eth0 up; ip link set lo up"
    nsenter -t $HOLDER -n "$sshd" -D -e -f sshd.conf -o ListenAddress=10.77.0.$number 2>>sshd.log &
    echo "10.77.0.$number $(cut -d' ' -f1,2 host.pub)" >>known
    within 30 timeout 10 ssh -F config -o BatchMode=yes 10.77.0.$number true 2>>ssh.log || { cat sshd.log ssh.log; exit 1; }
done

# ---- The job
cat >steps.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>
static void note(const char *file, const char *word)
{
    struct timespec now;
    FILE *to = fopen(file, "a");
    clock_gettime(CLOCK_MONOTONIC, &now);
    fprintf(to, "%lld %s\n", (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000, word);
    fclose(to);
}
static int work(tutti_comm *world, int argc, char **argv)
{
    tutti_comm *now = world, *next;
    char pid[32];
    (void)argc, (void)argv;
    snprintf(pid, sizeof pid, "%d %s", (int)getpid(), getenv("TUTTI_RANK"));
    note("ranks", pid);
    for (unsigned epoch = UINT_MAX;;) {
        int stop = access("stop", F_OK) == 0;
        if (tutti_all_reduce(now, &stop, &stop, 1, TUTTI_I32, TUTTI_MAX) == TUTTI_OK) {
            if (tutti_rank(now) == 0 && epoch != tutti_epoch(now)) note("epochs", tutti_epoch(now) > 0 ? "later" : "first");
            epoch = tutti_epoch(now);
            if (stop) break;
            usleep(5000);
            continue;
        }
        note("lost", tutti_status_name(tutti_comm_error(now)->status));
        tutti_status status = tutti_comm_rebuild(now, &next);
        if (status != TUTTI_OK) return note("told", tutti_status_name(status)), tutti_explain(now, stderr);
        now = next;
    }
    return now != world && tutti_comm_free(now) != TUTTI_OK;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
sed -i 's/#include <stdio.h>/#include <limits.h>\n#include <stdio.h>/' steps.c
compile steps
now_ms() { awk '{printf "%d", $1 * 1000}' /proc/uptime; }

# silence HOST ITS_RANKS: pulls its cable
silence() {
    local host=$1 ranks=$2 began lost whole
    rm -f stop ranks lost told epochs
    "$TUTTI" run --hosts 10.77.0.1,10.77.0.2,10.77.0.3 --spare 1 -n 2 --max-restarts 1 --ssh "ssh -F $DIR/config -o BatchMode=yes" \
        --no-prefix ./steps >out.txt 2>err.txt &
    local job=$!
    within 60 lines_in ranks 4
    within 60 lines_in epochs 1
    awk -v ranks="$ranks" 'index(ranks, $3) {print $2}' ranks >cut_off
    began=$(now_ms)
    ip link set "cable$host" down
    within 60 lines_in epochs 2
    within 20 gone cut_off
    check "host $host: the ranks that are cut off are ended" 0 $?
    lost=$(($(sort -n lost | head -1 | cut -d' ' -f1) - began)) whole=$(($(tail -1 epochs | cut -d' ' -f1) - began))
    echo "host $host: first told after $lost ms, whole again after $whole ms"
    check "host $host: told within 2.5 s (here 10)" 1 $((lost < 10000))
    check "host $host: whole within 5 s (here 20)" 1 $((whole < 20000))
    ip link set "cable$host" up
    touch stop
    ended $job
    check "host $host: status" 0 "$STATUS"
    matches "host $host: said" "^tutti run: host 10.77.0.$host has been silent for [0-9]+ ms and is lost" "$(cat err.txt)"
    matches "host $host: where" "^tutti run: the ranks of 10.77.0.$host are started again on 10.77.0.3" "$(cat err.txt)"
    check "host $host: no rank is told what others are not" '' "$(grep -v EXCLUDED told 2>/dev/null)"
    cut -d' ' -f2 ranks >all
    within 20 gone all
    check "host $host: nothing is left" 0 $?
}
silence 2 '2 3'
silence 1 '0 1'
finish
