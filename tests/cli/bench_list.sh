#!/bin/bash
# ctest: timeout=60
# What tutti bench refuses, before anything is started, and what it suggests instead.
. "$(dirname "$0")/run.bash"

tool bench --list
check "list: status" 0 "$STATUS"
for op in all_reduce reduce broadcast all_gather gather scatter reduce_scatter all_to_all scan exscan barrier \
    ping_pong all_gather_v gather_v scatter_v reduce_scatter_v all_to_all_v; do
    matches "list: $op has a line with its meaning" "^$op +[a-z].* " "$OUT"
done

refuses() { # WHAT PATTERN ARGUMENT...
    local what=$1 pattern=$2
    shift 2
    tool bench "$@"
    check "$what: status" 2 "$STATUS"
    check "$what: nothing on stdout" "" "$OUT"
    matches "$what: the reason" "$pattern" "$ERR"
}
refuses "sizes the wrong way round" "smallest size comes first" -b 1M -e 1K
refuses "step of nothing" "out of range" -i 0
refuses "factor of one" "out of range" -f 1
refuses "step and factor" "exclude each other" -i 8 -f 2
refuses "operation" "did you mean 'all_reduce'" all_redcue
refuses "program of nccl-tests, misspelt" "did you mean 'all_gather'" all_gahter_perf
refuses "program of nccl-tests that goes by another name" "did you mean 'ping_pong'" sendrecv_perf
refuses "program of nccl-tests that is none here" "unknown operation 'hypercube_perf'" hypercube_perf
for name in all_gather_perf alltoall_perf allreduce; do
    tool bench $name -b 8 -e 8 -n 1 -w 0 --ranks 2 --json -
    matches "$name: another name" "^{\"op\":\"all_(gather|to_all|reduce)\"," "$OUT"
done
for as in threads processes; do
    tool bench broadcast --json -b 8 -e 8 -n 1 -w 0 --ranks 2 --as $as --json
    matches "$as: --json without a value is stdout" '^{"op":"broadcast",' "$OUT"
done
refuses "an operation in the place of a file" "^tutti bench: --json all_reduce: that is an operation" -b 8 -e 8 --json all_reduce
refuses "all of them there" "^tutti bench: --json all: that is an operation" --json all
check 'and no such file was made' '' "$(ls all all_reduce - 2>/dev/null)"
"$TUTTI" bench all_reduce -b 8 -e 8 -n 1 -w 0 --ranks 2 --as processes >&- 2>err.txt
check 'a closed stdout, as processes' "1 tutti bench: cannot write the results to stdout: Bad file descriptor" "$? $(cat err.txt)"
refuses "operation unlike any" "list names them" quux
refuses "two operations" "one operation at a time" all_reduce -b 8 reduce
refuses "type" "did you mean 'float'" -d flaot
refuses "reduction" "did you mean 'prod'" -o prd
refuses "reduction of bits on floats" "and|float" all_reduce -o and -d f32 --ranks 2
refuses "flag" "did you mean '--ranks'" --rnks 2
refuses "flag of nccl-tests" "unknown flag '-g'; did you mean '--ranks'" all_reduce -g 8
refuses "root" "ranks are 0 to 1" broadcast --ranks 2 --root 2
refuses "as" "did you mean 'threads'" --as thread
refuses "transport of processes between threads" "between threads it is thread" --transport shm
refuses "transport" "auto.thread.shm" --transport pigeon
for flag in 'barrier --json' 'barrier --trace' --tune; do
    # shellcheck disable=SC2086 # words
    refuses "$flag to a folder that is not there" "cannot write no/such/file: No such" --ranks 2 $flag no/such/file
done
refuses "an operation to tune for" "what all operations go by, not 'reduce'" reduce --tune sizes
refuses "sizes as JSON" "no JSON" --tune sizes --json x
refuses "an interface that is not there" '"no-such-if" is no network interface' barrier --transport tcp --interface no-such-if
refuses "the same of processes" '"no-such-if" is no network' barrier --as processes --transport tcp --interface no-such-if
refuses "--trace of processes likewise" "cannot write no/such/file: No such" barrier --ranks 2 --as processes \
    --trace no/such/file
refuses "ping_pong alone" "two ranks" ping_pong --ranks 1
TUTTI_JOB=x TUTTI_RANK=0 TUTTI_SIZE=2 refuses "threads inside a job" "a rank of a job" --as threads

finish
