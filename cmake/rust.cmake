# Builds rust/ (a static library with a C ABI) through cargo and exposes it as the imported target nanomind_rust.
# Cargo decides by itself whether anything has to be compiled; crates come from crates.io in the versions of Cargo.lock.
include_guard(GLOBAL)

set(rust_dir ${CMAKE_SOURCE_DIR}/rust)
# Shared by all presets, so that the crates are compiled once.
set(rust_target_dir ${CMAKE_SOURCE_DIR}/build/rust)
set(rust_environment "")

if(CMAKE_CROSSCOMPILING AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  # Debian's toolchain has a standard library for arm64 (libstd-rust-web-dev:arm64); one in the home directory may not.
  set(NANOMIND_CARGO /usr/bin/cargo CACHE FILEPATH "cargo that can build for the target")
  set(rust_triple aarch64-unknown-linux-gnu)
  list(APPEND rust_environment
    RUSTC=/usr/bin/rustc
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=${CMAKE_C_COMPILER})
  set(rust_target_option --target ${rust_triple})
  set(rust_library ${rust_target_dir}/${rust_triple}/release/libnanomind_rust.a)
else()
  find_program(NANOMIND_CARGO cargo REQUIRED DOC "cargo 1.85 or newer")
  set(rust_target_option "")
  set(rust_library ${rust_target_dir}/release/libnanomind_rust.a)
endif()

file(GLOB_RECURSE rust_sources CONFIGURE_DEPENDS ${rust_dir}/src/*.rs)
add_custom_command(
  OUTPUT ${rust_library}
  COMMAND ${CMAKE_COMMAND} -E env ${rust_environment}
          ${NANOMIND_CARGO} build --release --locked --quiet ${rust_target_option} --target-dir ${rust_target_dir}
  WORKING_DIRECTORY ${rust_dir}
  DEPENDS ${rust_sources} ${rust_dir}/Cargo.toml ${rust_dir}/Cargo.lock
  COMMENT "Building the Rust library"
  USES_TERMINAL
  VERBATIM)
add_custom_target(nanomind_rust_build DEPENDS ${rust_library})

add_library(nanomind_rust STATIC IMPORTED GLOBAL)
set_target_properties(nanomind_rust PROPERTIES
  IMPORTED_LOCATION ${rust_library}
  INTERFACE_INCLUDE_DIRECTORIES ${rust_dir}/include
  INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
add_dependencies(nanomind_rust nanomind_rust_build)
