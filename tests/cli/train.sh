#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=240 labels=asan
# tutti train, sample and ckpt: threads and processes, stopped by Ctrl-C and by SIGKILL and resumed, config file, metrics,
# a full disk, and what is refused.
source "$(dirname "$0")/run.bash"

SMALL=(--data text --layers 1 --heads 2 --width 16 --context 8 --batch 8 --steps 12 --val-every 5 --check-every 4)
for _ in $(seq 40); do echo 'the quick brown fox jumps over the lazy dog 0123456789'; done >text

hash_of() { sed -n "s/^weights \([0-9a-f]*\) after step ${1:-12}\$/\1/p" <<<"$OUT"; } # [STEP]

tool train gpt "${SMALL[@]}" --save one --metrics m.jsonl --plot loss.svg
if [ $STATUS != 0 ] && grep -q 'OpenBLAS' <<<"$ERR"; then
    echo "skipped: $ERR"
    exit 77
fi
check 'status' 0 $STATUS
check 'stderr' '' "$ERR"
wanted=$(hash_of)
matches 'weights' '^[0-9a-f]{16}$' "$wanted"
matches 'first loss is about ln 256' '^step 1/12  loss 5\.[4-6]' "$OUT"
check 'a line of metrics per step' 12 "$(wc -l <m.jsonl)"
matches 'metrics' '^\{"step": 10, "loss": [0-9.]+, "val_loss": [0-9.]+, "lr": [0-9.e-]+, .*"comm_share": [0-9.]+, "bytes": \{"parameters": [0-9]+,.*"weights_hash": null\}$' "$(sed -n 10p m.jsonl)"
matches 'metrics: hash' "\"weights_hash\": \"$wanted\"" "$(sed -n 12p m.jsonl)"
matches 'plot' '^<polyline .*points="' "$(cat loss.svg)"

for what in cpu blas kernels; do
    matches "the checkpoint names the machine: $what" "\"machine\.$what\": ?\"[^\"]+\"" "$(cat one/step-00000012/index.json)"
done
header=$(head -c 4000 one/step-00000012/model.safetensors | tr -c '[:print:]' '\n')
for tensor in '"wte.weight":{"dtype":"F32","shape":\[256,16\]' '"wpe.weight":{"dtype":"F32","shape":\[8,16\]' \
    '"h.0.attn.c_attn.weight":{"dtype":"F32","shape":\[16,48\]' '"h.0.mlp.c_proj.bias":{"dtype":"F32","shape":\[16\]' \
    '"ln_f.weight":{"dtype":"F32","shape":\[16\]'; do
    check "GPT-2's names and shapes: $tensor" 1 "$(grep -c "$tensor" <<<"$header")"
done

# The same weights on other ranks
tool train gpt "${SMALL[@]}" --ranks 3
check 'three threads' "$wanted" "$(hash_of)"
tool run -n 2 --no-prefix "$TUTTI" train gpt "${SMALL[@]}"
check 'two processes' "$wanted" "$(hash_of)"
TUTTI_TRANSPORT=tcp tool run -n 3 --no-prefix "$TUTTI" train gpt "${SMALL[@]}"
check 'three processes over tcp' "$wanted" "$(hash_of)"
tool run -n 2 --no-prefix "$TUTTI" train gpt "${SMALL[@]}" --zero 1 --save sharded
check 'the optimizer shared out' "$wanted" "$(hash_of)"
for file in model optimizer; do
    check "the optimizer shared out: $file" 0 "$(cmp one/step-00000012/$file.safetensors sharded/step-00000012/$file.safetensors; echo $?)"
done
TUTTI_TRANSPORT=tcp tool run -n 3 --no-prefix "$TUTTI" train gpt "${SMALL[@]}" --zero 1
check 'the optimizer shared out, over tcp' "$wanted" "$(hash_of)"
for zero in 2 3; do
    tool run -n 2 --no-prefix "$TUTTI" train gpt "${SMALL[@]}" --zero $zero --save sharded$zero
    check "zero $zero" "$wanted" "$(hash_of)"
    for file in model optimizer; do
        check "zero $zero: $file" 0 "$(cmp one/step-00000012/$file.safetensors sharded$zero/step-00000012/$file.safetensors; echo $?)"
    done
    TUTTI_TRANSPORT=tcp tool run -n 3 --no-prefix "$TUTTI" train gpt "${SMALL[@]}" --zero $zero
    check "zero $zero over tcp" "$wanted" "$(hash_of)"
