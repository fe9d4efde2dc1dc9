#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 waits
# What people are told who make the usual mistakes, over memory and over tcp.
source "$(dirname "$0")/run.bash"
cat >mistake.c <<'END'
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>
static int work(tutti_comm *world, int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    int rank = tutti_rank(world), *x = tutti_alloc(world, 8 * sizeof *x), *y = tutti_alloc(world, 8 * sizeof *y);
    size_t in[3] = {2, 2, 2}, out[3] = {2, 2, 2};
    tutti_comm *odd = NULL;
    tutti_message message;
    tutti_status status = tutti_barrier(world);
    if (strcmp(kind, "counts") == 0) {
        if (rank == 1) out[2]--;
        status = tutti_all_to_all_v(world, x, in, NULL, y, out, NULL, TUTTI_I32);
        if (status == TUTTI_OK) status = tutti_barrier(world);
    } else if (strcmp(kind, "type") == 0) {
        status = tutti_all_to_all_v(world, x, in, NULL, y, out, NULL, rank == 1 ? TUTTI_F32 : TUTTI_I32);
    } else if (strcmp(kind, "probe") == 0) {
        if (rank == 0) status = tutti_probe(world, TUTTI_ANY_SOURCE, 7, &message);
    } else if (strcmp(kind, "long") == 0) {
        if (rank == 0) status = tutti_send(world, x, 4, TUTTI_I32, 1, 7);
        if (rank == 1) status = tutti_recv(world, x, 3, TUTTI_I32, 0, 7, NULL);
    } else if (strcmp(kind, "forgotten") == 0) {
        tutti_op op; /* and one that was prepared, which counts when it was started */
        status = tutti_all_reduce_start(world, x, y, 8, TUTTI_I32, TUTTI_SUM, &op);
        static int got;
        if (status == TUTTI_OK)
            status = tutti_sendrecv_start(tutti_prepared(world), x, 1, rank, 7, &got, 1, rank, 7, TUTTI_I32, NULL, &op);
        if (status == TUTTI_OK && rank == 1) status = tutti_start(op);
    } else if (strcmp(kind, "sent") == 0) { /* by a handle in whose place another op was */
        tutti_op op;
        status = tutti_send(world, x, 1, TUTTI_I32, (rank + 1) % 3, 7);
        if (status == TUTTI_OK)
            status = tutti_all_reduce_start(tutti_within(world, 30000), x, y, 8, TUTTI_I32, TUTTI_SUM, &op);
        if (status == TUTTI_OK) status = tutti_wait(op);
        if (status == TUTTI_OK) status = tutti_send_start(world, x, 1, TUTTI_I32, (rank + 1) % 3, 7, &op);
    } else if (strcmp(kind, "left") == 0) { /* with a message that nobody has received */
        tutti_op op;
        static char large[1 << 20];
        if (rank == 0) {
            status = tutti_send_start(world, large, sizeof large, TUTTI_U8, 1, 7, &op);
            return status == TUTTI_OK ? tutti_drop(op) != TUTTI_OK : tutti_explain(world, stderr);
        }
        status = tutti_barrier(world);
    } else if (strcmp(kind, "handle") == 0) {
        tutti_op op;
        status = tutti_barrier_start(world, &op);
        if (status == TUTTI_OK) status = tutti_wait(op);
        if (status == TUTTI_OK) return tutti_wait_all(&op, 1) != TUTTI_ERR_HANDLE;
    } else if (strcmp(kind, "root") == 0) { /* and no call after it */
        status = tutti_broadcast(world, x, x, 1, TUTTI_I32, rank == 1 ? 1 : 0);
    } else if (strcmp(kind, "more") == 0) { /* the last call on one rank only */
        if (rank == 0) status = tutti_broadcast(world, x, x, 1, TUTTI_I32, 0);
    } else if (strcmp(kind, "group") == 0) {
        status = tutti_group_begin(world);
        if (status == TUTTI_OK) status = tutti_send(world, x, 1, TUTTI_I32, (rank + 1) % 3, 7);
    } else if (strcmp(kind, "part") == 0) { /* of ranks 1 and 2 */
        status = tutti_comm_split(world, rank == 0 ? -1 : 0, 0, &odd);
        if (rank == 2) status = tutti_recv(odd, x, 1, TUTTI_I32, 0, 7, NULL);
        if (status != TUTTI_OK) return tutti_explain(odd, stderr);
    }
    return status == TUTTI_OK ? 0 : tutti_explain(world, stderr);
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
END
compile mistake

# told KIND PATTERN...: each matches a line
told() {
    local kind=$1 how pattern
    shift
    for how in shm tcp; do
        tool run -n 3 --transport $how ./mistake "$kind"
        for pattern in "$@"; do matches "$kind over $how" "$pattern" "$ERR"; done
    done
}
here='mistake.c:[0-9]+'
told counts "^\[1\]   counts differ in all_to_all_v #2: rank 2( at $here)? sends 2 elements to rank 1 at $here, which receives 1\$"
told type "^\[[0-2]\]   ranks differ at operation #2: rank [0-2] called all_to_all_v\((i32|f32)\) at $here, but rank"
told probe "^\[0\] tutti: rank 0: probe: TUTTI_ERR_MISMATCH" \
    "^\[0\]   rank 0 probes with tag 7 at $here from any rank, and all others have left\$"
told long "^\[1\]   rank 0's message with tag 7 has 4 elements, the buffer of rank 1 at $here only 3;"
told forgotten "^\[2\] tutti warn: rank 2 frees a comm and has not waited for 1 of the ops .* all_reduce at $here;" \
    '^\[1\] tutti warn: rank 1 frees a comm and has not waited for 2 of the ops'
check 'forgotten: not an error' 0 $STATUS
told sent "^\[2\] tutti warn: rank 2 frees a comm and has not waited for 1 of the ops it has started(, such as send at $here)?;"
told left "^\[2\]   .*rank . called barrier at $here, but rank 0 (called leave|has left)"
told handle '^\[1\] tutti error: tutti_wait: no op has this handle: waited for, dropped, never given, or its comm is gone$'
told group '^\[1\] tutti warn: rank 1 frees a comm on which a group has begun and not ended: its calls were never'
told part "^\[2\]   rank 1 receives with tag 7 at $here from rank 0, which has left and sent no such message\$" \
    '^\[2\]   in a comm of 2: its rank 0 is rank 1 of the world, 1 is 2$'

# found when they leave, if at all: the job has failed
for kind in root more; do
    for how in shm tcp; do
        for _ in 1 2 3 4 5; do
            tool run -n 3 --transport $how ./mistake $kind
            check "$kind over $how: the status" 1 $STATUS
            matches "$kind over $how" "^\[[0-2]\] tutti error: rank [0-2] leaves a comm whose ranks differ at operation #2: .* called broadcast.*root [01]\) at $here|^\[[0-2]\] tutti: rank [0-2]: broadcast #2: TUTTI_ERR_MISMATCH" "$ERR"
        done
    done
    ERR=$(TUTTI_RANKS=3 timeout 60 ./mistake $kind 2>&1)
    check "$kind of threads: the status" 1 $?
    matches "$kind of threads" '^tutti error: rank [0-2] leaves a comm whose ranks differ' "$ERR"
done

# options that are found wrong only when the world is made
for ranks in 1 2; do
    for option in TUTTI_TRACE=/nonexistent/x TUTTI_TUNING=/nonexistent/x; do
        ERR=$(env TUTTI_RANKS=$ranks $option timeout 60 ./mistake none 2>&1)
        check "status with $option, $ranks" 2 $?
        matches "$option, $ranks" "^tutti error: .*/nonexistent/x" "$ERR"
    done
done
finish
