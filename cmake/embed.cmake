# SPDX-License-Identifier: Apache-2.0
#
# cmake -DOUT=FILE.c -DROOT=FOLDER -DHEADERS="a.h;b.h" -DKERNELS="fold.cu;…" -P embed.cmake: writes C with the text of each
# kernel, NAME.cu as tti_gpu_NAME_source. The headers are put before each of them, and includes are left out: the compiler of
# kernels has no files.
set(text "/* made by cmake/embed.cmake */\n#include \"collective/gpu/gpu_source.h\"\n")

function(append_lines file) # to `text`: a C string for each line
    file(READ "${ROOT}/${file}" lines)
    string(REGEX REPLACE "(^|\n)#include [^\n]*" "\\1" lines "${lines}")
    string(REPLACE "\\" "\\\\" lines "${lines}")
    string(REPLACE "\"" "\\\"" lines "${lines}")
    string(REGEX REPLACE "([^\n]*)\n" "    \"\\1\\\\n\"\n" lines "${lines}")
    set(text "${text}${lines}" PARENT_SCOPE)
endfunction()

foreach(kernel IN LISTS KERNELS)
    get_filename_component(name ${kernel} NAME_WE)
    string(APPEND text "\nconst char tti_gpu_${name}_source[] =\n")
    foreach(file IN LISTS HEADERS)
        append_lines(${file})
    endforeach()
    append_lines(${kernel})
    string(APPEND text "    \"\";\n")
endforeach()
file(WRITE ${OUT} "${text}")