done
tool train gpt "${SMALL[@]}" --ranks 4 --mesh data=2,shard=2 --zero 3
check 'zero 3 in two replicas' "$wanted" "$(hash_of)"
tool train gpt "${SMALL[@]}" --ranks 4 --mesh data=2,shard=2
matches 'shards of nothing' 'give zero 1, 2 or 3' "$ERR"
tool train gpt "${SMALL[@]}" --ranks 2 --mesh data=2,tensor=1
check 'a mesh of data' "$wanted" "$(hash_of)"
tool run -n 4 --no-prefix "$TUTTI" train gpt "${SMALL[@]}" --mesh data=2,pipe=2 --pipeline zb-h1 --timeline pipe.svg --save staged --metrics staged.jsonl
check 'in two stages' "$wanted" "$(hash_of)"
matches 'how idle a pipeline is' 'pipeline zb-h1: idle for [0-9.]*% of a step.s time, by the table [0-9.]*%' "$OUT"
matches 'metrics of a pipeline' '"idle": [0-9.e-]+, "predicted_idle": [0-9.e-]+, .*"weights_hash": ' "$(sed -n 12p staged.jsonl)"
matches 'metrics without a pipeline' '"idle": null, "predicted_idle": null, ' "$(sed -n 12p m.jsonl)"
check 'the timeline has a row per rank' 4 "$(grep -c '>rank [0-3]<' pipe.svg)"
matches 'the timeline says how many pipes there are' '>2 pipes of 2 ranks, 4 micro-batches; makespan ' "$(cat pipe.svg)"
matches 'the timeline is of a step, not of the validation after it' '<title>rank 0, W0: [0-9.e-]+ to [0-9.e-]+</title>' "$(grep -v 'width="0.0' pipe.svg)"
for file in model optimizer; do
    check "in two stages: $file" 0 "$(cmp one/step-00000012/$file.safetensors staged/step-00000012/$file.safetensors; echo $?)"
done
tool pipeline zb-h1 --ranks 2 --micro 4
printf '%s\n' "$OUT" >table
tool train gpt "${SMALL[@]}" --ranks 2 --mesh pipe=2 --pipeline table
check 'a table from a file' "$wanted" "$(hash_of)"
tool train gpt "${SMALL[@]}" --ranks 3 --mesh pipe=3 --pipeline table
matches 'a table of other ranks' 'pipeline table: the table has 2 ranks, and the mesh pipe=3' "$ERR"
sed 's/ W3//' table >lacking # on rank 0
sed '/^rank 1/s/ F1/ F1 F1/' table >twice
sed '/^rank 1/s/F0 I0/I0 F0/' table >waits
for row in 'lacking:rank 0 has no step W3' 'twice:rank 1 does F1 twice, as its steps 3 and 4' "waits:deadlock: rank 1's step 1, I0, waits for F0 of rank 1"; do
    tool train gpt "${SMALL[@]}" --ranks 2 --mesh pipe=2 --pipeline "${row%%:*}"
    check "a table, ${row%%:*}: status" 2 "$STATUS"
    matches "a table, ${row%%:*}" "^tutti train: pipeline ${row%%:*}: ${row#*:}" "$ERR"
done
tool train gpt "${SMALL[@]}" --ranks 4 --mesh data=2,pipe=2 --zero 3
check 'a pipe with zero 3' "$wanted" "$(hash_of)"
tool run -n 3 --no-prefix "$TUTTI" train gpt "${SMALL[@]}" --accumulate 2 --timeline rows.svg
check 'a timeline without a pipe' 0 "$STATUS"
check 'a row per rank' 3 "$(grep -c '>rank [012]<' rows.svg)"
check 'two passes forward and backward on each' 12 "$(grep -c '<title>rank [012], [FB][01]: ' rows.svg)"
tool train gpt "${SMALL[@]}" --ranks 6 --mesh pipe=2,tensor=2
matches 'a mesh that does not fit' 'mesh pipe=2,tensor=2 needs a multiple of 4 ranks; this job has 6' "$ERR"

