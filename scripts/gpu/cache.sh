#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# cache.sh DEVICE: what is wrong with the folder of compiled kernels harms nobody. Files in it that hold garbage are compiled
# again and replaced; a folder that cannot be made is told in the log. From the folder that scripts/test_gpu.sh makes.
set -u
cd "$(dirname "$0")" || exit 1
device=$1 rc=0
folder=$PWD/cache.tried
rm -rf "$folder"

must() # what, command…
{
    if "${@:2}"; then
        printf '%s: as it must be\n' "$1"
    else
        printf '%s: NOT so\n%s\n' "$1" "$out"
        rc=1
    fi
}

# Four ranks sum 0 to 3; all that the library says is in $out.
sums() # folder
{
    out=$(TUTTI_RANKS=4 TUTTI_DEVICE_PROVIDER=cuda TUTTI_LOG=info TUTTI_CACHE=$1 timeout -k 5 60 ./gpu "$device" 2>&1)
    [ "$(grep -c "^rank [0-3] of 4 on $device: 6\$" <<< "$out")" = 4 ]
}
says() { grep -qE "$1" <<< "$out"; }
says_not() { ! says "$1"; }

damage() # how, file
{
    case $1 in
    empty) : > "$2" ;;
    short) truncate -s -100 "$2" ;;
    garbage) head -c 5000 /dev/urandom > "$2" ;;
    'one byte') printf '\377' | dd of="$2" bs=1 seek=200 conv=notrunc status=none ;;
    esac
}

must 'an empty folder' sums "$folder"
must 'files are there' test -n "$(ls "$folder")"
for how in empty short garbage 'one byte'; do
    for file in "$folder"/*; do damage "$how" "$file"; done
    must "$how" sums "$folder"
    must "$how, told" says 'is damaged or of another version: it is compiled again'
    must "$how, used again" sums "$folder"
    must "$how, replaced" says_not 'is damaged'
done
: > "$folder.file"
for where in "$folder.file" /proc/tutti; do
    must "$where" sums "$where"
    must "$where, told" says 'compiled kernels cannot be kept in'
done
rm -rf "$folder" "$folder.file"
exit $rc
