# SPDX-License-Identifier: Apache-2.0
#
# Every tests/test_*.c is a program and a test; every tests/cli/*.sh is a test run by bash. Other tests/*.c are helpers
# linked to every test program. A comment in a test's first lines can set what differs from the defaults:
#     /* ctest: timeout=600 labels=full,asan waits serial */          (in a script: # ctest: …)
#   timeout     seconds on a quiet machine (300); what is killed for a hang has had four times as long; long ones come first
#   labels      full: only in `make test-full`; asan, tsan: run under that sanitizer too
#   waits       most of the time, for deadlines and for others: two such run in the place of one that computes; on
#               two cores run two that compute and one that waits, or up to five that wait
#   serial      runs alone: it measures time
# `all` leaves these programs out, so that whoever builds or installs the library does not wait for them; the target
# build_tests has them all.
# A test that exits with 77 is skipped; it says why. Tests find TUTTI (the tool), BUILD, SRC and SANITIZE in their
# environment.
enable_testing()
add_custom_target(build_tests)

# A program of tests: it is made by build_tests and not by `all`.
function(tutti_test_program name)
    add_executable(${name} EXCLUDE_FROM_ALL ${ARGN})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endfunction()

function(tutti_test name source)
    add_test(NAME ${name} COMMAND ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})

    set(timeout 300)
    set(labels)
    set(processors 2)
    set(serial OFF)
    file(STRINGS ${source} header LIMIT_INPUT 2000 REGEX "^(/\\*|#| \\*|//) *ctest:")
    foreach(line IN LISTS header)
        if(line MATCHES "timeout=([0-9]+)")
            set(timeout ${CMAKE_MATCH_1})
        endif()
        if(line MATCHES "labels=([a-z0-9_,-]+)")
            string(REPLACE "," ";" labels "${CMAKE_MATCH_1}")
        endif()
        if(line MATCHES "[ ,]waits([ ,]|$)")
            set(processors 1)
        endif()
        if(line MATCHES "[ ,]serial([ ,]|$)")
            set(serial ON)
        endif()
    endforeach()

    math(EXPR timeout "4 * ${timeout}")
    set(environment
        "TUTTI=${CMAKE_BINARY_DIR}/tutti" "BUILD=${CMAKE_BINARY_DIR}" "SRC=${CMAKE_SOURCE_DIR}" "CC=${CMAKE_C_COMPILER}"
        "SANITIZE=${TUTTI_SANITIZE}"
        "UBSAN_OPTIONS=print_stacktrace=1" "ASAN_OPTIONS=detect_stack_use_after_return=1"
        "TSAN_OPTIONS=halt_on_error=1 second_deadlock_stack=1")
    set_tests_properties(${name} PROPERTIES
        TIMEOUT ${timeout} COST ${timeout} LABELS "${labels}" PROCESSORS ${processors} RUN_SERIAL ${serial}
        SKIP_RETURN_CODE 77
        ENVIRONMENT "${environment}")
endfunction()

