// SPDX-License-Identifier: Apache-2.0
// The limits of this machine that the kernel benchmarks are measured against.
#pragma once

namespace nanomind {

// Operations (2 per byte product) per second of one thread in dot products of bytes from registers, by the widest
// instruction that the CPU has; 0 where we know none.
double measure_int8_peak();

}  // namespace nanomind
