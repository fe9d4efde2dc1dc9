#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120
# On a CPU that OpenBLAS does not know it takes its oldest kernels: better ones are chosen by the CPU's features, doctor
# says which and why, and where that cannot be done there is one warning, and no share of the machine's rate.
source "$(dirname "$0")/run.bash"
unset OPENBLAS_CORETYPE

flags=$(grep -m1 '^flags' /proc/cpuinfo) best='' taken='' features=''
has() {
    local flag
    for flag; do [[ " $flags " = *" $flag "* ]] || return 1; done
}
has avx2 fma && best=HASWELL taken=Haswell features='AVX2 and FMA'
has avx2 fma avx512f avx512cd avx512bw avx512dq avx512vl && best=SKYLAKEX taken=SkylakeX features='AVX-512'
if [ -z "$best" ]; then
    echo 'skipped: this CPU has no AVX2, and the oldest kernels are good enough for it'
    exit 77
fi

# An OpenBLAS that does not know this CPU. -DKNOWS: the kernels that it has beside Prescott's; -DCONFIG: how it was built.
cat >fake.c <<'END'
#include <stdlib.h>
#include <string.h>
#include <strings.h>
static const char *core = "Prescott", *const knows[] = {KNOWS};
__attribute__((constructor)) static void choose(void)
{
    const char *asked = getenv("OPENBLAS_CORETYPE");
    for (size_t i = 0; asked != NULL && i < sizeof knows / sizeof *knows; i++)
        if (strcasecmp(asked, knows[i]) == 0) core = knows[i];
}
void openblas_set_num_threads(int count) { (void)count; }
const char *openblas_get_config(void) { return CONFIG; }
const char *openblas_get_corename(void) { return core; }
void cblas_sgemm(void) {}
END
fake() { # FOLDER KNOWS [CONFIG]
    mkdir -p "$1"
    "${CC:-cc}" -shared -fPIC -Wl,-soname,libopenblas.so.0 -o "$1/libopenblas.so.0" -DKNOWS="$2" \
        -DCONFIG="\"OpenBLAS 0.3.21 ${3-DYNAMIC_ARCH} MAX_THREADS=64\"" fake.c || exit 1
}
fake all '"Sandybridge", "Haswell", "SkylakeX"'
fake lesser '"Sandybridge"'
fake fixed '"SkylakeX"' ''

with() { # FOLDER ARGUMENT...: the tool with that OpenBLAS
    LD_LIBRARY_PATH=$DIR/$1 tool "${@:2}"
}
small=(train gpt --data text --layers 1 --heads 1 --width 8 --context 8 --batch 4 --steps 1 --val-every 0 --clip 0)
printf '%0999d' 0 >text

# Chosen by features
with all doctor
matches 'doctor: chosen' "^ok +kernels .* OpenBLAS for $taken, chosen by this CPU's features \($features\); .* took those for Prescott\$" \
    "$OUT"
with all "${small[@]}"
check 'train: no warning' '0 ' "$STATUS $ERR"
matches 'train: a share of the rate is told' '^step 1/1 .* GFLOP/s \([0-9]+%\)' "$OUT"
TUTTI_LOG=info with all "${small[@]}"
matches 'train: it is told to those who ask' "^tutti info: OpenBLAS multiplies with its kernels for $taken, chosen by" "$ERR"

# By the user
OPENBLAS_CORETYPE=PRESCOTT with all doctor
matches 'doctor: as asked' "^note +kernels .* for Prescott, as OPENBLAS_CORETYPE says; they are older than this CPU, whose" "$OUT"
matches 'doctor: what to do' "^ +fix: unset OPENBLAS_CORETYPE, or set it to $best\$" "$OUT"
OPENBLAS_CORETYPE=PRESCOTT with all "${small[@]}"
check 'train: as asked, no warning' '0 ' "$STATUS $ERR"
matches 'train: but it is said' '^the matrix kernels are those for Prescott, as OPENBLAS_CORETYPE says; they are older' "$OUT"
matches 'train: and no share of a slow rate' '^step 1/1 .* GFLOP/s \(old kernels\)' "$OUT"
OPENBLAS_CORETYPE=NONSENSE with all "${small[@]}"
check 'train: what it does not know' 'tutti warn: OpenBLAS does not know OPENBLAS_CORETYPE=NONSENSE; it took Prescott' "$ERR"

# That cannot be made to
old() { # FOLDER KERNELS REASON FIX
    with "$1" doctor
    matches "$1: doctor" "^warn +kernels .* for $2, older than this CPU, whose $features allows $best: $3\$" "$OUT"
    matches "$1: what to do" "^ +fix: $4" "$OUT"
    with "$1" "${small[@]}" --ranks 2
    check "$1: status" 0 "$STATUS"
    check "$1: one warning" 1 "$(wc -l <<<"$ERR")"
    matches "$1: the warning" "^tutti warn: OpenBLAS multiplies with its kernels for $2, older than .*: $3; training is slow" "$ERR"
    matches "$1: no share of a slow rate" '^step 1/1 .* GFLOP/s \(old kernels\)' "$OUT"
}
old lesser Sandybridge 'this OpenBLAS has no better ones' 'install a newer OpenBLAS'
old fixed Prescott 'this OpenBLAS was built for one CPU alone' 'install one that was built for all CPUs'