# The command of README.md: nothing but it, where the data are and the ranks
command=$(grep -o '`tutti train gpt --mesh data=2,pipe=2,tensor=2 [^`]*`' "$SRC/README.md" | tr -d '`')
matches 'the command of README.md' '--zero 1 --pipeline zb-h1 --micro 8$' "$command"
# shellcheck disable=SC2086 # words
tool run -n 8 --no-prefix "$TUTTI" ${command#tutti } --data text --steps 2
check 'the command of README.md: status' 0 $STATUS
whole=$(hash_of 2)
tool train gpt --data text --steps 2
check 'the command of README.md: one rank' "$whole" "$(hash_of 2)"
matches 'the command of README.md: it has weights' '^[0-9a-f]{16}$' "$whole"
tool train gpt --data text --steps 2 --ranks 8 --mesh tensor=8 --heads 8
matches 'more ranks than width grains' 'tensor=8: 4 width grains go to 1, 2 or 4 ranks; --width-grains 8 allows it' "$ERR"
tool train gpt --data text --steps 2 --ranks 4 --mesh data=2,pipe=2 --micro 9
matches 'more micro-batches than grains' 'the 8 grains of a rank; --micro 8 or --grains 18 --batch 18 allows it' "$ERR"

# Ranks that share the width of each layer
tool train gpt "${SMALL[@]}" --width-grains 2 --save grains
grains=$(hash_of)
matches 'width grains' '^[0-9a-f]{16}$' "$grains"
tool run -n 4 --no-prefix "$TUTTI" train gpt "${SMALL[@]}" --width-grains 2 --mesh data=2,tensor=2 --save wide
check 'tensor=2' "$grains" "$(hash_of)"
for file in model optimizer; do
    check "tensor=2: $file" 0 "$(cmp grains/step-00000012/$file.safetensors wide/step-00000012/$file.safetensors; echo $?)"
done
TUTTI_TRANSPORT=tcp tool run -n 2 --no-prefix "$TUTTI" train gpt "${SMALL[@]}" --width-grains 2 --mesh tensor=2 --zero 1
check 'tensor=2 over tcp' "$grains" "$(hash_of)"
TUTTI_TRANSPORT=tcp tool run -n 4 --no-prefix "$TUTTI" train gpt "${SMALL[@]}" --width-grains 2 --mesh pipe=2,tensor=2 --sequence --pipeline zb-h1 --micro 4
check 'pipe=2,tensor=2 with sequence over tcp' "$grains" "$(hash_of)"
tool sample grains --tokens 20 --seed 3
sampled=$OUT
tool sample wide --tokens 20 --seed 3
check 'a sample' "0 $sampled" "$STATUS $OUT"
tool train gpt "${SMALL[@]}" --steps 14 --width-grains 2 --save grains --resume
tool train gpt "${SMALL[@]}" --steps 14 --width-grains 2 --save wide --resume --ranks 2 --mesh tensor=2
check 'resumed with tensor=2' "$(cksum <grains/step-00000014/model.safetensors)" "$(cksum <wide/step-00000014/model.safetensors)"
tool train gpt "${SMALL[@]}" --steps 15 --width-grains 1 --save wide --resume
matches 'other width grains' 'resuming with 1 width grains, the checkpoint has 2' "$ERR"
tool train gpt "${SMALL[@]}" --ranks 2 --mesh tensor=2
matches 'too few width grains' 'tensor=2: 1 width grain goes to 1 rank; --width-grains 2 allows it' "$ERR"
awk 'BEGIN { OFS = ","; for (i = 0; i < 200; i++) print i % 7, i * 3 % 11, i % 5, i * i % 3 }' >points.csv
MLP=(mlp --data points.csv --layers 4 --width 64 --batch 8 --steps 4)
tool train "${MLP[@]}"
wanted_mlp=$(hash_of 4)
matches 'mlp: it has weights' '^[0-9a-f]{16}$' "$wanted_mlp"
for row in 2:tensor=2 4:pipe=2,tensor=2 8:data=2,pipe=2,tensor=2; do
    tool train "${MLP[@]}" --ranks "${row%%:*}" --mesh "${row#*:}"
    check "mlp: ${row#*:}" "$wanted_mlp" "$(hash_of 4)"
done
tool train gpt "${SMALL[@]}" --ranks 2 --mesh tensor=2 --fast
check 'fast: as many width grains as ranks' 0 $STATUS
tool train gpt "${SMALL[@]}" --width-grains 3
matches 'heads that cannot be cut' 'its 2 heads cannot be cut into 3 width grains; --width-grains 2 can be' "$ERR"

tool train gpt "${SMALL[@]}" --zero 7
matches 'no such sharing' 'zero' "$ERR"
cat >config <<END
# the same as a file
model gpt
data = text
layers 1
heads 2
width 16
context 8
batch 8
steps 99
val-every 5
check_every 4
fast no
END
tool train --config config --steps 12 --ranks 2
check 'config file, and flags before it' "$wanted" "$(hash_of)"

# The example of --help and of docs/training.md
"$TUTTI" train --help | sed -n '/small.conf: /,/^$/s/^      //p' >small.conf
check 'the example in docs/training.md' "$(cat small.conf)" "$(sed -n '/^# small.conf/,/^```/p' "$SRC/docs/training.md" | sed '$d')"
mkdir src
cp text src/text
tool train --config small.conf --ranks 2
check 'the example of --help: status' '0 ' "$STATUS $ERR"
matches 'the example of --help: it trains' '^step 30/30  loss' "$OUT"
example=$(hash_of 30)
matches 'the example of --help: it has weights' '^[0-9a-f]{16}$' "$example"
tool train gpt --data src --layers 2 --heads 2 --width 32 --context 16 --batch 8 --steps 30 --lr 0.004 --end-lr 0.0004 \
    --val-every 10
check 'the example of --help: the same as flags' "$example" "$(hash_of 30)"
tool train --config small.conf --lr 0.01
matches 'the command line holds' '^[0-9a-f]{16}$' "$(hash_of 30 | grep -v "$example")"
printf 'data=a=b =\nmodel mlp' >odd.conf
tool train --config odd.conf
matches 'a value has spaces and =' 'a=b =' "$ERR"

# In a trace only what the tool itself calls, outside the trainer, is the caller's own
tool train gpt "${SMALL[@]}" --save traced --steps 6
tool train gpt "${SMALL[@]}" --save traced --resume --ranks 3 --grains 8 --trace trace.json
check 'trace: status' 0 $STATUS
named() { sed -n 's/^{"name":"\([^"]*\)","ph":"X","pid":0,.*"cat":"'"$1"'".*/\1/p' trace.json | sort -u | tr '\n' ' '; }
check "trace: the caller's own" 'all_reduce barrier broadcast ' "$(named operation)"
internal='checkpoint: all_reduce checkpoint: broadcast comm_by_host: all_gather comm_duplicate: all_gather ddp: all_gather_v ddp: all_to_all_v ddp: broadcast '
check "trace: the library's" "${internal}norm: all_gather_v trainer: all_gather trainer: all_gather_v trainer: all_reduce weights_compare: all_gather " \
    "$(named internal)"

tool train gpt "${SMALL[@]}" --fast --ranks 2
check '--fast' 0 $STATUS
matches '--fast prints both times' '^a step takes [0-9.]+ ms with --fast; with layout-independent bits [0-9.]+ ms$' "$OUT"

# More threads than OpenBLAS has work areas for: this one was built for 4, has 8, and ends the process beyond that
cat >areas.c <<'END'
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
static atomic_int inside;
void openblas_set_num_threads(int count) { (void)count; }
char *openblas_get_config(void) { return "OpenBLAS 0.3.21 MAX_THREADS=4"; }
void cblas_sgemm(void)
{
    if (atomic_fetch_add(&inside, 1) >= 8) abort();
    for (int i = 0; i < 100; i++) sched_yield();
    atomic_fetch_sub(&inside, 1);
}
END
mkdir areas
"${CC:-cc}" -shared -fPIC -o areas/libopenblas.so.0 areas.c || exit 1
LD_LIBRARY_PATH=$DIR/areas tool train gpt "${SMALL[@]}" --steps 1 --batch 64 --threads 64 --fast --clip 0
check 'many threads take turns in OpenBLAS' '0 ' "$STATUS $ERR"
LD_LIBRARY_PATH=$DIR/areas tool train gpt "${SMALL[@]}" --steps 1 --batch 64 --grains 64 --ranks 64
check 'many ranks take turns in OpenBLAS' '0 ' "$STATUS $ERR"

# A limit of address space: OpenBLAS asks for memory for ever where it gets none, so it is not asked
limited() { # LIMIT ARGUMENT...
    (
        # shellcheck disable=SC2086
        ulimit $1 || exit
        shift
        timeout -s KILL 120 "$TUTTI" train gpt "${SMALL[@]}" --steps 1 "$@" >out.txt 2>err.txt
        echo $? >status
    )
    check "limit $*: it ends, by itself" 1 "$(($(cat status) < 2))"
    [ "$(cat status)" = 0 ] || matches "limit $*: the error names it" 'ulimit -[vd]' "$(cat err.txt)"
}
if [ -z "${SANITIZE:-}" ]; then # the sanitizers themselves need more
    for limit in 150000 250000 400000 500000; do
        limited "-v $limit"
        limited "-v $limit" --ranks 2
        limited "-v $limit" --threads 4 --fast
    done
    limited '-v 150000'
    check 'a limit: it is too low for OpenBLAS' 1 "$(cat status)"
    matches 'a limit: and that is said' '^tutti train: OpenBLAS .*: the limit is 146.5 MiB in all; raise it \(ulimit -v\)' "$(cat err.txt)"
    limited '-d 150000'
    matches 'a limit on data' '^tutti train: OpenBLAS.*: the limit on data is 146.5 MiB; raise it \(ulimit -d\)' "$(cat err.txt)"
fi

# Signals, while a library that hangs is loaded, and while it multiplies: before the first step, and in a later one
cat >hang.c <<'END'
#include <stdio.h>
#include <unistd.h>
static void hang(const char *where)
{
    if (access(where, F_OK) != 0) return;
    fclose(fopen("inside", "w"));
    for (;;) pause();
}
__attribute__((constructor)) static void begin(void) { hang("load"); }
void openblas_set_num_threads(int count) { (void)count; }
char *openblas_get_config(void) { return "OpenBLAS 0.3.21 MAX_THREADS=4"; }
void cblas_sgemm(void) { hang("multiply"); }
END
mkdir hang
"${CC:-cc}" -shared -fPIC -o hang/libopenblas.so.0 hang.c || exit 1
train_and_hang() { # STEPS: starts a run and lets it hang after so many
    rm -rf inside hang.jsonl hung.save
    LD_LIBRARY_PATH=$DIR/hang "$TUTTI" train gpt "${SMALL[@]}" --steps 1000000 --metrics hang.jsonl --save hung.save >out.txt 2>err.txt &
    trainer=$!
    [ "$1" = 0 ] || within 60 lines_in hang.jsonl "$1"
    [ "$1" = 0 ] || touch multiply
    within 60 test -f inside
}
catches() { # SIGNAL: whether the run has a handler for it
    local caught
    caught=$(sed -n 's/^SigCgt:\t//p' "/proc/$trainer/status") && [ $((0x$caught >> ($(kill -l "$1") - 1) & 1)) = 1 ]
}
lets_go() { ! catches "$1"; }
for stage in load multiply; do
    touch "$stage"
    for row in INT:130 TERM:143; do
        train_and_hang 0
        kill -"${row%:*}" $trainer
        ended $trainer
        check "$stage: SIG${row%:*} ends it before the first step" "${row#*:}" $STATUS
    done
    rm "$stage"
done
for row in INT:INT:130 TERM:TERM:143 TERM:INT:130 INT:TERM:143; do
    IFS=: read -r first second wanted_status <<<"$row"
    train_and_hang 3
    check "$row: the first signal is caught" 0 "$(catches "$first"; echo $?)"
    kill -"$first" $trainer
    within 60 lets_go "$second"
    kill -"$second" $trainer
    ended $trainer
    check "$row: the second signal ends it at once" "$wanted_status" $STATUS
    rm multiply
done

# Checkpoints
tool ckpt ls one
matches 'ls' "^one/step-00000012 .*gpt  weights $wanted  ranks 1$" "$OUT"
if [ -z "${SANITIZE:-}" ]; then # what is compiled here is not linked to a sanitizer
    cat >forge.c <<'END'
#include <tutti/train.h>
int main(void)
{
    tutti_error error;
    float value = 1;
    tutti_note notes[] = {{"model", "gpt\033[2J\nforged/step-00000009  whole"}, {"layout.ranks", "1\r\302\233m"}, {"a\033c", "b\a"}};
    tutti_checkpoint_tensor tensor = {.group = "model", .name = "w\033[1m", .dimensions = 0, .values = &value};
    for (int step = 1; step < 3; step++, notes[0].value = "mlp\v", tensor.name = "v\033[1m")
        if (tutti_checkpoint_save("forged", (uint64_t)step, 0, notes, 3, &tensor, 1, &error) != TUTTI_OK) return 1;
    return 0;
}
END
    compile forge
    ./forge
    tool ckpt ls forged
    check 'ls: what a file says is shown as text' \
        '  gpt?[2J?forged/step-00000009  whole  weights ?  ranks 1??m' "$(sed -n '1s/.* MB//p' <<<"$OUT")"
    check 'ls: nothing but lines of text' 0 "$(LC_ALL=C grep -c '[[:cntrl:]]' out.txt)"
    tool ckpt diff forged/step-00000001 forged/step-00000002
    check 'diff: nothing but lines of text' '1 0' "$STATUS $(LC_ALL=C grep -c '[[:cntrl:]]' out.txt)"
    tool sample forged
    check 'errors: nothing but lines of text' 0 "$(LC_ALL=C grep -c '[[:cntrl:]]' err.txt)"
fi

tool ckpt verify one one/step-00000012
check 'verify' $'one/step-00000012: whole, '"$(cat one/step-00000012/*.safetensors | wc -c)"$' bytes\none/step-00000012: whole, '"$(cat one/step-00000012/*.safetensors | wc -c)"' bytes' "$OUT"
tool train gpt "${SMALL[@]}" --save two --save-every 6 --keep 2 --seed 2
tool ckpt diff one two
check 'diff: status' 1 $STATUS
matches 'diff: settings' '^seed: 1, 2$' "$OUT"
matches 'diff: tensors' '^model: wte.weight: [0-9]+ of 4096 values differ, by up to' "$OUT"
tool ckpt diff one one
check 'diff of the same' '0' "$STATUS$OUT"
cp -r two broken
printf 'X' | dd of=broken/step-00000012/model.safetensors bs=1 seek=3000 conv=notrunc 2>/dev/null
tool ckpt verify broken/step-00000012
check 'verify: damaged' 1 $STATUS
matches 'verify names the file' 'broken/step-00000012/model.safetensors: its bytes are not those that were saved' "$ERR"
cp -r two filefree
rm filefree/step-00000012/model.safetensors
tool ckpt verify filefree/step-00000012
check 'verify: a file is missing' 1 $STATUS
tool ckpt diff filefree/step-00000012 two
check 'diff: a file is missing' 1 $STATUS
tool ckpt verify filefree/step-00000099
check 'verify: there is no such checkpoint' 2 $STATUS
tool train gpt "${SMALL[@]}" --save broken --resume --seed 2
matches 'the damaged one is named' 'broken/step-00000012 is damaged, the one before it is tried' "$ERR"
matches 'the one before is used' '^going on from broken/step-00000006$' "$OUT"
tool ckpt ls broken
matches 'and the damaged one was replaced' '^broken/step-00000012 .*weights' "$OUT"

# Samples
tool sample one --prompt 'the quick' --tokens 20 --seed 3 --top 3
first=$OUT
matches 'it goes on from the prompt' '^the quick' "$OUT"
tool sample one/step-00000012 --prompt 'the quick' --tokens 20 --seed 3 --top 3
check 'the same seed, the same text' "$first" "$OUT"
tool train gpt --data markov:order=1,states=5,length=2000 --layers 1 --heads 1 --width 8 --context 4 --batch 4 --steps 2 --save ids
tool sample ids --prompt '1 2 3' --tokens 3
matches 'token ids' '^ 1 2 3 [0-4] [0-4] [0-4]$' "$OUT"

# Ctrl-C: saves, stops, and the rest gives the same weights
"$TUTTI" train gpt "${SMALL[@]}" --steps 1000000 --save stop --metrics stop.jsonl --schedule constant --ranks 2 >out.txt 2>err.txt &
trainer=$!
within 60 lines_in stop.jsonl 20
tool train gpt "${SMALL[@]}" --save stop --seed 2
check 'two runs into one folder: the second is refused' '2 tutti train: another run saves into stop; give each a folder of its own, or wait for its end' "$STATUS $ERR"
kill -INT $trainer
ended $trainer
check 'Ctrl-C: status' 130 $STATUS
at=$(wc -l <stop.jsonl)
check 'Ctrl-C: the last step is saved' "step-$(printf %08d "$at")" "$(ls stop)"
tool train gpt "${SMALL[@]}" --steps $((at + 5)) --save stop --resume --schedule constant --metrics stop.jsonl
resumed=$(tail -n 3 <<<"$OUT" | grep weights)
check 'metrics go on' $((at + 5)) "$(wc -l <stop.jsonl)"
tool train gpt "${SMALL[@]}" --steps $((at + 5)) --schedule constant
check 'resumed after Ctrl-C: the same weights' "$(grep ^weights <<<"$OUT")" "$resumed"

tool train gpt "${SMALL[@]}" --steps $((at + 5)) --save stop --resume --schedule constant --seed 7
matches 'what changes the run is said' 'resuming with another seed: 7, the checkpoint has ' "$ERR"
matches 'nothing left to do is said' "^step $((at + 5)) is taken already: --steps $((at + 5)) says where to end$" "$OUT"
tool train gpt "${SMALL[@]}" --steps $((at + 6)) --save stop --resume --schedule constant --type bf16
matches 'another type is said' '^tutti warn: resuming with another type: bf16, the checkpoint has f32$' "$ERR"

# A terminal that goes away, or who reads the output: the same
"$TUTTI" train gpt "${SMALL[@]}" --steps 1000000 --save hung --metrics hung.jsonl >out.txt 2>err.txt &
trainer=$!
within 60 lines_in hung.jsonl 20
kill -HUP $trainer
ended $trainer
check 'a terminal that goes away: status' 129 $STATUS
check 'a terminal that goes away: the last step is saved' "step-$(printf %08d "$(wc -l <hung.jsonl)")" "$(ls hung)"
timeout 240 "$TUTTI" train gpt "${SMALL[@]}" --steps 1000000 --save piped --metrics - 2>err.txt | head -1 >out.txt
check 'a pipe that is closed: status' 141 "${PIPESTATUS[0]}"
matches 'a pipe that is closed: saved' '^step-0' "$(ls piped)"

# SIGKILL under the launcher, in the middle of a save, waited for or not; resumed on another number of ranks
for async in '' --save-async; do
    "$TUTTI" run -n 2 "$TUTTI" train gpt "${SMALL[@]}" --steps 1000000 --save "$DIR/killed$async" --save-every 1 ${async:+"$async"} --schedule constant >out.txt 2>err.txt &
    launcher=$!
    within 60 sh -c "ls killed$async 2>/dev/null | grep -q 'step-.*[1-9][0-9]$'"
    kill -KILL $launcher
    ended $launcher
    ranks_end() { ! pgrep -f "[s]ave $DIR/killed$async" >/dev/null; }
    within 60 ranks_end
    at=$(basename "$("$TUTTI" ckpt ls killed$async | grep -v damaged | tail -n 1 | cut -d' ' -f1)" | sed 's/step-0*//')
    check 'SIGKILL: what has its name is whole' '' "$("$TUTTI" ckpt ls killed$async | grep damaged)"
    tool train gpt "${SMALL[@]}" --steps $((at + 3)) --save killed$async --resume --schedule constant --ranks 3 --threads 2
    resumed=$(grep ^weights <<<"$OUT")
    check 'what does not change the run is not said' '' "$(grep 'resuming with' <<<"$ERR")"
    tool train gpt "${SMALL[@]}" --steps $((at + 3)) --schedule constant
    check 'resumed after SIGKILL: the same weights' "$(grep ^weights <<<"$OUT")" "$resumed"
done

# A disk that fills: the error is shown, training goes on, the last good checkpoint stays
(
    ulimit -f 40 # blocks of 512 or 1024 bytes
    "$TUTTI" train gpt "${SMALL[@]}" --save full --save-every 5 >out.txt 2>err.txt
    echo $? >status
)
matches 'full disk: shown' 'no checkpoint was saved: full/.*cannot be written.*; training goes on' "$(cat err.txt)"
matches 'full disk: goes on' '^step 12/12' "$(cat out.txt)"
check 'full disk: but it is a failure' 1 "$(cat status)"
check 'full disk: the last line says so' 'tutti train: full lacks the last weights: saving them failed' "$(tail -n 1 err.txt)"
check 'full disk: nothing is left' '' "$(ls -A full)"
(
    ulimit -f 40
    "$TUTTI" train gpt "${SMALL[@]}" --save full --save-async >out.txt 2>err.txt
    echo $? >status
)
matches 'full disk, in the background: shown' 'no checkpoint of step 12 was saved: full/.*cannot be written' "$(cat err.txt)"
check 'full disk, in the background: a failure' 1 "$(cat status)"
check 'full disk, in the background: nothing is left' '' "$(ls -A full)"

tool train gpt "${SMALL[@]}" --metrics /dev/full
check 'metrics on a full disk: a failure' 1 $STATUS
check 'metrics on a full disk: shown once, and at the end' \
    'tutti train: --metrics /dev/full: No space left on device; training goes on
tutti train: --metrics /dev/full lacks steps: writing them failed' "$ERR"
matches 'metrics on a full disk: it goes on' '^step 12/12' "$OUT"
timeout 240 "$TUTTI" train gpt "${SMALL[@]}" >/dev/full 2>err.txt
check 'stdout on a full disk: a failure' 1 $?
matches 'stdout on a full disk: shown' '^tutti: (not all could be written|cannot write) to stdout' "$(cat err.txt)"

tool train gpt "${SMALL[@]}" --metrics -
check 'metrics to stdout: a line for each step' 12 "$(grep -c '^{"step": ' out.txt)"
check 'metrics to stdout: and nothing else' 12 "$(grep -c '' out.txt)"
matches 'metrics to stdout: the rest to stderr' '^step 12/12' "$ERR"
tool train gpt "${SMALL[@]}" --plot -
matches 'plot to stdout' '^<svg .*' "$(head -1 out.txt)"
check 'plot to stdout: and nothing else' '</svg>' "$(tail -1 out.txt | grep -o '</svg>$')"
check 'no file of that name' no "$([ -e - ] && echo yes || echo no)"

# refused PATTERN ARGUMENT...
status=2
refused() {
    local pattern=$1
    shift
    tool train "$@"
    check "status of: $*" "$status" "$STATUS"
    matches "message of: $*" "$pattern" "$ERR"
}
awk 'BEGIN { for (i = 0; i < 200; i++) print i * 37 % 101 / 50 - 1 "," i * 53 % 97 / 48 - 1 "," i % 2 }' >points.csv
NORMS=(mlp --data points.csv --layers 2 --width 16 --steps 12 --batch-norm)
tool train "${NORMS[@]}"
norms=$(hash_of)
matches 'batch norm trains' '^[0-9a-f]{16}$' "$norms"
tool train "${NORMS[@]}" --ranks 2 --steps 5 --schedule constant --save norms
tool train "${NORMS[@]}" --ranks 3 --schedule constant --save norms --resume
resumed=$(hash_of)
tool run -n 4 --no-prefix "$TUTTI" train "${NORMS[@]}" --zero 3
check 'batch norm over 4 ranks' "$norms" "$(hash_of)"
tool train "${NORMS[@]}" --schedule constant
check 'batch norm saved by 2 ranks, resumed by 3' "$(hash_of)" "$resumed"
matches 'running means are saved' '"norms.1.running_var":{"dtype":"F32","shape":\[16\]' "$(head -c 3000 norms/step-00000012/model.safetensors | tr -d '\0')"
refused 'batch_norm: it is over the whole batch, and pipe=2 works on 8 micro-batches: give micro 1' "${NORMS[@]}" --ranks 2 --mesh pipe=2
refused 'batch_norm: it is over the whole batch, so a rank makes one pass over its part, not 2: leave accumulate out' "${NORMS[@]}" --accumulate 2
refused 'batch_norm: it is for the mlp; a gpt has layer norms' gpt "${SMALL[@]}" --batch-norm
refused 'server 1 does not go with batch_norm: its workers go each at their own pace' "${NORMS[@]}" --ranks 2 --server 1
: >empty
printf '1,2,0\n1,x,1\n' >bad.csv
refused '^tutti train: data: missing cannot be opened \(No such file' gpt --data missing
refused '^tutti train: data: empty is empty' gpt --data empty
refused 'has 2200 tokens, 220 of them held out; a context of 500 needs 501' gpt --data text --context 500
refused '^tutti train: bad.csv:2: column 2 is "x", not a number' mlp --data bad.csv
refused 'ranks are more than 8 grains' gpt "${SMALL[@]}" --ranks 9
refused '^tutti train: pipeline zb-h1 needs stages: give a mesh with pipe=2 or more, such as --mesh pipe=2' gpt "${SMALL[@]}" --ranks 2 --pipeline zb-h1
refused '^tutti train: pipeline 1f1b needs stages' gpt "${SMALL[@]}" --pipeline 1f1b
refused '^tutti train: pipeline bogus: it is none of gpipe, 1f1b' gpt "${SMALL[@]}" --ranks 2 --pipeline bogus
refused '^tutti train: micro 4 needs stages' gpt "${SMALL[@]}" --ranks 2 --micro 4
refused '^tutti train: stages h.1.ln_1 needs stages' gpt "${SMALL[@]}" --ranks 2 --mesh data=2 --stages h.1.ln_1
refused '^tutti train: save_async needs save' gpt "${SMALL[@]}" --save-async
refused '^tutti train: --save-every needs --save' gpt "${SMALL[@]}" --save-every 2
refused 'interleaved: 2 micro-batches are no multiple of pipe=4; 4 with --grains 16 --batch 16 would do' gpt "${SMALL[@]}" --layers 4 --ranks 16 --mesh pipe=4 --pipeline interleaved
refused 'pipe=4 × 2 chunks is 8 stages; this model can be cut into 5; pipe=2 at most' gpt "${SMALL[@]}" --ranks 4 --mesh pipe=4 --pipeline interleaved
refused 'fast and pipe=2 do not go together; leave one of them out' gpt "${SMALL[@]}" --ranks 2 --mesh pipe=2 --fast
refused 'is of another model: layers is 1 there, 2 here' gpt "${SMALL[@]}" --save one --resume --layers 2
refused 'there is one/step-00000012 already: go on from it with --resume' gpt "${SMALL[@]}" --save one
refused "unknown model 'gtp'" gtp --data text
refused '--data is missing' gpt
refused "model is \"gtp\"; it takes gpt or mlp; did you mean gpt\?" --data text --model gtp
refused 'the folder /proc/none cannot be made' gpt "${SMALL[@]}" --save /proc/none
check 'a folder that cannot be saved to: before the first step' '' "$(grep ^step out.txt)"
for file in --metrics --plot; do
    refused '^tutti train: cannot write no/such/file: No such file' gpt "${SMALL[@]}" "$file" no/such/file --ranks 2
    check "$file: before the first step" '' "$(cat out.txt)"
done
refused '^tutti train: cannot read nowhere: No such file' --config nowhere
refused '^tutti train: cannot read .: Is a directory' --config .
refused ':2: the line is not text or is longer than 1022 bytes' --config <(printf 'steps 3\n%02000d\n' 0)
refused ':1: the line is not text or is longer than 1022 bytes' --config /dev/zero
refused '^tutti train: --resume needs --save' gpt "${SMALL[@]}" --resume
refused '^tutti train: the folder /dev/null cannot be opened' gpt "${SMALL[@]}" --save /dev/null
refused '^tutti train: --metrics - and --plot - both write to stdout' gpt "${SMALL[@]}" --metrics - --plot -
refused "there is no setting '.*'; lines are flags without --" --config <(echo '{"steps": 3}')
refused "there is no setting 'layres'; did you mean 'layers'\?" --config <(echo layres 3)
refused "there is no setting 'config'; lines are flags without --" --config <(echo config other.conf)
refused 'layers: "x" is not understood' --config <(echo layers x)
refused ':3: fast is set already, in line 1' --config <(printf 'fast 1\n\nfast 0\n')
refused "^tutti train: one --config at a time: 'small.conf' or 'odd.conf'" --config small.conf --config=odd.conf
refused '--lr: "-1" is out of range' gpt --data text --lr -1
status=1
refused 'does not fit: .* with layers 1000, width up to [1-9][0-9]* fits; with width 1048576, layers 1 does not' \
    gpt --data text --context 8 --layers 1000 --width 1048576
refused 'step [0-9]+: the loss is .* of layer .*; a lower learning rate' gpt "${SMALL[@]}" --steps 300 --lr 1e6 --clip 0 --schedule constant --warmup 0
tool sample nowhere
check 'sample: no checkpoint' 2 $STATUS
tool ckpt ls nowhere
check 'ckpt ls: no such folder' 2 $STATUS
mkdir none
tool ckpt ls none
check 'ckpt ls: an empty folder' '0 tutti ckpt: there is no checkpoint in none' "$STATUS $ERR"
tool ckpt ls one --json
matches 'ckpt ls: a flag that is none' "^tutti ckpt: unknown flag '?--json" "$ERR"
tool ckpt verify --help
matches 'ckpt: help behind the action' '^usage: tutti ckpt ls FOLDER' "$OUT"
tool ckpt veryfy one
matches 'ckpt: no such action' "'veryfy' is not one of ls, verify, diff; did you mean verify" "$ERR"
finish
