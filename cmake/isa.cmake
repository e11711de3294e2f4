# The ISA folders of kernels/cpu that belong to the target processor, and the flags that each of them is compiled with.
# Every folder's sources are only ever run after select.cc has found the CPU features that its flags assume.
include_guard()

set(NANOMIND_FLAGS_scalar -O3)
set(NANOMIND_FLAGS_avx2 -O3 -mavx2 -mfma -mf16c -mbmi2)
set(NANOMIND_FLAGS_avx512 ${NANOMIND_FLAGS_avx2}
  -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512vbmi -mprefer-vector-width=512)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # Its AVX-512 intrinsics start from values that are undefined on purpose, and it warns about each use.
  list(APPEND NANOMIND_FLAGS_avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
set(NANOMIND_FLAGS_amx ${NANOMIND_FLAGS_avx512} -mavx512bf16)  # tile instructions are written in assembly
set(NANOMIND_FLAGS_neon -O3 -mtune=cortex-a76)
set(NANOMIND_FLAGS_dotprod -O3 -march=armv8.2-a+dotprod -mtune=cortex-a76)
set(NANOMIND_FLAGS_i8mm -O3 -march=armv8.2-a+dotprod+i8mm -mtune=cortex-a76)

if(NANOMIND_SANITIZE)
  # Unrolled kernels have thousands of loads; a check of each pointer besides the address sanitizer's takes compilers minutes.
  foreach(isa avx2 avx512 amx)
    list(APPEND NANOMIND_FLAGS_${isa} -fno-sanitize=alignment,null,pointer-overflow,object-size,bounds)
  endforeach()
endif()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(NANOMIND_ARCHITECTURE x86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(NANOMIND_ARCHITECTURE arm)
else()
  set(NANOMIND_ARCHITECTURE other)
endif()

# nanomind_isa(<list> <isa> <file>...): appends cpu/<isa>/<file> to the list and sets the flags of that ISA.
function(nanomind_isa list isa)
  set(isa_files ${ARGN})
  list(TRANSFORM isa_files PREPEND cpu/${isa}/)
  set_source_files_properties(${isa_files} PROPERTIES COMPILE_OPTIONS "${NANOMIND_FLAGS_${isa}}")
  set(${list} ${${list}} ${isa_files} PARENT_SCOPE)
endfunction()
