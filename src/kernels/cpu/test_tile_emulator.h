// SPDX-License-Identifier: Apache-2.0
// Runs the tile instructions of AMX on CPUs that do not have them, so that the kernels in amx/ can be tested on any
// x86-64 with AVX-512. There each tile instruction raises SIGILL; the handler does what the Intel SDM says (vol. 2,
// "LDTILECFG", "TILELOADD", "TILESTORED", "TILEZERO", "TILERELEASE", "TDPBF16PS") and continues behind it. Each costs
// microseconds: this is for tests of results, and no product code knows of it.
//
// What the processor would refuse (tiles without a configuration, shapes that do not fit, other instructions) ends the
// program as it would without the emulator.
#pragma once

namespace nanomind {

// From here on, in all threads. Calling it again changes nothing.
void emulate_tiles();

}  // namespace nanomind
