#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan
# Command lines that are not accepted: status 2, and a message that helps.
source "$(dirname "$0")/run.bash"

refused "^tutti: unknown command 'rnu'; did you mean 'run'\?$" rnu
refused "^tutti: unknown command 'zzzzzz'; see tutti --help$" zzzzzz
refused "^tutti: unknown flag '--versoin'; did you mean '--version'\?$" --versoin
refused 'usage: tutti COMMAND'
refused "^tutti run: unknown flag '--rank'; did you mean '--ranks'\?$" run --rank 4 true
refused "^tutti run: unknown flag '--nn'; did you mean '--nnodes'\?$" run --nn 2 true
refused "^tutti run: unknown flag '--join-timeuot-ms'; did you mean '--join-timeout-ms'\?$" run --join-timeuot-ms 4 true
refused "^tutti run: unknown flag '--job'" run --job x true
refused "^tutti run: unknown flag '--log_dir'; did you mean '--log-dir'\?$" run --log_dir x true
refused "^tutti run: unknown flag '-z'; see tutti run --help" run -z true
refused "^tutti run: unknown flag '-x'; variables are passed on" run -x A true
refused "^tutti run: unknown flag '-H'; did you mean '--hosts'\?$" run -H a true
refused "^tutti run: unknown flag '--hostfile'; name the hosts, as in --hosts a,b:2$" run --hostfile x true
refused "^tutti run: unknown flag '--bind-to'; did you mean '--bind'\?$" run --bind-to core true
refused "^tutti run: unknown flag '--rdzv-endpoint'; say it as --master-addr" run --rdzv-endpoint a:1 true
refused "^tutti run: unknown flag '--no-python'; leave it out: the program is run as it is$" run --no-python true
refused "^tutti bench: unknown flag '--sizes'; sizes go from -b to -e, times -f or plus -i$" bench --sizes 8
refused "^tutti train: unknown flag '--epochs'; did you mean '--steps'\?$" train --epochs 3
refused "^tutti sim: unknown flag '--sizes'; see tutti sim --help$" sim all_reduce --sizes 8
refused '^tutti run: -n: "0" is out of range; give a whole number from 1 to 65536$' run -n 0 true
refused '^tutti run: -n: "-1" is out of range' run -n -1 true
refused '^tutti run: -n: "65537" is out of range' run -n65537 true
refused '^tutti run: -n: "4x" is not understood' run -n4x true
refused "^tutti run: unknown flag '-np'; did you mean '-n'\\?$" run -np 4 true
refused '^tutti run: -n: the value is empty' run -n '' true
refused '^tutti run: --hosts: the value is empty; leave the flag out$' run --hosts '' true
refused '^tutti run: --trace: the value is empty; leave the flag out$' run --trace= true
refused '^tutti run: ./a\?b\?\[31m: not found$' run $'./a\nb\e[31m'
refused '^tutti run: --ranks: "99999999999999999999" is out of range' run --ranks=99999999999999999999 true
refused '^tutti run: -n needs a value$' run -n
refused '^tutti run: --bind needs a value$' run --bind
refused "^tutti run: --bind: 'cores' is not one of core\|none; did you mean 'core'\?$" run --bind cores true
refused "^tutti run: the option transport is \"tpc\"; it takes auto, shm or tcp; did you mean tcp\?$" run --transport tpc true
refused '^tutti run: TUTTI_LOG is "wran"; .*; did you mean warn\?$' run --log wran true
TUTTI_TRANSPORT=tpc refused 'did you mean tcp' run true
TUTTI_DEADLINE_MS=5h refused '^tutti run: TUTTI_DEADLINE_MS: "5h" is not understood' run true
TUTTI_LAUNCHER=slrum refused '^tutti run: TUTTI_LAUNCHER is "slrum"; .*; did you mean slurm\?$' run true
refused '^tutti run: --ssh needs --hosts: which hosts' run --ssh rsh true
refused '^tutti run: --remote-tutti needs --hosts' run --remote-tutti /x true
refused '^tutti run: --env needs --hosts' run --nnodes 2 --env HOME true
refused '^tutti run: --master-port needs --nnodes or --hosts' run --master-port 4000 true
refused 'did you mean tcp' run --hosts nobody --transport tpc true
refused '"no-such-if" is no network interface of this host' run --transport tcp --interface no-such-if true
refused '^tutti run: the option ports is "5-x"; give LOW-HIGH' run --transport tcp --ports 5-x true
refused '^tutti run: the key file ./no-key cannot be opened' run --transport tcp --key-file ./no-key true
refused '^tutti run: the option tuning: ./no-sizes: cannot be opened' run --tuning ./no-sizes true
refused '^tutti run: the trace ./no-folder/x cannot be written; see TUTTI_TRACE \(No such' run --trace ./no-folder/x true
tool run --interface no-such-if true
check 'an interface matters only where the network is used' 0 $STATUS
refused '^tutti run: --tee takes no value$' run --tee=1 true
refused '^tutti run: --deadline-ms: "5h" is not understood; give a time from 1 to' run --deadline-ms 5h true
refused '^tutti run: --arena-bytes: "1X" is not understood; give a size from 0 to' run --arena-bytes 1X true
refused '^tutti run: no program given; usage: tutti run' run -n 4
refused '^tutti run: no program given' run -n 4 --
refused '^tutti run: ./missing: not found$' run -n 4 ./missing
refused '^tutti run: no-such-program: not found on PATH$' run -n 4 no-such-program
refused '^tutti run: /: is a folder' run -n 4 /
refused "^tutti run: the program's name is empty" run -n 4 ''
echo 'echo hi' >my-script
refused '^tutti run: ./my-script: not executable' run -n 4 ./my-script
chmod +x my-script
refused '^tutti run: my-script: not found on PATH; did you mean ./my-script\?$' run -n 4 my-script

