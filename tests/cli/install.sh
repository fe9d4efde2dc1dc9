#!/bin/bash
# ctest: timeout=300
# What `make install` installs is enough: README.md's programs build against it with pkg-config, shared and static,
# and with find_package(Tutti), from below DESTDIR and after the tree was moved.
set -eu
if [ -n "$SANITIZE" ]; then
    echo "skipped: sanitized libraries are not installed"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

quietly() # command…: its output only matters when it fails
{
    "$@" > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
}

sources_of() # target: the sources that are compiled for it, below this folder
{
    ninja -C "$BUILD" -t inputs "$1" | sed -n "s|^$SRC/\(.*\.c\)\$|\1|p"
}

# `make install` builds what is installed and `make` no tests either: they take several times as long as the rest.
make -n -C "$SRC" install | grep -q 'cmake --build .*--target installed$' || { echo "make install builds more"; exit 1; }
if sources_of installed | grep '^tests/\|^examples/\|^bench/bench_' || sources_of all | grep '^tests/'; then
    echo "these are built, but not installed"
    exit 1
fi
for source in src/cli/main.c src/base/status.c; do
    sources_of installed | grep -qx "$source" || { echo "not built for installing: $source"; exit 1; }
done
sources_of build_tests | grep -qx tests/test_ddp.c || { echo "build_tests does not build the tests"; exit 1; }

DESTDIR=$dir/stage quietly cmake --install "$BUILD" --prefix /opt/tutti
mv "$dir/stage/opt/tutti" "$dir/moved"
root=$dir/moved
libdir=$(dirname "$(find "$root" -name libtutti.a)")
for file in "$root/include/tutti/tutti.h" "$root/bin/tutti" "$root/share/man/man1/tutti.1" "$libdir/libtutti.so.0" \
    "$libdir/pkgconfig/tutti.pc" "$root/share/doc/tutti/README.md" "$root/share/doc/tutti/docs/launchers.md" \
    "$root/share/doc/tutti/examples/ddp.c"; do
    [ -e "$file" ] || { echo "not installed: $file"; exit 1; }
done
find "$root/share/doc/tutti" -name '*.md' | while read -r page; do
    { grep -o '](\.*[a-zA-Z/][^):]*)' "$page" || true; } | sed 's/^](//; s/[#)].*//' | while read -r link; do
        [ -e "$(dirname "$page")/$link" ] || echo "$page: there is no $link"
    done
done > "$dir/links"
if [ -s "$dir/links" ]; then
    cat "$dir/links"
    exit 1
fi
if grep -rlI "$dir/stage\|$SRC" "$libdir/pkgconfig" "$libdir/cmake"; then
    echo "these name a folder that only exists while building"
    exit 1
fi

if grep -rla "$SRC\|$BUILD" "$root/bin" "$libdir"; then
    echo "these say where they were built"
    exit 1
fi
grep -qa 'src/cli/bench_ops.c' "$root/bin/tutti" || { echo "the tool's errors name no files"; exit 1; }

export PKG_CONFIG_PATH=$libdir/pkgconfig
version=$(awk '/^#define TUTTI_VERSION_/ {printf "%s%s", dot, $3; dot = "."}' "$root/include/tutti/tutti.h")
[ "$(pkg-config --modversion tutti)" = "$version" ] || { echo "tutti.pc has another version than tutti.h"; exit 1; }
"$SRC/scripts/readme_examples.sh" "$SRC/README.md" "$dir"
mkdir "$dir/project"
cat > "$dir/project/CMakeLists.txt" << 'END'
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(Tutti 0.1 REQUIRED)
foreach(kind tutti tutti_static)
    add_executable(with_${kind} ${EXAMPLE})
    target_link_libraries(with_${kind} Tutti::${kind})
endforeach()
END

run() # program: alone and with 2 ranks
{
    local ranks
    for ranks in 1 2; do
        if ! TUTTI_RANKS=$ranks LD_LIBRARY_PATH=$libdir "$1" > "$dir/output" 2>&1; then
            cat "$dir/output"
            echo "failed: $1 with TUTTI_RANKS=$ranks"
            exit 1
        fi
    done
    echo "ok: $(basename "$1")"
}

for source in "$dir"/example_*.c; do
    program=${source%.c}
    # shellcheck disable=SC2046 # pkg-config prints a list of words
    {
        "$CC" -o "${program}_shared" "$source" $(pkg-config --cflags --libs tutti)
        "$CC" -static -o "${program}_static" "$source" $(pkg-config --static --cflags --libs tutti)
    }
    run "${program}_shared"
    run "${program}_static"
    quietly cmake -S "$dir/project" -B "$program.build" -G Ninja -DCMAKE_C_COMPILER="$CC" \
        -DTutti_DIR="$libdir/cmake/Tutti" -DEXAMPLE="$source"
    quietly cmake --build "$program.build"
    run "$program.build/with_tutti"
    run "$program.build/with_tutti_static"
done
for source in "$root"/share/doc/tutti/examples/*.c; do
    # shellcheck disable=SC2046 # pkg-config prints a list of words
    "$CC" -std=c17 -Wall -Wextra -Werror -o "$dir/${source##*/}.out" "$source" $(pkg-config --cflags --libs tutti) -lm
done
[ -e "$dir/layer.c.out" ] || { echo "examples/layer.c is not installed"; exit 1; }
readelf -d "${program}_shared" | grep -q 'NEEDED.*libtutti\.so\.0' || { echo "not linked to libtutti.so.0"; exit 1; }
"$root/bin/tutti" --version
