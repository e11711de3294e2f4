# How this project declares libraries, tests and benchmarks; also the warnings and sanitizers they share.
include_guard()

add_library(nanomind_options INTERFACE)
target_include_directories(nanomind_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(nanomind_options INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror=return-type -fno-math-errno -ffp-contract=off
  -Wno-missing-field-initializers)  # members left out have defaults, which designated initialisers are for
# Statement expressions carry TRY; both compilers that we support have them.
target_compile_options(nanomind_options INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-gnu-statement-expression>)
# GCC 12 sees overlapping copies in the standard library's own strings (its bug 105329).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(nanomind_options INTERFACE -Wno-restrict)
endif()
if(NANOMIND_SANITIZE)
  target_compile_options(nanomind_options INTERFACE -fsanitize=${NANOMIND_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(nanomind_options INTERFACE -fsanitize=${NANOMIND_SANITIZE})
endif()

# nanomind_library(<folder> SOURCES a.cc … DEPENDS base tensor … LINK external …)
# Declares static library nanomind_<folder>.
function(nanomind_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  add_library(nanomind_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(nanomind_${name} PUBLIC nanomind_options)
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(nanomind_${name} PUBLIC nanomind_${dependency})
  endforeach()
  target_link_libraries(nanomind_${name} PUBLIC ${ARG_LINK})
endfunction()

# nanomind_test(<name> SOURCES a_test.cc … DEPENDS folders … [LABELS …])
# One GoogleTest program build/…/<name>, run as one ctest.
function(nanomind_test name)
  if(NOT NANOMIND_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})  # for tests/support
  target_link_libraries(${name} PRIVATE nanomind_options GTest::gtest GTest::gmock GTest::gtest_main ${ARG_LINK})
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(${name} PRIVATE nanomind_${dependency})
  endforeach()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(ARG_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  endif()
endfunction()

# nanomind_fuzzer(<name> SOURCES x_fuzz.cc DEPENDS folders …): a libFuzzer program, corpus in fuzz/corpora/<name>.
function(nanomind_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE nanomind_options ${ARG_LINK})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(${name} PRIVATE nanomind_${dependency})
  endforeach()
endfunction()
