#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=1800 labels=full
# Drills on every kind of layout, over memory and tcp, at every moment of a step, of every rank.
source "$(dirname "$0")/run.bash"
[ -z "${SANITIZE:-}" ] || exit 77

SMALL=(--data "markov:order=2,states=16" --layers 4 --heads 2 --width 32 --context 16 --batch 8 --width-grains 2 --steps 10
    --val-every 0 --save saved --save-every 4)

tool train gpt "${SMALL[@]}" --steps 1
if [ $STATUS != 0 ] && grep -q 'OpenBLAS' <<<"$ERR"; then
    echo "skipped: $ERR"
    exit 77
fi

MODEL=gpt RANKS=4
drill() { # TRANSPORT KILLS ARGUMENT...
    local transport=$1 kills=$2
    shift 2
    rm -rf saved
    TUTTI_TRANSPORT=$transport tool run -n $RANKS --max-restarts 4 --no-prefix "$TUTTI" train "$MODEL" "${SMALL[@]}" --drill "$kills" "$@"
    check "$transport $kills $*" 0 "$STATUS"
    [ "$STATUS" = 0 ] || tail -3 <<<"$ERR"
}

moment=0
moments=(step=6 gradients=6 update=6 save=4 update=10 save=10 end step=1 gradients=1)
# each_layout: of stdin, a line each: every rank over memory and tcp, at the next moment; and two, one after the other
each_layout() {
    while read -r layout; do
        for transport in auto tcp; do
            for rank in 0 1 2 3; do
                # shellcheck disable=SC2086
                drill $transport "kill=$rank@${moments[moment++ % ${#moments[@]}]}" $layout
            done
            # shellcheck disable=SC2086
            drill $transport "kill=1@update=5,kill=2@${moments[moment++ % ${#moments[@]}]}" $layout
        done
    done
}
each_layout <<'END'

--zero 1
--zero 2
--zero 3
--zero 1 --type bf16
--fast --zero 2
--accumulate 2
--zero 2 --accumulate 2
--mesh data=2,shard=2 --zero 1
--mesh data=2,shard=2 --zero 3
--mesh data=2,pipe=2
--mesh pipe=4
--mesh shard=2,pipe=2 --zero 2
--mesh data=2,pipe=2 --pipeline interleaved --micro 4
--mesh pipe=2,tensor=2 --pipeline interleaved --micro 4
--mesh data=2,pipe=2 --pipeline zb-h1 --micro 4
--mesh shard=2,pipe=2 --zero 3 --pipeline zb-h1 --micro 4
--mesh data=2,pipe=2 --pipeline zb-v --micro 4
--mesh shard=2,pipe=2 --zero 1 --pipeline zb-v --micro 4
--mesh data=2,tensor=2
--mesh data=2,tensor=2 --sequence
--mesh pipe=2,tensor=2 --zero 1
--mesh pipe=2,tensor=2 --sequence --pipeline zb-h1 --micro 4
--mesh shard=2,tensor=2 --zero 3
--mesh shard=2,tensor=2 --zero 2 --sequence --recompute
--zero 1 --save-async
--zero 1 --copy-every 3
END

# Ranks that are threads of one process: two die together.
export TUTTI_RANKS=2
RANKS=2
each_layout <<'END'

--zero 1
--zero 3
--mesh data=2,shard=2 --zero 2
--mesh pipe=4
--mesh data=2,tensor=2 --sequence
END
unset TUTTI_RANKS
RANKS=4

for i in $(seq 80); do echo "$((i * 7 % 13)),$((i % 3)),$((i * i % 7))"; done >table.csv
SMALL=(--data table.csv --layers 3 --width 8 --batch 8 --width-grains 2 --steps 10 --val-every 5 --save saved --save-every 4) MODEL=mlp
each_layout <<'END'
--batch-norm
--batch-norm --zero 1
--batch-norm --zero 3 --type bf16
--batch-norm --mesh data=2,shard=2 --zero 2
--batch-norm --mesh data=2,pipe=2 --micro 1
--batch-norm --mesh data=2,tensor=2
END
finish