# In a program: the environment is as before, also for threads that read it meanwhile; one that uses OpenBLAS itself
cat >use.c <<'END'
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <tutti/train.h>
static atomic_bool done;
static void *read_on(void *context)
{
    (void)context;
    while (!done)
        if (getenv("DIR") == NULL || getenv("LAST") == NULL) return "a variable was missed";
    return "";
}
int main(void)
{
    pthread_t reader;
    void *missed;
    tutti_blas_about about;
    setenv("LAST", "1", 1);
    if (pthread_create(&reader, NULL, read_on, NULL) != 0) return 1;
    if (tutti_blas_load(NULL) != TUTTI_OK) return 1;
    atomic_store(&done, 1);
    pthread_join(reader, &missed);
    tutti_blas_describe(&about);
    printf("%s %d %s%s\n", about.kernels, about.old, getenv("OPENBLAS_CORETYPE") ? "set" : "unset", (char *)missed);
    return 0;
}
END
export DIR
"${CC:-cc}" -I "$SRC/include" use.c -o use -pthread -L "$BUILD" -ltutti "-Wl,-rpath,$BUILD" || exit 1
check 'a program' "$taken 0 unset" "$(LD_LIBRARY_PATH=all ./use 2>&1)"
"${CC:-cc}" -I "$SRC/include" use.c -o linked -pthread -L "$BUILD" -ltutti "-Wl,-rpath,$BUILD" -Wl,--no-as-needed \
    all/libopenblas.so.0 || exit 1
OUT=$(LD_LIBRARY_PATH=all ./linked 2>&1)
matches 'one that uses OpenBLAS itself' '^Prescott 1 unset$' "$OUT"
matches 'and is told' "Prescott, older than .*: the program uses OpenBLAS itself.* To do: set OPENBLAS_CORETYPE=$best before" "$OUT"
check 'so it works' "$taken 0 set" "$(OPENBLAS_CORETYPE=$best LD_LIBRARY_PATH=all ./linked 2>&1)"

# The true OpenBLAS, made to not know this CPU: it is unloaded, loaded again, and multiplies
cat >unknown.c <<'END'
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
char *getenv(const char *name)
{
    Dl_info caller;
    char *(*next)(const char *) = (char *(*)(const char *))dlsym(RTLD_NEXT, "getenv");
    char *value = next(name);
    if (value != NULL || strcmp(name, "OPENBLAS_CORETYPE") != 0) return value;
    int there = dladdr(__builtin_return_address(0), &caller) != 0 && caller.dli_fname != NULL;
    return there && strstr(caller.dli_fname, "libopenblas") != NULL ? "PRESCOTT" : NULL;
}
END
if [ -z "$SANITIZE" ] && tool doctor && grep -q 'library .*OpenBLAS.*DYNAMIC_ARCH' <<<"$OUT"; then
    "${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o unknown.so unknown.c || exit 1
    OUT=$(LD_PRELOAD=$DIR/unknown.so "$TUTTI" doctor 2>&1)
    matches 'the true OpenBLAS' "^ok +kernels .* OpenBLAS for $taken, chosen by .* took those for Prescott\$" "$OUT"
    small=(train gpt --data text --layers 1 --heads 1 --width 8 --context 8 --batch 4 --steps 3 --val-every 0)
    wanted=$(OPENBLAS_CORETYPE=$best "$TUTTI" "${small[@]}" 2>&1 | grep '^weights')
    for ranks in 1 2; do
        OUT=$(OPENBLAS_NUM_THREADS=2 LD_PRELOAD=$DIR/unknown.so "$TUTTI" "${small[@]}" --ranks $ranks 2>&1)
        check "the true OpenBLAS multiplies the same, $ranks ranks" "$wanted" "$(grep '^weights' <<<"$OUT")"
    done
    cat >forks.c <<'END'
#include <stdlib.h>
#include <sys/wait.h>
#include <tutti/train.h>
#include <unistd.h>
int main(void)
{
    int status = 0;
    if (tutti_blas_load(NULL) != TUTTI_OK) return 1;
    double rate = tutti_blas_rate(2, 0.01);
    pid_t child = fork(); /* what the first loading left for it must be gone */
    if (child == 0) _exit(0);
    waitpid(child, &status, 0);
    printf("%d %d\n", rate > 0, status);
    return 0;
}
END
    compile forks
    check 'its threads and what it does at fork are gone with it' '1 0' "$(LD_PRELOAD=$DIR/unknown.so ./forks 2>&1)"
else
    echo 'the true OpenBLAS is not tried: there is none for all CPUs, or this is a sanitized build'
fi
finish
