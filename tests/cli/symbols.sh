#!/bin/bash
# ctest: timeout=60
# libtutti.so exports exactly what the public headers declare; in libtutti.a all else begins with tti_.
set -eu
if [ -n "$SANITIZE" ]; then
    echo "skipped: sanitizers add their own symbols"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
rc=0
none() # complaint, file: the file must be empty
{
    if [ -s "$2" ]; then
        echo "$1:"
        sed 's/^/    /' "$2"
        rc=1
    fi
}

nm -D --defined-only "$BUILD/libtutti.so" | awk '{print $3}' | sed 's/@.*//' | sort > exported
nm -g --defined-only "$BUILD/libtutti.a" | awk 'NF == 3 {print $3}' | sort > global
sed -nE 's/^TUTTI_API .*\b(tutti_[a-z0-9_]+)\(.*/\1/p' "$SRC"/include/tutti/*.h | sort -u > declared

grep -v '^tutti_' exported > foreign || true
none "libtutti.so exports other names than tutti_" foreign
grep -Ev '^(tti|tutti)_' global > unprefixed || true
none "libtutti.a has global names that begin neither with tti_ nor with tutti_" unprefixed
comm -23 declared exported > missing
none "declared in a public header, but not exported" missing
comm -13 declared exported > hidden
none "exported, but declared in no public header" hidden
[ -s exported ] || { echo "libtutti.so exports nothing"; rc=1; }

version=$(sed -n 's/^#define TUTTI_VERSION_MAJOR //p' "$SRC/include/tutti/tutti.h")
soname=$(objdump -p "$BUILD/libtutti.so" | awk '$1 == "SONAME" {print $2}')
[ "$soname" = "libtutti.so.$version" ] || { echo "SONAME is '$soname', not libtutti.so.$version"; rc=1; }

objdump -p "$BUILD/libtutti.so" | awk '$1 == "NEEDED" {print $2}' | grep -Ev '^(libc|libm|libpthread|libsodium|libjansson|ld-linux[^.]*)\.so' > needed || true
none "libtutti.so needs more than libc, libm, pthread, libsodium and jansson" needed
exit $rc