file(GLOB test_sources CONFIGURE_DEPENDS tests/*.c)
set(helper_sources ${test_sources})
list(FILTER test_sources INCLUDE REGEX "/test_[^/]*$")
list(FILTER helper_sources EXCLUDE REGEX "/test_[^/]*$")
if(helper_sources)
    add_library(tutti_test_helpers OBJECT EXCLUDE_FROM_ALL ${helper_sources})
    target_include_directories(tutti_test_helpers PRIVATE src tests)
    target_link_libraries(tutti_test_helpers PRIVATE tutti_flags tutti_static)
endif()

file(GLOB sim_job_sources RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS tests/sim_job/*.c)
list(APPEND sim_job_sources src/cli/job_heal.c)

foreach(source IN LISTS test_sources)
    get_filename_component(name ${source} NAME_WE)
    tutti_test_program(${name} ${source})
    target_include_directories(${name} PRIVATE src tests ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE tutti_flags tutti_static m)
    if(sanitizers) # their checks take long to optimise; what computes for long lies in the library and in the helpers
        target_compile_options(${name} PRIVATE -O0)
    endif()
    if(name STREQUAL test_sim_rebuild) # a job with the launchers' own decisions
        target_sources(${name} PRIVATE ${sim_job_sources})
    endif()
    if(helper_sources)
        target_link_libraries(${name} PRIVATE tutti_test_helpers)
        target_sources(${name} PRIVATE $<TARGET_OBJECTS:tutti_test_helpers>)
    endif()
    string(REGEX REPLACE "^test_" "" test ${name})
    tutti_test(${test} ${source} ${name})
    get_test_property(${test} LABELS labels)
    if(NOT TUTTI_SANITIZE STREQUAL "tsan" OR "tsan" IN_LIST labels) # clang's warnings come with asan, which builds all
        add_dependencies(build_tests ${name})
    endif()
endforeach()

find_program(BASH bash REQUIRED)
file(GLOB script_sources CONFIGURE_DEPENDS tests/cli/*.sh)
foreach(source IN LISTS script_sources)
    get_filename_component(name ${source} NAME_WE)
    tutti_test(cli.${name} ${source} ${BASH} ${source})
endforeach()

# Every tests/plants/*.sed plants a mistake in one file of the library, which it names, and a program looks for it by seeds of
# simulated faults (tests/plants/look.c), or the test tests/test_NAME.c must fail with it; what is set as in tests may follow:
#     # plant: src/FILE.c seeds=400
#     # plant: src/FILE.c jobs=200: seeds of jobs with their launchers (tests/sim_job), and the file may be the launcher's
#     # plant: src/FILE.c test=NAME
#     # ctest: labels=full
if(NOT sanitizers)
    file(GLOB plants CONFIGURE_DEPENDS tests/plants/*.sed)
    set(look tests/plants/look.c src/cli/sim_program.c src/cli/sim_survive.c src/cli/sim_step.c)
    foreach(plant IN LISTS plants)
        get_filename_component(name ${plant} NAME_WE)
        file(STRINGS ${plant} header LIMIT_COUNT 1 REGEX "^# plant: src/.*\\.c (seeds=[0-9]+|jobs=[0-9]+|test=[a-z0-9_]+)$")
        string(REGEX REPLACE "^# plant: (.*) (seeds|jobs|test)=(.*)$" "\\1;\\2;\\3" header "${header}")
        list(GET header 0 source)
        list(GET header 1 kind)
        list(GET header 2 finds)
        set(planted ${CMAKE_BINARY_DIR}/plants/${name}.c)
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${plant})
        file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/plants)
        add_custom_command(OUTPUT ${planted} DEPENDS ${plant} ${source} VERBATIM
            COMMAND ${BASH} -c "sed -f \"$1\" \"$2\" >\"$3\" && ! cmp -s \"$2\" \"$3\"" planting
                ${plant} ${CMAKE_SOURCE_DIR}/${source} ${planted})
        if(kind STREQUAL "seeds")
            tutti_test_program(plant_${name} ${look} ${planted})
            tutti_test(plant.${name} tests/plants/look.c plant_${name} ${finds})
        elseif(kind STREQUAL "jobs")
            set(program ${sim_job_sources})
            list(REMOVE_ITEM program ${source})
            tutti_test_program(plant_${name} tests/plants/look_jobs.c ${program} ${planted})
            tutti_test(plant.${name} tests/plants/look_jobs.c plant_${name} ${finds})
        else()
            tutti_test_program(plant_${name} tests/test_${finds}.c ${planted} $<TARGET_OBJECTS:tutti_test_helpers>)
            target_link_libraries(plant_${name} PRIVATE tutti_test_helpers)
            tutti_test(plant.${name} ${plant} ${BASH} tests/plants/must_fail.bash
                $<TARGET_FILE:plant_${name}>)
            set_property(TEST plant.${name} PROPERTY WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
        endif()
        add_dependencies(build_tests plant_${name})
        target_include_directories(plant_${name} PRIVATE include src tests ${CMAKE_SOURCE_DIR})
        target_link_libraries(plant_${name} PRIVATE tutti_flags tutti_static m)
    endforeach()
endif()

# Every tests/fuzz/fuzz_*.c is a target of libFuzzer, built with the address sanitizer; `make test` gives it a fixed number of
# inputs, from one seed:
#     /* fuzz: runs=100000 */
# To search for longer: build-asan/tests/fuzz_NAME FOLDER
if(TUTTI_SANITIZE STREQUAL "asan" AND CMAKE_C_COMPILER_ID MATCHES "Clang")
    # What inputs go through is built so that the search sees its branches; the rest comes from the library.
    set(fuzzed base/alloc base/clock base/key base/options base/status base/table
        transport/door transport/knock transport/proof transport/socket transport/tcp_connect transport/tcp_head
        world/launch world/launch_c10d world/launch_pmi world/launch_pmix
        world/meeting_member world/meeting_root world/rendezvous world/join_messages
        train/checkpoint train/safetensors train/file train/data_csv train/data_files
        train/pipeline_table train/pipeline_file train/pipeline_check)
    list(TRANSFORM fuzzed REPLACE "(.+)" "src/\\1.c")
    add_library(tutti_fuzzed OBJECT EXCLUDE_FROM_ALL ${fuzzed})
    target_include_directories(tutti_fuzzed PRIVATE include src)
    target_compile_options(tutti_fuzzed PRIVATE -fsanitize=fuzzer-no-link)
    target_link_libraries(tutti_fuzzed PRIVATE tutti_flags Threads::Threads Tutti::sodium Tutti::jansson)
    file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
    foreach(source IN LISTS fuzz_sources)
        get_filename_component(name ${source} NAME_WE)
        file(STRINGS ${source} runs LIMIT_INPUT 500 REGEX "^/\\* fuzz: runs=[0-9]+")
        string(REGEX REPLACE "^.*runs=([0-9]+).*$" "\\1" runs "${runs}")
        tutti_test_program(${name} ${source} $<TARGET_OBJECTS:tutti_fuzzed>)
        add_dependencies(build_tests ${name})
        target_include_directories(${name} PRIVATE include src)
        target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        target_link_libraries(${name} PRIVATE tutti_flags tutti_static)
        string(REGEX REPLACE "^fuzz_" "fuzz." test ${name})
        tutti_test(${test} ${source} ${name} -error_exitcode=1 -timeout_exitcode=1 -runs=${runs} -seed=1 -max_len=4096 -len_control=0 -print_final_stats=1)
        set_tests_properties(${test} PROPERTIES LABELS asan TIMEOUT 480)
    endforeach()
endif()
