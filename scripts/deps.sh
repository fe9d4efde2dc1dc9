#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/deps.sh build [test] [bench]: makes sure that what these need is there. Silent when it is. Where something
# is missing, installs it on Debian (as root or with sudo that asks nothing), or says what to install and exits 2.
# TUTTI_NO_INSTALL=1 only says.
set -eu

# group, Debian package, how to see that it is there without asking a package manager
needs='
build  gcc                   command cc
build  libc6-dev             file /usr/include/stdio.h
build  cmake                 command cmake
build  ninja-build           command ninja
build  pkg-config            command pkg-config
build  libhwloc-dev          module hwloc
build  libopenblas0-pthread  library libopenblas.so.0
build  libsodium-dev         module libsodium
build  libjansson-dev        module jansson
build  libxxhash-dev         file /usr/include/xxhash.h
test   clang                 command clang
test   libclang-rt-14-dev    runtime libclang_rt.tsan
test   clang-format-14       command clang-format-14
test   shellcheck            command shellcheck
test   binutils              command nm
test   procps                command ps
test   util-linux            command setarch
test   openmpi-bin           command mpirun.openmpi
test   mpich                 command mpiexec.hydra
test   slurmctld             file /usr/sbin/slurmctld
test   slurmd                file /usr/sbin/slurmd
test   slurm-client          command srun
test   iproute2              command ip
test   openssh-client        command ssh
test   openssh-server        daemon /usr/sbin/sshd
bench  g++                   command g++
bench  openmpi-bin           command mpirun.openmpi
bench  libopenmpi-dev        module ompi
bench  mpich                 command mpirun.mpich
bench  libmpich-dev          module mpich
bench  libgloo-dev           file /usr/include/gloo/allreduce.h
'

# Whether the compiler can link sanitized programs is decided by the sanitizers' runtime beside it.
has_runtime()
{
    command -v clang > /dev/null || return 1
    local file
    for file in "$(clang -print-resource-dir)"/lib/*/"$1"*.a; do
        [ -e "$file" ] && return 0
    done
    return 1
}

has()
{
    case $1 in
    command) command -v "$2" > /dev/null ;;
    file) [ -e "$2" ] ;;
    daemon) [ -e "$2" ] || [ -d /run/systemd/system ] ;; # never installed where that would start it for everyone
    module) command -v pkg-config > /dev/null && pkg-config --exists "$2" ;;
    runtime) has_runtime "$2" ;;
    library) PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q "$2 " ;;
    esac
}

missing=()
for group in "$@"; do
    known=no
    while read -r row_group package kind what; do
        [ "$row_group" = "$group" ] || continue
        known=yes
        has "$kind" "$what" || missing+=("$package")
    done <<< "$needs"
    if [ $known = no ]; then
        echo "deps.sh: there is no group '$group'; there are: build test bench" >&2
        exit 2
    fi
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get > /dev/null; then
    echo "Missing here, by their Debian names: ${missing[*]}" >&2
    echo "Install them with this system's package manager, then run make again." >&2
    exit 2
fi

sudo=
if [ "$(id -u)" != 0 ]; then
    sudo=sudo
    if [ -z "${TUTTI_NO_INSTALL:-}" ] && ! sudo -n true 2> /dev/null; then
        TUTTI_NO_INSTALL=1
    fi
fi
if [ -n "${TUTTI_NO_INSTALL:-}" ]; then
    echo "Packages are missing. Install them, then run make again:" >&2
    echo "    ${sudo:+$sudo }apt-get update && ${sudo:+$sudo }apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 2
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly()
{
    if ! $sudo env DEBIAN_FRONTEND=noninteractive "$@" > "$log" 2>&1; then
        cat "$log" >&2
        echo "deps.sh: '$*' failed" >&2
        exit 1
    fi
}

echo "Installing packages (once): ${missing[*]}"
quietly apt-get update
quietly apt-get install -y --no-install-recommends "${missing[@]}"
