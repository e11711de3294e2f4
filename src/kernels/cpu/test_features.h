// SPDX-License-Identifier: Apache-2.0
// What the kernel tests can run here: what the CPU can, and what test code emulates.
#pragma once

#include <cstdint>

namespace nanomind {

// CpuFeature bits; starts the emulation of those that need it.
uint32_t testable_features();

}  // namespace nanomind