tool run -n 2 ./my-script
check 'a script without #! runs, as in a shell' $'[0] hi\n[1] hi' "$(sort <<<"$OUT")"
tool run -n2 -- sh -c 'printf "%s " "$@"' sh -n 7 --tee
check 'flags after the program are its own' '[0] -n 7 --tee ' "$(sort <<<"$OUT" | head -1)"
printf '#!/no/such/interpreter\n' >bad
chmod +x bad
tool run -n 2 ./bad
check 'exec fails' 2 $STATUS
matches 'exec fails' '^tutti run: rank [01]: cannot execute ./bad: No such file' "$ERR"

ERR=$(ulimit -n 256 && "$TUTTI" run -n 100 true 2>&1)
check 'too few descriptors' 2 $?
check 'the limit is named' 'tutti run: 100 ranks need 464 open files, but the limit is 256 (RLIMIT_NOFILE, ulimit -n): raise it' "$ERR"
ERR=$(ulimit -n 80 && "$TUTTI" run -n 8 true 2>&1)
matches 'what needs fewer is said where that is enough' 'raise it, or give --log-dir without --tee, which needs fewer$' "$ERR"
mkdir gone
ERR=$(cd gone && rmdir ../gone && "$TUTTI" run --hosts nobody -n 2 true 2>&1)
check 'a folder that is gone' '2 tutti run: the current folder: No such file or directory' "$? $ERR"
OUT=$(ulimit -Sn 70 && "$TUTTI" run -n 40 --no-prefix bash -c 'ulimit -Sn' 2>&1 | sort -u)
check 'a soft limit is raised for the launcher only' 70 "$OUT"
if [ "$(id -u)" -ne 0 ]; then
    mkdir -m 0 closed
    refused '^tutti run: closed/x: Permission denied, for a folder that it is in$' run closed/x
    ERR=$(ulimit -u 50 && exec "$TUTTI" run -n 100 true 2>&1)
    check 'too few processes' 2 $?
    matches 'the limit is named' 'RLIMIT_NPROC' "$ERR"
fi

for word in help --help -h; do
    tool help $word
    check "help $word" "0 $("$TUTTI" help)" "$STATUS $OUT"
done
tool -V
matches '-V' '^tutti [0-9]+\.' "$OUT"
tool --version
matches 'version' '^tutti [0-9]+\.[0-9]+\.[0-9]+$' "$OUT"
for command in run bench doctor; do
    tool $command --help
    check "tutti $command --help" 0 $STATUS
    matches 'usage' "^usage: tutti $command" "$OUT"
    tool help $command
    check "tutti help $command" 0 $STATUS
done
tool --help
matches 'commands are listed' '^  run ' "$OUT"
matches 'a long name stands apart from what the command does' '^  faultbench +kill ranks' "$OUT"
check 'examples stand alone in their lines' 1 "$(grep -c '^  tutti bench all_reduce -b 8 -e 64M -f 8 --ranks 2$' <<<"$OUT")"
tool sample --help
matches 'a default that is no word' 'default a new line' "$(tr -s ' \n' ' ' <<<"$OUT")"
"$TUTTI" --help >/dev/full 2>/dev/null
check 'help that cannot be written' 1 $?

tool help --man
check 'man page' 0 $STATUS
for name in ranks bind grace log join; do matches 'man page has the flags' "\\\\-\\\\-$name" "$OUT"; done
for name in TUTTI_JOB TUTTI_DEADLINE_MS TUTTI_LOG; do matches 'man page has the environment' "^\.B $name" "$OUT"; done
if command -v groff >/dev/null; then
    check 'man page has no roff errors' '' "$(groff -man -ww -z out.txt 2>&1)"
fi
finish
