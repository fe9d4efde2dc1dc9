#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60
# The rank that failed first is named, and its status returned, although all others have noticed and ended before it has.
source "$(dirname "$0")/run.bash"
cat >fail.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>
#include <unistd.h>
/* rank 2 fails, and ends when the others are not there any more */
static char others[3][64];
static void outlive_others(void)
{
    for (int i = 0; i < 3; i++)
        while (access(others[i], F_OK) == 0) usleep(1000);
}
static int work(tutti_comm *world, int argc, char **argv)
{
    int32_t pid = getpid(), pids[4];
    (void)argv;
    if (tutti_all_gather(world, &pid, pids, 1, TUTTI_I32) != TUTTI_OK) return 1;
    if (tutti_rank(world) != 2) return tutti_barrier(world) == TUTTI_OK ? 0 : 1;
    if (argc > 1) exit(0);
    for (int i = 0; i < 3; i++) snprintf(others[i], sizeof *others, "/proc/%d", (int)pids[i == 2 ? 3 : i]);
    atexit(outlive_others);
    return 3;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
END
compile fail
make_shell

for transport in shm tcp; do
    tool run -n 4 --grace-ms 100s --transport $transport ./fail
    check "its status, $transport" 3 $STATUS
    matches 'its name' '^tutti run: rank 2 \(pid [0-9]+\) exited with status 3$' "$ERR"
done

tool run -n 4 --grace-ms 100s ./fail quietly
check 'one that ends without leaving: status' 1 $STATUS
matches 'one that ends without leaving: named too' \
    '^tutti run: rank [013] \(pid [0-9]+\) exited with status 1; rank 2 \(pid [0-9]+\) ended with status 0$' "$ERR"

tool run --hosts a,b --ssh ./shell -n 2 --master-addr 127.0.0.1 --grace-ms 100s ./fail
check 'its status, on another host' 3 $STATUS
matches 'its name and host' '^tutti run: rank 2 on b \(pid [0-9]+\) exited with status 3$' "$ERR"
finish
