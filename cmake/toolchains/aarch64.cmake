# Cross build for 64-bit ARM on Debian with multiarch: the compiler of crossbuild-essential-arm64, libraries as :arm64 packages
# (both from `./dev setup check`), tests run through qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

# Multiarch keeps the libraries of every architecture under one root, so only what is found by name needs steering:
# CMake packages and pkg-config files of aarch64 come first, and those of the building machine are not looked at.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_PREFIX_PATH /usr/lib/aarch64-linux-gnu)
set(CMAKE_IGNORE_PATH /usr/lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu/cmake)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)

# The machine's own loader and libraries serve the emulated program, which makes `-L /` right under multiarch.
# $QEMU_CPU chooses the processor: `max` has every extension that qemu knows, cortex-a53 is the smallest that we support.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
