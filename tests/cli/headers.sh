#!/bin/bash
# ctest: timeout=60
# Each public header stands alone, in C17 and in C++, under every compiler found here.
set -eu
try() # compiler, standard, language, header
{
    command -v "$1" > /dev/null || return 0
    echo "$1 -std=$2 $(basename "$4")"
    "$1" -std="$2" -x "$3" -fsyntax-only -pedantic -Wall -Wextra -Wconversion -Wshadow -Werror -I "$SRC/include" \
        -include "$4" /dev/null
}
for header in "$SRC"/include/tutti/*.h; do
    for compiler in gcc clang; do try $compiler c17 c "$header"; done
    for compiler in g++ clang++; do try $compiler c++11 c++ "$header"; done
done
