#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120 waits
# A host that falls silent: three hosts, which are network namespaces joined by virtual cables, and a fourth for the launcher, which
# reaches them by a real ssh. A cable is pulled: the others are told, and go on with the host that waits; the ranks that are cut off
# are told so and ended, and do not go on when the cable is back. GATE=N pulls each cable N times and checks the promised times, on a
# machine that does little else.
source "$(dirname "$0")/namespaces.bash"

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

TOLD_MS=5000 WHOLE_MS=10000 # a loaded machine takes longer than is promised
[ -z "${GATE:-}" ] || TOLD_MS=2500 WHOLE_MS=5000
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
    check "host $host: told within $TOLD_MS ms" 1 $((lost <= TOLD_MS))
    check "host $host: whole within $WHOLE_MS ms" 1 $((whole <= WHOLE_MS))
    TOLD+=("$lost") WHOLE+=("$whole")
    ip link set "cable$host" up
    touch stop
    ended $job
    check "host $host: status" 0 "$STATUS"
    [ "$STATUS" = 0 ] || { cat err.txt; cat told lost; }
    matches "host $host: said" "^tutti run: host 10.77.0.$host has been silent for [0-9]+ ms and is lost" "$(cat err.txt)"
    matches "host $host: where" "^tutti run: the ranks of 10.77.0.$host are started again on 10.77.0.3" "$(cat err.txt)"
    check "host $host: no rank is told what others are not" '' "$(grep -v EXCLUDED told 2>/dev/null)"
    cut -d' ' -f2 ranks >all
    within 20 gone all
    check "host $host: nothing is left" 0 $?
}
most() { printf '%s\n' "$@" | sort -n | tail -1; }
TOLD=() WHOLE=()
for ((round = 0; round < ${GATE:-1}; round++)); do
    silence 2 '2 3'
    silence 1 '0 1'
done
echo "${#TOLD[@]} silent hosts: told after $(most "${TOLD[@]}") ms at most, whole again after $(most "${WHOLE[@]}") ms at most"
finish
