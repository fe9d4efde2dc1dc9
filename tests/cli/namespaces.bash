# SPDX-License-Identifier: Apache-2.0
# For tests with hosts that are network namespaces: source it first, with the script's own arguments. The script is run again in
# namespaces of its own, as root, and sources run.bash. Host N has the address 10.77.0.N, and a cable `cableN` to a bridge, where the
# script itself is 10.77.0.254, and reaches them by a real ssh (-F $DIR/config). in_host N COMMAND... runs something there.
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
HOLDERS=()
for number in 1 2 3; do
    unshare --net sleep 600 &
    HOLDER=$!
    HOLDERS[number]=$HOLDER
    elsewhere() { [ "$(readlink "/proc/$HOLDER/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
    within 20 elsewhere
    ip link add cable$number type veth peer name eth0 netns $HOLDER || exit 1
    ip link set cable$number master br0 up
    nsenter -t $HOLDER -n sh -c "ip addr add 10.77.0.$number/24 dev eth0; ip link set eth0 up; ip link set lo up"
    nsenter -t $HOLDER -n "$sshd" -D -e -f sshd.conf -o ListenAddress=10.77.0.$number 2>>sshd.log &
    echo "10.77.0.$number $(cut -d' ' -f1,2 host.pub)" >>known
    within 30 timeout 10 ssh -F config -o BatchMode=yes 10.77.0.$number true 2>>ssh.log || { cat sshd.log ssh.log; exit 1; }
done
in_host() {
    local host=$1
    shift
    nsenter -t "${HOLDERS[$host]}" -n "$@"
}
now_ms() { awk '{printf "%d", $1 * 1000}' /proc/uptime; }
