#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=300 waits
# `tutti run --hosts` by a real ssh to a real sshd with keys and settings of its own: one server per connection, started by
# the client as its proxy, so that there is no port and nothing that stays.
source "$(dirname "$0")/run.bash"
sshd=$(PATH=$PATH:/usr/sbin:/sbin command -v sshd) || { echo 'skip: sshd is not installed (Debian: openssh-server)'; exit 77; }
for need in ssh ssh-keygen; do
    command -v $need >/dev/null || { echo "skip: $need is not installed (Debian: openssh-client)"; exit 77; }
done

for key in host user stranger; do ssh-keygen -q -t ed25519 -N '' -f $key || exit 1; done
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
# As root the server wants a folder in /run, which it gets in a namespace of its own.
cat >proxy <<END
#!/bin/sh
echo \$\$ >>$DIR/servers
serve="exec $sshd -i -e -f $DIR/sshd.conf"
[ \$(id -u) = 0 ] && [ ! -d /run/sshd ] || exec sh -c "\$serve" 2>>$DIR/sshd.log
exec unshare --mount sh -c "mount -t tmpfs none /run && mkdir /run/sshd && \$serve" 2>>$DIR/sshd.log
END
chmod +x proxy
cat >config <<END
Host stranger
  IdentityFile $DIR/stranger
Host a b unknown
  IdentityFile $DIR/user
Host *
  IdentitiesOnly yes
  ProxyCommand $DIR/proxy
  UserKnownHostsFile $DIR/known
  GlobalKnownHostsFile /dev/null
END
for host in a b stranger; do echo "$host $(cut -d' ' -f1,2 host.pub)"; done >known
if ! timeout 60 ssh -F config -o BatchMode=yes a true >ssh.log 2>&1; then
    echo 'skip: a private sshd does not serve here:'
    tail -n 5 ssh.log sshd.log
    exit 77
fi
over=(run --master-addr localhost --ssh "ssh -F $DIR/config -o BatchMode=yes")

# ---- What runs
tool "${over[@]}" --hosts a,b:2 -n 1 sh -c 'echo "$RANK of $WORLD_SIZE in $PWD"'
check 'status' 0 $STATUS
check 'ranks, in this folder' "$(printf '[%d] %d of 3 in %s\n' 0 0 "$DIR" 1 1 "$DIR" 2 2 "$DIR")" "$(sort <<<"$OUT")"
check 'nothing else is said' '' "$ERR"
cat >hello.c <<'END'
#include <stdio.h>
#include <tutti/tutti.h>
static int work(tutti_comm *world, int argc, char **argv)
{
    int x = tutti_rank(world);
    (void)argc, (void)argv;
    if (tutti_all_reduce(world, &x, &x, 1, TUTTI_I32, TUTTI_SUM) != TUTTI_OK) return tutti_explain(world, stderr);
    return printf("%d\n", x) > 0 ? 0 : 1;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
END
compile hello
tool "${over[@]}" --hosts a,b -n 2 ./hello
check 'ranks that join: status' 0 $STATUS
check 'ranks that join' $'[0] 6\n[1] 6\n[2] 6\n[3] 6' "$(sort <<<"$OUT")"
tool "${over[@]}" --hosts a,b bash -c '[ $RANK = 0 ] || exit 7; sleep 600'
check 'the status of a rank' 7 $STATUS

# ---- Whom ssh does not let in
tool "${over[@]}" --hosts a,stranger sleep 600
check 'a key that is not known there' 2 $STATUS
matches 'ssh says why' 'Permission denied' "$ERR"
matches 'and which host it was' '^tutti run: host stranger: ssh exited with status 255 before the job began there' "$ERR"
tool "${over[@]}" --hosts a,unknown sleep 600
check 'a host whose key is not known here' 2 $STATUS
matches 'and which host it was' '^tutti run: host unknown: ssh exited with status 255 before' "$ERR"

# ---- Ends: everything of the job, on both sides
# start: a job of ranks that would run for minutes, two on each host; LAUNCHER is its pid
start() {
    rm -f pids servers guards
    "$TUTTI" "${over[@]}" --hosts a,b -n 2 --grace-ms 300 bash -c 'echo $PPID >>guards; echo $$ >>pids; exec sleep 600' \
        >out.txt 2>err.txt &
    LAUNCHER=$!
    trap 'kill $LAUNCHER 2>/dev/null; rm -rf "$DIR"' EXIT
    within 60 lines_in pids 4
}
cleared() {
    within 60 gone pids
    check "$1: no rank is left" 0 $?
    within 60 gone guards
    check "$1: no guard is left" 0 $?
    within 60 gone servers
    check "$1: no connection is left" 0 $?
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
kill -KILL "$(head -1 servers)" # the network breaks: the far end of ssh is gone
ended $LAUNCHER
check 'a connection breaks' 1 "$((STATUS != 0))"
matches 'it is said which' '^tutti run: .*host [ab]' "$(cat err.txt)"
cleared 'a connection breaks'
start
kill -KILL "$(head -1 guards)"
ended $LAUNCHER
check 'a guard is killed' 1 "$((STATUS != 0))"
cleared 'a guard is killed'
finish
