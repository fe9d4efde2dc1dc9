#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints every file that clang-format keeps in form.
set -eu
cd "$(dirname "$0")/.."
for folder in include src tests bench examples; do
    [ ! -d $folder ] || find $folder -name '*.[ch]' -o -name '*.[ch]pp'
done
