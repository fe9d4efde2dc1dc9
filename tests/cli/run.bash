# SPDX-License-Identifier: Apache-2.0
# For the tests of the tool: source it first. TUTTI is the tool. Every wait polls for a condition, with a deadline.
set -u -m # -m: background jobs get SIGINT as a terminal's foreground job would

: "${TUTTI:=${BUILD:-build}/tutti}"
[ -x "$TUTTI" ] || { echo "skip: no tool at $TUTTI"; exit 77; }
TUTTI=$(realpath "$TUTTI")

HYDRA=$(realpath "$(dirname "${BASH_SOURCE[0]}")/hydra") # MPICH's mpiexec
DIR=$(mktemp -d) || exit 1
trap 'rm -rf "$DIR"' EXIT
cd "$DIR" || exit 1
PASSED=0 FAILED=0

# check WHAT WANTED GOT
check() {
    if [ "$2" = "$3" ]; then
        PASSED=$((PASSED + 1))
    else
        FAILED=$((FAILED + 1))
        printf 'FAIL %s\n  wanted: %q\n  got:    %q\n' "$1" "$2" "$3"
    fi
}

# matches WHAT PATTERN GOT: the extended regular expression must match a line
matches() {
    if grep -Eq -- "$2" <<<"$3"; then
        PASSED=$((PASSED + 1))
    else
        FAILED=$((FAILED + 1))
        printf 'FAIL %s\n  wanted a line like: %s\n  got: %q\n' "$1" "$2" "$3"
    fi
}

# beside WHAT [VARIABLE=VALUE...] PROGRAM [ARGUMENT...]: runs a program of tests beside up to BESIDE - 1 others, for those that mostly
# wait; `together` waits for all that were begun, and checks that each ended with status 0
BESIDE=3 BEGUN=() AWAITED=0
beside() {
    [ $((${#BEGUN[@]} - AWAITED)) -lt $BESIDE ] || await_one
    env "${@:2}" >"beside.${#BEGUN[@]}" 2>&1 &
    BEGUN+=("$! $1")
}
await_one() {
    wait "${BEGUN[AWAITED]%% *}"
    STATUS=$?
    OUT=$(grep -aE '\.c:[0-9]+: ' "beside.$AWAITED" | head -n 5; tail -n 3 "beside.$AWAITED")
    check "${BEGUN[AWAITED]#* } ($OUT)" 0 $STATUS
    AWAITED=$((AWAITED + 1))
}
together() {
    while [ $AWAITED -lt ${#BEGUN[@]} ]; do await_one; done
}

# tool ARGUMENT...: runs it with a deadline; leaves OUT, ERR and STATUS
tool() {
    timeout -k 1 240 "$TUTTI" "$@" >out.txt 2>err.txt
    STATUS=$?
    OUT=$(cat out.txt)
    ERR=$(cat err.txt)
}

# refused PATTERN ARGUMENT...: status 2, nothing on stdout, and a message that matches
refused() {
    local pattern=$1
    shift
    tool "$@"
    check "status of: $*" 2 $STATUS
    check "stdout of: $*" '' "$OUT"
    matches "message of: $*" "$pattern" "$ERR"
}

# compile NAME: NAME.c, a program that uses the library, to NAME
compile() {
    "${CC:-cc}" -I "${SRC:?}/include" "$1.c" -o "$1" -L "${BUILD:?}" -ltutti "-Wl,-rpath,$BUILD" || exit 1
}

# make_shell: ./shell stands for ssh; whatever the host, the command is run here
make_shell() {
    printf '#!/usr/bin/env bash\nwhile [ "${1#-}" != "$1" ]; do shift; done\nshift\nexec bash -c "$*"\n' >shell
    chmod +x shell
}

# within SECONDS COMMAND...: polls until the command succeeds
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || { echo "gave up waiting for: $*"; return 1; }
        sleep 0.02
    done
}

lines_in() { [ -f "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]; }

# gone FILE: no process listed in FILE lives any more (a zombie that nobody has reaped yet is dead)
gone() {
    local pid state
    while read -r pid; do
        state=$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2>/dev/null) || continue
        [ "$state" = Z ] || [ -z "$state" ] || return 1
    done <"$1"
}

# children_of PID
children_of() {
    local stat pid rest
    for stat in /proc/[0-9]*/stat; do
        read -r pid rest <"$stat" || continue
        rest=${rest##*) }
        set -- "$1" $rest
        [ "$3" != "$1" ] || echo "$pid"
    done 2>/dev/null
}

is_gone() { gone <(echo "$1"); } # a pipe can be read once: a new one for every look

# ended PID: waits for a job of this shell, and leaves STATUS; one that does not end in time is killed
ended() {
    within 240 is_gone "$1" || kill -KILL "$1"
    wait "$1"
    STATUS=$?
}

finish() {
    echo "$PASSED passed, $FAILED failed"
    [ "$FAILED" -eq 0 ]
    exit
}
